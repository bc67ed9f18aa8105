"""The effects of each target (a number of partitions) on keys and load, by the keys of a sample. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from modeaware.modes import divides, nearest_dividing
from modeaware.plan.recognise import Placement, Recognition, effective_cases, key_numbers, margin
from modeaware.plan.sample import Sample, SampledRecord
from partitioners import PLACERS, Placer, least_share_moved, share_moved

_EMPTY = key_numbers(b"")


@dataclass(frozen=True)
class Share:
    """A share (0 to 1) and half the width of its 95 % interval."""

    json_only: ClassVar = {"share": "value", "margin": "margin"}

    value: float
    margin: float


@dataclass(frozen=True)
class Effect:
    """The effect of one target; a target is a number of partitions (a count).

    Attributes:
        target: the count.
        divides: whether the present count divides the target, or the target the present count. If so, ``hash % count``
            moves as few keys as possible.
        keys, records, bytes: the share (0 to 1) that moves to another partition, with half the width of its 95 %
            interval. Null if no hash was recognised.
        survivors: among the keys in partitions that stay, the share that moves.
        expected: the share of keys that would move if hashes were spread evenly, from the counts alone.
        least: the least share of keys that has to move, whatever rule places the keys.
        load: the bytes of each partition if all records were placed over the target. If no hash was recognised: the
            present load for the topic's own count, and empty for any other target.
        mean_bytes, most_bytes, load_bytes: the mean, the greatest and all loads of partitions, before compression.
        mean_per_s, most_per_s: the mean and the greatest load as bytes per second; null without usable timestamps.
        skew: the greatest load divided by the mean load; 1 means an even load.
        span_ms: the time from the topic's oldest to its newest record.
    """

    json_only: ClassVar = {
        "target": "target",
        "divides": "divides",
        "keys_moved": "keys",
        "records_moved": "records",
        "bytes_moved": "bytes",
        "survivors_keys_moved": "survivors",
        "keys_moved_expected": "expected",
        "keys_moved_least": "least",
        "mean_bytes": "mean_bytes",
        "most_bytes": "most_bytes",
        "mean_bytes_per_s": "mean_per_s",
        "most_bytes_per_s": "most_per_s",
        "skew": "skew",
        "load_bytes": "load_bytes",
    }

    target: int
    divides: bool
    expected: float
    least: float
    keys: Share | None = None
    records: Share | None = None
    bytes: Share | None = None
    survivors: float | None = None
    load: tuple[float, ...] = ()
    mean_load: float = 0.0
    span_ms: int | None = None

    @property
    def skew(self) -> float | None:
        return max(self.load) / self.mean_load if self.load and self.mean_load > 0 else None

    @property
    def mean_bytes(self) -> int:
        return round(self.mean_load)

    @property
    def most_bytes(self) -> int | None:
        return round(max(self.load)) if self.load else None

    @property
    def load_bytes(self) -> list[int]:
        return [round(load) for load in self.load]

    @property
    def mean_per_s(self) -> float | None:
        return self.per_s(self.mean_load)

    @property
    def most_per_s(self) -> float | None:
        return self.per_s(max(self.load)) if self.load else None

    def per_s(self, load: float) -> float | None:
        """Return a load (the bytes held) as the rate at which the bytes arrived; None without usable timestamps."""
        return load * 1000 / self.span_ms if self.span_ms else None


def choose_targets(base: int, wanted: int) -> tuple[int, ...]:
    """Return ``wanted``, its two neighbours, and the nearest divisors of ``base`` (for a growth, multiples).

    Raises:
        ValueError: a count is not positive.
    """
    near = {wanted - 1, wanted, wanted + 1, *nearest_dividing(base, wanted)}
    return tuple(sorted(n for n in near if n >= 1 and n != base))


def effects(sample: Sample, recognition: Recognition, base: int, targets: Iterable[int]) -> tuple[Effect, ...]:
    """Return the effect of each target on keys that are placed over ``base`` partitions now."""
    cases = _cases(sample, recognition)
    return tuple(_effect(sample, cases, _arithmetic(recognition, base, target), base) for target in targets)


def _arithmetic(recognition: Recognition, base: int, target: int) -> Effect:
    """Return the part of a target's effect that follows from the counts alone."""
    present = recognition.present
    by_hash = PLACERS[present.name].share_moved if present is not None else share_moved
    return Effect(target, divides(base, target), by_hash(base, target), least_share_moved(base, target))


