"""The hash that placed the keys of a sample, its number of partitions, and the odds of chance. Pure.

A candidate is a hash over a number of partitions. Each key is one case, however many records it has. If the records are
in several partitions, each partition counts as a part of the case. Over n partitions, a wrong hash matches one case in
n by chance. The cases that the best candidate does not explain are tried against all candidates again. This repetition
finds the number of partitions before the topic grew, and producers with different hashes.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple

from modeaware.plan.sample import Sample
from partitioners import NUMBERS, PLACERS

_SCREENED_LEAST, _SCREENED_MOST, _SCREENED_TRIES = 100, 400, 100_000
"""The number of keys that screen the candidates: fewer for more partitions, where chance explains fewer keys."""
_TRIED_IN_FULL = 4
_MOST_PLACEMENTS = 4
_LEAST_FIRST, _LEAST_NEXT = 0.25, 0.05
"""The share of all keys that a placement must explain beyond chance: regular keys may fit a weak hash."""
_ODDS_FIRST, _ODDS_NEXT = -2.0, -6.0
"""The greatest log10 of the odds of chance with which a placement is accepted."""
_ODDS_NONE = -6.0
"""The verdict "none" needs enough keys: if one hash had placed all of them, it would be found with these odds."""
_LEAST_REPEATED = 20
_MOMENT_MS = 100
_HASHED = 0.9
"""If this share of moments (each _MOMENT_MS) fits, records without a key count as hashed like an empty key."""

Verdict = Literal["recognised", "mixed", "none", "unknown"]


class Candidate(NamedTuple):
    """A placer (a name in :data:`partitioners.PLACERS`) over a number of partitions."""

    name: str
    over: int

    def puts(self, numbers: KeyNumbers) -> int:
        """Return the partition of the key with these numbers."""
        return PLACERS[self.name].index(numbers[self.name], self.over)


@dataclass(frozen=True)
class Placement:
    """A candidate, and how many keys of the sample it explains.

    Attributes:
        matched, of: the numbers of keys that match, and that were tried. A key in several partitions counts in parts.
        chance: the share that would match by chance.
        records_share: the share of *all* keyed records of the sample that match.
        recent: the number of *all* keys that match, counted by their recent records only.
        log10_odds: log10 of the odds that some candidate matches as many keys although another rule placed the keys.
    """

    json_only: ClassVar = {
        "hash": "name",
        "partitions": "over",
        "matched": "matched",
        "of": "of",
        "share": "share",
        "chance": "chance",
        "records_share": "records_share",
        "log10_odds_of_chance": "log10_odds",
    }

    candidate: Candidate
    matched: float
    of: float
    chance: float
    records_share: float
    recent: float = 0.0
    log10_odds: float = 0.0

    @property
    def name(self) -> str:
        """The placer's name."""
        return self.candidate.name

    @property
    def over(self) -> int:
        """The number of partitions among which the placement distributes keys."""
        return self.candidate.over

    @property
    def share(self) -> float:
        return self.matched / self.of if self.of else 0.0

    @property
    def beyond_chance(self) -> float:
        """The number of keys that the placement explains beyond chance."""
        return max(0.0, (self.matched - self.chance * self.of) / (1 - self.chance)) if self.chance < 1 else 0.0


@dataclass(frozen=True)
class Recognition:
    """The result: which hash placed the keys.

    Attributes:
        verdict: ``recognised``: one hash placed the keys; ``mixed``: several hashes; ``none``: no tried hash;
            ``unknown``: too few keys.
        name, clients: the hash that places keys now, and the clients that use it.
        placements: the recognised placements, the one with the most keys first. Each later one was tried on the keys
            that the earlier ones do not explain.
        evidence: each hash over the topic's present count, tried on all keys.
        keyed, null, empty: records with a key, without a key, with an empty key (which clients treat differently).
        keys: the number of different keys, without the empty key.
        null_share: of the moments (100 ms) with records without a key, the share whose records are in the partition of
            an empty key; null if unknown.
        null_home: the partition that holds all records without a key. Null if there is none, the topic has one
            partition only, or the records are too few.
        unexplained: the share of keys outside the partitions that the recognised placements give.
        numbers: each key's number by each placer.
        together: the share of pairs of a key's records that are in one partition, on average over keys with two or more
            records: 1 if all pairs are, 1 / partitions by chance, null if such keys are too few.
    """

    json_only: ClassVar = {
        "verdict": "verdict",
        "name": "name",
        "partitions": "over",
        "clients": "clients",
        "placements": "placements",
        "evidence": "evidence",
        "keyed": "keyed",
        "null_keys": "null",
        "empty_keys": "empty",
        "keys": "keys",
        "unexplained_share": "unexplained",
        "null_keys_hashed_share": "null_share",
        "null_keys_partition": "null_home",
        "keys_in_one_partition_share": "together",
    }

    verdict: Verdict
    placements: tuple[Placement, ...] = ()
    evidence: tuple[Placement, ...] = ()
    keyed: int = 0
    null: int = 0
    empty: int = 0
    keys: int = 0
    null_share: float | None = None
    null_home: int | None = None
    together: float | None = None
    numbers: Mapping[bytes, KeyNumbers] = field(default_factory=dict, repr=False)

    @property
    def present(self) -> Placement | None:
        """The placement that matches the most keys by their recent records: it places keys now."""
        return max(self.placements, key=lambda placement: placement.recent, default=None)

    @property
    def name(self) -> str | None:
        return self.present.name if self.present is not None else None

    @property
    def over(self) -> int | None:
        return self.present.over if self.present is not None else None

    @property
    def clients(self) -> str | None:
        return PLACERS[self.present.name].clients if self.present is not None else None

    @property
    def nulls_hashed(self) -> bool:
        """Whether records without a key are placed like those with an empty key."""
        return self.null_share is not None and self.null_share >= _HASHED

    @property
    def placed(self) -> bool:
        """Whether the placement of records is known: a hash places them; or all records lack a key, and are spread."""
        return self.present is not None or not (self.keyed or self.null_home is not None)

    @property
    def unexplained(self) -> float:
        explained = sum(placement.matched for placement in self.placements)
        return max(0.0, 1 - explained / self.keys) if self.keys else 0.0


