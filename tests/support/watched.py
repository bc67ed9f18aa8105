"""Snapshots of a controller as no test has to make one on a cluster: of a shrink that waits, and one that is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modeaware.clock import SYSTEM_CLOCK
from modeaware.controller.status import OPERATIONS, WHOLE, Role, Snapshot, TopicSeen
from modeaware.interim import interim_name
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, TopicFacts
from modeaware.modelog.records import (
    ClaimRecord,
    DeleteTopicPartitions,
    OpeningPartition,
    Replacement,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modes import PartitionMode, ReplicaState
from modeaware.topic_view import Moved
from tests.support.lifecycle import log

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
NAUGHTY = '<img src=x onerror="window.hit=1">'
MINUTE_MS = 60_000


def gone(**more: Any) -> RetiredPartition:
    done = ReplicaState.DELETION_SUCCESSFUL
    return RetiredPartition(replica_state=done, seal_offset=200, **more)


def blocked(reason: str, seal: int | None = 200, **more: Any) -> RetiredPartition:
    ineligible = ReplicaState.DELETION_INELIGIBLE
    return RetiredPartition(replica_state=ineligible, seal_offset=seal, reason=reason, **more)


def record(topic: str, kept: int, retired: dict[int, RetiredPartition], now_ms: int, **more: Any) -> TopicRecord:
    def mode(partition: int) -> PartitionMode:
        held = retired.get(partition)
        if held is None:
            return RW
        return NONE if held.replica_state is ReplicaState.DELETION_SUCCESSFUL else RO

    count = kept + len(retired)
    fields: dict[str, Any] = {
        "deletion": DeleteTopicPartitions(kept, 0, False, now_ms - 90 * MINUTE_MS, count),
        "changed_ms": now_ms - 45 * MINUTE_MS,
        **more,
    }
    return TopicRecord(topic, f"id-{topic}", 7, 3, tuple(mode(p) for p in range(count)), retired=retired, **fields)


def busy_snapshot(now_ms: int | None = None) -> Snapshot:
    """An active controller: a drain that two groups hold up, one with a name that is HTML, and a topic that is done."""
    now_ms = SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms
    lag, hold = reasons.of_group(reasons.GROUP_LAG, "billing"), reasons.of_group(reasons.GROUP_LAG, NAUGHTY)
    retired = {p: gone() for p in (4, 5, 6)} | {p: blocked(lag) for p in (7, 8, 9)} | {10: blocked(hold)}
    retired |= {11: blocked(reasons.STILL_WRITTEN, None)}
    orders = record("orders", 4, retired, now_ms, required_groups=("billing", "audit", NAUGHTY))
    groups = {
        "billing": GroupFacts(dict.fromkeys(range(7, 10), 120) | {10: 200, 11: 40}, has_members=True),
        "audit": GroupFacts(dict.fromkeys(range(7, 12), 200), has_members=True),
        NAUGHTY: GroupFacts(dict.fromkeys((7, 8, 9, 11), 200) | {10: 199}),
    }
    logs = {p: log(200, 200) for p in (4, 5, 6)} | {p: log(200, 0) for p in range(7, 11)} | {11: log(40, 0)}
    facts = TopicFacts("orders", "id-orders", 12, partitions=logs, groups=groups)
    since = {7: now_ms - 50 * MINUTE_MS, 8: now_ms - 45 * MINUTE_MS, 9: now_ms - 45 * MINUTE_MS, 10: now_ms - 9_000}
    waiting = TopicSeen(orders, facts, now_ms - 4_000, None, since | {11: now_ms - 30_000}, stragglers=1)

    waits = {p: blocked(reasons.RETENTION) for p in range(32, 128)}
    clicks = record("clicks", 32, waits, now_ms, deletion=DeleteTopicPartitions(32, None, False, now_ms, 128))
    doubt = GroupsDoubt("group 'x' is in a rebalance")
    wide = TopicSeen(clicks, TopicFacts("clicks", "id-clicks", 128, groups_doubt=doubt), now_ms - 70_000)

    opening = {p: OpeningPartition() for p in (3, 4)}
    five = record("grown", 5, {}, now_ms, deletion=None, opening=opening)
    grown = TopicSeen(replace(five, modes=(RW, RW, RW, RO, RO)), None, None, "no broker answered")
    done = TopicSeen(record("payments", 6, {p: gone() for p in range(6, 24)}, now_ms), None, now_ms - 200_000)
    return Snapshot(
        taken_ms=now_ms,
        controller_id="host-1-4711-ab12cd34",
        role=Role.ACTIVE,
        epoch=3,
        address="10.0.0.7:9095",
        claim=ClaimRecord(3, "10.0.0.7:9095", "host-1-4711-ab12cd34", now_ms, "host-1"),
        loop_age_s=0.1,
        contact_age_s=0.2,
        topics=(wide, grown, waiting, done),
        errors={**dict.fromkeys(OPERATIONS, 0), "check": 3},
        takeovers=1,
    )


def replacing_snapshot(now_ms: int | None = None) -> Snapshot:
    """An active controller: a replacement that drains, one that waits for a group to move, and one that is done."""
    now_ms = SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms
    started_ms = now_ms - 20 * MINUTE_MS

    def replaced(topic: str, retired: dict[int, RetiredPartition], **more: Any) -> TopicRecord:
        times = {
            "announced_ms": started_ms + 3_000,
            "switched_ms": started_ms + 9_000,
            "fenced_ms": started_ms + 10_000,
        }
        own = {"new_topic_id": "id-2", "delay_ms": 0, **times, **more}
        replacement = Replacement(f"{topic}-v2", 4, started_ms, **own)
        changed = {"deletion": None, "changed_ms": now_ms - MINUTE_MS, "replacement": replacement}
        return record(topic, 0, retired, now_ms, required_groups=("audit", "billing"), **changed)

    def left(offset: int) -> TopicFacts:
        groups = {"billing": GroupFacts(dict.fromkeys(range(12), offset), has_members=True)}
        groups["audit"] = GroupFacts(dict.fromkeys(range(12), 1000), has_members=True)
        logs = {p: log(1000, 0) for p in range(12)}
        new = TopicFacts("orders-v2", "id-2", 4)
        return TopicFacts("orders", "id-orders", 12, partitions=logs, groups=groups, new_topic=new)

    lag = reasons.of_group(reasons.GROUP_LAG, "billing")
    orders = replaced("orders", {p: blocked(lag, 1000, read_up_to=1000) for p in range(12)})
    progress = tuple((now_ms - s * 1000, {"billing": 12 * (s * 2 + 100), "audit": 0}) for s in range(400, 0, -10))
    draining = TopicSeen(
        orders,
        left(900),
        now_ms - 2_000,
        blocked_since=dict.fromkeys(range(12), now_ms - 19 * MINUTE_MS),
        earlier=(now_ms - 52_000, left(800)),
        noted=((now_ms - 19 * MINUTE_MS, "sealed"),),
        history=progress,
        moved=Moved(groups=frozenset({"audit"})),
        due_ms=now_ms + 8_000,
    )
    wait = reasons.of_group(reasons.GROUP_NOT_MOVED, "audit")
    payments = replaced(
        "payments", {p: RetiredPartition(seal_offset=1000, read_up_to=1000) for p in range(6)}, reason=wait
    )
    after = TopicFacts("payments-v2", "id-2", 4, groups={"billing": GroupFacts(dict.fromkeys(range(4), 9))})
    facts = TopicFacts(
        "payments",
        "id-payments",
        6,
        partitions={p: log(1000, 0) for p in range(6)},
        groups=dict.fromkeys(("audit", "billing"), GroupFacts(dict.fromkeys(range(6), 1000))),
        new_topic=after,
    )
    waiting = TopicSeen(
        payments,
        facts,
        now_ms - 3_000,
        blocked_since={WHOLE: now_ms - 12 * MINUTE_MS},
        moved=Moved(groups=frozenset({"audit", "billing"})),
        due_ms=now_ms + 7_000,
    )
    gone_ms = {"released_ms": now_ms - 50_000, "deleting_ms": now_ms - 40_000, "gone_ms": now_ms - 30_000}
    clicks = replaced("clicks", {p: RetiredPartition(seal_offset=1000) for p in range(32)}, **gone_ms)
    return replace(busy_snapshot(now_ms), topics=(TopicSeen(clicks), draining, waiting))


def keeping_snapshot() -> Snapshot:
    """An active controller: the second half of a change that keeps the name of a topic."""
    now_ms = SYSTEM_CLOCK.now_ms()
    interim, seals = interim_name("orders", "id-1"), {p: RetiredPartition(seal_offset=10) for p in range(4)}
    own: dict[str, Any] = {"delay_ms": 0, "keep_name": True}
    first = Replacement(interim, 4, now_ms - 600_000, new_topic_id="id-2", switched_ms=now_ms - 500_000, **own)
    first = replace(first, released_ms=now_ms - 400_000, deleting_ms=now_ms - 390_000, gone_ms=now_ms - 380_000)
    second = Replacement("orders", 4, now_ms - 300_000, new_topic_id="id-3", switched_ms=now_ms - 290_000, **own)
    more: dict[str, Any] = {"deletion": None, "changed_ms": now_ms - MINUTE_MS}
    alias = replace(record("orders", 0, seals, now_ms, replacement=first, **more), topic_id="id-1")
    draining = replace(record(interim, 0, seals, now_ms, replacement=second, **more), topic_id="id-2")
    return replace(busy_snapshot(now_ms), topics=(TopicSeen(alias), TopicSeen(draining)))


def standby_snapshot() -> Snapshot:
    """A standby that knows who is active."""
    busy = busy_snapshot()
    standby = replace(busy, controller_id="host-2", role=Role.STANDBY, epoch=None, topics=(), takeovers=0)
    assert busy.claim is not None
    return replace(standby, host="host-2", claim=replace(busy.claim, pages="example.com:9404"))
