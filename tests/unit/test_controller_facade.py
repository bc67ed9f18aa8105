"""What a controller tells its endpoint's sessions."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.controller.daemon import ControllerFacade
from modeaware.endpoint.facade import ActiveController
from modeaware.errors import ClusterError, ModeSourceError
from modeaware.modelog.records import ClaimRecord
from tests.support.fake_views import FakeViews
from tests.support.waiting import eventually

TIMEOUT_S = 20.0


class HeldViews(FakeViews):
    """Readings that end when the test sets their event in ``begun``, with ``failure`` if there is one then."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.begun: list[threading.Event] = []

    def refresh(self, timeout_s: float) -> None:
        end = threading.Event()
        self.begun.append(end)
        assert end.wait(TIMEOUT_S)
        super().refresh(timeout_s)

    def began(self, number: int) -> threading.Event:
        """The ``number``-th reading, once it has begun."""
        eventually(lambda: len(self.begun) >= number, interval_s=0.005)
        return self.begun[number - 1]


@pytest.fixture
def views() -> HeldViews:
    return HeldViews()


@pytest.fixture
def desk(views: HeldViews) -> Iterator[ControllerFacade]:
    desk = ControllerFacade("c1", "refuse", views, lambda: False)
    yield desk
    desk.close()
    for end in views.begun:
        end.set()


def _endpoint(loopback: bool) -> Any:
    """The server that asks."""
    return SimpleNamespace(advertised=("endpoint.example", 9690), loopback=loopback)


HERE, ELSEWHERE = socket.gethostname(), "another-host.example"
NOWHERE = ActiveController("c2")


@pytest.mark.parametrize(
    ("loopback", "address", "host", "told"),
    [
        (True, "127.0.0.1:9690", HERE, ActiveController("c2", "127.0.0.1", 9690)),
        (True, "127.0.0.1:9690", ELSEWHERE, NOWHERE),
        (True, "localhost:9690", ELSEWHERE, NOWHERE),
        (True, "c2.example:9690", ELSEWHERE, ActiveController("c2", "c2.example", 9690)),
        (True, "[2001:db8::1]:9690", ELSEWHERE, ActiveController("c2", "2001:db8::1", 9690)),
        (True, "rubbish", HERE, NOWHERE),
        (True, "c2.example:0", HERE, NOWHERE),
        # A client from another host would take a loopback address for its own.
        (False, "127.0.0.1:9690", HERE, NOWHERE),
        (False, "[::1]:9690", HERE, NOWHERE),
        (False, "localhost:9690", HERE, NOWHERE),
        (False, "c2.example:9690", HERE, ActiveController("c2", "c2.example", 9690)),
    ],
)
def test_the_active_one_has_an_address_where_one_reaches_it(
    desk: ControllerFacade, views: HeldViews, loopback: bool, address: str, host: str, told: ActiveController
) -> None:
    desk.serve_at(_endpoint(loopback))
    views.set_claim(ClaimRecord(3, address, "c2", host=host))
    assert desk.claim() == told


def test_refreshes_before_a_read_begins_share_it(desk: ControllerFacade, views: HeldViews) -> None:
    first = desk.refresh()
    end = views.began(1)
    later = [desk.refresh() for _ in range(3)]  # what is in the log now, the first reading may not see
    end.set()
    assert first.result(TIMEOUT_S) is None
    end = views.began(2)
    assert not any(future.done() for future in later)
    end.set()
    for future in later:
        assert future.result(TIMEOUT_S) is None
    assert views.refreshes == 2


def test_close_ends_waiting_refreshes_with_an_error(desk: ControllerFacade, views: HeldViews) -> None:
    running = desk.refresh()
    end = views.began(1)
    waiting = [desk.refresh(), desk.refresh()]
    desk.close()
    for future in waiting:
        assert isinstance(future.exception(TIMEOUT_S), ModeSourceError)
    views.failure = ModeSourceError("closed")
    end.set()
    assert running.exception(TIMEOUT_S) is views.failure
    assert (views.closed, views.listener_count, views.refreshes) == (True, 0, 1)


def test_it_knows_nothing_before_the_log_has_been_read() -> None:
    views = FakeViews(ready=False)
    views.failure = ClusterError("no broker")
    views.set_claim(ClaimRecord(1, "127.0.0.1:1", "c1"))
    desk = ControllerFacade("c1", "serve", views, lambda: False)
    desk.serve_at(_endpoint(loopback=True))
    for ask in (desk.records, desk.claim, lambda: desk.views("orders")):
        with pytest.raises(ModeSourceError, match="not been read") as caught:
            ask()
        assert caught.value.__cause__ is views.failure
    views.set_ready()
    assert desk.records() == {}
    assert desk.claim() is not None
    desk.close()
