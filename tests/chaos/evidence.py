"""What is in Kafka when all is over, read with plain clients: nothing of modeaware is involved."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.journal import Journal, Kind
from tests.chaos.record import number_of
from tests.chaos.setting import Setting

READ_S = 120.0
REQUEST_S = 15.0
BATCH = 5_000


def write_contents(setting: Setting) -> int:
    """Write the topic's contents and its log starts into the folder; the number of records.

    Raises:
        TimeoutError: not read to the end in two minutes.
        KafkaException: the cluster reported an error.
    """
    marks = _marks(setting)
    journal = Journal(setting.contents_path)
    records = 0
    for message in _read(setting, {p: start for p, (start, _) in marks.items()}):
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        journal.add(Kind.STORED, number=number_of(message.value(), message.key()), offset=offset, partition=partition)
        records += 1
        if records % BATCH == 0:
            journal.flush()
    journal.close()
    starts = {p: start for p, (start, _) in marks.items()}
    setting.log_starts_path.write_text(json.dumps(starts), encoding="utf-8")
    return records


def below_seals(setting: Setting, seals: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """Where the logs of sealed partitions start and, where that is below the seal, how many records (read_committed)
    lie between: two maps by partition, the second without those that start at the seal or behind it.

    Raises:
        KafkaException, TimeoutError: the cluster did not answer.
    """
    starts = {p: start for p, (start, _) in _marks(setting).items() if p in seals}
    left = {p: 0 for p, start in starts.items() if start < seals[p]}
    for message in _read(setting, {p: starts[p] for p in left}):
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        left[partition] += offset < seals[partition]
    return starts, left


def ends(setting: Setting) -> dict[int, int]:
    """Partition -> its end (high watermark).

    Raises:
        KafkaException: the cluster did not answer.
    """
    return {p: end for p, (_, end) in _marks(setting).items()}


def unread(setting: Setting, group: str) -> dict[int, int]:
    """Partition -> how many records (read_committed) the group has not committed yet; those with none are left out.

    Raises:
        KafkaException, TimeoutError: the cluster did not answer.
    """
    name, topic = f"{setting.topic}-{group}", setting.topic
    marks = _marks(setting)
    consumer = Consumer({**setting.conf, "group.id": name})  # which joins nothing
    try:
        found = consumer.committed([TopicPartition(topic, p) for p in marks], timeout=REQUEST_S)
    finally:
        consumer.close()
    committed = {p.partition: p.offset for p in found}
    starts = {p: max(committed.get(p, 0), start) for p, (start, _) in marks.items()}
    left: dict[int, int] = {}
    for message in _read(setting, {p: start for p, start in starts.items() if start < marks[p][1]}):
        partition = message.partition()
        assert partition is not None
        left[partition] = left.get(partition, 0) + 1
    return left


def _marks(setting: Setting) -> dict[int, tuple[int, int]]:
    consumer = Consumer({**setting.conf, "group.id": f"marks-{uuid.uuid4()}"})
    try:
        partitions = consumer.list_topics(setting.topic, timeout=REQUEST_S).topics[setting.topic].partitions
        return {
            p: consumer.get_watermark_offsets(TopicPartition(setting.topic, p), timeout=REQUEST_S)
            for p in sorted(partitions)
        }
    finally:
        consumer.close()


def _read(setting: Setting, starts: Mapping[int, int]) -> Iterator[Message]:
    """Every record from the starts to the ends as they are now."""
    if not starts:
        return
    consumer = Consumer(
        {
            **setting.conf,
            "group.id": f"evidence-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(setting.topic, p, start) for p, start in starts.items()])
        unfinished, deadline_s = set(starts), time.monotonic() + READ_S
        while unfinished:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"partitions {sorted(unfinished)} could not be read to their ends")
            for message in consumer.consume(BATCH, 0.2):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    raise KafkaException(error)
    finally:
        consumer.close()
