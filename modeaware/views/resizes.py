"""What a producer does when the number of writable partitions of a topic changes under its keys."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from modeaware.errors import KeyHeld, KeyMoved, ResizeWarning
from modeaware.resize import Backlog, Guarding, Resize, Watching, lighter, resize_of
from modeaware.routing import Route, route_over
from modeaware.tally import RESIZE_WARNINGS, SENDS_HELD, TALLY
from modeaware.topic_view import TopicView
from partitioners import Partitioner

logger = logging.getLogger(__name__)

ResizeCallback = Callable[[Resize], object]


class Resizes:
    """Follows the views of one producer; what to do is ``modeaware.on.resize``. The router serialises the calls of
    :meth:`adjusted` and :meth:`take_due`; :meth:`tell` may be called from any thread.

    Args:
        policy: ``ignore``, ``warn``, ``error`` or ``hold``.
        partitioner: what the producer picks with.
        callback: ``modeaware.resize_cb``.
        seen: called with a topic when something has no longer to see every key of it: see :func:`lightened`.
        backlog: called with a topic whose keys move, with ``hold``: what the producer has queued for it then. None: it
            has nothing queued, ever.
        held, refused: what the client raises for a key, with ``hold`` and with ``error``.
    """

    def __init__(
        self,
        policy: str,
        partitioner: Partitioner,
        callback: ResizeCallback | None,
        seen: Callable[[str], None],
        *,
        backlog: Callable[[str], Backlog] | None = None,
        held: type[KeyHeld] = KeyHeld,
        refused: type[KeyMoved] = KeyMoved,
    ) -> None:
        self._policy = policy
        self._partitioner = partitioner
        self._callback = callback
        self._seen = seen
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
        """How many resizes of topics with keys were told of."""

    def adjusted(self, view: TopicView, route: Route | None, *, first: bool) -> Route | None:
        """``route`` (None: nothing is retired) with what the policy puts before its partitioner.

        Args:
            first: these are the first views of all: what is in them is no change.
        """
        if self._policy == "ignore":
            return route
        old_count = self._follow(view, first=first)
        if self._policy == "error":
            return self._refusing(view, route, old_count)
        if old_count is not None:
            self._note(view, old_count)
        if self._policy == "hold":
            route = self._holding(view, route, old_count, first=first)
        if route is None:  # nobody looks at keys from now on: if there are any, they were seen before
            resize = self._pending.pop(view.topic, None)
            if resize is not None and view.topic in self._keyed:
                self._due.append(resize)
            return None
        if view.topic in self._keyed and view.topic not in self._pending:
            return route
        return replace(route, partitioner=Watching(route.partitioner, lambda: self._first_key(view.topic)), open=False)

    def take_due(self) -> list[Resize]:
        """What has to be told of now, outside the router's lock."""
        due, self._due = self._due, []
        return due

    def tell(self, resizes: Iterable[Resize]) -> None:
        """Log record, counter, callback, and Python warning of each; what the last two raise is the caller's."""
        with ExitStack() as telling:  # what one of them raises does not silence the others
            for resize in resizes:
                telling.callback(self._tell, resize)

    def _tell(self, resize: Resize) -> None:
        self.count += 1
        TALLY.add(RESIZE_WARNINGS)
        told = {"topic": resize.topic, "mode_epoch": resize.epoch}
        logger.warning("%s", resize.describe(), extra=told)
        if self._callback is not None:
            self._callback(resize)
        warnings.warn(ResizeWarning(resize.describe()), stacklevel=1)  # the sender is any number of calls away

    def _follow(self, view: TopicView, *, first: bool) -> int | None:
        """How many partitions were writable by the last view of this topic, where that was another number.

        Of a topic that had no record all were: as many as before the shrink that its first record tells of.
        """
        last = self._last.get(view.topic)
        self._last[view.topic] = view
        if last is not None and last.topic_id not in (None, view.topic_id):
            self._forget(view.topic)  # it is gone, or another topic of that name
            return None
        old_count = len(last.writable) if last is not None and last.modes else view.previous_count or 0
        changed = not first and view.modes and 0 < old_count != len(view.writable)
        return old_count if changed else None

    def _forget(self, topic: str) -> None:
        self._pending.pop(topic, None)
        self._keyed.discard(topic)
        self._first_counts.pop(topic, None)
        self._old_counts.pop(topic, None)
        self._backlogs.pop(topic, None)

    def _note(self, view: TopicView, old_count: int) -> None:
        """To be told of with the next key; together with an earlier resize since the last one."""
        earlier = self._pending.pop(view.topic, None)
        resize = resize_of(view, old_count if earlier is None else earlier.old_count, self._partitioner)
        if resize is not None:
            self._pending[view.topic] = resize

    def _first_key(self, topic: str) -> None:
        """A record with a key is being sent, the first one or the first since a resize."""
        self._keyed.add(topic)
        # In this order: a resize that another thread notes meanwhile is told of here, or is watched for anew.
        self._seen(topic)
        resize = self._pending.pop(topic, None)
        if resize is not None:
            self.tell([resize])

    def _refusing(self, view: TopicView, route: Route | None, old_count: int | None) -> Route | None:
        if old_count is not None:
            self._first_counts.setdefault(view.topic, old_count)
        first_count = self._first_counts.get(view.topic)
        if first_count is None or first_count == len(view.writable) or not view.modes:
            return route
        route = route or route_over(view, self._partitioner)
        guarding = Guarding(route.partitioner, view, [first_count], refused=self._refused)
        return replace(route, partitioner=guarding, open=False)

    def _holding(self, view: TopicView, route: Route | None, old_count: int | None, *, first: bool) -> Route | None:
        """Keys wait for their partition before the shrink; for those by other counts as well, where the count has
        changed once more (another shrink, a part that was undone) before all was handed over. And they wait for what
        this producer has queued there, which may get there only after the handover."""
        topic, waited_for = view.topic, handing_over(view)
        old_counts = self._old_counts.pop(topic, frozenset())
        backlog = self._backlogs.pop(topic, None)
        grown = old_count is not None and old_count < len(view.writable)
        if route is None or (grown and not waited_for):
            return route
        old_counts |= {count for count in (view.previous_count, old_count) if count} | {*view.earlier_counts}
        if self._backlog is not None and old_counts and (first or old_count is not None):
            backlog = self._backlog(topic)  # of earlier changes as well: whatever is queued now
        own = backlog is not None and not backlog.over
        if not old_counts or not (waited_for or own):
            return route
        self._old_counts[topic] = old_counts
        if own and backlog is not None:
            self._backlogs[topic] = backlog
        guarding = Guarding(
            route.partitioner,
            view,
            sorted(old_counts),
            waited_for,
            backlog=backlog if own else None,
            ended=lambda: self._seen(topic),
            held=self._keep_back,
        )
        return replace(route, partitioner=guarding, open=False)

    def _keep_back(self, message: str, **about: Any) -> KeyHeld:
        TALLY.add(SENDS_HELD)
        return self._held(message, **about)


def lightened(route: Route) -> Route:
    """``route`` without what stood before its partitioner and has nothing to do any more."""
    left = lighter(route.partitioner)
    return replace(route, partitioner=left, open=not isinstance(left, Watching | Guarding))


def handing_over(view: TopicView) -> frozenset[int]:
    """The old partitions that not every group has read to the switch yet."""
    return frozenset(range(view.previous_count or 0)) - view.handed_over
