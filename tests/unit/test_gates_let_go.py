"""The gates of one member: topics that are let go, and chains of them, whose offsets expire."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.clients.gate import READ
from modeaware.clients.gates import ASK_S, SELDOM_S, UNCOMMITTED_S
from modeaware.topic_view import Successor, TopicView
from tests.support.fake_views import modes_of
from tests.support.gate_member import SILENT, Member
from tests.support.stories import Steps, Story


def replaced(topic: str, to: str, epoch: int = 50, **state: Any) -> TopicView:
    """The view of a topic with two partitions of five records, which is let go."""
    state = {"switched": True, "let_go": True, "groups": frozenset({"g"}), "read_up_to": {0: 5, 1: 5}} | state
    return TopicView(topic, f"id-{topic}", (1, epoch), modes_of(2, 2), successor=Successor(to, f"id-{to}", 2, **state))


LATE = {"groups": frozenset[str](), "switched": True, "read_up_to": {0: 5, 1: 5}}
"""What the view of ``a`` says where its replacement began before the group did."""
B_TO_C = replaced("b", "c", groups=frozenset(), let_go=False)
ALL_OF_IT = {(topic, partition) for topic in "abc" for partition in (0, 1)}
do = Steps()
STORIES = {
    "topic that was let go is left out from the start where the group has read it": Story(
        (do.sealed(5, 5), do.told(let_go=True), do.commits("a", 5, 5), do.follows("a"), do.joins("a"), do.has(("b",)))
    ),
    "topic that was let go is subscribed to where the group has not read it": Story(
        (do.sealed(5, 5), do.told(let_go=True), do.commits("a", 5, 3), do.follows("a"), do.joins("a")),
        do.has(("a", "b")),
    ),
    "new group that is answered before it joins reads a chain in its order": Story(
        (do.told(**LATE, let_go=True), do.begins(), do.follows("a"), do.joins("a")),
        (do.has(("a", "b"), is_answered=True), do.look(is_open=False)),
    ),
    "gate does not open by its timeout while the one before it is shut": Story(
        (do.told(**LATE), do.put(B_TO_C)),
        *[(do.deliver("a", 0, 1), do.look(50, is_open=False), do.subscribed())] * 4,
        (do.has(shut={"b", "c"}), do.deliver("a", 0, 5), do.commits("a", 5, 5), do.look(ASK_S, is_open=True)),
        (do.deliver("b", 0, 5), do.look(50), do.has(shut={"c"})),  # its own time begins now
        (do.look(70), do.has(shut=set())),
        gate_timeout_ms=60_000,
    ),
    "chain whose replacements come at once is the group's before it is subscribed to": Story(
        (do.told(**LATE), do.removed("a"), do.is_assigned(("a", 0)), do.has(("a",))),
        (do.put(replaced("a", "b", groups=frozenset(), let_go=False), B_TO_C), do.look(SELDOM_S)),
        do.has(shut={"b", "c"}),
    ),
    "gates of a former subscription are not asked for the next": Story(
        (do.told(**LATE, let_go=True), do.subscribed(), do.joins("z"), do.has(is_answered=False)),
        (do.joins("a"), do.look(is_open=False)),
    ),
    "topic that is let go is read until its end is noted": Story(
        # A library's own commit says nothing of the last record, and a member that is not subscribed notes nothing.
        (do.sealed(5, 5), do.told(let_go=True), do.commits("a", 5, 5, note=None), do.joins("a"), do.has(("a", "b"))),
        (do.is_assigned(("a", 0), ("a", 1), ("b", 0)), do.deliver("a", 0, 5), do.deliver("a", 1, 5)),
        (do.look(SELDOM_S), do.look(SELDOM_S, is_open=True), do.has(("b",))),
    ),
    "member without partitions asks again until its group has read what is let go": Story(
        (do.sealed(5, 5), do.told(let_go=True), do.commits("a", 5, 3)),
        (do.passes(SELDOM_S), do.joins("a"), do.has(("a", "b"))),
        (do.commits("a", 5, 5), do.passes(SELDOM_S), do.joins("a"), do.has(("b",))),
        (do.counts_requests(), do.joins("a"), do.has(is_answered=False)),
    ),
    "answer that is missing brings no topic back into the subscription": Story(
        (do.sealed(5, 5), do.told(let_go=True), do.put(replaced("b", "c", 1, groups=frozenset()))),
        (do.commits("a", 5, 3), do.commits("b", 5, 5), do.commits("c", 1, 1)),
        (do.look(SELDOM_S), do.has(("a", "c"))),  # the rest of a is read yet
        (do.coordinator(SILENT), do.look(SELDOM_S), do.has(("a", "c"))),
        on_replace="unordered",
    ),
    "topic that the group has left is not begun anew by a member that learns it late": Story(
        # Its retention is longer than that of the offsets, and no coordinator answered before the member joined.
        (do.put(replaced("a", "b")), do.commits("b", 3, None), do.coordinator(SILENT), do.joins("a")),
        (do.has(("a", "b")), do.assigned(), do.has(shut={"a", "b"})),  # it is not known what the group has read
        (do.coordinator(), do.look(SELDOM_S), do.has(shut={"a"}), do.has(("b",))),
        # Records came late, and are read.
        (do.put(replaced("a", "b", 51, let_go=False)), do.look(), do.has(shut=set())),
        reset="earliest",
    ),
    "topic that is let go is begun by a late group once its commits are known": Story(
        (do.put(replaced("a", "b", groups=frozenset())), do.coordinator(SILENT), do.assigned()),
        (do.has(shut={"a", "b"}), do.coordinator(), do.look(SELDOM_S), do.has(shut={"b"})),
        reset="earliest",
    ),
    "topic that is read when the group has read it stays until the next assignment": Story(
        (do.assigned(), do.sealed(5, 5), do.deliver("a", 0, 5), do.commits("a", None, 5), do.look(is_open=True)),
        # The application is not told of a revocation that comes anyway.
        (do.told(let_go=True), do.commits("b", 0, 0), do.look(SELDOM_S), do.has(("b",), shut=set())),
    ),
    "commit that has expired where the others are at the end has no partition read anew": Story(
        (do.put(replaced("a", "b")), do.commits("a", 5, None), do.commits("b", 3, 3), do.joins("a"), do.has(("b",))),
        reset="earliest",
    ),
    "commit that has expired where the others are not at the end": Story(
        (do.put(replaced("a", "b")), do.commits("a", 4, None), do.commits("b", 3, 3), do.joins("a")),
        do.has(("a", "b")),
        reset="earliest",
    ),
    "commit that has expired of a group that began late, and may not have come to it": Story(
        (do.put(replaced("a", "b", groups=frozenset())), do.commits("a", 5, None), do.commits("b", 3, 3)),
        (do.joins("a"), do.has(("a", "b"))),
        reset="earliest",
    ),
    "topic that is let go is shown to a late group where its successor was deleted by hand": Story(
        do.put(replaced("a", "b", groups=frozenset()), replaced("b", "c", gone=True)),
        (do.is_assigned(("a", 0), ("a", 1), ("c", 0)), do.subscribed(), do.assigned(("a", 0), ("a", 1), ("c", 0))),
        do.hides("a", hidden=False),
        reset="earliest",
    ),
    "another topic of a name is not hidden in the place of one that was left": Story(
        (do.put(replaced("a", "b")), do.commits("a", 5, 5), do.commits("b", 3, 3), do.assigned(), do.has(shut={"a"})),
        (do.removed("a"), do.assigned(), do.has(shut=set())),
        reset="earliest",
    ),
    "topic of a chain is not begun before it is known whether the group has gone beyond": Story(
        (do.put(replaced("a", "b"), replaced("b", "c")), do.commits("c", 2, None), do.silent_about("c")),
        (do.joins("a"), do.has(("a", "b", "c")), do.is_assigned(*ALL_OF_IT), do.assigned(*ALL_OF_IT)),
        (do.has(shut={"a", "b", "c"}), do.silent_about(), do.look(SELDOM_S), do.has(("c",)), do.hides("a")),
        reset="earliest",
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_gates_of_topics_that_are_let_go(story: Story) -> None:
    story.run(Member)


def test_member_without_partitions_requests_offsets_at_times_from_a_coordinator_that_is_silent() -> None:
    member = Member()
    member.sealed(5, 5)
    member.told(let_go=True)
    member.stock.down = SILENT
    requests = []
    for after_s in (0.0, 0.0, ASK_S):
        member.passes(after_s)
        member.joins("a")
        requests.append(member.stock.requests)
    assert requests[0] == requests[1] < requests[2]


@pytest.mark.parametrize("first", ["a", "b"])
def test_group_whose_offsets_on_a_chain_have_expired_reads_none_of_it_anew(first: str) -> None:
    member = Member(reset="earliest")
    views = {"a": replaced("a", "b"), "b": replaced("b", "c")}
    member.removed("a")
    member.put(views.pop(first), *views.values())
    member.commits("c", 2, None)
    member.joins("a")
    assert member.topics() == ("c",)
    member.is_assigned(("c", 0))
    member.stock.down = SILENT
    member.assigned(("c", 0))
    for _ in range(6):
        member.look(UNCOMMITTED_S)
        assert member.topics() == ("c",), "one rebalance more each time"
        member.stock.down = None
    kept = {key: at for key, at in member.stock.committed_offsets.items() if key[0] != "c"}
    assert kept == {("b", 0): (5, READ), ("b", 1): (5, READ)}, "the controller looks for them before it deletes a"


def test_pattern_leaves_a_chain_for_good_in_whatever_order_its_gates_are_asked() -> None:
    member = Member(reset="earliest")
    member.brokers_have("a", "b", "c", "d")
    member.names = ["^a$"]
    member.put(*(replaced(topic, successor) for topic, successor in ("ab", "bc", "cd")))
    member.commits("d", 2, None)
    member.joins()
    member.is_assigned(("d", 0))
    member.stock.down = SILENT
    for _ in range(6):
        assert member.topics() == ("d",)
        member.look(SELDOM_S)
        member.stock.down = None
    assert member.gates.due_s() is not None, "the list of topics is renewed"
    assert {at for key, at in member.stock.committed_offsets.items() if key[0] in "bc"} == {(5, READ)}
