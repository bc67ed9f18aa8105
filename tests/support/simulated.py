"""One topic on a simulated cluster, and a mode log in memory: what a controller's engine needs, without IO.

Time passes when it is told to. Whether a group got each record is judged in ``tests.simulation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from modeaware.cluster.observer import SnapshotTarget
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import CommitOffsets, CreatePartitions, DeleteRecords, Effect
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from modeaware.modelog.replay import Replay
from tests.support.modelog import fold


@dataclass
class SimClock:
    """All clocks, moved by hand."""

    time_ms: int = 1_000_000
    cpu_ms: int = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000

    def cpu_s(self) -> float:
        return self.cpu_ms / 1000

    def advance(self, ms: int) -> None:
        self.time_ms += ms


class MemoryLog:
    """A mode log in memory. With ``failure`` the next append fails, before it is done (``lost_answer``: after).

    Attributes:
        most: how many entries it takes at once.
        too_large: the keys whose entries it does not take.
    """

    unfit: str | None = None
    is_open = True

    def __init__(self) -> None:
        self.entries: list[tuple[str, bytes | None]] = []
        self.failure: Exception | None = None
        self.lost_answer = False
        self.most = 1_000_000
        self.too_large: set[str] = set()

    def open(self) -> Replay:
        return fold(self.entries)

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        if len(records) > self.most or not self.too_large.isdisjoint(key for key, _ in records):
            raise ClusterError("too large", code=ErrorCode.MESSAGE_TOO_LARGE)
        failure, self.failure = self.failure, None
        if failure is None or self.lost_answer:
            self.entries.extend(records)
        if failure is not None:
            raise failure


@dataclass
class SimPartition:
    end: int = 0
    log_start: int = 0


@dataclass
class SimGroup:
    committed: dict[int, int] = field(default_factory=dict)


class SimCluster:
    """One topic, its groups, and the brokers' side of the effects. Is the engine's observer and its effects at once."""

    def __init__(self, clock: SimClock, topic: str = "orders", partitions: int = 12) -> None:
        self.clock = clock
        self.topic = topic
        self.topic_id: str | None = f"id-of-{topic}-1"
        self.partitions = [SimPartition() for _ in range(partitions)]
        self.groups: dict[str, SimGroup] = {}
        self.gone = False
        self.failure: ClusterError | None = None
        self.refuses: ClusterError | None = None
        self.refuses_checks: ClusterError | None = None
        self.performed: list[Effect] = []
        self._quiet: dict[int, tuple[int, int, bool]] = {}
        self._at_rest: list[tuple[int, int]] | None = None
        self.whole_snapshots = 0

    # What clients do

    def produce(self, partition: int, count: int = 1) -> None:
        self.partitions[partition].end += count

    def consume(self, group: str, partition: int) -> None:
        """The group reads a partition to its end, and commits."""
        self.groups.setdefault(group, SimGroup()).committed[partition] = self.partitions[partition].end

    # What the controller sees

    def unchanged(self, topic_ids: Iterable[str]) -> bool:
        if self.failure is not None:
            raise self.failure
        before, self._at_rest = self._at_rest, [(log.log_start, log.end) for log in self.partitions]
        return before == self._at_rest

    def observe_all(
        self, targets: Sequence[SnapshotTarget], rules: Sequence[GroupRule] = ()
    ) -> list[TopicFacts | ClusterError]:
        self.whole_snapshots += 1
        return [self.observe(topic, record) for topic, record, *_ in targets]

    def observe(self, topic: str, record: TopicRecord | None) -> TopicFacts:
        if self.failure is not None:
            raise self.failure
        if topic != self.topic or self.topic_id is None:
            return TopicFacts(topic, None, gone=self.gone)
        if record is not None and record.topic_id != self.topic_id:
            return TopicFacts(topic, self.topic_id, len(self.partitions), gone=self.gone)
        wanted = range(len(self.partitions)) if record is None else record.closed
        return TopicFacts(
            topic,
            self.topic_id,
            partition_count=len(self.partitions),
            partitions={p: f for p in wanted if (f := self._facts(p)) is not None},
            groups={name: GroupFacts(dict(g.committed), has_members=True) for name, g in self.groups.items()},
        )

    def _facts(self, partition: int) -> PartitionFacts | None:
        if partition >= len(self.partitions):
            return None
        log, now_ms = self.partitions[partition], self.clock.now_ms()
        last = self._quiet.get(partition)
        if last is None or last[0] != log.end:
            last = self._quiet[partition] = (log.end, now_ms, last is not None)
        return PartitionFacts(log.log_start, log.end, log.end, 0, *last[1:])

    def forget_quiet(self) -> None:
        """What a controller loses when it restarts."""
        self._quiet.clear()

    # What the controller does

    def perform(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        failures: list[ClusterError | None] = []
        for effect in effects:
            try:
                self._perform(effect)
                failures.append(None)
            except ClusterError as error:
                failures.append(error)
        return failures

    def _perform(self, effect: Effect) -> None:
        if effect.topic_id != self.topic_id:
            raise ClusterError("not that topic any more", code=ErrorCode.UNKNOWN_TOPIC_ID)
        if self.refuses is not None:
            raise self.refuses
        if isinstance(effect, CreatePartitions):
            self._check_growth(effect)
            self.partitions += [SimPartition() for _ in range(effect.total_count - len(self.partitions))]
        self.performed.append(effect)
        if isinstance(effect, DeleteRecords):
            for partition, offset in effect.offsets.items():
                log = self.partitions[partition]
                assert offset <= log.end, "DeleteRecords beyond the end is refused by brokers"
                log.log_start = max(log.log_start, offset)
        elif isinstance(effect, CommitOffsets):
            self.groups[effect.group].committed.update(effect.offsets)

    def validate(self, effects: Sequence[CreatePartitions]) -> list[ClusterError | None]:
        return [self._validated(effect) for effect in effects]

    def _validated(self, effect: CreatePartitions) -> ClusterError | None:
        try:
            self._check_growth(effect)
        except ClusterError as error:
            return self.refuses_checks or error
        return self.refuses_checks

    def _check_growth(self, effect: CreatePartitions) -> None:
        if effect.total_count <= len(self.partitions):
            raise ClusterError("not more than there are", code=ErrorCode.INVALID_PARTITIONS)
