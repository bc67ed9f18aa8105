"""What the controller concludes from what the cluster shows, over a cluster that is a few dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware.cluster import commits
from modeaware.cluster import observer as module
from modeaware.cluster.cluster import LogOffsets, TopicShape
from modeaware.cluster.commits import Gap, without_records
from modeaware.cluster.groups import GroupsFound
from modeaware.cluster.last_records import LastRecords
from modeaware.cluster.metadata import Partition
from modeaware.cluster.observer import ANY_ID, GONE_AFTER_MS, Observer, SnapshotTarget
from modeaware.errors import ClusterError
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, TopicFacts, WriterFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement, RetiredPartition, Straggler, TopicRecord
from modeaware.modes import PartitionMode
from tests.support.lifecycle import LATER_MS, TOPIC, TOPIC_ID, admitted, after, facts, log, shrink
from tests.support.simulated import SimClock

P = 11


OTHER_ID = "id-of-another"


class StubCluster:
    """Shows one topic, as far as it is set to."""

    def __init__(self) -> None:
        self.shape: TopicShape | None = TopicShape(TOPIC_ID, False, 12)
        self.ends = dict.fromkeys(range(12), 10)
        self.policy = "delete"
        self.brokers = None
        self.stable: int | None = None
        self.leader_epoch = 5
        self.shapes: dict[str, TopicShape] = {}
        self.policies: dict[str, ClusterError] = {}

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape | None]:
        return {topic: self.shapes.get(topic, self.shape) for topic in topics}

    def cleanup_policies(self, topics: Iterable[str]) -> dict[str, str | ClusterError]:
        return {topic: self.policies.get(topic, self.policy) for topic in topics}

    def own_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        return {topic: {} for topic in topics}

    def offsets(self, partitions: Iterable[Partition], _leaders: object) -> dict[Partition, LogOffsets]:
        return {
            (topic, p): LogOffsets(
                2, self.ends[p], self.ends[p] if self.stable is None else self.stable, self.leader_epoch
            )
            for topic, p in partitions
            if p in self.ends
        }


class Looking:
    """An observer, what it looks at, and what it asked about."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = SimClock()
        self.cluster = StubCluster()
        self.groups: dict[str, GroupFacts] = {}
        self.groups_of: dict[str, dict[str, GroupFacts]] = {}
        self.gaps: list[Gap] = []
        self.clear = True
        self.ids: dict[int, str | None] | ClusterError | None = None
        self.epoch_ends: dict[tuple[int, int], int] = {}
        self.asked: list[tuple[str, object]] = []
        self.observer = Observer(self.cluster, {}, self.clock, mode_log="modes")
        patch.setattr(module, "find_groups", self._find_groups)
        patch.setattr(module, "ids_of_each_broker", self._ids_of_each_broker)
        patch.setattr(module, "epoch_ends", self._epoch_ends)
        patch.setattr(module, "writers", self._writers)
        patch.setattr(module, "sample_records", self._samples)
        patch.setattr(module, "first_batches", self._batches)
        patch.setattr(commits, "without_records", self._without_records)

    def _find_groups(
        self,
        _cluster: object,
        topics: Iterable[str],
        also: Mapping[str, Sequence[str]] | None,
        *_: object,
        mode_log: str,
    ) -> dict[str, GroupsFound]:
        assert mode_log == "modes"
        self.asked.append(("also", tuple(also[TOPIC])))
        return {topic: GroupsFound(dict(self.groups_of.get(topic, self.groups))) for topic in topics}

    def _ids_of_each_broker(self, _brokers: object, names: Iterable[str]) -> dict[int, dict[str, str | None]]:
        if isinstance(self.ids, ClusterError):
            raise self.ids
        shape = self.cluster.shape
        nodes = self.ids if self.ids is not None else {1: shape.topic_id if shape is not None else None}
        return {node: dict.fromkeys(names, topic_id) for node, topic_id in nodes.items()}

    def _epoch_ends(
        self, _brokers: object, wanted: Mapping[Partition, Iterable[int]]
    ) -> dict[tuple[str, int, int], int]:
        asked = {(p, epoch) for (_, p), epochs in wanted.items() for epoch in epochs}
        if asked:
            self.asked.append(("epochs", asked))
        return {(TOPIC, *pair): self.epoch_ends[pair] for pair in asked if pair in self.epoch_ends}

    def _writers(self, _brokers: object, partitions: Iterable[Partition]) -> dict[Partition, tuple[WriterFacts, ...]]:
        return {key: (WriterFacts(77, 1),) for key in self._note("writers", partitions)}

    def _samples(self, _conf: object, starts: dict[Partition, int], _: object) -> dict[Partition, tuple[str, ...]]:
        return {key: (f"from {start}",) for key, start in starts.items()} if self._note("samples", starts) else {}

    def _batches(self, _brokers: object, starts: dict[Partition, int]) -> dict[Partition, Straggler]:
        return {key: Straggler(start, 9, 2, 300) for key, start in starts.items()}

    def _note(self, what: str, partitions: Iterable[Partition]) -> set[Partition]:
        asked = set(partitions)
        if asked:
            self.asked.append((what, {p for _, p in asked}))
        return asked

    def _without_records(self, _conf: object, gaps: Iterable[Gap], _: object) -> frozenset[Gap]:
        self.gaps += gaps
        return frozenset(gaps) if self.clear else frozenset()


