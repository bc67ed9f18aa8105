"""Whatever members know of the modes and when: no partition has two readers, and none has no reader for long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.clients.assignment import hidden, owned, possible_hidden, range_deal, range_order, rejoin_turns, share
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView

READABLE, NONE = PartitionMode.READ_WRITE, PartitionMode.NONE
counts = st.integers(1, 24)
members = st.integers(1, 8).map(lambda count: [f"m{index}" for index in range(count)])


def subsets(items: Sequence[int], *, proper: bool = False) -> st.SearchStrategy[frozenset[int]]:
    """Any part of ``items``, drawn as one number, which is far quicker than as a set."""
    most = 2 ** len(items) - 1 - proper
    return st.integers(0, most).map(lambda bits: frozenset(p for i, p in enumerate(items) if bits >> i & 1))


@given(st.data(), st.permutations(["a", "b", "c", "d", "e"]), counts)
def test_the_order_is_found_however_members_are_sorted(data: st.DataObject, order: list[str], count: int) -> None:
    given_ = range_deal(order, range(count))
    shuffled = dict(data.draw(st.permutations(list(given_.items()))))
    assert range_order(shuffled) == tuple(order[:count])


@given(st.data(), members, counts)
def test_every_partition_has_one_owner_and_readable_ones_are_spread(
    data: st.DataObject, order: list[str], count: int
) -> None:
    hidden_now = data.draw(subsets(range(count), proper=True))
    own = owned(range_deal(order, range(count)), hidden_now)
    assert sorted(p for partitions in own.values() for p in partitions) == list(range(count))
    loads = [len(partitions - hidden_now) for partitions in own.values()]
    assert max(loads) - min(loads) <= 1


@dataclass
class Knowledge:
    """What one member knows: at its join, what it saw come, and after the assignment."""

    at_join: int | None
    seen: list[int]
    now: int


@dataclass
class History:
    """A topic's views in order, how a group was dealt its partitions, and what each member knows in one generation."""

    views: list[TopicView]
    dealt: dict[str, tuple[int, ...]]
    knowledge: list[Knowledge]

    def shares(self, knowledge: list[Knowledge]) -> dict[str, frozenset[int]]:
        shares = {}
        for member, known in zip(self.dealt, knowledge, strict=True):
            at_join = None if known.at_join is None else self.views[known.at_join]
            possible = possible_hidden(at_join, [self.views[i] for i in known.seen], self.views[known.now])
            shares[member] = share(self.dealt, member, possible)
        return shares


@st.composite
def histories(draw: st.DrawFn) -> History:
    """One for any number of partitions and members.

    Every member joined before the rebalance completed, at the view with number ``barrier`` at the latest; afterwards
    each reads the log anew. Members hear of changes with any delay and may miss some.
    """
    count = draw(st.integers(1, 12))
    order = draw(members)
    views = [TopicView("t", "id", (1, 0), (READABLE,) * count)]
    for epoch in range(1, draw(st.integers(1, 6))):
        retired = draw(subsets(range(count), proper=True))
        modes = tuple(NONE if p in retired else READABLE for p in range(count))
        views.append(TopicView("t", "id", (1, epoch), modes))
    last = len(views) - 1
    barrier = draw(st.integers(0, last))
    knowledge = []
    for _ in order:
        at_join = draw(st.none() | st.integers(0, barrier))
        now = draw(st.integers(barrier, last))
        seen = draw(subsets(range((at_join or 0) + 1, now + 1)))
        knowledge.append(Knowledge(at_join, sorted(seen), now))
    return History(views, range_deal(order, range(count)), knowledge)


@settings(max_examples=200)
@given(histories())
def test_no_partition_has_two_owners_whatever_members_know(history: History) -> None:
    everything = [partition for own in history.shares(history.knowledge).values() for partition in own]
    assert len(everything) == len(set(everything))


@settings(max_examples=200)
@given(histories())
def test_members_that_know_the_same_at_join_and_after_cover_every_partition(history: History) -> None:
    last = len(history.views) - 1
    shares = history.shares([Knowledge(last, [], last) for _ in history.knowledge])
    assert frozenset().union(*shares.values()) == frozenset(range(len(history.views[0].modes)))


@given(histories())
def test_a_rebalance_is_asked_for_exactly_while_somebody_reads_something_else_than_it_should(history: History) -> None:
    given_, before, now = history.dealt, hidden(history.views[0]), hidden(history.views[-1])
    shares = {m: share(given_, m, [before]) - now for m in given_}
    should = {m: partitions - now for m, partitions in owned(given_, now).items()}
    assert set(rejoin_turns(given_, [before], now)) == {m for m in given_ if shares[m] != should[m]}
