"""What every admission needs: the record as it is before, the limit of its size, and the refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import TopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode

MAX_RECORD_BYTES = 900_000
"""A record must fit a stock broker's ``message.max.bytes`` (1 048 588) with room for the envelope."""


@dataclass(frozen=True)
class Admission:
    """The record to append (None: nothing to change) and what to tell the caller."""

    record: TopicRecord | None
    message: str | None = None


def current_record(record: TopicRecord | None, facts: TopicFacts, controller_epoch: int) -> TopicRecord:
    """The topic as it is before the command: its record, or a first one that lists every partition as ReadWrite.

    Partitions that another tool added are writable while no listed one is retired (``TopicView.mode``): they are listed
    as that. Ids of writable partitions stay dense.
    """
    if record is None:
        assert facts.topic_id is not None
        modes = (PartitionMode.READ_WRITE,) * facts.partition_count
        return TopicRecord(facts.topic, facts.topic_id, epoch=-1, controller_epoch=controller_epoch, modes=modes)
    added = max(facts.partition_count - len(record.modes), 0) if not record.retired else 0
    return replace(record, modes=record.modes + (PartitionMode.READ_WRITE,) * added)


def check_size(command: TopicCommand, record: TopicRecord) -> None:
    """The record must still fit when every retired partition carries its proof."""
    proof = dict.fromkeys(record.required_groups, 2**62)
    full = {
        p: replace(r, seal_offset=2**62, drained=proof, reason="x" * 40, stragglers=9, truncated_to=2**62)
        for p, r in record.retired.items()
    }
    size = len(replace(record, retired=full).to_json())
    if size > MAX_RECORD_BYTES:
        raise refusal(
            command,
            ErrorCode.MESSAGE_TOO_LARGE,
            f"its mode record could grow to {size} bytes, more than the {MAX_RECORD_BYTES} that fit the mode log: "
            "change it in smaller steps",
        )


def refusal(command: TopicCommand, code: ErrorCode, why: str) -> RequestRefused:
    """The error to raise for a command that may not be carried out."""
    return RequestRefused(f"topic {command.topic!r}: {why}", code=code, topic=command.topic)
