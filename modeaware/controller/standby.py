"""Standing by: knowing who is active, and seeing that there is a mode log to be elected for."""

from __future__ import annotations

import logging

from modeaware.clock import Clock
from modeaware.controller.about import about_controller
from modeaware.controller.claims import describe_claim
from modeaware.controller.election import Seat
from modeaware.controller.parts import POLL_S, Parts
from modeaware.controller.status import Role
from modeaware.errors import ClusterError, ControllerUnavailable, ModeSourceError

logger = logging.getLogger("modeaware.controller")

CLAIM_READ_TIMEOUT_S = 5.0
CLAIM_REFRESH_S = 10.0
"""How old a standby's knowledge of who is active may grow."""


class Standby:
    """What the controller's thread does while it is not the leader. The thread owns it."""

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._log = parts.log
        self._election = parts.election
        self._claims = parts.claims
        self._inbox = parts.inbox
        self._status = parts.status
        self._clock = clock
        self._known_s: float | None = clock.monotonic_s()  # when it was looked up who is active: at the start, first

    def step(self) -> None:
        """Wait a moment for a command, and answer it with who is active."""
        if self._election.seat is Seat.STANDBY:
            self.step_down()
        self._keep_informed()
        if self._status.role is not Role.STANDBY:  # the election is under way: what is asked meanwhile waits for it
            self._election.poll(POLL_S)
            return
        job = self._inbox.take(POLL_S)
        if job is not None:
            self.look_up()
            job.refuse(ControllerUnavailable(f"this controller stands by: {describe_claim(self._claims.claim)}"))

    def step_down(self) -> None:
        """Let go of the log; what was known of others may be old."""
        self._log.close()
        if self._status.become(Role.STANDBY):
            self._known_s = None

    def look_up(self) -> None:
        """Who is active, as far as the log tells now."""
        try:
            self._claims.look(CLAIM_READ_TIMEOUT_S)
            self._status.contact_s = self._clock.monotonic_s()
        except ModeSourceError as error:
            logger.info("who is active cannot be looked up: %s", error)

    def _keep_informed(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._known_s is not None and now_s - self._known_s <= CLAIM_REFRESH_S:
            return
        before, first = self._claims.claim, self._known_s is None
        self.look_up()
        if self._claims.absent:
            self._make_log()
        self._known_s = self._clock.monotonic_s()
        if self._status.role is Role.STANDBY and (first or before != self._claims.claim):
            claim = self._claims.claim
            told = {} if claim is None else about_controller(claim.controller_id, claim.controller_epoch)
            logger.info("standby: %s", describe_claim(claim), extra=told)

    def _make_log(self) -> None:
        """Nobody is elected while there is no mode log."""
        try:
            self._log.ensure()
        except ClusterError as error:
            logger.warning("%s", error)
