"""The effects of a change of a topic's partition count, before the change: ``modeaware plan``.

A sample of the topic's records shows which hash placed the keys. From the sample, a plan computes for any target (a
number of partitions) which keys and bytes would move, and the load of each partition (:mod:`modeaware.plan.effects`). A
plan needs neither a controller nor a mode log, and commits nothing.
"""
