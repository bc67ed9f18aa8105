"""The positions from which hidden partitions are read again: the same rule for each client library."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from modeaware.clients.actions import Place
from modeaware.clients.starts import BrokerOffsets, Key, Starts


def find_places(
    positions: Mapping[Key, int | None],
    starts: Starts,
    offsets: BrokerOffsets,
    log_starts: Callable[[Collection[Key]], Mapping[Key, int]],
    *,
    group: bool = True,
) -> dict[Key, Place]:
    """Return the positions of hidden partitions: the last position, or the start if a partition delivered nothing. A
    position is never below the log start. If another topic has the name by now, the position is the start on this
    topic (invariant I8). Partitions without an answer are left out.

    Args:
        positions: partition -> the library's position, or None if it has delivered nothing since the start.
        log_starts: requests log starts, and leaves out partitions whose leader does not answer at once.
        group: whether the consumer has a group, whose commits count.
    """
    replaced = {key for key in positions if starts.is_of_another_topic(key)}
    places = {
        key: Place(starts.start_of(key) if at is None else at, at is not None)
        for key, at in positions.items()
        if key not in replaced
    }
    if replaced:
        new_starts = starts.find(replaced, offsets, group=group, ask_again=True).starts
        places |= {key: Place(at) for key, at in new_starts.items()}
    behind = {
        key for key, place in places.items() if place.offset is not None and starts.may_be_behind(key, place.offset)
    }
    known = log_starts(behind) if behind else {}
    for key, at in known.items():
        if at > (places[key].offset or 0):
            places[key] = Place(at, places[key].has_begun)
    return {key: place for key, place in places.items() if key not in behind or key in known}
