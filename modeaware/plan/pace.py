"""The topics whose changes begin next, under a limit on the changes under way. Pure.

Topics begin in the order of the files; ``modeaware plan --write`` puts the safest first. A change that waits counts as
under way, so no topic begins while ``at_once`` changes wait. The exception is a replacement that only waits until the
old topic's own retention has emptied it, which may take days. A topic is in trouble if it is refused, fails or raises
an alarm (:data:`modeaware.lifecycle.reasons.ALARMS`). After the first topic in trouble no further topic begins (unless
``passes_trouble``), because it may meet the same trouble. No state is kept between runs: the topics show which changes
have begun, and which are done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["to begin", "under way", "awaiting retention", "done", "in trouble"]


@dataclass(frozen=True)
class Pace:
    """The limit on topics under way.

    Attributes:
        at_once: the most topics under way.
        passes_trouble: whether further topics begin although some are in trouble.
    """

    at_once: int
    passes_trouble: bool = False

    def due(self, states: Mapping[str, State]) -> list[str]:
        """Return the topics that begin now, by the states of all topics, in order."""
        if self.is_stopped(states):
            return []
        free = max(self.at_once - Counter(states.values())["under way"], 0)
        return [topic for topic, state in states.items() if state == "to begin"][:free]

    def is_stopped(self, states: Mapping[str, State]) -> bool:
        """Return whether a topic in trouble keeps further topics from beginning."""
        return not self.passes_trouble and "in trouble" in states.values()


def pace_text(states: Mapping[str, State]) -> str:
    """Return the progress of all topics, such as ``37 of 412 done, 10 under way, 365 to begin``."""
    counts = Counter(states.values())
    others: tuple[State, ...] = ("awaiting retention", "under way", "to begin", "in trouble")
    return ", ".join([f"{counts['done']} of {len(states)} done", *(f"{counts[s]} {s}" for s in others if counts[s])])
