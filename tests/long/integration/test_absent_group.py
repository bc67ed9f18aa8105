"""A consumer that was down from before the switch of a replacement until after it, on a real Kafka."""

from __future__ import annotations

import logging

import pytest

from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.modelog.group_rules import GroupRule
from tests.support.succession import Following, Given, Reader, Readers, Writer


def replace_while_it_is_down(following: Following, writer: Writer, journal: list[Given]) -> None:
    """The group reads a part of the topic and goes down; then the topic is replaced, and the drain waits for it."""
    served, old = following.served, following.topic
    with Readers([Reader("a", [old], following.conf(), journal)], journal) as readers:
        readers.await_given(old, 300)
    following.replace(4, delay_ms=0)
    lag = reasons.of_group(reasons.GROUP_LAG, following.group)
    served.wait_for(old, lambda record: lag in {retired.reason for retired in record.retired.values()})
    writer.stop()
    assert topics(following) == {old, following.successor}


def topics(following: Following) -> set[str]:
    return {following.topic, following.successor} & following.served.admin.list_topics(timeout=20).topics.keys()


def test_the_deletion_waits_for_one_that_is_required(following: Following) -> None:
    journal: list[Given] = []
    with Writer(following.producer, following.name) as writer:
        replace_while_it_is_down(following, writer, journal)
    with Readers([Reader("b", [following.topic], following.conf(), journal)], journal) as readers:
        readers.check(writer.sent)
        following.served.wait_done(following.topic)
    assert topics(following) == {following.successor}


def test_one_that_was_waived_begins_at_the_start_of_the_successor_and_is_told(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    journal: list[Given] = []
    with Writer(following.producer, following.name) as writer:
        replace_while_it_is_down(following, writer, journal)
    rule = GroupRule("waive", following.group, following.topic, "it is retired", 0)
    assert following.served.ask(AlterGroupRulesCommand(add=(rule,))).code is ErrorCode.NONE
    following.served.wait_done(following.topic)
    assert topics(following) == {following.successor}

    late: list[Given] = []
    conf = following.conf(auto_offset_reset="latest")
    with (
        caplog.at_level(logging.WARNING, "modeaware.clients.starts"),
        Readers([Reader("b", [following.topic], conf, late)], late) as readers,
    ):
        for key, count in writer.sent.items():
            readers.await_last(key, count - 1)
    assert {given.topic for given in late} == {following.successor}
    for key in writer.sent:
        numbers = [given.number for given in late if given.key == key]
        assert numbers == list(range(numbers[0], writer.sent[key])), "nothing of the successor is skipped"
    (told,) = [record.getMessage() for record in caplog.records if record.name == "modeaware.clients.starts"]
    assert f"group {following.group!r} begins at topic {following.successor!r}" in told
    assert f"{following.topic!r}. That is deleted, with what the group had not read of it" in told
