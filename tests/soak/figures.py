"""What a soak has come to: the figures, and what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.support.numbered import Reading, Written


@dataclass(frozen=True)
class Figures:
    """The figures at one moment.

    Attributes:
        acknowledged: records; those on the way are counted until the end.
        refused: records that were not acknowledged, by error.
        read: group -> records.
        lost: group -> acknowledged records that it has skipped; at the end, that it has not read.
        out_of_order: group -> records that it was given after a later one of their key.
        duplicates: group -> records that it was given again.
        errors: group -> errors of its consumers, by name.
        lag: the records that the slowest group has still to read.
        replacements: how many have begun.
        deletions: how many of them are over: the brokers have no topic of the old name.
        rss_mib: resident memory: of ``clients``, which is this process, and of the ``controller``.
    """

    seconds: float
    acknowledged: int
    refused: Mapping[str, int]
    read: Mapping[str, int]
    lost: Mapping[str, int]
    out_of_order: Mapping[str, int]
    duplicates: Mapping[str, int]
    errors: Mapping[str, Mapping[str, int]]
    lag: int
    replacements: int
    deletions: int
    rss_mib: Mapping[str, int] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Return what must not be at the end."""
        found = [f"group {name} has not read {count:,} records" for name, count in self.lost.items() if count]
        found += [f"group {name}: {count:,} records out of order" for name, count in self.out_of_order.items() if count]
        if not self.acknowledged:
            found.append("no record was acknowledged")
        if not self.replacements:
            found.append("no topic was replaced")
        if self.replacements != self.deletions:
            found.append(f"{self.replacements} topics were replaced, {self.deletions} were deleted")
        return found

    def line(self) -> str:
        """The figures as a line of text."""
        memory = ", ".join(f"{name} {mib} MiB" for name, mib in self.rss_mib.items())
        return (
            f"{self.seconds:7.0f} s  {self.acknowledged:12,} records  "
            f"{self.deletions:4} of {self.replacements} replaced topics deleted  "
            f"lost {_sum(self.lost)}  out of order {_sum(self.out_of_order)}  duplicates {_sum(self.duplicates):,}  "
            f"refused {_sum(self.refused):,}  lag {self.lag:,}  {memory}"
        )


def figures(
    writers: Sequence[Written],
    groups: Mapping[str, Reading],
    refused: Mapping[str, int],
    at_end: bool,
    **more: Any,
) -> Figures:
    """Return the figures of these writers and groups.

    Args:
        at_end: nothing is on its way any more: what was not read is lost.
        more: the other fields of :class:`Figures`.
    """
    acknowledged = sum(each.acknowledged for each in writers)
    # Two readings of counters that go on: a group may be ahead by what was written in between.
    read = {name: group.read for name, group in groups.items()}

    def lost(group: Reading) -> int:
        return sum(len(group.unread(each)) for each in writers) if at_end else len(group.lost(writers))

    return Figures(
        acknowledged=acknowledged,
        refused=dict(refused),
        read=read,
        lost={name: lost(group) for name, group in groups.items()},
        out_of_order={name: sum(group.out_of_order(w) for w in writers) for name, group in groups.items()},
        duplicates={name: group.duplicates for name, group in groups.items()},
        errors={name: dict(group.errors) for name, group in groups.items() if group.errors},
        lag=max(acknowledged - min(read.values()), 0),
        **more,
    )


def as_json(minutes: Sequence[Figures], end: Figures, **more: Any) -> dict[str, Any]:
    """Return the report: the figures at the end, what is wrong with them, and those of each minute."""
    problems = end.problems()
    return {"ok": not problems, "problems": problems, **more, **asdict(end), "minutes": [asdict(at) for at in minutes]}


def _sum(counts: Mapping[str, int]) -> int:
    return sum(counts.values())
