"""Views that a driver keeps for its next question: each micro-batch asks, and a first view costs a quarter second."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping
from typing import Any

from modeaware.config import ClientConfig
from modeaware.modelog.connection import cluster_key
from modeaware.views.registry import acquire
from modeaware.views.source import Views

IDLE_S = 60.0
"""How long after the last question the source is left running."""

_lock = threading.Lock()
_kept: dict[Hashable, _Kept] = {}


def kept_views(conf: Mapping[str, Any], config: ClientConfig) -> Views:
    """The views of the cluster that ``conf`` names: a share of the process's one source. Do not close it. Thread-safe.

    Args:
        conf: librdkafka's settings, without ours.
        config: ours.
    """
    key = (cluster_key(conf, config.mode_log_topic), config.mode_source)
    with _lock:
        kept = _kept.get(key)
        if kept is None:
            kept = _kept[key] = _Kept(key, acquire(conf, config))
        kept.asked_s = time.monotonic()
        return kept.views


def release_kept() -> None:
    """Close all of them now."""
    with _lock:
        all_kept = list(_kept.values())
        _kept.clear()
    for kept in all_kept:
        kept.timer.cancel()
        kept.views.close()


class _Kept:
    def __init__(self, key: Hashable, views: Views) -> None:
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
            if _kept.get(self.key) is not self:
                return
            left_s = self.asked_s + IDLE_S - time.monotonic()
            if left_s > 0:
                self.timer = self._look_in(left_s)
                return
            del _kept[self.key]
        self.views.close()
