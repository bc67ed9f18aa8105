"""What a plan says when every record of the topic has been counted, not only a sample. Pure.

Who counts (Spark, say) gets a :class:`Question`, which holds no key, and returns a :class:`Counted`, which holds none
either: sums by partition, however many keys there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from modeaware.plan.recognise import (
    LEAST_REPEATED,
    PLACERS,
    Candidate,
    Placement,
    Recognition,
    key_numbers,
    log10_odds_of_chance,
)
from modeaware.plan.targets import Effect, Share
from partitioners import least_share_moved, share_moved

_EMPTY = key_numbers([b""])[b""]


@dataclass(frozen=True)
class Question:
    """What is to be counted.

    Attributes:
        count: how many partitions the topic has.
        base: over how many of them keys are placed now.
        targets: the counts to look at besides.
        placements: what placed the keys, the one with the most first.
        present: the placer of keys that none of ``placements`` explains; None: no placer was found.
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
    """What a partition holds. Bytes are of key, value and headers, before compression.

    Attributes:
        null, null_bytes: records without a key. empty, empty_bytes: those with an empty one.
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
    """The keys (not the empty one) that one count places in one of its partitions.

    A key of which some records lie where one placer puts it, and some where another does, counts once for each.

    Attributes:
        keys, records, bytes: all of it; with ``_moved``: where the base has another partition for them.
        stay: of the keys those whose partition by the base is among the first so many. stay_moved: both.
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
    """How a candidate fits the keys it was tried on.

    A key is one case; of one whose records lie in several partitions each has its part of the case.

    Attributes:
        keys: how many had at least a part tried. records: those that lie where the candidate puts them.
        matched, of: cases that do, and all. low: of all, those in partitions that the candidate may choose.
    """

    keys: int = 0
    records: int = 0
    matched: float = 0.0
    of: float = 0.0
    low: float = 0.0


@dataclass(frozen=True)
class Counted:
    """The answer.

    Attributes:
        held: by partition. placed: by count and partition; empty where no placer was found.
        evidence: of each placer over the topic's count, by name.
        fits: of each of the question's placements, tried on what those before it left.
        keys: different keys without the empty one.
        repeated: those with two records or more. together: the sum over these of how often two records lie together.
    """

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
        """The time that timestamps span; None where they do not tell."""
        first = min((held.first_ms for held in self.held.values() if held.first_ms is not None), default=None)
        last = self.last_ms
        return last - first if first is not None and last is not None and last > first else None


def counted_recognition(recognition: Recognition, counted: Counted, count: int) -> Recognition:
    """What a sample recognised, with the figures of all records; which rule is the present one stays as it was."""
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
    """The effects of the question's counts, the base first.

    Args:
        recognition: with the figures of all records (:func:`counted_recognition`).
    """
    return tuple(_effect(recognition, counted, target) for target in counted.question.counts)


def _effect(recognition: Recognition, counted: Counted, target: int) -> Effect:
    base, count, present = counted.question.base, counted.question.count, recognition.present
    sums = [placed for (over, _), placed in counted.placed.items() if over == target]
    keys, stay = sum(each.keys for each in sums), sum(each.stay for each in sums)
    if present is None and (recognition.keyed or recognition.null_home is not None):
        load = tuple(float(_held(counted, p).bytes) for p in range(count)) if target == count else ()
    else:
        load = _load(recognition, counted, target)
    return Effect(
        target=target,
        divides=base % target == 0 or target % base == 0,
        keys=_share(sum(each.keys_moved for each in sums), keys),
        records=_share(sum(each.records_moved for each in sums), sum(each.records for each in sums)),
        bytes=_share(sum(each.bytes_moved for each in sums), sum(each.bytes for each in sums)),
        survivors=sum(each.stay_moved for each in sums) / stay if stay else None,
        expected=(PLACERS[present.name].share_moved if present is not None else share_moved)(base, target),
        least=least_share_moved(base, target),
        load=load,
        mean_load=counted.bytes / target,
    )


def _share(part: int, whole: int) -> Share | None:
    return Share(part / whole, 0.0) if whole else None


def _held(counted: Counted, partition: int) -> Held:
    return counted.held.get(partition, Held())


def _load(recognition: Recognition, counted: Counted, target: int) -> tuple[float, ...]:
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
    return tuple(each + anywhere / target for each in load)
