"""Starting and stopping a controller whose thread does as the test says."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from modeaware.config import ControllerConfig
from modeaware.controller import daemon as daemon_module
from modeaware.controller.daemon import Controller
from modeaware.controller.lease import LeasedEffects, request_timeout_s
from modeaware.controller.status import Role
from modeaware.errors import ClusterError, ConfigError
from modeaware.lifecycle.commands import CommandResult, DeletePartitionsCommand
from modeaware.wire.brokers.client import REQUEST_TIMEOUT_S

CONF = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_what_the_thread_finishes_last_is_still_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener stays until the thread has ended."""
    order: list[str] = []

    class Listener(daemon_module.Listener):
        def stop(self) -> None:
            order.append("listener")
            super().stop()

    def thread(worker: Any, status: Any, inbox: Any) -> None:
        status.become(Role.ACTIVE, 1)
        job = None
        while job is None:
            job = inbox.take(0.05)
        status.stopping.wait(30)
        job.carry_out(lambda command: CommandResult(command.topic))
        order.append("thread")

    monkeypatch.setattr(daemon_module, "Listener", Listener)
    monkeypatch.setattr(daemon_module, "run_worker", thread)
    controller = Controller(CONF, ControllerConfig())
    controller.start()
    answer: Future[list[CommandResult]] = controller.submit([DeletePartitionsCommand("orders", 1)])
    controller.stop()
    assert order == ["thread", "listener"]
    assert answer.result(0)[0].topic == "orders"


def test_a_start_that_takes_too_long_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def thread(worker: Any, status: Any, inbox: Any) -> None:
        status.trouble = "the coordinator is away"
        status.stopping.wait(30)

    monkeypatch.setattr(daemon_module, "run_worker", thread)
    monkeypatch.setattr(daemon_module, "START_TIMEOUT_S", 0.05)
    controller = Controller(CONF, ControllerConfig(), listen=None)
    with pytest.raises(ClusterError, match=r"no election of a controller within 0\.05 s: the coordinator is away"):
        controller.start()


def test_a_setting_that_librdkafka_does_not_take() -> None:
    with pytest.raises(ConfigError, match=r"client settings: .*no\.such\.setting"):
        Controller({**CONF, "no.such.setting": 1}, ControllerConfig()).start()


@pytest.mark.parametrize("session_ms", [1_000, 5_000, 8_000])
def test_what_only_a_leader_may_send_has_no_longer_than_its_session(session_ms: int) -> None:
    """A request may be sent until its time is over."""
    parts = Controller(CONF, ControllerConfig(session_timeout_ms=session_ms))._parts()
    leased, observed = parts.engine._effects, parts.engine._observer
    assert isinstance(leased, LeasedEffects)
    assert leased._effects.brokers._timeout_s == request_timeout_s(session_ms) <= REQUEST_TIMEOUT_S
    assert observed._cluster.brokers._timeout_s == REQUEST_TIMEOUT_S, "a look may take its time"
