"""What one member owns under ``range``, what it withholds in doubt, and when it requests a rebalance."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from modeaware.clients.assignment import owned, possible_hidden, range_order, rejoin_turns, share
from modeaware.confluent import ownership
from modeaware.confluent.ownership import (
    GIVE_UP_S,
    TURN_S,
    GroupAssignment,
    GroupConf,
    GroupDescriber,
    GroupMoved,
    GroupUnknown,
    Ownership,
    generation_of,
)
from modeaware.errors import ModeSourceError
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.support.fake_views import FakeViews, modes_of

NONE = PartitionMode.NONE
Key = tuple[str, int]
GIVEN = {"a": range(4), "b": range(4, 8), "c": range(8, 12)}


def by(strategy: str) -> GroupAssignment:
    """What the coordinator has assigned."""
    return GroupAssignment(strategy, {"t": {member: tuple(partitions) for member, partitions in GIVEN.items()}})


def keys(*partitions: int, topic: str = "t") -> set[Key]:
    return {(topic, partition) for partition in partitions}


class Member:
    """Member b of the group, its views, its clock, and what the coordinator answers."""

    def __init__(self) -> None:
        self.generation = 1
        self.now_s = 0.0
        self.views = FakeViews()
        self.answer: GroupAssignment | Exception = by("range")
        self.described = 0
        self.ownership = Ownership(self, GroupConf("g"), self.views, cast(Any, self), lambda: self.now_s)
        self.views.subscribe(lambda changed: [self.ownership.note(view) for view in changed.values()])
        self.given = keys(*GIVEN["b"])

    def describe(self, member: str, given: set[Key]) -> GroupAssignment:
        self.described += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def memberid(self) -> str:
        return "b"

    def consumer_group_metadata(self) -> bytes:
        return b"CGMDv2:" + struct.pack("<i", self.generation) + b"g\0b\0"

    def owned_now(self) -> set[Key]:
        return self.ownership.assigned(self.given) - self.ownership.withheld

    def rebalance(self) -> set[Key]:
        self.ownership.before_join()
        self.generation += 1
        return self.owned_now()


@pytest.fixture
def member() -> Member:
    made = Member()
    made.ownership.before_join()
    return made


def test_member_that_joined_without_a_view_holds_nothing_where_partitions_are_hidden() -> None:
    for writable, owned_now in ((12, keys(*GIVEN["b"])), (4, set())):
        member = Member()
        member.views.set("t", modes_of(12, writable, NONE))
        assert member.owned_now() == owned_now
        assert member.ownership.withheld == member.given - owned_now, "without an owner, their starts stay known"
        assert member.ownership.unowned == member.ownership.withheld


def test_a_change_between_join_and_assignment_leaves_what_is_sure_and_asks_for_another(member: Member) -> None:
    member.ownership.before_join()
    member.views.set("t", modes_of(12, 4, NONE))
    assert member.owned_now() == member.given
    assert member.ownership.is_uncertain
    assert member.ownership.needs_rejoin(member.given)


def test_members_take_turns(member: Member) -> None:
    assert member.owned_now() == member.given
    member.views.set("t", modes_of(12, 4, NONE))
    assert member.ownership.needs_rejoin(member.given)
    assert member.ownership.due_s() == TURN_S  # a comes first
    assert not member.ownership.my_turn(member.given)
    member.now_s = TURN_S
    assert member.ownership.my_turn(member.given)
    assert member.ownership.rejoins == 1
    assert not member.ownership.needs_rejoin(member.given), "once for each view"
    member.views.set("t", modes_of(12, 12))
    assert not member.ownership.needs_rejoin(member.given), "all is as it was"


def test_a_group_that_moved_on_leaves_nothing_until_it_shows_this_assignment(member: Member) -> None:
    member.views.set("t", modes_of(12, 4, NONE))
    member.answer = GroupMoved("PREPARING_REBALANCING")
    assert member.rebalance() == set()
    assert member.ownership.in_doubt == {"t"}
    assert member.ownership.due_s() is not None
    member.answer = by("range")
    member.ownership.resolve(member.given)
    assert member.ownership.in_doubt == set()
    assert member.ownership.withheld == set()
    # Partition 2 was not given to it, so only another assignment can bring it.
    assert member.ownership.needs_rejoin(member.given)
    assert member.ownership.my_turn(member.given)


def test_a_description_that_cannot_be_had_ends_in_the_plain_assignment(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    member.views.set("t", modes_of(12, 4, NONE))
    member.answer = GroupUnknown("no answer")
    assert member.rebalance() == set()
    member.now_s += GIVE_UP_S
    member.ownership.resolve(member.given)
    assert member.given - member.ownership.withheld == member.given
    assert "unevenly loaded" in caplog.text
    member.answer = GroupUnknown("not authorised", final=True)
    assert member.rebalance() == member.given, "at once"


@pytest.mark.parametrize("strategy", ["roundrobin", "custom"])
def test_other_strategies_keep_what_was_given(member: Member, strategy: str) -> None:
    member.views.set("t", modes_of(12, 4, NONE))
    member.answer = by(strategy)
    assert member.rebalance() == member.given
    assert not member.ownership.needs_rejoin(member.given)


def test_the_same_generation_again_deals_by_the_same_view(member: Member) -> None:
    assert member.owned_now() == member.given
    member.views.set("t", modes_of(12, 4, NONE))
    member.ownership.before_join()
    assert member.owned_now() == member.given, "no other member has released anything"
    assert member.rebalance() == keys(2, 4, 5, 6, 7), "survivors are dealt again and hidden ones stay"
    assert member.ownership.withheld == set(), "each has an owner"
    assert member.described == 1
    assert not member.ownership.needs_rejoin(member.given)


def assigned(topic: str, *partitions: int) -> bytes:
    """A ConsumerProtocolAssignment of one topic."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    dealt = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 1, 1) + name + dealt + struct.pack(">i", -1)


