"""Resizes: what another number of writable partitions does to records with keys, and what a producer does about it.

A key goes to ``writable[hash % len(writable)]``, so another number of writable partitions moves keys. The policy is
``modeaware.on.resize``: ``ignore``, ``warn`` once per resize when the topic has keys, ``error`` (reject keys that have
moved), or ``hold`` (reject a moved key until every group has read its old partition, and all that this producer had
queued there is out, so that no record overtakes an older one of its key).

:class:`Resizes` follows the views of one producer and puts a :class:`FirstKeyObserver` or a :class:`KeyGuard` before
the partitioner of a topic where the policy needs to see keys. Both leave again when they have nothing more to do.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from modeaware.callouts import call_out, get_logger
from modeaware.clients.tally import RESIZE_WARNINGS, SENDS_HELD, TALLY
from modeaware.errors import KeyHeld, KeyMoved, ResizeWarning
from modeaware.topic_view import TopicView
from partitioners import Partitioner, TopicPartitioner, checked_index, expected_share_moved

logger = get_logger(__name__)


@dataclass(frozen=True)
class Resize:
    """The number of writable partitions of a topic has changed, so keys of it move. Immutable.

    Attributes:
        topic: its name.
        epoch: the mode epoch that changed it.
        old_count, new_count: how many partitions were writable, and are now.
        moved_share: the share of keys that go to another partition than before, 0 to 1; None where it is not known: a
            user's partitioner that fails for random keys.
        successor: the topic that has replaced this one, with ``new_count`` partitions; None: it is the same topic.
    """

    topic: str
    epoch: int
    old_count: int
    new_count: int
    moved_share: float | None
    successor: str | None = None

    @property
    def divides(self) -> bool:
        """Whether one count divides the other: a hash modulo the count moves as few keys then as can be."""
        return max(self.old_count, self.new_count) % min(self.old_count, self.new_count) == 0

    def describe(self) -> str:
        """For people. The first sentence is KIP-694's ("Kafka Topic Command changes"), with the verb that fits."""
        verb = "decreased" if self.new_count < self.old_count else "increased"
        smaller, larger = sorted((self.old_count, self.new_count))
        share = "some" if self.moved_share is None else f"{self.moved_share:.0%}"
        if self.successor is not None:
            return (
                f"{self.topic} (epoch {self.epoch}) was replaced by {self.successor}, and records go there: "
                f"{self.old_count} partitions before, {self.new_count} now; {share} of the keys have a partition of "
                f"another number. Mode-aware groups read {self.topic} to its end first, which keeps each key's order"
            )
        return (
            f"WARNING: If partitions are {verb} for a topic that has a key, the partition logic or ordering of the "
            f"messages will be affected. {self.topic} (epoch {self.epoch}) went from {self.old_count} to "
            f"{self.new_count} writable partitions: {share} of the keys move, "
            f"{smaller} {'divides' if self.divides else 'does not divide'} {larger}"
        )


def resize_of(view: TopicView, old_count: int, partitioner: Partitioner) -> Resize | None:
    """Return what going from ``old_count`` writable partitions to those of ``view`` means; None where no key moves."""
    return _resize(view, old_count, len(view.writable), partitioner) if view.modes else None


def _resize(
    view: TopicView, old_count: int, new_count: int, partitioner: Partitioner, successor: str | None = None
) -> Resize | None:
    if new_count in (0, old_count) or old_count < 1:
        return None
    try:
        share: float | None = expected_share_moved(partitioner, old_count, new_count)
    except Exception:  # a user's own, which may take keys of their form only
        logger.info("%s: the share of keys that move is not known", view.topic, exc_info=True)
        share = None
    return None if share == 0 else Resize(view.topic, view.epoch, old_count, new_count, share, successor)


class Backlog(Protocol):
    """What one producer had queued for a topic when its keys moved. Any thread may read it; True stays True."""

    @property
    def over(self) -> bool:
        """Whether all of it has been delivered, or has failed."""

    def drained(self, partition: int) -> bool:
        """Whether all of it that was queued for ``partition`` has."""


