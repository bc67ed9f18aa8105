"""Evacuation of compacted topics that are replaced: :func:`modeaware.spark.evacuate`."""
