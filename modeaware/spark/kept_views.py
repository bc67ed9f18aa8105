"""Views that a driver keeps for its next question: every micro-batch asks twice, and a first view takes a quarter of a
second. While the mode log says nothing new, asking whether it has grown is one request."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Hashable, Mapping
from typing import Any

from modeaware.config import ClientConfig
from modeaware.librdkafka import Consumer, KafkaException, TopicPartition
from modeaware.modelog.connection import cluster_key, tail_conf
from modeaware.topic_view import TopicView
from modeaware.views.registry import acquire
from modeaware.views.source import VERIFY_TIMEOUT_S

IDLE_S = 60.0
"""How long after the last question they are kept."""
ASK_S = 2.0
_FETCH_WAIT_MS = 10


class KeptViews:
    """A share of the process's one source of views, and a connection to ask how long the mode log is. Thread-safe.

    Args:
        conf: librdkafka's settings, without ours.
        config: ours.
    """

    def __init__(self, conf: Mapping[str, Any], config: ClientConfig) -> None:
        self._views = acquire(conf, config)
        # What is committed may lie in front of its transaction's end for a moment: an end that is not decided counts.
        self._conf = {**tail_conf(conf, fetch_wait_ms=_FETCH_WAIT_MS), "isolation.level": "read_uncommitted"}
        self._log = TopicPartition(config.mode_log_topic, 0)
        self._lock = threading.Lock()
        self._asking: Consumer | None = None
        self._closed = False

    def wait_ready(self, timeout_s: float) -> bool:
        """As :meth:`modeaware.views.source.Views.wait_ready`."""
        return self._views.wait_ready(timeout_s)

    @property
    def ready(self) -> bool:
        """Whether the first view is there."""
        return self._views.ready

    def view(self, topic: str) -> TopicView:
        """The view in force."""
        return self._views.view(topic)

    def error(self) -> Exception | None:
        """Why the source cannot be read now."""
        return self._views.error()

    def refresh(self, timeout_s: float) -> None:
        """Return once the views include everything that was in the log when this was called.

        Raises:
            ModeSourceError: not within ``timeout_s``, or the source fails; the last views stay in force.
        """
        if not self._has_all():
            self._views.refresh(timeout_s)

    def verify(self, topic: str) -> None:
        """Let go a view of ``topic`` that is of another topic id than the live topic's; as
        :meth:`modeaware.views.source.Views.verify`."""
        self._views.verify([topic], VERIFY_TIMEOUT_S)

    def _has_all(self) -> bool:
        """Whether the views come from a log, and have all of it. Wherever that is in doubt: no."""
        with self._lock:
            if self._closed or not self._views.stats().get("log_present"):
                return False
            if self._asking is None:
                self._asking = Consumer(self._conf)
            try:
                marks: tuple[int, int] | None = self._asking.get_watermark_offsets(self._log, timeout=ASK_S)
            except KafkaException:  # for refresh to tell of
                return False
        told = self._views.stats()
        # Where it is told over the wire, the log is another's to read.
        return marks is not None and told["source"] == "log" and told["log_position"] == marks[1]

    def close(self) -> None:
        """Give both back."""
        with self._lock:
            self._closed = True
            asking, self._asking = self._asking, None
        self._views.close()
        if asking is not None:
            asking.close()


def kept_views(conf: Mapping[str, Any], config: ClientConfig) -> KeptViews:
    """The views of the cluster that ``conf`` names; do not close them. Thread-safe.

    Args:
        conf: librdkafka's settings, without ours.
        config: ours.
    """
    key = (cluster_key(conf, config.mode_log_topic), config.mode_source)
    with _lock:
        entry = _entries.get(key)
        if entry is None:
            entry = _entries[key] = _Entry(key, KeptViews(conf, config))
        entry.asked_s = time.monotonic()
        return entry.views


def release_kept() -> None:
    """Close all of them now."""
    with _lock:
        entries = list(_entries.values())
        _entries.clear()
    for entry in entries:
        entry.timer.cancel()
        entry.views.close()


class _Entry:
    """Closes its views when nobody has asked for a while."""

    def __init__(self, key: Hashable, views: KeptViews) -> None:
        self.key = key
        self.views = views
        self.asked_s = 0.0
        self.timer = self._look_in(IDLE_S)

    def _look_in(self, delay_s: float) -> threading.Timer:
        timer = threading.Timer(delay_s, self._look)
        timer.daemon = True
        timer.start()
        return timer

    def _look(self) -> None:
        with _lock:
            if _entries.get(self.key) is not self:
                return
            left_s = self.asked_s + IDLE_S - time.monotonic()
            if left_s > 0:
                self.timer = self._look_in(left_s)
                return
            del _entries[self.key]
        self.views.close()


_lock = threading.Lock()
_entries: dict[Hashable, _Entry] = {}
_of_parents: list[dict[Hashable, _Entry]] = []


def _forget_parent() -> None:
    """In a forked child: librdkafka's handles must not be destroyed there, so they are left as they lie."""
    global _lock, _entries
    _of_parents.append(_entries)
    _lock, _entries = threading.Lock(), {}


os.register_at_fork(after_in_child=_forget_parent)
