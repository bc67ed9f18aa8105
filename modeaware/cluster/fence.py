"""Facts of fenced topics: whether the fence works, whether it is proved, and the ends of the leaders' own logs.

A *fence* is a pair of topic configs with which brokers refuse all data. A *probe* is a batch of data that tests the
fence on a leader. A fence is proved in four steps, in this order. Every broker with an in-sync replica shows the
fence's configs. The leader refuses a probe. The end of the leader's own log is read. The high watermark is read.
:func:`fences` takes the first two steps, the observer the others. If all steps see the same leader epoch, this leader
appends no data behind the end that the third step read. Once the high watermark has reached this end, the end is final:
all records below it are replicated, and no record behind it will be acknowledged. See
:mod:`modeaware.lifecycle.replacement` and :mod:`modeaware.wire.fence_probe`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from modeaware.cluster.metadata import (
    DEBUGGING,
    LATEST,
    READ_UNCOMMITTED,
    SET_ON_TOPIC,
    TOPIC_RESOURCE,
    Leader,
    LeaderRequests,
    Led,
    Partition,
    authorized_operations,
    configs_request,
    list_offsets_request,
    metadata_request,
    read_configs,
)
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import FENCE_CONFIGS, DeleteOldTopic, is_fence
from modeaware.lifecycle.facts import FenceFacts
from modeaware.wire.brokers import Ask, Brokers
from modeaware.wire.fence_probe import PROBE_ACKS, FenceState, probe_batch, read_answer
from modeaware.wire.requests import ApiVersionsRequest, MetadataRequest, ProduceRequest

PROBE_TIMEOUT_MS = 3_000
_DELETE = 6
"""The number of the operation DELETE in :func:`~modeaware.cluster.metadata.authorized_operations`."""
_DESCRIBE_QUORUM = 55
"""The key of a request that only brokers of a KRaft cluster support."""


def fences(brokers: Brokers, topics: Collection[str]) -> dict[str, FenceFacts]:
    """Return the facts of each topic's fence. A topic that no broker describes is missing. If brokers reject a request
    about a topic, the error is the ``failure`` in the topic's facts.

    Raises:
        ClusterError: no broker answers.
    """
    shown, failures = _configs_of_each_broker(brokers, sorted(topics))
    partitions = {
        (topic.name, int(p.partition_index)): p
        for topic in brokers.ask(metadata_request(sorted(topics), 7)).topics
        for p in topic.partitions
        if p.leader_id >= 0
    }
    led: dict[int, list[Partition]] = {}
    for key, p in sorted(partitions.items()):
        led.setdefault(int(p.leader_id), []).append(key)
    states: dict[Partition, FenceState] = {}
    for node, keys in sorted(led.items()):
        states |= _probed(brokers, node, keys, failures)

    def proves(key: Partition) -> bool:
        replicas = partitions[key].isr_nodes
        return states[key] is FenceState.FENCED and all(is_fence(shown.get(n, {}).get(key[0], {})) for n in replicas)

    answers: dict[str, set[int]] = {}
    for name, p in states:
        answers.setdefault(name, set()).add(p)
    facts = {}
    for name in topics:
        own = next((configs[name] for configs in shown.values() if name in configs), None)
        if own is None and name not in failures:
            continue
        answered = frozenset(answers.get(name, ()))
        proved = {p: int(partitions[name, p].leader_epoch) for p in sorted(answered) if proves((name, p))}
        facts[name] = FenceFacts(own or {}, proved, answered, failures.get(name))
    return facts


def has_fence(brokers: Brokers) -> bool:
    """Return whether the brokers can fence replaced topics. Only brokers of a KRaft cluster can.

    Raises:
        ClusterError: no broker answers.
    """
    served = {api.api_key for api in brokers.ask(ApiVersionsRequest(max_version=2)).api_keys}
    return _DESCRIBE_QUORUM in served


def fence_missing(topic: str) -> ClusterError:
    """Return the error of a fence on brokers without one (:func:`has_fence`)."""
    why = "the fence needs a KRaft cluster; replace the topic without a fence (--fence none)"
    return ClusterError(f"topic {topic!r}: {why}", code=ErrorCode.UNSUPPORTED_VERSION, topic=topic)


def check_fences(brokers: Brokers, topics: Collection[str]) -> dict[str, ClusterError]:
    """Return topic -> error, if the topic's fence could not be proved, or the topic could not be deleted after the
    drain. Possible causes: the brokers run with ZooKeeper (UNSUPPORTED_VERSION), a right is missing
    (TOPIC_AUTHORIZATION_FAILED), or a leader answers the probe in an unknown way.

    Raises:
        ClusterError: no broker answers.
    """
    if not has_fence(brokers):
        return {topic: fence_missing(topic) for topic in topics}
    failures = {name: fence.failure for name, fence in fences(brokers, topics).items() if fence.failure is not None}
    named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    question = MetadataRequest(
        topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=True, min_version=8
    )
    for described in brokers.ask(question).topics:
        operations = authorized_operations(described.authorized_operations)
        if operations is not None and _DELETE not in operations:
            topic = described.name
            text = f"topic {topic!r}: not authorized to delete the replaced topic; grant DELETE on the topic"
            denied = ClusterError(text, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=topic)
            failures.setdefault(topic, denied)
    return failures


def _configs_of_each_broker(
    brokers: Brokers, topics: Iterable[str]
) -> tuple[dict[int, dict[str, dict[str, str]]], dict[str, ClusterError]]:
    """Return node id -> topic -> the fence's configs that are set on the topic; and topic -> failure. A broker that
    does not answer is missing."""
    nodes, wanted = brokers.node_ids(), list(topics)
    by_node: dict[int, dict[str, dict[str, str]]] = {}
    failures: dict[str, ClusterError] = {}
    keys = sorted(FENCE_CONFIGS)
    asks = [Ask(node, configs_request(TOPIC_RESOURCE, wanted, *keys, min_version=1)) for node in nodes]
    for node, answer in zip(nodes, brokers.ask_each(asks), strict=True):
        for name, configs in ({} if isinstance(answer, ClusterError) else read_configs(answer)).items():
            if not isinstance(configs, ClusterError):
                own = {c.name: str(c.value) for c in configs if c.config_source == SET_ON_TOPIC}
                by_node.setdefault(node, {})[name] = own
            elif configs.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                failures[name] = configs
    return by_node, failures


def _probed(
    brokers: Brokers, node: int, partitions: Iterable[Partition], failures: dict[str, ClusterError]
) -> dict[Partition, FenceState]:
    """Probe partitions at one broker; return the states of those that it leads. Errors of topics go to ``failures``."""
    data = ProduceRequest.TopicProduceData
    by_topic: dict[str, list[Any]] = {}
    for topic, partition in partitions:
        batch = data.PartitionProduceData(index=partition, records=probe_batch())
        by_topic.setdefault(topic, []).append(batch)
    request = ProduceRequest(
        transactional_id=None,
        acks=PROBE_ACKS,
        timeout_ms=PROBE_TIMEOUT_MS,
        topic_data=[data(name=topic, partition_data=batches) for topic, batches in by_topic.items()],
        max_version=12,  # later versions have topic ids instead of names
    )
    (answer,) = brokers.ask_each([Ask(node, request)])
    if isinstance(answer, ClusterError):
        return {}
    states: dict[Partition, FenceState] = {}
    for topic in answer.responses:
        for response in topic.partition_responses:
            try:
                state = read_answer(response.error_code, topic.name, response.index)
            except ClusterError as error:
                failures.setdefault(topic.name, error)
                continue
            if state is not FenceState.UNKNOWN:
                states[topic.name, int(response.index)] = state
    return states


class LogEnd(NamedTuple):
    """The end of a leader's own log, and the leader epoch."""

    offset: int
    leader_epoch: int


