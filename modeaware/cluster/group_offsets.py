"""The offsets that groups have committed, read from the groups' coordinators.

A request names groups, and may name partitions. A request with partitions costs the number of groups times the number
of partitions, although most groups have no commits on most topics. A request without partitions reads its groups
*whole*: it costs the number of commits that the groups have on all topics. If many partitions are wanted, a sample of
the groups is read whole first. The sample's mean number of commits decides how the other groups are read.

If a group is read whole, the response omits every topic that the user may not DESCRIBE by the coordinator's ACLs. There
is no error. So each coordinator then gets one more request, for one of its groups, that names the topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from modeaware.cluster.group_listing import ListedGroup, ask_in_batches, error_name
from modeaware.cluster.metadata import Partition, end_offsets
from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.notes import Note, kind_of
from modeaware.wire.brokers import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.requests import DescribeShareGroupOffsetsRequest, OffsetFetchRequest

NAMED_PARTITIONS = 100
"""If at most this many partitions are wanted, as for most topics, requests name them, and no sample is read."""
OFFSETS_A_REQUEST, GROUPS_A_REQUEST = 20_000, 250
SAMPLED_GROUPS = 20

Wanted = Mapping[str, Collection[int]]
"""Topic -> the partitions whose offsets are to be read."""
_Coordinators = Mapping[tuple[int, bool], list[str]]
"""(node id, whether they are share groups) -> groups."""
_LEFT_OUT = "its coordinator left them out of the response"


@dataclass(frozen=True)
class Commits:
    """A group's commits on one topic.

    Attributes:
        offsets: partition -> committed offset; for a share group, see :func:`read_offsets`.
        epochs: partition -> leader epoch of the commit; only for commits that have one.
        unknown: why the commits cannot be read.
        notes: partition -> note in the commit's metadata (:mod:`modeaware.notes`); only for commits with metadata.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    unknown: str | None = None
    notes: Mapping[int, Note] = field(default_factory=dict)


@dataclass
class GroupOffsets:
    """The commits of groups on topics.

    Attributes:
        of_topic: topic -> group -> the group's commits on the topic. A group is missing if it has no commits on the
            topic, or is in ``unknown``. If only the commits on this topic are unknown, the group is present.
        unknown: group -> why none of its commits could be read.
    """

    of_topic: dict[str, dict[str, Commits]]
    unknown: dict[str, str] = field(default_factory=dict)

    def note(self, topic: str, group: str, commits: Commits) -> None:
        if commits.offsets or commits.unknown is not None:
            self.of_topic[topic][group] = commits


