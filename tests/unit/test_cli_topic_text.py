"""Which topics a pattern means, and the lines in which partitions are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.cli.topics import (
    deletion_plan,
    filtered_lines,
    is_at_min_isr,
    is_unavailable,
    is_under_min_isr,
    is_under_replicated,
    topic_lines,
)
from modeaware.reports.topic_list import ListedTopic, matching, named, named_for_change
from modeaware.reports.topic_state import PartitionReplicas, TopicState

WHOLE = PartitionReplicas(0, 1, (1, 2), (1, 2), (), ())
TOPIC = TopicState("t", "id", (WHOLE, replace(WHOLE, partition=1)), {"segment.ms": "5"}, 2)
LISTED = [ListedTopic(name, name, name.startswith("__"), 1) for name in ("__offsets", "a-b", "a.b", "aXb", "c")]


def test_lines_of_a_topic() -> None:
    assert topic_lines(TOPIC, ["ReadWrite", "ReadOnly"]) == [
        "Topic: t\tTopicId: id\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: segment.ms=5",
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: \tMode: ReadWrite",
        "\tTopic: t\tPartition: 1\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: \tMode: ReadOnly",
    ]


@pytest.mark.parametrize(
    ("isr", "leader", "expected"),
    [
        ((1, 2, 3), 1, set()),
        ((1, 2), 1, {is_under_replicated, is_at_min_isr}),
        ((1,), 1, {is_under_replicated, is_under_min_isr}),
        ((1, 2), None, {is_under_replicated, is_at_min_isr, is_under_min_isr, is_unavailable}),
    ],
)
def test_filters(isr: tuple[int, ...], leader: int | None, expected: set[object]) -> None:
    partition = PartitionReplicas(0, leader, (1, 2, 3), isr)
    filters = (is_under_replicated, is_at_min_isr, is_under_min_isr, is_unavailable)
    assert {each for each in filters if each(partition, 2)} == expected
    lines = filtered_lines(replace(TOPIC, partitions=(WHOLE, replace(partition, partition=1))), ["x", "y"], filters[:1])
    assert [line[-1] for line in lines] == (["y"] if expected else [])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, ["__offsets", "a-b", "a.b", "aXb", "c"]),
        ("a.b", ["a-b", "a.b", "aXb"]),
        ("a", []),
        (" 'a.b, c' ", ["a-b", "a.b", "aXb", "c"]),
        (r"a\.b|__.*", ["__offsets", "a.b"]),
    ],
)
def test_a_pattern_has_to_match_the_whole_name(pattern: str | None, expected: list[str]) -> None:
    assert [topic.name for topic in matching(LISTED, pattern)] == expected
    without = [topic.name for topic in matching(LISTED, pattern, exclude_internal=True)]
    assert without == [name for name in expected if name != "__offsets"]


def test_what_can_be_a_name_is_no_pattern_of_what_to_change() -> None:
    gone = [topic for topic in LISTED if topic.name != "a.b"]
    assert [topic.name for topic in named_for_change(LISTED, "a.b", "log")] == ["a.b"]
    assert named_for_change(gone, "a.b", "log") == []
    assert [topic.name for topic in named(gone, "a.b")] == ["a-b", "aXb"], "what is shown is as kafka-topics has it"
    assert [topic.name for topic in named_for_change(gone, "a.*", "log")] == ["a-b", "aXb"]
    assert [topic.name for topic in named_for_change(LISTED, r"a\.b|c", "log")] == ["a.b", "c"]


def test_a_pattern_never_changes_internal_topics_or_the_mode_log() -> None:
    assert [topic.name for topic in named_for_change(LISTED, ".*", "c")] == ["a-b", "a.b", "aXb"]
    assert named_for_change(LISTED, "__offsets|c", "c") == []
    assert [topic.name for topic in named_for_change(LISTED, "c", "c")] == ["c"]
    internal = named_for_change(LISTED, "__offsets", "c")
    assert [topic.name for topic in internal] == ["__offsets"]
    assert [line.split()[:2] for line in deletion_plan(internal, "c")] == [
        ["WARNING:", "__offsets"],
        ["__offsets:", "is"],
    ]
    assert "WARNING" not in deletion_plan(named_for_change(LISTED, "a.*", "c"), "c")[0]
