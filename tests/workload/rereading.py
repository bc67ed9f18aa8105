"""Judges what groups read more than once: whether something explains it, and whether it could be read at all."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence

from tests.workload.evidence import Fault, Gone
from tests.workload.ledger import Ledger
from tests.workload.record import log_name
from tests.workload.verdict import Verdict

SETTLE_MS = 15_000
"""How long after the end of a broker's fault a partition may change hands because of it, and be read again then."""
PREFETCH_MS = 15_000
"""How long after a deletion a reader may still be given what it had fetched before: one that was paused (10 s at most)
meanwhile, and reads on until it learns that it has lost the partition."""


class Windows:
    """Spans of time, merged."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def touch(self, start: int, end: int) -> bool:
        """Whether any of them has a moment in common with ``start`` to ``end``."""
        index = bisect_right(self._starts, end) - 1
        return index >= 0 and self._ends[index] >= start


def check_rereading(
    ledger: Ledger, faults: Sequence[Fault], gone: Sequence[Gone], plain: Collection[str], verdict: Verdict
) -> None:
    """Check all groups; those that are ``plain`` know no mode."""
    for index, group in enumerate(ledger.groups):
        _check_duplicates(group, faults, ledger, verdict)
        _check_late(index, [each for each in gone if each.how != "None" or group not in plain], ledger, verdict)


def _check_duplicates(group: str, faults: Sequence[Fault], ledger: Ledger, verdict: Verdict) -> None:
    """At least once allows a second reading where, between the two, something was done to the group's own members, or
    one of them could not commit what it had read.

    A broker's fault is no excuse by itself: what was committed stays committed. It is one for a partition that changed
    hands because of it, in the moment in which it did.
    """
    own = [(fault.from_ms, fault.to_ms) for fault in faults if fault.group == group]
    excuses = Windows([*own, *ledger.unsure[group]])
    harm = Windows((fault.from_ms, fault.to_ms + SETTLE_MS) for fault in faults if fault.group == "*")
    hands = {
        ledger.index(log): Windows((at_ms, at_ms) for at_ms in times if harm.touch(at_ms, at_ms))
        for log, times in ledger.taken_ms[group].items()
    }
    never = Windows(())
    for log, first_ms, again_ms in _threes(ledger.again[group]):
        if not excuses.touch(first_ms, again_ms) and not hands.get(log, never).touch(first_ms, again_ms):
            what = f"{group} read something of {log_name(ledger.logs[log])} at {first_ms} ms and at {again_ms} ms"
            verdict.broken("unexplained-duplicate", what)


def _check_late(index: int, gone: Iterable[Gone], ledger: Ledger, verdict: Verdict) -> None:
    """No reader is given what was deleted, or anything of a None partition, once what was fetched before is used up.

    Of the readings of a record the latest counts. Where it is the only one, it was judged already as one that came
    before the record went, or not.
    """
    by_log: dict[int, list[Gone]] = {}
    for each in gone:
        by_log.setdefault(ledger.index(each.log), []).append(each)
    for run in ledger.runs.values():
        for sequence, (first, last) in enumerate(zip(run.first_ms[index], run.last_ms[index], strict=True)):
            if first == last:
                continue
            at_ms, offset = last - 1, run.offsets[sequence]
            for gone_ms, log, below, how, until_ms in by_log.get(run.logs[sequence], ()):
                if offset < below and gone_ms + PREFETCH_MS < at_ms < until_ms:
                    what = f"{log_name(log)}@{offset}: {how} at {gone_ms} ms; {ledger.groups[index]} was given it"
                    verdict.broken("read-deleted", f"{what} at {at_ms} ms")
                    break


def _threes(flat: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    each = iter(flat)
    return zip(each, each, each, strict=True)
