"""What may change a topic, and the record that does it. A refusal changes nothing: it is an exception with a code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode
from modeaware.lifecycle.admission import MAX_RECORD_BYTES
from modeaware.lifecycle.advance import advance
from modeaware.lifecycle.commands import Command, DeletePartitionsCommand
from modeaware.lifecycle.phases import in_progress, topic_phase
from modeaware.modelog.deletion import DeleteTopicPartitions
from modeaware.modelog.json_fields import MAX_PARTITIONS
from modeaware.modelog.records import TopicRecord
from modeaware.modes import ReplicaState
from tests.support.lifecycle import (
    CONFIG,
    EPOCH,
    LATER_MS,
    NONE,
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
        assert record.switch_offsets == {0: 100, 1: 101, 2: 102, 3: 103}
        assert record.required_groups == ("audit", "billing")
        assert sorted(record.retired) == list(range(4, 12))
        assert all(retired.seal_offset is None for retired in record.retired.values())
        assert in_progress(record)
        assert topic_phase(record) == "seal"

    def test_no_delay_means_the_retention_policy(self) -> None:
        record = admitted(DeletePartitionsCommand(TOPIC, 4))
        assert record.deletion is not None
        assert record.deletion.policy == "retention"

    @pytest.mark.parametrize("target", [0, -1, -12])
    def test_at_least_one_partition_stays(self, target: int) -> None:
        error = refusal(shrink(target))
        assert error.code is ErrorCode.INVALID_PARTITIONS
        assert "at least 1" in str(error)

    def test_an_equal_count_is_refused(self) -> None:
        error = refusal(shrink(12))
        assert error.code is ErrorCode.INVALID_PARTITIONS
        assert "12 writable partitions already" in str(error)

    def test_a_larger_count_is_told_how_to_grow(self) -> None:
        error = refusal(shrink(13))
        assert error.code is ErrorCode.INVALID_PARTITIONS
        assert f"modeaware grow {TOPIC} --to 13" in str(error)

    def test_counts_are_those_of_writable_partitions(self) -> None:
        assert "4 writable partitions already" in str(refusal(shrink(4), done()))
        assert "modeaware grow" in str(refusal(shrink(8), done()))

    def test_a_negative_delay_is_refused(self) -> None:
        assert refusal(shrink(4, delay_ms=-2)).code is ErrorCode.INVALID_REQUEST

    def test_it_can_be_switched_off(self) -> None:
        error = refusal(shrink(4), config=ControllerConfig(enable=False))
        assert error.code is ErrorCode.POLICY_VIOLATION
        assert "delete.topic.partition.enable" in str(error)

    @pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact", ""])
    def test_compacted_topics_are_refused(self, policy: str) -> None:
        error = refusal(shrink(4), seen=facts(cleanup_policy=policy))
        assert error.code is ErrorCode.POLICY_VIOLATION
        assert "latest value of a key" in str(error)

    def test_partitions_without_a_leader_are_waited_for(self) -> None:
        """Without a survivor's end offset there is no switch offset; without a retired one's nothing is known of it."""
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

    def test_another_tool_grew_the_topic_while_partitions_are_retired(self) -> None:
        error = refusal(shrink(2), done(), facts(20))
        assert error.code is ErrorCode.INVALID_PARTITIONS
        assert "another tool" in str(error)

    def test_a_second_shrink_once_the_first_is_done(self) -> None:
        record = admitted(shrink(2), done())
        assert record.modes == (RW,) * 2 + (RO,) * 2 + (NONE,) * 8
        assert record.epoch == done().epoch + 1

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

    def test_a_record_that_would_not_fit_the_log_is_refused(self) -> None:
        """Counted with every proof in it: it must fit on the day the drain is done, not only today."""
        groups = {f"group-{number:030d}": group() for number in range(40)}
        seen = facts(1000, groups=groups)
        error = refusal(shrink(1), seen=seen)
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        assert "smaller steps" in str(error)
        assert len(admitted(shrink(900), seen=seen).to_json()) < MAX_RECORD_BYTES


class TestTopics:
    @pytest.mark.parametrize("command", [shrink(4), grow(20)])
    def test_unknown(self, command: Command) -> None:
        error = refusal(command, seen=facts(topic_id=None))
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("command", [shrink(4), grow(20)])
    def test_internal(self, command: Command) -> None:
        assert refusal(command, seen=facts(internal=True)).code is ErrorCode.INVALID_TOPIC_EXCEPTION

    @pytest.mark.parametrize("command", [shrink(4), grow(20)])
    def test_the_mode_log_itself(self, command: Command) -> None:
        error = refusal(command, config=replace(CONFIG, mode_log_topic=TOPIC))
        assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_recreated_under_its_name(self) -> None:
        """The old topic's record says nothing about the new one."""
        record = admitted(shrink(4), done(), facts(8, topic_id="another"))
        assert record.topic_id == "another"
        assert record.modes == (RW,) * 4 + (RO,) * 4
        assert record.epoch == 0


