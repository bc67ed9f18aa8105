"""Topics on three brokers, and reassignments of them that stay in progress for as long as a test needs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient as StockAdmin
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from modeaware.admin.reassignments import PartitionKey, Replicas, assigned_replicas, list_reassignments
from modeaware.cluster.metadata import metadata_request
from modeaware.errors import ClusterError
from modeaware.local import LocalKafka
from modeaware.wire.brokers import Ask, Brokers
from tests.support.plain import produce_keyed
from tests.support.waiting import eventually

_TIMEOUT_S = 30.0
_RECORD_BYTES, _RECORDS = 900_000, 24
"""More than the first few fetches take, which a throttle lets through."""


def on_every_broker(brokers: Brokers, topic: str) -> list[dict[int, Replicas]]:
    """The replicas of each partition, by the metadata of each live broker; empty if it does not answer."""
    answers = brokers.ask_each(Ask(node, metadata_request([topic], min_version=4)) for node in brokers.node_ids())
    return [
        {}
        if isinstance(answer, ClusterError)
        else {p.partition_index: tuple(p.replica_nodes) for found in answer.topics for p in found.partitions}
        for answer in answers
    ]


class Moving:
    """What a test of reassignments asks of a cluster, other than by what it tests."""

    def __init__(self, kafka: LocalKafka) -> None:
        self.servers = kafka.bootstrap_servers
        self.nodes = tuple(broker.node_id for broker in kafka.brokers)
        self.brokers = Brokers({"bootstrap.servers": self.servers}, timeout_s=10.0)
        self._stock = StockAdmin({"bootstrap.servers": self.servers})

    def topic(self, *assignments: Sequence[int], name: str | None = None) -> str:
        """A topic with these replicas, known to every broker."""
        topic = name or f"moving-{uuid.uuid4().hex[:12]}"
        new = NewTopic(topic, len(assignments), replica_assignment=[list(ids) for ids in assignments])
        self._stock.create_topics([new])[topic].result(_TIMEOUT_S)
        wanted = [tuple(ids) for ids in assignments]
        eventually(lambda: self.on_every_broker(topic) == [dict(enumerate(wanted))] * len(self.nodes))
        return topic

    def on_every_broker(self, topic: str) -> list[dict[int, Replicas]]:
        """The replicas of each partition, by each broker's own metadata."""
        found = on_every_broker(self.brokers, topic)
        assert len(found) == len(self.nodes)
        return found

    def replicas(self, topic: str) -> dict[PartitionKey, Replicas]:
        return assigned_replicas(self.brokers, [topic])

    def in_progress(self, topic: str) -> set[int]:
        return {p for name, p in list_reassignments(self.brokers) if name == topic}

    def wait_until(self, topic: str, wanted: Mapping[int, Replicas]) -> None:
        """Nothing of it is in progress, and every broker has heard where it is."""
        eventually(lambda: not self.in_progress(topic), 60.0)

        def arrived() -> bool:
            seen = self.on_every_broker(topic)
            assert seen == [dict(wanted)] * len(self.nodes), seen
            return True

        eventually(arrived, 60.0)

    def fill(self, topic: str, partition: int) -> None:
        """So many bytes that a throttled replica of it does not catch up."""
        records = [(None, bytes(_RECORD_BYTES))] * _RECORDS
        produce_keyed(self.servers, topic, records, partition=partition, **{"queue.buffering.max.kbytes": 65536})

    @contextmanager
    def throttled(self, topic: str) -> Iterator[None]:
        """Within it, moves of the topic's partitions do not come to an end."""
        self._throttle(topic, AlterConfigOpType.SET)
        try:
            yield
        finally:
            self._throttle(topic, AlterConfigOpType.DELETE)

    def _throttle(self, topic: str, operation: AlterConfigOpType) -> None:
        def resource(kind: ResourceType, name: str, suffix: str, value: str) -> ConfigResource:
            names = (f"{side}.replication.throttled.{suffix}" for side in ("leader", "follower"))
            entries = [ConfigEntry(each, value, incremental_operation=operation) for each in names]
            return ConfigResource(kind, name, incremental_configs=entries)

        resources = [resource(ResourceType.BROKER, str(node), "rate", "1") for node in self.nodes]
        resources.append(resource(ResourceType.TOPIC, topic, "replicas", "*"))
        for each in resources:  # librdkafka takes one broker a call
            self._stock.incremental_alter_configs([each])[each].result(_TIMEOUT_S)

    def close(self) -> None:
        self.brokers.close()
