"""The effects of each target on keys and load: by the keys of a sample, or by sums over every record. Pure.

A job that counts every record (Spark's) gets a :class:`Question` and returns a :class:`Counted`. Neither contains a
key: the size of both is independent of the number of keys.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

from modeaware.modes import divides, nearest_dividing
from modeaware.plan.recognise import (
    LEAST_REPEATED,
    Candidate,
    Placement,
    Recognition,
    effective_cases,
    key_numbers,
    log10_odds_of_chance,
    margin,
)
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
    """The effect of one count of partitions.

    Attributes:
        target: the count.
        divides: whether one count divides the other. If so, ``hash % count`` moves as few keys as possible.
        keys, records, bytes: the share that moves to another partition (0 to 1), and half the width of its 95 %
            interval; null if no hash was recognised.
        survivors: the share of keys that move, among those in partitions that stay.
        expected: the share of keys that arithmetic gives for evenly spread hashes.
        least: the share that any rule would have to move.
        load: bytes of each partition, if the topic's records were placed over the target. If no hash was recognised:
            the present load for the topic's own count, and empty for others.
        mean_bytes, most_bytes, load_bytes: of a partition, before compression.
        mean_per_s, most_per_s: bytes a second at which that load arrived; null without usable timestamps.
        skew: the greatest load over the mean one (1: even).
        span_ms: the time that the topic's records span.
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
        """Return a load (bytes held) as the rate at which the bytes arrived; None without usable timestamps."""
        return load * 1000 / self.span_ms if self.span_ms else None


def choose_targets(base: int, wanted: int) -> tuple[int, ...]:
    """Return ``wanted``, its neighbours, and the nearest counts that divide ``base`` (for a growth: its multiples).

    Raises:
        ValueError: a count is not positive.
    """
    near = {wanted - 1, wanted, wanted + 1, *nearest_dividing(base, wanted)}
    return tuple(sorted(n for n in near if n >= 1 and n != base))


def effects(sample: Sample, recognition: Recognition, base: int, targets: Iterable[int]) -> tuple[Effect, ...]:
    """Return the effect of each target, from ``base`` partitions."""
    cases = _cases(sample, recognition)
    return tuple(_effect(sample, cases, _arithmetic(recognition, base, target), base) for target in targets)


def _arithmetic(recognition: Recognition, base: int, target: int) -> Effect:
    """Return the part of a target's effect that follows from the counts alone."""
    present = recognition.present
    by_hash = PLACERS[present.name].share_moved if present is not None else share_moved
    return Effect(target, divides(base, target), by_hash(base, target), least_share_moved(base, target))


@dataclass
class _Case:
    """Records with one key, placed by the key's number (``placer`` None: in any partition)."""

    placer: Placer | None
    number: int
    keyed: bool
    records: float = 0.0
    bytes: float = 0.0

    def index(self, count: int) -> int:
        assert self.placer is not None
        return self.placer.index(self.number, count)


def _cases(sample: Sample, recognition: Recognition) -> list[_Case] | None:
    """Return the records of the sample by key and placer; None where the placement is unknown."""
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
    """Return the placer of a record, and its key's number; None: the record may be in any partition."""
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


# By every record


@dataclass(frozen=True)
class Question:
    """The question for a job that counts every record.

    Attributes:
        count: the topic's number of partitions.
        base: the number of partitions over which keys are placed now.
        targets: the other counts to evaluate.
        placements: the recognised placements, the one with the most keys first.
        present: the placer of keys that none of ``placements`` explains; None: no placer was recognised.
    """

    count: int
    base: int
    targets: tuple[int, ...]
    placements: tuple[Candidate, ...] = ()
    present: str | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """``base`` and the targets."""
        return (self.base, *self.targets)


class Held(NamedTuple):
    """The content of a partition. Bytes are of key, value and headers, before compression.

    Attributes:
        null, null_bytes: records without a key. empty, empty_bytes: records with an empty key.
        first_ms, last_ms: the least and greatest timestamp; None where no record has one.
    """

    records: int = 0
    bytes: int = 0
    null: int = 0
    null_bytes: int = 0
    empty: int = 0
    empty_bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None


class Placed(NamedTuple):
    """The keys (without the empty one) that one count places in one of its partitions.

    A key counts once for each placer that has placed records of it.

    Attributes:
        keys, records, bytes: all; with ``_moved``: those that the base places in another partition.
        stay: keys whose partition by the base also exists with this count. stay_moved: those of them that move.
    """

    keys: int = 0
    keys_moved: int = 0
    stay: int = 0
    stay_moved: int = 0
    records: int = 0
    records_moved: int = 0
    bytes: int = 0
    bytes_moved: int = 0


class Fit(NamedTuple):
    """The fit of a candidate with the keys on which it was tried.

    A key is one case. If the key's records are in several partitions, each partition has its part of the case.

    Attributes:
        keys: the keys of which at least a part was tried. records: those in the candidate's partition.
        matched, of: cases in the candidate's partition, and all cases. low: cases in partitions below its count.
    """

    keys: int = 0
    records: int = 0
    matched: float = 0.0
    of: float = 0.0
    low: float = 0.0


