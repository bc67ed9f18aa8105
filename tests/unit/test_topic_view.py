from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from modeaware.modes import PartitionMode, to_ranges
from modeaware.topic_view import TopicView

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
SHRUNK = TopicView("orders", "id", (2, 7), (RW, RW, RO, NONE), {2: 10, 3: 20}, frozenset({3}))


def test_of_an_unlisted_topic_everything_may_be_used() -> None:
    view = TopicView.unlisted("orders")
    assert (view.topic_id, view.epoch, view.modes) == (None, -1, ())
    assert view.all_writable
    assert view.all_readable
    assert view.is_writable(99)
    assert view.is_readable(99)
    assert view.mode(99) is RW
    assert view.describe() == "orders: every partition ReadWrite"


def test_a_shrunk_topic() -> None:
    assert SHRUNK.epoch == 7
    assert SHRUNK.writable == (0, 1)
    assert SHRUNK.readable == (0, 1, 2)
    assert not SHRUNK.all_writable
    assert not SHRUNK.all_readable
    assert [SHRUNK.is_writable(p) for p in range(4)] == [True, True, False, False]
    assert [SHRUNK.is_readable(p) for p in range(4)] == [True, True, True, False]
    assert [SHRUNK.mode(p) for p in range(4)] == [RW, RW, RO, NONE]
    assert SHRUNK.describe() == "orders epoch 7: ReadWrite 0-1, ReadOnly 2, None 3"


def test_a_partition_that_is_not_listed_is_read_and_not_written_while_others_are_retired() -> None:
    assert not SHRUNK.is_writable(4)
    assert not SHRUNK.is_writable(-1)
    assert SHRUNK.is_readable(4)
    assert SHRUNK.mode(4) is RO


@given(st.lists(st.sampled_from(PartitionMode)))
def test_ranges_hold_every_partition_once(modes: list[PartitionMode]) -> None:
    ranges = to_ranges(modes)
    assert [mode for first, last, mode in ranges for _ in range(first, last + 1)] == modes
    assert all(left[1] + 1 == right[0] and left[2] is not right[2] for left, right in pairwise(ranges))
