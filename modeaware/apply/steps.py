"""The steps that lead from a topic as it is to the one that is asked for, and a topic's plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand

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
