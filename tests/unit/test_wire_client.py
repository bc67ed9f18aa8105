"""Asking a controller by its claim: through a real endpoint, or in vain."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from modeaware.endpoint.server import Server
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode, RequestRefused
from modeaware.lifecycle.commands import DeletePartitionsCommand, ReplaceTopicCommand
from modeaware.modelog.records import ClaimRecord
from modeaware.modes import PartitionMode
from modeaware.wire import client, codec, messages
from modeaware.wire.capabilities import identity
from tests.support.endpoint import FakeBroker, StubController, permit, served

ID = "controller-1"
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


@pytest.fixture
def controller() -> StubController:
    return StubController()


@pytest.fixture
def server(controller: StubController) -> Iterator[Server]:
    with served(controller, ID) as server:
        yield server


def _claim(address: str | None, controller_id: str = ID, **fields: str) -> ClaimRecord:
    return ClaimRecord(1, address, controller_id, **fields)  # type: ignore[arg-type]  # all of them are texts


def _at(broker: FakeBroker, **fields: str) -> ClaimRecord:
    return _claim("{}:{}".format(*broker.address), **fields)


def _delete(timeout_ms: int = 5000, **counts: int) -> object:
    return messages.delete_partitions_request(counts, delay_ms=None, immediate_delete=False, timeout_ms=timeout_ms)


def test_a_shrink_reaches_the_controller_and_its_answer_comes_back(server: Server, controller: StubController) -> None:
    answers = messages.results_of(client.request({}, _claim(server.address), _delete(orders=1), 60))
    assert answers == {"orders": messages.TopicResult("orders", {1: PartitionMode.READ_ONLY})}
    assert controller.submitted == [([DeletePartitionsCommand("orders", 1)], 5000)]
    assert client.is_running({}, _claim(server.address))


@pytest.mark.parametrize("answer", [permit, lambda _: b"rubbish"], ids=["stock broker", "rubbish"])
def test_a_command_is_never_sent_to_what_is_no_controller(
    broker: FakeBroker, answer: Callable[[bytes], bytes | None]
) -> None:
    broker.answer = answer
    with pytest.raises(ControllerUnavailable):
        client.request({}, _at(broker), _delete(orders=1), 60)
    assert not client.is_running({}, _at(broker))
    assert {struct.unpack_from(">h", payload)[0] for payload in broker.received} == {codec.API_VERSIONS_KEY}


def test_an_answer_that_cannot_be_read_is_none(broker: FakeBroker) -> None:
    def answer(payload: bytes) -> bytes:
        header = codec.peek_header(payload)
        if header.api_key != codec.API_VERSIONS_KEY:
            return payload[4:8] + b"rubbish"
        features = [(identity(ID), 1, 1)]
        hello = codec.ApiVersionsResponse(error_code=0, api_keys=[(18, 0, 4), (694, 0, 0)], supported_features=features)
        return codec.encode_response(hello, min(header.api_version, 4), header.correlation_id)

    broker.answer = answer
    with pytest.raises(ClusterError, match="before a retry") as caught:
        client.request({}, _at(broker), _delete(orders=1), 60)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_controller_that_does_not_know_the_request_is_to_be_upgraded(broker: FakeBroker) -> None:
    def answer(payload: bytes) -> bytes:
        header = codec.peek_header(payload)
        features = [(identity(ID), 1, 1)]
        hello = codec.ApiVersionsResponse(error_code=0, api_keys=[(18, 0, 4), (694, 0, 0)], supported_features=features)
        return codec.encode_response(hello, min(header.api_version, 4), header.correlation_id)

    broker.answer = answer
    command = ReplaceTopicCommand("orders", "orders-v2", 4)
    request = messages.replace_topics_request([command], validate_only=False, timeout_ms=100)
    with pytest.raises(RequestRefused, match="Upgrade the controllers first") as refused:
        client.request({}, _at(broker), request, 10)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert {struct.unpack_from(">h", payload)[0] for payload in broker.received} == {codec.API_VERSIONS_KEY}


def test_controller_of_another_version_is_running(broker: FakeBroker) -> None:
    def answer(payload: bytes) -> bytes:
        header = codec.peek_header(payload)
        features = [(identity(ID), 1, 1)]
        hello = codec.ApiVersionsResponse(error_code=0, api_keys=[(18, 0, 4)], supported_features=features)
        return codec.encode_response(hello, min(header.api_version, 4), header.correlation_id)

    broker.answer = answer
    assert client.is_running({}, _at(broker))


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
    with pytest.raises(ClusterError, match="before a retry") as caught:
        client.request({}, _claim(server.address), _delete(orders=1), 1.0)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert len(controller.submitted) == 1, "sent once, whatever becomes of it"


@pytest.mark.parametrize("wanted", ["SSL", "ssl", "SASL_SSL"])
@pytest.mark.parametrize("offered", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_who_wants_tls_sends_nothing_across_the_network_without(
    broker: FakeBroker, wanted: str, offered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "is_loopback", lambda address: False)
    claim = _at(broker, security_protocol=offered)
    conf = {**PLAIN, "security.protocol": wanted}
    with pytest.raises(ControllerUnavailable, match="without TLS"):
        client.request(conf, claim, _delete(orders=1), 60)
    with pytest.raises(ControllerUnavailable, match="without TLS"):
        client.is_running(conf, claim)
    assert broker.accepted == 0


def test_a_controller_on_another_host_is_neither_asked_nor_taken_for_dead(broker: FakeBroker) -> None:
    elsewhere = _at(broker, host="another-host.example")
    with pytest.raises(ControllerUnavailable, match="run the command on that host"):
        client.request({}, elsewhere, _delete(orders=1), 60)
    with pytest.raises(ControllerUnavailable, match="another-host"):
        client.is_running({}, elsewhere)
    assert broker.accepted == 0


def test_a_request_with_more_parts_than_a_controller_decodes_is_not_sent(
    server: Server, controller: StubController
) -> None:
    request = _delete(**{f"t{number}": 1 for number in range(1_500)})
    with pytest.raises(RequestRefused, match="name fewer topics in one request") as refused:
        client.request({}, _claim(server.address), request, 10)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not controller.commands
