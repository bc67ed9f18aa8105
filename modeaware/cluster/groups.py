"""The groups that use a topic, their progress, and whether they keep state per partition.

A group uses a topic if the group has a commit on the topic, or members that are subscribed to it or assigned its
partitions. Anything that could hide such a group, or its progress on the topic, is reported as a doubt.
:mod:`modeaware.cluster.group_listing` has the doubts about the list of groups. Errors on a group's other topics are no
doubt about this topic. If no broker answers, ClusterError is raised.

Some groups keep state per partition, for example those of Kafka Streams. The state does not move with the keys of a
retired partition. Such a group is recognised by its type, or by the names of its changelog topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from modeaware.clock import Clock
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.group_listing import (
    ListedGroup,
    Listing,
    ask_in_batches,
    election_group,
    error_name,
    list_groups,
)
from modeaware.cluster.group_offsets import Commits, read_offsets
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, MembersSeen, TopicFacts, worst_doubt
from modeaware.wire.brokers import Brokers
from modeaware.wire.capabilities import CLIENT_ID
from modeaware.wire.requests import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
    assigned_partitions,
    subscribed_topics,
)

DESCRIBE_BATCH = 250
NEW_MEMBERS_S, SAME_MEMBERS_S = 300.0, 3_600.0
"""For how long a group in a rebalance counts as a consumer of its earlier topics: the first value if the group has new
members, otherwise the second. (Even the same members may subscribe to other topics.) Rebalances are shorter, with the
clients' defaults and with common settings."""


class Member(NamedTuple):
    """One member of a group. ``topics``: the topics that the member is subscribed to or assigned. ``holds``: the topics
    of which the member has a partition that no other member reads."""

    id: str
    client_id: str
    topics: Collection[str] = ()
    holds: Collection[str] = ()


@dataclass(frozen=True)
class Members:
    """The members of a group, and the topics that they are subscribed to or assigned.

    ``unknown``: why ``topics`` may be incomplete; ``rebalancing``: whether a rebalance is the cause. ``streams``:
    whether the members are Kafka Streams'. ``any``: whether the group has members, even if ``members`` lists none of
    them. ``assigned``: topic -> partitions that members hold or will get; None if unknown.
    """

    any: bool = False
    members: tuple[Member, ...] = ()
    topics: frozenset[str] = frozenset()
    streams: bool = False
    unknown: str | None = None
    rebalancing: bool = False
    assigned: Mapping[str, frozenset[int]] | None = None

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(member.id for member in self.members)

    def seen(self, topic: str) -> MembersSeen:
        """Return the numbers of members that read a topic. While the topics are unknown, every member counts."""
        reading = [member for member in self.members if topic in member.topics or self.unknown is not None]
        aware = sum(member.client_id == CLIENT_ID for member in reading)
        return MembersSeen(aware, len(reading) - aware, sum(topic in member.holds for member in reading))


@dataclass(frozen=True)
class GroupsFound:
    """The groups that use a topic.

    Attributes:
        groups: by name.
        doubt: why the list of groups may be incomplete. A missing group is neither in ``groups`` nor in ``unclear``.
        unclear: group -> why it is not known whether the group uses the topic, or what the group has committed.
        epochs: group -> partition -> the leader epoch of the group's commit, if the commit has one.
        stateful_owner: the Streams group to which the topic belongs, if the topic is an internal topic of a group.
        unchecked: partitions on which the commits were not checked, because a leader did not answer.
    """

    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    doubt: GroupsDoubt | None = None
    unclear: Mapping[str, GroupsDoubt] = field(default_factory=dict)
    epochs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    stateful_owner: str | None = None
    unchecked: frozenset[int] = frozenset()

    def added_to(self, topic: TopicFacts) -> TopicFacts:
        """Return the facts of the topic with these groups, without the unchecked partitions."""
        return replace(
            topic,
            partitions={p: log for p, log in topic.partitions.items() if p not in self.unchecked},
            groups=self.groups,
            groups_doubt=self.doubt,
            unclear_groups=self.unclear,
            stateful_owner=self.stateful_owner,
        )


