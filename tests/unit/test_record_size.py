"""The record of a topic fits the mode log to the end of its change, whatever groups there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from modeaware.config import ControllerConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons, record_size
from modeaware.lifecycle.admission import admit
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.facts import GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.record_size import fitted, largest_bytes
from modeaware.lifecycle.state import held_up, topic_phase
from modeaware.modelog.moved import MovedRecord
from modeaware.modelog.records import MAX_RECORD_BYTES, Replacement, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode, ReplicaState
from tests.support.lifecycle import (
    LATER_MS,
    NONE,
    RO,
    admitted,
    after,
    deleted,
    facts,
    group,
    grow,
    log,
    look,
    rule,
    shrink,
)

GOAL_BYTES = 500_000


def names(count: int, length: int = 40) -> list[str]:
    return [f"{number:0{length}d}" for number in range(count)]


def seen(
    partitions: int,
    groups: Iterable[str],
    behind_end: int,
    logs: dict[int, PartitionFacts] | None = None,
    **more: object,
) -> TopicFacts:
    """Each log ends elsewhere; every group has committed so far behind the end, with nothing in between to read."""
    ends = {p: 10**9 + 7 * p for p in range(partitions)}
    read = group({p: end - behind_end for p, end in ends.items()}, caught_up=ends)
    return facts(partitions, logs or {p: log(end) for p, end in ends.items()}, dict.fromkeys(groups, read), **more)


@pytest.mark.parametrize(("partitions", "keep", "groups"), [(12, 1, 1_500), (100, 10, 200), (1_001, 1, 1_000)])
def test_drain_of_many_groups_is_admitted_and_its_record_stays_small(partitions: int, keep: int, groups: int) -> None:
    now = seen(partitions, names(groups), behind_end=1)
    record = admitted(shrink(keep), seen=now)
    bound = largest_bytes(record)
    assert bound < GOAL_BYTES
    sizes = [len(record.to_json())]
    record = after(record, now)
    sizes.append(len(record.to_json()))
    assert record.modes[keep:] == (NONE,) * (partitions - keep)
    last = record.retired[partitions - 1]
    assert (last.drained_by, last.lowest_commit) == (groups, 10**9 + 7 * (partitions - 1) - 1)
    assert record.drained_groups == tuple(names(groups))
    ends = {p: log(part.end_offset, part.end_offset - 1) for p, part in now.partitions.items()}
    record = after(record, seen(partitions, (), 0, ends))
    sizes.append(len(record.to_json()))
    assert topic_phase(record) == "done"
    assert max(sizes) < min(GOAL_BYTES, bound + groups * 43), "the names of the proof are beyond the bound"
    assert TopicRecord.from_json(record.to_json()) == record


def test_record_in_its_largest_state_is_within_the_bound_of_the_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition has had stragglers and a truncation, and waits for a group of its own."""
    partitions, groups = 301, names(300)
    whole = seen(partitions, groups, behind_end=0)
    record = admitted(shrink(1), seen=whole)
    bound = largest_bytes(record)
    ends = {p: 10**15 + part.end_offset for p, part in whole.partitions.items()}
    cut = {p: log(part.end_offset - 2) for p, part in whole.partitions.items()}
    late = {p: log(end, quiet_since_ms=0) for p, end in ends.items()}
    for logs, passes in ((whole.partitions, 1), (cut, 2), (late, 2)):
        record = after(record, facts(partitions, logs, whole.groups), passes=passes)
    lagging = {n: group({p: 1 if p % 300 == at else end for p, end in ends.items()}) for at, n in enumerate(groups)}
    record = after(record, facts(partitions, late, lagging))
    assert len(held_up(record)) == 300, "each partition but one waits for another group"
    assert all(each.stragglers and each.truncated_to and each.straggler for each in record.retired.values())
    assert largest_bytes(record) <= bound
    monkeypatch.setattr(record_size, "MAX_RECORD_BYTES", 0)
    bare = fitted(record)
    assert len(bare.to_json()) <= bound
    assert {each.reason for each in bare.retired.values()} == {reasons.GROUP_LAG}


