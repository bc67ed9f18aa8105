"""A server's name and its addresses: how they are split and looked up, and what the one that hangs costs the others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from modeaware.errors import ClusterError, ConfigError
from modeaware.modelog.records import ClaimRecord
from modeaware.views.board import Board
from modeaware.views.wire_views import WireViews
from modeaware.wire import client, kip694, probe
from modeaware.wire.api_versions import Offer
from modeaware.wire.brokers.one import OneServer
from modeaware.wire.brokers.settings import kafka_python_settings
from modeaware.wire.client_tls import split_address
from modeaware.wire.probe import Round
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.waiting import eventually

NAME = "brokers.example.com"
Address = tuple[str, int]


def ask(*servers: str, **conf: str) -> Round:
    asked = Round({"bootstrap.servers": ",".join(servers), **conf})
    eventually(lambda: asked.step(0.05) or asked.done, interval_s=0)
    asked.close()
    return asked


@pytest.fixture
def full() -> Iterator[Address]:
    """An address that lets connections hang: its queue is full, and nobody takes any out."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address: Address = listener.getsockname()
        for _ in range(8):
            made = stack.enter_context(socket.socket())
            made.setblocking(False)
            made.connect_ex(address)
        yield address


def resolve(patch: pytest.MonkeyPatch, *addresses: Address) -> None:
    """``NAME`` has these addresses."""

    def look_up(*_: Any, flags: int = 0, **__: Any) -> list[Any]:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "it is a name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    patch.setattr(socket, "getaddrinfo", look_up)


