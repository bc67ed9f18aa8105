"""The one module of this package that imports kafka-python; the other modules take kafka-python's names from here.

``KafkaProducer`` and ``KafkaConsumer`` are the classes that ``kafka`` exports when this module is first imported. So a
tracer or mock that replaced these classes earlier stays in effect beneath ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kafka import ConsumerRebalanceListener as ConsumerRebalanceListener
from kafka import KafkaConsumer as KafkaConsumer
from kafka import KafkaProducer as KafkaProducer
from kafka import TopicPartition as TopicPartition
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener as AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.abstract import RebalanceProtocol as RebalanceProtocol
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor as CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor as RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as StickyPartitionAssignor
from kafka.errors import KafkaError as KafkaError
from kafka.errors import KafkaTimeoutError as KafkaTimeoutError
from kafka.errors import MessageSizeTooLargeError as MessageSizeTooLargeError
from kafka.errors import NoOffsetForPartitionError as NoOffsetForPartitionError
from kafka.net.compat import KafkaNetClient
from kafka.partitioner import Partitioner as Partitioner
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as ConsumerProtocolAssignment
from kafka.structs import ConsumerGroupMetadata as ConsumerGroupMetadata
from kafka.structs import OffsetAndMetadata as OffsetAndMetadata

from modeaware.chain import written_topic
from modeaware.views.source import Views
from modeaware.wire.capabilities import CLIENT_ID, UNDERLYING_NAME


def named_client(configs: dict[str, Any]) -> dict[str, Any]:
    """Return ``configs`` with the client id and the software name (KIP-511) of mode-aware clients. Brokers show the
    client id. An endpoint that rejects old clients accepts the client by its software name. A ``client_id`` or
    ``kafka_client`` of the application stays unchanged."""
    client = partial(KafkaNetClient, client_software_name=UNDERLYING_NAME)
    return {"kafka_client": client, "client_id": CLIENT_ID, **configs}


def add_listener(metadata: Any, listener: Callable[[Any], Any]) -> None:
    """Add a listener to kafka-python's ``ClusterMetadata``, in a new set. kafka-python's thread may be iterating over
    the old set. If the old set changed, the thread would never request metadata again (3.0.12)."""
    metadata._listeners = {*metadata._listeners, listener}


def deleted(topics: Iterable[str], views: Views) -> set[str]:
    """Return those of ``topics`` that were deleted after another topic had replaced them.

    If the caller did not drop them, kafka-python would continue to request their metadata: ten times a second, with an
    error in the log each time.
    """
    gone = {topic for topic in topics if views.view(topic).is_alias}
    return {topic for topic in gone if written_topic(topic, views.view).topic != topic}
