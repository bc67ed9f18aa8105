"""The numbers of partitions that the topics of a cluster need, and what changes would free. Pure.

A topic needs enough partitions to carry twice the load of its busiest hour, in bytes and in records. It also needs one
for each member of its largest group (members that hold partitions), and at least two. A topic that needs more than
three quarters of its partitions is left alone, because the gain is small and a change has its cost. A topic is also
left alone if a fact that may require more partitions is unknown.

Only a replacement frees replicas. A shrink saves work: consumers and groups have fewer partitions. A shrink is advised
only if brokers have no fence for a replacement (:mod:`modeaware.cluster.fence`). The count of a shrink divides the
present one, so that only keys of retired partitions move. Refusals come from :mod:`modeaware.lifecycle.objections`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, Literal

from modeaware.config import ControllerConfig
from modeaware.durations import duration_text
from modeaware.interim import interim_name
from modeaware.lifecycle.alias import is_new_topic
from modeaware.lifecycle.commands import DeletePartitionsCommand, Objection, ReplaceTopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.objections import objections
from modeaware.modelog.records import TopicRecord, replaced
from modeaware.modes import divides, format_ranges
from modeaware.plan.rates import DAY_MS, HOUR_MS, LogConfigs, Note, Rates, TopicLogs, Window, rates
from modeaware.printable import number

Action = Literal["replace", "shrink", "leave", "delete?"]
HOURS_A_MONTH = 730
HEADROOM = 2
LEAST = 2
LEFT_ABOVE = 0.75
SMALL_BYTES_PER_S = 1_000_000
_ORDER: Mapping[Action, int] = {"replace": 0, "shrink": 1, "delete?": 2, "leave": 3}
_VERSION = re.compile(r"(?s:(.*))-v(\d{1,6})")


@dataclass(frozen=True)
class Sizing:
    """The capacity of one partition, and its cost.

    Attributes:
        bytes_per_s, records_per_s: the load that one partition carries.
        most_on_broker: the most replicas that a broker should hold; None if there is no limit.
        price: the price of one partition for an hour; None if the user gave none.
    """

    bytes_per_s: float = 5 * 1024 * 1024
    records_per_s: float = 10_000
    most_on_broker: int | None = None
    price: float | None = None


@dataclass(frozen=True)
class ScannedTopic:
    """One topic, from the brokers' answers.

    Attributes:
        replicas: broker -> the number of the topic's replicas on it.
        record: the topic's record in the mode log; None if the topic was never changed, or the record is unknown.
        record_error: why the record is unknown.
    """

    facts: TopicFacts
    replicas: Mapping[int, int]
    logs: TopicLogs
    configs: LogConfigs = field(default_factory=LogConfigs)
    record: TopicRecord | None = None
    record_error: str | None = None

    @property
    def largest_group(self) -> tuple[int, str]:
        """The number of members that hold a partition, in the group with the most of them; and the group's name."""
        return max(((group.members.holding, name) for name, group in self.facts.groups.items()), default=(0, ""))


