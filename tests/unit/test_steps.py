"""Passes over a shrinking topic: what each phase waits for, what sends it back, and evacuations of compacted topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import alter_group_rules
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.drain import evacuation_group, is_evacuation_group
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.state import in_progress, partition_state, topic_phase
from modeaware.modelog.group_rules import GroupRulesRecord
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modes import PartitionState, ReplicaState
from tests.support.lifecycle import (
    CONFIG,
    LATER_MS,
    NONE,
    NOW_MS,
    QUIET_MS,
    RO,
    TOPIC,
    TOPIC_ID,
    admitted,
    after,
    deleted,
    facts,
    group,
    grow,
    log,
    look,
    refusal,
    rule,
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
        assert step.record is not None
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
        assert step.record is not None
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
        assert step.record is not None
        assert step.record.modes[P] is RO
        retired = step.record.retired[P]
        assert (retired.reason, retired.drained_by, retired.seal_offset) == (reason, 0, 10)
        assert retired.replica_state is ReplicaState.DELETION_INELIGIBLE
        assert partition_state(RO, retired) is PartitionState.ONLINE

    @pytest.mark.parametrize("end", [11, 500])
    def test_a_straggler(self, end: int) -> None:
        step = look(in_none(), facts(logs={P: log(end)}, groups={"g": group({P: end})}))
        assert step.effects == ()
        assert step.record is not None
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
        assert step.record is not None
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


# Compacted topics: no partition goes before a job has copied its latest values, and proved it


JOB = evacuation_group(TOPIC, 0)
COPIED = {**READ, JOB: group({P: 10})}


def seen(groups: dict[str, GroupFacts] | None = None, part: PartitionFacts | None = None, **more: object) -> TopicFacts:
    logs = {P: part or log(10)}
    return facts(logs=logs, groups=READ if groups is None else groups, **{"cleanup_policy": "compact", **more})


def shrinking(**fields: object) -> TopicRecord:
    return admitted(shrink(P, evacuate=True, **fields), seen=seen())


def waiting(**fields: object) -> TopicRecord:
    """Sealed at 10 and read; nothing is copied."""
    record = after(shrinking(**fields), seen())
    assert (record.retired[P].seal_offset, record.retired[P].reason) == (10, reasons.NOT_EVACUATED)
    return record


def resting(**fields: object) -> TopicRecord:
    record = after(waiting(**fields), seen(COPIED), passes=2)
    assert record.modes[P] is NONE
    return record


class TestNames:
    @pytest.mark.parametrize(
        "name", ["-orders-", "-orders-x", "-orders-1-5", "-orders", "-orders-2-7", "-orders-\u0661"]
    )
    def test_those_of_other_topics_are_not(self, name: str) -> None:
        assert not is_evacuation_group("orders", "modeaware-evacuation" + name)
        assert not is_evacuation_group("orders", "x-modeaware-evacuation-orders-7")


class TestAdmission:
    @pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
    def test_a_compacted_topic_is_admitted_with_it(self, policy: str) -> None:
        error = refusal(shrink(P), seen=seen(cleanup_policy=policy))
        assert error.code is ErrorCode.POLICY_VIOLATION
        assert "--evacuate" in str(error)
        assert "modeaware.spark.evacuate" in str(error)
        record = admitted(shrink(P, evacuate=True), seen=seen(cleanup_policy=policy))
        assert record.deletion is not None
        assert (record.deletion.evacuate, record.deletion.evacuation_epoch) == (True, record.epoch)


class TestTheProof:
    @pytest.mark.parametrize("policy", [{}, {"delay_ms": None}])
    def test_nothing_goes_without_it(self, policy: dict[str, object]) -> None:
        record = waiting(**policy)
        assert record.modes[P] is RO
        assert record.retired[P].replica_state is ReplicaState.DELETION_INELIGIBLE
        gone = look(record, seen(COPIED)).record
        assert gone is not None
        assert gone.modes[P] is NONE
        assert gone.retired[P].evacuated
        assert (gone.retired[P].drained_by, gone.drained_groups) == (2, ("g", JOB))

    def test_it_is_not_to_be_ignored(self) -> None:
        everything = replace(CONFIG, ignored_groups=("*",))
        assert look(waiting(), seen(), config=everything).record is None
        record = look(waiting(), seen(COPIED), config=everything).record
        assert record is not None
        assert record.modes[P] is NONE

    @pytest.mark.parametrize("name", [JOB, "modeaware-evacuation-*", evacuation_group("other", 3)])
    def test_it_cannot_be_waived(self, name: str) -> None:
        with pytest.raises(RequestRefused, match="cannot be waived") as caught:
            alter_group_rules(GroupRulesRecord(), AlterGroupRulesCommand(add=(rule("waive", name),)), 1, NOW_MS)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


class TestAtRest:
    @pytest.mark.parametrize(
        ("policy", "cleanup"),
        [({}, "compact"), ({"delay_ms": None}, "compact"), ({"delay_ms": None}, "compact,delete")],
    )
    def test_where_nothing_is_deleted_it_is_done(self, policy: dict[str, object], cleanup: str) -> None:
        record = after(waiting(**policy), seen(COPIED, cleanup_policy=cleanup), passes=2)
        assert record.retired[P].replica_state is ReplicaState.DELETION_INELIGIBLE
        assert record.retired[P].reason == reasons.COMPACTED
        assert (topic_phase(record), in_progress(record)) == ("done", False)
        step = look(record, seen(COPIED, cleanup_policy=cleanup))
        assert (step.effects, step.due_ms) == ((), None)

    def test_records_go_once_the_policy_lets_them(self) -> None:
        both = seen(READ, cleanup_policy="compact,delete")  # the job's offsets have expired
        behind = replace(both, predecessor="older")
        assert look(resting(), behind).record is None, "nor while groups may come from a predecessor"
        step = look(resting(), both)
        assert step.record is not None
        assert (step.record.retired[P].replica_state, step.effects) == (ReplicaState.DELETION_STARTED, ())
        assert step.due_ms == LATER_MS
        assert in_progress(step.record)
        assert deleted(look(step.record, both)) == {P: 10}
        assert not look(step.record, seen()).effects, "not if it is compacted alone by then"
        gone = after(step.record, seen({}, log(10, 10), cleanup_policy="compact,delete"))
        assert gone.retired[P].replica_state is ReplicaState.DELETION_SUCCESSFUL


def test_evacuating_shrink_is_never_immediate() -> None:
    error = refusal(shrink(P, evacuate=True, immediate_delete=True), seen=seen())
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "--immediate-delete" in str(error)