class TestSecondChange:
    def test_another_target_is_refused_while_one_runs(self) -> None:
        error = refusal(shrink(2), admitted(shrink(4)))
        assert error.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert "--undo" in str(error)

    def test_the_same_shrink_twice_is_harmless(self) -> None:
        again = ask(shrink(4), admitted(shrink(4)))
        assert again.record is None
        assert "nothing changed" in (again.message or "")

    @pytest.mark.parametrize("other", [shrink(4, delay_ms=-1), shrink(4, delay_ms=9), shrink(4, immediate_delete=True)])
    def test_the_same_target_under_another_policy_is_refused(self, other: DeletePartitionsCommand) -> None:
        error = refusal(other, admitted(shrink(4)))
        assert error.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert "drained" in str(error)

    def test_a_shrink_while_new_partitions_open(self) -> None:
        assert refusal(shrink(4), admitted(grow(14))).code is ErrorCode.REASSIGNMENT_IN_PROGRESS


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
    def test_in_every_phase(self, phase: str) -> None:
        record = PHASES[phase]()
        undone = admitted(grow(12), record)
        assert undone.modes == (RW,) * 12
        assert undone.retired == {}
        assert undone.deletion is None
        assert undone.epoch == record.epoch + 1
        assert not in_progress(undone)

    @pytest.mark.parametrize("phase", PHASES)
    def test_twice_changes_nothing(self, phase: str) -> None:
        error = refusal(grow(12), admitted(grow(12), PHASES[phase]()))
        assert error.code is ErrorCode.INVALID_PARTITIONS
        assert "12 writable partitions already" in str(error)

    @pytest.mark.parametrize("phase", PHASES)
    def test_partly_lowest_ids_first(self, phase: str) -> None:
        record = PHASES[phase]()
        revived = admitted(grow(6), record)
        assert revived.modes == (RW,) * 6 + record.modes[6:]
        assert sorted(revived.retired) == list(range(6, 12))
        assert revived.deletion is not None
        assert revived.deletion.delete_partitions == 6
        assert revived.deletion.create_timestamp_ms == NOW_MS
        assert advance(revived, facts(), CONFIG, EPOCH, LATER_MS) is not None

    @pytest.mark.parametrize(("to", "previous"), [(3, 4), (4, 12), (6, 12)])
    def test_what_is_left_to_undo_of_a_second_shrink(self, to: int, previous: int) -> None:
        """12 -> 4 -> 2: below 4 the second shrink is undone in part, from 4 on the first one is."""
        revived = admitted(grow(to), admitted(shrink(2), done()))
        assert revived.deletion is not None
        assert (revived.deletion.delete_partitions, revived.deletion.previous_count) == (to, previous)

    def test_the_rest_goes_on_after_a_partial_revival(self) -> None:
        record = after(admitted(grow(6), admitted(shrink(4))), facts(), passes=3)
        assert record.modes == (RW,) * 6 + (NONE,) * 6
        assert {retired.replica_state for retired in record.retired.values()} == {ReplicaState.DELETION_SUCCESSFUL}

    def test_of_a_topic_that_was_never_shrunk(self) -> None:
        assert refusal(grow(12)).code is ErrorCode.INVALID_PARTITIONS


class TestGrow:
    def test_new_partitions_are_closed_at_first(self) -> None:
        seen = facts(groups={"g": group({0: 1})})
        record = admitted(grow(14, assignments=((1,), (2,))), seen=seen)
        assert record.modes == (RW,) * 12 + (RO,) * 2
        assert all(record.retired[p].opening and record.retired[p].seal_offset == 0 for p in (12, 13))
        assert record.opening_since_ms == NOW_MS
        assert record.opening_assignments == ((1,), (2,))
        assert topic_phase(record) == "opening"

    def test_retired_ones_come_first(self) -> None:
        record = admitted(grow(13), done())
        assert record.modes == (RW,) * 12 + (RO,)
        assert sorted(record.retired) == [12]
        assert record.deletion is None

    def test_partitions_another_tool_made_are_opened_from_their_log_start(self) -> None:
        record = admitted(grow(14), done(), facts(14, logs={12: log(30, 20)}))
        assert record.modes == (RW,) * 12 + (RO,) * 2
        assert record.retired[12].seal_offset == 20

    @pytest.mark.parametrize("assignments", [((1,),), ((1,), (2,), (3,))])
    def test_assignments_are_for_the_really_new_partitions(self, assignments: tuple[tuple[int, ...], ...]) -> None:
        error = refusal(grow(14, assignments=assignments), done())
        assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "for 2 really new partitions" in str(error)

    def test_validate_only_changes_nothing(self) -> None:
        assert ask(grow(14, validate_only=True)).record is None
        assert refusal(grow(3, validate_only=True)).code is ErrorCode.INVALID_PARTITIONS

    def test_the_same_growth_twice_is_harmless(self) -> None:
        record = admitted(grow(14))
        for seen in (facts(12), facts(14)):
            assert ask(grow(14), record, seen).record is None
            assert ask(grow(13), record, seen).record is None

    def test_further_while_it_opens(self) -> None:
        record = admitted(grow(15), admitted(grow(14)), facts(14))
        assert record.modes == (RW,) * 12 + (RO,) * 3
        assert all(record.retired[p].opening for p in (12, 13, 14))

    def test_too_many_for_the_log(self) -> None:
        assert refusal(grow(20_000)).code is ErrorCode.MESSAGE_TOO_LARGE

    def test_a_count_from_nowhere_is_refused_before_a_list_is_made_of_it(self) -> None:
        error = refusal(grow(2**31 - 1))
        assert error.code is ErrorCode.INVALID_PARTITIONS
        assert str(MAX_PARTITIONS) in str(error)
