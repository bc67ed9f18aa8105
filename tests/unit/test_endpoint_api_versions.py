"""ApiVersions through the endpoint: the broker's answer, but for what the endpoint does itself."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.errors import ErrorCode
from modeaware.wire import stock
from tests.support.conversation import FakeDesk, Talk, broker_versions, hello


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
        695: (0, 0),
    }
    assert answer.throttle_time_ms == (5 if version else 0)


@pytest.mark.parametrize(("version", "highest"), [(0, 9), (2, 9), (3, 10), (4, 10)])
def test_who_names_itself_is_offered_modes(version: int, highest: int) -> None:
    assert spans(versions("modeaware", version))[3] == (0, highest)


@pytest.mark.parametrize("name", ["", "modeaware2", "Modeaware", "apache-kafka-java"])
def test_others_are_not(name: str) -> None:
    assert spans(versions(name))[3] == (0, 9)


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
