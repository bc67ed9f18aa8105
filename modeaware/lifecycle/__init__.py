"""The life of a topic's partitions, decided without IO or clock: facts and commands in, records and effects out.

Start with ``state`` (the theory and the tables). ``admission`` accepts or refuses a command. ``steps`` makes one pass
over a topic and calls a module for each phase: ``seal`` (when a partition is sealed, and when a seal is broken),
``drain`` (which groups it waits for) and ``growth`` (revive, create, open).
``facts`` is the input, collected by :mod:`modeaware.cluster.observer`. ``reasons`` has the texts of what a partition
waits for.
"""
