"""Batch and streaming writers of ``format("modeaware")``: Arrow batches through our Producer on the executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from modeaware.errors import ConfigError
from modeaware.spark.driver import topic_view
from modeaware.spark.source.options import SourceOptions
from modeaware.spark.write.producers import producer_conf
from modeaware.spark.write.rows import Version, write_rows
from modeaware.spark.write.sending import Sender

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TYPES = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "timestamp": ("timestamp", "bigint"),
    "topic": ("string",),
}


@dataclass
class Written(WriterCommitMessage):
    """How many records a task has written, all of them acknowledged."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame; every record is acknowledged when the job is done. At least once: tasks that are run again write
    their records again."""

    def __init__(self, options: SourceOptions, at_least: Version | None) -> None:
        self._options = options
        self._at_least = at_least

    def write(self, iterator: Iterator[Any]) -> Written:
        """On an executor: the batches of one task."""
        first = next(iterator, None)
        if first is None:
            return Written(0)
        with Sender(self._options.topic or "", self._options.conf, at_least=self._at_least) as sender:
            _send(sender, first, iterator)
        return Written(sender.sent)


class StreamWriter(BatchWriter, DataSourceStreamWriter):
    """Writes micro-batches, each record by the modes in force when it is sent. At least once.

    It is an Arrow writer, too: what Spark looks at to hand batches over as they are, and not row by row.
    """

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803 # Spark's name
        """Nothing is left to do: tasks end when their records are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803 # Spark's name
        """What was written stays; the batch comes again."""


def batch_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    """For ``df.write``; on the driver.

    Raises:
        ConfigError: the mode ``overwrite``, a column that is missing or has a type that is not sent, no topic.
        ViewTimeout: the modes are not known; nothing is written.
    """
    return BatchWriter(options, _planned_by(options, schema, overwrite))


def stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    """For ``df.writeStream``; on the driver. Raises as :func:`batch_writer`."""
    return StreamWriter(options, _planned_by(options, schema, overwrite))


def _planned_by(options: SourceOptions, schema: StructType, overwrite: bool) -> Version | None:
    if overwrite:
        raise ConfigError('a topic cannot be overwritten: use mode("append"), or outputMode("append")')
    types = {field.name: field.dataType.simpleString() for field in schema}
    if "value" not in types:
        raise ConfigError(f"the frame needs a column 'value'; it has {', '.join(types)}")
    for name, allowed in _TYPES.items():
        if types.get(name, allowed[0]) not in allowed:
            raise ConfigError(f"the column {name} is {types[name]}: cast it to {allowed[0]}")
    if options.topic is None and "topic" not in types:
        raise ConfigError('format("modeaware"): the option topic is missing, and there is no column of that name')
    producer_conf(options.conf)
    return None if options.topic is None else topic_view(options.conf, options.topic).version


def _send(sender: Sender, first: Any, rest: Iterator[Any]) -> None:
    import pyarrow as pa

    from modeaware.spark.write.arrow import write_batch

    everything = chain([first], rest)
    if not isinstance(first, pa.RecordBatch):
        write_rows(sender, everything)
        return
    for batch in everything:
        write_batch(sender, batch)
