"""The one place that imports confluent_kafka's admin client, apart from the clients so that they need not load it."""

from __future__ import annotations

from confluent_kafka import (
    ConsumerGroupState,
    IsolationLevel,
    TopicCollection,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

__all__ = [
    "AclOperation",
    "AdminClient",
    "ConfigEntry",
    "ConfigResource",
    "ConsumerGroupState",
    "IsolationLevel",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "ResourceType",
    "TopicCollection",
]
