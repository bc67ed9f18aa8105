"""The gates of one member, over a client that answers from tables: subscriptions, requests, commits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from modeaware.chain import predecessors, read_topics
from modeaware.clients.gate import GATE_OPENED, READ
from modeaware.clients.gates import ASK_S, LOG_STARTS_S, SELDOM_S, UNCOMMITTED_S
from modeaware.clients.named import PairedName
from modeaware.confluent.gates import LibrdkafkaGroup, Onlooker
from modeaware.confluent.ownership import GroupConf
from modeaware.topic_view import Successor, TopicView
from tests.support.fake_views import modes_of
from tests.support.gate_member import OWN, REFRESH_S, SILENT, Member


def test_successor_is_subscribed_to_once_a_broker_has_it_and_the_topic_until_it_is_let_go() -> None:
    member = Member("b")
    assert member.topics() == ("a",)
    member.stock.absent.clear()
    assert member.topics() == ("a", "b")
    member.sealed(0, 0)
    assert member.look()
    assert member.topics() == ("a", "b")
    member.told(let_go=True)
    member.look()
    assert member.topics() == ("b",)
    member.commits("b", 0, 0)
    member.look(SELDOM_S)
    assert member.gates.due_s() is None, "nothing is looked at any more"


def test_empty_topic_is_kept_until_the_group_has_a_commit_on_it() -> None:
    member = Member()
    member.sealed(0, 0)
    member.told(let_go=True)
    end = Successor("c", "id-c", 2, switched=True, read_up_to={0: 0, 1: 0}, let_go=True)
    member.views.put(TopicView("b", "id-b", (1, 1), modes_of(2, 2), successor=end))
    member.look()
    assert member.topics() == ("b", "c"), "the controller waits for it, before it deletes a"
    member.commits("b", 0, 0)
    member.look(SELDOM_S)
    assert member.topics() == ("c",)


def test_group_that_comes_when_the_topic_is_let_go_commits_nothing_by_itself() -> None:
    member = Member()
    member.told(switched=True, groups=frozenset(), read_up_to={0: 0, 1: 0}, let_go=True)
    member.look()
    member.look(SELDOM_S + UNCOMMITTED_S)
    assert member.gates.due_s() is None
    assert member.stock.committed_offsets == {}, "where it has none, its auto.offset.reset decides each time"


@pytest.mark.parametrize("inside", [False, True])
def test_successor_that_the_client_did_not_see_is_looked_at_anew_before_it_is_subscribed_to(inside: bool) -> None:
    member = Member("b")
    member.inside = inside
    member.onlooker.sees_all = True
    assert member.topics() == ("a",)
    member.sealed(0, 0)
    assert member.topics() == ("a", "b")
    assert member.stock.renewed == ["b"] * (not inside), "within a callback, confluent_kafka would abort"
    assert Member().topics() == ("a", "b")
    seen = Member()
    seen.sealed(0, 0)
    seen.topics()
    assert seen.stock.renewed == [], "nothing is asked for what is known"


def test_chain_is_subscribed_to_as_far_as_the_group_needs_it() -> None:
    member = Member()
    member.views.put(TopicView("b", "id-b", (1, 1), modes_of(2, 2), successor=Successor("c", "id-c", 1, switched=True)))
    assert member.topics() == ("a", "b", "c")
    member.told(gone=True)
    assert member.topics() == ("b", "c")
    assert read_topics("c", member.views.view, lambda view: True) == ["c"]


@pytest.mark.parametrize(
    ("pattern", "more"), [("^a", ("b",)), ("^[ab]$", ()), ("^x", ()), ("^(", ())], ids=["old", "both", "none", "broken"]
)
def test_pattern_is_widened_by_what_it_does_not_match(pattern: str, more: tuple[str, ...]) -> None:
    member = Member()
    assert member.gates.topics([pattern, "other"]) == (pattern, *more, "other")


@pytest.mark.parametrize("pattern", ["^a", "^.$", "^x|a"])
def test_topic_that_was_let_go_is_left_out_of_a_pattern(pattern: str) -> None:
    member = Member()
    member.names = [pattern]
    member.sealed(5, 5)
    member.deliver("a", 0, 5)
    member.commits("a", 5, 5)
    assert member.look()
    member.told(let_go=True)
    member.commits("b", 0, 0)
    member.look(SELDOM_S)
    assert pattern in member.topics(), "the brokers have not answered which topics there are"
    member.onlooker.there = {"a", "b", "c", "not"}
    member.look(ASK_S)
    more = {"^a": set[str](), "^.$": {"c"}, "^x|a": set[str]()}[pattern]
    assert {*member.topics()} == {"b", *more}
    member.onlooker.there |= {"ax", "d"}
    assert {*member.topics()} == {"b", *more}
    member.look(REFRESH_S)
    more = {"^a": {"ax"}, "^.$": {"c", "d"}, "^x|a": {"ax"}}[pattern]
    assert {*member.topics()} == {"b", *more}
    assert member.gates.due_s() == member.now_s + REFRESH_S
    member.told(gone=True)
    member.onlooker.there -= {"a"}
    member.look(REFRESH_S)
    assert {*member.topics()} == {"b", *more}, "librdkafka would report for ever that the topic is absent"
    member.view = replace(member.view, version=(1, 99), successor=None)
    member.views.put(member.view)
    member.look()
    assert member.topics() == (pattern,)
    assert member.gates.due_s() is None


@pytest.mark.parametrize(
    ("pattern", "found", "lists"),
    [("^.$", ("^.$",), 0), ("^[ac]$", ("^[ac]$", "b"), 1), ("^a$", ("b",), 1)],
    ids=["matches the successor", "matches another topic", "matches nothing"],
)
def test_member_that_begins_when_the_topic_is_gone_subscribes_to_the_pattern(
    pattern: str, found: tuple[str, ...], lists: int
) -> None:
    member = Member()
    member.sealed(0, 0)
    member.told(let_go=True, gone=True)
    member.gates._met.clear()  # private: it begins now
    member.names, member.onlooker.there = [pattern], {"b", "c"}
    member.gates.ask_before_joining(member.names)
    for _ in range(3):
        member.look()
        assert member.topics() == found
    assert (member.gates.due_s() is None) == (pattern in found)
    assert member.onlooker.lists == lists
    assert not member.stock.requests


def test_member_that_began_when_the_topic_was_gone_leaves_out_the_next_one() -> None:
    member = Member()
    member.sealed(0, 0)
    member.told(let_go=True, gone=True)
    later = Member()
    later.views.put(member.view)
    later.gates._met.clear()  # private: it begins now
    later.names, later.onlooker.there = ["^(b|c)+$|^a"], {"b", "c"}
    later.look()
    assert later.topics() == tuple(later.names)
    end = Successor("bb", "id-bb", 1, switched=True, let_go=True, read_up_to={0: 0, 1: 0})
    later.views.put(TopicView("b", "id-b", (1, 50), modes_of(2, 2), successor=end))
    later.onlooker.there |= {"bb", "cc"}
    later.commits("bb", 0)
    later.look(REFRESH_S)
    assert {*later.topics()} == {"c", "cc", "bb"}


def test_client_that_is_not_answered_is_kept_and_requests_less_often() -> None:
    member = Member()
    member.names = ["^.$"]
    member.sealed(0, 0)
    member.told(let_go=True)
    member.commits("b", 0, 0)
    for wait_s in (ASK_S, 2 * ASK_S, 4 * ASK_S):
        member.look(REFRESH_S)
        member.topics()
        closes = member.onlooker.closes
        assert member.gates.due_s() == member.now_s + wait_s
    member.look(SELDOM_S)
    assert member.onlooker.closes == closes
    for _ in range(10):
        member.look(REFRESH_S)
        member.topics()
    assert member.gates.due_s() == member.now_s + REFRESH_S
    assert member.onlooker.closes == closes
    member.onlooker.there = {"a", "b", "c"}
    member.look(REFRESH_S)
    assert {*member.topics()} == {"b", "c"}
    assert member.onlooker.closes > closes


def test_client_that_cannot_be_created_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(conf: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FAIL))

    monkeypatch.setattr("modeaware.confluent.gates.Consumer", refuse)
    assert Onlooker({"bootstrap.servers": "127.0.0.1:1"}, "g").topics() == frozenset()


def test_pattern_stays_where_a_deleted_topic_that_is_named_would_be_created_again() -> None:
    member = Member(creates_topics=True)
    member.names, member.onlooker.there = ["^.$"], {"a", "b", "c"}
    member.sealed(0, 0)
    member.told(let_go=True)
    member.commits("b", 0, 0)
    member.look()
    assert member.topics() == ("^.$",)
    assert not member.onlooker.lists
    assert GroupConf.of({"allow.auto.create.topics": "true"}).creates_topics
    assert not GroupConf.of({}).creates_topics


def test_absence_of_a_topic_that_a_pattern_matched_is_no_event_and_is_looked_up() -> None:
    member = Member()
    member.names = ["^.$"]
    member.onlooker.there = {"a", "b", "c"}
    member.sealed(0, 0)
    member.told(let_go=True)
    member.commits("b", 0, 0)
    member.look()
    assert {*member.topics()} == {"b", "c"}
    member.onlooker.there = {"a", "b"}
    assert member.gates.is_absence(absence("c"))
    assert not member.gates.is_absence(absence("a")), "it is not subscribed to"
    assert {*member.topics()} == {"b"}


def test_member_by_a_pattern_that_is_assigned_nothing_leaves_out_the_topic_too() -> None:
    member = Member()
    member.names, member.mine = ["^a"], set()
    member.onlooker.there = {"a", "b"}
    member.sealed(5, 5)
    member.told(let_go=True)
    member.commits("a", 5, 5)
    member.commits("b", 0, 0)
    member.look()
    assert member.topics() == ("b",)
    member.gates.on_assign((), ())
    assert member.topics() == ("b",)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pattern", ["^(", "^[[:alpha:]]$", r"^(\d|.)$", r"^\D$", "^[[a]$"])
def test_pattern_that_is_not_pythons_stays_as_it_is(pattern: str) -> None:
    member = Member()
    member.names = [pattern]
    member.onlooker.there = {"a", "b"}
    member.sealed(0, 0)
    member.told(let_go=True)
    member.commits("b", 0, 0)
    member.look()
    assert member.topics() == (pattern,)


@pytest.mark.parametrize(("whole_names", "more"), [(False, ()), (True, ("ab",))])
def test_pattern_matches_whole_names_where_brokers_match_it(whole_names: bool, more: tuple[str, ...]) -> None:
    member = Member(whole_names=whole_names)
    member.view = replace(member.view, version=(1, 2), successor=Successor("ab", "id-b", 2))
    member.views.put(member.view)
    assert member.gates.topics(["^a"]) == ("^a", *more)


@pytest.mark.parametrize("is_pattern", [False, True])
def test_what_a_subscription_costs_a_topic_does_not_grow_with_their_number(
    monkeypatch: pytest.MonkeyPatch, is_pattern: bool
) -> None:
    looks = []
    for count in (10, 100):
        member = Member()
        several(member, count, switched=True)
        views = Mock(side_effect=member.views.views)
        monkeypatch.setattr(member.views, "views", views)
        member.names = ["^t"] if is_pattern else member.names
        assert len(member.topics()) == count + len(member.names)
        looks.append(views.call_count)
    assert looks[0] == looks[1] > 0, "each goes through all topics"


def several(member: Member, count: int = 9, **state: Any) -> None:
    """It subscribes to topics that are replaced, too: ``t0`` and so on by ``u0`` and so on."""
    for n in range(count):
        successor = Successor(f"u{n}", f"id-u{n}", 2, **state)
        member.views.put(TopicView(f"t{n}", f"id-t{n}", (1, 1), modes_of(2, 2), successor=successor))
    member.names = [f"t{n}" for n in range(count)]


def test_successors_that_are_announced_together_are_looked_up_together() -> None:
    """By the client itself: each answer may take ``fetch.wait.max.ms``, as it comes after that to a fetch."""
    member = Member()
    several(member)
    assert len(member.topics()) == 18
    assert member.stock.listings[1:] == [{f"u{n}" for n in range(9)}]
    member.topics()
    assert len(member.stock.listings) == 2


def test_successor_that_is_not_there_yet_keeps_no_other_from_being_subscribed_to() -> None:
    member = Member("u3")
    several(member)
    assert {*member.topics()} == {f"{letter}{n}" for letter in "tu" for n in range(9)} - {"u3"}
    member.stock.absent.clear()
    assert "u3" in member.topics()


def test_log_starts_of_all_gates_are_requested_together() -> None:
    member = Member()
    several(member, switched=True, groups=frozenset({"g"}), read_up_to={0: 5, 1: 5})
    member.mine = {(f"t{n}", 0) for n in range(9)}
    member.topics()
    for n in range(9):
        member.deliver(f"t{n}", 0, 5)
        member.stock.first[f"t{n}", 1] = 5
    member.look()
    assert (member.onlooker.listings[1:], member.stock.listings[1:]) == ([{f"t{n}" for n in range(9)}], [])
    member.look(ASK_S)
    assert not member.gates.shut & {f"u{n}" for n in range(9)}


def test_log_start_of_a_partition_that_is_replayed_is_requested_with_those_of_other_gates() -> None:
    """The group has committed it to its end, the application went back, and retention takes it meanwhile."""
    member = Member()
    several(member, switched=True, groups=frozenset({"g"}), read_up_to={0: 5, 1: 5})
    member.mine = {("t0", 0), ("t1", 0)}
    member.topics()
    member.commits("t1", 5, None, note=None)
    member.stock.positions["t1", 0] = 2
    for _ in range(3):
        member.look(LOG_STARTS_S)
    assert "this member to read t1 [0]" in waits(member)["t1"]
    member.stock.first["t1", 0] = 5
    member.look(LOG_STARTS_S)
    assert "the group to commit t1 [1]" in waits(member)["t1"]


def test_log_starts_are_not_requested_any_more_where_retention_has_taken_all(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    log_starts = Mock(return_value={("a", 0): 5, ("a", 1): 5})
    monkeypatch.setattr(LibrdkafkaGroup, "log_starts", log_starts)
    member.sealed(5, 5)
    member.stock.down = SILENT
    for _ in range(3):
        assert not member.look(LOG_STARTS_S)
    assert log_starts.call_count == 1


def waits(member: Member) -> dict[str, str]:
    return {gate["topic"]: gate["waits_for"] for gate in member.gates.stats()}


def test_another_topic_of_the_successors_name_has_no_gate() -> None:
    member = Member()
    member.views.put(TopicView("b", "another", (1, 1), modes_of(2, 2)))
    assert predecessors(member.views.views()) == {}
    assert member.topics() == ("a",)


def absence(topic: str, code: int = KafkaError.UNKNOWN_TOPIC_OR_PART) -> Any:
    return SimpleNamespace(topic=lambda: topic, error=lambda: KafkaError(code))


def test_successor_of_an_undone_replacement_stays_hidden_and_its_absence_is_no_event() -> None:
    member = Member()
    assert not member.look()
    member.view = replace(member.view, version=(1, 2), successor=None)
    member.views.put(member.view)
    assert not member.look()
    assert member.topics() == ("a",)
    assert not member.look()
    assert member.gates.undone == {"b"}
    assert member.gates.is_absence(absence("b"))
    assert not member.gates.is_absence(absence("a"))
    assert not member.gates.is_absence(absence("b", KafkaError.TOPIC_AUTHORIZATION_FAILED))
    member.names = ["a", "b"]
    member.topics()
    assert member.look(), "the application asks for it"
    assert not member.gates.is_absence(absence("b"))


def test_undone_successor_is_hidden_for_an_unordered_member_and_under_its_logical_name_too() -> None:
    member = Member(on_replace="unordered")
    assert member.look()
    member.view = replace(member.view, version=(1, 2), successor=None)
    member.views.put(member.view)
    assert not member.look()
    assert member.gates.is_absence(absence("b"))
    assert member.gates.is_absence(absence(PairedName.of("a", "a", "b")))
    member.topics()
    member.gates.on_assign((), {("a", 0)})
    assert not member.gates.undone, "after the next assignment nothing of it is left"


def test_one_look_at_many_gates_is_cut_short_and_goes_on_with_the_others() -> None:
    """A coordinator that does not answer holds up the polling thread for one request, not for one of each gate."""
    member = Member()
    for n in range(4):
        new = Successor(f"p{n}", f"id-p{n}", 1, switched=True)
        member.views.put(TopicView(f"o{n}", f"id-o{n}", (1, 1), modes_of(2, 2), successor=new))
        member.names.append(f"o{n}")
    member.topics()
    asked: list[str] = []

    def silent(partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        asked.append(partitions[0].topic)
        member.now_s += timeout
        raise SILENT

    member.stock.committed = silent  # type: ignore[method-assign]  # a coordinator that is down
    for _ in range(5):
        before = len(asked)
        member.look(10)
        assert len(asked) == before + 1
    assert set(asked) == {"a", "o0", "o1", "o2", "o3"}


def test_absence_of_a_successor_is_an_event_where_the_application_reads_or_names_it() -> None:
    for names, settings in [(["a"], {"on_replace": "unordered"}), (["a", "b"], {}), (["^b"], {})]:  # none is undone
        member = Member(**settings)
        member.names = names
        member.topics()
        member.look()
        assert not member.gates.is_absence(absence("b"))


def test_topic_that_comes_back_to_the_name_is_subscribed_to_once_brokers_have_it_and_its_absence_is_no_event() -> None:
    member = Member("a")
    led = Successor("b", "id-b", 2, switched=True, let_go=True, gone=True)
    member.views.put(replace(member.view, version=(1, 2), successor=led))
    assert member.topics() == ("b",)
    member.views.put(TopicView("b", "id-b", (1, 3), modes_of(2, 2), successor=Successor("a", "id-2", 2)))
    assert member.topics() == ("b",)
    member.stock.absent.clear()
    assert {*member.topics()} == {"b", "a"}
    member.look()
    assert member.gates.is_absence(absence("a"))
    member.stock.absent.add("a")
    assert {*member.topics()} == {"b", "a"}, "it is asked for once"
    member.views.put(TopicView("b", "id-b", (1, 4), modes_of(2, 2), successor=Successor("a", "id-3", 2)))
    assert member.topics() == ("b",), "it is another one"


def test_gate_opens_when_the_group_has_handled_the_topic_to_its_end() -> None:
    member = Member()
    assert not member.look()
    assert "[0-1] to be final" in member.waits_for
    member.sealed(5, 7)
    member.deliver("a", 0, 4)
    assert not member.look()
    assert "this member to read a [0]" in member.waits_for
    member.deliver("a", 0, 5)
    assert not member.look()
    assert member.stock.committed_offsets["a", 0] == (5, READ), "at once, with the note for others"
    assert "commit a [1]" in member.waits_for
    member.commits("a", None, 7, note=None)
    assert not member.look(), "the other member may still work on its last record"
    member.commits("a", None, 7)
    member.starts.started(("b", 0), 0)
    assert member.look()
    assert member.stock.committed_offsets["b", 0] == (0, GATE_OPENED)


def test_nothing_is_decided_within_a_call_of_poll() -> None:
    member = Member()
    member.sealed(5, 0)
    member.deliver("a", 0, 5)
    member.polling = True
    assert not member.look()
    assert not member.stock.committed_offsets, "the application was not given the last record yet"
    member.polling = False
    assert member.look()


def test_commits_of_an_application_count_as_they_are_and_none_is_made_for_it() -> None:
    member = Member(auto_commit=False)
    member.sealed(5, 7)
    member.deliver("a", 0, 5)
    assert not member.look()
    assert not member.stock.committed_offsets
    member.commits("a", 5, 7, note=None)
    assert member.look()


def test_offsets_are_requested_seldom_while_this_member_has_more_to_read() -> None:
    member = Member()
    member.sealed(5, 7)
    member.look()
    before = member.stock.requests
    for _ in range(8):
        member.look(1.0)
    assert member.stock.requests == before
    member.commits("b", 0, note=GATE_OPENED)
    assert member.look(SELDOM_S), "another member has opened the gate"


def test_gate_that_was_open_is_open_for_a_member_that_starts_again() -> None:
    member = Member()
    member.told(switched=True)  # a fence was lifted: the end is not final
    member.commits("b", 0, 3)
    member.gates.on_assign(OWN, OWN)
    assert "b" not in member.gates.shut
    assert member.gates.due_s() is None
    member.sealed(9, 9)
    member.commits("a", 2, 2)
    assert member.look(), "set back: the gate stays open"


def test_what_retention_has_taken_need_not_be_read() -> None:
    member = Member()
    member.sealed(5, 7)
    member.commits("a", 5, None)
    member.deliver("a", 0, 5)
    assert not member.look()
    member.stock.first["a", 1] = 7
    assert member.look(LOG_STARTS_S)


def test_gate_opens_with_a_warning_when_commits_do_not_move(caplog: pytest.LogCaptureFixture) -> None:
    member = Member(gate_timeout_ms=60_000)
    member.sealed(0, 7)
    assert not member.look()
    for offset in range(3):
        member.commits("a", 0, offset)
        assert not member.look(59.0), "progress"
    assert member.look(61.0)
    assert "modeaware.gate.timeout.ms" in caplog.text
    member.told(let_go=True)
    member.look()
    assert member.topics() == ("a", "b"), "the group has not read it"


def test_coordinator_that_does_not_answer_is_asked_again() -> None:
    member = Member()
    member.stock.down = SILENT
    member.sealed(0, 0)
    assert not member.look()
    member.stock.down = None
    assert member.look(1.0)


class Unreadable(TopicPartition):
    """A commit of another client, whose metadata confluent_kafka cannot make text of."""

    @property
    def metadata(self) -> str:
        raise UnicodeDecodeError("utf-8", b"mine\xff", 4, 5, "invalid start byte")


def test_metadata_that_is_no_text_counts_as_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    member.sealed(0, 0)
    committed = member.stock.committed

    def unreadable(partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        found = committed(partitions, timeout)
        return [Unreadable(p.topic, p.partition, 0) if p.topic == "a" else p for p in found]

    monkeypatch.setattr(member.stock, "committed", unreadable)
    assert member.look()


def test_start_of_a_partition_without_an_owner_is_committed_after_a_while() -> None:
    member = Member()
    member.starts.started(("b", 0), 0)
    member.sealed(0, 0)
    assert member.look()
    assert ("b", 1) not in member.stock.committed_offsets, "its owner does it"
    member.stock.first["b", 1] = 3
    member.look(UNCOMMITTED_S)
    assert member.stock.committed_offsets["b", 1] == (3, GATE_OPENED)
    member.look(1.0)
    assert member.gates.due_s() is None


def test_first_commit_of_an_owner_is_not_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    member.sealed(0, 0)
    assert member.look()
    listed = member.stock.listed

    def owner_commits(partitions: list[TopicPartition]) -> list[TopicPartition]:
        member.commits("b", None, 500, note=None)
        return listed(partitions)

    monkeypatch.setattr(member.stock, "listed", owner_commits)
    member.look(UNCOMMITTED_S)
    assert member.stock.committed_offsets["b", 1] == (500, None)


def test_start_is_committed_at_the_first_poll_after_an_assignment_behind_an_open_gate() -> None:
    member = Member()
    member.sealed(0, 0)
    member.commits("b", None, 0)
    member.gates.on_assign(OWN, OWN)
    assert ("b", 0) not in member.stock.committed_offsets
    member.starts.started(("b", 0), 0)
    member.look(0.0)
    assert member.stock.committed_offsets["b", 0] == (0, GATE_OPENED)


def test_unordered_member_reads_both_and_keeps_the_topic_until_the_group_has_read_it() -> None:
    member = Member(on_replace="unordered")
    member.sealed(5, 5)
    assert member.look()
    member.commits("b", 0, 0)
    member.told(let_go=True)
    member.look(1.0)
    assert member.topics() == ("a", "b")
    member.commits("a", 5, 5)
    member.look(SELDOM_S)
    assert member.topics() == ("b",)


def test_group_that_reads_the_successor_alone_waits_for_nothing() -> None:
    member = Member()
    member.told(switched=True)
    member.names, member.mine = ["b"], {("b", 0)}
    member.gates.topics(["b"])
    assert member.look()


def test_group_that_begins_late_by_a_pattern_waits_though_others_hold_the_topic() -> None:
    member = Member()
    member.told(switched=True)
    member.names, member.mine = ["^[ab]$"], {("b", 0)}
    member.gates.topics(member.names)
    assert not member.look()


def test_member_that_reads_what_it_names_does_not_follow_and_commits_nothing_of_the_successor() -> None:
    member = Member(on_replace="named")
    member.mine = {("a", 0)}
    member.sealed(5, 5)
    member.commits("a", 5, 5)
    member.look()
    member.look(UNCOMMITTED_S)
    assert member.topics() == ("a",)
    assert member.gates.stats() == []
    assert {topic for topic, _ in member.stock.committed_offsets} == {"a"}
    member.names, member.mine = ["b"], {("b", 0)}  # it has been moved
    assert member.topics() == ("b",)
    assert member.look(), "the group has read the topic"


def test_replay_of_the_application_is_waited_for() -> None:
    member = Member()
    member.starts.started(("a", 0), 0)
    member.commits("a", None, 5)
    member.commits("a", 5, note=None)
    member.sealed(5, 5)
    for _ in range(3):
        assert not member.look(SELDOM_S)
    assert "this member to read a [0]" in member.waits_for


def test_position_before_the_first_record_does_not_show_that_the_gate_was_open() -> None:
    """kafka-python commits it of what it is assigned, also where the application named the topic before its time."""
    member = Member()
    member.commits("b", 0, 0, note=None)
    assert not member.look(SELDOM_S)
    late = Member()
    late.told(switched=True, groups=frozenset(), read_up_to={0: 5, 1: 5}, let_go=True)
    late.commits("a", 2, 5)
    late.commits("b", 0, 0, note=None)
    assert not late.look(SELDOM_S)
    member.commits("b", 0, 0, note=GATE_OPENED)
    assert member.look(SELDOM_S)


def test_group_whose_owner_has_moved_it_to_the_first_records_reads_them() -> None:
    """As ``modeaware groups prepare`` does it, for consumers that read the topic when they did not know modes."""
    member = Member()
    member.sealed(5, 5)
    member.commits("a", 5, 5, note=None)
    member.commits("b", 0, 0, note=None)
    member.names, member.mine = ["b"], {("b", 0), ("b", 1)}
    member.topics()
    assert member.look(SELDOM_S)


def test_member_that_starts_at_the_end_without_an_answer_is_not_behind() -> None:
    member = Member()
    member.commits("a", None, 5)
    member.commits("a", 5, note=None)  # by an earlier owner's library: only an owner can note that it is handled
    member.stock.down = SILENT
    member.starts.started(("a", 0), None)
    member.gates.on_assign(OWN, OWN)
    member.sealed(5, 5)
    assert not member.look()
    assert "this member to read a [0]" in member.waits_for
    member.stock.down = None
    assert not member.look(SELDOM_S)
    assert member.look(ASK_S)


def test_time_without_answers_is_no_time_without_progress() -> None:
    member = Member(gate_timeout_ms=60_000)
    member.sealed(0, 7)
    assert not member.look()
    member.stock.down = SILENT
    for _ in range(5):
        assert not member.look(50)
    assert "an answer" in member.waits_for
    member.stock.down = None
    assert not member.look(50)
    member.stock.down = SILENT
    assert not member.look(5)
    member.stock.down = None
    assert member.look(12), "one answer that is missing does not begin the time anew"


@pytest.mark.parametrize(("reset", "start"), [("latest", 0), ("earliest", 2), ("error", 0)])
def test_groups_noted_at_the_switch_start_at_the_beginning(reset: str, start: int) -> None:
    member = Member(reset=reset)
    member.sealed(5, 5)
    member.stock.first = {("b", 0): 2, ("b", 1): 0}
    offsets = SimpleNamespace(
        committed=dict.fromkeys,
        committed_elsewhere=dict.fromkeys,
        log_starts=lambda keys: {key: member.stock.first[key] for key in keys},
        log_ends=lambda keys: dict.fromkeys(keys, 9),
    )
    found = member.starts.find([("b", 0), ("b", 1)], offsets).starts
    assert found == {("b", 0): 2, ("b", 1): 0}
    member.told(groups=frozenset(), let_go=True)
    others = {"latest": 9, "earliest": start}
    assert member.starts.find([("b", 0)], offsets).starts.get(("b", 0)) == others.get(reset)


@pytest.mark.parametrize(("committed", "start"), [(4, 2), (5, 2), (None, 9)])
def test_late_group_that_has_used_the_predecessor_skips_nothing_of_the_successor(
    committed: int | None, start: int
) -> None:
    """It comes back when the topic was let go without it, or its offsets were set then. Also once it has read that to
    its end: it may have been restarted there. Another one begins now."""
    member = Member(reset="latest")
    member.told(switched=True, read_up_to={0: 5, 1: 5}, let_go=True)
    end = Successor("c", "id-c", 2, switched=True, let_go=True, read_up_to={0: 9, 1: 9})
    member.views.put(TopicView("b", "id-b", (1, 1), modes_of(2, 2), successor=end))
    commits: dict[tuple[str, int], int | None] = dict.fromkeys([(topic, p) for topic in "abc" for p in (0, 1)])
    offsets = SimpleNamespace(
        committed=dict.fromkeys,
        committed_elsewhere=lambda keys: {key: commits[key] for key in keys if key in commits},
        log_starts=lambda keys: dict.fromkeys(keys, 2),
        log_ends=lambda keys: dict.fromkeys(keys, 9),
    )
    commits["a", 1] = committed
    keys = [("b", 0), ("c", 0)]
    assert member.starts.find(keys, offsets).starts == dict.fromkeys(keys, start)
    member.told(let_go=False)
    assert member.starts.find([("c", 0)], offsets).starts == {("c", 0): start}, "a chain, of which the first one waits"
    member.told(let_go=True)
    member.told(gone=True)
    assert member.starts.find([("c", 0)], offsets).starts == {("c", 0): 9}, "a topic that is gone is not asked about"
    member.told(gone=False)
    del commits["a", 0]
    assert member.starts.find(keys, offsets).starts == dict.fromkeys(keys, 2), "in doubt it reads again"
    assert member.starts.find(keys, offsets, group=False).starts == dict.fromkeys(keys, 9), "without a group"


def test_start_is_not_committed_over_what_the_application_has_just_committed() -> None:
    """Another client of ours asks what is committed, and its request may overtake the application's commit."""
    member = Member(auto_commit=False)
    member.sealed(5, 5)
    member.commits("a", 5, 5, note=None)
    member.deliver("a", 0, 5)
    member.stock.positions["b", 0] = 3
    member.commits("b", 3, note=None)
    member.onlooker.committed = lambda partitions, timeout: [
        p if p.topic == "b" else each
        for p, each in zip(partitions, member.stock.committed(partitions, timeout), strict=True)
    ]
    member.starts.started(("b", 0), 0)
    assert member.look(SELDOM_S)
    assert member.stock.committed_offsets["b", 0] == (3, None)


def test_successor_that_was_created_anew_is_another_topic() -> None:
    """Without a record of its own: the predecessor's says so. Where it was read and where it started mean nothing."""
    member = Member()
    member.sealed(5, 5)
    member.starts.assigning(["b"])
    member.starts.started(("b", 0), 7)
    assert not member.starts.is_of_another_topic(("b", 0))
    member.told(topic_id="id-b-anew")
    member.look()
    assert member.starts.is_of_another_topic(("b", 0))
    member.starts.started(("b", 0), 3)
    assert not member.starts.is_of_another_topic(("b", 0)), "it is the new one that has started"


def test_assignment_by_the_application_is_left_alone_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    member = Member()
    for _ in range(2):
        member.gates.warn_of_manual({"a", "other"})
    assert caplog.text.count("assign those of b") == 1
