"""Collects the facts for decisions. Some facts need several snapshots, such as how long an end offset has not moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.cluster import Cluster, LogOffsets, TopicShape
from modeaware.cluster.commits import CommitsSeen, check_commits
from modeaware.cluster.fence import LogEnd, fences, log_ends
from modeaware.cluster.groups import GroupsFound, StableGroups, find_groups
from modeaware.cluster.last_records import LastRecords
from modeaware.cluster.metadata import NO_LEADER, Leader, Partition, epoch_ends, ids_of_each_broker, writers
from modeaware.cluster.stragglers import first_batches, sample_records
from modeaware.cluster.unchanged import OffsetsWatch
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.drain import evacuation_of
from modeaware.lifecycle.facts import FenceFacts, GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.replacement import is_followed
from modeaware.lifecycle.state import moving, needs_groups
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.modelog.records import TopicRecord

GONE_AFTER_MS = 30_000
"""How long every broker must lack a topic before the topic's record is removed: metadata of brokers may be stale. After
an acknowledged deletion no time is needed, because a topic id never comes back."""
_NOT_LISTED = GroupsFound(doubt=GroupsDoubt("not listed: nothing is in progress"))


ANY_ID = "any:"
"""If any topic of a name counts, :attr:`SnapshotTarget.topic_id` is this prefix and the name."""


class SnapshotTarget(NamedTuple):
    """A topic to observe, and its record.

    Attributes:
        record: the topic's record; None for an admission, and for the new topic of a replacement.
        topic_id: the id that a new topic should have, so that a loss of the topic is noticed. If any topic of that name
            counts, :data:`ANY_ID` and the name.
        id_alone: whether only the topic's id is needed: no logs and no groups are read.
    """

    topic: str
    record: TopicRecord | None
    topic_id: str | None = None
    id_alone: bool = False

    @property
    def expected_id(self) -> str | None:
        """Return the id of the topic to observe, if known."""
        return self.topic_id if self.record is None else self.record.topic_id

    def is_of(self, topic_id: str) -> bool:
        """Return whether the topic to observe may have ``topic_id``."""
        expected = self.expected_id
        return expected is None or expected == topic_id or expected.startswith(ANY_ID)


@dataclass(frozen=True)
class _Present:
    """An existing topic to observe."""

    topic: str
    shape: TopicShape
    record: TopicRecord | None
    is_unknown: bool = False
    """Whether a new topic was found by its name alone, so that the topic found may be a different one."""
    id_alone: bool = False

    @property
    def wanted(self) -> list[int]:
        """Return the partitions to observe: all if there is no record, otherwise those that take no writes."""
        count = 0 if self.id_alone else self.shape.partition_count
        return list(range(count)) if self.record is None else [p for p in self.record.closed if p < count]

    @property
    def deciding(self) -> bool:
        """Return whether a decision needs groups and policy. Without a change in progress, only stragglers matter."""
        return not self.id_alone and (self.record is None or needs_groups(self.record))


class Observer:
    """Observes topics. One thread owns it.

    Many topics are observed together: each request of a pass is made for all of them at once. So the number of requests
    grows with brokers and groups, not with topics.

    Args:
        conf: librdkafka configuration of the consumers that read records (gaps, last records, stragglers).
        mode_log: the mode log's name. The election's group is named after it, and does not count as a consumer.
        probes_fences: whether to probe the fences of replaced topics; a probe needs the right to WRITE to the topic.
    """

    def __init__(
        self,
        cluster: Cluster,
        conf: Mapping[str, Any],
        clock: Clock = SYSTEM_CLOCK,
        *,
        mode_log: str,
        probes_fences: bool = False,
    ) -> None:
        self._mode_log = mode_log
        self._cluster = cluster
        self._probes_fences = probes_fences
        self._brokers = cluster.brokers
        self._conf = dict(conf)
        self._clock = clock
        self._seen: dict[str, dict[int, PartitionFacts]] = {}
        self._leaders: dict[str, dict[Partition, Leader]] = {}
        self._missing_since_s: dict[str, float] = {}
        self._deletion_acknowledged: set[str] = set()
        self._deleted: set[str] = set()
        self._stable_groups = StableGroups(clock)
        self._rest = OffsetsWatch(self._brokers)
        self._last_records = LastRecords(self._conf, clock.monotonic_s)

    def deleted(self, topic_id: str) -> None:
        """Note that the deletion of a topic id was acknowledged. From now on the topic is absent, even if brokers still
        have parts of it. It is gone as soon as no broker has it."""
        self._deletion_acknowledged.add(topic_id)
        self._deleted.add(topic_id)

    def unchanged(self, topic_ids: Iterable[str]) -> bool:
        """Return whether the leaders, log starts and log ends of those partitions that take no writes are unchanged
        since the last call. If the last call was for other topics, return False.

        Raises:
            ClusterError: no broker answers.
        """
        leaders: dict[Partition, Leader] = {}
        for topic_id in topic_ids:
            leaders |= self._leaders[topic_id]
        return self._rest.unchanged(leaders)

    def observe(self, topic: str, record: TopicRecord | None, rules: Sequence[GroupRule] = ()) -> TopicFacts:
        """Return the facts of one topic, as :meth:`observe_all` does; raise the ClusterError that it would return."""
        (facts,) = self.observe_all([SnapshotTarget(topic, record)], rules)
        if isinstance(facts, ClusterError):
            raise facts
        return facts

    def observe_all(
        self, targets: Sequence[SnapshotTarget], rules: Sequence[GroupRule] = ()
    ) -> list[TopicFacts | ClusterError]:
        """Return each topic's facts: of all partitions if the target has no record, otherwise of the partitions that
        take no writes. If brokers reject a request about one topic, the result for the topic is a ClusterError.

        Args:
            targets: one for each topic. A new topic may have a second target, for its id alone.
            rules: the operator's rules. If a rule requires a group by name, the group's commits are read even if no
                broker lists the group. The same holds for a group whose commits prove an evacuation.
        """
        try:
            shapes = {
                name: None if isinstance(shape, TopicShape) and shape.topic_id in self._deletion_acknowledged else shape
                for name, shape in self._cluster.describe(target.topic for target in targets).items()
            }
            present = {}
            for target in targets:
                shape = shapes[target.topic]
                if isinstance(shape, TopicShape) and target.is_of(shape.topic_id):
                    self._missing_since_s.pop(target.expected_id or shape.topic_id, None)
                    if target.id_alone and target.topic in present:
                        continue
                    is_unknown = (target.topic_id or "").startswith(ANY_ID)
                    present[target.topic] = _Present(target.topic, shape, target.record, is_unknown, target.id_alone)
            facts = self._facts(present, rules)

            def is_absent(target: SnapshotTarget) -> bool:
                topic = present.get(target.topic)
                return topic is None or topic.record is not target.record or not target.is_of(topic.shape.topic_id)

            missing = {
                t.expected_id: t.topic
                for t in targets
                if t.expected_id is not None and is_absent(t) and not isinstance(shapes[t.topic], ClusterError)
            }
            gone = self._gone(missing)
            names = [target.topic for target in targets if target.expected_id is None and shapes[target.topic] is None]
            users = self._groups(dict.fromkeys(names, range(0)), {}, {}, (), self._clock.now_ms())
            return [
                _absent(t.topic, shapes[t.topic], gone.get(t.expected_id or "", False), users.get(t.topic))
                if is_absent(t)
                else facts[t.topic]
                for t in targets
            ]
        except ClusterError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._cluster.reconnect()
            raise

    def observe_for_reports(
        self, topics: Mapping[str, tuple[TopicShape, TopicRecord | None]], rules: Sequence[GroupRule]
    ) -> dict[str, TopicFacts]:
        """Return the facts that reports show: about all partitions and groups, and the groups that use new topics.

        Unlike :meth:`observe_all`, this requests no configs, no fences, and nothing that only alarms show. The gaps
        behind commits (:mod:`modeaware.cluster.commits`) are read even before a shrink's delay has passed. Most
        decisions need a group's lag only after the delay, but reports show the lag at any time. Without the right to
        READ a topic, its gaps count as lag.

        Args:
            topics: name -> the current shape and the record.
        """
        counts = {name: range(shape.partition_count) for name, (shape, _) in topics.items()}
        leaders = {(name, p): leader for name, (shape, _) in topics.items() for p, leader in shape.leaders.items()}
        logs = self._offsets(counts, leaders)
        partitions = {name: {p: self._partition(None, log) for p, log in logs[name].items()} for name in topics}
        records = {name: record for name, (_, record) in topics.items() if record is not None}
        partitions |= self._with_seal_ends(records, partitions)
        after = {name: record.replacing for name, record in records.items() if moving(record)}
        used = {to.new_topic: range(to.num_partitions) for to in after.values()} | counts
        listed_ms = self._clock.now_ms()
        groups_of = self._groups(used, records, partitions, rules, listed_ms, before_due=True)
        facts = {}
        for name, (shape, _) in topics.items():
            new_topic, to = None, after.get(name)
            if to is not None:
                new_topic = groups_of[to.new_topic].added_to(TopicFacts(to.new_topic, to.new_topic_id))
            of_topic = TopicFacts(name, shape.topic_id, shape.partition_count, partitions=partitions[name])
            facts[name] = groups_of[name].added_to(replace(of_topic, listed_ms=listed_ms, new_topic=new_topic))
        return facts

    def _facts(
        self, present: Mapping[str, _Present], rules: Sequence[GroupRule]
    ) -> dict[str, TopicFacts | ClusterError]:
        leaders = {(name, p): leader for name, topic in present.items() for p, leader in topic.shape.leaders.items()}
        known = {name: topic.record for name, topic in present.items() if topic.record is not None}
        replaced = {n: record.replacing for n, record in known.items() if self._probes_fences and is_followed(record)}
        with_fence = [name for name, replacement in replaced.items() if replacement.has_fence]
        proved = fences(self._brokers, with_fence) if with_fence else {}
        left = [name for name, replacement in replaced.items() if replacement.switched_ms is not None]
        wanted = [(name, p) for name in left if name in with_fence for p in present[name].wanted]
        ends = log_ends(self._brokers, wanted, leaders) if wanted else {}
        logs = self._offsets({name: topic.wanted for name, topic in present.items()}, leaders)
        partitions, records = {}, {}
        for name, topic in present.items():
            last = self._seen.get(topic.shape.topic_id, {})
            partitions[name] = {
                p: self._partition(last.get(p), log, ends.get((name, p))) for p, log in logs[name].items()
            }
            if topic.record is not None:
                kept = {p: last[p] for p in topic.wanted if p in last}
                self._seen[topic.shape.topic_id] = kept | partitions[name]
                keys = [(name, p) for p in topic.wanted]
                self._leaders[topic.shape.topic_id] = {key: leaders.get(key, NO_LEADER) for key in keys}
                records[name] = topic.record
        self._add_last_records({name: records[name] for name in left}, partitions, proved)
        partitions |= self._noted(records, self._with_seal_ends(records, partitions))
        listed_ms = self._clock.now_ms()
        counts = {name: range(topic.shape.partition_count) for name, topic in present.items() if topic.deciding}
        groups_of = self._groups(counts, records, partitions, rules, listed_ms)
        policies = self._cluster.cleanup_policies(name for name, topic in present.items() if topic.deciding)
        own_configs = self._cluster.own_configs(name for name, topic in present.items() if topic.is_unknown)
        facts: dict[str, TopicFacts | ClusterError] = {}
        for name, topic in present.items():
            configs = own_configs.get(name)
            if isinstance(configs, ClusterError):
                facts[name] = configs
                continue
            policy = policies.get(name, "delete")
            if isinstance(policy, ClusterError):
                facts[name] = policy
                continue
            of_topic = TopicFacts(
                name,
                topic.shape.topic_id,
                partition_count=topic.shape.partition_count,
                internal=topic.shape.internal,
                cleanup_policy=policy,
                partitions=partitions[name],
                listed_ms=listed_ms,
                fence=proved.get(name),
                replication_factor=topic.shape.replication_factor if topic.is_unknown else None,
                configs=configs,
            )
            facts[name] = groups_of.get(name, _NOT_LISTED).added_to(of_topic)
        return facts

    def _offsets(
        self, wanted: Mapping[str, Sequence[int]], leaders: Mapping[Partition, Leader]
    ) -> dict[str, dict[int, LogOffsets]]:
        logs: dict[str, dict[int, LogOffsets]] = {topic: {} for topic in wanted}
        partitions = [(topic, p) for topic, some in wanted.items() for p in some]
        for (topic, p), log in self._cluster.offsets(partitions, leaders).items():
            logs[topic][p] = log
        return logs

    def _groups(
        self,
        topics: Mapping[str, Iterable[int]],
        records: Mapping[str, TopicRecord],
        partitions: Mapping[str, Mapping[int, PartitionFacts]],
        rules: Sequence[GroupRule],
        now_ms: int,
        *,
        before_due: bool = False,
    ) -> dict[str, GroupsFound]:
        """Return the groups of ``topics`` (name -> partitions), with their commits checked by :func:`check_commits`.

        Passes and reports both call this method, so they agree on the records that a group has still to read.
        """
        if not topics:
            return {}
        by_name = [rule for rule in rules if rule.kind == REQUIRE and not rule.glob]
        also = {name: [rule.group for rule in by_name if rule.applies(name, now_ms)] for name in topics}
        changed = {name: record for name, record in records.items() if name in topics}
        for name, record in changed.items():
            if (evacuation := evacuation_of(record)) is not None:
                also[name].append(evacuation)
        found = find_groups(self._cluster, topics, also, self._stable_groups, mode_log=self._mode_log)
        seen = [CommitsSeen(record, partitions[name], found[name]) for name, record in changed.items()]
        checked = check_commits(self._conf, self._brokers, seen, self._clock, before_due)
        return found | dict(zip(changed, checked, strict=True))

    def close(self) -> None:
        """Close the consumer that searches for last records; the next pass begins unfinished searches again."""
        self._last_records.close()

    def _partition(self, last: PartitionFacts | None, log: LogOffsets, end: LogEnd | None = None) -> PartitionFacts:
        """Return a log's facts. A new leader epoch restarts the quiet time: the new leader's log may differ below the
        same end.

        Args:
            end: the end of the leader's own log, if known.
        """
        moved = last is not None and last.end_offset != log.end_offset
        since_ms = self._clock.now_ms()
        if last is not None and not moved and last.leader_epoch == log.leader_epoch:
            since_ms, moved = last.quiet_since_ms, last.moved
        log_end = end.offset if end is not None and end.leader_epoch == log.leader_epoch else None
        stable = log.last_stable_offset
        return PartitionFacts(log.log_start, log.end_offset, stable, log.leader_epoch, since_ms, moved, log_end=log_end)

    def _add_last_records(
        self,
        records: Mapping[str, TopicRecord],
        partitions: Mapping[str, dict[int, PartitionFacts]],
        proved: Mapping[str, FenceFacts],
    ) -> None:
        """Add the last record's position to partitions whose end may become a seal: all if the topic has no fence,
        otherwise those with a proved fence or an earlier seal."""
        wanted, before = {}, {}
        for name, record in records.items():
            fence = proved.get(name, FenceFacts())
            by_quiet = not record.replacing.has_fence
            for p, log in partitions[name].items():
                retired = record.retired[p]
                final = fence.proved.get(p) == log.leader_epoch and log.log_end == log.end_offset
                known = retired.seal_offset == log.end_offset and retired.read_up_to is not None
                if log.is_stable and not known and (final or retired.seal_offset is not None or by_quiet):
                    wanted[name, p] = log
                if (
                    retired.seal_offset is not None
                    and retired.read_up_to is not None
                    and retired.seal_leader_epoch == log.leader_epoch
                ):
                    before[name, p] = retired.seal_offset, retired.read_up_to
        ids = {name: record.topic_id for name, record in records.items()}
        for (name, p), offset in self._last_records.find(ids, wanted, before).items():
            partitions[name][p] = replace(partitions[name][p], read_up_to=offset)

    def _with_seal_ends(
        self, records: Mapping[str, TopicRecord], partitions: Mapping[str, Mapping[int, PartitionFacts]]
    ) -> dict[str, dict[int, PartitionFacts]]:
        """For a seal of an earlier leader epoch, add the end of that epoch in the leader's log. If the end is unknown,
        leave the partition out, as if its leader did not answer."""
        other: dict[Partition, list[int]] = {}
        for name, record in records.items():
            for p in record.retired.keys() & partitions[name].keys():
                epoch = record.retired[p].seal_leader_epoch
                if epoch is not None and epoch >= 0 and epoch != partitions[name][p].leader_epoch:
                    other[name, p] = [epoch]
        ends = {(topic, p): end for (topic, p, _), end in epoch_ends(self._brokers, other).items() if end >= 0}
        return {
            name: {
                p: replace(log, seal_epoch_end=ends[name, p]) if (name, p) in ends else log
                for p, log in partitions[name].items()
                if (name, p) not in other or (name, p) in ends
            }
            for name in records
        }

    def _noted(
        self, records: Mapping[str, TopicRecord], partitions: Mapping[str, Mapping[int, PartitionFacts]]
    ) -> dict[str, dict[int, PartitionFacts]]:
        """Add the leaders' facts about stragglers (records behind a seal) and open transactions."""
        stragglers: dict[Partition, int] = {}
        pending: set[Partition] = set()
        for name, record in records.items():
            for p in record.retired.keys() & partitions[name].keys():
                log, seal = partitions[name][p], record.retired[p].seal_offset
                if seal is not None and log.end_offset > seal:
                    stragglers[name, p] = max(seal, log.log_start)
                if not log.is_stable:
                    pending.add((name, p))
        wrote = writers(self._brokers, pending)
        batches = first_batches(self._brokers, stragglers)
        samples = sample_records(self._conf, stragglers, self._clock.monotonic_s)
        noted = {name: dict(logs) for name, logs in partitions.items()}
        for name, p in pending | stragglers.keys():
            key = name, p
            noted[name][p] = replace(
                noted[name][p], writers=wrote.get(key, ()), straggler=batches.get(key), samples=samples.get(key, ())
            )
        return noted

    def _gone(self, topics: Mapping[str, str]) -> dict[str, bool | ClusterError]:
        """Return topic id -> whether no broker has had the topic for :data:`GONE_AFTER_MS`; or an error if unknown.

        Args:
            topics: topic id -> name.
        """
        if not topics:
            return {}
        ids = list(topics)
        since_s = {i: self._missing_since_s.pop(i) for i in ids if i in self._missing_since_s}
        try:
            nodes = ids_of_each_broker(self._brokers, sorted(set(topics.values())))
        except ClusterError as error:  # the facts of other topics stay usable
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._cluster.reconnect()
            return dict.fromkeys(ids, error)
        now_s = self._clock.monotonic_s()  # not the wall clock, which may be corrected
        gone: dict[str, bool | ClusterError] = {}
        for topic_id, topic in topics.items():
            first_s = since_s.get(topic_id, now_s)
            silent = [node for node, named in nodes.items() if topic not in named]
            of_each = [named.get(topic) for named in nodes.values()]
            if silent:
                gone[topic_id] = ClusterError(f"broker {silent[0]} did not describe topic {topic!r}", topic=topic)
            elif any(other is not None and SnapshotTarget(topic, None, topic_id).is_of(other) for other in of_each):
                gone[topic_id] = False
            elif topic_id not in self._deleted and now_s - first_s < GONE_AFTER_MS / 1000:
                gone[topic_id] = False
                self._missing_since_s[topic_id] = first_s
            else:
                gone[topic_id] = True
                if topic_id.startswith(ANY_ID):  # not final: a topic of that name may be created later
                    continue
                self._deleted.add(topic_id)
                self._seen.pop(topic_id, None)
                self._leaders.pop(topic_id, None)
        return gone


def _absent(
    topic: str, shape: TopicShape | ClusterError | None, gone: bool | ClusterError, users: GroupsFound | None
) -> TopicFacts | ClusterError:
    """Return the facts of a topic that is absent, or is not the one to observe; ``users``: the groups that use the name
    if no topic has it."""
    if isinstance(shape, ClusterError):
        return shape
    if isinstance(gone, ClusterError):
        return gone
    if shape is None:
        return (users or GroupsFound()).added_to(TopicFacts(topic, None, gone=gone))
    return TopicFacts(topic, shape.topic_id, shape.partition_count, gone=gone)
