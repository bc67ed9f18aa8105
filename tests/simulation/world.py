"""The world of one schedule: a clock, dice, topics, their clients, the mode log and two controllers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from modeaware.config import ControllerConfig
from modeaware.lifecycle.commands import CreatePartitions, DeleteRecords
from modeaware.modelog.records import DeleteTopicPartitions, TopicRecord
from modeaware.modes import PartitionMode
from tests.simulation import faults
from tests.simulation.broker import MARKER, NAME, Coordinator, Log, Sent, Topic
from tests.simulation.controller import Controller, Crash
from tests.simulation.drain_invariants import by_order
from tests.simulation.faults import PHASES, REPLACED, Coverage, Fault, Kind
from tests.simulation.invariants import Judge
from tests.simulation.modelog import Reader, SharedLog

if TYPE_CHECKING:
    from tests.simulation.groups import Group
    from tests.simulation.producers import Producer, Transaction

MOST_NESTED = 2
"""How deep pauses nest: a controller paused while another one is, and a third time for good measure."""
QUIET_MS, INTERVAL_MS, FENCE_AFTER_MS = 10_000, 300_000, 60_000


class World:
    """Everything there is; also the clock of the controllers (modeaware.clock.Clock).

    Attributes:
        act: the next event of the schedule.
        steps: actions of clients and people, and requests of controllers, so far.
        odds: by fault, how likely it is to strike where it can.
        kind: what the schedule is about; ``replaces``, ``deletes`` and ``chains`` say whether it is, or more.
        topics, by_id: those that are there, by name; all that ever were.
        topic: the one that has the first name now.
        sent: all records, by their numbers.
        policy: every topic's cleanup.policy.
        late: requests that were given up, and may be carried out yet.
        retired_ms: partition -> since when it has not been writable.
        side_random: dice for what was added later: a throw changes nothing else in a schedule.
        tells_ids: clients get topic ids (where DescribeTopics is refused, say, they do not).
        ids_are_watched: controllers compare the ids of all records with the cluster's.
        doubtful, denied, gitops: group listings leave groups out; the right to probe fences is gone; fences are lifted
            again and again.
        switched_at: new topic -> the step at which producers were switched to it.
    """

    def __init__(self, seed: int, kind: Kind, coverage: Coverage, story: list[str] | None = None) -> None:
        self.story = story
        self.kind = kind
        self.replaces, self.deletes, self.chains = (kind >= each for each in list(Kind)[1:4])
        dice = random.Random(f"succession {seed}" if self.replaces else seed)
        self.random = dice.random
        self.side_random = dice.random if self.replaces else random.Random(f"side {seed}").random
        self.ids_are_watched = not self.replaces and seed % 4 == 1
        self.tells_ids = not self.replaces and seed % 2 == 1
        self.act: Callable[[], None] = lambda: None
        self.steps = 0
        self.calm = False
        self.time_ms = 1_000_000
        self.odds = [0.0] * len(Fault)
        self.pause_odds = 0.0
        self._nested = 0
        self.coverage = coverage
        self.config = ControllerConfig(
            check_interval_ms=INTERVAL_MS, seal_quiet_ms=QUIET_MS, fence_after_ms=FENCE_AFTER_MS
        )
        self._phase = REPLACED if self.replaces else 0
        self._numbers = 0
        self._ids = 0
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[str, Topic] = {}
        self.topic: Topic | None = None
        self.sent: list[Sent] = []
        self.policy, self.policy_changed_at = "delete", -1
        self.late: list[tuple[Fault, Callable[[], object]]] = []
        self.hanging: list[Transaction] = []
        self.shrinks = 0
        self.modes: tuple[PartitionMode, ...] = ()
        self.retired_ms: dict[int, int] = {}
        self.delay_ms = 0
        self.omitted: set[str] = set()
        self.hidden: set[str] = set()
        self.modes_away = False
        self._running = False
        self.doubtful = self.denied = self.gitops = False
        self.switched_at: dict[str, int] = {}
        self.groups: dict[str, Group] = {}
        self.producers: list[Producer] = []
        self.judge = Judge(self)
        self.log = SharedLog(self)
        self.coordinator = Coordinator()
        self._begin()
        self.controllers = [Controller(self, index, self.config) for index in range(2)]

    def _begin(self) -> None:
        """Draw the faults of the schedule (a random half, with random weights), and make the first topic."""
        partitions = 0 if self.replaces else 3 + self.below(4)
        for fault, odds in (faults.REPLACING if self.replaces else faults.RESIZING).items():
            if self.random() < 0.45:
                self.odds[fault] = odds * (0.3 + self.random())
        if self.random() < 0.6:
            self.pause_odds = 0.05 * self.random() if self.replaces else 0.06 * (0.3 + self.random())
        self.make(NAME, partitions or 2 + self.below(3))

    # Time and dice

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000

    def cpu_s(self) -> float:
        return 0.0

    def tell(self, text: str, *args: Any) -> None:
        """One line of the story; an argument that is callable is called for its text."""
        if self.story is not None:
            shown = tuple(arg() if callable(arg) else arg for arg in args)
            self.story.append(f"{self.steps:5d} {self.time_ms / 1000:9.1f} s {'  ' * self._nested}{text % shown}")

    def strikes(self, fault: Fault, phase: int | None = None) -> bool:
        if self.happens(fault):
            self.hit(fault, phase)
            return True
        return False

    def happens(self, fault: Fault) -> bool:
        """Throw the dice for a fault that is counted later, when it takes effect."""
        odds = self.odds[fault]
        return odds > 0 and not self.calm and self.random() < odds

    def below(self, limit: int) -> int:
        return int(self.random() * limit)

    def io(self, controller: Controller, what: str, *, own: bool = True) -> None:
        """A controller is about to ask something of the cluster: here it may die, or others may move first."""
        self.steps += 1
        if own:
            controller.own_steps += 1
        self.tell("controller %d %s", controller.index, what)
        if self.calm:
            return
        if self.pause_odds and self._nested < MOST_NESTED and self.random() < self.pause_odds:
            self._pause(controller)
        if self.strikes(Fault.CRASH):
            self.tell("controller %d dies", controller.index)
            raise Crash

    def _pause(self, controller: Controller) -> None:
        self.hit(Fault.PAUSE)
        controller.member.frozen = stopped = self.random() < 0.5
        if stopped:
            controller.member.polled_ms = self.time_ms
        self.tell("controller %d is %s here", controller.index, "stopped" if stopped else "held up")
        self._nested += 1
        for _ in range(1 + self.below(12)):
            self.act()
        if stopped and self.random() < 0.5:
            self.time_ms += 11_000
            self.coordinator.expire(self.time_ms)
            for _ in range(3 + self.below(12)):
                self.controllers[1 - controller.index].step()
                self.act()
        self._nested -= 1
        if stopped:
            self.coordinator.expire(self.time_ms)
            if controller.member.gone:
                self.hit(Fault.SESSION_LOST)
            controller.member.frozen = False
        self.tell("controller %d goes on", controller.index)

    def hit(self, what: Fault | str, phase: int | None = None) -> None:
        """Count a fault, or what else happens now; in the phase of the topic, unless it is given."""
        self.coverage[what, self._phase if phase is None else phase] += 1

    def phase_of(self, record: TopicRecord | None) -> int:
        """The phase that is counted for a topic whose record in force is ``record``."""
        return REPLACED if self.replaces else faults.phase_of(record)

    def carry_out(self, fault: Fault, request: Callable[[], object]) -> None:
        """A request that was given up is carried out after all; it counts if it changes anything."""
        self.tell("a request that was given up is carried out (%s)", fault.label)
        before = self._log_starts()
        request()
        if self._log_starts() != before:
            self.hit(fault)

    @property
    def in_rare_phase(self) -> bool:
        """Whether the topic is in a phase that is soon over, and that late requests seldom meet."""
        return self._phase == REPLACED or PHASES[self._phase] in ("drain", "reclaim", "done")

    @property
    def opening(self) -> bool:
        return self._phase != REPLACED and PHASES[self._phase] == "opening"

    def _log_starts(self) -> dict[str, list[int]]:
        return {name: [log.log_start for log in topic.logs] for name, topic in self.topics.items()}

    # Records

    def new_record(self, producer: int = 0, key: int = 0) -> Sent:
        sent = Sent(len(self.sent), producer, key)
        self.sent.append(sent)
        return sent

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def append(self, log: Log, entry: int) -> None:
        """The leader has an entry more; in schedules without replacements nothing is replicated later than that."""
        if entry != MARKER:
            self.sent[entry].landed_at = self.steps
        log.append(entry, self.steps, self.time_ms, replicated=not self.replaces)

    def lose(self, numbers: list[int]) -> None:
        """Readers have no right any more to those of a log's entries that are records."""
        for number in numbers:
            if number != MARKER:
                self.sent[number].lost = True

    def foreign_record(self, topic: Topic) -> None:
        """Somebody writes to a topic that no name points to."""
        sent = self.new_record(producer=99)
        sent.lost = True
        self.append(topic.logs[0], sent.number)
        self.replicate(topic, 0)
        topic.touched_at = self.steps

    def replicate(self, topic: Topic, partition: int, up_to: int | None = None) -> None:
        """The followers catch up, and the leader acknowledges what they have."""
        log = topic.logs[partition]
        before, log.replicated = log.replicated, len(log.records) if up_to is None else max(up_to, log.replicated)
        for offset in range(before, log.replicated):
            number = log.records[offset]
            if number != MARKER:
                self.sent[number].acknowledged = True
                self.judge.acknowledged(topic, partition, offset, self.sent[number])

    def is_data(self, number: int) -> bool:
        """Whether readers are given it."""
        return number != MARKER and not self.sent[number].aborted

    def nothing_in(self, log: Log, start: int, end: int) -> bool:
        """Whether only control records and aborted records lie there."""
        return not any(map(self.is_data, log.records[start:end]))

    def clear(self, log: Log, group: Group, partition: int, seal: int) -> bool:
        """Whether nothing a group would be given lies between its commit and the end, which is at or past the seal."""
        commit = group.committed.get(partition)
        start = max(0 if commit is None else commit[0], log.log_start)
        return start < seal <= log.stable and self.nothing_in(log, start, log.stable)

    def read_up_to(self, log: Log) -> int:
        """The offset behind the last record that readers are given."""
        data = (o for o in range(log.log_start, log.replicated) if self.is_data(log.records[o]))
        return 1 + max(data, default=log.log_start - 1)

    def has_all(self, log: Log, committed: int) -> bool:
        """Whether readers are given nothing more behind that offset."""
        start = max(committed, log.log_start)
        return log.stable == log.replicated and self.nothing_in(log, start, log.replicated)

    # The mode log

    @property
    def record(self) -> TopicRecord | None:
        """The record in force of the topic that has the first name now."""
        return None if self.topic is None else self.log.truth.records.get(self.topic.topic_id)

    @property
    def first_record(self) -> TopicRecord | None:
        """The record of the topic that was there first: all replacements begin with it."""
        return self.log.truth.records.get("id-1")

    def record_changed(self) -> None:
        """A topic's record is on the log."""
        if self.replaces:
            return  # nothing depends on it
        record = self.record
        self._phase = self.phase_of(record)
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

    def shrink_admitted(self, deletion: DeleteTopicPartitions) -> None:
        self._running = True
        self.delay_ms = deletion.delay_ms or 0

    @property
    def readers(self) -> list[Reader]:
        found = [producer.reader for producer in self.producers if producer.reader is not None]
        return found + [reader for group in self.groups.values() for reader in group.readers]

    def group_begins(self) -> None:
        """A group may begin right after the groups were listed."""
        waiting = [group for group in self.groups.values() if not group.ever]
        if waiting and not self.calm and self.side_random() < 0.05:
            self.hit("group begins")
            waiting[0].start()

    # Topics

    @property
    def earlier_id(self) -> str | None:
        """The id of the topic before the one there is now, or was last; None: there was none."""
        return f"id-{self._ids - 1}" if self._ids > 1 else None

    def log_of(self, partition: int) -> Log | None:
        """The log of a partition of the first name, where there is such a partition."""
        return self.topic.logs[partition] if self.topic is not None and partition < len(self.topic.logs) else None

    def make(self, name: str, partitions: int) -> Topic:
        self._ids += 1
        topic = Topic(name, f"id-{self._ids}", partitions)
        self.tell("topic %s is made: %s, %d partitions", name, topic.topic_id, partitions)
        self.topics[name] = self.by_id[topic.topic_id] = topic
        self.topic = self.topics.get(NAME)
        if not self.replaces:
            self.policy, self.policy_changed_at = "delete", -1
            for group in self.groups.values():
                if group.has_members:
                    group.joined_at = self.steps
                    group.rebalance()
        self.record_changed()
        return topic

    def make_again(self) -> None:
        self.make(NAME, 2 + self.below(4))

    def delete(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.topic = self.topics.get(NAME)
        self.tell("topic %s (%s) is deleted", name, topic.topic_id)
        for log in topic.logs:
            self.lose(log.records)
        for group in self.groups.values():
            group.forget(topic.topic_id)
        if not self.replaces:
            self.policy = "delete"
            for producer in self.producers:
                producer.transaction = None
            self.hanging.clear()
            self._running = False
        self.record_changed()

    def apply_configs(self, topic: Topic, partition: int) -> None:
        """The leader takes the configs of its topic into use."""
        log = topic.logs[partition]
        if log.fenced and not topic.is_fenced:
            log.lifted_at = self.steps
        log.fenced = topic.is_fenced

    def apply_to_followers(self, topic: Topic, partition: int) -> None:
        topic.logs[partition].followers_fenced = topic.is_fenced

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
            self.topic.grow(effect.total_count, self.steps)
            return None

        return execute
