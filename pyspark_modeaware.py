"""Spark imports modules named ``pyspark_<format>`` to find data sources: this makes ``format("modeaware")`` work."""

from __future__ import annotations

from modeaware.spark.datasource import ModeAwareDataSource as DefaultSource

__all__ = ["DefaultSource"]
