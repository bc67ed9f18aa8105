"""The gates of one member: topics that are let go, and chains of them, whose offsets expire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.clients.gate import READ
from modeaware.clients.gates import ASK_S, SELDOM_S, UNCOMMITTED_S
from modeaware.topic_view import Successor, TopicView
from tests.support.fake_views import modes_of
from tests.support.gate_member import OWN, SILENT, Member


def test_topic_that_was_let_go_is_left_out_from_the_start_where_the_group_has_read_it() -> None:
    for committed, expected in [((5, 5), ("b",)), ((5, 3), ("a", "b"))]:
        member = Member()
        member.sealed(5, 5)
        member.told(let_go=True)
        member.commits("a", *committed)
        member.gates.follow((), ["a"])
        member.gates.ask_before_joining(["a"])
        assert member.topics() == expected


def test_new_group_that_is_answered_before_it_joins_reads_a_chain_in_its_order() -> None:
    member = Member()
    member.told(switched=True, groups=frozenset(), read_up_to={0: 5, 1: 5}, let_go=True)
    member.gates.subscribed = ()  # it begins now
    member.gates.follow((), ["a"])
    member.gates.ask_before_joining(["a"])
    assert member.stock.requests, "it is answered"
    assert member.topics() == ("a", "b")
    assert not member.look(), "the gate is shut"


def chain(member: Member, **changed: Any) -> None:
    """The topic ``b`` is replaced as well, by ``c``."""
    end = Successor("c", "id-c", 2, switched=True, groups=frozenset(), read_up_to={0: 5, 1: 5})
    member.views.put(TopicView("b", "id-b", (1, 1), modes_of(2, 2), successor=replace(end, **changed)))


def test_gate_does_not_open_by_its_timeout_while_the_one_before_it_is_shut() -> None:
    member = Member(gate_timeout_ms=60_000)
    member.told(switched=True, groups=frozenset(), read_up_to={0: 5, 1: 5})
    chain(member)
    for _ in range(4):
        member.deliver("a", 0, 1)
        assert not member.look(50)
        member.topics()
    assert member.gates.shut == {"b", "c"}
    member.deliver("a", 0, 5)
    member.commits("a", 5, 5)
    assert member.look(ASK_S)
    member.deliver("b", 0, 5)
    member.look(50)
    assert member.gates.shut == {"c"}, "its own time begins now"
    member.look(70)
    assert member.gates.shut == set()


def test_chain_whose_replacements_come_at_once_is_the_groups_before_it_is_subscribed_to() -> None:
    member = Member()
    member.told(switched=True, groups=frozenset(), read_up_to={0: 5, 1: 5})
    member.views.remove("a")
    member.mine = {("a", 0)}
    assert member.topics() == ("a",)
    member.views.put(member.view)
    chain(member)
    member.look(SELDOM_S)
    assert member.gates.shut == {"b", "c"}


def test_gates_of_a_former_subscription_are_not_asked_for_the_next() -> None:
    member = Member()
    member.told(switched=True, groups=frozenset(), read_up_to={0: 5, 1: 5}, let_go=True)
    member.topics()
    member.gates.ask_before_joining(["z"])
    assert not member.stock.requests
    member.gates.ask_before_joining(["a"])
    assert not member.look()


def test_topic_that_is_let_go_is_read_until_its_end_is_noted() -> None:
    """A library's own commit says nothing of the last record, and a member that is not subscribed notes nothing."""
    member = Member()
    member.sealed(5, 5)
    member.told(let_go=True)
    member.commits("a", 5, 5, note=None)
    member.gates.ask_before_joining(["a"])
    assert member.topics() == ("a", "b")
    member.mine = {("a", 0), ("a", 1), ("b", 0)}
    member.deliver("a", 0, 5)
    member.deliver("a", 1, 5)
    member.look(SELDOM_S)
    assert member.look(SELDOM_S)
    assert member.topics() == ("b",)


