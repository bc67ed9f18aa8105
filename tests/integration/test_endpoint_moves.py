"""The endpoint dies, comes back, and is another controller's: views stay, say so, and follow again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
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


class Place:
    """One address, where controllers run as processes, one after the other; and views of clients."""

    def __init__(self, setting: Controlled, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._setting, self._folder = setting, folder
        self._processes: list[ControllerProcess] = []
        self._views: list[Views] = []

    def start(self) -> ControllerProcess:
        config = {"modeaware.controller.session.timeout.ms": 3_000}
        log, folder = self._setting.log, self._folder
        self._processes.append(ControllerProcess(self._setting.conf, log, folder, listen=self.address, **config))
        return self._processes[-1]

    def views(self, source: str, *more_servers: str) -> Views:
        """A client's, ready."""
        config = ClientConfig(mode_source=source, refresh_interval_ms=200, mode_log_topic=self._setting.log)
        servers = ",".join((self.address, *more_servers))
        self._views.append(registry.acquire({"bootstrap.servers": servers}, config))
        assert self._views[-1].wait_ready(30)
        return self._views[-1]

    def close(self) -> None:
        for views in self._views:
            views.close()
        for process in self._processes:
            process.kill()


@pytest.fixture
def place(setting: Controlled, tmp_path: Path) -> Iterator[Place]:
    with closing(Place(setting, tmp_path)) as made:
        yield made


def shrink(setting: Controlled, topic: str, count: int) -> None:
    setting.shrink(topic, count)
    setting.wait_done(topic)


def writable(views: Views, topic: str) -> int:
    return len(views.view(topic).writable)


def test_it_hangs_and_is_killed(setting: Controlled, make_topic: MakeTopic, place: Place) -> None:
    topic = make_topic(6)
    setting.start(session_timeout_ms=3_000)
    shrink(setting, topic, 4)
    process = place.start()
    views = place.views("wire")
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
    place.start()
    eventually(lambda: writable(views, topic) == 2)
    eventually(lambda: views.error() is None)


def test_auto_goes_to_the_log_and_back(setting: Controlled, make_topic: MakeTopic, place: Place) -> None:
    """The brokers are among the bootstrap servers, so while no endpoint answers the log tells changes."""
    topic = make_topic(6)
    setting.start(session_timeout_ms=3_000)
    shrink(setting, topic, 5)
    process = place.start()
    views = place.views("auto", setting.servers)
    eventually(lambda: views.stats()["source"] == "wire")
    process.send_sigterm()
    assert process.wait(30) == 0
    eventually(lambda: views.stats()["source"] == "log")
    shrink(setting, topic, 3)
    eventually(lambda: writable(views, topic) == 3)
    eventually(lambda: views.error() is None)
    place.start()
    eventually(lambda: views.stats()["source"] == "wire")
    shrink(setting, topic, 2)
    eventually(lambda: writable(views, topic) == 2)
    assert views.stats()["server"] == place.address
