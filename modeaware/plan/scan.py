"""The brokers' facts about all topics of a cluster, in as few requests as possible.

One request covers at most :data:`PARTITIONS_A_REQUEST` partitions of one leader, each at one point in time. The point
may differ between topics of a request. So the number of requests grows with brokers and points in time, and hardly with
topics. For example, 46 requests to a broker read the hours of the two busiest days of all topics on it (23 ends of
hours a day), if it leads no more partitions than one request covers. The hours of a topic are read if they can change
its advice, or if its change would free much.

If the leader of a partition does not answer, the partition is not requested again, and :mod:`modeaware.plan.fleet`
leaves the topic alone. Other facts that could not be read are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from modeaware.admin.replacements import automatic_creation, creating_broker
from modeaware.cluster.cluster import TopicShape, describe_all
from modeaware.cluster.fence import has_fence
from modeaware.cluster.group_listing import ask_in_batches
from modeaware.cluster.groups import GroupsFound, find_groups
from modeaware.cluster.metadata import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    MAX_TIMESTAMP,
    TOPIC_RESOURCE,
    LeaderRequests,
    Led,
    Partition,
    configs_request,
    read_configs,
)
from modeaware.cluster.stragglers import read_batches
from modeaware.errors import ClusterError, ErrorCode, ModeSourceError, RecordError, RequestRefused
from modeaware.lifecycle.facts import GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.plan.fleet import Fleet, ScannedTopic, Sizing, make_fleet_plan
from modeaware.plan.rates import BUSIEST_DAYS, HOURS, LogConfigs, TopicLogs, Window, peak_batches, rates, unread_logs
from modeaware.reports.session import ModeLog, Session
from modeaware.wire.brokers import BULK_TIMEOUT_S, Ask, Brokers
from modeaware.wire.offsets_for_times import LOCAL_VERSION, VERSION, OffsetsForTimes
from modeaware.wire.requests import DescribeLogDirsRequest

PARTITIONS_A_REQUEST = 5_000
TOPICS_A_REQUEST = 500
HOURS_OF = 200
"""The hours of this many topics are read in any case: the topics whose changes free the most replicas."""
SAMPLED_PARTITIONS, SAMPLED_AT_ONCE = 2, 4
"""The number of partitions to sample of each topic, and in one request. Brokers return a mebibyte per partition."""
_CONFIGS = ("cleanup.policy", "retention.ms", "message.timestamp.type", "compression.type", "remote.storage.enable")
_NOT_KNOWN = LogConfigs(None, None, None, None, None)
_ANSWERED = PartitionFacts(0, 0, 0, 0, 0)
_T = TypeVar("_T")


def scan(session: Session, chosen: Callable[[str], bool], days: int, sizing: Sizing, *, sample: bool = False) -> Fleet:
    """Read the facts about the topics that ``chosen`` accepts, over the last ``days`` days. Changes nothing.

    Args:
        sizing: the capacity of partitions, which decides whether hours can change a topic's advice.
        sample: whether to read batches of the busiest hour, too, which needs READ on the topics.

    Raises:
        ClusterError: no broker answers, or brokers are older than Kafka 3.0.
    """
    brokers = session.cluster.brokers
    all_shapes = describe_all(brokers)
    shapes = {name: shape for name, shape in all_shapes.items() if chosen(name) and shape.partition_count}
    scanner = _Scanner(session, shapes, Window(session.clock.now_ms(), days))
    scanner.read_sizes(all_shapes.keys())  # first: a deletion meanwhile then makes the mean record size too large
    scanner.read_logs()
    topics = scanner.topics()
    log = scanner.mode_log()
    if log is not None:
        topics = [_with_record(topic, log) for topic in topics]
    replaced = () if log is None else log.replaced
    can_replace = has_fence(brokers)
    renamed = _why_all_renamed(brokers) if can_replace else None
    fleet = Fleet(topics, scanner.window, all_shapes.keys(), can_replace, renamed, session.controller, replaced)
    rows = [
        row
        for rank, row in enumerate(make_fleet_plan(fleet, sizing).topics)
        if row.rates.busiest_days and (row.wants_hours or (rank < HOURS_OF and row.changes))
    ]
    scanner.read_hours({row.topic: row.rates.busiest_days for row in rows})
    if sample:
        with_hours = {row.topic: rates(row.scanned.logs, row.scanned.configs, fleet.window) for row in rows}
        scanner.sample({name: rate.busiest_hour for name, rate in with_hours.items() if rate.busiest_hour is not None})
    unread = [len(topic.logs.unread) for topic in topics if topic.logs.unread]
    if unread:
        scanner.unseen.append(f"Partitions whose leader does not answer: {sum(unread)}, of {len(unread)} topics.")
    return replace(fleet, unseen=tuple(scanner.unseen))


def _why_all_renamed(brokers: Brokers) -> str | None:
    """Return why no topic of the cluster can keep its name, or that this is unknown; None if topics can."""
    try:
        return automatic_creation(partial(creating_broker, brokers))
    except (ClusterError, RequestRefused) as error:
        return f"it is unknown whether brokers create topics automatically: {error}"


def _with_record(topic: ScannedTopic, log: ModeLog) -> ScannedTopic:
    try:
        return replace(topic, record=log.record(topic.facts.topic, topic.facts.topic_id or ""))
    except RecordError as error:
        return replace(topic, record_error=str(error))


class _Scanner:
    """Reads the brokers' facts about topics with these shapes."""

    def __init__(self, session: Session, shapes: Mapping[str, TopicShape], window: Window) -> None:
        self._session = session
        self._brokers = session.cluster.brokers
        self._shapes = shapes
        self._leaders = {(name, p): leader for name, of in shapes.items() for p, leader in of.leaders.items()}
        self._requests = LeaderRequests(self._brokers, self._leaders)
        self._logs = {name: unread_logs(shape.partition_count) for name, shape in shapes.items()}
        self.window = window
        self.unseen: list[str] = []

    # Offsets

    def read_logs(self) -> None:
        """Read the ends and starts of all logs, and their offsets at the points in time of the window."""
        logs, everything = self._logs, list(self._leaders)
        for name, p, answer in self._offsets(everything, dict.fromkeys(logs, LATEST)):
            logs[name].ends[p] = answer.offset
        answered = [(name, p) for name, p in everything if logs[name].ends[p] >= 0]
        for name, p, answer in self._offsets(answered, dict.fromkeys(logs, EARLIEST)):
            logs[name].starts[p] = logs[name].at_start[p] = min(answer.offset, logs[name].ends[p])
        start_ms = self.window.points_ms[0]
        for name, p, answer in self._offsets(self._filled(logs), dict.fromkeys(logs, start_ms)):
            logs[name].at_start[p], logs[name].first_ms[p] = _within(logs[name], p, answer.offset), answer.timestamp
        for name, _, answer in self._offsets(self._filled(logs), dict.fromkeys(logs, MAX_TIMESTAMP)):
            logs[name].newest_ms = max(logs[name].newest_ms, answer.timestamp)
        reached = [self._reached(dict.fromkeys(logs, time_ms)) for time_ms in self.window.points_ms[1:]]
        for name, topic_logs in logs.items():
            topic_logs.reached = [sum(topic_logs.at_start), *(point[name] for point in reached)]

    def read_hours(self, days: Mapping[str, Sequence[int]]) -> None:
        """Read the offsets of logs at the ends of the hours of ``days`` (topic -> its days)."""
        for nth in range(BUSIEST_DAYS):
            day_of = {name: some[nth] for name, some in days.items() if nth < len(some)}
            hours = [
                self._reached({name: self.window.hour_ms(day * HOURS + hour) for name, day in day_of.items()})
                for hour in range(1, HOURS)
            ]
            for name, day in day_of.items():
                self._logs[name].hours = {**self._logs[name].hours, day: [reached[name] for reached in hours]}

    def _reached(self, times_ms: Mapping[str, int]) -> dict[str, int]:
        """Return topic -> the sum over its partitions of the first offset at or after the topic's time."""
        partitions = self._filled(times_ms)
        sums = {name: sum(max(end, 0) for end in self._logs[name].ends) for name in times_ms}
        for name, p, answer in self._offsets(partitions, times_ms):
            sums[name] += _within(self._logs[name], p, answer.offset) - self._logs[name].ends[p]
        return sums

    def _filled(self, names: Iterable[str]) -> list[Partition]:
        """Return the partitions that have records and a leader that answers."""
        logs = ((name, self._logs[name]) for name in names)
        return [(name, p) for name, log in logs for p, end in enumerate(log.ends) if end > log.starts[p]]

    def _offsets(self, partitions: Iterable[Partition], times_ms: Mapping[str, int]) -> Iterator[tuple[str, int, Any]]:
        """Yield each partition with its first record at or after its topic's time; the offset is -1 if there is none.

        A partition whose leader does not answer is omitted. Its log end is set to -1, so that later calls omit it, too.
        """
        version = LOCAL_VERSION if EARLIEST_LOCAL in times_ms.values() else VERSION
        led: dict[tuple[int, str], list[Partition]] = {}
        again: list[Partition] = []
        for key in partitions:
            node, _ = self._leaders[key]
            (led.setdefault((node, ""), []) if node >= 0 else again).append(key)
        for _, some, answer in ask_in_batches(
            self._brokers, led, PARTITIONS_A_REQUEST, lambda _, some: OffsetsForTimes(some, times_ms, version)
        ):
            if not isinstance(answer, ClusterError):
                for topic in answer.topics:
                    for partition in topic.partitions:
                        if partition.error_code:
                            again.append((topic.name, partition.partition_index))
                        else:
                            yield topic.name, partition.partition_index, partition
            elif answer.code is ErrorCode.UNSUPPORTED_VERSION:
                raise answer
            else:
                again += some

        def request(led: Led) -> OffsetsForTimes:
            some = [(name, p) for name, partitions in led.items() for p in partitions]
            return OffsetsForTimes(some, times_ms, version)

        for (name, p), answer in self._requests.ask(again, "list the offsets of", request).items():
            if isinstance(answer, ClusterError):
                self._logs[name].ends[p] = -1
            else:
                yield name, p, answer

    def _read_local_starts(self, configs: Mapping[str, LogConfigs]) -> None:
        """Read the starts of the local parts of logs, for topics that are or may be tiered: sizes cover only these
        parts. If the start in a tiered log is unknown, so is the size."""
        tiered = {name: of_topic.tiered for name, of_topic in configs.items() if of_topic.tiered is not False}
        partitions = self._filled(tiered)
        found: dict[Partition, int] = {}
        try:
            found.update(
                ((name, p), answer.offset)
                for name, p, answer in self._offsets(partitions, dict.fromkeys(tiered, EARLIEST_LOCAL))
            )
        except ClusterError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:  # such a broker tiers no logs
                raise
        for name, p in partitions:
            if (name, p) in found:
                self._logs[name].local[p] = _within(self._logs[name], p, found[name, p])
            elif tiered[name]:
                self._logs[name].sizes[p] = -1

    # Sizes, configs, groups and batches

    def read_sizes(self, names: Iterable[str]) -> None:
        """Read the bytes of each partition on its leader.

        Args:
            names: all topics that the user may see. Other topics in the responses are counted as unseen.
        """
        hidden: set[str] = set()
        for node in self._brokers.node_ids():  # one at a time, because a response has all partitions of a broker
            (answer,) = self._brokers.ask_each([Ask(node, DescribeLogDirsRequest(topics=None))], BULK_TIMEOUT_S)
            if isinstance(answer, ClusterError) or not answer.results:
                why = answer if isinstance(answer, ClusterError) else "the right to DESCRIBE the cluster is missing"
                self.unseen.append(f"Sizes on broker {node}: {why}.")
                continue
            for topic in (topic for directory in answer.results for topic in directory.topics):
                hidden.add(topic.name)
                for p in topic.partitions:
                    leader, _ = self._leaders.get((topic.name, p.partition_index), (-1, -1))
                    if leader == node and not p.is_future_key:
                        self._logs[topic.name].sizes[p.partition_index] = p.partition_size
        if hidden := hidden - {*names, "__cluster_metadata"}:
            self.unseen.append(f"Topics on the brokers that this user may not DESCRIBE: {len(hidden)}.")

    def topics(self) -> list[ScannedTopic]:
        """Return the topics with their configs and groups, and without their records in the mode log."""
        configs, groups = dict.fromkeys(self._shapes, _NOT_KNOWN) | self._configs(), self._groups()
        self._read_local_starts(configs)
        topics = []
        for name, shape in self._shapes.items():
            logs, users, of_topic = self._logs[name], groups.get(name, GroupsFound()), configs[name]
            facts = TopicFacts(
                name,
                shape.topic_id,
                partition_count=shape.partition_count,
                internal=shape.internal,
                cleanup_policy=of_topic.cleanup_policy or "delete",
                partitions={p: _ANSWERED for p, end in enumerate(logs.ends) if end >= 0},
            )
            topics.append(ScannedTopic(users.added_to(facts), shape.replicas, logs, of_topic))
        return topics

    def _configs(self) -> dict[str, LogConfigs]:
        log_configs: dict[str, LogConfigs] = {}
        refused = Counter[str]()
        for names in _slices([*self._shapes], TOPICS_A_REQUEST):
            answer = read_configs(self._brokers.ask(configs_request(TOPIC_RESOURCE, names, *_CONFIGS)))
            for name, configs in answer.items():
                if isinstance(configs, ClusterError):
                    refused[configs.code.name if configs.code is not None else str(configs)] += 1
                else:
                    values = {config.name: config.value for config in configs}
                    policy, retention, timestamps, compression, tiered = (values.get(key) for key in _CONFIGS)
                    retention_ms = None if retention is None else int(retention)
                    log_configs[name] = LogConfigs(policy, retention_ms, timestamps, compression, tiered == "true")
        self.unseen += [f"The configs of {n} topics: {why}." for why, n in refused.items()]
        return log_configs

    def _groups(self) -> dict[str, GroupsFound]:
        wanted = {name: range(shape.partition_count) for name, shape in self._shapes.items() if not shape.internal}
        try:
            users = find_groups(self._session.cluster, wanted, mode_log=self._session.config.mode_log_topic)
        except ClusterError as error:
            users = dict.fromkeys(wanted, GroupsFound(doubt=GroupsDoubt(str(error))))
        doubts = {groups.doubt.detail for groups in users.values() if groups.doubt is not None}
        self.unseen += [f"All groups: {why}." for why in sorted(doubts)]
        return users

    def mode_log(self) -> ModeLog | None:
        """Return the mode log; None if it cannot be read."""
        try:
            return self._session.read_log()
        except (ModeSourceError, RecordError) as error:
            self.unseen.append(f"Whether topics are being changed: {error}.")
            return None

    def sample(self, hours: Mapping[str, int]) -> None:
        """Read batches of the partitions that have the most bytes in their topic's busiest hour.

        Args:
            hours: topic -> its busiest hour, counted from the start of the window.
        """
        starts, ends = (self._hour_edges({name: hour + after for name, hour in hours.items()}) for after in (0, 1))
        for name, p in starts.keys() & ends.keys():
            self._logs[name].peak_offsets[p] = ends[name, p] - starts[name, p]
        chosen: dict[str, list[int]] = {}
        for name in hours:
            sizes = sorted((-size, p) for p, size in self._logs[name].peak_sizes.items() if size)
            if sizes:
                chosen[name] = [p for _, p in sizes[:SAMPLED_PARTITIONS]]
        for keys in _slices([(name, p) for name, some in chosen.items() for p in some], SAMPLED_AT_ONCE):
            for (name, p), read in read_batches(self._requests, {key: starts[key] for key in keys}).items():
                if (batches := peak_batches(read, ends[name, p])) is not None:
                    self._logs[name].batches[p] = batches
        if missing := sum(not self._logs[name].batches for name in chosen):
            self.unseen.append(f"Batches of {missing} topics: none was read (READ on the topic is needed).")

    def _hour_edges(self, hours: Mapping[str, int]) -> dict[Partition, int]:
        """Return the first offset of each partition at or after the start of its topic's hour."""
        times_ms = {name: self.window.hour_ms(hour) for name, hour in hours.items()}
        answers = self._offsets(self._filled(hours), times_ms)
        return {(name, p): _within(self._logs[name], p, answer.offset) for name, p, answer in answers}


def _within(logs: TopicLogs, p: int, offset: int) -> int:
    """Return an offset of a response, limited to the log; -1 (no such record) becomes the log end."""
    return min(max(offset, logs.starts[p]), logs.ends[p]) if offset >= 0 else logs.ends[p]


def _slices(items: Sequence[_T], length: int) -> Iterator[Sequence[_T]]:
    return (items[at : at + length] for at in range(0, len(items), length))
