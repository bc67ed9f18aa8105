"""Writers through our Producer on the executors: row by row, and by Arrow batches, which cost less: no row is pickled.

Of the columns ``value``, ``key``, ``partition``, ``timestamp``, ``headers`` and ``topic`` all but ``value`` may be
missing; other columns are ignored.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby, repeat
from typing import TYPE_CHECKING, Any

from modeaware.errors import ConfigError
from modeaware.spark.sender import Sender, Version, key_of, producer_conf
from modeaware.topic_view import TopicView

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COLUMNS = ("key", "value", "partition", "timestamp", "headers", "topic")
SCHEMA = "records long"
"""What the function of :func:`arrow_writer` yields: how many records a task has written, in one row."""


class PartitionWriter:
    """What :func:`foreach_partition_writer` returns. Picklable."""

    def __init__(self, topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None) -> None:
        producer_conf(conf)  # refuses here what every executor would refuse
        self.topic = topic
        self.conf = dict(conf)
        self.at_least = at_least
        self._key = key_of(conf)

    def __call__(self, rows: Iterable[Any]) -> None:
        with self._sender() as sender:
            for fields, alike in groupby(rows, _fields):  # nearly always one group
                _send_rows(sender, fields, alike)

    def _sender(self) -> Sender:
        return Sender(self.topic, self.conf, at_least=self.at_least, key=self._key)


class ArrowWriter(PartitionWriter):
    """What :func:`arrow_writer` returns. Picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # batches, not rows
        import pyarrow as pa

        with self._sender() as sender:
            for batch in batches:
                send_batch(sender, batch)
        yield pa.RecordBatch.from_arrays([pa.array([sender.sent], pa.int64())], ["records"])


def foreach_partition_writer(
    topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None
) -> PartitionWriter:
    """Return a function that writes the rows of one partition of a frame or an RDD: ``df.foreachPartition(writer)``.

    On the executor our Producer chooses among the writable partitions, by the modes in force there when a row is sent.
    A full queue makes the task wait; a record that was not delivered fails it, at the latest at its end. Delivery is at
    least once; producers are idempotent (order survives retries) with a ``linger.ms`` of 50, unless ``conf`` sets
    these.

    Rows are ``Row``, named tuples or dicts with ``value`` and optionally ``key`` (bytes or str), ``partition`` (int;
    null: the partitioner chooses), ``timestamp`` (a Spark timestamp, or Unix time in ms; null: now), ``headers`` (array
    of struct of ``key`` and ``value``) and ``topic`` (null: ``topic``). Other columns are ignored.

    Args:
        topic: where rows go that name none.
        conf: as for :class:`modeaware.Producer`, without ``on_delivery`` and ``transactional.id``; it is pickled for
            the executors. ``partitioner`` defaults to librdkafka's consistent_random, as in the Producer;
            ``write_to_kafka`` has Java's default.
        at_least: ``TopicView.version`` that executors must have before they write.

    Raises:
        ConfigError: ``conf`` holds a setting that cannot be respected. On executors: as from
            :class:`~modeaware.spark.sender.Sender`.
    """
    return PartitionWriter(topic, conf, at_least=at_least)


def arrow_writer(topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None) -> ArrowWriter:
    """Return a function for ``df.mapInArrow(writer, modeaware.spark.writer.SCHEMA)``, much faster than row by row, and
    otherwise as :func:`foreach_partition_writer`. The frame that ``mapInArrow`` returns must be computed once."""
    return ArrowWriter(topic, conf, at_least=at_least)


def write_arrow(df: DataFrame, topic: str, conf: Mapping[str, Any]) -> int:
    """Write a frame through :func:`arrow_writer` and return how many records were written.

    Unlike Spark's sink it keeps timestamps.

    Raises:
        ViewTimeout: the modes are unknown; nothing was written.
        ConfigError: ``conf`` holds a setting that cannot be respected, or the frame has no ``value``.
        PythonException, Py4JJavaError: the job failed; the text includes the executor's error.
    """
    from modeaware.spark.snapshot import topic_view

    return write_arrow_by(topic_view(conf, topic), df, conf)


