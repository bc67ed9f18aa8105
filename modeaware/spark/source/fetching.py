"""Reading one stretch of a partition on an executor, as Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import Consumer, KafkaError, Message, TopicPartition
from modeaware.spark.source.cluster import reading_conf
from modeaware.spark.source.errors import RecordsLost
from modeaware.spark.source.stretches import Stretch

BATCH = 5_000
POLL_S = 0.5
SILENCE_S = 120.0
"""How long a partition may give neither a record nor its end."""

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
# It is no member of any group, and librdkafka goes on by itself after the others.
_HARMLESS = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def fetch(conf: Mapping[str, Any], stretch: Stretch, *, strict: bool) -> Iterator[pa.RecordBatch]:
    """The records of ``stretch``; control records and what compaction has removed are gaps.

    Args:
        conf: as for :class:`modeaware.Consumer`. No group is joined and nothing committed.
        strict: whether it is an error that records are gone (``failOnDataLoss``); otherwise it begins with the first
            that is there.

    Raises:
        RecordsLost: its first records were deleted.
        ClusterError: the partition cannot be read, or gives nothing for :data:`SILENCE_S`.
    """
    consumer = Consumer(reading_conf(conf, strict=strict))
    with closing(consumer):
        consumer.assign([TopicPartition(stretch.topic, stretch.partition, stretch.start)])
        heard_s = time.monotonic()
        ended = False
        while not ended:
            messages = consumer.consume(BATCH, timeout=POLL_S)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > SILENCE_S:
                raise _failed(stretch, f"nothing was heard of it for {SILENCE_S:g} s", ErrorCode.REQUEST_TIMED_OUT)
            records, ended = _taken(messages, stretch)
            if records:
                yield _batch(records, stretch)


def _taken(messages: list[Message], stretch: Stretch) -> tuple[list[Message], bool]:
    """The records of the stretch, and whether its end has been reached."""
    records: list[Message] = []
    for message in messages:
        error, offset = message.error(), message.offset()
        if error is None and offset is not None:
            if offset < stretch.end:
                records.append(message)
            if offset + 1 >= stretch.end:
                return records, True
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            # The end that this broker knows: a new leader, or a follower that is read from, may be behind for a moment.
            if offset is not None and offset >= stretch.end:
                return records, True
        elif error is not None and (error.fatal() or error.code() not in _HARMLESS):
            raise _error(stretch, error)
    return records, False


def _error(stretch: Stretch, error: KafkaError) -> RecordsLost | ClusterError:
    if error.code() in _LOST:
        return RecordsLost(
            f"partition {stretch.partition} of {stretch.topic}: records from offset {stretch.start} on are not there "
            f"any more ({error.str()}): did a retention or a drain not wait for this query? (See ProgressListener.) "
            "With failOnDataLoss set to false it reads what is left",
            topic=stretch.topic,
            partition=stretch.partition,
        )
    return _failed(stretch, error.str())


def _failed(stretch: Stretch, why: str, code: ErrorCode | None = None) -> ClusterError:
    return ClusterError(
        f"partition {stretch.partition} of {stretch.topic} cannot be read from {stretch.start} to {stretch.end}: {why}",
        code=code,
        topic=stretch.topic,
        partition=stretch.partition,
    )


def _batch(messages: list[Message], stretch: Stretch) -> pa.RecordBatch:
    kinds_and_times = [message.timestamp() for message in messages]
    columns = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [stretch.topic] * len(messages),
        [stretch.partition] * len(messages),
        [message.offset() for message in messages],
        [time_ms * 1_000 if kind else None for kind, time_ms in kinds_and_times],
        [kind - 1 for kind, _ in kinds_and_times],  # librdkafka counts from 1 what Kafka counts from 0
        [_headers(message, stretch) for message in messages],
    ]
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _headers(message: Message, stretch: Stretch) -> list[dict[str, Any]] | None:
    try:
        found = message.headers()
    except (
        UnicodeDecodeError,
        SystemError,
    ) as error:  # the client makes text of headers' names, which may be any bytes
        raise _failed(stretch, f"the record at {message.offset()} has a header whose name is no UTF-8") from error
    return [{"key": header[0], "value": header[1]} for header in found] if found else None
