"""A controller's status as JSON for the status page, from a snapshot and the report of each topic. Pure.

The reasons that block a change, and the next command, are those that ``modeaware status`` shows
(:mod:`modeaware.reports.status`). Readers of the page have not logged in. So the commands omit the options for the
connection, which name brokers and files of the controller's host.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from modeaware.controller.status import (
    Snapshot,
    TopicSeen,
    alive,
    held_up_since_ms,
    ready,
    report_of,
    required_groups,
    waiting_groups,
)
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupFacts
from modeaware.lifecycle.keep_name import KeptName, kept_names
from modeaware.lifecycle.progress import GroupProgress
from modeaware.lifecycle.report import TopicReport, left_to_read, most_to_read_first, waits_for
from modeaware.lifecycle.state import PHASES, held_up
from modeaware.modelog.records import ClaimRecord
from modeaware.modes import format_ranges, to_ranges
from modeaware.reports.serialise import to_json
from modeaware.reports.status import change_phase, change_text, next_command
from modeaware.wire.client import is_loopback

SHORTEST_PACE_S = 5.0
"""The shortest time over which a pace is computed, because most groups commit every 5 s."""
MOST_GROUPS = 50
"""The most groups that are listed for a topic; those with the most unread offsets come first."""
MOST_EVENTS = 8


def status_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the JSON object. Times are ms since the epoch. Fields may be added; no field changes its meaning."""
    claim = snapshot.claim
    kept = kept_names(seen.record for seen in snapshot.topics if seen.record.has_replacement)
    return {
        "version": 1,
        "taken_ms": snapshot.taken_ms,
        "controller": {
            "id": snapshot.controller_id,
            "role": snapshot.role.value,
            "epoch": snapshot.epoch,
            "endpoint": snapshot.address,
            "takeovers": snapshot.takeovers,
            "errors": dict(snapshot.errors),
            "unhealthy": alive(snapshot),
            "not_ready": ready(snapshot),
        },
        "claim": claim
        and {
            "id": claim.controller_id,
            "epoch": claim.controller_epoch,
            "endpoint": claim.address,
            "host": claim.host,
            "page": _page(claim, snapshot.host),
        },
        "topics": [topic_status(seen, snapshot, kept.get(seen.record.topic)) for seen in snapshot.topics],
    }


def _page(claim: ClaimRecord, host: str) -> str | None:
    """Return the URL of the claiming controller's page; None if there is none, or ``host`` cannot reach it."""
    if claim.pages is None or (is_loopback(claim.pages) and claim.host != host):
        return None
    return f"http://{claim.pages}/"


def topic_status(seen: TopicSeen, snapshot: Snapshot, kept_name: KeptName | None = None) -> dict[str, Any]:
    """Return the JSON object of one topic.

    Args:
        kept_name: the change that keeps a name, if the topic is part of one.
    """
    record, report = seen.record, replace(report_of(seen, snapshot), kept_name=kept_name)
    phase, phases = change_phase(report), Counter(partition.phase for partition in report.partitions)
    groups = most_to_read_first(required_groups(report))
    deletion, listed = report.deletion, [_group(group, seen) for group in groups[:MOST_GROUPS]]
    return {
        "topic": report.topic,
        "topic_id": report.topic_id,
        "epoch": report.epoch,
        "phase": phase,
        "change": change_text(report) if phase != "done" else None,
        "changed_ms": record.changed_ms,
        "checked_ms": seen.checked_ms,
        "due_ms": seen.due_ms,
        "trouble": seen.trouble,
        "count": len(record.modes),
        "writable": report.writable,
        "target": deletion.delete_partitions if deletion is not None else None,
        "policy": deletion.policy if deletion is not None else None,
        "modes": [[first, last, mode.label] for first, last, mode in to_ranges(record.modes)],
        "phases": {phase: phases[phase] for phase in PHASES if phases[phase]},
        "partitions": [
            {name: to_json(getattr(partition, name)) for name in _OF_PARTITION} for partition in report.partitions
        ],
        "blocked": _blocked(seen, report),
        "groups": listed,
        "history_ms": [at_ms for at_ms, _ in seen.history],
        "left": _left(listed),
        "groups_count": len(groups),
        "groups_waiting": waiting_groups(report),
        "groups_doubt": report.groups_doubt,
        "stragglers": seen.stragglers,
        "replacement": to_json(report.replacement),
        "kept_name": to_json(kept_name),
        "fences_lifted": seen.fences_lifted,
        "alias": record.is_alias,
        "events": _events(report, seen),
    }


