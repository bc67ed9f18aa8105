"""What is said of the records that reach a partition at or after its seal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from modeaware.cluster import stragglers as module
from modeaware.cluster.metadata import Partition
from modeaware.cluster.stragglers import first_batch, first_batches, sample_records
from modeaware.librdkafka import KafkaError
from modeaware.modelog.records import Straggler
from tests.support.fake_brokers import FakeBrokers
from tests.support.simulated import SimClock

BROKEN = {"bootstrap.servers": "localhost:1", "security.protocol": "ssl", "ssl.ca.location": "/no/such/file.pem"}
_ATTRIBUTES = 21
_CONTROL, _LOG_APPEND_TIME = 0x20, 0x08


def batch(offset: int, count: int = 1, producer: tuple[int, int] = (-1, -1), attributes: int = 0) -> bytes:
    """A batch as brokers store it; its records were made 1 ms apart from 1 000 ms on."""
    builder = DefaultRecordBatchBuilder(2, 0, False, *producer, 0 if producer[0] >= 0 else -1, 1 << 16)
    for n in range(count):
        builder.append(n, 1_000 + n, b"k", b"v", [])
    data = bytearray(builder.build())
    data[:8] = offset.to_bytes(8, "big")
    data[_ATTRIBUTES + 1] |= attributes
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (batch(10, 2, (9, 2)) + batch(12, 1, (7, 0)), Straggler(10, 9, 2, 1_000)),
        (batch(10), Straggler(10, -1, -1, 1_000)),
        (batch(8, 5, (9, 2)), Straggler(10, 9, 2, 1_000)),
        (batch(10, 3, (9, 2), _LOG_APPEND_TIME), Straggler(10, 9, 2, 1_002)),
        (batch(9, 1, (7, 0)) + batch(10, 1, (7, 0), _CONTROL) + batch(11, 1, (9, 2)), Straggler(11, 9, 2, 1_000)),
        (batch(10, 1, (7, 0), _CONTROL), None),
        (batch(10)[:40], None),
        (batch(10)[:16] + b"\1" + batch(10)[17:], None),
        (b"", None),
    ],
    ids=["first", "no id", "cut", "append time", "markers", "markers alone", "a part", "an old format", "nothing"],
)
def test_the_first_record_is_described_by_the_batch_that_it_is_in(records: bytes, found: Straggler | None) -> None:
    assert first_batch(records, 10) == found


def test_leaders_are_asked_for_the_first_batches() -> None:
    class Answering(FakeBrokers):
        def on_fetch(self, node: int, request: Any) -> Any:
            asked = [(each.partition, each.fetch_offset) for each in request.topics[0].partitions]
            assert asked == [(0, 10), (1, 20), (2, 30)]
            contents = {0: (0, batch(10, 1, (9, 2))), 1: (29, None), 2: (0, None)}
            partitions = [
                {"partition_index": p, "error_code": code, "records": records}
                for p, (code, records) in contents.items()
            ]
            return {"responses": [{"topic": "orders", "partitions": partitions}]}

    brokers = Answering()
    brokers.ends = dict.fromkeys(range(3), 40)
    starts = {("orders", p): 10 * (p + 1) for p in range(3)}
    assert first_batches(brokers, starts) == {("orders", 0): Straggler(10, 9, 2, 1_000)}


def test_samples_say_why_a_record_cannot_be_read() -> None:
    """A file that is being replaced, say: later it can."""
    assert sample_records(BROKEN, {("orders", 3): 5}, SimClock().monotonic_s)["orders", 3][0].startswith("not read: ")


def test_samples_are_of_other_partitions_each_time_and_fail_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(conf: object, starts: object, waiting: set[Partition], take: Any, *_: object) -> None:
        for key in sorted(waiting):
            refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED) if key[1] == 0 else KafkaError(-191)
            take(key, SimpleNamespace(error=lambda refused=refused: refused), None)

    monkeypatch.setattr(module, "read_partitions", read)
    starts = {(topic, p): 0 for topic in "ab" for p in range(12)}
    first, second = (sample_records({}, starts, lambda now=now: now) for now in (0.0, 10.0))
    assert sorted({*first, *second}) == sorted(starts)[:20]
    assert [len(texts) for key, texts in sorted({**first, **second}.items())] == [1] + [0] * 11 + [1] + [0] * 7


class Record:
    """A record as a consumer returns it."""

    def __init__(self, offset: int, key: bytes, names: list[str] | Exception, timestamp_ms: int = 1_000) -> None:
        self._offset, self._key, self._names, self._timestamp_ms = offset, key, names, timestamp_ms

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms

    def headers(self) -> list[tuple[str, bytes]]:
        if isinstance(self._names, Exception):
            raise self._names
        return [(name, b"secret") for name in self._names]


def test_samples_have_offset_time_key_and_names_of_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Header names may be any bytes; the client then raises."""
    unreadable = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    records = [Record(17, b"k-1", ["trace-id"]), Record(18, b"k" * 99, unreadable), Record(19, b"k-3", [], -1)]

    def read(conf: object, starts: object, waiting: set[Partition], take: Any, *_: object) -> None:
        for record in records:
            take(("a", 0), record, None)
        assert waiting == set(), "that many records are enough"

    monkeypatch.setattr(module, "read_partitions", read)
    first, second, third = sample_records({}, {("a", 0): 17}, SimClock().monotonic_s)["a", 0]
    assert first == "offset 17, 1970-01-01 00:00:01.000 UTC, key b'k-1', headers 'trace-id'"
    assert second.startswith("offset 18, 1970-01-01 00:00:01.000 UTC, key b'kkk")
    assert second.endswith("headers that cannot be read")
    assert len(second) < 160
    assert third == "offset 19, no timestamp, key b'k-3'"
