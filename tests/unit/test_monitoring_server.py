"""The HTTP server of a controller: what it answers, and that nobody can do it harm."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http import HTTPStatus

import pytest

from modeaware.cli import controller, main
from modeaware.errors import ConfigError
from modeaware.monitoring import server as serving
from modeaware.monitoring.server import Answer, MonitoringServer
from tests.support.waiting import eventually


def hello(path: str, accept: str) -> Answer | None:
    if path == "/fails":
        raise ZeroDivisionError(path)
    return Answer(HTTPStatus.OK, "text/plain", f"{accept}".encode()) if path == "/hello" else None


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that a connection has in all is one test's subject."""
    monkeypatch.setattr(serving, "CONNECTION_S", 100.0)


@pytest.fixture(scope="module")
def server() -> Iterator[MonitoringServer]:
    made = MonitoringServer("127.0.0.1:0", hello)
    made.start()
    yield made
    made.stop()


def ask(server: MonitoringServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    with closing(http.client.HTTPConnection(server.address, timeout=60)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())


def connected(server: MonitoringServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=60)


def test_other_hosts_reach_it_by_name_where_it_serves_all_interfaces(server: MonitoringServer) -> None:
    assert server.reachable_address == server.address
    every = MonitoringServer("0.0.0.0:0", hello)
    every.start()
    try:
        assert every.reachable_address == f"{socket.gethostname()}:{every.address.rpartition(':')[2]}"
    finally:
        every.stop()


def test_a_page_with_strict_headers(server: MonitoringServer) -> None:
    status, body, headers = ask(server, "/hello?more=1", Accept="text/plain")
    assert (status, body) == (200, b"text/plain")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Python" not in headers["Server"]
    assert ask(server, "/hello", "HEAD")[:2] == (200, b"")
    status, body, headers = ask(server, "/<script>")
    assert (status, b"script" in body) == (404, False)
    assert headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("[::1]:9404", 200),
        ("a.localhost", 200),
        ("10.1.2.3", 200),
        ("evil.example:9404", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil", 421),
        ("[x", 421),
    ],
)
def test_on_the_loopback_interface_only_an_address_will_do(server: MonitoringServer, host: str, status: int) -> None:
    """DNS rebinding: a page of anybody's, whose name is resolved to 127.0.0.1 in a browser on this machine."""
    found, body, _ = ask(server, "/hello", Host=host)
    assert found == status
    assert b"evil" not in body


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(server: MonitoringServer, method: str) -> None:
    status, body, headers = ask(server, "/hello", method)
    assert status == 501
    assert body == b"501 Not Implemented\n"
    assert "Content-Security-Policy" in headers


def test_a_page_that_fails_ends_one_connection(server: MonitoringServer, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/fails")
    assert "bug in modeaware" in caplog.text
    assert ask(server, "/hello")[0] == 200


@pytest.mark.parametrize(
    "rubbish", [b"\x16\x03\x01\x00\n\n", b"GET /hello\r\n\r\n", b"GET " + b"x" * 70_000 + b"\r\n\r\n"]
)
def test_rubbish_gets_an_end(server: MonitoringServer, rubbish: bytes) -> None:
    with connected(server) as raw:
        raw.sendall(rubbish)
        raw.shutdown(socket.SHUT_WR)
        try:
            while raw.recv(4096):
                pass
        except ConnectionResetError:
            pass  # it has not read all of it: as good an end
    assert ask(server, "/hello")[0] == 200


def test_slow_clients_make_room_for_others(server: MonitoringServer) -> None:
    """More connections than there may be, none of which ever says anything: the oldest ones are closed."""
    slow = [connected(server) for _ in range(serving.MAX_CONNECTIONS + 3)]
    try:
        assert [one.recv(1) for one in slow[:3]] == [b""] * 3
        assert ask(server, "/hello")[0] == 200
    finally:
        for one in slow:
            one.close()


def test_a_connection_has_a_time_in_all(server: MonitoringServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly its head comes in: each byte of it would begin a silence anew."""
    monkeypatch.setattr(serving, "CONNECTION_S", 0.0)
    with connected(server) as slow:
        slow.sendall(b"GET /hel")
        with suppress(ConnectionResetError):  # an end, too
            assert slow.recv(1) == b""


def test_address_that_cannot_be_used_is_named(
    server: MonitoringServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=f"--http {server.address}: cannot listen there: .*in use.* Name another"):
        MonitoringServer(server.address, hello).start()
    monkeypatch.setattr(controller, "connection", None)  # calling it would fail
    assert main(["controller", "--bootstrap-server", "127.0.0.1:1", "--http", "127.0.0.1:x"]) == 1
    assert "--http: '127.0.0.1:x' is not HOST:PORT" in capsys.readouterr().err


def test_a_stop_ends_open_connections_and_threads() -> None:
    before = set(threading.enumerate())
    server = MonitoringServer("127.0.0.1:0", hello)
    server.start()
    ask(server, "/hello")
    with connected(server) as open_one:
        open_one.sendall(b"GET /hel")
        server.stop()
        server.stop()
        with suppress(ConnectionResetError):  # not all of it was read: an end, too
            assert open_one.recv(1) == b""
    eventually(lambda: set(threading.enumerate()) <= before)
