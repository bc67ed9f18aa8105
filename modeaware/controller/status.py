"""What a controller shows: its role, an immutable snapshot for metrics and pages, and the fields of its log records.

The controller's thread notes in :class:`Watched` what it observes. Other threads get immutable snapshots, so they never
touch the state of the controller's thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from modeaware.callouts import InnerLock
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Requirement, requirement_of
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.progress import GroupProgress, progress_of
from modeaware.lifecycle.report import TopicReport, report_topic
from modeaware.lifecycle.state import held_up, in_progress, partition_phase, topic_phase
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.modes import format_ranges
from modeaware.topic_view import Moved

CHECK, COMMAND, MODE_LOG = "check", "command", "mode-log"
EFFECTS = (
    "CommitOffsets",
    "CreatePartitions",
    "CreateTopic",
    "DeleteOldTopic",
    "DeleteRecords",
    "DeleteTopic",
    "FenceTopic",
    "RemoveConfigs",
)
OPERATIONS = (CHECK, COMMAND, *EFFECTS, MODE_LOG)
"""The operations whose errors are counted: passes, commands (refusals are no errors), effects, and the mode log."""
WHOLE = -1
"""The key of a topic's replacement as a whole, in mappings whose other keys are partitions."""
PACE_MS = 60_000
"""The time over which the pace of groups is measured; longer if passes are further apart."""
HISTORY_MS = 5_000
"""The shortest time between two points of a topic's history."""
MOST_POINTS, MOST_GROUPS = 40, 8
"""The largest number of points in a topic's history, and of groups in a point."""
MOST_SUMS = 100_000
"""A topic has no history if groups times partitions exceed this number, because each point is a sum over them all."""
MOST_NOTED = 8


# Fields of log records


def about_record(record: TopicRecord) -> dict[str, str | int]:
    """Return the fields (``extra=``) of a log record about a topic; docs/observability.md has all fields."""
    return {
        "topic": record.topic,
        "topic_id": record.topic_id,
        "mode_epoch": record.epoch,
        "controller_epoch": record.controller_epoch,
        "phase": topic_phase(record),
    }


def about_controller(controller_id: str, epoch: int | None = None) -> dict[str, str | int]:
    return {"controller_id": controller_id} | ({} if epoch is None else {"controller_epoch": epoch})


def describe_waiting(record: TopicRecord) -> str:
    """Return the phase of a topic and the reasons that hold it up: ``drain (4-6: group 'billing' has not ...)``."""
    waiting = [
        f"{format_ranges(held)}: {reasons.text(reason)}" if held else reasons.text(reason)
        for reason, held in held_up(record).items()
    ]
    return f"{topic_phase(record)} ({'; '.join(waiting)})" if waiting else topic_phase(record)


# Role


class Role(Enum):
    """A controller's role. ``STARTING``: not decided yet. ``ACTIVE``: this controller has claimed the mode log.
    ``STANDBY``: another controller is active, or an election is under way. ``STOPPED``: after :meth:`Controller.stop`
    or a failure."""

    STARTING = "starting"
    ACTIVE = "active"
    STANDBY = "standby"
    STOPPED = "stopped"


class Status:
    """A controller's role. Written by the controller's thread, read and awaited by any thread.

    Attributes:
        stopping: set to stop the controller.
        failure: the error that has stopped the controller, if any.
        epoch: the epoch of its claim while the controller is active.
        trouble: the last error while the controller was starting, if any, for the message of a timeout.
        round_s: when the thread last began a round (``Clock.monotonic_s``), or None before the first one.
        contact_s: when the active controller last had its place in the election, or when a standby last read the mode
            log to its end; None before that.
        leaderless_s: the time since which a standby finds no claim of the election's leader (``Clock.monotonic_s``);
            None while there is such a claim.
        log_failures: how often the mode log was claimed again because of an error, or was found unfit.
        takeovers: how often the controller became active; repeated claims do not count.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(InnerLock())
        self.role = Role.STARTING
        self.epoch: int | None = None
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self.trouble: str | None = None
        self.round_s: float | None = None
        self.contact_s: float | None = None
        self.leaderless_s: float | None = None
        self.log_failures = 0
        self.takeovers = 0

    def become(self, role: Role, epoch: int | None = None, failure: BaseException | None = None) -> bool:
        with self._changed:
            changed = (role, epoch) != (self.role, self.epoch)
            self.takeovers += role is Role.ACTIVE and self.role is not Role.ACTIVE
            self.role, self.epoch, self.failure = role, epoch, failure
            self._changed.notify_all()
        return changed

    def wait(self, *roles: Role, timeout_s: float | None = None) -> bool:
        """Wait until the controller has one of these roles, or has stopped. Return whether it has one of them.

        Raises:
            BaseException: the failure that has stopped the controller.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.role in (*roles, Role.STOPPED), timeout_s)
            if self.failure is not None:
                raise self.failure
            return self.role in roles


