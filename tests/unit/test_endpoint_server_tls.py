"""The endpoint's TLS, on both sides, and where it may listen with it and without."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from modeaware.endpoint.facade import ControllerView
from modeaware.endpoint.limits import EndpointLimits
from modeaware.endpoint.server import Server
from modeaware.endpoint.transport import Upstream, server_context
from modeaware.errors import ConfigError
from tests.support.endpoint import FakeBroker, MakeServer, Peer, StubController
from tests.support.secured import Certificate, make_certificate
from tests.support.waiting import eventually


@pytest.fixture
def broker(certificate: Certificate) -> Iterator[FakeBroker]:
    """It asks for a certificate, and takes a client that has none."""
    context = server_context(certificate.both)
    context.load_verify_locations(certificate.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    broker = FakeBroker(context)
    yield broker
    broker.close()


@pytest.fixture
def server(make_server: MakeServer, certificate: Certificate, broker: FakeBroker) -> Server:
    tls = server_context(certificate.certificate, certificate.key)
    return make_server(upstream=_upstream(broker, certificate), tls=tls, limits=EndpointLimits(pipeline=3))


BROKER = ("127.0.0.1", 9092)


def _upstream(broker: FakeBroker, certificate: Certificate, **settings: str) -> Upstream:
    conf = {
        "bootstrap.servers": "{}:{}".format(*broker.address),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificate.certificate),
    }
    return Upstream.from_conf({**conf, **settings})


def _connect(server: Server, certificate: Certificate) -> Peer:
    return Peer(server.advertised, tls=ssl.create_default_context(cafile=str(certificate.certificate)))


def test_frames_pass_in_order_with_tls_on_both_sides(
    server: Server, broker: FakeBroker, certificate: Certificate
) -> None:
    request = bytes(range(256)) * 4_000
    broker.answer = lambda payload: payload * 8
    with _connect(server, certificate) as peer, _connect(server, certificate) as other:
        assert peer.ask(request) == request * 8
        assert other.ask(b"x") == b"x" * 8
        peer.send(*(b"%d" % number for number in range(500)))
        assert [peer.receive() for _ in range(500)] == [b"%d" % number * 8 for number in range(500)]
        assert (broker.accepted, broker.open) == (2, 2), "each client has a connection of its own"
    eventually(lambda: broker.open == 0, message="it is closed with its client")


def test_a_user_is_never_presented_by_the_controllers_certificate(
    make_server: MakeServer, broker: FakeBroker, certificate: Certificate
) -> None:
    own = {"ssl.certificate.location": str(certificate.certificate), "ssl.key.location": str(certificate.key)}
    secrets = {"sasl.mechanism": "PLAIN", "sasl.username": "controller", "sasl.password": "its-password"}
    upstream = _upstream(broker, certificate, **own, **secrets)
    server = make_server(upstream=upstream, tls=None)
    with Peer(server.advertised) as peer:
        assert peer.ask(b"x") == b"re: x"
    assert broker.certificates == [None]
    assert broker.received == [b"x"]


@pytest.mark.parametrize(
    "rubbish", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x04here", b"\x16\x03\x01\x00\x05xxxxx", b"\xff" * 99]
)
def test_what_is_no_tls_closes_its_connection(
    server: Server, certificate: Certificate, rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with _connect(server, certificate) as witness, Peer(server.advertised) as peer:
        assert witness.ask(b"x") == b"re: x"
        peer.socket.sendall(rubbish)
        assert peer.closed()
        assert witness.ask(b"y") == b"re: y"
    assert [record for record in caplog.records if "closed the connection of 127.0.0.1:" in record.message]


def test_a_broker_with_another_name_or_authority_is_not_used(
    make_server: MakeServer, broker: FakeBroker, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    misnamed = FakeBroker(server_context(certificate.both), host="127.0.0.2")  # its certificate is for another address
    untrusted = _upstream(broker, certificate, **{"ssl.ca.location": ""})
    for upstream, why in ((untrusted, "self-signed"), (_upstream(misnamed, certificate), "IP address mismatch")):
        caplog.clear()
        with Peer(make_server(upstream=upstream).advertised) as peer:
            peer.send(b"x")
            assert peer.closed()
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        assert why in caplog.text
    misnamed.close()
    assert broker.received == misnamed.received == []


@pytest.mark.parametrize("which", ["missing", "no PEM", "another key", "locked key"])
def test_a_certificate_that_cannot_be_used_is_a_clear_error(
    certificate: Certificate, tmp_path: Path, which: str
) -> None:
    other = make_certificate(tmp_path)
    (tmp_path / "text.pem").write_text("hello")
    locked = ["-passout", "pass:x", "-in", str(certificate.key), "-out", str(tmp_path / "locked.pem")]
    subprocess.run(["openssl", "rsa", "-aes128", *locked], check=True, capture_output=True, timeout=60)
    files = {
        "missing": (tmp_path / "none.pem", None),
        "no PEM": (tmp_path / "text.pem", None),
        "another key": (certificate.certificate, other.key),
        "locked key": (certificate.certificate, tmp_path / "locked.pem"),
    }
    with pytest.raises(ConfigError, match="endpoint's certificate cannot be used"):
        server_context(*files[which])


def _make(listen: str, upstream: Upstream, **arguments: Any) -> Server:
    controller = StubController()
    return Server(listen, cast(ControllerView, None), controller.submit, controller.refresh, upstream, **arguments)


def test_ssl_without_sasl_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"has no user's certificate.*SASL_SSL"):
        Upstream.from_conf({"bootstrap.servers": "b:9092", "security.protocol": "ssl"})


@pytest.mark.parametrize("advertised", ["host", ":9", "host:0", "0.0.0.0:9", "[::]:9"])
def test_what_no_client_can_connect_to_is_not_advertised(advertised: str) -> None:
    with pytest.raises(ConfigError, match="--advertised-listener"):
        _make("127.0.0.1:0", Upstream([BROKER]), advertised=advertised)


def test_everywhere_needs_an_address_for_clients() -> None:
    with pytest.raises(ConfigError, match="--advertised-listener"):
        _make("0.0.0.0:0", Upstream([BROKER]))
    server = _make("0.0.0.0:0", Upstream([BROKER]), advertised="kafka.example.com:9690")
    assert (server.advertised, server.loopback) == (("kafka.example.com", 9690), False)


def test_others_may_reach_it_without_tls_only_where_brokers_use_none(
    certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    secured = Upstream([BROKER], "SASL_SSL", ssl.create_default_context())
    with pytest.raises(ConfigError, match="--tls-certificate"):
        _make("192.0.2.1:9000", secured)
    _make("192.0.2.1:9000", secured, tls=server_context(certificate.both))
    _make("192.0.2.1:9000", Upstream([BROKER], "SASL_PLAINTEXT"))
    assert caplog.text == ""
    _make("192.0.2.1:9000", Upstream([BROKER]))
    assert "ANONYMOUS" in caplog.text
