"""Where a record goes while its topic has retired partitions: pure decisions over a view and a partitioner.

A partitioner picks an index among the writable partitions, so a keyed record goes to
``writable[hash % len(writable)]``. A shrink retires the highest partitions, hence ``writable`` is nearly always
``0 .. n-1`` and the index is the partition. Where ``n`` divides the old count, ``h % old % n == h % n``: only the keys
of the retired partitions move.
"""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.topic_view import TopicView
from partitioners import Partitioner, TopicPartitioner


@dataclass(frozen=True, eq=False)
class Route:
    """Where the records of one topic go at one epoch. Made by :func:`route_for`; safe to use from several threads.

    Attributes:
        view: the view it follows; some of its partitions are not writable.
        writable: the partitions to choose from, ascending.
        dense: ``writable`` is ``0 .. n-1``, so an index is the partition itself.
    """

    view: TopicView
    writable: tuple[int, ...]
    dense: bool
    partitioner: TopicPartitioner

    def pick(self, key: bytes | None) -> int:
        """The partition for a record with ``key`` (None: it has none).

        Raises:
            ValueError: no partition is writable.
        """
        index = self.partitioner.partition(key, len(self.writable))
        return index if self.dense else self.writable[index]

    def refusal(self, partition: int) -> str | None:
        """Why a record may not be addressed to ``partition``; None where it may."""
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
    if view.all_writable:
        return None
    writable = view.writable
    dense = not writable or writable[-1] == len(writable) - 1
    return Route(view, writable, dense, partitioner.for_topic(view.topic))
