"""Key hashing and the choice of a partition.

Knows neither Kafka clients nor their configuration nor partition modes: the caller says how many candidates there are,
a partitioner picks one of them by index. The names and rules are librdkafka's (``rdkafka_msg.c``); ``murmur2_random``
is also what Kafka's Java producer does.

    >>> from partitioners import named
    >>> named("murmur2_random").for_topic("orders").partition(b"N14228", 4)
    0
"""

from __future__ import annotations

from partitioners.hashes import PURE_HASHES, Hash, HashFunction, crc32, fnv1a, murmur2
from partitioners.rules import DEFAULT_NAME, RULES, Rule
from partitioners.seam import Partitioner, TopicPartitioner
from partitioners.sticky import StickyRandom
from partitioners.table import HashPartitioner, named

__all__ = [
    "DEFAULT_NAME",
    "PURE_HASHES",
    "RULES",
    "Hash",
    "HashFunction",
    "HashPartitioner",
    "Partitioner",
    "Rule",
    "StickyRandom",
    "TopicPartitioner",
    "crc32",
    "fnv1a",
    "murmur2",
    "named",
]