class _Part(NamedTuple):
    """The records of one key in one partition: their number, their share of all records of the key, and the partition's
    share of the key's recent records."""

    key: bytes
    numbers: KeyNumbers
    partition: int
    records: int
    share: float
    recent: float


def recognise(sample: Sample) -> Recognition:
    """Find the hashes that placed the keys of ``sample``."""
    numbers = {key: key_numbers(key) for key in {record.key for record in sample.records} if key}
    parts = _parts(sample, numbers)
    null = sum(record.key is None for record in sample.records)
    null_moments = _null_moments(sample)
    empty = sum(record.key == b"" for record in sample.records)
    placements = _placements(parts, len(numbers), sample.count)
    verdict: Verdict
    if placements:
        verdict = "recognised" if len({placement.name for placement in placements}) == 1 else "mixed"
    else:
        verdict = "none" if _would_show(len(numbers), sample.count) else "unknown"
    return Recognition(
        verdict=verdict,
        placements=placements,
        evidence=tuple(_try(Candidate(name, sample.count), parts, parts, sample.count) for name in PLACERS),
        keyed=len(sample.records) - null - empty,
        null=null,
        empty=empty,
        keys=len(numbers),
        null_share=_null_share(null_moments, placements),
        null_home=null_moments[0] if sample.count > 1 and len(set(null_moments)) == 1 else None,
        together=_together(parts),
        numbers=numbers,
    )


def _parts(sample: Sample, numbers: Mapping[bytes, KeyNumbers]) -> list[_Part]:
    counts: Counter[tuple[bytes, int]] = Counter()
    recent: Counter[tuple[bytes, int]] = Counter()
    whole: Counter[bytes] = Counter()
    whole_recent: Counter[bytes] = Counter()
    for record in sample.records:
        if record.key:
            counts[record.key, record.partition] += 1
            whole[record.key] += 1
            if sample.is_recent(record):
                recent[record.key, record.partition] += 1
                whole_recent[record.key] += 1
    return [
        _Part(key, numbers[key], partition, n, n / whole[key], recent[key, partition] / max(1, whole_recent[key]))
        for (key, partition), n in counts.items()
    ]


def _placements(parts: Sequence[_Part], keys: int, count: int) -> tuple[Placement, ...]:
    placements: list[Placement] = []
    left = list(parts)
    while left and len(placements) < _MOST_PLACEMENTS:
        tried = [_try(candidate, left, parts, count) for candidate in _promising(left, count)]
        best = max(tried, key=lambda placement: (placement.beyond_chance, placement.over == count))
        least, odds = (_LEAST_NEXT, _ODDS_NEXT) if placements else (_LEAST_FIRST, _ODDS_FIRST)
        if best.beyond_chance < least * keys or best.log10_odds > odds:
            break
        placements.append(replace(best, recent=sum(part.recent for part in _matching(best.candidate, parts))))
        left = [part for part in left if best.candidate.puts(part.numbers) != part.partition]
    return tuple(placements)


