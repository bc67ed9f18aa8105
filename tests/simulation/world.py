"""The world of one schedule: a clock, dice, one topic, its clients, the mode log and two controllers."""

from __future__ import annotations

import random
from collections.abc import Callable

from modeaware.config import ControllerConfig
from modeaware.lifecycle.commands import CreatePartitions, DeleteRecords
from modeaware.lifecycle.state import rests
from modeaware.modelog.records import DeleteTopicPartitions, TopicRecord
from modeaware.modes import PartitionMode
from tests.simulation.broker import Coordinator, Log, Topic
from tests.simulation.chance import Chance
from tests.simulation.controller import Controller
from tests.simulation.drain_invariants import by_order
from tests.simulation.faults import PHASES, Coverage, Fault, phase_of
from tests.simulation.groups import Evacuator, Group
from tests.simulation.invariants import Judge
from tests.simulation.modelog import Reader, SharedLog
from tests.simulation.producers import Producer, Transaction

QUIET_MS = 10_000
INTERVAL_MS = 300_000


class World(Chance):
    """Everything there is; also the clock of the controllers (modeaware.clock.Clock).

    Attributes:
        steps: actions of clients and people, and requests of controllers, so far.
        odds: by fault, how likely it is to strike where it can.
        retired_ms: partition -> since when it has not been writable.
        gone: records that had been deleted or expired, and came back with an unclean election.
        side_random: dice for what was added later: a throw changes nothing else in a schedule.
        ids_are_watched: controllers compare the ids of all records with the cluster's.
    """

    name = "orders"

    def __init__(self, seed: int, partitions: int, coverage: Coverage, story: list[str] | None = None) -> None:
        self.random = random.Random(seed).random
        self.side_random = random.Random(f"side {seed}").random
        self.ids_are_watched = seed % 4 == 1
        self.tells_ids = seed % 2 == 1  # in the others clients get no topic ids (DescribeTopics is refused, say)
        self.coverage = coverage
        self.story = story
        self.steps = 0
        self.calm = False
        self.time_ms = 1_000_000
        self.odds = [0.0] * len(Fault)
        self.pause_odds = 0.0
        self.config = ControllerConfig(check_interval_ms=INTERVAL_MS, seal_quiet_ms=QUIET_MS)
        self.act: Callable[[], None] = lambda: None
        self._nested = 0
        self._phase = 0
        self._numbers = 0
        self._ids = 1
        self.topic: Topic | None = Topic("id-1", partitions)
        self.landed: list[int] = []
        self.aborted: set[int] = set()
        self.gone: set[int] = set()
        self.late: list[tuple[Fault, Callable[[], str | None]]] = []
        self.hanging: list[Transaction] = []
        self.shrinks = 0
        self.modes: tuple[PartitionMode, ...] = ()
        self.retired_ms: dict[int, int] = {}
        self.delay_ms = 0
        self.omitted: set[str] = set()
        self.hidden: set[str] = set()
        self.modes_away = False
        self._running = False
        self.compacted = False
        self.groups: dict[str, Group] = {}
        self.producers: list[Producer] = []
        self.evacuator = Evacuator(self)
        self.judge = Judge(self)
        self.log = SharedLog(self)
        self.coordinator = Coordinator()
        self.controllers = [Controller(self, index, self.config) for index in range(2)]

    def hit(self, fault: Fault, phase: int | None = None) -> None:
        """Count a fault that strikes now; in the phase of the topic, unless it is given."""
        self.coverage[fault, self._phase if phase is None else phase] += 1

    def carry_out(self, fault: Fault, request: Callable[[], str | None]) -> None:
        """A request that was given up is carried out after all; it counts if it changes anything."""
        self.tell("a request that was given up is carried out (%s)", fault.label)
        before = self._log_starts()
        request()
        if self._log_starts() != before:
            self.hit(fault)

    @property
    def in_rare_phase(self) -> bool:
        """Whether the topic is in a phase that is soon over, and that late requests seldom meet."""
        return PHASES[self._phase] in ("drain", "reclaim", "done")

    @property
    def opening(self) -> bool:
        return PHASES[self._phase] == "opening"

    def _log_starts(self) -> list[int]:
        return [] if self.topic is None else [log.log_start for log in self.topic.logs]

    def record_changed(self) -> None:
        """A topic's record is on the log."""
        record = self.record
        self._phase = phase_of(record)
        modes = () if record is None else record.modes
        if modes != self.modes:
            self.modes, since_ms = modes, self.retired_ms
            self.retired_ms = {p: since_ms.get(p, self.time_ms) for p, mode in enumerate(modes) if not mode.writable}
        if record is None or record.deletion is None:
            self._running = False
        elif PHASES[self._phase] == "done" and self._running:
            self._running = False
            self.shrinks += 1
            self.tell("the shrink is done")

    def new_policy(self) -> str:
        """The ``cleanup.policy`` of a topic of this schedule."""
        if not self.compacted:
            return "delete"
        return ("compact", "compact", "compact,delete", "compact,delete", "delete")[self.below(5)]

    def rests(self, partition: int) -> bool:
        """Whether the partition is evacuated, and left as it is."""
        record = self.record if self.compacted else None
        retired = record.retired.get(partition) if record is not None else None
        return record is not None and retired is not None and rests(record.modes[partition], retired)

    @property
    def cleans_by_age(self) -> bool:
        """Whether retention and DeleteRecords take anything."""
        return not self.compacted or (self.topic is not None and "delete" in self.topic.cleanup_policy)

    def shrink_admitted(self, deletion: DeleteTopicPartitions) -> None:
        self._running = True
        self.delay_ms = deletion.delay_ms or 0

    @property
    def record(self) -> TopicRecord | None:
        """The record in force of the topic there is now."""
        return None if self.topic is None else self.log.truth.records.get(self.topic.topic_id)

    @property
    def earlier_id(self) -> str | None:
        """The id of the topic before the one there is now, or was last; None: there was none."""
        return f"id-{self._ids - 1}" if self._ids > 1 else None

    @property
    def readers(self) -> list[Reader]:
        found = [producer.reader for producer in self.producers if producer.reader is not None]
        return found + [reader for group in self.groups.values() for reader in group.readers]

    def log_of(self, partition: int) -> Log | None:
        """The partition's log, where there is such a partition."""
        return self.topic.logs[partition] if self.topic is not None and partition < len(self.topic.logs) else None

    def new_record(self) -> int:
        self.landed.append(self.steps)
        return len(self.landed) - 1

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def clear(self, log: Log, group: Group, partition: int, seal: int) -> bool:
        """Whether nothing a group would be given lies between its commit and the end, which is at or past the seal."""
        commit = group.committed.get(partition)
        start = max(0 if commit is None else commit[0], log.log_start)
        if start >= seal or log.stable < seal:
            return False
        return self.nothing_in(log, start, log.stable)

    def nothing_in(self, log: Log, start: int, end: int) -> bool:
        """Whether only control records and aborted records lie there."""
        return all(r < 0 or r in self.aborted for r in log.records[start:end])

    def new_deletion(self, effect: DeleteRecords) -> Callable[[], str | None]:
        """DeleteRecords as it leaves the controller, by the topic's name. Called, it returns an error or None."""
        meant, sent_at = self.topic, self.steps
        record = self.log.truth.records.get(effect.topic_id)
        given_up = {p for p in effect.offsets if record is not None and p in record.retired and by_order(p, record)}

        def execute() -> str | None:
            error = None
            for partition, offset in effect.offsets.items():
                log = self.log_of(partition)
                if log is None or not log.available or offset > log.end:
                    error = f"partition {partition} refuses"
                    continue
                outside = self.topic is not meant or log.truncated_at >= sent_at
                self.tell("the records of partition %d below %d are deleted", partition, offset)
                log.log_start = max(log.log_start, offset)
                behind = any(g.goes_on_at(partition, offset) < offset for g in self.groups.values())
                if outside or behind or partition in given_up:
                    # Of groups that are not waited for (the judge knows): as after any retention, "latest" decides.
                    log.retained_from = max(log.retained_from, log.log_start)
            return error

        return execute

    def new_creation(self, effect: CreatePartitions) -> Callable[[], str | None]:

        def execute() -> str | None:
            if self.topic is None or effect.total_count <= len(self.topic.logs):
                return "not more than there are"
            self.tell("the topic is grown to %d partitions", effect.total_count)
            self.topic.grow(effect.total_count)
            return None

        return execute

    def make_topic(self) -> None:
        partitions = 2 + self.below(4)
        self._ids += 1
        self.tell("the topic is made again with %d partitions: id-%d", partitions, self._ids)
        self.topic = Topic(f"id-{self._ids}", partitions)
        self.topic.cleanup_policy = self.new_policy()
        for group in self.groups.values():
            if group.has_members:
                group.joined_at = self.steps
                group.rebalance()
        self.record_changed()

    def delete_topic(self) -> None:
        self.tell("the topic is deleted")
        self.topic = None
        self.evacuator.forget()
        for group in self.groups.values():
            group.forget()
        for producer in self.producers:
            producer.transaction = None
        self.hanging.clear()
        self._running = False
        self.record_changed()
