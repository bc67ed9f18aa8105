"""Which partitioner a configuration asks for, as librdkafka reads it."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.confluent._partitioner_conf import partitioner_of  # private: a producer shows no linger


def named_in(conf: dict[str, Any]) -> str:
    return partitioner_of(conf).rule.name


def linger_ms(conf: dict[str, Any]) -> float:
    """How long a record without key sticks, found by moving the clock."""
    now = [100.0]
    rolls = iter(range(1000))
    topic = partitioner_of(conf, clock=lambda: now[0], randomness=lambda: next(rolls) / 1000).for_topic("t")
    first = topic.partition(None, 1000)
    if topic.partition(None, 1000) != first:
        return 0
    elapsed_ms = 0
    while topic.partition(None, 1000) == first:
        elapsed_ms += 1
        now[0] = 100.0 + elapsed_ms / 1000
    return elapsed_ms - 1


def test_the_default_is_librdkafkas() -> None:
    assert named_in({}) == "consistent_random"


def test_topic_settings_override_the_rest() -> None:
    conf = {"default.topic.config": {"partitioner": "murmur2"}, "partitioner": "fnv1a"}
    assert named_in(conf) == "murmur2"


@pytest.mark.parametrize(
    ("conf", "ms"),
    [
        ({}, 10),
        ({"sticky.partitioning.linger.ms": 30}, 30),
        ({"sticky.partitioning.linger.ms": "0x10"}, 16),
        ({"sticky.partitioning.linger.ms": 0}, 0),
        ({"linger.ms": 50}, 100),
        ({"linger.ms": "0.4"}, 0),
        ({"queue.buffering.max.ms": 7}, 14),
        ({"queue.buffering.max.ms": 7, "linger.ms": 3}, 6),
        ({"linger.ms": 3, "sticky.partitioning.linger.ms": 40}, 40),
    ],
)
def test_the_linger_of_records_without_key(conf: dict[str, Any], ms: float) -> None:
    assert linger_ms(conf) == pytest.approx(ms, abs=1)