def test_bound_holds_for_values_of_every_length_and_is_close() -> None:
    record = admitted(shrink(1), seen=seen(1_001, names(1_000), 0))
    offsets = range(2**53 - 1_000, 2**53 + 1)
    worst = {
        p: RetiredPartition(
            replica_state=ReplicaState.DELETION_SUCCESSFUL if p % 2 else ReplicaState.DELETION_INELIGIBLE,
            seal_offset=offsets[-p],
            seal_leader_epoch=2**31 - p,
            resume_offset=offsets[-p],
            drained_by=2**31 - p,
            lowest_commit=offsets[-p],
            reason=None if p == 1 else reasons.GROUP_NEVER_COMMITTED,
            stragglers=2**31 - p,
            truncated_to=offsets[-p],
        )
        for p in record.retired
    }
    modes = tuple(NONE if p % 2 else mode for p, mode in enumerate(record.modes))
    size = len(replace(record, modes=modes, retired=worst).to_json())
    assert 0.8 * largest_bytes(record) < size <= largest_bytes(record)


@pytest.mark.parametrize(
    "replacement", [None, Replacement("orders-v2", 1, 5), Replacement("orders-v2", 1, 5, evacuation_epoch=2)]
)
def test_bound_counts_what_earlier_changes_have_left(replacement: Replacement | None) -> None:
    record = admitted(shrink(1), seen=seen(1_001, ["g"], 0))
    big = RetiredPartition(seal_offset=2**53, drained_by=2**31, lowest_commit=2**53, truncated_to=2**53)
    plain = replace(big, replica_state=ReplicaState.DELETION_INELIGIBLE, stragglers=2**31, resume_offset=2**53)
    plain = replace(plain, reason=max(reasons.CODES, key=len), seal_leader_epoch=2**31)
    evacuated = replacement is not None and replacement.evacuation_epoch is not None
    copied = replace(plain, evacuated_to=2**53) if evacuated else plain
    rows = {p: replace(copied if p == 1 else plain, seal_offset=2**53 - p) for p in record.retired}
    record = replace(record, retired=rows, replacement=replacement)
    assert len(record.to_json()) <= largest_bytes(record)
    mixed = {
        p: replace(row, stragglers=2**31 - p, lowest_commit=2**53 - p, truncated_to=2**53 - p)
        for p, row in rows.items()
    }
    mixed = {
        p: replace(row, seal_leader_epoch=2**31 - p, resume_offset=2**53 - p, drained_by=2**31 - p)
        for p, row in mixed.items()
    }
    mixed[2] = replace(mixed[2], reason=None, replica_state=ReplicaState.ONLINE)
    assert len(replace(record, retired=mixed).to_json()) <= largest_bytes(record)


def test_bound_of_a_replaced_topic_holds_from_its_switch_on_and_is_close() -> None:
    """It counts no proof of single partitions: the topic goes as a whole. 5 000 partitions fit."""
    count = 5_000
    begun = TopicRecord("orders", "id", 3, 1, (PartitionMode.READ_WRITE,) * count)
    begun = replace(begun, replacement=Replacement("orders-v2", 1, 5))
    bound = largest_bytes(begun)
    assert bound < MAX_RECORD_BYTES
    rows = {
        p: RetiredPartition(
            replica_state=ReplicaState.DELETION_INELIGIBLE if p else ReplicaState.ONLINE,
            seal_offset=2**53 - p,
            seal_leader_epoch=2**31 - p,
            read_up_to=2**53 - p,
            resume_offset=2**53 - p,
            stragglers=2**31 - p,
            truncated_to=2**53 - p,
            reason=sorted(reasons.CODES, key=len)[-1 - p % 2],
        )
        for p in range(count)
    }
    times = dict.fromkeys(("announced_ms", "switched_ms", "fenced_ms", "released_ms", "deleting_ms", "gone_ms"), 10**13)
    now = Replacement("orders-v2", 1, 5, new_topic_id="i" * 22, own_configs={"compression.type": "producer"}, **times)
    switched = replace(begun, modes=(RO,) * count, retired=rows, replacement=now, epoch=10**6)
    assert 0.8 * bound < len(switched.to_json()) <= min(bound, largest_bytes(switched))


def test_groups_of_a_replacement_that_is_admitted_fit_the_record_of_those_that_have_an_open_gate() -> None:
    command, new, admitted_counts = ReplaceTopicCommand("orders", "orders-v2", 1), TopicFacts("orders-v2", None, 0), []
    for count in (1_000, 3_400, 3_450, 3_500, 4_000):
        groups = [f"{name}-{'x' * 250}" for name in names(count, 5)]
        try:
            admit(command, None, seen(1, groups, 0, new_topic=new), ControllerConfig(), LATER_MS)
        except RequestRefused as error:
            refused = error
            continue
        admitted_counts.append(count)
        assert len(MovedRecord("i" * 22, tuple(groups)).stamped(2**31, 2**53).to_json()) <= MAX_RECORD_BYTES
    assert 1_000 in admitted_counts
    assert 4_000 not in admitted_counts
    assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "With the topic's 4000 groups" in str(refused)
    assert "retired partitions fit. Delete groups that are not needed" in str(refused)


