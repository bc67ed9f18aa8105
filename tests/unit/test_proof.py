"""What the proof of a drain rests on besides offsets: a log that was not truncated, groups that were all seen."""

from __future__ import annotations

import pytest

from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.effects import DeleteRecords
from modeaware.lifecycle.facts import GroupsDoubt, PartitionFacts, TopicFacts, WriterFacts
from modeaware.modelog.records import Straggler, TopicRecord
from modeaware.modes import ReplicaState
from tests.support.lifecycle import (
    LATER_MS,
    NONE,
    RO,
    admitted,
    after,
    ask,
    deleted,
    facts,
    group,
    log,
    look,
    refusal,
    rule,
    shrink,
)

P = 11
READ = {"g": group({P: 10})}
STREAMS = {"app": group({P: 10}, stateful=True)}


def seen(part: PartitionFacts | None = None, **more: object) -> TopicFacts:
    return facts(logs={P: part or log(10)}, **{"groups": READ, **more})


def read_only() -> TopicRecord:
    """Sealed at 10, and held up by its group."""
    record = after(admitted(shrink(P), seen=seen()), seen(groups={"g": group({P: 9})}))
    assert (record.modes[P], record.retired[P].seal_offset) == (RO, 10)
    return record


def in_none() -> TopicRecord:
    record = after(admitted(shrink(P), seen=seen()), seen())
    assert record.modes[P] is NONE
    return record


class TestTruncation:
    """The end is where the seal says, but other records lie there: the leader epochs tell."""

    @pytest.mark.parametrize(
        ("record", "reason"), [(read_only(), "group-lag:g"), (in_none(), reasons.TRUNCATED)], ids=["ReadOnly", "None"]
    )
    def test_a_log_that_grew_again_to_the_seal(self, record: TopicRecord, reason: str) -> None:
        step = look(record, seen(log(10, leader_epoch=4, seal_epoch_end=7), groups={"g": group({P: 8})}))
        assert step.record is not None
        retired = step.record.retired[P]
        assert step.record.modes[P] is RO
        assert deleted(step) == {}
        assert (retired.reason, retired.resume_offset, retired.drained) == (reason, 7, {})
        assert "truncated to 7, below its seal 10" in step.alarms[0]

    def test_a_commit_made_before_the_truncation_proves_nothing(self) -> None:
        group_facts = {"g": group({P: 10}, truncated=frozenset({P}))}
        record = after(read_only(), seen(log(10, leader_epoch=4, seal_epoch_end=7), groups=group_facts), passes=3)
        assert record.modes[P] is RO
        assert record.retired[P].reason == "group-truncated:g"
        assert record.retired[P].seal_leader_epoch == 4


class TestCompaction:
    def test_a_topic_that_became_compacted_keeps_its_records(self) -> None:
        for policy in ("compact", "compact,delete"):
            assert after(read_only(), seen(cleanup_policy=policy)).retired[P].reason == reasons.COMPACTED
            step = look(in_none(), seen(cleanup_policy=policy))
            assert step.record is not None
            assert (step.record.modes[P], deleted(step)) == (RO, {})
        assert after(read_only(), seen(cleanup_policy=" delete ")).modes[P] is NONE


class TestGroupsNotedInDoubt:
    """A group that was hidden at the admission and expired before the drain must not slip through."""

    def test_the_first_sure_listing_completes_them(self) -> None:
        record = admitted(shrink(P), seen=seen(groups={}, groups_doubt=GroupsDoubt("an error")))
        assert (record.required_groups, record.groups_complete) == ((), False)
        record = after(record, seen(groups={}, groups_doubt=GroupsDoubt("an error")))
        assert record.retired[P].reason == reasons.GROUPS_UNKNOWN
        record = after(record, seen(groups={"g": group({P: 9})}))
        assert (record.required_groups, record.groups_complete) == (("g",), True)
        assert after(record, seen(groups={})).retired[P].reason == "group-gone:g"


class TestControlRecordsAtTheEnd:
    """A commit may end before a transaction's marker: with the log start behind it, ``latest`` would skip records."""

    def test_nothing_is_deleted_beyond_a_commit(self) -> None:
        groups = {"a": group({P: 10}), "b": group({P: 8}, caught_up=(P,)), "c": group({0: 1}, caught_up=(P,))}
        record = after(admitted(shrink(P), seen=seen()), seen(groups={"g": group({P: 10}), **groups}))
        assert record.modes[P] is NONE
        assert record.retired[P].drained == {"a": 10, "b": 8, "g": 10}
        everyone = {"g": group({P: 10}), **groups}
        assert deleted(look(record, seen(groups=everyone))) == {P: 8}
        done = after(record, seen(log(10, start=8), groups=everyone))
        assert done.retired[P].replica_state is ReplicaState.DELETION_SUCCESSFUL
        assert look(done, seen(log(10, start=8), groups=everyone)).record is None

    def test_a_commit_that_came_since_counts_too(self) -> None:
        late = {**READ, "late": group({P: 7}, caught_up=(P,))}
        step = look(in_none(), seen(groups=late))
        assert step.record is not None
        assert (step.record.retired[P].drained, deleted(step)) == ({"g": 10, "late": 7}, {})
        assert deleted(look(step.record, seen(groups=late))) == {P: 7}

    def test_records_go_under_the_leader_epoch_that_was_seen(self) -> None:
        (effect,) = look(in_none(), seen(log(10, leader_epoch=3))).effects
        assert isinstance(effect, DeleteRecords)
        assert (effect.offsets, effect.leader_epochs) == ({P: 10}, {P: 3})


BEHIND = {"g": group({P: 9, 10: 9})}


