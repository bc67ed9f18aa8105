"""The gates of one member, over a client that answers from tables: subscriptions, requests, commits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
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
from tests.support.gate_member import REFRESH_S, SILENT, Member
from tests.support.stories import Steps, Story

LATE = {"switched": True, "groups": frozenset[str](), "read_up_to": {0: 5, 1: 5}, "let_go": True}
"""What the view of ``a`` says where the replacement was over before the group began."""
BEYOND = Successor("c", "id-c", 2, switched=True, read_up_to={0: 0, 1: 0}, let_go=True)
BACK = TopicView("b", "id-b", (1, 1), modes_of(2, 2), successor=Successor("a", "id-2", 2))
"""The topic ``b`` is replaced by one of the first name."""
TO_C = TopicView("b", "id-b", (1, 1), modes_of(2, 2), successor=Successor("c", "id-c", 1, switched=True))
TO_BB = TopicView(
    "b", "id-b", (1, 50), modes_of(2, 2), successor=replace(BEYOND, topic="bb", topic_id="id-bb", partition_count=1)
)
TO_AB = TopicView("a", "id-a", (1, 2), modes_of(2, 2), successor=Successor("ab", "id-b", 2))
do = Steps()


def left_out(pattern: str, more: set[str], later: set[str]) -> Story:
    """A topic that was let go is left out of a pattern; ``more``: what else that matches, at first and then."""
    return Story(
        (do.reads(pattern), do.sealed(5, 5), do.deliver("a", 0, 5), do.commits("a", 5, 5), do.look(is_open=True)),
        # The brokers have not answered which topics there are.
        (do.told(let_go=True), do.commits("b", 0, 0), do.look(SELDOM_S), do.still_reads(pattern)),
        (do.brokers_have("a", "b", "c", "not"), do.look(ASK_S), do.has({"b", *more})),
        (do.brokers_have("a", "b", "c", "not", "ax", "d"), do.has({"b", *more})),
        (do.look(REFRESH_S), do.has({"b", *later}, due_in_s=REFRESH_S)),
        # librdkafka would report for ever that the topic is absent.
        (do.told(gone=True), do.brokers_have("b", "c", "not", "ax", "d"), do.look(REFRESH_S), do.has({"b", *later})),
        (do.undo(), do.look(), do.has((pattern,), due_s=None)),
    )


def begins_late(pattern: str, found: tuple[str, ...], lists: int) -> Story:
    """A member begins with a pattern when the topic is gone."""
    return Story(
        (do.sealed(0, 0), do.told(let_go=True, gone=True), do.has_met_none()),
        (do.reads(pattern), do.brokers_have("b", "c"), do.joins()),
        *[(do.look(), do.has(found))] * 3,
        do.has(is_over=pattern in found, lists=lists, is_answered=False),
    )


STORIES = {
    "successor is subscribed to once a broker has it, and the topic until it is let go": Story(
        (do.has(("a",)), do.brokers_have(), do.has(("a", "b"))),
        (do.sealed(0, 0), do.look(is_open=True), do.has(("a", "b"))),
        (do.told(let_go=True), do.look(), do.has(("b",))),
        (do.commits("b", 0, 0), do.look(SELDOM_S), do.has(due_s=None)),  # nothing is looked at any more
        absent=("b",),
    ),
    "empty topic is kept until the group has a commit on it": Story(
        (do.sealed(0, 0), do.told(let_go=True)),
        # The controller waits for it, before it deletes a.
        (do.put(TopicView("b", "id-b", (1, 1), modes_of(2, 2), successor=BEYOND)), do.look(), do.has(("b", "c"))),
        (do.commits("b", 0, 0), do.look(SELDOM_S), do.has(("c",))),
    ),
    "group that comes when the topic is let go commits nothing: its auto.offset.reset decides each time": Story(
        (do.told(**{**LATE, "read_up_to": {0: 0, 1: 0}}), do.look(), do.look(SELDOM_S + UNCOMMITTED_S)),
        do.has(due_s=None, committed={}),
    ),
    "pattern stays where a deleted topic that is named would be created again": Story(
        (do.reads("^.$"), do.brokers_have("a", "b", "c"), do.sealed(0, 0), do.told(let_go=True)),
        (do.commits("b", 0, 0), do.look(), do.has(("^.$",), lists=0)),
        creates_topics=True,
    ),
    "absence of a topic that a pattern matched is no event and is looked up": Story(
        (do.reads("^.$"), do.brokers_have("a", "b", "c"), do.sealed(0, 0), do.told(let_go=True)),
        (do.commits("b", 0, 0), do.look(), do.has({"b", "c"})),
        (do.brokers_have("a", "b"), do.absent("c"), do.absent("a", is_event=True), do.has({"b"})),
    ),
    "member by a pattern that is assigned nothing leaves out the topic too": Story(
        (do.reads("^a", mine=set()), do.brokers_have("a", "b"), do.sealed(5, 5), do.told(let_go=True)),
        (do.commits("a", 5, 5), do.commits("b", 0, 0), do.look(), do.has(("b",))),
        (do.assigned_more(), do.has(("b",))),
    ),
    "log start of a partition that is replayed is requested with those of other gates": Story(
        # The group has committed it to its end, the application went back, and retention takes it meanwhile.
        do.reads_replaced(switched=True, groups=frozenset({"g"}), read_up_to={0: 5, 1: 5}),
        (do.is_assigned(("t0", 0), ("t1", 0)), do.subscribed()),
        (do.commits("t1", 5, None, note=None), do.position("t1", 0, 2), *[do.look(LOG_STARTS_S)] * 3),
        (do.gate("t1", "this member to read t1 [0]"), do.retention("t1", 0, 5), do.look(LOG_STARTS_S)),
        do.gate("t1", "the group to commit t1 [1]"),
    ),
    "successor of an undone replacement stays hidden, and its absence is no event": Story(
        (do.look(is_open=False), do.undo(), do.look(is_open=False), do.has(("a",)), do.look(is_open=False)),
        (do.has(undone={"b"}), do.absent("b"), do.absent("a", is_event=True)),
        do.absent("b", KafkaError.TOPIC_AUTHORIZATION_FAILED, is_event=True),
        # Then the application asks for it.
        (do.reads("a", "b"), do.subscribed(), do.look(is_open=True), do.absent("b", is_event=True)),
    ),
    "undone successor is hidden for an unordered member and under its logical name too": Story(
        (do.look(is_open=True), do.undo(), do.look(is_open=False)),
        (do.absent("b"), do.absent(PairedName.of("a", "a", "b")), do.subscribed()),
        (do.assigned_more(("a", 0)), do.has(undone=set())),  # after the next assignment nothing of it is left
        on_replace="unordered",
    ),
    "absence of a successor is an event where the application reads it": Story(
        (do.reads("a"), do.subscribed(), do.look(), do.absent("b", is_event=True)), on_replace="unordered"
    ),
    "absence of a successor is an event where the application names it": Story(
        (do.reads("a", "b"), do.subscribed(), do.look(), do.absent("b", is_event=True))
    ),
    "absence of a successor is an event where a pattern matches it": Story(
        (do.reads("^b"), do.subscribed(), do.look(), do.absent("b", is_event=True))
    ),
    "topic that comes back to the name is subscribed to once brokers have it, and its absence is no event": Story(
        (do.told(switched=True, let_go=True, gone=True), do.has(("b",))),
        (do.put(replace(BACK, version=(1, 3))), do.has(("b",)), do.brokers_have(), do.has({"a", "b"})),
        (do.look(), do.absent("a"), do.lacks("a"), do.has({"a", "b"})),  # it is asked for once
        (
            do.put(replace(BACK, version=(1, 4), successor=Successor("a", "id-3", 2))),
            do.has(("b",)),
        ),  # it is another one
        absent=("a",),
    ),
    "gate opens when the group has handled the topic to its end": Story(
        do.look(is_open=False, waits="[0-1] to be final"),
        (do.sealed(5, 7), do.deliver("a", 0, 4), do.look(is_open=False, waits="this member to read a [0]")),
        (do.deliver("a", 0, 5), do.look(is_open=False, waits="commit a [1]")),
        do.commit_of("a", 0, 5, READ),  # at once, with the note for others
        (do.commits("a", None, 7, note=None), do.look(is_open=False)),  # the other may work on its last record
        (
            do.commits("a", None, 7),
            do.starts_at("b", 0, 0),
            do.look(is_open=True),
            do.commit_of("b", 0, 0, GATE_OPENED),
        ),
    ),
    "nothing is decided within a call of poll: the application was not given the last record yet": Story(
        (do.sealed(5, 0), do.deliver("a", 0, 5), do.within_poll(True), do.look(is_open=False), do.has(committed={})),
        (do.within_poll(False), do.look(is_open=True)),
    ),
    "commits of an application count as they are, and none is made for it": Story(
        (do.sealed(5, 7), do.deliver("a", 0, 5), do.look(is_open=False), do.has(committed={})),
        (do.commits("a", 5, 7, note=None), do.look(is_open=True)),
        auto_commit=False,
    ),
    "offsets are requested seldom while this member has more to read": Story(
        (do.sealed(5, 7), do.look(), do.counts_requests(), *[do.look(1.0)] * 8, do.has(requests=0)),
        (do.commits("b", 0, note=GATE_OPENED), do.look(SELDOM_S, is_open=True)),  # another member has opened the gate
    ),
    "gate that was open is open for a member that starts again": Story(
        (do.told(switched=True), do.commits("b", 0, 3), do.assigned()),  # a fence was lifted: the end is not final
        do.has(shut=set(), due_s=None),
        (do.sealed(9, 9), do.commits("a", 2, 2), do.look(is_open=True)),  # set back: the gate stays open
    ),
    "what retention has taken need not be read": Story(
        (do.sealed(5, 7), do.commits("a", 5, None), do.deliver("a", 0, 5), do.look(is_open=False)),
        (do.retention("a", 1, 7), do.look(LOG_STARTS_S, is_open=True)),
    ),
    "coordinator that does not answer is asked again": Story(
        (do.coordinator(SILENT), do.sealed(0, 0), do.look(is_open=False)),
        (do.coordinator(), do.look(1.0, is_open=True)),
    ),
    "start of a partition without an owner is committed after a while": Story(
        (do.starts_at("b", 0, 0), do.sealed(0, 0), do.look(is_open=True), do.commit_of("b", 1)),  # its owner does it
        (do.retention("b", 1, 3), do.look(UNCOMMITTED_S), do.commit_of("b", 1, 3, GATE_OPENED)),
        (do.look(1.0), do.has(due_s=None)),
    ),
    "start is committed at the first poll after an assignment behind an open gate": Story(
        (do.sealed(0, 0), do.commits("b", None, 0), do.assigned(), do.commit_of("b", 0)),
        (do.starts_at("b", 0, 0), do.look(0.0), do.commit_of("b", 0, 0, GATE_OPENED)),
    ),
    "unordered member reads both, and keeps the topic until the group has read it": Story(
        (do.sealed(5, 5), do.look(is_open=True), do.commits("b", 0, 0)),
        (do.told(let_go=True), do.look(1.0), do.has(("a", "b"))),
        (do.commits("a", 5, 5), do.look(SELDOM_S), do.has(("b",))),
        on_replace="unordered",
    ),
    "group that reads the successor alone waits for nothing": Story(
        (do.told(switched=True), do.reads("b", mine={("b", 0)}), do.subscribed(), do.look(is_open=True))
    ),
    "group that begins late by a pattern waits though others hold the topic": Story(
        (do.told(switched=True), do.reads("^[ab]$", mine={("b", 0)}), do.subscribed(), do.look(is_open=False))
    ),
    "member that reads what it names does not follow, and commits nothing of the successor": Story(
        (do.is_assigned(("a", 0)), do.sealed(5, 5), do.commits("a", 5, 5), do.look(), do.look(UNCOMMITTED_S)),
        do.has(("a",), stats=[], committed={("a", 0): (5, READ), ("a", 1): (5, READ)}),
        # It has been moved, and the group has read the topic.
        (do.reads("b", mine={("b", 0)}), do.has(("b",)), do.look(is_open=True)),
        on_replace="named",
    ),
    "replay of the application is waited for": Story(
        (do.starts_at("a", 0, 0), do.commits("a", None, 5), do.commits("a", 5, note=None), do.sealed(5, 5)),
        [do.look(SELDOM_S, is_open=False, waits="this member to read a [0]")] * 3,
    ),
    "position before the first record does not show that the gate was open": Story(
        # kafka-python commits it of what it is assigned, also where the application named the topic before its time.
        (do.commits("b", 0, 0, note=None), do.look(SELDOM_S, is_open=False)),
        (do.commits("b", 0, 0, note=GATE_OPENED), do.look(SELDOM_S, is_open=True)),
    ),
    "position before the first record does not show that the gate was open, to a late group either": Story(
        (do.told(**LATE), do.commits("a", 2, 5), do.commits("b", 0, 0, note=None), do.look(SELDOM_S, is_open=False))
    ),
    "group whose owner has moved it to the first records reads them": Story(
        # As ``modeaware groups prepare`` does it, for consumers that read the topic when they did not know modes.
        (do.sealed(5, 5), do.commits("a", 5, 5, note=None), do.commits("b", 0, 0, note=None)),
        (do.reads("b", mine={("b", 0), ("b", 1)}), do.subscribed(), do.look(SELDOM_S, is_open=True)),
    ),
    "member that starts at the end without an answer is not behind": Story(
        # By an earlier owner's library: only an owner can note that it is handled.
        (do.commits("a", None, 5), do.commits("a", 5, note=None)),
        (do.coordinator(SILENT), do.starts_at("a", 0, None), do.assigned()),
        (do.sealed(5, 5), do.look(is_open=False, waits="this member to read a [0]")),
        (do.coordinator(), do.look(SELDOM_S, is_open=False), do.look(ASK_S, is_open=True)),
    ),
    "time without answers is no time without progress": Story(
        (do.sealed(0, 7), do.look(is_open=False)),
        (do.coordinator(SILENT), *[do.look(50, is_open=False)] * 5, do.gate("a", "an answer")),
        (do.coordinator(), do.look(50, is_open=False)),
        # One answer that is missing does not begin the time anew.
        (do.coordinator(SILENT), do.look(5, is_open=False), do.coordinator(), do.look(12, is_open=True)),
        gate_timeout_ms=60_000,
    ),
    "successor that was created anew is another topic": Story(
        # Without a record of its own: the predecessor's says so. Where it was read and where it started mean nothing.
        (do.sealed(5, 5), do.assigning("b"), do.starts_at("b", 0, 7), do.has(anew=False)),
        (do.told(topic_id="id-b-anew"), do.look(), do.has(anew=True)),
        (do.starts_at("b", 0, 3), do.has(anew=False)),  # it is the new one that has started
    ),
    "chain is subscribed to as far as the group needs it": Story(
        (do.put(TO_C), do.has(("a", "b", "c"))),
        (do.told(gone=True), do.has(("b", "c"))),
    ),
    "successor that is not there yet keeps no other from being subscribed to": Story(
        (do.reads_replaced(3), do.has({"t0", "t1", "t2", "u0", "u1"})),
        (do.brokers_have(), do.has({"t0", "t1", "t2", "u0", "u1", "u2"})),
        absent=("u2",),
    ),
    "pattern is widened by the successor where it matches the topic alone": Story(
        (do.reads("^a", "other"), do.has(("^a", "b", "other")))
    ),
    "pattern that matches both is not widened": Story((do.reads("^[ab]$", "other"), do.has(("^[ab]$", "other")))),
    "pattern that matches none is not widened": Story((do.reads("^x", "other"), do.has(("^x", "other")))),
    "pattern that is broken is not widened": Story((do.reads("^(", "other"), do.has(("^(", "other")))),
    "pattern matches the beginning of names": Story((do.put(TO_AB), do.reads("^a"), do.has(("^a",)))),
    "pattern matches whole names where brokers match them": Story(
        (do.put(TO_AB), do.reads("^a"), do.has(("^a", "ab"))), whole_names=True
    ),
    "topic that was let go is left out of the pattern ^a": left_out("^a", set(), {"ax"}),
    "topic that was let go is left out of the pattern ^.$": left_out("^.$", {"c"}, {"c", "d"}),
    "topic that was let go is left out of the pattern ^x|a": left_out("^x|a", set(), {"ax"}),
    "member that begins when the topic is gone subscribes to a pattern that matches the successor": begins_late(
        "^.$", ("^.$",), 0
    ),
    "member that begins when the topic is gone adds to a pattern that matches another topic": begins_late(
        "^[ac]$", ("^[ac]$", "b"), 1
    ),
    "member that begins when the topic is gone leaves a pattern that matches nothing": begins_late("^a$", ("b",), 1),
    "member that began when the topic was gone leaves out the next one": Story(
        (do.sealed(0, 0), do.told(let_go=True, gone=True), do.has_met_none(), do.brokers_have("b", "c")),
        (do.reads("^(b|c)+$|^a"), do.look(), do.has(("^(b|c)+$|^a",))),
        (do.put(TO_BB), do.brokers_have("b", "c", "bb", "cc"), do.commits("bb", 0)),
        (do.look(REFRESH_S), do.has({"c", "cc", "bb"})),
    ),
    "client that is not answered is kept and requests less often": Story(
        (do.reads("^.$"), do.sealed(0, 0), do.told(let_go=True), do.commits("b", 0, 0)),
        (do.look(REFRESH_S), do.subscribed(), do.has(due_in_s=ASK_S)),
        (do.look(REFRESH_S), do.subscribed(), do.has(due_in_s=2 * ASK_S)),
        (do.look(REFRESH_S), do.subscribed(), do.has(due_in_s=4 * ASK_S), do.counts_closes()),
        (do.look(SELDOM_S), do.has(closes=0), *[do.look(REFRESH_S), do.subscribed()] * 10),
        (do.has(due_in_s=REFRESH_S, closes=0), do.brokers_have("a", "b", "c"), do.look(REFRESH_S)),
        (do.has({"b", "c"}, closes=1),),
    ),
    **{
        f"pattern that is not Python's stays as it is: {pattern}": Story(
            (do.reads(pattern), do.brokers_have("a", "b"), do.sealed(0, 0), do.told(let_go=True)),
            (do.commits("b", 0, 0), do.look(), do.has((pattern,))),
        )
        for pattern in ("^(", "^[[:alpha:]]$", r"^(\d|.)$", r"^\D$", "^[[a]$")
    },
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_gates_of_a_member(story: Story) -> None:
    story.run(Member)


@pytest.mark.parametrize("inside", [False, True])
def test_successor_that_the_client_did_not_see_is_looked_at_anew_before_it_is_subscribed_to(inside: bool) -> None:
    member = Member(absent=("b",))
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


def test_chain_that_begins_at_its_last_topic_is_that_topic() -> None:
    member = Member()
    member.put(TO_C)
    assert read_topics("c", member.views.view, lambda view: True) == ["c"]


def test_setting_by_which_deleted_topics_would_be_created_again() -> None:
    assert GroupConf.of({"allow.auto.create.topics": "true"}).creates_topics
    assert not GroupConf.of({}).creates_topics


def test_client_that_cannot_be_created_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(conf: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FAIL))

    monkeypatch.setattr("modeaware.confluent.gates.Consumer", refuse)
    assert Onlooker({"bootstrap.servers": "127.0.0.1:1"}, "g").topics() == frozenset()


@pytest.mark.parametrize("is_pattern", [False, True])
def test_what_a_subscription_costs_a_topic_does_not_grow_with_their_number(
    monkeypatch: pytest.MonkeyPatch, is_pattern: bool
) -> None:
    looks = []
    for count in (10, 100):
        member = Member()
        member.reads_replaced(count, switched=True)
        views = Mock(side_effect=member.views.views)
        monkeypatch.setattr(member.views, "views", views)
        member.names = ["^t"] if is_pattern else member.names
        assert len(member.topics()) == count + len(member.names)
        looks.append(views.call_count)
    assert looks[0] == looks[1] > 0, "each goes through all topics"


def test_successors_that_are_announced_together_are_looked_up_together() -> None:
    """By the client itself: each answer may take ``fetch.wait.max.ms``, as it comes after that to a fetch."""
    member = Member()
    member.reads_replaced()
    assert len(member.topics()) == 18
    assert member.stock.listings[1:] == [{f"u{n}" for n in range(9)}]
    member.topics()
    assert len(member.stock.listings) == 2


def test_log_starts_of_all_gates_are_requested_together() -> None:
    member = Member()
    member.reads_replaced(switched=True, groups=frozenset({"g"}), read_up_to={0: 5, 1: 5})
    member.mine = {(f"t{n}", 0) for n in range(9)}
    member.topics()
    for n in range(9):
        member.deliver(f"t{n}", 0, 5)
        member.stock.first[f"t{n}", 1] = 5
    member.look()
    assert (member.onlooker.listings[1:], member.stock.listings[1:]) == ([{f"t{n}" for n in range(9)}], [])
    member.look(ASK_S)
    assert not member.gates.shut & {f"u{n}" for n in range(9)}


def test_log_starts_are_not_requested_any_more_where_retention_has_taken_all(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    log_starts = Mock(return_value={("a", 0): 5, ("a", 1): 5})
    monkeypatch.setattr(LibrdkafkaGroup, "log_starts", log_starts)
    member.sealed(5, 5)
    member.stock.down = SILENT
    for _ in range(3):
        assert not member.look(LOG_STARTS_S)
    assert log_starts.call_count == 1


def test_another_topic_of_the_successors_name_has_no_gate() -> None:
    member = Member()
    member.views.put(TopicView("b", "another", (1, 1), modes_of(2, 2)))
    assert predecessors(member.views.views()) == {}
    assert member.topics() == ("a",)


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


def test_assignment_by_the_application_is_left_alone_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    member = Member()
    for _ in range(2):
        member.gates.warn_of_manual({"a", "other"})
    assert caplog.text.count("assign those of b") == 1
