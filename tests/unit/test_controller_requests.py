"""Requests that only the controller of the cluster carries out: which broker they go to, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.controller import Route, ask_controller

OTHER, MOVED = int(ErrorCode.INVALID_PARTITIONS), int(ErrorCode.NOT_CONTROLLER)
SILENT = ClusterError("broker 1: no answer", code=ErrorCode.REQUEST_TIMED_OUT)


class Answering(Brokers):
    """Gives the answers in order: lists of error codes."""

    def __init__(self, *answers: list[int] | ClusterError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Ask, float | None]] = []

    def ask_each(self, asks: Any, timeout_s: float | None = None) -> list[Any]:
        self.asked += [(ask, timeout_s) for ask in asks]
        return [self.answers.pop(0)]

    @property
    def nodes(self) -> list[int]:
        return [ask.node_id for ask, _ in self.asked]


def ask(brokers: Answering, controller: int = 7, **options: Any) -> Any:
    return ask_controller(brokers, Route(1, controller), object, lambda answer: answer, **options)


@pytest.mark.parametrize("codes", [[0], [OTHER], [0, MOVED], []])
def test_one_broker_is_asked_where_it_passes_the_request_on(codes: list[int]) -> None:
    brokers = Answering(codes)
    assert ask(brokers) == codes
    assert brokers.nodes == [1]


@pytest.mark.parametrize("answer", [[0, 0], [MOVED], SILENT])
def test_the_controller_is_asked_where_it_is_a_broker(answer: list[int] | ClusterError) -> None:
    brokers = Answering([MOVED, MOVED], answer)
    assert ask(brokers) == answer
    assert brokers.nodes == [1, 7]
    (first, _), (second, _) = brokers.asked
    assert first.request is not second.request, "a message is sent once"
