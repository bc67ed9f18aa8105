"""The one place of this package that imports kafka-python; the rest of it takes its names from here.

``KafkaProducer`` and ``KafkaConsumer`` are whatever ``kafka`` exports when this module is first imported, so a tracer
or mock that replaced them there earlier stays in effect underneath ours.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.partitioner import Partitioner
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata

from modeaware.wire.capabilities import UNDERLYING_NAME

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerProtocolAssignment",
    "ConsumerRebalanceListener",
    "CooperativeStickyAssignor",
    "KafkaConsumer",
    "KafkaError",
    "KafkaNetClient",
    "KafkaProducer",
    "KafkaTimeoutError",
    "OffsetAndMetadata",
    "Partitioner",
    "RangePartitionAssignor",
    "RebalanceProtocol",
    "RoundRobinPartitionAssignor",
    "StickyPartitionAssignor",
    "TopicPartition",
    "named_client",
]


def named_client(configs: dict[str, Any]) -> dict[str, Any]:
    """Return ``configs`` with connections that bear the name (KIP-511) of clients that heed modes: an endpoint that
    rejects old clients accepts them. A ``kafka_client`` of the application's stays as it is."""
    return {"kafka_client": partial(KafkaNetClient, client_software_name=UNDERLYING_NAME), **configs}