# Snapshots


@dataclass(frozen=True)
class TopicSeen:
    """One topic, as the controller's thread last observed it.

    Attributes:
        record: the record in force.
        facts: the facts of the last pass; None before the first pass.
        checked_ms: the time of that pass, or of a later small snapshot without changes (wall clock, ms).
        trouble: why the last pass, or an effect of it, failed; None if all succeeded.
        blocked_since: partition, or :data:`WHOLE`, -> the time since which it is held up in its phase (wall clock, ms).
            Another reason does not restart this time, because reasons alternate: any rebalance makes the list of groups
            uncertain. But a change between a requested wait and any other reason restarts it. After a takeover, the
            time is that of the record's last change.
        stragglers: the number of broken seals that this controller has observed.
        fences_lifted: how often this controller has found the topic's fence lifted.
        known_ms: the time of this controller's claim, or of the topic's first record if later.
        earlier: the time and the facts of an earlier pass that had all partitions of the last pass. The difference
            shows the pace of groups.
        noted: the last events that the record does not keep: time (wall clock, ms), and event.
        history: unread offsets of groups: time (wall clock, ms), and group -> offsets.
        moved: the groups to which the new topic is open.
        due_ms: the time of the next pass, which may come earlier after a change (wall clock, ms).
    """

    record: TopicRecord
    facts: TopicFacts | None = None
    checked_ms: int | None = None
    trouble: str | None = None
    blocked_since: Mapping[int, int] = field(default_factory=dict, hash=False)
    stragglers: int = 0
    fences_lifted: int = 0
    known_ms: int | None = None
    earlier: tuple[int, TopicFacts] | None = None
    noted: tuple[tuple[int, str], ...] = ()
    history: tuple[tuple[int, Mapping[str, int]], ...] = field(default=(), hash=False)
    moved: Moved = field(default_factory=Moved)
    due_ms: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """A controller at one moment."""

    taken_ms: int
    controller_id: str
    role: Role
    epoch: int | None = None
    address: str | None = None
    host: str = ""
    claim: ClaimRecord | None = None
    loop_age_s: float | None = None
    contact_age_s: float | None = None
    leaderless_s: float | None = None
    stopped_by: str | None = None
    topics: tuple[TopicSeen, ...] = ()
    rules: tuple[GroupRule, ...] = ()
    ignored_groups: tuple[str, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict, hash=False)
    takeovers: int = 0


class Seen(NamedTuple):
    topics: tuple[TopicSeen, ...] = ()
    rules: tuple[GroupRule, ...] = ()
    errors: Mapping[str, int] = {}


