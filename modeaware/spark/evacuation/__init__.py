"""Evacuation of compacted topics that are shrunk: :func:`modeaware.spark.evacuate`."""
