"""The positions from which hidden partitions are read again: the same rule for each client library."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from modeaware.clients.actions import Committed, Place, Start
from modeaware.clients.starts import BrokerOffsets, Key, Starts


def find_places(
    positions: Mapping[Key, int | None],
    starts: Starts,
    offsets: BrokerOffsets,
    log_starts: Callable[[Collection[Key]], Mapping[Key, int]],
    *,
    group: bool = True,
    subscribed: bool = False,
) -> dict[Key, Place]:
    """Return the positions of hidden partitions: the last position, or the start if a partition delivered nothing. A
    position is never below the log start. If another topic has the name by now, the position is the start on this
    topic (invariant I8). A start that was not found at the assignment is found now. Partitions without an answer are
    left out.

    Args:
        positions: partition -> the library's position, or None if it has delivered nothing since the start.
        log_starts: requests log starts, and leaves out partitions whose leader does not answer at once.
        group: whether the consumer has a group, whose commits count.
        subscribed: whether the group has assigned the partitions. Else the library decides a start that the application
            has not given.
    """
    anew = {
        key
        for key, at in positions.items()
        if starts.is_of_another_topic(key) or (subscribed and at is None and starts.start_of(key) is None)
    }
    places = {
        key: Place(starts.start_of(key) if at is None else at, at is not None)
        for key, at in positions.items()
        if key not in anew
    }
    if anew:
        new_starts = starts.find(anew, offsets, group=group, ask_again=True).starts
        places |= {key: Place(at) for key, at in new_starts.items()}
    behind = {
        key for key, place in places.items() if place.offset is not None and starts.may_be_behind(key, place.offset)
    }
    known = log_starts(behind) if behind else {}
    for key, at in known.items():
        if at > (places[key].offset or 0):
            places[key] = Place(at, places[key].has_begun)
    return {key: place for key, place in places.items() if key not in behind or key in known}


def find_restarts(
    positions: Mapping[Key, int | None],
    commits: Mapping[Key, Committed | None],
    starts: Starts,
    offsets: BrokerOffsets,
    log_starts: Callable[[Collection[Key]], Mapping[Key, int]],
) -> dict[Key, Start]:
    """Return where partitions are read again after a revocation that was shown to the application: at the group's
    commit, or at the start without one. If the application has sought back behind its commit, it continues there. The
    other rules are those of :func:`find_places`, which describes ``positions`` and ``log_starts``.
    """
    restarts: dict[Key, int | None] = {}
    for key, commit in commits.items():
        at = starts.start_of(key) if positions[key] is None else positions[key]
        restarts[key] = None if commit is None else commit.offset if at is None or at < 0 else min(at, commit.offset)
    places = find_places(restarts, starts, offsets, log_starts)
    return {key: Start(place.offset, commits[key]) for key, place in places.items()}
