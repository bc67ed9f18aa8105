"""Asking a controller by its claim: through a real endpoint, or in vain."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from modeaware.endpoint.server import Server
from modeaware.endpoint.tls import server_context
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode, RequestRefused
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    CommandResult,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
)
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import ClaimRecord
from modeaware.modes import PartitionMode
from modeaware.wire import client, codec, messages
from tests.support.endpoint import FakeBroker, StubController, permit, served
from tests.support.secured import Certificate, make_certificate

ID = "controller-1"
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def controller() -> StubController:
    return StubController()


@pytest.fixture
def server(controller: StubController) -> Iterator[Server]:
    with served(controller, ID) as server:
        yield server


def _claim(address: str | None, controller_id: str = ID, **fields: str) -> ClaimRecord:
    return ClaimRecord(1, address, controller_id, **fields)  # type: ignore[arg-type]  # all of them are texts


def _at(broker: FakeBroker) -> ClaimRecord:
    return _claim("{}:{}".format(*broker.address))


def _delete(timeout_ms: int = 5000, **counts: int) -> object:
    return messages.delete_partitions_request(counts, delay_ms=-1, immediate_delete=False, timeout_ms=timeout_ms)


def _api_keys(broker: FakeBroker) -> set[int]:
    return {struct.unpack_from(">h", payload)[0] for payload in broker.received}


def test_a_shrink_reaches_the_controller_and_its_answer_comes_back(server: Server, controller: StubController) -> None:
    answers = messages.results_of(client.request({}, _claim(server.address), _delete(orders=1), 60))
    assert answers == {"orders": messages.TopicResult("orders", {1: PartitionMode.READ_ONLY})}
    assert controller.submitted == [([DeletePartitionsCommand("orders", 1)], 5000)]
    assert client.is_running({}, _claim(server.address))


def test_literal_name_is_not_sent_to_a_controller_that_takes_it_for_a_glob(
    server: Server, controller: StubController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_common_version", lambda *_: 0)
    command = AlterGroupRulesCommand((GroupRule("waive", "reports[1]", "t", "gone", 5),))
    with pytest.raises(RequestRefused, match="would take the name") as refused:
        client.request({}, _claim(server.address), messages.alter_group_rules_request(command, timeout_ms=100), 10)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert controller.submitted == []


def test_a_standby_says_so_and_runs(controller: StubController) -> None:
    with served(controller, ID, active=False) as standby:
        claim = _claim(standby.address)
        response = client.request({}, claim, _delete(orders=1), 60)
        assert response.error_code == ErrorCode.NOT_CONTROLLER
        assert client.is_running({}, claim)
    assert controller.submitted == []


class Impostor:
    """Something else on the controller's port: answers every connection with the same bytes, or closes it."""

    def __init__(self, answer: bytes) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.received: list[bytes] = []
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with closing(connection):
                    self.received.append(connection.recv(65_536))
                    connection.sendall(self._answer)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["none", "http"])
def test_a_command_is_never_sent_to_what_speaks_no_kafka(answer: bytes) -> None:
    impostor = Impostor(answer)
    try:
        with pytest.raises(ControllerUnavailable, match=impostor.address):
            client.request({}, _claim(impostor.address), _delete(orders=1), 5)
    finally:
        impostor.close()
    assert impostor.received
    assert {struct.unpack_from(">h", data, 4)[0] for data in impostor.received} == {codec.API_VERSIONS_KEY}


def test_a_command_is_never_sent_to_a_stock_broker(broker: FakeBroker) -> None:
    broker.answer = permit
    with pytest.raises(ControllerUnavailable, match="is not the controller"):
        client.request({}, _at(broker), _delete(orders=1), 60)
    assert not client.is_running({}, _at(broker))
    assert _api_keys(broker) == {codec.API_VERSIONS_KEY}


def _said(error_code: int = 0, keys: object = ((18, 0, 4),), name: str = ID) -> Callable[[bytes], bytes]:
    """ApiVersions answers as given."""

    def answer(payload: bytes) -> bytes:
        header = codec.peek_header(payload)
        features = [(client.identity(name), 1, 1)]
        message = codec.ApiVersionsResponse(
            error_code=error_code, api_keys=keys, throttle_time_ms=0, supported_features=features
        )
        return codec.encode_response(message, min(header.api_version, 4), header.correlation_id)

    return answer


