"""Uniform sticky picks that follow the load (KIP-794), as Java's producer does since Kafka 3.3."""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from partitioners.base import HashPartitioner, TopicHashPartitioner
from partitioners.hashes import Hash, HashFunction, murmur2, positive
from partitioners.rules import Rule

DEFAULT_BATCH_SIZE = 16_384
UNKNOWN_RECORD_SIZE = 1024


class UniformSticky(HashPartitioner):
    """Records without a key stick to one candidate for ``batch_size`` bytes; the next one is drawn by the load.

    A candidate is drawn with the weight ``longest queue + 1 - own queue``, uniformly where no load is known. A slow
    broker's queue grows, so it is drawn less often. Switching by bytes, not by batches, is what makes the shares
    uniform: KIP-480 switches when a batch ends, which sends most to the slowest broker. A candidate that should get
    nothing (Java: ``partitioner.availability.timeout.ms``) is left out by the caller.

    Its topic partitioners are :class:`~partitioners.seam.LoadAware`. Their ``partition`` is for callers that know no
    sizes: it takes a record for one of 1024 bytes.

    Args:
        hash_function: murmur2, in Python or in C: keys, the empty one too, are hashed.
        batch_size: how many bytes stick, >= 1 (Java: ``batch.size``).
        ignore_keys: spread records with a key like the others (Java: ``partitioner.ignore.keys``).
        randomness: numbers ``0 <= x < 1``.

    Raises:
        ValueError: ``batch_size`` is not positive.
    """

    RULE = Rule("uniform_sticky", Hash.MURMUR2, null_hashed=False, empty_hashed=True)
    RULE_IGNORING_KEYS = Rule("uniform_sticky", None, null_hashed=False, empty_hashed=False)

    def __init__(
        self,
        hash_function: HashFunction = murmur2,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        ignore_keys: bool = False,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(self.RULE_IGNORING_KEYS if ignore_keys else self.RULE, None if ignore_keys else hash_function)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1 byte, not {batch_size}")
        self._batch_size = batch_size
        self._randomness = randomness

    def for_topic(self, topic: str) -> _TopicUniformSticky:
        return _TopicUniformSticky(self.rule, self.hash_function, self._batch_size, self._randomness)


class _TopicUniformSticky(TopicHashPartitioner):
    def __init__(
        self, rule: Rule, hash_function: HashFunction | None, batch_size: int, randomness: Callable[[], float]
    ) -> None:
        super().__init__(rule, hash_function)
        self._batch_size = batch_size
        self._randomness = randomness
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
            raise ValueError(f"the load of {len(load)} candidates was given for {count}")
        with self._lock:
            if self._left <= 0 or self._count != count:
                # Drawn when it is needed, not when the last record filled the batch as in Java: the load is newer.
                self._index = draw(positive(count), load, self._randomness())
                self._count, self._left = count, self._batch_size
            self._left -= size
            return self._index


def draw(count: int, load: Sequence[int], chance: float) -> int:
    """The index that ``chance`` (``0 <= chance < 1``) draws by the load; see :class:`UniformSticky`."""
    if not load:
        return int(chance * count)
    heaviest = max(load) + 1
    cumulative = list(accumulate(heaviest - queued for queued in load))
    return bisect_right(cumulative, int(chance * cumulative[-1]))