def test_member_without_partitions_asks_again_until_its_group_has_read_what_is_let_go() -> None:
    member = Member()
    member.sealed(5, 5)
    member.told(let_go=True)
    member.commits("a", 5, 3)
    for committed, expected in [(3, ("a", "b")), (5, ("b",))]:
        member.commits("a", 5, committed)
        member.now_s += SELDOM_S
        member.gates.ask_before_joining(["a"])
        assert member.topics() == expected
    asked = member.stock.requests
    member.gates.ask_before_joining(["a"])
    assert member.stock.requests == asked


def test_member_without_partitions_requests_offsets_at_times_from_a_coordinator_that_is_silent() -> None:
    member = Member()
    member.sealed(5, 5)
    member.told(let_go=True)
    member.stock.down = SILENT
    requests = []
    for after_s in (0.0, 0.0, ASK_S):
        member.now_s += after_s
        member.gates.ask_before_joining(["a"])
        requests.append(member.stock.requests)
    assert requests[0] == requests[1] < requests[2]


def test_answer_that_is_missing_brings_no_topic_back_into_the_subscription() -> None:
    member = Member(on_replace="unordered")
    member.sealed(5, 5)
    member.told(let_go=True)
    chain(member, let_go=True)
    member.commits("a", 5, 3)
    member.commits("b", 5, 5)
    member.commits("c", 1, 1)
    member.look(SELDOM_S)
    assert member.topics() == ("a", "c"), "the rest of a is read yet"
    member.stock.down = SILENT
    member.look(SELDOM_S)
    assert member.topics() == ("a", "c")


def replaced(topic: str, topic_id: str, successor: str, successor_id: str, **state: Any) -> TopicView:
    """The view of a topic with two partitions of five records, which is let go."""
    state = {"switched": True, "let_go": True, "groups": frozenset({"g"}), "read_up_to": {0: 5, 1: 5}} | state
    return TopicView(topic, topic_id, (1, 50), modes_of(2, 2), successor=Successor(successor, successor_id, 2, **state))


def test_topic_that_the_group_has_left_is_not_begun_anew_by_who_learns_it_late() -> None:
    """Its retention is longer than that of the offsets, and the coordinator did not answer before the member joined."""
    member = Member(reset="earliest")
    member.views.put(replaced("a", "id-a", "b", "id-b"))
    member.commits("b", 3, None)
    member.stock.down = SILENT
    member.gates.ask_before_joining(["a"])
    assert member.topics() == ("a", "b"), "it is not known what the group has read"
    member.gates.on_assign(OWN, OWN)
    assert member.gates.shut == {"a", "b"}
    member.stock.down = None
    member.look(SELDOM_S)
    assert member.gates.shut == {"a"}
    assert member.topics() == ("b",)
    member.views.put(replace(replaced("a", "id-a", "b", "id-b", let_go=False), version=(1, 51)))
    member.look()
    assert member.gates.shut == set(), "records came late, and are read"


def test_topic_that_is_let_go_is_begun_by_a_late_group_once_its_commits_are_known() -> None:
    member = Member(reset="earliest")
    member.views.put(replaced("a", "id-a", "b", "id-b", groups=frozenset()))
    member.stock.down = SILENT
    member.gates.on_assign(OWN, OWN)
    assert member.gates.shut == {"a", "b"}
    member.stock.down = None
    member.look(SELDOM_S)
    assert member.gates.shut == {"b"}


def test_topic_that_is_read_when_the_group_has_read_it_stays_until_the_next_assignment() -> None:
    member = Member()
    member.gates.on_assign(OWN, OWN)
    member.sealed(5, 5)
    member.deliver("a", 0, 5)
    member.commits("a", None, 5)
    assert member.look()
    member.told(let_go=True)
    member.commits("b", 0, 0)
    member.look(SELDOM_S)
    assert member.topics() == ("b",)
    assert member.gates.shut == set(), "the application is not told of a revocation that comes anyway"


