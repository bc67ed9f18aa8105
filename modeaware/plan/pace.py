"""Which topics begin next, if only some may be under way at a time. Pure.

The order is that of the files, in which ``modeaware plan --write`` puts the safest topics first. A waiting topic counts
as under way, so no topic begins while all of those wait. The first trouble stops the pace, since later topics may meet
the same trouble: a topic that is refused, fails or raises an alarm (:data:`modeaware.lifecycle.reasons.ALARMS`).
Nothing is kept between runs: the topics themselves show which of them have begun, and which are as declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["to begin", "under way", "done", "in trouble"]


@dataclass(frozen=True)
class Pace:
    """The limit on topics under way.

    Attributes:
        passes_trouble: topics in trouble are skipped, and the others continue.
    """

    at_once: int
    passes_trouble: bool = False

    def due(self, states: Mapping[str, State]) -> list[str]:
        """Return the topics that begin now; ``states``: the states of all topics, in order."""
        if self.is_stopped(states):
            return []
        free = max(self.at_once - Counter(states.values())["under way"], 0)
        return [topic for topic, state in states.items() if state == "to begin"][:free]

    def is_stopped(self, states: Mapping[str, State]) -> bool:
        """Return whether no further topic begins."""
        return not self.passes_trouble and "in trouble" in states.values()


def pace_text(states: Mapping[str, State]) -> str:
    """Return the progress of all topics, such as ``37 of 412 done, 10 under way, 365 to begin``."""
    counts = Counter(states.values())
    others: tuple[State, ...] = ("under way", "to begin", "in trouble")
    return ", ".join([f"{counts['done']} of {len(states)} done", *(f"{counts[s]} {s}" for s in others if counts[s])])
