"""What log records of the controller are about, as fields of their own: for log formats that keep them.

Each becomes an attribute of the ``LogRecord`` (``extra=``), and so of what OpenTelemetry exports. Documented in
docs/observability.md.
"""

from __future__ import annotations

from modeaware.lifecycle import reasons
from modeaware.lifecycle.phases import held_up, topic_phase
from modeaware.modelog.records import TopicRecord
from modeaware.modes import format_ranges

Fields = dict[str, str | int]


def about_topic(topic: str, **more: str | int) -> Fields:
    """Of something that happens to a topic, whatever its record says."""
    return {"topic": topic, **more}


def about_record(record: TopicRecord, **more: str | int) -> Fields:
    """Of something that happens to a topic with a record."""
    return about_topic(
        record.topic,
        topic_id=record.topic_id,
        mode_epoch=record.epoch,
        controller_epoch=record.controller_epoch,
        phase=topic_phase(record),
        **more,
    )


def describe_waiting(record: TopicRecord) -> str:
    """The phase of a topic, and what its partitions wait for: ``drain (4-6: group 'billing' has not ...)``."""
    told = [f"{format_ranges(held)}: {reasons.text(reason)}" for reason, held in held_up(record).items()]
    return f"{topic_phase(record)} ({'; '.join(told)})" if told else topic_phase(record)


def about_controller(controller_id: str, epoch: int | None = None) -> Fields:
    """Of something that happens to a controller."""
    return {"controller_id": controller_id} | ({} if epoch is None else {"controller_epoch": epoch})