def write_arrow_by(view: TopicView, df: DataFrame, conf: Mapping[str, Any]) -> int:
    """:func:`write_arrow` by the modes of ``view`` or newer ones."""
    known = [name for name in COLUMNS if name in df.columns]
    if "value" not in known:
        raise ConfigError(f"{view.topic}: the frame needs a column 'value'; it has {', '.join(df.columns)}")
    written = df.select(*known).mapInArrow(arrow_writer(view.topic, conf, at_least=view.version), SCHEMA)
    return sum(row.records for row in written.collect())


def _send_rows(sender: Sender, fields: Sequence[str], rows: Iterator[Any]) -> None:
    """Send rows that have the same columns."""
    if "value" not in fields:
        raise ConfigError(f"a row needs a column 'value'; it has {', '.join(map(str, fields)) or 'none'}")
    first = next(rows)
    rows, by_name = chain((first,), rows), isinstance(first, Mapping)
    key, value, partition, timestamp, headers, topic = (
        operator.itemgetter(name if by_name else fields.index(name)) if name in fields else _nothing for name in COLUMNS
    )
    if not {"partition", "timestamp", "headers", "topic"}.intersection(fields):
        sender.send_pairs((as_bytes(key(row)), as_bytes(value(row))) for row in rows)
        return
    for row in rows:
        sender.send(
            as_bytes(key(row)),
            as_bytes(value(row)),
            partition(row),
            as_ms(timestamp(row)),
            as_headers(headers(row)),
            topic(row),
        )


def _nothing(row: Any) -> None:
    return None


def _fields(row: Any) -> Sequence[str]:
    """The names of a row's columns."""
    try:
        return row.__fields__  # type: ignore[no-any-return] # a Row's
    except AttributeError:
        if isinstance(row, Mapping):
            return list(row)
        if isinstance(row, tuple) and hasattr(row, "_fields"):
            return list(row._fields)
    raise ConfigError(f"a row must be a Row with names, a named tuple or a dict, not {type(row).__name__}")


def as_bytes(value: Any) -> bytes | None:
    """Return a key or a value as bytes: Spark's binary is a bytearray, which confluent_kafka refuses for keys."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ConfigError(f"keys and values are binary or string, not {type(value).__name__}: cast the column")


def as_ms(timestamp: Any) -> int | None:
    """Return the Unix time in ms of a timestamp (without a zone: in this process's zone), or of ms."""
    if timestamp is None or isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, datetime):
        return round(timestamp.timestamp() * 1_000_000) // 1000
    raise _no_timestamp(type(timestamp).__name__)


def _no_timestamp(kind: object) -> ConfigError:
    return ConfigError(f"the column timestamp is {kind}: cast it to timestamp, or to whole ms (bigint)")


def as_headers(headers: Any) -> list[tuple[str, bytes | None]] | None:
    """Return headers given as structs, tuples or dicts of ``key`` and ``value``."""
    if not headers:
        return None
    return [
        (header["key"], as_bytes(header["value"])) if isinstance(header, Mapping) else (header[0], as_bytes(header[1]))
        for header in headers
    ]


def send_batch(sender: Sender, batch: pa.RecordBatch) -> None:
    """Queue the rows of an Arrow batch; ConfigError where a column is missing, or of a type that is not sent."""
    columns = {name: batch.column(name) for name in batch.schema.names if name in COLUMNS}
    if "value" not in columns:
        raise ConfigError(f"a batch needs a column 'value'; it has {', '.join(batch.schema.names)}")
    values = _bytes_column(columns["value"])
    keys = _bytes_column(columns["key"]) if "key" in columns else repeat(None, len(values))
    if columns.keys() <= {"key", "value"}:
        sender.send_pairs(zip(keys, values, strict=True))
        return
    nothing = [None] * len(values)  # not one iterator for several columns
    rest = [
        columns["partition"].to_pylist() if "partition" in columns else nothing,
        _ms_column(columns["timestamp"]) if "timestamp" in columns else nothing,
        map(as_headers, columns["headers"].to_pylist()) if "headers" in columns else nothing,
        columns["topic"].to_pylist() if "topic" in columns else nothing,
    ]
    for row in zip(keys, values, *rest, strict=True):
        sender.send(*row)


def _bytes_column(column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise ConfigError(f"keys and values are binary or string, not {kind}: cast the column")
    return column.to_pylist()  # type: ignore[no-any-return] # pyarrow's


def _ms_column(column: pa.Array) -> list[int | None]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise _no_timestamp(column.type)
    return column.to_pylist()  # type: ignore[no-any-return] # pyarrow's
