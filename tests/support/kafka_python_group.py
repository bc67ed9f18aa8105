"""Members of consumer groups that use kafka-python, ours and plain ones, in threads."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer

from tests.support.background import Background
from tests.support.group import Record

FAST: dict[str, Any] = {
    "heartbeat_interval_ms": 300,
    "auto_offset_reset": "earliest",
    "retry_backoff_ms": 50,
    "auto_commit_interval_ms": 200,
}


class Member(Background):
    """A consumer polling in a thread of its own; has what :class:`tests.support.group.Group` asks of its members."""

    def __init__(self, consumer: KafkaConsumer, *topics: str) -> None:
        super().__init__()
        self.consumer = consumer
        self._topics = topics
        self.records: list[Record] = []
        self.assigned: dict[str, list[int]] = {}

    def work(self) -> None:
        self.consumer.subscribe(list(self._topics))
        # Brings the topics' metadata. A plain consumer that joins without it has to join again, and may then forget
        # to take its assignment (see _poll_once of ours).
        self.consumer.topics()
        while not self.done.is_set():
            for records in self.consumer.poll(100).values():
                self.records.extend((record.topic, record.partition, record.offset) for record in records)
            held: dict[str, list[int]] = {topic: [] for topic in self._topics}
            for partition in self.consumer.assignment():
                held[partition.topic].append(partition.partition)
            self.assigned = {topic: sorted(partitions) for topic, partitions in held.items()}
        self.consumer.close()