class KeyWatch(ABC):
    """A partitioner that sees the keys which another one, ``inner``, places. Several threads may use it."""

    inner: TopicPartitioner

    def requires_consistency(self, key: bytes | None) -> bool:
        return self.inner.requires_consistency(key)

    @abstractmethod
    def partition(self, key: bytes | None, count: int) -> int:
        """See :meth:`~partitioners.seam.TopicPartitioner.partition`.

        Raises: as :meth:`judge`.
        """

    @abstractmethod
    def judge(self, before: Callable[[int], int], now: int) -> None:
        """A record's key was in partition ``before(count)`` when ``count`` were writable, and is in ``now``.

        Raises:
            KeyHeld: the key has moved, and not all groups have read its old partition, or not all is written there.
            KeyMoved: the key has moved.
        """

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether it has nothing to do any more, nor will have."""


@dataclass(eq=False)
class FirstKeyObserver(KeyWatch):
    """Calls ``keyed`` once, before the pick for the first record with a key. What that raises reaches the sender."""

    inner: TopicPartitioner
    keyed: Callable[[], None] | None

    def partition(self, key: bytes | None, count: int) -> int:
        if self.keyed is not None and self.inner.requires_consistency(key):
            self._notice()
        return self.inner.partition(key, count)

    def judge(self, before: Callable[[int], int], now: int) -> None:
        self._notice()

    @property
    def over(self) -> bool:
        return self.keyed is None

    def _notice(self) -> None:
        keyed, self.keyed = self.keyed, None
        if keyed is not None:  # another thread was faster
            keyed()


@dataclass(eq=False)
class KeyGuard(KeyWatch):
    """Rejects keys that have moved: always, or while an old partition of theirs is not handed over.

    Partitions are retired from the end, so an index among the earlier writable ones was the partition.

    Attributes:
        view: the view that moved them.
        old_counts: how many partitions were writable before; several where the keys moved again before all were handed
            over: then a key waits for each partition that it may have been written to.
        waited_for: old partitions whose keys are held until they are handed over; None: every moved key is rejected.
        backlog: the producer's own records in old partitions, which keys wait for as well; None: nothing is queued.
    """

    inner: TopicPartitioner
    resizes: Resizes
    view: TopicView
    old_counts: Sequence[int]
    waited_for: frozenset[int] | None = None
    backlog: Backlog | None = None

    @property
    def over(self) -> bool:
        return self.waited_for is not None and not self.waited_for and (self.backlog is None or self.backlog.over)

    def partition(self, key: bytes | None, count: int) -> int:
        index = checked_index(self.inner.partition(key, count), count, f"of {self.view.topic}")
        if self.inner.requires_consistency(key):
            self.judge(lambda count: self.inner.partition(key, count), self.view.writable[index])
        return index

    def judge(self, before: Callable[[int], int], now: int) -> None:
        topic, moved = self.view.topic, False
        for old in map(before, self.old_counts):
            if old == now:
                continue
            moved = True
            what = f"{topic}: the key moved from partition {old} to {now} (epoch {self.view.epoch})"
            if self.waited_for is None:
                raise self.resizes.refused(
                    f"{what}, and modeaware.on.resize is error; nothing was queued. A new producer accepts the key",
                    topic=topic,
                    partition=now,
                )
            if old in self.waited_for:
                why = f"not every group is known to have read partition {old}"
            elif self.backlog is not None and not self.backlog.drained(old):
                why = f"records of this producer for partition {old} are still queued"
            else:
                continue
            TALLY.add(SENDS_HELD)
            raise self.resizes.held(f"{what}, and {why}; nothing was queued, try again", topic=topic, partition=old)
        if moved and self.over:
            self.resizes.lighten(topic)


def picks_of(partitioner: Partitioner, topic: str) -> TopicPartitioner:
    """Return the partitioner of a topic. Views are of every topic of a cluster, and an application's own partitioner
    may serve its topics alone: what it raises for another one reaches those who send to that."""
    try:
        return partitioner.for_topic(topic)
    except Exception:  # noqa: BLE001 - any class of the application's
        return _MadeLater(partitioner, topic)


class _MadeLater:
    """Stands for a topic partitioner that could not be made: it is made, or raises what it raises, for a record. It is
    given no loads (:class:`~partitioners.LoadAware`) while the topic's view stays."""

    def __init__(self, partitioner: Partitioner, topic: str) -> None:
        self._of = partitioner
        self._topic = topic

    @cached_property
    def _made(self) -> TopicPartitioner:
        return self._of.for_topic(self._topic)

    def requires_consistency(self, key: bytes | None) -> bool:
        return self._made.requires_consistency(key)

    def partition(self, key: bytes | None, count: int) -> int:
        return self._made.partition(key, count)