def draining(**fields: object) -> TopicRecord:
    """Partition 11 is sealed at 10 and waits for a group."""
    record = after(
        admitted(shrink(P, **fields)), facts(logs={P: log(10, leader_epoch=5)}, groups_doubt=GroupsDoubt("not yet"))
    )
    assert record.retired[P].seal_offset == 10
    return record


def finished() -> TopicRecord:
    return after(admitted(shrink(P)), facts(), LATER_MS, passes=3)


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Looking:
    return Looking(monkeypatch)


def of_an_earlier_epoch(record: TopicRecord) -> TopicRecord:
    return replace(record, retired={P: replace(record.retired[P], seal_leader_epoch=4)})


def test_an_admission_sees_all_partitions(looking: Looking) -> None:
    looking.cluster.policy = "compact"
    del looking.cluster.ends[3]
    seen = looking.observer.observe(TOPIC, None)
    assert sorted(seen.partitions) == [p for p in range(12) if p != 3]
    assert (seen.topic_id, seen.partition_count, seen.cleanup_policy) == (TOPIC_ID, 12, "compact")
    assert seen.partitions[0] == log(10, 2, leader_epoch=5, quiet_since_ms=looking.clock.now_ms())


def test_quiet_begins_when_an_end_is_first_seen(looking: Looking) -> None:
    def quiet_since_ms() -> int:
        return looking.observer.observe(TOPIC, draining()).partitions[P].quiet_since_ms

    start_ms = looking.clock.now_ms()
    assert quiet_since_ms() == start_ms
    looking.clock.advance(5_000)
    assert quiet_since_ms() == start_ms
    looking.cluster.ends[P] += 1
    assert quiet_since_ms() == start_ms + 5_000
    looking.cluster.ends[P] -= 1
    looking.clock.advance(1)
    assert quiet_since_ms() == start_ms + 5_001, "back again is not quiet either"


