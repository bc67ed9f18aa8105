"""The views of one cluster that are in force, and the one place that puts them in force.

A source (the mode log, Metadata over the wire) publishes the views that it reads. The source may change, because both
sources give the same versions. The store decides which views are in force:

* A view belongs to a topic id. A name resolves to the view of one id, which is the view in force;
  :meth:`ViewStore.choose` resolves the name when the cluster has returned the id. Views of other ids are *set aside*,
  by id, until the cluster returns their id (invariant I8). The view of a released old topic *keeps the name*: the name
  points to the new topic, and another topic that is created under the name is not used.
* Of several views of one topic id the newest counts. A view is removed only when the source reports that its topic is
  gone (invariant I4). A response that does not mention a topic changes nothing.
* The last views of a failing source stay in force (invariant I6); :meth:`ViewStore.stats` returns their age.

Reading a view takes no lock. Code that changes views or calls listeners holds ``turn``; a request to a source does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from cachetools import LRUCache

from modeaware.callouts import InnerLock, get_logger
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ErrorCode, ModeSourceError, without_frames
from modeaware.topic_view import TopicView
from modeaware.views.source import ViewListener

logger = get_logger(__name__)

REMEMBERED_IDS = 10_000

Fetch = Callable[[bool, float], None]
"""``fetch(fresh, timeout_s)`` publishes the source's views, or raises ModeSourceError. If ``fresh``, the views must not
be older than the call, even if a server first has to read the mode log to its end."""


class SourceStopped(ModeSourceError):
    """The source was stopped during a request. This is no failure, and is not reported."""


class _Request(NamedTuple):
    """The last request to the source. Callers that arrived before the request share its outcome."""

    number: int = 0
    fresh: bool = False
    deadline_s: float = 0.0
    error: ModeSourceError | None = None


class _SetAside(LRUCache[str, TopicView]):
    """Topic id -> view, for views whose name resolves to another id; ``ids`` has name -> these ids. The least recently
    used views are dropped."""

    def __init__(self) -> None:
        super().__init__(REMEMBERED_IDS)
        self.ids: dict[str, set[str]] = {}

    def __setitem__(self, topic_id: str, view: TopicView) -> None:
        self.pop(topic_id, None)
        super().__setitem__(topic_id, view)
        self.ids.setdefault(view.topic, set()).add(topic_id)

    def __delitem__(self, topic_id: str) -> None:
        topic = self[topic_id].topic
        super().__delitem__(topic_id)
        self.ids[topic].discard(topic_id)
        if not self.ids[topic]:
            del self.ids[topic]


def keeps_name(view: TopicView) -> bool:
    """Return whether the name points to the new topic, whatever topic the cluster has under the name.

    From its release on, an old topic may be deleted, and another topic of that name may be created before the deletion
    is on the log. So the name points to the new topic from the release on.
    """
    return view.replaced_by is not None and (view.replaced_by.released or view.replaced_by.gone)


class ViewStore:
    """Views in force, their listeners, and how current they are. Thread-safe.

    Args:
        fetch: requests views from the current source.
        ttl_ms: the age from which views count as stale. Their age is the time since the source last confirmed them.
        name: the source's name in log lines.

    Attributes:
        turn: held by a source while it changes views.
        ready: whether there are views.
        past_ids: id of a topic that was deleted -> the version of its last view.
    """

    def __init__(self, fetch: Fetch, ttl_ms: int, clock: Clock = SYSTEM_CLOCK, name: str = "the mode source") -> None:
        self.turn = InnerLock()
        self.past_ids: LRUCache[str, tuple[int, int]] = LRUCache(REMEMBERED_IDS)
        self._fetch = fetch
        self._ttl_s = ttl_ms / 1000
        self._clock = clock
        self._name = name
        self._in_force: dict[str, TopicView] = {}  # name -> view; the view contains its topic id
        self._aside = _SetAside()
        self.ready = False
        self._waiting_over = threading.Event()
        self._listeners: list[ViewListener] = []
        self._confirmed_s: float | None = None
        self._error: ModeSourceError | None = None
        self._failing_since_s = 0.0
        self._failures = 0
        self._answered = threading.Condition(InnerLock())
        self._flight = InnerLock()  # held during a request: deferred calls run once all callers have the answer
        self._asking = False
        self._asked = 0
        self._last = _Request()

    # For clients: see ``Views``

    def held(self, topic: str) -> TopicView | None:
        """Return the topic's view in force, of whatever age, or None if there is none."""
        return self._in_force.get(topic)

    def view(self, topic: str) -> TopicView:
        return self._in_force.get(topic) or TopicView.unlisted(topic)

    def views(self) -> dict[str, TopicView]:
        return dict(self._in_force)

    def wait_ready(self, timeout_s: float) -> bool:
        self._waiting_over.wait(timeout_s)
        return self.ready

    def end(self) -> None:
        """Note that the source has ended: no caller waits for the first view any longer."""
        self._waiting_over.set()

    def refresh(self, timeout_s: float, *, fresh: bool = True) -> None:
        """Request views from the source now. Callers that arrive during a request share the next one, so each caller
        gets the views as of its call, or newer ones.

        Raises:
            ModeSourceError: the source failed or did not answer within ``timeout_s``; the views in force stay.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        with self._answered:
            came = self._asked
            while self._asking and not self._is_answered(came, fresh, deadline_s):
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0 or not self._answered.wait(left_s):
                    text = f"{self._name}: no answer in time to an earlier request"
                    raise ModeSourceError(text, code=ErrorCode.REQUEST_TIMED_OUT)
            shared, error = self._is_answered(came, fresh, deadline_s), self._last.error
            if not shared:
                self._asking = True
                self._asked += 1
        if not shared:
            with self._flight:
                error = self._ask(fresh, deadline_s)
        if error is not None:
            raise without_frames(error)

    def _is_answered(self, came: int, fresh: bool, deadline_s: float) -> bool:
        """Return whether the last request's outcome counts for this caller, too. ``came`` is how many requests had been
        sent when the caller arrived."""
        last = self._last
        if last.number <= came or last.fresh < fresh:
            return False
        # A failure counts only if it was not due to another caller's earlier deadline.
        return last.error is None or last.deadline_s >= deadline_s or self._clock.monotonic_s() >= deadline_s

    def _ask(self, fresh: bool, deadline_s: float) -> ModeSourceError | None:
        error: ModeSourceError | None = ModeSourceError(f"{self._name}: the request was interrupted")
        try:
            self._fetch(fresh, deadline_s - self._clock.monotonic_s())
            self.confirm()
            error = None
        except ModeSourceError as raised:
            error = without_frames(raised)
            if not isinstance(raised, SourceStopped):
                self.failed(error)
        finally:
            with self._answered:
                self._last = _Request(self._asked, fresh, deadline_s, error)
                self._asking = False
                self._answered.notify_all()
        return error

    def subscribe(self, listener: ViewListener, had: Iterable[str] = ()) -> None:
        """See :meth:`Views.subscribe`. ``had`` names the topics of which the listener has views from another store. If
        this store has no view of such a topic, the listener is called with an unlisted one."""
        with self.turn:
            self._listeners.append(listener)
            if self.ready:
                self._call([listener], {**{topic: TopicView.unlisted(topic) for topic in had}, **self._in_force})

    def unsubscribe(self, listener: ViewListener) -> None:
        # Do not take ``turn``: a thread with ``turn`` may call a listener that waits for a lock of this caller.
        try:
            self._listeners.remove(listener)
        except ValueError:
            logger.debug("%r was not subscribed", listener)

    def error(self) -> ModeSourceError | None:
        return self._error

    def stats(self) -> dict[str, Any]:
        """Return ``ready``, ``listeners``, ``topics``, ``view_age_ms`` (since the source last confirmed the views; -1 =
        never), ``stale`` (the source fails, or the views are older than the TTL), ``refresh_failures``, ``error``."""
        confirmed_s, error = self._confirmed_s, self._error
        return {
            "ready": self.ready,
            "listeners": len(self._listeners),
            "topics": len(self._in_force),
            "view_age_ms": -1 if confirmed_s is None else round((self._clock.monotonic_s() - confirmed_s) * 1000),
            "stale": error is not None or (confirmed_s is not None and self.expired()),
            "refresh_failures": self._failures,
            "error": None if error is None else str(error),
        }

    # For sources

    def publish(self, views: Iterable[TopicView], gone: Iterable[str] = ()) -> None:
        """Put ``views`` in force, and remove the views of the topics ``gone``. A view that is older than the one in
        force is left out (invariant I4). A view stays aside if its id is set aside and the view does not keep the
        name."""
        with self.turn:
            changed: dict[str, TopicView] = {}
            for view in views:
                held = self._in_force.get(view.topic)
                if view.topic_id in self._aside and not keeps_name(view):
                    self._put_aside(view)
                elif (newest := view.over(held)) != held:
                    changed[view.topic] = self._in_force[view.topic] = newest
                    if view.topic_id is not None:
                        self._aside.pop(view.topic_id, None)
            for topic in gone:
                if self._in_force.pop(topic, None) is not None:
                    changed[topic] = TopicView.unlisted(topic)
            if changed and self.ready:
                self._call(self._listeners, changed)

    def continue_from(self, earlier: ViewStore) -> None:
        """Put the views of ``earlier``, another store of the same cluster, in force if they are newer (invariant I4).

        The store whose source confirmed its views later decides which topics exist, and with which ids.
        """
        with earlier.turn:
            views, confirmed_s = list(earlier.views().values()), earlier._confirmed_s
            aside, past_ids = list(earlier._aside.values()), dict(earlier.past_ids)
        with self.turn:
            for topic_id, version in past_ids.items():
                self.past_ids[topic_id] = max(version, self.past_ids.get(topic_id, version))
            if confirmed_s is None or (self._confirmed_s is not None and self._confirmed_s >= confirmed_s):
                held = [(view, self._in_force[view.topic]) for view in views if view.topic in self._in_force]
                self.publish(v for v, own in held if own.topic_id == v.topic_id or own.topic_id in past_ids)
                return
            for view in aside:
                self._put_aside(view)
            self.publish(views)
            self._confirmed_s = confirmed_s
            self._begin()

    def choose(self, topic: str, live_id: str, known: Iterable[TopicView] = ()) -> bool:
        """Resolve the name to ``live_id``, the cluster's id: only a view of that id may be in force (invariant I8).

        Args:
            known: the source's views of that name, of any id.

        Returns:
            Whether a view of another id was in force until now.
        """
        with self.turn:
            held = self._in_force.get(topic)
            if held is not None and keeps_name(held):
                return False
            aside = [self._aside.pop(topic_id) for topic_id in sorted(self._aside.ids.get(topic, ()))]
            live: TopicView | None = None
            for view in (*known, *aside, *([held] if held is not None else [])):
                if not view.applies_to(live_id):
                    self._put_aside(view)
                elif view.topic_id is not None and (live is None or view.version >= live.version):
                    live = view
            replaced = held is not None and not held.applies_to(live_id)
            self.publish([live] if live else (), [topic] if replaced and not live else ())
            return replaced

    def is_aside(self, topic_id: str | None) -> bool:
        """Return whether the views of this id are set aside, because the cluster has another id for the name."""
        return topic_id in self._aside

    def forget_aside(self, topic_id: str) -> None:
        """Drop the set-aside view of that id, because its record was removed."""
        with self.turn:
            self._aside.pop(topic_id, None)

    def recorded(self, topics: Iterable[str]) -> set[str]:
        """Return those of ``topics`` for which a view with a topic id is known, in force or set aside."""
        with self.turn:
            return {t for t in topics if t in self._aside.ids or self.view(t).topic_id is not None}

    def _put_aside(self, view: TopicView) -> None:
        assert view.topic_id is not None, "only views with an id are compared"
        self._aside[view.topic_id] = view.over(self._aside.get(view.topic_id))

    def confirm(self) -> None:
        """Note that the views in force are the source's current ones."""
        with self.turn:
            self._confirmed_s = self._clock.monotonic_s()
            error, self._error = self._error, None
            if error is not None:
                failing_s = self._confirmed_s - self._failing_since_s
                logger.warning("%s can be read again; reads failed for %.1f s", self._name, failing_s)
            self._begin()

    def _begin(self) -> None:
        """Note that views exist. The first call ends the clients' wait for views."""
        if not self.ready:
            self.ready = True
            self._waiting_over.set()
            self._call(self._listeners, self.views())

    def failed(self, error: ModeSourceError) -> None:
        """Note that the source fails; its views stay in force (invariant I6). Log only the first failure in a row."""
        with self.turn:
            self._failures += 1
            if self._error is None:
                self._failing_since_s = self._clock.monotonic_s()
                logger.warning("%s; the last views stay in force (%d topics)", error, len(self._in_force))
            self._error = without_frames(error)

    def expired(self) -> bool:
        """Return whether the views were last confirmed a TTL ago or more, or never."""
        return self._confirmed_s is None or self._clock.monotonic_s() - self._confirmed_s >= self._ttl_s

    def _call(self, listeners: Iterable[ViewListener], changed: Mapping[str, TopicView]) -> None:
        for listener in list(listeners):
            if listener not in self._listeners:  # a listener called before has removed this one
                continue
            try:
                listener(changed)
            except Exception:  # only this listener misses the change, until its topics change again
                logger.exception("a listener of partition modes failed: %r", listener)
