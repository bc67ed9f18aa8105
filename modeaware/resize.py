"""Resizes: what another number of writable partitions does to records with keys, and what a producer does about it.

A key goes to ``writable[hash % len(writable)]``, so another number of writable partitions moves keys. The policy is
``modeaware.on.resize``: ``ignore``, ``warn`` once per resize when the topic has keys, ``error`` (reject keys that have
moved), or ``hold`` (reject a moved key until every group has read its old partition, and all that this producer had
queued there is out, so that no record overtakes an older one of its key).

:class:`Resizes` follows the views of one producer and puts a :class:`FirstKeyObserver` or a :class:`KeyGuard` before
the partitioner of a topic where the policy needs to see keys. Both leave again when they have nothing more to do.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from modeaware.errors import KeyHeld, KeyMoved, ResizeWarning
from modeaware.tally import RESIZE_WARNINGS, SENDS_HELD, TALLY
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
        moved_share: the share of keys that go to another partition than before, 0 to 1; None where it is not known: a
            user's partitioner that fails for random keys.
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
    """Return what going from ``old_count`` writable partitions to those of ``view`` means; None where no key moves."""
    new_count = len(view.writable)
    if not view.modes or new_count in (0, old_count) or old_count < 1:
        return None
    try:
        share: float | None = expected_share_moved(partitioner, old_count, new_count)
    except Exception:  # a user's own, which may take keys of their form only
        logger.info("%s: the share of keys that move is not known", view.topic, exc_info=True)
        share = None
    return None if share == 0 else Resize(view.topic, view.epoch, old_count, new_count, share)


class Backlog(Protocol):
    """What one producer had queued for a topic when its keys moved. Any thread may read it; True stays True."""

    @property
    def over(self) -> bool:
        """Whether all of it has been delivered, or has failed."""

    def drained(self, partition: int) -> bool:
        """Whether all of it that was queued for ``partition`` has."""


class FirstKeyObserver:
    """A partitioner that calls ``keyed`` once, before it picks for the first record with a key. Several threads may use
    it; what ``keyed`` raises reaches the sender.
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
    def over(self) -> bool:
        return self._keyed is None

    def notice(self) -> None:
        """A record with a key is being sent."""
        keyed, self._keyed = self._keyed, None
        if keyed is not None:  # another thread was faster
            keyed()


