"""The list of all groups, of every type and state, and whether the list is complete.

A broker lists the groups that it coordinates: those on the partitions of ``__consumer_offsets`` that it leads *and has
loaded*. If a group moves between two brokers' responses, or is not loaded yet, it is missing without an error. So a
list is complete under these conditions only:

- The user may see all groups, and every broker answered.
- Before and after, all brokers agreed on the live brokers, and on the leaders and leader epochs of these partitions.
- Each leader showed beforehand that its partitions had all acknowledged records, and were loaded.

If a condition is not met, the list has a *doubt*.

The high watermark of a newly elected leader may lie before records that the previous leader acknowledged; ListOffsets
reports this (OFFSET_NOT_AVAILABLE, KIP-207). One case remains: the coordinator on the new leader may miss the last
write of the partition until another write follows (seen with Kafka 4.2). If the missed write is a group's first commit,
the group is missing until that other write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from modeaware.cluster.metadata import Leader, end_offsets, metadata_request
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.facts import GroupsDoubt
from modeaware.wire.brokers import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.requests import (
    DescribeClusterRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
)

OFFSETS_TOPIC = "__consumer_offsets"
AT_A_TIME = 8
"""The number of concurrent requests of :func:`ask_in_batches`."""
_DESCRIBE_OPERATION = 8
_Leaders = Mapping[int, Leader]
_T = TypeVar("_T")


def election_group(mode_log: str) -> str:
    """Return the name of the group that elects the active controller of a mode log. The name is also the controllers'
    transactional id."""
    return f"modeaware-controller.{mode_log}"


@dataclass(frozen=True)
class ListedGroup:
    """One group as its coordinator lists it; ``kind`` is ``classic``, ``consumer``, ``share`` or ``streams``."""

    name: str
    kind: str
    state: str
    protocol_type: str
    coordinator: int

    @property
    def consumes(self) -> bool:
        """Return whether members may read records. Connect's workers do not; members with protocol type "" may."""
        return self.kind != "classic" or self.protocol_type in ("consumer", "")


@dataclass
class Listing:
    """All listed groups by name.

    ``doubts``: why the list may be incomplete. ``none_yet``: whether it is certain that the cluster never had a group.
    ``silent``: brokers that did not answer. Each silent broker is one doubt, and gets no further request.
    """

    groups: dict[str, ListedGroup] = field(default_factory=dict)
    doubts: list[GroupsDoubt] = field(default_factory=list)
    none_yet: bool = False
    silent: set[int] = field(default_factory=set)

    def doubt(self, detail: str, *, hidden: bool = False) -> None:
        self.doubts.append(GroupsDoubt(detail, hidden))


def list_groups(brokers: Brokers) -> Listing:
    listing = Listing()
    nodes = brokers.node_ids()
    _check_authorization(brokers, listing)
    before = _leaders(brokers, nodes, listing)
    _check_caught_up(brokers, before, listing)
    _check_loaded(brokers, before, listing)
    _collect(brokers, nodes, listing)
    after = _leaders(brokers, nodes, listing)
    if before != after:
        moved = sorted(p for p in {*before, *after} if before.get(p) != after.get(p))
        listing.doubt(f"the leader of {OFFSETS_TOPIC}-{moved[0]} changed while groups were listed")
    listing.none_yet = not before and not listing.doubts
    return listing


def error_name(code: int) -> str:
    return str(KafkaError(code).name())


def ask_in_batches(
    brokers: Brokers,
    wanted: Mapping[tuple[int, Any], list[_T]],
    size: int,
    build: Callable[[tuple[int, Any], list[_T]], Any],
) -> Iterator[tuple[tuple[int, Any], list[_T], Any]]:
    """Send requests about many names, at most ``size`` names in each. Yield key, names and response of each request.

    The first part of a key in ``wanted`` is the broker's id. Only a few requests run at once, so neither the wait for a
    response nor the response's size grows with the number of names. A broker that does not answer gets no further
    request.
    """
    parts = [(i, key, names[i : i + size]) for key, names in wanted.items() for i in range(0, len(names), size)]
    parts.sort(key=lambda part: part[:2])
    failed: dict[int, ClusterError] = {}
    for first in range(0, len(parts), AT_A_TIME):
        some = parts[first : first + AT_A_TIME]
        asks = {(i, key): Ask(key[0], build(key, names)) for i, key, names in some if key[0] not in failed}
        answers = dict(zip(asks, brokers.ask_each(list(asks.values()), BULK_TIMEOUT_S), strict=True))
        for i, key, names in some:
            answer = answers.get((i, key), failed.get(key[0]))
            if isinstance(answer, ClusterError) and answer.code is ErrorCode.REQUEST_TIMED_OUT:
                failed[key[0]] = answer
            yield key, names, answer


def _check_authorization(brokers: Brokers, listing: Listing) -> None:
    answer = brokers.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    if answer.error_code:
        listing.doubt(f"the cluster cannot be described: {error_name(answer.error_code)}")
    elif _DESCRIBE_OPERATION not in (answer.authorized_operations or ()):
        listing.doubt("the right to DESCRIBE the cluster is missing, so brokers hide groups", hidden=True)


