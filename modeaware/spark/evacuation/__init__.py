"""Evacuation of compacted topics that are shrunk: :func:`evacuate`, or ``python -m modeaware.spark.evacuate``."""

from __future__ import annotations

from modeaware.spark.evacuation.errors import EvacuationFailed, NothingToEvacuate, NotSealed, OtherPartitioner
from modeaware.spark.evacuation.job import evacuate
from modeaware.spark.evacuation.report import EvacuationReport

__all__ = ["EvacuationFailed", "EvacuationReport", "NotSealed", "NothingToEvacuate", "OtherPartitioner", "evacuate"]
