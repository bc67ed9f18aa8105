"""Decisions about topics and their partitions, without IO or clock, from commands and facts to records and effects.

*Facts* are what brokers returned (:mod:`modeaware.cluster.observer` collects them). A *record* is an entry of the mode
log; an *effect* is a request to brokers. Read ``state`` first (the theory and the tables), then ``replacement``.
``admission`` accepts or refuses a command. ``steps`` makes one pass over a topic, and calls a module for each phase:
``seal`` sets seals and detects broken ones, ``drain`` checks the required groups, ``growth`` revives, creates and opens
partitions. ``reasons`` has a text for each cause of waiting.
"""
