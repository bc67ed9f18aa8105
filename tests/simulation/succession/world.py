"""The world of one schedule: topics with replicated logs, configs that take effect late, the mode log, dice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeaware.config import ControllerConfig
from modeaware.lifecycle.replacement import is_fence
from modeaware.modelog.records import TopicRecord
from tests.simulation.broker import MARKER, Coordinator, Log
from tests.simulation.chance import Chance
from tests.simulation.faults import Fault
from tests.simulation.modelog import Reader, SharedLog

if TYPE_CHECKING:
    from tests.simulation.succession.clients import Group, Producer
    from tests.simulation.succession.controller import ReplacingController

NAME, SUCCESSOR, THIRD = "orders", "orders-v2", "orders-v3"
QUIET_MS, INTERVAL_MS, FENCE_AFTER_MS = 10_000, 300_000, 60_000
FAULTS: dict[Fault, float] = {
    Fault.CRASH: 0.02,
    Fault.APPEND_LOST: 0.03,
    Fault.APPEND_ANSWER_LOST: 0.03,
    Fault.APPEND_LATE: 0.03,
    Fault.LOG_UNREACHABLE: 0.15,
    Fault.OBSERVE_FAILED: 0.03,
    Fault.EFFECT_REFUSED: 0.1,
    Fault.EFFECT_ANSWER_LOST: 0.3,
    Fault.LATE_CREATE: 0.3,
}


@dataclass(eq=False, slots=True)
class Partition(Log):
    """A log with followers, and a leader that applies the topic's configs a moment after they were altered.

    Attributes:
        replicated: the high watermark: what lies below was acknowledged.
        fenced: its leader refuses data.
        followers_fenced: so would any follower, once it is elected.
        lifted_at, elected_at: the step at which the fence was last taken off, and at which it was last led anew.
    """

    replicated: int = 0
    fenced: bool = False
    followers_fenced: bool = False
    lifted_at: int = -1
    elected_at: int = -1
    made_at: int = -1

    @property
    def last_stable(self) -> int:
        return min([self.replicated, *self.open.values()])


@dataclass(eq=False)
class SimTopic:
    name: str
    topic_id: str
    logs: list[Partition]
    configs: dict[str, str] = field(default_factory=dict)
    touched: bool = False
    touched_at: int = -1
    lifted_ms: int = -1
    lifted_at: int = -1

    @property
    def is_fenced(self) -> bool:
        return is_fence(self.configs)


@dataclass(eq=False, slots=True)
class Sent:
    """A record: who sent it, and where it lies. ``number`` is its name in the logs."""

    number: int
    producer: int
    key: int
    acknowledged: bool = False
    aborted: bool = False
    lost: bool = False
    where: tuple[str, int, int] | None = None


class World(Chance):
    """Everything there is; also the clock of the controllers. It has what ``tests.simulation``'s log asks for."""

    name = NAME
    tells_ids = False
    ids_are_watched = False

    def __init__(
        self, seed: int, story: list[str] | None = None, *, deletes: bool = False, chains: bool = False
    ) -> None:
        from tests.simulation.succession.chain_judge import ChainJudge
        from tests.simulation.succession.controller import ReplacingController
        from tests.simulation.succession.judge import Judge

        dice = random.Random(f"succession {seed}")
        self.random = dice.random
        self.side_random = dice.random
        self.story = story
        self.steps = 0
        self.calm = False
        self.time_ms = 1_000_000
        self.hits: Counter[str] = Counter()
        self.odds = [0.0] * len(Fault)
        for fault, odds in FAULTS.items():
            if self.random() < 0.45:
                self.odds[fault] = odds * (0.3 + self.random())
        self.pause_odds = 0.05 * self.random() if self.random() < 0.6 else 0.0
        self.act: Callable[[], None] = lambda: None
        self.shrinks = 0
        self._nested = 0
        self._ids = 0
        self.config = ControllerConfig(
            check_interval_ms=INTERVAL_MS, seal_quiet_ms=QUIET_MS, fence_after_ms=FENCE_AFTER_MS
        )
        self.topics: dict[str, SimTopic] = {}
        self.by_id: dict[str, SimTopic] = {}
        self.sent: list[Sent] = []
        self.late: list[Callable[[], None]] = []
        self.deletes = deletes
        self.chains = chains
        self.doubtful = self.denied = self.gitops = False
        self.switched_at: dict[str, int] = {}  # successor -> the step at which its name was led to
        self.policy = "delete"
        self.groups: dict[str, Group] = {}
        self.producers: list[Producer] = []
        self.judge = ChainJudge(self) if chains else Judge(self)
        self.log = SharedLog(self)  # type: ignore[arg-type] - it asks for what both worlds have
        self.coordinator = Coordinator()
        self.make(NAME, 2 + self.below(3))
        self.controllers: list[ReplacingController] = [ReplacingController(self, index) for index in range(2)]

    def hit(self, fault: Fault | str, _phase: int | None = None) -> None:
        self.hits[fault if isinstance(fault, str) else fault.label] += 1

    # Topics

    def make(self, name: str, partitions: int) -> SimTopic:
        self._ids += 1
        topic = SimTopic(name, f"id-{self._ids}", [Partition() for _ in range(partitions)])
        self.topics[name] = self.by_id[topic.topic_id] = topic
        self.tell("topic %s is made: %s, %d partitions", name, topic.topic_id, partitions)
        return topic

    def delete(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.tell("topic %s (%s) is deleted", name, topic.topic_id)
        for log in topic.logs:
            for number in log.records:
                if number != MARKER:
                    self.sent[number].lost = True
        for group in self.groups.values():
            group.forget(topic.topic_id)

    def foreign_record(self, topic: SimTopic) -> None:
        """Somebody writes to a topic that no name leads to."""
        sent = Sent(len(self.sent), 99, 0, lost=True)
        self.sent.append(sent)
        topic.logs[0].append(sent.number, self.steps, self.time_ms)
        self.replicate(topic, 0)
        topic.touched, topic.touched_at = True, self.steps

    def group_begins(self) -> None:
        """A group may begin right after the groups were listed."""
        waiting = [group for group in self.groups.values() if not group.ever]
        if waiting and not self.calm and self.side_random() < 0.05:
            self.hit("group begins")
            waiting[0].start()

    def apply_configs(self, topic: SimTopic, partition: int) -> None:
        """The leader takes the configs of its topic into use."""
        log = topic.logs[partition]
        if log.fenced and not topic.is_fenced:
            log.lifted_at = self.steps
        log.fenced = topic.is_fenced

    def apply_to_followers(self, topic: SimTopic, partition: int) -> None:
        topic.logs[partition].followers_fenced = topic.is_fenced

    def replicate(self, topic: SimTopic, partition: int, up_to: int | None = None) -> None:
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

    def read_up_to(self, log: Partition) -> int:
        """The offset behind the last record that readers are given."""
        return 1 + max(
            (o for o in range(log.log_start, log.replicated) if self.is_data(log.records[o])), default=log.log_start - 1
        )

    def has_all(self, log: Partition, committed: int) -> bool:
        """Whether readers are given nothing more behind that offset."""
        left = log.records[max(committed, log.log_start) : log.replicated]
        return log.last_stable == log.replicated and not any(map(self.is_data, left))

    def is_successor(self, topic: SimTopic) -> bool:
        """Whether aware groups read it behind a gate."""
        return self.judge.is_successor(topic)

    # What the log and the readers ask for

    @property
    def record(self) -> TopicRecord | None:
        """The record of the topic that was there first: all begins with it."""
        return self.log.truth.records.get("id-1")

    @property
    def readers(self) -> list[Reader]:
        found = [producer.reader for producer in self.producers if producer.reader is not None]
        return found + [member.reader for group in self.groups.values() for member in group.members if member.reader]

    def record_changed(self) -> None:
        """Nothing depends on it here."""
