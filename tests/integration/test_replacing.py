"""The controller replaces a topic on a real Kafka, with plain producers and groups: their owner moves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster import last_records
from modeaware.cluster.last_records import LastRecords
from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.facts import PartitionFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.lifecycle.state import topic_phase
from modeaware.local import Kafka
from modeaware.modelog.records import Replacement, TopicRecord
from tests.conftest import MakeTopic, topic_maker
from tests.support.controlled import Controlled, commit_zero, produce
from tests.support.groups import RunningGroup
from tests.support.plain import ends, watermarks
from tests.support.waiting import eventually


def own_configs(served: Controlled, topic: str) -> dict[str, str]:
    """What is set on the topic itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (future,) = served.admin.describe_configs([resource]).values()
    return {name: each.value for name, each in future.result(30).items() if not each.is_default}


def replacement(record: TopicRecord) -> Replacement:
    assert record.replacement is not None
    return record.replacement


def refusal(served: Controlled, topic: str) -> str | None:
    """What a producer that knows no modes is told of a record; None: it is acknowledged."""
    told: list[str | None] = []
    producer = Producer({**served.conf, "message.timeout.ms": 10_000})
    producer.produce(topic, b"late", partition=0, on_delivery=lambda error, _: told.append(error and error.name()))
    producer.flush(20)
    return told[0]


def test_a_topic_is_replaced_and_released_once_its_group_has_moved(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, name, group = make_topic(3), f"{make_topic(1)}-v2", make_group()
    written = produce(served, topic, 90)
    transactional = Producer({**served.conf, "transactional.id": f"{topic}-writer"})
    transactional.init_transactions(20)
    transactional.begin_transaction()
    transactional.produce(topic, b"in a transaction", partition=1)
    transactional.flush(20)
    transactional.commit_transaction(20)
    with RunningGroup(served.servers, topic, group) as running:
        running.wait_for(written)
        assert served.ask(ReplaceTopicCommand(topic, name, 2)).code is ErrorCode.NONE
        sealed = served.wait_for(topic, lambda record: topic_phase(record) == "drain")
        assert own_configs(served, topic).items() >= FENCE_CONFIGS.items()
        assert refusal(served, topic) == "MSG_SIZE_TOO_LARGE"
        ends = watermarks(served.servers, topic)
        view = sealed.view().replaced_by
        assert view is not None
        assert {p: r.seal_offset for p, r in sealed.retired.items()} == {p: end for p, (_, end) in ends.items()}
        assert view.read_up_to == {p: ends[p][1] - (p == 1) for p in range(3)}, "behind the last record, not the marker"
        moved = reasons.of_group(reasons.GROUP_NOT_MOVED, group)
        served.wait_for(topic, lambda record: replacement(record).reason == moved)
    commit_zero(served, group, name, 2)
    done = served.wait_done(topic)
    assert replacement(done).released_ms is not None
    assert len(watermarks(served.servers, name)) == 2
    assert watermarks(served.servers, topic) == ends, "nothing was deleted"


def test_a_fence_that_is_lifted_is_restored_and_what_came_is_drained(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, group = make_topic(1), make_group()
    written = produce(served, topic, 10)
    with RunningGroup(served.servers, topic, group) as running:
        running.wait_for(written)
        served.ask(ReplaceTopicCommand(topic, f"{topic}-v2", 1))
        served.wait_for(topic, lambda record: topic_phase(record) == "drain")
        lifted = [ConfigEntry(each, None, incremental_operation=AlterConfigOpType.DELETE) for each in FENCE_CONFIGS]
        (future,) = served.admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=lifted)]
        ).values()
        future.result(30)
        if refusal(served, topic) is None:  # the controller may have been quicker
            record = served.wait_for(
                topic, lambda record: record.retired[0].stragglers and topic_phase(record) == "drain"
            )
            assert record.retired[0].seal_offset == 11
        eventually(lambda: own_configs(served, topic).items() >= FENCE_CONFIGS.items())
    commit_zero(served, group, f"{topic}-v2", 1)
    served.wait_done(topic)


def test_a_partition_that_is_added_to_a_topic_with_the_fence_takes_no_data_from_its_first_moment(
    kafka3: Kafka,
) -> None:
    """The simulator relies on it. A broker reads a topic's configs as it creates a log."""
    topic, added = topic_maker(kafka3)(3), range(3, 13)
    admin = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers})
    fence = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in FENCE_CONFIGS.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=fence)
    admin.incremental_alter_configs([resource])[resource].result(30)

    def told(partition: int) -> int | None:
        """What a new producer is told of a record; None: it was acknowledged, or its broker knows no such partition."""
        found: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": kafka3.bootstrap_servers})
        producer.produce(topic, b"late", partition=partition, on_delivery=lambda error, _: found.append(error))
        assert producer.flush(30) == 0
        (error,) = found
        return None if error is None or error.code() == KafkaError._UNKNOWN_PARTITION else error.code()

    for partition in added:
        admin.create_partitions([NewPartitions(topic, partition + 1)])[topic].result(30)
        assert eventually(lambda partition=partition: told(partition)) == KafkaError.MSG_SIZE_TOO_LARGE
    assert set(ends(kafka3.bootstrap_servers, topic).values()) == {0}


def test_a_replacement_is_undone_until_the_switch(served: Controlled, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    name = f"{topic}-v2"
    served.ask(ReplaceTopicCommand(topic, name, 4, pause_before_switch=True))
    served.wait_for(topic, lambda record: replacement(record).reason == reasons.PAUSED)
    assert len(watermarks(served.servers, name)) == 4
    assert served.ask(ReplaceTopicCommand(topic, name, 4, undo=True)).code is ErrorCode.NONE
    served.wait_for(topic, lambda record: record.replacement is None)
    assert name not in served.admin.list_topics(timeout=20).topics
    assert refusal(served, topic) is None


def test_the_last_record_is_found_behind_a_long_tail_of_aborted_ones_over_several_looks(
    served: Controlled, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2)
    produce(served, topic, 10)
    ends = {p: end for p, (_, end) in watermarks(served.servers, topic).items()}
    writer = Producer({**served.conf, "transactional.id": f"{topic}-aborting", "linger.ms": 5})
    writer.init_transactions(20)
    writer.begin_transaction()
    for number in range(30_000):
        writer.produce(topic, b"aborted", partition=1)
        if number % 10_000 == 0:
            writer.flush(30)
    writer.flush(30)
    writer.abort_transaction(30)
    logs = {
        (topic, p): PartitionFacts(start, end, end, 0, 0)
        for p, (start, end) in watermarks(served.servers, topic).items()
    }
    monkeypatch.setattr(last_records, "SEARCH_S", 0)
    search = LastRecords(served.conf, SYSTEM_CLOCK.monotonic_s)
    assert search.find({topic: "id"}, logs, {}) == {}, "too short a look"
    monkeypatch.setattr(last_records, "SEARCH_S", 0.05)
    eventually(lambda: search.find({topic: "id"}, logs, {}) == {(topic, p): end for p, end in ends.items()})
    monkeypatch.setattr(last_records, "SEARCH_S", 0)
    assert search.find({topic: "id"}, logs, {}).keys() == logs.keys(), "without another search"
    other = {key: replace(log, leader_epoch=1) for key, log in logs.items()}
    assert search.find({topic: "id"}, other, {}).keys() < logs.keys(), "of another epoch nothing is known yet"
    search.close()
