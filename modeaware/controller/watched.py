"""What a controller lets others see of itself: immutable, so that no other thread ever touches the engine's state."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from modeaware.controller.status import Role
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.phases import partition_phase
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import ClaimRecord, RetiredPartition, TopicRecord

CHECK, COMMAND, MODE_LOG = "check", "command", "mode-log"
OPERATIONS = (CHECK, COMMAND, "CommitOffsets", "CreatePartitions", "DeleteRecords", MODE_LOG)
"""What errors are counted by: looks at topics, commands (not refusals), each kind of effect, claiming the log again."""
PACE_MS = 600_000
"""Over how long the pace of groups is told."""


@dataclass(frozen=True)
class TopicSeen:
    """One topic, as the controller's thread last saw it.

    Attributes:
        record: its record in force.
        facts: what the last look found; None before the first one.
        looked_ms: when that was (wall clock, ms since the epoch).
        trouble: why the last look failed; None: it did not.
        blocked_since: partition -> since when something has held it up in the phase it is in (wall clock, ms), be it by
            one reason after another: a group that rebalances makes the list of groups uncertain every now and then.
            What is waited for as it was asked is counted apart. Who takes over counts from the record's time.
        stragglers: how many broken seals this controller has seen.
        known_ms: since when this controller has to look at it: since its claim, or the topic's first record.
        earlier: a look some minutes before the last one, by its time: what was read since tells how fast groups are.
    """

    record: TopicRecord
    facts: TopicFacts | None = None
    looked_ms: int | None = None
    trouble: str | None = None
    blocked_since: Mapping[int, int] = field(default_factory=dict, hash=False)
    stragglers: int = 0
    known_ms: int | None = None
    earlier: tuple[int, TopicFacts] | None = None


@dataclass(frozen=True)
class Snapshot:
    """A controller at one moment.

    Attributes:
        taken_ms: when (wall clock, ms since the epoch).
        controller_id, role, epoch: as of :class:`~modeaware.controller.daemon.Controller`.
        address: where its endpoint listens; None: it has none.
        claim: the last claim that it knows; while it is active, its own.
        loop_age_s: how long ago its thread last went round; None: it has not begun to.
        contact_age_s: how long ago it last was sure of its place in the election (active), or read the mode log to its
            end (standing by); None: not yet.
        stopped_by: the failure that stopped it.
        topics: every topic with a record, while it is active; by name.
        rules, ignored_groups: whom drains wait for, and do not.
        errors: operation (one of :data:`OPERATIONS`) -> how often it has failed since the process began.
        takeovers: how often it has become active since then.
    """

    taken_ms: int
    controller_id: str
    role: Role
    epoch: int | None = None
    address: str | None = None
    claim: ClaimRecord | None = None
    loop_age_s: float | None = None
    contact_age_s: float | None = None
    stopped_by: str | None = None
    topics: tuple[TopicSeen, ...] = ()
    rules: tuple[GroupRule, ...] = ()
    ignored_groups: tuple[str, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict, hash=False)
    takeovers: int = 0


@dataclass(frozen=True)
class Seen:
    """What :class:`Watched` holds; see :class:`Snapshot`."""

    topics: tuple[TopicSeen, ...]
    rules: tuple[GroupRule, ...]
    errors: Mapping[str, int]


class Watched:
    """Kept by the controller's thread, at moments when it waits for brokers anyway; read by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, TopicSeen] = {}
        self._rules: tuple[GroupRule, ...] = ()
        self._errors: Counter[str] = Counter(dict.fromkeys(OPERATIONS, 0))

    def claimed(self, records: Iterable[TopicRecord], rules: tuple[GroupRule, ...], now_ms: int) -> None:
        """The mode log has just been claimed: this is all that is on it. Stragglers are counted on."""
        with self._lock:
            before, self._topics = self._topics, {}
            for record in records:
                seen = before.get(record.topic_id)
                since = {p: record.changed_ms for p, retired in record.retired.items() if retired.reason is not None}
                stragglers = seen.stragglers if seen is not None else 0
                self._topics[record.topic_id] = TopicSeen(
                    record, known_ms=now_ms, blocked_since=since, stragglers=stragglers
                )
            self._rules = rules

    def appended(self, record: TopicRecord, now_ms: int) -> None:
        """A record is in force."""
        with self._lock:
            seen = self._topics.get(record.topic_id)
            self._topics[record.topic_id] = _with_record(seen or TopicSeen(record, known_ms=now_ms), record, now_ms)

    def looked(self, topic_id: str, facts: TopicFacts, now_ms: int) -> None:
        """A look at a topic found this."""
        with self._lock:
            if (seen := self._topics.get(topic_id)) is not None:
                earlier = _earlier(seen, now_ms)
                self._topics[topic_id] = replace(seen, facts=facts, looked_ms=now_ms, earlier=earlier, trouble=None)

    def not_looked(self, topic_id: str, trouble: str) -> None:
        """A look at a topic failed."""
        with self._lock:
            self._errors[CHECK] += 1
            if (seen := self._topics.get(topic_id)) is not None:
                self._topics[topic_id] = replace(seen, trouble=trouble)

    def removed(self, topic_id: str) -> None:
        """The topic is gone, and its record with it."""
        with self._lock:
            self._topics.pop(topic_id, None)

    def ruled(self, rules: tuple[GroupRule, ...]) -> None:
        """The operator's rules about groups are these now."""
        with self._lock:
            self._rules = rules

    def failed(self, operation: str) -> None:
        """One of :data:`OPERATIONS` has failed."""
        with self._lock:
            self._errors[operation] += 1

    def seen(self) -> Seen:
        """All of it, as it is now."""
        with self._lock:
            topics, errors = list(self._topics.values()), dict(self._errors)
            rules = self._rules
        return Seen(tuple(sorted(topics, key=lambda seen: seen.record.topic)), rules, errors)


def reason_code(reason: str) -> str:
    """A reason without the group that it may name."""
    return reason.partition(":")[0]


def _earlier(seen: TopicSeen, now_ms: int) -> tuple[int, TopicFacts] | None:
    """What the next look is compared with. It stays for some time, and then the last look takes its place."""
    if seen.facts is None or seen.looked_ms is None:
        return None
    if seen.earlier is None or now_ms - seen.earlier[0] > PACE_MS:
        return seen.looked_ms, seen.facts
    return seen.earlier


def _hold(record: TopicRecord, partition: int, retired: RetiredPartition) -> tuple[str, bool] | None:
    """What makes one hold-up of a partition: its phase, and whether it waits as it was asked to. None: nothing does."""
    if retired.reason is None:
        return None
    return partition_phase(record.modes[partition], retired), reason_code(retired.reason) in reasons.AS_ASKED


def _with_record(seen: TopicSeen, record: TopicRecord, now_ms: int) -> TopicSeen:
    since, late = {}, 0
    for partition, retired in record.retired.items():
        before = seen.record.retired.get(partition)
        if before is not None:
            late += max(retired.stragglers - before.stragglers, 0)
        if retired.reason is not None:
            same = before is not None and _hold(seen.record, partition, before) == _hold(record, partition, retired)
            since[partition] = seen.blocked_since.get(partition, now_ms) if same else now_ms
    return replace(seen, record=record, blocked_since=since, stragglers=seen.stragglers + late)
