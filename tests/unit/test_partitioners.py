"""Hashes, rules and sticking: pure Python, held against librdkafka's C."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioners import PURE_HASHES, RULES, Hash, named
from tests.support.partitioning import C_HASHES, Dice, Ticks

COUNTS = st.integers(min_value=1, max_value=100_000)


@pytest.mark.parametrize("which", list(Hash))
@given(key=st.binary(max_size=64), count=COUNTS)
def test_the_hashes_in_python_equal_those_in_c(which: Hash, key: bytes, count: int) -> None:
    assert PURE_HASHES[which](key, count) == C_HASHES[which](key, count)


@pytest.mark.parametrize(
    ("key", "signed"),
    # From Kafka's own UtilsTest.testMurmur2.
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_murmur2_is_javas(key: bytes, signed: int) -> None:
    assert PURE_HASHES[Hash.MURMUR2](key, 2**31 - 1) == (signed & 0x7FFFFFFF) % (2**31 - 1)


@pytest.mark.parametrize("which", list(Hash))
@pytest.mark.parametrize("count", [0, -1])
def test_a_hash_over_nothing_is_refused(which: Hash, count: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        PURE_HASHES[which](b"key", count)


@pytest.mark.parametrize("which", list(Hash))
@given(key=st.binary(max_size=32), small=st.integers(1, 64), factor=st.integers(1, 64))
def test_a_dividing_target_moves_the_retired_partitions_keys_only(
    which: Hash, key: bytes, small: int, factor: int
) -> None:
    before = PURE_HASHES[which](key, small * factor)
    after = PURE_HASHES[which](key, small)
    assert after == before % small
    assert after == before or before >= small


@pytest.mark.parametrize(
    ("name", "null", "empty", "other"),
    [
        ("random", "sticky", "random", "random"),
        ("consistent", "hashed", "hashed", "hashed"),
        ("consistent_random", "sticky", "sticky", "hashed"),
        ("murmur2", "hashed", "hashed", "hashed"),
        ("murmur2_random", "sticky", "hashed", "hashed"),
        ("fnv1a", "hashed", "hashed", "hashed"),
        ("fnv1a_random", "sticky", "hashed", "hashed"),
    ],
)
def test_the_rules_are_librdkafkas(name: str, null: str, empty: str, other: str) -> None:
    rule = RULES[name]

    def said(key: bytes | None) -> str:
        return "hashed" if rule.is_hashed(key) else "sticky" if rule.is_sticky(key) else "random"

    assert (said(None), said(b""), said(b"key")) == (null, empty, other)
    topic = named(name).for_topic("t")
    assert topic.requires_consistency(None) == (null == "hashed")
    assert topic.requires_consistency(b"key") == (other == "hashed")


@given(name=st.sampled_from(list(RULES)), key=st.none() | st.binary(max_size=16), count=st.integers(1, 500))
def test_every_pick_is_one_of_the_candidates_and_the_same_for_the_same_key(
    name: str, key: bytes | None, count: int
) -> None:
    topic = named(name).for_topic("t")
    picks = {topic.partition(key, count) for _ in range(5)}
    assert all(0 <= pick < count for pick in picks)
    if topic.requires_consistency(key):
        assert len(picks) == 1


def test_a_record_without_key_sticks_for_the_linger_and_no_longer() -> None:
    clock, dice = Ticks(), Dice()
    topic = named("murmur2_random", linger_s=0.01, clock=clock, randomness=dice).for_topic("t")
    assert [topic.partition(None, 4) for _ in range(3)] == [0, 0, 0]
    clock.now_s += 0.01
    assert topic.partition(None, 4) == 0  # librdkafka moves on after the time, not at it
    clock.now_s += 0.001
    assert [topic.partition(None, 4) for _ in range(3)] == [1, 1, 1]
    assert dice.rolled == 2


def test_without_linger_every_pick_is_random() -> None:
    dice = Dice()
    topic = named("consistent_random", linger_s=0, clock=Ticks(), randomness=dice).for_topic("t")
    assert [topic.partition(None, 4) for _ in range(5)] == [0, 1, 2, 3, 0]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'murmur3'; there are random, consistent, .*fnv1a_random"):
        named("murmur3")