_OF_PARTITION = ("partition", "phase", "replica_state", "seal_offset", "log_start", "log_end")


def _blocked(seen: TopicSeen, report: TopicReport) -> list[dict[str, Any]]:
    """Return each reason, the oldest first, with the partitions that it holds up; none: the replacement as a whole."""
    by_id, whole = {partition.partition: partition for partition in report.partitions}, report.replacement
    reasons_shown = [
        {
            "reason": reason,
            "code": reasons.code_of(reason),
            "text": waits_for(by_id[p] for p in partitions) if partitions else whole and whole.waits_for,
            "partitions": format_ranges(partitions),
            "count": len(partitions),
            "as_asked": reasons.code_of(reason) in reasons.AS_ASKED,
            "since_ms": held_up_since_ms(seen, partitions),
            "next": _next(report, reason),
        }
        for reason, partitions in held_up(seen.record).items()
    ]
    return sorted(reasons_shown, key=lambda one: (one["since_ms"], one["reason"]))


def _next(report: TopicReport, reason: str) -> str | None:
    words = next_command(report, reason)
    return None if words is None else shlex.join(words)


def _pace(group: GroupProgress, seen: TopicSeen) -> dict[str, Any]:
    """Return the pace of a group's commits on retired partitions, and the time that the group needs for the rest.

    Each is None if unknown. A first commit shows no pace: the group may have skipped the records before the commit.
    """
    unknown = {"read_per_s": None, "left_s": None}
    if seen.earlier is None or seen.facts is None or seen.checked_ms is None:
        return unknown
    before_ms, before = seen.earlier
    passed_s = (seen.checked_ms - before_ms) / 1000
    earlier, latest = (facts.groups.get(group.group, GroupFacts()).committed for facts in (before, seen.facts))
    both = seen.record.retired.keys() & earlier.keys() & latest.keys()
    if passed_s < SHORTEST_PACE_S or not both:
        return unknown
    per_s = sum(latest[p] - earlier[p] for p in both) / passed_s
    return {"read_per_s": round(per_s, 3), "left_s": round(group.behind / per_s) if per_s > 0 else None}


def _group(group: GroupProgress, seen: TopicSeen) -> dict[str, Any]:
    return {
        "group": group.group,
        "kind": group.kind,
        "running": group.has_members,
        "text": left_to_read(group),
        "unread": group.behind,
        "partitions": format_ranges(group.holding),
        "waived": group.is_waived,
        "moved": group.moved,
        "gate_open": group.gate_open,
        "gate": group.gate,
        "evacuation": group.evacuates,
        "history": [left.get(group.group) for _, left in seen.history],
        **_pace(group, seen),
    }


def _left(groups: Iterable[Mapping[str, Any]]) -> dict[str, int | None] | None:
    """Return what groups have left to read; None if nothing is left.

    ``unread``: the largest number of offsets that a group has left, as in the metric. ``at_first``: the largest such
    number since this controller became active, or since the change began. ``left_s``: the time that the slowest group
    needs; None while the pace of a group is unknown.
    """
    reading = [group for group in groups if group["unread"]]
    if not reading:
        return None
    unread, known = max(group["unread"] for group in reading), [group["left_s"] for group in reading]
    before = [left for group in reading for left in group["history"] if left is not None]
    return {"unread": unread, "at_first": max([unread, *before]), "left_s": None if None in known else max(known)}


def _events(report: TopicReport, seen: TopicSeen) -> list[dict[str, Any]]:
    """Return the last events of the change, the oldest first."""
    events = [*((at_ms, what) for what, at_ms in report.events), *seen.noted]
    return [{"at_ms": at_ms, "what": what} for at_ms, what in sorted(events, key=itemgetter(0))[-MOST_EVENTS:]]
