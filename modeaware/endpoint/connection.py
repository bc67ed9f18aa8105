"""A client's connection, and a connection to a broker for this client alone: a session with its IO and its deadlines.

Everything runs in the loop's thread; only the controller's futures are completed in other threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import ssl
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

from modeaware.callouts import get_logger
from modeaware.endpoint.facade import REFRESH_TIMEOUT_S, Action, Close, Outcome, Refresh, Submit, ToClient, ToUpstream
from modeaware.endpoint.limits import BufferBudget, ConnectionSlots, EndpointLimits, RateLimitedLogger
from modeaware.endpoint.session import ClientSession
from modeaware.endpoint.transport import RECEIVE_BYTES, Link, NoBroker, TlsStream, Upstream
from modeaware.endpoint.turns import LARGE_S, Share, Turns
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError
from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.wire.frames import MalformedFrame

logger = get_logger(__name__)

_LOGGED_CHARACTERS = 500
_FRAME_S = 100e-6
_DECODED_BYTE_S, _RELAYED_BYTE_S = 1e-6, 50e-9
"""The CPU time for each byte of a decoded frame, and of a frame that is only relayed, in the most expensive frames."""

SubmitCommands = Callable[[Sequence[Command], int], "concurrent.futures.Future[list[CommandResult]]"]
"""Submits commands to the controller, with a time limit in ms. Called in the loop's thread, so it must not block."""
RefreshViews = Callable[[], "concurrent.futures.Future[None]"]
"""Starts a read of the mode log to its present end. Called in the loop's thread, so it must not block."""


@runtime_checkable
class Expiring(Protocol):
    """A future that can be ended at its deadline, with the results so far."""

    def expire(self) -> None:
        """Begin nothing more, and complete the future now, with a result or an exception."""


class Ticket:
    """Waits for ``future`` and calls ``resolve`` once, in the loop's thread, unless dropped before.

    ``resolve`` gets the future's result or error, or a timeout. A failure is logged, even after the deadline. The
    future is never cancelled, because the controller cannot withdraw a command. At the deadline an :class:`Expiring`
    future ends, and begins no further command.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: RateLimitedLogger,
        what: str,
        future: concurrent.futures.Future[Any],
        timeout_s: float,
        timeout_text: str,
        resolve: Callable[[Outcome], None],
    ) -> None:
        self._loop = loop
        self._future: concurrent.futures.Future[Any] | None = future
        self._log = log
        self._what = what
        self._timeout_text = timeout_text
        self._resolve: Callable[[Outcome], None] | None = resolve
        self._timer = loop.call_later(timeout_s, self._too_late)
        future.add_done_callback(self._done)

    def drop(self) -> None:
        self._resolve = self._future = None
        self._timer.cancel()

    def _done(self, future: concurrent.futures.Future[Any]) -> None:
        """Pass the outcome to the loop; called in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._take, future)
        except RuntimeError:
            logger.debug("an outcome came after the endpoint had stopped")
            _, level, text = _outcome_of(future)
            logger.log(level, "%s %s", self._what, text)

    def _take(self, future: concurrent.futures.Future[Any]) -> None:
        outcome, level, text = _outcome_of(future)
        if level > logging.DEBUG:
            kind = f"{self._what} failed{' unexpectedly' * (level == logging.ERROR)}"  # each kind has its own log limit
            self._log.log(level, kind, "%s %s", self._what, text)
        self._end(outcome)

    def _too_late(self) -> None:
        future: object = self._future
        if isinstance(future, Expiring):
            future.expire()  # this completes the future, whose callback passes the outcome to the loop
            return
        self._end(ClusterError(self._timeout_text, code=ErrorCode.REQUEST_TIMED_OUT))

    def _end(self, outcome: Outcome) -> None:
        resolve = self._resolve
        self.drop()
        if resolve is not None:
            resolve(outcome)


