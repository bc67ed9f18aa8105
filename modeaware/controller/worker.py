"""The controller's thread: the election, the work of a leader, the answers of a standby.

A *leader* of the election claims the log, executes commands, and checks topics that are due. A *claim* is the record by
which a leader becomes the active controller. Opening the log fences other controllers (as Kafka fences producers). So a
leader opens the log only after the brokers have confirmed the leader's place; otherwise two controllers could fence
each other in turns. After a failed append the content of the log is unknown. So the leader claims the log again, and
every claim begins by reading the log. A *standby* reads the claim periodically; its answer to commands names the
controller of the claim. A member without progress rejoins the election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from modeaware.callouts import get_logger
from modeaware.clock import Clock
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.group_listing import election_group
from modeaware.config import ControllerConfig
from modeaware.controller.cluster_watch import BrokerWatch, TopicWatch
from modeaware.controller.election import Election, Seat
from modeaware.controller.engine import Engine
from modeaware.controller.inbox import NOT_BEGUN, Inbox, Job
from modeaware.controller.log import ClaimWatch, Contact, ControllerLog, describe_claim
from modeaware.controller.schedule import elapsed_ms
from modeaware.controller.status import LEADERLESS_S, Role, Status, about_controller
from modeaware.errors import (
    ClusterError,
    ConfigError,
    ControllerFenced,
    ControllerUnavailable,
    ErrorCode,
    ModeAwareError,
    ModeSourceError,
)
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import UNKNOWN_GENERATION

logger = get_logger("modeaware.controller")

POLL_S = 0.1
"""How long the thread of a controller that is not active waits for a command, before it polls the election again."""
SERVE_POLL_S = 0.5
"""How long the active controller waits for a command, unless a topic becomes due earlier."""
STUCK_S = 45.0
"""After this time a member without progress rejoins the election. It is a leader that cannot claim the log, or a member
that is neither leader nor standby."""
START_PATIENCE_S = 60.0
"""How long a start is retried while no broker answers."""
FIRST_READ_TIMEOUT_S = 10.0
RETRY_DELAY_S = 2.0
CONFIRM_TIMEOUT_S = 10.0
SEAL_SLACK_MS = 1_000
STOP_APPEND_TIMEOUT_S = 3.0
SLICE_S = 0.25
"""How long commands of one request are executed before other requests, and due checks, have their turn."""
FIRST_TOPICS, MOST_TOPICS = 64, 1_000
PASS_S = 1.0
LOG_CHECK_INTERVAL_S = 60.0
"""How often the active controller checks whether the mode log is still fit, and how safe its replication is."""
CLAIM_READ_TIMEOUT_S = 5.0
CLAIM_REFRESH_S, LEADERLESS_REFRESH_S = 10.0, 1.0
"""After how long a standby reads the claim again. The second value holds while the leader has not claimed the log."""


class Together:
    """The number of topics in one pass: ``topics``, :data:`FIRST_TOPICS` at first. Pure.

    Each pass lists all groups, so larger passes need fewer requests in all. But the election and other commands wait
    for the end of a pass. After a pass that took longer than :data:`PASS_S`, half of its topics become the number. If
    the smaller pass takes almost as long (because one broker does not answer, for example), the larger number is
    restored. After a pass of exactly this number that took less than half of :data:`PASS_S`, the number is doubled, up
    to :data:`MOST_TOPICS`. A pass of fewer topics than both the number and :data:`FIRST_TOPICS` changes nothing:
    most of its time does not depend on its topics.
    """

    def __init__(self) -> None:
        self.topics = FIRST_TOPICS
        self._slow: tuple[int, float] | None = None

    def took(self, topics: int, time_s: float) -> None:
        if topics < min(self.topics, FIRST_TOPICS):
            return
        if time_s > PASS_S:
            before, self._slow = self._slow, (topics, time_s)
            if before is not None and topics < before[0] and time_s > 0.75 * before[1]:
                self.topics = before[0]
            else:
                self.topics = max(topics // 2, 1)
        elif time_s < PASS_S / 2 and topics == self.topics:
            self.topics, self._slow = min(topics * 2, MOST_TOPICS), None


@dataclass
class Worker:
    """The work of the thread ``modeaware-controller`` (with ``--once``, of the caller's thread).

    Only that thread uses the worker's parts. Other threads may use the inbox and the status, and read the last claim
    and the engine's ``watched``. At the end, the worker closes the ``clusters``, which its parts use. A failed append
    (ControllerFenced, ClusterError) ends the claim, unless a record was too large.
    """

    engine: Engine
    log: ControllerLog
    election: Election
    claims: ClaimWatch
    inbox: Inbox
    status: Status
    config: ControllerConfig
    contact: Contact
    controller_id: str
    clock: Clock
    brokers: BrokerWatch | None = None
    topics: TopicWatch | None = None
    clusters: tuple[Cluster, ...] = ()

    def __post_init__(self) -> None:
        now_s = self.clock.monotonic_s()
        self._useful_s = now_s  # last progress: joined, standing by, or leading with a claim
        self._claim_read_s: float | None = now_s  # when a standby last read the claim; None: read at once
        self._together = Together()
        self._log_check_s = 0.0
        self._weakness: str | None = None
        self._leaderless_logged = False

    def run(self) -> None:
        """Serve until stopped."""
        try:
            self._enter()
            while not self._stopping:
                self.status.round_s = self.clock.monotonic_s()
                if self._is_elected():
                    self._lead()
                else:
                    self._stand_by()
        finally:
            self._leave()

    def run_once(self, patience_s: float) -> None:
        """Wait up to ``patience_s`` to be elected, advance every topic as far as possible now, and leave."""
        try:
            self._enter()
            if self._elected_within(patience_s):
                term = self._claim()
                if term is None:
                    raise ControllerFenced("another controller has taken over")
                self._advance_all(term)
        finally:
            self._leave()

    @property
    def _stopping(self) -> bool:
        return self.status.stopping.is_set()

    # Coming and going

    def _enter(self) -> None:
        """Read the claim, create the log if it is missing, join the election. After a stop, no further step begins."""
        self._patiently(lambda: self.claims.read(FIRST_READ_TIMEOUT_S))
        self._patiently(self.log.ensure)
        if not self._stopping:
            self._join()

    def _patiently(self, step: Callable[[], object]) -> None:
        """Run the step. Repeat it while no broker answers, for a minute at most: the only broker may be restarting."""
        deadline_s = self.clock.monotonic_s() + START_PATIENCE_S
        while not self._stopping:
            self.status.round_s = self.clock.monotonic_s()
            try:
                step()
                return
            except (ClusterError, ModeSourceError) as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT or self.clock.monotonic_s() > deadline_s:
                    raise
                self.status.trouble = str(error)
                logger.warning("%s; retrying", error)
            self.status.stopping.wait(RETRY_DELAY_S)

    def _join(self) -> None:
        claim = self.claims.claim
        self.election.join(claim.claimed_ms if claim is not None else 0)
        self._useful_s = self.clock.monotonic_s()

    def _rejoin(self) -> None:
        """Rejoin the election behind all other members. Waiting commands are refused: their clients retry."""
        self.inbox.refuse_all("this controller has lost its place in the election: nothing was changed")
        self.election.close()
        if self.status.role is Role.STARTING:
            self.log.close()
        else:
            self._step_down()
        self._read_claim()
        try:
            self._join()
        except ConfigError as error:
            if self.status.role is Role.STARTING:
                raise
            # The settings worked before. Perhaps a file that the settings name is being replaced now.
            logger.warning("%s; rejoining the election", error)
            self.status.stopping.wait(RETRY_DELAY_S)

    def _leave(self) -> None:
        """Hand over at once: release the claim, then leave the group."""
        try:
            if self.status.role is Role.ACTIVE:
                self._release()
        finally:
            self.log.close()
            self.election.close()
            self.engine.stand_by()
            for cluster in self.clusters:
                cluster.close()

    # The election

    def _is_elected(self) -> bool:
        """Poll; return whether this controller is the leader, and so may claim the log."""
        election = self.election
        election.poll()
        now_s = self.clock.monotonic_s()
        if election.seat is Seat.STANDBY:
            self._useful_s = now_s
        if election.lost:
            logger.warning("this controller has lost its place in the election; rejoining")
            self._rejoin()
        elif now_s - self._useful_s > STUCK_S:
            logger.warning("no progress in the election for %g s; rejoining it", STUCK_S)
            self._rejoin()
        if self.status.role is Role.STARTING:
            self.status.trouble = election.trouble or self.status.trouble
            if election.refusal is not None:
                raise election.refusal
        return election.leader and not self._stopping

    def _elected_within(self, patience_s: float) -> bool:
        deadline_s = self.clock.monotonic_s() + patience_s
        while not self._is_elected():
            if self.status.stopping.wait(POLL_S):
                return False
            if self.election.seat is Seat.STANDBY or self.clock.monotonic_s() > deadline_s:
                self._read_claim()
                waiting = self.election.seat is Seat.WAITING
                why = f"not elected within {patience_s:g} s" if waiting else "another controller is running"
                raise ControllerUnavailable(f"{why}: {describe_claim(self.claims.claim)}")
        return True

    def _lead(self) -> None:
        try:
            term = self._claim()
            if term is not None:
                self._serve(term)
        except ControllerFenced as error:
            # Another controller has opened the log: the new leader, or a former leader whose process was paused.
            logger.warning("%s; checking the election", error)
            self.log.close()
        except (ClusterError, ConfigError, ModeSourceError) as error:
            if self.status.role is Role.STARTING:
                if error.code not in (ErrorCode.REQUEST_TIMED_OUT, NOT_BEGUN):
                    raise
                self.status.trouble = str(error)
            # The outcome of the last append is unknown: a new claim reads the log again. A leader also claims again if
            # the log's topic could not be described. If claims fail for STUCK_S, another controller becomes the leader.
            self.status.log_failures += 1
            logger.warning("%s; claiming the mode log again", error)
            self.log.close()
            deadline_s = self.clock.monotonic_s() + RETRY_DELAY_S
            while self.clock.monotonic_s() < deadline_s and not self.status.stopping.wait(POLL_S):
                self.election.poll()

    def _still_leads(self, term: int) -> bool:
        """Poll; return whether this controller still leads in ``term``. In a rebalance, wait for its end."""
        election = self.election
        election.poll()
        self.status.round_s = self.clock.monotonic_s()
        deadline_s = self.status.round_s + STUCK_S
        while election.seat is Seat.WAITING and not election.lost and not self._stopping:
            if self.clock.monotonic_s() > deadline_s:
                return False
            election.poll(POLL_S)
            self.status.round_s = self.clock.monotonic_s()
        leads = election.leader and election.term == term
        if leads:  # librdkafka revokes the place if heartbeats fail for a session
            self.status.contact_s = self.clock.monotonic_s()
        return leads

    def _still_claims(self, term: int) -> bool:
        """Return whether this controller still leads in ``term``. If so, renew the claim for the present generation."""
        leads = self._still_leads(term)
        if leads:
            self.engine.renew(self._generation)
        return leads

    def _surely_leads(self, term: int) -> bool:
        deadline_s = self.clock.monotonic_s() + CONFIRM_TIMEOUT_S
        while self._still_leads(term):
            if self.election.confirm(CONFIRM_TIMEOUT_S):
                return True
            if self.clock.monotonic_s() > deadline_s or self._stopping:
                return False
            self.election.poll(POLL_S)  # a rebalance takes a moment
        return False

    # The leader

    def _claim(self) -> int | None:
        """Claim the log if the brokers confirm that this controller leads. An unconfirmed claim could fence the leader.

        Returns:
            The election's term of the claim, or None if this controller does not lead.
        """
        confirmed = self.election.confirm(CONFIRM_TIMEOUT_S)
        if confirmed is None:
            text = "the coordinator has not confirmed this controller as the leader"
            raise ClusterError(text, code=ErrorCode.REQUEST_TIMED_OUT)
        if not confirmed:
            return None
        term = self.election.term
        self.status.contact_s = self.clock.monotonic_s()
        epoch = self.engine.claim(
            self.controller_id,
            self.contact,
            not_before_ms=self.election.since_ms,
            seen_epoch=self.claims.highest_epoch,
            generation=self._generation,
        )
        self.status.leaderless_s = None
        self.status.become(Role.ACTIVE, epoch)
        self._log_check_s = self.clock.monotonic_s()
        logger.info("active: epoch %d", epoch, extra=about_controller(self.controller_id, epoch))
        return term

    @property
    def _generation(self) -> int:
        return UNKNOWN_GENERATION if self.election.generation is None else self.election.generation

    def _release(self) -> None:
        """Remove the address from the claim, if this controller still leads. If the address stays, log why."""
        try:
            if not self.election.leader:
                raise ControllerFenced("an election is under way")
            if not self.log.is_open:
                raise ControllerFenced("the mode log has not been claimed again after a failed append")
            self.log.timeout_s = STOP_APPEND_TIMEOUT_S
            self.engine.release()
        except (ClusterError, ControllerFenced) as error:
            text = "stopping: this controller's address was not removed from the claim (%s); the next claim replaces it"
            logger.warning(text, error)

    def _serve(self, term: int) -> None:
        """Serve until the term ends, or until stopped."""
        schedule = self.engine.schedule
        while not self._stopping and self._still_claims(term):
            self._useful_s = self.clock.monotonic_s()
            next_ms = schedule.next_ms()
            wait_s = SERVE_POLL_S if next_ms is None else (next_ms - elapsed_ms(self.clock)) / 1000
            job = self.inbox.take(min(max(wait_s, 0), SERVE_POLL_S))
            if job is not None:
                self._carry_out(job, term)
            if (due := schedule.due(elapsed_ms(self.clock))) and self._still_claims(term):
                self._check(due)
            self._watch_cluster()
            self._check_log()

    def _advance_all(self, term: int) -> None:
        """Advance every topic as far as possible now."""
        engine, patience_ms = self.engine, self.config.seal_quiet_ms + SEAL_SLACK_MS
        self._watch_cluster()
        give_up_ms = elapsed_ms(self.clock) + patience_ms
        while not self._stopping:
            if not self._still_claims(term):
                raise ControllerFenced("another controller has taken over")
            due = engine.schedule.due(elapsed_ms(self.clock))
            if due and self._check(due):
                give_up_ms = elapsed_ms(self.clock) + patience_ms
            now_ms, next_ms = elapsed_ms(self.clock), engine.schedule.next_ms()
            sealing = any(topic_phase(record) == "seal" for record in engine.records)
            if next_ms is None or (next_ms > now_ms and not (sealing and now_ms < give_up_ms)):
                return
            self.status.stopping.wait(min(max(min(next_ms, give_up_ms) - now_ms, 0) / 1000, POLL_S))

    def _carry_out(self, job: Job, term: int) -> None:
        """Execute commands of the job for :data:`SLICE_S`, and answer once all commands of the job have an outcome.

        A successful append proves that this controller leads. A command that needs no append is answered from memory,
        which may be stale if the process was paused. So the election has to confirm the leader before such an answer.
        """
        until_s = self.clock.monotonic_s() + SLICE_S
        try:
            while commands := job.begin(self.clock.monotonic_s(), self._together.topics):
                appends = self.log.appends
                try:
                    with self._timed(len(commands)):
                        results = self.engine.execute(commands)
                except (ClusterError, ControllerFenced) as error:
                    # A fenced append may have been committed: perhaps only the response was lost.
                    harmless = self._is_harmless(error)
                    nothing = (harmless or error.code is NOT_BEGUN) and self.log.appends == appends
                    # To clients, a ControllerFenced means that the outcome is unknown.
                    answer = ClusterError(error.message, code=error.code) if nothing else error
                    job.end([answer] * len(commands), unknown=not nothing)
                    if not harmless:
                        raise
                    continue
                appended = self.log.appends > appends
                job.end(results, proved=appended)
                if appended:
                    job.prove()
                if job.complete or self.clock.monotonic_s() >= until_s or not self._still_leads(term):
                    break
            if not job.proved and self._surely_leads(term):
                job.prove()
        finally:  # answer a complete job; queue an incomplete job again, for later (perhaps under a new claim)
            if job.in_command:
                job.end([ClusterError("the controller failed on this command")] * job.in_command, unknown=True)
            if not job.proved:
                logger.warning("the brokers do not confirm that this is the active controller: commands are refused")
                job.drop_unproved()
            if job.complete:
                job.finish()
            else:
                self.inbox.put_back(job)

    def _check(self, due: Sequence[str]) -> bool:
        """Check the topics that have been due for the longest time; return whether anything changed."""
        some = self.engine.awake(due)[: self._together.topics]
        if not some:
            return False
        with self._timed(len(some)):
            return self.engine.check(some)

    @contextmanager
    def _timed(self, topics: int) -> Iterator[None]:
        """Note the duration of the work on ``topics``, even if the work fails (by a timeout)."""
        start_s = self.clock.monotonic_s()
        try:
            yield
        finally:
            self._together.took(topics, self.clock.monotonic_s() - start_s)

    def _is_harmless(self, error: ModeAwareError) -> bool:
        """Return whether the error needs no new claim: the record was too large, so certainly nothing was appended."""
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE or not self.log.is_open:
            return False
        logger.error("%s", error)
        return True

    def _watch_cluster(self) -> None:
        """Watch topics and brokers. Skip this while a command waits: a broker that does not answer takes seconds."""
        topics, brokers, epoch = self.topics, self.brokers, self.status.epoch
        try:
            if topics is not None and self.inbox.empty:
                topics.step()
            if brokers is not None and epoch is not None and self.inbox.empty:
                brokers.step(epoch)
        except ClusterError as error:
            if not self._is_harmless(error):
                raise

    def _check_log(self) -> None:
        """Check the log's configs and replication, soon after a claim (a claim has to be quick) and periodically.

        A log that has become unfit (brokers may delete its records, for example) is reported at each check. The active
        controller still appends to such a log, because it has all records in memory. A new claim of the log is refused,
        because records that brokers deleted would be missing. Effects wait until the log is fit.
        """
        if self.clock.monotonic_s() < self._log_check_s or not self.inbox.empty:
            return  # a broker that does not answer delays commands by seconds
        self._log_check_s = self.clock.monotonic_s() + LOG_CHECK_INTERVAL_S
        about, before = about_controller(self.controller_id, self.status.epoch), self._weakness
        try:
            self._weakness = self.log.weakness()
        except ClusterError as error:
            self.status.log_failures += 1
            logger.error("%s", error, extra=about)
            return
        if self._weakness not in (None, before):
            logger.warning("the mode log is weakly replicated: %s", self._weakness, extra=about)

    # The standby

    def _stand_by(self) -> None:
        """Wait a moment for a command, and refuse it with the name of the active controller."""
        if self.election.seat is Seat.STANDBY:
            self._step_down()
        self._follow_claim()
        self._watch_claim()
        if self.status.role is not Role.STANDBY:  # the election is under way: commands wait for its end
            self.election.poll(POLL_S)
            return
        job = self.inbox.take(POLL_S)
        if job is not None:
            self._read_claim()
            job.refuse(ControllerUnavailable(f"this controller stands by: {describe_claim(self.claims.claim)}"))

    def _step_down(self) -> None:
        self.log.close()
        self.engine.stand_by()
        if self.status.become(Role.STANDBY):
            self._claim_read_s = None

    def _watch_claim(self) -> None:
        """Note the time since which the log has no claim of this member's generation: perhaps another program leads."""
        claim, status, now_s = self.claims.claim, self.status, self.clock.monotonic_s()
        generation = self.election.generation
        if self.election.seat is not Seat.STANDBY or generation is None:
            return
        if claim is not None and claim.generation in (generation, UNKNOWN_GENERATION):
            status.leaderless_s = None
            self._leaderless_logged = False
        elif status.leaderless_s is None:
            status.leaderless_s = now_s
        elif now_s - status.leaderless_s > LEADERLESS_S and not self._leaderless_logged:
            self._leaderless_logged = True
            logger.error(
                "no active controller: the leader of group %s has not claimed the mode log for %g s. Describe the "
                "group's members. A member whose client id does not begin with '!modeaware-controller' is no "
                "controller: stop its process, and check which users may READ the group",
                election_group(self.config.mode_log_topic),
                LEADERLESS_S,
            )

    def _read_claim(self) -> None:
        try:
            self.claims.read(CLAIM_READ_TIMEOUT_S)
            self.status.contact_s = self.clock.monotonic_s()
        except ModeSourceError as error:
            logger.info("cannot read the claim on the mode log: %s", error)

    def _follow_claim(self) -> None:
        now_s = self.clock.monotonic_s()
        refresh_s = CLAIM_REFRESH_S if self.status.leaderless_s is None else LEADERLESS_REFRESH_S
        if self._claim_read_s is not None and now_s - self._claim_read_s <= refresh_s:
            return
        before, first = self.claims.claim, self._claim_read_s is None
        self._read_claim()
        if self.claims.absent:  # without a mode log no leader is elected
            try:
                self.log.ensure()
            except ClusterError as error:
                logger.warning("%s", error)
        self._claim_read_s = self.clock.monotonic_s()
        claim = self.claims.claim
        if self.status.role is Role.STANDBY and (first or describe_claim(before) != describe_claim(claim)):
            about = {} if claim is None else about_controller(claim.controller_id, claim.controller_epoch)
            logger.info("standby: %s", describe_claim(claim), extra=about)


def run_worker(worker: Worker, status: Status, inbox: Inbox) -> None:
    """Run the worker in its thread. When the worker ends, set its failure, if any, and answer all waiting commands."""
    try:
        worker.run()
        status.become(Role.STOPPED)
    except ModeAwareError as error:
        logger.error("controller stops: %s", error)
        status.become(Role.STOPPED, failure=error)
    except Exception as error:
        logger.exception("controller stops: this is a bug in modeaware")
        status.become(Role.STOPPED, failure=error)
        raise
    finally:
        status.stopping.set()
        inbox.refuse_all("this controller has stopped: nothing was changed")
