"""Resizes: changes of the number of writable partitions of a topic with keys, and a producer's warning about them.

A key goes to ``writable[hash % len(writable)]``, so another number of writable partitions moves keys. The policy is
``modeaware.on.resize``: ``ignore``, or ``warn`` once per resize of a topic with keys. A replacement changes the number,
too, but the records of a key stay in order: groups read the whole old topic before they read the new topic.

:class:`Resizes` follows the views of one producer. Only a record with a key shows that its topic has keys. So after a
resize, the route of the topic calls :meth:`Resizes.first_keys`, until the first such record.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from modeaware.callouts import call_out, get_logger
from modeaware.clients.tally import RESIZE_WARNINGS, TALLY
from modeaware.errors import ResizeWarning
from modeaware.modes import divides_text
from modeaware.topic_view import TopicView
from partitioners import LoadAware, Partitioner, TopicPartitioner, expected_share_moved, is_built_in

logger = get_logger(__name__)


@dataclass(frozen=True)
class Resize:
    """A change of the number of writable partitions of a topic, which moves keys. Immutable.

    Attributes:
        topic: the topic's name.
        epoch: the mode epoch of the change.
        old_count, new_count: the number of writable partitions before and after.
        moved_share: the share of keys that go to another partition than before, 0 to 1. It is None if it is unknown,
            because the application's own partitioner fails for random keys.
        new_topic: the topic that has replaced this one, with ``new_count`` partitions; None for a resize in place.
    """

    topic: str
    epoch: int
    old_count: int
    new_count: int
    moved_share: float | None
    new_topic: str | None = None

    def describe(self) -> str:
        """Return the resize in words. The first sentence is KIP-694's ("Kafka Topic Command changes")."""
        verb = "decreased" if self.new_count < self.old_count else "increased"
        share = "some" if self.moved_share is None else f"{self.moved_share:.0%}"
        if self.new_topic is not None:
            return (
                f"{self.topic} (epoch {self.epoch}) was replaced by {self.new_topic}, which now gets the records: "
                f"{self.old_count} partitions before, {self.new_count} now; {share} of the keys get a partition with "
                f"another number. Mode-aware groups read {self.topic} to its end first, so each key keeps its order"
            )
        return (
            f"WARNING: If partitions are {verb} for a topic that has a key, the partition logic or ordering of the "
            f"messages will be affected. {self.topic} (epoch {self.epoch}) went from {self.old_count} to "
            f"{self.new_count} writable partitions: {share} of the keys move; "
            f"{divides_text(self.old_count, self.new_count)}"
        )


def resize_of(view: TopicView, old_count: int, partitioner: Partitioner) -> Resize | None:
    """Return the resize from ``old_count`` writable partitions to those of ``view``, or None if no key moves. For an
    application's own partitioner, the report computes the moved share, because this function's caller may hold a lock.
    """
    return _resize(view, old_count, len(view.writable), partitioner) if view.modes else None


def _resize(
    view: TopicView, old_count: int, new_count: int, partitioner: Partitioner, new_topic: str | None = None
) -> Resize | None:
    if new_count in (0, old_count) or old_count < 1:
        return None
    share = expected_share_moved(partitioner, old_count, new_count) if is_built_in(partitioner) else None
    return None if share == 0 else Resize(view.topic, view.epoch, old_count, new_count, share, new_topic)


def picks_of(partitioner: Partitioner, topic: str, *, by_load: bool = False) -> TopicPartitioner:
    """Return the partitioner of a topic. An application's partitioner is made only when the first record is sent: the
    caller of this function may hold a lock, and the partitioner may raise for a topic that the application never uses.

    Args:
        by_load: the partitioner's picks follow the load.
    """
    if is_built_in(partitioner):
        return partitioner.for_topic(topic)
    return (_LoadAwareMadeLater if by_load else _MadeLater)(partitioner, topic)


class _MadeLater:
    """A topic's partitioner, made by the first record. If it cannot be made, the record fails with the exception."""

    def __init__(self, partitioner: Partitioner, topic: str) -> None:
        self._of = partitioner
        self._topic = topic
        self._made: Any = None

    def _get(self) -> Any:
        if self._made is None:
            self._made = self._of.for_topic(self._topic)
        return self._made

    def requires_consistency(self, key: bytes | None) -> bool:
        needs: bool = self._get().requires_consistency(key)
        return needs

    def partition(self, key: bytes | None, count: int) -> int:
        index: int = self._get().partition(key, count)
        return index


class _LoadAwareMadeLater(_MadeLater):
    _is_load_aware: bool | None = None

    def partition_by_load(self, key: bytes | None, count: int, size: int, load: Sequence[int] = ()) -> int:
        made = self._get()
        if self._is_load_aware is None:
            self._is_load_aware = isinstance(made, LoadAware)  # slow; the topic's partitioner may not be one
        index: int = (
            made.partition_by_load(key, count, size, load) if self._is_load_aware else self.partition(key, count)
        )
        return index


@dataclass(eq=False)
class _Topic:
    """What is kept of a topic between two views: the last view, and whether it has keys."""

    last: TopicView | None = None
    keyed: bool = False


