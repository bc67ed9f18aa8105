"""Which groups use a topic, how far each has come on it, and which keep state per partition.

A group uses a topic if it has a commit on it, or members that are subscribed to it or assigned it. Anything that could
hide such a group, or a group's progress on this topic, is a doubt (:mod:`modeaware.cluster.group_listing` has the
doubts about the list itself). A group's trouble with other topics is none. Without any connection ClusterError is
raised.

State per partition, as Kafka Streams keeps it, does not move with the keys of a retired partition. Groups with such
state are recognised by their type, or by the names of their changelog topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from modeaware.cluster.cluster import Cluster
from modeaware.cluster.group_listing import ListedGroup, Listing, error_name, list_groups
from modeaware.cluster.metadata import end_offsets
from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt
from modeaware.wire.brokers import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.requests import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    FindCoordinatorRequest,
    OffsetFetchRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
    assigned_topics,
    subscribed_topics,
)

DESCRIBE_BATCH = 250
OFFSETS_A_REQUEST = 20_000


@dataclass(frozen=True)
class Members:
    """The topics that a group's members are subscribed to or assigned.

    ``unknown`` says why these may not be all. ``streams``: the members are Kafka Streams'.
    """

    any: bool = False
    topics: frozenset[str] = frozenset()
    streams: bool = False
    unknown: str | None = None


@dataclass(frozen=True)
class Commits:
    """A group's offsets on one topic: partition -> offset, and the leader epoch of the commit where it has one.

    ``unknown`` says why they cannot be read.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    unknown: str | None = None


@dataclass(frozen=True)
class GroupsFound:
    """The groups that use a topic.

    Attributes:
        groups: by name.
        doubt: why there may be more, or why one of them cannot be judged.
        epochs: group -> partition -> the leader epoch of its commit, where it has one.
        stateful_owner: the Streams group whose internal topic this is.
    """

    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    doubt: GroupsDoubt | None = None
    epochs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    stateful_owner: str | None = None


NO_MEMBERS = Members()
_NO_COMMITS = Commits(unknown="its coordinator left them out of the response")


def find_groups(
    cluster: Cluster, topics: Mapping[str, Iterable[int]], also: Mapping[str, Collection[str]] | None = None
) -> dict[str, GroupsFound]:
    """Return the groups that use each of ``topics`` (name -> partitions), of every type and state.

    Groups are listed and described once, and their offsets on all the topics are read together: the number of requests
    grows with brokers and groups, not with topics.

    Args:
        also: topic -> groups whose commits on it are read though no broker lists them.
    """
    brokers, also = cluster.brokers, also or {}
    listing = list_groups(brokers)
    described = describe_groups(brokers, listing.groups.values())
    unlisted = _unlisted(brokers, listing, {name for names in also.values() for name in names})
    known = {**listing.groups, **{name: g for name, g in unlisted.items() if isinstance(g, ListedGroup)}}
    members = {name: described.get(name, NO_MEMBERS) for name in known}
    read = _read_offsets(brokers, known.values(), {topic: sorted(partitions) for topic, partitions in topics.items()})
    streams = {name for name, group in known.items() if group.kind == "streams" or members[name].streams}
    maybe = {n: True if n in streams else _maybe_streams(g, members[n]) for n, g in known.items()}

    def found(topic: str) -> GroupsFound:
        named = {name: unlisted[name] for name in also.get(topic, ()) if name in unlisted}
        groups = {name: group for name, group in known.items() if name in listing.groups or name in named}
        doubts = [*listing.doubts, *(each for each in named.values() if isinstance(each, GroupsDoubt))]
        commits = {name: read.get((name, topic), _NO_COMMITS) for name in groups}
        using = {n: group for n, group in groups.items() if commits[n].offsets or topic in members[n].topics}
        for name, group in groups.items():
            if not group.consumes:
                continue
            if commits[name].unknown is not None:
                why = f"group {name!r} cannot be judged: its offsets cannot be read: {commits[name].unknown}"
                doubts.append(GroupsDoubt(why))
            elif members[name].unknown is not None and name not in using:
                doubts.append(GroupsDoubt(f"group {name!r} {members[name].unknown}"))
        # Whether another group owns changelogs, only the names of topics show.
        in_doubt = any(using[name].kind != "share" for name in using.keys() - streams)
        stateful = stateful_groups(cluster.topic_names() if in_doubt else (), using, streams)
        facts = {
            name: GroupFacts(
                commits[name].offsets, has_members=members[name].any, kind=group.kind, stateful=name in stateful
            )
            for name, group in using.items()
        }
        return GroupsFound(
            facts,
            # The worst doubt: one that a closed list of groups would forgive only if there is no other.
            min(doubts, key=lambda doubt: doubt.hidden, default=None),
            {name: commits[name].epochs for name in using},
            owner(topic, maybe),
        )

    return {topic: found(topic) for topic in topics}


