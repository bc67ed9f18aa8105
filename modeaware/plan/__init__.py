"""The effects of a change of a topic's partition count, before the change: ``modeaware plan``.

A sample of the real topic shows which hash placed its keys. From the sample, or from sums over every record
(:mod:`modeaware.plan.effects`), a plan computes for any target which keys and bytes would move, and the load of each
partition. A plan needs neither a controller nor a mode log, and commits nothing.
"""
