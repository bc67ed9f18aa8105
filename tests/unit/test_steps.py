"""Passes over a shrinking topic: what each phase waits for, and what sends it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from modeaware.errors import ClusterError, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, TopicFacts
from modeaware.lifecycle.state import drains, partition_state
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modes import PartitionState, ReplicaState
from tests.support.lifecycle import (
    LATER_MS,
    NONE,
    NOW_MS,
    QUIET_MS,
    RO,
    Life,
    admitted,
    after,
    facts,
    group,
    grow,
    log,
    look,
    shrink,
)
from tests.support.stories import Steps, Story

P = 11
"""The one partition retired here; it holds ten records."""
FULL = {P: log(10)}
READ = {"g": group({P: 10})}
UNREAD = {"g": group({P: 9})}
SEEN = facts(logs=FULL, groups=READ)
EMPTIED = facts(logs={P: log(10, 10)})
do = Steps()


def retiring(**fields: object) -> TopicRecord:
    return admitted(shrink(P, **fields), seen=SEEN)


def in_none() -> TopicRecord:
    """Drained and None, its records not deleted yet."""
    record = after(retiring(), SEEN)
    assert record.modes[P] is NONE
    return record


def done() -> TopicRecord:
    record = after(in_none(), EMPTIED)
    assert record.retired[P].replica_state is ReplicaState.DELETION_SUCCESSFUL
    return record


class ShrinkingLife(Life):
    """Of a topic whose partition ``P`` is retired."""

    shown = Life.shown | {
        "mode": lambda record: record.modes[P],
        "state": lambda record: partition_state(record.modes[P], record.retired[P]),
        **{
            name: lambda record, name=name: getattr(record.retired[P], name)
            for name in ("reason", "seal_offset", "seal_leader_epoch", "drained_by", "replica_state", "resume_offset")
        },
    }

    def __init__(self, make: Callable[..., TopicRecord] = in_none, **fields: Any) -> None:
        super().__init__(make(**fields))

    def look(self, seen: TopicFacts, now_ms: int = LATER_MS, **expected: Any) -> None:
        super().look(seen, now_ms, **expected)


def readable_again(reason: str, groups: dict[str, GroupFacts], doubt: GroupsDoubt | None = None) -> Story:
    """A proof fails between None and DeleteRecords, when everything is looked at again."""
    return Story(
        do.look(facts(logs=FULL, groups=groups, groups_doubt=doubt), effects=(), mode=RO, reason=reason),
        do.has(drained_by=0, seal_offset=10, replica_state=ReplicaState.DELETION_INELIGIBLE),
        do.has(state=PartitionState.ONLINE),
    )


def straggler(end: int) -> Story:
    seen = facts(logs={P: log(end)}, groups={"g": group({P: end})})
    return Story(
        do.look(seen, effects=(), mode=RO, seal_offset=None, stragglers=1, first_alarm=f"{end - 10} offset(s)"),
        # What a group without a commit has to read from.
        do.has(resume_offset=10, reason=reasons.STRAGGLER),
    )


def truncation(make: Callable[[], TopicRecord]) -> Story:
    cut = facts(logs={P: log(8, quiet_since_ms=LATER_MS)}, groups=READ)
    return Story(
        do.look(cut, mode=RO, seal_offset=None, reason=reasons.TRUNCATED, effects=(), first_alarm="leader election"),
        # Its next records would be passed over.
        do.look(facts(logs={P: log(8)}, groups=READ), LATER_MS + QUIET_MS, reason="group-beyond-end:g"),
        make=make,
    )


def waits_for_retention(start: int) -> tuple[Any, ...]:
    seen = facts(logs={P: log(10, start)}, groups=READ)
    return (
        *[do.look(seen)] * 3,
        do.has(mode=RO, reason=reasons.RETENTION),
        do.glance(seen, LATER_MS + 10**12, effects=()),
    )


STILL_MS = NOW_MS + QUIET_MS
BEHIND = replace(SEEN, earlier_topic="older")
WRITING = facts(logs={P: log(10, stable=9, quiet_since_ms=STILL_MS, moved=True)}, groups=READ)
MORE = facts(logs={P: log(20, quiet_since_ms=STILL_MS + 1_000, moved=True)}, groups=READ)
STOPPED = facts(logs={P: log(20, quiet_since_ms=STILL_MS)}, groups={"g": group({P: 20})})
WHATEVER = facts(logs=FULL, groups=UNREAD, groups_doubt=GroupsDoubt("whatever"))
STORIES = {
    "drained, and deleted": Story(
        do.look(SEEN, LATER_MS - 1, appended=False),
        do.look(SEEN, mode=NONE, deleted={}, due_ms=LATER_MS, phase="reclaim"),  # consumers hear of None first
        do.has(seal_offset=10, seal_leader_epoch=3, drained_by=1, replica_state=ReplicaState.DELETION_STARTED),
        do.has(state=PartitionState.OFFLINE),
        do.look(SEEN, appended=False, deleted={P: 10}, of_the_topic=True),
        do.look(EMPTIED, effects=(), replica_state=ReplicaState.DELETION_SUCCESSFUL, phase="done"),
        (do.has(state=PartitionState.NON_EXISTENT), do.look(EMPTIED, appended=False)),
        make=retiring,
    ),
    "nothing is drained or deleted while groups may come from an earlier topic": Story(
        # One that was adopted in the middle of the shrink, say.
        do.look(BEHIND, mode=RO, reason="earlier-topic-first:older"),
        (do.look(SEEN, mode=NONE), do.look(BEHIND, appended=True, effects=(), mode=RO)),
        make=retiring,
    ),
    "retention waits for the topic's own": Story(
        waits_for_retention(0),
        waits_for_retention(9),
        [do.look(facts(logs={P: log(10, 10)}, groups=UNREAD), effects=())] * 3,
        do.has(phase="done"),
        make=retiring,
        delay_ms=None,
    ),
    "immediate skips the drain and the delay": Story(
        (do.look(WHATEVER, mode=NONE), do.look(WHATEVER, deleted={P: 10})),
        make=retiring,
        immediate_delete=True,
        delay_ms=10**9,
    ),
    "a producer that goes on writing is named once": Story(
        do.look(WRITING, STILL_MS, reason=reasons.STILL_WRITTEN, first_alarm="records still arrive"),
        do.look(MORE, STILL_MS + 1_000, appended=False, alarms=0),
        do.look(STOPPED, STILL_MS + QUIET_MS, mode=NONE),
        make=retiring,
    ),
    "a group has come back before the deletion": readable_again("group-lag:g", UNREAD),
    "a group has begun before the deletion": readable_again(
        "group-never-committed:new", READ | {"new": group(members=True)}
    ),
    "the groups are not known before the deletion": readable_again(
        "groups-unknown", READ, GroupsDoubt("a broker did not answer")
    ),
    "a group is beyond the end before the deletion": readable_again("group-beyond-end:g", {"g": group({P: 11})}),
    "a straggler of one record": straggler(11),
    "a straggler of many": straggler(500),
    "a partition without a leader keeps its proof": Story(
        do.look(replace(SEEN, partitions={0: log()}), appended=False, effects=())
    ),
    "truncation of what drains": truncation(lambda: after(retiring(), facts(logs=FULL, groups=UNREAD))),
    "truncation of what is to be deleted": truncation(in_none),
    "truncation of what is deleted": truncation(done),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_shrinking(story: Story) -> None:
    story.run(ShrinkingLife)


def test_a_step_outside_the_tables_is_refused() -> None:
    """A record nothing of ours wrote: reclaimed, yet ReadOnly and unsealed."""
    odd = {P: RetiredPartition(replica_state=ReplicaState.DELETION_SUCCESSFUL)}
    with pytest.raises(RequestRefused, match="no transition ReadOnly/ReplicaDeletionSuccessful"):
        look(replace(retiring(), retired=odd), SEEN)


@pytest.mark.parametrize("topic_id", [None, "another"])
def test_topic_that_is_absent_or_replaced_is_left_alone(topic_id: str | None) -> None:
    for record in (retiring(), in_none(), done(), admitted(grow(14))):
        step = look(record, facts(topic_id=topic_id, logs=FULL, groups=READ))
        assert (step.record, step.tombstone, step.effects) == (None, False, ())


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_topic_that_becomes_compacted_keeps_its_records_until_it_is_set_back(policy: str) -> None:
    """The latest value of a key may lie in the retired partition."""
    compacted = replace(SEEN, cleanup_policy=policy)
    for fields in ({}, {"delay_ms": None}, {"immediate_delete": True}):
        waiting = after(retiring(**fields), compacted, passes=2)
        assert (waiting.modes[P], waiting.retired[P].reason) == (RO, reasons.COMPACTED)
    assert after(after(retiring(), compacted), replace(SEEN, cleanup_policy="delete")).modes[P] is NONE
    step = look(in_none(), compacted)
    assert (step.effects, step.record.modes[P], step.record.retired[P].reason) == ((), RO, reasons.COMPACTED)


def test_record_with_retired_partitions_and_no_shrink_holds_up_its_own_topic_alone() -> None:
    """Other software may write one: RequestRefused would end each active controller at its first snapshot."""
    record = replace(retiring(), deletion=None)
    with pytest.raises(ClusterError, match="retired partitions but no deletion"):
        drains(P, record)
