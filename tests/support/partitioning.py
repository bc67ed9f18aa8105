"""What partitioners' tests share: librdkafka's hashes, clocks and dice that a test moves, a cluster's metadata."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import confluent_kafka

from partitioners import Hash

C_HASHES = {
    Hash.CRC32: confluent_kafka.consistent,
    Hash.MURMUR2: confluent_kafka.murmur2,
    Hash.FNV1A: confluent_kafka.fnv1a,
}
HIGHEST = 2**31 - 1
"""The largest count that librdkafka's functions take: they show nearly the whole hash with it."""


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Dice:
    """Randomness that a test knows: 0/4, 1/4, 2/4, 3/4, 0/4, ... or what it is given, then 0."""

    def __init__(self, *rolls: float) -> None:
        self._rolls = list(rolls)
        self.rolled = 0

    def __call__(self) -> float:
        self.rolled += 1
        if self._rolls:
            return self._rolls[self.rolled - 1] if self.rolled <= len(self._rolls) else 0.0
        return (self.rolled - 1) % 4 / 4


class Metadata:
    """What partitioners use of kafka-python's ``ClusterMetadata``: one topic, ``t``."""

    def __init__(self, partitions: Iterable[int], available: Iterable[int] | None = None) -> None:
        self.partitions = set(partitions)
        self.available = self.partitions if available is None else set(available)

    def partitions_for_topic(self, topic: str) -> Collection[int] | None:
        return self.partitions if topic == "t" else None

    def available_partitions_for_topic(self, topic: str) -> Collection[int] | None:
        return self.available if topic == "t" else None
