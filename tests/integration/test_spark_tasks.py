"""What Spark calls in its Python workers, called here: readers, writers, and copies of an evacuation."""

from __future__ import annotations

import pickle
from collections import namedtuple
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import StructType

from modeaware.errors import ConfigError
from modeaware.librdkafka import Producer, TopicPartition
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from modeaware.spark import arrow_writer, foreach_partition_writer
from modeaware.spark.datasource import SCHEMA, ModeAwareDataSource
from modeaware.spark.errors import EvacuationFailed, RecordsLost
from modeaware.spark.evacuation.copies import Copied, Copy, CopyJob, copy_all
from modeaware.spark.evacuation.versions import HEADER, OldRecord, digest
from tests.conftest import MakeTopic
from tests.support.modelog import topic_record
from tests.support.plain import drain_topic, produce_all, produce_keyed
from tests.support.spark_writing import WritingSite, writing_site

FRAME = StructType().add("key", "string").add("value", "string").add("partition", "integer")
STAMP = datetime(2026, 5, 1, tzinfo=UTC)
STAMP_MS = round(STAMP.timestamp() * 1000)


@pytest.fixture(scope="module")
def site(kafka: Kafka) -> Iterator[WritingSite]:
    with writing_site(kafka) as made:
        yield made


def batch(*rows: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows))


def source(site: WritingSite, topic: str, **options: str) -> ModeAwareDataSource:
    return ModeAwareDataSource({"topic": topic, **site.conf, **options})


def values_of(reader: Any, ranges: Any) -> list[bytes]:
    """As on executors, which get the reader and each range pickled."""
    reader, ranges = pickle.loads(pickle.dumps((reader, ranges)))
    return sorted(row["value"] for each in ranges for found in reader.read(each) for row in found.to_pylist())


def test_a_batch_is_written_and_read(site: WritingSite, make_topic: MakeTopic) -> None:
    topic = make_topic(3, retention_ms=-1)
    writer = source(site, topic).writer(FRAME, overwrite=False)
    rows = [{"key": "k", "value": str(n), "partition": n % 3, "timestamp": STAMP} for n in range(6)]
    writer.commit([writer.write(iter([batch(*rows), batch({"value": "plain"})])), writer.write(iter([]))])
    reader = source(site, topic).reader(SCHEMA)
    assert values_of(reader, reader.partitions()) == [b"0", b"1", b"2", b"3", b"4", b"5", b"plain"]
    with pytest.raises(ConfigError, match="append"):
        source(site, topic).writer(FRAME, overwrite=True)
    with pytest.raises(ConfigError, match="schema"):
        source(site, topic).reader(FRAME)
    with pytest.raises(ConfigError, match="no end"):
        source(site, topic, endingoffsets="latest").streamReader(SCHEMA)


def test_a_stream_reads_up_to_the_seals_and_misses_what_was_deleted(site: WritingSite, make_topic: MakeTopic) -> None:
    topic, servers = make_topic(2), site.plain["bootstrap.servers"]
    reader = source(site, topic, startingoffsets="earliest").streamReader(SCHEMA)
    first = reader.initialOffset()
    for partition in (0, 1):
        produce_keyed(servers, topic, [(b"k", b"%d-%d" % (partition, n)) for n in range(150)], partition=partition)
    site.log.append(topic_record(topic, writable=1, count=2, rest=PartitionMode.NONE))  # sealed at 100
    last = reader.latestOffset()
    values = values_of(reader, reader.partitions(first, last))
    assert len(values) == 250
    assert b"1-100" not in values
    site.log.admin.delete_records([TopicPartition(topic, 0, 50)])[TopicPartition(topic, 0)].result(30)
    with pytest.raises(RecordsLost, match="failOnDataLoss"):
        values_of(reader, reader.partitions(first, last))
    lenient = source(site, topic, startingoffsets="earliest", failondataloss="false").streamReader(SCHEMA)
    assert len(values_of(lenient, lenient.partitions(first, last))) == 200


Named = namedtuple("Named", ("key", "value"))