def sees_keys(partitioner: TopicPartitioner) -> bool:
    """Return whether a policy needs ``partitioner`` to see every key."""
    return isinstance(partitioner, KeyWatch)


def without_finished_guards(partitioner: TopicPartitioner) -> TopicPartitioner:
    """Return ``partitioner`` without what stood before it and has nothing to do any more."""
    while isinstance(partitioner, KeyWatch) and partitioner.over:
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
    while isinstance(partitioner, KeyWatch):
        partitioner.judge(before, now)
        partitioner = partitioner.inner


@dataclass(eq=False)
class _Topic:
    """What is kept of one topic from view to view."""

    last: TopicView | None = None
    keyed: bool = False
    first_count: int | None = None  # for ``error``
    old_counts: frozenset[int] = frozenset()  # for ``hold``
    backlog: Backlog | None = None  # likewise


@dataclass(eq=False)
class Resizes:
    """Follows the views of one producer. The caller serialises the calls of :meth:`guarded` and :meth:`take_due`;
    :meth:`report` may be called from any thread.

    Attributes:
        policy: ``modeaware.on.resize``: ``ignore``, ``warn``, ``error`` or ``hold``.
        partitioner: what the producer picks with.
        callback: ``modeaware.resize_cb``.
        lighten: called with a topic when a guard of it is over: see :func:`without_finished_guards`.
        backlog: called with a topic whose keys move, with ``hold``: what the producer has queued for it then. None: it
            never has anything queued.
        held, refused: what the client raises for a key, with ``hold`` and with ``error``.
        count: how many resizes of topics with keys were reported.
    """

    policy: str
    partitioner: Partitioner
    callback: Callable[[Resize], object] | None
    lighten: Callable[[str], None]
    backlog: Callable[[str], Backlog] | None = None
    held: type[KeyHeld] = KeyHeld
    refused: type[KeyMoved] = KeyMoved
    count: int = field(default=0, init=False)
    _topics: dict[str, _Topic] = field(default_factory=dict, init=False)
    _pending: dict[str, Resize] = field(default_factory=dict, init=False)  # senders take them out without a lock
    _led: dict[str, Resize] = field(default_factory=dict, init=False)  # likewise; by the name that leads elsewhere
    _due: list[Resize] = field(default_factory=list, init=False)

    def guarded(self, view: TopicView, picks: TopicPartitioner | None, *, first: bool) -> TopicPartitioner | None:
        """Return ``picks`` (None: nothing is retired, and no pick is needed) with what the policy puts before it.

        Args:
            first: these are the first views of all: what is in them is no change.
        """
        if self.policy == "ignore":
            return picks
        old_count = self._follow(view, first=first)
        topic = self._topics[view.topic]
        if self.policy == "error":
            return self._refusing(topic, view, picks, old_count)
        if old_count is not None:
            self._note(view, old_count)
        if self.policy == "hold":
            picks = self._holding(topic, view, picks, old_count, first=first)
        if picks is None:  # no keys are seen from now on: if there are any, they were seen before
            resize = self._pending.pop(view.topic, None)
            if resize is not None and topic.keyed:
                self._due.append(resize)
            return None
        if topic.keyed and view.topic not in self._pending:
            return picks
        return FirstKeyObserver(picks, lambda: self._first_key(view.topic))

    def replaced(self, name: str, view: TopicView, successor: str, new_count: int) -> None:
        """Note that ``name`` leads to ``successor`` from now on, which has ``new_count`` writable partitions: no longer
        to the topic of ``view``. To be reported with the next key, but for ``ignore`` and ``error``: the order of keys
        is kept."""
        self._led.pop(name, None)
        if self.policy not in ("warn", "hold"):
            return
        last = self._topics[view.topic].last if view.topic in self._topics else None
        old_count = len(last.writable) if last is not None and last.modes else len(view.modes)
        resize = _resize(view, old_count, new_count, self.partitioner, successor)
        if resize is not None:
            self._led[name] = resize

    def observed(self, name: str, picks: TopicPartitioner) -> TopicPartitioner:
        """Return ``picks``, with what reports the replacement that ``name`` leads to, until that is done."""
        return FirstKeyObserver(picks, lambda: self._first_key_of(name)) if name in self._led else picks

    def _first_key_of(self, name: str) -> None:
        resize = self._led.pop(name, None)
        self.lighten(name)
        if resize is not None:
            self.report([resize])

    def take_due(self) -> list[Resize]:
        """Return what is to be reported now, outside the caller's lock."""
        due, self._due = self._due, []
        return due

    def report(self, resizes: Iterable[Resize]) -> None:
        """Log record, counter, callback, and Python warning of each. What the last two raise is the sender's, where a
        record is being sent, and else logged."""
        with ExitStack() as reports:  # what one of them raises does not silence the others
            for resize in resizes:
                self.count += 1
                TALLY.add(RESIZE_WARNINGS)
                about = {"topic": resize.topic, "mode_epoch": resize.epoch}
                logger.warning("%s", resize.describe(), extra=about)
                reports.callback(call_out, self._call_back, resize)

    def _call_back(self, resize: Resize) -> None:
        if self.callback is not None:
            self.callback(resize)
        warnings.warn(ResizeWarning(resize.describe()), stacklevel=1)  # the sender is any number of calls away

    def _follow(self, view: TopicView, *, first: bool) -> int | None:
        """How many partitions were writable by the last view of this topic, where that was another number.

        Of a topic that had no record all were: as many as before the shrink of its first record.
        """
        topic = self._topics.setdefault(view.topic, _Topic())
        last, topic.last = topic.last, view
        if last is not None and last.topic_id not in (None, view.topic_id):  # gone, or another topic of that name
            self._topics[view.topic] = _Topic(view)
            self._pending.pop(view.topic, None)
            return None
        old_count = len(last.writable) if last is not None and last.modes else view.previous_count or 0
        changed = not first and view.modes and 0 < old_count != len(view.writable)
        return old_count if changed else None

    def _note(self, view: TopicView, old_count: int) -> None:
        """To be reported with the next key; together with an earlier resize since the last one."""
        earlier = self._pending.pop(view.topic, None)
        resize = resize_of(view, old_count if earlier is None else earlier.old_count, self.partitioner)
        if resize is not None:
            self._pending[view.topic] = resize

    def _first_key(self, topic: str) -> None:
        """A record with a key is being sent, the first one or the first since a resize."""
        self._topics[topic].keyed = True
        # In this order: a resize that another thread notes meanwhile is reported here, or is watched for anew.
        self.lighten(topic)
        resize = self._pending.pop(topic, None)
        if resize is not None:
            self.report([resize])

    def _refusing(
        self, topic: _Topic, view: TopicView, picks: TopicPartitioner | None, old_count: int | None
    ) -> TopicPartitioner | None:
        if topic.first_count is None:
            topic.first_count = old_count
        if topic.first_count is None or topic.first_count == len(view.writable) or not view.modes:
            return picks
        return KeyGuard(picks or picks_of(self.partitioner, view.topic), self, view, [topic.first_count])

    def _holding(
        self, topic: _Topic, view: TopicView, picks: TopicPartitioner | None, old_count: int | None, *, first: bool
    ) -> TopicPartitioner | None:
        """Keys wait for their partition before the shrink; for those by other counts as well, where the count has
        changed once more (another shrink, a part that was undone) before all was handed over. And they wait for what
        this producer has queued there, which may get there only after the handover."""
        waited_for = frozenset(range(view.previous_count or 0)) - view.handed_over
        old_counts, topic.old_counts = topic.old_counts, frozenset()
        backlog, topic.backlog = topic.backlog, None
        grown = old_count is not None and old_count < len(view.writable)
        if picks is None or (grown and not waited_for):
            return picks
        old_counts |= {count for count in (view.previous_count, old_count) if count} | {*view.earlier_counts}
        if self.backlog is not None and old_counts and (first or old_count is not None):
            backlog = self.backlog(view.topic)  # of earlier changes as well: whatever is queued now
        if backlog is not None and backlog.over:
            backlog = None
        if not old_counts or not (waited_for or backlog):
            return picks
        topic.old_counts, topic.backlog = old_counts, backlog
        return KeyGuard(picks, self, view, sorted(old_counts), waited_for, backlog)
