"""What can be known of records that arrived after a seal: where from, not what they say."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from modeaware.clock import utc
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

RECORDS_A_PARTITION = 3
PARTITIONS = 10
READ_TIMEOUT_S = 3.0
_HEADERS = operator.methodcaller("headers")
"""``message.headers()``, by a call whose result is always checked. Of a name that is no UTF-8 the client returns a list
with holes and an exception set; the interpreter leaves the check out where it has specialised a call, and crashes. So
it does at a second call for the same message, which returns that list without an exception."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def sample_records(
    conf: Mapping[str, Any], topic: str, starts: Mapping[int, int], monotonic_s: Callable[[], float]
) -> dict[int, tuple[str, ...]]:
    """Describe the first records of each partition from an offset on: offset, time, key, names of headers.

    Never their values. A few records of a few partitions, for a few seconds at most; for people to read, and nothing
    rests on it: what cannot be read is said in the place of a record.

    Args:
        conf: librdkafka configuration.
        starts: partition -> the offset to begin at.
    """
    wanted = dict(sorted(starts.items())[:PARTITIONS])
    if not wanted:
        return {}
    try:
        consumer = Consumer(
            {
                **conf,
                "group.id": "modeaware-stragglers",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",  # those of an open transaction, too
                "auto.offset.reset": "earliest",
            }
        )
    except KafkaException as error:
        return dict.fromkeys(wanted, (f"not read: {error.args[0].str()}",))
    found: dict[int, list[str]] = {partition: [] for partition in wanted}
    waiting = set(wanted)
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in wanted.items()])
        deadline_s = monotonic_s() + READ_TIMEOUT_S
        while waiting and monotonic_s() < deadline_s:
            for message in consumer.consume(100, timeout=0.2):
                _take(message, found, waiting)
    except KafkaException as error:
        for partition in waiting:
            found[partition].append(f"not read: {error.args[0].str()}")
    finally:
        consumer.close()
    return {partition: tuple(texts) for partition, texts in found.items()}


def _take(message: Message, found: dict[int, list[str]], waiting: set[int]) -> None:
    partition, error = message.partition(), message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    if partition is None or partition not in waiting:
        return
    if error is None:
        found[partition].append(in_words(message))
    if error is not None or len(found[partition]) >= RECORDS_A_PARTITION:
        waiting.discard(partition)


def in_words(message: Message) -> str:
    """``offset 17, 2026-01-31 12:00:00.123 UTC, key b'k-1', headers 'trace-id'``."""
    _, timestamp_ms = message.timestamp()
    when = utc(timestamp_ms, "milliseconds") if timestamp_ms > 0 else "no timestamp"
    return f"offset {message.offset()}, {when}, key {_SHORT.repr(message.key())}{_headers(message)}"


def _headers(message: Message) -> str:
    try:
        names = [str(header[0]) for header in _HEADERS(message) or []]
    except (UnicodeDecodeError, SystemError):  # the client makes text of their names, which may be any bytes
        return ", headers that cannot be read"
    return f", headers {_SHORT.repr(', '.join(names))}" if names else ""
