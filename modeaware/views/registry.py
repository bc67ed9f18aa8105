"""The sharing of views: one source, with one thread, per process and cluster, for any number of clients.

Each client has a *handle* on its source. A source refers to its handles weakly, so a client that is dropped without
``close()`` does not keep the source alive. The source's thread ends with the last handle. In a forked child the
parent's threads do not run, so handles make a new source at their next use. The child does not touch the parent's
sources: it must neither destroy librdkafka's objects, nor end TLS connections that the parent uses.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from modeaware.callouts import InnerLock
from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.librdkafka import with_credentials
from modeaware.modelog.connection import cluster_key, shared_settings
from modeaware.modelog.records import ClaimRecord
from modeaware.topic_view import TopicView
from modeaware.views.choice import ModeSource
from modeaware.views.source import MAX_ID_AGE_S, ViewListener, Views
from modeaware.wire.retries import Deadline
from modeaware.wire.security import bootstrap_servers

STOP_TIMEOUT_S = 0.3
"""How long the last handle's close() waits for the source's thread. A thread that waits for a broker may end later."""
EXIT_TIMEOUT_S = 1.0


def acquire(conf: Mapping[str, Any], config: ClientConfig) -> Views:
    """Return a handle on the views of the cluster that ``conf`` names. Never blocks; thread-safe.

    Clients with the same bootstrap servers (in any order), security settings, mode source and mode log share one
    source. All other settings of the source are those of its first client. The source stops when the last handle is
    closed or dropped.

    Args:
        conf: the client's librdkafka settings, without ``modeaware.`` settings.
        config: the client's ``modeaware.`` settings.
    """
    return _Handle(conf, config)


@dataclass(frozen=True)
class Source:
    """One source of views that clients of this process use now.

    Attributes:
        cluster: the bootstrap servers of the first client.
        mode_log: the topic of the mode log.
        clients: how many clients share the source.
        stats: the result of :meth:`Views.stats`.
        views: the result of :meth:`Views.views`.
    """

    cluster: str
    mode_log: str
    clients: int
    stats: Mapping[str, Any]
    views: Mapping[str, TopicView]


def sources() -> list[Source]:
    """Return the sources that clients of this process use now, for metrics. Thread-safe; does no IO."""
    with _registry.lock:
        in_use = list(_registry.shared.values())
    return [
        Source(shared.cluster, shared.mode_log, len(shared.users), shared.source.stats(), shared.source.store.views())
        for shared in in_use
    ]


class _Shared:
    """A source and the handles that use it."""

    def __init__(self, key: Hashable, conf: Mapping[str, Any], config: ClientConfig) -> None:
        self._key = key
        self.cluster, self.mode_log = bootstrap_servers(conf), config.mode_log_topic
        self.users: weakref.WeakSet[_Handle] = weakref.WeakSet()
        self.source = ModeSource(
            conf, config, lambda: bool(self.users) or not self.retire_unless_used(), groups=self.groups
        )

    def groups(self) -> set[str]:
        """Return the groups of the consumers that use the source."""
        with _registry.lock:
            return {handle.group for handle in self.users if handle.group}

    def leave(self, handle: _Handle) -> None:
        """Note that the handle does not use the source any more."""
        with _registry.lock:
            self.users.discard(handle)

    def retire_unless_used(self) -> bool:
        """If no handle uses the source, remove it from the registry, so that the next acquire() makes a new one. Return
        whether it was removed."""
        with _registry.lock:
            if self.users:
                return False
            if _registry.shared.get(self._key) is self:
                del _registry.shared[self._key]
            return True


class _Registry:
    """The sources of this process, by cluster."""

    def __init__(self) -> None:
        self.lock = InnerLock()  # re-entrant: garbage collection may finalize a handle at any point
        self.shared: dict[Hashable, _Shared] = {}
        self.handles: weakref.WeakSet[_Handle] = weakref.WeakSet()
        self._parents: list[_Shared] = []
        self._exiting = False

    def enter(self, handle: _Handle, conf: Mapping[str, Any], config: ClientConfig) -> _Shared:
        key = (cluster_key(conf, config.mode_log_topic), config.mode_source)
        with self.lock:
            shared = self.shared.get(key)
            if shared is None:
                shared = _Shared(key, conf, config)
                shared.users.add(handle)
                self._start(shared.source)  # before it is registered: if no thread starts, the next client tries again
                self.shared[key] = shared
            for other in self.shared.values():
                if other is not shared:
                    other.users.discard(handle)  # if no users remain, the other source's thread ends
            shared.users.add(handle)
            self.handles.add(handle)
            return shared

    def _start(self, source: ModeSource) -> None:
        """Start a source; at the interpreter's exit stop it at once."""
        if not self._exiting:
            try:
                source.start()
            except RuntimeError:
                if threading.main_thread().is_alive():
                    raise
                self._exiting = True  # Python 3.12 and later start no thread for exit handlers
        if self._exiting:
            source.stop(0)

    def stop_all(self) -> None:
        """Stop all sources at the interpreter's exit, when no thread of ours may be inside librdkafka any more."""
        with self.lock:
            self._exiting = True
            sources = [shared.source for shared in self.shared.values()]
            self.shared.clear()
        for source in sources:
            source.stop(0)
        for source in sources:
            source.stop(EXIT_TIMEOUT_S / len(sources))

    def forget_parent(self) -> None:
        """Drop the parent's sources in a forked child."""
        self.lock = InnerLock()
        self._parents.extend(self.shared.values())
        self.shared = {}
        for handle in list(self.handles):
            handle.forget_parent()


