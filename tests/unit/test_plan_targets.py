"""What a plan says of keys, bytes and load under other counts."""

from __future__ import annotations

import pytest

from modeaware.plan.recognise import recognise
from modeaware.plan.sample import Sample
from modeaware.plan.targets import Effect, choose_targets, effects
from partitioners import PURE_HASHES, Hash, least_share_moved, share_moved
from tests.support.plan_samples import records_of, sample_of, some_keys

MURMUR2, CRC32 = PURE_HASHES[Hash.MURMUR2], PURE_HASHES[Hash.CRC32]


def effect(sample: Sample, base: int, target: int) -> Effect:
    (found,) = effects(sample, recognise(sample), base, [target])
    return found


@pytest.mark.parametrize(
    ("base", "wanted", "targets"),
    [
        (48, 13, (12, 13, 14, 16)),
        (48, 12, (11, 12, 13)),
        (12, 4, (3, 4, 5)),
        (12, 11, (6, 10, 11)),
    ],
)
def test_targets(base: int, wanted: int, targets: tuple[int, ...]) -> None:
    assert choose_targets(base, wanted) == targets


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
