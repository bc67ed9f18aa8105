"""The election of the active controller, and the lease for its changes outside the mode log.

*Election.* Controllers are members of the consumer group ``modeaware-controller.<mode log>`` (classic protocol,
assignor ``range``). The leader is the member to which the mode log's one partition is assigned. ``range`` assigns
partitions in the order of member ids. A member id begins with the client id; after a ``!`` and a name, the client id
contains the time of joining. So the members form a queue: the member that joined first has the partition, and keeps it
when others join. No member ever fetches a record.

Each append contains the appending member's group metadata, so that brokers fence the appends of former leaders
(KIP-447). A member takes the metadata for its appends only in the callback that assigns the partition to it. At another
time the metadata may be those of a standby, and brokers accept an append with a standby's metadata, too. A member that
has lost its place (mostly because its session has ended) rejoins under a new client id, at the end of the queue.

*Strangers.* A consumer that joins the group and subscribes to the mode log by mistake sorts after every controller. The
client ids of controllers begin with ``!``, and of all printable characters only a space sorts before ``!``. A consumer
that joins on purpose can take the partition, but cannot claim the mode log. To reveal such a leader, a controller that
leads writes the group's generation into its claim, and appends the claim again in each new generation. If a standby
does not find its own generation in the claim for some seconds, it reports that no controller is active.

*Lease.* *Effects* are requests that change something outside the mode log. In effects such as DeleteRecords, brokers
check no generation. So before each batch of effects, the group's coordinator has to confirm the leader, by a plain
OffsetCommit (:meth:`Election.confirm`). The commit counts as a heartbeat: for a session from then on, the coordinator
does not remove this member. (An append proves leadership too, but the commit in its transaction extends no session.)
The member polls while it waits for the commit's response. So rebalances continue, and the pause between two polls stays
below ``max.poll.interval.ms`` (at least 60 s), after which librdkafka would leave the group.

The lease begins when the confirmation is requested, on a clock that (on Linux) also runs while the machine is
suspended. The lease is half a session. If a request's usual time limit exceeds the other half, the lease is shorter.
Before an effect's request, topic ids and leaders are read, which may be slow. So the lease is checked again right
before the request is sent. Then the request may wait for a connection, and is sent once more if the connection breaks.
All this takes at most the time limit (:func:`request_timeout_s`), which is no longer than the rest of the session. Two
cases remain: a process that is paused between the check and the sending, and a broker that carries out a request long
after its arrival. Because the engine appends before it performs effects, a replaced controller repeats no postponed
effect.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.group_listing import election_group
from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, TopicPartition
from modeaware.lifecycle.commands import Effect
from modeaware.modelog.connection import connection_conf
from modeaware.wire.brokers import REQUEST_TIMEOUT_S

logger = get_logger("modeaware.controller")

HEARTBEATS_PER_SESSION = 8
"""The response to a heartbeat announces a rebalance: with a session of 8 s, within a second."""
MAX_POLL_INTERVAL_MS = 60_000
"""A controller that is stuck in one step for this long, and for a session, loses its place in spite of heartbeats."""
LEAVE_TIMEOUT_S = 3.0
POLL_S = 0.1
LEASE_CONFIRM_TIMEOUT_S = 2.0
_MAX_EVENTS = 100
_METADATA_MAGIC = b"CGMDv2:"
"""The beginning of librdkafka's consumer group metadata; the generation follows, in native byte order."""
_REPLACED = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID})
_DENIED = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    }
)
"""Errors that a retry does not resolve."""


class Seat(Enum):
    """A member's place, by its last assignment.

    ``WAITING``: not assigned yet, between two generations, or without a place. ``LEADER``: the member has the
    partition. ``STANDBY``: another member has the partition.
    """

    WAITING = "waiting"
    LEADER = "leader"
    STANDBY = "standby"


