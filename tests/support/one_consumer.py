"""Looking at one consumer until it is as it should be."""

from __future__ import annotations

from confluent_kafka import Message, TopicPartition

from modeaware.confluent.consumer import Consumer
from tests.support.group import place_of
from tests.support.waiting import eventually


def held(consumer: Consumer) -> list[int]:
    return sorted(p.partition for p in consumer.assignment())


def await_held(consumer: Consumer, partitions: range | list[int]) -> None:
    def right() -> bool:
        assert consumer.poll(0.1) is None
        return held(consumer) == list(partitions)

    eventually(right, 60)


def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """The next ``count`` records as partition and offset, sorted; and no more than these."""
    found: list[Message] = []

    def more() -> bool:
        found.extend(consumer.consume(100, 0.1))
        return len(found) >= count

    eventually(more, 60)
    found.extend(consumer.consume(100, 0.3))
    assert all(message.error() is None for message in found)
    return sorted(place_of(message)[1:] for message in found)


def committed(consumer: Consumer, topic: str, partitions: int) -> dict[int, int]:
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    return {p.partition: p.offset for p in consumer.committed(asked, timeout=30) if p.offset >= 0}
