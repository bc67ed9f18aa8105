"""Applications that wait for the end of each partition (``enable.partition.eof``), on librdkafka's mock broker: what
they get of partitions in mode None."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, Message, TopicPartition

import modeaware
from modeaware import aio, librdkafka
from modeaware.modes import PartitionMode
from modeaware.testing import MockKafka
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import Acquired
from tests.support.waiting import eventually

NONE = PartitionMode.NONE
TOPIC, COUNT = "orders", MockKafka.PARTITIONS
ENDS = [3, 1, 5, 2]
"""How many records each partition has."""
RECLAIMED: dict[str, Any] = {"resume_offsets": {2: 5, 3: 2}, "reclaimed": {2, 3}}
SEALED: dict[str, Any] = {"resume_offsets": RECLAIMED["resume_offsets"]}
CONSUMER: dict[str, Any] = {
    "partition.assignment.strategy": "roundrobin",
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 20,
}


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    with MockKafka() as mock:
        mock.make_topic(TOPIC)
        send(mock, ENDS)
        yield mock


def send(mock: MockKafka, counts: list[int]) -> None:
    with closing(librdkafka.Producer({"bootstrap.servers": mock.bootstrap_servers})) as producer:
        for partition, count in enumerate(counts):
            for _ in range(count):
                producer.produce(TOPIC, b"v", partition=partition)


class Read:
    """What a consumer was given: partition -> offsets of its records, and of its reported ends."""

    def __init__(self, consumer: modeaware.Consumer, poll: Callable[[Any], list[Message]]) -> None:
        self.consumer = consumer
        self._poll = poll
        self.records: dict[int, list[int | None]] = {}
        self.ends: dict[int, list[int | None]] = {}

    def poll(self) -> None:
        for message in self._poll(self.consumer):
            error, partition = message.error(), message.partition()
            assert partition is not None
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            (self.records if error is None else self.ends).setdefault(partition, []).append(message.offset())

    def until(self, ended: set[int]) -> dict[int, list[int | None]]:
        """Poll until these partitions have reported their ends, and some more; return all ends, and forget them."""

        def done() -> bool:
            self.poll()
            return ended <= self.ends.keys()

        eventually(done)
        for _ in range(10):  # nothing is reported twice
            self.poll()
        found, self.ends = self.ends, {}
        return found


def one(consumer: modeaware.Consumer) -> list[Message]:
    message = consumer.poll(0.02)
    return [] if message is None else [message]


def many(consumer: modeaware.Consumer) -> list[Message]:
    return consumer.consume(100, 0.02)


@pytest.fixture
def make(request: pytest.FixtureRequest, mock: MockKafka, views: FakeViews) -> Iterator[Callable[..., Read]]:
    made: list[modeaware.Consumer] = []

    def make(**settings: Any) -> Read:
        conf = {**CONSUMER, **{name.replace("_", "."): value for name, value in settings.items()}}
        made.append(modeaware.Consumer({"bootstrap.servers": mock.bootstrap_servers, "group.id": "eof", **conf}))
        return Read(made[-1], many if getattr(request, "param", "poll") == "consume" else one)

    yield make
    for consumer in made:
        consumer.close()


def assign(consumer: modeaware.Consumer) -> None:
    consumer.assign([TopicPartition(TOPIC, partition) for partition in range(COUNT)])


def subscribe(consumer: modeaware.Consumer) -> None:
    consumer.subscribe([TOPIC])


ways = pytest.mark.parametrize("begin", [assign, subscribe])


@pytest.mark.parametrize("make", ["poll", "consume"], indirect=True)
@pytest.mark.parametrize(
    ("begin", "strategy", "reset"),
    [
        (assign, "roundrobin", "earliest"),
        (assign, "cooperative-sticky", "error"),
        (subscribe, "roundrobin", "latest"),
        (subscribe, "cooperative-sticky", "error"),
    ],
)
def test_every_partition_reports_its_end_once_after_a_shrink(
    make: Callable[..., Read], views: FakeViews, begin: Callable[[Any], None], strategy: str, reset: str
) -> None:
    """Those in mode None at the offset where they were sealed; what lay before that was deleted, and is not read."""
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    read = make(partition_assignment_strategy=strategy, auto_offset_reset=reset)
    read.consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0), TopicPartition(TOPIC, 1, 0)], asynchronous=False)
    begin(read.consumer)
    assert read.until(set(range(COUNT))) == {0: [3], 1: [1], 2: [5], 3: [2]}
    assert read.records == {0: [0, 1, 2], 1: [0]}
    assert {p.partition for p in read.consumer.assignment()} == {0, 1}


@pytest.mark.parametrize("offset", [0, OFFSET_BEGINNING, OFFSET_END])
def test_end_is_where_the_partition_was_sealed_wherever_the_application_starts(
    make: Callable[..., Read], views: FakeViews, offset: int
) -> None:
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    read = make()
    read.consumer.assign([TopicPartition(TOPIC, partition, offset) for partition in (2, 3)])
    assert read.until({2, 3}) == {2: [5], 3: [2]}
    assert read.records == {}


@ways
def test_end_is_reported_when_the_records_are_deleted_and_the_partition_is_read_on_when_it_returns(
    make: Callable[..., Read], views: FakeViews, mock: MockKafka, begin: Callable[[Any], None]
) -> None:
    """Until then it may return with records that this consumer has not read."""
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **SEALED)
    read = make(group_id="late", partition_assignment_strategy="roundrobin")
    begin(read.consumer)
    assert read.until({0, 1}) == {0: [3], 1: [1]}, read.records
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **SEALED, reclaimed={2})
    assert read.until({2}) == {2: [5]}
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    assert read.until({3}) == {3: [2]}
    assert read.records == {0: [0, 1, 2], 1: [0]}
    send(mock, [0, 0, 2, 0])
    for _ in range(10):
        read.poll()
    assert read.records == {0: [0, 1, 2], 1: [0]}, "a hidden partition is not read"
    views.set(TOPIC, modes_of(COUNT, 2), **RECLAIMED)
    assert read.until({2, 3})[2] == [7]
    assert read.records == {0: [0, 1, 2], 1: [0], 2: [5, 6]}


@ways
def test_partition_that_has_reported_its_end_reports_it_once_though_it_is_hidden(
    make: Callable[..., Read], views: FakeViews, begin: Callable[[Any], None]
) -> None:
    views.set(TOPIC, modes_of(COUNT, 2))
    read = make(partition_assignment_strategy="cooperative-sticky")
    begin(read.consumer)
    assert read.until(set(range(COUNT))) == {0: [3], 1: [1], 2: [5], 3: [2]}
    for state in (SEALED, RECLAIMED):
        views.set(TOPIC, modes_of(COUNT, 2, NONE), **state)
        for _ in range(20):
            read.poll()
    assert read.ends == {}
    assert {p.partition for p in read.consumer.assignment()} == {0, 1}


class BehindAMarker:
    """librdkafka's methods on partitions that end with a transaction's marker: the position is that of the records."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        found: list[TopicPartition] = self._stock.position(partitions)
        for each in found:
            each.offset -= 1
        return found


