"""Who is the active controller: the member of a consumer group that is given the mode log's one partition."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ClusterError, ConfigError
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, TopicPartition
from modeaware.modelog.connection import connection_conf

logger = logging.getLogger("modeaware.controller")

HEARTBEATS_PER_SESSION = 8
"""A member learns of another's coming and going by its heartbeat: with a session of 8 s, within a second."""
MAX_POLL_INTERVAL_MS = 60_000
"""A controller that is stuck in one step for this long loses its place, however alive its heartbeats are."""
LEAVE_TIMEOUT_S = 3.0
POLL_S = 0.1
_MAX_EVENTS = 100
_REPLACED = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID})
_DENIED = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    }
)
"""What trying again does not help against."""


class Seat(Enum):
    """A member's place, as far as it knows.

    ``WAITING``: not assigned yet, or between two generations. ``LEADER``: it was given the partition. ``STANDBY``: it
    was given nothing, so another one has it.
    """

    WAITING = "waiting"
    LEADER = "leader"
    STANDBY = "standby"


class Election:
    """One member of the group ``modeaware-controller.<mode log>``. One thread owns it; callbacks run in its ``poll``.

    Classic protocol, assignor ``range``: it deals partitions to members in the order of their ids, which begin with the
    client id, which begins with the time of joining. So the longest there has the partition, and one who joins takes
    nothing away. Nothing is ever fetched.

    The group metadata that fences appends (KIP-447) is taken in the assignment that contains the partition and nowhere
    else: metadata asked for at any other time may be those of a standby's generation, with which the brokers accept a
    commit.

    A place that is lost (the session ran out) is given up together with its name: who comes back queues at the end.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings; others are ignored).
        topic: the mode log; it has to exist before :meth:`join`.
        session_timeout_ms: how long a silent member keeps its place.
        make_consumer: makes the consumer from its configuration; for tests.

    Attributes:
        seat: see :class:`Seat`.
        term: a number that goes up whenever leadership is gained anew. A rebalance that leaves the partition where it
            was (somebody joined or left) does not change it.
        group_metadata: what an append has to be sent with; None unless leader.
        refusal: why the brokers do not let it take part, where trying again does not help; None otherwise.
        trouble: the last thing that librdkafka has told of going wrong, since it was assigned anything; None: nothing.
        since_ms: when it took its place (wall-clock time, made later than everybody's before it); the members' order.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        session_timeout_ms: int,
        clock: Clock = SYSTEM_CLOCK,
        make_consumer: Callable[[dict[str, Any]], Consumer] = Consumer,
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._make_consumer = make_consumer
        self._conf: dict[str, Any] = {
            **connection_conf(conf, "election"),
            "group.id": group_id(topic),
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": session_timeout_ms // HEARTBEATS_PER_SESSION,
            "max.poll.interval.ms": max(MAX_POLL_INTERVAL_MS, session_timeout_ms),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            # A mode log that was deleted, or made again, is noticed this soon.
            "topic.metadata.refresh.interval.ms": 10_000,
            "on_commit": self._on_commit,
        }
        self._consumer: Consumer | None = None
        self._lost = False
        self._held_by: str | None = None  # the member id under which the partition was last given to this one
        self._asked = 0
        self._answered: tuple[int, KafkaError | None] | None = None
        self.seat = Seat.WAITING
        self.term = 0
        self.group_metadata: bytes | None = None
        self.refusal: ClusterError | None = None
        self.trouble: str | None = None
        self.since_ms = 0

    @property
    def leader(self) -> bool:
        """Whether this one has the partition now."""
        return self.seat is Seat.LEADER

    @property
    def lost(self) -> bool:
        """Whether its place was lost, or could not be taken: :meth:`join` again."""
        return self._lost

    def join(self, after_ms: int = 0) -> None:
        """Take a place at the end of the queue; one that is held is left first.

        Args:
            after_ms: wall-clock time at which somebody else is known to have been there already: it orders the members
                where hosts' clocks differ.

        Raises:
            ConfigError: librdkafka does not take a setting, or cannot read a file that one names just now. No place is
                held then (:attr:`lost`).
        """
        self.close()
        self.since_ms = max(self._clock.now_ms(), after_ms + 1)
        conf = {**self._conf, "client.id": f"modeaware-controller-{self.since_ms:015d}"}
        try:
            self._consumer = self._make_consumer(conf)
        except KafkaException as error:
            self._lost = True
            raise ConfigError(f"client settings: {error.args[0].str()}") from error
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take in what has happened. To be called twice a second at least, in between for work; never blocks longer
        than ``timeout_s``."""
        if self._consumer is None:
            return
        for _ in range(_MAX_EVENTS):
            event = self._consumer.poll(timeout_s)
            if event is None:
                return
            timeout_s = 0.0
            error = event.error()
            if error is None:
                continue
            logger.debug("election: %s", error)
            self.trouble = f"{error.str()} ({error.name()})"
            if error.code() in _DENIED and self.refusal is None:
                self.refusal = ClusterError(
                    f"cannot take part in the election of the controller, group {group_id(self._topic)!r}: "
                    f"{error.str()} ({error.name()})",
                    topic=self._topic,
                )
                logger.error("%s", self.refusal)

    def confirm(self, timeout_s: float) -> bool | None:
        """Ask the group's coordinator whether this one still has its place, by a commit in its present generation.

        For whoever is about to do what fences another, or what nothing fences, or was fenced: a process that was paused
        does not know yet. The coordinator takes the commit for a heartbeat: for a session from the moment this was
        called, nobody else is elected, unless this one leaves (a commit within a transaction has no such effect).

        Returns:
            True: it is the leader. False: it is not; :meth:`join` again unless it is just not the leader. None: no
            answer in time.
        """
        consumer, deadline_s = self._consumer, self._clock.monotonic_s() + timeout_s
        if consumer is None or not self.leader:
            return False
        self._asked += 1
        term = self.term
        try:
            # The offset tells this question's answer from one that came late.
            consumer.commit(offsets=[TopicPartition(self._topic, 0, self._asked)], asynchronous=True)
        except KafkaException as error:
            logger.debug("election: %s", error)
            return None
        while self._answered is None or self._answered[0] != self._asked:
            self.poll(POLL_S)
            if not self._leads_in(term):
                return False
            if self._clock.monotonic_s() > deadline_s:
                return None
        failure = self._answered[1]
        if failure is None:
            return True
        return self._refused(failure) if failure.code() in _REPLACED else None

    def close(self, timeout_s: float = LEAVE_TIMEOUT_S) -> None:
        """Leave the group, so that another one takes over at once. Waits ``timeout_s`` at most: a frozen coordinator
        never answers, and will drop this member by itself. Idempotent."""
        consumer, self._consumer = self._consumer, None
        self.seat, self.group_metadata, self._held_by = Seat.WAITING, None, None
        self._lost = False
        if consumer is None:
            return
        # In a thread, because it can block for minutes. Nobody else uses this consumer any more.
        leaving = threading.Thread(target=consumer.close, name="modeaware-election-close", daemon=True)
        leaving.start()
        leaving.join(timeout_s)
        if leaving.is_alive():
            logger.warning("leaving the election: no answer within %g s; the brokers will notice", timeout_s)

    def _leads_in(self, term: int) -> bool:
        return self.seat is Seat.LEADER and self.term == term

    def _refused(self, error: KafkaError) -> bool:
        logger.warning("this controller has lost its place in the election: %s", error.str())
        self._give_up()
        return False

    def _give_up(self) -> None:
        self.seat, self.group_metadata, self._held_by = Seat.WAITING, None, None
        self._lost = True

    # Callbacks: in poll() or close(), of the consumer that is in use or of one that is being closed.

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # A member may hold less than it was given; what is not held is not fetched.
        consumer.assign([])
        if consumer is not self._consumer:
            return
        self.refusal = self.trouble = None
        if not any(given.topic == self._topic and given.partition == 0 for given in partitions):
            self.seat, self.group_metadata, self._held_by = Seat.STANDBY, None, None
            return
        before, metadata, after = consumer.memberid(), consumer.consumer_group_metadata(), consumer.memberid()
        if not before or before != after:
            # Lost in this very moment. Metadata without a member are those of a stranger, whose commits are accepted.
            self._give_up()
            return
        if self._held_by != before:
            self.term += 1
        self.seat, self.group_metadata, self._held_by = Seat.LEADER, metadata, before

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if consumer is self._consumer:  # the member stays: it may well be given the partition again
            self.seat, self.group_metadata = Seat.WAITING, None

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # librdkafka would join again at once, under the old name, which sorts before that of whoever took over.
        consumer.unsubscribe()
        if consumer is self._consumer:
            self._give_up()

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._answered = (partition.offset, error)


def group_id(topic: str) -> str:
    """The consumer group of the controllers that keep this mode log."""
    return f"modeaware-controller.{topic}"
