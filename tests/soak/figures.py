"""What a soak has come to: the figures, and what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.workload.verdict import VIOLATIONS


@dataclass(frozen=True)
class Figures:
    """The figures at one moment.

    Attributes:
        written: records that were acknowledged.
        refused: records that were not acknowledged, by error.
        read: group -> distinct records.
        errors: errors of consumers, by name.
        replacements: how many have begun.
        deletions: how many of them are over: the brokers have no topic of the old name.
        verdict: on the records that were judged so far (:class:`tests.workload.verdict.Verdict`); in the end, on all.
        rss_mib: resident memory: of ``clients``, which is this process, and of the ``controller``.
    """

    seconds: float
    written: int
    refused: Mapping[str, int]
    read: Mapping[str, int]
    errors: Mapping[str, int]
    replacements: int
    deletions: int
    verdict: Mapping[str, Any]
    rss_mib: Mapping[str, int] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Return what must not be at the end."""
        found = [f"{kind}: {count:,} ({VIOLATIONS[kind]})" for kind, count in self.verdict["violations"].items()]
        if not self.verdict["acknowledged"]:
            found.append("no record was acknowledged")
        if not self.replacements:
            found.append("no topic was replaced")
        if self.replacements != self.deletions:
            found.append(f"{self.replacements} topics were replaced, {self.deletions} were deleted")
        return found

    def line(self) -> str:
        """The figures as a line of text."""
        lag = max(self.written - min(self.read.values(), default=0), 0)
        memory = ", ".join(f"{name} {mib} MiB" for name, mib in self.rss_mib.items())
        return (
            f"{self.seconds:7.0f} s  {self.written:12,} records  "
            f"{self.deletions:4} of {self.replacements} replaced topics deleted  "
            f"judged {self.verdict['acknowledged']:,}  violations {sum(self.verdict['violations'].values())}  "
            f"refused {sum(self.refused.values()):,}  lag {lag:,}  {memory}"
        )


def as_json(minutes: Sequence[Figures], end: Figures, **more: Any) -> dict[str, Any]:
    """Return the report: the figures at the end, what is wrong with them, and those of each minute."""
    problems = end.problems()
    return {"ok": not problems, "problems": problems, **more, **asdict(end), "minutes": [asdict(at) for at in minutes]}
