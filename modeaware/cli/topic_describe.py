"""``modeaware topics --list`` and ``--describe``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import indent

from modeaware.cli.display import describe_json, describe_text, gone_lines
from modeaware.cli.options import Connection, connect, connection, kafka_errors
from modeaware.cli.situation import READ_TIMEOUT_S
from modeaware.cli.topic_options import EXPAND
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from modeaware.printable import printable, printable_lines
from modeaware.reports.describe import describe_topics, gone_ids, unusable_record
from modeaware.reports.topic_list import ListedTopic, TopicList, list_topics, matching, named
from modeaware.reports.topic_state import PARTITIONS_PER_ANSWER, PartitionReplicas, TopicState, topic_states

_Records = dict[str, TopicRecord | None]
"""Topic -> its record in the mode log; None: one that cannot be used here."""


def list_names(args: argparse.Namespace) -> int:
    """The names of the topics, nothing else: one a line."""
    cluster = connect(connection(args, defaults={"log_level": 0}))
    try:
        found = matching(list_topics(cluster.brokers).topics, args.topic, exclude_internal=args.exclude_internal)
    finally:
        cluster.close()
    print(printable_lines(topic.name for topic in found))
    return 0


def describe(args: argparse.Namespace) -> int:
    """What ``kafka-topics`` shows, and what the mode log has to say of topics that were changed."""
    target = connection(args, defaults={"log_level": 0})
    with kafka_errors("describe topics"):
        cluster = connect(target)
        try:
            listed = list_topics(cluster.brokers)
            chosen = _chosen(args, listed)
            if not chosen and (args.topic is not None or args.topic_id is not None):
                return absent(args)
            if args.json:
                return _print_json(args, target, chosen)
            records, gone = _records(args, target, chosen)
            limit = args.partition_size_limit_per_response or PARTITIONS_PER_ANSWER
            states = topic_states(cluster.brokers, [topic.name for topic in chosen], listed.live_brokers, limit)
        finally:
            cluster.close()
        changes = _changes(args, target, records)
    for line in _lines(args, states, records, {**gone, **changes}):
        print(line)
    return 0


def absent(args: argparse.Namespace) -> int:
    """No topic is what was asked for: an error, unless ``--if-exists`` was said.

    Raises:
        RequestRefused: UNKNOWN_TOPIC_OR_PARTITION.
    """
    if args.if_exists:
        return 0
    if getattr(args, "topic_id", None) is not None:
        raise RequestRefused(f"no topic has the id {args.topic_id!r}", code=ErrorCode.UNKNOWN_TOPIC_ID)
    raise RequestRefused(
        f"topic {args.topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=args.topic
    )


def _chosen(args: argparse.Namespace, listed: TopicList) -> list[ListedTopic]:
    shown = matching(listed.topics, None, exclude_internal=args.exclude_internal)
    if args.topic_id is not None:
        return [topic for topic in shown if topic.topic_id == args.topic_id]
    return shown if args.topic is None else named(shown, args.topic)


def _print_json(args: argparse.Namespace, target: Connection, chosen: Iterable[ListedTopic]) -> int:
    everything = args.topic is None and args.topic_id is None
    names = None if everything else [topic.name for topic in chosen]
    print(json.dumps(describe_json(describe_topics(target.conf, target.config.mode_log_topic, names)), indent=2))
    return 0


def _records(
    args: argparse.Namespace, target: Connection, chosen: Iterable[ListedTopic]
) -> tuple[_Records, dict[str, list[str]]]:
    """The records of the chosen topics; one that never was changed has none. And topic -> what is said of records that
    were written for deleted topics of its name.

    Raises:
        RecordError: of a topic that was named, and not by a pattern.
        ModeSourceError: the mode log cannot be read.
    """
    log = target.config.mode_log_topic
    replay = read_mode_log(target.conf, log, READ_TIMEOUT_S)
    found: _Records = {}
    gone: dict[str, list[str]] = {}
    for topic in chosen:
        unusable = unusable_record(replay, log, topic.name, topic.topic_id)
        if unusable is not None and topic.name == args.topic:
            raise unusable
        if unusable is not None:
            found[topic.name] = None
        elif topic.topic_id in replay.records:
            found[topic.name] = replay.records[topic.topic_id]
        if lines := gone_lines(gone_ids(replay, topic.name, topic.topic_id)):
            gone[topic.name] = [f"  {line}" for line in lines]
    return found, gone


def _changes(args: argparse.Namespace, target: Connection, records: _Records) -> dict[str, list[str]]:
    """Topic -> what is said of one that was changed: indented, so that no line begins as a topic's own."""
    changed = [topic for topic, record in records.items() if record is not None]
    if not changed or args.topics_with_overrides or any(getattr(args, name) for name in _FILTERS):
        return {}
    described = describe_topics(target.conf, target.config.mode_log_topic, changed)
    expand = args.partitions == EXPAND
    return {each.topic: indent(describe_text([each], expand=expand), "  ").splitlines() for each in described}


