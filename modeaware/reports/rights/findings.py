"""What a check found. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from modeaware.reports.rights.needs import Need, Scope


class State(Enum):
    """What a check came to."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """One answer; ``detail`` is empty where there is nothing to add."""

    state: State
    detail: str = ""


@dataclass(frozen=True)
class Right:
    """A right that the role needs, and whether the user has it."""

    need: Need
    verdict: Verdict


@dataclass(frozen=True)
class Setting:
    """What is needed and no right, and whether it is so."""

    name: str
    verdict: Verdict


@dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes:
        log_missing: the mode log is not there (None: not known).
        brokers: how many there are.
    """

    scope: Scope
    rights: tuple[Right, ...]
    settings: tuple[Setting, ...]
    log_missing: bool | None
    brokers: int

    @property
    def passed(self) -> bool:
        """Whether nothing failed; what is unknown did not."""
        verdicts = [right.verdict for right in self.rights] + [setting.verdict for setting in self.settings]
        return all(verdict.state is not State.FAIL for verdict in verdicts)

    @property
    def missing(self) -> tuple[Need, ...]:
        """The rights that failed."""
        return tuple(right.need for right in self.rights if right.verdict.state is State.FAIL)
