"""What is said before a change: KIP-694's warnings, the plan, the note on keys, the question."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.cli import confirm, plan
from modeaware.cli.situation import Situation
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, ReplicaState

RW, RO = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY
LOGS = {p: PartitionFacts(0, 10, 10, 0, 0) for p in range(12)}
FRESH = Situation("t", None, TopicFacts("t", "id", 12, partitions=LOGS))
DELETION = DeleteTopicPartitions(4, 0, False, 0, 12)
RECORD = TopicRecord("t", "id", 1, 1, (RW,) * 4 + (RO,) * 8, DELETION, {p: RetiredPartition() for p in range(4, 12)})
SHRINKING = replace(FRESH, record=RECORD)
GONE = RetiredPartition(replica_state=ReplicaState.DELETION_SUCCESSFUL)
SHRUNK = replace(
    FRESH,
    record=replace(RECORD, modes=(RW,) * 4 + (PartitionMode.NONE,) * 8, retired=dict.fromkeys(range(4, 12), GONE)),
)
SHRINK, GROW = DeletePartitionsCommand("t", 4, 0), CreatePartitionsCommand("t", 14)


@pytest.mark.parametrize(
    ("command", "situation", "expected"),
    [
        (SHRINK, FRESH, [plan.FEATURE_WARNING]),
        (GROW, FRESH, [plan.GROWTH_WARNING]),
        (GROW, SHRUNK, [plan.GROWTH_WARNING]),
        (GROW, SHRINKING, [plan.GROWTH_WARNING, plan.CHANGING_WARNING]),
    ],
)
def test_each_warning_is_given_where_it_applies(
    command: DeletePartitionsCommand | CreatePartitionsCommand, situation: Situation, expected: list[str]
) -> None:
    assert [line for line in plan.warnings(command, situation) if line.startswith("WARNING")] == expected


def test_the_warnings_are_the_kips_word_for_word() -> None:
    assert plan.GROWTH_WARNING == (
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
        "messages will be affected"
    )
    assert plan.FEATURE_WARNING == (
        "WARNING: This feature is only enabled with Metadata version above 10 and delete.topic.partition.enable "
        "turned on"
    )
    assert plan.CHANGING_WARNING == "WARNING: The topic is currently under changes"


def test_a_shrink_is_planned_by_partition_and_policy() -> None:
    text = "\n".join(plan.plan(SHRINK, FRESH))
    assert "12 -> 4" in text
    assert "ReadOnly: 4-11," in text
    assert "once every group has consumed them." in text
    later = "\n".join(plan.plan(DeletePartitionsCommand("t", 4, 500), FRESH))
    assert "500 ms from now" in later
    kept = "\n".join(plan.plan(DeletePartitionsCommand("t", 4), FRESH))
    assert "own retention" in kept
    at_once = "\n".join(plan.plan(DeletePartitionsCommand("t", 4, 0, True), FRESH))
    assert "WITHOUT waiting" in at_once


STREAMS = GroupFacts({0: 10}, has_members=True, kind="classic", stateful=True)
STATEFUL = replace(FRESH, facts=replace(FRESH.facts, groups={"app": STREAMS, "plain": GroupFacts({0: 10})}))


@pytest.mark.parametrize(
    ("target", "what"), [(4, "the keys of partitions 4-11"), (5, "most keys, since 5 does not divide 12,")]
)
def test_accepted_loss_of_state_names_what_does_not_move(target: int, what: str) -> None:
    command = DeletePartitionsCommand("t", target, accept_state_loss=("app", "plain", "absent"))
    warning, plain, absent = plan.warnings(command, STATEFUL)[2:]
    assert warning.startswith("WARNING: group 'app' keeps state per partition")
    assert f"(windows, joins, aggregates, tables) for {what} stays in the changelogs" in warning
    assert "plain: the group keeps no state that is known of" in plain
    assert "absent: the group does not use the topic" in absent


def test_an_undo_says_what_stays_deleted() -> None:
    logs = {**LOGS, 4: PartitionFacts(10, 10, 10, 0, 0), 6: PartitionFacts(7, 10, 10, 0, 0)}
    kept, gone = plan.undo_plan(replace(SHRUNK, facts=replace(SHRUNK.facts, partitions=logs)))
    assert kept == "Given back: partitions 4-11 with the 63 offsets they still hold."
    assert gone.startswith("Records deleted before stay deleted: 17 offsets below the log starts of partitions 4,6 (")


def test_growth_is_planned_as_revived_and_new() -> None:
    assert plan.plan(GROW, SHRUNK) == [
        "t: 4 -> 14 writable partitions.",
        "ReadWrite again: 4-11.",
        "New: 12-13, closed to writes until every group knows them.",
    ]
    assert plan.plan(GROW, FRESH) == ["t: 12 -> 14 writable partitions.", "New: 12-13."]


@pytest.mark.parametrize(
    ("answer", "goes_on"), [("y", True), (" YES ", True), ("n", False), ("", False), ("yo", False)]
)
def test_the_question_is_answered_by_a_person(answer: str, goes_on: bool) -> None:
    assert confirm.ask("Go on?", yes=False, is_terminal=True, read_line=lambda prompt: answer) is goes_on
