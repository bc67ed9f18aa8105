"""Views and routes: where a record goes while its topic has retired partitions."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.clients.routes import Route, route_for
from modeaware.modes import PartitionMode, to_ranges
from modeaware.topic_view import TopicView
from partitioners import PURE_HASHES, RULES, Hash, named
from tests.support.fake_views import modes_of

MODES = st.lists(st.sampled_from(PartitionMode), min_size=1, max_size=64)


def view_of(modes: tuple[PartitionMode, ...]) -> TopicView:
    return TopicView("orders", "id", (1, 3), modes)


def shrunk(count: int, writable: int, partitioner: str = "murmur2_random") -> Route:
    route = route_for(view_of(modes_of(count, writable)), named(partitioner))
    assert route is not None
    return route


@pytest.mark.parametrize("view", [TopicView.unlisted("orders"), view_of(modes_of(12, 12))])
def test_no_route_where_every_partition_is_writable(view: TopicView) -> None:
    assert route_for(view, named()) is None


@given(name=st.sampled_from(list(RULES)), modes=MODES, key=st.none() | st.binary(max_size=20))
def test_writable_partitions_only(name: str, modes: list[PartitionMode], key: bytes | None) -> None:
    route = route_for(view_of(tuple(modes)), named(name))
    if route is None:
        assert all(mode.writable for mode in modes)
    elif not route.writable:
        with pytest.raises(ValueError, match="must be positive"):
            route.pick(key)
    else:
        assert modes[route.pick(key)].writable


@given(modes=MODES, key=st.binary(min_size=1, max_size=20))
def test_the_same_key_goes_to_the_same_partition_while_the_epoch_lasts(modes: list[PartitionMode], key: bytes) -> None:
    """Invariant I3; it holds between processes too, hence two routes."""
    view = view_of(tuple(modes))
    one, other = route_for(view, named("consistent_random")), route_for(view, named("consistent_random"))
    if one is not None and other is not None and one.writable:
        assert {one.pick(key) for _ in range(3)} == {other.pick(key)}


@pytest.mark.parametrize("writable", [(0, 1, 2, 3), (0, 2, 3, 5)])
@pytest.mark.parametrize("index", [-1, 4, 11, 2**40, None, 1.0])
def test_an_index_beyond_the_writable_partitions_is_an_error(writable: tuple[int, ...], index: Any) -> None:
    """Invariant I3, with an application's own partitioner that counts the retired partitions, too."""
    picks = SimpleNamespace(partition=lambda key, count: index, requires_consistency=lambda key: True)
    route = Route(view_of(modes_of(12, writable)), writable, writable == (0, 1, 2, 3), picks)
    with pytest.raises(ValueError, match=f"the partitioner of orders returned {index}, which is not an index below 4"):
        route.pick(b"key")


@pytest.mark.parametrize(
    ("name", "which"), [("consistent", Hash.CRC32), ("murmur2", Hash.MURMUR2), ("fnv1a", Hash.FNV1A)]
)
@given(key=st.binary(max_size=20), writable=st.integers(1, 40), retired=st.integers(1, 40))
def test_after_a_shrink_the_partition_is_the_hash_over_what_is_left(
    name: str, which: Hash, key: bytes, writable: int, retired: int
) -> None:
    route = shrunk(writable + retired, writable, name)
    assert route.dense
    assert route.pick(key) == PURE_HASHES[which](key, writable)


def test_a_refusal_names_the_partition_and_what_to_do() -> None:
    refusal = shrunk(6, 4).refusal(4)
    assert refusal.startswith("partition 4 of orders is ReadOnly and takes no records")
    assert "orders epoch 3: ReadWrite 0-3" in refusal
    assert refusal.endswith("leave the partition out, or choose one of 0-3")


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
    assert SHRUNK.writable == tuple(p for p in range(4) if SHRUNK.is_writable(p)) == (0, 1)
    assert SHRUNK.readable == tuple(p for p in range(4) if SHRUNK.is_readable(p)) == (0, 1, 2)
    assert not SHRUNK.all_writable
    assert not SHRUNK.all_readable
    assert [SHRUNK.mode(p) for p in range(4)] == [RW, RW, RO, NONE]
    assert SHRUNK.describe() == "orders epoch 7: ReadWrite 0-1, ReadOnly 2, None 3"


@given(st.lists(st.sampled_from(PartitionMode)))
def test_ranges_hold_every_partition_once(modes: list[PartitionMode]) -> None:
    ranges = to_ranges(modes)
    assert [mode for first, last, mode in ranges for _ in range(first, last + 1)] == modes
    assert all(left[1] + 1 == right[0] and left[2] is not right[2] for left, right in pairwise(ranges))
