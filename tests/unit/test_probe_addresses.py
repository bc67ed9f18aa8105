"""A server's name and its addresses: how they are split and looked up, and what the one that hangs costs the others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from modeaware.errors import ConfigError
from modeaware.modelog.records import ClaimRecord
from modeaware.wire import client
from modeaware.wire.api_versions import Offer
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
        ],
    )
    def test_a_port_may_be_left_out(self, text: str, pair: Address) -> None:
        assert split_address(text, 9092) == pair

    @pytest.mark.parametrize("text", ["a:", "a:b", "a:65536", "a:-1", "[::1]:x"])
    def test_what_is_no_port_is_none(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not HOST:PORT"):
            split_address(text, 9092)

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


class TestAddresses:
    def test_the_next_one_is_tried_while_there_is_time(
        self, endpoint: FakeEndpoint, full: Address, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resolve(monkeypatch, full, ("127.0.0.1", endpoint.port))
        asked = ask(f"{NAME}:{endpoint.port}")
        assert asked.offers == {f"{NAME}:{endpoint.port}": Offer(modes=True, ours=True)}

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_only_of_the_family_that_is_wanted(self, endpoint: FakeEndpoint, host: str) -> None:
        server = f"{host}:{endpoint.port}"
        assert ask(server, **{"broker.address.family": "v6"}).offers == {}
        assert endpoint.connections == 0
        for family in ("V4", "any"):
            assert list(ask(server, **{"broker.address.family": family}).offers) == [server]
