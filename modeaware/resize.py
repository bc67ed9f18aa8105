"""What a change of a topic's number of writable partitions does to records with keys: pure decisions, and the words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from modeaware.errors import KeyHeld, KeyMoved
from modeaware.topic_view import TopicView
from partitioners import Partitioner, TopicPartitioner, expected_share_moved

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resize:
    """The number of writable partitions of a topic has changed, so keys of it move. Immutable.

    Attributes:
        topic: its name.
        epoch: the mode epoch that changed it.
        old_count, new_count: how many partitions were writable, and are now.
        moved_share: the share of keys that go to another partition than before, 0 to 1; None where nobody can tell:
            a user's partitioner that fails for random keys.
    """

    topic: str
    epoch: int
    old_count: int
    new_count: int
    moved_share: float | None

    @property
    def divides(self) -> bool:
        """Whether one count divides the other: a hash modulo the count moves as few keys then as can be."""
        return max(self.old_count, self.new_count) % min(self.old_count, self.new_count) == 0

    def describe(self) -> str:
        """For people. The first sentence is KIP-694's ("Kafka Topic Command changes"), with the verb that fits."""
        verb = "decreased" if self.new_count < self.old_count else "increased"
        smaller, larger = sorted((self.old_count, self.new_count))
        share = "some" if self.moved_share is None else f"{self.moved_share:.0%}"
        return (
            f"WARNING: If partitions are {verb} for a topic that has a key, the partition logic or ordering of the "
            f"messages will be affected. {self.topic} (epoch {self.epoch}) went from {self.old_count} to "
            f"{self.new_count} writable partitions: {share} of the keys move, "
            f"{smaller} {'divides' if self.divides else 'does not divide'} {larger}"
        )


def resize_of(view: TopicView, old_count: int, partitioner: Partitioner) -> Resize | None:
    """What going from ``old_count`` writable partitions to those of ``view`` means; None where no key moves by it."""
    new_count = len(view.writable)
    if not view.modes or new_count in (0, old_count) or old_count < 1:
        return None
    try:
        share: float | None = expected_share_moved(partitioner, old_count, new_count)
    except Exception:  # a user's own, which may take keys of their form only
        logger.info("%s: no share of keys that move can be told", view.topic, exc_info=True)
        share = None
    return None if share == 0 else Resize(view.topic, view.epoch, old_count, new_count, share)


class Backlog(Protocol):
    """What one producer had queued for a topic when its keys moved. Any thread may ask; a yes stays a yes."""

    @property
    def over(self) -> bool:
        """Whether all of it has been delivered, or has failed."""

    def drained(self, partition: int) -> bool:
        """Whether all of it that was queued for ``partition`` has."""


class Watching:
    """A partitioner that tells of the first record with a key, once. Several threads may use it.

    Args:
        inner: who picks.
        keyed: called before that record is picked for; what it raises reaches the sender.
    """

    __slots__ = ("_keyed", "inner")

    def __init__(self, inner: TopicPartitioner, keyed: Callable[[], None]) -> None:
        self.inner = inner
        self._keyed: Callable[[], None] | None = keyed

    def requires_consistency(self, key: bytes | None) -> bool:
        return self.inner.requires_consistency(key)

    def partition(self, key: bytes | None, count: int) -> int:
        if self._keyed is not None and self.inner.requires_consistency(key):
            self.notice()
        return self.inner.partition(key, count)

    @property
    def noticed(self) -> bool:
        """Whether it has told."""
        return self._keyed is None

    def notice(self) -> None:
        """A record with a key is being sent."""
        keyed, self._keyed = self._keyed, None
        if keyed is not None:  # another thread was faster
            keyed()


class Guarding:
    """A partitioner that raises for keys that have moved: always, or while an old partition of theirs is waited for.

    Partitions are retired from the end, so an index among the writable ones of before was the partition.

    Args:
        inner: who picks.
        view: what moved them.
        old_counts: how many partitions were writable before; several where the keys moved again before all were handed
            over: then a key waits for each partition that it may have been written to.
        waited_for: old partitions whose keys are held until they are handed over; None: every moved key is refused.
        backlog: the producer's own records in old partitions, which keys wait for as well; None: nothing is queued.
        ended: called after the first moved key that finds nothing to wait for any more.
        held, refused: what is raised for which.
    """

    __slots__ = ("_backlog", "_ended", "_held", "_old_counts", "_refused", "_view", "_waited_for", "inner")

    def __init__(
        self,
        inner: TopicPartitioner,
        view: TopicView,
        old_counts: Iterable[int],
        waited_for: frozenset[int] | None = None,
        *,
        backlog: Backlog | None = None,
        ended: Callable[[], object] | None = None,
        held: Callable[..., KeyHeld] = KeyHeld,
        refused: type[KeyMoved] = KeyMoved,
    ) -> None:
        self.inner = inner
        self._view = view
        self._old_counts = tuple(old_counts)
        self._waited_for = waited_for
        self._backlog = backlog
        self._ended = ended
        self._held = held
        self._refused = refused

    @property
    def over(self) -> bool:
        """Whether no key is kept back any more, nor will be."""
        return self._waited_for is not None and not self._waited_for and (self._backlog is None or self._backlog.over)

    def requires_consistency(self, key: bytes | None) -> bool:
        return self.inner.requires_consistency(key)

    def partition(self, key: bytes | None, count: int) -> int:
        """See :meth:`~partitioners.seam.TopicPartitioner.partition`.

        Raises:
            KeyHeld: the key has moved, and not all groups have read its old partition, or not all is written there.
            KeyMoved: the key has moved.
        """
        index = self.inner.partition(key, count)
        if self.inner.requires_consistency(key):
            self.judge(lambda count: self.inner.partition(key, count), self._view.writable[index])
        return index

    def judge(self, before: Callable[[int], int], now: int) -> None:
        """A record's key was in partition ``before(count)`` when ``count`` were writable, and is in ``now``.

        Raises:
            KeyHeld, KeyMoved: see :meth:`partition`.
        """
        moved = False
        for count in self._old_counts:
            old = before(count)
            if old == now:
                continue
            moved = True
            if self._waited_for is None or old in self._waited_for:
                raise self._objection(old, now)
            if self._backlog is not None and not self._backlog.drained(old):
                raise self._keep_back(old, now, f"records of this producer for partition {old} are still queued")
        if moved and self._ended is not None and self.over:
            self._ended()

    def _objection(self, old: int, now: int) -> KeyHeld | KeyMoved:
        if self._waited_for is not None:
            return self._keep_back(old, now, f"not every group is known to have read partition {old}")
        return self._refused(
            f"{self._moved(old, now)}, which the policy for resizes (error) refuses: nothing was queued. "
            "A new producer takes it up",
            topic=self._view.topic,
            partition=now,
        )

    def _keep_back(self, old: int, now: int, why: str) -> KeyHeld:
        message = f"{self._moved(old, now)}, and {why}: nothing was queued, try again"
        return self._held(message, topic=self._view.topic, partition=old)

    def _moved(self, old: int, now: int) -> str:
        return f"{self._view.topic}: the key moved from partition {old} to {now} (epoch {self._view.epoch})"


def lighter(partitioner: TopicPartitioner) -> TopicPartitioner:
    """``partitioner`` without what stood before it and has nothing to do any more."""
    if isinstance(partitioner, Watching) and partitioner.noticed:
        partitioner = partitioner.inner
    if isinstance(partitioner, Guarding) and partitioner.over:
        partitioner = partitioner.inner
    return partitioner
