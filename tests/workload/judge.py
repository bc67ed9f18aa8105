"""Judges a workload: every promise is checked against what was really acknowledged, read and found. Pure.

After jepsen's ``kafka.clj``, with the modes, the replacements and the deletions added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.workload.evidence import OPEN_END, Evidence, Fault, Gone, Shrink
from tests.workload.ledger import ACKED, PLACED, SIGHTED, STORED, Ledger, Outcome, Run
from tests.workload.record import key_bytes, log_of, partition_of
from tests.workload.rereading import check_rereading
from tests.workload.verdict import Verdict


def judge(ledger: Ledger, evidence: Evidence) -> Verdict:
    """Judge. Nothing is noted in the ledger any more, and it is judged once: the verdict is the ledger's own."""
    verdict = ledger.verdict
    if evidence.starts is None:
        verdict.broken("unjudged", "there are no contents")
    if evidence.faults is not None:
        _check_transactions(ledger.runs, evidence.faults, verdict)
    for number, run in ledger.runs.items():
        _check_sighted(ledger, number, run, verdict)
    _check_records(ledger, evidence, verdict)
    logs = dict(_by_log(ledger))
    _check_logs(ledger, evidence, logs, verdict)
    _check_gone(evidence.gone, ledger, logs, verdict)
    _check_shrinks(evidence.shrinks, verdict)
    _check_routing(ledger, evidence, verdict)
    if evidence.faults is not None:
        check_rereading(ledger, evidence.faults, evidence.gone, evidence.plain, verdict)
    for topic in evidence.back:
        verdict.broken("back", topic)
    for group in ledger.groups:
        verdict.read[group] = ledger.distinct[group]
        verdict.duplicates[group] = len(ledger.again[group]) // 3
    return verdict


def _check_sighted(ledger: Ledger, number: int, run: Run, verdict: Verdict) -> None:
    """A writer of the run wrote what was seen, and committed it.

    A transaction of unknown outcome of which one record was seen was committed: then all of it has to be there.
    """
    for sequence in run.having(SIGHTED):
        if not run.name:
            verdict.broken("stranger", ledger.describe(number, sequence))
            continue
        outcome = run.outcome(sequence)
        if outcome is Outcome.UNKNOWN:
            run.outcomes[run.transaction(sequence)] = Outcome.COMMITTED
        elif outcome is Outcome.ABORTED:
            verdict.broken("aborted-read", ledger.describe(number, sequence))


def _check_records(ledger: Ledger, evidence: Evidence, verdict: Verdict) -> None:
    """What was acknowledged was read by every group, whether it is still there or not; and what was acknowledged or
    seen is there, unless it was deleted."""
    groups = ledger.groups if evidence.groups is None else evidence.groups
    indexes = [(group, ledger.groups.index(group)) for group in groups]
    unsettled: set[tuple[int, int]] = set()
    for number, run in ledger.runs.items():
        for sequence in run.having(ACKED | SIGHTED):
            marks, outcome = run.marks[sequence], run.outcome(sequence)
            if marks & ACKED and outcome is Outcome.UNKNOWN:
                verdict.unsettled += 1
                unsettled.add((number, run.transaction(sequence)))
            wanted = bool(marks & ACKED) and outcome is Outcome.COMMITTED
            verdict.acknowledged += wanted
            if evidence.starts is None or not (wanted or marks & SIGHTED):
                continue
            placed = bool(marks & PLACED)
            log, offset = ledger.logs[run.logs[sequence]] if placed else 0, run.offsets[sequence]
            start = evidence.starts.get(log, OPEN_END)
            verdict.deleted += wanted and placed and offset < start
            if placed and offset >= start and not marks & STORED:
                verdict.broken("vanished", f"{ledger.describe(number, sequence)}; the log starts at {start}")
            missing = [group for group, index in indexes if wanted and not run.first_ms[index][sequence]]
            if missing:
                kind = "unread" if marks & STORED else "lost"
                verdict.broken(kind, f"{ledger.describe(number, sequence)}, by {missing}")
    verdict.unsettled_transactions = len(unsettled)


def _by_log(ledger: Ledger) -> Iterator[tuple[int, list[int]]]:
    """Each log with what was acknowledged or seen in it, ascending: offset << 64 | record."""
    found: list[list[int]] = [[] for _ in ledger.logs]
    for number, run in ledger.runs.items():
        for sequence in run.having(PLACED):
            record = number << 48 | run.keys[sequence] << 32 | sequence
            found[run.logs[sequence]].append(run.offsets[sequence] << 64 | record)
    for log, records in zip(ledger.logs, found, strict=True):
        records.sort()
        yield log, records


def _check_logs(ledger: Ledger, evidence: Evidence, logs: Mapping[int, list[int]], verdict: Verdict) -> None:
    """In a log no offset has two records, each key is in the order sent, and nothing is behind a seal."""
    for log, records in logs.items():
        if log in evidence.reused:
            continue
        last: dict[int, int] = {}  # run and key -> sequence
        before = -1
        seal = evidence.seals.get(log, OPEN_END)
        for each in records:
            offset, number = each >> 64, each & 0xFFFFFFFF_FFFFFFFF
            run, key, sequence = number >> 48, number >> 32, number & 0xFFFFFFFF
            if offset == before:
                verdict.broken("overwritten", f"{ledger.describe(run, sequence)}, and another one")
            if offset >= seal:
                verdict.broken("after-seal", f"{ledger.describe(run, sequence)}; the seal is {seal}")
            if sequence < last.get(key, -1) and ledger.runs[run].in_order:
                verdict.broken("order", f"{ledger.describe(run, sequence)} after record {last[key]}")
            before = offset
            last[key] = sequence