class Election:
    """One member of the group. One thread owns it. Callbacks run in :meth:`poll`, or while a consumer is being closed.

    Attributes:
        seat: see :class:`Seat`.
        term: a number that rises whenever this member becomes the leader anew. A rebalance that leaves the partition
            with this member (another member joined or left) does not change the term.
        group_metadata: the metadata to send with an append; None unless leader.
        lost: whether the place was lost, or could not be taken; :meth:`join` takes a new place.
        refusal: why the brokers reject the member permanently, if they do.
        trouble: the last error that librdkafka has reported since the last assignment, if any.
        generation: the group's generation at the last assignment, even if no partition was assigned; None if unknown.
        since_ms: when the member took its place (wall-clock time, later than ``after_ms`` of :meth:`join`).
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
            "group.id": election_group(topic),
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": session_timeout_ms // HEARTBEATS_PER_SESSION,
            "max.poll.interval.ms": max(MAX_POLL_INTERVAL_MS, session_timeout_ms),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            # How soon librdkafka notices that the mode log was deleted, or created again.
            "topic.metadata.refresh.interval.ms": 10_000,
            "on_commit": self._on_commit,
        }
        self._consumer: Consumer | None = None
        self.lost = False
        self._held_by: str | None = None  # the member id to which the partition was last assigned
        self._asked = 0
        self._answered: tuple[int, KafkaError | None] | None = None
        self.seat = Seat.WAITING
        self.term = 0
        self.group_metadata: bytes | None = None
        self.refusal: ClusterError | None = None
        self.trouble: str | None = None
        self.generation: int | None = None
        self.since_ms = 0

    @property
    def leader(self) -> bool:
        return self.seat is Seat.LEADER

    def join(self, after_ms: int = 0) -> None:
        """Leave the present place, if any, and take a place at the end of the queue.

        Args:
            after_ms: the wall-clock time of an earlier member. The new place sorts later, even if this clock is behind.

        Raises:
            ConfigError: librdkafka rejects a setting, or cannot read a setting's file. The place is then :attr:`lost`.
        """
        self.close()
        self.since_ms = max(self._clock.now_ms(), after_ms + 1)
        conf = {**self._conf, "client.id": f"!modeaware-controller-{self.since_ms:015d}"}
        try:
            self._consumer = self._make_consumer(conf)
        except KafkaException as error:
            self.lost = True
            raise ConfigError(f"client settings: {error.args[0].str()}") from error
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, timeout_s: float = 0.0) -> None:
        """Process events. Call this at least twice a second; it blocks for at most ``timeout_s``."""
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
                    f"cannot take part in the election of the controller, group {election_group(self._topic)!r}: "
                    f"{error.str()} ({error.name()})",
                    topic=self._topic,
                )
                logger.error("%s", self.refusal)

    def confirm(self, timeout_s: float) -> bool | None:
        """Make the group's coordinator confirm this member's place, by a commit in its present generation.

        Required before an action that fences other controllers, and before an action that brokers do not fence. A
        process that was paused has no other sign that its place was lost. After True, no other member is elected within
        a session from this call, unless this member leaves or calls :meth:`poll`.

        Returns:
            True if this member leads; False if not (if the place is :attr:`lost`, call :meth:`join`); None if that is
            unknown, because of a timeout or another error.
        """
        consumer, deadline_s = self._consumer, self._clock.monotonic_s() + timeout_s
        if consumer is None or not self.leader:
            return False
        self._asked += 1
        term = self.term
        try:
            # The offset distinguishes this answer from a late one.
            consumer.commit(offsets=[TopicPartition(self._topic, 0, self._asked)], asynchronous=True)
        except KafkaException as error:
            logger.debug("election: %s", error)
            return None
        while self._answered is None or self._answered[0] != self._asked:
            self.poll(POLL_S)
            if self.seat is not Seat.LEADER or self.term != term:
                return False
            if self._clock.monotonic_s() > deadline_s:
                return None
        failure = self._answered[1]
        if failure is None:
            return True
        if failure.code() not in _REPLACED:
            return None
        logger.warning("the broker removed this controller from the election: %s; rejoining", failure.str())
        self._give_up()
        return False

    def close(self, timeout_s: float = LEAVE_TIMEOUT_S) -> None:
        """Leave the group, so that another member takes over at once. Idempotent."""
        consumer, self._consumer = self._consumer, None
        self.seat, self.group_metadata, self._held_by = Seat.WAITING, None, None
        self.lost, self.generation = False, None
        if consumer is None:
            return
        # In a thread of its own, because closing can block for minutes. No other code uses this consumer any more.
        leaving = threading.Thread(target=consumer.close, name="modeaware-election-close", daemon=True)
        leaving.start()
        leaving.join(timeout_s)
        if leaving.is_alive():
            logger.warning(
                "left the election, but no broker answered within %g s; the brokers remove this controller when "
                "its session ends",
                timeout_s,
            )

    def _give_up(self) -> None:
        self.seat, self.group_metadata, self._held_by = Seat.WAITING, None, None
        self.lost = True

    # Callbacks: they run in poll() or close(), for the consumer in use or for one that is being closed.

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Hold no partition, so that librdkafka fetches nothing. The member stays assigned.
        consumer.assign([])
        if consumer is not self._consumer:
            return
        self.refusal = self.trouble = None
        self.generation = _generation(consumer.consumer_group_metadata())
        if not any(given.topic == self._topic and given.partition == 0 for given in partitions):
            self.seat, self.group_metadata, self._held_by = Seat.STANDBY, None, None
            return
        before, metadata, after = consumer.memberid(), consumer.consumer_group_metadata(), consumer.memberid()
        if not before or before != after:
            # The place has just been lost, and brokers accept commits with metadata that name no member.
            self._give_up()
            return
        if self._held_by != before:
            self.term += 1
        self.seat, self.group_metadata, self._held_by = Seat.LEADER, metadata, before

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if consumer is self._consumer:  # still a member, which may get the partition again
            self.seat, self.group_metadata = Seat.WAITING, None

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # librdkafka would rejoin at once, under the old client id, which sorts before the new leader's.
        consumer.unsubscribe()
        if consumer is self._consumer:
            self._give_up()

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._answered = (partition.offset, error)


def _generation(group_metadata: bytes | None) -> int | None:
    if group_metadata is None or not group_metadata.startswith(_METADATA_MAGIC):
        return None
    (generation,) = struct.unpack_from("=i", group_metadata, len(_METADATA_MAGIC))
    return int(generation)


# Lease


class LeasedEffects:
    """Performs effects only after the coordinator has confirmed the leader, and only within the lease."""

    def __init__(self, effects: Cluster, election: Election, session_timeout_ms: int, clock: Clock) -> None:
        self._effects = effects
        self._election = election
        self._lease_s = _lease_s(session_timeout_ms)
        self._clock = clock

    def perform(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        """Perform effects under one lease (invariant I5); return the failure of each effect, or None."""
        asked_s = self._clock.monotonic_s()
        if self._election.confirm(LEASE_CONFIRM_TIMEOUT_S) is not True:
            return [_put_off("the coordinator has not confirmed this controller as the leader")] * len(effects)

        def check() -> None:
            if self._clock.monotonic_s() - asked_s > self._lease_s:
                raise _put_off(
                    f"the coordinator confirmed this controller as the leader more than {self._lease_s:g} s ago"
                )

        return self._effects.perform(effects, check)

    def validate(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        """Make brokers validate effects; a validation changes nothing, so it needs no lease."""
        return self._effects.validate(effects)


def request_timeout_s(session_timeout_ms: int) -> float:
    """Return how long a request of an effect may take, in seconds: less than usual if the session is short."""
    return min(REQUEST_TIMEOUT_S, session_timeout_ms / 1_000 - _lease_s(session_timeout_ms))


def _lease_s(session_timeout_ms: int) -> float:
    session_s = session_timeout_ms / 1_000
    return min(session_s / 2, max(session_s - REQUEST_TIMEOUT_S, session_s / 4))


def _put_off(why: str) -> ClusterError:
    return ClusterError(f"put off: {why}", code=ErrorCode.REQUEST_TIMED_OUT)
