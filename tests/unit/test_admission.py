"""What may change a topic, and the record that does it. A refusal changes nothing: it is an exception with a code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand, TopicCommand
from modeaware.lifecycle.facts import GroupsDoubt
from modeaware.lifecycle.passes import pass_over
from modeaware.lifecycle.repetition import repetition_of
from modeaware.lifecycle.state import in_progress, topic_phase
from modeaware.lifecycle.steps import advance
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.modelog.records import MAX_PARTITIONS, DeleteTopicPartitions, OpeningPartition, TopicRecord
from tests.support.lifecycle import (
    CONFIG,
    EPOCH,
    LATER_MS,
    NOW_MS,
    RO,
    RW,
    TOPIC,
    TOPIC_ID,
    admitted,
    after,
    ask,
    facts,
    group,
    grow,
    log,
    refusal,
    shrink,
)


def done(to: int = 4, of: int = 12) -> TopicRecord:
    """A shrink that has run its course over empty partitions."""
    return after(admitted(shrink(to), seen=facts(of)), facts(of), passes=3)


class TestShrink:
    def test_retires_the_tail_and_keeps_what_later_phases_need(self) -> None:
        seen = facts(
            logs={p: log(100 + p) for p in range(12)}, groups={"billing": group({0: 5}), "audit": group(members=True)}
        )
        record = admitted(shrink(4, delay_ms=60_000), seen=seen)
        assert record.modes == (RW,) * 4 + (RO,) * 8
        assert (record.topic, record.topic_id, record.epoch, record.controller_epoch) == (TOPIC, TOPIC_ID, 0, EPOCH)
        assert record.deletion == DeleteTopicPartitions(4, 60_000, False, NOW_MS, previous_count=12)
        assert record.deletion.policy == "drained"
        assert record.required_groups == ("audit", "billing")
        assert sorted(record.retired) == list(range(4, 12))
        assert all(retired.seal_offset is None for retired in record.retired.values())
        assert in_progress(record)
        assert topic_phase(record) == "seal"

    def test_partitions_without_a_leader_are_waited_for(self) -> None:
        seen = facts()
        for missing in (1, 7):
            error = refusal(shrink(4), seen=replace(seen, partitions={p: log() for p in range(12) if p != missing}))
            assert error.code is ErrorCode.LEADER_NOT_AVAILABLE, "retriable"
            assert f"no leader available for partitions {missing}" in str(error)

    def test_another_tool_grew_the_topic_while_nothing_was_retired(self) -> None:
        """Its partitions were writable all along, so they count."""
        undone = admitted(grow(12), done())
        grown = facts(20)
        assert admitted(shrink(16), undone, grown).modes == (RW,) * 16 + (RO,) * 4
        assert admitted(shrink(12), undone, grown).modes == (RW,) * 12 + (RO,) * 8
        assert refusal(grow(16), undone, grown).code is ErrorCode.INVALID_PARTITIONS

    def test_immediate_delete_tells_what_each_group_has_not_read(self) -> None:
        logs = {p: log(10) for p in range(12)} | {11: log(10, 4)}
        read = dict.fromkeys(range(12), 10)
        groups = {
            "ahead": group(read),
            "at the marker": group(read | {11: 9}, caught_up=(11,)),
            "behind": group({10: 7, 11: 2}),
        }
        message = ask(shrink(10, immediate_delete=True), seen=facts(logs=logs, groups=groups)).message
        assert message is not None
        assert "about 16 records" in message
        assert "group 'behind': 9" in message
        assert "ahead" not in message
        assert "at the marker" not in message

    def test_immediate_delete_tells_of_groups_that_are_not_listed(self) -> None:
        rules = (GroupRule(REQUIRE, "spark", "*", "", NOW_MS),)
        doubt = GroupsDoubt("no right to see all groups", hidden=True)
        seen = facts(logs={p: log(10) for p in range(12)}, groups_doubt=doubt)
        message = ask(shrink(10, immediate_delete=True), seen=seen, rules=rules).message
        assert message is not None
        assert "unread: group 'spark': 20" in message
        assert message.endswith("there may be more groups: no right to see all groups")

    def test_immediate_delete_tells_no_doubt_about_a_waived_group(self) -> None:
        unclear = {"late": GroupsDoubt("group 'late' is in a rebalance", rebalancing="late")}
        seen = facts(logs={p: log(10) for p in range(12)}, unclear_groups=unclear)
        rules = (GroupRule("waive", "late", "*", "", NOW_MS),)
        message = ask(shrink(10, immediate_delete=True), seen=seen, rules=rules).message
        assert message is not None
        assert "more groups" not in message

    def test_a_record_that_would_not_fit_the_log_is_refused_with_the_limit(self) -> None:
        """Counted to the end of the change: it must fit on the day the drain is done, not only today."""
        groups = {f"group-{number:030d}": group() for number in range(40)}
        seen = facts(6_000, groups=groups)
        error = refusal(shrink(1), seen=seen)
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        found = re.search(r"above the limit of 900000 bytes\. .* about (\d+) retired partitions fit", str(error))
        assert found is not None
        assert "With the topic's 40 groups" in str(error)
        most = int(found[1])
        assert refusal(shrink(6_000 - most * 11 // 10), seen=seen).code is ErrorCode.MESSAGE_TOO_LARGE
        assert len(admitted(shrink(6_000 - most * 9 // 10), seen=seen).retired) == most * 9 // 10


def sealed() -> TopicRecord:
    """Drained of nothing: a group lags."""
    seen = facts(logs={11: log(5)}, groups={"g": group({11: 0})})
    return after(admitted(shrink(4), seen=seen), seen)


def straggling() -> TopicRecord:
    return after(done(), facts(logs={11: log(1, quiet_since_ms=LATER_MS)}))


PHASES = {
    "seal": lambda: admitted(shrink(4)),
    "drain": sealed,
    "reclaim": lambda: after(admitted(shrink(4)), facts()),
    "done": done,
    "straggler": straggling,
}


class TestUndo:
    @pytest.mark.parametrize("phase", PHASES)
    def test_in_every_phase_as_a_whole_or_partly_lowest_ids_first(self, phase: str) -> None:
        record = PHASES[phase]()
        undone = admitted(grow(12), record)
        assert (undone.modes, undone.retired, undone.deletion) == ((RW,) * 12, {}, None)
        assert undone.epoch == record.epoch + 1
        assert not in_progress(undone)
        revived = admitted(grow(6), record)
        assert revived.modes == (RW,) * 6 + record.modes[6:]
        assert sorted(revived.retired) == list(range(6, 12))
        assert revived.deletion is not None
        assert revived.deletion.delete_partitions == 6
        assert revived.deletion.create_timestamp_ms == NOW_MS
        assert advance(pass_over(revived, facts(), (), CONFIG, LATER_MS)) is not None


class TestGrow:
    def test_new_partitions_are_closed_at_first(self) -> None:
        seen = facts(groups={"g": group({0: 1})})
        record = admitted(grow(14, assignments=((1,), (2,))), seen=seen)
        assert record.modes == (RW,) * 12 + (RO,) * 2
        assert record.opening == {12: OpeningPartition(0), 13: OpeningPartition(0)}
        assert record.retired == {}
        assert record.opening_since_ms == NOW_MS
        assert record.opening_assignments == ((1,), (2,))
        assert topic_phase(record) == "opening"

    def test_partitions_another_tool_made_are_opened_from_their_log_start(self) -> None:
        record = admitted(grow(14), done(), facts(14, logs={12: log(30, 20)}))
        assert record.modes == (RW,) * 12 + (RO,) * 2
        assert record.opening == {12: OpeningPartition(20), 13: OpeningPartition(0)}
        assert record.view().resume_offsets == {12: 20, 13: 0}

    def test_the_same_growth_twice_is_harmless(self) -> None:
        record = admitted(grow(14))
        for seen in (facts(12), facts(14)):
            assert ask(grow(14), record, seen).record is None
            refused = refusal(grow(13), record, seen)
            assert refused.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
            assert "already growing to 14 partitions" in str(refused)


@pytest.mark.parametrize(
    ("command", "record", "changes", "code", "words"),
    [
        (shrink(0), None, {}, ErrorCode.INVALID_PARTITIONS, "at least 1"),
        (shrink(12), None, {}, ErrorCode.INVALID_PARTITIONS, "12 writable partitions already"),
        (shrink(13), None, {}, ErrorCode.INVALID_PARTITIONS, f"modeaware grow {TOPIC} --partitions 13"),
        (shrink(4), done, {}, ErrorCode.INVALID_PARTITIONS, "4 writable partitions already"),
        (
            shrink(2),
            done,
            {"partition_count": 20},
            ErrorCode.INVALID_PARTITIONS,
            "added partitions 12-19: first grow it to 20",
        ),
        (
            grow(12),
            done,
            {"partition_count": 20},
            ErrorCode.INVALID_PARTITIONS,
            "added partitions 12-19: first grow it to 20",
        ),
        (shrink(8), lambda: admitted(grow(14)), {}, ErrorCode.REASSIGNMENT_IN_PROGRESS, "change is in progress"),
        (shrink(4, delay_ms=-2), None, {}, ErrorCode.INVALID_REQUEST, ""),
        (shrink(4), None, {"cleanup_policy": "compact"}, ErrorCode.POLICY_VIOLATION, "latest value of each key"),
        (shrink(4), None, {"cleanup_policy": ""}, ErrorCode.POLICY_VIOLATION, ""),
        (shrink(4), None, {"topic_id": None}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (shrink(4), None, {"internal": True}, ErrorCode.INVALID_TOPIC_EXCEPTION, ""),
        (grow(20), None, {"internal": True}, ErrorCode.INVALID_TOPIC_EXCEPTION, ""),
        (shrink(2), lambda: admitted(shrink(4)), {}, ErrorCode.REASSIGNMENT_IN_PROGRESS, "--undo"),
        (shrink(12), lambda: replace(done(), topic_id="gone"), {}, ErrorCode.INVALID_PARTITIONS, "12 writable"),
        (
            shrink(4, immediate_delete=True),
            lambda: admitted(shrink(4)),
            {},
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            "drained",
        ),
        (shrink(4), lambda: admitted(grow(14)), {}, ErrorCode.REASSIGNMENT_IN_PROGRESS, ""),
        (grow(12), None, {}, ErrorCode.INVALID_PARTITIONS, "12 writable partitions already"),
        (grow(3, validate_only=True), None, {}, ErrorCode.INVALID_PARTITIONS, ""),
        (grow(14, assignments=((1,),)), done, {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "for 2 new partitions"),
        (grow(2**31 - 1), None, {}, ErrorCode.INVALID_PARTITIONS, str(MAX_PARTITIONS)),
    ],
)
def test_refusal_names_its_code_and_what_to_do(
    command: TopicCommand,
    record: Callable[[], TopicRecord] | None,
    changes: dict[str, Any],
    code: ErrorCode,
    words: str,
) -> None:
    error = refusal(command, record() if record is not None else None, replace(facts(), **changes))
    assert error.code is code
    assert words in str(error)


@pytest.mark.parametrize("command", [shrink(4), grow(20)])
def test_mode_log_and_disabled_feature_are_refused(command: TopicCommand) -> None:
    error = refusal(command, config=replace(CONFIG, mode_log_topic=TOPIC))
    assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    error = refusal(shrink(4), config=ControllerConfig(enable=False))
    assert error.code is ErrorCode.POLICY_VIOLATION
    assert "delete.topic.partition.enable" in str(error)


@pytest.mark.parametrize(
    ("command", "accepts", "differs"),
    [
        (shrink(4), (), ()),
        (shrink(4, accept_state_loss=("b", "a")), ("b",), ()),
        (shrink(4, delay_ms=None), (), ("another policy ('drained')", "another delay ('0s')")),
        (shrink(4, immediate_delete=True), (), ("another policy ('drained')",)),
    ],
)
def test_a_request_for_the_shrink_in_force_repeats_it_adds_to_it_or_differs(
    command: DeletePartitionsCommand, accepts: tuple[str, ...], differs: tuple[str, ...]
) -> None:
    record = admitted(shrink(4, accept_state_loss=("a",)))
    again = repetition_of(command, record)
    assert again is not None
    assert (again.accepts, again.differs) == (accepts, differs)
    if differs:
        assert f"already being shrunk, with {', '.join(differs)}: undo that shrink first" in str(
            refusal(command, record)
        )
    else:
        assert (ask(command, record).record is not None) is bool(accepts)


def test_another_request_repeats_nothing() -> None:
    record = admitted(shrink(4))
    assert repetition_of(shrink(3), record) is None
    assert repetition_of(grow(12), record) is None
    assert repetition_of(shrink(4), done()) is None, "it is not in force any more"


def test_same_shrink_twice_changes_nothing() -> None:
    again = ask(shrink(4), admitted(shrink(4)))
    assert again.record is None
    assert "nothing changed" in (again.message or "")
    assert ask(grow(14, validate_only=True)).record is None
