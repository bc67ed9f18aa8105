"""Whole Arrow batches through our Producer: no row is pickled, which is what costs most row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from modeaware.errors import ConfigError
from modeaware.spark.driver import topic_view
from modeaware.spark.write.rows import COLUMNS, PartitionWriter, Version, as_headers
from modeaware.spark.write.sending import Sender
from modeaware.topic_view import TopicView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "records long"
"""What the function of :func:`arrow_writer` yields: how many records it has written, in one row for each task."""


def arrow_writer(topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None) -> ArrowWriter:
    """A function for ``df.mapInArrow(writer, modeaware.spark.write.arrow.SCHEMA)``, far faster than row by row.

    Columns, arguments, guarantees and errors are those of
    :func:`~modeaware.spark.foreach_partition_writer`. The frame that ``mapInArrow`` returns has to be
    computed once for the records to be written, as :func:`write_arrow` does.
    """
    return ArrowWriter(topic, conf, at_least=at_least)


def write_arrow(df: DataFrame, topic: str, conf: Mapping[str, Any]) -> int:
    """Write a frame through :func:`arrow_writer` and return how many records were written.

    Unlike Spark's sink it keeps timestamps.

    Raises:
        ViewTimeout: the modes are not known; nothing was written.
        ConfigError: ``conf`` holds what cannot be respected, or the frame has no ``value``.
        PythonException, Py4JJavaError: the job failed; its text has the executor's error.
    """
    return write_arrow_by(topic_view(conf, topic), df, conf)


def write_arrow_by(view: TopicView, df: DataFrame, conf: Mapping[str, Any]) -> int:
    """:func:`write_arrow` by the modes of ``view`` or newer ones."""
    known = [name for name in COLUMNS if name in df.columns]
    if "value" not in known:
        raise ConfigError(f"{view.topic}: the frame needs a column 'value'; it has {', '.join(df.columns)}")
    written = df.select(*known).mapInArrow(arrow_writer(view.topic, conf, at_least=view.version), SCHEMA)
    return sum(row.records for row in written.collect())


class ArrowWriter(PartitionWriter):
    """What :func:`arrow_writer` returns: picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # rows of another kind
        with self.sender() as sender:
            for batch in batches:
                write_batch(sender, batch)
        yield pa.RecordBatch.from_arrays([pa.array([sender.sent], pa.int64())], ["records"])


def write_batch(sender: Sender, batch: pa.RecordBatch) -> None:
    """Send the rows of ``batch``; nothing is waited for but room in the queue.

    Raises:
        ConfigError: a column is missing, or of a type that is not sent.
    """
    columns = {name: batch.column(name) for name in batch.schema.names if name in COLUMNS}
    if "value" not in columns:
        raise ConfigError(f"a batch needs a column 'value'; it has {', '.join(batch.schema.names)}")
    values = _bytes(columns["value"])
    keys = _bytes(columns["key"]) if "key" in columns else repeat(None, len(values))
    if columns.keys() <= {"key", "value"}:
        sender.send_pairs(zip(keys, values, strict=True))
        return
    nothing = [None] * len(values)  # not one iterator for several columns
    rest = [
        columns["partition"].to_pylist() if "partition" in columns else nothing,
        _ms(columns["timestamp"]) if "timestamp" in columns else nothing,
        map(as_headers, columns["headers"].to_pylist()) if "headers" in columns else nothing,
        columns["topic"].to_pylist() if "topic" in columns else nothing,
    ]
    for row in zip(keys, values, *rest, strict=True):
        sender.send(*row)


def _bytes(column: pa.Array) -> list[bytes | None]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise ConfigError(f"keys and values are binary or string, not {kind}: cast the column")
    found: list[bytes | None] = column.to_pylist()
    return found


def _ms(column: pa.Array) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise ConfigError(f"timestamps are Spark timestamps or whole ms, not {column.type}: cast the column")
    found: list[int | None] = column.to_pylist()
    return found
