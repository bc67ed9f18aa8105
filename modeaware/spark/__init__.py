"""Partition modes for PySpark: jobs that write, read and evacuate.

Needs ``modeaware[spark]`` (PySpark 4.0 or newer) and Spark's Kafka connector (:func:`packages`). Names are loaded at
their first use, so an executor that unpickles a writer loads little else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware import lazy_exports

if TYPE_CHECKING:
    from modeaware.spark.connector import packages as packages
    from modeaware.spark.datasource import register as register
    from modeaware.spark.errors import EpochMoved as EpochMoved
    from modeaware.spark.errors import WriteFailed as WriteFailed
    from modeaware.spark.evacuation.job import EvacuationReport as EvacuationReport
    from modeaware.spark.evacuation.job import evacuate as evacuate
    from modeaware.spark.progress import ProgressListener as ProgressListener
    from modeaware.spark.progress import progress_group as progress_group
    from modeaware.spark.sink import foreach_batch_writer as foreach_batch_writer
    from modeaware.spark.sink import write_to_kafka as write_to_kafka
    from modeaware.spark.source import read_from_kafka as read_from_kafka
    from modeaware.spark.source import read_stream_from_kafka as read_stream_from_kafka
    from modeaware.spark.source import topics_of as topics_of
    from modeaware.spark.writer import ArrowWriter as ArrowWriter
    from modeaware.spark.writer import PartitionWriter as PartitionWriter
    from modeaware.spark.writer import arrow_writer as arrow_writer
    from modeaware.spark.writer import foreach_partition_writer as foreach_partition_writer
    from modeaware.spark.writer import write_arrow as write_arrow

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "connector": ("packages",),
        "datasource": ("register",),
        "errors": ("EpochMoved", "WriteFailed"),
        "evacuation.job": ("EvacuationReport", "evacuate"),
        "progress": ("ProgressListener", "progress_group"),
        "sink": ("foreach_batch_writer", "write_to_kafka"),
        "source": ("read_from_kafka", "read_stream_from_kafka", "topics_of"),
        "writer": ("ArrowWriter", "PartitionWriter", "arrow_writer", "foreach_partition_writer", "write_arrow"),
    },
)
