"""Key hashing and the choice of a partition.

This package is independent of Kafka clients, of their configuration, and of partition modes. The *candidates* are the
partitions to which a record may go. The caller gives their number, and a partitioner returns the index of one.
librdkafka's partitioners have librdkafka's names and rules (``rdkafka_msg.c``). ``murmur2_random`` also places keys as
Kafka's Java producer does.

    >>> from partitioners import named
    >>> named("murmur2_random").for_topic("orders").partition(b"N14228", 4)
    0

To add a partitioner, write a module with classes like these, and add ``MyPartitioner`` to ``_OURS`` in ``table.py``.
All other code uses the interface in ``seam.py``::

    class Half(TopicHashPartitioner):
        def _spread(self, key: bytes | None, count: int) -> int:
            return positive(count) // 2  # the index of a record whose key is not hashed

    class MyPartitioner(HashPartitioner):
        RULE = Rule("my_partitioner", Hash.MURMUR2, null_hashed=False, empty_hashed=True)
        _TOPIC = Half

If the index is not ``hash % count``, set ``Rule.placer`` (as ``minimal_movement.py`` does).

This module does not import ``partitioners.call_forms``, which is for plain kafka-python.

PYTEST_DONT_REWRITE: see ``modeaware``.
"""

from __future__ import annotations

from partitioners.hashes import NUMBERS, PURE_HASHES, Hash, HashFunction, crc32, fnv1a, murmur2
from partitioners.librdkafka import DEFAULT_NAME, LIBRDKAFKA_NAMES, RULES, LibrdkafkaPartitioner, StickyRandom
from partitioners.minimal_movement import MinimalMovement, jump
from partitioners.seam import (
    BatchAware,
    HashPartitioner,
    LoadAware,
    Options,
    Partitioner,
    Placer,
    Rule,
    TopicPartitioner,
    checked_index,
    expected_share_moved,
    is_built_in,
    least_share_moved,
    share_moved,
    share_moved_of,
    wants_batches,
    wants_load,
)
from partitioners.spreading import Manual, ManualPartitionRequired, RoundRobin, Sticky, UniformSticky
from partitioners.table import NAMES, PLACERS, FunctionPartitioner, as_partitioner, is_plug_in, load, named, rule_named

__all__ = [
    "DEFAULT_NAME",
    "LIBRDKAFKA_NAMES",
    "NAMES",
    "NUMBERS",
    "PLACERS",
    "PURE_HASHES",
    "RULES",
    "BatchAware",
    "FunctionPartitioner",
    "Hash",
    "HashFunction",
    "HashPartitioner",
    "LibrdkafkaPartitioner",
    "LoadAware",
    "Manual",
    "ManualPartitionRequired",
    "MinimalMovement",
    "Options",
    "Partitioner",
    "Placer",
    "RoundRobin",
    "Rule",
    "Sticky",
    "StickyRandom",
    "TopicPartitioner",
    "UniformSticky",
    "as_partitioner",
    "checked_index",
    "crc32",
    "expected_share_moved",
    "fnv1a",
    "is_built_in",
    "is_plug_in",
    "jump",
    "least_share_moved",
    "load",
    "murmur2",
    "named",
    "rule_named",
    "share_moved",
    "share_moved_of",
    "wants_batches",
    "wants_load",
]
