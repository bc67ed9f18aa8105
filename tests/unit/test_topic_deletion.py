"""A topic that was replaced is deleted: each condition alone keeps it, and what a pass over it records and does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.alias import record_after
from modeaware.lifecycle.commands import Advance, DeletePredecessor, FenceTopic
from modeaware.lifecycle.drain import requirement_of
from modeaware.lifecycle.facts import FenceFacts, GroupFacts, GroupsDoubt, TopicFacts
from modeaware.lifecycle.replacement import COMING_MS, FENCE_CONFIGS
from modeaware.lifecycle.state import in_progress, topic_phase
from modeaware.lifecycle.topic_deletion import FENCE_SETTLE_MS, LOOK_AGAIN_MS, why_it_stays
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from tests.support.lifecycle import EPOCH, NOW_MS, RO, TOPIC, TOPIC_ID, facts, group, log, look, rule

NAME, ID = "orders-v2", "id-of-the-successor"
SEALS = {0: 10, 1: 0, 2: 7}
MOVED = {0: 3, 1: 0}
"""What a group has committed on the successor."""


def record(**fields: Any) -> TopicRecord:
    """The record of a topic that is let go, and may go at once."""
    about = {"requested_ms": 0, "delay_ms": 0, "successor_id": ID, "announced_ms": 1, "switched_ms": 2}
    since = {"own_configs": {}, "fenced_ms": NOW_MS - FENCE_SETTLE_MS, "let_go_ms": NOW_MS - 1}
    now = Replacement(**{"successor": NAME, "num_partitions": 2, **about, **since, **fields})
    retired = {p: RetiredPartition(seal_offset=seal, seal_leader_epoch=3, read_up_to=seal) for p, seal in SEALS.items()}
    groups = ("billing",)
    return TopicRecord(TOPIC, TOPIC_ID, 5, EPOCH, (RO,) * 3, retired=retired, required_groups=groups, replacement=now)


def logs(**of_first: Any) -> dict[int, Any]:
    """The logs at their seals; the first one otherwise."""
    found = {p: log(seal, log_end=seal, read_up_to=seal) for p, seal in SEALS.items()}
    return {**found, 0: replace(found[0], **of_first)}


def successor(groups: dict[str, GroupFacts] | None = None, **more: Any) -> TopicFacts:
    found = {"billing": group(MOVED, members=True)} if groups is None else groups
    return TopicFacts(NAME, **{"topic_id": ID, "partition_count": 2, "groups": found, **more})


FENCE = FenceFacts(FENCE_CONFIGS, dict.fromkeys(SEALS, 3), frozenset(SEALS))


def seen(**others: Any) -> TopicFacts:
    """A look in which nothing speaks against the deletion."""
    return facts(
        3, **{"logs": logs(), "groups": {"billing": group(SEALS)}, "successor": successor(), "fence": FENCE, **others}
    )


def stays(
    found: TopicFacts, of: TopicRecord | None = None, *rules: GroupRule, now_ms: int = NOW_MS
) -> tuple[str, int | None] | None:
    of = record() if of is None else of
    assert of.replacement is not None
    requirement = requirement_of(of, found, rules, (), now_ms)
    return why_it_stays(of.replacement, of.retired, found, requirement, now_ms)


DENIED = ClusterError("grant WRITE", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
LAG = reasons.of_group(reasons.GROUP_LAG, "billing")
NOT_MOVED = reasons.of_group(reasons.GROUP_NOT_MOVED, "billing")
BACK = {**SEALS, 0: 9}


def test_nothing_speaks_against_it() -> None:
    assert stays(seen()) is None
    assert stays(seen(), record(delay_ms=NOW_MS)) is None


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"logs": {**logs(), 1: log(0)}, "partitions": {0: logs()[0]}}, reasons.UNAVAILABLE),
        ({"partition_count": 4}, reasons.UNAVAILABLE),
        ({"predecessor": "older"}, "predecessor-first:older"),
        ({"successor": TopicFacts(NAME, None, gone=True)}, reasons.NO_SUCCESSOR),
        ({"successor": TopicFacts(NAME, None)}, reasons.UNAVAILABLE),
        ({"successor": successor(topic_id="another", gone=True)}, reasons.NO_SUCCESSOR),
        ({"cleanup_policy": "compact"}, reasons.COMPACTED),
        ({"fence": None}, reasons.NOT_FENCED),
        ({"fence": replace(FENCE, failure=DENIED)}, reasons.FENCE_DENIED),
        ({"fence": replace(FENCE, failure=ClusterError("no"))}, reasons.NOT_FENCED),
        ({"fence": replace(FENCE, proved={0: 3, 1: 3})}, reasons.NOT_FENCED),
        ({"fence": replace(FENCE, proved={0: 2, 1: 3, 2: 3})}, reasons.NOT_FENCED),
        ({"logs": logs(last_stable_offset=9)}, reasons.OPEN_TRANSACTION),
        ({"logs": logs(log_end=11)}, reasons.END_NOT_READ),
        ({"logs": logs(log_end=None)}, reasons.END_NOT_READ),
        ({"logs": logs(log_end=11, end_offset=11, last_stable_offset=11)}, reasons.END_NOT_READ),
        ({"groups_doubt": GroupsDoubt("moved")}, reasons.GROUPS_UNKNOWN),
        ({"groups_doubt": GroupsDoubt("hidden", hidden=True)}, reasons.GROUPS_HIDDEN),
        ({"groups": {"billing": group(BACK)}}, LAG),
        ({"groups": {"billing": group({1: 0, 2: 7})}}, "group-never-committed:billing"),
        ({"groups": {"billing": group(SEALS), "late": group(SEALS)}}, "group-not-moved:late"),
        ({"successor": successor({})}, NOT_MOVED),
        ({"successor": successor({"billing": group({0: 3})})}, NOT_MOVED),
        ({"groups": {}, "successor": successor({})}, NOT_MOVED),
        ({"groups": {"billing": group(SEALS, members=True, subscribed=True)}}, "group-subscribed:billing"),
        ({"groups": {"billing": group(members=True, subscribed=True)}}, "group-never-committed:billing"),
    ],
)
def test_each_condition_alone_keeps_it(others: dict[str, Any], reason: str) -> None:
    found = stays(seen(**others))
    assert found is not None
    assert found[0] == reason


@pytest.mark.parametrize("fields", [{"fenced_ms": None}, {"fenced_ms": NOW_MS - FENCE_SETTLE_MS + 1}])
def test_a_fence_that_has_not_been_in_force_for_long_keeps_it(fields: dict[str, Any]) -> None:
    found = stays(seen(), record(**fields))
    assert found is not None
    assert found[0] == reasons.NOT_FENCED
    assert found[1] == (NOW_MS + 1 if fields["fenced_ms"] else None)


def test_a_successor_that_was_found_deleted_stays_so_while_it_is_missing() -> None:
    """Whether a topic is gone takes a while to find out anew, after a takeover say."""
    missing, noted = TopicFacts(NAME, None), record(reason=reasons.NO_SUCCESSOR)
    assert stays(seen(successor=missing), noted) == (reasons.NO_SUCCESSOR, None)
    assert stays(seen(), noted) is None


def test_a_delay_counts_from_the_request() -> None:
    assert stays(seen(), record(delay_ms=NOW_MS + 5)) == (reasons.DELAY, NOW_MS + 5)


def test_without_a_delay_its_own_retention_has_to_empty_it_first() -> None:
    kept = record(delay_ms=None)
    assert stays(seen(), kept) == (reasons.RETENTION, None)
    emptied = {p: replace(each, log_start=SEALS[p]) for p, each in logs().items()}
    assert stays(seen(logs=emptied), kept) is None
    assert stays(seen(logs={**emptied, 2: logs()[2]}), kept) == (reasons.RETENTION, None)


def test_a_group_in_a_rebalance_is_looked_at_again_soon() -> None:
    settling = ("group-settling:other", NOW_MS + LOOK_AGAIN_MS)
    assert stays(seen(groups_doubt=GroupsDoubt("joins", settling="other"))) == settling
    groups = {"billing": group(SEALS), "other": group(SEALS, members=True, subscribed=None)}
    both = successor({"billing": group(MOVED), "other": group(MOVED)})
    assert stays(seen(groups=groups, successor=both)) == settling


def test_a_waived_group_is_not_waited_for_but_while_it_is_subscribed() -> None:
    waive = rule("waive", "stock")
    assert stays(seen(groups={"billing": group(SEALS), "stock": group({0: 1})}), None, waive) is None
    subscribed = {"billing": group(SEALS), "stock": group({0: 1}, members=True, subscribed=True)}
    assert stays(seen(groups=subscribed), None, waive) == ("group-subscribed:stock", None)


def test_a_waiver_does_not_forgive_that_a_group_may_be_subscribed() -> None:
    """In a rebalance brokers do not say what a group consumes: until then its members may create the topic again."""
    settling = {"stock": GroupsDoubt("group 'stock' is in a rebalance", settling="stock")}
    later = ("group-settling:stock", NOW_MS + LOOK_AGAIN_MS)
    assert stays(seen(unclear_groups=settling), None, rule("waive", "stock")) == later
    unreadable = {"stock": GroupsDoubt("group 'stock' cannot be described")}
    assert stays(seen(unclear_groups=unreadable), None, rule("waive", "stock")) is None


def test_a_group_whose_offsets_have_expired_is_through_once_it_is_on_the_successor() -> None:
    assert stays(seen(groups={})) is None


def test_a_record_that_is_let_go_in_this_pass_is_not_deleted_in_it() -> None:
    found = look(record(let_go_ms=None), seen(), NOW_MS)
    assert found.effects == ()
    assert found.record is not None
    assert found.record.replacement is not None
    assert found.record.replacement.let_go_ms == NOW_MS


def replaced(step: Advance) -> Replacement:
    assert step.record is not None
    assert step.record.replacement is not None
    return step.record.replacement


def test_the_record_says_first_that_it_is_being_deleted_and_whose_deletion_it_was() -> None:
    begun = look(record(), seen(), NOW_MS)
    assert begun.effects == (DeletePredecessor(TOPIC, TOPIC_ID, SEALS),)
    assert (replaced(begun).deleting_ms, replaced(begun).reason) == (NOW_MS, reasons.DELETING)
    assert begun.alarms == ()
    assert begun.record is not None
    assert topic_phase(begun.record) == "reclaim"
    again = look(begun.record, seen(), NOW_MS + 5)
    assert (again.record, again.effects) == (None, begun.effects), "until it is gone, or something objects"
    away = look(begun.record, seen(partitions={}), NOW_MS + 5)
    assert (replaced(away).deleting_ms, away.effects) == (NOW_MS, ()), "its leaders fall silent while it goes"
    gone = look(begun.record, TopicFacts(TOPIC, None, gone=True, successor=successor()), NOW_MS + 9)
    assert gone.alarms == (), "it was ours"
    assert (replaced(gone).gone_ms, replaced(gone).reason) == (NOW_MS + 9, None)
    assert gone.record is not None
    assert (topic_phase(gone.record), in_progress(gone.record)) == ("done", False)
    assert {p: r.seal_offset for p, r in gone.record.retired.items()} == SEALS, "the proof stays"
    assert record_after(gone.record, EPOCH, NOW_MS) is gone.record
    foreign = look(record(), TopicFacts(TOPIC, None, gone=True, successor=successor()), NOW_MS + 9)
    assert len(foreign.alarms) == 1


def test_an_objection_takes_the_intent_back() -> None:
    deleting = record(deleting_ms=NOW_MS, reason=reasons.DELETING)
    found = look(deleting, seen(groups={"billing": group(BACK)}), NOW_MS + 5)
    assert (found.effects, replaced(found).deleting_ms, replaced(found).reason) == ((), None, LAG)
    late = logs(end_offset=11, last_stable_offset=11, log_end=11, read_up_to=11)
    broken = look(deleting, seen(logs=late), NOW_MS + 5)
    assert broken.effects == ()
    assert (replaced(broken).deleting_ms, replaced(broken).let_go_ms) == (None, None)


def test_a_fence_that_is_lifted_is_restored_and_settles_anew() -> None:
    lifted = look(record(), seen(fence=FenceFacts(answered=frozenset(SEALS))), NOW_MS)
    assert lifted.effects == (FenceTopic(TOPIC, TOPIC_ID, FENCE_CONFIGS),)
    assert len(lifted.alarms) == 1
    assert lifted.record is not None
    assert replaced(lifted).fenced_ms is None
    restored = look(lifted.record, seen(), NOW_MS + 5)
    assert (restored.effects, replaced(restored).fenced_ms) == ((), NOW_MS + 5)
    assert restored.due_ms == NOW_MS + 5 + FENCE_SETTLE_MS
    assert restored.record is not None
    assert look(restored.record, seen(), restored.due_ms - 1).effects == ()
    assert len(look(restored.record, seen(), restored.due_ms).effects) == 1


def test_without_a_fence_it_is_done_once_it_is_let_go() -> None:
    without = record(fence="none", own_configs=None, fenced_ms=None)
    assert topic_phase(without) == "done"
    assert look(without, seen(fence=None), NOW_MS) == Advance()


@pytest.mark.parametrize(("members", "after_ms", "held_up"), [(True, 0, 0), (False, 0, 1), (True, COMING_MS, 1)])
def test_a_subscriber_is_a_reason_to_wait_unless_it_is_about_to_leave(
    members: bool, after_ms: int, held_up: int
) -> None:
    subscribed = {"billing": group(SEALS, members=True, subscribed=True)}
    on_successor = successor({"billing": group(MOVED, members=True, subscribed=members)})
    found = look(record(reason="delay"), seen(groups=subscribed, successor=on_successor), NOW_MS + after_ms)
    assert found.effects == ()
    assert replaced(found).reason == ("group-subscribed:billing" if held_up else None)
    assert len(found.alarms) == held_up
