"""Which groups use a topic, and how far each has come on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modeaware.cluster.cluster import Cluster
from modeaware.cluster.groups.listing import ListedGroup, Listing, list_groups
from modeaware.cluster.groups.members import NOBODY, Members, describe_groups
from modeaware.cluster.groups.offsets import Commits, find_unlisted, read_offsets
from modeaware.cluster.groups.stateful import owner, stateful_groups
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt
from modeaware.wire.brokers.client import Brokers

_NOT_ANSWERED = Commits(unknown="its coordinator left it out of the answer")


@dataclass(frozen=True)
class GroupsFound:
    """The groups that use a topic.

    Attributes:
        groups: by name.
        doubt: why there may be more, or why one of them cannot be judged.
        epochs: group -> partition -> the leader epoch its commit was made under, where it said so.
        stateful_owner: the Streams group whose internal topic this is.
    """

    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    doubt: GroupsDoubt | None = None
    epochs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    stateful_owner: str | None = None


@dataclass(frozen=True)
class ListedGroups:
    """All groups of the cluster with their members, as one look found them: the same for every topic."""

    listing: Listing
    members: Mapping[str, Members]


def list_groups_with_members(brokers: Brokers) -> ListedGroups:
    """List and describe all groups.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    listing = list_groups(brokers)
    return ListedGroups(listing, describe_groups(brokers, listing.groups.values()))


def find_groups(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    also: Sequence[str] = (),
    listed: ListedGroups | None = None,
) -> GroupsFound:
    """Every group with a commit on ``topic``, or with members subscribed to it or assigned to it.

    Groups of every type and state, as all brokers together list them. What could hide a group, or what a group is doing
    on this topic, is a doubt: see :mod:`~modeaware.cluster.groups.listing` for the first. A group's trouble elsewhere
    is none.

    Args:
        also: groups whose commits are read though no broker lists them.
        listed: the groups, for looks at many topics at one moment that decide nothing; None: they are listed now.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    brokers = cluster.brokers
    if listed is None:
        listed = list_groups_with_members(brokers)
    listing = replace(listed.listing, doubts=list(listed.listing.doubts))  # what is doubted below concerns this topic
    members = listed.members
    groups = {**listing.groups, **_unlisted(brokers, listing, also)}
    commits = read_offsets(brokers, groups.values(), topic, sorted(partitions))
    using: dict[str, ListedGroup] = {}
    for name, group in groups.items():
        own, theirs = commits.get(name, _NOT_ANSWERED), members.get(name, NOBODY)
        if own.offsets or theirs.use(topic):
            using[name] = group
        if detail := _trouble(group, own, theirs, topic):
            listing.doubt(f"group {name!r} {detail}")
    streams = {name for name, group in groups.items() if _is_streams(group, members.get(name, NOBODY))}
    # A group that is not known as a Streams group may still own changelogs, which only the names of topics tell.
    in_doubt = any(using[name].kind != "share" for name in using.keys() - streams)
    stateful = stateful_groups(cluster.topic_names() if in_doubt else (), using, streams)
    return GroupsFound(
        {n: _facts(g, commits.get(n, _NOT_ANSWERED), members.get(n, NOBODY), n in stateful) for n, g in using.items()},
        _worst(listing.doubts),
        {name: commits[name].epochs for name in using if name in commits},
        owner(topic, {n: _streams_or_unknown(g, members.get(n, NOBODY)) for n, g in groups.items()}),
    )


def _unlisted(brokers: Brokers, listing: Listing, also: Sequence[str]) -> dict[str, ListedGroup]:
    missing = sorted({name for name in also if name not in listing.groups})
    if listing.none_yet:  # asking for a coordinator would make the brokers create __consumer_offsets
        return {}
    found, errors = find_unlisted(brokers, missing)
    for name, error in errors.items():
        listing.doubt(f"the coordinator of group {name!r} is not known: {error}")
    return found


def _trouble(group: ListedGroup, commits: Commits, members: Members, topic: str) -> str | None:
    """What is not known of a group, where that matters for this topic."""
    if not group.consumes:
        return None
    if commits.unknown is not None:
        return f"cannot be judged: its offsets cannot be read: {commits.unknown}"
    if members.unknown is not None and not commits.offsets and not members.use(topic):
        return members.unknown
    return None


def _facts(group: ListedGroup, commits: Commits, members: Members, stateful: bool) -> GroupFacts:
    return GroupFacts(committed=commits.offsets, has_members=members.any, kind=group.kind, stateful=stateful)


def _is_streams(group: ListedGroup, members: Members) -> bool:
    return group.kind == "streams" or members.streams


def _streams_or_unknown(group: ListedGroup, members: Members) -> bool | None:
    if _is_streams(group, members):
        return True
    unknown = group.kind == "classic" and group.consumes and (not members.any or members.unknown is not None)
    return None if unknown else False


def _worst(doubts: Sequence[GroupsDoubt]) -> GroupsDoubt | None:
    """The first doubt; one that a closed list of groups would forgive only if there is no other."""
    return min(doubts, key=lambda doubt: doubt.hidden, default=None)
