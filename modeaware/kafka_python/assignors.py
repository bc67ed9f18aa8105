"""kafka-python's group assignors, which here assign the readable partitions first.

The leader of a group computes the assignment of all members. These assignors assign twice, by kafka-python's own
algorithm: first the readable partitions, as if there were no others, then those in mode None. So each partition has an
owner when it is revived. Protocol names and bytes on the wire are kafka-python's, so a group may also have plain
members. A plain leader makes the usual assignment, and mode-aware members still leave out partitions in mode None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from modeaware.clients.assignment import hidden
from modeaware.kafka_python._gateway import (
    ConsumerProtocolAssignment,
    CooperativeStickyAssignor,
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
)
from modeaware.topic_view import TopicView

ViewOf = Callable[[str], TopicView]


class ReadableAssignor:
    """The base of our four assignors. Among their bases, it precedes kafka-python's class.

    Args:
        view_of: returns the view in force of a topic (``views.view``). A leader calls it once for each topic of the
            group's subscriptions.

    Attributes:
        dealt: the hidden partitions of each topic when this member last made an assignment, or None if it never did.
    """

    def __init__(self, view_of: ViewOf) -> None:
        super().__init__()
        self._view_of = view_of
        self.dealt: Mapping[str, frozenset[int]] | None = None

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, Any]:
        """Assign the readable partitions first; arguments and result are those of kafka-python's assignor."""
        # Static members come first: kafka-python 3.0.12 forgets members if static and dynamic ones are mixed.
        members = sorted(members, key=lambda member: member.group_instance_id is None)
        stock: Any = super()
        topics: set[str] = set().union(*(member.metadata.topics for member in members))
        views = {topic: self._view_of(topic) for topic in sorted(topics)}
        self.dealt = {topic: hidden(view) for topic, view in views.items()}
        if not any(self.dealt.values()):
            return dict(stock.assign(cluster, members))
        readable = stock.assign(ClusterPart(cluster, views, readable=True), members)
        rest = stock.assign(ClusterPart(cluster, views, readable=False), members)
        return {member: _together(readable[member], rest[member]) for member in readable}

    def stale(self) -> bool:
        """Return whether other partitions are hidden now than when this member last made an assignment. Return False if
        it never did."""
        dealt = self.dealt
        return dealt is not None and any(hidden(self._view_of(topic)) != before for topic, before in dealt.items())


class ClusterPart:
    """kafka-python's ``ClusterMetadata`` with only the readable partitions, or only the others."""

    def __init__(self, cluster: Any, views: Mapping[str, TopicView], *, readable: bool) -> None:
        self._cluster = cluster
        self._views = views
        self._readable = readable

    def topics(self) -> Collection[str]:
        return [topic for topic in self._cluster.topics() if topic in self._views]

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        partitions = self._cluster.partitions_for_topic(topic)
        if partitions is None:
            return None
        view = self._views[topic]
        return {partition for partition in partitions if view.is_readable(partition) is self._readable}


class ReadableRangeAssignor(ReadableAssignor, RangePartitionAssignor):  # type: ignore[misc,unused-ignore]  # untyped
    """``range`` over the readable partitions."""


class _RoundRobin(RoundRobinPartitionAssignor):  # type: ignore[misc,unused-ignore]  # untyped
    """``roundrobin`` by Kafka's rule. kafka-python's own (3.0.12) fails with a KeyError if subscriptions differ."""

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        static = sorted((m.group_instance_id, m.member_id) for m in members if m.group_instance_id is not None)
        turns = [
            *(member for _, member in static),
            *sorted(m.member_id for m in members if m.group_instance_id is None),
        ]
        topics = {member.member_id: set(member.metadata.topics) for member in members}
        dealt: dict[str, dict[str, list[int]]] = {member: defaultdict(list) for member in turns}
        turn = 0
        for topic in sorted(set().union(*topics.values())):
            for partition in sorted(cluster.partitions_for_topic(topic) or ()):
                while topic not in topics[turns[turn % len(turns)]]:
                    turn += 1
                dealt[turns[turn % len(turns)]][topic].append(partition)
                turn += 1
        return {m: ConsumerProtocolAssignment(self.version, sorted(of.items()), b"") for m, of in dealt.items()}


class ReadableRoundRobinAssignor(ReadableAssignor, _RoundRobin):
    """``roundrobin`` over the readable partitions."""


class ReadableStickyAssignor(ReadableAssignor, StickyPartitionAssignor):  # type: ignore[misc,unused-ignore]  # untyped
    """``sticky`` (KIP-54) over the readable partitions."""


class ReadableCooperativeStickyAssignor(
    ReadableAssignor,
    CooperativeStickyAssignor,  # type: ignore[misc,unused-ignore]  # untyped
):
    """``cooperative-sticky`` (KIP-429) over the readable partitions."""

    def metadata(self, topics: Collection[str]) -> Any:
        """Leave out the owned partitions of topics that this member no longer reads. A leader of another library would
        assign them again, and kafka-python 3.0.12 refuses that assignment and rejoins for ever."""
        joining = super().metadata(topics)
        joining.owned_partitions = [owned for owned in joining.owned_partitions if owned.topic in topics]
        return joining


_READABLE: Mapping[Any, Callable[[ViewOf], ReadableAssignor]] = {
    RangePartitionAssignor: ReadableRangeAssignor,
    RoundRobinPartitionAssignor: ReadableRoundRobinAssignor,
    StickyPartitionAssignor: ReadableStickyAssignor,
    CooperativeStickyAssignor: ReadableCooperativeStickyAssignor,
}


def aware_strategy(strategy: Iterable[Any], view_of: ViewOf) -> list[Any]:
    """Return ``partition_assignment_strategy`` with our assignors in place of kafka-python's own.

    An application's own assignor stays unchanged. With it, members still leave out partitions in mode None, but the
    readable partitions may be unevenly assigned.
    """
    return [_aware(entry, view_of) for entry in strategy]


def _aware(entry: Any, view_of: ViewOf) -> Any:
    kind = entry if isinstance(entry, type) else type(entry)
    if kind in _READABLE:
        return _READABLE[kind](view_of)
    if isinstance(entry, type) and issubclass(entry, ReadableAssignor):
        return entry(view_of)
    return entry


def _together(first: Any, second: Any) -> Any:
    partitions: dict[str, list[int]] = defaultdict(list)
    for assignment in (first, second):
        for topic, numbers in assignment.assigned_partitions:
            partitions[topic].extend(numbers)
    together = sorted((topic, sorted(numbers)) for topic, numbers in partitions.items())
    return ConsumerProtocolAssignment(first.version, together, b"")
