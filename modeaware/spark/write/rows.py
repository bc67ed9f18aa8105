"""Rows through our Producer, in the Python workers: for ``foreachPartition`` of frames and RDDs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby
from typing import Any

from modeaware.errors import ConfigError
from modeaware.spark.write.producers import key_of, producer_conf
from modeaware.spark.write.sending import Sender

COLUMNS = ("key", "value", "partition", "timestamp", "headers", "topic")
"""What the writers read of a row; all but ``value`` may be missing."""

Version = tuple[int, int]
Get = Callable[[Any], Any]


def foreach_partition_writer(
    topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None
) -> PartitionWriter:
    """A function that writes the rows of one partition of a frame or an RDD: ``df.foreachPartition(writer)``.

    On the executor our Producer chooses among the writable partitions, by the modes in force there when a row is sent.
    One producer for each Python worker and configuration is kept from task to task. A full queue makes the task wait;
    a record that was not delivered fails it at the end at the latest. Delivered at least once; idempotent (order
    survives retries) and with a ``linger.ms`` of 50, unless ``conf`` says something about these.

    Rows are ``Row``, named tuples or dicts with ``value`` and, where wanted, ``key`` (bytes or str), ``partition``
    (int; null = the partitioner chooses), ``timestamp`` (a Spark timestamp, or Unix time in ms; null = now),
    ``headers`` (array of struct of ``key`` and ``value``) and ``topic`` (null = ``topic``). Others are not looked at.

    Args:
        topic: where rows go that name none.
        conf: as for :class:`modeaware.Producer`, without ``on_delivery`` and ``transactional.id``; it travels to the
            executors, so it must be picklable there. ``partitioner`` is librdkafka's consistent_random where none is
            named, as in the Producer; ``write_to_kafka`` has Java's default.
        at_least: ``TopicView.version`` that executors must know before they write.

    Raises:
        ConfigError: ``conf`` holds what cannot be respected. On executors: as :class:`Sender` says.
    """
    return PartitionWriter(topic, conf, at_least=at_least)


class PartitionWriter:
    """What :func:`foreach_partition_writer` returns: picklable."""

    def __init__(self, topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None) -> None:
        producer_conf(conf)  # refuse here what would be refused on every executor
        self.topic = topic
        self.conf = dict(conf)
        self.at_least = at_least
        self._key = key_of(conf)

    def __call__(self, rows: Iterable[Any]) -> None:
        with self.sender() as sender:
            write_rows(sender, rows)

    def sender(self) -> Sender:
        """A new sender; raises as :class:`Sender` says."""
        return Sender(self.topic, self.conf, at_least=self.at_least, key=self._key)


def write_rows(sender: Sender, rows: Iterable[Any]) -> None:
    """Send all of ``rows``; nothing is waited for but room in the queue.

    Raises:
        ConfigError: a row has no names, or no ``value``. Others: as :meth:`Sender.send` says.
    """
    for fields, alike in groupby(rows, _fields):  # by far most often one group
        if "value" not in fields:
            raise ConfigError(f"a row needs a column 'value'; it has {', '.join(map(str, fields)) or 'none'}")
        _write_alike(sender, fields, alike)


def _write_alike(sender: Sender, fields: Sequence[str], rows: Iterable[Any]) -> None:
    first, rows = _peek(rows)
    by_name = isinstance(first, Mapping)
    places: list[Get] = [
        (operator.itemgetter(name if by_name else fields.index(name)) if name in fields else _nothing)
        for name in COLUMNS
    ]
    key, value, partition, timestamp, headers, topic = places
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


def _peek(rows: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    rest = iter(rows)
    first = next(rest)
    return first, chain((first,), rest)


def _fields(row: Any) -> Sequence[str]:
    """The names of a row's columns."""
    try:
        found: Sequence[str] = row.__fields__
    except AttributeError:
        pass
    else:
        return found
    if isinstance(row, Mapping):
        return list(row)
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return list(row._fields)
    raise ConfigError(f"a row must be a Row with names, a named tuple or a dict, not {type(row).__name__}")


def _nothing(row: Any) -> None:
    return None


def as_bytes(value: Any) -> bytes | None:
    """A key or a value as it is sent: Spark's binary comes as a bytearray, which confluent_kafka refuses for keys."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ConfigError(f"keys and values are binary or string, not {type(value).__name__}: cast the column")


def as_ms(timestamp: Any) -> int | None:
    """Unix time in ms of a timestamp as Spark gives it to Python (without a zone: this process's), or of ms."""
    if timestamp is None or isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, datetime):
        return round(timestamp.timestamp() * 1_000_000) // 1000
    raise ConfigError(f"timestamps are Spark timestamps or whole ms, not {type(timestamp).__name__}: cast the column")


def as_headers(headers: Any) -> list[tuple[str, bytes | None]] | None:
    """Headers of structs, tuples or dicts of ``key`` and ``value``."""
    if not headers:
        return None
    return [
        (header["key"], as_bytes(header["value"])) if isinstance(header, Mapping) else (header[0], as_bytes(header[1]))
        for header in headers
    ]
