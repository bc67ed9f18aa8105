"""The gate before a successor: when a group may read it. Without IO.

A topic name leads to a chain of topics (:mod:`modeaware.chain`). A group reads a successor once it has committed the
predecessor to its end, in every partition: so it is given the records of each key in their order. What it has committed
of the successor, or of a later topic, shows that the gate was open before, and an open gate never shuts for it; or a
group that is set back would wait for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modeaware.topic_view import Successor, TopicView

GATE_OPENED = "modeaware: the gate is open"
"""The metadata of the offsets that a member commits on the successor when its gate opens, for people who look."""
READ = "modeaware: read"
"""The metadata of the offset at the end of a predecessor, by which other members see that the last record of the
partition is handled. A client library's automatic commit says nothing of that: it may come while the application still
works on the record."""


def has_read(view: TopicView, committed: Mapping[int, int], log_starts: Mapping[int, int]) -> bool:
    """Return whether a group has read the topic of ``view``, which is replaced, to its end in every partition.

    Args:
        committed: the group's offsets on it.
        log_starts: what its retention has taken need not be read.
    """
    successor = view.successor
    return successor is not None and all(
        partition in successor.read_up_to
        and max(committed.get(partition, 0), log_starts.get(partition, 0)) >= successor.read_up_to[partition]
        for partition in range(len(view.modes))
    )


def is_open(view: TopicView, *, has_read: bool, has_moved: bool, waived: bool = False, is_next: bool = True) -> bool:
    """Return whether a group may read a partition of the successor of the topic of ``view`` (invariant I2).

    Args:
        has_read: :func:`has_read`.
        has_moved: what the group has committed on the successor, or on a later topic, shows that the gate was open.
        waived: the operator does not wait for the group.
        is_next: the gate before the topic of ``view`` itself is open: one that nothing was written to counts as read,
            also by a group that still reads the topic before it.
    """
    successor = view.successor
    return successor is None or successor.gone or (has_read and is_next) or has_moved or waived


def needs_predecessor(view: TopicView, *, has_read: bool, has_moved: bool, owes_commit: bool = False) -> bool:
    """Return whether members of a group subscribe to the topic of ``view`` itself. A group that begins late still reads
    what it holds, and before the successor. One that has moved does not read it anew when its offsets there expire.

    Args:
        has_read: :func:`has_read`.
        has_moved: the same as for :func:`is_open`, and the group's offsets on the topic have expired
            (:attr:`Gate.is_left`). With others ``has_read`` decides: a gate that was opened by its timeout, or a group
            that was set back, leaves records.
        owes_commit: the topic has a predecessor, which is kept until the group has a commit on each partition of the
            topic, and it has not: also where there is nothing to read.
    """
    successor = view.successor
    if successor is None:
        return True
    return not successor.gone and (owes_commit or not (successor.let_go and (has_read or has_moved)))


def awaits_group(view: TopicView, group: str, committed: Mapping[int, int]) -> bool:
    """Return whether the topic of ``view`` is kept until the group has a commit on each partition of the successor: not
    for a group that comes when it is let go, and has never used it.

    Args:
        committed: the group's offsets on the topic.
    """
    successor = view.successor
    if successor is None or successor.gone:
        return False
    return not successor.let_go or bool(committed) or group in successor.groups


def start_offset(view: TopicView, group: str, *, has_used: bool = False) -> int | None:
    """Return where a group without a commit begins to read the successor: None: where ``auto.offset.reset`` says.

    Until the predecessor is let go that is 0 for a group that begins after the switch, too: what it would skip of the
    successor may be newer than what still comes on the predecessor, where a fence is lifted.

    Args:
        has_used: the group has offsets on the predecessor, or on a topic before it: it comes back late, or they were
            set for it. It goes on to the successor, and skips nothing of it.
    """
    successor = view.successor
    if successor is None:
        return None
    is_noted = group in successor.groups or not successor.groups_complete
    return 0 if is_noted or has_used or not successor.let_go else None


@dataclass(eq=False)
class Gate:
    """The gate between a topic that is replaced and its successor, as one member sees it.

    Attributes:
        view: of the predecessor.
        opened: the successor's partitions are read.
        settled: the group has a commit on all of them, or owes none (any more).
        has_read, has_moved: of the group, as :func:`is_open` takes them.
        committed: the group's offsets on the predecessor.
        noted: those of them with metadata: of ours, or of the application, which then has said what it has handled.
        has_expired: where the group has moved, a commit that is missing there has expired: none is left, or, of a group
            that was noted at the switch, the others are at the end.
        asked: the group's offsets were requested and received.
        is_proof: where the group has moved it has read the predecessor: no gate was left out or opened by its timeout.
        preceding, following: the gate before the predecessor, and the one behind the successor.
        waits_for: for people.
    """

    view: TopicView
    successor: Successor
    since_s: float
    opened: bool = False
    settled: bool = False
    has_read: bool = False
    has_moved: bool = False
    has_expired: bool = True
    asked: bool = False
    is_proof: bool = True
    waits_for: str = ""
    ask_s: float = 0.0
    asked_s: float = 0.0
    log_starts_s: float = 0.0
    logged_s: float = 0.0
    looked_s: float = 0.0
    ready_s: float | None = None
    moved_s: float = 0.0
    committed: dict[int, int] = field(default_factory=dict)
    noted: set[int] = field(default_factory=set)
    log_starts: dict[int, int] = field(default_factory=dict)
    preceding: Gate | None = field(default=None, repr=False)
    following: Gate | None = field(default=None, repr=False)

    @property
    def keys(self) -> list[tuple[str, int]]:
        """The partitions of the predecessor."""
        return [(self.view.topic, partition) for partition in range(len(self.view.modes))]

    @property
    def successor_keys(self) -> list[tuple[str, int]]:
        return [(self.successor.topic, partition) for partition in range(self.successor.partition_count)]

    def unread(self, committed: Mapping[int, int]) -> list[int]:
        """The partitions of the predecessor whose end is known, and not committed."""
        starts = self.log_starts
        ends = self.successor.read_up_to
        return [p for p, end in ends.items() if max(committed.get(p, 0), starts.get(p, 0)) < end]

    @property
    def has_passed(self) -> bool:
        """Whether the group's commits show that the gate was open: on the successor, or on a later topic of the chain
        (those on the successor expire, once the group has read it and is not subscribed to it)."""
        return self.has_moved or (self.following is not None and self.following.is_left)

    @property
    def is_left(self) -> bool:
        """Whether the group needs the predecessor no more, though its commits there may have expired."""
        return self.asked and self.successor.let_go and self.has_passed and self.has_expired and self.is_proof

    @property
    def is_known(self) -> bool:
        """Whether all was answered that decides whether the group needs the predecessor, once it is let go."""
        after = self.following
        return self.asked and (after is None or not after.successor.remains or after.is_known)

    @property
    def is_next(self) -> bool:
        """Whether the gate before the predecessor itself is open."""
        return self.preceding is None or self.preceding.opened

    @property
    def needs_predecessor(self) -> bool:
        has_read = self.has_read and self.opened  # else its owners have yet to note that the last records are handled
        owes_commit = self.preceding is not None and not self.preceding.settled and not self.is_left
        return needs_predecessor(self.view, has_read=has_read, has_moved=self.is_left, owes_commit=owes_commit)

    @property
    def may_be_needed(self) -> bool:
        """Whether the predecessor is let go, and needed by the group, or may be: what it committed is not known."""
        return self.successor.remains and (not self.asked or self.needs_predecessor)

    @property
    def done(self) -> bool:
        """Whether nothing is to be found out until the view changes."""
        return self.opened and self.settled and not self.may_be_needed