class TestImmediate:
    """What it takes unread was counted when it was asked for; it takes nothing else."""

    @pytest.mark.parametrize("ends", [[10], [4, 10]], ids=["written again at once", "seen while it was short"])
    def test_what_takes_the_place_of_truncated_records_is_drained_like_any_other(self, ends: list[int]) -> None:
        record = after(admitted(shrink(P, immediate_delete=True), seen=seen()), seen(groups=BEHIND))
        for end in ends:
            record = after(record, seen(log(end, seal_epoch_end=4, quiet_since_ms=0), groups=BEHIND), passes=1)
        rewritten = log(10, quiet_since_ms=0, leader_epoch=9)
        record = after(record, seen(rewritten, groups=BEHIND), passes=3)
        assert (record.modes[P], record.retired[P].reason) == (RO, "group-lag:g")
        assert after(record, seen(rewritten, groups={"g": group({P: 10})})).retired[P].truncated_to == 4

    def test_a_straggler_is_drained_like_any_other(self) -> None:
        record = after(admitted(shrink(P, immediate_delete=True), seen=seen()), seen(groups=BEHIND))
        assert record.modes[P] is NONE
        late = log(12, quiet_since_ms=0)
        record = after(record, seen(late, groups=BEHIND), passes=3)
        assert (record.modes[P], record.retired[P].reason) == (RO, "group-lag:g")
        assert after(record, seen(late, groups={"g": group({P: 12})})).modes[P] is NONE


class TestForgottenDeletion:
    """Brokers that are killed all at once may forget a log start that they had not written to the disk yet."""

    def test_what_was_deleted_is_deleted_once_more(self) -> None:
        record = after(in_none(), seen(log(10, start=10)))
        step = look(record, seen(log(10, start=3), groups={"late": group({P: 3})}))
        assert step.record is None, (
            "the partition stays as it is: the proof was taken when there was something to prove"
        )
        assert deleted(step) == {P: 10}


class TestWaivers:
    def test_what_was_waived_stands_in_the_record(self) -> None:
        rules = [rule("waive", "g", reason="it is retired")]
        record = after(read_only(), seen(groups={"g": group({P: 9})}), rules=rules)
        assert (record.modes[P], record.waived, record.retired[P].drained) == (NONE, {"g": "it is retired"}, {})

    def test_one_that_is_first_used_right_before_the_deletion_is_recorded_first(self) -> None:
        late, rules = {**READ, "late": group({P: 2})}, [rule("waive", "la*", reason="passing by")]
        step = look(in_none(), seen(groups=late), rules=rules)
        assert step.record is not None
        assert (step.record.waived, deleted(step)) == ({"late": "passing by"}, {})
        assert deleted(look(step.record, seen(groups=late), rules=rules)) == {P: 10}

    def test_a_waiver_that_expires_before_the_deletion_holds_it_up(self) -> None:
        lag = seen(groups={"g": group({P: 9})})
        rules = [rule("waive", "g", expires_ms=LATER_MS + 1)]
        record = after(read_only(), lag, rules=rules)
        step = look(record, lag, LATER_MS + 1, rules=rules)
        assert step.record is not None
        assert (step.record.modes[P], deleted(step)) == (RO, {})


class TestState:
    """Streams keeps state per partition, and it does not move with the keys."""

    def test_a_shrink_is_refused_by_the_groups_names(self) -> None:
        error = refusal(shrink(P), seen=seen(groups=STREAMS))
        assert error.code is ErrorCode.POLICY_VIOLATION
        assert "app" in str(error)
        assert "--accept-state-loss" in str(error)
        assert refusal(shrink(P, immediate_delete=True), seen=seen(groups=STREAMS)).code is error.code
        assert refusal(shrink(P, accept_state_loss=("another",)), seen=seen(groups=STREAMS)).code is error.code

    def test_one_that_comes_later_holds_it_up_until_it_is_accepted(self) -> None:
        record = admitted(shrink(P), seen=seen(groups={}))
        record = after(record, seen(groups=STREAMS))
        assert record.retired[P].reason == "group-stateful:app"
        repeated = ask(shrink(P, accept_state_loss=("app",)), record, seen(groups=STREAMS))
        assert repeated.record is not None
        assert repeated.record.version > record.version
        assert after(repeated.record, seen(groups=STREAMS)).modes[P] is NONE
        assert ask(shrink(P, accept_state_loss=("app",)), repeated.record, seen(groups=STREAMS)).record is None

    def test_its_internal_topics_are_refused(self) -> None:
        error = refusal(shrink(P, accept_state_loss=("app",)), seen=seen(stateful_owner="app"))
        assert error.code is ErrorCode.POLICY_VIOLATION


class TestWriters:
    def test_a_straggler_s_producer_is_named_and_kept(self) -> None:
        writers = (WriterFacts(7, 0, 100), WriterFacts(9, 2, 300), WriterFacts(8, 1, 200))
        grown = log(12, writers=writers, samples=("offset 10: key b'k'",), quiet_since_ms=LATER_MS)
        step = look(in_none(), seen(grown))
        assert step.record is not None
        assert step.record.retired[P].straggler == Straggler(11, 9, 2, 300)
        assert "producer id 9 epoch 2" in step.alarms[0]
        assert "offset 10: key b'k'" in step.alarms[0]
        assert TopicRecord.from_json(step.record.to_json()) == step.record

    def test_an_open_transaction_is_told_once(self) -> None:
        record = admitted(shrink(P), seen=seen())
        held = seen(log(10, stable=4, writers=(WriterFacts(9, 2, 300, transaction_start=4),)))
        step = look(record, held)
        assert "producer id 9 epoch 2, from offset 4 on" in step.alarms[0]
        assert "kafka-transactions" in step.alarms[0]
        assert step.record is not None
        assert look(step.record, held).alarms == ()
