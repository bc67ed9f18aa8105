"""Evacuation of compacted topics on a real broker, by a real controller."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.evacuation import evacuation_of
from modeaware.modes import PartitionMode
from modeaware.spark.evacuation import EvacuationReport, NotSealed, OtherPartitioner, evacuate
from modeaware.spark.evacuation.command import main
from partitioners import named
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import drain_topic, produce_all, watermarks

HEADER = "modeaware.evacuated"


class Value(NamedTuple):
    """What a key has: its value (None: deleted), headers without the evacuation's, and timestamp."""

    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def value_of(message: Message) -> Value:
    headers = tuple((name, value) for name, value in message.headers() or () if name != HEADER)
    return Value(message.value(), headers, message.timestamp()[1])


def last_values(bootstrap_servers: str, topic: str, partitions: Iterable[int] | None = None) -> dict[bytes, Value]:
    """Key -> what the last record of it says. Of a key in several partitions the record with the latest timestamp
    counts, so a test that lets that happen gives its records rising ones."""
    found: dict[bytes, tuple[int, Message]] = {}
    ends: dict[tuple[bytes, int], Message] = {}
    for message in drain_topic(bootstrap_servers, topic, partitions):
        ends[message.key(), message.partition()] = message
    for (key, _), message in ends.items():
        stamp = message.timestamp()[1]
        if key not in found or stamp > found[key][0]:
            found[key] = (stamp, message)
    return {key: value_of(message) for key, (_, message) in found.items()}


def produce_values(
    conf: dict[str, Any],
    topic: str,
    records: Iterable[tuple[bytes, bytes | None, int]],
    *,
    partition: int | None = None,
    kind: type[Producer] = Producer,
) -> None:
    """``(key, value, timestamp_ms)`` with a header of each; ``kind`` may be ours."""
    where = {} if partition is None else {"partition": partition}
    stamped = (
        {"key": key, "value": value, "timestamp": stamp, "headers": [("of", key), ("none", None)], **where}
        for key, value, stamp in records
    )
    produce_all(kind({"acks": "all", **conf}), topic, stamped)


PARTITIONS, KEPT = 12, 4
KEYS = [b"key-%d" % n for n in range(300)]
START_MS = 1_700_000_000_000


@pytest.fixture
def topic(served: Controlled, make_topic: MakeTopic) -> str:
    """A compacted topic: two values a key, and every tenth key is deleted."""
    topic = make_topic(PARTITIONS, cleanup_policy="compact")
    values = [(KEYS[n % 300], b"v%d" % n if n < 600 else None) for n in (*range(600), *range(600, 900, 10))]
    produce_values(served.conf, topic, [(key, value, START_MS + n) for n, (key, value) in enumerate(values)])
    return topic


def conf(served: Controlled, **more: Any) -> dict[str, Any]:
    return {**served.conf, "modeaware.mode.log.topic": served.log, **more}


def shrink(served: Controlled, topic: str, to: int = KEPT, **more: Any) -> None:
    result = served.ask(DeletePartitionsCommand(topic, to, evacuate=True, **more))
    assert result.code is ErrorCode.NONE, result.message


def moved(count: int = PARTITIONS) -> list[bytes]:
    place = named().for_topic("").partition
    return [key for key in KEYS if place(key, count) >= KEPT]


def test_a_compacted_topic_is_shrunk(spark: SparkSession, served: Controlled, topic: str) -> None:
    before = last_values(served.servers, topic)
    shrink(served, topic)
    served.wait_for(topic, lambda record: {r.reason for r in record.retired.values()} == {"not-evacuated"})
    report = evacuate(spark, topic, conf(served))
    deleted = sum(before[key].value is None for key in moved())
    record = served.wait_done(topic)
    seals = {p: end for p, (_, end) in watermarks(served.servers, topic).items() if p >= KEPT}
    assert report == EvacuationReport(
        topic, str(evacuation_of(record)), seals, len(moved()), len(moved()), deleted, passes=1
    )
    assert deleted
    assert last_values(served.servers, topic, range(KEPT)) == before
    assert {record.modes[p] for p in range(KEPT, PARTITIONS)} == {PartitionMode.NONE}
    assert not evacuate(spark, topic, conf(served)).seals


def test_a_newer_value_in_a_survivor_is_never_overwritten(spark: SparkSession, served: Controlled, topic: str) -> None:
    from modeaware import Producer

    shrink(served, topic)
    served.wait_for(topic, lambda record: not any(mode.writable for mode in record.modes[KEPT:]))
    newer = moved()[:50]
    # By a clock that is far behind: behind the switch it does not matter.
    ours = conf(served, **{"modeaware.on.resize": "ignore"})
    produce_values(ours, topic, [(key, b"newer", 1000 + n) for n, key in enumerate(newer)], kind=Producer)
    report = evacuate(spark, topic, conf(served))
    assert (report.newer, report.copied) == (50, len(moved()) - 50)
    last = {message.key(): message.value() for message in drain_topic(served.servers, topic, range(KEPT))}
    assert {key for key, value in last.items() if value == b"newer"} == set(newer)
    served.wait_done(topic)


def test_a_straggler_is_evacuated_by_another_run(spark: SparkSession, served: Controlled, topic: str) -> None:
    shrink(served, topic)
    evacuate(spark, topic, conf(served))
    served.wait_done(topic)
    key = moved()[0]
    partition = named().for_topic("").partition(key, PARTITIONS)
    produce_values(served.conf, topic, [(key, b"late", START_MS + 99_999)], partition=partition)
    served.wait_for(topic, lambda record: record.retired[partition].reason == "not-evacuated")
    report = evacuate(spark, topic, conf(served))
    assert (report.copied, set(report.seals)) == (1, {partition})
    served.wait_done(topic)
    assert last_values(served.servers, topic, range(KEPT))[key].value == b"late"


def test_the_command(
    spark: SparkSession, served: Controlled, topic: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(f"modeaware.mode.log.topic={served.log}\n", encoding="utf-8")
    words = ["--bootstrap-server", served.servers, "--topic", topic, "--command-config", str(settings)]
    assert main(words) == 1
    assert "no shrink is in force" in capsys.readouterr().err
    shrink(served, topic)
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["topic"], found["copied"]) == (topic, len(moved()))
    served.wait_done(topic)
    headers = {h[0] for m in drain_topic(served.servers, topic, range(KEPT)) for h in m.headers() or ()}
    assert headers == {"of", "none", HEADER}


def test_another_partitioner_is_refused(spark: SparkSession, served: Controlled, topic: str) -> None:
    shrink(served, topic)
    ends = watermarks(served.servers, topic)
    with pytest.raises(OtherPartitioner, match=r"crc32 \(100.0%\)"):
        evacuate(spark, topic, conf(served, partitioner="murmur2_random"))
    assert watermarks(served.servers, topic) == ends
    assert served.reasons(topic) <= {None, "not-evacuated"}


def test_a_partition_that_is_not_sealed_is_waited_for(spark: SparkSession, served: Controlled, topic: str) -> None:
    served.started[-1].stop()
    try:
        patient = served.start(seal_quiet_ms=600_000)
        shrink(served, topic)
        with pytest.raises(NotSealed, match="partitions 4-11 are not sealed within 1 s"):
            evacuate(spark, topic, conf(served), wait_s=1)
        patient.stop()
    finally:
        served.start()
