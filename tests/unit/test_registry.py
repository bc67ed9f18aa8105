"""Sources of modes: the wire, the log, or whichever there is; what goes wrong, who shares them, how they end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import pytest

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.topic_view import ReplacedBy, TopicView
from modeaware.views import choice, registry
from modeaware.views.choice import ModeSource
from modeaware.views.source import Views
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.fake_sources import Acquire, FakeTail, log_of, threads
from tests.support.modelog import topic_record
from tests.support.program import run_program
from tests.support.waiting import eventually


@pytest.fixture
def tail(monkeypatch: pytest.MonkeyPatch) -> type[FakeTail]:
    """No Kafka: there is no log, until the test says that there is one."""
    FakeTail.made, FakeTail.log = [], None
    monkeypatch.setattr("modeaware.views.log.Tail", FakeTail)
    return FakeTail


class TestAuto:
    def test_no_log_is_an_answer_once_a_server_without_the_feature_has_answered(
        self, acquire: Acquire, endpoint: FakeEndpoint, tail: type[FakeTail]
    ) -> None:
        endpoint.stop()
        views, wire = acquire("auto"), acquire("wire")
        eventually(lambda: "refused" in str(views.error()) and "refused" in str(wire.error()))
        assert wire.stats()["wire"] == "failed"
        assert not views.wait_ready(0.3)
        endpoint.has_feature = False
        endpoint.start()
        assert views.wait_ready(30)
        assert (views.views(), views.error()) == ({}, None)
        eventually(lambda: (views.stats()["source"], views.stats()["wire"]) == ("log", "absent"))

    def test_from_the_log_to_the_wire_and_back_no_view_goes_back(
        self, acquire: Acquire, endpoint: FakeEndpoint, tail: type[FakeTail]
    ) -> None:
        tail.log = log_of(1, 2)
        endpoint.has_feature = False
        views = acquire("auto", interval_ms=100)
        heard: list[int] = []

        def listen(changed: Mapping[str, TopicView]) -> None:
            heard.extend(view.epoch for view in changed.values())

        assert views.wait_ready(30)
        views.subscribe(listen)
        endpoint.views["orders"] = topic_record("orders", 1).view()  # it lags behind
        endpoint.has_feature = True
        eventually(lambda: views.stats()["source"] == "wire")
        views.refresh(10)
        assert views.view("orders").epoch == 2
        endpoint.views["orders"] = topic_record("orders", 5).view()
        eventually(lambda: views.view("orders").epoch == 5)
        tail.log = log_of(1, 2, 4)  # the log lags behind
        endpoint.stop()
        eventually(lambda: tail.made[0].runs == 2)
        eventually(lambda: views.stats()["source"] == "log" and views.error() is None)
        assert views.view("orders").epoch == 5
        tail.log = log_of(1, 2, 4, 5, 6)
        eventually(lambda: views.view("orders").epoch == 6)
        assert heard == [2, 5, 6]
        endpoint.start()
        endpoint.views["orders"] = topic_record("orders", 7).view()
        eventually(lambda: views.view("orders").epoch == 7)
        eventually(lambda: views.stats()["source"] == "wire")


class TestWithoutKafkaPython:
    @pytest.mark.parametrize("mode_source", ["wire", "auto"])
    def test_it_is_named_where_only_the_wire_can_tell(self, endpoint: FakeEndpoint, mode_source: str) -> None:
        program = f"""
            import sys
            sys.modules["kafka"] = None  # as if it were not installed
            from modeaware.config import ClientConfig
            from modeaware.views.registry import acquire
            config = ClientConfig(mode_source={mode_source!r}, refresh_interval_ms=100)
            views = acquire({{"bootstrap.servers": {endpoint.address!r}}}, config)
            while not isinstance(views.error(), ImportError):
                assert not views.wait_ready(0.05)
            assert not views.wait_ready(0.5)
            print(type(views.error()).__name__, views.error())
            views.close()
        """
        done = run_program(program)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("MissingExtra")
        assert "install modeaware[" in done.stdout

    def test_a_log_does_as_well(self, acquire: Acquire, tail: type[FakeTail], monkeypatch: pytest.MonkeyPatch) -> None:
        def not_installed(*_args: object, **_more: object) -> None:
            raise ImportError("no kafka-python")

        monkeypatch.setattr("modeaware.views.wire.WireSource.point_to", not_installed)
        tail.log = log_of(1)
        views = acquire("auto")
        assert views.wait_ready(30)
        eventually(lambda: views.stats()["wire_error"])
        assert views.error() is None
        assert views.view("orders").epoch == 1


class TestWire:
    def test_a_hint_has_it_asked_soon_and_once(
        self, acquire: Acquire, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(choice, "SOON_S", 1.5)
        views = acquire()
        assert views.wait_ready(30)
        endpoint.metadata()
        for _ in range(1000):
            views.refresh_soon()
        eventually(lambda: endpoint.asked)
        assert [request.fresh for request in endpoint.asked] == [True]

    def test_new_topic_is_followed_within_a_moment_until_the_topic_is_released(
        self, acquire: Acquire, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(choice, "SOON_S", 0.01)
        view, to = topic_record("orders", 1).view(), ReplacedBy("orders-v2", "v2-id", 4)
        endpoint.views["orders"] = replace(view, replaced_by=to)
        views = acquire()  # which would ask again after minutes
        assert views.wait_ready(30)
        endpoint.views["orders"] = replace(view, version=(1, 2), replaced_by=replace(to, switched=True))
        eventually(lambda: views.view("orders").epoch == 2)
        released = replace(to, switched=True, released=True)
        endpoint.views["orders"] = replace(view, version=(1, 3), replaced_by=released)
        eventually(lambda: views.view("orders").replaced_by == released)
        asked = len(endpoint.asked)
        views.refresh_soon()
        eventually(lambda: len(endpoint.asked) > asked)
        assert [request.fresh for request in endpoint.asked[asked:]] == [True], "only what was asked for"

    def test_where_nobody_has_the_feature_it_is_an_error_until_somebody_has(
        self, acquire: Acquire, endpoint: FakeEndpoint
    ) -> None:
        endpoint.has_feature = False
        views = acquire(interval_ms=100)
        eventually(lambda: views.error())
        assert "no bootstrap server has the feature" in str(views.error())
        assert views.stats()["wire"] == "absent"
        with pytest.raises(ModeSourceError, match="no bootstrap server"):
            views.refresh(0.05)
        endpoint.has_feature = True
        assert views.wait_ready(30)
        eventually(lambda: views.error() is None)


class TestSharing:
    def test_the_groups_of_all_consumers_are_named_and_no_other(self, endpoint: FakeEndpoint) -> None:
        def acquired(**conf: str) -> Views:
            settings = {"bootstrap.servers": endpoint.address, **conf}
            return registry.acquire(settings, ClientConfig(mode_source="wire"))

        with closing(acquired()), closing(acquired(**{"group.id": "billing"})) as views:
            with closing(acquired(**{"group.id": "audit"})):
                views.refresh(30)
            views.refresh(30)
            assert [request.groups for request in endpoint.asked[-2:]] == [["audit", "billing"], ["billing"]]

    def test_group_that_joins_a_source_is_asked_about_soon(
        self, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(choice, "SOON_S", 0.01)
        settings, config = {"bootstrap.servers": endpoint.address}, ClientConfig(mode_source="wire")
        with closing(registry.acquire(settings, config)) as first:  # which would ask again after minutes
            assert first.wait_ready(30)
            with closing(registry.acquire({**settings, "group.id": "billing"}, config)):
                eventually(lambda: endpoint.asked[-1:] and endpoint.asked[-1].groups == ["billing"])

    def test_a_close_ends_a_question_that_is_under_way(self, endpoint: FakeEndpoint) -> None:
        before = len(threads())
        views = registry.acquire({"bootstrap.servers": endpoint.address}, ClientConfig(mode_source="wire"))
        assert views.wait_ready(30)
        endpoint.metadata()
        endpoint.answering.clear()
        views.refresh_soon()
        eventually(lambda: endpoint.asked)
        for _ in range(2):
            views.close()
        eventually(lambda: len(threads()) == before)
        assert views.error() is None
        views.subscribe(print)
        assert views.live_id("orders", 1) is None
        with pytest.raises(ModeSourceError, match="closed"):
            views.refresh(1)


class Failure:
    """In the place of a function: fails, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, *_: object, **__: object) -> None:
        self.times += 1
        raise TypeError("not what it takes")


