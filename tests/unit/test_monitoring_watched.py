"""What the controller's thread notes for those who watch it."""

from __future__ import annotations

from dataclasses import replace

from modeaware.config import ControllerConfig
from modeaware.controller.daemon import Controller
from modeaware.controller.status import Role
from modeaware.controller.watched import TopicSeen, Watched
from modeaware.lifecycle import reasons
from modeaware.modelog.records import RetiredPartition
from tests.support.watched import blocked, record

NOW_MS = 1_700_000_000_000
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


def test_a_controller_that_has_not_started_has_a_snapshot() -> None:
    controller = Controller({"bootstrap.servers": "127.0.0.1:1"}, ControllerConfig(), controller_id="c")
    snapshot = controller.snapshot()
    assert (snapshot.role, snapshot.controller_id, snapshot.topics, snapshot.address) == (Role.STARTING, "c", (), None)
    assert (snapshot.loop_age_s, snapshot.contact_age_s, snapshot.claim) == (None, None, None)