class TestSplit:
    @pytest.mark.parametrize(
        ("text", "pair"),
        [
            ("a:1", ("a", 1)),
            ("a", ("a", 9092)),
            ("[::1]:1", ("::1", 1)),
            ("[::1]", ("::1", 9092)),
            (":1", ("", 1)),
        ],
    )
    def test_a_port_may_be_left_out(self, text: str, pair: Address) -> None:
        assert split_address(text, 9092) == pair

    @pytest.mark.parametrize("text", ["a:", "a:b", "a:65536", "a:-1", "[::1]:x"])
    def test_what_is_no_port_is_none(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not HOST:PORT"):
            split_address(text, 9092)

    @pytest.mark.parametrize("text", ["a", "[::1]", ""])
    def test_an_address_that_has_to_name_its_port(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not HOST:PORT"):
            split_address(text)

    def test_a_bad_one_among_others_is_named(self, endpoint: FakeEndpoint) -> None:
        asked = ask("a:65536", endpoint.address)
        assert list(asked.offers) == [endpoint.address]
        assert "is not HOST:PORT" in asked.failures["a:65536"]

    def test_a_security_protocol_that_is_none_is_told_before_anything_is_sent(self) -> None:
        claim = ClaimRecord(1, "127.0.0.1:1", "c")
        with pytest.raises(ConfigError, match=r"security\.protocol"):
            client.is_running({"security.protocol": "tls"}, claim)


class TestLookUp:
    def test_nobody_waits_for_a_name(self, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_up, go_on = threading.Event(), threading.Event()
        real = socket.getaddrinfo

        def look_up(host: Any, *arguments: Any, flags: int = 0) -> Any:
            if flags & socket.AI_NUMERICHOST:
                raise socket.gaierror(socket.EAI_NONAME, "it is a name")
            go_on.wait(5)
            looked_up.set()
            return real("127.0.0.1", *arguments)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        server = f"{NAME}:{endpoint.port}"
        asked = Round({"bootstrap.servers": server})
        for _ in range(3):
            asked.step(0.01)
        assert not looked_up.is_set()
        assert not asked.done
        go_on.set()
        eventually(lambda: asked.step(0.05) or asked.done, interval_s=0)
        assert asked.offers == {server: Offer(modes=True, ours=True)}

    def test_a_round_that_is_given_up_leaves_a_look_up_to_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        go_on = threading.Event()

        def look_up(*_: Any, flags: int = 0) -> Any:
            if not flags & socket.AI_NUMERICHOST:
                go_on.wait(30)
            raise socket.gaierror(socket.EAI_NONAME, "unknown")

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        asked = Round({"bootstrap.servers": f"{NAME}:1"})
        asked.step(0.0)
        asked.close()
        (thread,) = [thread for thread in threading.enumerate() if thread.name == probe.THREAD_NAME]
        go_on.set()
        thread.join(30)
        assert not thread.is_alive()

    def test_no_thread_for_it_is_a_failure_like_others(
        self, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = Round({"bootstrap.servers": f"{NAME}:1,{endpoint.address}"})
        start = threading.Thread.start
        with monkeypatch.context() as patch:

            def fail(thread: threading.Thread) -> None:
                if thread.name != probe.THREAD_NAME:  # the fake endpoint's
                    return start(thread)
                raise RuntimeError("can't start new thread")

            patch.setattr(threading.Thread, "start", fail)
            asked.step(0.0)
        assert "can't start new thread" in asked.failures[f"{NAME}:1"]
        eventually(lambda: asked.step(0.05) or asked.done, interval_s=0)
        assert list(asked.offers) == [endpoint.address]


class TestAddresses:
    def test_the_next_one_is_tried_while_there_is_time(
        self, endpoint: FakeEndpoint, full: Address, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resolve(monkeypatch, full, ("127.0.0.1", endpoint.port))
        asked = ask(f"{NAME}:{endpoint.port}")
        assert asked.offers == {f"{NAME}:{endpoint.port}": Offer(modes=True, ours=True)}

    def test_nobody_there_is_told_in_time(self, full: Address, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "TIMEOUT_S", 0.3)
        resolve(monkeypatch, full, full)
        assert "no answer within 0.3 s" in ask(f"{NAME}:1").failures[f"{NAME}:1"]

    def test_so_it_is_where_modes_are_asked_for(
        self, endpoint: FakeEndpoint, full: Address, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resolve(monkeypatch, full, ("127.0.0.1", endpoint.port))
        board = Board(lambda _topics, _timeout_s: (), 60_000)
        views = WireViews({}, board)
        views.point_to(f"{NAME}:{endpoint.port}", ours=True)
        views.fetch(4, fresh=True)
        assert len(endpoint.asked) == 1
        views.close()

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_only_of_the_family_that_is_wanted(self, endpoint: FakeEndpoint, host: str) -> None:
        server = f"{host}:{endpoint.port}"
        assert ask(server, **{"broker.address.family": "v6"}).offers == {}
        assert endpoint.connections == 0
        for family in ("V4", "any"):
            assert list(ask(server, **{"broker.address.family": family}).offers) == [server]

    def test_so_it_is_where_one_server_is_asked(self, endpoint: FakeEndpoint) -> None:
        server = f"localhost:{endpoint.port}"
        with pytest.raises(ClusterError):
            _modes({"broker.address.family": "v6"}, server)
        assert endpoint.connections == 0
        _modes({"broker.address.family": "v4"}, server)
        assert len(endpoint.asked) == 1


class TestClientId:
    @pytest.mark.parametrize(("conf", "told"), [({}, "modeaware"), ({"client.id": None}, "modeaware")])
    def test_one_server_is_asked_as_a_client(self, endpoint: FakeEndpoint, conf: dict[str, Any], told: str) -> None:
        assert _modes(conf, endpoint.address) == told
        assert _modes({**conf, "client.id": "shop"}, endpoint.address) == "shop"

    @pytest.mark.parametrize("conf", [{}, {"client.id": None}, {"client.id": ""}])
    def test_the_controller_is_the_controller(self, conf: dict[str, Any]) -> None:
        settings = kafka_python_settings({"bootstrap.servers": "a:1", **conf})
        assert settings["client_id"] == "modeaware-controller"


def _modes(conf: dict[str, Any], server: str) -> str | None:
    """Ask a server for all modes; the client id with which it was asked."""
    ids = []

    def encode(correlation_id: int, client_id: str | None) -> bytes:
        ids.append(client_id)
        return kip694.encode_modes_request(kip694.ModesRequest(topics=None), correlation_id, client_id)

    one = OneServer(conf, server)
    try:
        kip694.decode_modes_response(one.ask(kip694.METADATA_KEY, kip694.MODES_VERSION, encode, 4))
    finally:
        one.close()
    return ids[-1]
