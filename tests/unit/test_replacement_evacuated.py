"""Replacing a compacted topic: what is refused, and what waits for the evacuation of all its partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import alter_group_rules
from modeaware.lifecycle.commands import AlterGroupRulesCommand, DeletePredecessor, ReplaceTopicCommand
from modeaware.lifecycle.drain import evacuation_group, evacuation_of, is_evacuation_group
from modeaware.lifecycle.facts import FenceFacts, GroupFacts, TopicFacts
from modeaware.lifecycle.objections import why_evacuate
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.lifecycle.state import topic_phase
from modeaware.lifecycle.topic_deletion import FENCE_SETTLE_MS
from modeaware.modelog.group_rules import GroupRulesRecord
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from tests.support.lifecycle import (
    CONFIG,
    EPOCH,
    NOW_MS,
    RO,
    RW,
    TOPIC,
    TOPIC_ID,
    admitted,
    ask,
    facts,
    group,
    log,
    look,
    refusal,
    refuse_alias,
    rule,
    shrink,
)

NAME, ID, COUNT = "orders-v2", "id-of-the-successor", 2
SEALS = {0: 10, 1: 0, 2: 7}
PROOF = "modeaware-evacuation-orders-5"
COMMAND = ReplaceTopicCommand(TOPIC, NAME, COUNT, delay_ms=0, evacuate=True)
LATER_MS = NOW_MS + FENCE_SETTLE_MS


def seen(ends: dict[int, int] | None = None, proof: dict[int, int] | None = None, **more: Any) -> TopicFacts:
    """A fenced compacted topic that group ``billing`` has read and left; ``proof``: of the evacuation."""
    ends = SEALS if ends is None else ends
    logs = {p: log(end, log_end=end, read_up_to=end) for p, end in ends.items()}
    groups = {"billing": group(ends)} | ({} if proof is None else {PROOF: group(proof)})
    fence = FenceFacts(FENCE_CONFIGS, dict.fromkeys(SEALS, 3), frozenset(SEALS))
    about = {"cleanup_policy": "compact", "groups": groups, "successor": successor(), "fence": fence}
    return facts(3, logs, **{**about, **more})


def successor(topic_id: str | None = ID, groups: dict[str, GroupFacts] | None = None, **more: Any) -> TopicFacts:
    found = {"billing": group(dict.fromkeys(range(COUNT), 0))} if groups is None else groups
    logs = {p: log() for p in range(COUNT)}
    return TopicFacts(NAME, topic_id, **{"partition_count": COUNT, "partitions": logs, "groups": found, **more})


def record(**fields: Any) -> TopicRecord:
    """Of a topic that is sealed and not let go yet."""
    since = {"announced_ms": 1, "switched_ms": 2, "own_configs": {}, "fenced_ms": NOW_MS}
    about = {"requested_ms": 0, "delay_ms": 0, "successor_id": ID, "evacuation_epoch": 5}
    retired = {p: RetiredPartition(seal_offset=seal, seal_leader_epoch=3, read_up_to=seal) for p, seal in SEALS.items()}
    now = Replacement(**{"successor": NAME, "num_partitions": COUNT, **since, **about, **fields})
    groups = ("billing",)
    return TopicRecord(TOPIC, TOPIC_ID, 8, EPOCH, (RO,) * 3, retired=retired, required_groups=groups, replacement=now)


def after(record: TopicRecord, *looks: TopicFacts, now_ms: int = NOW_MS) -> TopicRecord:
    for found in looks:
        record = look(record, found, now_ms).record or record
    return record


def let_go(record: TopicRecord) -> bool:
    assert record.replacement is not None
    return record.replacement.let_go_ms is not None


def test_successor_of_a_compacted_topic_is_not_replaced_before_that_is_gone() -> None:
    """A straggler has to be copied to it."""
    onward = ReplaceTopicCommand(NAME, "orders-v3", 1, evacuate=True)
    done = record(let_go_ms=NOW_MS)
    with pytest.raises(RequestRefused, match="wait until 'orders' is deleted") as refused:
        refuse_alias(onward, TopicFacts(NAME, ID), [done], NOW_MS)
    assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    for through in (record(let_go_ms=NOW_MS, gone_ms=NOW_MS), record(let_go_ms=NOW_MS, evacuation_epoch=None)):
        refuse_alias(onward, TopicFacts(NAME, ID), [through], NOW_MS)


@pytest.mark.parametrize(
    ("command", "policy", "code", "says"),
    [
        (COMMAND, "delete", ErrorCode.INVALID_REQUEST, "omit --evacuate"),
        (replace(COMMAND, configs={"cleanup.policy": "delete"}), "compact", ErrorCode.INVALID_REQUEST, "compacted too"),
        (replace(COMMAND, delay_ms=None), "compact", ErrorCode.INVALID_REQUEST, "(--delay;"),
    ],
)
def test_what_is_refused(command: ReplaceTopicCommand, policy: str, code: ErrorCode, says: str) -> None:
    found = refusal(command, seen=seen(cleanup_policy=policy, successor=TopicFacts(NAME, None)))
    assert found.code is code
    assert says in str(found)


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_compacted_topic_is_never_shrunk_and_refused_in_the_words_of_a_replacement(policy: str) -> None:
    compacted = seen(cleanup_policy=policy, successor=TopicFacts(NAME, None))
    found = [refusal(command, seen=compacted) for command in (shrink(1), replace(COMMAND, evacuate=False))]
    assert [each.code for each in found] == [ErrorCode.POLICY_VIOLATION] * 2
    assert [str(each) for each in found] == [f"topic {TOPIC!r}: {why_evacuate(policy)}"] * 2


@pytest.mark.parametrize("name", ["-orders-", "-orders-x", "-orders-1-5", "-orders", "-orders-2-7", "-orders-\u0661"])
def test_groups_of_evacuations_of_other_topics_are_groups_like_any_other(name: str) -> None:
    assert not is_evacuation_group("orders", "modeaware-evacuation" + name)
    assert not is_evacuation_group("orders", "x-modeaware-evacuation-orders-7")
    assert is_evacuation_group("orders", PROOF)


@pytest.mark.parametrize("name", [PROOF, "modeaware-evacuation-*", evacuation_group("other", 3)])
def test_evacuation_cannot_be_waived(name: str) -> None:
    with pytest.raises(RequestRefused, match="cannot be waived") as caught:
        alter_group_rules(GroupRulesRecord(), AlterGroupRulesCommand(add=(rule("waive", name),)), 1, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_the_evacuation_is_on_the_record_and_the_switch_is_made() -> None:
    absent = seen(successor=TopicFacts(NAME, None))
    earlier = TopicRecord(TOPIC, TOPIC_ID, 4, EPOCH, (RW,) * 3)
    begun = admitted(COMMAND, earlier, absent)
    assert evacuation_of(begun) == PROOF
    assert TopicRecord.from_json(begun.to_json()) == begun
    assert ask(replace(COMMAND, evacuate=False), begun, absent).record is None, "a repeat need not name it"
    never_deleted = replace(COMMAND, delay_ms=None, fence="none", configs={"cleanup.policy": "compact,delete"})
    assert evacuation_of(admitted(never_deleted, earlier, absent)) == PROOF
    switched = after(begun, seen(), seen(), now_ms=NOW_MS)
    switched = after(switched, seen(), now_ms=NOW_MS + CONFIG.announce_ms)
    assert switched.replacement is not None
    assert switched.replacement.switched_ms is not None
    without = admitted(replace(COMMAND, evacuate=False), earlier, replace(absent, cleanup_policy="delete"))
    assert "another evacuation (False)" in str(refusal(COMMAND, without, absent))
    held_up = after(without, seen(), seen(), now_ms=NOW_MS + CONFIG.announce_ms)
    assert held_up.replacement is not None
    assert held_up.replacement.reason == reasons.COMPACTED, "its policy was changed after the admission"


def test_it_is_let_go_only_once_each_partition_with_records_is_evacuated_to_its_seal() -> None:
    for proof in (None, {0: 10}, {0: 10, 2: 6}, {1: 0}):
        waiting = after(record(), seen(proof=proof))
        assert not let_go(waiting)
        assert reasons.NOT_EVACUATED in {each.reason for each in waiting.retired.values()}
    done = after(record(), seen(proof={0: 10, 2: 7}))
    assert let_go(done)
    assert {p: each.evacuated_to for p, each in done.retired.items()} == {0: 10, 1: None, 2: 7}


def test_the_proof_counts_from_the_first_look_that_shows_it_whatever_happens_to_it_later() -> None:
    lagging = seen(proof=SEALS)
    lagging = replace(lagging, groups={**lagging.groups, "billing": group({0: 9, 1: 0, 2: 7})})
    noted = after(record(), lagging)
    assert not let_go(noted)
    assert noted.retired[0].reason == reasons.of_group(reasons.GROUP_LAG, "billing")
    gone = after(noted, seen())
    assert let_go(gone)
    found = look(gone, seen(), LATER_MS)
    assert [type(effect) for effect in found.effects] == [DeletePredecessor]


def test_it_is_not_deleted_without_the_proof() -> None:
    released = record(let_go_ms=NOW_MS)
    found = look(released, seen(), LATER_MS)
    assert found.record is not None
    assert found.record.replacement is not None
    assert (found.effects, found.record.replacement.reason) == ((), reasons.NOT_EVACUATED)
    assert [type(effect) for effect in look(released, seen(proof=SEALS), LATER_MS).effects] == [DeletePredecessor]


def test_a_record_behind_a_seal_is_evacuated_as_well() -> None:
    done = after(record(), seen(proof=SEALS))
    late = {**SEALS, 0: 12}
    broken = after(done, seen(late, SEALS))
    assert not let_go(broken)
    assert (broken.retired[0].reason, broken.retired[0].evacuated_to) == (reasons.NOT_EVACUATED, 10)
    assert let_go(after(broken, seen(late, {0: 12})))


def test_markers_behind_a_seal_leave_it_evacuated() -> None:
    done = after(record(), seen(proof=SEALS))
    marked = seen({**SEALS, 0: 11})
    marked = replace(marked, partitions={**marked.partitions, 0: log(11, log_end=11, read_up_to=10)})
    found = after(done, marked)
    assert let_go(found)
    assert (found.retired[0].seal_offset, found.retired[0].evacuated_to) == (11, 11)
    assert after(record(), replace(marked, groups={"billing": group(SEALS)})).retired[0].evacuated_to is None


def test_a_successor_that_is_created_anew_takes_the_copies_with_it_and_the_proof() -> None:
    noted = after(record(), replace(seen(proof=SEALS), successor=successor(groups={})))
    assert noted.retired[0].evacuated_to == 10
    lost = after(noted, *[seen(proof=SEALS, successor=TopicFacts(NAME, None, gone=True))] * 2)
    anew = after(lost, seen(proof=SEALS, successor=successor("another id")))
    assert anew.replacement is not None
    assert anew.replacement.successor_id == "another id"
    assert not let_go(anew)
    assert {each.evacuated_to for each in anew.retired.values()} == {None}
    assert anew.retired[0].reason == reasons.NOT_EVACUATED
    assert evacuation_of(anew) not in (None, PROOF)
    again = seen(proof=SEALS, successor=successor("another id"))
    assert topic_phase(after(anew, again)) == "drain"
    proved = {**again.groups, str(evacuation_of(anew)): group(SEALS)}
    assert let_go(after(anew, replace(again, groups=proved))), "the group of the earlier proof is no reader"
