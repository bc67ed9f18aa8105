"""What the endpoint's sessions may ask of a controller, active or standing by. See ``endpoint.desk.Desk``."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from modeaware.endpoint.desk import REFRESH_TIMEOUT_S, ActiveController
from modeaware.endpoint.server import Server
from modeaware.errors import ModeSourceError
from modeaware.topic_view import TopicView
from modeaware.views.source import Views
from modeaware.wire.client import address_of, is_loopback


class ControllerDesk:
    """The modes as the mode log has them, and who is active.

    Its methods are called in the endpoint's thread and block on nothing; readings to the log's end have a thread of
    their own, ``modeaware-refresh``, while there are any.

    Args:
        controller_id: the name of the controller it stands before.
        old_clients: ``serve`` or ``refuse`` (``modeaware.old.clients``).
        views: of the mode log. The desk closes them.
        active: whether that controller is the active one.
    """

    def __init__(self, controller_id: str, old_clients: str, views: Views, active: Callable[[], bool]) -> None:
        self._controller_id = controller_id
        self._old_clients = old_clients
        self._views = views
        self._active = active
        self._server: Server | None = None
        self._version = 0
        self._lock = threading.Lock()
        self._waiting: list[Future[None]] = []
        self._readings = ThreadPoolExecutor(1, thread_name_prefix="modeaware-refresh")
        views.subscribe(self._changed)

    def serve_at(self, server: Server) -> None:
        """Name the server that asks here, whose address is known once it listens."""
        self._server = server

    def close(self) -> None:
        """Give the views back. Whoever waits for a reading is answered with an error."""
        self._views.unsubscribe(self._changed)
        self._views.close()
        self._readings.shutdown(wait=False, cancel_futures=True)

    @property
    def controller_id(self) -> str:
        return self._controller_id

    @property
    def old_clients(self) -> str:
        return self._old_clients

    @property
    def advertised(self) -> tuple[str, int]:
        return self._asking().advertised

    def views(self, topic: str) -> TopicView:
        return self._ready().view(topic)

    def records(self) -> Mapping[str, TopicView]:
        return self._ready().views()

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        return self._ready().removed(topic_ids)

    def version(self) -> int:
        # Counted after a change is in force: an answer may be newer than what it is kept under, never older.
        return self._version

    def is_active(self) -> bool:
        return self._active()

    def claim(self) -> ActiveController | None:
        claim = self._ready().claim()
        if claim is None:
            return None
        address = address_of(claim)
        if is_loopback(claim.address or ""):
            # Where clients may come from other hosts, it would send them to themselves.
            only_here = self._asking().loopback and claim.host in ("", socket.gethostname())
            address = address if only_here else None
        return ActiveController(claim.controller_id, *(address or ()))

    def refresh(self) -> Future[None]:
        """Have the log read to where it ends now. Those who ask before the reading begins share it."""
        future: Future[None] = Future()
        with self._lock:
            self._waiting.append(future)
            first = len(self._waiting) == 1
        if first:  # not under the lock, which what follows may take at once, in this thread
            served: list[Future[None]] = []
            reading = self._readings.submit(self._read, served)
            reading.add_done_callback(lambda reading: self._answer(reading, served))
        return future

    def _read(self, served: list[Future[None]]) -> None:
        served += self._taken()
        self._views.refresh(REFRESH_TIMEOUT_S)

    def _answer(self, reading: Future[None], served: list[Future[None]]) -> None:
        failure: BaseException | None
        if reading.cancelled():  # before it began
            served, failure = self._taken(), ModeSourceError("the controller stops")
        else:
            failure = reading.exception()
        for future in served:
            if not future.set_running_or_notify_cancel():
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

    def _taken(self) -> list[Future[None]]:
        """All who wait for a reading to begin; whoever comes now waits for the next."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken

    def _asking(self) -> Server:
        assert self._server is not None, "named before anybody can connect"
        return self._server

    def _ready(self) -> Views:
        if not self._views.ready:
            raise ModeSourceError("the mode log has not been read yet") from self._views.error()
        return self._views

    def _changed(self, changed: Mapping[str, TopicView]) -> None:
        self._version += 1
