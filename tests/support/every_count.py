"""``make hashes``: every form of every hash over 1 000 000 keys, each by a number of partitions
of its own, and librdkafka's C functions for all of these keys by each of 1 to 500 partitions.

``make test`` compares the vectorised form of all these keys with librdkafka and Java, and samples of the other forms;
this takes some 20 minutes of one core."""

from __future__ import annotations

import argparse
import itertools
import sys
import time

import numpy as np

from partitioners import Hash
from partitioners.columns import hash_column
from tests.support.hash_forms import SCALAR, VECTORISED, WRAPPED
from tests.support.partitioning import C_HASHES
from tests.support.random_keys import COUNTS, RandomKeys, random_keys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.every_count", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000, metavar="N", help="how many (1 000 000)")
    parser.add_argument("--swept", type=int, metavar="N", help="how many by each number of partitions (all)")
    parser.add_argument("--seed", type=int, default=694)
    arguments = parser.parse_args()
    keys = random_keys(arguments.keys, arguments.seed)
    return 1 if sum(forms(keys, which) + sweep(keys, which, arguments.swept) for which in Hash) else 0


def forms(keys: RandomKeys, which: Hash) -> int:
    """Compare all forms and print; how many picks differ."""
    listed, counts = keys.listed(), keys.own_counts()
    expected = (hash_column(keys.arrow(), which) % counts).tolist()
    differ = 0
    for name, form in {**SCALAR, **VECTORISED, **WRAPPED}.items():
        began_s = time.monotonic()
        found = form(which, listed, counts.tolist())
        wrong = sum(ours != theirs for ours, theirs in zip(found, expected, strict=True))
        differ += wrong
        report(which, name, len(found), wrong, began_s)
    return differ


def sweep(keys: RandomKeys, which: Hash, number: int | None) -> int:
    """Compare the first ``number`` keys with librdkafka by every count and print; how many picks differ."""
    listed = keys.listed(number)
    numbers = hash_column(keys.arrow(), which)[: len(listed)]
    began_s = time.monotonic()
    wrong = 0
    for count in range(1, COUNTS + 1):
        found_by_c = np.fromiter(map(C_HASHES[which], listed, itertools.repeat(count)), np.int64, len(listed))
        wrong += int(np.count_nonzero(numbers % np.uint32(count) != found_by_c))
    report(which, f"librdkafka, 1 to {COUNTS}", COUNTS * len(listed), wrong, began_s)
    return wrong


def report(which: Hash, name: str, picks: int, differ: int, began_s: float) -> None:
    print(
        f"{which.value:8} {name:22} {picks:11} picks, {differ} differ, {time.monotonic() - began_s:6.1f} s", flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
