"""Descriptions of stragglers: producer, keys, and names of headers, never values.

A *straggler* is a record at or after a partition's seal (its final end offset). The descriptions are for messages only:
no decision rests on them.

The leader's list of producers does not show which producer wrote a straggler. The list has all idempotent producers of
the last day, even those that wrote only before the seal, and no producers without idempotence. So the producer's id
comes from the header of the batch, if the header has an id.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from modeaware.clock import utc
from modeaware.cluster.commits import read_partitions
from modeaware.cluster.metadata import READ_UNCOMMITTED, LeaderRequests, Led, Partition
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message
from modeaware.modelog.records import Straggler
from modeaware.wire.brokers import Brokers
from modeaware.wire.fence_probe import BATCH_HEADER
from modeaware.wire.requests import FetchRequest

BATCH_BYTES, RESPONSE_BYTES = 1 << 20, 1 << 22
"""The most bytes in a response for one partition, and for all. If the first batch is larger, it comes whole or not at
all."""
_LENGTH_COUNTS_FROM = 12
_MAGIC, _LOG_APPEND_TIME, _CONTROL = 2, 0x08, 0x20


def first_batches(brokers: Brokers, starts: Mapping[Partition, int]) -> dict[Partition, Straggler]:
    """Return the first record of each partition at or after an offset, with its producer. Both come from batch headers.

    Records of open transactions are included. A partition whose leader returns no batch of records is missing.
    """
    if not starts:
        return {}
    reads = read_batches(LeaderRequests(brokers), starts)
    batches = {key: first_batch(read, starts[key]) for key, read in reads.items()}
    return {key: batch for key, batch in batches.items() if batch is not None}


def read_batches(leaders: LeaderRequests, starts: Mapping[Partition, int]) -> dict[Partition, bytes]:
    """Return the batches of each partition from an offset on, at most :data:`RESPONSE_BYTES` from a leader. A partition
    whose leader returns no batch is missing."""

    def request(led: Led) -> Any:
        entry = FetchRequest.FetchTopic
        topics = [
            entry(
                topic=topic,
                partitions=[
                    entry.FetchPartition(
                        partition=p,
                        current_leader_epoch=epoch,
                        fetch_offset=starts[topic, p],
                        partition_max_bytes=BATCH_BYTES,
                    )
                    for p, epoch in epochs.items()
                ],
            )
            for topic, epochs in led.items()
        ]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=RESPONSE_BYTES,
            isolation_level=READ_UNCOMMITTED,
            topics=topics,
            min_version=9,
            max_version=12,  # later versions name topics by id
        )

    entries = leaders.entries(starts, "read", request, topic_name="topic", topics="responses")
    return {key: bytes(entry.records) for key, entry in entries.items() if entry.records}


class Batch(NamedTuple):
    """A batch of data or a marker of a transaction, by its header."""

    base_offset: int
    last_offset: int
    size_bytes: int
    attributes: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    record_count: int

    @property
    def is_marker(self) -> bool:
        return bool(self.attributes & _CONTROL)


def all_batches(read: bytes) -> Iterator[Batch]:
    """Yield the batches, up to one of an older format. The last batch may be incomplete."""
    position = 0
    while len(read) - position >= BATCH_HEADER.size:
        base_offset, length, _, magic, _, attributes, last_delta, *others = BATCH_HEADER.unpack_from(read, position)
        if magic != _MAGIC:
            return
        size_bytes = _LENGTH_COUNTS_FROM + length
        position += size_bytes
        first_ms, max_ms, producer_id, epoch, _, count = others
        timestamp_ms = max_ms if attributes & _LOG_APPEND_TIME else first_ms
        last = base_offset + last_delta
        yield Batch(base_offset, last, size_bytes, attributes, timestamp_ms, producer_id, epoch, count)


def first_batch(records: bytes, start: int) -> Straggler | None:
    """Return the first record at or after ``start``, by the header of the first data batch that ends there or later."""
    for batch in all_batches(records):
        if batch.last_offset >= start and not batch.is_marker:
            return Straggler(max(batch.base_offset, start), batch.producer_id, batch.producer_epoch, batch.timestamp_ms)
    return None


SAMPLED_RECORDS = 3
SAMPLED_PARTITIONS = 10
SAMPLE_TIMEOUT_S = 3.0
_HEADERS = operator.methodcaller("headers")
"""Get ``message.headers()``, by a call whose result the interpreter always checks. If a header's name is not UTF-8, the
client returns an incomplete list with an exception set. If the interpreter has specialised a plain call, it omits the
check, and crashes. A second call for the same message crashes, too: the client then sets no exception."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def sample_records(
    conf: Mapping[str, Any], starts: Mapping[Partition, int], monotonic_s: Callable[[], float]
) -> dict[Partition, tuple[str, ...]]:
    """Describe the first records of each partition at or after an offset: offset, time, key, names of headers.

    Each call describes a few records of a few partitions, within :data:`SAMPLE_TIMEOUT_S`. The choice of partitions
    varies. If a record cannot be read, the error takes its place.
    """
    keys, turn = sorted(starts), int(monotonic_s())
    chosen = (keys[(turn + n) % len(keys)] for n in range(min(len(keys), SAMPLED_PARTITIONS)))
    wanted = {key: starts[key] for key in chosen}
    samples: dict[Partition, list[str]] = {key: [] for key in wanted}
    waiting = set(wanted)

    def take(key: Partition, message: Message, _: Consumer) -> None:
        error = message.error()
        if error is None:
            samples[key].append(_describe(message))
        elif error.code() != KafkaError._PARTITION_EOF:
            samples[key].append(f"not read: {error.str()}")
        if error is not None or len(samples[key]) >= SAMPLED_RECORDS:
            waiting.discard(key)

    settings = {
        "group.id": "modeaware-stragglers",
        "isolation.level": "read_uncommitted",  # includes records of open transactions
        "auto.offset.reset": "earliest",
    }
    try:
        read_partitions({**conf, **settings}, wanted, waiting, take, SAMPLE_TIMEOUT_S, monotonic_s)
    except KafkaException as error:
        for key in waiting:
            samples[key].append(f"not read: {error.args[0].str()}")
    return {key: tuple(texts) for key, texts in samples.items()}


def _describe(message: Message) -> str:
    """Return a text like ``offset 17, 2026-01-31 12:00:00.123 UTC, key b'k-1', headers 'trace-id'``."""
    _, timestamp_ms = message.timestamp()
    when = utc(timestamp_ms, "milliseconds") if timestamp_ms > 0 else "no timestamp"
    try:
        names = [str(header[0]) for header in _HEADERS(message) or []]
        headers = f", headers {_SHORT.repr(', '.join(names))}" if names else ""
    except (UnicodeDecodeError, SystemError):  # a header's name may be any bytes
        headers = ", headers that cannot be read"
    return f"offset {message.offset()}, {when}, key {_SHORT.repr(message.key())}{headers}"