@dataclass
class _Case:
    """The records with one key. The key's number places them; without a ``placer``, they may be in any partition."""

    placer: Placer | None
    number: int
    keyed: bool
    records: float = 0.0
    bytes: float = 0.0

    def index(self, count: int) -> int:
        assert self.placer is not None
        return self.placer.index(self.number, count)


def _cases(sample: Sample, recognition: Recognition) -> list[_Case] | None:
    """Return the records of the sample by key and placer; None if their placement is unknown."""
    if not recognition.placed:
        return None
    cases: dict[tuple[bytes | None, str | None], _Case] = {}
    for record in sample.records:
        placer, number = _placed_by(record, recognition, recognition.present)
        name = placer.name if placer is not None else None
        case = cases.setdefault((record.key, name), _Case(placer, number, bool(record.key)))
        weight = sample.weights[record.partition]
        case.records += weight
        case.bytes += weight * record.size
    return list(cases.values())


def _placed_by(record: SampledRecord, recognition: Recognition, present: Placement | None) -> tuple[Placer | None, int]:
    """Return the placer of a record, and the key's number. Without a placer, the record may be in any partition."""
    if present is None:
        return None, 0
    placer = PLACERS[present.name]
    if record.key:
        numbers = recognition.numbers[record.key]
        for placement in recognition.placements:
            if placement.candidate.puts(numbers) == record.partition:
                placer = PLACERS[placement.name]
                break
        return placer, numbers[placer.name]
    hashed = recognition.nulls_hashed if record.key is None else placer.hashes_empty
    return (placer, _EMPTY[placer.name]) if hashed else (None, 0)


def _effect(sample: Sample, cases: Sequence[_Case] | None, effect: Effect, base: int) -> Effect:
    target = effect.target
    effect = replace(effect, mean_load=sample.total_bytes / target, span_ms=sample.span_ms)
    if cases is None:
        return replace(effect, load=_lying(sample) if target == sample.count else ())
    keyed = [case for case in cases if case.keyed and case.placer is not None]
    moved = [case for case in keyed if case.index(base) != case.index(target)]
    stayed_on = [case for case in keyed if case.index(base) < target]
    moved_on = [case for case in moved if case.index(base) < target]
    return replace(
        effect,
        keys=_share([1.0] * len(moved), [1.0] * len(keyed)),
        records=_share([case.records for case in moved], [case.records for case in keyed]),
        bytes=_share([case.bytes for case in moved], [case.bytes for case in keyed]),
        survivors=len(moved_on) / len(stayed_on) if stayed_on else None,
        load=_load(cases, target),
    )


def _share(part: list[float], whole: list[float]) -> Share | None:
    if not whole or sum(whole) <= 0:
        return None
    share = sum(part) / sum(whole)
    return Share(share, margin(share, effective_cases(whole)))


def _lying(sample: Sample) -> tuple[float, ...]:
    load: defaultdict[int, float] = defaultdict(float)
    for record in sample.records:
        load[record.partition] += sample.weights[record.partition] * record.size
    return tuple(load[partition] for partition in range(sample.count))


def _load(cases: Sequence[_Case], target: int) -> tuple[float, ...]:
    load: defaultdict[int, float] = defaultdict(float)
    anywhere = 0.0
    for case in cases:
        if case.placer is None:
            anywhere += case.bytes
        else:
            load[case.index(target)] += case.bytes
    return tuple(load[partition] + anywhere / target for partition in range(target))
