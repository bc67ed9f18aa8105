"""Leading: claiming the mode log, carrying out commands, checking topics, for as long as this is the leader."""

from __future__ import annotations

import logging

from modeaware.clock import Clock
from modeaware.config import ControllerConfig
from modeaware.controller import parts as waiting
from modeaware.controller.about import about_controller
from modeaware.controller.contact import Contact
from modeaware.controller.election import Seat
from modeaware.controller.inbox import Job
from modeaware.controller.parts import Parts
from modeaware.controller.schedule import elapsed_ms
from modeaware.controller.status import Role
from modeaware.errors import ClusterError, ControllerFenced, ErrorCode
from modeaware.lifecycle.phases import topic_phase

logger = logging.getLogger("modeaware.controller")

CONFIRM_TIMEOUT_S = 10.0
STUCK_S = 45.0
"""So long a place that leads to nothing is kept: a leader that cannot claim the log, a member that is given no seat."""
SEAL_SLACK_MS = 1_000
STOP_APPEND_TIMEOUT_S = 3.0
SLICE_S = 0.25
"""For how long commands of one request are executed before others, and due checks, have their turn."""


class Leader:
    """What the controller's thread does while it is the leader. The thread owns it.

    Args:
        contact: where it takes commands.
        controller_id: the name that stands in the claim record.

    Attributes:
        served_s: when it last had the log claimed and was the leader (``Clock.monotonic_s``).
    """

    def __init__(
        self, parts: Parts, config: ControllerConfig, contact: Contact, controller_id: str, clock: Clock
    ) -> None:
        self._engine = parts.engine
        self._log = parts.log
        self._election = parts.election
        self._claims = parts.claims
        self._inbox = parts.inbox
        self._status = parts.status
        self._brokers = parts.brokers
        self._topics = parts.topics
        self._config = config
        self._contact = contact
        self._controller_id = controller_id
        self._clock = clock
        self._log_looked_at = False
        self._log_weakness: str | None = None
        self.served_s = clock.monotonic_s()

    def claim(self) -> int | None:
        """Claim the log, if the brokers confirm that this is the leader: else it would fence the rightful one.

        Returns:
            The election's term that it was claimed in; None: this is not the leader.

        Raises:
            ControllerFenced, ClusterError, ModeSourceError: not claimed, or not known to be.
            NewerRecord: see :meth:`Engine.claim`.
        """
        confirmed = self._election.confirm(CONFIRM_TIMEOUT_S)
        if confirmed is None:
            raise ClusterError(
                "the group's coordinator does not confirm that this is the elected controller",
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        if not confirmed:
            return None
        term = self._election.term
        self._status.contact_s = self._clock.monotonic_s()
        epoch = self._engine.claim(
            self._controller_id,
            self._contact,
            not_before_ms=self._election.since_ms,
            seen_epoch=self._claims.highest_epoch,
        )
        self._status.become(Role.ACTIVE, epoch)
        self._log_looked_at = False
        logger.info("active: epoch %d", epoch, extra=about_controller(self._controller_id, epoch))
        return term

    def release(self) -> None:
        """Take the address in the claim back, where this is still the leader. What keeps it from that is logged."""
        try:
            if not self._election.leader:
                _claim_stays("an election is under way")
            elif not self._log.is_open:
                _claim_stays("the mode log was to be claimed again, after an append that failed")
            else:
                self._log.timeout_s = STOP_APPEND_TIMEOUT_S
                self._engine.release()
        except (ClusterError, ControllerFenced) as error:
            _claim_stays(str(error))

    def serve(self, term: int) -> None:
        """Until the term is over, or told to stop.

        Raises:
            ControllerFenced, ClusterError: the log has to be claimed again.
        """
        engine = self._engine
        while not self._status.stopping.is_set() and self._still_leads(term):
            self.served_s = self._clock.monotonic_s()
            job = self._inbox.take(self._wait_s())
            if job is not None:
                self._carry_out(job, term)
            for topic_id in engine.schedule.due(elapsed_ms(self._clock)):
                if not self._still_leads(term):
                    break
                self._check(topic_id)
                if not self._inbox.empty:
                    break  # commands do not wait for a round over all topics
            self._watch_topics()
            self._watch_brokers()
            self._look_at_log()

    def settle(self, term: int) -> None:
        """Take every topic as far as it goes now.

        Raises:
            ControllerFenced, ClusterError: the log could not be appended to.
        """
        engine, patience_ms = self._engine, self._config.seal_quiet_ms + SEAL_SLACK_MS
        self._watch_topics()
        self._watch_brokers()
        give_up_ms = elapsed_ms(self._clock) + patience_ms
        while not self._status.stopping.is_set():
            if not self._still_leads(term):
                raise ControllerFenced("another controller has taken over")
            due = engine.schedule.due(elapsed_ms(self._clock))
            if due and self._check(due[0]):
                give_up_ms = elapsed_ms(self._clock) + patience_ms
            now_ms, next_ms = elapsed_ms(self._clock), engine.schedule.next_ms()
            sealing = any(topic_phase(record) == "seal" for record in engine.records)
            if next_ms is None or (next_ms > now_ms and not (sealing and now_ms < give_up_ms)):
                return
            self._status.stopping.wait(min(max(min(next_ms, give_up_ms) - now_ms, 0) / 1000, waiting.POLL_S))

    def _still_leads(self, term: int) -> bool:
        """Poll; whether this is still the leader in ``term``. Waits for the end of a rebalance, if it ever ends."""
        election, stopping = self._election, self._status.stopping
        election.poll()
        self._status.round_s = self._clock.monotonic_s()
        deadline_s = self._status.round_s + STUCK_S
        while election.seat is Seat.WAITING and not election.lost and not stopping.is_set():
            if self._clock.monotonic_s() > deadline_s:
                return False
            election.poll(waiting.POLL_S)
            self._status.round_s = self._clock.monotonic_s()
        leads = election.leader and election.term == term
        if leads:  # librdkafka takes the place away where no heartbeat came through for a session
            self._status.contact_s = self._clock.monotonic_s()
        return leads

    def _watch_topics(self) -> None:
        """Drop the records of recreated topics, when no command waits: a silent broker takes a look seconds."""
        if self._topics is None or not self._inbox.empty:
            return
        try:
            self._topics.step()
        except ClusterError as error:
            if not self._goes_on(error):
                raise

    def _watch_brokers(self) -> None:
        """Remember the brokers, when there is nothing else to do."""
        epoch = self._status.epoch
        if self._brokers is None or epoch is None or not self._inbox.empty:
            return
        try:
            self._brokers.step(epoch)
        except ClusterError as error:
            if not self._goes_on(error):
                raise

    def _look_at_log(self) -> None:
        """Once a claim, and not as a part of it: that has to be quick. The same is warned of only once."""
        if self._log_looked_at:
            return
        self._log_looked_at, before = True, self._log_weakness
        self._log_weakness = self._log.weakness()
        if self._log_weakness not in (None, before):
            logger.warning(
                "the mode log is not as safe as it could be: %s",
                self._log_weakness,
                extra=about_controller(self._controller_id, self._status.epoch),
            )

    def _wait_s(self) -> float:
        next_ms = self._engine.schedule.next_ms()
        if next_ms is None:
            return waiting.POLL_S
        return min(max(next_ms - elapsed_ms(self._clock), 0) / 1000, waiting.POLL_S)

    def _carry_out(self, job: Job, term: int) -> None:
        """Execute commands of the job for :data:`SLICE_S`, and answer once all of them have an outcome.

        An append proves that this is the leader. A success that appended nothing rests on memory, and would be an
        answer of the past in a process that was paused: the election is asked before it is given.
        """
        until_s = self._clock.monotonic_s() + SLICE_S
        try:
            while (command := job.begin(self._clock.monotonic_s())) is not None:
                appends = self._log.appends
                try:
                    result = self._engine.execute(command)
                except (ClusterError, ControllerFenced) as error:
                    # A fenced append may have been made: the answer to its commit may be what was lost.
                    goes_on = isinstance(error, ClusterError) and self._goes_on(error)
                    job.end(error, unknown=not goes_on)
                    if not goes_on:
                        raise
                    continue
                appended = self._log.appends > appends
                job.end(result, proved=appended or result.code is not ErrorCode.NONE)
                if appended:
                    job.prove()
                if job.complete or self._clock.monotonic_s() >= until_s or not self._still_leads(term):
                    break
            if not job.proved and self._surely_leads(term):
                job.prove()
        finally:
            self._put_down(job)

    def _put_down(self, job: Job) -> None:
        """Answer the job where it is complete, else queue it again: its commands go on after a new claim as well."""
        if job.in_command:
            job.end(ClusterError("the controller failed on this command"), unknown=True)
        if not job.proved:
            logger.warning("the brokers do not confirm that this is the active controller: commands are refused")
            job.drop_unproved()
        if job.complete:
            job.finish()
        else:
            self._inbox.put_back(job)

    def _surely_leads(self, term: int) -> bool:
        deadline_s = self._clock.monotonic_s() + CONFIRM_TIMEOUT_S
        while self._still_leads(term):
            if self._election.confirm(CONFIRM_TIMEOUT_S):
                return True
            if self._clock.monotonic_s() > deadline_s or self._status.stopping.is_set():
                return False
            self._election.poll(waiting.POLL_S)  # a rebalance takes a moment
        return False

    def _check(self, topic_id: str) -> bool:
        try:
            return self._engine.check(topic_id)
        except ClusterError as error:
            if not self._goes_on(error):
                raise
            self._engine.put_off(topic_id)
            return False

    def _goes_on(self, error: ClusterError) -> bool:
        """Whether nothing was appended for sure, and a new claim would not help: the record is too large."""
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE or not self._log.is_open:
            return False
        logger.error("%s", error)
        return True


def _claim_stays(why: str) -> None:
    logger.warning("stopping: the claim stays on the log, the next controller replaces it: %s", why)
