"""What nobody expects to fail, failing, in the thread of the views: the log is followed, and all is tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from modeaware.config import ClientConfig
from modeaware.views import choice
from modeaware.views.choice import ModeSource
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.fake_sources import Acquire, FakeTail, log_of
from tests.support.modelog import topic_record
from tests.support.waiting import eventually


@pytest.fixture
def tail(monkeypatch: pytest.MonkeyPatch) -> type[FakeTail]:
    FakeTail.made, FakeTail.log, FakeTail.silent = [], log_of(1), False
    monkeypatch.setattr("modeaware.views.log.Tail", FakeTail)
    return FakeTail


def _round(patch: pytest.MonkeyPatch, fail: Callable[..., None]) -> None:
    patch.setattr(choice, "Round", fail)


def _going_over(patch: pytest.MonkeyPatch, fail: Callable[..., None]) -> None:
    patch.setattr("modeaware.views.wire.WireSource.point_to", fail)


@pytest.mark.parametrize("breaks", [_round, _going_over])
def test_looking_for_the_wire_never_ends_the_tail(
    acquire: Acquire,
    endpoint: FakeEndpoint,
    tail: type[FakeTail],
    breaks: Callable[[pytest.MonkeyPatch, Callable[..., None]], None],
) -> None:
    failed = threading.Semaphore(0)

    def fail(*_: object, **__: object) -> None:
        failed.release()
        raise TypeError("not what it takes")

    with pytest.MonkeyPatch.context() as patch:
        breaks(patch, fail)
        views = acquire("auto")
        assert views.wait_ready(30)
        for _ in range(3):  # it is tried again
            assert failed.acquire(timeout=30)
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
    def fail(_self: ModeSource) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(ModeSource, "start", fail)
        with pytest.raises(RuntimeError, match="start new thread"):
            acquire()
    assert acquire().wait_ready(30)


def test_what_was_never_started_can_be_stopped() -> None:
    assert ModeSource({"bootstrap.servers": "127.0.0.1:1"}, ClientConfig(mode_source="wire")).stop(1.0)
