"""What a change of a topic's partition count would do, before it is decided: ``modeaware plan``.

A sample of the real topic says which hash placed its keys; from that, or from every record where something counts them
(:mod:`modeaware.plan.effects`), follow the keys and bytes that would move, and the load of each partition, for any
target. Needs neither a controller nor a mode log; nothing is committed.
"""
