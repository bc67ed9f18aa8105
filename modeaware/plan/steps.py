"""The steps of a change. The class of a step has its command, its lines in a diff, its JSON, and its message when done.

If a step is ``by_controller``, a controller admits and carries out its ``command``. A step without a command
(:data:`BrokerStep`) needs no controller: its method ``at_brokers`` sends a request to the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from modeaware.admin.new_topics import NewTopic
from modeaware.cluster.effects import alter_configs
from modeaware.confluent.admin import AdminClient
from modeaware.lifecycle.commands import (
    CreatePartitionsCommand,
    DeletePartitionsCommand,
    ReplaceTopicCommand,
    ResizeCommand,
)
from modeaware.modes import format_ranges
from modeaware.reports.describe import end_text, reclaim_text
from modeaware.wire.brokers import Brokers

_DEFAULT = "the cluster's default"


@dataclass(frozen=True)
class Create:
    """The creation of a topic that does not exist."""

    json_also: ClassVar = ("step",)
    step: ClassVar = "create"
    by_controller: ClassVar = False

    partitions: int
    replication_factor: int | None
    configs: Mapping[str, str]

    def done(self) -> str:
        return f"created with {self.partitions} partitions"

    def at_brokers(self, topic: str, admin: AdminClient, brokers: Brokers, *, validate_only: bool) -> None:
        replicas = {} if self.replication_factor is None else {"replication_factor": self.replication_factor}
        new = NewTopic(topic, num_partitions=self.partitions, config=dict(self.configs), **replicas)
        admin.create_topics([new], validate_only=validate_only)[topic].result()

    def lines(self) -> list[str]:
        factor = "" if self.replication_factor is None else f", replication factor {self.replication_factor}"
        configs = [f"    + {name}: {value}" for name, value in self.configs.items()]
        return [f"+ create with {self.partitions} partitions{factor}", *configs]


@dataclass(frozen=True)
class AlterConfigs:
    """Configs to set and configs to remove. After a removal, the cluster's default applies.

    Attributes:
        before: the present values of these configs.
    """

    json_also: ClassVar = ("step",)
    step: ClassVar = "alter_configs"
    by_controller: ClassVar = False

    set: Mapping[str, str]
    remove: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict, metadata={"json": None})

    def done(self) -> str:
        return f"configs altered: {', '.join((*self.set, *self.remove))}"

    def at_brokers(self, topic: str, admin: AdminClient, brokers: Brokers, *, validate_only: bool) -> None:
        alter_configs(brokers, topic, self.set, self.remove, validate_only=validate_only)

    def lines(self) -> list[str]:
        changed = [
            f"{'~' if name in self.before else '+'} {name}: {self.before.get(name, _DEFAULT)} -> {value}"
            for name, value in self.set.items()
        ]
        return changed + [f"- {name}: {self.before.get(name)} -> {_DEFAULT}" for name in self.remove]


class Resizes:
    """A step that changes the number of writable partitions."""

    command: ResizeCommand

    @property
    def to(self) -> int:
        return self.command.total_count


@dataclass(frozen=True)
class Grow(Resizes):
    """More writable partitions: first retired partitions are ``revived``, then new ones ``created``.

    Attributes:
        before: the number of writable partitions now.
        by_controller: whether a controller carries out the growth, because the topic has a record in the mode log.
        minimum: how many replicas of each new partition must be alive (KIP-409); None means all.
    """

    json_also: ClassVar = ("step", "to")
    step: ClassVar = "grow"

    before: int = field(metadata={"json": "from"})
    command: CreatePartitionsCommand = field(metadata={"json": None})
    revived: range = range(0)
    created: range = range(0)
    by_controller: bool = field(default=False, metadata={"json": None})
    minimum: int | None = field(default=None, metadata={"json": None})

    def done(self) -> str:
        return f"grown to {self.to} writable partitions"

    def lines(self) -> list[str]:
        revived = [f"    ReadWrite again: {format_ranges(self.revived)}"] if self.revived else []
        closed = ", closed to writes until every group has a commit on them" if self.by_controller else ""
        created = [f"    new: {format_ranges(self.created)}{closed}"] if self.created else []
        return [f"~ partitions: {self.before} -> {self.to}", *revived, *created]


@dataclass(frozen=True)
class Shrink(Resizes):
    """Fewer writable partitions: the partitions from ``command.total_count`` on are retired. The topic stays.

    Attributes:
        before: the number of writable partitions now.
    """

    json_only: ClassVar = {
        "from": "before",
        "step": "step",
        "to": "to",
        "policy": "command.policy",
        "delay_ms": "command.delay_ms",
        "accept_state_loss": "command.accept_state_loss",
    }
    step: ClassVar = "shrink"
    by_controller: ClassVar = True

    before: int
    command: DeletePartitionsCommand

    def done(self) -> str:
        return f"ReadOnly now: {format_ranges(range(self.to, self.before))}"

    def lines(self) -> list[str]:
        reclaim = f"policy {self.command.policy}: {reclaim_text(self.command)}"
        head = f"~ partitions: {self.before} -> {self.to}"
        return [head, f"    ReadOnly: {format_ranges(range(self.to, self.before))}; {reclaim}"]


@dataclass(frozen=True)
class AcceptStateLoss(Resizes):
    """The consent to a shrink in progress, although ``groups`` lose the state that they keep per partition."""

    json_also: ClassVar = ("step",)
    step: ClassVar = "accept_state_loss"
    by_controller: ClassVar = True

    command: DeletePartitionsCommand = field(metadata={"json": None})
    groups: tuple[str, ...]

    def done(self) -> str:
        return f"the loss of state is accepted for {', '.join(self.groups)}"

    def lines(self) -> list[str]:
        return [f"~ the shrink in progress continues although {', '.join(self.groups)} keep state"]


@dataclass(frozen=True)
class Replace:
    """A new topic with another number of partitions takes the place of the old one, which is deleted at the end.

    Attributes:
        before: the number of writable partitions now.
    """

    json_only: ClassVar = {
        "from": "before",
        "step": "step",
        "to": "to",
        "new_topic": "command.new_topic",
        "policy": "command.policy",
        "delay_ms": "command.delay_ms",
        "configs": "command.configs",
        "evacuate": "command.evacuate",
        "accept_state_loss": "command.accept_state_loss",
    }
    step: ClassVar = "replace"
    by_controller: ClassVar = True

    before: int
    command: ReplaceTopicCommand

    @property
    def to(self) -> int:
        return self.command.num_partitions

    def done(self) -> str:
        if self.command.undo:
            return f"its replacement by {self.command.new_topic} is being undone"
        return f"being replaced by {self.command.new_topic} ({self.to} partitions)"

    def lines(self) -> list[str]:
        command = self.command
        head = f"~ partitions: {self.before} -> {self.to}, by the new topic {command.new_topic}"
        end = f"    policy {command.policy}: {end_text(command.topic, command.fence, command)}"
        return [head, end, *(f"    + {name}: {value}" for name, value in sorted(command.configs.items()))]


BrokerStep = Create | AlterConfigs

Step = BrokerStep | Grow | Shrink | AcceptStateLoss | Replace
