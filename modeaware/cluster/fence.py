"""What brokers say of topics that are replaced: whether the fence is proved, and where the logs really end.

The order matters, and is that of the steps of :func:`fences` and of the observer around it. First every broker with an
in-sync replica shows the fence's configs; then the leader refuses a probe; then the end of the leader's log is read;
then its high watermark. All under one leader epoch: nothing can be appended behind that end, and once the high
watermark has reached it nothing behind it is acknowledged later. See :mod:`modeaware.lifecycle.replacement` and
:mod:`modeaware.wire.fence_probe`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from modeaware.cluster.cluster import TOPIC_RESOURCE
from modeaware.cluster.commits import MAX_GAP, READ_TIMEOUT_S, read_partitions
from modeaware.cluster.metadata import (
    DEBUGGING,
    LATEST,
    READ_UNCOMMITTED,
    Leader,
    LeaderRequests,
    Led,
    Partition,
    list_offsets_request,
    metadata_request,
    refusal,
)
from modeaware.errors import ClusterError
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.lifecycle.facts import FenceFacts, PartitionFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS, is_fence
from modeaware.wire.brokers import Ask, Brokers
from modeaware.wire.fence_probe import PROBE_ACKS, FenceState, probe_batch, read_answer
from modeaware.wire.requests import DescribeConfigsRequest, ProduceRequest

PROBE_TIMEOUT_MS = 3_000
LAST_READ = 64
"""How many offsets before the end are read first for the last record."""
_OF_THE_TOPIC = 1
"""``config_source`` of a config that is set on the topic itself."""


def fences(brokers: Brokers, topics: Collection[str]) -> dict[str, FenceFacts]:
    """Return what is known of the fence of each topic; a topic that no broker describes is missing.

    Raises:
        ClusterError: a broker refuses, or has appended a probe.
    """
    shown = _configs_of_each_broker(brokers, sorted(topics))
    partitions = [
        (topic.name, p)
        for topic in brokers.ask(metadata_request(sorted(topics), 7)).topics
        for p in topic.partitions
        if p.leader_id >= 0
    ]
    ready: dict[int, list[Partition]] = {}
    epochs: dict[Partition, int] = {}
    for name, p in partitions:
        if all(is_fence(shown.get(node, {}).get(name, {})) for node in p.isr_nodes):
            ready.setdefault(int(p.leader_id), []).append((name, int(p.partition_index)))
            epochs[name, int(p.partition_index)] = int(p.leader_epoch)
    proved = [key for node, keys in sorted(ready.items()) for key in _refusing(brokers, node, keys)]
    configs = {name: next((each[name] for each in shown.values() if name in each), None) for name in topics}
    return {
        name: FenceFacts(own, {p: epochs[topic, p] for topic, p in proved if topic == name})
        for name, own in configs.items()
        if own is not None
    }


def _configs_of_each_broker(brokers: Brokers, topics: Iterable[str]) -> dict[int, dict[str, dict[str, str]]]:
    """Return node id -> topic -> those of the fence's configs that are set on the topic. A silent broker is missing."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    keys = sorted(FENCE_CONFIGS)
    wanted = [resource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=keys) for name in topics]
    nodes = brokers.node_ids()
    found: dict[int, dict[str, dict[str, str]]] = {}
    asks = [Ask(node, DescribeConfigsRequest(resources=wanted, min_version=1)) for node in nodes]
    for node, answer in zip(nodes, brokers.ask_each(asks), strict=True):
        if isinstance(answer, ClusterError):
            continue
        for result in answer.results:
            if result.error_code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            if result.error_code:
                what = f"describe the configs of topic {result.resource_name!r}"
                raise refusal(what, result.error_code, result.error_message, topic=result.resource_name)
            own = {c.name: str(c.value) for c in result.configs if c.config_source == _OF_THE_TOPIC}
            found.setdefault(node, {})[result.resource_name] = own
    return found


def _refusing(brokers: Brokers, node: int, partitions: Iterable[Partition]) -> list[Partition]:
    """Return the partitions of one leader whose probes it refuses."""
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
        max_version=12,  # later ones name topics by id
    )
    (answer,) = brokers.ask_each([Ask(node, request)])
    if isinstance(answer, ClusterError):
        return []
    return [
        (topic.name, int(each.index))
        for topic in answer.responses
        for each in topic.partition_responses
        if read_answer(each.error_code, topic.name, each.index) is FenceState.FENCED
    ]


def log_ends(
    brokers: Brokers, partitions: Iterable[Partition], leaders_seen: Mapping[Partition, Leader]
) -> dict[Partition, int]:
    """Return where the leaders' own logs end; a partition whose leader does not answer is missing."""

    def request(led: Led) -> Any:
        return list_offsets_request(led, LATEST, READ_UNCOMMITTED, DEBUGGING)

    found = LeaderRequests(brokers, leaders_seen).found(partitions, "list the ends of the logs of", request)
    return {key: int(entry.offset) for key, entry in found.items()}


def read_up_to(
    conf: Mapping[str, Any], logs: Mapping[Partition, PartitionFacts], monotonic_s: Callable[[], float]
) -> dict[Partition, int]:
    """Return the offset behind the last record that readers of committed records are given, of each partition.

    One is missing where the log has not been read in time, or none of the last :data:`MAX_GAP` offsets has a record
    though the log is longer.
    """
    found = {key: log.log_start for key, log in logs.items() if log.empty}
    back = LAST_READ
    while back <= MAX_GAP:
        starts = {k: max(log.log_start, log.end_offset - back) for k, log in logs.items() if k not in found}
        last = _last_records(conf, starts, {key: logs[key].end_offset for key in starts}, monotonic_s)
        for key, offset in last.items():
            if offset is not None:
                found[key] = offset + 1
            elif starts[key] == logs[key].log_start:
                found[key] = starts[key]
        back *= 12
    return found


def _last_records(
    conf: Mapping[str, Any],
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    monotonic_s: Callable[[], float],
) -> dict[Partition, int | None]:
    """Return the offset of the last record from ``starts`` on, None: there is none; of partitions that were read."""
    last: dict[Partition, int | None] = {}
    done: dict[Partition, int | None] = {}
    waiting = set(starts)

    def take(key: Partition, message: Message, consumer: Consumer) -> None:
        error, offset = message.error(), message.offset()
        if error is None and offset is not None and offset < ends[key]:
            last[key] = offset
        at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if at_end or (offset is not None and offset >= ends[key] - 1):
            waiting.discard(key)
            done[key] = last.get(key)
            consumer.pause([TopicPartition(*key)])

    settings = {
        "group.id": "modeaware-last-records",
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    try:
        read_partitions({**conf, **settings}, starts, waiting, take, READ_TIMEOUT_S, monotonic_s)
    except KafkaException as error:
        raise ClusterError(f"cannot read the last records: {error.args[0].str()}") from error
    return done
