"""Which hash placed the keys, by what a sample shows, and what other counts would move."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from modeaware.modes import divides, divides_text
from modeaware.plan.effects import Effect, choose_targets, effects
from modeaware.plan.recognise import Recognition, recognise
from modeaware.plan.sample import Sample
from partitioners import PURE_HASHES, Hash, HashFunction, least_share_moved, share_moved
from partitioners.hashes import murmur2
from partitioners.minimal_movement import jump_over
from tests.support.plan_samples import Place, records_of, sample_of, some_keys

RULES: dict[str, HashFunction] = {
    **{name.value: function for name, function in PURE_HASHES.items()},
    "minimal_movement": jump_over(murmur2),
}
MURMUR2, CRC32 = PURE_HASHES[Hash.MURMUR2], PURE_HASHES[Hash.CRC32]


def by(function: HashFunction, count: int) -> Place:
    return lambda key, number: function(key or b"", count)


def found(place: Place, count: int = 12, keys: int = 500, records: int = 4000, asked: int = 2000) -> Recognition:
    return recognise(sample_of(records_of(some_keys(keys, records), place), count, asked))


def placements(recognition: Recognition) -> list[tuple[str, int]]:
    return [(placement.name, placement.over) for placement in recognition.placements]


@pytest.mark.parametrize("count", [2, 12, 48])
@pytest.mark.parametrize("name", RULES)
def test_each_rule_is_told_by_its_name(name: str, count: int) -> None:
    recognition = found(by(RULES[name], count), count)
    assert recognition.verdict == "recognised"
    assert placements(recognition) == [(name, count)]
    assert recognition.placements[0].share == 1.0
    assert recognition.placements[0].records_share == 1.0
    assert recognition.placements[0].log10_odds < -12
    others = [each for each in recognition.evidence if each.name != name]
    assert all(each.share < each.chance + 0.15 for each in others)


NONE_OF_THESE: dict[str, Place] = {
    "round-robin": lambda key, number: number % 12,
    "random": lambda key, number: random.Random(number).randrange(12),
    "sticky": lambda key, number: number // 50 % 12,
    "by the key's last digit": lambda key, number: int(key[-1:]) if key else 0,
    "another hash": lambda key, number: sum(key or b"") * 7 % 12,
    "Java's hashCode": lambda key, number: sum(31**i * c for i, c in enumerate(reversed(key or b""))) % 12,
}


@pytest.mark.parametrize("name", NONE_OF_THESE)
def test_none_of_these(name: str) -> None:
    recognition = found(NONE_OF_THESE[name])
    assert recognition.verdict == "none"
    assert recognition.placements == ()
    assert recognition.present is None
    assert recognition.together is not None
    kept = name.startswith(("by", "another", "Java"))
    assert (recognition.together > 0.99) is kept, "whether keys are kept together is told all the same"


@pytest.mark.parametrize(
    ("function", "before", "after"), [(MURMUR2, 6, 12), (MURMUR2, 8, 12), (CRC32, 12, 5), (CRC32, 12, 6)]
)
def test_a_topic_that_has_grown_or_was_shrunk(function: HashFunction, before: int, after: int) -> None:
    keys = some_keys(300, 8000)
    sent = records_of(keys[:2000], by(function, before)) + records_of(keys[2000:], by(function, after))
    recognition = recognise(sample_of(sent, 12, 4000))
    assert recognition.verdict == "recognised"
    assert recognition.present is not None
    assert (RULES[recognition.present.name], recognition.present.over) == (function, after)


def test_producers_that_disagree() -> None:
    recognition = found(lambda key, number: (MURMUR2 if number % 3 else CRC32)(key or b"", 12))
    assert recognition.verdict == "mixed"
    assert placements(recognition) == [("murmur2", 12), ("crc32", 12)]
    assert recognition.present is not None
    assert recognition.present.name == "murmur2"


@pytest.mark.parametrize("seed", range(0, 5, 2))
def test_regular_keys_and_weak_hashes_are_not_taken_for_more_than_chance(seed: int) -> None:
    """CRC-32 and FNV-1a of numbers that follow one another are anything but random."""
    make: list[Callable[[int], bytes]] = [
        lambda n: b"%d" % n,
        lambda n: b"user:%08d" % n,
        lambda n: n.to_bytes(8, "big"),
        lambda n: n.to_bytes(4, "little"),
        lambda n: b"%x" % (n * 16),
    ]
    for count in (2, 12, 64):
        keys = [make[seed](number) for number in range(3000)]
        recognition = recognise(sample_of(records_of(keys, lambda key, n, count=count: n % count), count, 2000))
        assert recognition.verdict == "none", (count, placements(recognition))


# What a plan says of keys, bytes and load under other counts


def effect(sample: Sample, base: int, target: int) -> Effect:
    (found,) = effects(sample, recognise(sample), base, [target])
    return found


@pytest.mark.parametrize(
    ("base", "wanted", "targets"),
    [(48, 13, (12, 13, 14, 16)), (48, 12, (11, 12, 13)), (12, 4, (3, 4, 5)), (12, 11, (6, 10, 11))],
)
def test_targets(base: int, wanted: int, targets: tuple[int, ...]) -> None:
    assert choose_targets(base, wanted) == targets


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (12, 4, "4 divides 12: {} only keys of the retired ones"),
        (12, 24, "24 is a multiple of 12: {} keys to the new ones only"),
        (12, 5, "5 does not divide 12: {} keys also between partitions that stay (4 or 6 would not)"),
        (12, 11, "11 does not divide 12: {} keys also between partitions that stay (6 would not)"),
        (12, 25, "25 is no multiple of 12: {} keys also between partitions that stay (24 or 36 would not)"),
        (12, 13, "13 is no multiple of 12: {} keys also between partitions that stay (24 would not)"),
    ],
)
def test_whether_one_number_divides_the_other_is_said_with_the_nearest_that_do(
    before: int, after: int, text: str
) -> None:
    assert divides_text(before, after) == text.format("a hash modulo the number of partitions moves")
    assert (share_moved(before, after) == pytest.approx(least_share_moved(before, after))) is divides(before, after)


@pytest.mark.parametrize(("base", "target"), [(12, 4), (12, 5), (12, 24), (12, 13), (48, 12)])
def test_the_sample_moves_what_arithmetic_says(base: int, target: int) -> None:
    keys = some_keys(2000, 3000)
    found = effect(sample_of(records_of(keys, lambda key, _: MURMUR2(key or b"", base)), base), base, target)
    moved = {key for key in keys if MURMUR2(key, base) != MURMUR2(key, target)}
    assert found.keys is not None
    assert found.keys.value == pytest.approx(len(moved) / len(set(keys)))
    assert abs(found.keys.value - found.expected) < 2 * found.keys.margin + 0.001
    assert found.expected == share_moved(base, target)
    assert found.least == least_share_moved(base, target)
    assert found.divides is (target in (4, 24) or (base, target) == (48, 12))
    if found.divides:
        assert found.survivors == (0.0 if target < base else pytest.approx(1 - base / target, abs=0.05))


def test_bytes_move_with_their_keys() -> None:
    """A few keys carry most of the bytes, and all of them stay."""
    keys = some_keys(2000, 4000)
    heavy = {key for key in keys if MURMUR2(key, 12) == 0}
    sent = [(MURMUR2(key, 12), key, 10_000 if key in heavy else 10) for key in keys]
    found = effect(sample_of(sent, 12), 12, 4)
    assert found.keys is not None
    assert found.bytes is not None
    assert found.records is not None
    assert found.keys.value == pytest.approx(2 / 3, abs=0.05)
    assert found.records.value == pytest.approx(2 / 3, abs=0.05)
    assert found.bytes.value < 0.05


def test_load_is_what_the_topic_holds_placed_anew() -> None:
    keys = some_keys(300, 6000)
    everything = sample_of(records_of(keys, lambda key, _: CRC32(key or b"", 12)), 12)
    found = effect(everything, 12, 4)
    exact = [100.0 * sum(CRC32(key, 4) == p for key in keys) for p in range(4)]
    assert list(found.load) == pytest.approx(exact)
    assert found.skew == pytest.approx(max(exact) / (sum(exact) / 4))
    part = effect(sample_of(records_of(keys, lambda key, _: CRC32(key or b"", 12)), 12, 1200), 12, 4)
    assert list(part.load) == pytest.approx(exact, rel=0.01), "each partition's part stands for all of it"
    assert part.mean_load == pytest.approx(found.mean_load)
