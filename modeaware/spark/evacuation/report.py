"""What an evacuation did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modeaware.modes import format_ranges


@dataclass(frozen=True)
class EvacuationReport:
    """The figures of an evacuation whose proof is recorded.

    Attributes:
        topic: its name.
        group: the consumer group whose commits are the proof.
        seals: retired partition -> the offset up to which it is evacuated. Empty: nothing was left to do.
        keys: how many keys the retired partitions hold.
        copied: how many of them were copied to the partition they belong to now.
        tombstones: how many of those are deleted keys (null values).
        placed: keys whose copy was there already, from an earlier run.
        newer: keys that have a newer value in a partition that stays.
        repaired: values written once more, because a copy that had to be taken back lies behind them.
        retries: how often copies were taken back, since a producer had written one of their keys meanwhile.
        unkeyed: records without a key in the retired partitions: compaction knows no such records, they stay behind.
        passes: how often the partitions were read: more than once where a seal was broken meanwhile.
    """

    topic: str
    group: str
    seals: Mapping[int, int]
    keys: int = 0
    copied: int = 0
    tombstones: int = 0
    placed: int = 0
    newer: int = 0
    repaired: int = 0
    retries: int = 0
    unkeyed: int = 0
    passes: int = 0

    def __str__(self) -> str:
        if not self.seals:
            return f"{self.topic}: every retired partition is evacuated already."
        where = format_ranges(sorted(self.seals))
        lines = [
            f"{self.topic}: partitions {where} are evacuated, each up to its seal.",
            f"  {self.keys} keys: {self.copied} copied ({self.tombstones} of them as deleted ones).",
            f"  {self.placed} were copied before, {self.newer} have a newer value in a partition that stays.",
        ]
        if self.retries:
            lines.append(
                f"  Producers wrote the same keys meanwhile: {self.retries} batches of copies were taken back "
                f"and written anew; {self.repaired} newer values written once more."
            )
        if self.unkeyed:
            lines.append(f"  {self.unkeyed} records without a key stay behind.")
        lines.append(f"  The proof is committed for group {self.group!r}; the controller sees it at its next check.")
        return "\n".join(lines)
