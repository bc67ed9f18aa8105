"""The controller's thread: takes part in the election, does the work while it is the leader, stands by while not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from modeaware.clock import Clock
from modeaware.config import ControllerConfig
from modeaware.controller import parts as waiting
from modeaware.controller.claims import describe_claim
from modeaware.controller.contact import Contact
from modeaware.controller.election import Seat
from modeaware.controller.inbox import Inbox
from modeaware.controller.leader import STUCK_S, Leader
from modeaware.controller.parts import Parts, may_pass
from modeaware.controller.standby import Standby
from modeaware.controller.status import Role, Status
from modeaware.errors import (
    ClusterError,
    ConfigError,
    ControllerFenced,
    ControllerUnavailable,
    ModeAwareError,
    ModeSourceError,
)

logger = logging.getLogger("modeaware.controller")

START_PATIENCE_S = 60.0
"""How long a start is tried again where no broker answers."""
FIRST_READ_TIMEOUT_S = 10.0
RETRY_DELAY_S = 2.0


class Worker:
    """What the thread ``modeaware-controller`` (or, with ``--once``, the caller's) does.

    It owns the election's consumer, the log's writer, the engine and its records; nobody else touches them. It never
    opens the log without having the brokers confirm that it is the leader, so that controllers do not fence each other
    in turns.

    Args: as of :class:`Leader`.
    """

    def __init__(
        self, parts: Parts, config: ControllerConfig, contact: Contact, controller_id: str, clock: Clock
    ) -> None:
        self._leader = Leader(parts, config, contact, controller_id, clock)
        self._standby = Standby(parts, clock)
        self._inbox = parts.inbox
        self._log = parts.log
        self._election = parts.election
        self._claims = parts.claims
        self._status = parts.status
        self._clusters = parts.clusters
        self._clock = clock
        self._seated_s = clock.monotonic_s()  # when its place last was worth keeping: joined, or standing by

    def run(self) -> None:
        """Serve until told to stop.

        Raises:
            ClusterError, ModeSourceError: the mode log or the election cannot be used, before it was active or standby.
            ModeAwareError: what would not get better by trying again.
        """
        try:
            self._enter()
            while not self._status.stopping.is_set():
                self._status.round_s = self._clock.monotonic_s()
                if self._leads():
                    self._lead()
                else:
                    self._standby.step()
        finally:
            self._leave()

    def run_once(self, patience_s: float) -> None:
        """Wait ``patience_s`` for being elected, take every topic as far as it goes now, and leave.

        Raises:
            ControllerUnavailable: another controller is active.
            ControllerFenced: another one has become it.
            ClusterError, ModeSourceError: the mode log cannot be used.
        """
        try:
            self._enter()
            if self._elected_within(patience_s):
                term = self._leader.claim()
                if term is None:
                    raise ControllerFenced("another controller has taken over")
                self._leader.settle(term)
        finally:
            self._leave()

    # Coming and going

    def _enter(self) -> None:
        """Look at the log, make it where it is missing, join. No step is begun anew once told to stop."""
        self._patiently(lambda: self._claims.look(FIRST_READ_TIMEOUT_S))
        self._patiently(self._log.ensure)
        if not self._status.stopping.is_set():
            self._join()

    def _patiently(self, step: Callable[[], object]) -> None:
        """Take the step, again and again where nobody answers: a single broker may just be restarted, or frozen."""
        deadline_s = self._clock.monotonic_s() + START_PATIENCE_S
        while not self._status.stopping.is_set():
            self._status.round_s = self._clock.monotonic_s()
            try:
                step()
                return
            except (ClusterError, ModeSourceError) as error:
                if not may_pass(error) or self._clock.monotonic_s() > deadline_s:
                    raise
                self._status.trouble = str(error)
                logger.warning("%s; trying again", error)
            self._status.stopping.wait(RETRY_DELAY_S)

    def _join(self) -> None:
        claim = self._claims.claim
        self._election.join(claim.claimed_ms if claim is not None else 0)
        self._seated_s = self._clock.monotonic_s()

    def _rejoin(self) -> None:
        """Back to the end of the queue, behind whoever is active now. What waits is refused: its clients retry."""
        self._inbox.refuse_all("this controller has lost its place in the election: nothing was changed")
        self._election.close()
        if self._status.role is Role.STARTING:
            self._log.close()
        else:
            self._standby.step_down()
        self._standby.look_up()
        try:
            self._join()
        except ConfigError as error:
            if self._status.role is Role.STARTING:
                raise
            # The settings have worked before. A file that they name is being replaced, perhaps.
            logger.warning("%s; joining the election again", error)
            self._status.stopping.wait(RETRY_DELAY_S)

    def _leave(self) -> None:
        """Hand over at once: take the address back, then leave the group."""
        try:
            if self._status.role is Role.ACTIVE:
                self._leader.release()
        finally:
            self._log.close()
            self._election.close()
            for cluster in self._clusters:
                cluster.close()

    # The election

    def _leads(self) -> bool:
        """Poll; whether this is the leader, who may go and claim the log."""
        election = self._election
        election.poll()
        now_s = self._clock.monotonic_s()
        if election.seat is Seat.STANDBY:
            self._seated_s = now_s
        if election.lost:
            logger.warning("this controller has lost its place in the election, and joins it again")
            self._rejoin()
        elif now_s - max(self._seated_s, self._leader.served_s) > STUCK_S:
            logger.warning("its place in the election has led to nothing for %g s: queueing again at the end", STUCK_S)
            self._rejoin()
        if self._status.role is Role.STARTING:
            self._status.trouble = election.trouble or self._status.trouble
            if election.refusal is not None:
                raise election.refusal
        return election.leader and not self._status.stopping.is_set()

    def _elected_within(self, patience_s: float) -> bool:
        """False only when told to stop."""
        deadline_s = self._clock.monotonic_s() + patience_s
        while not self._leads():
            if self._status.stopping.wait(waiting.POLL_S):
                return False
            if self._election.seat is Seat.STANDBY or self._clock.monotonic_s() > deadline_s:
                self._standby.look_up()
                raise ControllerUnavailable(
                    f"not elected within {patience_s:g} s: {describe_claim(self._claims.claim)}"
                    if self._election.seat is Seat.WAITING
                    else f"another controller is running: {describe_claim(self._claims.claim)}"
                )
        return True

    def _lead(self) -> None:
        try:
            term = self._leader.claim()
            if term is not None:
                self._leader.serve(term)
        except ControllerFenced as error:
            # Another one opened the log, by right or (woken from a pause) by mistake: the election tells which.
            logger.warning("%s; asking the election", error)
            self._log.close()
        except (ClusterError, ConfigError, ModeSourceError) as error:
            if self._status.role is Role.STARTING:
                if not may_pass(error):
                    raise
                self._status.trouble = str(error)
            # What became of the last append is not known: a new claim reads the log again.
            self._status.log_failures += 1
            logger.warning("%s; claiming the mode log again", error)
            self._log.close()
            self._pause(RETRY_DELAY_S)

    def _pause(self, wait_s: float) -> None:
        deadline_s = self._clock.monotonic_s() + wait_s
        while self._clock.monotonic_s() < deadline_s and not self._status.stopping.wait(waiting.POLL_S):
            self._election.poll()


def run_worker(worker: Worker, status: Status, inbox: Inbox) -> None:
    """The thread's body: what ends the worker is noted, and nobody who waits is left without an answer."""
    try:
        worker.run()
        status.become(Role.STOPPED)
    except ModeAwareError as error:
        logger.error("controller stops: %s", error)
        status.fail(error)
    except Exception as error:
        logger.exception("controller stops: this is a bug in modeaware")
        status.fail(error)
        raise
    finally:
        status.stopping.set()
        inbox.refuse_all("this controller has stopped: nothing was changed")
