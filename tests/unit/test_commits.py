"""What commits on sealed partitions are worth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from modeaware.cluster import commits as module
from modeaware.cluster.commits import CommitsChecked, check_commits
from modeaware.cluster.control_records import Gap
from modeaware.cluster.groups.found import GroupsFound
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts
from modeaware.modelog.records import TopicRecord
from tests.support.lifecycle import admitted, after, facts, log, shrink
from tests.support.simulated import SimClock

P = 11
SEAL = 10
EPOCH = 5
"""Now; the commits are of epoch 4."""


class Cluster:
    """Where the leader's log ends for an epoch, and which stretches hold only control records."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ends: dict[tuple[int, int], int] = {}
        self.clear: set[tuple[int, int]] = set()
        self.asked: set[tuple[int, int]] = set()
        self.gaps: list[set[Gap]] = []
        patch.setattr(module, "epoch_ends", self._epoch_ends)
        patch.setattr(module, "without_records", self._without_records)

    def _without_records(self, _conf: object, _topic: str, gaps: Iterable[Gap], _: object) -> frozenset[Gap]:
        self.gaps.append(set(gaps))
        return frozenset(gap for gap in gaps if (gap.start, gap.end) in self.clear)

    def _epoch_ends(self, _: object, topic: str, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
        self.asked |= set(wanted)
        return {pair: end for pair, end in self.ends.items() if pair in set(wanted)}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def sealed(**fields: object) -> TopicRecord:
    record = after(admitted(shrink(P, **fields)), facts(logs={P: log(SEAL)}))
    return replace(record, retired={P: replace(record.retired[P], seal_offset=SEAL)})


def handing_over(**fields: object) -> TopicRecord:
    """Nothing is handed over yet."""
    record = sealed(**fields)
    assert record.deletion is not None
    return replace(record, deletion=replace(record.deletion, handed_over=False))


def check(
    committed: int, commit_epoch: int | None = 4, record: TopicRecord | None = None, before_due: bool = False
) -> CommitsChecked:
    groups = {"g": GroupFacts({P: committed})}
    epochs = {"g": {P: commit_epoch} if commit_epoch is not None else {}}
    partitions = {P: PartitionFacts(2, SEAL + 5, SEAL + 5, EPOCH, 0)}
    found = GroupsFound(groups, epochs=epochs)
    return check_commits({}, None, record or sealed(), partitions, found, SimClock(), before_due)


def truncated(checked: CommitsChecked) -> bool:
    return P in checked.groups["g"].truncated


def test_a_commit_beyond_where_its_epoch_ends(cluster: Cluster) -> None:
    """An unclean leader lost 8 and 9 and has other records there: the group has not read those."""
    cluster.ends = {(P, 4): 8}
    assert truncated(check(SEAL))


def test_but_for_control_records(cluster: Cluster) -> None:
    cluster.ends, cluster.clear = {(P, 4): 9}, {(9, SEAL)}
    assert not truncated(check(SEAL))


def test_a_leader_that_does_not_say(cluster: Cluster) -> None:
    checked = check(SEAL)
    assert checked.unavailable == {P}


@pytest.mark.parametrize("epoch", [EPOCH, None])
def test_nothing_is_asked_of_a_commit_of_this_epoch_or_of_none(cluster: Cluster, epoch: int | None) -> None:
    assert not truncated(check(SEAL, epoch))
    assert cluster.asked == set()


def epochless(checked: CommitsChecked) -> bool:
    return P in checked.groups["g"].epochless


def test_but_for_control_records_where_the_log_was_truncated(cluster: Cluster) -> None:
    record = sealed()
    record = replace(record, retired={P: replace(record.retired[P], truncated_to=8)})
    assert epochless(check(SEAL, None, record))
    assert cluster.gaps == [{Gap(P, 8, SEAL)}]
    cluster.clear = {(8, SEAL)}
    assert not epochless(check(SEAL, None, record))


def test_commits_are_checked_before_there_is_a_seal(cluster: Cluster) -> None:
    """Sealed and found to be drained in one pass, it would become None on their word."""
    record = sealed()
    record = replace(record, retired={P: replace(record.retired[P], seal_offset=None)})
    cluster.ends = {(P, 4): 8}
    assert truncated(check(SEAL, record=record))
    assert epochless(check(SEAL, None, record))


class TestHandover:
    """Commits that decide whether keys are handed over, though they do not decide whether the partition goes."""

    @pytest.mark.parametrize("policy", [{"delay_ms": -1}, {"delay_ms": 60_000}])
    def test_of_a_retired_partition(self, cluster: Cluster, policy: dict[str, object]) -> None:
        cluster.ends, cluster.clear = {(P, 4): 8}, {(9, SEAL)}
        record = handing_over(**policy)
        checked = check(9, record=record)
        assert checked.groups["g"].caught_up == {P}
        assert truncated(checked)

    @pytest.mark.parametrize(("offset", "gap"), [(12, Gap(1, 5, 12)), (99, Gap(1, 5, 20))])
    def test_of_a_survivor(self, cluster: Cluster, offset: int, gap: Gap) -> None:
        """Up to its handover offset; where the log was truncated since, to its end."""
        record = replace(handing_over(delay_ms=-1), handover_offsets={1: offset})
        cluster.ends, cluster.clear = {(1, 4): 4}, {(gap.start, gap.end)}
        groups = {"g": GroupFacts({1: 5})}
        found = GroupsFound(groups, epochs={"g": {1: 4}})
        partitions = {1: PartitionFacts(2, 20, 20, EPOCH, 0)}
        checked = check_commits({}, None, record, partitions, found, SimClock())
        assert gap in cluster.gaps[0]
        assert (checked.groups["g"].caught_up, checked.groups["g"].truncated) == ({1}, {1})
