"""Views of partition modes held in memory: what a client sees, without a broker or a thread."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from modeaware.modelog.records import ClaimRecord
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from modeaware.views.source import MAX_ID_AGE_S, ViewListener


def modes_of(
    count: int, writable: int | Iterable[int], rest: PartitionMode = PartitionMode.READ_ONLY
) -> tuple[PartitionMode, ...]:
    """``count`` modes: ReadWrite for ``writable`` (how many from 0 on, or which), ``rest`` for the others."""
    kept = set(range(writable)) if isinstance(writable, int) else set(writable)
    return tuple(PartitionMode.READ_WRITE if p in kept else rest for p in range(count))


class FakeViews:
    """Implements :class:`modeaware.views.source.Views` in memory; listeners run in the thread that makes the change.

    Args:
        ready: whether the first view is there from the start; else :meth:`set_ready` brings it.
        views: the views to begin with.

    Attributes:
        failure: what :meth:`error` returns and :meth:`refresh` raises.
        closed: whether the handle was given back.
        refreshes: how often :meth:`refresh` was called.
        hints: how often :meth:`refresh_soon` was.
        silent: topics about which no broker answers :meth:`verify`.
        live_ids: topic -> the id that the cluster has for it; without an entry it is the id of the view.
        verified: the topics of each call of :meth:`verify`.
    """

    def __init__(self, *, ready: bool = True, views: Iterable[TopicView] = ()) -> None:
        self._lock = threading.RLock()
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
        if ready:
            self._ready.set()

    # What a test does

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
        handed_over: Iterable[int] = (),
        earlier_counts: Iterable[int] = (),
    ) -> TopicView:
        """Put a new view of ``topic`` in force (by default at the next epoch) and tell the listeners."""
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
                frozenset(handed_over),
                tuple(earlier_counts),
            )
            self.put(view)
            return view

    def put(self, view: TopicView) -> None:
        """Put ``view`` in force as it is and tell the listeners."""
        with self._lock:
            self._views[view.topic] = view
            self._tell({view.topic: view})

    def remove(self, topic: str) -> None:
        """Take the topic's record away (as a tombstone does) and tell the listeners."""
        with self._lock:
            self._views.pop(topic, None)
            self._tell({topic: TopicView.unlisted(topic)})

    def set_ready(self) -> None:
        """Bring the first view: listeners get all views, waiters go on."""
        with self._lock:
            if not self._ready.is_set():
                self._ready.set()
                self._tell(dict(self._views))

    def set_claim(self, claim: ClaimRecord | None) -> None:
        """Set what :meth:`claim` returns."""
        self._claim = claim

    @property
    def listener_count(self) -> int:
        """How many listeners are subscribed."""
        return len(self._listeners)

    def _tell(self, changed: Mapping[str, TopicView]) -> None:
        if self._ready.is_set():
            for listener in list(self._listeners):
                listener(changed)

    # What a client does

    def wait_ready(self, timeout_s: float) -> bool:
        return self._ready.wait(timeout_s)

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

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

    def subscribe(self, listener: ViewListener) -> None:
        with self._lock:
            self._listeners.append(listener)
            if self._ready.is_set():
                listener(dict(self._views))

    def unsubscribe(self, listener: ViewListener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

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