@dataclass(frozen=True)
class Counted:
    """The answer to a :class:`Question`.

    Attributes:
        held: the content by partition. placed: by count and partition; empty where no placer was recognised.
        evidence: the fit of each placer over the topic's count, by name.
        fits: the fit of each of the question's placements, tried on the keys that the earlier ones left.
        keys: the number of keys, without the empty one.
        repeated: keys with two records or more. together: how often two of its records share a partition, summed.
    """

    json_only: ClassVar = {"records": "records", "bytes": "bytes", "span_ms": "span_ms"}

    question: Question
    held: Mapping[int, Held] = field(default_factory=dict)
    placed: Mapping[tuple[int, int], Placed] = field(default_factory=dict)
    evidence: Mapping[str, Fit] = field(default_factory=dict)
    fits: tuple[Fit, ...] = ()
    keys: int = 0
    repeated: int = 0
    together: float = 0.0

    @cached_property
    def records(self) -> int:
        return sum(held.records for held in self.held.values())

    @cached_property
    def bytes(self) -> int:
        return sum(held.bytes for held in self.held.values())

    @property
    def keyed(self) -> int:
        """Records with a key that is not empty."""
        return sum(held.records - held.null - held.empty for held in self.held.values())

    @property
    def last_ms(self) -> int | None:
        """The newest timestamp."""
        return max((held.last_ms for held in self.held.values() if held.last_ms is not None), default=None)

    @property
    def span_ms(self) -> int | None:
        """The time that timestamps span; None without usable timestamps."""
        first = min((held.first_ms for held in self.held.values() if held.first_ms is not None), default=None)
        last = self.last_ms
        return last - first if first is not None and last is not None and last > first else None


def counted_recognition(recognition: Recognition, counted: Counted, count: int) -> Recognition:
    """Return the recognition of a sample with the figures of all records; the sample decides the present rule."""
    homes = {partition for partition, held in counted.held.items() if held.null}
    return replace(
        recognition,
        placements=tuple(
            _placement(placement, fit, counted, count)
            for placement, fit in zip(recognition.placements, counted.fits, strict=True)
        ),
        evidence=tuple(
            _placement(placement, counted.evidence.get(placement.name, Fit()), counted, count)
            for placement in recognition.evidence
        ),
        keyed=counted.keyed,
        null=sum(held.null for held in counted.held.values()),
        empty=sum(held.empty for held in counted.held.values()),
        keys=counted.keys,
        null_home=recognition.null_home if homes == {recognition.null_home} else None,
        together=counted.together / counted.repeated if counted.repeated >= LEAST_REPEATED else None,
    )


def _placement(placement: Placement, fit: Fit, counted: Counted, count: int) -> Placement:
    by_chance = fit.low / placement.over
    chance_of_a_key = by_chance / fit.keys if fit.keys else 0.0
    odds = math.log10(len(PLACERS) * count) + log10_odds_of_chance(fit.matched, fit.keys, chance_of_a_key)
    return replace(
        placement,
        matched=fit.matched,
        of=fit.of,
        chance=by_chance / fit.of if fit.of else 0.0,
        records_share=fit.records / counted.keyed if counted.keyed else 0.0,
        log10_odds=min(0.0, odds),
    )


def counted_effects(recognition: Recognition, counted: Counted) -> tuple[Effect, ...]:
    """Return the effects of the question's counts, the base first.

    Args:
        recognition: the one with the figures of all records (:func:`counted_recognition`).
    """
    return tuple(_counted_effect(recognition, counted, target) for target in counted.question.counts)


def _counted_effect(recognition: Recognition, counted: Counted, target: int) -> Effect:
    base, count = counted.question.base, counted.question.count
    sums = [placed for (over, _), placed in counted.placed.items() if over == target]
    keys, stay = sum(placed_there.keys for placed_there in sums), sum(placed_there.stay for placed_there in sums)
    load: tuple[float, ...] = ()
    if recognition.placed:
        load = _counted_load(recognition, counted, target)
    elif target == count:
        load = tuple(float(counted.held.get(p, Held()).bytes) for p in range(count))
    return replace(
        _arithmetic(recognition, base, target),
        keys=_exact(sum(placed_there.keys_moved for placed_there in sums), keys),
        records=_exact(
            sum(placed_there.records_moved for placed_there in sums), sum(placed_there.records for placed_there in sums)
        ),
        bytes=_exact(
            sum(placed_there.bytes_moved for placed_there in sums), sum(placed_there.bytes for placed_there in sums)
        ),
        survivors=sum(placed_there.stay_moved for placed_there in sums) / stay if stay else None,
        load=load,
        mean_load=counted.bytes / target,
        span_ms=counted.span_ms,
    )


def _exact(part: int, whole: int) -> Share | None:
    return Share(part / whole, 0.0) if whole else None


def _counted_load(recognition: Recognition, counted: Counted, target: int) -> tuple[float, ...]:
    load = [float(counted.placed.get((target, p), Placed()).bytes) for p in range(target)]
    placer = PLACERS[recognition.present.name] if recognition.present is not None else None
    anywhere = 0
    for hashed, unkeyed in (
        (recognition.nulls_hashed, sum(held.null_bytes for held in counted.held.values())),
        (placer is not None and placer.hashes_empty, sum(held.empty_bytes for held in counted.held.values())),
    ):
        if hashed and placer is not None:
            load[placer.index(_EMPTY[placer.name], target)] += unkeyed
        else:
            anywhere += unkeyed
    return tuple(bytes_placed + anywhere / target for bytes_placed in load)
