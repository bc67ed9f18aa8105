"""What can be said of a writer that does not honour modes, or that holds a transaction open. Pure."""

from __future__ import annotations

from modeaware.lifecycle.facts import PartitionFacts, WriterFacts
from modeaware.modelog.records import Straggler


def straggler_of(log: PartitionFacts) -> Straggler:
    """The last record of a log that has grown past its seal; its producer is the one that wrote last."""
    last = max(log.writers, key=lambda writer: writer.last_timestamp_ms, default=None)
    offset = log.end_offset - 1
    if last is None:
        return Straggler(offset)
    return Straggler(offset, last.producer_id, last.producer_epoch, last.last_timestamp_ms)


def unseal_alarm(topic: str, partition: int, seal_offset: int, log: PartitionFacts, *, truncated: bool) -> str:
    """What to tell when a seal is broken."""
    if truncated:
        return (
            f"{topic}-{partition}: the log was truncated to {log.lowest_end}, below its seal {seal_offset} (unclean "
            "leader election?); the partition is ReadOnly and is drained again"
        )
    count = log.end_offset - seal_offset
    parts = [f"{topic}-{partition}: {count} offset(s) written at or after the seal {seal_offset}"]
    parts.append("Some producer does not honour modes; the partition is ReadOnly and is drained again")
    if log.writers:
        parts.append("producers the leader remembers: " + ", ".join(_writer(writer) for writer in log.writers))
    if log.samples:
        parts.append("records: " + "; ".join(log.samples))
    return ". ".join(parts)


def transaction_alarm(topic: str, partition: int, log: PartitionFacts) -> str:
    """What to tell of a transaction that is open on a retired partition."""
    open_ones = [writer for writer in log.writers if writer.transaction_start is not None]
    whose = ", ".join(f"{_writer(writer)}, from offset {writer.transaction_start} on" for writer in open_ones)
    return (
        f"{topic}-{partition}: a transaction is open from offset {log.last_stable_offset} on"
        + (f" ({whose})" if whose else "")
        + "; nothing is sealed or deleted before it ends. One that hangs is aborted with kafka-transactions.sh abort"
    )


def _writer(writer: WriterFacts) -> str:
    return f"producer id {writer.producer_id} epoch {writer.producer_epoch}"
