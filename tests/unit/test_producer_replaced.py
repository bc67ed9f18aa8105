"""``modeaware.Producer`` while a topic is replaced, without a broker: what is queued for which topic, or refused."""

from __future__ import annotations

import asyncio
import copy
import logging
import operator
import pickle
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, murmur2
from confluent_kafka.serialization import SerializationContext

import modeaware
from modeaware import aio
from modeaware.clients.routes import route_for
from modeaware.confluent import delivery, retarget, router  # private: the path in Python, and time that passes
from modeaware.confluent import producer as producer_module
from modeaware.confluent.errors import FirstViewPending, ReplacedTopicRefused, RetiredPartitionChosen
from modeaware.confluent.producer import Producer
from modeaware.errors import ModeSourceError, ResizeWarning, TopicReplaced
from partitioners import named
from tests.support.fake_views import FakeViews, announce, modes_of, switch
from tests.support.offline import CONF, KEYS, finish, is_librdkafkas_own

MURMUR = {**CONF, "partitioner": "murmur2_random"}


class Queue:
    """What a producer has queued: (topic, partition, key), as its delivery reports show it."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int, bytes | None]] = []

    def note(self, error: Any, message: Any) -> None:
        partition = message.partition()
        self.records.append((message.topic(), -1 if partition is None else partition, message.key()))

    def of(self, producer: Any) -> list[tuple[str, int, bytes | None]]:
        producer.purge()
        producer.flush(10)
        found, self.records = sorted(self.records, key=str), []
        return found


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture(params=["C", "Python", "tracer"])
def send(
    request: pytest.FixtureRequest, views: FakeViews, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Producer]:
    """A producer, by each of the ways that a call takes."""
    if request.param == "Python":
        monkeypatch.setattr(router, "RoutedProduce", None)
    if request.param == "tracer":

        class Traced(confluent_kafka.Producer):
            def produce(self, *args: Any, **kwargs: Any) -> None:
                super().produce(*args, **kwargs)

        monkeypatch.setattr(confluent_kafka, "Producer", Traced)
    producer = Producer({**MURMUR, "on_delivery": queue.note})
    yield producer
    finish(producer)


def in_every_form(producer: Producer, key: bytes = b"key") -> None:
    producer.produce("orders", b"v", key)
    producer.produce("orders", value=b"v", key=key)
    producer.produce(topic="orders", key=key.decode())
    producer.produce("orders", b"v", key, headers=[("h", b"1")])
    producer.produce("orders", b"v", key, timestamp=5)
    producer.produce("orders", b"v", key, -1)
    producer.produce("orders", b"v", key, partition=-1)
    producer.produce_batch("orders", [{"value": b"v", "key": key}, {"key": key.decode()}])


def test_every_form_goes_to_the_new_topic_and_librdkafka_chooses_there(
    send: Producer, views: FakeViews, queue: Queue
) -> None:
    kept = send.produce
    announce(views, "orders", "orders-v2")
    in_every_form(send)
    assert queue.of(send) == [("orders", -1, b"key")] * 9
    switch(views, "orders", "orders-v2")
    in_every_form(send)
    kept("orders", b"v", b"alias")
    send.produce("other", b"v", b"key")
    expected = [("orders-v2", -1, b"alias"), *[("orders-v2", -1, b"key")] * 9, ("other", -1, b"key")]
    assert queue.of(send) == expected
    assert send.modeaware_stats()["replaced"] == {"orders": "orders-v2"}


def test_chain_is_followed_to_its_end(send: Producer, views: FakeViews, queue: Queue) -> None:
    switch(views, "orders", "orders-v2")
    send.produce("orders", b"v", b"key")
    switch(views, "orders-v2", "orders-v3")
    for name in ("orders", "orders-v2", "orders-v3"):
        send.produce(name, b"v", b"key")
    assert queue.of(send) == [("orders-v2", -1, b"key")] + [("orders-v3", -1, b"key")] * 3
    assert send.modeaware_stats()["replaced"] == {"orders": "orders-v3", "orders-v2": "orders-v3"}


def test_shrunk_new_topics_modes_apply(send: Producer, views: FakeViews, queue: Queue) -> None:
    switch(views, "orders", "orders-v2", 12)
    views.set("orders-v2", modes_of(12, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResizeWarning)
        in_every_form(send)
        for key in KEYS[:50]:
            send.produce("orders", b"v", key)
            send.produce("orders-v2", b"v", key)
    placed = queue.of(send)
    assert {topic for topic, _, _ in placed} == {"orders-v2"}
    assert all(key and partition == murmur2(key, 5) for _, partition, key in placed)
    with pytest.raises(RetiredPartitionChosen, match="partition 7 of orders-v2 is ReadOnly"):
        send.produce("orders", b"v", partition=7)
    views.set("orders-v2", modes_of(12, 12))
    send.produce("orders", b"v", b"key")
    assert queue.of(send) == [("orders-v2", -1, b"key")]


def test_partition_that_the_new_topic_lacks_is_refused(send: Producer, views: FakeViews, queue: Queue) -> None:
    switch(views, "orders", "orders-v2", 4)
    send.produce("orders", b"v", partition=3)
    send.produce("orders", b"v", b"key", 3)
    assert send.produce_batch("orders", [{"value": b"v", "partition": 2}, {"value": b"v"}], 1) == 2
    said = "partition 4 of orders: the topic was replaced by orders-v2, which has 4 partitions"
    with pytest.raises(RetiredPartitionChosen, match=said):
        send.produce("orders", b"v", partition=4)
    with pytest.raises(RetiredPartitionChosen, match=said):
        send.produce("orders", b"v", b"key", 4)
    with pytest.raises(RetiredPartitionChosen, match=said):
        send.produce_batch("orders", [{"value": b"v"}, {"value": b"v", "partition": 4}])
    assert [partition for _, partition, _ in queue.of(send)] == [1, 2, 3, 3]
    views.set("orders-v2", modes_of(6, 6))
    send.produce("orders", b"v", partition=5)
    assert queue.of(send) == [("orders-v2", 5, None)]


def test_partitioner_of_the_application_picks_among_the_new_topics_partitions(
    views: FakeViews, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"orders": 12, "orders-v2": 4}
    monkeypatch.setattr(producer_module, "partition_count", lambda producer, timeout_s: counts.__getitem__)
    producer = Producer(
        {**CONF, "on_delivery": queue.note, "partitioner": lambda key, count: (key or b"\0")[-1] % count}
    )
    producer.produce("orders", b"v", b"\x0b")
    announce(views, "orders", "orders-v2")
    producer.produce("orders", b"v", b"\x0b")
    switch(views, "orders", "orders-v2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResizeWarning)
        producer.produce("orders", b"v", b"\x0b")
    producer.produce("orders", b"v", b"\x0a")
    producer.produce_batch("orders", [{"value": b"v", "key": b"\x09"}])
    with pytest.raises(RetiredPartitionChosen, match="which has 4 partitions"):
        producer.produce("orders", b"v", partition=4)
    assert queue.of(producer) == [
        ("orders", 11, b"\x0b"),
        ("orders", 11, b"\x0b"),
        ("orders-v2", 1, b"\x09"),
        ("orders-v2", 2, b"\x0a"),
        ("orders-v2", 3, b"\x0b"),
    ]
    finish(producer)


def test_nothing_of_ours_runs_where_a_replacement_was_undone(producer: Producer, views: FakeViews) -> None:
    view = announce(views, "orders", "orders-v2")
    assert not is_librdkafkas_own(producer.produce)
    views.put(replace(view, version=(1, 9), replaced_by=None))
    assert is_librdkafkas_own(producer.produce)


def test_a_topic_of_another_id_under_the_new_topics_name_is_written_to_by_its_own_modes(
    send: Producer, views: FakeViews, queue: Queue
) -> None:
    switch(views, "orders", "orders-v2", 4)
    views.set("orders-v2", modes_of(6, 2), topic_id="another-id")
    send.produce("orders", b"v", b"key")
    assert queue.of(send) == [("orders-v2", murmur2(b"key", 2), b"key")]


def test_route_of_a_client_that_does_not_follow_says_where_to_write(views: FakeViews) -> None:
    route = route_for(switch(views, "orders", "orders-v2"), named("murmur2_random"))
    assert route.refusal(0) == "orders was replaced by orders-v2 and takes no records: write to that topic"


class TestTopicIds:
    def test_old_topic_is_verified_before_the_first_record(self, producer: Producer, views: FakeViews) -> None:
        switch(views, "orders", "orders-v2")
        views.silent = {"orders"}
        with pytest.raises(FirstViewPending, match="orders: no broker"):
            producer.produce("orders", b"v", b"key")
        views.silent = set()
        producer.produce("orders", b"v")
        assert views.verified[-1] == {"orders", "orders-v2"}
        before = len(views.verified)
        producer.produce("orders", b"v")
        assert len(views.verified) == before

    def test_a_topic_that_was_deleted_and_made_anew_points_nowhere(
        self, send: Producer, views: FakeViews, queue: Queue
    ) -> None:
        switch(views, "orders", "orders-v2")
        views.live_ids["orders"] = "made-anew"
        send.produce("orders", b"v", b"key")
        assert queue.of(send) == [("orders", -1, b"key")]

    def test_name_of_a_topic_that_is_gone_leads_on(self, send: Producer, views: FakeViews, queue: Queue) -> None:
        switch(views, "orders", "orders-v2", gone=True)
        views.live_ids["orders"] = "made-anew"
        send.produce("orders", b"v", b"key")
        assert queue.of(send) == [("orders-v2", -1, b"key")]


class TestResizes:
    def test_first_record_with_a_key_reports_the_replacement_once(
        self, send: Producer, views: FakeViews, queue: Queue
    ) -> None:
        switch(views, "orders", "orders-v2", 5)
        send.produce("orders", b"v")
        with pytest.warns(ResizeWarning, match="orders .epoch 3. was replaced by orders-v2.* 12 .*5 now; 92%"):
            send.produce("orders", b"v", b"key")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            send.produce("orders", b"v", b"key")
            send.produce_batch("orders", [{"key": b"key"}])
        assert send.modeaware_stats()["resizes"] == 1
        assert len(queue.of(send)) == 4

    @pytest.mark.parametrize(("policy", "count"), [("ignore", 5), ("warn", 12)])
    def test_nothing_is_reported(self, views: FakeViews, policy: str, count: int) -> None:
        producer = Producer({**MURMUR, "modeaware.on.resize": policy})
        switch(views, "orders", "orders-v2", count)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for key in KEYS[:20]:
                producer.produce("orders", b"v", key)
        finish(producer)


class Refused:
    """A message as librdkafka reports it, ``queued_ago_s`` after it was queued."""

    def __init__(self, queued_ago_s: float = 1000.0) -> None:
        self.queued_ago_s = queued_ago_s

    def latency(self) -> float:
        return self.queued_ago_s

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3


TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


def _note_call(called: list[str], frame: FrameType, event: str, _: Any) -> None:
    if event == "call":
        called.append(frame.f_code.co_name)


class TestDeliveries:
    """What a refusal by the brokers becomes; that brokers refuse is for a test with a broker."""

    def reported(self, views: FakeViews, error: KafkaError | None = TOO_LARGE) -> Any:
        deliveries = delivery.Deliveries({})
        deliveries.views = views
        told: list[Any] = []
        callback = delivery.Reported(deliveries.report, lambda error, message: told.append(error))
        callback(error, Refused())
        return told[0]

    def test_says_what_replaced_the_topic(self, views: FakeViews, caplog: pytest.LogCaptureFixture) -> None:
        switch(views, "orders", "orders-v2")
        with caplog.at_level(logging.WARNING):
            error = self.reported(views)
        assert isinstance(error, ReplacedTopicRefused)
        assert isinstance(error, KafkaError)
        assert (error.code(), error.retriable(), error.fatal()) == (KafkaError.MSG_SIZE_TOO_LARGE, True, False)
        assert isinstance(error.error, TopicReplaced)
        found = error.error
        assert (found.topic, found.partition, found.new_topic) == ("orders", 3, "orders-v2")
        assert error.str() == str(found)
        assert "orders-3: brokers rejected a record, because orders was replaced by orders-v2" in error.str()
        assert "logged once" in caplog.text
        assert views.hints == 1
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (type(again), again.code(), again.str()) == (ReplacedTopicRefused, error.code(), error.str())
            assert again.error.new_topic == "orders-v2"

    def test_view_that_is_older_than_the_refusal_is_refreshed(
        self, views: FakeViews, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        announce(views, "orders", "orders-v2")
        assert self.reported(views) is TOO_LARGE, "nothing has replaced it: the record is too large"
        monkeypatch.setattr(views, "refresh", lambda timeout_s: switch(views, "orders", "orders-v2"))
        assert isinstance(self.reported(views), ReplacedTopicRefused)

    def test_nothing_is_claimed_that_is_not_known(self, views: FakeViews) -> None:
        assert self.reported(views) is TOO_LARGE
        announce(views, "orders", "orders-v2")
        views.failure = ModeSourceError("no broker")
        assert self.reported(views) is TOO_LARGE
        views.failure = None
        switch(views, "orders", "orders-v2")
        other = KafkaError(KafkaError._MSG_TIMED_OUT)
        assert self.reported(views, other) is other
        assert self.reported(views, None) is None

    @pytest.mark.parametrize("without", [None, "RoutedProduce", "traced"])
    def test_callbacks_of_records_are_reached_from_the_announcement_on(
        self, views: FakeViews, monkeypatch: pytest.MonkeyPatch, without: str | None
    ) -> None:
        called: list[Any] = []
        monkeypatch.setattr(delivery.Deliveries, "_explained", lambda self, error, message: called.append(message))
        monkeypatch.setattr(delivery, "FENCED", KafkaError._PURGE_QUEUE)
        if without == "RoutedProduce":
            monkeypatch.setattr(router, "RoutedProduce", None)
        if without == "traced":

            class Traced(confluent_kafka.Producer):
                def produce(self, *args: Any, **kwargs: Any) -> None:
                    super().produce(*args, **kwargs)

            monkeypatch.setattr(confluent_kafka, "Producer", Traced)
        producer, told = Producer(CONF), []

        def on_delivery(error: Any, message: Any) -> None:
            told.append(message.value())

        announce(views, "orders", "orders-v2")
        producer.produce("orders", b"1", on_delivery=on_delivery)
        producer.produce("orders", b"2", callback=on_delivery)
        producer.produce("orders", b"3", None, -1, on_delivery)
        producer.produce("orders", b"4", None, -1, on_delivery, headers={"h": b"1"})
        producer.produce("orders", b"none")
        producer.produce("other", b"other", on_delivery=on_delivery)
        batch: list[dict[str, Any]] = [{"value": b"5", "callback": on_delivery}, {"value": b"6"}]
        assert producer.produce_batch("orders", batch, -1, on_delivery) == 2
        assert batch[0]["callback"] is on_delivery
        producer.purge()
        producer.flush(10)
        assert sorted(told) == [b"1", b"2", b"3", b"4", b"5", b"6", b"other"]
        assert len(called) == 6
        finish(producer)

    def test_no_function_in_python_runs_per_record_before_the_switch(self, views: FakeViews) -> None:
        producer = Producer({**CONF, "partitioner": "murmur2_random"})
        announce(views, "orders", "orders-v2")
        producer.produce("orders", b"the first one has the topic id compared")
        called: list[str] = []
        sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
        try:
            producer.produce("orders", b"v", b"k")
            producer.produce("orders", value=b"v", key=b"k", on_delivery=operator.is_)
        finally:
            sys.setprofile(None)
        assert called == [] or router.RoutedProduce is None
        finish(producer)

    @pytest.mark.parametrize("is_switched", [False, True])
    def test_functions_in_python_that_run_per_batch_do_not_run_per_message(
        self, views: FakeViews, is_switched: bool
    ) -> None:
        producer = Producer({**CONF, "partitioner": "murmur2_random"})
        (switch if is_switched else announce)(views, "orders", "orders-v2")
        producer.produce_batch("orders", [{"value": b"the first one has the topic id compared", "key": b"k"}])
        calls = []
        for count in (1, 100):
            called: list[str] = []
            batch = [{"value": b"v", "key": b"k"} for _ in range(count)]
            sys.setprofile(partial(_note_call, called))
            try:
                assert producer.produce_batch("orders", batch) == count
            finally:
                sys.setprofile(None)
            calls.append(called)
        assert calls[0] == calls[1]
        finish(producer)

    def test_configured_callback_is_the_applications_own_but_while_a_topic_is_replaced(
        self, views: FakeViews, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = [0.0]
        monkeypatch.setattr(delivery.time, "monotonic", lambda: now_s[0])
        told: list[Any] = []

        def on_delivery(error: Any, message: Any) -> None:
            told.append(error)

        deliveries = delivery.Deliveries({"on_delivery": on_delivery, "message.timeout.ms": 1000})
        deliveries.views = views
        call = deliveries.settings()["on_delivery"]
        assert isinstance(call, retarget.Forward)
        assert call.func is on_delivery
        switch(views, "orders", "orders-v2")
        deliveries.follow(announced=True, switched=False)
        assert type(call.func) is delivery.Reported, "in C, for reports without an error"
        now_s[0] = 1000.0
        call(TOO_LARGE, Refused())
        deliveries.follow(announced=False, switched=True)
        call(TOO_LARGE, Refused())
        assert [type(each) for each in told] == [ReplacedTopicRefused] * 2
        now_s[0] += 100
        for _ in range(2):  # the first poll since then, however long it takes
            call(TOO_LARGE, Refused(1200.0))
            call(None, Refused(now_s[0] - 1000.5))  # queued after the switch, and before the time-out of the others
            now_s[0] += 100
        assert [type(each) for each in told if each is not None] == [ReplacedTopicRefused] * 4
        assert call.func is not on_delivery
        call(None, Refused(now_s[0] - 1090))
        assert call.func is on_delivery, "whatever was queued before has its outcome"
        deliveries.follow(announced=False, switched=False)
        assert call.func is on_delivery


@pytest.mark.parametrize("replaced", [False, True])
def test_serializers_see_the_name_that_the_application_gave(views: FakeViews, queue: Queue, replaced: bool) -> None:
    subjects: list[str] = []

    def serialize(value: Any, context: SerializationContext) -> bytes:
        subjects.append(context.topic)
        return bytes(value)

    producer = modeaware.SerializingProducer({**CONF, "key.serializer": serialize, "value.serializer": serialize})
    if replaced:
        switch(views, "orders", "orders-v2", 12)
    producer.produce("orders", b"key", b"value", on_delivery=queue.note)
    assert subjects == ["orders"] * 2
    assert queue.of(producer) == [("orders-v2" if replaced else "orders", -1, b"key")]
    finish(producer)


def test_aio_follows_and_its_serializers_do_not(views: FakeViews) -> None:
    subjects: list[str] = []

    def serialize(value: Any, context: SerializationContext) -> bytes:
        subjects.append(context.topic)
        return bytes(value)

    async def run() -> None:
        producer = await aio.AsyncSerializingProducer({**CONF, "value.serializer": serialize})
        switch(views, "orders", "orders-v2", 12)
        futures = [await producer.produce("orders", b"key", b"value", **more) for more in ({}, {"partition": 3})]
        refused = await producer.produce("orders", b"key", b"value", partition=12)
        await producer.flush(0)
        await producer.purge()
        for _ in range(100):
            await producer.poll(0.05)
            if all(future.done() for future in [*futures, refused]):
                break
        assert [future.exception().args[0].code() for future in futures] == [KafkaError._PURGE_QUEUE] * 2
        assert "which has 12 partitions" in str(refused.exception())
        assert producer.modeaware_stats()["replaced"] == {"orders": "orders-v2"}
        await producer.close()

    asyncio.run(run())
    assert subjects == ["orders"] * 3
