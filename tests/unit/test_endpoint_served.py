"""What old clients are told that are served: the broker's answer, and where changes are taken."""

from __future__ import annotations

import pytest

from modeaware.endpoint.desk import ActiveController
from modeaware.errors import ModeSourceError
from modeaware.wire import kip694, stock
from tests.support.conversation import (
    FakeDesk,
    Talk,
    old_metadata_request,
)


def served(desk: FakeDesk, version: int, names: list[str] | None = None) -> tuple[bytes, bytes]:
    """What the broker says, and what the client is told."""
    talk = Talk(desk)
    talk.ask(old_metadata_request(5, version, names))
    upstream = talk.broker.answer()
    talk.broker_answers(upstream)
    assert talk.closed is None
    return upstream, talk.told[0]


@pytest.mark.parametrize("version", range(1, 10))
@pytest.mark.parametrize("names", [None, [], ["orders", "plain"], ["absent"]])
@pytest.mark.parametrize(
    ("active", "node"),
    [
        (True, (kip694.ENDPOINT_NODE_ID, "endpoint.example", 9690)),
        (False, (kip694.ENDPOINT_NODE_ID, "active.example", 9691)),
    ],
)
def test_served_ones_are_told_the_active_controller_and_else_what_the_broker_says(
    version: int, names: list[str] | None, active: bool, node: tuple[int, str, int]
) -> None:
    upstream, told = served(FakeDesk(active=active), version, names)
    correlation_id, answer = stock.decode_response(told, 3, version)
    _, expected = stock.decode_response(upstream, 3, version)
    broker_class = type(expected).MetadataResponseBroker
    node_id, host, port = node
    expected.brokers.append(broker_class(version=version, node_id=node_id, host=host, port=port, rack=None))
    expected.controller_id = node_id
    assert told == stock.encode_response(expected, version, 5)
    assert (correlation_id, answer.controller_id) == (5, node_id)


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("claimed", [None, ActiveController("other")])
def test_served_ones_are_told_what_the_broker_says_where_nobody_takes_changes(
    version: int, claimed: ActiveController | None
) -> None:
    upstream, told = served(FakeDesk(active=False, claimed=claimed), version, ["orders"])
    assert told == upstream


def test_served_ones_are_served_before_the_mode_log_was_read() -> None:
    class Unread(FakeDesk):
        def claim(self) -> ActiveController | None:
            raise ModeSourceError("the mode log has not been read yet")

    upstream, told = served(Unread(active=False), 9)
    assert told == upstream
