"""Picks that stick until a batch ends (KIP-480), so that records without a key fill batches."""

from __future__ import annotations

import threading

from partitioners.hashes import Hash, positive
from partitioners.seam import HashPartitioner, Rule, TopicHashPartitioner


class _TopicSticky(TopicHashPartitioner):
    def __init__(self, made_by: HashPartitioner, topic: str) -> None:
        super().__init__(made_by, topic)
        self._lock = threading.Lock()
        self._batches_reported = False
        self._pick: tuple[int, int, float] = (-1, 0, 0.0)  # index, count it was picked from, until when

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
        """Pick at random, but not ``away`` if there is another; -1: any."""
        others = count if away < 0 or count < 2 else count - 1
        index = int(self._made_by.randomness() * others)
        index += others < count and index >= away
        self._pick = (index, count, self._made_by.clock() + self._made_by.linger_s)


class Sticky(HashPartitioner):
    """KIP-480: records without a key stick to one candidate until a batch for it ends, then to another one at random.

    Keys, the empty one included, are hashed with murmur2, as Java's ``DefaultPartitioner`` did from Kafka 2.4 to 3.2
    and kafka-python's ``StickyPartitioner`` does. Its topic partitioners are :class:`~partitioners.seam.BatchAware`;
    until the first batch is reported, a batch is taken to last ``linger_s``.
    """

    RULE = Rule("sticky", Hash.MURMUR2, null_hashed=False, empty_hashed=True)
    _TOPIC = _TopicSticky