def test_handle_that_closes_while_groups_are_collected_does_not_disturb(tail: type[FakeTail]) -> None:
    """A source's thread collects the groups of its handles, and any thread may close one of these."""

    class Group(str):
        def __bool__(self) -> bool:
            closing_one.start()
            closing_one.join(0.3)
            return True

    conf, config = {"bootstrap.servers": "127.0.0.1:1"}, ClientConfig(mode_source="log")
    stays = registry._Handle(conf, config)
    closes = registry._Handle(conf, config)
    closing_one = threading.Thread(target=closes.close)
    with closing(stays):
        stays.group = Group("g")
        shared = stays._shared
        assert shared is not None
        assert shared.groups() == {"g"}
        closing_one.join(30)
        assert len(shared.users) == 1


def test_source_that_fails_unexpectedly_starts_again(acquire: Acquire, tail: type[FakeTail]) -> None:
    tail.log, failure = log_of(1), Failure()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "run", failure)
        views = acquire("log")
        eventually(lambda: failure.times >= 2)
        eventually(lambda: "TypeError: not what it takes" in str(views.error()))
    assert views.wait_ready(30)
    assert views.view("orders").epoch == 1


@pytest.mark.parametrize("breaks", ["modeaware.views.choice.Round", "modeaware.views.wire.WireSource.point_to"])
def test_looking_for_the_wire_never_ends_the_tail(
    acquire: Acquire, endpoint: FakeEndpoint, tail: type[FakeTail], breaks: str
) -> None:
    tail.log, failure = log_of(1), Failure()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(breaks, failure)
        views = acquire("auto")
        assert views.wait_ready(30)
        eventually(lambda: failure.times >= 3, message="it is tried again")
        eventually(lambda: "TypeError: not what it takes" in str(views.stats()["probe_error"]))
        tail.log = log_of(1, 2)
        eventually(lambda: views.view("orders").epoch == 2)
        assert tail.made[0].runs == 1
        assert views.error() is None
    endpoint.views["orders"] = topic_record("orders", 3).view()
    eventually(lambda: views.stats()["source"] == "wire")
    assert views.view("orders").epoch == 3


def test_a_thread_that_cannot_be_started_is_tried_again_by_the_next_client(
    acquire: Acquire, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ModeSource, "start", Failure())
        with pytest.raises(TypeError, match="not what it takes"):
            acquire()
    assert acquire().wait_ready(30)
