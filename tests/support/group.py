"""Consumer groups of ours on a real Kafka, in threads, and a producer that never stops."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from modeaware import Producer as OurProducer
from modeaware.confluent.consumer import Consumer
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from tests.support.background import Background
from tests.support.fake_views import FakeViews, modes_of
from tests.support.plain import produce_keyed
from tests.support.waiting import eventually

Record = tuple[str, int, int]
"""Topic, partition, offset."""

P = TypeVar("P", bound=Producer)

FAST: dict[str, Any] = {"heartbeat.interval.ms": 300, "session.timeout.ms": 30_000, "log_level": 2}


def settings_of(strategy: str | None) -> dict[str, Any]:
    """A consumer's settings for a strategy; ``consumer`` stands for ``group.protocol=consumer``, None for the
    default."""
    if strategy == "consumer":
        return {"group.protocol": "consumer", "log_level": 2}
    return FAST if strategy is None else {**FAST, "partition.assignment.strategy": strategy}


class Member(Background):
    """A consumer polling in a thread of its own.

    Attributes:
        records: what it was given, in order.
        assigned: what it held when it last looked, by topic.
        calls: the callbacks it saw: ``("assign" | "revoke" | "lost", partitions)``.
    """

    def __init__(self, topics: Sequence[str], conf: Mapping[str, Any], *, batch: int = 0) -> None:
        super().__init__()
        self.consumer = Consumer(dict(conf))
        self._topics = list(topics)
        self._batch = batch
        self.records: list[Record] = []
        self.assigned: dict[str, list[int]] = {}
        self.calls: list[tuple[str, list[tuple[str, int]]]] = []

    def work(self) -> None:
        callbacks = {f"on_{name}": self._on(name) for name in ("assign", "revoke", "lost")}
        self.consumer.subscribe(self._topics, **callbacks)
        while not self.done.is_set():
            self._poll()
        self.consumer.close()

    def _on(self, name: str) -> Callable[[Any, list[TopicPartition]], None]:
        return lambda _, partitions: self.calls.append((name, [(p.topic, p.partition) for p in partitions]))

    def _poll(self) -> None:
        if self._batch:
            messages = self.consumer.consume(self._batch, 0.1)
        else:
            message = self.consumer.poll(0.1)
            messages = [] if message is None else [message]
        for message in messages:
            assert message.error() is None, message.error()
            self.records.append(place_of(message))
        held: dict[str, list[int]] = {topic: [] for topic in self._topics}
        for partition in self.consumer.assignment():
            held.setdefault(partition.topic, []).append(partition.partition)
        self.assigned = {topic: sorted(partitions) for topic, partitions in held.items()}


class Group:
    """Members of one group. A context manager that stops them."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = list(members)

    def __enter__(self) -> Self:
        for member in self.members:
            member.start()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.stop()

    def loads(self, topic: str) -> list[int]:
        """How many partitions each member holds, ascending."""
        return sorted(len(member.assigned.get(topic, ())) for member in self.members)

    def held(self, topic: str) -> list[int]:
        """The partitions held, one entry a holder."""
        return sorted(partition for member in self.members for partition in member.assigned.get(topic, ()))

    def await_held(self, topic: str, partitions: Iterable[int], loads: Sequence[int] | None = None) -> None:
        """Wait until every one of ``partitions`` has one holder, no other has any, and the loads are as given."""
        want = sorted(partitions)
        eventually(
            lambda: self._fine() and self.held(topic) == want and (loads is None or self.loads(topic) == sorted(loads)),
            90,
            message=f"{want} of {topic} held as {loads}",
        )

    def _fine(self) -> bool:
        return all(member.fine() for member in self.members)

    def delivered(self) -> Counter[Record]:
        return Counter(record for member in self.members for record in list(member.records))

    def await_delivered(self, sent: set[Record]) -> None:
        def delivered() -> bool:
            missing = sent - set(self.delivered())
            assert not missing, f"{len(missing)} records, the first ones {sorted(missing)[:5]}"
            return self._fine()

        eventually(delivered, 60, message="all records delivered")

    def check(self, sent: set[Record]) -> None:
        """Every record of ``sent`` once and no other; waits for the last ones."""
        self.await_delivered(sent)
        twice = {record: count for record, count in self.delivered().items() if count > 1}
        assert twice == {}
        assert set(self.delivered()) <= sent


