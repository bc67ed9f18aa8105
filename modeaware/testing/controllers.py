"""A controller for the time of a test. Needs the extra ``controller`` (``testing`` has it)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from modeaware.config import ControllerConfig
from modeaware.controller.daemon import Controller

START_TIMEOUT_S = 60.0
QUICK = ControllerConfig(check_interval_ms=250, seal_quiet_ms=200, open_timeout_ms=5_000)
"""A shrink of an idle topic takes a second or two. For tests only: 200 ms of silence prove nothing in production."""


@contextmanager
def run_controller(
    bootstrap_servers: str, conf: Mapping[str, Any] | None = None, /, **configs: Any
) -> Iterator[Controller]:
    """An active controller, in threads of this process; stopped at the end.

    Args:
        bootstrap_servers: of the cluster.
        conf: more of librdkafka's settings, security settings for example.
        configs: fields of :class:`modeaware.config.ControllerConfig`; the others are :data:`QUICK`'s.

    Raises:
        ControllerUnavailable: another controller is active on that mode log.
        ClusterError, ModeSourceError: no broker, or the mode log or the election cannot be used.
    """
    settings = {**(conf or {}), "bootstrap.servers": bootstrap_servers}
    controller = Controller(settings, replace(QUICK, **configs))
    controller.start(wait_active_s=START_TIMEOUT_S)
    try:
        yield controller
    finally:
        controller.stop()
