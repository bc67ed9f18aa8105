"""The plan of a resize, computed by Spark over the whole topic.

The same report as ``modeaware plan``, which has it from a sample: see :mod:`modeaware.plan`. The package is not called
``plan``: a module of that name would hide the function ``modeaware.spark.plan``.
"""
