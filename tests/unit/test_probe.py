"""Asking servers whether they speak KIP-694's Metadata: bytes, names, and what servers do instead of answering."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from modeaware.errors import ModeSourceError
from modeaware.views import choice
from modeaware.views.choice import FIRST_BACKOFF_S, LAST_BACKOFF_S, FeatureProbe, ModesServer
from modeaware.wire import capabilities, codec, probe
from modeaware.wire.capabilities import Capabilities
from modeaware.wire.frames import MalformedFrame
from modeaware.wire.probe import Round
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.secured import make_certificate
from tests.support.simulated import SimClock
from tests.support.waiting import eventually

NONE, MODES, OURS = (False, False), (True, False), (True, True)
SPOKEN, FEATURE, IDENTITY = {3: (0, 10)}, {"partition.mode": (1, 1)}, capabilities.identity("c")


def said(found: Capabilities) -> tuple[bool, bool]:
    """Whether a server returns modes, and whether it is an endpoint of modeaware."""
    return found.modes, found.ours


def offers(asked: Round) -> dict[str, tuple[bool, bool]]:
    return {server: said(found) for server, found in asked.offers.items()}


def answer(**fields: object) -> bytes:
    named = {"error_code": 0, "api_keys": [(3, 0, 10), (18, 0, 4)], "supported_features": [("partition.mode", 1, 1)]}
    return codec.encode_response(codec.ApiVersionsResponse(**{**named, **fields}), 3, 7)


def ask(*servers: str, **conf: str) -> Round:
    asked = Round({"bootstrap.servers": ",".join(servers), **conf})
    eventually(lambda: asked.step(0.05) or asked.done, interval_s=0)
    asked.close()
    return asked


class TestBytes:
    def test_the_request_is_what_a_server_reads(self) -> None:
        header, request = codec.decode_request(capabilities.request(7, "1.2.3"))
        assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 3, 7, "modeaware")
        assert (request.client_software_name, request.client_software_version) == ("modeaware", "1.2.3")

    @pytest.mark.parametrize(
        ("fields", "found"),
        [
            ({}, MODES),
            ({"supported_features": [("kraft.version", 0, 1), ("partition.mode", 1, 2), (IDENTITY, 1, 1)]}, OURS),
            ({"finalized_features_epoch": 3, "finalized_features": [("a", 1, 0)]}, MODES),
            ({"supported_features": []}, NONE),
            ({"supported_features": [("partition.mode", 2, 3)]}, NONE),
            ({"api_keys": [(3, 0, 9)]}, NONE),
        ],
    )
    def test_features_tell_what_a_server_is(self, fields: dict[str, object], found: tuple[bool, bool]) -> None:
        assert said(capabilities.read(answer(**fields), 7)) == found

    def test_every_cut_is_noticed(self) -> None:
        whole = answer(finalized_features=[("a", 1, 0)])
        for length in range(len(whole)):
            with pytest.raises(MalformedFrame):
                capabilities.read(whole[:length], 7)

    @pytest.mark.parametrize(
        ("spoil", "why"),
        [
            (lambda whole: whole + b"\0", "1 bytes too many"),
            (lambda whole: b"\0\0\0\x08" + whole[4:], "a response to request 8, not to 7"),
            (lambda whole: whole[:6] + b"\xff" * 6, "a varint of more than 5 bytes"),
            (lambda whole: whole.replace(b"\x0fpartition.mode", bytes(15)), "a feature that has no name"),
        ],
    )
    def test_malformed_response_is_refused(self, spoil: Callable[[bytes], bytes], why: str) -> None:
        with pytest.raises(MalformedFrame, match=why):
            capabilities.read(spoil(answer()), 7)

    def test_server_that_is_too_old_has_no_features_and_any_other_error_is_no_answer(self) -> None:
        told = codec.encode_response(codec.ApiVersionsResponse(error_code=35, api_keys=[(18, 0, 2)]), 0, 7)
        assert capabilities.read(told, 7) == Capabilities()
        told = codec.encode_response(codec.ApiVersionsResponse(error_code=42, api_keys=[]), 0, 7)
        with pytest.raises(MalformedFrame, match="error 42"):
            capabilities.read(told, 7)


class TestServers:
    def test_all_are_asked(self, endpoint: FakeEndpoint) -> None:
        other = FakeEndpoint()
        other.has_feature = False
        asked = ask(endpoint.address, f"PLAINTEXT://{other.address}")
        assert offers(asked) == {endpoint.address: OURS, other.address: NONE}
        assert asked.failure() is None
        other.stop()

    def test_no_answer_at_all_is_an_error_with_the_reasons(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "TIMEOUT_S", 1.0)
        silent = FakeEndpoint(answering=False)
        asked = ask(silent.address, "127.0.0.1:1", "no-such-host.example.com:9092")
        assert asked.offers == {}
        failure = str(asked.failure())
        assert "no answer within 1 s" in failure
        assert "127.0.0.1:1: [Errno 111] Connection refused" in failure
        assert "no-such-host" in failure
        silent.stop()

    def test_server_that_closes_and_bad_setting_are_named(self, endpoint: FakeEndpoint) -> None:
        endpoint.stop()
        with socket.create_server(("127.0.0.1", endpoint.port)) as listening:
            asked = Round({"bootstrap.servers": endpoint.address})
            listening.accept()[0].close()
            eventually(lambda: asked.step(0.05) or asked.done, interval_s=0)
        assert endpoint.address in str(asked.failure())
        endpoint.start()
        asked = ask(endpoint.address, **{"security.protocol": "ssl", "ssl.ca.location": "nowhere.pem"})
        assert "the configuration: ssl.ca.location cannot be used" in str(asked.failure())

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
        server = f"brokers.example.com:{endpoint.port}"
        asked = Round({"bootstrap.servers": server})
        for _ in range(3):
            asked.step(0.01)
        assert not looked_up.is_set()
        assert not asked.done
        go_on.set()
        eventually(lambda: asked.step(0.05) or asked.done, interval_s=0)
        assert offers(asked) == {server: OURS}

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_only_of_the_family_that_is_wanted(self, endpoint: FakeEndpoint, host: str) -> None:
        server = f"{host}:{endpoint.port}"
        assert ask(server, **{"broker.address.family": "v6"}).offers == {}
        assert endpoint.connections == 0
        for family in ("V4", "any"):
            assert list(ask(server, **{"broker.address.family": family}).offers) == [server]


def test_tls_is_as_the_client_has_it_and_an_unknown_certificate_is_refused(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    secure = FakeEndpoint(tls=context)
    for protocol in ("ssl", "SASL_SSL"):
        conf = {"security.protocol": protocol, "ssl.ca.location": str(certificate.certificate)}
        assert offers(ask(secure.address, **conf)) == {secure.address: OURS}
    asked = ask(secure.address, **{"security.protocol": "ssl"})
    assert asked.offers == {}
    assert "certificate verify failed" in str(asked.failure())
    secure.stop()


# When servers are asked


class FakeRound:
    """Answers at once with what the class is told."""

    offers: ClassVar[dict[str, Capabilities]] = {}
    failures: ClassVar[dict[str, str]] = {}
    made = 0

    def __init__(self, _conf: Any) -> None:
        FakeRound.made += 1
        self.done = False

    def step(self, _wait_s: float) -> None:
        self.done = True

    def failure(self) -> ModeSourceError | None:
        return ModeSourceError("nobody") if self.failures and not self.offers else None

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimClock:
    monkeypatch.setattr(choice, "Round", FakeRound)
    FakeRound.offers, FakeRound.failures, FakeRound.made = {}, {}, 0
    return SimClock(0)


def rounds_until(made: FeatureProbe, clock: SimClock, until_s: float) -> list[float]:
    """When rounds were begun, as the clock goes on in small steps."""
    begun = []
    while clock.monotonic_s() < until_s:
        before = FakeRound.made
        made.step(0.0)
        if FakeRound.made > before:
            begun.append(round(clock.monotonic_s(), 1))
        clock.advance(100)
    return begun


def test_no_is_asked_again_at_each_interval(clock: SimClock) -> None:
    FakeRound.offers = {"a:1": Capabilities()}
    made = FeatureProbe({}, 10.0, clock)
    assert rounds_until(made, clock, 25.0) == pytest.approx([0, 10, 20], abs=0.2)
    assert (made.absent, made.modes_server, made.error) == (True, None, None)
    FakeRound.offers = {"a:1": Capabilities(), "b:1": Capabilities(SPOKEN, FEATURE | {IDENTITY: (1, 1)})}
    rounds_until(made, clock, 31.0)
    assert (made.absent, made.modes_server) == (False, ModesServer("b:1", ours=True))


def test_failures_are_asked_again_with_growing_pauses_and_never_mean_no(clock: SimClock) -> None:
    FakeRound.failures = {"a:1": "refused"}
    made = FeatureProbe({}, 300.0, clock)
    begun = rounds_until(made, clock, 60.0)
    pauses = [after - before for before, after in pairwise(begun)]
    assert pauses[0] == pytest.approx(FIRST_BACKOFF_S, abs=0.2)
    assert pauses[-1] == pytest.approx(LAST_BACKOFF_S, abs=0.2)
    assert (made.absent, made.modes_server, str(made.error)) == (False, None, "nobody")
    FakeRound.offers = {"a:1": Capabilities(SPOKEN, FEATURE)}
    rounds_until(made, clock, 75.0)
    assert (made.modes_server, made.error) == (ModesServer("a:1", ours=False), None)