def read_offsets(brokers: Brokers, groups: Iterable[ListedGroup], topics: Mapping[str, Iterable[int]]) -> GroupOffsets:
    """Return the committed offsets of ``groups`` on partitions of ``topics``.

    A share group has no commits. Its offset on a partition is the one up to which all records are acknowledged.
    """
    wanted = {topic: frozenset(partitions) for topic, partitions in topics.items()}
    coordinators: dict[tuple[int, bool], list[str]] = {}
    for group in groups:
        coordinators.setdefault((group.coordinator, group.kind == "share"), []).append(group.name)
    reading = _Reading(brokers, wanted, sum(map(len, wanted.values())))
    reading.share({key: names for key, names in coordinators.items() if key[1]})
    rest = {key: names for key, names in coordinators.items() if not key[1]}
    if reading.count > NAMED_PARTITIONS:
        step = max(1, sum(map(len, rest.values())) // SAMPLED_GROUPS)
        mean = reading.whole({key: names[::step] for key, names in rest.items()}, SAMPLED_GROUPS)
        rest = {key: [name for n, name in enumerate(names) if n % step] for key, names in rest.items()}
        if mean <= reading.count:
            reading.whole(rest, _groups_a_request(mean))
            rest = {}
        reading.note_hidden()
    reading.named(rest)
    return reading.offsets


class _Reading:
    """Reads the offsets of groups on the ``wanted`` partitions, whose number is ``count``."""

    def __init__(self, brokers: Brokers, wanted: Wanted, count: int) -> None:
        self.count = count
        self.offsets = GroupOffsets({topic: {} for topic in wanted})
        self._brokers = brokers
        self._wanted = wanted
        self._whole: dict[int, list[str]] = {}

    def share(self, coordinators: _Coordinators) -> None:
        if not coordinators:
            return
        # The ends are read before the groups. A group without lag may then be at a later end, and has acknowledged all
        # records up to the earlier end, too.
        ends = end_offsets(self._brokers, ((topic, p) for topic, some in self._wanted.items() for p in some))
        for _, names, answer in ask_in_batches(
            self._brokers,
            coordinators,
            _groups_a_request(self.count),
            lambda _, names: _share_request(names, self._wanted),
        ):
            for name, topics in _by_group(self.offsets, names, answer, "topic_name").items():
                for topic in self._wanted:
                    self.offsets.note(topic, name, _acknowledged(topic, topics.get(topic), ends))

    def named(self, coordinators: _Coordinators) -> None:
        for _, names, answer in ask_in_batches(
            self._brokers, coordinators, _groups_a_request(self.count), lambda _, names: _request(names, self._wanted)
        ):
            for name, topics in _by_group(self.offsets, names, answer, "name").items():
                for topic, partitions in self._wanted.items():
                    self.offsets.note(topic, name, _committed(topics.get(topic), partitions))

    def whole(self, coordinators: _Coordinators, groups_a_request: int) -> int:
        """Read all commits of groups; return the mean number of commits of a group."""
        read = entries = 0
        for (node, _), names, answer in ask_in_batches(
            self._brokers, coordinators, groups_a_request, lambda _, names: _request(names, None)
        ):
            groups = _by_group(self.offsets, names, answer, "name")
            self._whole.setdefault(node, []).extend(groups)
            for name, topics in groups.items():
                read, entries = read + 1, entries + sum(map(len, topics.values()))
                for topic in topics.keys() & self._wanted.keys():
                    self.offsets.note(topic, name, _committed(topics[topic], self._wanted[topic]))
        return entries // max(read, 1)

    def note_hidden(self) -> None:
        """Find the topics that a coordinator hides from the user.

        On such a topic, note the commits of all groups as unknown that were read whole from this coordinator.
        """
        probes = {node: names[0] for node, names in self._whole.items() if names}
        first = {topic: sorted(partitions)[:1] for topic, partitions in self._wanted.items()}
        asks = [Ask(node, _request([name], first)) for node, name in probes.items()]
        for (node, name), answer in zip(probes.items(), self._brokers.ask_each(asks, BULK_TIMEOUT_S), strict=True):
            probed = GroupOffsets({})
            topics = _by_group(probed, [name], answer, "name").get(name, {})
            for topic in self._wanted:
                why = probed.unknown.get(name) or _committed(topics.get(topic), first[topic]).unknown
                if why is not None:
                    for group in self._whole[node]:
                        self.offsets.note(topic, group, Commits(unknown=why))


def _groups_a_request(offsets: int) -> int:
    """Return how many groups fit in one request, if each has ``offsets`` offsets."""
    return min(max(OFFSETS_A_REQUEST // max(offsets, 1), 1), GROUPS_A_REQUEST)


def _request(groups: Sequence[str], wanted: Wanted | None) -> Any:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    entry = group.OffsetFetchRequestTopics
    topics = wanted and [entry(name=topic, partition_indexes=sorted(ps)) for topic, ps in wanted.items()]
    # Version 10 has topic ids instead of names, and older brokers lack it.
    return OffsetFetchRequest(
        groups=[group(group_id=name, topics=topics) for name in groups], min_version=8, max_version=9
    )


def _share_request(groups: Sequence[str], wanted: Wanted) -> Any:
    share = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    entry = share.DescribeShareGroupOffsetsRequestTopic
    topics = [entry(topic_name=topic, partitions=sorted(partitions)) for topic, partitions in wanted.items()]
    return DescribeShareGroupOffsetsRequest(groups=[share(group_id=name, topics=topics) for name in groups])


def _by_group(
    offsets: GroupOffsets, names: Sequence[str], answer: Any, topic_name: str
) -> dict[str, dict[str, Sequence[Any]]]:
    """Return group -> topic -> the entries of its partitions, for the groups that could be read.

    All other groups are noted as unknown, except groups that were deleted.
    """
    if isinstance(answer, ClusterError):
        offsets.unknown |= dict.fromkeys(names, str(answer))
        return {}
    groups: dict[str, dict[str, Sequence[Any]]] = {}
    unknown = dict.fromkeys(names, _LEFT_OUT)
    for group in answer.groups:
        unknown.pop(group.group_id, None)
        if not group.error_code:
            groups[group.group_id] = {getattr(topic, topic_name): topic.partitions for topic in group.topics}
        elif group.error_code != KafkaError.GROUP_ID_NOT_FOUND:  # deleted since the listing
            unknown[group.group_id] = error_name(group.error_code)
    offsets.unknown |= unknown
    return groups


def _committed(entries: Sequence[Any] | None, partitions: Collection[int]) -> Commits:
    if (unknown := _unknown(entries)) is not None:
        return Commits(unknown=unknown)
    own = [e for e in entries or () if e.committed_offset >= 0 and e.partition_index in partitions]
    return Commits(
        {e.partition_index: e.committed_offset for e in own},
        {e.partition_index: e.committed_leader_epoch for e in own if e.committed_leader_epoch >= 0},
        notes={e.partition_index: kind_of(e.metadata) for e in own if e.metadata},
    )


def _acknowledged(topic: str, entries: Sequence[Any] | None, ends: Mapping[Partition, int]) -> Commits:
    """Return a share group's start offsets on a topic.

    The start offset that brokers return is one acknowledgement late, so it stays below the end if no further record
    comes. Brokers also return the lag (KIP-1226, Kafka 4.2): how many records from the start offset to the end are not
    acknowledged. If the lag is 0, the group is at the end.
    """
    if (unknown := _unknown(entries)) is not None:
        return Commits(unknown=unknown)
    own = {e.partition_index: e for e in entries or () if e.start_offset >= 0}
    return Commits(
        {p: max(e.start_offset, ends.get((topic, p), -1)) if e.lag == 0 else e.start_offset for p, e in own.items()},
        {p: e.leader_epoch for p, e in own.items() if e.leader_epoch >= 0},
    )


def _unknown(entries: Sequence[Any] | None) -> str | None:
    """Return why a topic's entries are unknown; None if they are known."""
    if entries is None:
        return _LEFT_OUT
    codes = (e.error_code for e in entries if e.error_code not in (0, KafkaError.UNKNOWN_TOPIC_OR_PART))
    code = next(codes, None)
    return None if code is None else error_name(code)
