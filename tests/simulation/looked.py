"""What a controller has seen, and when, as the judge remembers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Looked:
    """A controller's last look at the topic.

    Attributes:
        at: the first step that came after it had read the ends of the logs.
        ends_at: the step at which it read the ends of partitions that are still written, after that of the groups.
        step, now_ms: when it listed the groups.
        seen: the groups that showed.
        sure: whether those are all there were.
        committed: the partitions on which each of them really had an offset then.
    """

    at: int = 0
    ends_at: int = 0
    step: int = 0
    now_ms: int = 0
    seen: tuple[str, ...] = ()
    sure: bool = False
    committed: Mapping[str, frozenset[int]] = field(default_factory=dict)
