"""The endpoint dies, comes back, and is another controller's: views stay, say so, and follow again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.views import registry
from modeaware.views.source import Views
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.endpoint import free_port
from tests.support.takeover import ControllerProcess
from tests.support.waiting import eventually


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def start_there(setting: Controlled, address: str, tmp_path: Path) -> Iterator[Callable[[], ControllerProcess]]:
    """Starts controllers as processes, one after the other at one address; killed with the test."""
    made: list[ControllerProcess] = []

    def start() -> ControllerProcess:
        config = {"modeaware.controller.session.timeout.ms": 3_000}
        made.append(ControllerProcess(setting.conf, setting.log, tmp_path, listen=address, **config))
        return made[-1]

    yield start
    for process in made:
        process.kill()


@pytest.fixture
def make_views(setting: Controlled) -> Iterator[Callable[..., Views]]:
    """``make(source, *servers)``: a client's views, ready."""
    made: list[Views] = []

    def make(source: str, *servers: str) -> Views:
        config = ClientConfig(mode_source=source, refresh_interval_ms=200, mode_log_topic=setting.log)
        made.append(registry.acquire({"bootstrap.servers": ",".join(servers)}, config))
        assert made[-1].wait_ready(30)
        return made[-1]

    yield make
    for views in made:
        views.close()


def shrink(setting: Controlled, topic: str, count: int) -> None:
    setting.shrink(topic, count)
    setting.wait_done(topic)


def writable(views: Views, topic: str) -> int:
    return len(views.view(topic).writable)


def test_it_hangs_and_is_killed(
    setting: Controlled,
    make_topic: MakeTopic,
    make_views: Callable[..., Views],
    start_there: Callable[[], ControllerProcess],
    address: str,
) -> None:
    topic = make_topic(6)
    setting.start(session_timeout_ms=3_000)
    shrink(setting, topic, 4)
    process = start_there()
    views = make_views("wire", address)
    assert writable(views, topic) == 4
    process.pause()
    error = eventually(views.error)
    assert isinstance(error, ModeSourceError)
    shrink(setting, topic, 3)
    assert writable(views, topic) == 4
    process.resume()
    eventually(lambda: writable(views, topic) == 3)
    eventually(lambda: views.error() is None)
    process.kill()
    eventually(views.error)
    shrink(setting, topic, 2)
    assert writable(views, topic) == 3
    start_there()
    eventually(lambda: writable(views, topic) == 2)
    eventually(lambda: views.error() is None)


def test_auto_goes_to_the_log_and_back(
    setting: Controlled,
    make_topic: MakeTopic,
    make_views: Callable[..., Views],
    start_there: Callable[[], ControllerProcess],
    address: str,
) -> None:
    """The brokers are among the bootstrap servers, so while no endpoint answers the log tells changes."""
    topic = make_topic(6)
    setting.start(session_timeout_ms=3_000)
    shrink(setting, topic, 5)
    process = start_there()
    views = make_views("auto", address, setting.servers)
    eventually(lambda: views.stats()["source"] == "wire")
    process.send_sigterm()
    assert process.wait(30) == 0
    eventually(lambda: views.stats()["source"] == "log")
    shrink(setting, topic, 3)
    eventually(lambda: writable(views, topic) == 3)
    eventually(lambda: views.error() is None)
    start_there()
    eventually(lambda: views.stats()["source"] == "wire")
    shrink(setting, topic, 2)
    eventually(lambda: writable(views, topic) == 2)
    assert views.stats()["server"] == address
