"""What the run does and sees in Kafka with plain clients: nothing of modeaware is involved.

All functions raise KafkaException or TimeoutError where the cluster does not answer, for two minutes at most.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.setting import MODE_LOG, PARTITIONS, Setting
from tests.support.plain import commit, committed, drain_topic, read_topic, watermarks
from tests.workload.journal import Journal, Kind
from tests.workload.record import log_of, number_of
from tests.workload.writer import insist

INSIST_S = 120.0
BATCH = 5_000
TOPIC_CONFIGS = {"retention.ms": "86400000", "min.insync.replicas": "2"}


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
    zeros = dict.fromkeys(range(PARTITIONS), 0)
    # Its coordinator may still be being elected: librdkafka calls NOT_COORDINATOR not retriable.
    insist(lambda: commit(setting.bootstrap_servers, f"{setting.topic}-{group}", setting.topic, zeros), INSIST_S)


def write_contents(setting: Setting) -> int:
    """Write the topic's contents and its log starts into the folder; the number of records."""
    servers, topic = setting.bootstrap_servers, setting.topic
    starts = {p: start for p, (start, _) in watermarks(servers, topic).items()}
    journal = Journal(setting.contents_path, setting.now_ms)
    records = 0
    for message in read_topic(servers, topic, starts, **{"auto.offset.reset": "error"}):
        partition, offset = message.partition() or 0, message.offset() or 0
        journal.note(Kind.STORED, number_of(message.value(), message.key()), log_of(topic, partition), offset)
        records += 1
        if records % BATCH == 0:
            journal.flush()
    journal.close()
    setting.log_starts_path.write_text(json.dumps(starts), encoding="utf-8")
    return records


def below_seals(setting: Setting, version: tuple[int, int]) -> dict[str, dict[int, int]]:
    """What the mode log's record of this version and Kafka say to a shrink, by partition.

    The fields of :class:`tests.workload.evidence.Shrink`; empty where the record is not the latest, or has a partition
    without a seal.
    """
    servers, topic = setting.bootstrap_servers, setting.topic
    values = [json.loads(message.value() or b"{}") for message in drain_topic(servers, MODE_LOG)]
    record = [each for each in values if each.get("topic") == topic][-1]
    columns = record.get("retired", {"partitions": []})
    partitions = [p for first, last in columns["partitions"] for p in range(first, last + 1)]
    sealed, commits = (_column(columns.get(key), partitions) for key in ("seal_offset", "lowest_commit"))
    seals = {p: seal for p, seal in sealed.items() if seal is not None}
    if (record["controller_epoch"], record["epoch"]) != version or len(seals) < len(partitions):
        return {}
    reclaims = {p: seal if commits[p] is None else min(seal, commits[p]) for p, seal in seals.items()}
    starts = {p: start for p, (start, _) in watermarks(servers, topic).items() if p in seals}
    left = {p: 0 for p, start in starts.items() if start < seals[p]}
    for message in read_topic(servers, topic, {p: starts[p] for p in left}):
        partition = message.partition() or 0
        left[partition] += (message.offset() or 0) < seals[partition]
    return {"seals": seals, "reclaims": reclaims, "log_starts": starts, "left": left}


def _column(values: Any, partitions: list[int]) -> dict[int, Any]:
    """Partition -> its value, of a column of the mode log's record: a list, or one value for all."""
    return dict(zip(partitions, values if isinstance(values, list) else [values] * len(partitions), strict=True))


def unread(setting: Setting, group: str) -> dict[int, int]:
    """Partition -> how many records (read_committed) the group has not committed yet; those with none are left out."""
    servers, topic = setting.bootstrap_servers, setting.topic
    marks = watermarks(servers, topic)
    done = committed(servers, f"{topic}-{group}", topic)
    starts = {p: max(done[p], start) for p, (start, _) in marks.items()}
    left = read_topic(servers, topic, {p: start for p, start in starts.items() if start < marks[p][1]})
    return Counter(message.partition() or 0 for message in left)
