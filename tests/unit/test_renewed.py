"""A client that has no answer for long is made anew."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from modeaware.librdkafka import REFUSED_S, RENEW_S, KafkaError, KafkaException, Renewed

NO_ANSWER, REFUSED = KafkaError._TIMED_OUT, KafkaError.GROUP_AUTHORIZATION_FAILED
OLD = {"sasl.username": "alice", "sasl.password": "old"}


class Asked:
    """A renewed client: the number of the one that is in use, and its clock."""

    def __init__(self) -> None:
        self.now_s, self.closed = 0.0, list[int]()
        self.numbers = count(1)
        self.refused = False
        self.made_with: Mapping[str, Any] = {}
        self.client = Renewed(
            self._make, {"sasl.username": "alice", "sasl.password": "old"}, self.closed.append, lambda: self.now_s
        )

    def _make(self, conf: Mapping[str, Any]) -> int:
        if self.refused:
            raise KafkaException(KafkaError(KafkaError._FAIL))
        self.made_with = conf
        return next(self.numbers)

    def at(self, now_s: float, code: int | None = None) -> int:
        """Ask; the answer is the client's number, or an error of this code."""
        self.now_s = now_s
        asked: list[int] = []

        def request(client: int) -> int:
            asked.append(client)
            if code is not None:
                raise KafkaException(KafkaError(code))
            return client

        if code is None:
            assert self.client.ask(request) == asked[0]
        else:
            with pytest.raises(KafkaException):
                self.client.ask(request)
        return asked[0]


def test_client_is_made_anew_after_the_request_by_which_it_has_had_no_answer_for_long() -> None:
    asked = Asked()
    assert [asked.at(second, NO_ANSWER) for second in (0, RENEW_S - 1, RENEW_S, RENEW_S + 1)] == [1, 1, 1, 2]
    assert asked.closed == [1]
    assert [asked.at(second, NO_ANSWER) for second in (2 * RENEW_S - 1, 2 * RENEW_S, 2 * RENEW_S + 1)] == [2, 2, 3]


def test_an_idle_client_is_not_silent_and_an_answer_ends_a_silence() -> None:
    asked = Asked()
    assert [asked.at(0), asked.at(5 * RENEW_S, NO_ANSWER), asked.at(6 * RENEW_S - 1)] == [1, 1, 1]
    assert [asked.at(9 * RENEW_S, NO_ANSWER), asked.at(9 * RENEW_S + 1)] == [1, 1]


def test_a_refusal_is_no_silence() -> None:
    asked = Asked()
    assert [asked.at(second * RENEW_S, REFUSED) for second in range(4)] == [1, 1, 1, 1]


def test_client_stays_while_no_new_one_can_be_made() -> None:
    asked = Asked()
    asked.at(0, NO_ANSWER)
    asked.refused = True
    assert [asked.at(RENEW_S, NO_ANSWER), asked.at(RENEW_S + 1, NO_ANSWER)] == [1, 1]
    assert not asked.closed
    asked.refused, later_s = False, 2 * RENEW_S + REFUSED_S
    assert [asked.at(later_s - 1, NO_ANSWER), asked.at(later_s, NO_ANSWER), asked.at(later_s + 1)] == [1, 1, 2]


def test_closed_client_is_made_again_when_it_is_needed() -> None:
    asked = Asked()
    asked.client.close()
    assert asked.at(0, NO_ANSWER) == 1
    asked.client.close()
    asked.client.close()
    assert (asked.closed, asked.at(RENEW_S, NO_ANSWER), asked.at(RENEW_S + 1)) == ([1], 2, 2)


def test_client_whose_settings_have_changed_is_made_anew_at_the_next_request() -> None:
    asked = Asked()
    assert asked.at(0) == 1
    asked.client.set_sasl_credentials("alice", "new")
    assert [asked.at(1), asked.at(2)] == [2, 2]
    assert asked.closed == [1]
    assert asked.made_with == {"sasl.username": "alice", "sasl.password": "new"}
