"""Which consumer groups use a topic, and how far each has committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from modeaware.controller.cluster import REQUEST_TIMEOUT_S, Cluster, wait
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError, KafkaException, TopicPartition
from modeaware.librdkafka_admin import AclOperation, ConsumerGroupState, ConsumerGroupTopicPartitions
from modeaware.lifecycle.facts import GroupFacts

_IN_REBALANCE = (ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING)


@dataclass(frozen=True)
class GroupsFound:
    """The groups that use a topic; ``doubt`` says why there may be more."""

    groups: Mapping[str, GroupFacts]
    doubt: str | None = None


def find_groups(cluster: Cluster, topic: str, partitions: Iterable[int]) -> GroupsFound:
    """Every group with a commit on ``topic`` or with members assigned to it.

    Groups the caller may not see are left out of listings without an error, so the right to DESCRIBE the cluster is
    required: without it, any error, or a group caught in a rebalance, the answer is a doubt.
    """
    doubt = _authorization_doubt(cluster)
    listing = wait(cluster.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), "list the consumer groups")
    if listing.errors:
        doubt = f"a broker did not list its groups: {listing.errors[0]}"
    names = [group.group_id for group in listing.valid]
    wanted = [TopicPartition(topic, partition) for partition in partitions]
    members = _assigned_groups(cluster, [g.group_id for g in listing.valid if g.state != ConsumerGroupState.EMPTY])
    groups = {}
    for name, committed in _committed(cluster, names, wanted).items():
        if committed is None:
            doubt = f"the offsets of group {name!r} cannot be read"
            continue
        topics = members.get(name, frozenset())
        if committed or topic in topics:
            groups[name] = GroupFacts(committed=committed, has_members=name in members)
        elif name in members and not topics:
            doubt = f"group {name!r} is in a rebalance: what it consumes is not known yet"
    return GroupsFound(groups, doubt)


def _authorization_doubt(cluster: Cluster) -> str | None:
    future = cluster.admin.describe_cluster(include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S)
    operations = wait(future, "describe the cluster").authorized_operations
    if AclOperation.DESCRIBE not in (operations or ()):
        return "the right to DESCRIBE the cluster is missing, without which brokers hide groups"
    return None


def _assigned_groups(cluster: Cluster, names: list[str]) -> dict[str, frozenset[str]]:
    """Group -> topics its members are assigned, for groups that have members; empty topics while in a rebalance."""
    if not names:
        return {}
    assigned = {}
    for name, future in cluster.admin.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S).items():
        group = wait(future, f"describe group {name!r}")
        if not group.members:
            continue
        topics = {tp.topic for member in group.members for tp in member.assignment.topic_partitions}
        in_rebalance = group.state in _IN_REBALANCE
        assigned[name] = frozenset() if in_rebalance else frozenset(topics or {""})
    return assigned


def _committed(cluster: Cluster, names: list[str], wanted: list[TopicPartition]) -> dict[str, dict[int, int] | None]:
    """Group -> partition -> committed offset; None for a group whose offsets could not be read."""
    futures = {}
    for name in names:  # one group a call is all the API takes; the calls run side by side
        request = [ConsumerGroupTopicPartitions(name, wanted)]
        futures[name] = cluster.admin.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[name]
    committed: dict[str, dict[int, int] | None] = {}
    for name, future in futures.items():
        try:
            found = wait(future, f"read the offsets of group {name!r}").topic_partitions or []
        except ClusterError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                raise
            gone = _kafka_code(error) == KafkaError.GROUP_ID_NOT_FOUND
            committed[name] = {} if gone else None
            continue
        failed = [tp.error for tp in found if tp.error is not None]
        committed[name] = None if failed else {tp.partition: tp.offset for tp in found if tp.offset >= 0}
    return committed


def _kafka_code(error: ClusterError) -> int | None:
    cause = error.__cause__
    return int(cause.args[0].code()) if isinstance(cause, KafkaException) else None
