"""The store of views over a source that the test speaks for."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from modeaware.errors import ModeSourceError
from modeaware.topic_view import Moved, ReplacedBy, TopicView
from modeaware.views.store import ViewStore
from tests.support.simulated import SimClock
from tests.support.waiting import eventually

TTL_MS = 60_000


class Clock(SimClock):
    reads = 0

    def monotonic_s(self) -> float:
        self.reads += 1
        return super().monotonic_s()


class Source:
    """A source that is asked: publishes the views it is given, or fails; can be held back."""

    def __init__(self) -> None:
        self.store: ViewStore | None = None
        self.views: dict[str, TopicView] = {}
        self.error: ModeSourceError | None = None
        self.asked: list[bool] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(self, fresh: bool, timeout_s: float) -> None:
        self.asked.append(fresh)
        answer = list(self.views.values())
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        self.store.publish(answer)


def view(topic: str = "orders", epoch: int = 1, controller_epoch: int = 1) -> TopicView:
    return TopicView(topic, "id", (controller_epoch, epoch))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def store(source: Source, clock: Clock) -> ViewStore:
    source.store = ViewStore(source, TTL_MS, clock)
    return source.store


def test_a_refresh_never_takes_an_answer_to_an_earlier_question(store: ViewStore, source: Source, clock: Clock) -> None:
    source.views["orders"] = view(epoch=1)
    source.open.clear()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(store.refresh, 30)
        eventually(lambda: len(source.asked) == 1)
        with pytest.raises(ModeSourceError, match="no answer in time to an earlier request"):
            store.refresh(0)
        source.views["orders"] = view(epoch=2)  # the question that is on its way does not see this
        before = clock.reads
        later = [pool.submit(store.refresh, 30) for _ in range(6)]
        eventually(lambda: clock.reads == before + 12, message="each has its deadline, and waits")
        source.open.set()
        for future in (first, *later):
            future.result(30)
    assert store.held("orders") == view(epoch=2)
    assert source.asked == [True, True]


def test_callers_that_wait_share_a_failure_but_for_one_with_more_time(
    store: ViewStore, source: Source, clock: Clock
) -> None:
    source.open.clear()
    source.error = ModeSourceError("no broker")
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(store.refresh, 30)
        eventually(lambda: len(source.asked) == 1)
        before = clock.reads
        later = [pool.submit(store.refresh, 30) for _ in range(4)]
        eventually(lambda: clock.reads == before + 8)
        source.open.set()
        assert [str(future.exception(30)) for future in (first, *later)] == ["no broker"] * 5
    assert len(source.asked) == 2
    with pytest.raises(ModeSourceError):
        store.refresh(60)
    assert len(source.asked) == 3


def test_a_view_never_goes_back(store: ViewStore) -> None:
    heard: list[str] = []
    store.confirm()
    store.subscribe(heard.extend)
    store.publish([view(epoch=3, controller_epoch=2)])
    store.publish([view(epoch=9, controller_epoch=1)])
    store.publish([view(epoch=2, controller_epoch=2)])
    store.publish([view(epoch=3, controller_epoch=2)])
    assert store.held("orders") == view(epoch=3, controller_epoch=2)
    assert heard == ["orders"]
    store.publish([view(epoch=1, controller_epoch=3)])
    assert heard == ["orders", "orders"]
    for _ in range(2):
        store.unsubscribe(heard.extend)
    store.publish([view(epoch=2, controller_epoch=3)])
    assert heard == ["orders", "orders"]


def test_the_list_of_open_gates_never_goes_back_whichever_record_is_newer(store: ViewStore) -> None:
    def publish(epoch: int, version: tuple[int, int], *groups: str, topic_id: str = "id") -> None:
        moved = Moved(groups=frozenset(groups), version=version)
        now = ReplacedBy("orders-v2", "id-2", 4, moved=moved)
        store.publish([replace(view(epoch=epoch), topic_id=topic_id, replaced_by=now)])

    def held() -> tuple[int, list[str]]:
        found = store.view("orders")
        assert found.replaced_by is not None
        return found.epoch, sorted(found.replaced_by.moved.groups)

    store.confirm()
    publish(3, (1, 2), "a", "b")
    publish(4, (1, 1), "a")
    assert held() == (4, ["a", "b"]), "the record of the topic is newer, the decision older"
    publish(3, (2, 3), "c")
    assert held() == (4, ["c"]), "the decision is newer, the record older"
    publish(4, (2, 3), "c")
    assert held() == (4, ["c"])
    publish(1, (1, 0), "z", topic_id="another")
    assert held() == (1, ["z"]), "nothing of another topic id counts"


def test_listener_that_another_one_unsubscribed_is_not_called(store: ViewStore) -> None:
    store.confirm()
    heard: list[str] = []
    store.subscribe(lambda changed: store.unsubscribe(heard.extend))
    store.subscribe(heard.extend)
    store.publish([view()])
    assert heard == []


def test_a_topic_goes_on_the_sources_word_only(store: ViewStore) -> None:
    store.publish([view("a"), view("b")])
    store.refresh(1)  # an answer that does not mention them
    assert set(store.views()) == {"a", "b"}
    heard: list[TopicView] = []
    store.subscribe(lambda changed: heard.extend(changed.values()))
    heard.clear()
    store.publish((), ["a", "c"])
    assert heard == [TopicView.unlisted("a")]
    assert set(store.views()) == {"b"}


def test_the_last_view_outlives_a_source_that_fails(
    store: ViewStore, source: Source, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    source.views["orders"] = view()
    assert (store.stats()["view_age_ms"], store.expired()) == (-1, True)
    store.refresh(1)
    assert not store.expired()
    clock.advance(TTL_MS)
    assert (store.stats()["stale"], store.expired()) == (True, True)
    source.error = ModeSourceError("no broker")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with pytest.raises(ModeSourceError):
                store.refresh(1)
            assert store.view("orders") == view()
        stats = store.stats()
        assert (stats["stale"], stats["refresh_failures"], stats["view_age_ms"]) == (True, 3, TTL_MS)
        assert (type(store.error()), str(store.error())) == (ModeSourceError, "no broker")
        source.error = None
        clock.advance(5_000)
        store.refresh(1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "no broker" in caplog.messages[0]
    assert "can be read again; reads failed for 5.0 s" in caplog.messages[1]
    stats = store.stats()
    assert (stats["stale"], stats["view_age_ms"], stats["error"]) == (False, 0, None)
