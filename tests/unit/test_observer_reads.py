"""What is read of partitions by short-lived consumers, over one that gives what the test says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.cluster import control_records
from modeaware.cluster.control_records import Gap, without_records
from modeaware.cluster.stragglers import sample_records
from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError, TopicPartition
from tests.support.simulated import SimClock

BROKEN = {"bootstrap.servers": "localhost:1", "security.protocol": "ssl", "ssl.ca.location": "/no/such/file.pem"}


class FakeConsumer:
    """``logs`` give for each partition the offsets of its records, and its end."""

    made = 0

    def __init__(self, clock: SimClock, logs: Mapping[int, tuple[tuple[int, ...], int]]) -> None:
        self.clock, self.logs = clock, logs
        self.places: dict[int, int] = {}
        self.paused: set[int] = set()
        self.errors: dict[int, int] = {}
        self.closed = False

    def assign(self, wanted: Iterable[TopicPartition]) -> None:
        self.places = {each.partition: each.offset for each in wanted}

    def seek(self, to: TopicPartition) -> None:
        self.places[to.partition] = to.offset

    def pause(self, which: Iterable[TopicPartition]) -> None:
        self.paused |= {each.partition for each in which}

    def consume(self, _count: int, timeout: float) -> list[Any]:
        self.clock.advance(int(timeout * 1000))
        found = [self._message(-1, -1001, KafkaError._ALL_BROKERS_DOWN)]
        for partition in self.places.keys() - self.paused:
            if partition in self.errors:
                found.append(self._message(partition, -1001, self.errors[partition]))
            elif partition in self.logs:
                records, end = self.logs[partition]
                following = [offset for offset in records if offset >= self.places[partition]]
                # Out of those fetched before a seek, one may still come.
                found += [self._message(partition, offset) for offset in following[:2]]
                if not following:
                    found.append(self._message(partition, end, KafkaError._PARTITION_EOF))
        return found

    @staticmethod
    def _message(partition: int, offset: int, code: int | None = None) -> Any:
        error = None if code is None else KafkaError(code)
        return SimpleNamespace(partition=lambda: partition, offset=lambda: offset, error=lambda: error)

    def close(self) -> None:
        self.closed = True


class Reading:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = SimClock()
        self.logs: dict[int, tuple[tuple[int, ...], int]] = {}
        self.errors: dict[int, int] = {}
        self.consumers: list[FakeConsumer] = []
        patch.setattr(control_records, "Consumer", self._consumer)

    def _consumer(self, _conf: object) -> FakeConsumer:
        self.consumers.append(FakeConsumer(self.clock, self.logs))
        self.consumers[-1].errors = self.errors
        return self.consumers[-1]

    def clear(self, *gaps: Gap) -> set[Gap]:
        return set(without_records({}, "orders", gaps, self.clock.monotonic_s))


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


class TestGaps:
    def test_all_of_a_topic_by_one_consumer(self, reading: Reading) -> None:
        reading.logs = dict.fromkeys(range(100), ((3,), 10))
        free = {Gap(p, start, 10) for p in range(100) for start in (4, 5, 9)}
        assert reading.clear(*free, *(Gap(p, start, 10) for p in range(100) for start in (1, 3))) == free
        (consumer,) = reading.consumers
        assert consumer.closed
        assert consumer.paused == set(range(100))

    def test_what_comes_next_lies_behind_it(self, reading: Reading) -> None:
        reading.logs = {0: ((2, 7, 8), 12)}
        gaps = [Gap(0, 1, 3), Gap(0, 3, 6), Gap(0, 3, 7), Gap(0, 3, 8), Gap(0, 4, 7), Gap(0, 9, 12), Gap(0, 9, 13)]
        assert reading.clear(*gaps) == {Gap(0, 3, 6), Gap(0, 3, 7), Gap(0, 4, 7), Gap(0, 9, 12)}

    def test_a_partition_that_fails_holds_up_no_other(self, reading: Reading) -> None:
        reading.logs, reading.errors = {0: ((), 10), 1: ((), 10)}, {1: KafkaError._AUTO_OFFSET_RESET}
        before_s = reading.clock.monotonic_s()
        assert reading.clear(Gap(0, 5, 10), Gap(1, 5, 10)) == {Gap(0, 5, 10)}
        assert reading.clock.monotonic_s() - before_s < 1


def test_no_consumer_can_be_made() -> None:
    """A file that is being replaced, say: later it can."""
    with pytest.raises(ClusterError, match="cannot read topic 'orders'"):
        without_records(BROKEN, "orders", [Gap(0, 1, 2)], SimClock().monotonic_s)
    assert sample_records(BROKEN, "orders", {3: 5}, SimClock().monotonic_s)[3][0].startswith("not read: ")
