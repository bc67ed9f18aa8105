"""The one place that imports confluent_kafka's admin client, apart from the clients so that they need not load it."""

from __future__ import annotations

from confluent_kafka import IsolationLevel as IsolationLevel
from confluent_kafka import TopicCollection as TopicCollection
from confluent_kafka.admin import AdminClient as AdminClient
from confluent_kafka.admin import ConfigResource as ConfigResource
from confluent_kafka.admin import NewPartitions as NewPartitions
from confluent_kafka.admin import NewTopic as NewTopic
from confluent_kafka.admin import OffsetSpec as OffsetSpec
from confluent_kafka.admin import ResourceType as ResourceType
