"""Partitioners that differ in how they spread records that are not hashed: in turn, by batch, by load, or never."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Unpack

from partitioners.hashes import Hash, HashFunction, positive
from partitioners.seam import HashPartitioner, Options, Rule, TopicHashPartitioner

UNKNOWN_RECORD_SIZE = 1024
_FIRST_BELOW = 1 << 30


class _TopicRoundRobin(TopicHashPartitioner):
    def __init__(self, made_by: HashPartitioner, topic: str) -> None:
        super().__init__(made_by, topic)
        # next() is one step, so threads share the counter without a lock.
        self._numbers = itertools.count(int(made_by.randomness() * _FIRST_BELOW))

    def _spread(self, key: bytes | None, count: int) -> int:
        return next(self._numbers) % positive(count)


class RoundRobin(HashPartitioner):
    """Each record goes to the next candidate, whatever its key: Java's ``RoundRobinPartitioner``.

    Unlike Java's, it begins at a random candidate, so that many short-lived producers do not all begin at the first.
    """

    RULE = Rule("round_robin", None, null_hashed=False, empty_hashed=False)
    _TOPIC = _TopicRoundRobin


class _TopicSticky(TopicHashPartitioner):
    def __init__(self, made_by: HashPartitioner, topic: str) -> None:
        super().__init__(made_by, topic)
        self._lock = threading.Lock()
        self._batches_reported = False
        self._pick: tuple[int, int, float] = (-1, 0, 0.0)  # index, number of candidates, end of the linger

    def _spread(self, key: bytes | None, count: int) -> int:
        index, picked_from, until = self._pick
        if picked_from == positive(count) and (self._batches_reported or self._made_by.clock() <= until):
            return index
        with self._lock:
            index, picked_from, until = self._pick  # another thread may have been faster
            if picked_from != count:
                self._move(-1, count)
            elif not self._batches_reported and self._made_by.clock() > until:
                self._move(index, count)
            return self._pick[0]

    def on_new_batch(self, index: int) -> None:
        with self._lock:
            self._batches_reported = True
            if self._pick[0] == index:
                self._move(index, self._pick[1])

    def _move(self, away: int, count: int) -> None:
        """Pick a random candidate other than ``away``, if there is one. If ``away`` is -1, pick any."""
        others = count if away < 0 or count < 2 else count - 1
        index = int(self._made_by.randomness() * others)
        index += others < count and index >= away
        self._pick = (index, count, self._made_by.clock() + self._made_by.linger_s)


class Sticky(HashPartitioner):
    """KIP-480: records without a key stick to one candidate until a batch for it ends, then to another one at random.

    Keys, the empty one included, are hashed with murmur2, as Java's ``DefaultPartitioner`` did from Kafka 2.4 to 3.2
    and kafka-python's ``StickyPartitioner`` does. The topic partitioners are :class:`~partitioners.seam.BatchAware`.
    Until the client reports its first batch, a batch is assumed to last ``linger_s``.
    """

    RULE = Rule("sticky", Hash.MURMUR2, null_hashed=False, empty_hashed=True)
    _TOPIC = _TopicSticky


class _TopicUniformSticky(TopicHashPartitioner):
    def __init__(self, made_by: HashPartitioner, topic: str) -> None:
        super().__init__(made_by, topic)
        self._lock = threading.Lock()
        self._index = 0
        self._count = 0  # the number of candidates for the last draw
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
                # Java draws as soon as a record has filled the batch. Here the next record draws, with a newer load.
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

    This is KIP-794, the rule of Java's producer since Kafka 3.3. A candidate has the weight ``longest queue + 1 - own
    queue``, so that a slow broker, whose queue grows, is drawn less often. All weights are equal while the load is
    unknown. A change after ``batch_size`` bytes makes the candidates' shares equal. A change at the end of a batch, as
    in KIP-480, would send most records to the slowest broker. The caller leaves out candidates that should get no
    records (Java: ``partitioner.availability.timeout.ms``).

    Keys, the empty one included, are hashed with murmur2, unless ``ignore_keys`` (Java: ``partitioner.ignore.keys``)
    spreads these records, too. The topic partitioners are :class:`~partitioners.seam.LoadAware`. Their ``partition``,
    for callers that do not pass sizes, counts a record as 1024 bytes.
    """

    RULE = Rule("uniform_sticky", Hash.MURMUR2, null_hashed=False, empty_hashed=True)
    RULE_IGNORING_KEYS = Rule("uniform_sticky", None, null_hashed=False, empty_hashed=False)
    _TOPIC = _TopicUniformSticky

    def __init__(
        self, hash_function: HashFunction | None = None, *, ignore_keys: bool = False, **options: Unpack[Options]
    ) -> None:
        super().__init__(hash_function, rule=self.RULE_IGNORING_KEYS if ignore_keys else None, **options)


class ManualPartitionRequired(ValueError):
    """A record has no partition, and the partitioner is ``manual``."""


class _TopicManual(TopicHashPartitioner):
    def _spread(self, key: bytes | None, count: int) -> int:
        raise ManualPartitionRequired(
            f"{self._topic}: a record has no partition, and the partitioner is 'manual'; choose one of {count}"
        )


class Manual(HashPartitioner):
    """Refuses every record without an explicit partition: franz-go's ``ManualPartitioner``, with an error."""

    RULE = Rule("manual", None, null_hashed=False, empty_hashed=False, spreads=False)
    _TOPIC = _TopicManual
