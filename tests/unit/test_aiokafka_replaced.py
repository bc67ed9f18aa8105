"""modeaware.aiokafka.AIOKafkaProducer while a topic is replaced, without a broker."""

from __future__ import annotations

import asyncio
import copy
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.producer.message_accumulator import MessageAccumulator
from confluent_kafka import murmur2

from modeaware.aiokafka import AIOKafkaProducer, ReplacedTopicError, RetiredPartitionError
from modeaware.errors import ErrorCode, ModeSourceError, ResizeWarning, TopicReplaced
from tests.support.fake_views import FakeViews, announce, modes_of, switch

COUNTS = {"orders": 12, "orders-v2": 4, "orders-v3": 9}
KEYS = [b"key-%d" % number for number in range(60)]
Queue = list[tuple[str, int]]


class Metadata:
    """Of topics of different sizes; ``orders`` may be gone."""

    def __init__(self) -> None:
        self.counts = dict(COUNTS)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self.counts[topic]))

    available_partitions_for_topic = partitions_for_topic


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: object, *_: object) -> None: ...

    monkeypatch.setattr(aiokafka.AIOKafkaProducer, "start", nothing)
    monkeypatch.setattr(MessageAccumulator, "close", nothing)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@asynccontextmanager
async def started(**settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", enable_idempotence=False, **settings)
    producer._metadata = producer.client.cluster = Metadata()
    producer._sender._sender_task = None
    async with producer:
        yield producer


async def applied() -> None:
    """What the views' thread has handed over is done."""
    await asyncio.sleep(0)  # lets the loop run what was called in


def queued(producer: AIOKafkaProducer) -> Queue:
    batches = producer._message_accumulator._batches
    found = sorted((tp.topic, tp.partition) for tp, each in batches.items() for one in each for _ in one._msg_futures)
    batches.clear()
    return found


@in_a_loop
async def test_records_are_queued_in_the_order_of_their_sends(
    views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where many wait until their topic is verified: aiokafka has refreshed its metadata."""
    waits_s, verify, add = iter([0.05] + [0.0] * 99), views.verify, MessageAccumulator.add_message
    values: list[int] = []

    def verified(*args: Any) -> Any:
        time.sleep(next(waits_s))  # the first one takes longest
        return verify(*args)

    async def noted(self: Any, tp: Any, key: Any, value: bytes, *args: Any, **kwargs: Any) -> Any:
        values.append(int(value))
        return await add(self, tp, key, value, *args, **kwargs)

    async with started() as producer:
        switch(views, "orders", "orders-v2")
        await applied()
        monkeypatch.setattr(views, "verify", verified)
        monkeypatch.setattr(MessageAccumulator, "add_message", noted)
        producer._modeaware.metadata_changed()
        await asyncio.gather(*(producer.send("orders", b"%d" % number, b"key") for number in range(50)))
        assert values == list(range(50))


@in_a_loop
async def test_records_keep_their_order_while_the_name_comes_to_lead_to_a_successor(
    views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose metadata arrive late, and some of whose sends are cancelled."""
    values: list[int] = []
    add, stock = MessageAccumulator.add_message, aiokafka.client.AIOKafkaClient._wait_on_metadata
    waits = iter([3, 1, 2])

    async def noted(self: Any, tp: Any, key: Any, value: bytes, *args: Any, **kwargs: Any) -> Any:
        values.append(int(value))
        return await add(self, tp, key, value, *args, **kwargs)

    async def late(self: Any, topic: str) -> Any:
        for _ in range(next(waits, 0) if topic == "orders-v2" else 0):
            await asyncio.sleep(0.01)
        return await stock(self, topic)

    monkeypatch.setattr(MessageAccumulator, "add_message", noted)
    monkeypatch.setattr(aiokafka.client.AIOKafkaClient, "_wait_on_metadata", late)
    async with started() as producer:
        announce(views, "orders", "orders-v2")
        await applied()
        sends = [asyncio.create_task(producer.send("orders", b"%d" % number, b"key")) for number in range(20)]
        switch(views, "orders", "orders-v2")
        await asyncio.sleep(0)
        sends += [asyncio.create_task(producer.send("orders", b"%d" % number, b"key")) for number in range(20, 50)]
        await asyncio.sleep(0)
        for cancelled in (sends[21], sends[30]):
            cancelled.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
        assert values == [number for number in range(50) if number not in (21, 30)]


@in_a_loop
async def test_records_go_to_the_successor_by_its_own_count(views: FakeViews) -> None:
    async with started() as producer:
        own = (producer._partition, producer._message_accumulator.add_message, producer.client._wait_on_metadata)
        assert all(hasattr(each, "__func__") for each in own), "aiokafka's own"
        announce(views, "orders", "orders-v2")
        await applied()
        await producer.send("orders", b"v", b"key")
        assert queued(producer) == [("orders", murmur2(b"key", 12))]
        switch(views, "orders", "orders-v2")
        await applied()
        del producer._metadata.counts["orders"]
        for key in KEYS:
            await producer.send("orders", b"v", key)
        assert queued(producer) == sorted(("orders-v2", murmur2(key, 4)) for key in KEYS)
        await producer.send("orders", b"v", partition=3)
        batch = producer.create_batch()
        batch.append(timestamp=None, key=b"key", value=b"v")
        await producer.send_batch(batch, "orders", partition=2)
        assert [*producer._message_accumulator._batches] == [("orders-v2", 3), ("orders-v2", 2)]
        said = "partition 4 of orders: the topic was replaced by orders-v2, which has 4 partitions"
        with pytest.raises(RetiredPartitionError, match=said):
            await producer.send("orders", b"v", partition=4)
        assert producer.modeaware_stats()["replaced"] == {"orders": "orders-v2"}


@in_a_loop
async def test_chain_is_followed_to_its_end_and_the_modes_of_its_last_topic_apply(views: FakeViews) -> None:
    switch(views, "orders", "orders-v2")
    switch(views, "orders-v2", "orders-v3", 9)
    views.set("orders-v3", modes_of(9, 5))
    async with started() as producer:
        for name in ("orders", "orders-v2", "orders-v3"):
            await producer.send(name, b"v", b"key")
        assert queued(producer) == [("orders-v3", murmur2(b"key", 5))] * 3
        with pytest.raises(RetiredPartitionError, match="partition 7 of orders-v3 is ReadOnly"):
            await producer.send("orders", b"v", partition=7)


@in_a_loop
async def test_a_topic_that_was_deleted_and_made_anew_leads_nowhere(views: FakeViews) -> None:
    switch(views, "orders", "orders-v2")
    async with started() as producer:
        views.live_ids["orders"] = "made-anew"
        await producer.send("orders", b"v", b"key")
        assert queued(producer) == [("orders", murmur2(b"key", 12))]


@in_a_loop
async def test_first_record_with_a_key_reports_the_replacement_once(views: FakeViews) -> None:
    async with started() as producer:
        switch(views, "orders", "orders-v2", 5)
        await applied()
        await producer.send("orders", b"v")
        with pytest.warns(ResizeWarning, match="orders .epoch 3. was replaced by orders-v2"):
            await producer.send("orders", b"v", b"key")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await producer.send("orders", b"v", b"key")


@in_a_loop
async def test_nothing_of_ours_stays_where_a_replacement_was_undone(views: FakeViews) -> None:
    async with started() as producer:
        announce(views, "orders", "orders-v2")
        await applied()
        views.set("orders", modes_of(12, 12))
        await applied()
        own = (producer._partition, producer._message_accumulator.add_message, producer.client._wait_on_metadata)
        assert all(hasattr(each, "__func__") for each in own)
        assert not {"add_message", "add_batch", "_append_batch"} & vars(producer._message_accumulator).keys()


def refuse(producer: AIOKafkaProducer) -> None:
    """Brokers refuse all that is queued as too large."""
    for batches in producer._message_accumulator._batches.values():
        for batch in batches:
            batch.drain_ready()
            batch.failure(exception=MessageSizeTooLargeError())


@in_a_loop
async def test_refused_records_say_what_replaced_their_topic(views: FakeViews) -> None:
    async with started() as producer:
        early = await producer.send("orders", b"v", partition=3)
        announce(views, "orders", "orders-v2")
        await applied()
        late = await producer.send("orders", b"v", partition=5)
        switch(views, "orders", "orders-v2")
        await applied()
        refuse(producer)
        for future, partition in ((early, 3), (late, 5)):
            error = future.exception()
            assert isinstance(error, ReplacedTopicError)
            assert isinstance(error, TopicReplaced)
            assert isinstance(error, MessageSizeTooLargeError)
            assert (error.topic, error.partition, error.successor) == ("orders", partition, "orders-v2")
            assert (error.code, error.retriable) == (ErrorCode.MESSAGE_TOO_LARGE, True)
            assert str(copy.copy(error)) == str(error)


@in_a_loop
async def test_views_that_are_older_than_the_refusal_are_waited_for(
    views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started() as producer:
        announce(views, "orders", "orders-v2")
        await applied()
        future = await producer.send("orders", b"v", partition=3)
        views.failure = ModeSourceError("no broker")
        refuse(producer)
        assert not future.done()
        with pytest.raises(MessageSizeTooLargeError) as refused:
            await future
        assert type(refused.value) is MessageSizeTooLargeError, "nothing is claimed that is not known"
        views.failure = None
        producer._message_accumulator._batches.clear()
        future = await producer.send("orders", b"v", partition=3)
        monkeypatch.setattr(views, "refresh", lambda timeout_s: switch(views, "orders", "orders-v2"))
        refuse(producer)
        with pytest.raises(ReplacedTopicError):
            await future
        other = await producer.send("orders-v2", b"v", partition=3)
        for batch in producer._message_accumulator._batches["orders-v2", 3]:
            batch.drain_ready()
            batch.failure(KafkaTimeoutError())
        assert isinstance(other.exception(), KafkaTimeoutError)