class KeyGuard:
    """A partitioner that rejects keys that have moved: always, or while an old partition of theirs is not handed over.

    Partitions are retired from the end, so an index among the earlier writable ones was the partition.

    Args:
        inner: picks.
        view: the view that moved them.
        old_counts: how many partitions were writable before; several where the keys moved again before all were handed
            over: then a key waits for each partition that it may have been written to.
        waited_for: old partitions whose keys are held until they are handed over; None: every moved key is rejected.
        backlog: the producer's own records in old partitions, which keys wait for as well; None: nothing is queued.
        ended: called after the first moved key that has nothing to wait for any more.
        held, refused: what is raised in which case.
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
        """Whether no key is held any more, nor will be."""
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
            if self._waited_for is None:
                raise self._refused(
                    f"{self._moved(old, now)}, and modeaware.on.resize is error; nothing was queued. A new producer "
                    "accepts the key",
                    topic=self._view.topic,
                    partition=now,
                )
            if old in self._waited_for:
                raise self._keep_back(old, now, f"not every group is known to have read partition {old}")
            if self._backlog is not None and not self._backlog.drained(old):
                raise self._keep_back(old, now, f"records of this producer for partition {old} are still queued")
        if moved and self._ended is not None and self.over:
            self._ended()

    def _keep_back(self, old: int, now: int, why: str) -> KeyHeld:
        message = f"{self._moved(old, now)}, and {why}; nothing was queued, try again"
        return self._held(message, topic=self._view.topic, partition=old)

    def _moved(self, old: int, now: int) -> str:
        return f"{self._view.topic}: the key moved from partition {old} to {now} (epoch {self._view.epoch})"


def sees_keys(partitioner: TopicPartitioner) -> bool:
    """Return whether a policy needs ``partitioner`` to see every key."""
    return isinstance(partitioner, FirstKeyObserver | KeyGuard)


def without_finished_guards(partitioner: TopicPartitioner) -> TopicPartitioner:
    """Return ``partitioner`` without what stood before it and has nothing to do any more."""
    while isinstance(partitioner, FirstKeyObserver | KeyGuard) and partitioner.over:
        partitioner = partitioner.inner
    return partitioner


def look_at_key(partitioner: TopicPartitioner, key: bytes, before: Callable[[int], int], now: int) -> None:
    """Apply what stands before ``partitioner`` to a record with a key that another partitioner has placed.

    Args:
        key: as it is sent.
        before: where the key was when that many partitions were writable.
        now: the partition it is about to be queued for.

    Raises:
        KeyHeld, KeyMoved: it must not be queued.
    """
    if not partitioner.requires_consistency(key):
        return
    if isinstance(partitioner, FirstKeyObserver):
        partitioner.notice()
        partitioner = partitioner.inner
    if isinstance(partitioner, KeyGuard):
        partitioner.judge(before, now)


class Resizes:
    """Follows the views of one producer; the policy is ``modeaware.on.resize``. The caller serialises the calls of
    :meth:`guarded` and :meth:`take_due`; :meth:`report` may be called from any thread.

    Args:
        policy: ``ignore``, ``warn``, ``error`` or ``hold``.
        partitioner: what the producer picks with.
        callback: ``modeaware.resize_cb``.
        lighten: called with a topic when a guard of it is over: see :func:`without_finished_guards`.
        backlog: called with a topic whose keys move, with ``hold``: what the producer has queued for it then. None: it
            never has anything queued.
        held, refused: what the client raises for a key, with ``hold`` and with ``error``.

    Attributes:
        count: how many resizes of topics with keys were reported.
    """

    def __init__(
        self,
        policy: str,
        partitioner: Partitioner,
        callback: Callable[[Resize], object] | None,
        lighten: Callable[[str], None],
        *,
        backlog: Callable[[str], Backlog] | None = None,
        held: type[KeyHeld] = KeyHeld,
        refused: type[KeyMoved] = KeyMoved,
    ) -> None:
        self._policy = policy
        self._partitioner = partitioner
        self._callback = callback
        self._lighten = lighten
        self._backlog = backlog
        self._held = held
        self._refused = refused
        self._last: dict[str, TopicView] = {}
        self._pending: dict[str, Resize] = {}
        self._keyed: set[str] = set()
        self._first_counts: dict[str, int] = {}  # for ``error``
        self._old_counts: dict[str, frozenset[int]] = {}  # for ``hold``
        self._backlogs: dict[str, Backlog] = {}  # likewise
        self._due: list[Resize] = []
        self.count = 0

    def guarded(self, view: TopicView, picks: TopicPartitioner | None, *, first: bool) -> TopicPartitioner | None:
        """Return ``picks`` (None: nothing is retired, and no pick is needed) with what the policy puts before it.

        Args:
            first: these are the first views of all: what is in them is no change.
        """
        if self._policy == "ignore":
            return picks
        old_count = self._follow(view, first=first)
        if self._policy == "error":
            return self._refusing(view, picks, old_count)
        if old_count is not None:
            self._note(view, old_count)
        if self._policy == "hold":
            picks = self._holding(view, picks, old_count, first=first)
        if picks is None:  # no keys are seen from now on: if there are any, they were seen before
            resize = self._pending.pop(view.topic, None)
            if resize is not None and view.topic in self._keyed:
                self._due.append(resize)
            return None
        if view.topic in self._keyed and view.topic not in self._pending:
            return picks
        return FirstKeyObserver(picks, lambda: self._first_key(view.topic))

    def take_due(self) -> list[Resize]:
        """Return what is to be reported now, outside the caller's lock."""
        due, self._due = self._due, []
        return due

    def report(self, resizes: Iterable[Resize]) -> None:
        """Log record, counter, callback, and Python warning of each; what the last two raise is the caller's."""
        with ExitStack() as reports:  # what one of them raises does not silence the others
            for resize in resizes:
                reports.callback(self._report, resize)

    def _report(self, resize: Resize) -> None:
        self.count += 1
        TALLY.add(RESIZE_WARNINGS)
        about = {"topic": resize.topic, "mode_epoch": resize.epoch}
        logger.warning("%s", resize.describe(), extra=about)
        if self._callback is not None:
            self._callback(resize)
        warnings.warn(ResizeWarning(resize.describe()), stacklevel=1)  # the sender is any number of calls away

    def _follow(self, view: TopicView, *, first: bool) -> int | None:
        """How many partitions were writable by the last view of this topic, where that was another number.

        Of a topic that had no record all were: as many as before the shrink of its first record.
        """
        last = self._last.get(view.topic)
        self._last[view.topic] = view
        if last is not None and last.topic_id not in (None, view.topic_id):  # gone, or another topic of that name
            for kept in (self._pending, self._first_counts, self._old_counts, self._backlogs):
                kept.pop(view.topic, None)
            self._keyed.discard(view.topic)
            return None
        old_count = len(last.writable) if last is not None and last.modes else view.previous_count or 0
        changed = not first and view.modes and 0 < old_count != len(view.writable)
        return old_count if changed else None

    def _note(self, view: TopicView, old_count: int) -> None:
        """To be reported with the next key; together with an earlier resize since the last one."""
        earlier = self._pending.pop(view.topic, None)
        resize = resize_of(view, old_count if earlier is None else earlier.old_count, self._partitioner)
        if resize is not None:
            self._pending[view.topic] = resize

    def _first_key(self, topic: str) -> None:
        """A record with a key is being sent, the first one or the first since a resize."""
        self._keyed.add(topic)
        # In this order: a resize that another thread notes meanwhile is reported here, or is watched for anew.
        self._lighten(topic)
        resize = self._pending.pop(topic, None)
        if resize is not None:
            self.report([resize])

    def _refusing(
        self, view: TopicView, picks: TopicPartitioner | None, old_count: int | None
    ) -> TopicPartitioner | None:
        if old_count is not None:
            self._first_counts.setdefault(view.topic, old_count)
        first_count = self._first_counts.get(view.topic)
        if first_count is None or first_count == len(view.writable) or not view.modes:
            return picks
        picks = picks or self._partitioner.for_topic(view.topic)
        return KeyGuard(picks, view, [first_count], refused=self._refused)

    def _holding(
        self, view: TopicView, picks: TopicPartitioner | None, old_count: int | None, *, first: bool
    ) -> TopicPartitioner | None:
        """Keys wait for their partition before the shrink; for those by other counts as well, where the count has
        changed once more (another shrink, a part that was undone) before all was handed over. And they wait for what
        this producer has queued there, which may get there only after the handover."""
        topic = view.topic
        waited_for = frozenset(range(view.previous_count or 0)) - view.handed_over
        old_counts = self._old_counts.pop(topic, frozenset())
        backlog = self._backlogs.pop(topic, None)
        grown = old_count is not None and old_count < len(view.writable)
        if picks is None or (grown and not waited_for):
            return picks
        old_counts |= {count for count in (view.previous_count, old_count) if count} | {*view.earlier_counts}
        if self._backlog is not None and old_counts and (first or old_count is not None):
            backlog = self._backlog(topic)  # of earlier changes as well: whatever is queued now
        if backlog is not None and backlog.over:
            backlog = None
        if not old_counts or not (waited_for or backlog):
            return picks
        self._old_counts[topic] = old_counts
        if backlog is not None:
            self._backlogs[topic] = backlog

        def held(message: str, **about: Any) -> KeyHeld:
            TALLY.add(SENDS_HELD)
            return self._held(message, **about)

        ended = partial(self._lighten, topic)
        return KeyGuard(picks, view, sorted(old_counts), waited_for, backlog=backlog, ended=ended, held=held)
