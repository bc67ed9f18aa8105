from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from modeaware.errors import ModeSourceError
from modeaware.topic_view import TopicView
from modeaware.views.cache import MetadataCache
from tests.support.waiting import eventually

TTL_MS = 60_000


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.reads = 0

    def monotonic_s(self) -> float:
        self.reads += 1
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


class Source:
    """A source that is asked: answers with the views it is given, or fails; can be held back."""

    def __init__(self) -> None:
        self.views: dict[str, TopicView] = {}
        self.error: ModeSourceError | None = None
        self.asked: list[Collection[str] | None] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(self, topics: Collection[str] | None, timeout_s: float) -> Iterable[TopicView]:
        self.asked.append(None if topics is None else frozenset(topics))
        answer = dict(self.views)
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        return [view for topic, view in answer.items() if topics is None or topic in topics]


def view(topic: str = "orders", epoch: int = 1, topic_id: str = "id", controller_epoch: int = 1) -> TopicView:
    return TopicView(topic, topic_id, (controller_epoch, epoch))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def source() -> Source:
    return Source()


Make = Callable[..., MetadataCache]


@pytest.fixture
def make(clock: FakeClock) -> Make:
    return partial(MetadataCache, ttl_ms=TTL_MS, clock=clock)


def test_a_source_is_asked_once_a_ttl(make: Make, source: Source, clock: FakeClock) -> None:
    cache = make(source)
    source.views["orders"] = view(epoch=1)
    assert cache.get("orders", 1) == view(epoch=1)
    source.views["orders"] = view(epoch=2)
    clock.now_s += TTL_MS / 1000 - 1
    assert cache.get("orders", 1) == view(epoch=1)
    clock.now_s += 2
    assert cache.get("orders", 1) == view(epoch=2)
    assert source.asked == [{"orders"}, {"orders"}]


def test_callers_that_come_together_share_one_question(make: Make, source: Source) -> None:
    cache = make(source)
    source.views["orders"] = view()
    source.open.clear()
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(cache.get, "orders", 30) for _ in range(8)]
        eventually(lambda: source.asked)
        source.open.set()
        assert {answer.result(30) for answer in answers} == {view()}
    assert source.asked == [{"orders"}]


def test_a_refresh_never_takes_an_answer_to_an_earlier_question(make: Make, source: Source, clock: FakeClock) -> None:
    cache = make(source)
    source.views["orders"] = view(epoch=1)
    source.open.clear()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(cache.refresh, ["orders"], 30)
        eventually(lambda: len(source.asked) == 1)
        source.views["orders"] = view(epoch=2)  # the question that is on its way does not see this
        before = clock.reads
        later = [pool.submit(cache.refresh, ["orders"] if n % 2 else ["bills"], 30) for n in range(6)]
        eventually(lambda: clock.reads == before + 12, message="each has its deadline, and waits")
        source.open.set()
        for future in (first, *later):
            future.result(30)
    assert cache.held("orders") == view(epoch=2)
    assert source.asked == [{"orders"}, {"orders", "bills"}]


def test_a_view_never_goes_back(make: Make, source: Source) -> None:
    cache = make(source)
    assert set(cache.offer([view(epoch=3, controller_epoch=2)])) == {"orders"}
    assert cache.offer([view(epoch=9, controller_epoch=1)]) == {}
    assert cache.offer([view(epoch=2, controller_epoch=2)]) == {}
    assert cache.offer([view(epoch=3, controller_epoch=2)]) == {}
    assert cache.held("orders") == view(epoch=3, controller_epoch=2)
    assert set(cache.offer([view(epoch=1, controller_epoch=3)])) == {"orders"}


def test_a_topic_goes_on_the_sources_word_only(make: Make, source: Source) -> None:
    cache = make(source)
    cache.offer([view("a"), view("b")])
    cache.refresh(None, 1)  # an answer that does not mention them
    assert set(cache.all()) == {"a", "b"}
    assert cache.remove(["a", "c"]) == {"a": TopicView.unlisted("a")}
    assert set(cache.all()) == {"b"}


def test_the_last_view_outlives_a_source_that_fails(
    make: Make, source: Source, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make(source)
    source.views["orders"] = view()
    cache.get("orders", 1)
    clock.now_s += TTL_MS / 1000
    source.error = ModeSourceError("no broker")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert cache.get("orders", 1) == view()
        stats = cache.stats()
        assert (stats["stale"], stats["refresh_failures"], stats["view_age_ms"]) == (True, 3, TTL_MS)
        assert cache.error() is source.error
        source.error = None
        clock.now_s += 5
        assert cache.get("orders", 1) == view()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "no broker" in caplog.messages[0]
    assert "can be read again after 5.0 s" in caplog.messages[1]
    stats = cache.stats()
    assert (stats["stale"], stats["view_age_ms"], stats["error"]) == (False, 0, None)


def test_a_pushing_source_confirms_all_views_at_once(make: Make, source: Source, clock: FakeClock) -> None:
    cache = make(source)
    assert cache.stats()["view_age_ms"] == -1
    assert cache.expired()
    cache.offer([view("a")])
    cache.confirmed()
    assert not cache.expired()
    assert not cache.expired("a")
    clock.now_s += TTL_MS / 1000
    assert cache.expired()
    assert cache.stats()["stale"] is True
    assert source.asked == []


def test_the_least_recently_used_topics_make_room(make: Make, source: Source) -> None:
    cache = make(source, max_topics=2)
    for topic in ("a", "b"):
        source.views[topic] = view(topic)
        cache.get(topic, 1)
    cache.held("a")
    cache.offer([view("c")])
    assert set(cache.all()) == {"a", "c"}
    assert cache.get("b", 1) == view("b")  # asked for again
