"""A server's name and its addresses: how they are split and looked up, and what the one that hangs costs the others."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

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


class TestLookUp:
    def test_nobody_waits_for_a_name(self, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_up, go_on = threading.Event(), threading.Event()
        real = socket.getaddrinfo

        def look_up(host: Any, *arguments: Any, flags: int = 0) -> Any:
            if flags & socket.AI_NUMERICHOST:
                raise socket.gaierror(socket.EAI_NONAME, "it is a name")
            go_on.wait(60)
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
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_only_of_the_family_that_is_wanted(self, endpoint: FakeEndpoint, host: str) -> None:
        server = f"{host}:{endpoint.port}"
        assert ask(server, **{"broker.address.family": "v6"}).offers == {}
        assert endpoint.connections == 0
        for family in ("V4", "any"):
            assert list(ask(server, **{"broker.address.family": family}).offers) == [server]
