"""What clients may expect of ``Views``, of every source of them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import pytest

from modeaware.config import ClientConfig
from modeaware.local import Kafka
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.source import Views
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.fake_views import FakeViews
from tests.support.modelog import NONE, RO, RW, RealLog, topic_record
from tests.support.waiting import eventually


class World(Protocol):
    """A source of views, empty at first, and the means to change what it tells."""

    views: Views

    def open(self) -> None:
        """Let the source become ready."""

    def put(self, topic: str, epoch: int, writable: int) -> None:
        """Put a topic of 12 partitions in force."""

    def remove(self, topic: str) -> None: ...

    def close(self) -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self.views = FakeViews(ready=False)

    def open(self) -> None:
        self.views.set_ready()

    def put(self, topic: str, epoch: int, writable: int) -> None:
        record = topic_record(topic, epoch, writable=writable)
        offsets = record.view().resume_offsets
        self.views.set(topic, record.modes, epoch=epoch, topic_id=record.topic_id, resume_offsets=offsets)

    def remove(self, topic: str) -> None:
        self.views.remove(topic)

    def close(self) -> None:
        self.views.close()


class LogWorld:
    """The mode log on a real Kafka; ready by itself, once the source has found out that there is no log."""

    def __init__(self, kafka: Kafka) -> None:
        self.log = RealLog(kafka.bootstrap_servers)
        self.views = registry.acquire(self.log.conf, self.log.config)

    def open(self) -> None:
        pass

    def put(self, topic: str, epoch: int, writable: int) -> None:
        self.log.create()
        self.log.append(topic_record(topic, epoch, writable=writable))

    def remove(self, topic: str) -> None:
        self.log.remove(topic)

    def close(self) -> None:
        self.views.close()
        self.log.close()


class WireWorld:
    """KIP-694's Metadata, of a server that does not answer until it is opened."""

    def __init__(self) -> None:
        self.endpoint = FakeEndpoint(answering=False)
        config = ClientConfig(mode_source="wire", refresh_interval_ms=100)
        self.views = registry.acquire({"bootstrap.servers": self.endpoint.address}, config)

    def open(self) -> None:
        self.endpoint.answering.set()

    def put(self, topic: str, epoch: int, writable: int) -> None:
        self.endpoint.views[topic] = topic_record(topic, epoch, writable=writable).view()

    def remove(self, topic: str) -> None:
        self.endpoint.removed.add(f"id-of-{topic}")
        del self.endpoint.views[topic]
        self.endpoint.existing[topic] = 12

    def close(self) -> None:
        self.views.close()
        self.endpoint.stop()


@pytest.fixture(params=["fake", "log", "wire"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World
    if request.param == "log":
        made = LogWorld(request.getfixturevalue("kafka"))
    else:
        made = FakeWorld() if request.param == "fake" else WireWorld()
    yield made
    made.close()


@pytest.fixture(params=[FakeWorld, WireWorld])
def silent(request: pytest.FixtureRequest) -> Iterator[World]:
    """A source that is not ready before it is opened."""
    made: World = request.param()
    yield made
    made.close()


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[dict[str, TopicView]] = []

    def __call__(self, changed: Mapping[str, TopicView]) -> None:
        self.calls.append(dict(changed))

    def epochs(self, topic: str) -> list[int]:
        return [call[topic].epoch for call in self.calls if topic in call]


def ready(world: World) -> Views:
    world.open()
    assert world.views.wait_ready(30)
    return world.views


def until(condition: Callable[[], object]) -> None:
    eventually(condition, 30, interval_s=0.01)


def test_before_the_first_view_it_is_not_ready_and_topics_are_unlisted(silent: World) -> None:
    views, heard = silent.views, Heard()
    views.subscribe(heard)
    assert not views.ready
    assert not views.wait_ready(0.01)
    assert views.view("a") == TopicView.unlisted("a")
    assert views.claim() is None
    silent.put("a", 1, 4)
    silent.put("b", 1, 4)
    assert heard.calls == []
    ready(silent)
    assert views.ready
    assert {topic: view.version for topic, view in views.views().items()} == {"a": (1, 1), "b": (1, 1)}
    until(lambda: heard.calls)
    assert set(heard.calls[0]) == {"a", "b"}, "a listener hears everything once when first ready, then each change"
    silent.put("a", 2, 5)
    until(lambda: len(heard.calls) == 2)
    assert set(heard.calls[1]) == {"a"}
    assert heard.epochs("a") == [1, 2]


def test_changes_arrive(world: World) -> None:
    views = ready(world)
    world.put("orders", 1, 4)
    until(lambda: views.view("orders").epoch == 1)
    assert views.view("orders").modes == (RW,) * 4 + (RO,) * 8
    assert views.view("orders").resume_offsets == dict.fromkeys(range(4, 12), 100)
    world.put("orders", 2, 6)
    until(lambda: views.view("orders").epoch == 2)
    assert views.view("orders").writable == tuple(range(6))
    assert NONE not in views.view("orders").modes
    assert set(views.views()) == {"orders"}


def test_a_topic_that_is_removed_is_unlisted_again(world: World) -> None:
    views = ready(world)
    heard = Heard()
    world.put("orders", 1, 4)
    until(lambda: views.view("orders").epoch == 1)
    views.subscribe(heard)
    world.remove("orders")
    until(lambda: heard.epochs("orders") == [1, -1])
    assert heard.calls[-1] == {"orders": TopicView.unlisted("orders")}
    assert views.views() == {}


def test_a_view_is_in_force_before_its_listeners_are_called(world: World) -> None:
    views = ready(world)
    seen: list[tuple[int, int]] = []

    def listen(changed: Mapping[str, TopicView]) -> None:
        seen.extend((view.epoch, views.view(topic).epoch) for topic, view in changed.items())

    views.subscribe(listen)
    for epoch in range(1, 4):
        world.put("orders", epoch, 4)
    until(lambda: seen and seen[-1][0] == 3)  # changes that come together may be told as one
    assert all(told <= held for told, held in seen)


def test_an_unsubscribed_listener_hears_nothing_more(world: World) -> None:
    views = ready(world)
    gone, stays = Heard(), Heard()
    views.subscribe(gone)
    views.subscribe(stays)
    views.unsubscribe(gone)
    views.unsubscribe(gone)
    world.put("orders", 1, 4)
    until(lambda: stays.epochs("orders") == [1])
    assert gone.calls == [{}]


def test_after_a_refresh_everything_appended_before_is_in_force(world: World) -> None:
    views = ready(world)
    for epoch in range(1, 21):
        world.put("orders", epoch, 4)
        views.refresh(30)
        assert views.view("orders").epoch == epoch
