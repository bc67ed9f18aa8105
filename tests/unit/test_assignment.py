"""The re-deal under ``range``: order, ownership, doubt."""

from __future__ import annotations

import pytest

from modeaware.assignment import owned, possible_hidden, range_order, rejoin_turns, share
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.support.fake_views import modes_of

TWELVE = {"c": range(4), "a": range(4, 8), "b": range(8, 12)}
AFTER_FOUR = frozenset(range(4, 12))
ALL: frozenset[int] = frozenset()


def view(epoch: int, kept: int = 12, *, topic_id: str = "id", controller: int = 1) -> TopicView:
    return TopicView("t", topic_id, (controller, epoch), modes_of(12, kept, PartitionMode.NONE))


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


def test_what_may_have_been_dealt_by() -> None:
    assert possible_hidden(view(3), [], view(3)) == {ALL}
    assert possible_hidden(view(3), [view(4)], view(5, 4)) == {ALL, AFTER_FOUR}
    assert possible_hidden(view(3), [view(5, 4), view(4), view(4), view(2)], view(5, 4)) == {ALL, AFTER_FOUR}
    assert possible_hidden(view(3), [view(4, 6)], view(4, 6)) == {ALL, frozenset(range(6, 12))}


def test_a_view_that_may_have_been_missed_leaves_everything_possible() -> None:
    assert possible_hidden(None, [], view(3)) is None
    assert possible_hidden(view(3), [], view(5)) is None
    assert possible_hidden(view(3), [view(4, topic_id="other")], view(4, topic_id="other")) is None
    assert possible_hidden(view(3), [], TopicView.unlisted("t")) is None


def test_a_topics_first_record_hides_nothing_and_may_be_missed() -> None:
    unlisted = TopicView.unlisted("t")
    assert possible_hidden(unlisted, [], unlisted) == {ALL}
    assert possible_hidden(unlisted, [], view(0)) == {ALL}
    assert possible_hidden(unlisted, [], view(1, 4)) == {ALL, AFTER_FOUR}
    assert possible_hidden(unlisted, [], view(2, 4)) is None


def test_members_take_turns_in_asking_for_a_rebalance() -> None:
    assert rejoin_turns(TWELVE, [ALL], AFTER_FOUR) == ("c", "a", "b")
    assert rejoin_turns(TWELVE, [AFTER_FOUR], AFTER_FOUR) == ()
    assert rejoin_turns(TWELVE, [ALL], ALL) == ()
    assert rejoin_turns({"only": range(12)}, [ALL], AFTER_FOUR) == ()
    # 12 -> 11: only the runs behind the hidden one change, and only where a record would be read by another.
    assert rejoin_turns(TWELVE, [ALL], frozenset({11})) == ()
