"""Where a record goes while its topic has retired partitions: pure decisions over a view and a partitioner.

A partitioner picks an index among the writable partitions, so a keyed record goes to
``writable[hash % len(writable)]``, by the view alone (invariant I3). A shrink retires the highest partitions, hence
``writable`` is nearly always ``0 .. n-1`` and the index is the partition. Where ``n`` divides the old count,
``h % old % n == h % n``: only the keys of the retired partitions move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modeaware.topic_view import TopicView
from partitioners import LoadAware, Partitioner, TopicPartitioner


@dataclass(frozen=True, eq=False)
class Route:
    """Where the records of one topic go at one epoch. Made by :func:`route_for`; safe to use from several threads.

    Attributes:
        view: the view it follows; some of its partitions are not writable.
        writable: the partitions to choose from, ascending.
        dense: ``writable`` is ``0 .. n-1``, so an index is the partition itself.
        by_load: picks for records that need no consistency by their size and the load, where the partitioner can
            (KIP-794).
        load: tells the load of a topic's candidates, where somebody knows it.
        open: the partitioner need not see every key: where it hashes, the hash alone says the index.
    """

    view: TopicView
    writable: tuple[int, ...]
    dense: bool
    partitioner: TopicPartitioner
    by_load: Callable[[bytes | None, int, int, Sequence[int]], int] | None = None
    load: Callable[[str, tuple[int, ...]], Sequence[int]] | None = None
    open: bool = True

    def pick(self, key: bytes | None, size: int = 0) -> int:
        """The partition for a record with ``key`` (None: it has none) of ``size`` bytes.

        Raises:
            ValueError: no partition is writable, or the partitioner wants one to be named.
            KeyHeld, KeyMoved: see :class:`~modeaware.resize.Guarding`.
        """
        if self.by_load is not None and not self.partitioner.requires_consistency(key):
            load = () if self.load is None else self.load(self.view.topic, self.writable)
            index = self.by_load(key, len(self.writable), size, load)
        else:
            index = self.partitioner.partition(key, len(self.writable))
        return index if self.dense else self.writable[index]

    def refusal(self, partition: int) -> str | None:
        """Why a record may not be addressed to ``partition`` (invariant I3); None where it may."""
        view = self.view
        if view.is_writable(partition):
            return None
        if not self.writable:
            return f"no partition of {view.topic} takes records now ({view.describe()}): grow the topic"
        listed = partition < len(view.modes)
        state = f"is {view.mode(partition).label}" if listed else "is not listed in the topic's record"
        return (
            f"partition {partition} of {view.topic} {state} and takes no records ({view.describe()}): "
            "leave the partition out, or choose a ReadWrite one"
        )


def route_for(view: TopicView, partitioner: Partitioner) -> Route | None:
    """The route that ``view`` asks for; None where every partition is writable: the stock client's choice is right."""
    return None if view.all_writable else route_over(view, partitioner)


def route_over(view: TopicView, partitioner: Partitioner) -> Route:
    """The route over the writable partitions of a ``view`` that has a record, even where all are."""
    writable = view.writable
    dense = not writable or writable[-1] == len(writable) - 1
    picks = partitioner.for_topic(view.topic)
    return Route(view, writable, dense, picks, picks.partition_by_load if isinstance(picks, LoadAware) else None)
