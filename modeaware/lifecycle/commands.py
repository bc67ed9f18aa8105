"""What goes into a decision and comes out of it: admin commands, their results, and effects outside the mode log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.interim import is_interim_of
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import RETENTION, policy_of
from modeaware.modes import PartitionMode


@dataclass(frozen=True)
class DeletePartitionsCommand:
    """KIP-694's DeletePartitions for one topic: keep ``total_count`` partitions, retire the rest.

    ``delay_ms`` None selects the ``retention`` reclaim policy, a number ``drained``. ``accept_state_loss`` names groups
    that keep state per partition and may lose it for the keys that move.
    """

    topic: str
    total_count: int
    delay_ms: int | None = None
    immediate_delete: bool = False
    accept_state_loss: tuple[str, ...] = ()

    @property
    def may_delete_records(self) -> bool:
        """Return whether records may go earlier than the topic's own retention takes them."""
        return self.policy != RETENTION

    @property
    def policy(self) -> str:
        """The reclaim policy."""
        return policy_of(self.delay_ms, immediate=self.immediate_delete)


@dataclass(frozen=True)
class CreatePartitionsCommand:
    """KIP-195's CreatePartitions for one topic: ``total_count`` writable partitions.

    Retired partitions are revived first, lowest id first; only what is still missing is created. ``assignments`` gives
    the replicas (broker ids) of each created partition.
    """

    topic: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None
    validate_only: bool = False


@dataclass(frozen=True)
class ReplaceTopicCommand:
    """Replace a topic by a new one of another partition count; see :class:`~modeaware.modelog.records.Replacement`.

    Repeated while the replacement has not switched, it may change ``pause_before_switch`` and add to
    ``accept_state_loss``; until the topic is gone it may change ``keep_name``. ``undo`` deletes the successor, until
    the switch. ``configs`` are all that is set on the successor: nothing is copied from the topic.

    ``keep_name``: it is one half of a change that keeps the topic's name (:mod:`modeaware.lifecycle.keep_name`).

    ``evacuate``: the topic is compacted, and its latest values are copied to the successor before it is let go.

    ``forget``: nothing is replaced. The topic was replaced and is gone, and its name leads to ``successor`` no more
    (:mod:`modeaware.lifecycle.alias`).
    """

    topic: str
    successor: str
    num_partitions: int
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    delay_ms: int | None = None
    fence: str = "config"
    pause_before_switch: bool = False
    accept_state_loss: tuple[str, ...] = ()
    keep_name: bool = False
    evacuate: bool = False
    undo: bool = False
    validate_only: bool = False
    forget: bool = False

    @property
    def policy(self) -> str:
        """The reclaim policy."""
        return policy_of(self.delay_ms)

    @property
    def returns_name(self) -> bool:
        """Whether it is the second half of a change that keeps the name."""
        return self.keep_name and is_interim_of(self.topic, self.successor)


@dataclass(frozen=True)
class AlterGroupRulesCommand:
    """Add rules about groups (one of the same kind, group and topic is replaced), and remove some by their keys."""

    add: tuple[GroupRule, ...] = ()
    remove: tuple[tuple[str, str, str], ...] = ()

    @property
    def topic(self) -> str:
        """Return no topic: rules are about groups."""
        return ""


ResizeCommand = DeletePartitionsCommand | CreatePartitionsCommand
TopicCommand = ResizeCommand | ReplaceTopicCommand
Command = TopicCommand | AlterGroupRulesCommand


@dataclass(frozen=True)
class CommandResult:
    """The controller's answer for one topic: an error code with a message, and the modes in force."""

    topic: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    modes: tuple[PartitionMode, ...] = ()


@dataclass(frozen=True)
class Objection:
    """Why a command is refused.

    Attributes:
        topic: which topic the objection is about: the command's, or another one of its chain.
        kind: a word for reports (docs/plan.md).
        code: Kafka's error code.
        text: what it is, and what to do.
        reason: the code of what holds up a change that a controller begins itself; None: no code of its own.
    """

    topic: str
    kind: str
    code: ErrorCode
    text: str
    reason: str | None = None

    @property
    def refusal(self) -> RequestRefused:
        return RequestRefused(f"topic {self.topic!r}: {self.text}", code=self.code, topic=self.topic)


# Effects. Each may be repeated without harm.


@dataclass(frozen=True)
class DeleteRecords:
    """Delete the records of ``offsets``' partitions below the given offsets: always recorded seals, never the end.

    ``leader_epochs`` (partition -> leader epoch) are those under which the logs were read. A leader of another epoch
    may hold other records, so no request is sent to it, nor for a partition that is missing here.
    """

    topic: str
    topic_id: str
    offsets: Mapping[int, int]
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CreatePartitions:
    """Grow the topic on the brokers to ``total_count`` partitions in all."""

    topic: str
    topic_id: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None


@dataclass(frozen=True)
class CommitOffsets:
    """Commit ``offsets`` (partition -> offset) for a group without members, on partitions it has no commit on.

    Of a group of the ``kind`` ``share``, which commits none, they become its start offsets.
    """

    topic: str
    topic_id: str
    group: str
    offsets: Mapping[int, int]
    kind: str = "classic"


@dataclass(frozen=True)
class CreateTopic:
    """Create the successor of the topic ``topic``."""

    topic: str
    topic_id: str
    successor: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DeleteTopic:
    """Delete the successor of the topic ``topic``, by its id: nothing was ever written to it."""

    topic: str
    topic_id: str
    successor: str
    successor_id: str


@dataclass(frozen=True)
class DeletePredecessor:
    """Delete a topic that was replaced, by its id: fenced, and with each log at its seal (partition -> offset)."""

    topic: str
    topic_id: str
    seal_offsets: Mapping[int, int]


FENCE_CONFIGS = {"compression.type": "gzip", "max.message.bytes": "78"}
"""A batch of data that is compressed with gzip has at least 81 bytes, and a marker that ends a transaction 78."""


@dataclass(frozen=True)
class FenceTopic:
    """Have the brokers refuse data for the topic: set ``configs`` on it."""

    topic: str
    topic_id: str
    configs: Mapping[str, str]


@dataclass(frozen=True)
class RemoveConfigs:
    """Remove what is set on the topic itself, the successor of another one, so that the brokers' defaults apply."""

    topic: str
    topic_id: str
    names: tuple[str, ...]
    predecessor_id: str


Effect = (
    DeleteRecords
    | CreatePartitions
    | CommitOffsets
    | CreateTopic
    | DeleteTopic
    | DeletePredecessor
    | FenceTopic
    | RemoveConfigs
)
