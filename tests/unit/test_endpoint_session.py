"""One connection's conversation: what passes, what is rejected, the order of the answers, and the bytes it holds."""

from __future__ import annotations

import pytest

from modeaware.endpoint.desk import ActiveController
from modeaware.endpoint.limits import Limits
from modeaware.errors import ErrorCode, ModeSourceError
from modeaware.lifecycle.commands import CommandResult, DeletePartitionsCommand
from modeaware.wire import codec
from tests.support.conversation import (
    RW,
    FakeDesk,
    Talk,
    decoded_question,
    delete,
    hello,
    ids,
    modes_request,
    old_metadata_request,
    pass_through_answer,
    request,
)


def test_what_is_not_looked_into_passes_as_it_is_both_ways() -> None:
    talk = Talk()
    find_coordinator = request(10, 4, 7, b"\0any bytes")
    talk.ask(find_coordinator)
    assert talk.sent == [find_coordinator]
    assert talk.all_answered() == [pass_through_answer(find_coordinator)]
    assert talk.session.pending == 0


@pytest.mark.parametrize(
    ("api_key", "version", "why"),
    [
        (0, 9, "Produce"),
        (78, 1, "ShareFetch"),
        (75, 0, "DescribeTopicPartitions"),
        (17, 0, "SaslHandshake version 0"),
        (3, 10, "Metadata version 10"),
        (3, -1, "Metadata version -1"),
        (37, 4, "api key 37 version 4"),
        (695, -1, "api key 695 version -1"),
    ],
)
def test_what_is_not_taken_closes_and_reaches_nobody(api_key: int, version: int, why: str) -> None:
    talk = Talk()
    talk.ask(request(api_key, version, 1, b"secret"))
    assert talk.closed is not None
    assert talk.closed.startswith(why)
    assert "secret" not in talk.closed
    assert talk.sent == talk.told == []


@pytest.mark.parametrize("answer", [b"", b"\0\0", b"\0\0\0\2", b"\0\0\0\2 and more"])
def test_a_broker_that_answers_something_else_closes(answer: bytes) -> None:
    talk = Talk()
    talk.ask(request(10, 1, 1), request(10, 1, 2))
    talk.broker_answers(answer)
    assert talk.closed == "the broker answered out of order"
    assert talk.told == []


def test_an_answer_of_our_own_waits_for_those_before_it() -> None:
    talk = Talk()
    talk.ask(request(10, 1, 1), request(18, 99, 2), request(10, 1, 3))
    assert talk.told == []
    talk.broker_answers()
    assert ids(talk.told) == [1, 2]
    talk.broker_answers()
    assert ids(talk.told) == [1, 2, 3]


def test_what_stands_behind_a_change_waits_unsent() -> None:
    talk = Talk()
    talk.ask(delete({"orders": 2}, 1), request(10, 1, 2), delete({"orders": 1}, 3))
    assert len(talk.sent) == 1  # the question about the rights
    talk.broker_answers()
    assert len(talk.sent) == 1
    assert talk.session.pending == 3
    assert talk.submitted[0].commands == (DeletePartitionsCommand("orders", 2, delay_ms=0),)
    talk.resolve([CommandResult("orders", modes=(RW,))])
    assert len(talk.sent) == 3
    assert ids(talk.told) == [1]
    talk.broker_answers()
    talk.broker_answers()
    talk.resolve([CommandResult("orders", modes=(RW,))])
    assert ids(talk.told) == [1, 2, 3]
    assert talk.session.pending == 0


def test_fresh_modes_are_asked_once_the_log_has_been_read() -> None:
    desk = FakeDesk(known={})
    talk = Talk(desk)
    talk.ask(hello(1), modes_request(2, modes_only=True, fresh=True), request(10, 1, 3))
    assert len(talk.refreshes) == 1
    assert talk.session.pending == 3
    talk.broker_answers()
    assert not talk.broker.asked
    desk.known = {"orders": FakeDesk().known["orders"]}
    talk.resolve(None)
    _, asked = decoded_question(talk.sent[1])
    assert [topic.name for topic in asked.topics] == ["orders"]
    assert ids(talk.all_answered()) == [1, 2, 3]


def test_a_log_that_cannot_be_read_now_gives_no_old_modes_for_fresh_ones() -> None:
    talk = Talk()
    talk.ask(hello(1), modes_request(2, fresh=True))
    talk.broker_answers()
    talk.resolve(ModeSourceError("the log's leader is away: secret"))
    assert talk.closed == "the end of the mode log, which was asked for, cannot be read now"
    assert ids(talk.told) == [1]


def test_requests_beyond_the_pipeline_close() -> None:
    talk = Talk(limits=Limits(pipeline=3))
    talk.ask(*(request(10, 1, n) for n in range(3)))
    assert not talk.session.wants_more
    talk.broker_answers()
    assert talk.session.wants_more
    talk.ask(request(10, 1, 4), request(10, 1, 5))
    assert talk.closed == "more requests at once than are taken"


def test_what_is_decoded_here_is_bounded() -> None:
    for payload in (delete({f"topic-{n}": 1 for n in range(50)}, 2), modes_request(2, ["x" * 200] * 3)):
        talk = Talk(limits=Limits(change_bytes=400, modes_bytes=400))
        talk.ask(hello(1), payload)
        assert talk.closed == f"a request of {len(payload)} bytes; 400 are taken of this api"


def test_a_change_at_a_standby_is_sent_on_by_name() -> None:
    talk = Talk(FakeDesk(active=False))
    talk.ask(delete({"orders": 2}, 1))
    _, answer = codec.decode_response(talk.all_answered()[0], 694, 0)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert "other at active.example:9691" in answer.error_message
    assert talk.submitted == []
    for claimed, words in ((None, "no active one is known"), (ActiveController("other"), "has stopped")):
        talk = Talk(FakeDesk(active=False, claimed=claimed))
        talk.ask(delete({"orders": 2}, 1))
        assert words in codec.decode_response(talk.all_answered()[0], 694, 0)[1].error_message


@pytest.mark.parametrize("active", [True, False])
def test_librdkafka_sees_no_node_that_brokers_do_not_name(active: bool) -> None:
    """A request to a node fails in librdkafka once an answer of a broker does not name that node."""
    talk = Talk(FakeDesk(active=active))
    talk.ask(hello(1, "any", software_version="2.16.1-rdkafka-2.16.0"), old_metadata_request(2, 9, ["orders"]))
    talk.broker_answers()
    answer = talk.broker.answer()
    talk.broker_answers(answer)
    assert talk.told[-1] == answer


LARGE = bytes(250_000)


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


@pytest.mark.parametrize("version", [3, 99])
def test_a_large_question_about_versions_closes_before_it_is_decoded(version: int) -> None:
    payload = request(18, version, 1, bytes(4_096))
    talk = Talk(sasl=True)
    talk.ask(payload)
    assert talk.closed == f"a request of {len(payload)} bytes; 4096 are taken of this api"
    assert talk.sent == talk.told == []