@pytest.mark.parametrize(
    "row",
    [
        Row(key="k", value="v", partition=1, timestamp=STAMP, headers=[Row(key="h", value=b"1")]),
        {"key": b"k", "value": b"v", "partition": 1, "timestamp": STAMP_MS, "headers": [{"key": "h", "value": b"1"}]},
    ],
    ids=["a Row", "a dict"],
)
def test_a_row_is_written_with_all_it_has(site: WritingSite, make_topic: MakeTopic, row: Any) -> None:
    topic = make_topic(2, retention_ms=-1)
    foreach_partition_writer(topic, site.conf)([row, Named(b"pair", bytearray(b"w"))])
    (one,) = (m for m in site.records(topic) if m.key() == b"k")
    assert (one.value(), one.partition(), one.timestamp()[1], one.headers()) == (b"v", 1, STAMP_MS, [("h", b"1")])
    assert [m.value() for m in site.records(topic) if m.key() == b"pair"] == [b"w"]


@pytest.mark.parametrize(
    "row",
    [{"key": b"k"}, {}, (b"k", b"v"), {"value": 1.5}, {"value": b"v", "timestamp": 1.5}],
    ids=["no value", "no columns", "no names", "a number", "a broken time"],
)
def test_what_cannot_be_written_is_refused(site: WritingSite, make_topic: MakeTopic, row: Any) -> None:
    with pytest.raises(ConfigError):
        foreach_partition_writer("never", site.conf)([row])
    if isinstance(row, dict) and row:
        with pytest.raises(ConfigError):
            list(arrow_writer("never", site.conf)([batch(row)]))


def test_arrow_batches_are_counted(site: WritingSite, make_topic: MakeTopic) -> None:
    topic = make_topic(2, retention_ms=-1)
    rows = [{"value": b"a", "topic": topic, "headers": [{"key": "h", "value": b"1"}], "timestamp": STAMP_MS}] * 3
    (said,) = arrow_writer("another", site.conf)([batch(*rows), batch(*rows)])
    assert said.to_pylist() == [{"records": 6}]
    assert [m.headers() for m in site.records(topic)] == [[("h", b"1")]] * 6


def test_copies_are_written_unless_the_new_topic_has_a_newer_value(site: WritingSite, make_topic: MakeTopic) -> None:
    topic, servers = make_topic(2), site.plain["bootstrap.servers"]
    produce_keyed(servers, topic, [(b"a", b"before")], partition=0)
    produce_keyed(servers, topic, [(b"b", b"newer"), (None, b"unkeyed")], partition=0)
    job = CopyJob(topic, "id", 7, site.conf, {0: 1}, tries=3)
    copies = [Copy(key, b"old", [("h", b"1")], OldRecord(1, n, 50)) for n, key in enumerate([b"a", b"b", b"c"])]
    deleted = Copy(b"d", None, [], OldRecord(1, 3, 50))
    assert copy_all(job, 0, [*copies, deleted]) == Copied(copied=3, tombstones=1, superseded=1)
    found = {m.key(): m for m in drain_topic(servers, topic)}
    assert {key: m.value() for key, m in found.items() if key} == {
        b"a": b"old",
        b"b": b"newer",
        b"c": b"old",
        b"d": None,
    }
    headers = [("h", b"1"), (HEADER, b"1@0@50@7@id@%s" % digest(b"a", b"old").encode())]
    assert found[b"a"].headers() == headers
    assert copy_all(job, 0, [*copies, deleted]) == Copied(superseded=1, placed=3)
    produce_all(Producer(site.plain), topic, [{"key": b"a", "value": b"newer", "headers": headers, "partition": 0}])
    stragglers = [Copy(key, b"late", [], OldRecord(1, n, 60)) for n, key in enumerate([b"a", b"b", b"c"], 5)]
    assert copy_all(job, 0, stragglers) == Copied(copied=1, superseded=2), "a header that is passed on makes no copy"
    site.log.admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(30)
    with pytest.raises(EvacuationFailed, match="run the evacuation again"):
        copy_all(job, 0, copies)
