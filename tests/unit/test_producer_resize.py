"""What a producer does when the writable count changes under its keys: warn. No broker is needed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, murmur2

from modeaware.aio import _BatchProducer  # private: one batch, message by message
from modeaware.clients.resize import Resize, resize_of
from modeaware.confluent.producer import Producer
from modeaware.errors import ResizeWarning
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from partitioners import named
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import (
    CONF,
    Acquired,
    Make,
    Makes,
    finish,
    is_librdkafkas_own,
)

pytestmark = pytest.mark.filterwarnings("default::modeaware.errors.ResizeWarning")


@pytest.fixture
def make(views: FakeViews) -> Iterator[Make]:
    made = Makes()
    yield made
    made.close()


def silent(recwarn: pytest.WarningsRecorder) -> bool:
    return not any(issubclass(warning.category, ResizeWarning) for warning in recwarn)


def send_thrice(producer: Producer) -> None:
    for _ in range(3):
        producer.produce("orders", b"v", b"k")


class TestWarn:
    def test_the_first_record_with_a_key_after_a_shrink_warns_once(
        self, make: Make, views: FakeViews, caplog: pytest.LogCaptureFixture
    ) -> None:
        told: list[Resize] = []
        producer = make(**{"modeaware.resize_cb": told.append})
        producer.produce("orders", b"v", b"k")
        views.set("orders", modes_of(12, 5), previous_count=12)
        with caplog.at_level(logging.WARNING), pytest.warns(ResizeWarning) as warned:
            send_thrice(producer)
        (resize,) = told
        assert (resize.topic, resize.epoch, resize.old_count, resize.new_count) == ("orders", 1, 12, 5)
        assert resize.moved_share == pytest.approx(1 - 5 / 60)
        text = str(warned[0].message)
        assert len(warned) == 1
        assert text == resize.describe()
        assert text.startswith(
            "WARNING: If partitions are decreased for a topic that has a key, the partition logic or "
        )
        assert "12 to 5 writable partitions: 92% of the keys move; 5 does not divide 12: a hash" in text
        assert text in caplog.text
        assert producer.modeaware_stats()["resizes"] == 1

    def test_each_epoch_that_changes_the_count_warns(self, make: Make, views: FakeViews) -> None:
        told: list[Resize] = []
        producer = make(**{"modeaware.resize_cb": told.append})
        views.set("orders", modes_of(12, 6), previous_count=12)
        with pytest.warns(ResizeWarning):
            producer.produce("orders", b"v", b"k")
        views.set("orders", modes_of(12, 6, PartitionMode.NONE), previous_count=12)  # drained: no other count
        producer.produce("orders", b"v", b"k")
        views.set("orders", modes_of(12, 3), previous_count=6)
        with pytest.warns(ResizeWarning):
            producer.produce("orders", b"v", b"k")
        with pytest.warns(ResizeWarning, match="increased"):  # all are writable again: nobody looks at keys then
            views.set("orders", modes_of(12, 12))
        assert [(r.old_count, r.new_count) for r in told] == [(12, 6), (6, 3), (3, 12)]

    def test_a_growth_warns_when_all_is_writable_where_keys_were_seen_before(
        self, make: Make, views: FakeViews, recwarn: pytest.WarningsRecorder
    ) -> None:
        with_keys, without = make(), make()
        for producer, key in ((with_keys, b"k"), (without, None)):
            views.set("orders", modes_of(16, 12))  # new ones are opening
            producer.produce("orders", b"v", key)
        assert silent(recwarn)
        with pytest.warns(ResizeWarning, match="increased .* from 12 to 16") as warned:
            views.set("orders", modes_of(16, 16))
        assert len(warned) == 1
        assert (with_keys.modeaware_stats()["resizes"], without.modeaware_stats()["resizes"]) == (1, 0)
        assert is_librdkafkas_own(with_keys.produce)

    @pytest.mark.parametrize("policy", ["ignore", "warn"])
    def test_nothing_is_said_without_keys_or_where_it_is_to_be_ignored(
        self, make: Make, views: FakeViews, recwarn: pytest.WarningsRecorder, policy: str
    ) -> None:
        producer = make(policy)
        views.set("orders", modes_of(12, 5), previous_count=12)
        producer.produce("orders", b"v", b"k" if policy == "ignore" else None)
        producer.produce("orders", b"v", b"k", 3)  # a partition was named: the key decides nothing
        views.set("orders", modes_of(12, 12))
        assert silent(recwarn)
        assert producer.modeaware_stats()["resizes"] == 0


class TestAio:
    def test_aio_keeps_back_later_records_of_a_key_refused_before_the_first_view(self, acquired: Acquired) -> None:
        acquired.views = FakeViews(ready=False)
        producer = _BatchProducer({**CONF, "modeaware.view.timeout.ms": 0})

        class Batch(list[dict[str, Any]]):
            """Its views arrive after two of its messages were tried alone."""

            def __iter__(self) -> Iterator[dict[str, Any]]:
                for number, message in enumerate(super().__iter__()):
                    if number == 2:
                        acquired.views.set_ready()
                    yield message

        batch = Batch({"key": key, "value": b"v"} for key in (b"a", b"b", b"a", b"c", "b", b"a"))
        assert producer.produce_batch("orders", batch) == 1
        assert [message["key"] for message in batch if "_error" not in message] == [b"c"]
        finish(producer)


def test_partitioner_that_serves_its_own_topics_alone_keeps_no_view_from_the_producer(views: FakeViews) -> None:
    served = {"orders": named("murmur2_random").for_topic("orders")}

    class OfOrders:
        def for_topic(self, topic: str) -> Any:
            return served[topic]

    placed: list[int] = []
    producer = Producer({**CONF, "partitioner": OfOrders(), "on_delivery": lambda _, message: placed.append(message)})
    views.set("foreign", modes_of(6, 2))
    views.set("orders", modes_of(12, 4))
    assert producer.modeaware_stats()["routed_topics"] == 2
    producer.produce("orders", b"v", b"k3")
    with pytest.raises(KeyError, match="foreign"):
        producer.produce("foreign", b"v", b"k3")
    served["foreign"] = named("murmur2_random").for_topic("foreign")
    producer.produce("foreign", b"v", b"k3")
    producer.purge()
    producer.flush(5)
    assert sorted(message.partition() for message in placed) == [murmur2(b"k3", 2), murmur2(b"k3", 4)]
    producer.close()


def test_function_that_fails_for_other_keys_keeps_no_view_from_the_producer(views: FakeViews) -> None:
    producer = Producer({**CONF, "partitioner": lambda key, count: int(key) % count})
    views.set("orders", modes_of(12, 12))
    views.set("orders", modes_of(12, 5), previous_count=12)
    assert producer.modeaware_stats()["routed_topics"] == 1
    with pytest.warns(ResizeWarning, match="some of the keys move"):
        producer.produce("orders", b"v", b"7")
    finish(producer)


@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_record_of_an_aio_batch_that_an_applications_partitioner_refuses_fails_alone(
    views: FakeViews, error: type[Exception]
) -> None:
    views.set("orders", modes_of(12, 5))

    def partitioner(key: bytes, count: int) -> int:
        if key == b"bad":
            raise error("no place for it")
        return 0

    producer = _BatchProducer({**CONF, "partitioner": partitioner})
    batch: list[dict[str, Any]] = [{"key": key, "value": b"v"} for key in (b"good", b"bad", b"good")]
    batch.append({"key": "\ud800", "value": b"v"})
    assert producer.produce_batch("orders", batch) == 2
    assert "surrogates not allowed" in batch.pop()["_error"].str()
    (told,) = (message["_error"] for message in batch if "_error" in message)
    assert (told.code(), told.str()) == (KafkaError._APPLICATION, "no place for it")
    finish(producer)


@pytest.mark.parametrize("index", [-1, 7, None])
def test_index_of_an_own_partitioner_is_checked(views: FakeViews, index: Any) -> None:
    class Own:
        def for_topic(self, topic: str) -> Any:
            return SimpleNamespace(partition=lambda key, count: index, requires_consistency=lambda key: True)

    producer = Producer({**CONF, "partitioner": Own()})
    views.set("orders", modes_of(12, 12))
    views.set("orders", modes_of(12, 5))
    with pytest.raises(ValueError, match=f"the partitioner of orders returned {index}, "):
        producer.produce("orders", b"v", b"key")
    finish(producer)


def test_share_of_keys_that_a_users_partitioner_moves_may_be_unknown() -> None:
    class Letters:
        def for_topic(self, topic: str) -> Any:
            raise ValueError("keys are letters")

    view = TopicView("t", "id", (1, 2), modes_of(12, 5))
    resize = resize_of(view, 12, Letters())
    assert resize.moved_share is None
    assert "some of the keys move" in resize.describe()
