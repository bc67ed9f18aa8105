"""What is served at which path: /metrics, /health, /ready, the status page and its parts, and what they show."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.controller.status import Role, Snapshot, TopicSeen, reason_code
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Requirement, requirement_of, unread_offsets
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.state import PHASES, held_up, in_progress, partition_phase, topic_phase
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode, format_ranges, to_ranges
from modeaware.monitoring.server import Answer
from modeaware.printable import printable

LOOP_STALE_S = 120.0
"""A thread without a completed round for so long hangs: one step waits for brokers for some 10 s a request."""
CONTACT_STALE_S = 45.0
"""More than a standby's longest time between two readings of the mode log, and than a session."""
SHORTEST_PACE_S = 5.0
"""A pace is computed over no less time."""
MOST_GROUPS = 50
"""The most groups that are listed of a topic, those with most to read first."""


def alive(snapshot: Snapshot) -> str | None:
    """None: its thread goes round, or begins to. Else what is wrong."""
    if snapshot.role is Role.STOPPED:
        return f"stopped: {snapshot.stopped_by}" if snapshot.stopped_by else "stopped"
    age_s = snapshot.loop_age_s
    if age_s is None or age_s <= LOOP_STALE_S:
        return None
    return f"its thread has not gone round for {age_s:.0f} s"


def ready(snapshot: Snapshot) -> str | None:
    """None: it is active or standing by, and in contact with the cluster. Else what is wrong."""
    if snapshot.role not in (Role.ACTIVE, Role.STANDBY):
        return str(snapshot.role.value)
    if snapshot.contact_age_s is None:
        return "no contact with the cluster yet"
    if snapshot.contact_age_s > CONTACT_STALE_S:
        return f"no contact with the cluster for {snapshot.contact_age_s:.0f} s"
    return alive(snapshot)


