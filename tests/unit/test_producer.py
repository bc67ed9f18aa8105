"""``modeaware.Producer`` without a broker: its constructor, how it ends, and who overrides it."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

import modeaware
from modeaware.config import ClientConfig
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.confluent.producer import Producer
from modeaware.confluent.route_table import notice_deletion
from tests.support.fake_views import FakeViews, modes_of, switch
from tests.support.offline import CONF, Acquired, Reports, finish, is_librdkafkas_own
from tests.support.waiting import eventually


def test_constructor_forms(acquired: Acquired) -> None:
    forms: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((CONF,), {}),
        ((), CONF),
        (({"bootstrap.servers": "127.0.0.1:2"},), CONF),
        (({**CONF, "modeaware.view.timeout.ms": 5},), {"modeaware.on.unknown": "error"}),
    ]
    for args, kwargs in forms:
        finish(Producer(*args, **kwargs))
    assert [conf for conf, _ in acquired.asked] == [CONF] * 4
    assert acquired.asked[-1][1] == ClientConfig(view_timeout_ms=5, on_unknown="error")


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(),
        lambda cls: cls(None),
        lambda cls: cls(CONF, CONF),
        lambda cls: cls({**CONF, "no.such.setting": 1}),
        lambda cls: cls({**CONF, "partitioner": "murmur3"}),
        lambda cls: cls({**CONF, 1: 2}),
    ],
)
def test_what_the_stock_constructor_refuses(acquired: Acquired, make: Callable[[type], Any], kind: str) -> None:
    with pytest.raises(Exception) as theirs:
        make(getattr(confluent_kafka, kind))
    with pytest.raises(theirs.type) as ours:
        make(getattr(modeaware, kind))
    assert str(ours.value) == str(theirs.value)
    assert acquired.asked == []


def test_close_gives_the_views_back_and_then_speaks_as_stock(views: FakeViews) -> None:
    producer = Producer(CONF)
    views.set("orders", modes_of(12, 4))
    send = producer.produce
    assert producer.close() is True
    assert views.closed
    assert views.listener_count == 0
    unfinished = Producer.__new__(Producer)  # its constructor raised
    for call in (
        lambda: send("orders", b"v", partition=7),
        lambda: producer.produce_batch("orders", [{}]),
        lambda: unfinished.produce("orders", b"v"),
        lambda: unfinished.produce_batch("orders", [{}]),
    ):
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            call()
    assert producer.close() is True
    assert unfinished.close() is True
    assert unfinished.modeaware_stats()["state"] == "waiting"


def test_a_change_after_close_changes_nothing(acquired: Acquired) -> None:
    acquired.views.unsubscribe = lambda listener: None  # type: ignore[method-assign] # a call of it may be under way
    producer = Producer(CONF)
    producer.close()
    acquired.views.set("orders", modes_of(12, 4))
    assert is_librdkafkas_own(producer.produce)


def test_our_error_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(RetiredPartitionChosen("retired", topic="orders", partition=7)))
    assert type(again) is RetiredPartitionChosen
    assert (again.message, again.topic, again.partition) == ("retired", "orders", 7)
    assert isinstance(again.args[0], confluent_kafka.KafkaError)


@pytest.mark.parametrize("routed", [True, False])
def test_a_dropped_producer_goes_and_gives_the_views_back(views: FakeViews, routed: bool) -> None:
    producer = Producer(CONF)
    if routed:
        views.set("orders", modes_of(12, 4))
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None
    eventually(lambda: views.closed and views.listener_count == 0)


def test_an_alias_keeps_its_producer(views: FakeViews) -> None:
    send = Producer(CONF).produce
    gc.collect()
    views.set("orders", modes_of(12, 4))
    with pytest.raises(RetiredPartitionChosen):
        send("orders", b"v", partition=7)
    assert not views.closed


def test_a_subclass_that_overrides_produce_is_called(views: FakeViews, reports: Reports) -> None:
    class Shouting(Producer):
        def produce(self, topic: str, value: Any = None, *args: Any, **kwargs: Any) -> None:
            super().produce(topic, value.upper(), *args, **kwargs)

    producer = Shouting(reports.conf)
    send = producer.produce
    assert "produce" not in vars(producer)
    send("orders", "v", partition=7)
    views.set("orders", modes_of(12, 4))
    with pytest.raises(RetiredPartitionChosen):
        send("orders", "v", partition=7)
    with pytest.raises(RetiredPartitionChosen):
        Producer.produce_batch(producer, "orders", [{}], 7)
    assert reports.queued(producer) == 1
    finish(producer)


def test_a_tracer_that_replaced_the_stock_class_later_is_called(
    views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    class Traced(confluent_kafka.Producer):
        def produce(self, topic: Any, value: Any = None, *args: Any, **kwargs: Any) -> None:
            calls.append((topic, args, kwargs))
            super().produce(topic, value, *args, **kwargs)

    monkeypatch.setattr(confluent_kafka, "Producer", Traced)
    producer, second = modeaware.Producer(CONF), modeaware.Producer(CONF)
    assert isinstance(producer, confluent_kafka.Producer)
    assert isinstance(producer, modeaware.Producer)
    assert type(producer) is type(second)
    send = producer.produce
    send("orders", b"v", partition=7)
    views.set("orders", modes_of(12, 4))
    send("orders", b"v", key=b"k", headers={})
    # The call as it was written, with a partition: tracers look headers up by name or position.
    assert calls == [
        ("orders", (), {"partition": 7}),
        ("orders", (), {"key": b"k", "headers": {}, "partition": confluent_kafka.consistent(b"k", 4)}),
    ]
    finish(producer)
    finish(second)


@pytest.mark.parametrize(("interim", "requested"), [("orders.modeaware-3fa9", ["orders"]), ("orders-v2", [])])
def test_deletion_of_a_topic_whose_name_is_kept_is_noticed_once(
    views: FakeViews, monkeypatch: pytest.MonkeyPatch, interim: str, requested: list[str]
) -> None:
    """So librdkafka forgets its leader epochs; of any other topic, the request may create the topic again."""
    noticed: list[str] = []
    monkeypatch.setattr("modeaware.confluent.producer.notice_deletion", lambda client: noticed.append)
    producer = Producer(CONF)
    views.set("orders", modes_of(12, 12))
    switch(views, "orders", interim, 4, released=True)
    assert noticed == []
    switch(views, "orders", interim, 4, released=True, gone=True)
    views.set("payments", modes_of(12, 4))
    assert noticed == requested
    finish(producer)


def test_librdkafka_is_asked_for_a_deleted_topic_and_an_error_is_no_error_of_the_senders() -> None:
    producer = Producer({**CONF, "socket.timeout.ms": 100})
    notice_deletion(producer)("orders")  # no broker is there
    finish(producer)
