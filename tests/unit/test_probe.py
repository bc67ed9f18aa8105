"""Asking servers whether they speak KIP-694's Metadata: the bytes, and what servers may do instead of answering."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator

import pytest

from modeaware.wire import api_versions, probe, stock
from modeaware.wire.api_versions import Offer
from modeaware.wire.frames import MalformedFrame
from modeaware.wire.probe import Round
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.secured import Certificate, make_certificate
from tests.support.waiting import eventually


def answer(**fields: object) -> bytes:
    named = {"error_code": 0, "api_keys": [(3, 0, 10), (18, 0, 4)], "supported_features": [("partition.mode", 1, 1)]}
    return stock.encode_response(stock.ApiVersionsResponse(**{**named, **fields}), 3, 7)


def ask(*servers: str, **conf: str) -> Round:
    asked = Round({"bootstrap.servers": ",".join(servers), **conf})
    eventually(lambda: asked.step(0.05) or asked.done, interval_s=0)
    asked.close()
    return asked


class TestBytes:
    def test_the_request_is_what_a_server_reads(self) -> None:
        header, request = stock.decode_request(api_versions.request(7, "1.2.3"))
        assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 3, 7, "modeaware")
        assert (request.client_software_name, request.client_software_version) == ("modeaware", "1.2.3")

    def test_a_server_with_the_feature(self) -> None:
        assert api_versions.read(answer(), 7) == Offer(modes=True)
        features = [("kraft.version", 0, 1), ("modeaware.controller.c", 1, 1), ("partition.mode", 1, 2)]
        told = answer(supported_features=features, finalized_features_epoch=3, finalized_features=[("a", 1, 0)])
        assert api_versions.read(told, 7) == Offer(modes=True, ours=True)

    @pytest.mark.parametrize(
        "fields",
        [
            {"supported_features": []},
            {"supported_features": [("partition.mode", 2, 3)]},
            {"api_keys": [(3, 0, 9)]},
        ],
    )
    def test_a_server_without_it(self, fields: dict[str, object]) -> None:
        assert api_versions.read(answer(**fields), 7) == Offer(modes=False)

    def test_every_cut_and_every_addition_is_noticed(self) -> None:
        whole = answer(finalized_features=[("a", 1, 0)])
        for length in range(len(whole)):
            with pytest.raises(MalformedFrame):
                api_versions.read(whole[:length], 7)
        with pytest.raises(MalformedFrame, match="1 bytes too many"):
            api_versions.read(whole + b"\0", 7)

    def test_it_loads_no_codec_and_no_tls(self) -> None:
        program = "import modeaware.wire.probe, sys; print({'kafka', 'ssl'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "set()"

    def test_a_server_that_is_too_old_has_no_features(self) -> None:
        told = stock.encode_response(stock.ApiVersionsResponse(error_code=35, api_keys=[(18, 0, 2)]), 0, 7)
        assert api_versions.read(told, 7) == Offer(modes=False)

    def test_any_other_error_is_no_answer(self) -> None:
        told = stock.encode_response(stock.ApiVersionsResponse(error_code=42, api_keys=[]), 0, 7)
        with pytest.raises(MalformedFrame, match="error 42"):
            api_versions.read(told, 7)


class TestServers:
    def test_all_are_asked(self, endpoint: FakeEndpoint) -> None:
        other = FakeEndpoint()
        other.has_feature = False
        asked = ask(endpoint.address, f"PLAINTEXT://{other.address}")
        assert asked.offers == {
            endpoint.address: Offer(modes=True, ours=True),
            other.address: Offer(modes=False),
        }
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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


class TestTls:
    @pytest.fixture
    def secure(self, certificate: Certificate) -> Iterator[FakeEndpoint]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        made = FakeEndpoint(tls=context)
        yield made
        made.stop()

    @pytest.mark.parametrize("protocol", ["ssl", "SASL_SSL"])
    def test_as_the_client_has_it(self, secure: FakeEndpoint, certificate: Certificate, protocol: str) -> None:
        conf = {"security.protocol": protocol, "ssl.ca.location": str(certificate.certificate)}
        assert ask(secure.address, **conf).offers == {secure.address: Offer(modes=True, ours=True)}

    def test_a_certificate_of_nobody_known_is_refused(self, secure: FakeEndpoint) -> None:
        asked = ask(secure.address, **{"security.protocol": "ssl"})
        assert asked.offers == {}
        assert "certificate verify failed" in str(asked.failure())
