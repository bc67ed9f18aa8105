"""When the topic's modes changed, and how long each phase took. Filled by the views' thread, read by the story's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise

from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView

Condition = Callable[[TopicView], bool]


class Timeline:
    """The views of one topic as they came into force, with their times (monotonic seconds).

    :meth:`changed` is a listener for :class:`modeaware.views.source.Views`; the rest may be called from any thread.
    """

    def __init__(self, topic: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._topic = topic
        self._monotonic_s = monotonic_s
        self._history: list[tuple[float, TopicView]] = []  # only ever appended to

    def changed(self, views: Mapping[str, TopicView]) -> None:
        """Note the topic's new view."""
        view = views.get(self._topic)
        if view is not None:
            self._history.append((self._monotonic_s(), view))

    def since(self, condition: Condition) -> float | None:
        """From when on ``condition`` has held without a break; None if it does not hold now."""
        since_s = None
        for at_s, view in reversed(self._history):
            if not condition(view):
                break
            since_s = at_s
        return since_s


def writable_are(count: int) -> Condition:
    """The writable partitions are 0 to ``count - 1``."""
    return lambda view: view.writable == tuple(range(count))


def sealed_from(first: int) -> Condition:
    """Every partition from ``first`` on has a recorded seal."""
    return lambda view: all(p in view.resume_offsets for p in range(first, len(view.modes)))


def none_from(first: int) -> Condition:
    """Every partition from ``first`` on is in mode None."""
    return lambda view: all(mode is PartitionMode.NONE for mode in view.modes[first:])


def reclaimed_from(first: int) -> Condition:
    """The records of every partition from ``first`` on are deleted up to the seal."""
    return lambda view: view.reclaimed >= set(range(first, len(view.modes)))


def durations_s(names: list[str], times_s: list[float]) -> dict[str, float]:
    """``names[i]`` lasted from ``times_s[i]`` to ``times_s[i + 1]``; rounded to milliseconds."""
    return {
        name: round(max(end_s - start_s, 0.0), 3)
        for name, (start_s, end_s) in zip(names, pairwise(times_s), strict=True)
    }
