"""Judges a history: every promise is checked against what was really acknowledged and read. Pure; after jepsen's
``kafka.clj``, with the modes and the deletions added.

A million acknowledgements with four groups take about twelve seconds and 150 MiB.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from tests.chaos.history import OPEN_END, Chain, Contents, Fault, Gone, History, Outcome, Shrink, WriterRun
from tests.chaos.journal import UNPLACED
from tests.chaos.ledger import Fates, Ledger
from tests.chaos.record import Identity
from tests.chaos.rereading import check_rereading
from tests.chaos.verdict import Verdict


def judge(history: History) -> Verdict:
    """Judge. The journals behind the history's iterables are read more than once."""
    verdict = Verdict()
    ledger = Ledger(history.groups, verdict)
    for reader in history.readers:
        ledger.read_by(reader)
    if history.contents is None:
        verdict.broken("unjudged", "there are no contents")
    else:
        ledger.stored(history.contents.stored)
    fates = Fates(history.writers)
    _check_log(ledger, fates, history.contents, verdict)
    _check_acknowledged(history, ledger, fates, verdict)
    _check_gone(history.gone, ledger, verdict)
    _check_shrinks(history.shrinks, verdict)
    _check_chains(history.chains, verdict)
    _check_routing(history, verdict)
    check_rereading(history, ledger, verdict)
    _check_transactions(history.writers, history.faults, verdict)
    return verdict


def _check_log(ledger: Ledger, fates: Fates, contents: Contents | None, verdict: Verdict) -> None:
    """What lies, or lay, in the partitions: no record twice, none of an aborted transaction, each key in the order
    sent; and what lay there once is there still, unless it was deleted."""
    met: dict[int, bytearray] = {}
    for partition in ledger.numbers.partitions:
        last: dict[int, int] = {}  # run and key -> sequence
        numbers = ledger.numbers.page(partition)
        present = ledger.present.page(partition, len(numbers))
        start = OPEN_END if contents is None else contents.log_starts.get(partition, 0)
        for offset, number in enumerate(numbers):
            if not number:
                continue
            where = f"{partition}@{offset}"
            if offset >= start and not present[offset]:
                verdict.broken("vanished", f"{where}: {Identity.of(number)}; the log starts at {start}")
            if not fates.knows(number):
                verdict.broken("stranger", f"{where}: {Identity.of(number)}")
                continue
            run_and_key, sequence = number >> 32, number & 0xFFFFFFFF
            if not fates.seen(number):
                verdict.broken("aborted-read", f"{where}: {Identity.of(number)}")
            marks = met.setdefault(number >> 48, bytearray())
            if len(marks) <= sequence:
                marks.extend(bytes(sequence + 65_536 - len(marks)))
            if marks[sequence]:
                verdict.broken("duplicate-in-log", f"{where}: {Identity.of(number)}, and at another offset")
                continue
            marks[sequence] = 1
            if sequence < last.get(run_and_key, -1):
                verdict.broken("order", f"{where}: {Identity.of(number)} after record {last[run_and_key]}")
            last[run_and_key] = sequence


def _check_acknowledged(history: History, ledger: Ledger, fates: Fates, verdict: Verdict) -> None:
    """What was acknowledged was read by every group, whether it is still there or not."""
    readings = list(ledger.first_ms.items())
    unplaced = _places(history.writers, ledger)
    starts: Mapping[int, int] = history.contents.log_starts if history.contents is not None else {}
    unsettled: set[tuple[int, int]] = set()
    for writer in history.writers:
        for number, offset, at_ms, partition, _ in writer.acks:
            outcome = fates.outcome(number)
            if outcome is not Outcome.COMMITTED:
                if outcome is Outcome.UNKNOWN:
                    verdict.unsettled += 1
                    unsettled.add(fates.transaction(number))
                continue
            verdict.acknowledged += 1
            if offset == UNPLACED:
                partition, offset = unplaced.get(number, (partition, UNPLACED))
            found = ledger.numbers.get(partition, offset)
            present = found == number and ledger.present.get(partition, offset)
            if history.contents is None:
                continue
            below = offset < starts.get(partition, 0)
            verdict.deleted += below
            if found == number:
                missing = [group for group, times in readings if not times.get(partition, offset)]
            else:
                missing = list(history.groups)
                if not below and offset != UNPLACED:
                    what = f"{partition}@{offset}: {Identity.of(number)}; the log starts at {starts.get(partition, 0)}"
                    verdict.broken("vanished", what)
                if found:
                    what = f"{partition}@{offset}: {Identity.of(number)} was acknowledged, there is"
                    verdict.broken("overwritten", f"{what} {Identity.of(found)}")
            if missing:
                what = f"{partition}@{offset}: {Identity.of(number)} of {writer.name} at {at_ms} ms, by {missing}"
                verdict.broken("unread" if present else "lost", what)
    verdict.unsettled_transactions = len(unsettled)
    for group, times in readings:
        verdict.read[group] = sum(len(page) - page.count(0) for page in map(times.page, times.partitions))
        verdict.duplicates[group] = len(ledger.again[group]) // 3