def _maybe_streams(group: ListedGroup, members: Members) -> bool | None:
    """Return None for a group without (readable) members that may still be of Kafka Streams, False for others."""
    unknown = group.kind == "classic" and group.consumes and (not members.any or members.unknown is not None)
    return None if unknown else False


def _unlisted(brokers: Brokers, listing: Listing, also: Collection[str]) -> dict[str, ListedGroup | GroupsDoubt]:
    """Return those of ``also`` that no broker lists, or the doubt where their coordinator is not known."""
    missing = sorted(set(also) - listing.groups.keys())
    if not missing or listing.none_yet:  # a look-up would make the brokers create __consumer_offsets
        return {}
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=missing, min_version=4, max_version=6)
    found: dict[str, ListedGroup | GroupsDoubt] = {}
    for coordinator in brokers.ask(request).coordinators:
        name, node_id = coordinator.key, int(coordinator.node_id)
        found[name] = ListedGroup(name, "classic", "Empty", "", node_id)
        if coordinator.error_code:
            why = error_name(coordinator.error_code)
            found[name] = GroupsDoubt(f"the coordinator of group {name!r} is not known: {why}")
    return found


# Members


def describe_groups(brokers: Brokers, groups: Iterable[ListedGroup]) -> dict[str, Members]:
    """Return the members of ``groups``; empty groups need no request."""
    found: dict[str, Members] = {}
    batches: dict[tuple[int, str], list[str]] = {}
    for group in groups:
        if group.state in ("Empty", "Dead"):
            found[group.name] = NO_MEMBERS
        elif group.kind not in _KINDS:
            found[group.name] = Members(any=True, unknown=f"is of type {group.kind!r}, which is not supported")
        else:
            batches.setdefault((group.coordinator, group.kind), []).append(group.name)
    for (_, kind), names, answer in _ask_in_batches(
        brokers, batches, DESCRIBE_BATCH, lambda key, names: _KINDS[key[1]][0](names)
    ):
        if isinstance(answer, ClusterError):
            found |= dict.fromkeys(names, Members(any=True, unknown=f"cannot be described: {answer}"))
            continue
        missing = Members(any=True, unknown="cannot be described: its coordinator left it out of the response")
        described = {group.group_id: _members(kind, group) for group in answer.groups}
        found |= {name: described.get(name, missing) for name in names}
    return found


def _ask_in_batches(
    brokers: Brokers,
    batches: Mapping[tuple[int, Any], list[str]],
    size: int,
    build: Callable[[tuple[int, Any], list[str]], Any],
) -> Iterable[tuple[tuple[int, Any], list[str], Any]]:
    """Ask coordinators for many groups, ``size`` in a request; the first part of a key is the broker's id."""
    parts = [(key, names[i : i + size]) for key, names in sorted(batches.items()) for i in range(0, len(names), size)]
    answers = brokers.ask_each([Ask(key[0], build(key, names)) for key, names in parts], BULK_TIMEOUT_S)
    return [(key, names, answer) for (key, names), answer in zip(parts, answers, strict=True)]


def _members(kind: str, group: Any) -> Members:
    if group.error_code == KafkaError.GROUP_ID_NOT_FOUND or group.group_state == "Dead":
        # Deleted, or of another type by now, or moved: the next listing shows it.
        return Members(any=True, unknown="was gone when it was to be described")
    if group.error_code:
        return Members(any=True, unknown=f"cannot be described: {error_name(group.error_code)}")
    return _KINDS[kind][1](group) if group.members else NO_MEMBERS


