"""Whom a drain waits for, and why, as it is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, MembersSeen, PartitionFacts, TopicFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.reports.groups import GroupsReport, given_up, groups_text, report_groups

NOW = 5_000
IGNORED = ("console-consumer-*",)
RECORD = TopicRecord(
    "orders",
    "id",
    1,
    1,
    (PartitionMode.READ_WRITE,) * 2 + (PartitionMode.READ_ONLY,) * 2,
    DeleteTopicPartitions(2, 0, False, 0, 4),
    {2: RetiredPartition(seal_offset=10), 3: RetiredPartition()},
    required_groups=("billing", "gone"),
)
FACTS = TopicFacts(
    "orders",
    "id",
    4,
    partitions={2: PartitionFacts(2, 10, 10, 0, 0), 3: PartitionFacts(0, 20, 20, 0, 0)},
    groups={
        "billing": GroupFacts({2: 7, 3: 20}, has_members=True, kind="consumer", members=MembersSeen(1)),
        "console-consumer-1": GroupFacts(has_members=True),
        "done": GroupFacts({2: 10, 3: 20}),
    },
)


def _rule(kind: str, group: str = "", topic: str = "orders", **fields: Any) -> GroupRule:
    return GroupRule(kind, group, topic, fields.pop("reason", "why"), 0, glob="*" in group, **fields)


def _groups(*rules: GroupRule, record: TopicRecord | None = RECORD, facts: TopicFacts = FACTS) -> dict[str, Any]:
    return {group.group: group for group in report_groups(record, facts, rules, IGNORED, NOW).groups}


def test_each_group_has_its_reasons() -> None:
    groups = _groups(_rule("require", "spark"), _rule("require", "d*"), _rule("require", "never", topic="other"))
    because = {name: group.because for name, group in groups.items()}
    assert because == {
        "billing": ("noted", "using"),
        "console-consumer-1": ("ignored",),
        "done": ("using", "registered"),
        "gone": ("noted",),
        "spark": ("registered",),
    }
    assert [name for name, group in groups.items() if not group.required] == ["console-consumer-1"]
    assert {name: group.kind for name, group in groups.items()}["gone"] is None


def test_unread_offsets_and_what_is_held_up() -> None:
    groups = _groups()
    assert groups["billing"].unread == {2: 3, 3: 0}
    assert groups["billing"].held_up == {2: "group-lag:billing"}
    assert groups["gone"].unread == {2: 8, 3: 20}, "what is not there has read nothing, and can read from the start"
    assert groups["gone"].held_up == {2: "group-gone:gone", 3: "group-gone:gone"}
    assert (groups["done"].unread, groups["done"].held_up) == ({2: 0, 3: 0}, {})
    assert groups["console-consumer-1"].held_up == {}
    waiver = _rule("waive", "gone")
    waived = _groups(waiver)["gone"]
    assert (waived.held_up, waived.waivers) == ({}, {2: waiver, 3: waiver})
    assert waived.unread == groups["gone"].unread, "that is what the waiver gives up"


@pytest.mark.parametrize(
    ("doubt", "rules", "told"),
    [
        (GroupsDoubt("a broker is silent"), [_rule("closed")], "a broker is silent"),
        (GroupsDoubt("no right", hidden=True), [], "no right"),
        (GroupsDoubt("no right", hidden=True), [_rule("closed")], None),
        (None, [], None),
    ],
)
def test_doubt_stands_beside_the_groups(doubt: GroupsDoubt | None, rules: list[GroupRule], told: str | None) -> None:
    report = report_groups(RECORD, replace(FACTS, groups_doubt=doubt), rules, IGNORED, NOW)
    assert report.groups_doubt == told
    assert any(not group.held_up for group in report.groups), "a doubt is no group's fault"


def test_each_topic_is_shown_with_its_groups() -> None:
    accepting = replace(RECORD, deletion=DeleteTopicPartitions(2, 0, False, 0, 4, ("app",)))
    groups = {"app": GroupFacts({2: 10, 3: 20}, stateful=True, kind="classic"), **FACTS.groups}
    facts = replace(FACTS, groups=groups, groups_doubt=GroupsDoubt("a broker is silent"))
    topics = (
        report_groups(accepting, facts, [_rule("waive", "gone")], IGNORED, NOW),
        report_groups(None, replace(FACTS, groups={}), [], IGNORED, NOW),
    )
    lines = groups_text(GroupsReport.of(topics, (), NOW)).splitlines()
    assert "The list of groups may be incomplete, so nothing is deleted: a broker is silent" in lines[1]
    shown = {line.split()[0]: line for line in lines if line.startswith("  ")}
    app, billing, gone = (shown[name] for name in ("app", "billing", "gone"))
    assert "  1 seen to be mode-aware  " in billing
    assert app.endswith("the loss of its state is accepted")
    assert gone.endswith("2-3: no, waived (why)")
    assert "  noted when the change began  " in gone, "it may have been registered alone"
    assert lines[-3:] == ["  No group uses it.", "", "There are no rules about groups."]
    assert groups_text(GroupsReport.of((), (), NOW)).startswith("No topic is being changed.")


def test_a_waiver_gives_up_what_its_group_has_not_read() -> None:
    waiver = _rule("waive", "done")
    before, after = (report_groups(RECORD, FACTS, rules, IGNORED, NOW) for rules in ([], [waiver]))
    assert given_up([before], [after], waiver) == [
        "orders: group 'done' has read partitions 2-3: nothing there is unread now."
    ]
    gone = _rule("waive", "gone")
    after = report_groups(RECORD, FACTS, [gone], IGNORED, NOW)
    (line,) = given_up([before], [after], gone)
    assert line.startswith(
        "orders: group 'gone' has not read 28 offsets of partitions 2-3: these records may be deleted"
    )


def test_a_waiver_of_a_group_that_cannot_be_judged_shows_what_it_gives_up() -> None:
    waiver = _rule("waive", "elsewhere")
    facts = replace(FACTS, unclear_groups={"elsewhere": GroupsDoubt("group 'elsewhere' is in a rebalance")})
    before, after = (report_groups(RECORD, facts, rules, IGNORED, NOW) for rules in ([], [waiver]))
    assert (before.groups_doubt, after.groups_doubt) == ("group 'elsewhere' is in a rebalance", None)
    (line,) = given_up([before], [after], waiver)
    assert line.startswith("orders: group 'elsewhere' is in a rebalance. The drain no longer waits for this")


def test_a_waiver_of_one_of_two_groups_that_cannot_be_judged_shows_what_it_gives_up() -> None:
    waiver = _rule("waive", "elsewhere")
    unclear = {name: GroupsDoubt(f"group {name!r} is in a rebalance") for name in ("busy", "elsewhere")}
    facts = replace(FACTS, unclear_groups=unclear)
    before, after = (report_groups(RECORD, facts, rules, IGNORED, NOW) for rules in ([], [waiver]))
    assert (before.groups_doubt, after.groups_doubt) == ("group 'busy' is in a rebalance",) * 2
    (line,) = given_up([before], [after], waiver)
    assert line.startswith("orders: group 'elsewhere' is in a rebalance. The drain no longer waits for this")


def test_a_topic_that_was_never_changed_shows_who_would_be_waited_for() -> None:
    report = report_groups(None, FACTS, [_rule("require", "spark")], IGNORED, NOW)
    assert (report.phase, report.partitions) == ("done", ())
    required = [group.group for group in report.groups if group.required]
    assert required == ["billing", "done", "spark"]
    assert all(not group.held_up and not group.unread for group in report.groups)
