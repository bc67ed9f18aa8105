"""What log records of the controller are about, as fields of their own: for log formats that keep them.

Each becomes an attribute of the ``LogRecord`` (``extra=``), and so of what OpenTelemetry exports. Documented in
docs/observability.md.
"""

from __future__ import annotations

from modeaware.lifecycle.phases import topic_phase
from modeaware.modelog.records import TopicRecord

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


def about_controller(controller_id: str, epoch: int | None = None) -> Fields:
    """Of something that happens to a controller."""
    return {"controller_id": controller_id} | ({} if epoch is None else {"controller_epoch": epoch})
