"""The last records of each key, and what is to become of them, as Spark computes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from modeaware.config import split_client_config
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import Consumer, KafkaException, TopicPartition
from modeaware.modelog.connection import connection_conf
from modeaware.spark.evacuation.placing import Placing
from modeaware.spark.evacuation.shrink import EvacuatingShrink
from modeaware.spark.evacuation.versions import HEADER, Source, Verdict, Version
from modeaware.spark.java_conf import spark_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OFFSETS_TIMEOUT_S = 30.0
_EARLIEST = -2  # as Spark names it

UNKEYED = "unkeyed"
"""Beside the verdicts: a partition's records without a key."""

DECIDED: dict[str, tuple[str, pa.DataType]] = {
    "verdict": ("string", pa.string()),
    "records": ("long", pa.int64()),  # of an UNKEYED row
    "placed": (
        "boolean",
        pa.bool_(),
    ),  # whether the key lies where the partitioner puts it; null: its bytes do not tell
    "home": ("int", pa.int32()),
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "headers": (
        "array<struct<key: string, value: binary>>",
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
    "partition": ("int", pa.int32()),
    "offset": ("long", pa.int64()),
    "timestamp_ms": ("long", pa.int64()),
    "source": ("string", pa.string()),
}
"""A row for each key of the retired partitions: columns by name, with their types in Spark and in Arrow. From ``value``
on, of those to be copied alone."""
_ARROW = pa.schema([(name, kind) for name, (_, kind) in DECIDED.items()])


def watermarks(conf: Mapping[str, Any], topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
    """From and up to where each partition can be read now, by who reads committed records alone.

    Raises:
        ClusterError: a leader does not answer.
    """
    _, rest = split_client_config(conf)
    settings = {"group.id": "modeaware-evacuate", "isolation.level": "read_committed"}
    try:
        with closing(Consumer({**connection_conf(rest, "evacuate"), **settings})) as asking:
            return {
                p: asking.get_watermark_offsets(TopicPartition(topic, p), timeout=OFFSETS_TIMEOUT_S) for p in partitions
            }
    except KafkaException as error:
        raise ClusterError(
            f"the ends of {topic!r} cannot be asked for: {error.args[0].str()}",
            code=ErrorCode.REQUEST_TIMED_OUT,
            topic=topic,
        ) from error


def starts_of(conf: Mapping[str, Any], shrink: EvacuatingShrink) -> dict[int, int]:
    """Where to begin in those retired partitions that need not be read from their log start.

    Raises:
        ClusterError: a leader does not answer.
    """
    lowest = watermarks(conf, shrink.topic, shrink.starts)
    return {p: start for p, start in shrink.starts.items() if start > lowest[p][0]}


def decided(
    spark: SparkSession,
    conf: Mapping[str, Any],
    shrink: EvacuatingShrink,
    placing: Placing,
    ends: Mapping[int, int],
    options: Mapping[str, str],
) -> DataFrame:
    """A row of :data:`DECIDED` for each key of the retired partitions, by what they hold up to their seals and the
    survivors up to ``ends``."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    last = F.struct("partition", "offset", "timestamp_ms", "source", "value", "headers")
    retired = (
        _records(spark, conf, shrink.topic, shrink.seals, options, starts_of(conf, shrink))
        .groupBy("key", "partition")
        .agg(F.max_by(last, "offset").alias("last"), F.count("*").alias("records"))
        .groupBy("key")
        .agg(F.collect_list("last").alias("retired"), F.sum("records").alias("records"))
    )
    where = F.struct("partition", "offset", "timestamp_ms", "source")
    survivors = (
        _records(spark, conf, shrink.topic, ends, options)
        .where(F.col("key").isNotNull())
        .groupBy("key", "partition")
        .agg(F.max_by(where, "offset").alias("last"))
        .groupBy("key")
        .agg(F.collect_list("last").alias("survivors"))
    )
    joined = retired.join(survivors, "key", "left").select("key", "records", "retired", "survivors")
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in DECIDED.items())
    return joined.mapInArrow(_Decider(shrink, placing), schema)


def _records(
    spark: SparkSession,
    conf: Mapping[str, Any],
    topic: str,
    ends: Mapping[int, int],
    options: Mapping[str, str],
    starts: Mapping[int, int] = MappingProxyType({}),
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    frame = (
        spark.read.format("kafka")
        .options(**spark_options(conf, "consumer"))
        .options(**options)
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: sorted(ends)}))
        .option("startingOffsets", json.dumps({topic: {str(p): starts.get(p, _EARLIEST) for p in ends}}))
        .option("endingOffsets", json.dumps({topic: {str(p): end for p, end in ends.items()}}))
        .option("includeHeaders", "true")
        .load()
    )
    return frame.select(
        "key",
        "value",
        "headers",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
        _source(F.col("headers")).alias("source"),
    )


def _source(headers: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    ours = F.filter(headers, lambda header: header["key"] == F.lit(HEADER))
    return F.try_element_at(ours, F.lit(-1))["value"].cast("string")


@dataclass(frozen=True)
class _Decider:
    """What ``mapInArrow`` calls on the executors."""

    shrink: EvacuatingShrink
    placing: Placing

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._decide(batch)

    def _decide(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys: list[bytes | None] = batch.column("key").to_pylist()
        known = [key or b"" for key in keys]
        homes = self.placing.indices(known, len(self.shrink.survivors)).tolist()
        before = self.placing.indices(known, self.shrink.count).tolist()
        empty_placed = self.placing.empty_placed
        columns: dict[str, list[Any]] = {name: [] for name in DECIDED}
        rows = zip(
            keys,
            homes,
            before,
            batch.column("records").to_pylist(),
            batch.column("retired").to_pylist(),
            batch.column("survivors").to_pylist(),
            strict=True,
        )
        for key, index, old_index, records, retired, survivors in rows:
            if key is None:
                row: dict[str, Any] = {"verdict": UNKEYED, "records": records}
            else:
                row = self._row(self.shrink.survivors[index], retired, survivors)
                by_hash = key != b"" or empty_placed
                lie = {last["partition"] for last in retired if last["partition"] < self.shrink.count}
                row |= {"key": key, "placed": old_index in lie if by_hash and lie else None}
            for name, column in columns.items():
                column.append(row.get(name))
        return pa.RecordBatch.from_pydict(columns, schema=_ARROW)

    def _row(self, home: int, retired: list[dict[str, Any]], survivors: list[dict[str, Any]] | None) -> dict[str, Any]:
        by_version = {_version(last): last for last in retired}
        verdict, version = self.shrink.order.decide(
            list(by_version), [_version(last) for last in survivors or ()], home
        )
        row: dict[str, Any] = {"verdict": verdict.value, "home": home, "partition": retired[0]["partition"]}
        if verdict is Verdict.COPY:
            row |= by_version[version]
        return row


def _version(last: Mapping[str, Any]) -> Version:
    return Version(last["partition"], last["offset"], last["timestamp_ms"], Source.parse(last["source"]))
