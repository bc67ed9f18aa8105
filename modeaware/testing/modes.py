"""Scripted partition modes for tests, in memory, without a broker or a thread.

A *view* is a topic's modes at one epoch. :class:`FakeViews` replaces one client's handle on the views.
:class:`ScriptedModes` replaces the source of the views of all clients of this process.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self
from unittest import mock

from modeaware.callouts import InnerLock
from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.modelog.records import ClaimRecord
from modeaware.modes import PartitionMode, format_ranges
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.source import MAX_ID_AGE_S, ViewListener, Views


def modes_of(
    count: int, writable: int | Iterable[int], rest: PartitionMode = PartitionMode.READ_ONLY
) -> tuple[PartitionMode, ...]:
    """Return ``count`` modes: ReadWrite for ``writable`` (a list, or how many partitions from 0 on), else ``rest``."""
    kept = set(range(writable)) if isinstance(writable, int) else set(writable)
    return tuple(PartitionMode.READ_WRITE if p in kept else rest for p in range(count))


class FakeViews:
    """Implements :class:`modeaware.views.source.Views` in memory; listeners run in the thread that makes the change.

    Args:
        ready: whether the first views exist from the start. If not, :meth:`set_ready` makes them available.
        views: the first views.

    Attributes:
        failure: the error that :meth:`error` returns and :meth:`refresh` raises.
        closed: whether the handle was released.
        refreshes: the number of calls of :meth:`refresh`.
        hints: the number of calls of :meth:`refresh_soon`.
        silent: topics about which no broker answers :meth:`verify`.
        live_ids: topic -> its id on the cluster. Without an entry, the cluster's id is that of the view.
        verified: the topics of each call of :meth:`verify`.
        credentials: user name and password of the last :meth:`set_sasl_credentials`.
    """

    def __init__(self, *, ready: bool = True, views: Iterable[TopicView] = ()) -> None:
        self._lock = InnerLock()
        self._ready = threading.Event()
        self._views = {view.topic: view for view in views}
        self._listeners: list[ViewListener] = []
        self._claim: ClaimRecord | None = None
        self.failure: Exception | None = None
        self.closed = False
        self.refreshes = 0
        self.hints = 0
        self.silent: set[str] = set()
        self.live_ids: dict[str, str] = {}
        self._replaced: set[str] = set()
        self.verified: list[frozenset[str]] = []
        self.credentials: tuple[str, str] | None = None
        if ready:
            self._ready.set()

    # Calls of a test

    def set(
        self,
        topic: str,
        modes: Iterable[PartitionMode],
        *,
        epoch: int | None = None,
        controller_epoch: int | None = None,
        topic_id: str | None = None,
        resume_offsets: Mapping[int, int] | None = None,
        reclaimed: Iterable[int] = (),
        previous_count: int | None = None,
    ) -> TopicView:
        """Put a new view of ``topic`` in force (by default at the next epoch) and call the listeners."""
        with self._lock:
            before = self._views.get(topic)
            before_controller, before_epoch = before.version if before else (1, 0)
            view = TopicView(
                topic,
                topic_id or (before.topic_id if before else f"id-of-{topic}"),
                (
                    before_controller if controller_epoch is None else controller_epoch,
                    before_epoch + 1 if epoch is None else epoch,
                ),
                tuple(modes),
                dict(resume_offsets or {}),
                frozenset(reclaimed),
                previous_count,
            )
            self.put(view)
            return view

    def put(self, view: TopicView) -> None:
        """Put ``view`` in force unchanged, and call the listeners."""
        with self._lock:
            self._views[view.topic] = view
            self._call({view.topic: view})

    def remove(self, topic: str) -> None:
        """Remove the topic's record (as a tombstone does), and call the listeners."""
        with self._lock:
            self._views.pop(topic, None)
            self._call({topic: TopicView.unlisted(topic)})

    def set_ready(self) -> None:
        """Make the first views available: listeners get all views, and waiting calls return."""
        with self._lock:
            if not self._ready.is_set():
                self._ready.set()
                self._call(dict(self._views))

    def set_claim(self, claim: ClaimRecord | None) -> None:
        """Set what :meth:`claim` returns."""
        self._claim = claim

    @property
    def listener_count(self) -> int:
        """How many listeners are subscribed."""
        return len(self._listeners)

    def _call(self, changed: Mapping[str, TopicView]) -> None:
        if self._ready.is_set():
            for listener in list(self._listeners):
                listener(changed)

    # Calls of a client

    def wait_ready(self, timeout_s: float) -> bool:
        return self._ready.wait(timeout_s)

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    @property
    def ended(self) -> bool:
        return self.closed

    def view(self, topic: str) -> TopicView:
        return self._views.get(topic) or TopicView.unlisted(topic)

    def views(self) -> Mapping[str, TopicView]:
        with self._lock:
            return dict(self._views)

    def recorded(self, topics: Iterable[str]) -> builtins.set[str]:
        return {topic for topic in topics if topic in self._views or topic in self._replaced}

    def claim(self) -> ClaimRecord | None:
        return self._claim

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        return ()

    def refresh(self, timeout_s: float) -> None:
        self.refreshes += 1
        if self.failure is not None:
            raise self.failure

    def refresh_soon(self) -> None:
        self.hints += 1

    def verify(self, topics: Iterable[str], timeout_s: float, max_age_s: float = MAX_ID_AGE_S) -> frozenset[str]:
        names = frozenset(topics)
        self.verified.append(names)
        with self._lock:
            for topic in (names & self.live_ids.keys() & self._views.keys()) - self.silent:
                if self._views[topic].topic_id not in (None, self.live_ids[topic]):
                    self.remove(topic)
                    self._replaced.add(topic)
        return names & self.silent

    def live_id(self, topic: str, timeout_s: float) -> str | None:
        return None if topic in self.silent else self.live_ids.get(topic, self.view(topic).topic_id)

    def subscribe(self, listener: ViewListener) -> None:
        with self._lock:
            self._listeners.append(listener)
            if self._ready.is_set():
                listener(dict(self._views))

    def unsubscribe(self, listener: ViewListener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.credentials = (username, password)

    def error(self) -> Exception | None:
        return self.failure

    def stats(self) -> dict[str, Any]:
        return {
            "source": "fake",
            "ready": self.ready,
            "topics": len(self._views),
            "view_age_ms": 0,
            "stale": self.failure is not None,
            "refresh_failures": 0,
            "rejected_records": 0,
        }

    def close(self) -> None:
        self.closed = True


class ScriptedModes:
    """A context manager. In its block, mode-aware clients of this process get scripted modes, not those of a cluster.

    Clients made in the block (``modeaware.Producer``, ``Consumer``, their serialising and asyncio forms,
    ``AdminClient.describe_modes``, ``modeaware.kafka_python``) request no modes from a mode log or an endpoint. At
    first no topic has modes: every partition is ReadWrite. The modes are the same for every cluster. They do not apply
    to clients made before or after the block, to other processes, or to Spark.

    When a method that changes modes returns, the change is in force for every client. Thread-safe, but the
    ``modeaware.resize_cb`` that a change calls must not use a client if another thread waits for that change.
    """

    def __init__(self) -> None:
        self._lock = InnerLock()
        self._views: dict[str, TopicView] = {}
        self._handles: list[FakeViews] = []
        self._failure: Exception | None = None
        self._patch = mock.patch.object(registry, "acquire", self._acquire)

    def __enter__(self) -> Self:
        self._patch.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._patch.stop()

    # Calls of a controller

    def shrink(self, topic: str, count: int, to: int) -> TopicView:
        """Retire partitions ``to`` to ``count`` - 1: ReadOnly, until :meth:`none` hides them from consumers.

        Args:
            topic: the topic's name; the topic need not exist.
            count: the topic's number of partitions.
            to: the number of writable partitions from now on, 1 to ``count`` - 1.

        Raises:
            ValueError: nothing would be retired, ``count`` differs from earlier calls, or a partition below ``to`` is
                retired.
        """
        with self._lock:
            before = self.view(topic)
            whole = before if before.modes else replace(before, modes=(PartitionMode.READ_WRITE,) * count)
            if len(whole.modes) != count:
                raise ValueError(f"{topic} has {len(whole.modes)} partitions by this script, not {count}")
            if not (0 < to < count and set(range(to)) < set(whole.writable)):
                raise ValueError(f"{topic}: no shrink to {to} writable partitions from {whole.describe()}")
            modes = (
                mode if p < to or not mode.writable else PartitionMode.READ_ONLY for p, mode in enumerate(whole.modes)
            )
            return self._follow(whole, modes=tuple(modes), previous_count=len(whole.writable))

    def none(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        resume_offsets: Mapping[int, int] | None = None,
    ) -> TopicView:
        """Put drained partitions in mode None, so that no consumer is assigned them.

        Args:
            topic: a shrunk topic.
            partitions: some of the topic's ReadOnly partitions; by default all of these.
            resume_offsets: the seals of these partitions, if any. After :meth:`undo`, a consumer without a commit
                continues at the seal.

        Raises:
            ValueError: one of ``partitions`` is not ReadOnly, or the topic has no ReadOnly partition.
        """
        with self._lock:
            before = self.view(topic)
            retired = {p for p, mode in enumerate(before.modes) if mode is PartitionMode.READ_ONLY}
            chosen = retired if partitions is None else set(partitions)
            if not chosen:
                raise ValueError(f"{topic}: no partition is ReadOnly, so none can become None: shrink first")
            if not chosen <= retired:
                which = format_ranges(chosen - retired)
                raise ValueError(f"{topic}: {which} cannot become None, only ReadOnly partitions can: shrink first")
            modes = (PartitionMode.NONE if p in chosen else mode for p, mode in enumerate(before.modes))
            resume = {**before.resume_offsets, **(resume_offsets or {})}
            return self._follow(before, modes=tuple(modes), resume_offsets=resume)

    def undo(self, topic: str) -> TopicView:
        """Put every partition in mode ReadWrite again.

        Raises:
            ValueError: no partition of the topic is retired.
        """
        with self._lock:
            before = self.view(topic)
            if before.all_writable:
                raise ValueError(f"{topic}: no partition is retired, there is nothing to undo")
            return self.set(topic, (PartitionMode.READ_WRITE,) * len(before.modes))

    def set(self, topic: str, modes: Iterable[PartitionMode]) -> TopicView:
        """Put partitions 0, 1, 2, ... in ``modes``, even if no controller would do so in one step."""
        with self._lock:
            before = self.view(topic)
            return self._follow(before, modes=tuple(modes), previous_count=None)

    # Events at the source of the modes

    def unreadable(self, error: Exception | None = None) -> None:
        """Make the source of the modes unreadable from now on, until :meth:`readable`.

        Until then clients keep the last modes, and miss all changes. If no open client has views, a new client gets
        none: ``modeaware.on.unknown`` decides what the new client does.

        Args:
            error: the error that clients get; by default a :class:`modeaware.errors.ModeSourceError`.
        """
        with self._lock:
            self._failure = error or ModeSourceError("mode log: cannot be read, by the script of a test")
            for handle in self._open():
                handle.failure = self._failure

    def readable(self) -> None:
        """Make the source readable again: every client gets the changes that it missed."""
        with self._lock:
            self._failure = None
            for handle in self._open():
                handle.failure = None
                for view in self._views.values():
                    if handle.view(view.topic) != view:
                        handle.put(view)
                handle.set_ready()

    # Facts for a test

    def view(self, topic: str) -> TopicView:
        """Return the scripted modes in force; ``TopicView.unlisted(topic)`` if none were set."""
        with self._lock:
            return self._views.get(topic) or TopicView.unlisted(topic)

    @property
    def client_count(self) -> int:
        """The number of clients that were made in the block and are not closed."""
        with self._lock:
            return len(self._open())

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
        """Do what :func:`modeaware.views.registry.acquire` does outside the block: return a client's views."""
        with self._lock:
            sharing = next((handle for handle in self._open() if handle.ready), None)
            if self._failure is None:
                made = FakeViews(views=self._views.values())
            else:  # as in a real process, new clients share the last modes of the existing ones
                made = FakeViews(ready=sharing is not None, views=sharing.views().values() if sharing else ())
                made.failure = self._failure
            self._handles.append(made)
            return made

    def _open(self) -> list[FakeViews]:
        self._handles = [handle for handle in self._handles if not handle.closed]
        return self._handles
