"""Partition modes for PySpark: what jobs write and read, and what a shrink has to know of them.

Needs ``modeaware[spark]`` (pyspark 4.0 or newer) and Spark's Kafka connector (:func:`packages`). Names are loaded when
first used: an executor that unpickles one of the writers loads no more than that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeaware.spark.connector import packages as packages
    from modeaware.spark.evacuation import EvacuationReport as EvacuationReport
    from modeaware.spark.evacuation import evacuate as evacuate
    from modeaware.spark.planning.job import plan as plan
    from modeaware.spark.read.batch import read_from_kafka as read_from_kafka
    from modeaware.spark.read.progress import ProgressListener as ProgressListener
    from modeaware.spark.read.stream import read_stream_from_kafka as read_stream_from_kafka
    from modeaware.spark.source import register as register
    from modeaware.spark.write.arrow import arrow_writer as arrow_writer
    from modeaware.spark.write.arrow import write_arrow as write_arrow
    from modeaware.spark.write.batches import foreach_batch_writer as foreach_batch_writer
    from modeaware.spark.write.rows import foreach_partition_writer as foreach_partition_writer
    from modeaware.spark.write.sink import write_to_kafka as write_to_kafka

_EXPORTS = {
    "EvacuationReport": "modeaware.spark.evacuation",
    "ProgressListener": "modeaware.spark.read.progress",
    "arrow_writer": "modeaware.spark.write.arrow",
    "evacuate": "modeaware.spark.evacuation",
    "foreach_batch_writer": "modeaware.spark.write.batches",
    "foreach_partition_writer": "modeaware.spark.write.rows",
    "packages": "modeaware.spark.connector",
    "plan": "modeaware.spark.planning.job",
    "read_from_kafka": "modeaware.spark.read.batch",
    "read_stream_from_kafka": "modeaware.spark.read.stream",
    "register": "modeaware.spark.source",
    "write_arrow": "modeaware.spark.write.arrow",
    "write_to_kafka": "modeaware.spark.write.sink",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
