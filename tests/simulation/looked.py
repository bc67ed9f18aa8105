"""What a controller has seen, and when, as the judge remembers it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Looked:
    """A controller's last look at the topic.

    Attributes:
        at: the step at which it read the ends of the logs.
        step, now_ms: when it listed the groups.
        seen: the groups that showed.
        sure: whether those are all there were.
    """

    at: int = 0
    step: int = 0
    now_ms: int = 0
    seen: tuple[str, ...] = ()
    sure: bool = False
