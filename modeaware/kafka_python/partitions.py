"""The partitions of a kafka-python consumer: which of them it reads, and from where.

kafka-python is assigned all partitions that the group gave to this member. The ones in mode None are *hidden*: paused
by us, and left out of what the application sees. So are those of a topic that replaces another one, until their gate is
open. So each partition keeps its owner in the group, and a change of modes between two rebalances is a pause, or a
resume at the position where reading stopped.
"""

from __future__ import annotations

import inspect
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.gate import READ
from modeaware.clients.starts import Key, Starts
from modeaware.clients.tally import PARTITIONS_LEFT_OUT, PARTITIONS_TAKEN_UP, TALLY
from modeaware.kafka_python._gateway import (
    AsyncConsumerRebalanceListener,
    KafkaError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    TopicPartition,
)
from modeaware.topic_view import TopicView

log = get_logger(__name__)

Partition = Any
"""kafka-python's TopicPartition: a tuple of topic and partition."""
Offsets = dict[Partition, int]

LEAST_LISTING_MS = 1000
"""How long offsets are requested for at least, also within a shorter poll: kafka-python starts over each time."""
MOST_LISTING_MS = 5000
"""And at most, within a long poll: a broker that does not answer must not keep the others' from being read."""
COMMIT_TIMEOUT_MS = 5000
METADATA_END = "\0"
"""Ends the metadata of our commits, as librdkafka ends it: without it, confluent_kafka's members of the group read on
behind its end, and fail where that is no text."""


class KafkaPythonOffsets:
    """Offsets that kafka-python requests from brokers: :class:`~modeaware.clients.starts.BrokerOffsets`, within a poll
    of ``timeout_ms``, after which ``committed`` raises KafkaTimeoutError.
    """

    def __init__(self, consumer: Any, timeout_ms: float | None) -> None:
        self._consumer = consumer
        self._timeout_ms = timeout_ms

    def committed(self, keys: Collection[Key]) -> dict[Key, int | None]:
        partitions = {TopicPartition(*key) for key in keys}
        commits = self._consumer._coordinator.fetch_committed_offsets(partitions, timeout_ms=self._timeout_ms)
        return {key: commits[key].offset if key in commits else None for key in keys}

    def committed_elsewhere(self, keys: Collection[Key]) -> dict[Key, int | None]:
        try:
            return self.committed(keys)
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            log.warning("committed offsets of earlier topics not known: %s", error)
            return {}

    def log_starts(self, keys: Collection[Key]) -> Offsets:
        return self._by_leader(self._consumer.beginning_offsets, keys)

    def log_ends(self, keys: Collection[Key]) -> Offsets:
        return self._by_leader(self._consumer.end_offsets, keys)

    def _by_leader(self, request: Callable[..., Offsets], keys: Collection[Key]) -> Offsets:
        """Request each broker's partitions apart: one that is away must not keep the others' from being read."""
        timeout_ms = MOST_LISTING_MS if self._timeout_ms is None else self._timeout_ms
        timeout_ms = min(max(timeout_ms, LEAST_LISTING_MS), MOST_LISTING_MS)
        leaders: dict[Any, list[Partition]] = defaultdict(list)
        for partition in (TopicPartition(*key) for key in keys):
            leaders[self._consumer._cluster.leader_for_partition(partition)].append(partition)
        found: Offsets = {}
        for leader, led in leaders.items():
            if leader in (None, -1):
                continue
            try:
                found.update(request(led, timeout_ms=timeout_ms))
            except KafkaTimeoutError as error:
                log.debug("start offsets of %s: %s", led, error)
        return found


