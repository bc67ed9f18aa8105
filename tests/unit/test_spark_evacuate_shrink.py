"""What the topic's record asks an evacuation for, where keys belong, and which value of a key is the newest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.spark.errors import NothingToEvacuate
from modeaware.spark.evacuation.job import KeyPlaces
from modeaware.spark.evacuation.shrink import EvacuatingShrink, shrink_of
from modeaware.spark.evacuation.versions import Order, Source, Verdict, Version

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def record(**changes: Any) -> TopicRecord:
    """6 -> 3 partitions, of 8 once: 3 and 4 are sealed, 5 is evacuated, 6 has a straggler, 7 is new."""
    deletion = DeleteTopicPartitions(3, -1, False, 9_000, 6, evacuate=True, evacuation_epoch=4)
    made = TopicRecord(
        "orders",
        "id",
        epoch=7,
        controller_epoch=1,
        modes=(RW, RW, RW, RO, RO, NONE, RO, RO),
        deletion=deletion,
        retired={
            3: RetiredPartition(seal_offset=30, seal_leader_epoch=2),
            4: RetiredPartition(seal_offset=40),
            5: RetiredPartition(seal_offset=50, evacuated=True),
            6: RetiredPartition(seal_offset=60, resume_offset=55, stragglers=1, evacuated_to=50, switch_offset=45),
            7: RetiredPartition(seal_offset=0, opening=True),
        },
        switch_offsets={0: 10, 1: 11},
    )
    return replace(made, **changes)


def test_the_work_is_what_the_record_says() -> None:
    assert shrink_of("orders", record()) == EvacuatingShrink(
        "orders",
        "id",
        "modeaware-evacuation-orders-4",
        epoch=4,
        count=6,
        survivors=(0, 1, 2),
        seals={3: 30, 4: 40, 6: 60},
        starts={6: 50},
        seal_epochs={3: 2},
        order=Order({0: 10, 1: 11}, {3: 30, 4: 40, 6: 45}, 9_000),
    )


def test_a_partition_without_a_seal_is_waited_for() -> None:
    retired = record().retired
    assert shrink_of("orders", record(retired={**retired, 4: RetiredPartition()})) is None
    assert shrink_of("orders", record(retired={**retired, 5: RetiredPartition()})) is not None  # it is None


def test_what_asks_for_no_evacuation_is_refused() -> None:
    for found in (None, record(deletion=None), record(deletion=DeleteTopicPartitions(3, -1, False, 9_000, 6))):
        with pytest.raises(NothingToEvacuate):
            shrink_of("orders", found)


def test_work_counts_while_the_record_asks_for_it() -> None:
    def then(**changes: Any) -> EvacuatingShrink | None:
        return shrink_of("orders", record(**changes))

    work, retired, modes = then(), record().retired, record().modes
    assert work is not None
    assert work.still_holds(work)
    assert not work.still_holds(None)
    assert work.still_holds(then(epoch=99))
    assert work.still_holds(then(modes=(*modes[:4], NONE, *modes[5:])))  # 4 was empty
    assert not work.still_holds(then(retired={**retired, 3: RetiredPartition(seal_offset=31)}))
    assert not work.still_holds(then(modes=(*modes[:5], RO, *modes[6:])))  # a straggler in 5
    deletion = record().deletion
    assert deletion is not None
    assert not work.still_holds(then(deletion=replace(deletion, evacuation_epoch=8)))


def test_a_partitioner_of_the_users_own_places_keys() -> None:
    places = KeyPlaces.of({"partitioner": "tests.unit.test_spark_evacuate_shrink:by_length"}, "orders")
    assert places.indices([b"a", b"bb", b"ccc", b""], 3).tolist() == [1, 2, 0, 0]
    assert places.empty_placed


def by_length(key: bytes | None, count: int) -> int:
    return len(key or b"") % count


# Which value of a key is the newest. For histories in which the truth is known see tests/long/pure.


ORDER = Order({1: 10, 2: 10}, {7: 100, 8: 100}, admitted_ms=1000)


def copy(offset: int, source: Source) -> Version:
    return Version(1, offset, source.timestamp_ms, source)


@pytest.mark.parametrize(
    ("survivor", "verdict"),
    [
        (Version(1, 10, 5), Verdict.NEWER),  # behind the switch, though its clock was slow
        (Version(1, 9, 5), Verdict.COPY),
        (Version(1, 9, 50), Verdict.COPY),  # at the same time: the count before the shrink was the last one
        (Version(2, 9, 51), Verdict.NEWER),  # elsewhere, and readable there
        (copy(20, Source(7, 40, 50)), Verdict.PLACED),
        (copy(20, Source(7, 39, 99)), Verdict.COPY),  # of a value that its own partition has replaced
        (copy(20, Source(1, 15, 5)), Verdict.NEWER),  # a value written once more: what counts is its place before
        (Version(1, 9, -1), Verdict.COPY),
    ],
)
def test_one_survivor_against_a_retired_partition(survivor: Version, verdict: Verdict) -> None:
    assert ORDER.decide([Version(7, 40, 50)], [survivor], home=1)[0] is verdict


@pytest.mark.parametrize(("survivor_ms", "verdict"), [(60, Verdict.NEWER), (50, Verdict.NEWER), (49, Verdict.COPY)])
def test_a_straggler_is_compared_by_time(survivor_ms: int, verdict: Verdict) -> None:
    straggler = Version(7, 100, 50)
    assert ORDER.decide([straggler], [Version(1, 10, survivor_ms)], home=1)[0] is verdict
    assert ORDER.decide([straggler], [Version(1, 9, 99)], home=1)[0] is Verdict.COPY


def test_a_copy_that_lies_in_a_retired_partition_stands_for_itself() -> None:
    retired = Version(7, 40, 50, Source(9, 3, 30))
    assert retired.itself == Source(7, 40, 30)
    assert ORDER.decide([retired], [copy(20, Source(7, 40, 30))], home=1)[0] is Verdict.PLACED


def test_headers_are_read_and_those_of_others_are_not() -> None:
    source = Source(7, 40, -1)
    assert Source.parse(source.header(3)) == source
    assert [Source.parse(header) for header in (None, b"", b"7@40@x@3")] == [None] * 3
