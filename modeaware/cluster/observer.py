"""Gathers the facts that a decision needs, and keeps what only time can show: how long an end offset has been quiet."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock, utc
from modeaware.cluster.cluster import Cluster, LogOffsets, TopicShape
from modeaware.cluster.commits import CommitsChecked, check_commits, read_partitions
from modeaware.cluster.groups import GroupsFound, ListedGroups, find_groups
from modeaware.cluster.metadata import epoch_ends, topic_ids, writers
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message
from modeaware.lifecycle.drain import evacuation_of
from modeaware.lifecycle.facts import GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.handover import survivors_to_watch
from modeaware.lifecycle.state import is_settled
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.modelog.records import TopicRecord

GONE_AFTER_MS = 30_000
"""How long a topic must be missing on every broker before its record is removed: one stale broker is no proof."""
_NOT_LISTED = GroupsFound(doubt=GroupsDoubt("not listed: nothing is in progress"))


class Observer:
    """Observes topics. One thread owns it.

    Args:
        conf: librdkafka configuration for short-lived consumers, which read gaps and stragglers.
        listed: the cluster's groups, for passes over many topics that decide nothing; None: each pass lists them.
    """

    def __init__(
        self,
        cluster: Cluster,
        conf: Mapping[str, Any],
        clock: Clock = SYSTEM_CLOCK,
        listed: ListedGroups | None = None,
    ) -> None:
        self._cluster = cluster
        self._brokers = cluster.brokers
        self._conf = dict(conf)
        self._clock = clock
        self._listed = listed
        self._seen: dict[str, dict[int, PartitionFacts]] = {}
        self._missing_since_s: dict[str, float] = {}

    def observe(
        self, topic: str, record: TopicRecord | None, rules: Sequence[GroupRule] = (), *, before_due: bool = False
    ) -> TopicFacts:
        """Return the facts of one topic: of all partitions for an admission (``record`` None), else of the retired ones
        and of survivors while they are handed over.

        Args:
            rules: the operator's; the commits of groups they require by name are read though no broker lists them, and
                so are those of the group that proves an evacuation.
            before_due: read gaps even before the shrink's delay has passed, when nothing depends on them.
        """
        try:
            shape = self._cluster.describe([topic])[topic]
            if shape is None:
                return TopicFacts(topic, None, gone=record is not None and self._gone(record))
            if record is not None and shape.topic_id != record.topic_id:
                return TopicFacts(topic, shape.topic_id, shape.partition_count, gone=self._gone(record))
            self._missing_since_s.pop(shape.topic_id, None)
            return self._facts(topic, shape, record, rules, before_due)
        except ClusterError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._cluster.reconnect()
            raise

    def _facts(
        self, topic: str, shape: TopicShape, record: TopicRecord | None, rules: Sequence[GroupRule], before_due: bool
    ) -> TopicFacts:
        count = shape.partition_count
        wanted = list(range(count)) if record is None else [p for p in sorted(record.retired) if p < count]
        last = self._seen.get(shape.topic_id, {})
        logs = self._cluster.offsets(topic, wanted)
        partitions = {p: self._partition(last.get(p), log) for p, log in logs.items()}
        # A settled topic is only watched for stragglers: its groups and its policy decide nothing, but for records that
        # stay because of that policy.
        deciding = record is None or not is_settled(record)
        kept = record is not None and any(retired.evacuated for retired in record.retired.values())
        if record is not None:
            self._seen[shape.topic_id] = {p: last[p] for p in wanted if p in last} | partitions
            partitions = self._noted(record, partitions)
        listed_ms = self._clock.now_ms()
        found = self._groups(topic, count, record, rules, listed_ms) if deciding else _NOT_LISTED
        checked = CommitsChecked(found.groups)
        if record is not None:
            # Survivors are still being written: read after the groups, or commits would seem to lie beyond the end.
            survivors = [p for p in survivors_to_watch(record) if p < count]
            logs = self._cluster.offsets(topic, survivors) if survivors else {}
            partitions |= {p: self._partition(None, log) for p, log in logs.items()}
            checked = check_commits(self._conf, self._brokers, record, partitions, found, self._clock, before_due)
        return TopicFacts(
            topic,
            shape.topic_id,
            partition_count=count,
            internal=shape.internal,
            cleanup_policy=self._cluster.cleanup_policy(topic) if deciding or kept else "delete",
            partitions={p: facts for p, facts in partitions.items() if p not in checked.unavailable},
            groups=checked.groups,
            groups_doubt=found.doubt,
            listed_ms=listed_ms,
            stateful_owner=found.stateful_owner,
        )

    def _groups(
        self, topic: str, count: int, record: TopicRecord | None, rules: Sequence[GroupRule], now_ms: int
    ) -> GroupsFound:
        by_name = [rule for rule in rules if rule.kind == REQUIRE and not rule.glob]
        also = [rule.group for rule in by_name if rule.applies(topic, now_ms)]
        if (evacuation := evacuation_of(record)) is not None:
            also.append(evacuation)
        return find_groups(self._cluster, topic, range(count), tuple(also), self._listed)

    def _partition(self, last: PartitionFacts | None, log: LogOffsets) -> PartitionFacts:
        """Return a log as it is now; another leader's may have become another one with the same end."""
        moved = last is not None and last.end_offset != log.end_offset
        since_ms = self._clock.now_ms()
        if last is not None and not moved and last.leader_epoch == log.leader_epoch:
            since_ms, moved = last.quiet_since_ms, last.moved
        return PartitionFacts(log.log_start, log.end_offset, log.last_stable_offset, log.leader_epoch, since_ms, moved)

    def _noted(self, record: TopicRecord, partitions: Mapping[int, PartitionFacts]) -> dict[int, PartitionFacts]:
        """Add what the leaders report about seals of an earlier epoch, stragglers, and open transactions."""
        other, late = set(), {}
        for p, log in partitions.items():
            seal, epoch = record.retired[p].seal_offset, record.retired[p].seal_leader_epoch
            if epoch is not None and epoch >= 0 and epoch != log.leader_epoch:
                other.add((p, epoch))
            if seal is not None and log.end_offset > seal:
                late[p] = max(seal, log.log_start)
        ends = {p: end for (p, _), end in epoch_ends(self._brokers, record.topic, other).items() if end >= 0}
        unsettled = {p for p, log in partitions.items() if not log.settled}
        wrote = writers(self._brokers, record.topic, {*late, *unsettled})
        samples = sample_records(self._conf, record.topic, late, self._clock.monotonic_s)
        unknown = {p for p, _ in other} - ends.keys()  # a seal that cannot be checked: as if the leader did not answer
        return {
            p: replace(log, seal_epoch_end=ends.get(p), writers=wrote.get(p, ()), samples=samples.get(p, ()))
            for p, log in partitions.items()
            if p not in unknown
        }

    def _gone(self, record: TopicRecord) -> bool:
        """Return whether no broker has had the topic for :data:`GONE_AFTER_MS`."""
        since_s = self._missing_since_s.pop(record.topic_id, None)
        if record.topic_id in topic_ids(self._brokers, record.topic).values():
            return False
        now_s = self._clock.monotonic_s()  # a correction of the wall clock is no time that has passed
        since_s = now_s if since_s is None else since_s
        if now_s - since_s < GONE_AFTER_MS / 1000:
            self._missing_since_s[record.topic_id] = since_s
            return False
        self._seen.pop(record.topic_id, None)
        return True


