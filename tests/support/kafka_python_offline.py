"""kafka-python's clients, or ours, without a broker."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from kafka.producer.future import FutureProduceResult, FutureRecordMetadata
from kafka.structs import TopicPartition

OFFLINE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "api_version": (4, 0)}
TOPIC = "t"


class Made:
    """A producer whose cluster and queue are the test's."""

    def __init__(self, kind: Any, **settings: Any) -> None:
        self.producer = kind(**{**OFFLINE, "enable_idempotence": False, **settings})
        self.producer._sender.initiate_close()
        self.producer._sender.join(10)
        metadata = self.producer._metadata = MagicMock()
        metadata.topics.return_value = {TOPIC}
        metadata.partitions_for_topic.return_value = set(range(21))
        metadata.available_partitions_for_topic.return_value = set(range(21))
        self.stock_queue = self.producer._accumulator
        self.stock_queue._closed = False  # the sender has closed it
        self.queue = self.producer._accumulator = MagicMock()
        future = FutureRecordMetadata(FutureProduceResult(TopicPartition(TOPIC, 0)), 0, 0, 0, 0, 0, 0)
        self.queue.append.return_value = (future, False, False, False)

    def queued(self) -> list[int]:
        return [call.args[0].partition for call in self.queue.append.call_args_list]

    def out(self, partition: int) -> None:
        """What is in the stock queue for ``partition`` is delivered, or has failed."""
        for batch in self.stock_queue._incomplete.all():
            if batch.topic_partition.partition == partition:
                self.stock_queue._batches[batch.topic_partition].remove(batch)
                self.stock_queue.deallocate(batch)