class Partitions:
    """For the polling thread, and kafka-python's own thread while the former waits for it in a rebalance.

    Attributes:
        hidden: partitions that are assigned, and paused by us.
        changed: topics whose modes changed since the last assignment.
        unplaced: those of the hidden ones that only wait until it is known where to read them.
        is_lost: the group has dropped this member since its last join.
        left: topics that it has unsubscribed from since its last join.

    Args:
        is_shut: whether the gate before a topic is shut (:mod:`modeaware.clients.gates`): its partitions are hidden.
    """

    def __init__(
        self,
        subscription: Any,
        starts: Starts,
        view: Callable[[str], TopicView],
        is_shut: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        self._subscription = subscription
        self._starts = starts
        self._view = view
        self._shut = is_shut
        self._paused_by_application: set[Partition] = set()  # of the hidden ones
        self.unplaced: set[Partition] = set()
        self.hidden: set[Partition] = set()
        self.changed: set[str] = set()
        self.is_lost = False
        self.left: set[str] = set()

    def assigned(self) -> set[Partition]:
        """Return what kafka-python is assigned."""
        partitions: set[Partition] = self._subscription.assigned_partitions()
        return partitions

    def held(self) -> set[Partition]:
        """Return what the application sees."""
        return self.assigned() - self.hidden

    def stale(self) -> set[Partition]:
        """Return what is assigned since before a loss of the membership, or since before its topic was left. Once."""
        is_lost, self.is_lost, left, self.left = self.is_lost, False, self.left, set()
        return {p for p in self.assigned() if is_lost or p.topic in left}

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget where ``partitions`` were read, and that they are assigned."""
        self._starts.forget(partitions)
        with self._subscription._lock:
            for partition in partitions:
                self._subscription.assignment.pop(partition, None)

    def settle(self) -> None:
        """After a change of the assignment: hide what is in mode None, and nothing else."""
        assigned = self.assigned()
        self._starts.keep(assigned)
        gone, back = self.changes()
        self.hidden &= assigned
        self._show(back)
        self._hide(gone | self.hidden)

    def changes(self) -> tuple[set[Partition], set[Partition]]:
        """Return what is to be hidden, and what is to be shown again, of what is assigned, by the views in force."""
        assigned = self.assigned()
        target = {
            p
            for p in assigned
            if p in self.unplaced or not self._view(p.topic).is_readable(p.partition) or self._is_behind_gate(p.topic)
        }
        return target - self.hidden, (self.hidden & assigned) - target

    def _is_behind_gate(self, topic: str) -> bool:
        return self._shut(topic) and bool(self._subscription.partitions_auto_assigned())

    def consumed_offsets(self) -> dict[Partition, Any]:
        """Return what kafka-python commits of its own accord: nothing behind a shut gate, and with a note that the last
        record of a topic that is replaced is handled."""
        consumed = type(self._subscription).all_consumed_offsets(self._subscription)
        return {p: self._noted(p, at) for p, at in consumed.items() if not self._is_behind_gate(p.topic)}

    def _noted(self, partition: Partition, consumed: Any) -> Any:
        successor = self._view(partition.topic).successor
        end = None if successor is None else successor.read_up_to.get(partition.partition)
        return consumed if end is None or consumed.offset < end else consumed._replace(metadata=READ + METADATA_END)

    def skip_to_log_starts(self, find: Callable[[Collection[Partition]], Offsets]) -> None:
        """Retention may have taken the first records of a successor that has waited behind its gate: that is no error
        for ``auto_offset_reset`` to decide. For the polling thread, before it shows such partitions.

        Args:
            find: finds log starts. Partitions that it leaves out stay hidden.
        """
        self.unplaced = set()
        waited = {p: at.offset for p in self.changes()[1] if (at := self._subscription.position(p)) is not None}
        behind = [p for p, at in waited.items() if self._starts.may_be_behind(p, at)]
        starts = find(behind) if behind else {}
        for partition, start in starts.items():
            if start > waited[partition]:
                self._subscription.seek(partition, start)
                self._starts.started(partition, start)
        self.unplaced = set(behind) - starts.keys()

    def _hide(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if not self._subscription.is_paused(partition):  # also one that was lost, and is given to us anew
                self._paused_by_application.discard(partition)
            elif partition not in self.hidden:
                self._paused_by_application.add(partition)
            self._subscription.pause(partition)
            if partition not in self.hidden:
                TALLY.add(PARTITIONS_LEFT_OUT)
            self._starts.hidden(partition)
            self.hidden.add(partition)

    def _show(self, partitions: Iterable[Partition]) -> None:
        """Hold ``partitions`` again, each from where it was. All of a topic created again is new (invariant I8)."""
        for partition in partitions:
            self.hidden.discard(partition)
            TALLY.add(PARTITIONS_TAKEN_UP)
            position = self._subscription.position(partition)
            if position is not None:
                if self._starts.is_of_another_topic(partition):
                    self._subscription.seek(partition, 0)
                    self._starts.started(partition, 0)
                elif position.offset < self._starts.reclaimed_to(partition):
                    self._subscription.seek(partition, self._starts.reclaimed_to(partition))
            if partition not in self._paused_by_application:
                self._subscription.resume(partition)

    def idle(self, *, leaving: bool = False) -> dict[Partition, Any]:
        """Return what to commit for partitions that delivered nothing: see :meth:`Starts.idle`; of ``leaving`` ones
        those of topics whose modes have changed."""
        positions = {p: consumed.offset for p, consumed in self._subscription.all_consumed_offsets().items()}
        shown = [p for p in self.assigned() if not self._is_behind_gate(p.topic)]
        return {
            p: OffsetAndMetadata(start, "", -1)
            for p, start in self._starts.idle(shown, leaving=leaving).items()
            if positions.get(p) == start and (not leaving or p[0] in self.changed)
        }

    # The application's own calls

    def paused_by_application(self, partitions: Collection[Partition]) -> None:
        self._paused_by_application |= self.hidden.intersection(partitions)

    def resumed_by_application(self, partitions: Collection[Partition]) -> list[Partition]:
        """Return those of ``partitions`` that may be read now; hidden ones are when they are readable again."""
        self._paused_by_application.difference_update(partitions)
        return [p for p in partitions if p not in self.hidden]


class HeldListener(AsyncConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]  # untyped
    """Stands between kafka-python's coordinator and the application's listener, which is shown what is really held.

    kafka-python calls it in its own thread, within a rebalance; changes in mid-life use :meth:`call`.

    Args:
        inner: the application's listener, of either kind, or None.
        incremental: the protocol is cooperative.
        auto_commit: kafka-python commits all positions before a rebalance.
    """

    def __init__(
        self,
        inner: Any,
        partitions: Partitions,
        coordinator: Callable[[], Any],
        *,
        incremental: bool,
        auto_commit: bool,
    ) -> None:
        self.inner = inner
        self.incremental = incremental
        self._partitions = partitions
        self._coordinator = coordinator
        self._auto_commit = auto_commit

    async def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
        new = set(assigned)
        self._partitions.settle()
        self._partitions.changed.clear()
        shown = new - self._partitions.hidden
        if shown or not (new and self.incremental):
            await self.call("on_partitions_assigned", shown)

    async def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None:
        given = set(revoked)
        held = given - self._partitions.hidden
        try:
            # A revocation of hidden partitions only is none to the application.
            if held or not (given and self.incremental):
                await self.call("on_partitions_revoked", held)
        finally:
            if not self._auto_commit:
                await self._commit_idle(given)

    async def on_partitions_lost(self, lost: Iterable[Partition]) -> None:
        await self.call("on_partitions_lost", set(lost) - self._partitions.hidden)

    async def call(self, method: str, partitions: set[Partition]) -> None:
        """Call the application's listener, synchronous or not."""
        if self.inner is None:
            return
        answer = getattr(self.inner, method)(partitions)
        if inspect.isawaitable(answer):
            await answer

    async def _commit_idle(self, revoked: set[Partition]) -> None:
        idle = {p: offset for p, offset in self._partitions.idle(leaving=True).items() if p in revoked}
        if not idle:
            return
        coordinator = self._coordinator()
        try:
            committed = await coordinator.fetch_committed_offsets_async(set(idle), timeout_ms=COMMIT_TIMEOUT_MS)
            without = {p: offset for p, offset in idle.items() if p not in committed}
            await coordinator._commit_offsets_sync_async(without, timeout_ms=COMMIT_TIMEOUT_MS)
        except KafkaError as error:
            log.warning("start offsets of %d idle partitions not committed: %s", len(idle), error)


def start_lost_ones_anew(coordinator: Any, partitions: Partitions, *, incremental: bool) -> None:
    """Have partitions that a member loses while it joins start anew if they are assigned to it again.

    kafka-python (3.0.12) looks for a loss of the membership before a join alone, and keeps the positions of what is
    assigned again. So does a member that the group drops in the midst of a join, or that leaves a topic and comes back
    to it within one: though others have read on, and the name may be another topic's by then.

    Args:
        incremental: the protocol is cooperative. By another one, the application has been told already.
    """
    kind = type(coordinator)
    calling: Callable[[], Any] = weakref.ref(coordinator)

    def reset_generation(*args: Any, **kwargs: Any) -> None:
        partitions.is_lost = True
        kind.reset_generation(calling(), *args, **kwargs)

    async def on_join_complete(*joined: Any, **named: Any) -> None:
        stale = partitions.stale()
        try:
            if stale and incremental:
                await calling()._invoke_rebalance_listener_async("on_partitions_lost", stale)
        except Exception as error:
            raise KafkaError("User rebalance callback throws an error") from error
        finally:
            partitions.drop(stale)
            await kind._on_join_complete_async(calling(), *joined, **named)

    coordinator.reset_generation = reset_generation
    coordinator._on_join_complete_async = on_join_complete
