"""The one place that imports confluent_kafka's clients; the rest of the package takes them from here.

``Producer``, ``Consumer``, ``SerializingProducer`` and ``DeserializingConsumer`` are whatever ``confluent_kafka``
exports when this module is first imported, so a tracer or mock that replaced them there earlier stays in effect
underneath ours. ``confluent_kafka`` is the module itself, which shows what it exports now.
"""

from __future__ import annotations

from collections.abc import Mapping

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    SerializingProducer,
    TopicPartition,
    consistent,
    fnv1a,
    murmur2,
)

from partitioners import Hash, HashFunction

C_HASHES: Mapping[Hash, HashFunction] = {Hash.CRC32: consistent, Hash.MURMUR2: murmur2, Hash.FNV1A: fnv1a}
"""librdkafka's own functions for the hashes of :mod:`partitioners`, which are faster than the same in Python."""

__all__ = [
    "C_HASHES",
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "Consumer",
    "DeserializingConsumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "SerializingProducer",
    "TopicPartition",
    "confluent_kafka",
    "consistent",
    "fnv1a",
    "murmur2",
]
