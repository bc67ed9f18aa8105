"""The life of a topic's partitions, decided without IO or clock: facts and commands in, records and effects out.

Start with ``state`` (the theory and the tables). ``admission`` accepts or refuses a command. ``steps`` makes one pass
over a topic and calls a module for each phase: ``seal`` sets a seal and finds a broken one, ``drain`` checks the
required groups, ``growth`` revives, creates and opens partitions.
``facts`` is the input, collected by :mod:`modeaware.cluster.observer`. ``reasons`` has a text for each cause of
waiting.
"""
