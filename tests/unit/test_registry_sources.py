"""The wire as the source of modes: what is asked when, what goes wrong, who shares it, and how it ends."""

from __future__ import annotations

import logging

import pytest

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.views import choice, registry
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.fake_sources import Acquire, threads
from tests.support.modelog import topic_record
from tests.support.program import run_program
from tests.support.waiting import eventually


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

    def test_nobody_there_is_an_error_and_not_absent(self, acquire: Acquire, endpoint: FakeEndpoint) -> None:
        endpoint.stop()
        views = acquire()
        eventually(lambda: "refused" in str(views.error()))
        assert views.stats()["wire"] == "failed"
        assert not views.ready
        endpoint.start()
        assert views.wait_ready(30)
        eventually(lambda: views.error() is None)

    def test_the_last_views_outlive_the_server(
        self, acquire: Acquire, endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
    ) -> None:
        endpoint.views["orders"] = topic_record("orders", 1).view()
        views = acquire(interval_ms=100)
        assert views.wait_ready(30)
        endpoint.stop()
        eventually(lambda: views.error())
        assert views.view("orders").epoch == 1
        assert views.stats()["stale"] is True
        with pytest.raises(ModeSourceError):
            views.refresh(1)
        assert any("the last views stay in force" in message for message in caplog.messages)
        endpoint.views["orders"] = topic_record("orders", 2).view()
        endpoint.start()
        eventually(lambda: views.view("orders").epoch == 2)
        eventually(lambda: views.error() is None)


class TestSharing:
    def test_a_close_does_not_wait_for_a_silent_server(self, endpoint: FakeEndpoint) -> None:
        before = len(threads())
        endpoint.answering.clear()
        views = registry.acquire({"bootstrap.servers": endpoint.address}, ClientConfig(mode_source="wire"))
        eventually(lambda: endpoint.connections)
        views.close()
        eventually(lambda: len(threads()) == before)

    def test_a_close_ends_a_question_that_is_under_way(self, endpoint: FakeEndpoint) -> None:
        before = len(threads())
        views = registry.acquire({"bootstrap.servers": endpoint.address}, ClientConfig(mode_source="wire"))
        assert views.wait_ready(30)
        endpoint.metadata()
        endpoint.answering.clear()
        views.refresh_soon()
        eventually(lambda: endpoint.asked)
        views.close()
        eventually(lambda: len(threads()) == before)
        assert views.error() is None

    def test_an_unexpected_error_is_told_and_it_starts_again(
        self, acquire: Acquire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(choice, "FIRST_BACKOFF_S", 0.05)
        with monkeypatch.context() as patch:
            patch.setattr("modeaware.views.wire.WireSource.point_to", lambda *_args, **_more: 1 // 0)
            views = acquire()
            eventually(lambda: "ZeroDivisionError" in str(views.error()))
        assert views.wait_ready(30)
        eventually(lambda: views.error() is None)
        assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)

    def test_forks_and_exits(self, endpoint: FakeEndpoint) -> None:
        endpoint.views["orders"] = topic_record("orders", 1).view()
        program = f"""
            import gc, os, sys, threading
            from modeaware.config import ClientConfig
            from modeaware.views.registry import acquire
            config = ClientConfig(mode_source="wire", refresh_interval_ms=100)
            views = acquire({{"bootstrap.servers": {endpoint.address!r}}}, config)
            assert views.wait_ready(30)
            listener = lambda changed: None
            views.subscribe(listener)
            child = os.fork()
            if child == 0:
                views.unsubscribe(listener)
                assert [t.name for t in threading.enumerate()] == ["MainThread"]
                assert views.wait_ready(30) and views.view("orders").epoch == 1
                views.refresh(30)
                gc.collect()
                views.close()
                unused = acquire({{"bootstrap.servers": {endpoint.address!r}}}, config)
                sys.exit(7)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 7, status
            views.refresh(30)
            print("ok")
        """
        done = run_program(program)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")

    def test_one_thread_for_all_clients_of_a_cluster_and_source(self, acquire: Acquire) -> None:
        before = len(threads())
        first, second, other = acquire("wire"), acquire("wire"), acquire("log")
        assert len(threads()) == before + 2
        assert first.wait_ready(30)
        for views in (first, second, other):
            views.close()
        eventually(lambda: len(threads()) == before)
