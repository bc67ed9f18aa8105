"""The proof before deletion (invariant I1), and the words for what stands in its way."""

from __future__ import annotations

import pytest

from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import check_drain
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts
from tests.support.lifecycle import facts, group, log

SEAL = 100
P = 7


def reason(
    groups: dict[str, GroupFacts], seen: PartitionFacts | None = None, required: tuple[str, ...] = (), **more: str
) -> str | None:
    return check_drain(P, SEAL, seen or log(SEAL), facts(groups=groups, **more), required).reason


def test_every_group_at_the_seal_is_the_proof() -> None:
    drain = check_drain(P, SEAL, log(SEAL), facts(groups={"a": group({P: SEAL}), "b": group({P: SEAL})}), ("a",))
    assert drain.done
    assert drain.proof == {"a": SEAL, "b": SEAL}


def test_no_group_at_all() -> None:
    """Nobody reads the topic: nobody is waited for."""
    assert reason({}) is None


def test_a_group_one_offset_short_blocks() -> None:
    assert reason({"a": group({P: SEAL}), "b": group({P: SEAL - 1})}) == "group-lag:b"


def test_a_group_that_is_not_required_but_uses_the_topic_blocks_too() -> None:
    assert reason({"a": group({P: SEAL}), "new": group({P: 3})}, required=("a",)) == "group-lag:new"


def test_a_group_that_committed_other_partitions_only_blocks() -> None:
    assert reason({"a": group({P + 1: 5})}) == "group-never-committed:a"


def test_a_group_with_members_and_no_commit_blocks() -> None:
    assert reason({"a": group(members=True)}) == "group-never-committed:a"


def test_a_required_group_that_is_not_listed_any_more_blocks() -> None:
    assert reason({"a": group({P: SEAL})}, required=("a", "lost")) == "group-gone:lost"


def test_a_commit_beyond_the_end_is_doubt() -> None:
    assert reason({"a": group({P: SEAL + 1})}) == "group-beyond-end:a"


def test_a_doubtful_list_of_groups_blocks() -> None:
    assert reason({"a": group({P: SEAL})}, groups_doubt="a broker did not answer") == "groups-unknown"


@pytest.mark.parametrize("groups", [{}, {"a": group({P: 3})}, {"a": group(members=True)}, {"a": group({P: SEAL + 9})}])
def test_an_empty_partition_is_drained_whatever_the_groups_say(groups: dict[str, GroupFacts]) -> None:
    assert reason(groups, log(SEAL, start=SEAL), required=("lost",), groups_doubt="none is listed") is None


def test_one_record_left_is_not_empty() -> None:
    assert reason({"a": group({P: 3})}, log(SEAL, start=SEAL - 1)) == "group-lag:a"


def test_control_records_alone_do_not_count_as_lag() -> None:
    """A consumer commits the offset after its last record, so a commit marker at the end is never committed past."""
    assert reason({"a": group({P: SEAL - 1}, caught_up=(P,))}) is None
    assert reason({"a": group({P: SEAL - 1}, caught_up=(P + 1,))}) == "group-lag:a"


def test_a_group_without_a_commit_where_nothing_but_control_records_lie() -> None:
    drain = check_drain(P, SEAL, log(SEAL, 98), facts(groups={"a": group({0: 1}, caught_up=(P,))}), ())
    assert drain.done
    assert drain.proof == {"a": 98}


def test_reasons_in_words() -> None:
    assert "group 'a:b' has not consumed" in reasons.text("group-lag:a:b")
    assert "--undo" in reasons.text(reasons.of_group(reasons.GROUP_GONE, "g"))
    assert reasons.text("of-a-newer-controller:x") == "of-a-newer-controller:x"
    codes = [value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)]
    assert len(codes) == len(set(codes)) > 10
    assert all(reasons.text(code) != code for code in codes)