@pytest.mark.parametrize("first", ["a", "b"])
def test_group_whose_offsets_on_a_chain_have_expired_reads_none_of_it_anew(first: str) -> None:
    member = Member(reset="earliest")
    views = {"a": replaced("a", "id-a", "b", "id-b"), "b": replaced("b", "id-b", "c", "id-c")}
    member.views.remove("a")
    for topic in (first, *views.keys() - {first}):
        member.views.put(views[topic])
    member.commits("c", 2, None)
    member.gates.ask_before_joining(["a"])
    assert member.topics() == ("c",)
    member.mine = {("c", 0)}
    member.stock.down = SILENT
    member.gates.on_assign(member.mine, member.mine)
    for _ in range(6):
        member.look(UNCOMMITTED_S)
        assert member.topics() == ("c",), "one rebalance more each time"
        member.stock.down = None
    kept = {key: at for key, at in member.stock.committed_offsets.items() if key[0] != "c"}
    assert kept == {("b", 0): (5, READ), ("b", 1): (5, READ)}, "the controller looks for them before it deletes a"


@pytest.mark.parametrize(
    ("groups", "others", "expected"),
    [({"g"}, 5, ("b",)), ({"g"}, 4, ("a", "b")), (set(), 5, ("a", "b"))],
    ids=["expired", "not read", "began late, and may not have come to it"],
)
def test_commit_that_has_expired_where_the_others_are_at_the_end_has_no_partition_read_anew(
    groups: set[str], others: int, expected: tuple[str, ...]
) -> None:
    member = Member(reset="earliest")
    member.views.put(replaced("a", "id-a", "b", "id-b", groups=frozenset(groups)))
    member.commits("a", others, None)
    member.commits("b", 3, 3)
    member.gates.ask_before_joining(["a"])
    assert member.topics() == expected


def test_topic_of_a_chain_is_not_begun_before_it_is_known_whether_the_group_has_gone_beyond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = Member(reset="earliest")
    member.views.put(replaced("a", "id-a", "b", "id-b"))
    member.views.put(replaced("b", "id-b", "c", "id-c"))
    member.commits("c", 2, None)
    committed = member.stock.committed
    monkeypatch.setattr(
        member.stock, "committed", lambda parts, timeout: committed([p for p in parts if p.topic != "c"], timeout)
    )
    member.gates.ask_before_joining(["a"])
    assert member.topics() == ("a", "b", "c")
    member.mine = {(topic, p) for topic in "abc" for p in (0, 1)}
    member.gates.on_assign(member.mine, member.mine)
    assert member.gates.shut == {"a", "b", "c"}
    monkeypatch.setattr(member.stock, "committed", committed)
    member.look(SELDOM_S)
    assert member.topics() == ("c",)
    assert "a" in member.gates.shut


def test_topic_that_is_let_go_is_shown_to_a_late_group_where_its_successor_was_deleted_by_hand() -> None:
    member = Member(reset="earliest")
    member.views.put(replaced("a", "id-a", "b", "id-b", groups=frozenset()))
    member.views.put(replaced("b", "id-b", "c", "id-c", gone=True))
    member.mine = {("a", 0), ("a", 1), ("c", 0)}
    member.topics()
    member.gates.on_assign(member.mine, member.mine)
    assert "a" not in member.gates.shut


def test_pattern_leaves_a_chain_for_good_in_whatever_order_its_gates_are_asked() -> None:
    member = Member(reset="earliest")
    member.onlooker.there = {"a", "b", "c", "d"}
    member.names = ["^a$"]
    for topic, successor in ("ab", "bc", "cd"):
        member.views.put(replaced(topic, f"id-{topic}", successor, f"id-{successor}"))
    member.commits("d", 2, None)
    member.gates.ask_before_joining(member.names)
    member.mine = {("d", 0)}
    member.stock.down = SILENT
    for _ in range(6):
        assert member.topics() == ("d",)
        member.look(SELDOM_S)
        member.stock.down = None
    assert member.gates.due_s() is not None, "the list of topics is renewed"
    assert {at for key, at in member.stock.committed_offsets.items() if key[0] in "bc"} == {(5, READ)}


def test_another_topic_of_a_name_is_not_hidden_in_the_place_of_one_that_was_left() -> None:
    member = Member(reset="earliest")
    member.views.put(replaced("a", "id-a", "b", "id-b"))
    member.commits("a", 5, 5)
    member.commits("b", 3, 3)
    member.gates.on_assign(OWN, OWN)
    assert member.gates.shut == {"a"}
    member.views.remove("a")
    member.gates.on_assign(OWN, OWN)
    assert member.gates.shut == set()
