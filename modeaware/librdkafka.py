"""The one place that imports confluent_kafka's clients and admin client; the rest of the package takes them from here.

``Producer``, ``Consumer``, ``SerializingProducer`` and ``DeserializingConsumer`` are whatever ``confluent_kafka``
exports when this module is first imported, so a tracer or mock that replaced them there earlier stays in effect
underneath ours. ``confluent_kafka`` is the module itself, which shows what it exports now.
"""

from __future__ import annotations

from collections.abc import Mapping

import confluent_kafka as confluent_kafka
from confluent_kafka import OFFSET_BEGINNING as OFFSET_BEGINNING
from confluent_kafka import OFFSET_END as OFFSET_END
from confluent_kafka import OFFSET_INVALID as OFFSET_INVALID
from confluent_kafka import OFFSET_STORED as OFFSET_STORED
from confluent_kafka import Consumer as Consumer
from confluent_kafka import DeserializingConsumer as DeserializingConsumer
from confluent_kafka import IsolationLevel as IsolationLevel
from confluent_kafka import KafkaError as KafkaError
from confluent_kafka import KafkaException as KafkaException
from confluent_kafka import Message as Message
from confluent_kafka import Producer as Producer
from confluent_kafka import SerializingProducer as SerializingProducer
from confluent_kafka import TopicCollection as TopicCollection
from confluent_kafka import TopicPartition as TopicPartition
from confluent_kafka import consistent as consistent
from confluent_kafka import fnv1a as fnv1a
from confluent_kafka import murmur2 as murmur2
from confluent_kafka.admin import AdminClient as AdminClient
from confluent_kafka.admin import ConfigResource as ConfigResource
from confluent_kafka.admin import NewPartitions as NewPartitions
from confluent_kafka.admin import NewTopic as NewTopic
from confluent_kafka.admin import OffsetSpec as OffsetSpec
from confluent_kafka.admin import ResourceType as ResourceType

from partitioners import Hash, HashFunction

NO_ANSWER = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._ALL_BROKERS_DOWN,
    }
)
"""librdkafka's own codes of a request that no broker answered. A bootstrap server whose connection ends in mid-request
gives _DESTROY_BROKER."""
C_HASHES: Mapping[Hash, HashFunction] = {Hash.CRC32: consistent, Hash.MURMUR2: murmur2, Hash.FNV1A: fnv1a}
"""librdkafka's own functions for the hashes of :mod:`partitioners`, which are faster than the same in Python."""
