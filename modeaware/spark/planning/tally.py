"""Counts what a plan asks for, over columns of keys with NumPy. Knows no Spark: executors run it.

Rows come with the rows of a key side by side and all in one call; sums go out, and no key does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from modeaware.plan.counted import Counted, Fit, Held, Placed, Question
from modeaware.plan.recognise import PLACERS, Candidate
from partitioners.columns import hash_column
from partitioners.columns.jumps import jump_column
from partitioners.hashes import Hash

Integers = NDArray[np.int64]
_HASHES = {"murmur2": Hash.MURMUR2, "crc32": Hash.CRC32, "fnv1a": Hash.FNV1A}
_JUMPS = "minimal_movement"
_PLACERS = tuple(PLACERS)
_WHOLES = 8
_REALS = 3
HELD, PLACED, EVIDENCE, FIT, KEYS = "held", "placed", "evidence", "fit", "keys"


class Sums(NamedTuple):
    """One row of what goes out, and what it is of.

    Attributes:
        what: one of the constants above. over, at: which of them (a count and a partition, a placer, a placement).
        wholes, reals: to be added up. first_ms, last_ms: least and greatest; None where there is none.
    """

    what: str
    over: int
    at: int
    wholes: tuple[int, ...]
    reals: tuple[float, ...] = (0.0,) * _REALS
    first_ms: int | None = None
    last_ms: int | None = None


@dataclass(frozen=True)
class Rows:
    """Records by key and partition; the rows of one key lie side by side.

    Attributes:
        keys: an Arrow array of binary. partitions: each row's.
        records, sizes: how many, and their bytes.
        first_ms, last_ms: the least and greatest timestamp; below 1 where there is none.
    """

    keys: Any
    partitions: Integers
    records: Integers
    sizes: Integers
    first_ms: Integers
    last_ms: Integers

    def only(self, which: NDArray[np.bool_]) -> Rows:
        """Some of them."""
        at = np.flatnonzero(which)
        numbers = (self.partitions, self.records, self.sizes, self.first_ms, self.last_ms)
        return Rows(self.keys.take(at), *(column[at] for column in numbers))


class Tally:
    """The sums of one task. Used by one thread."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._held = np.zeros((question.count, 6), np.int64)
        self._first_ms = np.full(question.count, np.iinfo(np.int64).max)
        self._last_ms = np.zeros(question.count, np.int64)
        self._placed = {over: np.zeros((_WHOLES, over), np.int64) for over in question.counts}
        self._evidence = {name: Fit() for name in _PLACERS}
        self._fits = [Fit() for _ in question.placements]
        self._keys = 0
        self._repeated = 0
        self._together = 0.0

    def add(self, rows: Rows) -> None:
        """Count some rows: all of each of their keys."""
        null = rows.keys.is_null().to_numpy(zero_copy_only=False)
        empty = _lengths(rows.keys) == 0
        empty &= ~null
        self._add_held(rows, null, empty)
        keyed = rows.only(~(null | empty))
        if len(keyed.partitions):
            self._add_keyed(keyed)

    def sums(self) -> Iterator[Sums]:
        """What was counted, as far as it is not zero."""
        for at in np.flatnonzero(self._held[:, 0]).tolist():
            last = int(self._last_ms[at])
            first = int(self._first_ms[at]) if last > 0 else None
            held = (*self._held[at].tolist(), 0, 0)
            yield Sums(HELD, 0, at, held, first_ms=first, last_ms=last or None)
        for over, placed in self._placed.items():
            for at in np.flatnonzero(placed[0]).tolist():
                yield Sums(PLACED, over, at, tuple(placed[:, at].tolist()))
        for at, name in enumerate(_PLACERS):
            yield _fit_sums(EVIDENCE, at, self._evidence[name])
        for at, fit in enumerate(self._fits):
            yield _fit_sums(FIT, at, fit)
        yield Sums(KEYS, 0, 0, (self._keys, self._repeated, *[0] * (_WHOLES - 2)), (self._together, 0.0, 0.0))

    def _add_held(self, rows: Rows, null: NDArray[np.bool_], empty: NDArray[np.bool_]) -> None:
        parts = (rows.records, rows.sizes)
        columns = [part * which for which in (True, null, empty) for part in parts]
        np.add.at(self._held, rows.partitions, np.stack(columns, axis=1))
        np.maximum.at(self._last_ms, rows.partitions, np.maximum(rows.last_ms, 0))
        stamped = rows.first_ms > 0
        np.minimum.at(self._first_ms, rows.partitions[stamped], rows.first_ms[stamped])

    def _add_keyed(self, rows: Rows) -> None:
        starts = _starts(rows.keys)
        key = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(rows.keys)))  # which one each row is of
        numbers = Numbers(rows.keys.take(starts))
        of_key = np.add.reduceat(rows.records, starts)
        share = rows.records / of_key[key]
        self._keys += len(starts)
        self._add_together(rows.records, starts, of_key)
        everything = np.ones(len(key), np.bool_)
        for name in _PLACERS:
            own = Candidate(name, self._question.count)
            self._evidence[name], _ = _fitted(self._evidence[name], own, numbers, rows, key, share, everything)
        left = everything
        chosen = np.full(len(key), -1 if self._question.present is None else _PLACERS.index(self._question.present))
        for at, candidate in enumerate(self._question.placements):
            self._fits[at], matching = _fitted(self._fits[at], candidate, numbers, rows, key, share, left)
            chosen[matching] = _PLACERS.index(candidate.name)
            left = left & ~matching
        if self._question.present is not None:
            self._add_placed(numbers, key, chosen, rows)

    def _add_together(self, records: Integers, starts: Integers, of_key: Integers) -> None:
        repeated = of_key > 1
        pairs = np.add.reduceat(records * (records - 1), starts)[repeated]
        all_ = of_key[repeated]
        self._repeated += len(all_)
        self._together += float((pairs / (all_ * (all_ - 1))).sum())

    def _add_placed(self, numbers: Numbers, key: Integers, chosen: Integers, rows: Rows) -> None:
        cases, of_case = np.unique(key * len(_PLACERS) + chosen, return_inverse=True)
        records, sizes = (_summed(of_case, column, len(cases)) for column in (rows.records, rows.sizes))
        key, placer = cases // len(_PLACERS), cases % len(_PLACERS)
        ones = np.ones(len(cases), np.int64)
        now = numbers.cases(key, placer, self._question.base)
        for over, placed in self._placed.items():
            then = now if over == self._question.base else numbers.cases(key, placer, over)
            moved, stay = (now != then).astype(np.int64), (now < over).astype(np.int64)
            columns = (ones, moved, stay, stay * moved, records, records * moved, sizes, sizes * moved)
            for at, column in enumerate(columns):
                placed[at] += _summed(then, column, over)