def test_quiet_begins_anew_with_another_leader(looking: Looking) -> None:
    """Its log may have been cut, and have grown to the same end again. That is no record that still arrives."""
    looking.epoch_ends = {(P, 5): 10}
    start_ms = looking.observer.observe(TOPIC, draining()).partitions[P].quiet_since_ms
    looking.clock.advance(5_000)
    looking.cluster.leader_epoch = 6
    seen = looking.observer.observe(TOPIC, draining()).partitions[P]
    assert (seen.quiet_since_ms, seen.moved) == (start_ms + 5_000, False)
    looking.clock.advance(5_000)
    assert looking.observer.observe(TOPIC, draining()).partitions[P].quiet_since_ms == start_ms + 5_000


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ({}, {(TOPIC, P): (10, 8)}),
        ({"seal_leader_epoch": 4}, {}),
        ({"read_up_to": None}, {}),
        ({"seal_offset": None}, {}),
    ],
)
def test_the_last_record_is_sought_behind_the_seal_of_the_same_leader(
    looking: Looking, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], known: dict[Partition, tuple[int, int]]
) -> None:
    asked: list[tuple[set[Partition], object]] = []

    def find(_ids: object, logs: Iterable[Partition], known: object) -> dict[Partition, int]:
        asked.append((set(logs), known))
        return {(TOPIC, P): 9}

    monkeypatch.setattr(LastRecords, "find", lambda _self, *args: find(*args))
    retired = replace(draining().retired[P], **({"read_up_to": 8} | fields))
    replacement = Replacement("orders-v2", 4, 0, fence="none", new_topic_id="id-v2", switched_ms=0)
    looking.cluster.ends[P] += 5
    looking.epoch_ends = {(P, 4): 10}
    record = replace(draining(), replacement=replacement, retired={P: retired})
    observer = Observer(looking.cluster, {}, looking.clock, mode_log="modes", probes_fences=True)
    assert observer.observe(TOPIC, record).partitions[P].read_up_to == 9
    assert asked == [({(TOPIC, P)}, known)]