class Watched:
    """What the controller last observed. Only the controller's thread writes; any thread reads."""

    def __init__(self) -> None:
        self._lock = InnerLock()
        self._topics: dict[str, TopicSeen] = {}
        self._rules: tuple[GroupRule, ...] = ()
        self._errors: Counter[str] = Counter(dict.fromkeys(OPERATIONS, 0))

    def claimed(self, records: Iterable[TopicRecord], rules: tuple[GroupRule, ...], now_ms: int) -> None:
        """Take over the content of the log, right after a claim. Counts of stragglers and lifted fences continue."""
        with self._lock:
            before, self._topics, self._rules = self._topics, {}, rules
            for record in records:
                since = {p: record.changed_ms for p in _parts(record) if _hold(record, p) is not None}
                kept = before.get(record.topic_id) or TopicSeen(record)
                self._topics[record.topic_id] = TopicSeen(
                    record,
                    known_ms=now_ms,
                    blocked_since=since,
                    stragglers=kept.stragglers,
                    fences_lifted=kept.fences_lifted,
                )

    def appended(self, record: TopicRecord, now_ms: int) -> None:
        with self._lock:
            seen = self._topics.get(record.topic_id) or TopicSeen(record, known_ms=now_ms)
            self._topics[record.topic_id] = _with_record(seen, record, now_ms)

    def checked(self, topic_id: str, facts: TopicFacts, now_ms: int) -> None:
        with self._lock:
            if (seen := self._topics.get(topic_id)) is None:
                return
            earlier = seen.earlier
            if seen.facts is not None and seen.checked_ms is not None:
                lacks = earlier is not None and not facts.partitions.keys() <= earlier[1].partitions.keys()
                if earlier is None or lacks or now_ms - earlier[0] > PACE_MS:
                    earlier = seen.checked_ms, seen.facts
            history = _with_point(seen, facts, now_ms)
            self._topics[topic_id] = replace(
                seen, facts=facts, checked_ms=now_ms, earlier=earlier, trouble=None, history=history
            )

    def decided(self, topic_id: str, moved: Moved) -> None:
        """Note the groups whose gate is open."""
        with self._lock:
            if (seen := self._topics.get(topic_id)) is not None:
                self._topics[topic_id] = replace(seen, moved=moved)

    def planned(self, topic_id: str, due_ms: int) -> None:
        """Note when a topic is due next."""
        with self._lock:
            if (seen := self._topics.get(topic_id)) is not None:
                self._topics[topic_id] = replace(seen, due_ms=due_ms)

    def unchanged(self, topic_ids: Iterable[str], now_ms: int) -> None:
        """Note a snapshot that showed no change of these topics."""
        with self._lock:
            for topic_id in topic_ids:
                self._topics[topic_id] = replace(self._topics[topic_id], checked_ms=now_ms)

    def not_checked(self, topic_id: str, trouble: str) -> None:
        self.failed(CHECK)
        self.not_performed(topic_id, trouble)

    def not_performed(self, topic_id: str, trouble: str) -> None:
        """Note a failure that the record does not show, such as that of an effect."""
        with self._lock:
            if (seen := self._topics.get(topic_id)) is not None:
                self._topics[topic_id] = replace(seen, trouble=trouble)

    def removed(self, topic_id: str) -> None:
        with self._lock:
            self._topics.pop(topic_id, None)

    def ruled(self, rules: tuple[GroupRule, ...]) -> None:
        with self._lock:
            self._rules = rules

    def failed(self, operation: str) -> None:
        with self._lock:
            self._errors[operation] += 1

    def seen(self) -> Seen:
        with self._lock:
            topics, rules, errors = list(self._topics.values()), self._rules, dict(self._errors)
        return Seen(tuple(sorted(topics, key=lambda seen: seen.record.topic)), rules, errors)


def _parts(record: TopicRecord) -> tuple[int, ...]:
    return (*record.retired, WHOLE)


def _hold(record: TopicRecord, partition: int) -> tuple[str, bool] | None:
    """Return the identity of a hold-up: the phase, and whether the wait was requested. Return None if nothing holds up
    the partition (or the replacement as a whole)."""
    if partition == WHOLE:
        whole = record.replacing.reason
        return None if whole is None else (topic_phase(record), reasons.code_of(whole) in reasons.AS_ASKED)
    retired = record.retired.get(partition)
    if retired is None or retired.reason is None:
        return None
    return partition_phase(record.modes[partition], retired), reasons.code_of(retired.reason) in reasons.AS_ASKED


def _with_record(seen: TopicSeen, record: TopicRecord, now_ms: int) -> TopicSeen:
    since, late = {}, 0
    for partition, retired in record.retired.items():
        before = seen.record.retired.get(partition)
        late += max(retired.stragglers - before.stragglers, 0) if before is not None else 0
    for partition in _parts(record):
        if (hold := _hold(record, partition)) is not None:
            same = hold == _hold(seen.record, partition)
            since[partition] = seen.blocked_since.get(partition, now_ms) if same else now_ms
    is_lifted = seen.record.replacing.fenced_ms is not None and record.replacing.fenced_ms is None
    is_same_change = in_progress(seen.record)
    happened = (_phase_event(seen.record, record), _SEAL_BROKE if late else None, _LIFTED if is_lifted else None)
    noted = (*(seen.noted if is_same_change else ()), *((now_ms, event) for event in happened if event is not None))
    return replace(
        seen,
        record=record,
        blocked_since=since,
        stragglers=seen.stragglers + late,
        fences_lifted=seen.fences_lifted + is_lifted,
        noted=noted[-MOST_NOTED:],
        history=seen.history if is_same_change else (),
    )


_SEAL_BROKE, _LIFTED = "a late record broke a seal", "the fence was lifted"
_EVENTS = {"drain": "sealed", "reclaim": "drained", "done": "done"}
"""Phase -> the event that begins it."""


def _phase_event(before: TopicRecord, after: TopicRecord) -> str | None:
    """Return the event that begins a new phase; None if the phase is the same, or the record has the event's time.

    The record of a replacement has the times of all phases except the drain.
    """
    phase = topic_phase(after)
    if phase == topic_phase(before) or (after.has_replacement and phase != "drain"):
        return None
    return _EVENTS.get(phase)


