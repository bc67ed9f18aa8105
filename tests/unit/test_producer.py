"""``modeaware.Producer`` without a broker: its constructor, and how it ends."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from modeaware.config import ClientConfig
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.confluent.producer import Producer
from modeaware.errors import ConfigError
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import CONF, Acquired, finish, is_librdkafkas_own
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
def test_what_the_stock_constructor_refuses(acquired: Acquired, make: Callable[[type], Any]) -> None:
    with pytest.raises(Exception) as theirs:
        make(confluent_kafka.Producer)
    with pytest.raises(theirs.type) as ours:
        make(Producer)
    assert str(ours.value) == str(theirs.value)
    assert acquired.asked == []


def test_an_unknown_setting_of_ours_names_the_nearest(acquired: Acquired) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'modeaware.on.unknown'"):
        Producer({**CONF, "modeaware.on.unknwon": "block"})
    assert acquired.asked == []


def test_close_gives_the_views_back_and_then_speaks_as_stock(views: FakeViews) -> None:
    producer = Producer(CONF)
    views.set("orders", modes_of(12, 4))
    send = producer.produce
    assert producer.close() is True
    assert views.closed
    assert views.listener_count == 0
    for call in (lambda: send("orders", b"v", partition=7), lambda: producer.produce_batch("orders", [{}])):
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            call()
    assert producer.close() is True


def test_a_change_after_close_changes_nothing(acquired: Acquired) -> None:
    class Late(FakeViews):
        def unsubscribe(self, listener: Any) -> None:
            """A call of the listener may be under way."""

    acquired.views = Late()
    producer = Producer(CONF)
    producer.close()
    acquired.views.set("orders", modes_of(12, 4))
    assert is_librdkafkas_own(producer.produce)


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


def test_pickling_and_copying_fail_as_stock(producer: Producer) -> None:
    for attempt in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="cannot pickle 'Producer' object"):
            attempt(producer)
