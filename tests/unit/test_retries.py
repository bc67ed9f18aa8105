"""Retries: when another attempt is made, how long that goes on, and what is reported at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from modeaware.errors import (
    ClusterError,
    ControllerFenced,
    ControllerUnavailable,
    ErrorCode,
    ModeAwareError,
    RequestRefused,
    ViewTimeout,
)
from modeaware.modelog.reader import LogAbsent
from modeaware.wire.retries import Deadline, Outcome, Retrying, RetryPolicy, outcome_of, outcome_unknown
from tests.support.simulated import SimClock

GONE = ControllerUnavailable("no controller is running; start one")
LEADERLESS = RequestRefused("topic 'a': no leader available", code=ErrorCode.LEADER_NOT_AVAILABLE, topic="a")
UNKNOWN = RequestRefused("there is no topic a", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="a")
REFUSED = RequestRefused("it has 4 already", code=ErrorCode.INVALID_PARTITIONS, topic="a")
SILENT = ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
POLICY = RetryPolicy(0.1, 1.0, 5.0)


class Time(SimClock):
    """A clock that moves only while something sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, wait_s: float) -> None:
        self.slept.append(wait_s)
        self.advance(round(wait_s * 1000))


@pytest.fixture
def time() -> Time:
    return Time()


Start = Callable[[], Retrying]


@pytest.fixture
def start(time: Time) -> Start:
    """The attempts of one call, which has 60 s."""
    return lambda: Retrying(Deadline(60.0, time), POLICY, sleep=time.sleep, jitter=lambda: 0.0)