def test_an_answer_that_cannot_be_read_is_none(broker: FakeBroker) -> None:
    def answer(payload: bytes) -> bytes:
        hello = codec.peek_header(payload).api_key == codec.API_VERSIONS_KEY
        return _said(keys=[(18, 0, 4), (694, 0, 0)])(payload) if hello else payload[4:8] + b"rubbish"

    broker.answer = answer
    with pytest.raises(ClusterError, match="before trying again") as caught:
        client.request({}, _at(broker), _delete(orders=1), 60)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_command_is_never_sent_to_another_controller(server: Server, controller: StubController) -> None:
    stale = _claim(server.address, "controller-0")  # its port has been taken by another one, of another cluster maybe
    with pytest.raises(ControllerUnavailable, match="is not the controller controller-0"):
        client.request({}, stale, _delete(orders=1), 60)
    assert not client.is_running({}, stale)
    assert controller.submitted == []


def test_no_controller_is_running_without_a_claim_or_an_address() -> None:
    assert not client.is_running({}, None)
    assert not client.is_running({}, _claim(None))
    with pytest.raises(ControllerUnavailable, match="has stopped"):
        client.request({}, _claim(None), _delete(orders=1), 60)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:x", "127.0.0.1:99999", ""])
def test_nobody_there_is_controller_unavailable(address: str) -> None:
    with pytest.raises(ControllerUnavailable, match="cannot be reached"):
        client.request({}, _claim(address), _delete(orders=1), 5)
    assert not client.is_running({}, _claim(address))


def test_a_controller_that_goes_silent_is_a_cluster_error(server: Server, controller: StubController) -> None:
    controller.silent = True
    with pytest.raises(ClusterError, match="before trying again") as caught:
        client.request({}, _claim(server.address), _delete(orders=1), 1.0)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert len(controller.submitted) == 1, "sent once, whatever becomes of it"


@pytest.mark.parametrize("wanted", ["SSL", "ssl", "SASL_SSL"])
@pytest.mark.parametrize("offered", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_who_wants_tls_sends_nothing_across_the_network_without(
    broker: FakeBroker, wanted: str, offered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "is_loopback", lambda address: False)
    claim = _claim("{}:{}".format(*broker.address), security_protocol=offered)
    conf = {**PLAIN, "security.protocol": wanted}
    with pytest.raises(ControllerUnavailable, match="without TLS"):
        client.request(conf, claim, _delete(orders=1), 60)
    with pytest.raises(ControllerUnavailable, match="without TLS"):
        client.is_running(conf, claim)
    assert broker.accepted == 0


def test_the_claim_says_what_is_spoken(controller: StubController, certificate: Certificate) -> None:
    tls = server_context(certificate.certificate, certificate.key)
    conf = {"ssl.ca.location": str(certificate.certificate)}
    with served(controller, ID, tls=tls) as server:
        claim = _claim(server.address, security_protocol="SSL")
        client.request(conf, claim, _delete(orders=1), 60)
        assert not client.is_running(conf, _claim(server.address), 1.0)
        assert not client.is_running({}, claim), "its certificate is not known"
    assert controller.commands == [DeletePartitionsCommand("orders", 1)]


def test_a_controller_on_another_host_is_neither_asked_nor_taken_for_dead(broker: FakeBroker) -> None:
    elsewhere = _claim("{}:{}".format(*broker.address), host="another-host.example")
    with pytest.raises(ControllerUnavailable, match="run the command on that host"):
        client.request({}, elsewhere, _delete(orders=1), 60)
    with pytest.raises(ControllerUnavailable, match="another-host"):
        client.is_running({}, elsewhere)
    assert broker.accepted == 0


def test_growth_reaches_the_controller(server: Server, controller: StubController) -> None:
    controller.answer = lambda command: CommandResult("t", ErrorCode.INVALID_PARTITIONS, "not an increase")
    command = CreatePartitionsCommand("t", 6, ((1,),))
    request = messages.create_partitions_request([command], validate_only=False, timeout_ms=100)
    refusal = messages.results_of(client.request({}, _claim(server.address), request, 10))["t"]
    assert isinstance(refusal, RequestRefused)
    assert refusal.code is ErrorCode.INVALID_PARTITIONS
    assert controller.submitted == [([command], 100)]
