"""A running query of Spark's own sink with the plug-ins for the JVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Message
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.spark.connector import spark_options
from modeaware.spark.plug_ins import plug_in_options
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, commit
from tests.support.plain import drain_topic, ends
from tests.support.spark_writing import expected_places
from tests.support.waiting import eventually

ROWS, KEYS = 200, 40
DEADLINE_S = 180


def last_batch(query: StreamingQuery) -> int:
    """The number of the last batch that is done; -1: none is."""
    assert query.exception() is None
    return -1 if query.lastProgress is None else int(query.lastProgress["batchId"])


def pass_batches(query: StreamingQuery, count: int) -> int:
    """Wait until ``count`` more batches are done; return the number of the last one."""
    wanted = last_batch(query) + count
    eventually(lambda: last_batch(query) >= wanted, DEADLINE_S)
    return last_batch(query)


def batch_of(message: Message) -> int:
    return int(message.value() or b"") // ROWS


def test_a_running_query_follows_a_shrink_and_a_replacement(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    """The query writes on while a controller sets the fence. A group that lags keeps the old topic."""
    old, conf = make_topic(12, retention_ms=-1), {**served.conf, "modeaware.mode.log.topic": served.log}
    group = make_group()
    commit(served, group, old, dict.fromkeys(range(12), 0))
    options = spark_options(conf, "producer") | plug_in_options(conf, "murmur2_random", None)
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=2).load()
    rows = rate.selectExpr(f"CONCAT('key-', CAST(value % {KEYS} AS STRING)) AS key", "CAST(value AS STRING) AS value")
    sink = (
        rows.writeStream.format("kafka")
        .options(**options)
        .option("topic", old)
        .trigger(processingTime="200 milliseconds")
    )
    query = sink.option("checkpointLocation", str(tmp_path)).start()
    try:
        pass_batches(query, 2)
        served.shrink(old, 5)
        shrunk = last_batch(query) + 1  # it runs now, or is the next one
        pass_batches(query, 4)
        before = drain_topic(served.servers, old)
        commit(served, group, old, ends(served.servers, old))  # of the rows that come afterwards it reads none
        served.wait_done(old)
        new = f"{old}-v2"
        result = served.ask(ReplaceTopicCommand(old, new, 4))
        assert result.code is ErrorCode.NONE, result.message
        served.wait_for(old, lambda record: record.replacing.switched_ms is not None)
        replaced = last_batch(query) + 1
        served.wait_for(old, lambda record: record.replacing.fenced_ms is not None)
        done = pass_batches(query, 4)
    finally:
        query.stop()
    kept, in_new = drain_topic(served.servers, old), drain_topic(served.servers, new)
    in_old = {(message.partition(), message.offset()): message for message in (*before, *kept)}.values()
    numbers = sorted(int(message.value() or b"") for message in (*in_old, *in_new) if batch_of(message) <= done)
    assert numbers == list(range((done + 1) * ROWS)), "each row once"
    assert {message.partition() for message in in_old if batch_of(message) < shrunk} > set(range(5))
    assert {message.partition() for message in in_old if batch_of(message) > shrunk} <= set(range(5))
    assert {batch_of(message) for message in in_old if batch_of(message) > replaced} == set()
    places: dict[bytes | None, set[int | None]] = {}
    for message in in_new:
        places.setdefault(message.key(), set()).add(message.partition())
    assert places == expected_places([b"key-%d" % number for number in range(KEYS)], 4, "murmur2_random")
