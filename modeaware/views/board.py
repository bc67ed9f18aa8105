"""The board where sources put the views of one cluster, and from which its clients take them.

Sources may take turns at it (the mode log, Metadata over the wire): views never go back all the same (invariant I4),
because both tell the same versions, and listeners do not notice whose turn it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from cachetools import LRUCache

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ModeSourceError
from modeaware.topic_view import TopicView
from modeaware.views.cache import Fetch, MetadataCache
from modeaware.views.source import ViewListener

logger = logging.getLogger(__name__)

REMEMBERED_IDS = 10_000


class Board:
    """Views in force, whether they can be trusted, and who is told of changes. Thread-safe.

    One lock (:attr:`turn`) orders everything that changes views and calls listeners; reading a view needs only the
    cache's.

    Args:
        fetch: asks the source of the moment; it puts what it finds on the board itself and returns nothing.
        ttl_ms: how old views may grow before the source is asked again.
        name: of the source, for the log.

    Attributes:
        cache: the views.
        turn: to be held by a source while it works out what has changed.
        past_ids: the ids of topics that are gone or were recreated, as the source told it -> the last version of each.
    """

    def __init__(self, fetch: Fetch, ttl_ms: int, clock: Clock = SYSTEM_CLOCK, name: str = "the mode source") -> None:
        self.cache = MetadataCache(fetch, ttl_ms=ttl_ms, clock=clock, name=name)
        self.turn = threading.RLock()
        self.past_ids: LRUCache[str, tuple[int, int]] = LRUCache(REMEMBERED_IDS)
        self._aside: LRUCache[str, dict[str, TopicView]] = LRUCache(REMEMBERED_IDS)
        self._ready = threading.Event()
        self._listeners: list[ViewListener] = []

    # For sources

    def publish(self, views: Iterable[TopicView], gone: Iterable[str] = ()) -> None:
        """Put ``views`` in force, but for those older than what is held and those :meth:`choose` has set aside, and let
        the topics ``gone`` go."""
        with self.turn:
            fit = []
            for view in views:
                if not self.is_aside(view.topic, view.topic_id):
                    fit.append(view)
                else:
                    self._put_aside(view)
            changed = self.cache.offer(fit) | self.cache.remove(gone)
            if changed and self._ready.is_set():
                self._tell(changed)

    def choose(self, topic: str, live_id: str, told: Iterable[TopicView] = ()) -> bool:
        """The cluster has ``live_id`` for the topic: only a view of that id may be in force (invariant I8).

        Views of other ids are set aside until the cluster returns theirs.

        Args:
            told: the views of that name that the source knows.

        Returns:
            Whether this took a view out of force.
        """
        with self.turn:
            held = self.cache.held(topic)
            live: TopicView | None = None
            for view in (*told, *self._aside.pop(topic, {}).values(), *([held] if held is not None else [])):
                if not view.applies_to(live_id):
                    self._put_aside(view)
                elif view.topic_id is not None and (live is None or view.version >= live.version):
                    live = view
            replaced = held is not None and not held.applies_to(live_id)
            self.publish([live] if live else (), [topic] if replaced and not live else ())
            return replaced

    def is_aside(self, topic: str, topic_id: str | None) -> bool:
        """Whether views of that id are set aside: the cluster has another id for the topic."""
        with self.turn:
            return topic_id in self._aside.get(topic, ())

    def recorded(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics of which a view with a topic id is known, in force or set aside."""
        with self.turn:
            held = ((topic, self.cache.held(topic)) for topic in topics)
            return {topic for topic, view in held if topic in self._aside or (view is not None and view.topic_id)}

    def forget_aside(self, topic: str, topic_id: str) -> None:
        """The record of that id was taken back."""
        with self.turn:
            aside = self._aside.get(topic, {})
            aside.pop(topic_id, None)
            if not aside:
                self._aside.pop(topic, None)

    def _put_aside(self, view: TopicView) -> None:
        assert view.topic_id is not None, "only views with an id are compared"
        aside = self._aside.setdefault(view.topic, {})
        before = aside.get(view.topic_id)
        if before is None or before.version <= view.version:
            aside[view.topic_id] = view

    def confirm(self) -> None:
        """What is on the board is what the source says now. The first time, clients stop waiting."""
        with self.turn:
            self.cache.confirmed()
            if not self._ready.is_set():
                self._ready.set()
                self._tell(self.cache.all())

    def failed(self, error: ModeSourceError) -> None:
        """The source cannot be read now; the views stay."""
        self.cache.failed(error)

    # For clients

    def wait_ready(self, timeout_s: float) -> bool:
        """See ``Views``."""
        return self._ready.wait(timeout_s)

    @property
    def ready(self) -> bool:
        """See ``Views``."""
        return self._ready.is_set()

    def subscribe(self, listener: ViewListener) -> None:
        """See ``Views``."""
        with self.turn:
            self._listeners.append(listener)
            if self._ready.is_set():
                self._call(listener, self.cache.all())

    def unsubscribe(self, listener: ViewListener) -> None:
        """See ``Views``."""
        # Without the lock: a caller may hold one of its own that its running listener waits for.
        try:
            self._listeners.remove(listener)
        except ValueError:
            logger.debug("%r was not subscribed", listener)

    def stats(self) -> dict[str, Any]:
        """See ``Views``: what is common to all sources."""
        return {"ready": self._ready.is_set(), "listeners": len(self._listeners), **self.cache.stats()}

    def _tell(self, changed: Mapping[str, TopicView]) -> None:
        for listener in list(self._listeners):
            if listener in self._listeners:  # it may have been taken away meanwhile
                self._call(listener, changed)

    def _call(self, listener: ViewListener, changed: Mapping[str, TopicView]) -> None:
        try:
            listener(changed)
        except Exception:  # this listener has missed the change, until its topics change next; all others hear of it
            logger.exception("a listener of partition modes failed: %r", listener)


class OnBoard:
    """The part of ``Views`` that is answered from a board."""

    board: Board

    def wait_ready(self, timeout_s: float) -> bool:
        return self.board.wait_ready(timeout_s)

    @property
    def ready(self) -> bool:
        return self.board.ready

    def view(self, topic: str) -> TopicView:
        return self.board.cache.held(topic) or TopicView.unlisted(topic)

    def views(self) -> Mapping[str, TopicView]:
        return self.board.cache.all()

    def recorded(self, topics: Iterable[str]) -> set[str]:
        return self.board.recorded(topics)

    def refresh(self, timeout_s: float) -> None:
        self.board.cache.refresh(None, timeout_s)

    def subscribe(self, listener: ViewListener) -> None:
        self.board.subscribe(listener)

    def unsubscribe(self, listener: ViewListener) -> None:
        self.board.unsubscribe(listener)

    def error(self) -> Exception | None:
        return self.board.cache.error()
