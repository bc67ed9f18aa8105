"""What the engine needs of the world around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from modeaware.lifecycle.effects import CreatePartitions, Effect
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from modeaware.modelog.replay import Replay


class ModeLog(Protocol):
    """The mode log, as the engine uses it."""

    def open(self) -> Replay:
        """Fence any earlier writer, then read the log to its end."""
        ...

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Append in one transaction; returns when committed."""
        ...


class TopicObserver(Protocol):
    """Where facts come from."""

    def observe(self, topic: str, record: TopicRecord | None, rules: Sequence[GroupRule] = ()) -> TopicFacts:
        """What a pass over ``record`` needs to know of the topic; without one, what an admission needs.

        The offsets of groups that ``rules`` require by name are asked for, whether the brokers list them or not.
        """
        ...


class Effects(Protocol):
    """Where effects go."""

    def perform(self, effect: Effect) -> None: ...

    def create_partitions(self, effect: CreatePartitions, validate_only: bool = False) -> None: ...
