"""The job that counts: records by key and partition in the JVM, keys hashed in columns, sums out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from modeaware.plan.counted import Counted, Question
from modeaware.plan.sample import Stretch
from modeaware.spark.java_conf import spark_options
from modeaware.spark.planning.tally import Rows, Sums, Tally, counted_of, last_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROWS = "key binary, partition int, records bigint, sizes bigint, first_ms bigint, last_ms bigint"
_SUMS = "what string, over int, at int, wholes array<bigint>, reals array<double>, first_ms bigint, last_ms bigint"
_AT_ONCE = 1 << 16
"""Rows that are hashed together: NumPy is at its best, and a column of long keys still fits."""


class Counting:
    """What a task does with Arrow's batches, sorted by key: one batch of sums. Picklable."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        tally = Tally(self._question)
        waiting: list[Any] = []
        for batch in batches:
            waiting.append(batch)
            if sum(each.num_rows for each in waiting) >= _AT_ONCE:
                table = pa.Table.from_batches(waiting)
                whole = last_key(_keys(table))  # the rows of the last key may go on in the next batch
                tally.add(_rows(table.slice(0, whole)))
                waiting = table.slice(whole).to_batches()
        if any(each.num_rows for each in waiting):
            tally.add(_rows(pa.Table.from_batches(waiting)))
        yield _batch(list(tally.sums()))


def count(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    question: Question,
    logs: Mapping[int, Stretch],
    options: Mapping[str, str],
) -> Counted:
    """Count every record of ``logs``; no key reaches the driver.

    Args:
        conf: as for :class:`modeaware.Consumer`.
        options: of Spark's Kafka source, beside those that are set here.
    """
    logs = {partition: log for partition, log in logs.items() if log.length > 0}
    if not logs:
        return counted_of(question, [])
    settings = {
        # What retention takes meanwhile is not counted; the offsets are fixed, so nothing else can be missed.
        "failOnDataLoss": "false",
        **spark_options(conf, "consumer"),
        **options,
        "kafka.isolation.level": "read_uncommitted",  # it is where records lie that counts
        "includeHeaders": "true",
        "assign": json.dumps({topic: sorted(logs)}),
        "startingOffsets": json.dumps({topic: {str(p): log.start for p, log in logs.items()}}),
        "endingOffsets": json.dumps({topic: {str(p): log.end for p, log in logs.items()}}),
    }
    records = spark.read.format("kafka").options(**settings).load()
    return counted_of(question, (Sums(*row) for row in _summed(_by_key(records), question).collect()))


def _by_key(records: DataFrame) -> DataFrame:
    """One row for each key and partition, those of a key side by side in one task."""
    from pyspark.sql import functions as sf

    stamp_ms = sf.unix_millis("timestamp")
    return (
        records.select("key", "partition", _size().alias("size"), stamp_ms.alias("stamp_ms"))
        # First by both: a key (or none at all) that most records have is counted where it is read.
        .groupBy("key", "partition")
        .agg(
            sf.count("*").alias("records"),
            sf.sum("size").alias("sizes"),
            sf.coalesce(sf.min(sf.when(sf.col("stamp_ms") > 0, sf.col("stamp_ms"))), sf.lit(-1)).alias("first_ms"),
            sf.max("stamp_ms").alias("last_ms"),
        )
        .repartition("key")
        .sortWithinPartitions("key")
    )


def _size() -> Column:
    from pyspark.sql import functions as sf

    headers = sf.aggregate(
        "headers",
        sf.lit(0).cast("bigint"),
        lambda size, header: size + sf.octet_length(header["key"]) + sf.coalesce(_length(header["value"]), sf.lit(0)),
    )
    fixed = sf.coalesce(_length(sf.col("key")), sf.lit(0)) + sf.coalesce(_length(sf.col("value")), sf.lit(0))
    return fixed.cast("bigint") + sf.coalesce(headers, sf.lit(0))


def _length(column: Column) -> Column:
    from pyspark.sql import functions as sf

    return sf.octet_length(column)


def _summed(rows: DataFrame, question: Question) -> DataFrame:
    from pyspark.sql import functions as sf

    sums = rows.mapInArrow(Counting(question), _SUMS)
    wholes = [sf.sum(sf.col("wholes")[at]) for at in range(8)]
    reals = [sf.sum(sf.col("reals")[at]) for at in range(3)]
    return sums.groupBy("what", "over", "at").agg(
        sf.array(*wholes).alias("wholes"),
        sf.array(*reals).alias("reals"),
        sf.min("first_ms").alias("first_ms"),
        sf.max("last_ms").alias("last_ms"),
    )


def _keys(table: Any) -> Any:
    chunks = table.column("key").combine_chunks()
    return chunks.combine_chunks() if hasattr(chunks, "combine_chunks") else chunks


def _rows(table: Any) -> Rows:
    numbers = (
        table.column(name).to_numpy().astype("int64")
        for name in ("partition", "records", "sizes", "first_ms", "last_ms")
    )
    return Rows(_keys(table), *numbers)


def _batch(sums: list[Sums]) -> Any:
    import pyarrow as pa

    types = (pa.string(), pa.int32(), pa.int32(), pa.list_(pa.int64()), pa.list_(pa.float64()), pa.int64(), pa.int64())
    columns = [pa.array([row[at] for row in sums], kind) for at, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, names=list(Sums._fields))