def _lines(
    args: argparse.Namespace, states: Iterable[TopicState], records: _Records, changes: Mapping[str, list[str]]
) -> Iterator[str]:
    filters = [lets_through for name, lets_through in _FILTERS.items() if getattr(args, name)]
    for state in states:
        if state.configs is None and any(getattr(args, name) for name in _NEED_CONFIGS):
            raise RequestRefused(
                f"topic {state.name!r}: this needs the right to see its configs (DESCRIBE_CONFIGS)",
                code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                topic=state.name,
            )
        modes = _modes(state, records)
        if filters:
            yield from filtered_lines(state, modes, filters)
        elif args.topics_with_overrides:
            yield from [topic_line(state)] if state.configs else []
        else:
            yield from topic_lines(state, modes)
            yield from changes.get(state.name, [])


def _modes(state: TopicState, records: _Records) -> list[str]:
    ids = [partition.partition for partition in state.partitions]
    if state.name not in records:
        return ["ReadWrite" for _ in ids]
    record = records[state.name]
    return [UNKNOWN for _ in ids] if record is None else [record.view().mode(p).label for p in ids]


UNKNOWN = "unknown"
"""In the place of a mode: the topic has a record that cannot be used here."""


def topic_line(topic: TopicState) -> str:
    """The line of the topic itself."""
    return (
        f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {topic.partitions[0].replication_factor}\tConfigs: {_configs(topic)}"
    )


def partition_line(topic: str, partition: PartitionReplicas, mode: str) -> str:
    """The line of one partition."""
    moves = ""
    if partition.adding is not None:
        moves = f"\tAdding Replicas: {_ids(partition.adding)}\tRemoving Replicas: {_ids(partition.removing)}"
    leader = "none" if partition.leader is None else partition.leader
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}{moves}"
        f"\tElr: {_ids(partition.elr)}\tLastKnownElr: {_ids(partition.last_known_elr)}\tMode: {mode}"
    )


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _configs(topic: TopicState) -> str:
    if topic.configs is None:  # the user lacks DESCRIBE_CONFIGS; kafka-topics gives up then
        return "N/A"
    return ",".join(
        f"{name}={'null' if value is None else printable(value)}" for name, value in sorted(topic.configs.items())
    )


PartitionFilter = Callable[[PartitionReplicas, int | None], bool]
"""Whether a partition is shown, given its topic's ``min.insync.replicas`` (None: not known, nothing is shown by it)."""


def is_under_replicated(partition: PartitionReplicas, _: int | None) -> bool:
    """``--under-replicated-partitions``"""
    return partition.replication_factor > len(partition.isr)


def is_unavailable(partition: PartitionReplicas, _: int | None) -> bool:
    """``--unavailable-partitions``"""
    return partition.leader is None


def is_under_min_isr(partition: PartitionReplicas, min_isr: int | None) -> bool:
    """``--under-min-isr-partitions``"""
    return partition.leader is None or (min_isr is not None and len(partition.isr) < min_isr)


def is_at_min_isr(partition: PartitionReplicas, min_isr: int | None) -> bool:
    """``--at-min-isr-partitions``"""
    return len(partition.isr) == min_isr


_FILTERS: dict[str, PartitionFilter] = {
    "under_replicated_partitions": is_under_replicated,
    "unavailable_partitions": is_unavailable,
    "under_min_isr_partitions": is_under_min_isr,
    "at_min_isr_partitions": is_at_min_isr,
}
_NEED_CONFIGS = ("topics_with_overrides", "under_min_isr_partitions", "at_min_isr_partitions")


def filtered_lines(topic: TopicState, modes: Sequence[str], filters: Sequence[PartitionFilter]) -> list[str]:
    """The lines of the partitions that a filter lets through."""
    return [
        partition_line(topic.name, partition, modes[partition.partition])
        for partition in topic.partitions
        if any(lets_through(partition, topic.min_isr) for lets_through in filters)
    ]


def topic_lines(topic: TopicState, modes: Sequence[str]) -> list[str]:
    """The line of the topic and those of all its partitions."""
    return [topic_line(topic), *(partition_line(topic.name, p, modes[p.partition]) for p in topic.partitions)]
