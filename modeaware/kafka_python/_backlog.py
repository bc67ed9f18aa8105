"""What a producer still has in kafka-python's queue of what was there when keys moved."""

from __future__ import annotations

import time
from typing import Any


class Backlog:
    """What was queued for one topic when it was made. Any thread may ask.

    kafka-python keeps each batch of records, until it is delivered or has failed, with the time at which it was begun;
    the halves of one that was too large keep that time.

    Args:
        accumulator: kafka-python's queue.
        topic: its name.
    """

    def __init__(self, accumulator: Any, topic: str) -> None:
        self._accumulator = accumulator
        self._topic = topic
        self._since_s = time.monotonic()
        self._left = self._queued()

    @property
    def over(self) -> bool:
        """See :class:`modeaware.resize.Backlog`."""
        return not self._left or not self._look()

    def drained(self, partition: int) -> bool:
        """See :class:`modeaware.resize.Backlog`."""
        return partition not in self._left or partition not in self._look()

    def _look(self) -> frozenset[int]:
        self._left &= self._queued()
        return self._left

    def _queued(self) -> frozenset[int]:
        """The partitions with a batch that was begun by then. It may have taken in later records as well."""
        return frozenset(
            batch.topic_partition.partition
            for batch in self._accumulator._incomplete.all()
            if batch.topic_partition.topic == self._topic and batch.created <= self._since_s
        )
