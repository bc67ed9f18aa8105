"""Subclasses of the producer, and patches of it and of the stock class: whoever overrides ``produce`` is called."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

import modeaware
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.confluent.producer import Producer
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import CONF, Reports, finish


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
    assert reports.queued(producer) == 1
    finish(producer)


def test_a_mixin_below_ours_is_called(views: FakeViews) -> None:
    class Counting(confluent_kafka.Producer):
        sent = 0

        def produce(self, *args: Any, **kwargs: Any) -> None:
            self.sent += 1
            super().produce(*args, **kwargs)

    class Both(Producer, Counting):
        pass

    producer = Both(CONF)
    producer.produce("orders", b"v")
    views.set("orders", modes_of(12, 4))
    producer.produce("orders", b"v", b"k")
    assert producer.sent == 2
    finish(producer)


def test_the_unbound_method_is_routed(producer: Producer, views: FakeViews) -> None:
    Producer.produce(producer, "orders", b"v", partition=7)
    views.set("orders", modes_of(12, 4))
    with pytest.raises(RetiredPartitionChosen):
        Producer.produce(producer, "orders", b"v", partition=7)
    with pytest.raises(RetiredPartitionChosen):
        Producer.produce_batch(producer, "orders", [{}], 7)


def test_a_patch_of_our_class_is_called(views: FakeViews, monkeypatch: pytest.MonkeyPatch, reports: Reports) -> None:
    calls: list[Any] = []
    original = Producer.produce

    def patched(self: Producer, *args: Any, **kwargs: Any) -> None:
        calls.append(args)
        original(self, *args, **kwargs)

    monkeypatch.setattr(modeaware.Producer, "produce", patched)
    producer = modeaware.Producer(reports.conf)
    producer.produce("orders", b"v")
    assert calls == [("orders", b"v")]
    assert reports.queued(producer) == 1
    finish(producer)


def traced_class(calls: list[Any]) -> type[confluent_kafka.Producer]:
    """What a tracer puts in the place of ``confluent_kafka.Producer``."""

    class Traced(confluent_kafka.Producer):
        def produce(self, topic: Any, value: Any = None, *args: Any, **kwargs: Any) -> None:
            calls.append((topic, args, kwargs))
            super().produce(topic, value, *args, **kwargs)

    return Traced


def test_a_tracer_that_replaced_the_stock_class_later_is_called(
    views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(confluent_kafka, "Producer", traced_class(calls))
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
