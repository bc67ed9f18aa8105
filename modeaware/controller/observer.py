"""Gathers the facts a decision needs, and remembers what only time can tell: how long an end offset has been quiet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.controller.cluster import Cluster, LogOffsets, TopicShape
from modeaware.controller.control_records import only_control_records
from modeaware.controller.groups import GroupsFound, find_groups
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.phases import in_progress
from modeaware.modelog.records import TopicRecord

GONE_AFTER_MS = 30_000
"""How long the cluster must go on not knowing a topic before its record is removed: one stale broker is no proof."""


class Observer:
    """Looks at topics. One thread owns it.

    Args:
        cluster: the admin connection.
        conf: librdkafka configuration for the short-lived consumers that look for control records.
    """

    def __init__(self, cluster: Cluster, conf: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK) -> None:
        self._cluster = cluster
        self._conf = dict(conf)
        self._clock = clock
        self._seen: dict[tuple[str, int], PartitionFacts] = {}
        self._missing_since_ms: dict[str, int] = {}

    def observe(self, topic: str, record: TopicRecord | None) -> TopicFacts:
        """The facts of one topic: of the retired partitions of ``record``; without one, for an admission, of all.

        Raises:
            ClusterError: the cluster could not be asked; nothing may be concluded.
        """
        try:
            return self._observe(topic, record)
        except ClusterError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._cluster.reconnect()
            raise

    def _observe(self, topic: str, record: TopicRecord | None) -> TopicFacts:
        shape = self._cluster.describe([topic])[topic]
        if shape is None:
            return TopicFacts(topic, None, gone=record is not None and self._gone(record))
        if record is not None and shape.topic_id != record.topic_id:
            return TopicFacts(topic, shape.topic_id, shape.partition_count, gone=self._gone(record))
        self._missing_since_ms.pop(shape.topic_id, None)
        return self._facts(topic, shape, record)

    def _facts(self, topic: str, shape: TopicShape, record: TopicRecord | None) -> TopicFacts:
        count = shape.partition_count
        wanted: Iterable[int] = range(count)
        if record is not None:
            wanted = [p for p in sorted(record.retired) if p < count]
        logs = self._cluster.offsets(topic, wanted)
        partitions = {p: self._partition(shape.topic_id, p, log) for p, log in logs.items()}
        if record is None or in_progress(record):
            found = find_groups(self._cluster, topic, range(count))
        else:  # a settled topic is only watched for stragglers: its groups decide nothing
            found = GroupsFound({}, doubt="not asked for")
        groups = found.groups if record is None else self._with_caught_up(record, partitions, found.groups)
        return TopicFacts(
            topic,
            shape.topic_id,
            partition_count=count,
            internal=shape.internal,
            cleanup_policy=self._cluster.cleanup_policy(topic) if record is None else "delete",
            partitions=partitions,
            groups=groups,
            groups_doubt=found.doubt,
        )

    def _partition(self, topic_id: str, partition: int, log: LogOffsets) -> PartitionFacts:
        last = self._seen.get((topic_id, partition))
        if last is not None and last.end_offset == log.end_offset:
            since_ms, moved = last.quiet_since_ms, last.moved
        else:
            since_ms, moved = self._clock.now_ms(), last is not None
        facts = PartitionFacts(log.log_start, log.end_offset, log.last_stable_offset, log.leader_epoch, since_ms, moved)
        self._seen[(topic_id, partition)] = facts
        return facts

    def _with_caught_up(
        self, record: TopicRecord, partitions: Mapping[int, PartitionFacts], groups: Mapping[str, GroupFacts]
    ) -> dict[str, GroupFacts]:
        """Note where a group's lag is only control records: on sealed partitions, where its commits decide anything."""
        if record.deletion is None or record.deletion.policy != "drained":
            return dict(groups)
        seals = {p: r.seal_offset for p, r in record.retired.items() if r.seal_offset is not None and not r.opening}
        clear: dict[tuple[int, int, int], bool] = {}
        noted = {}
        for name, group in groups.items():
            caught_up = set()
            for partition, seal_offset in seals.items():
                log = partitions.get(partition)
                start = max(group.committed.get(partition, 0), log.log_start) if log else seal_offset
                if start >= seal_offset:
                    continue
                gap = (partition, start, seal_offset)
                if gap not in clear:
                    clear[gap] = only_control_records(self._conf, record.topic, *gap, self._clock.monotonic_s)
                if clear[gap]:
                    caught_up.add(partition)
            noted[name] = replace(group, caught_up=frozenset(caught_up))
        return noted

    def _gone(self, record: TopicRecord) -> bool:
        now_ms = self._clock.now_ms()
        return now_ms - self._missing_since_ms.setdefault(record.topic_id, now_ms) >= GONE_AFTER_MS
