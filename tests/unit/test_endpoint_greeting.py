"""The first frames of a connection: ApiVersions, and a SASL exchange into which nothing is put."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from modeaware.errors import ErrorCode
from modeaware.wire import codec, stock
from tests.support.conversation import FakeDesk, Talk, broker_versions, delete, hello, ids, modes_request, request


def versions(name: str = "modeaware", version: int = 3, keys: dict[int, tuple[int, int]] | None = None) -> Any:
    talk = Talk(FakeDesk())
    talk.ask(hello(9, name, version))
    talk.broker_answers(broker_versions(version, 9, keys))
    correlation_id, answer = stock.decode_response(talk.told[0], 18, version)
    assert correlation_id == 9
    return answer


def spans(answer: Any) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_what_the_endpoint_takes_is_what_it_offers(version: int) -> None:
    answer = versions("librdkafka", version)
    assert spans(answer) == {
        0: (0, 13),
        1: (4, 18),
        3: (0, 9),
        17: (1, 1),
        18: (0, 4),
        36: (0, 2),
        37: (0, 3),
        694: (0, 0),
        695: (0, 1),
    }
    assert answer.throttle_time_ms == (5 if version else 0)


@pytest.mark.parametrize(("version", "highest"), [(0, 9), (2, 9), (3, 10), (4, 10)])
def test_who_names_itself_is_offered_modes(version: int, highest: int) -> None:
    assert spans(versions("modeaware", version))[3] == (0, highest)


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_the_brokers_and_ours(version: int) -> None:
    answer = versions("librdkafka", version)
    told = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert told == {"metadata.version": (1, 29), "partition.mode": (1, 1), "modeaware.controller.c1": (1, 1)}
    assert answer.finalized_features_epoch == 77
    assert [(f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features] == [
        ("metadata.version", 29, 29)
    ]


@pytest.mark.parametrize("version", [5, 99, -1])
def test_a_version_that_is_not_known_is_told_which_are(version: int) -> None:
    talk = Talk()
    payload = hello(9)
    talk.ask(payload[:2] + version.to_bytes(2, "big", signed=True) + payload[4:])
    assert talk.sent == []
    correlation_id, answer = stock.decode_response(talk.told[0], 18, 3)
    assert (correlation_id, answer.error_code) == (9, ErrorCode.UNSUPPORTED_VERSION)
    assert spans(answer) == {18: (0, 4)}


HANDSHAKE = request(17, 1, 1, b"\0\5PLAIN")


PASSWORD = b"alice\0secret"


def authenticate(correlation_id: int, version: int = 1) -> bytes:
    return request(36, version, correlation_id, PASSWORD)


def sasl_answer(correlation_id: int, error: int = 0, version: int = 1) -> bytes:
    tags = b"\0" if version >= 2 else b""
    return struct.pack(">i", correlation_id) + tags + struct.pack(">h", error) + b"token"


def authenticated(version: int = 1) -> Talk:
    talk = Talk(sasl=True)
    talk.ask(HANDSHAKE)
    talk.broker_answers(talk.broker.answer())
    talk.ask(authenticate(2, version))
    talk.broker.asked.clear()
    talk.broker_answers(sasl_answer(2, 0, version))
    return talk


def test_before_authentication_only_a_greeting_and_a_handshake_pass() -> None:
    for payload in (
        request(10, 1, 1),
        modes_request(1),
        delete({"orders": 2}, 1),
        authenticate(1),
        request(3, 9, 1),
    ):
        talk = Talk(sasl=True)
        talk.ask(hello(0))
        talk.all_answered()
        talk.ask(payload)
        assert talk.closed == "a request before authentication"
        assert len(talk.sent) == 1


def test_sasl_frames_pass_as_they_are_and_are_not_kept() -> None:
    talk = Talk(sasl=True)
    talk.ask(HANDSHAKE, authenticate(2))
    assert talk.sent == [HANDSHAKE, authenticate(2)]
    assert PASSWORD not in repr(vars(talk.session)).encode()
    talk.broker_answers()
    talk.broker.asked.clear()
    talk.broker_answers(sasl_answer(2))
    assert talk.told[1] == sasl_answer(2)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_after_success_everything_goes(version: int) -> None:
    talk = authenticated(version)
    talk.ask(delete({"orders": 2}, 3))
    talk.broker_answers()
    assert len(talk.submitted) == 1


@pytest.mark.parametrize("behind", [modes_request(5), delete({"orders": 2}, 5), request(10, 1, 5), hello(5)])
@pytest.mark.parametrize("version", [1, 2])
def test_a_failed_exchange_ends_with_the_next_request(behind: bytes, version: int) -> None:
    talk = Talk(sasl=True)
    talk.ask(hello(0))
    talk.all_answered()
    talk.ask(HANDSHAKE, authenticate(2, version), behind)
    talk.broker_answers()
    talk.broker.asked.clear()
    talk.broker_answers(sasl_answer(2, 58, version))
    assert ids(talk.told) == [0, 1, 2]  # the client is told of the failure
    assert talk.closed == "a request before authentication has ended"
    assert len(talk.sent) == 3


def test_a_change_before_a_second_exchange_is_asked_about_before_it() -> None:
    """KIP-368, pipelined: the question goes in the change's place, and the new exchange waits for its end."""
    talk = authenticated()
    talk.ask(delete({"orders": 2}, 3), request(17, 1, 4), authenticate(5), modes_request(6))
    keys = [codec.peek_header(payload).api_key for payload in talk.sent[2:]]
    assert keys == [stock.METADATA_KEY]
    talk.broker_answers()
    assert len(talk.sent) == 3
    talk.resolve([])
    assert [codec.peek_header(payload).api_key for payload in talk.sent[3:]] == [17, 36]
