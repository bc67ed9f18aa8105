"""Reading a plan's sample: bounded, whatever the log looks like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from modeaware.plan import read
from modeaware.plan.sample import Stretch, choose_stretches

EOF = KafkaError._PARTITION_EOF


@dataclass
class FakeMessage:
    """What a consumer hands out; an EOF has an offset, too."""

    place: int
    at: int
    code: int | None = None

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def key(self) -> bytes | None:
        return b"k%d" % self.at

    def value(self) -> bytes | None:
        return b"12345"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 1000 + self.at)


class FakeLog:
    """Partitions as lists of messages; consumers of it hand them out one partition after another."""

    def __init__(self, logs: dict[int, list[FakeMessage]]) -> None:
        self.logs = logs
        self.confs: list[dict[str, Any]] = []
        self.consumed: list[FakeMessage] = []
        self.closed = 0

    def __call__(self, conf: dict[str, Any]) -> FakeConsumer:
        self.confs.append(conf)
        return FakeConsumer(self)


@dataclass
class FakeConsumer:
    log: FakeLog
    queue: list[FakeMessage] = field(default_factory=list)

    def assign(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            log = self.log.logs[place.partition]
            self.queue += [m for m in log if m.at >= place.offset]

    def consume(self, count: int, timeout: float) -> list[FakeMessage]:
        assert count > 0
        taken, self.queue = self.queue[:count], self.queue[count:]
        self.log.consumed += [message for message in taken if message.code is None]
        return taken

    def pause(self, places: Iterable[TopicPartition]) -> None:
        paused = {place.partition for place in places}
        self.queue = [message for message in self.queue if message.place not in paused]

    def close(self) -> None:
        self.log.closed += 1


def whole(partition: int, start: int, end: int) -> list[FakeMessage]:
    return [FakeMessage(partition, offset) for offset in range(start, end)] + [FakeMessage(partition, end, EOF)]


def reading(monkeypatch: pytest.MonkeyPatch, logs: dict[int, list[FakeMessage]]) -> FakeLog:
    log = FakeLog(logs)
    monkeypatch.setattr(read, "Consumer", log)
    return log


@pytest.mark.parametrize("asked", [1, 7, 60, 200, 5000])
def test_no_partition_gives_more_than_its_part(monkeypatch: pytest.MonkeyPatch, asked: int) -> None:
    logs = {0: Stretch(0, 1000), 1: Stretch(50, 60), 2: Stretch(5, 505), 3: Stretch(9, 9)}
    log = reading(monkeypatch, {p: whole(p, each.start, each.end) for p, each in logs.items()})
    sample = read.read_sample({"bootstrap.servers": "x"}, "t", 4, logs, asked)
    assert len(log.consumed) == len(sample.records) == min(asked, 1510)
    assert len({(record.partition, record.offset) for record in sample.records}) == len(sample.records)
    assert sample.unread == frozenset()
    assert log.closed == len(log.confs) > 0


def test_nothing_is_committed_and_the_caller_cannot_change_that(monkeypatch: pytest.MonkeyPatch) -> None:
    log = reading(monkeypatch, {0: whole(0, 0, 5)})
    settings = {"enable.auto.commit": True, "group.id": "billing", "isolation.level": "read_committed"}
    read.read_sample(settings, "t", 1, {0: Stretch(0, 5)}, 5)
    (conf,) = log.confs
    assert conf["enable.auto.commit"] is False
    assert conf["enable.auto.offset.store"] is False
    assert conf["group.id"].startswith("modeaware-plan-")
    assert conf["isolation.level"] == "read_uncommitted"


def test_a_log_with_holes_ends_where_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compacted, or with control records: offsets that nobody is given."""
    thin = [message for message in whole(0, 0, 1000) if message.at % 50 == 0]
    log = reading(monkeypatch, {0: thin, 1: [FakeMessage(1, 80, EOF)]})
    sample = read.read_sample({}, "t", 2, {0: Stretch(0, 1000), 1: Stretch(0, 80)}, 100)
    assert sample.unread == frozenset()
    places = choose_stretches({0: Stretch(0, 1000), 1: Stretch(0, 80)}, 100)[0]
    wanted = [offset for place in places for offset in range(*place) if offset % 50 == 0]
    assert [record.offset for record in sample.records] == wanted, "what lies beyond its place is no part of it"
    assert len(log.consumed) <= 100