def described(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> GroupDescriber:
    """A describer whose coordinator knows members a (partitions 0 and 1) and b (2)."""
    members = [
        SimpleNamespace(id="a", assignment=assigned("t", 0, 1)),
        SimpleNamespace(id="b", assignment=assigned("t", 2)),
    ]
    shown = {"id": "g", "error": None, "state": "Stable", "protocol": "range", "members": members}
    found = SimpleNamespace(**{**shown, **changed})

    admin = SimpleNamespace(list_groups=lambda group, timeout: [found] if group == "g" else [])
    monkeypatch.setattr(ownership, "AdminClient", lambda conf: admin)
    return GroupDescriber({}, "g")


@pytest.mark.parametrize(
    ("member", "given"), [("b", keys(2, 3)), ("b", set()), ("b", keys(2, topic="u")), ("c", set()), ("c", keys(2))]
)
def test_one_that_shows_another_assignment_is_not(
    monkeypatch: pytest.MonkeyPatch, member: str, given: set[Key]
) -> None:
    """Stable again, after a rebalance that this member has not heard of: its dealing would overlap with the others'."""
    with pytest.raises(GroupMoved, match="other partitions than librdkafka"):
        described(monkeypatch).describe(member, given)


@pytest.mark.parametrize(
    ("changed", "final", "told"),
    [
        ({"id": "other"}, False, "no broker lists it"),
        ({"error": KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)}, True, "not described: .*authorization"),
        ({"members": [SimpleNamespace(id="b", assignment=b"\0\1\0")]}, True, "assignment cannot be read"),
    ],
)
def test_group_that_cannot_be_described_is_unknown(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], final: bool, told: str
) -> None:
    with pytest.raises(GroupUnknown, match=f"(?i){told}") as caught:
        described(monkeypatch, **changed).describe("b", keys(2))
    assert caught.value.final == final


def test_group_metadata_of_an_unknown_form_has_no_generation(member: Member) -> None:
    assert generation_of(member.consumer_group_metadata()) == 1
    assert [generation_of(form) for form in (None, b"CGMDv1:\0\0\0\0", b"CGMDv2:\1")] == [None] * 3


