"""What a controller does outside of the mode log, it does only while it surely is the active one."""

from __future__ import annotations

from modeaware.clock import Clock
from modeaware.controller.engine import Effects
from modeaware.controller.log import ControllerLog
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.effects import CreatePartitions, Effect


class LeasedEffects:
    """Carries out effects soon after an append, or not at all.

    Brokers take DeleteRecords and the like from anybody: no generation fences them. An append that the group's
    coordinator has taken proves leadership at the time it began, and nobody else is elected before a session has run
    out since the last heartbeat. So after half a session an effect is put off; the engine appends before it tries
    again. Between this check and the broker a small window remains.

    Args:
        effects: what carries them out.
        log: knows when the last append was.
        session_timeout_ms: of the election.
    """

    def __init__(self, effects: Effects, log: ControllerLog, session_timeout_ms: int, clock: Clock) -> None:
        self._effects = effects
        self._log = log
        self._lease_s = session_timeout_ms / 2_000
        self._clock = clock

    def perform(self, effect: Effect) -> None:
        """
        Raises:
            ClusterError: put off, or refused by the brokers.
        """
        self._check(effect)
        self._effects.perform(effect)

    def create_partitions(self, effect: CreatePartitions, validate_only: bool = False) -> None:
        """
        Raises:
            ClusterError: put off, or refused by the brokers.
        """
        if not validate_only:
            self._check(effect)
        self._effects.create_partitions(effect, validate_only)

    def _check(self, effect: Effect) -> None:
        confirmed_s = self._log.confirmed_s
        if confirmed_s is None or self._clock.monotonic_s() - confirmed_s > self._lease_s:
            raise ClusterError(
                f"put off: more than {self._lease_s:g} s have passed since this was surely the active controller",
                code=ErrorCode.REQUEST_TIMED_OUT,
                topic=effect.topic,
            )
