"""``auto``: the wire, the log, whichever there is, and what happens when that changes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from modeaware.topic_view import TopicView
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.fake_sources import Acquire, FakeTail, log_of
from tests.support.modelog import topic_record
from tests.support.program import run_program
from tests.support.waiting import eventually


@pytest.fixture
def tail(monkeypatch: pytest.MonkeyPatch) -> type[FakeTail]:
    """No Kafka: there is no log, until the test says that there is one."""
    FakeTail.made, FakeTail.log, FakeTail.silent = [], None, False
    monkeypatch.setattr("modeaware.views.log.Tail", FakeTail)
    return FakeTail


class TestAuto:
    def test_no_log_and_no_feature_is_an_answer(
        self, acquire: Acquire, endpoint: FakeEndpoint, tail: type[FakeTail]
    ) -> None:
        endpoint.has_feature = False
        views = acquire("auto")
        assert views.wait_ready(30)
        assert (views.views(), views.error()) == ({}, None)
        eventually(lambda: (views.stats()["source"], views.stats()["wire"]) == ("log", "absent"))

    def test_no_log_is_none_while_no_server_answers(
        self, acquire: Acquire, endpoint: FakeEndpoint, tail: type[FakeTail]
    ) -> None:
        endpoint.stop()
        views = acquire("auto")
        eventually(lambda: views.error())
        assert not views.wait_ready(0.3)
        assert "refused" in str(views.error())
        endpoint.has_feature = False
        endpoint.start()
        assert views.wait_ready(30)
        assert views.error() is None

    def test_the_servers_are_asked_again_and_the_wire_taken_when_it_comes(
        self, acquire: Acquire, endpoint: FakeEndpoint, tail: type[FakeTail]
    ) -> None:
        endpoint.has_feature = False
        tail.log = log_of(1)
        views = acquire("auto", interval_ms=100)
        assert views.wait_ready(30)
        eventually(lambda: endpoint.probed > 2)
        endpoint.views["orders"] = topic_record("orders", 2).view()
        endpoint.has_feature = True
        eventually(lambda: views.view("orders").epoch == 2)
        eventually(lambda: views.stats()["source"] == "wire")

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