def _classic(group: Any) -> Members:
    if group.protocol_type not in ("consumer", ""):
        return Members(any=True)
    if group.group_state in ("PreparingRebalance", "CompletingRebalance"):  # no subscriptions or assignments then
        return Members(any=True, unknown="is in a rebalance: what it consumes is not known yet")
    topics: set[str] = set()
    unknown = None
    for member in group.members:
        try:
            topics |= subscribed_topics(bytes(member.member_metadata or b""))
            topics |= assigned_topics(bytes(member.member_assignment or b""))
        except ValueError as error:
            unknown = f"has a member whose subscription cannot be read: {error}"
    return Members(any=True, topics=frozenset(topics), streams=group.protocol_data == "stream", unknown=unknown)


def _consumer(group: Any) -> Members:
    """Read patterns by their assignments: the broker's expressions (RE2) are not Python's."""
    topics: set[str] = set()
    settled, by_pattern = group.group_state == "Stable", False
    for member in group.members:
        assigned, target = _assigned(member.assignment), _assigned(member.target_assignment)
        topics |= {*member.subscribed_topic_names, *(topic for topic, _ in assigned | target)}
        by_pattern = by_pattern or bool(member.subscribed_topic_regex)
        settled = settled and assigned == target
    unknown = None
    if by_pattern and not settled:
        unknown = "subscribes by a pattern and is not settled: what it consumes is not known yet"
    return Members(any=True, topics=frozenset(topics), unknown=unknown)


def _share(group: Any) -> Members:
    topics: set[str] = set()
    for member in group.members:
        topics |= {*member.subscribed_topic_names, *(topic for topic, _ in _assigned(member.assignment))}
    return Members(any=True, topics=frozenset(topics))


def _streams(group: Any) -> Members:
    if group.topology is None or group.topology.subtopologies is None:
        why = "has not settled its topology yet: what it consumes is not known"
        return Members(any=True, streams=True, unknown=why)
    topics: set[str] = set()
    for part in group.topology.subtopologies:
        topics |= {*part.source_topics, *(source.name for source in part.repartition_source_topics)}
    return Members(any=True, topics=frozenset(topics), streams=True)


def _assigned(assignment: Any) -> set[tuple[str, int]]:
    return {(each.topic_name, partition) for each in assignment.topic_partitions for partition in each.partitions}


_KINDS: Mapping[str, tuple[Callable[[list[str]], Any], Callable[[Any], Members]]] = {
    "classic": (lambda names: DescribeGroupsRequest(groups=names), _classic),
    "consumer": (lambda names: ConsumerGroupDescribeRequest(group_ids=names), _consumer),
    "share": (lambda names: ShareGroupDescribeRequest(group_ids=names), _share),
    "streams": (lambda names: StreamsGroupDescribeRequest(group_ids=names), _streams),
}


# Offsets


