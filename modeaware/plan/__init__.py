"""What a change of a topic's partition count would do, before it is decided: ``modeaware plan``.

A sample of the real topic shows which hash placed its keys. From the sample, or from sums over every record
(:mod:`modeaware.plan.effects`), follow the keys and bytes that would move, and the load of each partition, for any
target. A plan needs neither a controller nor a mode log, and commits nothing.
"""
