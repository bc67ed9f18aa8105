"""Which partitions a member of a consumer group reads: pure decisions, no client and no clock.

A group's stock assignment contains *all* partitions of a topic, also hidden ones (mode None). With any strategy but
``range``, a member leaves out the hidden ones. ``range`` assigns contiguous runs: after a shrink from 12 to 4, the
first of three members would hold all readable partitions. So each member of a ``range`` group computes the assignment
again, over the readable partitions only, by range's own rule and in its own order of members.

A member cannot see which views of the modes the other members used. Still two members never hold the same partition:

* Before it joins, a member notes the view in force. Let J be the newest view that any member of a generation noted. A
  rebalance completes after all its joins. So a member that reads the mode log *after* it got its assignment has J or a
  newer view.
* In one generation every partition has one owner. A partition that is readable in J belongs to the member to which
  range assigns it over the readable partitions. A partition that is hidden in J belongs to the member to which the
  coordinator gave it (:func:`owned`). Later modes change which partitions are *read*, never their owners.
* If a member's view after the assignment equals the view that it noted, this view is J. A member whose two views differ
  takes only the partitions that it owns under every view that may be J (:func:`share`). Then a rebalance is requested
  (:func:`rejoin_turns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from modeaware.topic_view import TopicView

Given = Mapping[str, Sequence[int]]
"""One topic's partitions as the coordinator gave them to the members of a group, by member id."""


def hidden(view: TopicView) -> frozenset[int]:
    """Return the partitions in mode None, which no member reads."""
    if view.all_readable:
        return frozenset()
    return frozenset(range(len(view.modes))).difference(view.readable)


def range_order(given: Given) -> tuple[str, ...] | None:
    """Return the members in range's order, or None if ``given`` is not range's assignment of partitions 0..P-1.

    The partitions show the order, so it does not depend on how a client sorts member ids or instance ids. Members
    without a partition are left out: range would also give them no partition if there were fewer.
    """
    holders = sorted((min(partitions), member) for member, partitions in given.items() if partitions)
    order = tuple(member for _, member in holders)
    count = sum(len(given[member]) for member in order)
    dealt = range_deal(order, range(count))
    return order if all(sorted(given[member]) == list(dealt[member]) for member in order) else None


def range_deal(order: Sequence[str], partitions: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Return range's assignment of ``partitions`` (KIP-54): ascending runs of equal length. If the division leaves a
    remainder, each of the first members gets one partition more."""
    ascending = sorted(partitions)
    if not order:
        return {}
    length, longer = divmod(len(ascending), len(order))
    dealt = {}
    start = 0
    for index, member in enumerate(order):
        end = start + length + (index < longer)
        dealt[member] = tuple(ascending[start:end])
        start = end
    return dealt


def owned(given: Given, hidden_partitions: frozenset[int]) -> dict[str, frozenset[int]]:
    """Return the partitions that each member owns in a generation in which ``hidden_partitions`` are hidden.

    :func:`range_deal` assigns readable partitions. A hidden partition stays with the member to which the coordinator
    gave it; that member reads it once it is readable. If ``given`` is not range's assignment (rack-aware placement,
    another strategy), each member owns the partitions that it was given.
    """
    own = {member: frozenset(partitions) for member, partitions in given.items()}
    order = range_order(given)
    if order is None:
        return own
    every = frozenset().union(*own.values())
    dealt = range_deal(order, every - hidden_partitions)
    return {m: frozenset(dealt.get(m, ())) | (partitions & hidden_partitions) for m, partitions in own.items()}


def share(given: Given, member: str, possible: Iterable[frozenset[int]] | None) -> frozenset[int]:
    """Return the partitions that ``member`` may take in this generation: those that it owns under each of the hidden
    sets in ``possible``. If ``possible`` is None, any set is possible, so the member may take none. If ``given`` is not
    range's assignment, or only one member has partitions, the member may take all partitions that it was given.
    """
    order = range_order(given)
    if order is None or len(order) == 1:
        return frozenset(given.get(member, ()))
    if possible is None:
        return frozenset()
    shares = [owned(given, candidate).get(member, frozenset()) for candidate in possible]
    return frozenset.intersection(*shares) if shares else frozenset()


def possible_hidden(
    known: TopicView | None, seen: Iterable[TopicView], current: TopicView
) -> frozenset[frozenset[int]] | None:
    """Return the hidden set of each view from ``known`` (before the join) to ``current`` (after the assignment). The
    hidden set of a view is the result of :func:`hidden`.

    Args:
        known: the view at the join, or None if there was no view.
        seen: the views that arrived since, in any order, repeats allowed.
        current: the view in force.

    Returns:
        The sets, or None if a view in between may have been missed: without the missed hidden set, a partition might
        have no reader (invariant I2). A missed epoch 0 does no harm: a topic's first record hides nothing, because a
        partition is ReadOnly before it is None. The result is also None if the topic was deleted or recreated in
        between, because versions do not order the views of two topics. This includes an old record that is appended
        again after the topic's record was removed.
    """
    if known is None:
        return None
    views = (*seen, current)
    topic_ids = {view.topic_id for view in (known, *views)}
    if known.topic_id is None:
        topic_ids.discard(None)  # the topic had no record yet
    if len(topic_ids) > 1:
        return None
    steps = sorted({view.version: view for view in views if view.version > known.version}.items())
    sets = {hidden(known), hidden(current)}
    before = known
    for _, view in steps:
        first = before.topic_id is None and view.epoch <= 1
        if not first and (view.topic_id != before.topic_id or view.epoch != before.epoch + 1):
            return None
        sets.add(hidden(view))
        before = view
    return frozenset(sets) if before.version == current.version else None


def rejoin_turns(
    given: Given, dealt_by: Iterable[frozenset[int]] | None, hidden_now: frozenset[int]
) -> tuple[str, ...]:
    """Return, in range's order, the members that would read other partitions after a new rebalance than now.

    The result is empty if no rebalance is needed. All members of a generation compute the same result. So the first
    member in the result requests the rebalance. Another member requests one only if the first member does not.
    """
    order = range_order(given)
    if order is None:
        return ()
    after = owned(given, hidden_now)
    possible = None if dealt_by is None else list(dealt_by)
    return tuple(m for m in order if share(given, m, possible) - hidden_now != after[m] - hidden_now)
