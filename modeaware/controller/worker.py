"""The controller's thread: takes part in the election, does the work while it is the leader, stands by while not."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass

from modeaware.clock import Clock
from modeaware.config import ControllerConfig
from modeaware.controller.claims import ClaimWatch, describe_claim
from modeaware.controller.election import Election, Seat
from modeaware.controller.engine import Engine
from modeaware.controller.inbox import Inbox
from modeaware.controller.log import ControllerLog
from modeaware.controller.status import Role, Status
from modeaware.errors import ClusterError, ControllerFenced, ControllerUnavailable, ModeAwareError, ModeSourceError
from modeaware.lifecycle.phases import topic_phase

logger = logging.getLogger("modeaware.controller")

FIRST_READ_TIMEOUT_S = 20.0
CLAIM_READ_TIMEOUT_S = 5.0
CONFIRM_TIMEOUT_S = 10.0
POLL_S = 0.1
"""How often the election is looked at, at least, where no step is in between: commands are waited for in between."""
RECLAIM_DELAY_S = 2.0
CLAIM_REFRESH_S = 10.0
"""How old a standby's knowledge of who is active may grow."""
ENSURE_INTERVAL_S = 10.0
STOP_APPEND_TIMEOUT_S = 3.0
SEAL_SLACK_MS = 1_000


@dataclass(frozen=True)
class Parts:
    """What a worker works with. All of it is used by the worker's thread alone, but for the inbox and the status."""

    engine: Engine
    log: ControllerLog
    election: Election
    claims: ClaimWatch
    inbox: Inbox
    status: Status