@dataclass(frozen=True)
class Fleet:
    """The results of a scan.

    Attributes:
        topics: the topics that were chosen for the plan.
        names: the names of all topics of the cluster.
        can_replace: whether the brokers have a fence for replacements.
        why_all_renamed: why no topic of the cluster can keep its name when it is replaced; None if topics can.
        replaced: the records of topics that are or were replaced.
        unseen: what the scan could not read.
    """

    topics: Sequence[ScannedTopic]
    window: Window
    names: Collection[str] = ()
    can_replace: bool = True
    why_all_renamed: str | None = None
    config: ControllerConfig = field(default_factory=ControllerConfig)
    replaced: tuple[TopicRecord, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicAdvice:
    """The advice about one topic.

    Attributes:
        topic: the name of the topic.
        partitions: the number of its partitions.
        to: the advised number of partitions; 0 if the topic may be deleted.
        do: replace, shrink, leave, or delete? (nothing was written in the window, and no group uses the topic).
        needs: the number of partitions that the rates and the groups need; for a shrink, rounded up to a divisor of
            ``partitions``.
        keep_name: whether the topic is to be replaced and can keep its name.
        new_topic: the name of the new topic, if the topic is to be replaced and cannot keep its name.
        why_renamed: why the topic cannot keep its name.
        frees: the replicas that the advice frees.
        rates: the rates at which the topic is written.
        retention_ms: the retention of the topic; -1 for no limit.
        members: the members that hold a partition, in the group with the most of them.
        groups: the groups that use the topic.
        blocks: the codes of the reasons why the change would be refused, as in ``modeaware plan TOPIC``.
        reason: the fact that decided.
        notes: why figures may be too high or too low.
    """

    json_also: ClassVar = ("topic", "partitions", "to", "keep_name", "frees", "retention_ms", "members", "groups")

    scanned: ScannedTopic = field(metadata={"json": None})
    do: Action
    needs: int
    new_topic: str | None
    rates: Rates
    blocks: tuple[str, ...]
    reason: str
    notes: tuple[Note, ...] = ()
    why_renamed: str | None = None

    @property
    def topic(self) -> str:
        return self.scanned.facts.topic

    @property
    def partitions(self) -> int:
        return self.scanned.facts.partition_count

    @property
    def to(self) -> int:
        if self.do == "leave":
            return self.partitions
        return 0 if self.do == "delete?" else self.needs

    @property
    def keep_name(self) -> bool:
        return self.do == "replace" and self.new_topic is None

    @property
    def frees(self) -> int:
        return self.replicas * (self.partitions - self.to) // self.partitions if self.do != "shrink" else 0

    @property
    def retention_ms(self) -> int | None:
        return self.scanned.configs.retention_ms

    @property
    def members(self) -> int:
        return self.scanned.largest_group[0]

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted(self.scanned.facts.groups))

    @property
    def replicas(self) -> int:
        return sum(self.scanned.replicas.values())

    @property
    def changes(self) -> bool:
        return self.do in ("replace", "shrink")

    @property
    def wants_hours(self) -> bool:
        """Whether the hours are worth reading: if they show a lower peak, the advised count changes."""
        return self.rates.is_bound and not self.blocks and self.needs > max(self.members, LEAST)


@dataclass(frozen=True)
class BrokerLoad:
    """The replicas on one broker, before and after all replacements; new replicas are assumed to spread like old ones.

    Attributes:
        above: whether the broker would exceed ``--max-partitions-per-broker`` even after all replacements.
    """

    broker: int
    before: int
    after: int
    above: bool = False


@dataclass(frozen=True)
class FleetPlan:
    """The advice about the topics of a cluster.

    Attributes:
        window_ms: the length of the time whose rates were read.
        topics: the topics, ordered by advice: replace, shrink, delete?, leave. With the same advice, the topics that
            free the most come first.
        partitions, replicas: the sums over all topics.
        frees: the replicas that all replacements free.
        frees_partitions: the partitions that all replacements free.
        deletable: the replicas of topics that may be deleted; not part of ``frees``.
        saved_a_month: what ``frees_partitions`` cost a month, by ``--price-per-partition-hour``.
        by_members: the number of topics below 1 MB/s with more partitions than their largest group has members.
        brokers: the replicas of each broker.
        curve: the replicas that the first 1, 2, 3, ... replacements free.
        unseen: what the scan could not read.
    """

    json_also: ClassVar = (
        *("partitions", "replicas", "frees", "frees_partitions", "deletable", "saved_a_month", "by_members", "curve"),
    )

    created_ms: int
    window_ms: int
    topics: tuple[TopicAdvice, ...]
    brokers: tuple[BrokerLoad, ...]
    price: float | None = field(default=None, metadata={"json": None})
    unseen: tuple[str, ...] = ()

    @property
    def partitions(self) -> int:
        return sum(topic.partitions for topic in self.topics)

    @property
    def replicas(self) -> int:
        return sum(topic.replicas for topic in self.topics)

    @property
    def frees(self) -> int:
        return sum(topic.frees for topic in self.advised("replace"))

    @property
    def frees_partitions(self) -> int:
        return sum(topic.partitions - topic.to for topic in self.advised("replace"))

    @property
    def deletable(self) -> int:
        return sum(topic.frees for topic in self.advised("delete?"))

    @property
    def saved_a_month(self) -> float | None:
        return None if self.price is None else self.frees_partitions * self.price * HOURS_A_MONTH

    @property
    def by_members(self) -> int:
        peaks = ((topic, topic.rates.peak_bytes_per_s) for topic in self.topics)
        small = (topic for topic, peak in peaks if peak is not None and peak < SMALL_BYTES_PER_S)
        return sum(topic.partitions > max(topic.members, 1) for topic in small)

    @property
    def curve(self) -> tuple[int, ...]:
        return tuple(accumulate(topic.frees for topic in self.advised("replace")))

    def advised(self, do: Action) -> list[TopicAdvice]:
        """Return the topics with this advice."""
        return [topic for topic in self.topics if topic.do == do]


