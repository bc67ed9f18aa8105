"""What the proof of a drain rests on besides offsets: a log that was not truncated, groups that were all seen."""

from __future__ import annotations

import pytest

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeleteRecords
from modeaware.lifecycle.facts import PartitionFacts, TopicFacts, WriterFacts
from modeaware.modelog.records import Straggler, TopicRecord
from modeaware.modes import ReplicaState
from tests.support.lifecycle import (
    LATER_MS,
    NONE,
    RO,
    admitted,
    after,
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


def seen(part: PartitionFacts | None = None, **more: object) -> TopicFacts:
    return facts(logs={P: part or log(10)}, **{"groups": READ, **more})


def in_none() -> TopicRecord:
    record = after(admitted(shrink(P), seen=seen()), seen())
    assert record.modes[P] is NONE
    return record


class TestControlRecordsAtTheEnd:
    """A commit may end before a transaction's marker: with the log start behind it, ``latest`` would skip records."""

    def test_nothing_is_deleted_beyond_a_commit(self) -> None:
        groups = {"a": group({P: 10}), "b": group({P: 8}, caught_up=(P,)), "c": group({0: 1}, caught_up=(P,))}
        record = after(admitted(shrink(P), seen=seen()), seen(groups={"g": group({P: 10}), **groups}))
        assert record.modes[P] is NONE
        assert (record.retired[P].drained_by, record.retired[P].lowest_commit) == (3, 8)
        assert record.drained_groups == ("a", "b", "g")
        everyone = {"g": group({P: 10}), **groups}
        assert deleted(look(record, seen(groups=everyone))) == {P: 8}
        done = after(record, seen(log(10, start=8), groups=everyone))
        assert done.retired[P].replica_state is ReplicaState.DELETION_SUCCESSFUL
        assert look(done, seen(log(10, start=8), groups=everyone)).record is None

    def test_a_commit_that_came_since_counts_too(self) -> None:
        late = {**READ, "late": group({P: 7}, caught_up=(P,))}
        step = look(in_none(), seen(groups=late))
        assert (step.record.retired[P].drained_by, step.record.retired[P].lowest_commit) == (2, 7)
        assert (step.record.drained_groups, deleted(step)) == (("g", "late"), {})
        assert deleted(look(step.record, seen(groups=late))) == {P: 7}

    def test_records_go_under_the_leader_epoch_that_was_seen(self) -> None:
        (effect,) = look(in_none(), seen(log(10, leader_epoch=3))).effects
        assert isinstance(effect, DeleteRecords)
        assert (effect.offsets, effect.leader_epochs) == ({P: 10}, {P: 3})


@pytest.mark.parametrize("ends", [[10], [4, 10]], ids=["written again at once", "seen while it was short"])
def test_what_takes_the_place_of_truncated_records_is_drained_though_the_deletion_is_immediate(ends: list[int]) -> None:
    behind = {"g": group({P: 9, 10: 9})}
    record = after(admitted(shrink(P, immediate_delete=True), seen=seen()), seen(groups=behind))
    for end in ends:
        record = after(record, seen(log(end, seal_epoch_end=4, quiet_since_ms=0), groups=behind), passes=1)
    rewritten = log(10, quiet_since_ms=0, leader_epoch=9)
    record = after(record, seen(rewritten, groups=behind), passes=3)
    assert (record.modes[P], record.retired[P].reason) == (RO, "group-lag:g")
    assert after(record, seen(rewritten, groups={"g": group({P: 10})})).retired[P].truncated_to == 4


def test_what_was_deleted_is_deleted_once_more_where_the_log_start_went_back() -> None:
    """Brokers that are killed all at once may forget a log start that they had not written to the disk yet."""
    record = after(in_none(), seen(log(10, start=10)))
    step = look(record, seen(log(10, start=3), groups={"late": group({P: 3})}))
    assert step.record is None, "the partition stays as it is: the proof was taken when there was something to prove"
    assert deleted(step) == {P: 10}


def test_waiver_that_is_first_used_right_before_the_deletion_is_recorded_first() -> None:
    late, rules = {**READ, "late": group({P: 2})}, [rule("waive", "la*", reason="passing by")]
    step = look(in_none(), seen(groups=late), rules=rules)
    assert (step.record.waived, deleted(step)) == ({"late": "passing by"}, {})
    assert deleted(look(step.record, seen(groups=late), rules=rules)) == {P: 10}


def test_internal_topic_of_an_application_with_state_is_refused() -> None:
    error = refusal(shrink(P, accept_state_loss=("app",)), seen=seen(stateful_owner="app"))
    assert error.code is ErrorCode.POLICY_VIOLATION


class TestWriters:
    @pytest.mark.parametrize(
        ("straggler", "text"),
        [
            (Straggler(10, 9, 2, 300), "producer id 9 epoch 2"),
            (Straggler(10, -1, -1, 300), "a producer without an id (not idempotent)"),
            (None, None),
        ],
    )
    def test_a_straggler_s_producer_is_named_and_kept(self, straggler: Straggler | None, text: str | None) -> None:
        remembered = (WriterFacts(7, 0, 100),)
        facts = {"straggler": straggler, "samples": ("offset 10: key b'k'",), "writers": remembered}
        step = look(in_none(), seen(log(12, quiet_since_ms=LATER_MS, **facts)))
        kept = step.record.retired[P].straggler
        assert kept == (straggler or Straggler(10))
        assert kept.producer == (text or "an unknown producer")
        assert "producer id 7" not in step.alarms[0]
        assert (text or "offset 10: key b'k'") in step.alarms[0]
        assert TopicRecord.from_json(step.record.to_json()) == step.record