class Worker:
    """What the thread ``modeaware-controller`` (or, with ``--once``, the caller's) does.

    It owns the election's consumer, the log's writer, the engine and its records; nobody else touches them. It never
    opens the log without having the brokers confirm that it is the leader, so that controllers do not fence each other
    in turns.

    Args:
        address: where its listener takes commands; None without one.
        controller_id: the name that stands in the claim record.
    """

    def __init__(
        self, parts: Parts, config: ControllerConfig, address: str | None, controller_id: str, clock: Clock
    ) -> None:
        self._engine = parts.engine
        self._log = parts.log
        self._election = parts.election
        self._claims = parts.claims
        self._inbox = parts.inbox
        self._status = parts.status
        self._config = config
        self._address = address
        self._controller_id = controller_id
        self._clock = clock
        self._known_s: float | None = None  # when it was looked up who is active
        self._ensured_s = 0.0

    def run(self) -> None:
        """Serve until told to stop.

        Raises:
            ClusterError, ModeSourceError: the mode log or the election cannot be used, before it was active or standby.
            ModeAwareError: what would not get better by trying again.
        """
        try:
            self._enter()
            while not self._status.stopping.is_set():
                if self._leads():
                    self._lead()
                else:
                    self._stand_by()
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
                self._claim()
                self._settle(self._election.term)
        finally:
            self._leave()

    # Coming and going

    def _enter(self) -> None:
        self._claims.look(FIRST_READ_TIMEOUT_S)
        self._log.ensure()
        self._ensured_s = self._clock.monotonic_s()
        self._join()

    def _join(self) -> None:
        claim = self._claims.claim
        self._election.join(claim.claimed_ms if claim is not None else 0)

    def _rejoin(self) -> None:
        """Back to the end of the queue, behind whoever is active now."""
        self._election.close()
        self._step_down()
        self._look_up(CLAIM_READ_TIMEOUT_S)
        self._join()

    def _leave(self) -> None:
        """Hand over at once: take the address back, then leave the group."""
        try:
            if self._status.role is Role.ACTIVE and self._election.leader:
                self._log.timeout_s = STOP_APPEND_TIMEOUT_S
                self._engine.release()
        except (ClusterError, ControllerFenced) as error:
            logger.warning("stopping: the claim stays on the log, the next controller replaces it: %s", error)
        finally:
            self._log.close()
            self._election.close()

    # The election

    def _leads(self) -> bool:
        """Poll; whether this is the leader, who may go and claim the log."""
        self._election.poll()
        if self._election.lost:
            logger.warning("this controller has lost its place in the election, and joins it again")
            self._rejoin()
        if self._election.refusal is not None and self._status.role is Role.STARTING:
            raise self._election.refusal
        return self._election.leader and not self._status.stopping.is_set()

    def _still_leads(self, term: int) -> bool:
        """The same, for whoever has claimed the log in ``term``. Waits for the end of a rebalance."""
        self._election.poll()
        while self._election.seat is Seat.WAITING and not self._election.lost and not self._status.stopping.is_set():
            self._election.poll(POLL_S)
        return self._election.leader and self._election.term == term

    def _elected_within(self, patience_s: float) -> bool:
        """False only when told to stop."""
        deadline_s = self._clock.monotonic_s() + patience_s
        while not self._leads():
            if self._status.stopping.wait(POLL_S):
                return False
            if self._election.seat is Seat.STANDBY or self._clock.monotonic_s() > deadline_s:
                self._look_up(CLAIM_READ_TIMEOUT_S)
                raise ControllerUnavailable(
                    f"not elected within {patience_s:g} s: {describe_claim(self._claims.claim)}"
                    if self._election.seat is Seat.WAITING
                    else f"another controller is running: {describe_claim(self._claims.claim)}"
                )
        return True

    # Standing by

    def _stand_by(self) -> None:
        if self._election.seat is Seat.STANDBY:
            self._step_down()
        self._keep_log()
        if self._status.role is not Role.STANDBY:  # the election is under way: what is asked meanwhile waits for it
            self._election.poll(POLL_S)
            return
        job = self._inbox.take(POLL_S)
        if job is None:
            self._keep_informed()
        else:
            self._look_up(CLAIM_READ_TIMEOUT_S)
            job.refuse(ControllerUnavailable(f"this controller stands by: {describe_claim(self._claims.claim)}"))

    def _step_down(self) -> None:
        self._log.close()
        if self._status.become(Role.STANDBY):
            self._known_s = None

    def _keep_informed(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._known_s is None or now_s - self._known_s > CLAIM_REFRESH_S:
            before, first = self._claims.claim, self._known_s is None
            self._look_up(CLAIM_READ_TIMEOUT_S)
            self._known_s = self._clock.monotonic_s()
            if first or before != self._claims.claim:
                logger.info("standby: %s", describe_claim(self._claims.claim))

    def _keep_log(self) -> None:
        """Nobody is elected while there is no mode log: whoever waits sees that there is one."""
        now_s = self._clock.monotonic_s()
        if now_s - self._ensured_s > ENSURE_INTERVAL_S:
            self._ensured_s = now_s
            try:
                self._log.ensure()
            except ClusterError as error:
                logger.warning("%s", error)

    def _look_up(self, timeout_s: float) -> None:
        try:
            self._claims.look(timeout_s)
        except ModeSourceError as error:
            logger.info("who is active cannot be looked up: %s", error)

    # Leading

    def _lead(self) -> None:
        try:
            confirmed = self._election.confirm(CONFIRM_TIMEOUT_S)
            if confirmed:
                self._claim()
                self._serve(self._election.term)
            elif confirmed is None:
                raise ClusterError("the group's coordinator does not confirm that this is the elected controller")
        except ControllerFenced as error:
            # Another one opened the log, by right or (woken from a pause) by mistake: the election tells which.
            logger.warning("%s; asking the election", error)
            self._log.close()
        except (ClusterError, ModeSourceError) as error:
            if self._status.role is Role.STARTING:
                raise
            # What became of the last append is not known: a new claim reads the log again.
            logger.warning("%s; claiming the mode log again", error)
            self._log.close()
            self._pause(RECLAIM_DELAY_S)

    def _claim(self) -> None:
        epoch = self._engine.claim(self._address, self._controller_id, socket.gethostname())
        self._status.become(Role.ACTIVE, epoch)
        logger.info("active: epoch %d", epoch)

    def _serve(self, term: int) -> None:
        engine = self._engine
        while not self._status.stopping.is_set() and self._still_leads(term):
            job = self._inbox.take(self._wait_s())
            if job is not None:
                job.carry_out(engine.execute)
            for topic_id in engine.schedule.due(self._clock.now_ms()):
                if not self._still_leads(term):
                    break
                engine.check(topic_id)
                if not self._inbox.empty:
                    break  # commands do not wait for a round over all topics

    def _wait_s(self) -> float:
        next_ms = self._engine.schedule.next_ms()
        if next_ms is None:
            return POLL_S
        return min(max(next_ms - self._clock.now_ms(), 0) / 1000, POLL_S)

    def _pause(self, wait_s: float) -> None:
        deadline_s = self._clock.monotonic_s() + wait_s
        while self._clock.monotonic_s() < deadline_s and not self._status.stopping.wait(POLL_S):
            self._election.poll()

    def _settle(self, term: int) -> None:
        engine, patience_ms = self._engine, self._config.seal_quiet_ms + SEAL_SLACK_MS
        give_up_ms = self._clock.now_ms() + patience_ms
        while not self._status.stopping.is_set():
            if not self._still_leads(term):
                raise ControllerFenced("another controller has taken over")
            due = engine.schedule.due(self._clock.now_ms())
            if due and engine.check(due[0]):
                give_up_ms = self._clock.now_ms() + patience_ms
            now_ms, next_ms = self._clock.now_ms(), engine.schedule.next_ms()
            sealing = any(topic_phase(record) == "seal" for record in engine.records)
            if next_ms is None or (next_ms > now_ms and not (sealing and now_ms < give_up_ms)):
                return
            self._status.stopping.wait(min(max(min(next_ms, give_up_ms) - now_ms, 0) / 1000, POLL_S))


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
