"""What a client knows of one topic's partition modes: an immutable snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from modeaware.modes import PartitionMode, format_ranges

NO_EPOCH = (-1, -1)


@dataclass(frozen=True)
class TopicView:
    """One topic's modes at one epoch. Immutable, hence safe to share between threads.

    Attributes:
        topic: the topic's name.
        topic_id: the topic id (Kafka's base64 form), or None where no record exists for the topic.
        version: ``(controller epoch, topic epoch)``; views are ordered by it and never go back (invariant I4).
        modes: the mode of partition 0, 1, 2, ...; empty where no record exists. While a topic has retired partitions,
            a partition that is not listed is readable but not writable: somebody may have grown the topic with another
            tool, and no group has been told yet.
        resume_offsets: for retired and newly opened partitions, the offset from which a group without a commit has to
            read when the partition comes (back) to it: the seal offset, or the offset at which it was opened.
        reclaimed: the partitions whose records were deleted up to the resume offset.
        previous_count: how many partitions were writable before the shrink in force (partitions 0 to
            ``previous_count`` - 1: its survivors and its retired tail), while records written to them before the switch
            may still wait to be read by a group that the controller waits for. None where no shrink is in force, or
            where all of them are handed over; ``handed_over`` is then empty.
        handed_over: those of them that are handed over already: every group that the controller waits for has read
            what was written to them before the switch, so a key that moved away from one can be written to its new
            partition without overtaking its older records. Only ever grows within one shrink.
        earlier_counts: how many partitions were writable before earlier shrinks that were not handed over when the one
            in force began, ascending: a key's older records may still be where those counts have put it.
    """

    topic: str
    topic_id: str | None = None
    version: tuple[int, int] = NO_EPOCH
    modes: tuple[PartitionMode, ...] = ()
    resume_offsets: Mapping[int, int] = field(default_factory=dict, hash=False)
    reclaimed: frozenset[int] = frozenset()
    previous_count: int | None = None
    handed_over: frozenset[int] = frozenset()
    earlier_counts: tuple[int, ...] = ()

    @classmethod
    def unlisted(cls, topic: str) -> TopicView:
        """A topic the mode log does not name: every partition is ReadWrite (KIP-694, Compatibility)."""
        return cls(topic)

    def applies_to(self, topic_id: str | None) -> bool:
        """Whether the view may be applied to the topic that has the id ``topic_id`` (invariant I8): a topic that was
        deleted and created again is another one. None: the topic's id is not known."""
        return topic_id is None or self.topic_id is None or self.topic_id == topic_id

    @property
    def epoch(self) -> int:
        """The topic's mode epoch; -1 where no record exists."""
        return self.version[1]

    @cached_property
    def writable(self) -> tuple[int, ...]:
        """The partitions producers may choose, ascending; empty for an unlisted topic (then all are)."""
        return tuple(p for p, mode in enumerate(self.modes) if mode.writable)

    @cached_property
    def readable(self) -> tuple[int, ...]:
        """The partitions consumers are assigned, ascending; empty for an unlisted topic (then all are)."""
        return tuple(p for p, mode in enumerate(self.modes) if mode.readable)

    @cached_property
    def all_writable(self) -> bool:
        """Whether the stock client's own behaviour is right for this topic: no partition is retired."""
        return len(self.writable) == len(self.modes)

    @cached_property
    def all_readable(self) -> bool:
        """Whether no partition has to be left out of assignments."""
        return len(self.readable) == len(self.modes)

    def is_writable(self, partition: int) -> bool:
        """Whether a producer may write to ``partition``. One that is not listed moves no key (invariant I3)."""
        if self.all_writable:
            return True
        return 0 <= partition < len(self.modes) and self.modes[partition].writable

    def is_readable(self, partition: int) -> bool:
        """Whether a consumer may be assigned ``partition``.

        A partition beyond the listed ones is readable: nobody has retired it, and whoever wrote to it wants it read.
        """
        return not 0 <= partition < len(self.modes) or self.modes[partition].readable

    def mode(self, partition: int) -> PartitionMode:
        """The mode of ``partition``; one that is not listed is ReadWrite, or ReadOnly while others are retired."""
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
