"""What a controller's thread notes for those who watch it, what its status says, and its health."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from modeaware.controller import status
from modeaware.controller.status import Role, TopicSeen, Watched
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, TopicFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from modeaware.monitoring import status_json
from modeaware.monitoring.pages import ControllerPages
from modeaware.printable import printable
from tests.support.lifecycle import log
from tests.support.watched import MINUTE_MS, blocked, busy_snapshot, record, replacing_snapshot, standby_snapshot

NOW_MS = 1_700_000_000_000


def topic(name: str) -> dict[str, Any]:
    told = status_json.status_of(busy_snapshot(NOW_MS))
    json.dumps(told)
    (found,) = [one for one in told["topics"] if one["topic"] == name]
    return found


def test_a_drain_that_is_held_up() -> None:
    orders = topic("orders")
    assert orders["phase"] == "seal"
    assert orders["phases"] == {"seal": 1, "drain": 4, "done": 3}
    assert orders["modes"] == [[0, 3, "ReadWrite"], [4, 6, "None"], [7, 11, "ReadOnly"]]
    assert topic("grown")["trouble"] == "no broker answered"
    assert "rebalance" in topic("clicks")["groups_doubt"]
    held = orders["blocked"]
    assert [(one["code"], one["partitions"], NOW_MS - one["since_ms"]) for one in held] == [
        ("group-lag", "7-9", 50 * MINUTE_MS),
        ("still-written", "11", 30_000),
        ("group-lag", "10", 9_000),
    ]
    assert held[0]["text"] == "group 'billing' has not read to the seal: run its consumers"


def replaced(**more: Any) -> TopicRecord:
    replacement = Replacement("orders-v2", 4, 0, switched_ms=NOW_MS - 60_000, **more)
    return record("orders", 0, {0: RetiredPartition(seal_offset=9)}, NOW_MS, replacement=replacement, deletion=None)


def test_a_replacement_that_waits_for_a_group() -> None:
    waits = replaced(reason=reasons.of_group(reasons.GROUP_NOT_MOVED, "billing"))
    watched = Watched()
    watched.claimed([replaced()], (), NOW_MS - 50_000)
    watched.appended(waits, NOW_MS - 40_000)
    (seen,) = watched.seen().topics
    shown = status_json.topic_status(seen, replace(busy_snapshot(NOW_MS), topics=(seen,)))
    (held,) = shown["blocked"]
    assert (held["code"], held["partitions"], held["count"], held["since_ms"]) == (
        "group-not-moved", "-", 0, NOW_MS - 40_000,
    )  # fmt: skip
    assert shown["replacement"]["new_topic"] == "orders-v2"
    assert status.blocked_ages_s(seen, NOW_MS) == {"group-not-moved": 40.0}
    assert status.gate_age_s(seen, NOW_MS) == 60.0
    assert status.describe_waiting(waits).startswith("drain (group 'billing' has no offset on the new topic")
    assert status.gate_age_s(replace(seen, record=replaced(released_ms=NOW_MS)), NOW_MS) is None


def test_a_replacement_shows_records_left_events_and_the_next_command() -> None:
    clicks, orders, payments = status_json.status_of(replacing_snapshot(NOW_MS))["topics"]
    assert (orders["change"], orders["phase"]) == ("replacement by orders-v2 (4)", "drain")
    assert [one["next"] for one in orders["blocked"]] == ["modeaware groups list orders"]
    assert orders["left"] == {"unread": 1200, "at_first": 10_800, "left_s": 50}
    assert {one["group"]: (one["text"], one["gate_open"]) for one in orders["groups"]} == {
        "billing": ("gate closed: it has 1 200 unread records in partitions 0-11", False),
        "audit": (None, True),
    }
    assert (orders["groups_waiting"], payments["groups_waiting"]) == (1, 0)
    assert (orders["checked_ms"], orders["due_ms"]) == (NOW_MS - 2_000, NOW_MS + 8_000)
    assert len(orders["history_ms"]) == 40
    assert {one["group"]: one["history"][0] for one in orders["groups"]} == {"billing": 10_800, "audit": 0}
    happened = [(one["what"], NOW_MS - one["at_ms"]) for one in orders["events"]]
    assert happened == [
        ("requested", 1_200_000),
        ("announced", 1_197_000),
        ("switched", 1_191_000),
        ("fenced", 1_190_000),
        ("sealed", 1_140_000),
    ]
    assert [one["next"] for one in payments["blocked"]] == ["modeaware groups prepare audit --topic payments-v2"]
    assert payments["left"] is None
    assert (clicks["alias"], orders["alias"], clicks["change"]) == (True, False, None)
    assert [one["what"] for one in clicks["events"]][-2:] == ["released", "deleted"]


def test_phases_that_end_and_late_records_are_events() -> None:
    watched = Watched()
    retired = RetiredPartition()
    first = record("orders", 1, {1: retired}, NOW_MS)
    for at_ms, changed in (
        (1, retired),
        (2, blocked(LAG)),
        (3, replace(retired, stragglers=1)),
        (4, blocked(LAG, stragglers=1)),
    ):
        watched.appended(replace(first, retired={1: changed}), at_ms)
    assert only(watched).noted == ((2, "sealed"), (3, "a late record broke a seal"), (4, "sealed"))


def test_the_history_covers_the_whole_change_and_stays_short() -> None:
    (shown,) = (one for one in busy_snapshot(NOW_MS).topics if one.record.topic == "orders")
    watched = Watched()
    watched.appended(shown.record, NOW_MS)
    for second in range(1_000):
        watched.checked(shown.record.topic_id, shown.facts, NOW_MS + second * 1000)
    times_s = [(at_ms - NOW_MS) // 1000 for at_ms, _ in only(watched).history]
    assert times_s[0] == 0
    assert 20 <= len(times_s) <= status.MOST_POINTS
    assert times_s[-1] >= 960
    assert only(watched).history[-1][1]["billing"] == 240
    done = replace(shown.record, retired={}, deletion=None, modes=shown.record.modes[:4])
    watched.appended(done, NOW_MS)
    assert (len(only(watched).history), only(watched).noted) == (len(times_s), ((NOW_MS, "done"),))
    watched.appended(shown.record, NOW_MS)
    assert (only(watched).history, only(watched).noted) == ((), ()), "another change begins"


def test_a_standby_names_the_page_of_the_active_controller_where_it_can_be_reached() -> None:
    standby = standby_snapshot()
    assert standby.claim is not None
    for pages, host, expected in (
        ("example.com:9404", "host-2", "http://example.com:9404/"),
        ("127.0.0.1:9404", "host-2", None),
        ("127.0.0.1:9404", "host-1", "http://127.0.0.1:9404/"),
        (None, "host-1", None),
    ):
        shown = replace(standby, host=host, claim=replace(standby.claim, pages=pages))
        assert status_json.status_of(shown)["claim"]["page"] == expected


def test_a_fence_that_is_lifted_is_counted() -> None:
    watched = Watched()
    for fenced_ms in (None, NOW_MS, NOW_MS, None, None):
        watched.appended(replaced(fenced_ms=fenced_ms), NOW_MS)
    assert watched.seen().topics[0].fences_lifted == 1
    watched.claimed([replaced()], (), NOW_MS)
    assert watched.seen().topics[0].fences_lifted == 1, "a new claim does not forget it"


def test_how_long_a_group_takes_at_its_pace() -> None:
    (seen,) = (one for one in busy_snapshot(NOW_MS).topics if one.record.topic == "orders")

    def told(before_s: int, billing: dict[int, int], **facts: Any) -> tuple[float | None, int | None]:
        assert seen.checked_ms is not None
        groups = {**seen.facts.groups, "billing": replace(seen.facts.groups["billing"], committed=billing)}
        earlier = seen.checked_ms - before_s * 1000, replace(seen.facts, **{"groups": groups, **facts})
        moved = replace(seen, earlier=earlier)
        by_name = {one["group"]: one for one in status_json.topic_status(moved, busy_snapshot(NOW_MS))["groups"]}
        return by_name["billing"]["read_per_s"], by_name["billing"]["left_s"]

    read = dict.fromkeys(range(7, 10), 100) | {10: 200, 11: 40}
    assert told(30, read) == (2.0, 120)
    assert told(30, dict.fromkeys(range(7, 12), 200)) == (-13.333, None), "reset to an earlier offset"
    assert told(1, read) == (None, None), "too short a time"
    assert told(30, read, groups={}) == (None, None), "not seen then"


def test_the_pace_is_measured_from_the_first_pass_over_all_partitions_and_for_a_minute() -> None:
    (shown,) = (one for one in busy_snapshot(NOW_MS).topics if one.record.topic == "orders")
    every, billing, watched = shown.facts, shown.facts.groups["billing"], Watched()
    watched.appended(shown.record, NOW_MS)

    def look(after_s: int, committed: int, **changes: Any) -> tuple[float | None, int | None]:
        groups = {"billing": replace(billing, committed={7: committed, 8: 120, 9: 120, 10: 200, 11: 40})}
        facts = replace(every, **{"groups": groups, **changes})
        watched.checked(shown.record.topic_id, facts, NOW_MS + after_s * 1000)
        told = status_json.topic_status(only(watched), busy_snapshot(NOW_MS))
        by_name = {one["group"]: one for one in told["groups"]}
        return by_name["billing"]["read_per_s"], by_name["billing"]["left_s"]

    before = {"partitions": {}, "groups": {"billing": GroupFacts()}}  # of the time before the shrink
    assert look(0, 0, **before) == (None, None)
    assert look(10, 20) == (None, None), "its first commits are no pace"
    assert look(20, 40) == (2.0, 160)
    assert look(71, 40) == (0.0, None), "it is stuck: what it read a minute ago is no pace"
    assert look(400, 40) == (0.0, None)


def test_texts_count_the_other_groups_that_hold_a_partition_up() -> None:
    more = GroupFacts(dict.fromkeys((7, 8, 10), 200) | {9: 100, 11: 40})
    (seen,) = (one for one in busy_snapshot(NOW_MS).topics if one.record.topic == "orders")
    seen = replace(seen, facts=replace(seen.facts, groups={**seen.facts.groups, "audit": more, "late": more}))
    waiver = GroupRule("waive", "late", "orders", "", 0)
    told = status_json.topic_status(seen, replace(busy_snapshot(NOW_MS), rules=(waiver,)))
    lag = "group 'billing' (and 1 more) has not read to the seal: run its consumers"
    assert [one["text"] for one in told["blocked"] if one["partitions"] == "7-9"] == [lag]
    assert {one["group"]: (one["partitions"], one["waived"]) for one in told["groups"]}["late"] == ("-", True)


def test_a_waived_group_does_not_hold_a_replacement_up() -> None:
    after = TopicFacts("orders-v2", "id-2", 2)
    groups = dict.fromkeys(("audit", "billing", "late"), GroupFacts({0: 9}))
    facts = TopicFacts("orders", "id-orders", 1, partitions={0: log(9, 0)}, groups=groups, new_topic=after)
    seen = TopicSeen(replaced(reason=reasons.of_group(reasons.GROUP_NOT_MOVED, "billing")), facts, NOW_MS)
    waiver = GroupRule("waive", "late", "orders", "", 0)
    told = status_json.topic_status(seen, replace(busy_snapshot(NOW_MS), rules=(waiver,)))
    assert told["blocked"][0]["text"].startswith("group 'billing' (and 1 more) has no offset on the new topic")
    assert {one["group"]: one["waived"] for one in told["groups"]} == {"audit": False, "billing": False, "late": True}


def test_a_doubt_about_a_waived_group_is_not_shown() -> None:
    (seen,) = (one for one in busy_snapshot(NOW_MS).topics if one.record.topic == "orders")
    assert seen.facts is not None
    unclear = {"late": GroupsDoubt("group 'late' is in a rebalance", rebalancing="late")}
    seen = replace(seen, facts=replace(seen.facts, unclear_groups=unclear))
    waiver = GroupRule("waive", "late", "orders", "", 0)
    assert status_json.topic_status(seen, busy_snapshot(NOW_MS))["groups_doubt"] == "group 'late' is in a rebalance"
    assert status_json.topic_status(seen, replace(busy_snapshot(NOW_MS), rules=(waiver,)))["groups_doubt"] is None


def test_a_reason_of_a_newer_controller_stays_in_the_closed_set() -> None:
    seen = TopicSeen(record("t", 1, {1: blocked("invented:by somebody")}, NOW_MS))
    assert status.blocked_ages_s(seen, NOW_MS) == {"other": 45 * 60.0}
    for code in reasons.CODES:
        assert code == reasons.of_group(code, "g").partition(":")[0]


def test_metrics_name_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "modeaware.monitoring.controller_metrics", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in [name for name in sys.modules if name.startswith("prometheus_client.")]:
        monkeypatch.setitem(sys.modules, name, None)
    answer = ControllerPages(lambda: busy_snapshot(NOW_MS))("/metrics", "")
    assert (answer.status, answer.body) == (501, b"no metrics: install modeaware[metrics]\n")


NOT_CLAIMED = "the leader of the election's group has not claimed the mode log, and may not be a controller"


@pytest.mark.parametrize(
    ("change", "alive", "ready"),
    [
        ({}, None, None),
        ({"role": Role.STANDBY}, None, None),
        ({"role": Role.STARTING, "loop_age_s": None, "contact_age_s": None}, None, "starting"),
        (
            {"loop_age_s": 121.0},
            "the controller's thread hangs: no progress for 121 s; restart the controller",
            "the controller's thread hangs: no progress for 121 s; restart the controller",
        ),
        ({"contact_age_s": 46.0}, None, "no contact with the cluster for 46 s"),
        ({"contact_age_s": None}, None, "no contact with the cluster yet"),
        ({"role": Role.STANDBY, "leaderless_s": 9.0}, None, None),
        (
            {"role": Role.STANDBY, "leaderless_s": 11.0},
            None,
            f"no active controller for 11 s: {NOT_CLAIMED}",
        ),
        ({"role": Role.STOPPED}, "stopped", "stopped"),
        ({"role": Role.STOPPED, "stopped_by": "ValueError: \x1b"}, "stopped: ValueError: \x1b", "stopped"),
    ],
)
def test_health(change: dict[str, Any], alive: str | None, ready: str | None) -> None:
    snapshot = replace(busy_snapshot(NOW_MS), **change)
    assert status.alive(snapshot) == alive
    assert status.ready(snapshot) == ready
    pages = ControllerPages(lambda: snapshot)
    for path, wrong in (("/health", alive), ("/ready", ready)):
        answer = pages(path, "")
        assert answer.status == (HTTPStatus.OK if wrong is None else HTTPStatus.SERVICE_UNAVAILABLE)
        assert answer.body.decode() == f"{printable(wrong or 'ok')}\n"


LAG = reasons.of_group(reasons.GROUP_LAG, "a")


def only(watched: Watched) -> TopicSeen:
    (seen,) = watched.seen().topics
    return seen


def test_a_hold_up_is_as_old_as_its_phase() -> None:
    watched = Watched()
    first = record("orders", 1, {1: blocked(LAG), 2: RetiredPartition()}, NOW_MS)
    watched.appended(first, NOW_MS)
    assert only(watched).blocked_since == {1: NOW_MS}
    other_group = blocked(reasons.of_group(reasons.GROUP_LAG, "b"))
    watched.appended(replace(first, retired={1: other_group, 2: blocked(LAG)}), NOW_MS + 5)
    assert only(watched).blocked_since == {1: NOW_MS, 2: NOW_MS + 5}
    watched.appended(replace(first, retired={1: blocked(reasons.GROUPS_UNKNOWN), 2: RetiredPartition()}), NOW_MS + 9)
    assert only(watched).blocked_since == {1: NOW_MS}, "a rebalance in between changes the reason, not the trouble"
    watched.appended(replace(first, retired={1: blocked(reasons.STRAGGLER, None)}), NOW_MS + 11)
    assert only(watched).blocked_since == {1: NOW_MS + 11}, "back to another phase"
    watched.appended(replace(first, retired={1: blocked(reasons.DELAY, None)}), NOW_MS + 12)
    assert only(watched).blocked_since == {1: NOW_MS + 12}, "what is waited for as it was asked is no trouble"


def test_stragglers_are_counted_as_they_come_and_over_claims() -> None:
    watched = Watched()
    before = record("orders", 1, {1: RetiredPartition(stragglers=2)}, NOW_MS)
    watched.claimed([before], (), NOW_MS)
    assert only(watched).stragglers == 0, "another controller has told those"
    after = replace(before, retired={1: RetiredPartition(stragglers=3)})
    watched.appended(after, NOW_MS)
    watched.appended(replace(after, retired={}), NOW_MS)
    assert only(watched).stragglers == 1
    watched.claimed([after], (), NOW_MS)
    assert only(watched).stragglers == 1, "a counter does not go back while the process lives"