def make_fleet_plan(fleet: Fleet, sizing: Sizing) -> FleetPlan:
    """Return the advice about the topics of a fleet."""
    names = set(fleet.names)
    rows = []
    for topic in sorted(fleet.topics, key=lambda topic: topic.facts.topic):
        row = advise(topic, fleet, sizing, names)
        names |= {row.new_topic} if row.new_topic is not None else set()
        rows.append(row)
    rows.sort(key=lambda row: (_ORDER[row.do], -row.frees, row.to - row.partitions, row.topic))
    before, after = Counter[int](), defaultdict[int, float](float)
    for row in rows:
        for broker, n in row.scanned.replicas.items():
            before[broker] += n
            after[broker] += n * row.to / row.partitions if row.do == "replace" else n
    loads = ((broker, n, round(after[broker])) for broker, n in sorted(before.items()))
    most = sizing.most_on_broker
    brokers = tuple(BrokerLoad(broker, n, left, most is not None and left > most) for broker, n, left in loads)
    return FleetPlan(fleet.window.now_ms, fleet.window.length_ms, tuple(rows), brokers, sizing.price, fleet.unseen)


def advise(topic: ScannedTopic, fleet: Fleet, sizing: Sizing, names: Collection[str] = ()) -> TopicAdvice:
    """Return the advice about one topic.

    Args:
        names: names that are taken, so that a new topic cannot have them.
    """
    facts, now = topic.facts, topic.facts.partition_count
    rate = rates(topic.logs, topic.configs, fleet.window)
    floor, reason = max(_floors(topic, rate, sizing), key=lambda floor: floor[0])
    needs = min(floor, now)
    renamed = new_name(facts.topic, names)
    command: ReplaceTopicCommand | DeletePartitionsCommand = ReplaceTopicCommand(facts.topic, renamed, needs)
    do: Action = "replace"
    if not fleet.can_replace:
        do, needs = "shrink", next(n for n in range(needs, now + 1) if divides(n, now))
        command = DeletePartitionsCommand(facts.topic, needs)
    refused = [*_refusals(command, topic, fleet)] if needs < now else []
    if _is_unused(topic, rate) and not _is_being_filled(topic, fleet):
        do, reason = "delete?", f"no record for {duration_text(fleet.window.length_ms)}, and no group uses it"
    elif (kept := _why_left(topic, rate, needs, refused)) is not None:
        do, reason = "leave", kept
    notes = (*rate.notes, *_unknown(topic))
    blocks = tuple(each.kind for each in refused)
    why_renamed = _why_renamed(topic, needs, fleet) if do == "replace" else None
    new_topic = None if why_renamed is None else renamed
    return TopicAdvice(topic, do, needs, new_topic, rate, blocks, reason, notes, why_renamed)


def _why_renamed(topic: ScannedTopic, needs: int, fleet: Fleet) -> str | None:
    """Return why a topic that is to be replaced cannot keep its name; None if it can."""
    interim = interim_name(topic.facts.topic, topic.facts.topic_id or "")
    command = ReplaceTopicCommand(topic.facts.topic, interim, needs, keep_name=True)
    return fleet.why_all_renamed or next((each.text for each in _refusals(command, topic, fleet)), None)


def _refusals(
    command: ReplaceTopicCommand | DeletePartitionsCommand, topic: ScannedTopic, fleet: Fleet
) -> Iterator[Objection]:
    return objections(command, topic.record, topic.facts, fleet.config, fleet.window.now_ms, fleet.replaced)