class StableGroups:
    """The topics that each group with members consumed when all its topics were last known. One thread owns it.

    In a rebalance brokers may not report which topics a group consumes. With many groups in a cluster, some group is
    nearly always in a rebalance, and decisions cannot wait until there is none. So a group in a rebalance counts by its
    earlier topics: with new members for :data:`NEW_MEMBERS_S`, otherwise for :data:`SAME_MEMBERS_S`. A group whose
    earlier topics are unknown is a doubt. A topic that the group begins to use in the rebalance is found in the first
    pass after the rebalance.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[float, Members]] = {}

    def note(self, members: Mapping[str, Members]) -> None:
        """Note the topics that the listed groups consume, and drop notes that are too old."""
        now_s = self._clock.monotonic_s()
        stable = {name: (now_s, of) for name, of in members.items() if of.unknown is None}
        self._seen = {
            name: (seen_s, seen)
            for name, (seen_s, seen) in (self._seen | stable).items()
            if (current := members.get(name, NO_MEMBERS)).any
            and now_s - seen_s < (SAME_MEMBERS_S if current.ids <= seen.ids else NEW_MEMBERS_S)
        }

    def spares(self, name: str, members: Members, topic: str) -> bool:
        """Return whether a group in a rebalance did not consume the topic before the rebalance."""
        return members.rebalancing and name in self._seen and topic not in self._seen[name][1].topics


NO_MEMBERS = Members()
_NO_COMMITS = Commits()


def find_groups(
    cluster: Cluster,
    topics: Mapping[str, Iterable[int]],
    also: Mapping[str, Collection[str]] | None = None,
    stable: StableGroups | None = None,
    *,
    mode_log: str,
) -> dict[str, GroupsFound]:
    """Return the groups that use each of ``topics`` (name -> partitions), of every type and state.

    Groups are listed and described once, and their offsets on all the topics are read together. So the number of
    requests grows with brokers and groups, not with topics.

    Args:
        also: topic -> groups whose commits on the topic are read even if no broker lists the groups.
        stable: notes of earlier passes. Without these notes, a group in a rebalance is a doubt about each topic on
            which it has no commits.
        mode_log: the mode log's name. The election's group is named after it, and does not count as a consumer.
    """
    brokers, also = cluster.brokers, also or {}
    listing = list_groups(brokers)
    described = describe_groups(brokers, listing.groups.values())
    unlisted = _unlisted(brokers, listing, {name for names in also.values() for name in names})
    known = {**listing.groups, **{name: g for name, g in unlisted.items() if isinstance(g, ListedGroup)}}
    members = {name: described.get(name, NO_MEMBERS) for name in known}
    if stable is not None:
        stable.note(members)
    offsets = read_offsets(brokers, known.values(), topics)
    members_of: dict[str, set[str]] = {}
    for name, of_group in members.items():
        for topic in of_group.topics:
            members_of.setdefault(topic, set()).add(name)
    streams = {name for name, group in known.items() if group.kind == "streams" or members[name].streams}
    maybe = {n: True if n in streams else _maybe_streams(g, members[n]) for n, g in known.items()}
    consuming = {n for n, group in known.items() if group.consumes} - {election_group(mode_log)}
    unread = {name: why for name, why in offsets.unknown.items() if name in consuming}
    unclear = {n: why for n, of in members.items() if n in consuming and (why := of.unknown) is not None}

    @cache
    def changelog_topics() -> list[str]:
        return changelogs(cluster.topic_names())

    def groups_of(topic: str) -> GroupsFound:
        named = {name: unlisted[name] for name in also.get(topic, ()) if name in unlisted}
        counts = listing.groups.keys() | named.keys()  # an unlisted group counts if ``also`` names it
        commits = {name: commit for name, commit in offsets.of_topic[topic].items() if name in counts}
        using = {name for name, commit in commits.items() if commit.offsets} | members_of.get(topic, set())
        in_doubt = {name: doubt for name, doubt in named.items() if isinstance(doubt, GroupsDoubt)}
        not_read = unread | {n: c.unknown for n, c in commits.items() if c.unknown and n in consuming}
        for name in sorted(not_read.keys() & counts):
            why = f"the offsets of group {name!r} cannot be read: {not_read[name]}"
            in_doubt[name] = GroupsDoubt(why)
        for name in sorted(unclear.keys() - using - not_read.keys()):
            if stable is not None and stable.spares(name, members[name], topic):
                continue
            rebalancing = name if members[name].rebalancing else None
            in_doubt[name] = GroupsDoubt(f"group {name!r} {unclear[name]}", rebalancing=rebalancing)
        # Only names of topics show whether a group owns changelogs, unless the group is known as a Streams group.
        may_own = any(known[name].kind != "share" for name in using - streams)
        stateful = stateful_groups(changelog_topics() if may_own else (), using, streams)
        facts = {
            name: GroupFacts(
                commits.get(name, _NO_COMMITS).offsets,
                has_members=members[name].any,
                kind=known[name].kind,
                stateful=name in stateful,
                subscribed=topic in members[name].topics or (False if members[name].unknown is None else None),
                notes=commits.get(name, _NO_COMMITS).notes,
                owned=None if (held := members[name].assigned) is None else held.get(topic, frozenset()),
                members=members[name].seen(topic),
            )
            for name in sorted(using)
        }
        return GroupsFound(
            facts,
            worst_doubt(listing.doubts),
            in_doubt,
            {name: commits[name].epochs for name in facts if name in commits},
            owner(topic, maybe),
        )

    return {topic: groups_of(topic) for topic in topics}


def group_commits(
    cluster: Cluster, group: str, topic: str, partitions: Iterable[int], kind: str = "classic"
) -> Mapping[int, int]:
    """Return the offsets that one group, listed or not, has committed on ``topic``; for a share group, the start
    offsets. Raise ClusterError if the offsets are unknown."""
    brokers = cluster.brokers
    listed = _unlisted(brokers, Listing(), (group,), kind)[group]
    if isinstance(listed, GroupsDoubt):
        unknown: str | None = listed.detail
    else:
        offsets = read_offsets(brokers, (listed,), {topic: partitions})
        commits = offsets.of_topic[topic].get(group, _NO_COMMITS)
        unknown = offsets.unknown.get(group, commits.unknown)
    if unknown is not None:
        why = f"topic {topic!r}: the commits of group {group!r} are unknown: {unknown}; repeat the command"
        raise ClusterError(why, code=ErrorCode.REQUEST_TIMED_OUT, topic=topic)
    return commits.offsets


def _maybe_streams(group: ListedGroup, members: Members) -> bool | None:
    """Return None if the group may be a Streams group, but no member shows whether it is; False for other groups."""
    unknown = group.kind == "classic" and group.consumes and (not members.any or members.unknown is not None)
    return None if unknown else False


def _unlisted(
    brokers: Brokers, listing: Listing, also: Collection[str], kind: str = "classic"
) -> dict[str, ListedGroup | GroupsDoubt]:
    """Return the groups of ``also`` that no broker lists. A group with an unknown coordinator is a doubt."""
    missing = sorted(set(also) - listing.groups.keys())
    if not missing or listing.none_yet:  # a look-up would make the brokers create __consumer_offsets
        return {}
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=missing, min_version=4, max_version=6)
    groups: dict[str, ListedGroup | GroupsDoubt] = {}
    for coordinator in brokers.ask(request).coordinators:
        name, node_id = coordinator.key, int(coordinator.node_id)
        groups[name] = ListedGroup(name, kind, "Empty", "", node_id)
        if coordinator.error_code:
            why = error_name(coordinator.error_code)
            groups[name] = GroupsDoubt(f"the coordinator of group {name!r} is not known: {why}")
    return groups


# Members


def describe_groups(brokers: Brokers, groups: Iterable[ListedGroup]) -> dict[str, Members]:
    """Return the members of ``groups``; empty groups need no request."""
    members: dict[str, Members] = {}
    batches: dict[tuple[int, str], list[str]] = {}
    for group in groups:
        if group.state in ("Empty", "Dead"):
            members[group.name] = NO_MEMBERS
        elif group.kind not in _KINDS:
            members[group.name] = Members(any=True, unknown=f"is of type {group.kind!r}, which is not supported")
        else:
            batches.setdefault((group.coordinator, group.kind), []).append(group.name)
    for (_, kind), names, answer in ask_in_batches(
        brokers, batches, DESCRIBE_BATCH, lambda key, names: _KINDS[key[1]][0](names)
    ):
        if isinstance(answer, ClusterError):
            members |= dict.fromkeys(names, Members(any=True, unknown=f"cannot be described: {answer}"))
            continue
        missing = Members(any=True, unknown="cannot be described: its coordinator left it out of the response")
        described = {group.group_id: _members(kind, group) for group in answer.groups}
        members |= {name: described.get(name, missing) for name in names}
    return members


def _members(kind: str, group: Any) -> Members:
    if group.error_code == KafkaError.GROUP_ID_NOT_FOUND or group.group_state == "Dead":
        # The group was deleted, has changed its type, or has moved: the next listing shows which.
        return Members(any=True, unknown="disappeared before it could be described")
    if group.error_code:
        return Members(any=True, unknown=f"cannot be described: {error_name(group.error_code)}")
    return _KINDS[kind][1](group) if group.members else NO_MEMBERS


def _classic(group: Any) -> Members:
    if group.protocol_type not in ("consumer", ""):
        return Members(any=True)
    if group.group_state in ("PreparingRebalance", "CompletingRebalance"):  # shows no topics
        return _all(group, (), unknown="is in a rebalance: its topics are not known yet", rebalancing=True)
    members: list[Member] = []
    assigned: set[tuple[str, int]] = set()
    unknown = None
    for member in group.members:
        topics: frozenset[str] = frozenset()
        mine: frozenset[tuple[str, int]] = frozenset()
        try:
            topics = subscribed_topics(bytes(member.member_metadata or b""))
            mine = assigned_partitions(bytes(member.member_assignment or b""))
        except ValueError as error:
            unknown = f"has a member whose subscription cannot be read: {error}"
        holds = {topic for topic, _ in mine}
        assigned |= mine
        members.append(Member(member.member_id, member.client_id, topics | holds, holds))
    return Members(
        any=True,
        members=tuple(members),
        topics=frozenset().union(*(member.topics for member in members)),
        streams=group.protocol_data == "stream",
        unknown=unknown,
        assigned=_by_topic(assigned) if unknown is None else None,
    )


def _consumer(group: Any) -> Members:
    """Return the members. A pattern's topics come from assignments: Python cannot evaluate brokers' patterns (RE2)."""
    members: list[Member] = []
    held: set[tuple[str, int]] = set()
    stable, by_pattern = group.group_state == "Stable", False
    for member in group.members:
        assigned, target = _assigned(member.assignment), _assigned(member.target_assignment)
        held |= assigned | target
        topics = {*member.subscribed_topic_names, *(topic for topic, _ in assigned | target)}
        members.append(Member(member.member_id, member.client_id, topics, {topic for topic, _ in assigned}))
        by_pattern = by_pattern or bool(member.subscribed_topic_regex)
        stable = stable and assigned == target
    unknown = None
    if by_pattern and not stable:
        unknown = "subscribes by a pattern and is not stable: its topics are not known yet"
    return Members(
        any=True,
        members=tuple(members),
        topics=frozenset().union(*(member.topics for member in members)),
        unknown=unknown,
        rebalancing=unknown is not None,
        assigned=_by_topic(held),
    )


def _share(group: Any) -> Members:
    topics: set[str] = set()
    for member in group.members:
        topics |= {*member.subscribed_topic_names, *(topic for topic, _ in _assigned(member.assignment))}
    return _all(group, topics)


def _streams(group: Any) -> Members:
    if group.topology is None or group.topology.subtopologies is None:
        return _all(group, (), streams=True, unknown="has no topology yet: its topics are not known")
    topics: set[str] = set()
    for part in group.topology.subtopologies:
        topics |= {*part.source_topics, *(source.name for source in part.repartition_source_topics)}
    return _all(group, topics, streams=True)


def _all(group: Any, topics: Iterable[str], **others: Any) -> Members:
    """Return the members of a group in which any member may read any of its topics."""
    whole = frozenset(topics)
    members = tuple(Member(member.member_id, member.client_id, whole) for member in group.members)
    return Members(any=True, members=members, topics=whole, **others)


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, frozenset[int]]:
    by_topic: dict[str, set[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, set()).add(partition)
    return {topic: frozenset(numbers) for topic, numbers in by_topic.items()}


def _assigned(assignment: Any) -> set[tuple[str, int]]:
    return {(topic.topic_name, partition) for topic in assignment.topic_partitions for partition in topic.partitions}


_KINDS: Mapping[str, tuple[Callable[[list[str]], Any], Callable[[Any], Members]]] = {
    "classic": (lambda names: DescribeGroupsRequest(groups=names), _classic),
    "consumer": (lambda names: ConsumerGroupDescribeRequest(group_ids=names), _consumer),
    "share": (lambda names: ShareGroupDescribeRequest(group_ids=names), _share),
    "streams": (lambda names: StreamsGroupDescribeRequest(group_ids=names), _streams),
}


# State


def changelogs(topics: Iterable[str]) -> list[str]:
    """Return the topics of ``topics`` with a changelog's name: ``<group>-...-changelog`` (Kafka Streams) or
    ``changelog__<group>--...`` (Quix)."""
    return [topic for topic in topics if topic.endswith("-changelog") or topic.startswith("changelog__")]


def stateful_groups(topics: Iterable[str], names: Collection[str], streams: Collection[str]) -> frozenset[str]:
    """Return the groups with state: the known Streams groups ``streams``, and groups of ``names`` to which a topic of
    ``topics`` (changelogs) may belong by its name."""
    return frozenset(streams).union(*(_owners(topic, names, streams) for topic in topics))


def owner(topic: str, types: Mapping[str, bool | None]) -> str | None:
    """Return the Streams group to which an internal topic belongs, if any.

    Args:
        types: group -> whether the group is a Streams group; None if unknown, as for a group without members.
    """
    possible = [name for name in _prefixes(topic) if types.get(name, False) is not False]
    return max([name for name in possible if types[name]] or possible, key=len, default=None)


def _owners(topic: str, names: Collection[str], streams: Collection[str]) -> set[str]:
    """Return the groups of ``names`` to which an internal topic may belong, by the topic's name.

    ``app-x-store-changelog`` could belong to ``app`` or to ``app-x``. If one of these groups is a known Streams group,
    this group is the owner.
    """
    candidates = {name for name in _prefixes(topic) if name in names}
    known = candidates & set(streams)
    return {max(known, key=len)} if known else candidates


def _prefixes(topic: str) -> list[str]:
    """Return the possible group names in the name of an internal topic: a changelog or a repartition topic."""
    prefixes: list[str] = []
    if topic.startswith(("changelog__", "repartition__")):
        stem = topic.partition("__")[2]
        prefixes += [stem[:place] for place in range(len(stem)) if stem.startswith("--", place)]
    if topic.endswith(("-changelog", "-repartition")):
        stem = topic.rpartition("-")[0]
        prefixes += [stem[:place] for place, character in enumerate(stem) if character == "-"]
    return prefixes
