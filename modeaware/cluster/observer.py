"""Gathers the facts a decision needs, and remembers what only time can tell: how long an end offset has been quiet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.cluster import Cluster, LogOffsets, TopicShape
from modeaware.cluster.commits import CommitsChecked, check_commits
from modeaware.cluster.groups.found import GroupsFound, ListedGroups, find_groups
from modeaware.cluster.partition_leaders import epoch_ends, writers
from modeaware.cluster.stragglers import sample_records
from modeaware.cluster.topic_identity import topic_ids
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.evacuation import evacuation_of
from modeaware.lifecycle.facts import GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.handover import survivors_to_watch
from modeaware.lifecycle.phases import is_settled
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.modelog.records import TopicRecord

GONE_AFTER_MS = 30_000
"""How long every broker must go on not knowing a topic before its record is removed: one stale broker is no proof."""
_NOT_ASKED = GroupsFound(doubt=GroupsDoubt("not asked for: nothing is in progress"))


class Observer:
    """Looks at topics. One thread owns it.

    Args:
        cluster: the admin connection.
        conf: librdkafka configuration for short-lived consumers, which look for control records and stragglers.
        listed: the cluster's groups, where looks at many topics decide nothing; None: each look lists them.

    Raises:
        ConfigError: the cluster's configuration has a setting that cannot be translated for kafka-python.
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
        """The facts of one topic: of the retired partitions of ``record``, and of survivors while they are handed over;
        without one, for an admission, of all.

        Args:
            rules: the operator's; the commits of groups they require by name are read though no broker lists them, and
                so are those of the group that proves an evacuation.
            before_due: look for lag that is none even before the shrink's delay has passed, when nothing rests on it.

        Raises:
            ClusterError: the cluster could not be asked; nothing may be concluded.
        """
        try:
            return self._observe(topic, record, rules, before_due)
        except ClusterError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._cluster.reconnect()
            raise

    def _observe(
        self, topic: str, record: TopicRecord | None, rules: Sequence[GroupRule], before_due: bool
    ) -> TopicFacts:
        shape = self._cluster.describe([topic])[topic]
        if shape is None:
            return TopicFacts(topic, None, gone=record is not None and self._gone(record))
        if record is not None and shape.topic_id != record.topic_id:
            return TopicFacts(topic, shape.topic_id, shape.partition_count, gone=self._gone(record))
        self._missing_since_s.pop(shape.topic_id, None)
        return self._facts(topic, shape, record, rules, before_due)

    def _facts(
        self,
        topic: str,
        shape: TopicShape,
        record: TopicRecord | None,
        rules: Sequence[GroupRule],
        before_due: bool,
    ) -> TopicFacts:
        count = shape.partition_count
        wanted: Iterable[int] = range(count)
        if record is not None:
            wanted = [p for p in sorted(record.retired) if p < count]
        logs = self._cluster.offsets(topic, wanted)
        last = self._seen.get(shape.topic_id, {})
        partitions = {p: self._partition(last.get(p), log) for p, log in logs.items()}
        if record is not None:
            self._seen[shape.topic_id] = {p: last[p] for p in wanted if p in last} | partitions
            partitions = self._noted(record, partitions)
        # A settled topic is only watched for stragglers: its groups and its policy decide nothing, but for records that
        # stay because of that policy.
        deciding = record is None or not is_settled(record)
        kept = record is not None and any(retired.evacuated for retired in record.retired.values())
        listed_ms = self._clock.now_ms()
        found = self._groups(topic, count, record, rules) if deciding else _NOT_ASKED
        if record is not None:
            partitions |= self._survivors(topic, record, count)
        checked = CommitsChecked(found.groups)
        if record is not None:
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

    def _survivors(self, topic: str, record: TopicRecord, count: int) -> dict[int, PartitionFacts]:
        """Partitions that go on being written: read after the groups, or commits would seem to lie beyond the end."""
        wanted = [p for p in survivors_to_watch(record) if p < count]
        logs = self._cluster.offsets(topic, wanted) if wanted else {}
        return {p: self._partition(None, log) for p, log in logs.items()}

    def _groups(self, topic: str, count: int, record: TopicRecord | None, rules: Sequence[GroupRule]) -> GroupsFound:
        now_ms = self._clock.now_ms()
        by_name = [rule for rule in rules if rule.kind == REQUIRE and not rule.glob]
        also = [rule.group for rule in by_name if rule.applies(topic, now_ms)]
        if (evacuation := evacuation_of(record)) is not None:
            also.append(evacuation)
        return find_groups(self._cluster, topic, range(count), tuple(also), self._listed)

    def _partition(self, last: PartitionFacts | None, log: LogOffsets) -> PartitionFacts:
        """A log as it is now; another leader's may have become another one with the same end."""
        moved = last is not None and last.end_offset != log.end_offset
        if last is not None and not moved and last.leader_epoch == log.leader_epoch:
            since_ms, moved = last.quiet_since_ms, last.moved
        else:
            since_ms = self._clock.now_ms()
        return PartitionFacts(log.log_start, log.end_offset, log.last_stable_offset, log.leader_epoch, since_ms, moved)

    def _noted(self, record: TopicRecord, partitions: Mapping[int, PartitionFacts]) -> dict[int, PartitionFacts]:
        """With what the leaders say of seals of an earlier epoch, of stragglers, and of open transactions."""
        seals = {
            p: retired.seal_offset
            for p, retired in record.retired.items()
            if p in partitions and retired.seal_offset is not None
        }
        epochs = {p: retired.seal_leader_epoch for p, retired in record.retired.items() if p in partitions}
        other = [(p, e) for p, e in epochs.items() if e is not None and e >= 0 and e != partitions[p].leader_epoch]
        ends = {p: end for (p, _), end in epoch_ends(self._brokers, record.topic, other).items() if end >= 0}
        late = {p: max(seal, partitions[p].log_start) for p, seal in seals.items() if partitions[p].end_offset > seal}
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
        try:
            known = topic_ids(self._brokers, record.topic)
        except ClusterError:
            self._missing_since_s.pop(record.topic_id, None)
            raise
        if record.topic_id in known.values():
            self._missing_since_s.pop(record.topic_id, None)
            return False
        now_s = self._clock.monotonic_s()  # of the wall clock a correction would count as time passed
        if now_s - self._missing_since_s.setdefault(record.topic_id, now_s) < GONE_AFTER_MS / 1000:
            return False
        self._missing_since_s.pop(record.topic_id)
        self._seen.pop(record.topic_id, None)
        return True
