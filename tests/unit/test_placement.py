"""Where replicas go: whatever the brokers, their racks and who of them is down."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from modeaware.admin.new_topics import Assignments, check_given, place, place_by_policy
from modeaware.cluster.metadata import RegisteredBroker
from modeaware.config import DISABLED, ENABLED, PREFER_OBSERVED
from modeaware.errors import ErrorCode, RequestRefused

THREE = tuple(RegisteredBroker(node_id, rack, node_id < 3) for node_id, rack in enumerate("abc", start=1))
"""Three racks, of which one is down."""

racks = st.one_of(st.none(), st.sampled_from("abcd"))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[RegisteredBroker, ...]:
    """Up to ten brokers with racks (all, or in half of the cases not), at least one alive."""
    rack = draw(st.sampled_from([racks, st.sampled_from("abcd")]))
    found = draw(st.lists(st.tuples(rack, st.booleans()), min_size=1, max_size=10))
    brokers = [RegisteredBroker(node_id, where, live) for node_id, (where, live) in enumerate(found, start=1)]
    assume(any(broker.live for broker in brokers))
    return tuple(brokers)


counts, starts = st.integers(1, 20), st.integers(0, 1 << 16)


def spread(values: Counter[int], over: set[int]) -> int:
    return max(values[n] for n in over) - min(values[n] for n in over)


@given(clusters(), st.data(), counts, starts)
def test_every_placement(brokers: tuple[RegisteredBroker, ...], data: st.DataObject, count: int, start: int) -> None:
    live = {broker.node_id for broker in brokers if broker.live}
    factor = data.draw(st.integers(1, len(brokers)))
    required = data.draw(st.integers(1, min(len(live), factor)))
    placed = place(count, factor, brokers, required, start)
    assert len(placed) == count
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert len(live.intersection(replicas)) >= required
        assert set(replicas[:required]) <= live, "the leader, and as many as have to be alive, come first"
    assert spread(Counter(replicas[0] for replicas in placed), live) <= 1, "leaders are even"
    assert placed == place(count, factor, brokers, required, start), "nothing is left to chance"


@given(clusters(), st.data(), counts, starts)
def test_racks_are_different_as_far_as_there_are_enough(
    brokers: tuple[RegisteredBroker, ...], data: st.DataObject, count: int, start: int
) -> None:
    assume(all(broker.rack is not None for broker in brokers))
    rack_of = {broker.node_id: broker.rack for broker in brokers}
    live_racks = {broker.rack for broker in brokers if broker.live}
    live_count = sum(broker.live for broker in brokers)
    factor = data.draw(st.integers(1, len(brokers)))
    required = data.draw(st.integers(1, min(live_count, factor)))
    # Live replicas that have to be in the same rack leave fewer for the other racks.
    doubled = max(required - len(live_racks), 0)
    for replicas in place(count, factor, brokers, required, start):
        found = {rack_of[node_id] for node_id in replicas}
        assert len(found) == min(factor - doubled, len(set(rack_of.values())))


def by_policy(policy: str, factor: int, minimum: int, brokers: tuple[RegisteredBroker, ...] = THREE) -> Assignments:
    return place_by_policy("t", 6, factor, minimum, brokers, policy, 0)


@pytest.mark.parametrize(
    ("policy", "minimum", "used"),
    [(ENABLED, 1, {1, 2}), (PREFER_OBSERVED, 1, {1, 2, 3}), (PREFER_OBSERVED, 2, {1, 2}), (DISABLED, 1, {1, 2})],
)
def test_where_live_ones_are_enough_the_policies_differ(policy: str, minimum: int, used: set[int]) -> None:
    assert {n for replicas in by_policy(policy, 2, minimum) for n in replicas} == used


@pytest.mark.parametrize("policy", [DISABLED, ENABLED, PREFER_OBSERVED])
@pytest.mark.parametrize(
    ("factor", "told"),
    [(3, "needs 3 live replicas and only 2 brokers are alive"), (2, "3 live replicas is more than .* factor 2")],
)
def test_too_few_live_ones_are_refused(policy: str, factor: int, told: str) -> None:
    with pytest.raises(RequestRefused, match=told) as caught:
        by_policy(policy, factor, 3)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_assignments_of_the_callers_own() -> None:
    check_given("t", [[1, 3], [3, 2]], 1, [1, 2], ENABLED)
    check_given("t", [[1, 2]], 1, [1, 2], DISABLED)
    for policy, minimum in ((ENABLED, 2), (DISABLED, 1)):
        with pytest.raises(RequestRefused, match=r"assignment 1 \(1, 3\) has 1 live replica, and") as caught:
            check_given("t", [[1, 2], [1, 3]], minimum, [1, 2], policy)
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