@dataclass(eq=False)
class Resizes:
    """Follows the views of one producer. The caller serialises the calls of all methods but :meth:`report`. Any thread
    may call :meth:`report`, and what :meth:`first_keys` and :meth:`first_keys_of` return.

    Attributes:
        policy: ``modeaware.on.resize``: ``ignore`` or ``warn``.
        partitioner: the producer's partitioner.
        callback: ``modeaware.resize_cb``.
        lighten: called with the name whose route must get :meth:`first_keys` and :meth:`first_keys_of` anew, because
            a record with a key was seen.
        count: how many resizes of topics with keys were reported.
    """

    policy: str
    partitioner: Partitioner
    callback: Callable[[Resize], object] | None
    lighten: Callable[[str], None]
    count: int = field(default=0, init=False)
    _topics: dict[str, _Topic] = field(default_factory=dict, init=False)
    _pending: dict[str, Resize] = field(default_factory=dict, init=False)  # senders take entries out without a lock
    _led: dict[str, Resize] = field(default_factory=dict, init=False)  # likewise; by the name of the old topic
    _due: list[Resize] = field(default_factory=list, init=False)

    def follow(self, view: TopicView, *, routed: bool, first: bool) -> None:
        """Note the resize that ``view`` makes, unless the policy is ``ignore``.

        Args:
            routed: the topic has a route. Otherwise all its partitions are writable.
            first: the view is one of the first views, which count as no change.
        """
        if self.policy == "ignore":
            return
        old_count = self._old_count(view, first=first)
        if old_count is not None:
            self._note(view, old_count)
        if not routed:  # no key is seen from now on, so earlier keys decide
            resize = self._pending.pop(view.topic, None)
            if resize is not None and self._topics[view.topic].keyed:
                self._due.append(resize)

    def first_keys(self, topic: str) -> tuple[Callable[[], None], ...]:
        """Return the call that the first record with a key of ``topic`` requires, or an empty tuple if it requires
        none. The last view of the topic was passed to :meth:`follow`."""
        if self.policy == "ignore" or (self._topics[topic].keyed and topic not in self._pending):
            return ()
        return (partial(self._first_key, topic),)

    def replaced(self, name: str, view: TopicView, new_topic: str, new_count: int) -> None:
        """Note that ``name`` no longer points to the topic of ``view`` but to ``new_topic``, which has ``new_count``
        writable partitions. The next record with a key reports the change, except with the policy ``ignore``."""
        self._led.pop(name, None)
        if self.policy == "ignore":
            return
        last = self._topics[view.topic].last if view.topic in self._topics else None
        old_count = len(last.writable) if last is not None and last.modes else len(view.modes)
        resize = _resize(view, old_count, new_count, self.partitioner, new_topic)
        if resize is not None:
            self._led[name] = resize

    def first_keys_of(self, name: str) -> tuple[Callable[[], None], ...]:
        """Return the call that the first record with a key under ``name`` requires, while the replacement of that topic
        has not been reported. Otherwise return an empty tuple."""
        return (partial(self._first_key_of, name),) if name in self._led else ()

    def _first_key_of(self, name: str) -> None:
        resize = self._led.pop(name, None)
        if resize is not None:  # None: another thread has reported it
            self.lighten(name)
            self.report([resize])

    def take_due(self) -> list[Resize]:
        """Return the resizes to report now, outside the caller's lock."""
        due, self._due = self._due, []
        return due

    def report(self, resizes: Iterable[Resize]) -> None:
        """Log and count each resize, call the callback, and emit Python's warning. If the callback or the warning
        raises during a send, the send raises this exception; at other times it is logged."""
        with ExitStack() as reports:  # an exception of one report does not prevent the others
            for resize in resizes:
                reports.callback(call_out, self._report, resize)

    def _report(self, resize: Resize) -> None:
        if not is_built_in(self.partitioner):
            resize = replace(resize, moved_share=self._share_moved(resize))
        if resize.moved_share == 0:
            return
        self.count += 1
        TALLY.add(RESIZE_WARNINGS)
        about = {"topic": resize.topic, "mode_epoch": resize.epoch}
        logger.warning("%s", resize.describe(), extra=about)
        if self.callback is not None:
            self.callback(resize)
        warnings.warn(ResizeWarning(resize.describe()), stacklevel=1)  # the sender is any number of calls away

    def _share_moved(self, resize: Resize) -> float | None:
        try:
            return expected_share_moved(self.partitioner, resize.old_count, resize.new_count)
        except Exception:  # an application's partitioner may reject keys of another form
            logger.info("%s: the share of keys that move is unknown", resize.topic, exc_info=True)
            return None

    def _old_count(self, view: TopicView, *, first: bool) -> int | None:
        """Return the number of writable partitions in the last view of this topic, if the number has changed.

        If the last view had no record, all partitions were writable: return the number before the first shrink.
        """
        topic = self._topics.setdefault(view.topic, _Topic())
        last, topic.last = topic.last, view
        if last is not None and last.topic_id not in (None, view.topic_id):  # deleted, or another topic of that name
            self._topics[view.topic] = _Topic(view)
            self._pending.pop(view.topic, None)
            return None
        old_count = len(last.writable) if last is not None and last.modes else view.previous_count or 0
        changed = not first and view.modes and 0 < old_count != len(view.writable)
        return old_count if changed else None

    def _note(self, view: TopicView, old_count: int) -> None:
        """Note a resize, which the next key reports. An earlier resize that is not reported yet becomes part of it."""
        earlier = self._pending.pop(view.topic, None)
        resize = resize_of(view, old_count if earlier is None else earlier.old_count, self.partitioner)
        if resize is not None:
            self._pending[view.topic] = resize

    def _first_key(self, topic: str) -> None:
        """Report the pending resize: the first record with a key, ever or since the resize, is being sent."""
        known = self._topics[topic]
        if known.keyed and topic not in self._pending:
            return  # another thread has reported it, or this thread, which still sends by the earlier route
        known.keyed = True
        # In this order: a resize that another thread notes meanwhile is reported here, or keeps its call.
        resize = self._pending.pop(topic, None)
        self.lighten(topic)
        if resize is not None:
            self.report([resize])
