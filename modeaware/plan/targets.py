"""What each target would do to keys and load, by the keys of the sample. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from modeaware.plan.recognise import PLACERS, Placement, Placer, Recognition, effective_cases, key_numbers, margin
from modeaware.plan.sample import Sample, SampledRecord
from partitioners import least_share_moved, share_moved

_EMPTY = key_numbers([b""])[b""]


class Share(NamedTuple):
    """A share (0 to 1) and half the width of its 95 % interval."""

    value: float
    margin: float


@dataclass(frozen=True)
class Effect:
    """What one count of partitions would do.

    Attributes:
        target: the count.
        divides: whether one count divides the other; then the fewest keys move that ``hash % count`` can move.
        keys, records, bytes: the shares that move to another partition; None where no hash was recognised.
        survivors: the share of the keys in partitions that stay which move all the same; None likewise.
        expected: the share of keys that arithmetic gives for evenly spread hashes.
        least: the share that any rule would have to move.
        load: bytes of each partition, if the records that the topic holds were placed over ``target``. Where no hash
            was recognised: as they lie, of the topic's own count, and empty of others.
        mean_load: bytes a partition.
    """

    target: int
    divides: bool
    keys: Share | None
    records: Share | None
    bytes: Share | None
    survivors: float | None
    expected: float
    least: float
    load: tuple[float, ...]
    mean_load: float

    @property
    def skew(self) -> float | None:
        """The greatest load over the mean one (1 = even); None where it is not known."""
        return max(self.load) / self.mean_load if self.load and self.mean_load > 0 else None


def choose_targets(base: int, wanted: int) -> tuple[int, ...]:
    """``wanted``, its neighbours, and the nearest counts on either side that divide ``base`` (are its multiples, for a
    growth); ascending.

    Raises:
        ValueError: a count is not positive.
    """
    if base < 1 or wanted < 1:
        raise ValueError(f"counts of partitions must be positive, not {base} and {wanted}")
    near = {wanted - 1, wanted, wanted + 1}
    if wanted < base:
        divisors = [n for n in range(1, base) if base % n == 0]
        near |= {max(n for n in divisors if n <= wanted)}
        near |= {min((n for n in divisors if n >= wanted), default=wanted)}
    elif wanted > base:
        near |= {wanted // base * base, -(-wanted // base) * base}
    return tuple(sorted(n for n in near if n >= 1 and n != base))


def effects(sample: Sample, recognition: Recognition, base: int, targets: Iterable[int]) -> tuple[Effect, ...]:
    """The effect of each target, from ``base`` partitions."""
    cases = _cases(sample, recognition)
    present = recognition.present
    by_arithmetic = PLACERS[present.name].share_moved if present is not None else share_moved
    return tuple(_effect(sample, cases, base, target, by_arithmetic(base, target)) for target in targets)


@dataclass
class _Case:
    """Records that one number of a key places (``placer`` None: they go anywhere)."""

    placer: Placer | None
    number: int
    keyed: bool
    records: float = 0.0
    bytes: float = 0.0

    def index(self, count: int) -> int:
        assert self.placer is not None
        return self.placer.index(self.number, count)


def _cases(sample: Sample, recognition: Recognition) -> list[_Case] | None:
    """The records of the sample by what places them; None where that is not known."""
    present = recognition.present
    if present is None and (recognition.keyed or recognition.null_home is not None):
        return None
    cases: dict[tuple[bytes | None, str | None], _Case] = {}
    for record in sample.records:
        placer, number = _placed_by(record, recognition, present)
        name = placer.name if placer is not None else None
        case = cases.setdefault((record.key, name), _Case(placer, number, bool(record.key)))
        weight = sample.weights[record.partition]
        case.records += weight
        case.bytes += weight * record.size
    return list(cases.values())


def _placed_by(record: SampledRecord, recognition: Recognition, present: Placement | None) -> tuple[Placer | None, int]:
    """What will place such a record, and its key's number; None: it may go anywhere."""
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


def _effect(sample: Sample, cases: Sequence[_Case] | None, base: int, target: int, expected: float) -> Effect:
    divides = base % target == 0 or target % base == 0
    least = least_share_moved(base, target)
    mean = sample.total_bytes / target
    if cases is None:
        lying = _lying(sample) if target == sample.count else ()
        return Effect(target, divides, None, None, None, None, expected, least, lying, mean)
    keyed = [case for case in cases if case.keyed and case.placer is not None]
    moved = [case for case in keyed if case.index(base) != case.index(target)]
    stayed_on = [case for case in keyed if case.index(base) < target]
    moved_on = [case for case in moved if case.index(base) < target]
    return Effect(
        target=target,
        divides=divides,
        keys=_share([1.0] * len(moved), [1.0] * len(keyed)),
        records=_share([case.records for case in moved], [case.records for case in keyed]),
        bytes=_share([case.bytes for case in moved], [case.bytes for case in keyed]),
        survivors=len(moved_on) / len(stayed_on) if stayed_on else None,
        expected=expected,
        least=least,
        load=_load(cases, target),
        mean_load=mean,
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