class _Handle:
    """One client's share of a source; see ``Views``. After close() the handle still returns the last views.

    Attributes:
        group: the client's ``group.id``, or "" if it has none.
    """

    def __init__(self, conf: Mapping[str, Any], config: ClientConfig) -> None:
        # Only the settings that clients share: a source may outlive a client, and must not keep its callbacks alive.
        self._conf = {**shared_settings(conf), "client.id": conf.get("client.id")}
        self._config = replace(config, resize_callback=None)
        self.group = str(conf.get("group.id") or "")
        self._listeners: list[ViewListener] = []
        self._in_use: set[str] = set()
        self._closed = False
        self._lock = InnerLock()  # held while the handle changes its source, or adds a listener
        self._shared: _Shared | None = None  # None after a fork, until the handle is used
        self._source()

    def wait_ready(self, timeout_s: float) -> bool:
        deadline = Deadline(timeout_s)
        while True:
            source = self._source()
            if source.store.wait_ready(deadline.left_s()) or source is self._source():
                return source.store.ready

    @property
    def ready(self) -> bool:
        return self._source().store.ready

    @property
    def ended(self) -> bool:
        return self._closed or self._source().ended

    def view(self, topic: str) -> TopicView:
        return self._source().store.view(topic)

    def views(self) -> Mapping[str, TopicView]:
        return self._source().store.views()

    def recorded(self, topics: Iterable[str]) -> set[str]:
        return self._source().store.recorded(topics)

    def claim(self) -> ClaimRecord | None:
        return self._source().claim()

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        return self._source().log.removed(topic_ids)

    def refresh(self, timeout_s: float) -> None:
        if self._closed:
            raise ModeSourceError("mode log: the handle is closed")
        self._source().store.refresh(timeout_s)

    def refresh_soon(self) -> None:
        if not self._closed:
            self._source().refresh_soon()

    def verify(self, topics: Iterable[str], timeout_s: float, max_age_s: float = MAX_ID_AGE_S) -> frozenset[str]:
        if self._closed:
            return frozenset()
        names = set(topics)
        self._in_use |= names
        return self._source().checks.verify(names, timeout_s, max_age_s)

    def live_id(self, topic: str, timeout_s: float) -> str | None:
        return None if self._closed else self._source().checks.live_id(topic, timeout_s)

    def subscribe(self, listener: ViewListener) -> None:
        if self._closed:
            return
        with self._lock:
            source = self._source()
            self._listeners.append(listener)
            source.store.subscribe(listener)

    def unsubscribe(self, listener: ViewListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            if self._shared is not None:
                self._shared.source.store.unsubscribe(listener)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        with self._lock:
            self._conf = with_credentials(self._conf, username, password)
            if self._shared is not None and not self._closed:  # if None, the next use connects with the new credentials
                self._move()

    def error(self) -> Exception | None:
        return self._source().error()

    def stats(self) -> dict[str, Any]:
        shared = self._shared
        return {**self._source().stats(), "clients": 0 if shared is None else len(shared.users)}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        shared = self._shared
        if shared is None:
            return
        for listener in self._listeners:
            shared.source.store.unsubscribe(listener)
        self._listeners.clear()
        shared.leave(self)
        if shared.retire_unless_used():
            shared.source.stop(STOP_TIMEOUT_S)

    def forget_parent(self) -> None:
        self._lock = InnerLock()
        if not self._closed:
            self._shared = None

    def _source(self) -> ModeSource:
        shared = self._shared
        if shared is None:
            with self._lock:
                shared = self._shared or self._move()
        return shared.source

    def _move(self) -> _Shared:
        """Continue with the source for the present settings, while the lock is held. Listeners are called with the new
        source's views."""
        before, after = self._shared, _registry.enter(self, self._conf, self._config)
        if after is before:
            return after
        listeners, had = list(self._listeners), set[str]()
        if before is not None:
            with before.source.store.turn:  # while this is held, the former source calls no listener
                had.update(before.source.store.views())
                for listener in listeners:
                    before.source.store.unsubscribe(listener)
            after.source.store.continue_from(before.source.store)
        self._shared = after
        if self.group:
            after.source.refresh_soon()  # a server returns open gates only for the groups that the request names
        after.source.checks.use(self._in_use)
        for listener in listeners:
            after.source.store.subscribe(listener, had)
        # close() and unsubscribe() take no lock. They note their change before they read the handle's source, so the
        # change is visible here.
        for listener in listeners:
            if self._closed or listener not in self._listeners:
                after.source.store.unsubscribe(listener)
        if self._closed:
            after.leave(self)
        return after


_registry = _Registry()
atexit.register(_registry.stop_all)
os.register_at_fork(after_in_child=_registry.forget_parent)
