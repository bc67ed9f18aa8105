"""The DataSource itself: what Spark asks for by ``format("modeaware")``."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from modeaware.errors import ConfigError
from modeaware.spark.source.options import SourceOptions, parse_options
from modeaware.spark.source.reader import BatchReader, StreamReader
from modeaware.spark.source.writer import BatchWriter, StreamWriter, batch_writer, stream_writer

SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
    ]
)
"""As Spark's Kafka source has it with ``includeHeaders``."""


class ModeAwareDataSource(DataSource):
    """``spark.read``, ``readStream``, ``write`` and ``writeStream`` with ``.format("modeaware")``.

    Options: ``topic``; for reading ``startingOffsets``, ``endingOffsets`` (batch) and ``failOnDataLoss``, which mean
    what they mean to Spark's Kafka source; every other option is a setting of :class:`modeaware.Producer` or
    :class:`modeaware.Consumer`, under its own name: ``bootstrap.servers``, ``modeaware.mode.log.topic``.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "modeaware"

    def schema(self) -> StructType:
        """The columns of what is read."""
        return SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """For ``spark.read``."""
        return BatchReader(self._read_options(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 # Spark's name
        """For ``spark.readStream``."""
        options = self._read_options(schema)
        if options.ending is not None:
            raise ConfigError("endingOffsets: a stream has no end")
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """For ``df.write``."""
        return batch_writer(parse_options(dict(self.options)), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 # Spark's name
        """For ``df.writeStream``."""
        return stream_writer(parse_options(dict(self.options)), schema, overwrite)

    def _read_options(self, schema: StructType) -> SourceOptions:
        if schema.simpleString() != SCHEMA.simpleString():
            raise ConfigError(f"the schema of what is read is fixed: {SCHEMA.simpleString()}")
        options = parse_options(dict(self.options))
        options.one_topic  # noqa: B018 # the option is missed here, on the driver
        return options
