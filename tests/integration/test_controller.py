"""The controller on a real Kafka, with plain confluent_kafka producers and groups: none of the clients know modes."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.groups import RunningGroup
from tests.support.plain import drain_topic, watermarks

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def test_drained_shrink_and_growth_with_a_group_that_runs(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """12 -> 4 -> 6 -> 14."""
    topic = make_topic(12)
    produced = produce(setting, topic, 600)
    setting.start()
    with RunningGroup(setting.servers, topic, make_group()) as group:
        setting.shrink(topic, 4)
        record = setting.wait_done(topic)
        assert record.modes == (RW,) * 4 + (NONE,) * 8
        assert [left(setting, topic)[p] for p in range(4, 12)] == [0] * 8
        ends = watermarks(setting.servers, topic)
        assert [ends[p][0] for p in range(4)] == [0] * 4, "survivors keep everything"
        for partition, retired in record.retired.items():
            assert retired.seal_offset == ends[partition][1]
            assert all(committed >= retired.seal_offset for committed in retired.drained.values())
        group.wait_for(produced)

        setting.grow(topic, 6)
        assert setting.modes(topic) == (RW,) * 6 + (NONE,) * 6
        again = produce(setting, topic, 5, "again", partition=5)
        assert watermarks(setting.servers, topic)[5] == (ends[5][1], ends[5][1] + 5), "offsets never restart"
        group.wait_for(again)

        setting.grow(topic, 14)
        setting.wait_for(topic, lambda record: len(record.modes) == 14)
        assert len(watermarks(setting.servers, topic)) == 14
    assert len(group.values) == len(set(group.values)) == 605


def test_new_partitions_open_when_every_group_has_an_offset(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """A `latest` group that is away would otherwise skip what is written before it comes back."""
    topic, away = make_topic(2), make_group()
    first = produce(setting, topic, 50)
    with RunningGroup(setting.servers, topic, away) as group:
        group.wait_for(first)
    setting.start()
    setting.grow(topic, 4)
    record = setting.wait_done(topic)
    assert record.modes == (RW,) * 4
    missed = produce(setting, topic, 20, "missed", partition=3)
    with RunningGroup(setting.servers, topic, away, auto_offset_reset="latest") as group:
        group.wait_for(missed)


def test_retention_deletes_nothing_and_ends_with_the_topic_s_own(setting: Controlled, make_topic: MakeTopic) -> None:
    topic = make_topic(4, segment_ms=500, retention_ms=-1)
    produce(setting, topic, 100)
    setting.start()
    setting.shrink(topic, 1, delay_ms=-1)
    setting.wait_for(topic, lambda record: setting.reasons(topic) == {"retention"})
    assert sum(left(setting, topic).values()) == 100
    _set_config(setting, topic, "retention.ms", "100")
    record = setting.wait_done(topic)
    assert record.modes == (RW, NONE, NONE, NONE)
    assert [left(setting, topic)[p] for p in (1, 2, 3)] == [0, 0, 0]


def _set_config(setting: Controlled, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    setting.admin.incremental_alter_configs([resource])[resource].result(20)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_lagging_group_holds_it_up(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], protocol: str
) -> None:
    topic, name = make_topic(4), make_group()
    first = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, name, group_protocol=protocol) as group:
        group.wait_for(first)
    produced = produce(setting, topic, 40, "later")
    setting.start()
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda record: setting.reasons(topic) == {f"group-lag:{name}"})
    assert sum(left(setting, topic).values()) == 80
    with RunningGroup(setting.servers, topic, name, group_protocol=protocol) as group:
        group.wait_for(produced)
        assert setting.wait_done(topic).modes == (RW, NONE, NONE, NONE)
    assert sum(left(setting, topic)[p] for p in (1, 2, 3)) == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_has_committed_nothing_yet_is_seen_by_its_members(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], protocol: str
) -> None:
    topic, name = make_topic(2), make_group()
    produce(setting, topic, 10, partition=1)
    setting.start()
    with RunningGroup(setting.servers, topic, name, group_protocol=protocol, enable_auto_commit="false"):
        setting.shrink(topic, 1)
        assert setting.record(topic).required_groups == (name,)
        setting.wait_for(topic, lambda record: setting.reasons(topic) == {f"group-never-committed:{name}"})
    assert left(setting, topic)[1] == 10


def transaction(setting: Controlled, topic: str, partition: int, count: int, *, commit: bool) -> set[bytes]:
    producer = Producer({**setting.conf, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    records = [f"{'kept' if commit else 'aborted'}-{n}".encode() for n in range(count)]
    for value in records:
        producer.produce(topic, value=value, partition=partition)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    return set(records)


@pytest.mark.parametrize("ends", [("commit",), ("commit", "abort"), ("abort",), ("plain", "abort", "abort")])
def test_transaction_markers_and_aborted_records_at_the_end_do_not_block(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], ends: tuple[str, ...]
) -> None:
    topic = make_topic(2)
    awaited = produce(setting, topic, 5, "other", partition=0)
    for end in ends:
        if end == "plain":
            awaited |= produce(setting, topic, 5, "plain", partition=1)
        elif end == "commit":
            awaited |= transaction(setting, topic, 1, 5, commit=True)
        else:
            transaction(setting, topic, 1, 5, commit=False)
    setting.start()
    with RunningGroup(setting.servers, topic, make_group()) as group:
        group.wait_for(awaited)
        setting.shrink(topic, 1)
        setting.wait_done(topic)
        assert set(group.values) == awaited
    # The log never starts beyond a commit, where auto.offset.reset would decide: markers may stay, no record does.
    assert drain_topic(setting.servers, topic, [1]) == []
    assert watermarks(setting.servers, topic)[1][0] <= min(setting.record(topic).retired[1].drained.values())


def test_an_open_transaction_is_waited_for(setting: Controlled, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    producer = Producer({**setting.conf, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"in doubt", partition=1)
    producer.flush(30)
    setting.start()
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda record: setting.reasons(topic) == {"open-transaction"})
    producer.commit_transaction(30)
    setting.wait_done(topic)


def test_a_straggler_after_the_reclaim_is_delivered(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, name = make_topic(4), make_group()
    first = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(first)
    setting.start()
    setting.shrink(topic, 1)
    setting.wait_done(topic)
    late = produce(setting, topic, 1, "late", partition=3)
    record = setting.wait_for(topic, lambda record: setting.reasons(topic) >= {f"group-lag:{name}"})
    assert record.modes == (RW, NONE, NONE, RO)
    assert record.retired[3].stragglers == 1
    assert [message.value() for message in drain_topic(setting.servers, topic, [3])] == list(late)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(late)
        assert setting.wait_done(topic).modes == (RW, NONE, NONE, NONE)
    assert left(setting, topic)[3] == 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (DeletePartitionsCommand("{topic}", 0), ErrorCode.INVALID_PARTITIONS),
        (DeletePartitionsCommand("{topic}", 2), ErrorCode.INVALID_PARTITIONS),
        (DeletePartitionsCommand("{topic}", 3), ErrorCode.INVALID_PARTITIONS),
        (DeletePartitionsCommand("no-such-topic", 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (DeletePartitionsCommand("not a topic name", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (DeletePartitionsCommand("__consumer_offsets", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (DeletePartitionsCommand("{log}", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (DeletePartitionsCommand("{compacted}", 1), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_bad_input_changes_nothing(
    setting: Controlled,
    make_topic: MakeTopic,
    make_group: Callable[[], str],
    command: DeletePartitionsCommand,
    code: ErrorCode,
) -> None:
    names = {"topic": make_topic(2), "compacted": make_topic(2, cleanup_policy="compact"), "log": setting.log}
    with RunningGroup(setting.servers, names["topic"], make_group()):
        pass  # so that there is a __consumer_offsets
    setting.start()
    result = setting.ask(DeletePartitionsCommand(command.topic.format_map(names), command.total_count))
    assert result.code is code
    assert result.message
    assert read_mode_log(setting.conf, setting.log, 20).records == {}