def _places(writers: Iterable[WriterRun], ledger: Ledger) -> dict[int, tuple[int, int]]:
    """Where the records really are that were acknowledged without an offset."""
    wanted = {ack[0] for writer in writers for ack in writer.acks if ack[1] == UNPLACED}
    return {
        number: (partition, offset)
        for partition in (ledger.numbers.partitions if wanted else ())
        for offset, number in enumerate(ledger.numbers.page(partition))
        if number in wanted
    }


def _check_gone(gone: Iterable[Gone], ledger: Ledger, verdict: Verdict) -> None:
    """Before offsets went out of reach every group had read what lay there."""
    reached: dict[int, int] = {}
    for at_ms, partition, below, how, _ in sorted(gone, key=lambda each: (each.partition, each.at_ms)):
        start = reached.get(partition, 0)
        reached[partition] = max(start, below)
        numbers = ledger.numbers.page(partition)
        for offset in range(start, min(below, len(numbers))):
            if not numbers[offset]:
                continue  # a control record, or one that was never seen: then it is lost, if it was acknowledged
            for group, times in ledger.first_ms.items():
                first_ms = times.get(partition, offset) - 1
                if first_ms < 0 or first_ms > at_ms:
                    when = "never" if first_ms < 0 else f"at {first_ms} ms"
                    what = f"{partition}@{offset}: {how} at {at_ms} ms; {group} read it {when}"
                    verdict.broken("deleted-unread", what)


def _check_shrinks(shrinks: Iterable[Shrink], verdict: Verdict) -> None:
    """A shrink is complete when Kafka says so: a log starts where its records were to go to, and a plain reader is
    given none from there to the seal (what may lie there: control records, aborted ones)."""
    for shrink in shrinks:
        answers = [_answer(shrink, partition, verdict) for partition in sorted(shrink.seals)] or ["unconfirmed"]
        verdict.shrinks[next((each for each in ("denied", "unconfirmed") if each in answers), "confirmed")] += 1


def _check_chains(chains: Iterable[Chain], verdict: Verdict) -> None:
    """Through replacements and deletions each group was given every acknowledged record, those of a key in order."""
    for chain in chains:
        verdict.chained += chain.acknowledged
        for writer, records in chain.unread.items():
            for record in records:
                verdict.broken("unread-in-chain", f"{chain.name}: {record} of {writer}")
        for writer, count in chain.out_of_order.items():
            if count:
                verdict.broken("order-in-chain", f"{chain.name}: {count} records of {writer}")
        for topic in chain.back:
            verdict.broken("back", f"{chain.name}: {topic}")


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


def _check_routing(history: History, verdict: Verdict) -> None:
    """Aware writers: one key, one view, one partition, and that a writable one. Counts how much could be judged."""
    homes: dict[tuple[int, int], int] = {}  # (version, key) -> partition
    for writer in history.writers:
        if not writer.aware:
            continue
        firsts = [bounds.first for bounds in writer.bounds]
        for number, offset, _, partition, _ in writer.acks:
            verdict.routing["aware"] += 1
            index = bisect_right(firsts, number & 0xFFFFFFFF) - 1
            if index < 0 or writer.bounds[index].lower != writer.bounds[index].upper:
                continue  # the view changed while it was sent: either may have been in force
            verdict.routing["homes"] += 1
            version, key = writer.bounds[index].lower, number >> 32 & 0xFFFF
            what = f"{partition}@{offset}: {Identity.of(number)} of {writer.name} under version {version}"
            home = homes.setdefault((version, key), partition)
            if home != partition:
                verdict.broken("moved", f"{what}; others went to {home}")
            writable = history.writable.get(version)
            if writable is None:
                continue
            verdict.routing["writable"] += 1
            if partition not in writable:
                verdict.broken("retired-chosen", f"{what}; writable are {list(writable)}")


def _check_transactions(writers: Iterable[WriterRun], faults: Iterable[Fault], verdict: Verdict) -> None:
    """A writer keeps one transaction open: it can be in the dark about one, and only where it was killed or failed."""
    ends = [fault.target for fault in faults if fault.kind.endswith(("-kill", "-by-itself"))]
    unknown: dict[str, int] = {}
    for writer in writers:
        outcomes = [transaction.outcome for transaction in writer.transactions or ()]
        verdict.transactions.update(outcome.value for outcome in outcomes)
        mine = outcomes.count(Outcome.UNKNOWN)
        unknown[writer.name] = unknown.get(writer.name, 0) + mine
        if mine > (not writer.ended):
            what = "ended in good order" if writer.ended else "did not"
            verdict.broken("unsettled", f"{writer.name} (run {writer.run}), which {what}: {mine} of unknown outcome")
        if writer.transactions is not None and not writer.ended:
            verdict.most_unsettled += 1
    for name, count in unknown.items():
        if count > ends.count(name):
            what = f"{name}: {count} of unknown outcome, and it was killed or failed {ends.count(name)} times"
            verdict.broken("unsettled", what)
