"""Sticky picks that follow the load (KIP-794), as Java's producer makes them since Kafka 3.3."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Unpack

from partitioners.hashes import Hash, HashFunction, positive
from partitioners.seam import HashPartitioner, Options, Rule, TopicHashPartitioner

UNKNOWN_RECORD_SIZE = 1024


class _TopicUniformSticky(TopicHashPartitioner):
    def __init__(self, made_by: HashPartitioner, topic: str) -> None:
        super().__init__(made_by, topic)
        self._lock = threading.Lock()
        self._index = 0
        self._count = 0  # of the candidates that the index was drawn from
        self._left = 0  # bytes that still stick

    def partition_by_load(self, key: bytes | None, count: int, size: int, load: Sequence[int] = ()) -> int:
        if self.requires_consistency(key):
            return self.partition(key, count)
        return self._stick(count, size, load)

    def _spread(self, key: bytes | None, count: int) -> int:
        return self._stick(count, UNKNOWN_RECORD_SIZE, ())

    def _stick(self, count: int, size: int, load: Sequence[int]) -> int:
        if load and len(load) != count:
            raise ValueError(f"load has {len(load)} entries for {count} candidates")
        with self._lock:
            if self._left <= 0 or self._count != count:
                # Drawn when it is needed, not when the last record filled the batch as in Java: the load is newer.
                self._index = draw(positive(count), load, self._made_by.randomness())
                self._count, self._left = count, self._made_by.batch_size
            self._left -= size
            return self._index


def draw(count: int, load: Sequence[int], chance: float) -> int:
    """Return the index that ``chance`` (``0 <= chance < 1``) draws by the load; see :class:`UniformSticky`."""
    if not load:
        return int(chance * count)
    heaviest = max(load) + 1
    cumulative = list(accumulate(heaviest - queued for queued in load))
    return bisect_right(cumulative, int(chance * cumulative[-1]))


class UniformSticky(HashPartitioner):
    """Records without a key stick to one candidate for ``batch_size`` bytes; the next one is drawn by the load.

    A candidate has the weight ``longest queue + 1 - own queue``; all weights are equal while the load is unknown. The
    queue of a slow broker grows, so it is drawn less often. Switching by bytes, not by batches, makes the shares
    uniform: KIP-480 switches when a batch ends, which sends most records to the slowest broker. The caller leaves out
    candidates that should get nothing (Java: ``partitioner.availability.timeout.ms``).

    Keys, the empty one included, are hashed with murmur2, unless ``ignore_keys`` (Java: ``partitioner.ignore.keys``)
    spreads them like the others. Its topic partitioners are :class:`~partitioners.seam.LoadAware`. Their
    ``partition``, for callers without sizes, counts a record as 1024 bytes.
    """

    RULE = Rule("uniform_sticky", Hash.MURMUR2, null_hashed=False, empty_hashed=True)
    RULE_IGNORING_KEYS = Rule("uniform_sticky", None, null_hashed=False, empty_hashed=False)
    _TOPIC = _TopicUniformSticky

    def __init__(
        self, hash_function: HashFunction | None = None, *, ignore_keys: bool = False, **options: Unpack[Options]
    ) -> None:
        super().__init__(hash_function, rule=self.RULE_IGNORING_KEYS if ignore_keys else None, **options)
