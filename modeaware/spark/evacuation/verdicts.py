"""What becomes of each key of the retired partitions: its last records, gathered and judged by Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from modeaware.errors import ConfigError
from modeaware.spark.connector import chosen_partitioner
from modeaware.spark.evacuation.shrink import EvacuatingShrink
from modeaware.spark.evacuation.versions import HEADER, Source, Verdict, Version
from modeaware.spark.source import read_ranges
from partitioners import DEFAULT_NAME, Partitioner, named, rule_named
from partitioners.columns import partition_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNKEYED = "unkeyed"
"""Beside the verdicts: a partition's records without a key."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema(
    [
        ("verdict", pa.string()),
        ("records", pa.int64()),  # of an UNKEYED row
        ("placed", pa.bool_()),  # whether the key lies where the partitioner places it; null: its bytes do not tell
        ("home", pa.int32()),
        ("key", pa.binary()),
        ("partition", pa.int32()),
        # Of keys to be copied alone:
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("source", pa.string()),
    ]
)
_SCHEMA = (
    "verdict string, records long, placed boolean, home int, key binary, partition int, value binary, "
    "headers array<struct<key: string, value: binary>>, offset long, timestamp_ms long, source string"
)


@dataclass(frozen=True)
class KeyPlaces:
    """Where the producers of a topic place keys, by a partitioner or its name. Picklable where it is a name."""

    topic: str
    partitioner: str | Partitioner

    @classmethod
    def of(cls, conf: Mapping[str, Any], topic: str) -> KeyPlaces:
        """Raises ConfigError where the partitioner of ``conf`` does not exist, or places no keys."""
        name, own = chosen_partitioner(conf, DEFAULT_NAME)
        if name is not None and rule_named(name).placer is None:
            raise ConfigError(f"partitioner: {name!r} places no keys; use that of the producers of {topic!r}")
        return cls(topic, name or own)

    def indices(self, keys: Sequence[bytes], count: int) -> NDArray[np.int32]:
        """Return the index of each key among ``count`` partitions; 0 for one that is not placed by its bytes."""
        if isinstance(self.partitioner, str):
            return partition_column(keys, count, self.partitioner, null_partitions=0)
        picks = self.partitioner.for_topic(self.topic)
        return np.fromiter(
            (picks.partition(key, count) if picks.requires_consistency(key) else 0 for key in keys), np.int32, len(keys)
        )

    @property
    def empty_placed(self) -> bool:
        """Whether an empty key is placed by its bytes, like any other."""
        chosen = named(self.partitioner) if isinstance(self.partitioner, str) else self.partitioner
        return chosen.for_topic(self.topic).requires_consistency(b"")


def judged(
    spark: SparkSession,
    conf: Mapping[str, Any],
    shrink: EvacuatingShrink,
    places: KeyPlaces,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    options: Mapping[str, str],
) -> DataFrame:
    """Return a row with a verdict for each key of the retired partitions, which are read from ``starts`` or their log
    starts to their seals, and the survivors to ``ends``."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    def last_of(ends: Mapping[int, int], starts: Mapping[int, int], *columns: str) -> DataFrame:
        """The last record of each key and partition, and how many there are."""
        ours = F.filter("headers", lambda header: header["key"] == F.lit(HEADER))
        records = read_ranges(spark, shrink.topic, conf, ends, starts, "read_committed", options).select(
            *("key", "value", "headers", "partition", "offset"),
            F.unix_millis("timestamp").alias("timestamp_ms"),
            F.try_element_at(ours, F.lit(-1))["value"].cast("string").alias("source"),
        )
        last = F.max_by(F.struct("partition", "offset", "timestamp_ms", "source", *columns), "offset")
        return records.groupBy("key", "partition").agg(last.alias("last"), F.count("*").alias("records"))

    retired = (
        last_of(shrink.seals, starts, "value", "headers")
        .groupBy("key")
        .agg(F.collect_list("last").alias("retired"), F.sum("records").alias("records"))
    )
    survivors = (
        last_of(ends, {}).where(F.col("key").isNotNull()).groupBy("key").agg(F.collect_list("last").alias("survivors"))
    )
    joined = retired.join(survivors, "key", "left").select("key", "records", "retired", "survivors")
    return joined.mapInArrow(_Judge(shrink, places), _SCHEMA)


@dataclass(frozen=True)
class _Judge:
    """What ``mapInArrow`` calls on the executors."""

    shrink: EvacuatingShrink
    places: KeyPlaces

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist(list(self._rows(batch.to_pylist())), schema=_ARROW)

    def _rows(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        shrink, keys = self.shrink, [row["key"] or b"" for row in rows]
        indices = self.places.indices(keys, len(shrink.survivors)).tolist()
        before = self.places.indices(keys, shrink.count).tolist()
        empty_placed = self.places.empty_placed
        for row, index, index_before in zip(rows, indices, before, strict=True):
            key, home = row["key"], shrink.survivors[index]
            if key is None:
                yield {"verdict": UNKEYED, "records": row["records"]}
                continue
            retired = {version_of(last): last for last in row["retired"]}
            survivors = [version_of(last) for last in row["survivors"] or ()]
            verdict, version = shrink.order.decide(list(retired), survivors, home)
            lie = {last.partition for last in retired if last.partition < shrink.count}
            yield {
                "verdict": verdict.value,
                "placed": index_before in lie if lie and (key or empty_placed) else None,
                "home": home,
                "partition": min(lie, default=None),
                **(retired[version] if verdict is Verdict.COPY else {}),
                "key": key,
            }


def version_of(record: Mapping[str, Any]) -> Version:
    """Return the version of a record with the columns of a row."""
    return Version(record["partition"], record["offset"], record["timestamp_ms"], Source.parse(record["source"]))
