"""Producing, consuming and administrating with plain confluent_kafka clients: nothing of ours is involved."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.waiting import eventually

TIMEOUT_S = 30.0


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int,
    *,
    replication_factor: int = -1,
    configs: Mapping[str, str],
    **conf: object,
) -> None:
    """Create a topic (-1 = the broker's default, for either number) and wait until its partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **conf})
    new = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(configs))
    _create(admin, new)
    wait_until_led(admin, name, partitions)


def _create(admin: AdminClient, new: NewTopic) -> None:
    """Create a topic; repeat a request that was lost because librdkafka dropped a bootstrap server's connection."""
    is_unknown = False
    while True:
        future: Future[None] = admin.create_topics([new])[new.topic]
        try:
            return future.result(TIMEOUT_S)
        except KafkaException as error:
            code = error.args[0].code()
            if is_unknown and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return None
            if code != KafkaError._DESTROY_BROKER:
                raise
            is_unknown = True


def wait_until_led(admin: AdminClient, name: str, partitions: int) -> None:
    """Return once each partition is answered for by its leader.

    Before that a leader may refuse the first batch of a producer and take the next one. librdkafka then counts the
    first one as acknowledged (confluent-kafka-go#921), and it is lost.
    """
    eventually(lambda: _all_led(admin, name, partitions), TIMEOUT_S, interval_s=0.02)


def _all_led(admin: AdminClient, name: str, partitions: int) -> bool:
    # A named look-up of a missing topic would create it where the broker allows that; the whole listing never does.
    topic = admin.list_topics(timeout=TIMEOUT_S).topics.get(name)
    led = [] if topic is None else [number for number, each in topic.partitions.items() if each.leader >= 0]
    if not led or (partitions >= 0 and len(led) != partitions):
        return False
    asked = admin.list_offsets({TopicPartition(name, number): OffsetSpec.latest() for number in led})
    try:
        return all(future.result(TIMEOUT_S) for future in asked.values())
    except KafkaException:
        return False


def produce_keyed(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    partition: int | None = None,
    **conf: object,
) -> list[Message]:
    """Produce ``(key, value)`` pairs with acks=all; the acknowledged messages in the order of their acknowledgement.

    Raises:
        AssertionError: any was not acknowledged.
    """
    where = {} if partition is None else {"partition": partition}
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", **conf})
    return produce_all(producer, topic, ({"key": key, "value": value, **where} for key, value in records))


def produce_all(producer: Producer, topic: str, records: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Produce records given by the arguments of ``produce``; returns and raises as :func:`produce_keyed`."""
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failed.append(error)

    for record in records:
        while True:
            try:
                producer.produce(topic, **record, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(TIMEOUT_S)
    assert not failed, f"not delivered: {failed[:3]}"
    assert not left, f"{left} records neither delivered nor failed in {TIMEOUT_S} s"
    return delivered


def drain_topic(
    bootstrap_servers: str, topic: str, partitions: Iterable[int] | None = None, **conf: object
) -> list[Message]:
    """All records that lie in a topic now (read_committed, all partitions by default), by partition and offset."""
    starts = None if partitions is None else dict.fromkeys(partitions, 0)
    found = read_topic(bootstrap_servers, topic, starts, **conf)
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def read_topic(
    bootstrap_servers: str, topic: str, starts: Mapping[int, int] | None = None, **conf: object
) -> Iterator[Message]:
    """The records (read_committed) from offsets of partitions, by default from the beginning of each, to the ends as
    they are now.

    Uses no consumer group that would show up anywhere.

    Raises:
        KafkaException: the topic cannot be read.
        TimeoutError: the ends were not reached, and no record came for :data:`TIMEOUT_S` seconds.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"drain-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **conf,
        }
    )
    try:
        if starts is None:
            starts = dict.fromkeys(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions, 0)
        open_ends = set(starts)
        consumer.assign([TopicPartition(topic, partition, start) for partition, start in sorted(starts.items())])
        read_s = time.monotonic()
        while open_ends:
            for message in consumer.consume(5_000, timeout=0.2):
                error = message.error()
                if error is None:
                    read_s = time.monotonic()
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition() or 0)
                elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    raise KafkaException(error)
            if time.monotonic() > read_s + TIMEOUT_S:
                raise TimeoutError(f"the ends of {topic} {sorted(open_ends)} were not reached")
    finally:
        consumer.close()


def watermarks(bootstrap_servers: str, topic: str) -> dict[int, tuple[int, int]]:
    """Log start offset and high watermark of every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": f"marks-{uuid.uuid4()}"})
    try:
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
            for partition in sorted(partitions)
        }
    finally:
        consumer.close()


def ends(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """High watermark of every partition."""
    return {partition: end for partition, (_, end) in watermarks(bootstrap_servers, topic).items()}


def commit(bootstrap_servers: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets for a group without members."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    try:
        partitions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=partitions, asynchronous=False)
    finally:
        consumer.close()


def committed(bootstrap_servers: str, group: str, topic: str) -> dict[int, int]:
    """The offsets that a group has committed on a topic; -1001 for a partition without."""
    asked = [TopicPartition(topic, partition) for partition in ends(bootstrap_servers, topic)]
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})  # which joins nothing
    try:
        return {found.partition: found.offset for found in consumer.committed(asked, timeout=TIMEOUT_S)}
    finally:
        leave(consumer)


def leave(consumer: Any) -> None:
    """Close a consumer after it has left its group: within a rebalance librdkafka's ``close`` may hang for good
    (librdkafka#4884). Nothing is returned meanwhile that would be committed unread."""
    consumer.pause(consumer.assignment())
    consumer.unsubscribe()
    deadline_s = time.monotonic() + 10
    while consumer.assignment() and time.monotonic() < deadline_s:
        consumer.poll(0.05)
    consumer.close()
