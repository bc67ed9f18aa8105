"""The active controller's decisions about gates: for which groups the new topic of a replacement is open. Pure.

:mod:`modeaware.lifecycle.moved` has the rules. A *gate* hides the new topic from a group. A topic *drains* while groups
read it to its end. This module keeps the decisions on the log, the results of snapshots, and the times at which the
next snapshot and the next record are due. When one draining topic is due, all draining topics are checked. Groups are
listed once for all topics, so a snapshot of many topics costs little more than a snapshot of one. The controller builds
on a decision even before the decision is appended; clients open the gate only after the append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from modeaware.config import ControllerConfig
from modeaware.lifecycle.moved import (
    BURST_MS,
    COST_FACTOR,
    Decision,
    Limits,
    Seen,
    append_due_ms,
    broken_seal_alarm,
    check_due_ms,
    decide,
    drains_by_groups,
    groups_that_matter,
    observe,
)
from modeaware.lifecycle.passes import Pass, earliest_ms
from modeaware.lifecycle.state import moving
from modeaware.modelog.moved import MovedRecord, moved_key, topic_id_of
from modeaware.modelog.records import TopicRecord
from modeaware.topic_view import NONE_MOVED, Moved

Entry = tuple[str, bytes | None]


class MovedGroups:
    """The decisions about the groups of all old topics, under one claim. One thread owns it. Times are on the monotonic
    clock.

    Args:
        records: old topic's id -> the decision on the log.
        newer: keys of the log whose record needs a newer reader: a topic's own record, or the decision about a topic.
            In both cases nothing is decided or appended about the topic.
    """

    def __init__(
        self, config: ControllerConfig, records: Mapping[str, MovedRecord] | None = None, newer: Iterable[str] = ()
    ) -> None:
        self._limits = Limits(config.gate_unnoted_ms, config.gate_given_ms)
        self._on_log = dict(records or {})
        self._decided = dict(self._on_log)
        self._again_ms = config.check_interval_ms
        self._too_large: set[str] = set()
        self._newer = {topic_id_of(key) or key for key in newer}
        self._appended_ms: dict[str, int] = {}
        self._seen: dict[str, Seen] = {}
        self._debt_ms, self._debt_at_ms = 0.0, 0
        self.draining: set[str] = set()
        """The topics that are checked at the pace of their groups."""

    def moved(self, topic_id: str) -> Moved:
        """Return the groups to which the new topic is open, by the log or by a decision that is not appended yet."""
        record = self._decided.get(topic_id)
        return NONE_MOVED if record is None else record.moved

    def after_snapshot(self, this: Pass, after: TopicRecord, at_ms: int) -> Decision:
        """Decide about the gates by the facts of a snapshot.

        Args:
            this: the pass.
            after: the topic's record after the pass.
            at_ms: the time of the snapshot.
        """
        topic_id, held = after.topic_id, self._decided.get(after.topic_id)
        names = self._names(this, after, held)
        partitions = sorted(after.retired)
        seen = self._seen[topic_id] = observe(self._seen.get(topic_id), this.facts, names, partitions, at_ms)
        if topic_id in self._newer:
            return Decision()
        new = this.facts.new_topic
        further = self.moved(new.topic_id) if new is not None and new.topic_id is not None else NONE_MOVED
        decision = decide(after, held, this.facts, this.requirement, seen, self._limits, at_ms, further)
        if decision.record is not None:
            self._decided[topic_id] = decision.record
        self._note_draining(this, after, decision)
        if (alarm := broken_seal_alarm(this.record, after, held)) is not None:
            decision = replace(decision, alarms=(*decision.alarms, alarm))
        return decision

    def _names(self, this: Pass, after: TopicRecord, held: MovedRecord | None) -> list[str]:
        """Return the groups to observe: those with a closed gate, and those whose open gate may be closed again."""
        new = this.facts.new_topic
        names = groups_that_matter(after, this.facts, this.requirement)
        if held is None or new is None:
            return names
        left = [n for n in held.groups if n not in this.facts.groups or not this.facts.groups[n].has_members]
        return sorted({*(name for name in names if name not in held.groups), *left})

    def _note_draining(self, this: Pass, after: TopicRecord, decision: Decision) -> None:
        groups = this.facts.groups
        members_wait = any(name in groups and groups[name].has_members for name in decision.verdicts)
        if drains_by_groups(after, members_wait=members_wait):
            self.draining.add(after.topic_id)
        else:
            self.draining.discard(after.topic_id)

    def with_draining(self, due: Sequence[str], due_ms: Callable[[str], int | None]) -> list[str]:
        """Return the topics to check: the ``due`` topics. If one of them drains, add all other draining topics, in the
        order in which they are due.

        Args:
            due_ms: returns when a topic is due.
        """
        if self.draining.isdisjoint(due):
            return list(due)
        others = sorted(self.draining.difference(due), key=lambda topic_id: (due_ms(topic_id) or 0, topic_id))
        return [*due, *others]

    def next_checks_ms(
        self, decisions: Mapping[str, Decision], cost_ms: float, took_ms: int, at_ms: int
    ) -> dict[str, int]:
        """Return when the topics of a pass are due because of their groups. Topics whose next regular check is enough
        are left out.

        Args:
            decisions: topic id -> the decision of the pass.
            cost_ms: the CPU time of the pass, divided by the number of its topics.
            took_ms: how long the pass took.
        """
        debt_ms = self._owed_ms(cost_ms * len(self.draining.intersection(decisions)), at_ms)
        due_ms = {}
        for topic_id, decision in decisions.items():
            check_ms = None
            if topic_id in self.draining:
                check_ms = check_due_ms(self._seen[topic_id].changed_ms, debt_ms, took_ms, decision.due_ms, at_ms)
            if (due := earliest_ms(self._record_due_ms(topic_id), check_ms)) is not None:
                due_ms[topic_id] = due
        return due_ms

    def _owed_ms(self, cost_ms: float, at_ms: int) -> float:
        """Add the CPU time of a pass over draining topics to the debt, which time pays off. Return the part of the debt
        that exceeds a burst."""
        paid_ms = (at_ms - self._debt_at_ms) / COST_FACTOR
        self._debt_ms, self._debt_at_ms = max(self._debt_ms - paid_ms, 0.0) + cost_ms, at_ms
        return max(self._debt_ms - BURST_MS, 0.0)

    def _record_due_ms(self, topic_id: str) -> int | None:
        decided, on_log = self._decided.get(topic_id), self._on_log.get(topic_id)
        if decided is None or decided == on_log:
            return None
        appended_ms = self._appended_ms.get(topic_id)
        if appended_ms is not None and topic_id in self._too_large:
            return appended_ms + self._again_ms
        return 0 if appended_ms is None else append_due_ms(appended_ms, len(decided.groups))

    # The log

    def to_append(self, records: Mapping[str, TopicRecord], stamp: tuple[int, int], at_ms: int) -> list[Entry]:
        """Return the entries to append now: due decisions, and tombstones for topics whose groups no longer move.

        Args:
            records: topic id -> the record of each topic on the log.
            stamp: the controller epoch, and the wall-clock time.
        """
        entries: list[Entry] = []
        for topic_id in [topic_id for topic_id in self._decided if topic_id not in self._newer]:
            record = records.get(topic_id)
            if record is None or not moving(record):
                self.forget(topic_id)
                entries.append((moved_key(topic_id), None))
            elif (due_ms := self._record_due_ms(topic_id)) is not None and due_ms <= at_ms:
                new = self._decided[topic_id].stamped(*stamp)
                self._on_log[topic_id] = self._decided[topic_id] = new
                self._appended_ms[topic_id] = at_ms
                self._too_large.discard(topic_id)
                entries.append((moved_key(topic_id), new.to_json()))
        return entries

    def too_large(self, topic_id: str) -> None:
        """Note that a topic's entry from :meth:`to_append` was too large. It is due again after a check interval."""
        self._on_log.pop(topic_id, None)
        self._too_large.add(topic_id)

    def __contains__(self, topic_id: str) -> bool:
        """Return whether there is a decision about the groups of the topic."""
        return topic_id in self._decided

    def forget(self, topic_id: str) -> None:
        """Forget a topic, because its decision is removed from the log."""
        for known in (self._decided, self._on_log, self._appended_ms, self._seen):
            known.pop(topic_id, None)
        self.draining.discard(topic_id)
        self._too_large.discard(topic_id)
