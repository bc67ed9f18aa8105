"""Growth beyond the partitions there are: closed until every known group has an offset on the new ones."""

from __future__ import annotations

from modeaware.lifecycle.commands import CommitOffsets
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import TopicRecord
from tests.support.lifecycle import (
    CONFIG,
    NOW_MS,
    RW,
    TOPIC,
    TOPIC_ID,
    admitted,
    after,
    facts,
    group,
    grow,
    look,
    rule,
)

SOON_MS = NOW_MS + 1
DEADLINE_MS = NOW_MS + CONFIG.open_timeout_ms


def opening(**fields: object) -> TopicRecord:
    return admitted(grow(14, **fields))


def seen_with(groups: dict[str, GroupFacts], **more: object) -> object:
    return facts(14, groups=groups, **more)


def test_without_groups_they_open_at_once() -> None:
    record = after(opening(), facts(14), SOON_MS)
    assert record.modes == (RW,) * 14
    assert record.opening == {}
    assert record.opening_since_ms is None
    assert record.opening_assignments == ()
    assert topic_phase(record) == "done"


def test_a_group_with_members_is_waited_for() -> None:
    """It has to commit by itself: nobody else may commit for it while it has members."""
    step = look(opening(), seen_with({"g": group({0: 1}, members=True)}), SOON_MS)
    assert step.record is None
    assert step.effects == ()
    assert step.due_ms == DEADLINE_MS
    assert look(opening(), seen_with({"g": group({12: 0}, members=True)}), SOON_MS).record is None, "one of two"
    step = look(opening(), seen_with({"g": group({12: 0, 13: 0}, members=True)}), SOON_MS)
    assert step.record is not None
    assert step.record.modes == (RW,) * 14


def test_the_open_offset_is_committed_for_groups_without_members() -> None:
    """Else a `latest` group that comes back later would begin at the end, behind its first records."""
    step = look(opening(), seen_with({"idle": group({0: 1, 12: 0}), "gone": group({0: 1})}), SOON_MS)
    assert step.effects == (
        CommitOffsets(TOPIC, TOPIC_ID, "gone", {12: 0, 13: 0}),
        CommitOffsets(TOPIC, TOPIC_ID, "idle", {13: 0}),
    )
    assert step.record is None
    assert step.due_ms == SOON_MS, "the next look is at once: it opens"


def test_a_waived_group_that_cannot_be_judged_is_not_waited_for() -> None:
    unclear = {"g": GroupsDoubt("group 'g' is in a rebalance", rebalancing="g")}
    seen = seen_with({}, unclear_groups=unclear)
    assert look(opening(), seen, SOON_MS).record is None
    opened = look(opening(), seen, SOON_MS, rules=(rule("waive", "g"),)).record
    assert opened is not None
    assert opened.modes == (RW,) * 14


def test_nobody_is_waited_for_longer_than_the_timeout() -> None:
    seen = seen_with({"g": group({0: 1}, members=True)}, groups_doubt=GroupsDoubt("and who else"))
    assert look(opening(), seen, DEADLINE_MS - 1).record is None
    assert after(opening(), seen, DEADLINE_MS).modes == (RW,) * 14
