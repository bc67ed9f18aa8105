"""The JSON files of kafka-reassign-partitions, and proposals."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.admin.generate import propose, settled
from modeaware.admin.reassignment_json import Plan, format_plan, parse_brokers, parse_plan, parse_topics
from modeaware.admin.reassignments import PartitionReassignment
from modeaware.admin.throttle import FOLLOWER_REPLICAS, LEADER_REPLICAS, Move, moves, throttled_replicas
from modeaware.errors import RequestRefused

ENTRY = {"topic": "t", "partition": 0, "replicas": [1, 2]}


def test_what_kafkas_tool_prints_is_read_and_printed_to_the_letter() -> None:
    printed = (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"a","partition":10,"replicas":[3],"log_dirs":["any"]}]}'
    )
    plan = parse_plan(printed)
    assert plan == Plan({("a", 0): (1, 2), ("a", 10): (3,)})
    assert format_plan(plan.partitions) == printed
    assert '"log_dirs":["any","/b"]}' in format_plan({("a", 0): (1, 2)}, {("a", 0, 2): "/b"})


def plan_of(*entries: object, **fields: object) -> dict[str, object]:
    return {"version": 1, "partitions": list(entries), **fields}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "not a valid JSON"),
        (plan_of(ENTRY, version=2), "Not supported version field value 2"),
        ({"version": 1}, "Partition reassignment list cannot be empty"),
        (plan_of({**ENTRY, "replicas": []}), "Partition replica list cannot be empty"),
        (plan_of({**ENTRY, "replicas": [1, 1]}), "duplicate entries: t-0 contains multiple entries for 1"),
        (plan_of({**ENTRY, "log_dirs": ["any"]}), "is different from size of log dirs list"),
        (plan_of({**ENTRY, "replicas": ["1"]}), "Expected a whole number"),
        (plan_of({"topic": "t", "partition": 0}), "No such field exists: 'replicas'"),
        ({"partitions": {}}, "Expected an array"),
    ],
)
def test_plans_that_are_none(document: Any, complaint: str) -> None:
    with pytest.raises(RequestRefused) as raised:
        parse_plan(document if isinstance(document, str) else json.dumps(document))
    assert complaint in str(raised.value)


def test_topics_and_brokers() -> None:
    assert parse_topics('{"version":1,"topics":[{"topic":"foo"},{"topic":"foo1"}]}') == ["foo", "foo1"]
    assert parse_brokers("0,1, 2") == [0, 1, 2]
    for text in ('{"topics":[]}', '{"topics":[{"topic":"a"},{"topic":"a"}]}', "7"):
        with pytest.raises(RequestRefused):
            parse_topics(text)
    for text in ("", "1,1", "one"):
        with pytest.raises(RequestRefused):
            parse_brokers(text)


@given(st.integers(1, 7), st.integers(1, 40), st.data())
def test_a_proposal_is_even_and_keeps_each_replication_factor(
    brokers: int, partitions: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, brokers))
    seed = data.draw(st.integers())
    current = {("t", p): tuple(range(100, 100 + count)) for p in range(partitions)}
    proposed = propose(current, dict.fromkeys(range(brokers)), {}, random.Random(seed).randrange)
    assert proposed.keys() == current.keys()
    assert all(len(set(ids)) == count and set(ids) <= set(range(brokers)) for ids in proposed.values())
    leaders = Counter(ids[0] for ids in proposed.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in range(brokers)) <= 1


def test_a_partition_that_moves_counts_with_what_it_will_have() -> None:
    """Taken from metadata in mid-reassignment, the proposal would raise its replication factor: KIP-860's race."""
    moving = {("t", 0): PartitionReassignment((3, 4, 1, 2), (3, 4), (1, 2))}
    current = {("t", 0): (3, 4, 1, 2), ("t", 1): (1, 2)}
    proposed = propose(current, dict.fromkeys(range(1, 5)), moving, lambda count: 0)
    assert {key: len(ids) for key, ids in proposed.items()} == {("t", 0): 2, ("t", 1): 2}
    assert settled(current, moving) == {("t", 0): (1, 2), ("t", 1): (1, 2)}


def test_what_is_throttled() -> None:
    in_progress = {
        ("t", 0): PartitionReassignment((2, 3, 1), (2, 3), (1,)),
        ("u", 0): PartitionReassignment((4, 1), (4,), ()),
    }
    moving = moves(
        in_progress, {("t", 0): (3, 4), ("t", 10): (1, 2), ("t", 2): (2,)}, {("t", 10): (1,), ("t", 2): (2, 3)}
    )
    assert moving == {
        ("t", 0): Move(frozenset({1}), frozenset({3, 4})),
        ("t", 10): Move(frozenset({1}), frozenset({2})),
        ("t", 2): Move(frozenset({2, 3}), frozenset()),
        ("u", 0): Move(frozenset({1}), frozenset({4})),
    }
    assert throttled_replicas(moving) == {
        "t": {LEADER_REPLICAS: "0:1,2:2,2:3,10:1", FOLLOWER_REPLICAS: "0:3,0:4,10:2"},
        "u": {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:4"},
    }
