"""A plan's sample: where it is taken, how it is read, whatever the log looks like, and how sure shares of it are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from modeaware.cluster.cluster import TopicShape
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.modelog.replay import Replay
from modeaware.plan import sample as read
from modeaware.plan.recognise import log10_odds_of_chance
from modeaware.plan.sample import Sample, SampledRecord, Stretch, choose_stretches, recent_from
from modeaware.reports.session import ModeLog
from tests.support.fake_brokers import FakeBrokers, FakeGroup
from tests.support.simulated import SimClock

EOF = KafkaError._PARTITION_EOF


def message(partition: int, offset: int, code: int | None = None) -> Message:
    """What a consumer hands out; an EOF has an offset, too."""
    error = None if code is None else KafkaError(code)
    timestamp = (1, 1000 + offset)
    return Message("t", partition, offset, key=b"k%d" % offset, value=b"12345", error=error, timestamp=timestamp)


class FakeLog:
    """Partitions as lists of messages, and each of its consumers, which hands them out one partition after another."""

    def __init__(self, logs: dict[int, list[Message]]) -> None:
        self.logs = logs
        self.confs: list[dict[str, Any]] = []
        self.queue: list[Message] = []
        self.consumed: list[Message] = []
        self.closed = 0

    def __call__(self, conf: dict[str, Any]) -> FakeLog:
        assert self.closed == len(self.confs), "one consumer at a time"
        self.confs.append(conf)
        self.queue = []
        return self

    def assign(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            log = self.logs[place.partition]
            self.queue += [each for each in log if (each.offset() or 0) >= place.offset]

    def consume(self, count: int, timeout: float) -> list[Message]:
        assert count > 0
        taken, self.queue = self.queue[:count], self.queue[count:]
        self.consumed += [each for each in taken if each.error() is None]
        return taken

    def pause(self, places: Iterable[TopicPartition]) -> None:
        paused = {place.partition for place in places}
        self.queue = [each for each in self.queue if each.partition() not in paused]

    def close(self) -> None:
        self.closed += 1


def whole(partition: int, start: int, end: int) -> list[Message]:
    return [message(partition, offset) for offset in range(start, end)] + [message(partition, end, EOF)]


def reading(monkeypatch: pytest.MonkeyPatch, logs: dict[int, list[Message]]) -> FakeLog:
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
    thin = [each for each in whole(0, 0, 1000) if (each.offset() or 0) % 50 == 0]
    log = reading(monkeypatch, {0: thin, 1: [message(1, 80, EOF)]})
    sample = read.read_sample({}, "t", 2, {0: Stretch(0, 1000), 1: Stretch(0, 80)}, 100)
    assert sample.unread == frozenset()
    places = choose_stretches({0: Stretch(0, 1000), 1: Stretch(0, 80)}, 100)[0]
    wanted = [offset for place in places for offset in range(*place) if offset % 50 == 0]
    assert [record.offset for record in sample.records] == wanted, "what lies beyond its place is no part of it"
    assert len(log.consumed) <= 100


# Where a sample is taken, and how sure shares of it are

LOGS = st.dictionaries(
    st.integers(0, 50), st.tuples(st.integers(0, 1000), st.integers(0, 100_000)).map(lambda t: Stretch(t[0], sum(t)))
)


@given(logs=LOGS, asked=st.integers(1, 50_000))
def test_stretches_lie_in_their_logs_do_not_overlap_and_are_no_more_than_asked_for(
    logs: dict[int, Stretch], asked: int
) -> None:
    chosen = choose_stretches(logs, asked)
    total = sum(place.length for places in chosen.values() for place in places)
    assert total == min(asked, sum(log.length for log in logs.values())), "all that was asked for, if there is so much"
    for partition, places in chosen.items():
        offsets = [offset for place in places for offset in place]
        assert offsets == sorted(offsets)
        assert all(place.length > 0 for place in places)
        assert places[0].start >= logs[partition].start
        assert places[-1].end == logs[partition].end
        assert places[0].start <= recent_from(places) < logs[partition].end


def test_a_record_stands_for_others_of_its_partition() -> None:
    records = [SampledRecord(0, 5, b"k", 10, 1000), SampledRecord(0, 6, b"k", 30, 3000), SampledRecord(1, 0, None, 8)]
    sample = Sample("t", 3, 3, {0: Stretch(0, 100), 1: Stretch(0, 1), 2: Stretch(0, 0)}, tuple(records), {0: 6}, True)
    assert sample.weights == {0: 50.0, 1: 1.0}
    assert sample.total_records == 101
    assert sample.total_bytes == 50 * 40 + 8
    assert sample.span_ms == 2000
    assert [sample.is_recent(record) for record in records] == [False, True, True], "not all have a timestamp"
    assert Sample("t", 1, 1, {}, (), {}, True).span_ms is None
    assert replace(sample, from_start=False).span_ms is None, "what lies before it may be of any age"


@pytest.mark.parametrize(("matched", "of", "chance"), [(3, 10, 0.25), (9, 10, 0.25), (10, 10, 0.5), (40, 200, 0.1)])
def test_the_odds_of_chance_are_never_too_small(matched: int, of: int, chance: float) -> None:
    exact = sum(math.comb(of, k) * chance**k * (1 - chance) ** (of - k) for k in range(matched, of + 1))
    assert 10 ** log10_odds_of_chance(matched, of, chance) >= exact * (1 - 1e-9)
    if matched == of:
        assert 10 ** log10_odds_of_chance(matched, of, chance) == pytest.approx(exact)


@pytest.mark.parametrize("name", ["modeaware-controller.modes", "billing"])
def test_only_the_election_that_is_named_after_the_mode_log_is_no_doubt(name: str) -> None:
    brokers = FakeBrokers()
    joining = SimpleNamespace(member_id="m", client_id="c", member_metadata=b"", member_assignment=b"")
    brokers.add(FakeGroup(name, state="PreparingRebalance")).describe["members"] = [joining]
    cluster = SimpleNamespace(
        brokers=brokers,
        shape=lambda _: TopicShape("id", internal=False, partition_count=2),
        offsets=lambda _: {},
        cleanup_policies=lambda topics: dict.fromkeys(topics, "delete"),
        topic_names=list,
    )
    session: Any = SimpleNamespace(
        cluster=cluster,
        config=ClientConfig(mode_log_topic="modes"),
        controller=ControllerConfig(),
        clock=SimClock(),
        read_log=lambda: ModeLog("modes", Replay()),
    )
    doubt = read.take_snapshot(session, "orders").facts.any_doubt
    assert (doubt and doubt.rebalancing) == (name if name == "billing" else None)
