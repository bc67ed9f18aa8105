"""What connections share: bytes, places and lines in the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class Quotas:
    """What a peer, or all of them, may take of the endpoint's sockets and buffers; beside
    :class:`~modeaware.endpoint.limits.Limits`, which a session goes by.

    Attributes:
        connections_per_peer: how many connections one address may have open (600).
        buffered_bytes: how many bytes may be kept for all connections, of frames that are not complete, of those that
            wait and of those that are not taken (128 MiB). When it is more, whoever holds most is disconnected.
        first_request_s: how long a new connection has until its first request is whole, TLS included (30 s).
        drain_s: how long a peer has for what it was sent, once more than 64 KiB of that wait for it (30 s).
        linger_s: how long a connection that is being closed has for what it was sent (5 s).
    """

    connections_per_peer: int = 600
    buffered_bytes: int = 134_217_728
    first_request_s: float = 30.0
    drain_s: float = 30.0
    linger_s: float = 5.0


class Held(Generic[T]):
    """How many bytes each of the holders keeps."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.total_bytes = 0
        self._held: dict[T, int] = {}

    def update(self, holder: T, held_bytes: int) -> T | None:
        """``holder`` keeps ``held_bytes`` now. Who has to go, if all of them together keep too much."""
        self.total_bytes += held_bytes - self._held.get(holder, 0)
        if held_bytes:
            self._held[holder] = held_bytes
        else:
            self._held.pop(holder, None)
        if self.total_bytes <= self.most_bytes:
            return None
        return max(self._held, key=self._held.__getitem__)


class Places:
    """Who may connect."""

    def __init__(self, most: int, most_per_peer: int) -> None:
        self._most = most
        self._most_per_peer = most_per_peer
        self._taken: Counter[str] = Counter()
        self._all = 0

    def take(self, host: str) -> str | None:
        """Take a place for a connection of ``host``; why there is none, else None."""
        if self._all >= self._most:
            return f"{self._all} are open, as many as are taken"
        if self._taken[host] >= self._most_per_peer:
            return f"{self._taken[host]} of {host} are open, as many as are taken of one address"
        self._taken[host] += 1
        self._all += 1
        return None

    def leave(self, host: str) -> None:
        """Give a place back."""
        self._all -= 1
        self._taken[host] -= 1
        if not self._taken[host]:
            del self._taken[host]


class Seldom:
    """A log in which peers cannot write at will: of one kind a few lines in a while, and then how many were left out.

    Args:
        clock: seconds.
        lines: of one kind, in ``period_s``.
    """

    def __init__(self, clock: Callable[[], float], lines: int = 10, period_s: float = 30.0) -> None:
        self._clock = clock
        self._lines = lines
        self._period_s = period_s
        self._kinds: dict[str, _Kind] = {}

    def log(self, level: int, kind: str, message: str, *arguments: object, lines: int | None = None) -> None:
        """Log it, if its ``kind`` (one of few) has not been logged too often (``lines``, default: the log's)."""
        state = self._kinds.setdefault(kind, _Kind())
        now = self._clock()
        if now >= state.until_s:
            if state.left_out:
                logger.log(level, "%s: %d more", kind, state.left_out)
            state.until_s, state.written, state.left_out = now + self._period_s, 0, 0
        if state.written < (self._lines if lines is None else lines):
            state.written += 1
            logger.log(level, message, *arguments)
        else:
            state.left_out += 1


@dataclass
class _Kind:
    until_s: float = float("-inf")
    written: int = 0
    left_out: int = 0
