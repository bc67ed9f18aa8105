"""Waiting until the clients of a test know what the controller has decided."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from modeaware.config import split_client_config, with_process_settings
from modeaware.errors import ViewTimeout
from modeaware.views import registry


def catch_up(conf: Mapping[str, Any], timeout_s: float = 30.0) -> None:
    """Return when every client of ours in this process and on this cluster knows all changes of modes made so far.

    They learn them within milliseconds anyway, and an application needs no such call; a test that shrinks a topic and
    looks at the next record does. A consumer acts on what it knows in its next ``poll()``.

    Args:
        conf: a client's settings, in librdkafka's names and ours (``bootstrap.servers``, security settings, mode log).
        timeout_s: for all of it.

    Raises:
        ViewTimeout: there is no first view within that time.
        ModeSourceError: the source of the modes cannot be read, or not within that time.
        ConfigError: a setting of ours is unknown or has a bad value.
    """
    config, rest = split_client_config(with_process_settings(conf))
    deadline_s = time.monotonic() + timeout_s
    views = registry.acquire(rest, config)
    try:
        if not views.wait_ready(timeout_s):
            raise ViewTimeout(f"no view of the partition modes within {timeout_s} s: {views.error() or 'no answer'}")
        views.refresh(max(deadline_s - time.monotonic(), 0.0))
    finally:
        views.close()