def _outcome_of(future: concurrent.futures.Future[Any]) -> tuple[Outcome, int, str]:
    """Return a completed future's outcome, and the level and text with which to log it."""
    if future.cancelled():
        dropped = ClusterError("the controller dropped the request", code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return dropped, logging.DEBUG, "was dropped"
    failure = future.exception()
    if failure is None:
        return future.result(), logging.DEBUG, "is done"
    if isinstance(failure, ModeAwareError):
        return failure, logging.INFO, f"failed: {failure}"
    error = f"the controller failed: {type(failure).__name__}: {failure}"
    trace = "".join(traceback.format_exception(failure)).rstrip()
    bug = ClusterError(error, code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return bug, logging.ERROR, f"failed unexpectedly: {trace}"


class Deadlines:
    """Calls ``passed(why)`` when the first of a connection's deadlines has passed. One timer.

    After :meth:`ending`, only the linger time is left, so a second call may follow.

    A connection has a fixed time to be established: for its first request, and for the user's authentication if brokers
    require authentication. The idle time runs from one whole request or response to the next, so that a peer cannot
    keep a connection open by single bytes. The idle time stops while the controller works for the connection: commands
    have a time limit of their own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: EndpointLimits, passed: Callable[[str], None]) -> None:
        self._loop = loop
        self._limits = limits
        self._passed = passed
        self._timer: asyncio.TimerHandle | None = None
        self._made_s = self._progress_s = loop.time()
        self._full_s: dict[str, float] = {}
        self._ending = False
        self.established = False
        """Whether a whole request has arrived and, if brokers require authentication, the user is authenticated."""
        self.working = False
        """Whether the controller works for the connection."""

    def progressed(self) -> None:
        """Note that a whole request or response has arrived."""
        self._progress_s = self._loop.time()

    def full(self, peer: str, full: bool) -> None:
        """Note that ``peer`` accepts no more data for now, or (``full`` is false) accepts data again."""
        if full:
            self._full_s[peer] = self._loop.time()
        else:
            self._full_s.pop(peer, None)
        self.watch()

    def ending(self) -> None:
        """From now on, wait only until the client has accepted the last bytes."""
        self.stop()
        self._progress_s = self._loop.time()
        self._ending = True
        self.watch()

    def watch(self) -> None:
        """Set the timer to the next deadline. If the deadline moves later, the timer is set anew when it fires."""
        (when_s, _) = min(self._deadlines())
        if self._timer is not None:
            if self._timer.when() <= when_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._check_deadlines)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_deadlines(self) -> None:
        self._timer = None
        (when_s, why) = min(self._deadlines())
        if self._loop.time() < when_s:
            self.watch()
        else:
            self._passed(why)

    def _deadlines(self) -> Iterator[tuple[float, str]]:
        limits = self._limits
        if self._ending:
            yield self._progress_s + limits.linger_s, "the client does not accept its last responses"
            return
        if not self.established:
            why = "the client did not send a request or authenticate in time"
            yield self._made_s + min(limits.establish_s, limits.idle_s), why
        elif self.working:
            yield self._loop.time() + limits.idle_s, ""
        else:
            yield self._progress_s + limits.idle_s, "idle for too long"
        for peer, since_s in self._full_s.items():
            yield since_s + min(limits.drain_s, limits.idle_s), f"{peer} accepts no sent data"


@dataclass(frozen=True)
class Shared:
    """The parts that an endpoint's connections share. ``room`` is the receive buffer of all links."""

    loop: asyncio.AbstractEventLoop
    new_session: Callable[[], ClientSession]
    upstream: Upstream
    tls: ssl.SSLContext | None
    limits: EndpointLimits
    submit: SubmitCommands
    refresh: RefreshViews
    slots: ConnectionSlots[Connection]
    budget: BufferBudget[Connection]
    turns: Turns
    log: RateLimitedLogger
    connections: set[Connection] = field(default_factory=set)
    room: memoryview = field(default_factory=lambda: memoryview(bytearray(RECEIVE_BYTES)))


class Connection:
    """Carries out a session's actions, and keeps both peers within their limits. ``LinkOwner`` of both links.

    Reads from the client while four conditions hold: the session takes more, both peers accept data, the connection to
    the broker is not being made, and the controller does not work for the session. Reads from the broker while the
    client accepts responses. Frames wait for a turn of this connection (:mod:`modeaware.endpoint.turns`), responses
    before requests. More is read from a peer once none of that peer's frames waits. The connection to a broker is made
    when the first frame is to be sent there.
    """

    def __init__(self, shared: Shared) -> None:
        tls = TlsStream(shared.tls) if shared.tls is not None else None
        self.client = Link(self, shared.room, shared.limits.request_bytes, tls)
        self._shared = shared
        self._deadlines = Deadlines(shared.loop, shared.limits, self._time_is_up)
        self._share = Share()
        self._queued_s: float | None = None  # the expected time of the queued turn
        self._session: ClientSession | None = None  # made at the first request, which port scanners do not send
        self._upstream: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._broker_lost = False
        self._full: set[Link] = set()
        self._waiting: deque[bytes] = deque()  # requests
        self._answers: deque[bytes] = deque()  # responses of the broker
        self._frame_bytes = 0  # of both queues
        self._unsent: list[bytes] = []
        self._tickets: dict[int, Ticket] = {}
        self._ended = False

    @property
    def name(self) -> str:
        """The client's address, for the log."""
        return "{}:{}".format(*self.client.peer)

    def stop(self) -> None:
        """Close the connection because the endpoint stops; complete responses are still sent."""
        self._end(logging.DEBUG, "stopped", "the endpoint is stopping")

    def abort(self) -> None:
        self._release()
        self.client.abort()

    # LinkOwner

    def link_made(self, link: Link) -> None:
        taken = self._shared.slots.take(self, link.peer[0])
        if isinstance(taken, str):
            self._shared.log.log(logging.WARNING, "closed a new connection", "closed a connection: %s", taken)
            link.abort()
            return
        if taken is not None:
            taken.close_for_new()
        self._shared.connections.add(self)
        self._share = self._shared.turns.share_of(link.peer[0])
        self._deadlines.watch()

    def link_frames(self, link: Link, frames: list[bytes]) -> None:
        session = self._session
        if self._ended or not frames:
            self._account()
            return
        self._deadlines.progressed()
        self._frame_bytes += sum(map(len, frames))
        if link is self.client:
            if session is None:
                self._session = self._shared.new_session()
            self._waiting.extend(frames)
        else:
            self._answers.extend(frames)
        self._proceed()

    def link_failed(self, link: Link, error: MalformedFrame | ssl.SSLError) -> None:
        peer = "" if link is self.client else "bytes from the broker: "
        self._end(logging.WARNING, "closed a connection with malformed bytes", f"{peer}{error}")

    def link_full(self, link: Link, full: bool) -> None:
        if full:
            self._full.add(link)
        else:
            self._full.discard(link)
        if self._ended:
            return
        self._deadlines.full("it" if link is self.client else "its broker", full)
        self._proceed()

    def link_eof(self, link: Link) -> None:
        if link is self.client:
            self._end(logging.DEBUG, "closed by its client", "the client has closed the connection")
        else:
            link.abort()

    def link_lost(self, link: Link, error: Exception | None) -> None:
        if link is not self.client:
            self._broker_lost = True
            self._proceed()
            return
        if self not in self._shared.connections:
            return  # no connection slot was free, so this one is closed
        if error is not None and not self._ended:
            self._shared.log.log(logging.INFO, "lost a connection", "lost the connection of %s: %s", self.name, error)
        self._shared.connections.discard(self)
        self._shared.slots.release(self)
        self._release()

    # The conversation

    def _proceed(self) -> None:
        """Queue for a turn if a frame can be handled; read from a peer of which no frame waits."""
        session = self._session
        if session is None:
            return
        if session.authenticated and not self._deadlines.established:
            self._deadlines.established = True
            self._shared.slots.keep(self)
        takes_more = self._takes_more(session)
        if self._queued_s is None and (batch := self._next(session)) is not None:
            self._queued_s = batch[1]
            self._shared.turns.queue(self, self._share, self._queued_s)
        self._deadlines.working = bool(self._tickets)
        if self._broker_lost and not self._tickets and not self._answers:
            # All earlier responses of the broker have been passed to the client.
            self._end(logging.INFO, "closed by a broker", "the broker has closed its connection")
        if self._ended:
            return
        self.client.read(takes_more and not self._waiting)
        if self._upstream is not None:
            self._upstream.read(self.client not in self._full and not self._answers)
        self._account()

    def take_turn(self) -> None:
        """Handle the broker's first response, or else the client's first request, if it can be handled now. If a large
        response has come since the turn was queued for a small request, queue again for a large frame."""
        queued_s, self._queued_s = self._queued_s or 0.0, None
        session = self._session
        if session is None:
            return
        if (batch := self._next(session)) is not None:
            frames, expected_s = batch
            if expected_s < LARGE_S or queued_s >= LARGE_S:
                self._work(session.from_upstream if frames is self._answers else session.from_client, frames)
        self._proceed()

    def _next(self, session: ClientSession) -> tuple[deque[bytes], float] | None:
        """Return the queue whose first frame is next, and that frame's expected CPU time; None if no frame is next."""
        byte_s = _DECODED_BYTE_S
        if self._answers:
            frames, byte_s = self._answers, _DECODED_BYTE_S if session.judging else _RELAYED_BYTE_S
        elif self._waiting and self._takes_more(session):
            frames = self._waiting
        else:
            return None
        return frames, _FRAME_S + byte_s * len(frames[0])

    def _work(self, step: Callable[[bytes], list[Action]], frames: deque[bytes]) -> None:
        payload = frames.popleft()
        self._frame_bytes -= len(payload)
        self._step(step, payload)

    def _takes_more(self, session: ClientSession) -> bool:
        # Requests behind a command wait, in the client's own buffers: there they cost the endpoint nothing.
        busy = self._ended or self._broker_lost or self._opening or self._full or self._tickets
        return not busy and session.wants_more

    def _step(self, step: Callable[..., list[Action]], *arguments: Any) -> None:
        if self._ended:
            return
        try:
            with self._shared.turns.charged(self._share):
                actions = step(*arguments)
        except Exception as error:  # noqa: BLE001 - a bug that a peer's bytes trigger ends only this connection
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
                logger.info("%s requests: %s", self.name, repr(list(commands))[:_LOGGED_CHARACTERS])
                text = (
                    f"the command was not done within {timeout_ms} ms; it may still be carried out: describe the "
                    "topic before a retry"
                )
                submit = partial(self._shared.submit, commands, timeout_ms)
                self._wait_for(ticket, "a command", submit, timeout_ms / 1000, text)
            case Refresh(ticket):
                text = f"the mode log was not read to its end within {REFRESH_TIMEOUT_S:g} s"
                self._wait_for(ticket, "a reading of the mode log", self._shared.refresh, REFRESH_TIMEOUT_S, text)
            case Close(reason):
                self._end(logging.WARNING, "closed a connection", reason)

    def _to_upstream(self, payload: bytes) -> None:
        if self._upstream is not None:
            self._upstream.send(payload)
            return
        self._unsent.append(payload)
        if self._opening is None:
            shared = self._shared
            opening = shared.upstream.connect(
                lambda tls, opened: Link(self, shared.room, shared.limits.upstream_bytes, tls, opened)
            )
            self._opening = shared.loop.create_task(opening)
            self._opening.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[Link]) -> None:
        self._opening = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, NoBroker):
            self._end(logging.WARNING, "closed connections without a broker", str(error), lines=1)
        elif error is not None:
            self._bug(error)
        elif self._ended:
            task.result().abort()
        else:
            self._upstream = task.result()
            unsent, self._unsent = self._unsent, []
            for payload in unsent:
                self._upstream.send(payload)
            self._deadlines.progressed()
            self._proceed()

    def _wait_for(
        self, number: int, what: str, start: Callable[[], concurrent.futures.Future[Any]], timeout_s: float, text: str
    ) -> None:
        session = self._session
        assert session is not None

        def resolve(outcome: Outcome) -> None:
            self._tickets.pop(number, None)
            self._deadlines.progressed()
            self._step(session.resolved, number, outcome)
            self._proceed()

        try:
            future = start()
        except ModeAwareError as error:  # the controller did not accept the work
            future = concurrent.futures.Future()
            future.set_exception(error)
        self._tickets[number] = Ticket(self._shared.loop, self._shared.log, what, future, timeout_s, text, resolve)

    # Its end

    def _bug(self, error: BaseException) -> None:
        # Log the type, not the text: the text may quote data of a peer.
        where = "".join(traceback.format_tb(error.__traceback__))
        self._end(logging.ERROR, "a bug", f"a bug, {type(error).__name__}:\n{where}")

    def _time_is_up(self, why: str) -> None:
        stuck = self._ended or self.client in self._full
        self._end(logging.INFO, "closed a connection at its deadline", why)
        if stuck:
            self.client.abort()

    def _end(self, level: int, kind: str, reason: str, lines: int | None = None) -> None:
        """Close both connections; the client gets some time to accept the data sent before."""
        if self._ended:
            return
        self._shared.log.log(level, kind, "closed the connection of %s: %s", self.name, reason, lines=lines)
        self._release()
        self._deadlines.ending()
        self.client.close()

    def _release(self) -> None:
        """End all parts of the connection except the client's link."""
        self._ended = True
        self._deadlines.stop()
        for ticket in self._tickets.values():
            ticket.drop()
        self._tickets.clear()
        self._session = None  # also drops all requests that wait in the session
        self._waiting.clear()
        self._answers.clear()
        self._unsent.clear()
        if self._opening is not None:
            self._opening.cancel()
        if self._upstream is not None:
            self._upstream.abort()
        self._shared.budget.update(self, 0)

    def _account(self) -> None:
        if self._ended:
            return
        held = self.client.held_bytes + self._frame_bytes + sum(map(len, self._unsent))
        if self._session is not None:
            held += self._session.held_bytes
        if self._upstream is not None:
            held += self._upstream.held_bytes
        largest = self._shared.budget.update(self, held)
        if largest is not None:
            largest.close_for_room()

    def close_for_new(self) -> None:
        """Close the connection now, because it is not established and a new connection needs its slot."""
        self._shared.connections.discard(self)
        self._end(
            logging.INFO,
            "closed for a new connection",
            "all slots for connections are taken, and this client has not authenticated yet",
        )
        self.client.abort()

    def close_for_room(self) -> None:
        """Close the connection now, because all connections together hold too many bytes, and this one holds most."""
        most = self._shared.budget.most_bytes
        self._end(
            logging.WARNING,
            "closed the connection that held most",
            f"all connections together hold more than {most} bytes, and this one holds most of them",
        )
        self.client.abort()
