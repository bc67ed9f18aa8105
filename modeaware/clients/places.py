"""The positions from which hidden partitions are read again: the same rule for each client library."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from modeaware.clients.actions import Committed, Place, Start
from modeaware.clients.partition import Partition
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
    """Return the positions of hidden partitions: the last position, or the start if a partition delivered nothing. If
    this start is a logical offset that :meth:`Starts.first_of` leaves to the library, the place has no offset. If the
    log may by now begin behind a position (:meth:`Starts.may_be_behind`), the position is raised to the log start. If
    another topic has the name by now, the position is the start on the other topic (invariant I8). A start that was not
    found at the assignment is found now. Partitions without an answer are left out.

    Args:
        positions: partition -> the library's position, or None if it has delivered nothing since the start.
        log_starts: requests log starts, and leaves out partitions whose leader does not answer at once.
        group: whether the consumer has a group, whose commits count.
        subscribed: whether the group has assigned the partitions. If not, the library decides a start that the
            application has not given.
    """
    anew = {
        key
        for key, at in positions.items()
        if starts.is_of_another_topic(key) or (subscribed and at is None and starts.start_of(key) is None)
    }
    places = {
        key: Place(starts.first_of(key) if at is None else at, at is not None)
        for key, at in positions.items()
        if key not in anew
    }
    if anew:
        new_starts = starts.find(anew, offsets, group=group, ask_again=True).starts
        places |= {key: Place(start.offset) for key, start in new_starts.items() if start.offset is not None}
    behind = {
        key for key, place in places.items() if place.offset is not None and starts.may_be_behind(key, place.offset)
    }
    known = log_starts(behind) if behind else {}
    for key, at in known.items():
        if at > (places[key].offset or 0):
            places[key] = Place(at, places[key].has_begun)
    return {key: place for key, place in places.items() if key not in behind or key in known}


def find_restarts(
    partitions: Mapping[Key, Partition],
    positions: Mapping[Key, int | None],
    commits: Mapping[Key, Committed | None],
    starts: Starts,
    offsets: BrokerOffsets,
    log_starts: Callable[[Collection[Key]], Mapping[Key, int]],
) -> dict[Key, Start]:
    """Return where partitions are read again after a revocation that was shown to the application.

    :func:`restart_of` has the rule; None means that the library's position is right. :func:`find_places` describes the
    other rules and arguments. But here, a log start without an answer holds up no partition: the offset by the rule
    counts, as in a rebalance.
    """
    anew = {key for key in commits if starts.is_of_another_topic(key)}
    new_starts = starts.find(anew, offsets, ask_again=True).starts if anew else {}
    restarts: dict[Key, int | None] = {k: start.offset for k, start in new_starts.items() if start.offset is not None}
    is_at = {key: partitions[key].base if at is None else at for key, at in positions.items() if key not in anew}
    restarts |= {key: restart_of(partitions[key], at, commits[key]) for key, at in is_at.items() if key in commits}
    behind = {
        key for key, at in restarts.items() if at is not None and (starts.latest or starts.may_be_behind(key, at))
    }
    for key, log_start in (log_starts(behind) if behind else {}).items():
        restarts[key] = max(log_start, restarts[key] or 0)
    return {key: Start(None if at == is_at.get(key) else at, commits[key]) for key, at in restarts.items()}


def restart_of(partition: Partition, at: int | None, commit: Committed | None) -> int | None:
    """Return the offset from which a partition is read again, or None to keep the library's position. The offset is the
    group's commit, or the start of the assignment if there is no commit. If the library's position is lower, because
    the application has sought back, the offset is this position.

    Args:
        at: where the library reads, which may be the logical offset of a seek.
    """
    first = partition.start if commit is None else commit.offset
    return None if at is None or at < 0 or first is None or first < 0 else min(at, first)
