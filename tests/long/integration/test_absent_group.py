"""A consumer that was down from before the switch of a replacement until after it, on a real Kafka."""

from __future__ import annotations

import logging

import pytest

from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.modelog.group_rules import GroupRule
from tests.support.plain import drain_topic
from tests.support.succession import Following
from tests.support.waiting import eventually
from tests.workload.load import Load
from tests.workload.record import number_of


def replace_while_it_is_down(following: Following, load: Load) -> None:
    """The group reads a part of the topic and goes down; then the topic is replaced, and the drain waits for it."""
    served, old = following.served, following.topic
    with following.writer(load):
        for reader in following.readers(load, following.conf(), 0, group="early"):
            with reader:
                load.await_given(old, 300)
        following.replace(4, delay_ms=0)
        lag = reasons.of_group(reasons.GROUP_LAG, following.group)
        served.wait_for(old, lambda record: lag in {retired.reason for retired in record.retired.values()})
    assert topics(following) == {old, following.new_topic}


def topics(following: Following) -> set[str]:
    return {following.topic, following.new_topic} & following.served.admin.list_topics(timeout=20).topics.keys()


def test_the_deletion_waits_for_one_that_is_required(following: Following) -> None:
    load = Load("early")
    replace_while_it_is_down(following, load)
    for reader in following.readers(load, following.conf(), 0):
        with reader:
            load.await_read()
            following.served.wait_done(following.topic)
    load.check()
    assert topics(following) == {following.new_topic}


def test_one_that_was_waived_begins_at_the_start_of_the_new_topic_and_is_told(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load("early", "late")
    replace_while_it_is_down(following, load)
    rule = GroupRule("waive", following.group, following.topic, "it is retired", 0)
    assert following.served.ask(AlterGroupRulesCommand(add=(rule,))).code is ErrorCode.NONE
    following.served.wait_done(following.topic)
    assert topics(following) == {following.new_topic}

    conf = following.conf(auto_offset_reset="latest")
    stored = drain_topic(following.served.servers, following.new_topic)
    numbers = {number_of(each.value(), each.key()) for each in stored}
    with caplog.at_level(logging.WARNING, "modeaware.clients.starts"):
        for reader in following.readers(load, conf, 0, group="late"):
            with reader:
                eventually(lambda: load.fine() and load.ledger.distinct["late"] >= len(numbers), 60)
    given = {record.number for record in load.ledger.read_by("late")}
    assert given == numbers, "nothing of the new topic is skipped, nor anything else given"
    load.check([])
    (told,) = [record.getMessage() for record in caplog.records if record.name == "modeaware.clients.starts"]
    assert f"group {following.group!r} starts at topic {following.new_topic!r}" in told
    assert (
        f"the deleted topic {following.topic!r}; records of the deleted topic that the group had not read are lost"
        in told
    )