def _read_offsets(
    brokers: Brokers, groups: Iterable[ListedGroup], topics: Mapping[str, Sequence[int]]
) -> dict[tuple[str, str], Commits]:
    """Return the offsets of ``groups`` from their coordinators: (group, topic) -> commits."""
    found: dict[tuple[str, str], Commits] = {}
    batches: dict[tuple[int, bool], list[str]] = {}
    for group in groups:
        batches.setdefault((group.coordinator, group.kind == "share"), []).append(group.name)
    # Read first: what is acknowledged up to a later end is acknowledged up to this one.
    shared = any(share for _, share in batches)
    ends = end_offsets(brokers, ((t, p) for t, partitions in topics.items() for p in partitions)) if shared else {}
    size = max(1, OFFSETS_A_REQUEST // max(1, sum(map(len, topics.values()))))

    def request(key: tuple[int, Any], names: list[str]) -> Any:
        if key[1]:
            share = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
            each = share.DescribeShareGroupOffsetsRequestTopic
            whole = [each(topic_name=topic, partitions=list(partitions)) for topic, partitions in topics.items()]
            return DescribeShareGroupOffsetsRequest(groups=[share(group_id=name, topics=whole) for name in names])
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        wanted = [group.OffsetFetchRequestTopics(name=t, partition_indexes=list(some)) for t, some in topics.items()]
        groups = [group(group_id=name, topics=wanted) for name in names]
        # Version 10 has topic ids for names, which older brokers do not support.
        return OffsetFetchRequest(groups=groups, min_version=8, max_version=9)

    for (_, share), names, answer in _ask_in_batches(brokers, batches, size, request):
        if isinstance(answer, ClusterError):
            found |= {(name, topic): Commits(unknown=str(answer)) for name in names for topic in topics}
            continue
        for group in answer.groups:
            entries = {topic.topic_name if share else topic.name: topic.partitions for topic in group.topics}
            for topic in topics:
                if topic not in entries and not group.error_code:
                    continue
                of_topic = {p: ends[topic, p] for p in topics[topic] if (topic, p) in ends} if share else None
                found[group.group_id, topic] = _commits(group.error_code, entries.get(topic, ()), of_topic)
    return found


def _commits(error_code: int, entries: Sequence[Any], share_ends: Mapping[int, int] | None) -> Commits:
    """Return a group's commits on a topic; of a share group (``share_ends``: the log's ends) its start offsets.

    The start offset that brokers keep for a share group lies one acknowledgement behind, so it never reaches the end by
    itself. Their lag (KIP-1226, Kafka 4.2) counts what is not acknowledged between the two: with none left, the group
    is at the end.
    """
    if error_code == KafkaError.GROUP_ID_NOT_FOUND:  # gone since it was listed
        return Commits()
    codes = (error_code, *(e.error_code for e in entries if e.error_code != KafkaError.UNKNOWN_TOPIC_OR_PART))
    if any(codes):
        return Commits(unknown=error_name(next(filter(None, codes))))
    offsets, epochs = {}, {}
    for entry in entries:
        if share_ends is None:
            offset, epoch = entry.committed_offset, entry.committed_leader_epoch
        else:
            offset, epoch = entry.start_offset, entry.leader_epoch
            if offset >= 0 and entry.lag == 0:
                offset = max(offset, share_ends.get(entry.partition_index, -1))
        if offset >= 0:
            offsets[entry.partition_index] = offset
            if epoch >= 0:
                epochs[entry.partition_index] = epoch
    return Commits(offsets, epochs)


# State


def stateful_groups(topics: Iterable[str], names: Collection[str], streams: Collection[str]) -> frozenset[str]:
    """Return the groups of ``names`` with state: those of ``streams`` (known as Streams groups), and those whose name
    has changelog topics: ``<group>-...-changelog`` (Kafka Streams, Faust) or ``changelog__<group>--...`` (Quix)."""
    found = set(streams)
    for topic in topics:
        if topic.endswith("-changelog") or topic.startswith("changelog__"):
            found |= _owners(topic, names, streams)
    return frozenset(found)


def owner(topic: str, types: Mapping[str, bool | None]) -> str | None:
    """Return the Streams group whose internal topic this is, if any.

    Args:
        types: group -> whether it is a Streams group; None: not known, as of one without members.
    """
    streams = {name for name, is_streams in types.items() if is_streams}
    possible = {name for name, is_streams in types.items() if is_streams is not False}
    return max(_owners(topic, possible, streams), key=len, default=None)


def _owners(topic: str, names: Collection[str], streams: Collection[str]) -> set[str]:
    """Return the groups of ``names`` that an internal topic (changelog or repartition) can belong to, by its name.

    ``app-x-store-changelog`` could be that of ``app`` or of ``app-x``; one that is known as a Streams group owns it.
    """
    prefixes: list[str] = []
    if topic.startswith(("changelog__", "repartition__")):
        stem = topic.partition("__")[2]
        prefixes += [stem[:place] for place in range(len(stem)) if stem.startswith("--", place)]
    if topic.endswith(("-changelog", "-repartition")):
        stem = topic.rpartition("-")[0]
        prefixes += [stem[:place] for place, character in enumerate(stem) if character == "-"]
    candidates = {name for name in prefixes if name in names}
    known = candidates & set(streams)
    return {max(known, key=len)} if known else candidates
