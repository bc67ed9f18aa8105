"""What the topic's record asks an evacuation for, where keys belong, and what is told at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.spark.evacuation import NothingToEvacuate
from modeaware.spark.evacuation.placing import Placing
from modeaware.spark.evacuation.shrink import EvacuatingShrink, shrink_of
from modeaware.spark.evacuation.versions import Order

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


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "no shrink is in force"),
        (record(deletion=None), "no shrink is in force"),
        (record(deletion=DeleteTopicPartitions(3, -1, False, 9_000, 6)), "evacuates nothing"),
    ],
)
def test_what_asks_for_no_evacuation_is_refused(found: TopicRecord | None, why: str) -> None:
    with pytest.raises(NothingToEvacuate, match=why):
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
    placing = Placing.of({"partitioner": "tests.unit.test_spark_evacuate_shrink:by_length"}, "orders")
    assert placing.indices([b"a", b"bb", b"ccc", b""], 3).tolist() == [1, 2, 0, 0]
    assert placing.empty_placed


def by_length(key: bytes | None, count: int) -> int:
    return len(key or b"") % count
