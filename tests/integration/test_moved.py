"""Groups of a replaced topic have an open gate by what their coordinators say, on a real Kafka with plain clients."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.modelog.reader import read_mode_log
from modeaware.notes import BUSY, GIVEN, READ
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, produce
from tests.support.groups import RunningGroup
from tests.support.waiting import eventually

UNNOTED_MS, GATE_GIVEN_MS = 3_000, 1_000


def test_gates_open_by_commits_notes_and_members(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    setting.start(gate_unnoted_ms=UNNOTED_MS, gate_given_ms=GATE_GIVEN_MS)
    topic, new = make_topic(2), f"{make_topic(1)}-v2"
    written = produce(setting, topic, 20, partition=0) | produce(setting, topic, 20, "w", partition=1)
    said, given, left, lags, busy, runs = (make_group() for _ in range(6))

    def commit(group: str, offset: int, note: str = "") -> None:
        consumer = Consumer({**setting.conf, "group.id": group})
        offsets = [TopicPartition(topic, 0, 20, READ), TopicPartition(topic, 1, offset, note)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    commit(lags, 19)
    commit(busy, 19, BUSY)
    with RunningGroup(setting.servers, topic, runs) as running:  # its library commits by a timer, without a note
        running.wait_for(written)
        assert setting.ask(ReplaceTopicCommand(topic, new, 1)).code is ErrorCode.NONE
        topic_id = setting.record(topic).topic_id

        def through() -> set[str]:
            return set(read_mode_log(setting.conf, setting.log, 20).moved_of(topic_id).groups)

        commit(said, 20, READ)
        commit(given, 17, GIVEN)
        commit(left, 20)
        eventually(lambda: through() == {said, given, left, runs}, 60)
        commit(lags, 20, READ)
        eventually(lambda: through() == {said, given, left, runs, lags}, 20)
    found = read_mode_log(setting.conf, setting.log, 20)
    record = found.record(topic)
    assert record is not None
    view = found.view_of(record).replaced_by
    assert view is not None
    assert [view.moved.has_open_gate(group) for group in (said, given, left, runs, lags, busy)] == [True] * 5 + [False]