def test_names_of_late_groups_give_way_and_hold_nothing_up() -> None:
    """Groups that came up after the admission prove the drain like any other; the record keeps how many."""
    record = admitted(shrink(11), seen=seen(12, ["g"], 0))
    late = [f"{name}-{'x' * 240}" for name in names(4_000, 5)]
    record = after(record, seen(12, ["g", *late], 0))
    assert (record.modes[11], record.retired[11].drained_by, record.drained_groups) == (NONE, 4_001, None)
    assert deleted(look(record, seen(12, ["g", *late], 0))) == {11: 10**9 + 77}


def test_names_in_reasons_give_way_once_they_do_not_fit() -> None:
    long = [f"{name}-{'g' * 30_000}" for name in names(2, 1)]
    record = admitted(shrink(1), seen=seen(101, long, 9))
    odd = group({p: 10**9 + 7 * p for p in range(101) if p % 2})
    lagging = facts(101, seen(101, (), 0).partitions, {long[0]: odd, long[1]: group()})
    record = after(record, lagging)
    assert len(record.to_json()) < MAX_RECORD_BYTES
    assert record.retired[1].reason == reasons.GROUP_NEVER_COMMITTED
    assert "group (its name did not fit the record) uses the topic" in reasons.text(record.retired[1].reason)
    assert look(record, lagging).record is None, "said once"
    assert after(record, seen(101, long, 0)).modes[1] is NONE


class TestNamesThatHaveToBeRecorded:
    """Groups that would complete the list, and waived ones, are evidence: without room for them nothing is deleted."""

    LONG = tuple(f"{name}-{'x' * 240}" for name in names(4_000, 5))

    def incomplete(self) -> TopicRecord:
        return admitted(shrink(11), seen=seen(12, ["g"], 0, groups_doubt=GroupsDoubt("a broker is silent")))

    def test_a_list_that_does_not_fit_is_the_reason_to_wait(self) -> None:
        record = after(self.incomplete(), seen(12, ["g", *self.LONG], 0))
        assert (record.modes[11], record.retired[11].reason) == (RO, reasons.GROUPS_TOO_MANY)
        assert (record.groups_complete, record.required_groups) == (False, ("g",))
        assert "kafka-consumer-groups --delete" in reasons.text(reasons.GROUPS_TOO_MANY)
        record = after(record, seen(12, ["g"], 0))
        assert (record.modes[11], record.groups_complete) == (NONE, True)

    def test_a_seal_that_breaks_meanwhile_is_recorded(self) -> None:
        record = after(self.incomplete(), seen(12, ["g", *self.LONG], 0))
        grown = {p: log(part.end_offset + 1, quiet_since_ms=LATER_MS) for p, part in seen(12, (), 0).partitions.items()}
        record = after(record, seen(12, ["g", *self.LONG], 0, grown))
        assert (record.retired[11].seal_offset, record.retired[11].stragglers) == (None, 1)

    def test_waivers_that_do_not_fit_are_the_reason_to_wait(self) -> None:
        record = admitted(shrink(11), seen=seen(12, ["g"], 0))
        unread = {name: group() for name in self.LONG} | seen(12, ["g"], 0).groups
        rules = [rule("waive", "0*", reason="passing by")]
        now = facts(12, seen(12, (), 0).partitions, unread)
        record = after(record, now, rules=rules)
        assert (record.modes[11], record.retired[11].reason, record.waived) == (RO, reasons.GROUPS_TOO_MANY, {})
        some = facts(12, now.partitions, {name: unread[name] for name in ("g", *self.LONG[:900])})
        record = after(record, some, rules=rules)
        assert (record.modes[11], len(record.waived)) == (NONE, 900)


def test_names_of_a_proof_are_kept_for_as_long_as_its_partition_is_retired() -> None:
    done = after(admitted(shrink(11), seen=seen(12, ["g"], 0)), seen(12, ["g"], 0))
    ends = {p: log(10**9 + 7 * p, 10**9 + 7 * p) for p in range(12)}
    done = after(done, seen(12, ["g"], 0, ends))
    assert topic_phase(done) == "done"
    again = after(admitted(shrink(10), done, seen(12, ["h"], 0)), seen(12, ["h"], 0))
    assert (again.drained_groups, again.retired[10].drained_by) == (("g", "h"), 1)
    grown = admitted(grow(12), done, seen(12, ["h"], 0))
    assert after(admitted(shrink(11), grown, seen(12, ["h"], 0)), seen(12, ["h"], 0)).drained_groups == ("h",)
