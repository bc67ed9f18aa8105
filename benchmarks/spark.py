"""``spark``: a million records of 100 bytes from a cached frame, through every writer, beside Spark's own sink and a
plain ``foreachPartition`` with confluent_kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import confluent_kafka
from pyspark.sql import DataFrame, Row

from benchmarks.harness import Result, Round, Timing, compare, interleave, stopwatch
from benchmarks.scale import cpu_s
from benchmarks.setting import Setting
from modeaware.spark import foreach_partition_writer, write_arrow, write_to_kafka
from modeaware.spark.column import with_partition
from modeaware.spark.connector import spark_options
from modeaware.spark.sink import placement
from modeaware.spark.snapshot import topic_chain
from tests.support.spark_session import spark_builder

RECORDS = 1_000_000
VALUE_BYTES = 100
TASKS = 4
ROUNDS, PRODUCER_ROUNDS = 30, 7
PLUG_INS, COLUMN = 0.95, 0.55
"""Of Spark's own sink, by what chooses among the writable partitions."""
BY_ROWS, ARROW_OF_ROWS, ARROW_OF_SINK = 0.95, 2.0, 0.5

SINK_LIMITS = (
    ("plug-ins", "sink", PLUG_INS),
    ("plug-ins, shrunk", "sink of few", PLUG_INS),
    ("plug-ins, crc32, shrunk", "sink of few", PLUG_INS),
    ("column, shrunk", "sink of few", COLUMN),
    ("Arrow", "sink", ARROW_OF_SINK),
    ("Arrow, shrunk", "sink", ARROW_OF_SINK),
)
PRODUCER_LIMITS = (
    ("rows", "plain rows", BY_ROWS),
    ("rows, shrunk", "plain rows", BY_ROWS),
    ("Arrow", "plain rows", ARROW_OF_ROWS),
    ("Arrow, shrunk", "plain rows", ARROW_OF_ROWS),
)


class PlainWriter:
    """What one writes without us: a producer for each task, and a call for each row."""

    def __init__(self, topic: str, conf: Mapping[str, Any]) -> None:
        self.topic = topic
        self.conf = dict(conf)

    def __call__(self, rows: Iterable[Row]) -> None:
        producer = confluent_kafka.Producer(self.conf)
        for row in rows:
            while True:
                try:
                    producer.produce(self.topic, value=bytes(row.value), key=bytes(row.key))
                    break
                except BufferError:
                    producer.poll(0.1)
        if left := producer.flush(60):
            raise RuntimeError(f"{left} records were not delivered in 60 s")


@contextmanager
def _frame(records: int) -> Iterator[DataFrame]:
    spark = spark_builder().getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    columns = (
        "CAST(CONCAT('key-', id) AS BINARY) AS key",
        f"CAST(RPAD(CAST(id AS STRING), {VALUE_BYTES}, 'x') AS BINARY) AS value",
    )
    frame = spark.range(records, numPartitions=TASKS).selectExpr(*columns).cache()
    frame.count()
    try:
        yield frame
    finally:
        spark.stop()


def _timed(work: Callable[[], object], spark: int) -> Timing:
    """``spark``: the process id of Spark's JVM. The sink works there alone; its CPU time varies less than the rate."""
    before_s = cpu_s(spark)
    with stopwatch() as timing:
        work()
    return Timing(timing().wall_s, cpu_s(spark) - before_s)


def measure(setting: Setting) -> Iterator[Result]:
    records = RECORDS
    log, whole, shrunk, few = setting.make_shrunk()
    plain = {"bootstrap.servers": setting.bootstrap_servers}
    conf = {**plain, "modeaware.mode.log.topic": log.topic}
    if not topic_chain(conf, whole)[0].all_writable or topic_chain(conf, shrunk)[0].all_writable:
        raise RuntimeError("the modes are not what is to be measured")
    with _frame(records) as frame:
        java, jvm = spark_options(conf, "producer"), frame.sparkSession.sparkContext._gateway.proc.pid

        def sink(topic: str, frame: DataFrame) -> None:
            frame.write.format("kafka").options(**java).option("topic", topic).save()

        placed = placement(topic_chain(conf, shrunk)[0], conf)
        assert placed is not None, "some partitions are retired"
        crc32 = {**conf, "partitioner": "consistent_random"}
        arrow = {
            "Arrow": partial(write_arrow, frame, whole, conf),
            "Arrow, shrunk": partial(write_arrow, frame, shrunk, conf),
        }
        through_sink: dict[str, Callable[[], object]] = {
            "sink": partial(sink, whole, frame),
            "sink of few": partial(sink, few, frame),
            "plug-ins": partial(write_to_kafka, frame, whole, conf),
            "plug-ins, shrunk": partial(write_to_kafka, frame, shrunk, conf),
            "plug-ins, crc32, shrunk": partial(write_to_kafka, frame, shrunk, crc32),
            "column, shrunk": partial(sink, shrunk, with_partition(frame, placed)),
            **arrow,
        }
        through_producer: dict[str, Callable[[], object]] = {
            "plain rows": partial(frame.foreachPartition, PlainWriter(whole, plain)),
            "rows": partial(frame.foreachPartition, foreach_partition_writer(whole, conf)),
            "rows, shrunk": partial(frame.foreachPartition, foreach_partition_writer(shrunk, conf)),
            **arrow,
        }
        for ours, other, limit in SINK_LIMITS:  # in pairs: whoever comes after another finds the broker busy with that
            pair = {other: through_sink[other], ours: through_sink[ours]}
            yield _compare(_rounds(pair, setting.rounds(ROUNDS), jvm), records, ours, other, limit)
        times = _rounds(through_producer, setting.rounds(PRODUCER_ROUNDS), jvm)
        for ours, other, limit in PRODUCER_LIMITS:
            yield _compare(times, records, ours, other, limit)
    log.close()


def _rounds(works: Mapping[str, Callable[[], object]], rounds: int, jvm: int) -> dict[str, list[Timing]]:
    contenders: dict[str, Round] = {name: partial(_timed, work, jvm) for name, work in works.items()}
    return interleave(contenders, rounds)


def _compare(times: Mapping[str, list[Timing]], records: int, ours: str, other: str, limit: float) -> Result:
    pair = {other: times[other], ours: times[ours]}
    return compare(f"spark, {ours}, beside {other}", pair, records, at_least=limit, ours=ours, plain=other)
