"""The controller on a real Kafka, with plain confluent_kafka producers and groups: none of the clients know modes."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from modeaware import AdminClient
from modeaware.cluster import observer
from modeaware.controller import worker
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.groups import RunningGroup
from tests.support.plain import create_topic, drain_topic, watermarks
from tests.support.waiting import eventually

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def test_drained_shrink_and_growth_with_a_group_that_runs(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """12 -> 4 -> 6 -> 14."""
    topic = make_topic(12)
    produced = produce(served, topic, 600)
    with RunningGroup(served.servers, topic, make_group()) as group:
        served.shrink(topic, 4)
        record = served.wait_done(topic)
        assert record.modes == (RW,) * 4 + (NONE,) * 8
        assert [left(served, topic)[p] for p in range(4, 12)] == [0] * 8
        ends = watermarks(served.servers, topic)
        assert [ends[p][0] for p in range(4)] == [0] * 4, "survivors keep everything"
        for partition, retired in record.retired.items():
            assert retired.seal_offset == ends[partition][1]
            assert retired.lowest_commit is None, "no commit of the proof is below the seal"
        group.wait_for(produced)

        served.grow(topic, 6)
        assert served.modes(topic) == (RW,) * 6 + (NONE,) * 6
        again = produce(served, topic, 5, "again", partition=5)
        assert watermarks(served.servers, topic)[5] == (ends[5][1], ends[5][1] + 5), "offsets never restart"
        group.wait_for(again)

        served.grow(topic, 14)
        served.wait_for(topic, lambda record: len(record.modes) == 14)
        assert len(watermarks(served.servers, topic)) == 14
    assert len(group.values) == len(set(group.values)) == 605


def test_new_partitions_open_when_every_group_has_an_offset(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """A `latest` group that is away would otherwise skip what is written before it comes back."""
    topic, away = make_topic(2), make_group()
    first = produce(served, topic, 50)
    with RunningGroup(served.servers, topic, away) as group:
        group.wait_for(first)
    served.grow(topic, 4)
    record = served.wait_done(topic)
    assert record.modes == (RW,) * 4
    missed = produce(served, topic, 20, "missed", partition=3)
    with RunningGroup(served.servers, topic, away, auto_offset_reset="latest") as group:
        group.wait_for(missed)


def test_retention_deletes_nothing_and_ends_with_the_topic_s_own(served: Controlled, make_topic: MakeTopic) -> None:
    topic = make_topic(4, segment_ms=500, retention_ms=-1)
    produce(served, topic, 100)
    served.shrink(topic, 1, delay_ms=None)
    served.wait_for(topic, lambda record: served.reasons(topic) == {"retention"})
    assert sum(left(served, topic).values()) == 100
    entry = ConfigEntry("retention.ms", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    served.admin.incremental_alter_configs([resource])[resource].result(20)
    record = served.wait_done(topic)
    assert record.modes == (RW, NONE, NONE, NONE)
    assert [left(served, topic)[p] for p in (1, 2, 3)] == [0, 0, 0]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_or_commits_holds_it_up_until_it_has_read(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], protocol: str
) -> None:
    topic, name = make_topic(4), make_group()
    first = produce(served, topic, 40)
    with_id = Producer({**served.conf, "enable.idempotence": True})
    with_id.produce(topic, b"with an id", partition=3)
    assert with_id.flush(30) == 0
    first |= {b"with an id"}
    with RunningGroup(served.servers, topic, name, group_protocol=protocol, enable_auto_commit="false"):
        served.shrink(topic, 1)
        assert served.record(topic).required_groups == (name,)
        served.wait_for(topic, lambda record: served.reasons(topic) == {f"group-never-committed:{name}"})
    with RunningGroup(served.servers, topic, name, group_protocol=protocol) as group:
        group.wait_for(first)
    served.wait_done(topic)
    late = produce(served, topic, 1, "late", partition=3)
    record = served.wait_for(topic, lambda record: served.reasons(topic) >= {f"group-lag:{name}"})
    assert record.modes == (RW, NONE, NONE, RO)
    straggler = record.retired[3].straggler
    assert (record.retired[3].stragglers, straggler.timestamp_ms > 0) == (1, True)
    assert straggler.producer == "a producer without an id (not idempotent)", "not the one that its leader remembers"
    assert {message.value() for message in drain_topic(served.servers, topic, [3])} == late
    with RunningGroup(served.servers, topic, name, group_protocol=protocol) as group:
        group.wait_for(late)
        assert served.wait_done(topic).modes == (RW, NONE, NONE, NONE)
    assert sum(left(served, topic)[p] for p in (1, 2, 3)) == 0


def begun_transaction(served: Controlled) -> Producer:
    producer = Producer({**served.conf, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def transaction(served: Controlled, topic: str, end: str) -> set[bytes]:
    """Five records in partition 1; those that were committed."""
    producer = begun_transaction(served)
    records = {f"{end}-{n}".encode() for n in range(5)}
    for value in records:
        producer.produce(topic, value=value, partition=1)
    producer.flush(30)
    (producer.commit_transaction if end == "commit" else producer.abort_transaction)(30)
    return records if end == "commit" else set()


@pytest.mark.parametrize("ends", [("commit", "abort"), ("plain", "abort", "abort")])
def test_transaction_markers_and_aborted_records_at_the_end_do_not_block(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], ends: tuple[str, ...]
) -> None:
    topic = make_topic(2)
    awaited = produce(served, topic, 5, "other", partition=0)
    for end in ends:
        awaited |= produce(served, topic, 5, end, 1) if end == "plain" else transaction(served, topic, end)
    with RunningGroup(served.servers, topic, make_group()) as group:
        group.wait_for(awaited)
        served.shrink(topic, 1)
        served.wait_done(topic)
        assert set(group.values) == awaited
    # The log never starts beyond a commit, where auto.offset.reset would decide: markers may stay, no record does.
    assert drain_topic(served.servers, topic, [1]) == []
    assert watermarks(served.servers, topic)[1][0] <= served.record(topic).retired[1].reclaim_offset


def test_an_open_transaction_is_waited_for(served: Controlled, make_topic: MakeTopic) -> None:
    topic, producer = make_topic(2), begun_transaction(served)
    producer.produce(topic, value=b"in doubt", partition=1)
    producer.flush(30)
    served.shrink(topic, 1)
    served.wait_for(topic, lambda record: served.reasons(topic) == {"open-transaction"})
    producer.commit_transaction(30)
    served.wait_done(topic)


def test_a_topic_made_anew_loses_its_record_within_seconds(setting: Controlled, make_topic: MakeTopic) -> None:
    """The check interval of a settled topic has no part in it."""
    topic = make_topic(6)
    setting.start(check_interval_ms=300_000)
    setting.shrink(topic, 2)
    earlier = setting.wait_done(topic).topic_id
    with AdminClient({**setting.conf, "modeaware.mode.log.topic": setting.log}) as client:

        def writable() -> list[int]:
            view = client.describe_modes([topic])[topic].result(20)
            return [partition for partition in range(6) if view.is_writable(partition)]

        assert writable() == [0, 1]
        setting.admin.delete_topics([topic])[topic].result(20)
        eventually(lambda: topic not in setting.admin.list_topics(timeout=20).topics)
        create_topic(setting.servers, topic, 6, configs={})
        eventually(lambda: earlier not in read_mode_log(setting.conf, setting.log, 20).records)
        assert writable() == list(range(6))


def test_a_request_for_many_topics_lets_others_in_between(
    setting: Controlled, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each topic has its own outcome, and the small request is answered first."""
    monkeypatch.setattr(worker, "FIRST_TOPICS", 8)
    monkeypatch.setattr(worker, "SLICE_S", 0)
    topics = [make_topic(2) for _ in range(20)]
    controller = setting.start()
    epoch = controller.epoch
    large = controller.submit([DeletePartitionsCommand(topic, 1, 3_600_000) for topic in (*topics, "no-such-topic")])
    small = controller.submit([CreatePartitionsCommand("no-such-topic", 3)])
    order: list[str] = []
    large.add_done_callback(lambda _: order.append("large"))
    small.add_done_callback(lambda _: order.append("small"))
    codes = [result.code for result in large.result(60)]
    assert order == ["small", "large"]
    assert codes == [ErrorCode.NONE] * 20 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert all(setting.modes(topic) == (RW, RO) for topic in topics)
    assert controller.epoch == epoch


def test_run_once_finishes_a_drained_shrink(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """The quiet time before the seal is part of what it waits for."""
    topic = make_topic(4)
    first = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, make_group()) as group:
        group.wait_for(first)
    serving = setting.start(seal_quiet_ms=3_600_000)
    setting.shrink(topic, 1)
    serving.stop()
    assert topic_phase(setting.record(topic)) == "seal"

    def finished() -> bool:
        """Of other tests' groups in a rebalance there is a doubt, and that is not waited for either."""
        setting.make(seal_quiet_ms=1_000).run_once()
        return topic_phase(setting.record(topic)) == "done"

    eventually(finished, 60)
    assert sum(left(setting, topic)[p] for p in (1, 2, 3)) == 0


def test_a_deleted_topic_s_record_goes_after_a_while(
    setting: Controlled, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "GONE_AFTER_MS", 1_000)
    topic = make_topic(2)
    setting.start()
    setting.shrink(topic, 1, delay_ms=3_600_000)
    old = setting.record(topic).topic_id
    setting.admin.delete_topics([topic])[topic].result(20)
    eventually(lambda: old not in read_mode_log(setting.conf, setting.log, 20).records)
