"""The endpoint dies, comes back, and is another controller's: views stay, say so, and follow again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeaware.config import ClientConfig, ControllerConfig
from modeaware.controller.daemon import Controller
from modeaware.errors import ErrorCode, ModeSourceError
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.views import registry
from modeaware.views.source import Views
from tests.conftest import MakeTopic
from tests.support.controlled import INTERVAL_MS, QUIET_MS, Controlled
from tests.support.endpoint import free_port
from tests.support.takeover import ControllerProcess
from tests.support.waiting import eventually

REFRESH_MS = 200


class Place:
    """A port of the loopback interface, and the controllers that take turns at it."""

    def __init__(self, setting: Controlled) -> None:
        self._setting = setting
        self.address = f"127.0.0.1:{free_port()}"
        self.controller: Controller | None = None

    def start(self) -> Controller:
        config = ControllerConfig(
            check_interval_ms=INTERVAL_MS,
            seal_quiet_ms=QUIET_MS,
            session_timeout_ms=3_000,
            mode_log_topic=self._setting.log,
        )
        self.controller = Controller(self._setting.conf, config, listen=self.address)
        self._setting.started.append(self.controller)
        self.controller.start()
        return self.controller

    def stop(self) -> None:
        assert self.controller is not None
        self.controller.stop()


@pytest.fixture
def make_views(setting: Controlled) -> Iterator[Callable[..., Views]]:
    """``make(source, *servers)``: a client's views, ready."""
    made: list[Views] = []

    def make(source: str, *servers: str) -> Views:
        config = ClientConfig(mode_source=source, refresh_interval_ms=REFRESH_MS, mode_log_topic=setting.log)
        made.append(registry.acquire({"bootstrap.servers": ",".join(servers)}, config))
        assert made[-1].wait_ready(30)
        return made[-1]

    yield make
    for views in made:
        views.close()


def change(controller: Controller, topic: str, count: int) -> None:
    """Leave ``count`` writable partitions, once the change before is done."""
    shrink, grow = DeletePartitionsCommand(topic, count), CreatePartitionsCommand(topic, count)

    def done() -> bool:
        (result,) = controller.submit([grow if count == 6 else shrink]).result(40)
        assert result.code is ErrorCode.NONE, result
        return True

    eventually(done)


def writable(views: Views, topic: str) -> int:
    return len(views.view(topic).writable)


def test_it_hangs_and_is_killed(
    setting: Controlled, make_topic: MakeTopic, make_views: Callable[..., Views], tmp_path: Path
) -> None:
    address, topic = f"127.0.0.1:{free_port()}", make_topic(6)
    config = {"modeaware.controller.session.timeout.ms": 3_000}
    active = setting.start(session_timeout_ms=3_000)
    change(active, topic, 4)
    process = ControllerProcess(setting.conf, setting.log, tmp_path, listen=address, **config)
    try:
        views = make_views("wire", address)
        assert writable(views, topic) == 4
        process.pause()
        error = eventually(views.error)
        assert isinstance(error, ModeSourceError)
        change(active, topic, 3)
        assert writable(views, topic) == 4
        process.resume()
        eventually(lambda: writable(views, topic) == 3)
        eventually(lambda: views.error() is None)
        process.kill()
        eventually(views.error)
        change(active, topic, 2)
        assert writable(views, topic) == 3
        process = ControllerProcess(setting.conf, setting.log, tmp_path, listen=address, **config)
        eventually(lambda: writable(views, topic) == 2)
        eventually(lambda: views.error() is None)
    finally:
        process.kill()


def test_auto_goes_to_the_log_and_back(
    setting: Controlled, make_topic: MakeTopic, make_views: Callable[..., Views]
) -> None:
    """The brokers are among the bootstrap servers, so while no endpoint answers the log tells changes."""
    place, other, topic = Place(setting), setting.start(session_timeout_ms=3_000), make_topic(6)
    change(other, topic, 5)
    place.start()
    views = make_views("auto", place.address, setting.servers)
    eventually(lambda: views.stats()["source"] == "wire")
    place.stop()
    eventually(lambda: views.stats()["source"] == "log")
    change(other, topic, 3)
    eventually(lambda: writable(views, topic) == 3)
    eventually(lambda: views.error() is None)
    place.start()
    eventually(lambda: views.stats()["source"] == "wire")
    change(other, topic, 2)
    eventually(lambda: writable(views, topic) == 2)
    assert views.stats()["server"] == place.address
