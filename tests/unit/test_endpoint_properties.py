"""Whatever is sent in whatever order: answers keep the requests' order, none is lost or doubled, nothing raises."""

from __future__ import annotations

import random
import struct
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modeaware.endpoint.facade import Action, Refresh, Submit, ToUpstream
from modeaware.endpoint.limits import EndpointLimits
from modeaware.errors import ControllerUnavailable
from modeaware.lifecycle.commands import CommandResult
from modeaware.wire import codec
from tests.support.conversation import (
    FakeDesk,
    Talk,
    create,
    delete,
    hello,
    modes_request,
    old_metadata_request,
    request,
    rules,
)

_FIRST_ID = 1_000
SASL = (17, 36)


def numbered(payload: bytes, correlation_id: int) -> bytes:
    return payload[:4] + struct.pack(">i", correlation_id) + payload[8:]


def api_key(payload: bytes) -> int:
    return codec.peek_header(payload).api_key


REQUESTS = st.sampled_from(
    [
        request(10, 4, 0, b"\0find a coordinator"),
        request(16, 4, 0),
        request(18, 9, 0),
        hello(0),
        hello(0, "librdkafka"),
        modes_request(0),
        modes_request(0, ["orders", "plain", "nowhere"]),
        modes_request(0, modes_only=True),
        modes_request(0, modes_only=True, fresh=True),
        modes_request(0, ["orders"], fresh=True),
        *(old_metadata_request(0, version, ["orders"]) for version in (1, 5, 9)),
        delete({"orders": 2}),
        delete({"orders": 2, "hidden": 1}),
        delete({}),
        create({"plain": 9}),
        rules("orders"),
        rules("*"),
    ]
)


class Model(Talk):
    """A talk whose broker, controller and client's socket are each as slow as the draw says."""

    def __init__(self, choices: random.Random, *, active: bool, refuse: bool, sasl: bool) -> None:
        desk = FakeDesk(active=active, old_clients="refuse" if refuse else "serve")
        super().__init__(desk, limits=EndpointLimits(pipeline=8), sasl=sasl)
        self.choices = choices
        self.waiting: list[Submit | Refresh] = []

    def run(self, payloads: list[bytes]) -> None:
        unsent = list(payloads)
        while unsent or self.broker.asked or self.waiting:
            possible: list[str] = []
            if unsent and self.session.wants_more:
                possible += ["client"] * 2
            if self.broker.asked:
                possible.append("broker")
            if self.waiting:
                possible.append("controller")
            assert possible, "nobody can go on"
            match self.choices.choice(possible):
                case "client":
                    self.ask(unsent.pop(0))
                case "broker":
                    self.broker_answers()
                case "controller":
                    self.take(self.session.resolved(self.waiting[0].ticket, self.outcome(self.waiting.pop(0))))

    def outcome(self, action: Submit | Refresh) -> Any:
        if isinstance(action, Refresh):
            return None
        if self.choices.random() < 0.3:
            return ControllerUnavailable("it stops")
        return [CommandResult(command.topic) for command in action.commands]

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, ToUpstream) and any(api_key(payload) in SASL for payload in self.broker.asked):
                assert api_key(action.payload) in SASL
            if isinstance(action, Submit | Refresh):
                assert not self.waiting, "one at a time"
                self.waiting.append(action)
            super().take([action])
        assert self.closed is None
        assert self.session.pending <= 8


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(REQUESTS, max_size=20), st.randoms(use_true_random=False), st.booleans(), st.booleans(), st.integers(0, 3)
)
def test_each_request_has_one_answer_in_its_place(
    payloads: list[bytes], choices: random.Random, active: bool, refuse: bool, rounds: int
) -> None:
    """``rounds``: of each SASL exchange, between which and their answers nothing is sent to the broker."""
    exchange = [request(17, 1, 0), *[request(36, 1, 0, b"token")] * rounds] if rounds else []
    everything = [hello(0), *exchange, *payloads, *exchange, *payloads]
    asked = [numbered(payload, _FIRST_ID + number) for number, payload in enumerate(everything)]
    model = Model(choices, active=active, refuse=refuse, sasl=bool(exchange))
    model.run(asked)
    assert model.session.pending == 0
    assert len(model.told) == len(asked)
    for payload, answer in zip(asked, model.told, strict=True):
        assert answer[:4] == payload[4:8]
        if api_key(payload) in (10, 16):
            assert answer[6:] == payload  # the broker's answer to this very request