def _with_point(seen: TopicSeen, facts: TopicFacts, now_ms: int) -> tuple[tuple[int, Mapping[str, int]], ...]:
    """Return the topic's history, with a point of this pass if one is due. A full history loses every other point.

    A point has at most :data:`MOST_GROUPS` groups: first those in the last point, then those with most unread offsets.
    """
    history, cost = seen.history, len(facts.groups) * len(facts.partitions)
    spacing_ms = max(HISTORY_MS, (now_ms - history[0][0]) // MOST_POINTS) if history else 0
    if not seen.record.retired or cost > MOST_SUMS or (history and now_ms - history[-1][0] < spacing_ms):
        return history
    known = history[-1][1] if history else {}
    groups = progress_of(seen.record, facts, Requirement()).values()
    listed = sorted(groups, key=lambda group: (group.group not in known, -group.behind))[:MOST_GROUPS]
    points = (*history, (now_ms, {group.group: group.behind for group in listed}))
    return points if len(points) <= MOST_POINTS else points[::2]


# Values for pages and metrics

LOOP_STALE_S = 120.0
"""A thread that has begun no round for this long hangs. (A single request may wait some 10 s for brokers.)"""
CONTACT_STALE_S = 45.0
"""Longer than a session, and than a standby's longest time between two reads of the mode log."""
LEADERLESS_S = 10.0
"""How long the election's leader may take to claim the mode log. A claim takes a second, unless the log is long."""


def alive(snapshot: Snapshot) -> str | None:
    """Return why the controller's thread hangs or has stopped, or None if it works or has not begun yet."""
    if snapshot.role is Role.STOPPED:
        return f"stopped: {snapshot.stopped_by}" if snapshot.stopped_by else "stopped"
    age_s = snapshot.loop_age_s
    if age_s is None or age_s <= LOOP_STALE_S:
        return None
    return f"the controller's thread hangs: no progress for {age_s:.0f} s; restart the controller"


def ready(snapshot: Snapshot) -> str | None:
    """Return why the controller is not ready. Return None if it is active or a standby, has contact with brokers, and
    works; a standby also needs a claim of the election's leader."""
    if snapshot.role not in (Role.ACTIVE, Role.STANDBY):
        return str(snapshot.role.value)
    if snapshot.contact_age_s is None:
        return "no contact with the cluster yet"
    if snapshot.contact_age_s > CONTACT_STALE_S:
        return f"no contact with the cluster for {snapshot.contact_age_s:.0f} s"
    if snapshot.leaderless_s is not None and snapshot.leaderless_s > LEADERLESS_S:
        return (
            f"no active controller for {snapshot.leaderless_s:.0f} s: the leader of the election's group has not "
            "claimed the mode log, and may not be a controller"
        )
    return alive(snapshot)


def report_of(seen: TopicSeen, snapshot: Snapshot) -> TopicReport:
    """Return the report of the partitions that take no writes, by the facts of the last pass."""
    record, facts = seen.record, seen.facts
    if facts is None:
        return report_topic(record, TopicFacts(record.topic, None), Requirement(), record.closed)
    asked = requirement_of(record, facts, snapshot.rules, snapshot.ignored_groups, snapshot.taken_ms)
    return report_topic(record, facts, asked, record.closed, seen.moved)


def required_groups(report: TopicReport) -> list[GroupProgress]:
    """Return the groups that a change in progress waits for."""
    return [group for group in report.groups if group.required and report.phase != "done"]


def waiting_groups(report: TopicReport) -> int | None:
    """Return the number of groups to which the new topic is closed, or None if no group has a gate."""
    moving = [group for group in report.groups if group.gate_open is not None]
    return sum(not group.gate_open for group in moving) if moving else None


def gate_age_s(seen: TopicSeen, now_ms: int) -> float | None:
    """Return the seconds since the switch, while a required group still needs the old topic. Return None before the
    switch, and after the release."""
    replacement = seen.record.replacing
    if replacement.switched_ms is None or replacement.released_ms is not None:
        return None
    return max(now_ms - replacement.switched_ms, 0) / 1000


def blocked_ages_s(seen: TopicSeen, now_ms: int) -> dict[str, float]:
    """Return reason code -> the longest hold-up for that reason, in seconds. An unknown code is ``other``."""
    ages: dict[str, float] = {}
    for reason, partitions in held_up(seen.record).items():
        code = reasons.code_of(reason)
        code = code if code in reasons.CODES else "other"
        ages[code] = max(ages.get(code, 0.0), (now_ms - held_up_since_ms(seen, partitions)) / 1000)
    return ages


def held_up_since_ms(seen: TopicSeen, partitions: Collection[int]) -> int:
    """Return the time since which these partitions, or (without partitions) the replacement as a whole, are held up."""
    return min(seen.blocked_since.get(p, seen.record.changed_ms) for p in partitions or (WHOLE,))