def test_an_unreachable_source_leaves_the_last_view_in_force(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    member.views.set("t", modes_of(12, 4, NONE))
    member.views.failure = ModeSourceError("mode log: no answer")
    assert member.rebalance() == keys(2, 4, 5, 6, 7)
    assert "last known modes" in caplog.text


TWELVE = {"c": range(4), "a": range(4, 8), "b": range(8, 12)}
AFTER_FOUR = frozenset(range(4, 12))
ALL: frozenset[int] = frozenset()


def view(epoch: int, kept: int = 12, *, topic_id: str = "id") -> TopicView:
    return TopicView("t", topic_id, (1, epoch), modes_of(12, kept, NONE))


@pytest.mark.parametrize(
    "given",
    [
        {"x": [0, 2], "y": [1, 3]},  # roundrobin
        {"x": [0, 1], "y": [2, 3, 4]},  # the longer run last
        {"x": [0, 1], "y": [3, 4]},  # a hole
        {"x": [0, 1, 2, 3], "y": [4]},  # by rack
        {"x": [1, 2], "y": [3]},  # does not begin at 0
    ],
)
def test_what_range_would_not_deal_has_no_order(given: dict[str, list[int]]) -> None:
    assert range_order(given) is None
    assert owned(given, frozenset({1})) == {member: frozenset(partitions) for member, partitions in given.items()}
    assert share(given, "x", None) == set(given["x"])
    assert rejoin_turns(given, [ALL], frozenset({1})) == ()


def test_versions_do_not_order_views_of_a_record_that_was_removed_meanwhile() -> None:
    """A topic's record went in between, and an old one of it came back: meanwhile other members dealt by no record."""
    gone = TopicView.unlisted("t")
    assert possible_hidden(view(3), [gone], view(3)) is None
    assert possible_hidden(view(3), [view(9, topic_id="other")], view(3)) is None


def test_what_may_have_been_dealt_by() -> None:
    assert possible_hidden(view(3), [], view(3)) == {ALL}
    assert possible_hidden(view(3), [view(4)], view(5, 4)) == {ALL, AFTER_FOUR}
    assert possible_hidden(view(3), [view(5, 4), view(4), view(4), view(2)], view(5, 4)) == {ALL, AFTER_FOUR}
    assert possible_hidden(view(3), [view(4, 6)], view(4, 6)) == {ALL, frozenset(range(6, 12))}
    # A view may have been missed: everything is possible.
    assert possible_hidden(None, [], view(3)) is None
    assert possible_hidden(view(3), [], view(5)) is None
    assert possible_hidden(view(3), [view(4, topic_id="other")], view(4, topic_id="other")) is None
    unlisted = TopicView.unlisted("t")
    assert possible_hidden(view(3), [], unlisted) is None
    # A topic's first record hides nothing, and may be missed.
    assert possible_hidden(unlisted, [], unlisted) == {ALL}
    assert possible_hidden(unlisted, [], view(0)) == {ALL}
    assert possible_hidden(unlisted, [], view(1, 4)) == {ALL, AFTER_FOUR}
    assert possible_hidden(unlisted, [], view(2, 4)) is None


def test_members_take_turns_in_asking_for_a_rebalance() -> None:
    assert rejoin_turns(TWELVE, [ALL], AFTER_FOUR) == ("c", "a", "b")
    assert rejoin_turns(TWELVE, [AFTER_FOUR], AFTER_FOUR) == ()
    assert rejoin_turns(TWELVE, [ALL], ALL) == ()
    assert rejoin_turns({}, [ALL], AFTER_FOUR) == ()
    assert rejoin_turns({"only": range(12)}, [ALL], AFTER_FOUR) == ()
    # 12 -> 11: only the runs behind the hidden one change, and only where a record would be read by another.
    assert rejoin_turns(TWELVE, [ALL], frozenset({11})) == ()
