"""The demo's result: judged, printed for people, and written as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modeaware.demo.audit import Counts
from modeaware.modes import PartitionMode

MAX_GAP_S = 5.0
BYTES_ARE = "keys and values of the deleted records, as the producers counted them"


@dataclass(frozen=True)
class PartitionEnd:
    """How one partition stands at the end."""

    mode: PartitionMode
    log_start: int
    log_end: int


@dataclass(frozen=True)
class Report:
    """What the demo found.

    Attributes:
        phases_s: seconds of each phase, in order.
        partitions: how each partition stands at the end.
        story: topic and how far it was shrunk and grown, for the report's reader.
    """

    counts: Counts
    phases_s: Mapping[str, float]
    partitions: Mapping[int, PartitionEnd]
    story: Mapping[str, Any]

    def faults(self) -> list[str]:
        """Why the demo failed; empty when it did not."""
        return list(_faults(self.counts))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, ``demo-report.json``."""
        counts = self.counts
        return {
            **self.story,
            "acknowledged": counts.acknowledged,
            "delivered": counts.delivered,
            "lost": counts.lost,
            "duplicates": counts.duplicates,
            "in_retired_after_switch": counts.in_retired_after_switch,
            "late_in_retired": counts.late_in_retired,
            "misplaced": counts.misplaced,
            "contradictions": counts.contradictions,
            "longest_gap_s": list(counts.longest_gap_s),
            "records_reclaimed": counts.records_reclaimed,
            "bytes_reclaimed": counts.bytes_reclaimed,
            "bytes_reclaimed_are": BYTES_ARE,
            "phases_s": dict(self.phases_s),
            "partitions": {
                str(p): {"mode": end.mode.label, "log_start": end.log_start, "log_end": end.log_end}
                for p, end in sorted(self.partitions.items())
            },
            "faults": self.faults(),
        }

    def write(self, path: Path) -> None:
        """Write the JSON form."""
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def lines(self) -> list[str]:
        """The report for people."""
        counts = self.counts
        figures = [
            ("acknowledged", f"{counts.acknowledged:,}"),
            ("delivered", f"{counts.delivered:,} distinct"),
            ("lost", f"{counts.lost:,}" + (f" ({', '.join(counts.lost_ids)}, ...)" if counts.lost_ids else "")),
            ("duplicates", f"{counts.duplicates:,}"),
            ("in retired partitions", f"{counts.in_retired_after_switch:,} of those sent after the switch was seen"),
            ("", f"{counts.late_in_retired:,} more were queued before it and arrived after it (allowed)"),
            ("not where the key says", f"{counts.misplaced:,}"),
            ("not where acknowledged", f"{counts.contradictions:,}"),
            ("longest time without", ", ".join(f"{gap_s:.2f} s" for gap_s in counts.longest_gap_s)),
            ("  an acknowledgement", f"(per producer; {MAX_GAP_S:.0f} s would be a failure)"),
            ("reclaimed", f"{counts.records_reclaimed:,} records, {counts.bytes_reclaimed:,} bytes ({BYTES_ARE})"),
            ("phases", "  ".join(f"{name} {seconds:.2f} s" for name, seconds in self.phases_s.items())),
        ]
        partitions = [f"  {'partition':>9}  {'mode':<10} {'log start':>10} {'log end':>10}"]
        partitions += [
            f"  {p:>9}  {end.mode.label:<10} {end.log_start:>10,} {end.log_end:>10,}"
            for p, end in sorted(self.partitions.items())
        ]
        verdict = [f"FAILED: {fault}" for fault in self.faults()] or ["OK: nothing acknowledged was lost."]
        return [*(f"  {name:<22} {text}" for name, text in figures), "", *partitions, "", *verdict]


def _faults(counts: Counts) -> Iterator[str]:
    if not counts.acknowledged:
        yield "nothing was acknowledged"
    if counts.lost:
        yield f"{counts.lost} acknowledged records were never delivered"
    if counts.in_retired_after_switch:
        yield f"{counts.in_retired_after_switch} records went to a retired partition though their producer knew better"
    if counts.misplaced:
        yield f"{counts.misplaced} records lie in a partition their key does not hash to"
    if counts.contradictions:
        yield f"{counts.contradictions} records do not lie where their acknowledgement said"
    for number, gap_s in enumerate(counts.longest_gap_s):
        if gap_s >= MAX_GAP_S:
            yield f"producer {number} went {gap_s:.1f} s without an acknowledgement"
