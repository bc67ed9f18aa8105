"""The engine of changes: which part of a step goes to the controller, and what is made of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from modeaware.cli import change
from modeaware.cli.change import Change, goes_to_controller
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.errors import ErrorCode, ModeAwareError, ModeSourceError, RequestRefused
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, ReplaceTopicCommand
from modeaware.plan.steps import AlterConfigs, Grow, Replace, Shrink, Step
from modeaware.reports.session import Session

REFUSED = RequestRefused("not so", code=ErrorCode.POLICY_VIOLATION, topic="b")
SHRINKS = [Shrink(12, DeletePartitionsCommand(topic, 4, delay_ms)) for topic, delay_ms in (("a", None), ("b", 9))]
REPLACES = [Replace(12, ReplaceTopicCommand(topic, f"{topic}2", 4)) for topic in "cd"]
GROWTH = Grow(4, CreatePartitionsCommand("e", 8), by_controller=True)
AT_BROKERS: list[Step] = [
    Grow(4, CreatePartitionsCommand("f", 8)),
    Grow(4, CreatePartitionsCommand("g", 8), by_controller=True, minimum=1),
    AlterConfigs({"x": "1"}),
]


class StubCalls:
    """A controller: refuses topic b, and its answers leave topic d out."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str], int | None]] = []
        self.error: ModeAwareError | None = None

    def views(self, _: object) -> object:
        if self.error is not None:
            raise self.error
        return self

    def _answer(self, what: str, topics: Sequence[str], delay_ms: int | None = None) -> dict[str, object]:
        self.asked += [(what, list(topics), delay_ms)] if topics else []
        return {topic: REFUSED if topic == "b" else "done" for topic in topics if topic != "d"}

    def replace_topics(self, _: object, commands: Sequence[Any], *__: object) -> dict[str, object]:
        return self._answer("replace", [each.topic for each in commands])

    def create_partitions(self, _: object, commands: Sequence[Any], *__: object) -> dict[str, object]:
        return self._answer("grow", [each.topic for each in commands])

    def delete_partitions(
        self, _: object, wanted: dict[str, Any], delay_ms: int | None, __: object
    ) -> dict[str, object]:
        return self._answer("shrink", list(wanted), delay_ms)

    def give_up(self) -> None:
        raise AssertionError("no Ctrl-C was pressed")

    def close(self) -> None:
        self.asked.append(("close", [], None))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> StubCalls:
    calls = StubCalls()
    monkeypatch.setattr(change, "ControllerCalls", lambda *_: calls)
    return calls


def sent(steps: Sequence[Step]) -> dict[str, ModeAwareError | None]:
    session = Session({}, ClientConfig(), ControllerConfig(), cast(Any, SimpleNamespace()))
    return Change(session).send(steps)


def test_steps_of_many_topics_are_sent_together_and_each_has_its_answer(calls: StubCalls) -> None:
    failures = sent([*SHRINKS, *REPLACES, GROWTH, *AT_BROKERS])
    assert calls.asked == [
        ("replace", ["c", "d"], None),
        ("grow", ["e"], None),
        ("shrink", ["a"], None),
        ("shrink", ["b"], 9),
        ("close", [], None),
    ]
    assert {topic: failure for topic, failure in failures.items() if topic != "d"} == {
        "a": None,
        "b": REFUSED,
        "c": None,
        "e": None,
    }
    assert "topic 'd': the controller's response lacks the topic" in str(failures["d"]), "no answer is no success"


def test_where_the_mode_log_cannot_be_read_every_step_fails(calls: StubCalls) -> None:
    calls.error = ModeSourceError("cannot be read")
    assert sent(REPLACES) == dict.fromkeys("cd", calls.error)


def test_without_a_step_for_it_no_controller_is_asked(calls: StubCalls) -> None:
    assert sent(AT_BROKERS) == {}
    assert calls.asked == []
    assert [goes_to_controller(step) for step in (*AT_BROKERS, GROWTH)] == [False, False, False, True]