class Numbers:
    """Different keys, and where placers put them; each hash is taken once, when first asked for."""

    def __init__(self, keys: Any) -> None:
        self._hashed = cache(lambda which: hash_column(keys, which))
        self._indices: dict[Candidate, Integers] = {}

    def puts(self, candidate: Candidate) -> Integers:
        """The partition of each key."""
        if candidate not in self._indices:
            if candidate.name == _JUMPS:
                found = jump_column(self._hashed(Hash.MURMUR2), candidate.over).astype(np.int64)
            else:
                found = self._hashed(_HASHES[candidate.name]).astype(np.int64) % candidate.over
            self._indices[candidate] = found
        return self._indices[candidate]

    def cases(self, key: Integers, placer: Integers, over: int) -> Integers:
        """The partition of each case: a key by its number, a placer by its place among them."""
        found = np.empty(len(key), np.int64)
        for at in np.unique(placer).tolist():
            own = placer == at
            found[own] = self.puts(Candidate(_PLACERS[at], over))[key[own]]
        return found


def counted_of(question: Question, rows: Iterable[Sums]) -> Counted:
    """What all tasks have counted; several rows of the same are added up."""
    held: dict[int, Held] = {}
    placed: dict[tuple[int, int], Placed] = {}
    fits: dict[tuple[str, int], Fit] = {}
    keys, repeated, together = 0, 0, 0.0
    for row in rows:
        if row.what == HELD:
            held[row.at] = _held(held.get(row.at, Held()), row)
        elif row.what == PLACED:
            old = placed.get((row.over, row.at), Placed())
            placed[row.over, row.at] = Placed(*(a + b for a, b in zip(old, row.wholes, strict=True)))
        elif row.what in (EVIDENCE, FIT):
            fit = fits.get((row.what, row.at), Fit())
            fits[row.what, row.at] = Fit(
                fit.keys + row.wholes[0], fit.records + row.wholes[1],
                *(a + b for a, b in zip(fit[2:], row.reals, strict=True)),
            )  # fmt: skip
        else:
            keys, repeated, together = keys + row.wholes[0], repeated + row.wholes[1], together + row.reals[0]
    evidence: Mapping[str, Fit] = {name: fits.get((EVIDENCE, at), Fit()) for at, name in enumerate(_PLACERS)}
    of_placements = tuple(fits.get((FIT, at), Fit()) for at in range(len(question.placements)))
    return Counted(question, held, placed, evidence, of_placements, keys, repeated, together)


