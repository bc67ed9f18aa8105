"""Evacuation of compacted topics with a real controller: alone, among producers that write on, and killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest
from confluent_kafka import Message
from confluent_kafka import Producer as PlainProducer
from pyspark.sql import SparkSession

import modeaware.spark
from modeaware import Consumer, Producer
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.drain import evacuation_of
from modeaware.spark import EvacuationReport, evacuate, packages
from modeaware.spark.command import evacuate_main
from modeaware.spark.errors import OtherPartitioner
from modeaware.spark.evacuation.versions import DIGEST_SQL, HEADER, digest
from partitioners import named
from tests.conftest import MakeTopic
from tests.support.background import Background
from tests.support.controlled import Controlled
from tests.support.group import Unending
from tests.support.plain import drain_topic, leave, produce_all, produce_keyed, watermarks
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually

PARTITIONS, KEPT = 12, 4
IGNORED = {"modeaware.on.resize": "ignore"}
KEYS = [b"key-%d" % n for n in range(300)]
START_MS = 1_700_000_000_000


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
    kind: type[PlainProducer] = PlainProducer,
) -> None:
    """``(key, value, timestamp_ms)`` with a header of each; ``kind`` may be ours."""
    where = {} if partition is None else {"partition": partition}
    stamped = (
        {"key": key, "value": value, "timestamp": stamp, "headers": [("of", key), ("none", None)], **where}
        for key, value, stamp in records
    )
    produce_all(kind({"acks": "all", **conf}), topic, stamped)


@pytest.fixture
def topic(served: Controlled, make_topic: MakeTopic) -> str:
    """A compacted topic: two values a key, and every tenth key is deleted."""
    topic = make_topic(PARTITIONS, cleanup_policy="compact")
    values = [(KEYS[n % 300], b"v%d" % n if n < 600 else None) for n in (*range(600), *range(600, 900, 10))]
    produce_values(served.conf, topic, [(key, value, START_MS + n) for n, (key, value) in enumerate(values)])
    return topic


def conf(served: Controlled, **more: Any) -> dict[str, Any]:
    return {**served.conf, "modeaware.mode.log.topic": served.log, **more}


def replace_topic(served: Controlled, topic: str, **more: Any) -> str:
    """Return the new topic's name once the topic is sealed."""
    name, configs = f"{topic}-v2", {"cleanup.policy": "compact"}
    command = ReplaceTopicCommand(topic, name, KEPT, configs=configs, evacuate=True, **{"delay_ms": 0, **more})
    result = served.ask(command)
    assert result.code is ErrorCode.NONE, result.message
    served.wait_for(topic, lambda r: r.retired and all(p.seal_offset is not None for p in r.retired.values()), 120)
    return name


def test_evacuation_is_reported_and_done_once(spark: SparkSession, served: Controlled, topic: str) -> None:
    before = last_values(served.servers, topic)
    name = replace_topic(served, topic, fence="none")
    served.wait_for(topic, lambda record: "not-evacuated" in {r.reason for r in record.retired.values()})
    report = evacuate(spark, topic, conf(served))
    deleted = sum(value.value is None for value in before.values())
    record = served.wait_done(topic)
    seals = {p: end for p, (_, end) in watermarks(served.servers, topic).items()}
    assert report == EvacuationReport(topic, str(evacuation_of(record)), seals, len(KEYS), len(KEYS), deleted, passes=1)
    assert deleted
    assert last_values(served.servers, name) == before
    assert not evacuate(spark, topic, conf(served)).seals


def test_a_straggler_is_evacuated_by_another_run(spark: SparkSession, served: Controlled, topic: str) -> None:
    name = replace_topic(served, topic, fence="none")
    evacuate(spark, topic, conf(served))
    served.wait_done(topic)
    place = named().for_topic("").partition
    partition = place(KEYS[0], PARTITIONS)
    key, written = [key for key in KEYS if place(key, PARTITIONS) == partition][:2]
    (copy,) = (m for m in drain_topic(served.servers, name) if m.key() == written)
    assert HEADER in dict(copy.headers() or ())
    anew = {"key": written, "value": NEW, "timestamp": START_MS + 100_000, "headers": copy.headers()}
    produce_all(PlainProducer(served.conf), name, [{**anew, "partition": copy.partition()}])
    late = [(each, b"late", START_MS + 99_999) for each in (key, written)]
    produce_values(served.conf, topic, late, partition=partition)
    served.wait_for(topic, lambda record: record.retired[partition].reason == "not-evacuated")
    report = evacuate(spark, topic, conf(served))
    assert (report.copied, report.newer, set(report.seals)) == (1, 1, {partition}), "a header passed on is no copy's"
    served.wait_done(topic)
    found = last_values(served.servers, name)
    assert (found[key].value, found[written].value) == (b"late", NEW)