def _leaders(brokers: Brokers, nodes: Iterable[int], listing: Listing) -> _Leaders:
    """Return the leaders of ``__consumer_offsets``; none before the topic exists. It is a doubt if brokers disagree."""
    views: dict[int, _Leaders | None] = {}
    known = set(nodes)
    requests = {node: metadata_request([OFFSETS_TOPIC]) for node in known}
    for node, answer in _answers(brokers, requests, listing, "did not return the coordinators"):
        if strangers := {int(broker.node_id) for broker in answer.brokers} ^ known:
            listing.doubt(f"brokers disagree on whether broker {min(strangers)} is alive")
        topic = answer.topics[0]
        if topic.error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            listing.doubt(f"the right to DESCRIBE the topic {OFFSETS_TOPIC} is missing", hidden=True)
            return {}
        views[node] = {p.partition_index: (p.leader_id, p.leader_epoch) for p in topic.partitions}
        if topic.error_code not in (KafkaError.NO_ERROR, KafkaError.UNKNOWN_TOPIC_OR_PART):
            listing.doubt(f"broker {node} returned no coordinators: {error_name(topic.error_code)}")
    leaders = next(iter(views.values()), None) or {}
    if any(view != leaders for view in views.values()):
        listing.doubt(f"brokers disagree on the leaders of {OFFSETS_TOPIC}")
    for partition, (leader, _) in sorted(leaders.items()):
        if leader not in known:
            listing.doubt(f"{OFFSETS_TOPIC}-{partition} has no leader available: its groups are not listed")
            break
    return leaders


def _check_caught_up(brokers: Brokers, leaders: _Leaders, listing: Listing) -> None:
    """Request the end of each partition. A leader returns the end only once the leader has all acknowledged records."""
    able = {p: route for p, route in leaders.items() if route[0] >= 0 and route[0] not in listing.silent}
    led = {(OFFSETS_TOPIC, p): route for p, route in able.items()}
    missing = sorted(led.keys() - end_offsets(brokers, led, led).keys())
    if missing:
        listing.doubt(f"the leader of {OFFSETS_TOPIC}-{missing[0][1]} does not have all commits yet")


def _check_loaded(brokers: Brokers, leaders: _Leaders, listing: Listing) -> None:
    """Request a group's offsets from each partition's leader. No other request shows that a partition is loaded."""
    names = names_for_partitions(len(leaders))
    led: dict[int, list[int]] = {}
    for partition, (leader, _) in leaders.items():
        led.setdefault(leader, []).append(partition)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    requests = {
        leader: OffsetFetchRequest(
            groups=[group(group_id=names[p], topics=[]) for p in partitions], min_version=8, max_version=9
        )
        for leader, partitions in led.items()
        if leader >= 0
    }
    for node, answer in _answers(brokers, requests, listing, "does not answer for its groups"):
        # The right to list all groups does not include the offsets of this group, so a missing right is no doubt.
        codes = {g.error_code for g in answer.groups} - {0, KafkaError.GROUP_AUTHORIZATION_FAILED}
        if codes:
            listing.doubt(f"broker {node} has not loaded all its groups: {error_name(min(codes))}")


def _collect(brokers: Brokers, nodes: Iterable[int], listing: Listing) -> None:
    requests = {node: ListGroupsRequest() for node in nodes}
    for node, answer in _answers(brokers, requests, listing, "did not list its groups", BULK_TIMEOUT_S):
        if answer.error_code:
            listing.doubt(f"broker {node} did not list its groups: {error_name(answer.error_code)}")
        for group in answer.groups:
            if group.group_id in listing.groups:
                listing.doubt(f"group {group.group_id!r} is listed by two brokers")
            kind = (group.group_type or "classic").lower()
            state = group.group_state or ""
            listing.groups[group.group_id] = ListedGroup(group.group_id, kind, state, group.protocol_type, node)


def _answers(
    brokers: Brokers, requests: Mapping[int, Any], listing: Listing, silence: str, timeout_s: float | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield the responses of brokers by node id; a broker that does not answer is a doubt, with text ``silence``."""
    asks = [Ask(node, request) for node, request in sorted(requests.items()) if node not in listing.silent]
    for ask, answer in zip(asks, brokers.ask_each(asks, timeout_s), strict=True):
        if isinstance(answer, ClusterError):
            listing.silent.add(ask.node_id)
            listing.doubt(f"broker {ask.node_id} {silence}: {answer}")
        else:
            yield ask.node_id, answer


def names_for_partitions(partitions: int) -> dict[int, str]:
    """Return for each partition of ``__consumer_offsets`` the name of a group that would be kept there."""
    names: dict[int, str] = {}
    numbers = count()
    while len(names) < partitions:
        name = f"modeaware-probe-{next(numbers)}"
        names.setdefault(partition_of(name, partitions), name)
    return names


def partition_of(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that keeps a group: ``abs(hashCode) % partitions``."""
    value = 0
    units = group.encode("utf-16-be")
    for place in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
    value = value - (1 << 32) if value >= 1 << 31 else value
    return (0 if value == -(1 << 31) else abs(value)) % partitions