def _floors(topic: ScannedTopic, rate: Rates, sizing: Sizing) -> Iterator[tuple[int, str]]:
    """Yield, with each reason, the least number of partitions that a topic needs. The greatest number counts."""

    def filled(per_s: float, of_one: float) -> int:
        return math.ceil(HEADROOM * per_s / of_one)

    members, group = topic.largest_group
    peak = "at most, in its busiest hour" if rate.is_bound else "in its busiest hour"
    records, size = rate.peak_records_per_s, rate.peak_bytes_per_s or 0.0
    yield LEAST, f"{LEAST} are enough"
    yield members, f"{members} members of group {group!r} hold partitions"
    yield filled(records, sizing.records_per_s), f"{number(records)} records/s {peak}"
    yield filled(size, sizing.bytes_per_s), f"{size / 1e6:.1f} MB/s {peak}"


def _why_left(topic: ScannedTopic, rate: Rates, needs: int, refused: Sequence[Objection]) -> str | None:
    """Return why a topic is left alone; None if the topic is to be changed."""
    count = topic.facts.partition_count
    if topic.logs.unread:
        return f"no leader answers for partitions {format_ranges(topic.logs.unread)}"
    if topic.record_error is not None:
        return topic.record_error
    if refused:
        return refused[0].text
    if needs > LEFT_ABOVE * count:
        return f"it needs {needs} of its {count} partitions"
    if rate.seen_ms < DAY_MS:
        return f"its logs cover only {rate.seen_ms / HOUR_MS:.0f} of the 24 hours of a day, so its peak may be missing"
    if rate.peak_bytes_per_s is None:
        return "the size of its records is unknown"
    return None


def _is_unused(topic: ScannedTopic, rate: Rates) -> bool:
    """Return whether no group uses a topic, and nothing was written in the part of the window that its logs cover."""
    facts, is_plain = topic.facts, topic.configs.cleanup_policy == "delete"
    used = facts.internal or facts.groups or facts.any_doubt or facts.stateful_owner
    unknown = topic.record or topic.record_error or topic.logs.unread
    return rate.written == 0 and rate.seen_ms > DAY_MS and is_plain and not (used or unknown)


def _is_being_filled(topic: ScannedTopic, fleet: Fleet) -> bool:
    """Return whether a topic is the new or interim topic of a change in progress. It may be empty until the switch."""
    in_progress = [
        record
        for record, replacement in replaced(fleet.replaced)
        if replacement.undone_ms is None and (record.is_first_half or not record.is_alias)
    ]
    return is_new_topic(topic.facts.topic, topic.facts.topic_id or "", in_progress)


def _unknown(topic: ScannedTopic) -> Iterator[Note]:
    if (doubt := topic.facts.any_doubt) is not None:
        yield Note("groups-unknown", f"there may be more groups: {doubt.detail}")
    if topic.configs.cleanup_policy is None:
        yield Note("configs-unknown", "it is unknown whether the topic is compacted: DESCRIBE_CONFIGS is missing")


def new_name(topic: str, taken: Collection[str]) -> str:
    """Return a name for the topic that replaces another: ``orders-v2``, then ``orders-v3``."""
    versioned = _VERSION.fullmatch(topic)
    stem, version = (topic, 1) if versioned is None else (versioned[1], int(versioned[2]))
    while (name := f"{stem}-v{version + 1}") in taken:
        version += 1
    return name


def batches(plan: FleetPlan, limit: int | None = None) -> dict[str, list[TopicAdvice]]:
    """Return the topics to change, in batches, the safest first; at most ``limit`` topics, those that free the most."""
    by_title: dict[str, list[TopicAdvice]] = {
        "not written in the window, no group": [],
        "not written in the window": [],
        "written, no members": [],
        "with members, the least bytes/s first": [],
    }
    unused, unwritten, idle, live = by_title.values()
    rows = [row for row in plan.topics if row.changes][:limit]
    for row in sorted(rows, key=lambda row: (row.rates.peak_bytes_per_s or 0.0, row.topic)):
        if row.rates.written == 0:
            (unwritten if row.groups else unused).append(row)
        else:
            (live if row.members else idle).append(row)
    return {title: some for title, some in by_title.items() if some}