def _held(before: Held, row: Sums) -> Held:
    firsts = [at for at in (before.first_ms, row.first_ms) if at is not None]
    lasts = [at for at in (before.last_ms, row.last_ms) if at is not None]
    return Held(
        before.records + row.wholes[0],
        before.bytes + row.wholes[1],
        before.null + row.wholes[2],
        before.null_bytes + row.wholes[3],
        before.empty + row.wholes[4],
        before.empty_bytes + row.wholes[5],
        min(firsts, default=None),
        max(lasts, default=None),
    )


def last_key(keys: Any) -> int:
    """Where the rows of the last key of a column (not empty) begin."""
    return int(_starts(keys)[-1])


def _fitted(
    before: Fit,
    candidate: Candidate,
    numbers: Numbers,
    rows: Rows,
    key: Integers,
    share: NDArray[np.float64],
    left: NDArray[np.bool_],
) -> tuple[Fit, NDArray[np.bool_]]:
    """``before`` and the rows that are ``left``; and which of them lie where the candidate puts them."""
    matching = left & (numbers.puts(candidate)[key] == rows.partitions)
    low = left & (rows.partitions < candidate.over)
    fit = Fit(
        before.keys + _different(key[left]),
        before.records + int(rows.records[matching].sum()),
        before.matched + float(share[matching].sum()),
        before.of + float(share[left].sum()),
        before.low + float(share[low].sum()),
    )
    return fit, matching


def _fit_sums(what: str, at: int, fit: Fit) -> Sums:
    return Sums(what, 0, at, (fit.keys, fit.records, *[0] * (_WHOLES - 2)), (fit.matched, fit.of, fit.low))


def _lengths(keys: Any) -> Integers:
    import pyarrow.compute as pc

    lengths: Integers = pc.fill_null(pc.binary_length(keys), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _starts(keys: Any) -> Integers:
    """Where the rows of each key begin, in a column that is not empty."""
    import pyarrow.compute as pc

    before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
    differ = pc.or_(pc.fill_null(pc.not_equal(after, before), False), pc.xor(after.is_null(), before.is_null()))
    return np.concatenate([[0], np.flatnonzero(differ.to_numpy(zero_copy_only=False)) + 1])


def _different(ascending: Integers) -> int:
    return int(np.count_nonzero(np.diff(ascending))) + 1 if len(ascending) else 0


def _summed(groups: Integers, column: Integers, count: int) -> Integers:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, groups, column)
    return sums
