"""The one place of this package that imports kafka-python; the rest of it takes its names from here.

``KafkaProducer`` and ``KafkaConsumer`` are whatever ``kafka`` exports when this module is first imported, so a tracer
or mock that replaced them there earlier stays in effect underneath ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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
from kafka.net.compat import KafkaNetClient
from kafka.partitioner import Partitioner as Partitioner
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata as OffsetAndMetadata

from modeaware.clients.gate import written_topic
from modeaware.views.source import Views
from modeaware.wire.capabilities import UNDERLYING_NAME


def named_client(configs: dict[str, Any]) -> dict[str, Any]:
    """Return ``configs`` with connections that bear the name (KIP-511) of clients that heed modes: an endpoint that
    rejects old clients accepts them. A ``kafka_client`` of the application's stays as it is."""
    return {"kafka_client": partial(KafkaNetClient, client_software_name=UNDERLYING_NAME), **configs}


def metadata_changed(views: Views, wanted: Callable[[], Collection[str] | None], cluster: Any) -> None:
    """Listen to ``cluster``, kafka-python's metadata of brokers and topics, in kafka-python's thread.

    kafka-python requests a missing topic ten times a second, and logs an error each time. One that was deleted because
    another topic has replaced it is not requested any more.

    Args:
        wanted: returns topics that are requested all the same.
    """
    views.refresh_soon()
    for topic in set(cluster._topics).difference(wanted() or ()):
        successor = views.view(topic).successor
        if successor is not None and successor.gone and written_topic(topic, views.view).topic != topic:
            cluster._topics.discard(topic)
