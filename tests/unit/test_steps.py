"""Passes over a shrinking topic: what each phase waits for, and what sends it back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.errors import RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupsDoubt
from modeaware.lifecycle.state import partition_state, topic_phase
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modes import PartitionState, ReplicaState
from tests.support.lifecycle import (
    LATER_MS,
    NONE,
    NOW_MS,
    QUIET_MS,
    RO,
    TOPIC_ID,
    admitted,
    after,
    deleted,
    facts,
    group,
    grow,
    log,
    look,
    shrink,
)

P = 11
"""The one partition retired here; it holds ten records."""
FULL = {P: log(10)}
READ = {"g": group({P: 10})}
UNREAD = {"g": group({P: 9})}


def retiring(**fields: object) -> TopicRecord:
    return admitted(shrink(P, **fields), seen=facts(logs=FULL, groups=READ))


def in_none(**fields: object) -> TopicRecord:
    """Drained and None, its records not deleted yet."""
    record = after(retiring(**fields), facts(logs=FULL, groups=READ))
    assert record.modes[P] is NONE
    return record


def done() -> TopicRecord:
    record = after(in_none(), facts(logs={P: log(10, 10)}))
    assert record.retired[P].replica_state is ReplicaState.DELETION_SUCCESSFUL
    return record


class TestTheWholeWay:
    def test_drained(self) -> None:
        record = retiring()
        assert look(record, facts(logs=FULL, groups=READ), LATER_MS - 1).record is None

        step = look(record, facts(logs=FULL, groups=READ))
        assert step.record is not None
        record = step.record
        assert record.modes[P] is NONE
        assert deleted(step) == {}, "consumers hear of None before anything goes"
        assert step.due_ms == LATER_MS
        retired = record.retired[P]
        assert (retired.seal_offset, retired.seal_leader_epoch, retired.drained_by) == (10, 3, 1)
        assert retired.replica_state is ReplicaState.DELETION_STARTED
        assert partition_state(NONE, retired) is PartitionState.OFFLINE
        assert topic_phase(record) == "reclaim"

        step = look(record, facts(logs=FULL, groups=READ))
        assert step.record is None
        assert deleted(step) == {P: 10}
        assert [effect.topic_id for effect in step.effects] == [TOPIC_ID]

        step = look(record, facts(logs={P: log(10, 10)}))
        assert step.record is not None
        assert step.effects == ()
        assert step.record.retired[P].replica_state is ReplicaState.DELETION_SUCCESSFUL
        assert partition_state(NONE, step.record.retired[P]) is PartitionState.NON_EXISTENT
        assert topic_phase(step.record) == "done"
        assert look(step.record, facts(logs={P: log(10, 10)})).record is None

    def test_nothing_is_drained_or_deleted_while_groups_may_come_from_a_predecessor(self) -> None:
        """One that was adopted in the middle of the shrink, say."""
        behind = facts(logs=FULL, groups=READ, predecessor="older")
        waiting = after(retiring(), behind)
        assert (waiting.modes[P], waiting.retired[P].reason) == (RO, "predecessor-first:older")
        proved = after(waiting, facts(logs=FULL, groups=READ))
        assert proved.modes[P] is NONE
        step = look(proved, behind)
        assert (step.effects, step.record.modes[P]) == ((), RO)

    def test_retention_waits_for_the_topic_s_own(self) -> None:
        record = retiring(delay_ms=None)
        for start in (0, 9):
            seen = facts(logs={P: log(10, start)}, groups=READ)
            record = after(record, seen, passes=3)
            assert record.modes[P] is RO
            assert record.retired[P].reason == reasons.RETENTION
            assert look(record, seen, LATER_MS + 10**12).effects == ()
        seen = facts(logs={P: log(10, 10)}, groups=UNREAD)
        for _ in range(3):
            assert look(record, seen).effects == ()
            record = after(record, seen)
        assert topic_phase(record) == "done"

    def test_immediate_skips_the_drain_and_the_delay(self) -> None:
        record = retiring(immediate_delete=True, delay_ms=10**9)
        seen = facts(logs=FULL, groups=UNREAD, groups_doubt=GroupsDoubt("whatever"))
        record = after(record, seen)
        assert record.modes[P] is NONE
        assert deleted(look(record, seen)) == {P: 10}


class TestSeal:
    def test_a_producer_that_goes_on_writing_is_named_once(self) -> None:
        still_ms = NOW_MS + QUIET_MS
        writing = facts(logs={P: log(10, stable=9, quiet_since_ms=still_ms, moved=True)}, groups=READ)
        step = look(retiring(), writing, still_ms)
        assert step.record.retired[P].reason == reasons.STILL_WRITTEN
        assert "records still arrive" in step.alarms[0]
        writing = facts(logs={P: log(20, quiet_since_ms=still_ms + 1_000, moved=True)}, groups=READ)
        again = look(step.record, writing, still_ms + 1_000)
        assert (again.record, again.alarms) == (None, ())
        quiet = facts(logs={P: log(20, quiet_since_ms=still_ms)}, groups={"g": group({P: 20})})
        assert after(step.record, quiet, still_ms + QUIET_MS).modes[P] is NONE


class TestBeforeDeletion:
    """Everything is looked at again between None and DeleteRecords."""

    @pytest.mark.parametrize(
        ("groups", "doubt", "reason"),
        [
            (UNREAD, None, "group-lag:g"),
            (READ | {"new": group(members=True)}, None, "group-never-committed:new"),
            (READ, GroupsDoubt("a broker did not answer"), "groups-unknown"),
            ({"g": group({P: 11})}, None, "group-beyond-end:g"),
        ],
    )
    def test_a_proof_that_fails_makes_it_readable_again(
        self, groups: dict, doubt: GroupsDoubt | None, reason: str
    ) -> None:
        seen = facts(logs=FULL, groups=groups, groups_doubt=doubt)
        step = look(in_none(), seen)
        assert step.effects == ()
        assert step.record.modes[P] is RO
        retired = step.record.retired[P]
        assert (retired.reason, retired.drained_by, retired.seal_offset) == (reason, 0, 10)
        assert retired.replica_state is ReplicaState.DELETION_INELIGIBLE
        assert partition_state(RO, retired) is PartitionState.ONLINE

    @pytest.mark.parametrize("end", [11, 500])
    def test_a_straggler(self, end: int) -> None:
        step = look(in_none(), facts(logs={P: log(end)}, groups={"g": group({P: end})}))
        assert step.effects == ()
        assert step.record.modes[P] is RO
        assert step.record.retired[P].seal_offset is None
        assert step.record.retired[P].stragglers == 1
        assert step.record.retired[P].resume_offset == 10, "what a group without a commit has to read from"
        assert step.record.retired[P].reason == reasons.STRAGGLER
        assert f"{end - 10} offset(s)" in step.alarms[0]

    def test_a_partition_without_a_leader_keeps_its_proof(self) -> None:
        seen = facts(logs=FULL, groups=READ)
        step = look(in_none(), replace(seen, partitions={0: log()}))
        assert step.record is None
        assert step.effects == ()


class TestStraggler:
    @pytest.mark.parametrize("state", ["drain", "reclaim", "done"])
    def test_truncation(self, state: str) -> None:
        record = {"drain": lambda: after(retiring(), facts(logs=FULL, groups=UNREAD)), "reclaim": in_none, "done": done}
        step = look(record[state](), facts(logs={P: log(8, quiet_since_ms=LATER_MS)}, groups=READ))
        assert step.record.modes[P] is RO
        assert step.record.retired[P].seal_offset is None
        assert step.record.retired[P].reason == reasons.TRUNCATED
        assert step.effects == ()
        assert "leader election" in step.alarms[0]
        held = after(step.record, facts(logs={P: log(8)}, groups=READ), LATER_MS + QUIET_MS)
        assert held.retired[P].reason == "group-beyond-end:g", "its next records would be passed over"


class TestTables:
    def test_a_step_outside_the_tables_is_refused(self) -> None:
        """A record nothing of ours wrote: reclaimed, yet ReadOnly and unsealed."""
        odd = {P: RetiredPartition(replica_state=ReplicaState.DELETION_SUCCESSFUL)}
        with pytest.raises(RequestRefused, match="no transition ReadOnly/ReplicaDeletionSuccessful"):
            look(replace(retiring(), retired=odd), facts(logs=FULL, groups=READ))


@pytest.mark.parametrize("topic_id", [None, "another"])
def test_topic_that_is_absent_or_replaced_is_left_alone(topic_id: str | None) -> None:
    for record in (retiring(), in_none(), done(), admitted(grow(14))):
        step = look(record, facts(topic_id=topic_id, logs=FULL, groups=READ))
        assert (step.record, step.tombstone, step.effects) == (None, False, ())


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_topic_that_becomes_compacted_keeps_its_records_until_it_is_set_back(policy: str) -> None:
    """The latest value of a key may lie in the retired partition."""
    compacted, as_before = (facts(logs=FULL, groups=READ, cleanup_policy=each) for each in (policy, "delete"))
    for fields in ({}, {"delay_ms": None}, {"immediate_delete": True}):
        waiting = after(retiring(**fields), compacted, passes=2)
        assert (waiting.modes[P], waiting.retired[P].reason) == (RO, reasons.COMPACTED)
    assert after(after(retiring(), compacted), as_before).modes[P] is NONE
    step = look(in_none(), compacted)
    assert (step.effects, step.record.modes[P], step.record.retired[P].reason) == ((), RO, reasons.COMPACTED)