@ways
def test_end_behind_a_marker_that_was_reported_while_the_partition_took_no_writes_is_not_reported_again(
    make: Callable[..., Read], views: FakeViews, begin: Callable[[Any], None]
) -> None:
    views.set(TOPIC, modes_of(COUNT, 2, PartitionMode.READ_ONLY))
    read = make()
    begin(read.consumer)
    assert read.until(set(range(COUNT))) == {0: [3], 1: [1], 2: [5], 3: [2]}
    ends = read.consumer._membership.ends  # private: the mock broker writes no markers
    ends._stock = BehindAMarker(ends._stock)
    for state in (SEALED, RECLAIMED):
        views.set(TOPIC, modes_of(COUNT, 2, NONE), **state)
        for _ in range(20):
            read.poll()
    assert read.ends == {}


def test_end_is_reported_again_to_an_application_that_has_gone_back(
    make: Callable[..., Read], views: FakeViews
) -> None:
    views.set(TOPIC, modes_of(COUNT, 2, PartitionMode.READ_ONLY))
    read = make()
    assign(read.consumer)
    read.until(set(range(COUNT)))
    read.consumer.pause([TopicPartition(TOPIC, 2)])
    read.consumer.seek(TopicPartition(TOPIC, 2, 1))
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    read.poll()
    read.consumer.resume([TopicPartition(TOPIC, 2)])
    assert read.until({2})[2] == [5]