class Unending(Background, Generic[P]):
    """A producer that never stops: it writes again and again, in a thread of its own, until its context ends."""

    def __init__(self, producer: P) -> None:
        super().__init__()
        self.producer = producer
        self._failed: list[KafkaError] = []

    @abstractmethod
    def write(self) -> None:
        """Write some."""

    def to(self, acknowledged: Callable[[Message], object]) -> Callable[[KafkaError | None, Message], None]:
        """An ``on_delivery`` that hands on what was acknowledged, and keeps what failed for :meth:`stop`."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failed.append(error)
            else:
                acknowledged(message)

        return on_delivery

    def work(self) -> None:
        while not self.done.wait(0.02):
            self.write()
        self.producer.flush(30)

    def stop(self) -> None:
        """Returns when it has ended; every record was acknowledged."""
        super().stop()
        assert not self._failed, self._failed[:3]


class Traffic(Unending[Producer]):
    """One record to each open partition, again and again.

    Attributes:
        open: topic -> the partitions it writes to; change it by :meth:`write_to`.
        sent: the records that were acknowledged.
    """

    def __init__(self, bootstrap_servers: str, partitions: Mapping[str, Iterable[int]]) -> None:
        super().__init__(Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5}))
        self._turn = threading.Lock()
        self.open = {topic: list(numbers) for topic, numbers in partitions.items()}
        self.sent: set[Record] = set()

    def write(self) -> None:
        on_delivery = self.to(lambda message: self.sent.add(place_of(message)))
        with self._turn:
            for topic, partitions in self.open.items():
                for partition in partitions:
                    self.producer.produce(topic, b"x", partition=partition, on_delivery=on_delivery)
            self.producer.poll(0)

    def finish(self) -> set[Record]:
        """Stop, and return what was acknowledged."""
        self.stop()
        return self.sent

    def write_to(self, topic: str, partitions: Iterable[int]) -> set[Record]:
        """Write to ``partitions`` from now on; what went anywhere before is acknowledged, and returned."""
        with self._turn:
            assert self.producer.flush(30) == 0
            self.open[topic] = list(partitions)
            return set(self.sent)


class Keyed(Unending[OurProducer]):
    """A producer of ours with keyed and numbered records; ``values`` were acknowledged."""

    def __init__(self, conf: Mapping[str, str], topic: str) -> None:
        super().__init__(OurProducer({**conf, "linger.ms": 5, "topic.metadata.refresh.interval.ms": 1_000}))
        self._topic = topic
        self._next = 0
        self.values: set[bytes] = set()

    def write(self) -> None:
        on_delivery = self.to(lambda message: self.values.add(message.value()))
        with suppress(BufferError):  # no view of the modes yet
            for _ in range(10):
                key, value = b"key-%d" % (self._next % 97), b"load-%d" % self._next
                self.producer.produce(self._topic, value, key, on_delivery=on_delivery)
                self._next += 1
        self.producer.poll(0)

    def stop(self) -> None:
        super().stop()
        self.producer.close()


class Reading:
    """Consumers of one group, which see ``views``, and topics and records for them on the shared Kafka."""

    def __init__(self, kafka: Kafka, views: FakeViews, topic: Callable[[int], str], group: str) -> None:
        self.views, self.topic = views, topic
        self._servers, self._group = kafka.bootstrap_servers, group
        self._made: list[Consumer] = []

    def consumer(self, conf: Mapping[str, Any] | None = None, **settings: Any) -> Consumer:
        """``conf`` as it is; settings with ``_`` for ``.``."""
        named = {**(conf or {}), **{name.replace("_", "."): value for name, value in settings.items()}}
        conf = {"bootstrap.servers": self._servers, "group.id": self._group, "auto.offset.reset": "earliest", **FAST}
        self._made.append(Consumer({**conf, **named}))
        return self._made[-1]

    def send(self, topic: str, partition: int, count: int = 1) -> None:
        produce_keyed(self._servers, topic, [(None, b"x")] * count, partition=partition)

    def close(self) -> None:
        for consumer in self._made:
            consumer.close()


def shrink(views: FakeViews, traffic: Traffic, group: Group, topic: str, count: int, kept: int) -> None:
    """As the controller does: ReadOnly, and None when what lies in the retired partitions has been delivered."""
    views.set(topic, modes_of(count, kept))
    before = traffic.write_to(topic, [p for p in traffic.open[topic] if p < kept])
    group.await_delivered({record for record in before if record[0] == topic and record[1] >= kept})
    views.set(topic, modes_of(count, kept, PartitionMode.NONE))


def place_of(message: Message) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


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
