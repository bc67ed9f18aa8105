"""What a file of topics asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.phases import in_progress, partition_phase, topic_phase
from modeaware.modelog.records import RETENTION_DELAY_MS, TopicRecord
from modeaware.modes import format_ranges

RETENTION, DRAINED = "retention", "drained"
POLICIES = (RETENTION, DRAINED)


@dataclass(frozen=True)
class ShrinkRules:
    """How a topic is shrunk, in the words of ``modeaware shrink``.

    Attributes:
        policy: ``retention``: the topic's own retention takes the records of retired partitions; ``drained``: they are
            deleted once every group has consumed them.
        delay_ms: of ``drained``: no earlier than this many milliseconds after the shrink began.
        evacuate: of a compacted topic: wait for the Spark job that copies the latest values.
        accept_state_loss: groups that keep state per partition and may lose that of the keys that move.
    """

    policy: str = RETENTION
    delay_ms: int = 0
    evacuate: bool = False
    accept_state_loss: tuple[str, ...] = ()

    @property
    def command_delay_ms(self) -> int:
        """The delay as commands have it: -1 for ``retention``."""
        return RETENTION_DELAY_MS if self.policy == RETENTION else self.delay_ms

    def command(self, topic: str, count: int) -> DeletePartitionsCommand:
        """The shrink of ``topic`` to ``count`` partitions."""
        return DeletePartitionsCommand(
            topic, count, self.command_delay_ms, False, self.accept_state_loss, evacuate=self.evacuate
        )


@dataclass(frozen=True)
class DesiredTopic:
    """One topic as it shall be.

    Attributes:
        partitions: how many take writes.
        replication_factor: None: whatever it is; of a new topic the cluster's default.
        configs: those that the file names; None as a value: the topic has none of its own, the cluster's default holds.
        shrink: how it is shrunk, if it is; None where the file does not say, which means :class:`ShrinkRules`'s
            defaults.
        where: the file and line, for people.
    """

    name: str
    partitions: int
    replication_factor: int | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)
    shrink: ShrinkRules | None = None
    where: str = ""

    @property
    def shrink_rules(self) -> ShrinkRules:
        return self.shrink if self.shrink is not None else ShrinkRules()


@dataclass(frozen=True)
class CurrentTopic:
    """One topic.

    Attributes:
        count: how many partitions it has on the brokers.
        replication_factors: how many replicas partitions have (as before a reassignment that is in progress); more than
            one number where they differ.
        overrides: the configs of its own; None where the user may not know.
        cleanup_policy: the one in force.
        record: its record in the mode log; None for a topic that was never changed.
    """

    count: int
    replication_factors: frozenset[int] = frozenset()
    overrides: Mapping[str, str] | None = field(default_factory=dict)
    cleanup_policy: str = "delete"
    internal: bool = False
    record: TopicRecord | None = None

    @property
    def listed(self) -> int:
        """How many partitions the record lists; without one, those there are."""
        return len(self.record.modes) if self.record is not None else self.count

    @property
    def writable(self) -> int:
        """How many take writes. What another tool has added does while none is retired."""
        if self.record is None:
            return self.count
        added = max(self.count - self.listed, 0) if not self.record.retired else 0
        return self.record.writable_count + added

    @property
    def goal(self) -> int:
        """How many will take writes once new partitions that are being opened do, and what comes with them."""
        retired = self.record.retired.values() if self.record is not None else ()
        opening = [partition.opening for partition in retired]
        if opening and all(opening):  # then none is retired any more
            return max(self.count, self.listed)
        return self.writable + sum(opening)

    @property
    def in_progress(self) -> bool:
        """Whether a shrink or a growth has not finished."""
        return in_progress(self.record)

    @property
    def progress(self) -> str | None:
        """What is in progress, in words, such as ``drain of partitions 4-11``; None: nothing."""
        if self.record is None or not self.in_progress:
            return None
        record, phase = self.record, topic_phase(self.record)
        those = [p for p, r in sorted(record.retired.items()) if partition_phase(record.modes[p], r) == phase]
        return f"{phase} of partitions {format_ranges(those)}"


UNCHANGED, IN_PROGRESS, PENDING, REFUSED = "unchanged", "in_progress", "pending", "refused"


@dataclass(frozen=True)
class Create:
    """A topic that is not there."""

    partitions: int
    replication_factor: int | None
    configs: Mapping[str, str]


@dataclass(frozen=True)
class AlterConfigs:
    """Configs to set, and those to remove, so that the cluster's default holds; ``before``: what they are now."""

    set: Mapping[str, str]
    remove: tuple[str, ...] = ()
    before: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Grow:
    """More writable partitions: ``revived`` retired ones first, then ``created`` ones.

    Attributes:
        before: how many are writable now.
        by_controller: the topic has a record in the mode log, so a controller has to do it.
    """

    before: int
    command: CreatePartitionsCommand
    revived: range = range(0)
    created: range = range(0)
    by_controller: bool = False


@dataclass(frozen=True)
class Shrink:
    """Fewer writable partitions; those from ``command.total_count`` on are retired. Never a deletion of the topic.

    Attributes:
        records_stay: they are evacuated, and nothing deletes their records after that.
    """

    before: int
    command: DeletePartitionsCommand
    records_stay: bool = False


@dataclass(frozen=True)
class AcceptStateLoss:
    """A shrink under way, which further groups shall not hold up."""

    command: DeletePartitionsCommand
    groups: tuple[str, ...]


Step = Create | AlterConfigs | Grow | Shrink | AcceptStateLoss


@dataclass(frozen=True)
class TopicPlan:
    """What is to be done about one topic, in this order.

    Attributes:
        where: the file and line that ask for it.
        warnings: what it costs; a person should have read them.
        notes: what else is so.
        refusal: why nothing can be done, and what to do; then ``steps`` are empty.
        progress: a change that has begun before and is not done: its phase, in words; None where there is none.
    """

    topic: str
    where: str
    steps: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str | None = None
    progress: str | None = None

    @property
    def status(self) -> str:
        """``refused``, ``pending`` (steps to take), ``in_progress``, or ``unchanged``."""
        if self.refusal is not None:
            return REFUSED
        if self.steps:
            return PENDING
        return IN_PROGRESS if self.progress is not None else UNCHANGED

    @property
    def needs_controller(self) -> bool:
        """Whether a step is a controller's work."""
        return any(
            isinstance(step, (Shrink, AcceptStateLoss)) or (isinstance(step, Grow) and step.by_controller)
            for step in self.steps
        )
