"""What waits in the endpoint: all of it is counted, and no more of it is kept than its answer needs."""

from __future__ import annotations

import pytest

from modeaware.lifecycle.commands import CommandResult
from tests.support.conversation import (
    Talk,
    delete,
    request,
)

LARGE = bytes(250_000)


# -- what is counted -------------------------------------------------------------------------------------------------


def test_a_session_counts_what_waits_and_lets_it_go() -> None:
    talk = Talk()
    talk.ask(delete({"orders": 2}, 1))
    of_the_change = talk.session.held_bytes
    assert of_the_change >= 30 * len(delete({"orders": 2}, 1)), "what is decoded takes more than its bytes"
    talk.ask(request(10, 1, 2, LARGE), request(10, 1, 3, LARGE))
    assert talk.session.held_bytes - of_the_change > 2 * len(LARGE)
    talk.broker_answers()
    assert talk.session.held_bytes - of_the_change > 2 * len(LARGE), "the controller works for it"
    talk.resolve([CommandResult("orders")])
    assert talk.session.held_bytes == 0


def test_a_session_that_has_ended_keeps_nothing() -> None:
    talk = Talk()
    talk.ask(request(10, 1, 1), request(18, 99, 2), delete({"orders": 2}, 3), request(10, 1, 4, LARGE))
    assert talk.session.held_bytes > len(LARGE)
    talk.broker_answers(b"")
    assert talk.closed is not None
    assert talk.session.held_bytes == 0


# -- what is kept ----------------------------------------------------------------------------------------------------


# -- how large something may be --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 99])
def test_a_large_question_about_versions_closes_before_it_is_decoded(version: int) -> None:
    payload = request(18, version, 1, bytes(4_096))
    talk = Talk(sasl=True)
    talk.ask(payload)
    assert talk.closed == f"a request of {len(payload)} bytes; 4096 are taken of this api"
    assert talk.sent == talk.told == []


# -- what is logged --------------------------------------------------------------------------------------------------