def log_ends(
    brokers: Brokers, partitions: Iterable[Partition], leaders_seen: Mapping[Partition, Leader]
) -> dict[Partition, LogEnd]:
    """Return the ends of the leaders' own logs. A partition whose leader does not answer is missing."""

    def request(led: Led) -> Any:
        return list_offsets_request(led, LATEST, READ_UNCOMMITTED, DEBUGGING)

    entries = LeaderRequests(brokers, leaders_seen).entries(partitions, "list the ends of the logs of", request)
    return {key: LogEnd(int(entry.offset), int(entry.leader_epoch)) for key, entry in entries.items()}


def check_sealed(brokers: Brokers, effect: DeleteOldTopic, leaders: Mapping[int, Leader]) -> None:
    """Check that a topic may be deleted: every leader refuses data now, and each log ends at its seal
    (invariants I1 and I2). These requests name the topic, not its id, so the caller compares the id afterwards.

    Raises:
        ClusterError: a leader takes data, a log does not end at its seal, or one of these is unknown.
    """
    topic, seals = effect.topic, effect.seal_offsets
    fence = fences(brokers, [topic]).get(topic)
    if fence is None or leaders.keys() != seals.keys():
        raise ClusterError(f"topic {topic!r} is not deleted: its partitions are not known", topic=topic)
    if fence.failure is not None:
        raise fence.failure
    ends = log_ends(brokers, [(topic, p) for p in seals], {(topic, p): leader for p, leader in leaders.items()})
    for p, seal in sorted(seals.items()):
        end = ends.get((topic, p))
        if end is None or fence.proved.get(p) != end.leader_epoch:
            text = f"{topic}-{p}: its leader does not refuse data, or does not answer: the topic is not deleted"
            raise ClusterError(text, topic=topic, partition=p)
        if end.offset != seal:
            text = f"{topic}-{p}: the log ends at {end.offset}, not at its seal {seal}: the topic is not deleted"
            raise ClusterError(text, topic=topic, partition=p)
