"""Shrinks of compacted topics: no partition goes before a job has copied its latest values, and proved it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.evacuation import evacuation_group, is_evacuation_group
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.group_rules import alter_group_rules
from modeaware.lifecycle.phases import in_progress, topic_phase
from modeaware.modelog.group_rules import GroupRulesRecord
from modeaware.modelog.records import TopicRecord
from modeaware.modes import ReplicaState
from tests.support.lifecycle import (
    CONFIG,
    LATER_MS,
    NONE,
    RO,
    TOPIC,
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
JOB = evacuation_group(TOPIC, 0)
READ = {"g": group({P: 10})}
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
    @pytest.mark.parametrize("policy", [{}, {"delay_ms": -1}])
    def test_nothing_goes_without_it(self, policy: dict[str, object]) -> None:
        record = waiting(**policy)
        assert record.modes[P] is RO
        assert record.retired[P].replica_state is ReplicaState.DELETION_INELIGIBLE
        gone = look(record, seen(COPIED)).record
        assert gone is not None
        assert gone.modes[P] is NONE
        assert gone.retired[P].evacuated
        assert gone.retired[P].drained == {"g": 10, JOB: 10}

    @pytest.mark.parametrize(
        ("job", "expected"),
        [
            (group({P: 9}), reasons.NOT_EVACUATED),
            (group({P: 9}, caught_up=(P,)), reasons.NOT_EVACUATED),
            (group({4: 10}), reasons.NOT_EVACUATED),
            (group({4: 10}, caught_up=(P,)), reasons.NOT_EVACUATED),
            (group({P: 11}), f"group-beyond-end:{JOB}"),
            (group({P: 10}, truncated=frozenset({P})), f"group-truncated:{JOB}"),
        ],
    )
    def test_it_is_a_commit_at_the_seal(self, job: GroupFacts, expected: str) -> None:
        record = after(waiting(), seen({**READ, JOB: job}))
        assert (record.modes[P], record.retired[P].reason) == (RO, expected)

    def test_it_is_not_to_be_ignored(self) -> None:
        everything = replace(CONFIG, ignored_groups=("*",))
        assert look(waiting(), seen(), config=everything).record is None
        record = look(waiting(), seen(COPIED), config=everything).record
        assert record is not None
        assert record.modes[P] is NONE

    @pytest.mark.parametrize("name", [JOB, "modeaware-evacuation-*", evacuation_group("other", 3)])
    def test_it_cannot_be_waived(self, name: str) -> None:
        with pytest.raises(RequestRefused, match="cannot be waived") as caught:
            alter_group_rules(GroupRulesRecord(), AlterGroupRulesCommand(add=(rule("waive", name),)), 1)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


class TestAtRest:
    @pytest.mark.parametrize(
        ("policy", "cleanup"), [({}, "compact"), ({"delay_ms": -1}, "compact"), ({"delay_ms": -1}, "compact,delete")]
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
