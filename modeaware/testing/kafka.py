"""Kafka for tests: librdkafka's mock broker, a controller in this process, and a wait for changes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from modeaware.config import ControllerConfig, split_client_config, with_process_settings
from modeaware.errors import LocalKafkaError, ViewTimeout
from modeaware.librdkafka import Producer
from modeaware.views import registry

if TYPE_CHECKING:
    from modeaware.controller.daemon import Controller

MOCK_START_TIMEOUT_S = 10.0
CONTROLLER_START_TIMEOUT_S = 60.0
QUICK = ControllerConfig(check_interval_ms=250, seal_quiet_ms=200, open_timeout_ms=5_000)
"""With these settings, a shrink of an idle topic takes a second or two. For tests only: elsewhere, 200 ms without
records do not show that all producers have stopped."""


class MockKafka:
    """librdkafka's mock broker (setting ``test.mock.num.brokers``) at an address of this machine. It needs no process
    and no Java, starts in milliseconds, and keeps records in memory until it is stopped. A context manager.

    The broker takes records, serves consumers and groups, and creates a topic of :data:`PARTITIONS` partitions when a
    producer first requests it. The broker answers no admin requests, and so has no modes: script modes with
    :class:`modeaware.testing.ScriptedModes`. Only for clients of librdkafka; kafka-python's cannot connect.
    """

    PARTITIONS = 4
    """How many partitions each topic has: librdkafka has no setting for it."""

    def __init__(self) -> None:
        self._host: Producer | None = None
        self.bootstrap_servers = ""
        """The value of ``bootstrap.servers``; empty while the mock broker does not run."""

    def start(self) -> Self:
        """Start the mock broker; without effect while it runs.

        Raises:
            LocalKafkaError: the mock broker has no address.
        """
        if self._host is not None:
            return self
        self._host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._host.list_topics(timeout=MOCK_START_TIMEOUT_S).brokers.values()
        if not brokers:
            raise LocalKafkaError("librdkafka's mock broker has no address")
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self

    def make_topic(self, topic: str) -> str:
        """Create ``topic``, so that a consumer finds it before the first record; without effect if it exists.

        Raises:
            LocalKafkaError: the mock broker does not run.
        """
        if self._host is None:
            raise LocalKafkaError(f"topic {topic!r} cannot be made: the mock broker does not run; call start() first")
        self._host.list_topics(topic, timeout=MOCK_START_TIMEOUT_S)
        return topic

    def stop(self) -> None:
        """Stop the mock broker; its records are lost. Idempotent."""
        host, self._host = self._host, None
        self.bootstrap_servers = ""
        if host is not None:
            host.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()


@contextmanager
def run_controller(
    bootstrap_servers: str, conf: Mapping[str, Any] | None = None, /, **configs: Any
) -> Iterator[Controller]:
    """Run an active controller in threads of this process, until the end of the block. Needs the extra ``controller``,
    which ``testing`` includes.

    Args:
        bootstrap_servers: the cluster's.
        conf: further settings of librdkafka, security settings for example.
        configs: fields of :class:`modeaware.config.ControllerConfig`; all other fields are those of :data:`QUICK`.

    Raises:
        ControllerUnavailable: another controller is active on the same mode log.
        ClusterError, ModeSourceError: no broker answers, or the mode log or the election cannot be used.
    """
    from modeaware.controller.daemon import Controller  # needs the extra ``controller``; the mock broker does not

    settings = {**(conf or {}), "bootstrap.servers": bootstrap_servers}
    controller = Controller(settings, replace(QUICK, **configs))
    controller.start(wait_active_s=CONTROLLER_START_TIMEOUT_S)
    try:
        yield controller
    finally:
        controller.stop()


def catch_up(conf: Mapping[str, Any], timeout_s: float = 30.0) -> None:
    """Return when every mode-aware client of the cluster in this process has all changes of modes made so far.

    Clients get changes within milliseconds, so applications need no such call. A test that shrinks a topic and checks
    the next record needs this call. A consumer applies the changes in its next ``poll()``.

    Args:
        conf: a client's settings (``bootstrap.servers``, security settings, mode log).
        timeout_s: the time limit of the whole call.

    Raises:
        ViewTimeout: the first views do not exist within ``timeout_s``.
        ModeSourceError: the source of the modes cannot be read within ``timeout_s``.
        ConfigError: a ``modeaware.`` setting is unknown or has a bad value.
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
