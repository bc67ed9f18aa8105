"""Replication throttles of a reassignment, as Kafka's own tool sets and removes them.

A broker's rates (bytes per second) hold for the replicas that a topic's config lists: on the leader's side those that
send, on the follower's side those that are new. All of it is ordinary config, left behind until it is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.admin.reassignments import PartitionKey, PartitionReassignment, Replicas, live_brokers
from modeaware.cluster.answers import refusal
from modeaware.errors import ClusterError
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.messages import IncrementalAlterConfigsRequest

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
BROKER_THROTTLES = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
TOPIC_THROTTLES = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1


@dataclass(frozen=True)
class Move:
    """Between which brokers one partition's records go."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves(
    in_progress: Mapping[PartitionKey, PartitionReassignment],
    proposed: Mapping[PartitionKey, Replicas],
    current: Mapping[PartitionKey, Replicas],
) -> dict[PartitionKey, Move]:
    """What moves once ``proposed`` is started: that, and what is in progress already.

    Args:
        current: the replicas of at least those ``proposed`` that are not in progress.
    """
    found = {key: Move(frozenset(each.original), frozenset(each.adding_replicas)) for key, each in in_progress.items()}
    for key, replicas in proposed.items():
        sources = found[key].sources if key in found else frozenset(current[key])
        found[key] = Move(sources, frozenset(replicas) - sources)
    return found


def throttled_replicas(moving: Mapping[PartitionKey, Move]) -> dict[str, dict[str, str]]:
    """Per topic the configs that list what is throttled: ``partition:broker,...``."""
    leaders: dict[str, set[tuple[int, int]]] = {}
    followers: dict[str, set[tuple[int, int]]] = {}
    for (topic, partition), move in moving.items():
        leaders.setdefault(topic, set()).update((partition, broker) for broker in move.sources)
        followers.setdefault(topic, set()).update((partition, broker) for broker in move.destinations - move.sources)
    return {
        topic: {LEADER_REPLICAS: _listed(leaders[topic]), FOLLOWER_REPLICAS: _listed(followers[topic])}
        for topic in sorted(leaders)
    }


def set_throttle(brokers: Brokers, moving: Mapping[PartitionKey, Move], rate: int) -> list[int]:
    """Throttle these moves to ``rate`` bytes per second on each broker that takes part and is alive.

    Returns:
        Those that are not alive, sorted: they have no throttle, and take no config.

    Raises:
        ClusterError: one of the configs could not be set; the others may have been.
    """
    topics = throttled_replicas(moving)
    _alter_topics(brokers, {topic: dict(configs) for topic, configs in topics.items()})
    nodes = {broker for move in moving.values() for broker in move.sources | move.destinations}
    alive = live_brokers(brokers).keys() & nodes
    set_broker_configs(brokers, alive, {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)})
    return sorted(nodes - alive)


def clear_throttles(
    brokers: Brokers, nodes: Iterable[int], topics: Iterable[str], rates: Iterable[str] = BROKER_THROTTLES
) -> None:
    """Remove every throttle of these brokers and topics, whoever has set it (as Kafka's tool does).

    Args:
        rates: which of the brokers' configs.

    Raises:
        ClusterError: some could not be removed, on a broker that is down for instance; the others are.
    """
    try:
        set_broker_configs(brokers, nodes, dict.fromkeys(rates))
    finally:
        _alter_topics(brokers, {topic: dict.fromkeys(TOPIC_THROTTLES) for topic in topics})


def set_broker_configs(brokers: Brokers, nodes: Iterable[int], configs: Mapping[str, str | None]) -> None:
    """Set (None: remove) configs of brokers. Each broker takes its own alone, so each has to be alive.

    Raises:
        ClusterError: a broker refused or did not answer; the others were asked all the same.
    """
    wanted = sorted(nodes)
    answers = brokers.ask_each([Ask(node, _request(_BROKER, {str(node): configs})) for node in wanted])
    failures = {}
    for node, answer in zip(wanted, answers, strict=True):
        error = answer if isinstance(answer, ClusterError) else _refused(f"of broker {node}", answer)
        if error is not None:
            failures[node] = error
    if failures:
        told = "; ".join(f"broker {node}: {error}" for node, error in failures.items())
        raise ClusterError(f"cannot alter {', '.join(configs)}: {told}", code=next(iter(failures.values())).code)


def _alter_topics(brokers: Brokers, configs: Mapping[str, Mapping[str, str | None]]) -> None:
    if configs and (error := _refused("of a topic", brokers.ask(_request(_TOPIC, configs)))) is not None:
        raise error


def _request(kind: int, wanted: Mapping[str, Mapping[str, str | None]]) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = []
    for name, configs in wanted.items():
        changes = [
            resource.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in configs.items()
        ]
        resources.append(resource(resource_type=kind, resource_name=name, configs=changes))
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def _refused(whose: str, answer: Any) -> ClusterError | None:
    for each in answer.responses:
        if each.error_code:
            what = f"alter the throttle {whose} ({each.resource_name})"
            return refusal(what, each.error_code, each.error_message)
    return None


def _listed(pairs: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{partition}:{broker}" for partition, broker in sorted(pairs))
