"""One client's connection and the connection to a broker that belongs to it: a session with its IO."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import ssl
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from modeaware.endpoint.deadlines import Deadlines
from modeaware.endpoint.desk import REFRESH_TIMEOUT_S, Action, Close, Outcome, Refresh, Submit, ToClient, ToUpstream
from modeaware.endpoint.link import Link
from modeaware.endpoint.services import Services
from modeaware.endpoint.session import Session
from modeaware.endpoint.tickets import Ticket
from modeaware.endpoint.tls import TlsStream
from modeaware.endpoint.upstream import NoBroker
from modeaware.errors import ModeAwareError
from modeaware.wire.frames import MalformedFrame

logger = logging.getLogger(__name__)

_LOGGED_CHARACTERS = 500


class Connection:
    """Carries out what a session decides, and keeps both peers within their limits.

    Reads from the client while its session takes more, both peers take what is sent to them, and the broker's
    connection is not just being made; reads from the broker while the client takes answers. The broker's connection is
    made when there is something to send. All in the loop's thread.
    """

    __slots__ = (
        "_broker_lost",
        "_deadlines",
        "_ended",
        "_full",
        "_opening",
        "_services",
        "_session",
        "_tickets",
        "_unsent",
        "_upstream",
        "_waiting",
        "client",
    )

    def __init__(self, services: Services) -> None:
        tls = TlsStream(services.tls) if services.tls is not None else None
        self.client = Link(self, services.room, services.limits.request_bytes, tls)
        self._services = services
        self._deadlines = Deadlines(services.loop, services.limits, services.quotas, self._time_is_up)
        self._session: Session | None = None  # made with the first request: who scans ports never sends one
        self._upstream: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._broker_lost = False
        self._full: set[Link] = set()
        self._waiting: deque[bytes] = deque()
        self._unsent: list[bytes] = []
        self._tickets: dict[int, Ticket] = {}
        self._ended = False

    @property
    def name(self) -> str:
        """The client's address, for the log."""
        return "{}:{}".format(*self.client.peer)

    def stop(self) -> None:
        """Close it because the endpoint stops: what is answered already is still sent."""
        self._end(logging.DEBUG, "stopped", "the endpoint stops")

    def abort(self) -> None:
        """Close both ends now."""
        self._let_go()
        self.client.abort()

    # What links tell

    def link_made(self, link: Link) -> None:
        if reason := self._services.places.take(link.peer[0]):
            self._services.log.log(logging.WARNING, "closed a new connection", "closed a connection: %s", reason)
            link.abort()
            return
        self._services.connections.add(self)
        self._deadlines.watch()

    def link_frames(self, link: Link, frames: list[bytes]) -> None:
        session = self._session
        if self._ended or not frames:
            self._account()
            return
        self._deadlines.progressed()
        if link is self.client:
            if session is None:
                self._session = self._services.new_session()
                self._deadlines.asked = True
            self._waiting.extend(frames)
        elif session is not None:
            for payload in frames:
                self._step(session.from_upstream, payload)
        self._go_on()

    def link_failed(self, link: Link, error: MalformedFrame | ssl.SSLError) -> None:
        who = "" if link is self.client else "its broker: "
        self._end(logging.WARNING, "closed a connection that sent rubbish", f"{who}{error}")

    def link_full(self, link: Link, full: bool) -> None:
        if full:
            self._full.add(link)
        else:
            self._full.discard(link)
        if self._ended:
            return
        self._deadlines.full("it" if link is self.client else "its broker", full)
        if link is self.client and self._upstream is not None:
            self._upstream.read(not full)
        if not full:
            self._go_on()

    def link_eof(self, link: Link) -> None:
        if link is self.client:
            self._end(logging.DEBUG, "closed by its client", "its client has closed it")
        else:
            link.abort()

    def link_lost(self, link: Link, error: Exception | None) -> None:
        if link is not self.client:
            self._broker_lost = True
            self._go_on()
            return
        if self not in self._services.connections:
            return  # there was no place for it
        if error is not None and not self._ended:
            self._services.log.log(logging.INFO, "lost a connection", "lost the connection of %s: %s", self.name, error)
        self._services.connections.discard(self)
        self._services.places.leave(link.peer[0])
        self._let_go()

    # The conversation

    def _go_on(self) -> None:
        """Take as many requests as may be taken now; read more from the client if all are."""
        session = self._session
        if session is None:
            return
        while self._waiting and self._takes_more(session):
            self._step(session.from_client, self._waiting.popleft())
        self._deadlines.working = bool(self._tickets)
        if self._broker_lost and not self._tickets:
            # What came from the broker before has been handed to the client's socket.
            self._end(logging.INFO, "closed by a broker", "the broker has closed its connection")
        if self._ended:
            return
        self.client.read(not self._waiting and self._takes_more(session))
        self._account()

    def _takes_more(self, session: Session) -> bool:
        # Behind a command everything waits anyway, and costs least in the client's own buffers.
        busy = self._ended or self._broker_lost or self._opening or self._full or self._tickets
        return not busy and session.wants_more

    def _step(self, step: Callable[..., list[Action]], *arguments: Any) -> None:
        if self._ended:
            return
        try:
            actions = step(*arguments)
        except Exception as error:  # noqa: BLE001 - a bug that one peer's bytes find ends its connection and no other
            self._bug(error)
            return
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case ToClient(payload):
                self.client.send(payload)
                self._deadlines.progressed()
            case ToUpstream(payload):
                self._to_upstream(payload)
            case Submit(ticket, commands, timeout_ms):
                logger.info("%s asks: %s", self.name, repr(list(commands))[:_LOGGED_CHARACTERS])
                late = f"not done within {timeout_ms} ms; it may still be carried out: look at the topic first"
                submit = partial(self._services.submit, commands, timeout_ms)
                self._wait_for(ticket, "a command", submit, timeout_ms / 1000, late)
            case Refresh(ticket):
                late = f"the mode log was not read to its end within {REFRESH_TIMEOUT_S:g} s"
                self._wait_for(ticket, "a reading of the mode log", self._services.refresh, REFRESH_TIMEOUT_S, late)
            case Close(reason):
                self._end(logging.WARNING, "closed a connection", reason)

    def _to_upstream(self, payload: bytes) -> None:
        if self._upstream is not None:
            self._upstream.send(payload)
            return
        self._unsent.append(payload)
        if self._opening is None:
            services = self._services
            opening = services.upstream.connect(
                lambda tls, opened: Link(self, services.room, services.limits.upstream_bytes, tls, opened)
            )
            self._opening = services.loop.create_task(opening)
            self._opening.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[Link]) -> None:
        self._opening = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, NoBroker):
            self._end(logging.WARNING, "closed connections for want of a broker", str(error), lines=1)
        elif error is not None:
            self._bug(error)
        elif self._ended:
            task.result().abort()
        else:
            self._upstream = task.result()
            unsent, self._unsent = self._unsent, []
            for payload in unsent:
                self._upstream.send(payload)
            self._upstream.read(self.client not in self._full)
            self._deadlines.progressed()
            self._go_on()

    def _wait_for(
        self, number: int, what: str, start: Callable[[], concurrent.futures.Future[Any]], timeout_s: float, late: str
    ) -> None:
        session = self._session
        assert session is not None

        def resolve(outcome: Outcome) -> None:
            self._tickets.pop(number, None)
            self._deadlines.progressed()
            self._step(session.resolved, number, outcome)
            self._go_on()

        try:
            future = start()
        except ModeAwareError as error:  # it has not even been taken
            future = concurrent.futures.Future()
            future.set_exception(error)
        self._tickets[number] = Ticket(self._services.loop, self._services.log, what, future, timeout_s, late, resolve)

    # Its end

    def _bug(self, error: BaseException) -> None:
        # The error's own text may quote what a peer sent.
        where = "".join(traceback.format_tb(error.__traceback__))
        self._end(logging.ERROR, "a bug", f"a bug, {type(error).__name__}:\n{where}")

    def _time_is_up(self, why: str) -> None:
        stuck = self._ended or self.client in self._full
        self._end(logging.INFO, "closed a connection that had its time", why)
        if stuck:
            self.client.abort()

    def _end(self, level: int, kind: str, reason: str, lines: int | None = None) -> None:
        """Close both connections; the client has a while to take what it was sent."""
        if self._ended:
            return
        self._services.log.log(level, kind, "closed the connection of %s: %s", self.name, reason, lines=lines)
        self._let_go()
        self._deadlines.ending()
        self.client.close()

    def _let_go(self) -> None:
        """Of everything but the client."""
        self._ended = True
        self._deadlines.stop()
        for ticket in self._tickets.values():
            ticket.drop()
        self._tickets.clear()
        self._session = None  # and of all that waits in it
        self._waiting.clear()
        self._unsent.clear()
        if self._opening is not None:
            self._opening.cancel()
        if self._upstream is not None:
            self._upstream.abort()
        self._services.held.update(self, 0)

    def _account(self) -> None:
        if self._ended:
            return
        held = self.client.held_bytes + sum(map(len, self._waiting)) + sum(map(len, self._unsent))
        if self._session is not None:
            held += self._session.held_bytes
        if self._upstream is not None:
            held += self._upstream.held_bytes
        greedy = self._services.held.update(self, held)
        if greedy is not None:
            greedy.close_for_room()

    def close_for_room(self) -> None:
        """Close it now: all connections together hold too much, and this one most of it."""
        most = self._services.held.most_bytes
        self._end(logging.WARNING, "closed the one that held most", f"{most} bytes are held, and it holds most of them")
        self.client.abort()