def status_of(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON object. Times are ms since the epoch; fields may be added, and none changes its meaning."""
    claim = snapshot.claim
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
        },
        "topics": [topic_status(seen, snapshot) for seen in snapshot.topics],
    }


def topic_status(seen: TopicSeen, snapshot: Snapshot) -> dict[str, Any]:
    """One topic."""
    record = seen.record
    phases = Counter(partition_phase(record.modes[p], retired) for p, retired in record.retired.items())
    groups = unread_by_group(seen, snapshot)
    deletion = record.deletion
    return {
        "topic": record.topic,
        "topic_id": record.topic_id,
        "epoch": record.epoch,
        "phase": topic_phase(record),
        "changed_ms": record.changed_ms,
        "looked_ms": seen.looked_ms,
        "trouble": seen.trouble,
        "count": len(record.modes),
        "writable": record.writable_count,
        "target": deletion.delete_partitions if deletion is not None else None,
        "policy": deletion.policy if deletion is not None else None,
        "modes": [[first, last, mode.label] for first, last, mode in to_ranges(record.modes)],
        "phases": {phase: phases[phase] for phase in PHASES if phases[phase]},
        "partitions": _partitions(seen),
        "blocked": _blocked(seen),
        "groups": groups[:MOST_GROUPS],
        "groups_count": len(groups),
        "groups_doubt": seen.facts.groups_doubt.detail if seen.facts and seen.facts.groups_doubt else None,
        "stragglers": seen.stragglers,
    }


def unread_by_group(seen: TopicSeen, snapshot: Snapshot) -> list[dict[str, Any]]:
    """What each group that is waited for still has to read in retired partitions, as of the last look; most first."""
    record, facts = seen.record, seen.facts
    if facts is None or not in_progress(record):
        return []
    asked = requirement_of(record, facts, snapshot.rules, snapshot.ignored_groups, snapshot.taken_ms)
    names = [*asked.groups, *([asked.evacuation] if asked.evacuation is not None else [])]
    groups = [_group(name, facts, asked, record) for name in names]
    groups = [group | _pace(group, asked, seen) for group in groups]
    return sorted(groups, key=lambda group: (-int(group["unread"]), str(group["group"])))


def blocked_ages_s(seen: TopicSeen, now_ms: int) -> dict[str, float]:
    """Reason code -> for how long a partition has been held up by it, the longest, in seconds. A code that this version
    does not know is ``other``."""
    ages: dict[str, float] = {}
    for reason, partitions in held_up(seen.record).items():
        code = reason_code(reason)
        code = code if code in reasons.CODES else "other"
        ages[code] = max(ages.get(code, 0.0), (now_ms - _held_up_since_ms(seen, partitions)) / 1000)
    return ages


def _held_up_since_ms(seen: TopicSeen, partitions: Iterable[int]) -> int:
    return min(seen.blocked_since.get(p, seen.record.changed_ms) for p in partitions)


def _blocked(seen: TopicSeen) -> list[dict[str, Any]]:
    """Each reason, with the partitions that it holds up; the oldest first."""
    reasons_shown = [
        {
            "reason": reason,
            "code": reason_code(reason),
            "text": reasons.text(reason),
            "partitions": format_ranges(partitions),
            "count": len(partitions),
            "as_asked": reason_code(reason) in reasons.AS_ASKED,
            "since_ms": _held_up_since_ms(seen, partitions),
        }
        for reason, partitions in held_up(seen.record).items()
    ]
    return sorted(reasons_shown, key=lambda one: (one["since_ms"], one["reason"]))


def _partitions(seen: TopicSeen) -> list[dict[str, Any]]:
    """The retired and opening ones, one by one."""
    record, logs = seen.record, seen.facts.partitions if seen.facts is not None else {}
    partitions = []
    for partition, retired in sorted(record.retired.items()):
        log = logs.get(partition)
        partitions.append(
            {
                "partition": partition,
                "phase": partition_phase(record.modes[partition], retired),
                "replica_state": retired.replica_state.value,
                "seal": retired.seal_offset,
                "start": log.log_start if log is not None else None,
                "end": log.end_offset if log is not None else None,
            }
        )
    return partitions


def _pace(group: dict[str, Any], asked: Requirement, seen: TopicSeen) -> dict[str, Any]:
    """The pace at which a group reads what is left, and the time that takes; None where it is not known."""
    unknown = {"read_per_s": None, "left_s": None}
    if seen.earlier is None or seen.facts is None or seen.looked_ms is None:
        return unknown
    before_ms, before = seen.earlier
    passed_s, name, left = (seen.looked_ms - before_ms) / 1000, group["group"], group["unread"]
    comparable = name in before.groups and before.partitions.keys() >= seen.facts.partitions.keys()
    if passed_s < SHORTEST_PACE_S or not comparable:
        return unknown
    per_s = (_group(name, before, asked, seen.record)["unread"] - left) / passed_s
    return {"read_per_s": round(per_s, 3), "left_s": round(left / per_s) if per_s > 0 else None}


def _group(name: str, facts: TopicFacts, asked: Requirement, record: TopicRecord) -> dict[str, Any]:
    group = facts.groups.get(name)
    unread, holding, waived = 0, [], False
    for partition, retired in record.retired.items():
        log = facts.partitions.get(partition)
        waits = record.modes[partition] is PartitionMode.READ_ONLY and not retired.opening
        if log is None or not waits or (name == asked.evacuation and retired.evacuated):
            continue
        until = log.end_offset if retired.seal_offset is None else retired.seal_offset
        left = unread_offsets(group, partition, until, log.log_start)
        if left and name != asked.evacuation and asked.waiver(name, group, partition) is not None:
            waived = True
        elif left:
            unread += left
            holding.append(partition)
    return {
        "group": name,
        "kind": group.kind if group is not None else None,
        "running": group.has_members if group is not None else False,
        "unread": unread,
        "partitions": format_ranges(holding),
        "waived": waived,
        "evacuation": name == asked.evacuation,
    }


KEPT_S = 1.0
"""For so long an answer that is made of every topic is reused, however many clients request it."""
_PLAIN = "text/plain; charset=utf-8"
_FILES = {
    "/": ("status.html", "text/html; charset=utf-8"),
    "/status.css": ("status.css", "text/css; charset=utf-8"),
    "/status.js": ("status.js", "text/javascript; charset=utf-8"),
    "/topic.js": ("topic.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class ControllerPages:
    """The pages of one controller. May be asked from any thread.

    Args:
        snapshot: gives the controller as it is now.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Clock = SYSTEM_CLOCK) -> None:
        self._snapshot = snapshot
        self._status = _Kept(lambda: json.dumps(status_of(snapshot())).encode(), clock)
        self._metrics = _metrics_of(snapshot)

    def __call__(self, path: str, accept: str) -> Answer | None:
        if path == "/health":
            return _verdict(alive(self._snapshot()))
        if path == "/ready":
            return _verdict(ready(self._snapshot()))
        if path == "/status.json":
            return Answer(HTTPStatus.OK, "application/json", self._status.get())
        if path == "/metrics":
            return self._metrics(accept)
        return _file(path) if path in _FILES else None


class _Kept:
    """An answer that is made at most once every :data:`KEPT_S`, by one thread at a time."""

    def __init__(self, make: Callable[[], bytes], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] | None = None

    def get(self) -> bytes:
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._made is None or now_s - self._made[0] >= KEPT_S:
                self._made = now_s, self._make()
            return self._made[1]


def _verdict(wrong: str | None) -> Answer:
    if wrong is None:
        return Answer(HTTPStatus.OK, _PLAIN, b"ok\n")
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"{printable(wrong)}\n".encode())


@cache
def _file(path: str) -> Answer:
    name, content_type = _FILES[path]
    return Answer(HTTPStatus.OK, content_type, files("modeaware.monitoring").joinpath("page", name).read_bytes())


def _metrics_of(snapshot: Callable[[], Snapshot]) -> Callable[[str], Answer]:
    """Metrics, where prometheus_client is installed (extra ``metrics``)."""
    try:
        from modeaware.monitoring.controller_metrics import Exposition
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("prometheus_client"):
            raise
        missing = Answer(HTTPStatus.NOT_IMPLEMENTED, _PLAIN, b"no metrics: install modeaware[metrics]\n")
        return lambda accept: missing
    return Exposition(snapshot)
