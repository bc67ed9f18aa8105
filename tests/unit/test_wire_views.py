"""What answers to KIP-694's Metadata mean for the views; without a thread of its own, the test asks in its place."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from modeaware.errors import ErrorCode, ModeSourceError, NotAuthorized
from modeaware.modelog.records import ClaimRecord
from modeaware.topic_view import REPLACEMENT_STATES, Moved, ReplacedBy, TopicView
from modeaware.views import wire as wire_module
from modeaware.views.store import ViewStore
from modeaware.views.wire import TopicsMissing, WireSource
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.modelog import NONE, RO, RW, topic_record
from tests.support.waiting import eventually


class Wire:
    """A WireSource over a server, and what its listeners hear."""

    def __init__(self, *, ours: bool = True) -> None:
        self.endpoint = FakeEndpoint(ours=ours)
        self.store = ViewStore(lambda _fresh, _timeout_s: None, 60_000)
        conf, self.stopping = {"bootstrap.servers": self.endpoint.address}, False
        self.groups: set[str] = set()
        self.views = WireSource(
            conf, self.store, lambda: not self.stopping, take_id=self.store.choose, groups=lambda: self.groups
        )
        self.views.point_to(self.endpoint.address, ours=ours)
        self.heard: list[dict[str, TopicView]] = []
        self.store.subscribe(lambda changed: self.heard.append(dict(changed)))
        self.store.confirm()
        self.heard.clear()

    def put(self, *args: object, **others: object) -> TopicView:
        view = topic_record(*args, **others).view()  # type: ignore[arg-type] # passed on
        self.endpoint.views[view.topic] = view
        return view

    def ask(self, *, fresh: bool = False) -> None:
        self.views.fetch(60, fresh=fresh)

    def held(self, topic: str = "orders") -> TopicView | None:
        return self.store.held(topic)

    def close(self) -> None:
        self.views.close()
        self.endpoint.stop()


@pytest.fixture
def wire() -> Iterator[Wire]:
    with closing(Wire()) as made:
        yield made


@pytest.fixture
def broker() -> Iterator[Wire]:
    """A broker that ships KIP-694: it tells modes, and nothing of ours."""
    with closing(Wire(ours=False)) as made:
        yield made


class TestAnswers:
    def test_a_view_is_the_same_as_the_log_tells_it(self, wire: Wire) -> None:
        told = wire.put("orders", 3, writable=4, rest=NONE, controller_epoch=2)
        more = {"reclaimed": frozenset({5, 11}), "previous_count": 12}
        told = wire.endpoint.views["orders"] = replace(told, **more)
        wire.ask()
        assert wire.held() == told
        assert wire.heard == [{"orders": told}]

    @pytest.mark.parametrize("state", range(4))
    def test_a_new_topic_is_the_same_as_the_log_tells_it(self, wire: Wire, state: int) -> None:
        told = wire.put("orders", 3, writable=0, rest=RO)
        reached = {name: n <= state for n, name in enumerate(REPLACEMENT_STATES) if n}
        to = ReplacedBy(
            "orders-v2",
            "v2-id",
            4,
            read_up_to={0: 9, 11: 0},
            groups=frozenset("ab"),
            groups_complete=state > 1,
            **reached,
        )
        told = wire.endpoint.views["orders"] = replace(told, replaced_by=to)
        wire.ask()
        assert (wire.held(), to.state) == (told, state)

    def test_client_is_told_of_its_own_groups_and_a_flag_never_goes_back(self, wire: Wire) -> None:
        told = wire.put("orders", 3, writable=0, rest=RO)

        def ask(version: tuple[int, int], *groups: str, every: bool = False) -> Moved:
            moved = Moved(every, frozenset(groups), version)
            wire.endpoint.views["orders"] = replace(told, replaced_by=ReplacedBy("v2", "id-2", 4, moved=moved))
            wire.ask()
            held = wire.held()
            assert held is not None
            assert held.replaced_by is not None
            return held.replaced_by.moved

        assert ask((1, 0), "billing") == Moved()
        wire.groups |= {"billing", "audit"}
        assert ask((1, 0), "billing", "other") == Moved(groups=frozenset({"billing"}))
        assert wire.endpoint.metadata()[-1].groups == ["audit", "billing"]
        assert ask((1, -1)) == Moved(groups=frozenset({"billing"})), "a server that lags behind"
        assert ask((1, 1), every=True) == Moved(groups=frozenset({"audit", "billing"}))
        assert ask((2, 2), "audit") == Moved(groups=frozenset({"audit"})), "a group that was taken out"

    def test_the_claim_is_the_controller_and_its_address(self, wire: Wire) -> None:
        wire.put("orders", 1, controller_epoch=4)
        wire.ask()
        assert wire.views.claim() is None
        wire.endpoint.controller = ("c-7", 9694)
        wire.ask()
        assert wire.views.claim() == ClaimRecord(4, "127.0.0.1:9694", "c-7")

    def test_rubbish_changes_nothing_and_is_an_error(self, wire: Wire) -> None:
        wire.put("orders", 1)
        wire.ask()
        wire.put("orders", 2)
        wire.endpoint.tamper = lambda answer: answer[:-5]
        with pytest.raises(ModeSourceError, match="cannot be decoded"):
            wire.ask()
        wire.endpoint.tamper = lambda answer: answer
        wire.ask()
        assert [call["orders"].epoch for call in wire.heard] == [1, 2]

    def test_no_request_waits_for_an_earlier_one_for_long(self, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
        view = wire.put("orders", 1)
        monkeypatch.setattr(wire_module, "TURN_S", 0.0)
        wire.ask()
        wire.endpoint.metadata()
        wire.endpoint.answering.clear()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(wire.ask)
            eventually(lambda: wire.endpoint.asked)
            with pytest.raises(ModeSourceError, match="an earlier request is still without an answer"):
                wire.views.fetch(0.0, fresh=False)
            with pytest.raises(ModeSourceError, match=r"no answer from .* yet"):
                wire.views.point_to(wire.endpoint.address, ours=True)
            wire.views.close()
            wire.endpoint.answering.set()
            asked.result(30)
        assert wire.held() == view

    def test_modes_that_do_not_exist_are_an_error(self, wire: Wire) -> None:
        wire.endpoint.views["orders"] = TopicView("orders", "id", (1, 1), cast(Any, (1, 77)))
        with pytest.raises(ModeSourceError, match="topic 'orders': 77 is not a valid PartitionMode"):
            wire.ask()


class TestNeverBack:
    """Invariant I4 over the wire: whoever lags behind takes nothing back."""

    def test_a_recreated_topics_view_replaces_the_deleted_topics_for_good(self, wire: Wire) -> None:
        old = wire.put("orders", 9, topic_id="old")
        wire.ask()
        new = wire.put("orders", 1, topic_id="new")
        wire.ask()
        assert wire.held() == new
        wire.endpoint.views["orders"] = old  # a standby that lags behind
        wire.ask()
        assert wire.held() == new

    def test_a_topic_that_is_left_out_is_asked_for_by_name_and_fresh(self, wire: Wire) -> None:
        view = wire.put()
        wire.ask()
        wire.endpoint.hidden.add("orders")
        wire.endpoint.metadata()
        wire.ask()
        asked = wire.endpoint.metadata()
        assert [([t.name for t in a.topics or ()], a.modes_only, a.fresh) for a in asked] == [
            ([], True, False),
            (["orders"], False, True),
        ]
        assert wire.held() == view

    @pytest.mark.parametrize("existing", [True, False])
    def test_a_topic_whose_record_was_taken_back_loses_its_view(self, wire: Wire, existing: bool) -> None:
        view = wire.put()
        wire.ask()
        del wire.endpoint.views["orders"]
        wire.endpoint.removed = {str(view.topic_id), "another"}
        if existing:  # made anew since, and never shrunk
            wire.endpoint.existing["orders"] = 12
        wire.ask()
        assert wire.endpoint.metadata()[-1].held_topic_ids == [view.topic_id]
        assert wire.views.confirm_due_s is None
        assert wire.heard[-1] == {"orders": TopicView.unlisted("orders")}
        wire.endpoint.views["orders"] = view  # a standby that lags behind
        wire.ask()
        assert wire.held() is None
        newer = wire.put("orders", view.epoch + 1)
        wire.ask()
        assert wire.held() == newer

    def test_one_that_is_said_not_to_exist_goes_when_that_is_said_again(
        self, wire: Wire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        view = wire.put()
        wire.ask()
        del wire.endpoint.views["orders"]
        wire.ask()
        wire.ask()
        assert wire.held() == view
        assert wire.views.confirm_due_s is not None
        monkeypatch.setattr(wire_module, "CONFIRM_S", 0.0)
        wire.endpoint.views["orders"] = view  # it was only a broker that had just started
        wire.ask()
        assert wire.views.confirm_due_s is None
        del wire.endpoint.views["orders"]
        wire.ask()
        assert wire.held() is None
        assert wire.views.confirm_due_s is None
        older = replace(view, version=(view.version[0], view.epoch - 1))
        wire.endpoint.views["orders"] = older  # a standby that lags behind
        wire.ask()
        assert wire.held() is None
        wire.endpoint.views["orders"] = view  # it was there all the time
        wire.ask()
        assert wire.held() == view

    @pytest.mark.parametrize("turn", ["denied", "told without a record", "removed by the other source"])
    def test_what_is_not_said_to_be_unknown_any_more_is_no_doubt(self, wire: Wire, turn: str) -> None:
        view = wire.put()
        wire.ask()
        del wire.endpoint.views["orders"]
        wire.ask()
        assert wire.views.confirm_due_s is not None
        if turn == "denied":
            wire.endpoint.topic_errors["orders"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif turn == "told without a record":
            wire.endpoint.existing["orders"] = 12
        else:
            wire.store.publish((), ["orders"])
        with suppress(TopicsMissing):
            wire.ask()
        assert wire.views.confirm_due_s is None
        assert wire.held() == (None if turn.startswith("removed") else view)

    @pytest.mark.parametrize("code", [5, 29, 72])
    def test_any_other_error_keeps_the_view_and_is_told(self, wire: Wire, code: int) -> None:
        kept, other = wire.put("orders", 1), wire.put("other", 1)
        wire.ask()
        wire.endpoint.topic_errors["orders"] = code
        other = wire.put("other", 2)
        with pytest.raises(TopicsMissing, match=rf"orders \(error {code}\)") as caught:
            wire.ask()
        assert isinstance(caught.value, NotAuthorized) == (code == 29)
        assert (wire.held("orders"), wire.held("other")) == (kept, other)

    def test_a_response_without_the_topic_keeps_its_view(self, wire: Wire) -> None:
        kept = wire.put()
        wire.ask()
        del wire.endpoint.views["orders"]
        wire.endpoint.existing["orders"] = 12
        wire.endpoint.tamper = lambda answer: answer.replace(b"orders", b"others")
        with pytest.raises(TopicsMissing):
            wire.ask()
        assert wire.held() == kept


class TestTopicMadeAnew:
    """The server tells a topic without epochs and with its id: its record is of another topic id (invariant I8)."""

    def test_view_of_another_topic_id_goes_out_of_force_without_an_error(self, wire: Wire) -> None:
        wire.put("orders", 3, writable=4)
        wire.ask()
        del wire.endpoint.views["orders"]
        wire.endpoint.existing["orders"] = 12
        wire.endpoint.replaced["orders"] = "another-id"
        wire.ask()
        assert wire.held() is None
        assert [set(call) for call in wire.heard] == [{"orders"}, {"orders"}]
        wire.ask()
        assert wire.held() is None


class TestBrokerOfTheKip:
    def test_modes_are_taken_and_counted(self, broker: Wire) -> None:
        broker.put("orders", 7, writable=4)
        broker.endpoint.existing["plain"] = 6
        broker.ask()
        held = broker.held()
        assert (held.topic_id, held.version, held.modes) == (None, (0, 1), (RW,) * 4 + (RO,) * 8)
        assert broker.held("plain") is None
        broker.put("orders", 8, writable=2)
        broker.ask()
        broker.ask()
        held = broker.held()
        assert (held.version, held.writable) == ((0, 2), (0, 1))
        assert len(broker.heard) == 2

    def test_it_takes_no_view_back_that_came_with_an_epoch(self, broker: Wire) -> None:
        known = topic_record("orders", 3, writable=4).view()
        broker.store.publish([known])
        broker.put("orders", 1, writable=12)
        broker.ask()
        assert broker.held() == known
        del broker.endpoint.views["orders"]
        broker.endpoint.existing["orders"] = 12
        broker.endpoint.hidden.add("orders")
        broker.ask()
        assert broker.held() == known


class TestConnection:
    def test_who_does_not_answer_is_an_error_in_time(self, wire: Wire) -> None:
        wire.endpoint.answering.clear()
        with pytest.raises(ModeSourceError) as caught:
            wire.views.fetch(0.3, fresh=False)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        wire.endpoint.answering.set()
        wire.ask()

    def test_a_stop_ends_the_waiting(self, wire: Wire) -> None:
        wire.endpoint.answering.clear()
        wire.stopping = True
        with pytest.raises(ModeSourceError):
            wire.views.fetch(300, fresh=False)
