"""What the run does and sees in Kafka with plain clients: nothing of modeaware is involved.

All functions raise KafkaException or TimeoutError where the cluster does not answer, for two minutes at most.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.journal import Journal, Kind
from tests.chaos.record import number_of
from tests.chaos.setting import MODE_LOG, PARTITIONS, Setting
from tests.chaos.tasks import insist

READ_S = 120.0
REQUEST_S = 15.0
INSIST_S = 120.0
BATCH = 5_000
TOPIC_CONFIGS = {"retention.ms": "86400000", "min.insync.replicas": "2"}

Stored = tuple[int, int, bytes | None, bytes | None]
"""(partition, offset, value, key)"""


def create_topic(setting: Setting, topic: str, partitions: int) -> None:
    """Create a topic whose name is free."""
    admin = AdminClient(setting.conf)
    new = NewTopic(topic, partitions, replication_factor=3, config=TOPIC_CONFIGS)
    _insist(lambda: admin.create_topics([new])[topic], KafkaError.TOPIC_ALREADY_EXISTS)


def delete_topic(setting: Setting, topic: str) -> None:
    """Delete a topic."""
    admin = AdminClient(setting.conf)
    _insist(lambda: admin.delete_topics([topic])[topic], KafkaError.UNKNOWN_TOPIC_OR_PART)


def _insist(request: Callable[[], Future[None]], done: int) -> None:
    """Request until it is done; the error ``done``: by an earlier attempt whose answer was lost."""

    def attempt() -> None:
        try:
            request().result(INSIST_S)
        except KafkaException as error:
            if error.args[0].code() != done:
                raise

    insist(attempt, INSIST_S)


def commit_zeros(setting: Setting, group: str) -> None:
    """Commit offset 0 everywhere for a group that has no members yet."""
    with _consumer(setting, f"{setting.topic}-{group}") as consumer:
        zeros = [TopicPartition(setting.topic, partition, 0) for partition in range(PARTITIONS)]
        # Its coordinator may still be being elected: librdkafka calls NOT_COORDINATOR not retriable.
        insist(lambda: consumer.commit(offsets=zeros, asynchronous=False), INSIST_S)


def write_contents(setting: Setting) -> int:
    """Write the topic's contents and its log starts into the folder; the number of records."""
    starts = {p: start for p, (start, _) in _marks(setting).items()}
    journal = Journal(setting.contents_path)
    records = 0
    for partition, offset, value, key in _read(setting, setting.topic, starts):
        journal.add(Kind.STORED, number=number_of(value, key), offset=offset, partition=partition)
        records += 1
        if records % BATCH == 0:
            journal.flush()
    journal.close()
    setting.log_starts_path.write_text(json.dumps(starts), encoding="utf-8")
    return records


def below_seals(setting: Setting, version: tuple[int, int]) -> dict[str, dict[int, int]]:
    """What the mode log's record of this version and Kafka say to a shrink, by partition: see
    :class:`tests.chaos.history.Shrink`. Empty where the record is not the latest, or has a partition without a seal."""
    values = [json.loads(value) for _, _, value, _ in _read(setting, MODE_LOG, {0: OFFSET_BEGINNING}) if value]
    record = [each for each in values if each.get("topic") == setting.topic][-1]
    columns = record.get("retired", {"partitions": []})
    partitions = [p for first, last in columns["partitions"] for p in range(first, last + 1)]
    sealed, commits = (_column(columns.get(key), partitions) for key in ("seal_offset", "lowest_commit"))
    seals = {p: seal for p, seal in sealed.items() if seal is not None}
    if (record["controller_epoch"], record["epoch"]) != version or len(seals) < len(partitions):
        return {}
    reclaims = {p: seal if commits[p] is None else min(seal, commits[p]) for p, seal in seals.items()}
    starts = {p: start for p, (start, _) in _marks(setting).items() if p in seals}
    left = {p: 0 for p, start in starts.items() if start < seals[p]}
    for partition, offset, _, _ in _read(setting, setting.topic, {p: starts[p] for p in left}):
        left[partition] += offset < seals[partition]
    return {"seals": seals, "reclaims": reclaims, "log_starts": starts, "left": left}


def _column(values: Any, partitions: list[int]) -> dict[int, Any]:
    """Partition -> its value, of a column of the mode log's record: a list, or one value for all."""
    return dict(zip(partitions, values if isinstance(values, list) else [values] * len(partitions), strict=True))


def unread(setting: Setting, group: str) -> dict[int, int]:
    """Partition -> how many records (read_committed) the group has not committed yet; those with none are left out."""
    marks = _marks(setting)
    with _consumer(setting, f"{setting.topic}-{group}") as consumer:  # which joins nothing
        found = consumer.committed([TopicPartition(setting.topic, p) for p in marks], timeout=REQUEST_S)
    starts = {each.partition: max(each.offset, marks[each.partition][0]) for each in found}
    left = _read(setting, setting.topic, {p: start for p, start in starts.items() if start < marks[p][1]})
    return Counter(partition for partition, *_ in left)


def _marks(setting: Setting) -> dict[int, tuple[int, int]]:
    with _consumer(setting) as consumer:
        partitions = consumer.list_topics(setting.topic, timeout=REQUEST_S).topics[setting.topic].partitions
        return {
            p: consumer.get_watermark_offsets(TopicPartition(setting.topic, p), timeout=REQUEST_S)
            for p in sorted(partitions)
        }


def _read(setting: Setting, topic: str, starts: Mapping[int, int]) -> Iterator[Stored]:
    """Every record from the starts to the ends as they are now."""
    with _consumer(setting) as consumer:
        consumer.assign([TopicPartition(topic, p, start) for p, start in starts.items()])
        unfinished, deadline_s = set(starts), time.monotonic() + READ_S
        while unfinished:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"partitions {sorted(unfinished)} could not be read to their ends")
            for message in consumer.consume(BATCH, 0.2):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                if error is None:
                    assert offset is not None
                    yield partition, offset, message.value(), message.key()
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition)
                elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    raise KafkaException(error)


@contextmanager
def _consumer(setting: Setting, group: str | None = None) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            **setting.conf,
            "group.id": group or f"plain-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()
