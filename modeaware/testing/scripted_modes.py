"""Partition modes by script: a test says what the controller would have decided."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self
from unittest import mock

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.modes import PartitionMode, format_ranges
from modeaware.testing.fake_views import FakeViews
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.source import Views


class ScriptedModes:
    """What every client of ours in this process sees while this is in force, instead of a mode log's or an endpoint's.

    A context manager: clients that are made within it (``modeaware.Producer``, ``Consumer``, their serialising and
    asyncio forms, ``AdminClient.describe_modes``, ``modeaware.kafka_python``) ask no cluster for modes. At first no
    topic is listed: every partition is ReadWrite. Whatever cluster a client names, it sees these modes. Clients made
    before or after, other processes and Spark do not.

    A change is in force for every client when the method returns. Thread-safe, but no client may be used by the
    callback (``modeaware.resize_cb``) of a change that another thread waits to make.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._views: dict[str, TopicView] = {}
        self._handles: list[FakeViews] = []
        self._failure: Exception | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._undo.enter_context(mock.patch.object(registry, "acquire", self._acquire))
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    # What a controller does

    def shrink(self, topic: str, count: int, to: int) -> TopicView:
        """Retire partitions ``to`` to ``count`` - 1: ReadOnly, until :meth:`none` takes them away from consumers.

        As in a real shrink no key is handed over yet: producers with ``modeaware.on.resize=hold`` hold back those that
        move, until :meth:`none` and :meth:`handed_over` say that their old partition is read.

        Args:
            topic: its name; it need not exist anywhere.
            count: how many partitions it has.
            to: how many are writable from now on, 1 to ``count`` - 1.

        Raises:
            ValueError: there is nothing to retire, ``count`` is not what was said before, or one of the partitions to
                stay is retired.
        """
        with self._lock:
            before = self.view(topic)
            whole = before if before.modes else replace(before, modes=(PartitionMode.READ_WRITE,) * count)
            if len(whole.modes) != count:
                raise ValueError(f"{topic} has {len(whole.modes)} partitions by this script, not {count}")
            if not (0 < to < count and set(range(to)) < set(whole.writable)):
                raise ValueError(f"{topic}: no shrink to {to} writable partitions from {whole.describe()}")
            earlier = () if before.previous_count is None else {*before.earlier_counts, before.previous_count}
            modes = (
                mode if p < to or not mode.writable else PartitionMode.READ_ONLY for p, mode in enumerate(whole.modes)
            )
            return self._follow(
                whole,
                modes=tuple(modes),
                previous_count=len(whole.writable),
                handed_over=frozenset(),
                earlier_counts=tuple(sorted(earlier)),
            )

    def none(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        resume_offsets: Mapping[int, int] | None = None,
    ) -> TopicView:
        """Retired partitions are drained: mode None, assigned to no consumer; they are handed over as well.

        Args:
            topic: a topic that was shrunk.
            partitions: which of its ReadOnly partitions; default all.
            resume_offsets: the end offsets at which they were sealed, where a consumer without a commit goes on when
                :meth:`undo` gives them back; default none.

        Raises:
            ValueError: one of them is not ReadOnly, or there is none.
        """
        with self._lock:
            before = self.view(topic)
            retired = {p for p, mode in enumerate(before.modes) if mode is PartitionMode.READ_ONLY}
            chosen = retired if partitions is None else set(partitions)
            if not chosen:
                raise ValueError(f"{topic}: no partition is ReadOnly, only such can become None: shrink first")
            if not chosen <= retired:
                which = format_ranges(chosen - retired)
                raise ValueError(f"{topic}: {which} cannot become None, only ReadOnly partitions can: shrink first")
            modes = (PartitionMode.NONE if p in chosen else mode for p, mode in enumerate(before.modes))
            resume = {**before.resume_offsets, **(resume_offsets or {})}
            return self._hand_over(replace(before, modes=tuple(modes), resume_offsets=resume), chosen)

    def handed_over(self, topic: str, partitions: Iterable[int] | None = None) -> TopicView:
        """Every group has read what was in old partitions before the shrink: keys of these are held back no more.

        Args:
            topic: a topic that was shrunk.
            partitions: which, survivors among them; default all.
        """
        with self._lock:
            before = self.view(topic)
            return self._hand_over(before, range(len(before.modes)) if partitions is None else partitions)

    def undo(self, topic: str) -> TopicView:
        """Every partition is ReadWrite again; no key is held back.

        Raises:
            ValueError: no partition of the topic is retired.
        """
        with self._lock:
            before = self.view(topic)
            if before.all_writable:
                raise ValueError(f"{topic}: no partition is retired, there is nothing to undo")
            return self.set(topic, (PartitionMode.READ_WRITE,) * len(before.modes))

    def set(self, topic: str, modes: Iterable[PartitionMode]) -> TopicView:
        """Any modes of partitions 0, 1, 2, ...: what a controller would never do in one step as well."""
        with self._lock:
            before = self.view(topic)
            return self._follow(
                before, modes=tuple(modes), previous_count=None, handed_over=frozenset(), earlier_counts=()
            )

    # What happens to the source of the modes

    def unreadable(self, error: Exception | None = None) -> None:
        """The source of the modes cannot be read from now on, until :meth:`readable`.

        Clients keep the last modes, and miss all changes until then. One that is made now, without another that has
        seen modes, has no first view: ``modeaware.on.unknown`` says what it does.

        Args:
            error: what clients are told; default a :class:`modeaware.errors.ModeSourceError`.
        """
        with self._lock:
            self._failure = error or ModeSourceError("mode log: cannot be read, by the script of a test")
            for handle in self._open():
                handle.failure = self._failure

    def readable(self) -> None:
        """The source can be read again: every client learns what it missed."""
        with self._lock:
            self._failure = None
            for handle in self._open():
                handle.failure = None
                for view in self._views.values():
                    if handle.view(view.topic) != view:
                        handle.put(view)
                handle.set_ready()

    # What a test looks at

    def view(self, topic: str) -> TopicView:
        """The modes that are in force by the script; ``TopicView.unlisted(topic)`` where it says nothing of it."""
        with self._lock:
            return self._views.get(topic) or TopicView.unlisted(topic)

    @property
    def client_count(self) -> int:
        """How many clients see these modes: made in force and not closed."""
        with self._lock:
            return len(self._open())

    def _hand_over(self, view: TopicView, partitions: Iterable[int]) -> TopicView:
        if view.previous_count is None:
            return self._follow(view)
        old = frozenset(range(view.previous_count))
        handed_over = view.handed_over | (old & frozenset(partitions))
        if handed_over != old:
            # After two shrinks at once only all of them are: nobody knows where the older records of a key are.
            return self._follow(view, handed_over=frozenset() if view.earlier_counts else handed_over)
        return self._follow(view, previous_count=None, handed_over=frozenset(), earlier_counts=())

    def _follow(self, view: TopicView, **changes: Any) -> TopicView:
        """Put ``view`` with ``changes`` in force, at the next epoch."""
        controller_epoch, epoch = self.view(view.topic).version
        new = replace(
            view,
            topic_id=view.topic_id or f"id-of-{view.topic}",
            version=(max(controller_epoch, 1), max(epoch, 0) + 1),
            **changes,
        )
        self._views[new.topic] = new
        if self._failure is None:
            for handle in self._open():
                handle.put(new)
        return new

    def _acquire(self, conf: Mapping[str, Any], config: ClientConfig) -> Views:
        """Stands in for :func:`modeaware.views.registry.acquire`."""
        with self._lock:
            sharing = next((handle for handle in self._open() if handle.ready), None)
            if self._failure is None:
                made = FakeViews(views=self._views.values())
            else:  # the clients of one process share what was seen last
                made = FakeViews(ready=sharing is not None, views=sharing.views().values() if sharing else ())
                made.failure = self._failure
            self._handles.append(made)
            return made

    def _open(self) -> list[FakeViews]:
        self._handles = [handle for handle in self._handles if not handle.closed]
        return self._handles