def _promising(left: Sequence[_Part], count: int) -> list[Candidate]:
    """Return the candidates that explain the most keys, tried on a random subset."""
    keys = list({part.key: None for part in left})
    enough = max(_SCREENED_LEAST, min(_SCREENED_MOST, _SCREENED_TRIES // count))
    chosen = set(keys if len(keys) <= enough else random.Random(0).sample(keys, enough))
    screened = [part for part in left if part.key in chosen]
    scores = []
    for name, placer in PLACERS.items():
        screen = [(part.numbers[name], part.partition, part.share) for part in screened]
        for tried in range(1, count + 1):
            matched = sum(share for number, partition, share in screen if placer.index(number, tried) == partition)
            scores.append((matched - _by_chance(screened, tried), Candidate(name, tried)))
    scores.sort(key=lambda score: -score[0])
    return [candidate for _, candidate in scores[:_TRIED_IN_FULL]]


def _try(candidate: Candidate, left: Sequence[_Part], parts: Sequence[_Part], count: int) -> Placement:
    matching = _matching(candidate, left)
    matched, of, by_chance = _sum(matching), _sum(left), _by_chance(left, candidate.over)
    records = sum(part.records for part in parts)
    # Each key is an independent case with a value from 0 to 1. Hoeffding's bound holds for such cases.
    keys = len({part.key for part in left})
    odds = math.log10(len(PLACERS) * count) + log10_odds_of_chance(matched, keys, by_chance / keys if keys else 0.0)
    return Placement(
        candidate,
        matched=matched,
        of=of,
        chance=by_chance / of if of else 0.0,
        records_share=sum(part.records for part in matching) / records if records else 0.0,
        log10_odds=min(0.0, odds),
    )


def _matching(candidate: Candidate, parts: Sequence[_Part]) -> list[_Part]:
    return [part for part in parts if candidate.puts(part.numbers) == part.partition]


def _sum(parts: Sequence[_Part]) -> float:
    return math.fsum(part.share for part in parts)


def _by_chance(parts: Sequence[_Part], count: int) -> float:
    """Return how many keys match by chance: one in ``count`` of the keys in partitions below ``count``."""
    return math.fsum(part.share for part in parts if part.partition < count) / count


def _would_show(keys: int, count: int) -> bool:
    """Return whether ``keys`` are enough to recognise, with certainty, a hash that had placed all of them."""
    if count < 2 or not keys:
        return False
    return math.log10(len(PLACERS) * count) + log10_odds_of_chance(keys, keys, 1 / count) <= _ODDS_NONE


def _null_moments(sample: Sample) -> list[int]:
    """Return the partitions of records without a key, each once per moment: clients keep a partition for a while.

    Empty if there are too few moments for a conclusion.
    """
    nulls = [record for record in sample.records if record.key is None and record.timestamp_ms > 0]
    moments = {(record.timestamp_ms // _MOMENT_MS, record.partition) for record in nulls}
    enough = len({moment for moment, _ in moments}) >= _LEAST_REPEATED
    return [partition for _, partition in moments] if enough else []


def _null_share(moments: Sequence[int], placements: Sequence[Placement]) -> float | None:
    if not placements or not moments:
        return None
    home = max(placements, key=lambda placement: placement.recent).candidate.puts(key_numbers(b""))
    return moments.count(home) / len(moments)


def _together(parts: Sequence[_Part]) -> float | None:
    by_key: defaultdict[bytes, list[int]] = defaultdict(list)
    for part in parts:
        by_key[part.key].append(part.records)
    repeated = [own for own in by_key.values() if sum(own) > 1]
    if len(repeated) < _LEAST_REPEATED:
        return None
    return sum(sum(n * (n - 1) for n in own) / (sum(own) * (sum(own) - 1)) for own in repeated) / len(repeated)


KeyNumbers = Mapping[str, int]
"""Placer (one of :data:`partitioners.PLACERS`) -> the key's number by its hash."""


def key_numbers(key: bytes) -> KeyNumbers:
    """Return the key's number by each placer."""
    hashed = {which: number(key) for which, number in NUMBERS.items()}
    return {name: hashed[placer.hash] for name, placer in PLACERS.items()}


_Z_95 = 1.96


def log10_odds_of_chance(matched: float, of: int, chance: float) -> float:
    """Return log10 of a bound on the probability of ``matched`` or more successes in ``of`` trials.

    ``chance`` is the probability that one trial succeeds.

    The bound is Chernoff's upper bound, by the relative entropy. It also holds for trials that succeed in part
    (Hoeffding 1963, theorem 1), and is exact if all trials succeed. If the share is not above chance, return 0.0.
    """
    if of == 0 or matched <= chance * of:
        return 0.0
    if chance <= 0:
        return -math.inf
    share = min(1.0, matched / of)
    entropy = share * math.log(share / chance)
    if share < 1:
        entropy += (1 - share) * math.log((1 - share) / (1 - chance))
    return -of * entropy / math.log(10)


def margin(share: float, of: float) -> float:
    """Return half the width of the 95 % interval (Wilson) of a share in ``of`` independent cases; 1.0 without cases."""
    if of <= 0:
        return 1.0
    share = min(1.0, max(0.0, share))
    spread = share * (1 - share) / of + (_Z_95 / (2 * of)) ** 2
    return min(1.0, _Z_95 * math.sqrt(spread) / (1 + _Z_95**2 / of))


def effective_cases(weights: list[float]) -> float:
    """Return the number of independent cases that weighted cases are worth (Kish).

    Cases of equal weight count one each. If one case outweighs the sum of all others by far, the result is near 1.
    """
    squares = sum(weight * weight for weight in weights)
    return sum(weights) ** 2 / squares if squares > 0 else 0.0
