"""The seal of a retired partition: when it is set, when it is broken, and the texts of the alarms.

The seal is the final end offset of a retired partition, which takes no writes. A partition is sealed when no
transaction is open, and its end offset has not moved for ``modeaware.seal.quiet.ms`` (its *quiet period*). The quiet
period proves nothing, because a paused producer may wake after any wait. It only avoids that seals are set and broken
again and again (docs/invariants.md, "Quiet proves nothing"). A fenced old topic needs no quiet period
(:mod:`modeaware.lifecycle.replacement`). Safety rests on the recorded offset: the controller deletes no record at or
after the seal. A record at or after the seal is a *straggler*; a log that ends before the seal was *truncated*. Both
break the seal, and the partition is sealed and drained again.
"""

from __future__ import annotations

from dataclasses import replace

from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import PartitionFacts
from modeaware.lifecycle.state import blocked, unproved
from modeaware.modelog.records import RetiredPartition, Straggler, producer_text


def seal_partition(
    retired: RetiredPartition, log: PartitionFacts, retired_ms: int, quiet_ms: int, now_ms: int
) -> tuple[RetiredPartition, int | None]:
    """Return the partition, sealed if possible, and when its quiet period ends (None once that period is over).

    Records of an open transaction are not readable yet, so no seal is set behind them (invariant I2). During the quiet
    period, the last stable offset is not checked: it may have been read before the end offset. While records arrive,
    such an offset is lower than the end although no transaction is open.

    Args:
        retired_ms: when the partition was retired, which is the earliest start of the quiet period.
        quiet_ms: ``modeaware.seal.quiet.ms``.
    """
    quiet_from_ms = max(log.quiet_since_ms, retired_ms) + quiet_ms
    if now_ms < quiet_from_ms:
        if log.moved and log.quiet_since_ms >= retired_ms + quiet_ms:
            known = retired.reason in (reasons.STILL_WRITTEN, reasons.STRAGGLER)
            return (retired if known else blocked(retired, reasons.STILL_WRITTEN)), quiet_from_ms
        over = retired.reason in (reasons.OPEN_TRANSACTION, reasons.UNAVAILABLE)
        return (replace(retired, reason=None) if over else retired), quiet_from_ms
    return seal_at_end(retired, log), None


def seal_at_end(retired: RetiredPartition, log: PartitionFacts) -> RetiredPartition:
    """Return the partition, sealed at the end of its log. While a transaction is open, return it blocked."""
    if not log.is_stable:
        return blocked(retired, reasons.OPEN_TRANSACTION)
    if retired.truncated_to is not None:  # the log may have been truncated further while the partition had no seal
        retired = replace(retired, truncated_to=min(retired.truncated_to, log.lowest_end))
    return replace(retired, seal_offset=log.end_offset, seal_leader_epoch=log.leader_epoch, reason=None)


def seal_broken_by(seal_offset: int, log: PartitionFacts) -> str | None:
    """Return why a seal no longer holds (the code ``truncated`` or ``straggler``), or None if it holds.

    Truncated: the log ends before the seal, or ended before the seal for a while and then grew again (invariant I1).
    """
    if log.end_offset < seal_offset or (log.seal_epoch_end is not None and log.seal_epoch_end < seal_offset):
        return reasons.TRUNCATED
    return reasons.STRAGGLER if log.end_offset > seal_offset else None


def seal_behind_markers(retired: RetiredPartition, log: PartitionFacts) -> RetiredPartition:
    """Return the partition, with a new seal if only markers and aborted records follow the old seal. An evacuation that
    was proved up to the old seal stays proved."""
    seal = retired.seal_offset
    if seal is None or seal_broken_by(seal, log) != reasons.STRAGGLER or not log.is_stable:
        return retired
    if log.read_up_to is None or log.read_up_to > max(seal, log.log_start):
        return retired
    evacuated_to = log.end_offset if retired.evacuated_to_seal else retired.evacuated_to
    return replace(retired, seal_offset=log.end_offset, seal_leader_epoch=log.leader_epoch, evacuated_to=evacuated_to)


def break_seal(
    topic: str, partition: int, retired: RetiredPartition, log: PartitionFacts
) -> tuple[RetiredPartition, str]:
    """Return the partition without its broken seal, to be drained again (invariant I2), and the alarm."""
    seal_offset = retired.seal_offset or 0
    truncated = seal_broken_by(seal_offset, log) == reasons.TRUNCATED
    # A group that has no commit and starts at the latest offset resumes at the first broken seal, before the straggler.
    resume = seal_offset if retired.resume_offset is None else retired.resume_offset
    lowest = log.lowest_end if retired.truncated_to is None else min(log.lowest_end, retired.truncated_to)
    broken = replace(
        unproved(retired, reasons.TRUNCATED if truncated else reasons.STRAGGLER),
        seal_offset=None,
        read_up_to=None,  # belongs to the broken seal
        seal_leader_epoch=log.leader_epoch,
        resume_offset=min(log.lowest_end, resume),
        stragglers=retired.stragglers + (not truncated),
        straggler=retired.straggler if truncated else log.straggler or Straggler(max(seal_offset, log.log_start)),
        truncated_to=lowest if truncated else retired.truncated_to,
        evacuated_to=None if retired.evacuated_to is None else min(retired.evacuated_to, log.lowest_end),
    )
    return broken, _broken_alarm(f"{topic}-{partition}", seal_offset, log, truncated)


def reason_alarm(topic: str, partition: int, reason: str | None, log: PartitionFacts) -> str | None:
    """Return the alarm to raise when ``reason`` becomes a partition's reason, or None if the reason needs no alarm."""
    if reason == reasons.STILL_WRITTEN:
        return f"{topic}-{partition}: {reasons.text(reason)}"
    if reason != reasons.OPEN_TRANSACTION:
        return None
    owners = ", ".join(
        f"{producer_text(writer.producer_id, writer.producer_epoch)}, from offset {writer.transaction_start} on"
        for writer in log.writers
        if writer.transaction_start is not None
    )
    return (
        f"{topic}-{partition}: open transaction since offset {log.last_stable_offset}"
        + (f" ({owners})" if owners else "")
        + "; waiting. Abort a hanging one with kafka-transactions.sh abort"
    )


def _broken_alarm(name: str, seal_offset: int, log: PartitionFacts, truncated: bool) -> str:
    if truncated:
        return (
            f"{name}: the log was truncated to {log.lowest_end}, below its seal {seal_offset} (unclean leader "
            "election?); the partition is ReadOnly and is drained again"
        )
    parts = [f"{name}: {log.end_offset - seal_offset} offset(s) written at or after the seal {seal_offset}"]
    parts.append("Some producer does not honour modes; the partition is ReadOnly and is drained again")
    if log.straggler is not None:
        parts.append(f"first record from {log.straggler.producer}")
    if log.samples:
        parts.append("records: " + "; ".join(log.samples))
    return ". ".join(parts)
