"""What a controller does outside of the mode log, it does only while it surely is the active one (invariant I5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from modeaware.clock import Clock
from modeaware.controller.election import Election
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.effects import CreatePartitions, Effect
from modeaware.wire.brokers.client import REQUEST_TIMEOUT_S

CONFIRM_TIMEOUT_S = 2.0


class CheckedEffects(Protocol):
    """Where effects go (:class:`modeaware.cluster.cluster.Cluster`)."""

    def perform(self, effect: Effect, check: Callable[[], None]) -> None:
        """Carry it out; ``check`` is called right before the request is sent."""
        ...

    def create_partitions(self, effect: CreatePartitions, validate_only: bool = False) -> None: ...


class LeasedEffects:
    """Carries out effects soon after the election has confirmed that this is the leader, or not at all.

    Brokers take DeleteRecords and the like from anybody: no generation fences them. So before each effect the group's
    coordinator is asked by a plain OffsetCommit (:meth:`Election.confirm`), which it takes for a heartbeat as well: it
    drops this member a session after it, not sooner. (An append proves leadership too, but the commit within its
    transaction extends no session.) The asking also polls, so that a rebalance is taken part in, and librdkafka does
    not leave the group for want of polling (``max.poll.interval.ms``, at least 60 s).

    The lease counts from when the question was asked, on a clock that runs on while the machine is suspended. It is
    half a session, or less where the rest would be shorter than a request may take. What comes before the request
    (topic ids of all brokers, the leaders) may be slow, so the lease is looked at again right before the request is
    handed over to be sent. From then on it may wait for a connection, and be sent once more where one broke, for as
    long as a request may take: :func:`request_timeout_s`, no longer than the rest of the session. What remains: a
    process stopped between that look and the sending for longer than that, and a broker that carries out a request long
    after it has received it. The engine appends before it tries again what was put off.

    Args:
        effects: what carries them out; no request of its may take longer than :func:`request_timeout_s`.
        session_timeout_ms: of the election.
    """

    def __init__(self, effects: CheckedEffects, election: Election, session_timeout_ms: int, clock: Clock) -> None:
        self._effects = effects
        self._election = election
        self._lease_s = _lease_s(session_timeout_ms)
        self._clock = clock

    def perform(self, effect: Effect) -> None:
        """
        Raises:
            ClusterError: put off (REQUEST_TIMED_OUT), or refused by the brokers.
        """
        asked_s = self._clock.monotonic_s()
        if self._election.confirm(CONFIRM_TIMEOUT_S) is not True:
            raise _put_off(effect, "the group's coordinator does not confirm that this is the elected controller")

        def check() -> None:
            if self._clock.monotonic_s() - asked_s > self._lease_s:
                raise _put_off(effect, f"more than {self._lease_s:g} s have passed since this surely was the leader")

        check()
        self._effects.perform(effect, check)

    def create_partitions(self, effect: CreatePartitions, validate_only: bool = False) -> None:
        """Have a growth checked; that changes nothing, so anybody may. Without ``validate_only``: :meth:`perform`.

        Raises:
            ClusterError: put off (REQUEST_TIMED_OUT), or refused by the brokers.
        """
        if validate_only:
            self._effects.create_partitions(effect, validate_only)
        else:
            self.perform(effect)


def request_timeout_s(session_timeout_ms: int) -> float:
    """How long a request of an effect may take, in seconds: less than usual where the election's session is short."""
    return min(REQUEST_TIMEOUT_S, session_timeout_ms / 1_000 - _lease_s(session_timeout_ms))


def _lease_s(session_timeout_ms: int) -> float:
    session_s = session_timeout_ms / 1_000
    return min(session_s / 2, max(session_s - REQUEST_TIMEOUT_S, session_s / 4))


def _put_off(effect: Effect, why: str) -> ClusterError:
    return ClusterError(f"put off: {why}", code=ErrorCode.REQUEST_TIMED_OUT, topic=effect.topic)