class TestGone:
    @pytest.mark.parametrize("shape", [None, TopicShape("another", False, 12)])
    def test_only_after_a_while(self, looking: Looking, shape: TopicShape | None) -> None:
        looking.cluster.shape = shape
        seen = looking.observer.observe(TOPIC, draining())
        assert (seen.gone, seen.topic_id == TOPIC_ID) == (False, False)
        looking.clock.advance(GONE_AFTER_MS - 1)
        assert not looking.observer.observe(TOPIC, draining()).gone
        looking.clock.advance(1)
        assert looking.observer.observe(TOPIC, draining()).gone

    def test_at_once_after_an_acknowledged_deletion_when_no_broker_has_it(self, looking: Looking) -> None:
        looking.cluster.shape, looking.ids = None, {1: None, 2: TOPIC_ID}
        looking.observer.deleted(TOPIC_ID)
        assert not looking.observer.observe(TOPIC, draining()).gone, "broker 2 has it"
        looking.ids = None
        assert looking.observer.observe(TOPIC, draining()).gone

    def test_parts_of_it_that_brokers_still_have_are_no_facts_after_an_acknowledged_deletion(
        self, looking: Looking
    ) -> None:
        """Else a broker that no longer has the fence, but still the logs, would look as if the fence was lifted."""
        assert looking.observer.observe(TOPIC, draining()).partitions
        looking.observer.deleted(TOPIC_ID)
        assert looking.observer.observe(TOPIC, draining()) == TopicFacts(TOPIC, None, gone=False)

    def test_it_stays_gone(self, looking: Looking) -> None:
        """What waits until two topics are gone finds both at one look. A name may have a topic again at any time."""
        looking.cluster.shape = None
        looks = [SnapshotTarget(TOPIC, None, ANY_ID + TOPIC), SnapshotTarget("orders-v2", None, "id-2")]
        found = []
        for look in (looks[:1], looks, looks):
            found.append([isinstance(each, TopicFacts) and each.gone for each in looking.observer.observe_all(look)])
            looking.clock.advance(GONE_AFTER_MS)
        found.append([isinstance(each, TopicFacts) and each.gone for each in looking.observer.observe_all(looks)])
        assert found == [[False], [True, False], [False, True], [True, True]]

    def test_a_corrected_clock_is_no_time_that_passed(self, looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(looking.clock, "monotonic_s", lambda: 7.0)
        looking.cluster.shape = None
        for _ in range(2):
            assert not looking.observer.observe(TOPIC, draining()).gone
            looking.clock.advance(GONE_AFTER_MS)

    @pytest.mark.parametrize("ids", [{1: None, 2: TOPIC_ID}, {1: "another", 2: TOPIC_ID}])
    def test_not_while_any_broker_knows_it(self, looking: Looking, ids: dict[int, str | None]) -> None:
        looking.cluster.shape, looking.ids = None, ids
        for _ in range(3):
            assert not looking.observer.observe(TOPIC, draining()).gone
            looking.clock.advance(GONE_AFTER_MS)

    def test_the_record_of_an_earlier_topic_of_that_name_gets_none_of_its_facts(self, looking: Looking) -> None:
        earlier = replace(draining(), topic_id="another")
        now, before = looking.observer.observe_all([SnapshotTarget(TOPIC, draining()), SnapshotTarget(TOPIC, earlier)])
        assert now.partitions
        assert before == TopicFacts(TOPIC, TOPIC_ID, now.partition_count)

    def test_a_new_topic_of_an_earlier_id_is_not_the_topic_that_has_its_name(self, looking: Looking) -> None:
        looks = [SnapshotTarget(TOPIC, None, "an earlier id"), SnapshotTarget(TOPIC, None, TOPIC_ID)]
        looking.observer.observe_all(looks)
        looking.clock.advance(GONE_AFTER_MS)
        before, now = looking.observer.observe_all(looks)
        assert (before.gone, before.partitions, now.gone, len(now.partitions)) == (True, {}, False, 12)

    def test_a_look_at_an_id_alone_asks_for_no_groups_and_hides_nothing_of_another_look(
        self, looking: Looking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Topics that were replaced are watched for ever."""
        whole, alone = SnapshotTarget(TOPIC, None, TOPIC_ID), SnapshotTarget(TOPIC, None, TOPIC_ID, id_alone=True)
        for looks in ((whole, alone), (alone, whole)):
            found = looking.observer.observe_all(looks)[looks.index(whole)]
            assert found.untouched is False
        monkeypatch.setattr(module, "find_groups", None)
        (found,) = looking.observer.observe_all([alone])
        assert (found.topic_id, found.partitions, found.groups) == (TOPIC_ID, {}, {})

    def test_not_on_the_word_of_some(self, looking: Looking) -> None:
        """A broker that does not answer might know it; the time begins again."""
        looking.cluster.shape = None
        assert not looking.observer.observe(TOPIC, draining()).gone
        looking.clock.advance(GONE_AFTER_MS)
        looking.ids = ClusterError("broker 2: no answer")
        with pytest.raises(ClusterError):
            looking.observer.observe(TOPIC, draining())
        looking.ids = None
        assert not looking.observer.observe(TOPIC, draining()).gone


class TestSeveral:
    def test_each_topic_has_its_own_groups(self, looking: Looking) -> None:
        other = replace(draining(), topic="other", topic_id=OTHER_ID)
        looking.cluster.shapes["other"] = TopicShape(OTHER_ID, False, 12)
        looking.groups_of["other"] = {"h": GroupFacts({11: 10})}
        looking.groups = {"g": GroupFacts({11: 10})}
        here, there = looking.observer.observe_all([SnapshotTarget(TOPIC, draining()), SnapshotTarget("other", other)])
        assert (list(here.groups), list(there.groups)) == (["g"], ["h"])

    def test_what_is_refused_of_one_is_its_own(self, looking: Looking) -> None:
        other = replace(draining(), topic="other", topic_id=OTHER_ID)
        looking.cluster.shapes["other"] = TopicShape(OTHER_ID, False, 12)
        refused = looking.cluster.policies["other"] = ClusterError("not authorized", topic="other")
        here, there = looking.observer.observe_all([SnapshotTarget(TOPIC, draining()), SnapshotTarget("other", other)])
        assert isinstance(here, TopicFacts)
        assert there is refused


class TestLeaders:
    """What is asked of leaders beside offsets, and when."""

    @pytest.mark.parametrize("make", ["draining", "finished"])
    def test_a_seal_of_another_epoch(self, looking: Looking, make: str) -> None:
        looking.epoch_ends = {(P, 4): 8}
        record = of_an_earlier_epoch(draining() if make == "draining" else finished())
        looking.cluster.ends[P] = record.retired[P].seal_offset or 0
        assert looking.observer.observe(TOPIC, record).partitions[P].seal_epoch_end == 8

    @pytest.mark.parametrize("ends", [{}, {(P, 4): -1}])
    def test_a_seal_that_cannot_be_checked(self, looking: Looking, ends: dict[tuple[int, int], int]) -> None:
        looking.epoch_ends = ends
        assert looking.observer.observe(TOPIC, of_an_earlier_epoch(draining())).partitions == {}

    def test_straggler_is_described_by_its_batch_and_not_by_whom_the_leader_remembers(self, looking: Looking) -> None:
        looking.cluster.ends[P] = 12
        seen = looking.observer.observe(TOPIC, draining()).partitions[P]
        assert (seen.straggler, seen.samples, seen.writers) == (Straggler(10, 9, 2, 300), ("from 10",), ())

    def test_writer_of_an_open_transaction(self, looking: Looking) -> None:
        looking.cluster.stable = 4
        seen = looking.observer.observe(TOPIC, draining()).partitions[P]
        assert (seen.straggler, seen.samples, seen.writers) == (None, (), (WriterFacts(77, 1),))


class TestGroups:
    def test_the_gap_is_what_is_left_for_the_group(self, looking: Looking) -> None:
        """From its commit, or from the log start where that is later, to the seal; each gap is read once."""
        looking.groups = {
            "short": GroupFacts({P: 9}),
            "same": GroupFacts({P: 9}),
            "there": GroupFacts({P: 10}),
            "overtaken": GroupFacts({P: 1}),
            "elsewhere": GroupFacts({0: 1}),
        }
        seen = looking.observer.observe(TOPIC, draining())
        assert sorted(looking.gaps) == [Gap(TOPIC, P, 2, 10), Gap(TOPIC, P, 9, 10)]
        caught_up = {name for name, group in seen.groups.items() if P in group.caught_up}
        assert caught_up == {"short", "same", "overtaken", "elsewhere"}

    def test_registered_names_are_looked_up(self, looking: Looking) -> None:
        now_ms = looking.clock.now_ms()
        rules = [
            GroupRule("require", "spark", TOPIC, "", 0),
            GroupRule("require", "team-*", TOPIC, "", 0, glob=True),
            GroupRule("require", "elsewhere", "other", "", 0),
            GroupRule("require", "expired", "*", "", 0, expires_ms=now_ms),
            GroupRule("waive", "waived", "*", "", 0),
        ]
        looking.observer.observe(TOPIC, draining(), rules)
        assert looking.asked[-1] == ("also", ("spark",))


def released_without_fence() -> TopicRecord:
    """All partitions are sealed at 10, and every required group has moved."""
    replacement = Replacement(
        "orders-v2", 4, 0, fence="none", new_topic_id="id-v2", announced_ms=0, switched_ms=1, released_ms=2
    )
    retired = dict.fromkeys(range(12), RetiredPartition(seal_offset=10, seal_leader_epoch=5, read_up_to=10))
    return TopicRecord(TOPIC, TOPIC_ID, 1, 1, (PartitionMode.READ_ONLY,) * 12, retired=retired, replacement=replacement)


def test_groups_of_a_released_topic_without_a_fence_are_listed_while_it_exists(looking: Looking) -> None:
    """A group that appears after the release has a gate, too, and its commits are checked like all others."""
    looking.groups = {"late": GroupFacts({P: 9})}
    seen = looking.observer.observe(TOPIC, released_without_fence())
    assert (seen.groups_doubt, set(seen.groups)) == (None, {"late"})
    assert P in seen.groups["late"].caught_up
    replacement = replace(released_without_fence().replacing, gone_ms=3)
    looking.observer.observe(TOPIC, replace(released_without_fence(), replacement=replacement))
    assert [what for what, _ in looking.asked] == ["also"]


BROKEN = {"bootstrap.servers": "localhost:1", "security.protocol": "ssl", "ssl.ca.location": "/no/such/file.pem"}


def test_no_consumer_can_be_made() -> None:
    """A file that is being replaced, say: later it can."""
    with pytest.raises(ClusterError, match="cannot read 'orders'"):
        without_records(BROKEN, [Gap("orders", 0, 1, 2)], SimClock().monotonic_s)
