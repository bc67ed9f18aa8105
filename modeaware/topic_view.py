"""A topic id, and the *view* of the topic with this id: the part of the topic's record that clients apply. Immutable.

A topic id has one form here: Kafka's own, URL-safe base64 without padding, 22 characters. A topic's record in the mode
log has the id in this form as its key. On the wire an id is 16 bytes; kafka-python returns a ``UUID``, librdkafka its
own type.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from uuid import UUID

from modeaware.modes import PartitionMode, format_ranges

NO_EPOCH = (-1, -1)
NO_TOPIC_ID = "A" * 22
"""The zero UUID: brokers return it for a topic without an id (Kafka before 2.8)."""


def base64_id(topic_id: object) -> str:
    """Return Kafka's form of a topic id that is 16 bytes, a ``UUID``, or librdkafka's (printed with ``+``, ``/``)."""
    raw = topic_id.bytes if isinstance(topic_id, UUID) else topic_id
    if isinstance(raw, bytes):
        return urlsafe_b64encode(raw).rstrip(b"=").decode()
    return str(raw).replace("+", "-").replace("/", "_")


def known_id(topic_id: object) -> str | None:
    """Return the id in the form of :func:`base64_id`, or None if the broker has returned None or the zero UUID."""
    text = None if topic_id is None else base64_id(topic_id)
    return None if text == NO_TOPIC_ID else text


@dataclass(frozen=True)
class Moved:
    """The groups with an open gate to the new topic of a replacement, as the controller has decided.

    Attributes:
        all: whether every group has an open gate.
        groups: the groups with an open gate. A client that gets its modes over the wire gets only its own groups here.
        version: ``(controller epoch, epoch)`` of the decision, by which decisions are ordered. Equality ignores it.
    """

    all: bool = False
    groups: frozenset[str] = frozenset()
    version: tuple[int, int] = field(default=NO_EPOCH, compare=False)

    def has_open_gate(self, group: str) -> bool:
        """Return whether ``group`` has an open gate."""
        return self.all or group in self.groups


NONE_MOVED = Moved()
"""No gate is open."""


@dataclass(frozen=True)
class ReplacedBy:
    """The new topic, in the view of its old topic.

    Attributes:
        topic, topic_id, partition_count: the new topic's name, id and number of partitions.
        switched: whether producers write to the new topic. Before the switch, they write to the old topic.
        released: whether every required group has read the old topic, and ``read_up_to`` is complete. Members of a
            group with an open gate need not subscribe to the old topic any more.
        gone: whether the old topic has ceased to exist.
        read_up_to: partition of the old topic -> the offset behind its last record, once that offset is final.
        groups: the groups that used the old topic at the switch, and read the new topic from its start. After a
            controller has deleted the old topic, this set has only the waived groups: all others had offsets on the new
            topic by then.
        groups_complete: False if ``groups`` may lack a group: any group then reads the new topic from its start.
        moved: the groups with an open gate: by the controller's decision they have read the old topic.
    """

    topic: str
    topic_id: str
    partition_count: int
    switched: bool = False
    released: bool = False
    gone: bool = False
    read_up_to: Mapping[int, int] = field(default_factory=dict, hash=False)
    groups: frozenset[str] = frozenset()
    groups_complete: bool = True
    moved: Moved = field(default_factory=Moved)

    @property
    def state(self) -> int:
        """Return the index of the last of :data:`REPLACEMENT_STATES` that has been reached."""
        return max(n for n, name in enumerate(REPLACEMENT_STATES) if not n or getattr(self, name))


REPLACEMENT_STATES = ("announced", "switched", "released", "gone")
"""The states of a replacement, in order. In each state, the states before it hold as well."""


@dataclass(frozen=True)
class TopicView:
    """One topic's modes at one epoch. Immutable, hence safe to share between threads.

    Attributes:
        topic: the topic's name.
        topic_id: the topic id (Kafka's base64 form); None if the topic has no record.
        version: ``(controller epoch, topic epoch)``. An older view never replaces a newer one (invariant I4).
        modes: the mode of partition 0, 1, 2, ...; empty if the topic has no record. While a topic has retired
            partitions, a partition that is not listed is readable but not writable: another tool may have grown the
            topic, and groups may not read the partition yet.
        resume_offsets: partition -> the offset from which a group without a commit has to read it. For a retired
            partition, this is the first seal, or a lower end after a truncation. For a new partition that takes no
            writes yet, it is the log start.
        reclaimed: the partitions whose records the controller has deleted, or has found deleted.
        previous_count: how many partitions were writable before the shrink in force; None if no shrink is in force.
        replaced_by: the topic that replaces this one, once it exists.
    """

    topic: str
    topic_id: str | None = None
    version: tuple[int, int] = NO_EPOCH
    modes: tuple[PartitionMode, ...] = ()
    resume_offsets: Mapping[int, int] = field(default_factory=dict, hash=False)
    reclaimed: frozenset[int] = frozenset()
    previous_count: int | None = None
    replaced_by: ReplacedBy | None = None

    @classmethod
    def unlisted(cls, topic: str) -> TopicView:
        """Return the view of a topic without a record: every partition is ReadWrite (KIP-694, Compatibility)."""
        return cls(topic)

    def applies_to(self, topic_id: str | None) -> bool:
        """Return whether the view may be applied to the topic with this id, or to one whose id is not known (None). A
        topic that was deleted and created again is another topic (invariant I8)."""
        return topic_id is None or self.topic_id is None or self.topic_id == topic_id

    def is_older_than(self, other: TopicView | None) -> bool:
        """Return whether ``other`` is a later view of this topic id. No view replaces a later one (invariant I4)."""
        return other is not None and other.topic_id == self.topic_id and self.version < other.version

    def over(self, held: TopicView | None) -> TopicView:
        """Return the view that is in force when this view arrives and ``held`` was in force (invariant I4).

        For one topic id, this is the newer view, with the newer decision about open gates. Decisions and views have
        separate versions.
        """
        if held is None or held.topic_id != self.topic_id:
            return self
        newer, other = (held, self) if self.is_older_than(held) else (self, held)
        if newer.replaced_by is None or other.replaced_by is None:
            return newer
        moved = max(newer.replaced_by.moved, other.replaced_by.moved, key=lambda moved: moved.version)
        return replace(newer, replaced_by=replace(newer.replaced_by, moved=moved))

    @property
    def epoch(self) -> int:
        """The topic's mode epoch; -1 if the topic has no record."""
        return self.version[1]

    @property
    def is_replaced(self) -> bool:
        """Whether producers that use the topic's name write to the new topic."""
        return self.replaced_by is not None and self.replaced_by.switched

    @property
    def is_alias(self) -> bool:
        """Whether the topic was replaced and is gone: its name stands for the new topic alone."""
        return self.replaced_by is not None and self.replaced_by.gone

    @cached_property
    def writable(self) -> tuple[int, ...]:
        """The partitions that producers may choose, ascending. Empty for an unlisted topic: all are writable."""
        return tuple(p for p, mode in enumerate(self.modes) if mode.writable)

    @cached_property
    def readable(self) -> tuple[int, ...]:
        """The partitions that consumers are assigned, ascending. Empty for an unlisted topic: all are readable."""
        return tuple(p for p, mode in enumerate(self.modes) if mode.readable)

    @cached_property
    def all_writable(self) -> bool:
        """Whether no partition is retired, so that producers need no more than what a stock client does."""
        return len(self.writable) == len(self.modes)

    @cached_property
    def all_readable(self) -> bool:
        """Whether no partition has to be left out of assignments."""
        return len(self.readable) == len(self.modes)

    def is_writable(self, partition: int) -> bool:
        """Whether producers may write to ``partition``; to an unlisted one only if none is retired (invariant I3)."""
        if self.all_writable:
            return True
        return 0 <= partition < len(self.modes) and self.modes[partition].writable

    def is_readable(self, partition: int) -> bool:
        """Whether a consumer may be assigned ``partition``.

        A partition beyond the listed ones is readable: no record retires it, and it may hold records.
        """
        return not 0 <= partition < len(self.modes) or self.modes[partition].readable

    def mode(self, partition: int) -> PartitionMode:
        """The mode of ``partition``. An unlisted partition is ReadWrite, or ReadOnly while any other one is retired."""
        if 0 <= partition < len(self.modes):
            return self.modes[partition]
        return PartitionMode.READ_WRITE if self.all_writable else PartitionMode.READ_ONLY

    def describe(self) -> str:
        """One line for logs and errors, such as ``orders epoch 3: ReadWrite 0-3, None 4-11``."""
        if not self.modes:
            return f"{self.topic}: every partition ReadWrite"
        parts = [
            f"{mode.label} {format_ranges(p for p, m in enumerate(self.modes) if m is mode)}"
            for mode in PartitionMode
            if mode in self.modes
        ]
        return f"{self.topic} epoch {self.epoch}: {', '.join(parts)}"