class Answers:
    """Gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: str | ModeAwareError) -> None:
        self._answers = answers
        self.attempts = 0

    def __call__(self) -> str:
        answer = self._answers[min(self.attempts, len(self._answers) - 1)]
        self.attempts += 1
        if isinstance(answer, ModeAwareError):
            raise answer
        return answer

    def each(self, keys: Sequence[str]) -> dict[str, str | ModeAwareError]:
        try:
            return dict.fromkeys(keys, self())
        except ModeAwareError as error:
            return dict.fromkeys(keys, error)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (GONE, Outcome.NOT_DONE),
        (LEADERLESS, Outcome.NOT_DONE),
        (UNKNOWN, Outcome.NOT_DONE),
        (RequestRefused("quota", code=ErrorCode.THROTTLING_QUOTA_EXCEEDED), Outcome.NOT_DONE),
        (SILENT, Outcome.UNKNOWN),
        (RequestRefused("late", code=ErrorCode.REQUEST_TIMED_OUT), Outcome.UNKNOWN),
        (ControllerFenced("replaced"), Outcome.UNKNOWN),
        (REFUSED, Outcome.FINAL),
        (RequestRefused("no right", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED), Outcome.FINAL),
        (ControllerUnavailable("not let in", code=ErrorCode.SASL_AUTHENTICATION_FAILED), Outcome.FINAL),
        (ControllerUnavailable("on another host", code=ErrorCode.INVALID_CONFIG), Outcome.FINAL),
        (ViewTimeout("the log was not read"), Outcome.FINAL),
        (LogAbsent("the log is being created", topic="modes"), Outcome.NOT_DONE),
    ],
)
def test_errors_are_classified_by_class_and_code(error: ModeAwareError, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome


@pytest.mark.parametrize(
    ("error", "repeatable", "wait_s", "left_s", "unknown_s", "again"),
    [
        (GONE, False, 0.1, 50.0, 0.0, True),
        (GONE, False, 1.0, 1.0, 0.0, False),
        (LEADERLESS, False, 0.1, 50.0, 99.0, True),
        (UNKNOWN, False, 0.1, 50.0, 4.9, True),
        (UNKNOWN, False, 0.1, 50.0, 5.0, False),
        (SILENT, True, 0.1, 50.0, 0.0, True),
        (SILENT, False, 0.1, 50.0, 0.0, False),
        (REFUSED, True, 0.1, 50.0, 0.0, False),
    ],
)
def test_retry_decision(
    error: ModeAwareError, repeatable: bool, wait_s: float, left_s: float, unknown_s: float, again: bool
) -> None:
    decided = POLICY.may_retry(error, repeatable=repeatable, wait_s=wait_s, left_s=left_s, unknown_s=unknown_s)
    assert decided is again


def test_backoff_doubles_up_to_its_maximum_and_has_jitter() -> None:
    assert [POLICY.wait_s(n, 0.0) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert POLICY.wait_s(10_000, 0.0) == 1.0
    assert (POLICY.wait_s(1, -1.0), POLICY.wait_s(5, 1.0)) == (pytest.approx(0.08), pytest.approx(1.2))


def test_backoff_comes_from_librdkafkas_settings() -> None:
    assert RetryPolicy.from_conf({}) == RetryPolicy(0.1, 1.0)
    assert RetryPolicy.from_conf({"retry.backoff.ms": "250", "retry.backoff.max.ms": 400}) == RetryPolicy(0.25, 0.4)
    assert RetryPolicy.from_conf({"retry.backoff.ms": 5_000}) == RetryPolicy(5.0, 5.0)


def test_call_succeeds_once_a_controller_answers(start: Start, time: Time) -> None:
    answers = Answers(GONE, LEADERLESS, UNKNOWN, "done")
    assert start().call(answers, repeatable=False) == "done"
    assert time.slept == [0.1, 0.2, 0.4]


def test_call_gives_up_at_its_deadline_and_says_what_it_saw_last(start: Start, time: Time) -> None:
    with pytest.raises(
        RequestRefused, match=r"'a': no leader available \(gave up after 59\.\d s and 6\d attem"
    ) as caught:
        start().call(Answers(LEADERLESS), repeatable=False)
    assert (caught.value.code, caught.value.topic) == (ErrorCode.LEADER_NOT_AVAILABLE, "a")
    assert sum(time.slept) < 60.0


def test_unknown_topic_is_final_after_some_seconds_without_another_answer(start: Start, time: Time) -> None:
    with pytest.raises(RequestRefused):
        start().call(Answers(UNKNOWN), repeatable=False)
    assert 5.0 <= sum(time.slept) <= 6.0
    time.slept.clear()
    answers = Answers(*[UNKNOWN] * 7, LEADERLESS, *[UNKNOWN] * 4, "done")
    assert start().call(answers, repeatable=False) == "done"
    assert sum(time.slept) > 6.0


@pytest.mark.parametrize("later", [GONE, REFUSED])
def test_call_with_an_unknown_outcome_never_ends_as_if_nothing_was_done(start: Start, later: ModeAwareError) -> None:
    answer = start().each(["a"], Answers(SILENT, later).each, repeatable=True)["a"]
    assert isinstance(answer, ClusterError)
    assert answer.code is ErrorCode.REQUEST_TIMED_OUT
    assert "may have been carried out" in answer.message
    assert later.message in answer.message


def test_last_answer_with_an_unknown_outcome_stays_as_it_is() -> None:
    last = ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
    assert outcome_unknown("orders", last) is last


def test_caller_resolves_an_unknown_outcome(start: Start) -> None:
    seen = []

    def resolve(key: str, last: ModeAwareError) -> str:
        seen.append((key, last))
        return "done before"

    assert start().each(["a"], Answers(SILENT, REFUSED).each, repeatable=True, resolve=resolve) == {"a": "done before"}
    assert seen == [("a", REFUSED)]
    assert start().each(["a"], Answers(REFUSED).each, repeatable=True, resolve=resolve) == {"a": REFUSED}
    assert len(seen) == 1, "without a doubt there is nothing to resolve"


def test_only_topics_without_an_answer_are_asked_for_again(start: Start) -> None:
    asked: list[list[str]] = []

    def attempt(topics: Sequence[str]) -> dict[str, str | ModeAwareError]:
        asked.append(list(topics))
        if len(asked) == 1:
            return {"a": "done", "b": LEADERLESS, "c": REFUSED}
        return dict.fromkeys(topics, "done")

    answers = start().each(["a", "b", "c", "d"], attempt, repeatable=False)
    assert answers == {"a": "done", "b": "done", "c": REFUSED}, "d was never answered"
    assert asked == [["a", "b", "c", "d"], ["b"]]


def test_call_that_is_given_up_during_a_wait_ends_with_the_answer_it_has(time: Time) -> None:
    answers = Answers(LEADERLESS, "done")
    with pytest.raises(RequestRefused):
        Retrying(Deadline(60, time), POLICY, sleep=lambda wait_s: True).call(answers, repeatable=True)
    assert answers.attempts == 1
