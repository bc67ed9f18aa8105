"""The operator's rules about groups as the judge reads them: by a reading of its own, not by the lifecycle's code."""

from __future__ import annotations

from collections.abc import Sequence

from modeaware.modelog.group_rules import GroupRule


class Rules:
    """The rules in force. The simulator uses plain group names only, and the one topic."""

    def __init__(self) -> None:
        self._rules: tuple[GroupRule, ...] = ()

    def replace(self, rules: Sequence[GroupRule]) -> None:
        self._rules = tuple(rules)

    def _of(self, kind: str, now_ms: int) -> list[GroupRule]:
        return [r for r in self._rules if r.kind == kind and (r.expires_ms is None or now_ms < r.expires_ms)]

    def closed(self, now_ms: int) -> bool:
        """Whether the list of groups is declared to be closed."""
        return bool(self._rules) and bool(self._of("closed", now_ms))

    def registered(self, now_ms: int) -> set[str]:
        """The groups that must have read, listed or not."""
        return {rule.group for rule in self._of("require", now_ms)} if self._rules else set()

    def waived(self, name: str, now_ms: int, committed: bool) -> bool:
        """Whether the group need not be waited for."""
        return bool(self._rules) and any(
            r.group == name and not (r.uncommitted_only and committed) for r in self._of("waive", now_ms)
        )
