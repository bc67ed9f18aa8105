"""The endpoint's limits for one peer, and for all peers together: connections, bytes, time, and lines in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from modeaware.callouts import get_logger
from modeaware.wire.frames import MAX_CHANGE_BYTES, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES

logger = get_logger(__name__)

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class EndpointLimits:
    """Bounds in connections, bytes, requests and seconds. Each is checked before memory is used."""

    # Open client connections. A further connection takes the slot of one that is not established. Without such a slot,
    # the further connection is closed at once.
    connections: int = 1_200
    connections_per_peer: int = 600  # open client connections of one address
    request_bytes: int = MAX_REQUEST_BYTES  # the largest request of a client, without its length
    # The largest DeletePartitions, CreatePartitions, ReplaceTopics or AlterGroupRules request. The codec also limits
    # the number of its objects, because one thread serves all clients and decodes the request.
    change_bytes: int = MAX_CHANGE_BYTES
    modes_bytes: int = 262_144  # the largest request for KIP-694's Metadata: about eight thousand topics by name
    versions_bytes: int = 4_096  # the largest ApiVersions request, which comes before authentication
    response_bytes: int = MAX_RESPONSE_BYTES  # the largest response that the endpoint makes, or to which it adds modes
    # The largest response accepted from a broker, and passed on. For clients that do not read modes, the endpoint may
    # replace nodes in the response; no further limit applies to the result.
    upstream_bytes: int = 33_554_432
    pipeline: int = 100  # one connection's requests without a response; at this number, no further request is read
    held_bytes: int = 2_097_152  # the size of one connection's waiting requests; at this size no further one is read
    cache_bytes: int = 67_108_864  # the size of Metadata and ApiVersions responses kept for all connections
    # The size, for all connections, of incomplete frames, waiting frames, and sent frames that peers have not accepted.
    # Beyond this limit, the connection that holds most is closed.
    buffered_bytes: int = 134_217_728
    # The longest time without a complete request or response (Kafka's connections.max.idle.ms). This time also
    # bounds establish_s and drain_s.
    idle_s: float = 600.0
    # The time for TLS, the first complete request of a connection, and its user's authentication, if brokers require
    # authentication.
    establish_s: float = 30.0
    drain_s: float = 30.0  # for a peer to accept sent data, once more than 64 KiB wait
    linger_s: float = 5.0  # for a peer to accept sent data, before its connection is closed
    # Whether all connections of an address together get the CPU time of one. False, because many clients may share a
    # proxy's address.
    time_by_address: bool = False


class BufferBudget(Generic[T]):
    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.total_bytes = 0
        self._held: dict[T, int] = {}

    def update(self, holder: T, held_bytes: int) -> T | None:
        """Note that ``holder`` now keeps ``held_bytes``. If all holders together keep too much, return the largest."""
        self.total_bytes += held_bytes - self._held.get(holder, 0)
        if held_bytes:
            self._held[holder] = held_bytes
        else:
            self._held.pop(holder, None)
        if self.total_bytes <= self.most_bytes:
            return None
        return max(self._held, key=self._held.__getitem__)


class ConnectionSlots(Generic[T]):
    """The slots of connections. Only an established connection keeps its slot for good: if no slot is free, a new
    connection takes the slot of the oldest connection that is not established."""

    def __init__(self, most: int, most_per_peer: int) -> None:
        self._most = most
        self._most_per_peer = most_per_peer
        self._hosts: dict[T, str] = {}
        self._taken: Counter[str] = Counter()
        self._new: dict[T, None] = {}  # the holders that are not established, oldest first

    def take(self, holder: T, host: str) -> T | str | None:
        """Take a slot for a connection of ``host``.

        Returns:
            None if a slot was free; the holder that has lost its slot to the connection; or, if there is no slot, the
            reason as a text.
        """
        loser = None
        if self._taken[host] >= self._most_per_peer:
            loser = next((other for other in self._new if self._hosts[other] == host), None)
            if loser is None:
                return f"{self._taken[host]} connections from {host} are open, the limit of one address"
        elif len(self._hosts) >= self._most:
            loser = next(iter(self._new), None)
            if loser is None:
                return f"{len(self._hosts)} connections are open, the limit"
        if loser is not None:
            self.release(loser)
        self._hosts[holder] = host
        self._taken[host] += 1
        self._new[holder] = None
        return loser

    def keep(self, holder: T) -> None:
        """Note that ``holder`` is established."""
        self._new.pop(holder, None)

    def release(self, holder: T) -> None:
        self._new.pop(holder, None)
        if (host := self._hosts.pop(holder, None)) is not None:
            self._taken[host] -= 1
            if not self._taken[host]:
                del self._taken[host]


class RateLimitedLogger:
    """A log that peers cannot flood: of each kind it writes ``lines`` lines in ``period_s``, and counts the others."""

    def __init__(self, clock: Callable[[], float], lines: int = 10, period_s: float = 30.0) -> None:
        self._clock = clock
        self._lines = lines
        self._period_s = period_s
        self._kinds: dict[str, _Kind] = {}

    def log(self, level: int, kind: str, message: str, *arguments: object, lines: int | None = None) -> None:
        """Log, unless ``kind`` has been logged ``lines`` times (default: the log's ``lines``). Kinds must be few."""
        state = self._kinds.setdefault(kind, _Kind())
        now_s = self._clock()
        if now_s >= state.until_s:
            if state.left_out:
                logger.log(level, "%s: %d more", kind, state.left_out)
            state.until_s, state.written, state.left_out = now_s + self._period_s, 0, 0
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