def _check_gone(gone: Iterable[Gone], ledger: Ledger, logs: Mapping[int, list[int]], verdict: Verdict) -> None:
    """Before offsets went out of reach every group had read what lay there."""
    reached: Counter[int] = Counter()  # log -> how many of its records
    for at_ms, log, below, how, _ in sorted(gone, key=lambda each: (each.log, each.at_ms)):
        records = logs.get(log, [])
        while reached[log] < len(records) and records[reached[log]] >> 64 < below:
            number = records[reached[log]] & 0xFFFFFFFF_FFFFFFFF
            reached[log] += 1
            run, sequence = ledger.runs[number >> 48], number & 0xFFFFFFFF
            if not run.marks[sequence] & SIGHTED:
                continue  # it is lost, if it was acknowledged
            for group, times in zip(ledger.groups, run.first_ms, strict=True):
                first_ms = times[sequence] - 1
                if first_ms < 0 or first_ms > at_ms:
                    when = "never" if first_ms < 0 else f"at {first_ms} ms"
                    what = f"{ledger.describe(number >> 48, sequence)}, {how} at {at_ms} ms; {group} read it {when}"
                    verdict.broken("deleted-unread", what)


def _check_shrinks(shrinks: Iterable[Shrink], verdict: Verdict) -> None:
    """A shrink is complete when Kafka says so: a log starts where its records were to go to, and a plain reader is
    given none from there to the seal (what may lie there: control records, aborted ones)."""
    for shrink in shrinks:
        answers = [_answer(shrink, partition, verdict) for partition in sorted(shrink.seals)] or ["unconfirmed"]
        verdict.shrinks[next((each for each in ("denied", "unconfirmed") if each in answers), "confirmed")] += 1


def _answer(shrink: Shrink, partition: int, verdict: Verdict) -> str:
    seal, reclaim = shrink.seals[partition], shrink.reclaims[partition]
    start, left = shrink.log_starts.get(partition), shrink.left.get(partition)
    if start is None or (start < seal and left is None):
        return "unconfirmed"
    if start >= reclaim and (start >= seal or not left):
        return "confirmed"
    what = f"shrink to {shrink.to}, done at {shrink.at_ms} ms: partition {partition} is sealed at {seal}"
    verdict.broken("not-deleted", f"{what}, to be empty below {reclaim}, starts at {start}, has {left} records left")
    return "denied"


def _check_routing(ledger: Ledger, evidence: Evidence, verdict: Verdict) -> None:
    """A record lies in the partition that its key has among those that were writable. Counts how much could be judged
    of what aware writers sent under views that changed."""
    of_topics = {log_of(topic, p): range(count) for topic, count in evidence.counts.items() for p in range(count)}
    homes: dict[tuple[int, int], int] = {}  # key, number of partitions -> index

    def check(number: int, run: Run, sequence: int, log: int, writable: Sequence[int]) -> None:
        key, count = run.keys[sequence], len(writable)
        if (key, count) not in homes:
            homes[key, count] = evidence.place(key_bytes(key), count)
        if partition_of(log) != writable[homes[key, count]]:
            what = f"{ledger.describe(number, sequence)} belongs in {writable[homes[key, count]]} of {[*writable]}"
            verdict.broken("misplaced", what)

    for number, run in ledger.runs.items():
        index = -1
        for sequence in run.having(PLACED):
            log = ledger.logs[run.logs[sequence]]
            if (partitions := of_topics.get(log)) is not None:
                check(number, run, sequence, log, partitions)
                continue
            if not (run.aware and run.marks[sequence] & ACKED):
                continue
            verdict.routing["aware"] += 1
            while index + 1 < len(run.bounds) and run.bounds[index + 1].first <= sequence:
                index += 1
            if index < 0 or run.bounds[index].lower != run.bounds[index].upper:
                continue  # the view changed while it was sent: either may have been in force
            verdict.routing["homes"] += 1
            writable = evidence.writable.get(run.bounds[index].lower)
            if writable is not None:
                verdict.routing["writable"] += 1
                check(number, run, sequence, log, writable)


def _check_transactions(runs: Mapping[int, Run], faults: Iterable[Fault], verdict: Verdict) -> None:
    """A writer keeps one transaction open: it can be in the dark about one, and only where it was killed or failed."""
    ends = Counter(fault.target for fault in faults if fault.kind.endswith(("-kill", "-by-itself")))
    unknown: Counter[str] = Counter()
    for number, run in runs.items():
        verdict.transactions.update(outcome.value for outcome in run.outcomes)
        mine = run.outcomes.count(Outcome.UNKNOWN)
        unknown[run.name] += mine
        if mine > (not run.ended):
            what = "ended in good order" if run.ended else "did not"
            verdict.broken("unsettled", f"{run.name} (run {number}), which {what}: {mine} of unknown outcome")
        if run.transactional and not run.ended:
            verdict.most_unsettled += 1
    for name, count in unknown.items():
        if count > ends[name]:
            what = f"{name}: {count} of unknown outcome, and it was killed or failed {ends[name]} times"
            verdict.broken("unsettled", what)
