"""A client that is dropped without ``close()`` ends at once, as confluent_kafka's do: nothing that it holds refers back
to it."""

from __future__ import annotations

import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition

import modeaware
from modeaware import os_threads
from modeaware.errors import ModeSourceError
from modeaware.views.store import ViewStore
from modeaware.views.topic_ids import TopicIds, TopicIdUnknown, id_from
from tests.support.fake_views import FakeViews, announce, modes_of, switch
from tests.support.offline import CONF
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("without_garbage_collection")
GROUP = {**CONF, "group.id": "g"}
HASHED = {**CONF, "partitioner": "murmur2_random"}


def new(views: FakeViews) -> Any:
    return modeaware.Producer(HASHED)


def direct(views: FakeViews) -> Any:
    producer = modeaware.Producer({**HASHED, "on_delivery": lambda error, message: None})
    producer.produce("orders", b"v", b"k")
    producer.produce_batch("orders", [{"value": b"v"}])
    return producer


def routed(views: FakeViews) -> Any:
    views.set("orders", modes_of(12, 4))
    return direct(views)


def replaced(views: FakeViews) -> Any:
    producer = direct(views)
    announce(views, "orders", "orders-v2")
    producer.produce("orders", b"v", b"k")
    switch(views, "orders", "orders-v2")
    producer.produce("orders", b"v", b"k")
    return producer


def with_aliases(views: FakeViews) -> Any:
    producer = direct(views)
    send = producer.produce
    send("orders", b"v", b"k")
    return producer


def foreign_partitioner(views: FakeViews) -> Any:
    return modeaware.Producer({**CONF, "partitioner": "round_robin"})


def serializing(views: FakeViews) -> Any:
    producer = modeaware.SerializingProducer({**HASHED, "key.serializer": lambda key, _: key})
    producer.produce("orders", b"k", b"v")
    return producer


def subclass(views: FakeViews) -> Any:
    class Own(modeaware.Producer):
        def produce(self, *args: Any, **kwargs: Any) -> None:
            super().produce(*args, **kwargs)

    producer = Own(HASHED)
    producer.produce("orders", b"v")
    return producer


def reader(views: FakeViews) -> Any:
    return modeaware.Consumer(GROUP)


def subscribed(views: FakeViews) -> Any:
    views.set("orders", modes_of(12, 4))
    consumer = modeaware.Consumer(
        {**GROUP, "modeaware.topic.names": "logical", "stats_cb": lambda figures: None, "error_cb": lambda error: None}
    )
    consumer.subscribe(["orders"], on_assign=lambda consumer, partitions: None)
    consumer.poll(0)
    announce(views, "orders", "orders-v2")
    switch(views, "orders", "orders-v2")
    consumer.consume(1, 0)
    return consumer


def assigned(views: FakeViews) -> Any:
    consumer = modeaware.Consumer(GROUP)
    consumer.assign([TopicPartition("orders", 0, 0)])
    consumer.poll(0)
    return consumer


def deserializing(views: FakeViews) -> Any:
    return modeaware.DeserializingConsumer(GROUP)


@pytest.mark.parametrize(
    "make",
    [
        *(new, direct, routed, replaced, with_aliases, foreign_partitioner, serializing, subclass),
        *(reader, subscribed, assigned, deserializing),
    ],
)
def test_dropped_client_ends_at_once_with_its_views(make: Callable[[FakeViews], Any], views: FakeViews) -> None:
    client = make(views)
    if isinstance(client, confluent_kafka.Producer):
        client.purge()
    ended = weakref.ref(client)
    del client
    assert ended() is None
    eventually(lambda: views.closed)


def test_alias_keeps_its_client(views: FakeViews) -> None:
    send = modeaware.Producer(HASHED).produce
    poll = modeaware.Consumer(GROUP).poll
    send("orders", b"v", b"k")
    assert poll(0) is None
    producer: Any = send.__self__  # type: ignore[attr-defined] # as of every bound method
    assert producer.modeaware_stats()["state"] == "direct"
    producer.purge()


def test_what_a_consumer_asks_about_its_group_ends_with_it(views: FakeViews, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = modeaware.Consumer(GROUP)
    membership = consumer._membership  # private, and so are the two that have a client of their own
    asked = [membership._non_member, membership._ownership._describer]
    ended = [weakref.ref(each) for each in asked]
    del consumer, membership, asked
    assert [each() for each in ended] == [None, None]


def test_errors_that_are_kept_keep_no_caller_alive() -> None:
    def fetch(fresh: bool, timeout_s: float) -> None:
        raise ModeSourceError("no broker")

    store = ViewStore(fetch, 1_000)
    ids = TopicIds(CONF)
    failed: Future[Any] = Future()
    failed.set_exception(confluent_kafka.KafkaException(KafkaError(KafkaError._TRANSPORT)))

    class Caller:
        def refresh(self) -> None:
            with suppress(ModeSourceError):
                store.refresh(1)

        def verify(self) -> None:
            with suppress(TopicIdUnknown):
                id_from(failed, 1)

        def request(self) -> None:
            assert isinstance(ids.request([""], 1)[""].exception(0), ValueError), "no topic can have this name"

        def fail(self) -> None:
            try:
                fetch(True, 1)
            except ModeSourceError as error:
                store.failed(error)

        def count(self) -> None:
            with suppress(ModeSourceError):
                os_threads.call_apart(fetch, True, 1)

    for call in (Caller.refresh, Caller.verify, Caller.request, Caller.fail, Caller.count):
        caller = Caller()
        call(caller)
        ended = weakref.ref(caller)
        del caller
        assert ended() is None, call
    assert str(store.error()) == "no broker"
    assert ids.request([""], 60)


DROPPED = """
import gc, os, sys, time
import confluent_kafka, modeaware
gc.disable()
conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "partitioner": "murmur2_random"}

def held():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

def left_by(kind):
    kept = kind(conf)  # what clients of one process share
    before = held()
    for _ in range(1000):
        kind(conf)
    deadline = time.monotonic() + 30
    while max(after - b for after, b in zip(held(), before)) > 10 and time.monotonic() < deadline:
        time.sleep(0.1)
    return [after - b for after, b in zip(held(), before)]

print(left_by(confluent_kafka.Producer), left_by(modeaware.Producer))
"""


def test_dropped_producers_leave_no_threads_and_descriptors() -> None:
    told = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    plain, ours = re.findall(r"\[(-?\d+), (-?\d+)\]", told.stdout)
    assert all(int(left) <= 10 for left in (*plain, *ours)), told.stdout
