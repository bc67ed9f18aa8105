"""Short ways to write records of the mode log, and a mode log on a real Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from modeaware.config import ClientConfig
from modeaware.errors import ClusterError
from modeaware.librdkafka import AdminClient, TopicCollection
from modeaware.modelog.json_form import READER_VERSION, WRITER_VERSION, JsonRecord
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modelog.topic import ensure_mode_log
from modeaware.modelog.writer import ModeLogWriter
from modeaware.modes import PartitionMode
from modeaware.topic_view import base64_id
from tests.support.waiting import eventually

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def topic_record(
    topic: str = "orders",
    epoch: int = 1,
    *,
    writable: int = 4,
    count: int = 12,
    rest: PartitionMode = RO,
    controller_epoch: int = 1,
    topic_id: str | None = None,
    **others: Any,
) -> TopicRecord:
    """A topic of ``count`` partitions: ``writable`` are ReadWrite, the others have mode ``rest`` and a seal at 100."""
    return TopicRecord(
        topic=topic,
        topic_id=topic_id or f"id-of-{topic}",
        epoch=epoch,
        controller_epoch=controller_epoch,
        modes=(RW,) * writable + (rest,) * (count - writable),
        retired={p: RetiredPartition(seal_offset=100) for p in range(writable, count)},
        **others,
    )


def fold(log: Iterable[tuple[str | bytes | None, bytes | None]]) -> Replay:
    """The state of the mode log after these records."""
    replay = Replay()
    for key, value in log:
        replay.apply(key, value)
    return replay


def for_newer_readers(record: JsonRecord) -> bytes:
    """``record`` as a version of modeaware may write it one day, for readers that this one is not."""
    later = {"version": WRITER_VERSION + 1, "min_reader": READER_VERSION + 1, "later": [1]}
    return json.dumps(json.loads(record.to_json()) | later).encode()


class RealLog:
    """A mode log with a name of its own on a real Kafka; it does not exist before :meth:`create`."""

    def __init__(self, bootstrap_servers: str = "", **settings: str) -> None:
        self.topic = f"modes-{uuid.uuid4().hex[:12]}"
        self.conf: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, **settings}
        self.config = ClientConfig(mode_log_topic=self.topic)
        self.admin = AdminClient(self.conf)
        self._writer: ModeLogWriter | None = None

    def create(self) -> None:
        ensure_mode_log(self.admin, self.topic)

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(30)
        self.close()

    def append(self, *records: TopicRecord) -> None:
        """Append ``records``; one of :func:`topic_record` gets the id of the topic that has its name now, if any."""
        for record in records:
            if record.topic_id == f"id-of-{record.topic}":
                record = replace(record, topic_id=self._id_of(record.topic))
            self.append_raw([(record.topic_id, record.to_json())])

    def remove(self, topic: str) -> None:
        """Append the tombstone of a record that :func:`topic_record` made."""
        self.append_raw([(self._id_of(topic), None)])

    def _id_of(self, topic: str) -> str:
        listed = self.admin.list_topics(timeout=30).topics
        return self.live_id(topic) if topic in listed else f"id-of-{topic}"

    def live_id(self, topic: str) -> str:
        """The id of the topic that has the name now."""
        found = self.admin.describe_topics(TopicCollection([topic]), request_timeout=30)
        return base64_id(found[topic].result(30).topic_id)

    def append_raw(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        if self._writer is None:
            self._writer = eventually(self._open, 60.0)
        self._writer.append(list(records))

    def _open(self) -> ModeLogWriter:
        """As a controller does it: again, while brokers that have come back finish the transaction before."""
        writer = ModeLogWriter(self.conf, self.topic)
        try:
            writer.open()
        except ClusterError as error:
            raise AssertionError(error) from error
        return writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
