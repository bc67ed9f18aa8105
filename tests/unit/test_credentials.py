"""Other credentials of a living client: they reach the clients of ours beside it, and no other client's."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn

import pytest

from modeaware import AdminClient, Consumer, Producer
from modeaware.clients.settings import TokenCallback
from modeaware.config import ClientConfig
from modeaware.confluent.ownership import GroupUnknown
from modeaware.errors import ModeSourceError
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.modelog.connection import cluster_key
from modeaware.testing.modes import FakeViews, modes_of
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.source import Views
from modeaware.views.store import ViewStore
from modeaware.views.topic_ids import IdChecks
from modeaware.views.wire import WireSource
from tests.support.fake_sources import FakeTail, log_of, threads
from tests.support.modelog import topic_record
from tests.support.offline import finish
from tests.support.simulated import SimClock
from tests.support.waiting import eventually

CONF = {
    "bootstrap.servers": "127.0.0.1:1",
    "log_level": 0,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "old",
}


class GuardedTail(FakeTail):
    """A tail that reads with the password in force alone."""

    accepted: ClassVar[set[str]] = {"old"}

    def __init__(self, conf: Mapping[str, Any], *more: Any) -> None:
        super().__init__(conf, *more)
        self.password = conf["sasl.password"]

    def run(self) -> None:
        while self.password not in self.accepted and not self.stopping.is_set() and self.sink.wanted():
            self.sink.failed(ModeSourceError("mode log: authentication failed"))
            self.stopping.wait(0.005)
        super().run()


@pytest.fixture
def tail(monkeypatch: pytest.MonkeyPatch) -> type[GuardedTail]:
    FakeTail.made, FakeTail.log = [], log_of(1)
    monkeypatch.setattr(GuardedTail, "accepted", {"old"})
    monkeypatch.setattr("modeaware.views.log.Tail", GuardedTail)
    return GuardedTail


@pytest.fixture
def made(tail: type[GuardedTail]) -> Iterator[list[Views]]:
    made: list[Views] = []
    yield made
    for views in made:
        views.close()
    eventually(lambda: not registry.sources(), message="a source that still ends would be the next test's")


def acquire(made: list[Views]) -> Views:
    made.append(registry.acquire(CONF, ClientConfig(mode_source="log")))
    return made[-1]


class TestSources:
    def test_views_keep_no_callback_of_a_client_alive(self, tail: type[GuardedTail], made: list[Views]) -> None:
        def on_resize(resize: object) -> None:
            raise AssertionError("nothing is resized")

        callback = weakref.ref(on_resize)
        made.append(registry.acquire(CONF, ClientConfig(mode_source="log", resize_callback=on_resize)))
        del on_resize
        gc.collect()
        assert callback() is None

    def test_views_follow_and_never_go_back(self, tail: type[GuardedTail], made: list[Views]) -> None:
        views, heard = acquire(made), list[int]()
        assert views.wait_ready(30)
        views.subscribe(lambda changed: heard.extend(view.epoch for view in changed.values()))
        tail.accepted = set()
        tail.made[0].password = "old"
        views.set_sasl_credentials("alice", "new")
        assert (views.ready, views.view("orders").epoch) == (True, 1)
        eventually(lambda: views.error())
        assert views.view("orders").epoch == 1
        FakeTail.log = log_of(1, 2)
        tail.accepted = {"new"}
        eventually(lambda: views.view("orders").epoch == 2)
        assert heard == [1, 1, 2]
        eventually(lambda: len(threads()) == 1, message="the source without clients ends")

    def test_other_clients_keep_their_source_until_they_have_the_same(
        self, tail: type[GuardedTail], made: list[Views]
    ) -> None:
        first, second = acquire(made), acquire(made)
        assert first.stats()["clients"] == 2
        first.set_sasl_credentials("alice", "new")
        first.set_sasl_credentials("alice", "new")
        assert (first.stats()["clients"], second.stats()["clients"]) == (1, 1)
        tail.accepted = {"new"}
        late = acquire(made)
        late.set_sasl_credentials("alice", "new")
        assert late.stats()["clients"] == 2
        assert late.wait_ready(30)

    def test_waiting_continues_at_the_new_source(self, tail: type[GuardedTail], made: list[Views]) -> None:
        tail.accepted = {"new"}
        views, arrived = acquire(made), list[bool]()
        thread = threading.Thread(target=lambda: arrived.append(views.wait_ready(2)))
        thread.start()
        views.set_sasl_credentials("alice", "new")
        thread.join()
        assert arrived == [True]

    def test_closed_handle_stays_closed(self, made: list[Views], tail: type[GuardedTail]) -> None:
        views = acquire(made)
        views.close()
        begun = len(tail.made)
        views.set_sasl_credentials("alice", "new")
        assert len(tail.made) == begun <= 1

    def test_topics_that_the_other_source_lacks_are_gone_for_listeners(
        self, tail: type[GuardedTail], made: list[Views]
    ) -> None:
        """The old password is refused, so the removal of a topic's record reaches the source of other clients alone."""
        views, heard = acquire(made), dict[str, TopicView]()
        assert views.wait_ready(30)
        views.subscribe(heard.update)
        assert heard["orders"].modes
        tail.made[0].stopping.set()
        [record] = log_of(1)
        FakeTail.log, tail.accepted = [record, replace(record, offset=1, value=None)], {"new"}
        other = registry.acquire({**CONF, "sasl.password": "new"}, ClientConfig(mode_source="log"))
        made.append(other)
        assert other.wait_ready(30)
        views.set_sasl_credentials("alice", "new")
        assert views.view("orders") == heard["orders"] == TopicView.unlisted("orders")

    def test_handle_that_is_closed_while_it_moves_keeps_no_source(
        self, tail: type[GuardedTail], made: list[Views], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        views, heard = acquire(made), list[object]()
        views.subscribe(heard.append)
        self.during_the_move(monkeypatch, views.close)
        views.set_sasl_credentials("alice", "new")
        eventually(lambda: not threads() and not registry.sources())
        tail.made[-1].sink.begin()
        assert not any(shared.users for shared in registry._registry.shared.values())

    def test_last_of_two_rotations_at_once_counts(
        self, tail: type[GuardedTail], made: list[Views], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tail.accepted = {"third"}
        views = acquire(made)
        third = threading.Thread(target=views.set_sasl_credentials, args=("alice", "third"))

        def rotate_again() -> None:
            third.start()
            third.join(0.3)  # in vain: it waits for the first one

        self.during_the_move(monkeypatch, rotate_again)
        views.set_sasl_credentials("alice", "second")
        third.join()
        eventually(lambda: views.ready)
        assert views.stats()["clients"] == 1

    def during_the_move(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        """Have ``act`` called when a handle has entered another source, and has not left its own."""
        enter = registry._registry.enter

        def entering(*args: Any) -> Any:
            entered = enter(*args)
            monkeypatch.setattr(registry._registry, "enter", enter)
            act()
            return entered

        monkeypatch.setattr(registry._registry, "enter", entering)

    def test_ids_of_topics_in_use_are_compared_on(
        self, made: list[Views], tail: type[GuardedTail], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken: list[set[str]] = []
        views = acquire(made)
        assert views.wait_ready(30)
        views.verify(["unlisted"], 0.1)
        monkeypatch.setattr(IdChecks, "use", lambda _, topics: taken.append(set(topics)))
        views.set_sasl_credentials("alice", "new")
        assert taken == [{"unlisted"}]


class TestStore:
    def view(self, topic: str, epoch: int) -> TopicView:
        return topic_record(topic, epoch).view()

    def store(self, clock: SimClock, *views: TopicView) -> ViewStore:
        made = ViewStore(lambda *_: None, 1000, clock)
        made.publish(views)
        made.confirm()
        clock.time_ms += 1000
        return made

    def test_store_that_was_confirmed_later_is_right(self) -> None:
        clock = SimClock()
        stale = self.store(clock, self.view("gone", 1), self.view("orders", 1))
        fresh = self.store(clock, self.view("orders", 2))
        fresh.continue_from(stale)
        assert {view.topic: view.epoch for view in fresh.views().values()} == {"orders": 2}
        stale.continue_from(fresh)
        assert stale.view("orders").epoch == 2

    def test_view_never_goes_back_to_that_of_a_later_confirmed_store_whose_reader_lags(self) -> None:
        clock = SimClock()
        earlier = self.store(clock, self.view("orders", 2), self.view("gone", 1))
        earlier.past_ids["past"] = (1, 1)
        lagging, heard = self.store(clock, self.view("orders", 1)), list[TopicView]()
        lagging.subscribe(lambda changed: heard.extend(changed.values()))
        lagging.continue_from(earlier)
        assert {view.topic: view.epoch for view in lagging.views().values()} == {"orders": 2}
        assert [view.epoch for view in heard] == [1, 2]
        assert dict(lagging.past_ids) == {"past": (1, 1)}

    def test_new_store_begins_with_all_there_is(self) -> None:
        clock = SimClock()
        earlier = self.store(clock, self.view("orders", 3))
        earlier.past_ids["past"] = (1, 1)
        earlier.choose("orders", "another-id")
        new, heard = ViewStore(lambda *_: None, 1000, clock), list[object]()
        new.subscribe(heard.append)
        new.continue_from(earlier)
        assert (new.ready, new.is_aside("id-of-orders"), dict(new.past_ids)) == (True, True, {"past": (1, 1)})
        assert len(heard) == 1
        assert new.stats()["view_age_ms"] == earlier.stats()["view_age_ms"]

    def test_nothing_comes_of_one_that_has_no_views(self) -> None:
        clock = SimClock()
        new = ViewStore(lambda *_: None, 1000, clock)
        new.continue_from(ViewStore(lambda *_: None, 1000, clock))
        assert not new.ready


class TestClients:
    @pytest.fixture
    def views(self, monkeypatch: pytest.MonkeyPatch) -> FakeViews:
        made = FakeViews()
        monkeypatch.setattr(registry, "acquire", lambda conf, config: made)
        return made

    def test_producer(self, views: FakeViews) -> None:
        producer = Producer(CONF)
        producer.set_sasl_credentials("alice", "new")
        assert views.credentials == ("alice", "new")
        finish(producer)

    def test_consumer_and_its_clients_for_requests(self, views: FakeViews, monkeypatch: pytest.MonkeyPatch) -> None:
        passwords: list[str] = []

        def connect(conf: Mapping[str, Any]) -> NoReturn:
            passwords.append(conf["sasl.password"])
            raise KafkaException(KafkaError(KafkaError._FAIL))

        monkeypatch.setattr("modeaware.confluent.offsets.Consumer", connect)
        monkeypatch.setattr("modeaware.confluent.ownership.AdminClient", connect)
        with closing(Consumer({**CONF, "group.id": "g"})) as consumer:
            consumer.set_sasl_credentials(username="alice", password="new")
            assert views.credentials == ("alice", "new")
            assert consumer._membership._non_member.topics() == frozenset()
            with pytest.raises(GroupUnknown):
                consumer._membership._ownership._describer.describe("m", set())
        assert passwords == ["new", "new"]

    def test_admin_client(self, views: FakeViews) -> None:
        with AdminClient(CONF) as admin:
            admin.set_sasl_credentials("alice", "first")
            assert admin.describe_modes(["t"])["t"].result(30).topic == "t"
            admin.set_sasl_credentials("alice", "new")
            assert views.credentials == ("alice", "new")
            assert admin._calls.conf["sasl.password"] == "new"


@dataclass
class Provider:
    """Cannot be hashed, and is equal to any other."""

    token: str = "t"


class Callback(dict[str, str]):
    def __call__(self, _: str) -> tuple[str, float]:
        return "t", 0.0


@dataclass(frozen=True)
class FrozenCallback:
    """Its class has a hash, which fails."""

    scopes: list[str] = field(default_factory=list)

    def __call__(self, _: str) -> tuple[str, float]:
        return "t", 0.0


@pytest.mark.parametrize("callback", [Callback, FrozenCallback, lambda of=None: TokenCallback(of or Provider())])
def test_callback_that_cannot_be_hashed_is_compared_by_identity(callback: Callable[..., Any]) -> None:
    one, other = callback(), callback()
    same = TokenCallback(one.provider) if isinstance(one, TokenCallback) else one
    keys = [cluster_key({"bootstrap.servers": "a:1", "oauth_cb": each}, "log") for each in (one, same, other)]
    assert keys[0] == keys[1] != keys[2]
    assert len({*keys}) == 2


def test_versions_that_are_counted_here_continue_from_those_of_the_earlier_source() -> None:
    store = ViewStore(lambda *_: None, 1000)
    store.publish([TopicView("orders", None, (0, 5), modes_of(4, 4))])
    counted = WireSource({}, store)._counted("orders", modes_of(4, 2))
    assert counted.version == (0, 6)
