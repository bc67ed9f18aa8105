"""The decisions about a topic's partitions, without IO or clock, from commands and facts to records and effects.

Read ``state`` first (the theory and the tables), then ``replacement``. :mod:`modeaware.cluster.observer` collects the
``facts``. ``admission`` accepts or refuses a command. ``steps`` makes one pass over a topic, and calls a module for
each phase: ``seal`` sets seals and detects broken ones, ``drain`` checks the required groups, ``growth`` revives,
creates and opens partitions. ``reasons`` has a text for each cause of waiting.
"""
