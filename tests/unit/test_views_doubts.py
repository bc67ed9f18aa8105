"""Topics that were once said to be gone are asked for while there is a doubt; the epoch of the claim never falls."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from modeaware.errors import ErrorCode
from modeaware.topic_view import TopicView
from modeaware.views.store import ViewStore
from modeaware.views.wire import TopicsNotTold, WireSource
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.modelog import topic_record


@pytest.fixture
def store() -> ViewStore:
    return ViewStore(lambda _fresh, _timeout_s: None, 60_000)


@pytest.fixture
def wire(endpoint: FakeEndpoint, store: ViewStore) -> Iterator[WireSource]:
    made = WireSource({"bootstrap.servers": endpoint.address}, store)
    made.point_to(endpoint.address, ours=True)
    yield made
    made.close()


@pytest.fixture
def doubted(endpoint: FakeEndpoint, wire: WireSource) -> TopicView:
    """A topic that was told, and then said to be unknown once."""
    view = endpoint.views["orders"] = topic_record("orders", 1).view()
    wire.fetch(60, fresh=True)
    assert wire.confirm_due_s is None
    del endpoint.views["orders"]
    wire.fetch(60, fresh=False)
    assert wire.confirm_due_s is not None
    return view


def _deny(endpoint: FakeEndpoint) -> None:
    endpoint.topic_errors["orders"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _tell_without_record(endpoint: FakeEndpoint) -> None:
    endpoint.existing["orders"] = 12


@pytest.mark.parametrize("turn", [_deny, _tell_without_record])
def test_what_is_not_said_to_be_unknown_any_more_is_no_doubt(
    endpoint: FakeEndpoint, store: ViewStore, wire: WireSource, doubted: TopicView, turn: Callable[[FakeEndpoint], None]
) -> None:
    turn(endpoint)
    with pytest.raises(TopicsNotTold):
        wire.fetch(60, fresh=False)
    assert wire.confirm_due_s is None
    assert store.held("orders") == doubted


def test_what_the_other_source_removed_is_no_doubt(store: ViewStore, wire: WireSource, doubted: TopicView) -> None:
    store.publish((), [doubted.topic])
    wire.fetch(60, fresh=False)
    assert wire.confirm_due_s is None