def test_spark_and_python_find_the_same_digest_of_a_copy(spark: SparkSession) -> None:
    records = [(b"k", None), (b"k", b""), (b"", b"k"), (b"@", b"v@"), (bytes(range(256)), bytes(300_000))]
    rows = spark.createDataFrame(records, "key binary, value binary").selectExpr(DIGEST_SQL).collect()
    assert [row[0] for row in rows] == [digest(*record) for record in records]
    assert len({row[0] for row in rows}) == len(records)


def test_the_command(
    spark: SparkSession, served: Controlled, topic: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(f"modeaware.mode.log.topic={served.log}\n", encoding="utf-8")
    words = ["--bootstrap-server", served.servers, topic, "--command-config", str(settings)]
    assert evacuate_main(words) == 1
    assert "it is not being replaced" in capsys.readouterr().err
    name = replace_topic(served, topic)
    assert evacuate_main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["topic"], found["copied"]) == (topic, len(KEYS))
    served.wait_done(topic, 120)
    headers = {h[0] for m in drain_topic(served.servers, name) for h in m.headers() or ()}
    assert headers == {"of", "none", HEADER}


def test_the_command_runs_with_spark_submit(
    served: Controlled, topic: str, spark_conf_dir: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(f"modeaware.mode.log.topic={served.log}\n", encoding="utf-8")
    replace_topic(served, topic)
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    program = str(Path(modeaware.spark.__file__).with_name("evacuate.py"))
    words = ["--bootstrap-server", served.servers, topic, "--command-config", str(settings), "--json"]
    command = [submit, "--packages", packages(), program, *words]
    env = {**os.environ, "SPARK_CONF_DIR": str(spark_conf_dir), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    # spark-submit merges both outputs of the program, and Ivy prints its own lines.
    found, _ = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("{\n"))
    assert (found["topic"], found["copied"]) == (topic, len(KEYS))
    served.wait_done(topic, 120)


def test_another_partitioner_is_refused(spark: SparkSession, served: Controlled, topic: str) -> None:
    name = replace_topic(served, topic)
    with pytest.raises(OtherPartitioner, match=r"crc32 \(100.0%\)"):
        evacuate(spark, topic, conf(served, partitioner="murmur2_random"))
    assert {end for _, end in watermarks(served.servers, name).values()} == {0}
    assert served.reasons(topic) <= {None, "not-evacuated"}


def filled(served: Controlled, make_topic: MakeTopic, keys: int) -> tuple[str, dict[bytes, bytes]]:
    """A compacted topic with a value of each of so many keys, and these."""
    topic = make_topic(PARTITIONS, cleanup_policy="compact")
    values = {b"key-%d" % n: b"old-%d" % n for n in range(keys)}
    produce_keyed(served.servers, topic, values.items())
    return topic, values


def last(served: Controlled, topic: str, **more: str) -> dict[bytes, bytes]:
    """Key -> its last value in the partition of the new topic that it belongs to."""
    place = named().for_topic(topic).partition
    settings = {name.replace("_", "."): value for name, value in more.items()}
    found = drain_topic(served.servers, topic, range(KEPT), **settings)
    return {m.key(): m.value() for m in found if m.partition() == place(m.key(), KEPT)}


class Writing(Unending[Producer]):
    """Writes keys at random; ``values`` gets what it has written."""

    def __init__(self, served: Controlled, topic: str, keys: list[bytes], values: dict[bytes, bytes]) -> None:
        super().__init__(Producer(conf(served, **IGNORED, **{"linger.ms": 0, "acks": "all"})))
        self._topic, self._keys, self._values = topic, keys, values
        self._chance, self._number = random.Random(5), 0

    def write(self) -> None:
        for _ in range(100):
            self._number += 1
            key, value = self._chance.choice(self._keys), b"new-%d" % self._number
            self.producer.produce(self._topic, value, key, on_delivery=self.to(lambda _: None))
            self._values[key] = value
        self.producer.poll(0)

    def stop(self) -> None:
        super().stop()
        self.producer.close()
        assert self._number


@pytest.mark.parametrize(("keys", "written"), [(30_000, 30_000), (3_000, 20)], ids=["many keys", "few of them"])
def test_producers_write_the_same_keys_meanwhile(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, keys: int, written: int
) -> None:
    topic, values = filled(served, make_topic, keys)
    name = replace_topic(served, topic)
    with Writing(served, topic, list(values)[:written], values):
        report = evacuate(spark, topic, conf(served, **IGNORED))
    assert report.keys == report.copied + report.newer
    assert report.newer > 0
    assert last(served, name) == values
    assert last(served, name, isolation_level="read_uncommitted") == values
    served.wait_done(topic, 120)


def run_and_kill(served: Controlled, topic: str, target: str, spark_conf_dir: Path, tmp_path: Path) -> None:
    """Kill a job, its JVM and its Python workers, once some copies are committed to ``target``."""
    before = watermarks(served.servers, target)
    settings = tmp_path / "client.properties"
    settings.write_text(f"modeaware.mode.log.topic={served.log}\nlinger.ms=200\n", encoding="utf-8")
    words = ["--bootstrap-server", served.servers, topic, "--command-config", str(settings)]
    command = [sys.executable, "-m", "modeaware.spark.evacuate", *words]
    env = {**os.environ, "SPARK_CONF_DIR": str(spark_conf_dir), "PYSPARK_PYTHON": sys.executable}
    job = LoggedProcess(command, tmp_path / "evacuate.log", env=env, own_session=True)

    def begun() -> bool:
        assert job.running, job.said
        return any(watermarks(served.servers, target)[p][1] > before[p][1] for p in range(KEPT))

    try:
        eventually(begun, 240, interval_s=0.01)
    finally:
        job.kill()


RECORDS, MANY = 1_000_000, 150_000
NEW = b"written anew"


class Table(Background):
    """A consumer of ours that keeps the latest value of each key. ``stop`` it at the end."""

    def __init__(self, conf: dict[str, Any], topic: str) -> None:
        super().__init__()
        settings = {"group.id": f"{topic}-table", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200}
        self._consumer = Consumer({**conf, **settings})
        self._consumer.subscribe([topic])
        self.values: dict[bytes, bytes | None] = {}

    def work(self) -> None:
        while not self.done.is_set():
            for message in self._consumer.consume(5000, 0.2):
                assert message.error() is None, message.error()
                self.values[message.key()] = message.value()
        leave(self._consumer)


def latest(served: Controlled, topic: str, count: int, isolation_level: str = "read_committed") -> dict[bytes, Value]:
    """Key -> its last record, as a plain consumer reads it; each key lies where the partitioner places it."""
    found: dict[bytes, Value] = {}
    place = named().for_topic("").partition
    for partition in range(count):
        for message in drain_topic(served.servers, topic, [partition], **{"isolation.level": isolation_level}):
            assert place(message.key(), count) == partition
            found[message.key()] = value_of(message)
    return found


def transact(served: Controlled, topic: str, keys: list[bytes], value: bytes, *, commit: bool) -> None:
    producer = PlainProducer({**served.conf, "transactional.id": f"{topic}-{value.decode()}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    produce_all(producer, topic, ({"key": key, "value": value} for key in keys))
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def test_a_compacted_topic_is_replaced(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, spark_conf_dir: Path, tmp_path: Path
) -> None:
    """1 000 000 records, 12 -> 4 partitions, with deleted keys and transactions. The job is killed and run again while
    producers write keys anew. The topic itself is deleted in the end."""
    topic = make_topic(PARTITIONS, cleanup_policy="compact")
    keys = [b"key-%d" % n for n in range(MANY)]
    for first in range(0, RECORDS, 100_000):
        numbers = range(first, first + 100_000)
        records = ((keys[n * 7 % MANY], None if n % 20 == 0 else b"v%d" % n, START_MS + n) for n in numbers)
        produce_values(served.conf, topic, records)
    transact(served, topic, keys[:5_000], b"committed", commit=True)
    transact(served, topic, keys[4_000:9_000], b"aborted", commit=False)
    before = latest(served, topic, PARTITIONS)
    assert (len(before), before[keys[4_500]].value) == (MANY, b"committed")
    with Table(conf(served), topic) as table:
        name = replace_topic(served, topic)
        run_and_kill(served, topic, name, spark_conf_dir, tmp_path)
        anew = {key: None if n % 2 else NEW for n, key in enumerate(keys[:20_000:10])}
        produce_values(conf(served), topic, ((key, value, START_MS) for key, value in anew.items()), kind=Producer)
        eventually(lambda: "not-evacuated" in served.reasons(topic))  # a group may be in a rebalance
        written: dict[bytes, bytes] = {}
        with Writing(served, topic, keys[100_000:103_000], written):
            report = evacuate(spark, topic, conf(served, **IGNORED))
        assert report.keys == MANY
        assert report.copied + report.placed + report.newer == MANY
        assert min(report.copied, report.placed, report.newer) > 0
        record = served.wait_done(topic, 120)
        expected = {**{key: value.value for key, value in before.items()}, **anew, **written}
        eventually(lambda: table.values == expected, 60)
    assert record.replacement is not None
    assert record.replacement.deleting_ms is not None
    assert topic not in served.admin.list_topics(timeout=30).topics
    after = latest(served, name, KEPT)
    assert {key: value.value for key, value in after.items()} == expected
    kept = before.keys() - anew.keys() - written.keys()
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}, "headers and timestamps as well"
    assert latest(served, name, KEPT, "read_uncommitted") == after
