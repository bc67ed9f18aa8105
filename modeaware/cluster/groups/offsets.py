"""How far groups have come on one topic: committed offsets, and of share groups the start offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from modeaware.cluster.groups.listing import ListedGroup, error_name
from modeaware.cluster.partition_leaders import end_offsets
from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.wire.brokers.client import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.brokers.messages import (
    DescribeShareGroupOffsetsRequest,
    FindCoordinatorRequest,
    OffsetFetchRequest,
)

ENTRIES_A_REQUEST = 20_000
_GROUP_KEY = 0


@dataclass(frozen=True)
class Commits:
    """A group's offsets on one topic: partition -> offset, and the leader epoch it was committed under where known.

    ``unknown`` says why they cannot be read.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    unknown: str | None = None


NOTHING = Commits()


def read_offsets(
    brokers: Brokers, groups: Iterable[ListedGroup], topic: str, partitions: Sequence[int]
) -> dict[str, Commits]:
    """The offsets of ``groups``, asked of their coordinators, many groups in a request.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    found: dict[str, Commits] = {}
    batches: dict[tuple[int, bool], list[str]] = {}
    for group in groups:
        batches.setdefault((group.coordinator, group.kind == "share"), []).append(group.name)
    # Read first: what is acknowledged up to a later end is acknowledged up to this one.
    ends = end_offsets(brokers, topic, partitions) if any(share for _, share in batches) else {}
    size = max(1, ENTRIES_A_REQUEST // max(1, len(partitions)))
    asks, asked = [], []
    for (node, share), names in sorted(batches.items()):
        build = _share_request if share else _request
        for start in range(0, len(names), size):
            asks.append(Ask(node, build(names[start : start + size], topic, partitions)))
            asked.append((names[start : start + size], share))
    for (names, share), answer in zip(asked, brokers.ask_each(asks, BULK_TIMEOUT_S), strict=True):
        if isinstance(answer, ClusterError):
            found |= dict.fromkeys(names, Commits(unknown=str(answer)))
            continue
        found |= {g.group_id: _share_commits(g, ends) if share else _commits(g) for g in answer.groups}
    return found


def find_unlisted(brokers: Brokers, names: Sequence[str]) -> tuple[dict[str, ListedGroup], dict[str, str]]:
    """Where the offsets of groups would be that no broker lists: name -> group, and name -> why that is not known."""
    if not names:
        return {}, {}
    answer = brokers.ask(
        FindCoordinatorRequest(key_type=_GROUP_KEY, coordinator_keys=list(names), min_version=4, max_version=6)
    )
    found = {c.key: c for c in answer.coordinators}
    errors = {name: error_name(c.error_code) for name, c in found.items() if c.error_code}
    groups = {
        name: ListedGroup(name, "classic", "Empty", "", int(c.node_id)) for name, c in found.items() if not c.error_code
    }
    return groups, errors


def _request(names: Sequence[str], topic: str, partitions: Sequence[int]) -> Any:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [group.OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))]
    # Version 10 takes topic ids for names, which older brokers do not know.
    return OffsetFetchRequest(
        groups=[group(group_id=name, topics=topics) for name in names], min_version=8, max_version=9
    )


def _commits(group: Any) -> Commits:
    if (failed := _failure(group)) is not None:
        return failed
    made = [entry for entry in _entries(group) if entry.committed_offset >= 0]
    return Commits(
        {e.partition_index: e.committed_offset for e in made},
        {e.partition_index: e.committed_leader_epoch for e in made if e.committed_leader_epoch >= 0},
    )


def _failure(group: Any) -> Commits | None:
    """What is noted of a group whose offsets the answer does not hold; None: it does."""
    if group.error_code == KafkaError.GROUP_ID_NOT_FOUND:  # gone since it was listed
        return NOTHING
    if group.error_code:
        return Commits(unknown=error_name(group.error_code))
    for entry in _entries(group):
        if entry.error_code not in (0, KafkaError.UNKNOWN_TOPIC_OR_PART):
            return Commits(unknown=error_name(entry.error_code))
    return None


def _entries(group: Any) -> list[Any]:
    return [entry for topic in group.topics for entry in topic.partitions]


def _share_request(names: Sequence[str], topic: str, partitions: Sequence[int]) -> Any:
    group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    topics = [group.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions))]
    return DescribeShareGroupOffsetsRequest(groups=[group(group_id=name, topics=topics) for name in names])


def _share_commits(group: Any, ends: Mapping[int, int]) -> Commits:
    """The start offset, or the end of the log where nothing before it is left.

    The start offset that brokers keep lies one acknowledgement behind, so it never reaches the end by itself. Their lag
    (KIP-1226, Kafka 4.2) counts what is not acknowledged between the two.
    """
    if (failed := _failure(group)) is not None:
        return failed
    made = [entry for entry in _entries(group) if entry.start_offset >= 0]
    reached = {e.partition_index: ends.get(e.partition_index, -1) if e.lag == 0 else -1 for e in made}
    return Commits(
        {e.partition_index: max(e.start_offset, reached[e.partition_index]) for e in made},
        {e.partition_index: e.leader_epoch for e in made if e.leader_epoch >= 0},
    )
