"""A topic that was replaced is deleted, on a real Kafka: once everything has left it, and not before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import NewTopic

from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.modelog.records import Replacement, TopicRecord
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, commit_zero, produce
from tests.support.groups import RunningGroup
from tests.support.succession import Following
from tests.support.waiting import eventually
from tests.workload.load import Load


def counts(served: Controlled, *topics: str) -> dict[str, int]:
    """Topic -> its partitions, of those that are there."""
    found = served.admin.list_topics(timeout=20).topics
    return {topic: len(found[topic].partitions) for topic in topics if topic in found}


def replacement(record: TopicRecord) -> Replacement:
    assert record.replacement is not None
    return record.replacement


def test_the_old_topic_goes_while_producers_and_consumers_go_on_under_its_name(following: Following) -> None:
    served, old, new = following.served, following.topic, following.new_topic
    load = Load()
    following.readers(load, following.conf(topic_metadata_refresh_interval_ms=500), 0, 0)
    following.writer(load, **{"topic.metadata.refresh.interval.ms": 500})
    with load.running():
        load.await_held(old, 12)
        load.await_given(old, 300)
        assert counts(served, old, new) == {old: 12}
        following.replace(4, delay_ms=0)
        done = served.wait_done(old)
        assert replacement(done).deleting_ms is not None
        load.await_given(new, 1_000)
        assert counts(served, old, new) == {new: 4}, "8 fewer, and no client has brought the name back"
    load.check(servers=served.servers, chain={new: 4})
    assert counts(served, old, new) == {new: 4}


def _replaced_and_moved(setting: Controlled, old: str, group: str) -> str:
    """Have a topic replaced that a stock group reads to its end, and move the group; return the new topic."""
    new = f"{old}-v2"
    written = produce(setting, old, 30)
    with RunningGroup(setting.servers, old, group) as running:
        running.wait_for(written)
        assert setting.ask(ReplaceTopicCommand(old, new, 2, delay_ms=0)).code is ErrorCode.NONE
        not_moved = reasons.of_group(reasons.GROUP_NOT_MOVED, group)
        setting.wait_for(old, lambda record: replacement(record).reason == not_moved)
    commit_zero(setting, group, new, 2)
    return new


def test_a_stock_consumer_that_stays_subscribed_keeps_it(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    old, group = make_topic(3), make_group()
    new = _replaced_and_moved(served, old, group)
    with RunningGroup(served.servers, old, group):
        subscribed = reasons.of_group(reasons.GROUP_SUBSCRIBED, group)
        released = served.wait_for(old, lambda record: replacement(record).reason == subscribed)
        assert replacement(released).released_ms is not None
        assert counts(served, old, new) == {old: 3, new: 2}
    gone = served.wait_done(old)
    assert counts(served, old, new) == {new: 2}
    assert {p: retired.seal_offset is not None for p, retired in gone.retired.items()} == dict.fromkeys(range(3), True)


def test_nothing_is_deleted_once_the_mode_log_was_made_anew_by_automatic_creation(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    controller = setting.start()
    old, group = make_topic(3), make_group()
    new = _replaced_and_moved(setting, old, group)
    with RunningGroup(setting.servers, old, group):
        subscribed = reasons.of_group(reasons.GROUP_SUBSCRIBED, group)
        setting.wait_for(old, lambda record: replacement(record).reason == subscribed)
        setting.admin.delete_topics([setting.log])[setting.log].result(30)
        made = NewTopic(setting.log, 3, config={"cleanup.policy": "delete"})
        eventually(lambda: setting.admin.create_topics([made])[setting.log].exception(30) is None)
    eventually(lambda: "has 3 partitions, but a mode log has 1" in caplog.text)
    assert "deleted and created again" in caplog.text
    assert counts(setting, old, new) == {old: 3, new: 2}
    setting.admin.delete_topics([setting.log])[setting.log].result(30)
    eventually(lambda: (claim := setting.claim()) is not None and claim.controller_id == controller.controller_id, 60)
    assert counts(setting, old, new) == {old: 3, new: 2}
