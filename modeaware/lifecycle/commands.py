"""Input and output of a decision: admin commands, their results, and effects outside the mode log.

A command is refused by an :class:`Objection`, or changes a record. An *effect* is a request to brokers that follows
from an appended record. After a crash the same request may be sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.interim import is_interim_of
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import RETENTION, Reclaims
from modeaware.modes import PartitionMode


@dataclass(frozen=True)
class DeletePartitionsCommand(Reclaims):
    """KIP-694's DeletePartitions for one topic: keep ``total_count`` partitions, retire the rest.

    The reclaim policy is ``immediate`` if ``immediate_delete`` is set. Otherwise it is ``drained`` with a ``delay_ms``,
    and ``retention`` without one. Groups that keep state per partition lose the state of keys that move. The request
    accepts this loss for the groups in ``accept_state_loss``.
    """

    topic: str
    total_count: int
    delay_ms: int | None = None
    immediate_delete: bool = False
    accept_state_loss: tuple[str, ...] = ()

    @property
    def may_delete_records(self) -> bool:
        """Return whether records may be deleted before the topic's own retention deletes them."""
        return self.policy != RETENTION


@dataclass(frozen=True)
class CreatePartitionsCommand:
    """KIP-195's CreatePartitions for one topic: ``total_count`` writable partitions.

    Retired partitions are revived first, lowest id first; only the partitions still missing are created. For each
    created partition, ``assignments`` has the broker ids of its replicas.
    """

    topic: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None
    validate_only: bool = False


@dataclass(frozen=True)
class ReplaceTopicCommand(Reclaims):
    """Replace a topic by a new topic; see :class:`~modeaware.modelog.records.Replacement`.

    Until the switch, a repetition of the command may change ``pause_before_switch``. Until the old topic is gone, a
    repetition may also change ``keep_name`` or add to ``accept_state_loss`` (after that, only as in
    :func:`~modeaware.lifecycle.keep_name.repeated_by`). ``undo`` deletes the new topic; an undo after the switch is
    refused. ``configs`` are all configs of the new topic: a controller copies no configs of the old topic.

    ``keep_name``: the replacement is one half of a change by which a topic keeps its name
    (:mod:`modeaware.lifecycle.keep_name`).

    ``evacuate``: the old topic is compacted, and its latest values are copied to the new topic before the release.

    ``forget``: replace nothing, but remove the alias ``topic``, which points to ``new_topic``
    (:mod:`modeaware.lifecycle.alias`).
    """

    topic: str
    new_topic: str
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
    def returns_name(self) -> bool:
        """Return whether this is the second half of a change that keeps the name."""
        return self.keep_name and is_interim_of(self.topic, self.new_topic)


@dataclass(frozen=True)
class AlterGroupRulesCommand:
    """Add rules about groups, and remove rules by their keys. An added rule replaces the rule with the same key."""

    add: tuple[GroupRule, ...] = ()
    remove: tuple[tuple[str, str, str], ...] = ()

    @property
    def topic(self) -> str:
        """Return an empty topic name: group rules belong to no topic."""
        return ""


ResizeCommand = DeletePartitionsCommand | CreatePartitionsCommand
TopicCommand = ResizeCommand | ReplaceTopicCommand
Command = TopicCommand | AlterGroupRulesCommand


@dataclass(frozen=True)
class CommandResult:
    """The controller's answer about one topic: an error code, a message, and the modes in force."""

    topic: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    modes: tuple[PartitionMode, ...] = ()


@dataclass(frozen=True)
class Objection:
    """Why a command is refused.

    Attributes:
        topic: the topic of the objection: the command's topic, or another topic of its chain.
        kind: a word for reports (docs/plan.md).
        code: Kafka's error code.
        text: the cause and the remedy.
        reason: the reason code to show if the controller itself requests the change. If it is None, the controller
            shows a general code.
    """

    topic: str
    kind: str
    code: ErrorCode
    text: str
    reason: str | None = None

    @property
    def refusal(self) -> RequestRefused:
        return RequestRefused(f"topic {self.topic!r}: {self.text}", code=self.code, topic=self.topic)


# Effects. A repeated effect does no harm.


@dataclass(frozen=True)
class DeleteRecords:
    """Delete the records below ``offsets`` (partition -> offset): offsets in the mode log, never the end of a log.

    ``leader_epochs`` maps each partition to the leader epoch under which its log was read. A leader of another epoch
    may hold other records, so it gets no request. Nor is a request sent for a partition without a leader epoch.
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
    """Commit ``offsets`` (partition -> offset) for a group that has no members, and no commit on these partitions.

    For a share group (``kind``), the offsets become its start offsets: such a group commits nothing.
    """

    topic: str
    topic_id: str
    group: str
    offsets: Mapping[int, int]
    kind: str = "classic"


@dataclass(frozen=True)
class CreateTopic:
    """Create the new topic that replaces ``topic``."""

    topic: str
    topic_id: str
    new_topic: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DeleteTopic:
    """Delete, by its id, the new topic of an undone replacement. The new topic never contained a record."""

    topic: str
    topic_id: str
    new_topic: str
    new_topic_id: str


@dataclass(frozen=True)
class DeleteOldTopic:
    """Delete a topic by its id. The topic has to be fenced, and each log has to end at its seal."""

    topic: str
    topic_id: str
    seal_offsets: Mapping[int, int]


FENCE_CONFIGS = {"compression.type": "gzip", "max.message.bytes": "78"}
"""Markers that end transactions have 78 bytes, so they still fit. A batch of data in gzip has at least 81 bytes."""


def is_fence(configs: Mapping[str, str]) -> bool:
    """Return whether ``configs`` include the fence."""
    return FENCE_CONFIGS.items() <= configs.items()


@dataclass(frozen=True)
class FenceTopic:
    """Set ``configs`` on the topic, so that the brokers refuse data for it."""

    topic: str
    topic_id: str
    configs: Mapping[str, str]


@dataclass(frozen=True)
class RemoveConfigs:
    """Remove the listed configs from a topic, so that the brokers' defaults apply.

    The topic is a new topic, or one that blocks a second half. ``old_topic_id``: the topic whose record needs this.
    """

    topic: str
    topic_id: str
    names: tuple[str, ...]
    old_topic_id: str


Effect = (
    DeleteRecords
    | CreatePartitions
    | CommitOffsets
    | CreateTopic
    | DeleteTopic
    | DeleteOldTopic
    | FenceTopic
    | RemoveConfigs
)
