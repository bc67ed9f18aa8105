"""Calls that name topics and neither write nor read a record, on librdkafka's mock broker: what they answer for a topic
that was shrunk, that was replaced, or that is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

import modeaware
from modeaware import aio
from modeaware.confluent.errors import FirstViewPending, RetiredPartitionChosen
from modeaware.errors import ModeSourceError, ViewTimeout
from modeaware.modes import PartitionMode
from modeaware.testing import MockKafka
from tests.support.fake_views import FakeViews, announce, modes_of, switch
from tests.support.offline import CONF, Acquired

NONE = PartitionMode.NONE
COUNT = MockKafka.PARTITIONS


@pytest.fixture(scope="module")
def mock() -> Iterator[MockKafka]:
    with MockKafka() as mock:
        for topic in ("orders", "orders-v2", "orders-v3", "other"):
            mock.make_topic(topic)
        with closing(modeaware.librdkafka.Producer({"bootstrap.servers": mock.bootstrap_servers})) as producer:
            for partition, count in {0: 3, 1: 5}.items():
                for _ in range(count):
                    producer.produce("orders-v2", b"v", partition=partition)
        yield mock


@pytest.fixture
def conf(mock: MockKafka) -> dict[str, Any]:
    return {"bootstrap.servers": mock.bootstrap_servers, "log_level": 0, "modeaware.view.timeout.ms": 5000}


@pytest.fixture
def producer(views: FakeViews, conf: dict[str, Any]) -> Iterator[modeaware.Producer]:
    with modeaware.Producer(conf) as producer:
        yield producer


@pytest.fixture
def consumer(views: FakeViews, conf: dict[str, Any]) -> Iterator[modeaware.Consumer]:
    with modeaware.Consumer({**conf, "group.id": "named"}) as consumer:
        yield consumer


Client = modeaware.Producer | modeaware.Consumer


@pytest.fixture(params=["producer", "serializing", "consumer"])
def client(request: pytest.FixtureRequest, views: FakeViews, conf: dict[str, Any]) -> Iterator[Client]:
    match request.param:
        case "producer":
            made: Client = modeaware.Producer(conf)
        case "serializing":
            made = modeaware.SerializingProducer(conf)
        case _:
            made = modeaware.Consumer({**conf, "group.id": "named"})
    with closing(made):
        yield made


def listed(client: Any, name: str) -> list[int]:
    found = client.list_topics(name, timeout=10)
    assert list(found.topics) == [name]
    return sorted(found.topics[name].partitions)


def test_writable_partitions_are_all_where_none_is_retired(client: Client, views: FakeViews) -> None:
    assert client.writable_partitions("other") == tuple(range(COUNT))
    views.set("other", modes_of(COUNT, COUNT))
    assert client.writable_partitions("other") == tuple(range(COUNT)), "also one that is not listed"


def test_writable_partitions_of_a_shrunk_topic_and_of_one_that_lists_stay_physical(
    client: Client, views: FakeViews
) -> None:
    views.set("orders", modes_of(COUNT, 2, NONE))
    assert client.writable_partitions("orders") == (0, 1)
    assert listed(client, "orders") == list(range(COUNT))


def test_writable_partitions_of_a_replaced_name_are_those_of_the_topic_that_is_written(
    client: Client, views: FakeViews
) -> None:
    announce(views, "orders", "orders-v2")
    views.set("orders-v2", modes_of(COUNT, 3))
    assert client.writable_partitions("orders") == tuple(range(COUNT)), "announced: nothing has changed yet"
    switch(views, "orders", "orders-v2")
    assert client.writable_partitions("orders") == (0, 1, 2)
    views.remove("orders-v2")
    assert client.writable_partitions("orders") == tuple(range(COUNT))
    switch(views, "orders-v2", "orders-v3", gone=True)
    views.set("orders-v3", modes_of(COUNT, {0, 3}))
    for name in ("orders", "orders-v2", "orders-v3"):
        assert client.writable_partitions(name) == (0, 3)


def test_ids_are_compared_before_writable_partitions_are_returned(client: Client, views: FakeViews) -> None:
    views.set("orders", modes_of(COUNT, 2))
    views.live_ids["orders"] = "of another topic"
    assert client.writable_partitions("orders") == tuple(range(COUNT)), "it was deleted and created again"


def test_writable_partitions_that_no_broker_answers_for_raise_as_librdkafka_does(views: FakeViews) -> None:
    nowhere: dict[str, Any] = {**CONF, "modeaware.view.timeout.ms": 200}
    with modeaware.Producer(nowhere) as producer, modeaware.Consumer({**nowhere, "group.id": "g"}) as consumer:
        for call in (producer.writable_partitions, consumer.writable_partitions):
            with pytest.raises(KafkaException):
                call("orders")


def test_asyncio_clients_have_them_too(views: FakeViews, conf: dict[str, Any]) -> None:
    switch(views, "orders", "orders-v2", gone=True)
    views.set("orders-v2", modes_of(COUNT, 3))

    async def run() -> None:
        producer = aio.AIOProducer(conf)
        consumer = aio.AIOConsumer({**conf, "group.id": "named"})
        try:
            for client in (producer, consumer):
                assert await client.writable_partitions("orders") == (0, 1, 2)
                assert sorted((await client.list_topics("orders", timeout=10)).topics["orders"].partitions) == [
                    0,
                    1,
                    2,
                    3,
                ]
        finally:
            await producer.close()
            await consumer.close()

    asyncio.run(run())


@pytest.mark.parametrize(("policy", "error"), [("block", FirstViewPending), ("error", ViewTimeout)])
def test_writable_partitions_without_a_first_view_raise_as_a_send_does(
    acquired: Acquired, conf: dict[str, Any], policy: str, error: type[Exception]
) -> None:
    acquired.views = FakeViews(ready=False)
    ours = {"modeaware.view.timeout.ms": 0, "modeaware.on.unknown": policy}
    with modeaware.Producer({**conf, **ours}) as producer, pytest.raises(error):
        producer.writable_partitions("orders")
    acquired.views = FakeViews(ready=False)
    kind = ModeSourceError if policy == "block" else error
    with modeaware.Consumer({**conf, **ours, "group.id": "g"}) as consumer, pytest.raises(kind):
        consumer.writable_partitions("orders")


@pytest.mark.parametrize("make", [modeaware.Producer, modeaware.Consumer])
def test_calls_wait_for_the_first_view(acquired: Acquired, conf: dict[str, Any], make: Callable[[Any], Client]) -> None:
    acquired.views = views = FakeViews(ready=False)
    views.set("orders", modes_of(COUNT, 2, NONE))
    switch(views, "other", "orders-v2", gone=True)
    with closing(make({**conf, "group.id": "g"})) as client:
        first = threading.Timer(0.05, views.set_ready)
        first.start()
        assert client.writable_partitions("orders") == (0, 1)
        first.join()
        assert client.list_topics("other", timeout=10).topics["other"].topic == "orders-v2"


def test_consumer_takes_every_partition_as_writable_where_it_is_to(acquired: Acquired, conf: dict[str, Any]) -> None:
    acquired.views = FakeViews(ready=False)
    ours = {"modeaware.view.timeout.ms": 0, "modeaware.on.unknown": "writable"}
    with modeaware.Consumer({**conf, **ours, "group.id": "g"}) as consumer:
        assert consumer.writable_partitions("orders") == tuple(range(COUNT))


def test_without_a_first_view_the_other_calls_take_names_as_they_are(acquired: Acquired, conf: dict[str, Any]) -> None:
    acquired.views = FakeViews(ready=False)
    ours = {**conf, "modeaware.view.timeout.ms": 0}
    with modeaware.Producer(ours) as producer:
        assert listed(producer, "orders") == list(range(COUNT))
    acquired.views = FakeViews(ready=False)
    with modeaware.Consumer({**ours, "group.id": "g"}) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition("orders-v2", 0), timeout=10) == (0, 3)


@pytest.mark.parametrize("name", ["orders", "orders-v2"])
def test_refusal_names_the_writable_partitions(producer: modeaware.Producer, views: FakeViews, name: str) -> None:
    switch(views, "orders", "orders-v2")
    with pytest.raises(
        RetiredPartitionChosen, match=r"orders-v2, which has 4 partitions: .* choose one of 0-3$"
    ) as error:
        producer.produce("orders", b"v", partition=7)
    assert error.value.writable_partitions == (0, 1, 2, 3)
    views.set("orders-v2", modes_of(COUNT, {0, 2}))
    with pytest.raises(RetiredPartitionChosen, match=r"leave the partition out, or choose one of 0,2$") as error:
        producer.produce(name, b"v", partition=3)
    assert error.value.writable_partitions == producer.writable_partitions(name) == (0, 2)


def test_no_partition_is_advised_where_none_takes_records(producer: modeaware.Producer, views: FakeViews) -> None:
    switch(views, "orders", "orders-v2")
    views.set("orders-v2", modes_of(COUNT, 0))
    for partition in (3, 7):
        with pytest.raises(RetiredPartitionChosen, match="no partition of orders-v2 takes records now") as error:
            producer.produce("orders", b"v", partition=partition)
        assert error.value.writable_partitions == ()


def test_a_producer_lists_the_topic_that_is_written(producer: modeaware.Producer, views: FakeViews) -> None:
    announce(views, "orders", "absent")
    assert producer.list_topics("orders", 10).topics["orders"].topic == "orders"
    switch(views, "orders", "orders-v2")
    for found in (
        producer.list_topics("orders", 10),
        producer.list_topics("orders", timeout=10),
        producer.list_topics(topic="orders", timeout=10),
    ):
        assert {name: described.topic for name, described in found.topics.items()} == {"orders": "orders-v2"}
        assert found.brokers
    assert {"orders", "orders-v2"} <= producer.list_topics(timeout=10).topics.keys(), "all, as the brokers have them"
    with pytest.raises(TypeError):
        producer.list_topics("orders", 10, 3)


def test_a_consumer_is_answered_for_the_topic_that_is_there(consumer: modeaware.Consumer, views: FakeViews) -> None:
    """While the group reads ``orders`` its offsets are its own; then the name points to the new topic."""
    asked = TopicPartition("orders", 1)
    consumer.commit(offsets=[TopicPartition("orders", 1, 9), TopicPartition("orders-v2", 1, 2)], asynchronous=False)

    def answers() -> tuple[object, ...]:
        [committed] = consumer.committed([asked], timeout=10)
        [last] = consumer.offsets_for_times([TopicPartition("orders", 1, OFFSET_END)], timeout=10)
        assert committed.topic == last.topic == "orders"
        ends = consumer.get_watermark_offsets(asked, timeout=10)
        return committed.offset, last.offset, ends, consumer.list_topics("orders", timeout=10).topics["orders"].topic

    for state in ({}, {"released": True}):
        switch(views, "orders", "orders-v2", **state)
        assert answers() == (9, 0, (0, 0), "orders")
    switch(views, "orders", "orders-v2", gone=True)
    assert answers() == (2, 5, (0, 5), "orders-v2")
    both = consumer.committed([asked, TopicPartition("orders-v2", 1), TopicPartition("other", 1)], 10)
    assert [(each.topic, each.partition, each.offset) for each in both] == [
        ("orders", 1, 2),
        ("orders-v2", 1, 2),
        ("other", 1, -1001),
    ]


def test_a_chain_is_followed_to_the_first_topic_that_is_there(consumer: modeaware.Consumer, views: FakeViews) -> None:
    switch(views, "orders", "orders-v2", gone=True)
    switch(views, "orders-v2", "orders-v3")
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=10) == (0, 3)
    switch(views, "orders-v2", "orders-v3", gone=True)
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 10) == (0, 0)


def test_name_that_a_chain_leads_back_to_stands_for_the_topic_that_has_it_again(
    consumer: modeaware.Consumer, views: FakeViews
) -> None:
    """orders (gone) -> an interim topic -> orders: brokers have both that are left."""
    consumer.commit(offsets=[TopicPartition("orders", 1, 9), TopicPartition("orders-v2", 1, 2)], asynchronous=False)
    switch(views, "orders", "orders-v2", gone=True)
    back = announce(views, "orders-v2", "orders")
    assert back.replaced_by is not None
    views.put(replace(back, version=(1, 9), replaced_by=replace(back.replaced_by, topic_id="id of the new one")))
    assert consumer.committed([TopicPartition("orders", 1)], 10)[0].offset == 2, "announced: nothing has changed yet"
    switched = replace(back.replaced_by, topic_id="id of the new one", switched=True)
    for state in ({}, {"released": True}):
        views.put(replace(back, version=(1, views.view("orders-v2").epoch + 1), replaced_by=replace(switched, **state)))
        assert consumer.committed([TopicPartition("orders", 1)], 10)[0].offset == 9
        assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 10) == (0, 0)
        assert consumer.committed([TopicPartition("orders-v2", 1)], 10)[0].offset == 2


def test_bad_arguments_are_librdkafkas_to_refuse(consumer: modeaware.Consumer, views: FakeViews) -> None:
    switch(views, "orders", "orders-v2", gone=True)
    for call in (consumer.committed, consumer.offsets_for_times, consumer.get_watermark_offsets):
        with pytest.raises(TypeError):
            call("orders")  # type: ignore[arg-type]  # what is tested
