"""Spark jobs and a streaming query while a real controller replaces the topics that they read and write."""

from __future__ import annotations

import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from modeaware import Producer
from modeaware.errors import ErrorCode, TopicReplaced
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.state import topic_phase
from modeaware.spark import (
    ProgressListener,
    foreach_batch_writer,
    foreach_partition_writer,
    plug_ins,
    progress_group,
    read_from_kafka,
    register,
    snapshot,
    topics_of,
    write_arrow,
    write_to_kafka,
)
from modeaware.spark.snapshot import topic_chain
from modeaware.topic_view import TopicView
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import drain_topic, ends
from tests.support.streaming import listening, started
from tests.support.waiting import eventually

KEYS = 40


def replace(served: Controlled, topic: str, count: int) -> str:
    name = f"{topic}-v2"
    result = served.ask(ReplaceTopicCommand(topic, name, count))
    assert result.code is ErrorCode.NONE, result.message
    return name


def feed(conf: dict[str, Any], topic: str, first: int, count: int) -> int:
    """Records ``first``, ``first + 1``, ... by a producer that follows the topic; returns the next number."""
    with Producer({**conf, "enable.idempotence": True}) as producer:
        for number in range(first, first + count):
            producer.produce(topic, b"%d" % number, b"key-%d" % (number % KEYS))
        assert producer.flush(30) == 0
    return first + count


def numbers(served: Controlled, *topics: str) -> dict[bytes | None, list[int]]:
    """Key -> the numbers of its records where they came first, topic after topic."""
    found: dict[bytes | None, dict[int, None]] = defaultdict(dict)
    for topic in topics:
        for message in sorted(drain_topic(served.servers, topic), key=lambda m: (m.partition() or 0, m.offset() or 0)):
            found[message.key()][int(message.value() or b"")] = None
    return {key: list(each) for key, each in found.items()}


def test_a_query_reads_and_writes_on_while_both_its_topics_are_replaced(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, tmp_path: Path
) -> None:
    register(spark)
    source, target, name = make_topic(6), make_topic(6), f"q-{uuid.uuid4().hex[:8]}"
    conf = {**served.conf, "modeaware.mode.log.topic": served.log, "partitioner": "murmur2_random"}

    def start() -> StreamingQuery:
        frame = spark.readStream.format("modeaware").options(topic=source, startingOffsets="earliest", **conf).load()
        stream = frame.select("key", "value").writeStream.foreachBatch(foreach_batch_writer(target, conf))
        return stream.queryName(name).option("checkpointLocation", str(tmp_path)).start()

    def arrived(count: int) -> None:
        def all_of_them() -> bool:
            failure = query.exception()
            if failure is not None:
                raise RuntimeError(str(failure))
            return sum(sum(ends(served.servers, topic).values()) for topic in topics_of(conf, target)) >= count

        eventually(all_of_them, 90)

    listener = ProgressListener(conf)
    with listening(spark, listener):
        listener.require(progress_group(name), [source])
        fed = feed(conf, source, 0, 400)
        query = started(start)
        try:
            arrived(fed)
            written = replace(served, target, 3)
            served.wait_done(target)
            fed = feed(conf, source, fed, 400)
            arrived(fed)
            query.processAllAvailable()
            query.stop()
            fed = feed(conf, source, fed, 400)
            read = replace(served, source, 2)
            served.wait_for(source, lambda record: topic_phase(record) == "drain")
            fed = feed(conf, source, fed, 400)  # of the new topic, before the query has read the old topic
            query = started(start)
            arrived(fed)
            served.wait_done(source)  # by what the listener commits on both
            fed = feed(conf, source, fed, 400)
            arrived(fed)
        finally:
            query.stop()
    assert len(drain_topic(served.servers, source)) == 1200
    expected = {b"key-%d" % key: list(range(key, fed, KEYS)) for key in range(KEYS)}
    assert numbers(served, target, written) == expected
    assert sum(ends(served.servers, target).values()) == 400, "from the switch on all goes to the new topic"

    def count(frame: DataFrame) -> dict[str, int]:
        return {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}

    frame = spark.createDataFrame([(b"key-0", b"0")] * 30, "key binary, value binary")
    write_to_kafka(frame, target, conf)
    write_arrow(frame, target, conf)
    frame.foreachPartition(foreach_partition_writer(target, conf))
    both = {target: 400, written: fed - 400 + 90}
    assert count(spark.read.format("modeaware").options(topic=target, **conf).load()) == both
    assert count(read_from_kafka(spark, target, conf)) == both
    assert topics_of(conf, source) == (source, read)


def test_records_that_brokers_refuse_while_the_sink_reports_none_are_written_to_the_new_topic(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-clients 3.9 splits a batch that is too large, and its flush does not wait for the parts (KAFKA-19479)."""
    monkeypatch.setattr(plug_ins, "_are_loaded", lambda spark: False)  # they would send the records to the new topic
    topic, records = make_topic(6), 1000
    conf = {**served.conf, "modeaware.mode.log.topic": served.log}
    planned = topic_chain(conf, topic)
    feed(conf, topic, 0, 1)  # an empty topic would be deleted at once
    new_topic = replace(served, topic, 3)
    served.wait_done(topic)

    def as_planned_before(*arguments: Any, **options: Any) -> tuple[TopicView, ...]:
        monkeypatch.setattr(snapshot, "topic_chain", topic_chain)
        return planned

    def written() -> list[int]:
        return [sum(ends(served.servers, name).values()) for name in (topic, new_topic)]

    # Where the flush finds a part that waits to be sent, the sink fails instead, after this time.
    times = {"kafka.delivery.timeout.ms": 10_000, "kafka.request.timeout.ms": 5_000}
    frame = spark.range(records, numPartitions=2).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    monkeypatch.setattr(snapshot, "topic_chain", as_planned_before)
    with pytest.raises(TopicReplaced):
        write_to_kafka(frame, topic, conf, **times)
    assert written() == [1, 0]
    monkeypatch.setattr(snapshot, "topic_chain", as_planned_before)
    foreach_batch_writer(topic, conf, **times)(frame, 7)
    assert written() == [1, records]
