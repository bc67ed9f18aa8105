"""Starting and stopping a controller whose thread does as the test says, and the settings of its endpoint."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.cluster.cluster import Cluster
from modeaware.config import ClientConfig, ControllerConfig, parse_controller_config
from modeaware.controller import daemon as daemon_module
from modeaware.controller.daemon import Controller
from modeaware.controller.election import request_timeout_s
from modeaware.controller.log import Contact
from modeaware.controller.status import Role
from modeaware.endpoint import server as server_module
from modeaware.endpoint.turns import Turns
from modeaware.errors import ClusterError, ConfigError, ControllerUnavailable
from modeaware.lifecycle.commands import CommandResult, DeletePartitionsCommand
from modeaware.modelog.records import ClaimRecord
from modeaware.views import registry
from modeaware.wire.brokers import REQUEST_TIMEOUT_S
from tests.support.fake_views import FakeViews

CONF = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.fixture
def contacts(monkeypatch: pytest.MonkeyPatch) -> list[Contact]:
    """What workers were to claim with. Each stands by until it is stopped."""
    contacts: list[Contact] = []

    def worker(*parts: Any) -> Any:
        contacts.append(parts[7])
        return SimpleNamespace(claims=None)

    def thread(worker: Any, status: Any, inbox: Any) -> None:
        status.become(Role.STANDBY)
        status.stopping.wait(30)

    monkeypatch.setattr(daemon_module, "Worker", worker)
    monkeypatch.setattr(daemon_module, "run_worker", thread)
    return contacts


def test_what_the_thread_finishes_last_is_still_answered(monkeypatch: pytest.MonkeyPatch, views: FakeViews) -> None:
    """The endpoint stays until the thread has ended, and what it asks until the endpoint has."""
    order: list[str] = []

    class Server(daemon_module.Server):
        def stop(self) -> None:
            assert not views.closed
            order.append("endpoint")
            super().stop()

    def thread(worker: Any, status: Any, inbox: Any) -> None:
        status.become(Role.ACTIVE, 1)
        job = None
        while job is None:
            job = inbox.take(0.05)
        status.stopping.wait(30)
        (command,) = job.begin(0.0)
        job.end([CommandResult(command.topic)])
        job.finish()
        order.append("thread")

    monkeypatch.setattr(daemon_module, "Server", Server)
    monkeypatch.setattr(daemon_module, "run_worker", thread)
    controller = Controller(CONF, ControllerConfig())
    controller.start()
    answer: Future[list[CommandResult]] = controller.submit([DeletePartitionsCommand("orders", 1)])
    controller.stop()
    assert order == ["thread", "endpoint"]
    assert views.closed
    assert answer.result(0)[0].topic == "orders"


def test_an_endpoint_that_cannot_listen_leaves_nothing_behind(contacts: list[Contact], views: FakeViews) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        controller = Controller(CONF, ControllerConfig(), listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConfigError, match="cannot listen on"):
            controller.start()
    assert (contacts, views.closed, views.listener_count) == ([], True, 0)


def test_a_start_that_takes_too_long_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def thread(worker: Any, status: Any, inbox: Any) -> None:
        status.trouble = "the coordinator is away"
        status.stopping.wait(30)

    monkeypatch.setattr(daemon_module, "run_worker", thread)
    monkeypatch.setattr(daemon_module, "START_TIMEOUT_S", 0.05)
    controller = Controller(CONF, ControllerConfig(), listen=None)
    with pytest.raises(ClusterError, match=r"no controller was elected within 0\.05 s: the coordinator is away"):
        controller.start()


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (None, "no controller has claimed the mode log yet"),
        (ClaimRecord(3, None, "c-1", host="h"), r"c-1 on host h \(epoch 3\), has stopped"),
    ],
)
def test_standby_that_is_not_elected_names_the_last_claim_and_stops(
    contacts: list[Contact], monkeypatch: pytest.MonkeyPatch, claim: ClaimRecord | None, told: str
) -> None:
    monkeypatch.setattr(daemon_module, "Worker", lambda *_: SimpleNamespace(claims=SimpleNamespace(claim=claim)))
    controller = Controller(CONF, ControllerConfig(), listen=None)
    with pytest.raises(ControllerUnavailable, match=f"not elected within 0 s: .*{told}"):
        controller.start(wait_active_s=0)
    with pytest.raises(ControllerUnavailable, match="is stopping"):
        controller.submit([DeletePartitionsCommand("orders", 1)]).result(0)


@pytest.mark.parametrize("session_ms", [1_000, 8_000])
def test_requests_that_only_a_leader_may_send_time_out_within_its_session(
    contacts: list[Contact], monkeypatch: pytest.MonkeyPatch, session_ms: int
) -> None:
    class Spied(Cluster):
        def __init__(self, conf: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
            super().__init__(conf, timeout_s)
            self.timeout_s = timeout_s

    leased: list[float] = []
    monkeypatch.setattr(daemon_module, "Cluster", Spied)
    monkeypatch.setattr(daemon_module, "LeasedEffects", lambda effects, *_: leased.append(effects.timeout_s))
    controller = Controller(CONF, ControllerConfig(session_timeout_ms=session_ms), listen=None)
    controller.start()
    controller.stop()
    assert leased == [request_timeout_s(session_ms)]


def test_the_endpoint_reads_the_mode_log_as_the_controller(
    contacts: list[Contact], views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never over the wire: the bootstrap server may be this very endpoint."""
    asked: list[tuple[Any, Any]] = []
    monkeypatch.setattr(registry, "acquire", lambda conf, config: asked.append((conf, config)) or views)
    controller = Controller(CONF, ControllerConfig(mode_log_topic="modes"))
    controller.start()
    controller.stop()
    assert asked == [(CONF, ClientConfig(mode_log_topic="modes", mode_source="log"))]


@pytest.mark.parametrize("share", ["connection", "address"])
def test_endpoint_shares_its_time_as_the_setting_says(
    contacts: list[Contact], views: FakeViews, monkeypatch: pytest.MonkeyPatch, share: str
) -> None:
    by_address: list[bool] = []

    class Spied(Turns):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            by_address.append(kwargs["by_address"])

    monkeypatch.setattr(registry, "acquire", lambda conf, config: views)
    monkeypatch.setattr(server_module, "Turns", Spied)
    config = parse_controller_config({"modeaware.endpoint.share": share})
    controller = Controller(CONF, config)
    controller.start()
    controller.stop()
    assert by_address == [share == "address"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tls_key": "key.pem"}, "--tls-key needs --tls-certificate"),
        ({"tls_key": "key.pem", "listen": None}, "--tls-key needs --tls-certificate"),
        ({"tls_certificate": "both.pem", "listen": None}, "--tls-certificate: there is no endpoint"),
        ({"advertised": "modes.example:9690", "listen": None}, "--advertised-listener: there is no endpoint"),
        (
            {"advertised": "modes.example:9690", "tls_certificate": "c.pem", "tls_key": "k.pem", "listen": None},
            "--advertised-listener and --tls-certificate: there is no endpoint",
        ),
    ],
)
def test_what_would_be_passed_over_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Controller(CONF, ControllerConfig(), **settings)
    assert told in str(caught.value)