# Descriptions of stragglers: where they come from, never their values

SAMPLED_RECORDS = 3
SAMPLED_PARTITIONS = 10
SAMPLE_TIMEOUT_S = 3.0
_HEADERS = operator.methodcaller("headers")
"""``message.headers()``, by a call whose result is always checked. For a name that is no UTF-8 the client returns a
list with holes and an exception set; the interpreter omits the check where it has specialised a call, and crashes. So
it does at a second call for the same message, which returns that list without an exception."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def sample_records(
    conf: Mapping[str, Any], topic: str, starts: Mapping[int, int], monotonic_s: Callable[[], float]
) -> dict[int, tuple[str, ...]]:
    """Describe the first records of each partition from an offset on: offset, time, key, names of headers.

    A few records of a few partitions, within :data:`SAMPLE_TIMEOUT_S`. For messages alone: where a record cannot be
    read, the error takes its place.
    """
    wanted = dict(sorted(starts.items())[:SAMPLED_PARTITIONS])
    found: dict[int, list[str]] = {partition: [] for partition in wanted}
    waiting = set(wanted)

    def take(message: Message, _: Consumer) -> None:
        partition, error = message.partition(), message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if partition is None or partition not in waiting:
            return
        if error is None:
            found[partition].append(_describe(message))
        if error is not None or len(found[partition]) >= SAMPLED_RECORDS:
            waiting.discard(partition)

    settings = {
        "group.id": "modeaware-stragglers",
        "isolation.level": "read_uncommitted",  # those of an open transaction, too
        "auto.offset.reset": "earliest",
    }
    try:
        read_partitions({**conf, **settings}, topic, wanted, waiting, take, SAMPLE_TIMEOUT_S, monotonic_s)
    except KafkaException as error:
        for partition in waiting:
            found[partition].append(f"not read: {error.args[0].str()}")
    return {partition: tuple(texts) for partition, texts in found.items()}


def _describe(message: Message) -> str:
    """Return such as ``offset 17, 2026-01-31 12:00:00.123 UTC, key b'k-1', headers 'trace-id'``."""
    _, timestamp_ms = message.timestamp()
    when = utc(timestamp_ms, "milliseconds") if timestamp_ms > 0 else "no timestamp"
    try:
        names = [str(header[0]) for header in _HEADERS(message) or []]
        headers = f", headers {_SHORT.repr(', '.join(names))}" if names else ""
    except (UnicodeDecodeError, SystemError):  # the client decodes their names, which may be any bytes
        headers = ", headers that cannot be read"
    return f"offset {message.offset()}, {when}, key {_SHORT.repr(message.key())}{headers}"