def test_partition_that_is_hidden_in_the_midst_of_its_records_reports_its_end(
    make: Callable[..., Read], views: FakeViews
) -> None:
    """A consumer that assigns by itself: no drain waits for it."""
    views.set(TOPIC, modes_of(COUNT, 2))
    read = make()
    assign(read.consumer)
    read.consumer.pause([TopicPartition(TOPIC, 2)])
    assert read.until({0, 1, 3}) == {0: [3], 1: [1], 3: [2]}
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **SEALED)
    read.poll()
    read.consumer.resume([TopicPartition(TOPIC, 2)])
    for _ in range(20):
        read.poll()
    assert read.ends == {}
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    assert read.until({2}) == {2: [5]}
    assert 2 not in read.records


def test_partition_that_the_application_has_paused_reports_no_end_until_it_resumes_it(
    make: Callable[..., Read], views: FakeViews
) -> None:
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    read = make()
    assign(read.consumer)
    read.consumer.pause([TopicPartition(TOPIC, 2)])
    assert read.until({0, 1, 3}) == {0: [3], 1: [1], 3: [2]}
    read.consumer.resume([TopicPartition(TOPIC, 2)])
    assert read.until({2}) == {2: [5]}


def test_each_assignment_reports_the_ends_anew(make: Callable[..., Read], views: FakeViews) -> None:
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    read = make()
    for _ in range(3):
        assign(read.consumer)
        assert read.until(set(range(COUNT))) == {0: [3], 1: [1], 2: [5], 3: [2]}


def test_without_first_view_at_the_subscription_ends_are_reported_when_it_is_there(
    acquired: Acquired, make: Callable[..., Read]
) -> None:
    acquired.views = FakeViews(ready=False)
    acquired.views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    read = make()
    subscribe(read.consumer)
    read.poll()
    acquired.views.set_ready()
    assert read.until(set(range(COUNT))) == {0: [3], 1: [1], 2: [5], 3: [2]}


def test_poll_stays_librdkafkas_own_where_no_ends_are_wanted_or_none_is_hidden(
    make: Callable[..., Read], views: FakeViews
) -> None:
    views.set("other", modes_of(COUNT, 2, NONE))
    read = make()
    subscribe(read.consumer)
    assert read.until(set(range(COUNT))) == {0: [3], 1: [1], 2: [5], 3: [2]}
    assert read.consumer.modeaware_stats()["state"] == "direct"
    plain = make(enable_partition_eof=False, group_id="plain")
    assign(plain.consumer)
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)
    plain.poll()
    assert plain.consumer.modeaware_stats()["state"] == "direct"
    assert plain.ends == {}


def test_asyncio_consumer_reports_them_too(mock: MockKafka, views: FakeViews) -> None:
    views.set(TOPIC, modes_of(COUNT, 2, NONE), **RECLAIMED)

    async def run() -> set[int | None]:
        consumer = aio.AIOConsumer({**CONSUMER, "bootstrap.servers": mock.bootstrap_servers, "group.id": "aio"})
        try:
            await consumer.subscribe([TOPIC])
            ended: set[int | None] = set()
            while len(ended) < COUNT:
                message = await consumer.poll(10)
                if message is not None and message.error() is not None:
                    ended.add(message.partition())
            return ended
        finally:
            await consumer.close()

    assert asyncio.run(asyncio.wait_for(run(), 60)) == set(range(COUNT))
