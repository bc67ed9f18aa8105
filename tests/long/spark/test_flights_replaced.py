"""All flights of a year from topic to topic in one streaming job, while both topics are replaced. It is stopped, or
its processes are killed, and started again in each phase."""

from __future__ import annotations

import json
import sys
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import KafkaError, Message
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from modeaware import Producer
from modeaware.demo.flights import Flight, load_flights
from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import TopicRecord
from modeaware.spark import ProgressListener, progress_group, register
from modeaware.spark.sink import Through
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.flights_job import RUNS, start_flights
from tests.support.plain import TIMEOUT_S
from tests.support.process import LoggedProcess
from tests.support.streaming import Arrival, Arrivals, listening, started
from tests.support.waiting import eventually

FLIGHTS = 336_776
TO = {"source": 5, "target": 3}


def out_of_order(records: Iterable[Arrival]) -> list[Arrival]:
    """First arrivals of a flight behind a later flight of the same tail number."""
    last: dict[bytes, int] = defaultdict(lambda: -1)
    seen: set[int] = set()
    wrong = []
    for arrival in records:
        if arrival.key is None or arrival.number in seen:
            continue
        seen.add(arrival.number)
        if arrival.number < last[arrival.key]:
            wrong.append(arrival)
        last[arrival.key] = max(last[arrival.key], arrival.number)
    return wrong


def send(conf: Mapping[str, Any], topic: str, first: int, flights: Iterable[Flight]) -> None:
    """Produce flights from number ``first`` on, in order.

    Brokers refuse what is queued before the switch and comes after the fence. As an application that needs order, this
    one sends it again before anything else of its key.
    """
    left = deque((flight.key, b"%d %b" % (n, flight.value)) for n, flight in enumerate(flights, first))
    with Producer({**conf, "enable.idempotence": True, "linger.ms": 5}) as producer:
        while left:
            batch: dict[bytes | None, bytes] = {}
            while left and left[0][0] not in batch:
                batch |= [left.popleft()]
            while batch:
                batch = _refused(producer, topic, batch)


def _refused(producer: Producer, topic: str, batch: Mapping[bytes | None, bytes]) -> dict[bytes | None, bytes]:
    """Produce one record of each key; return those that were refused because the topic was replaced."""
    refused: dict[bytes | None, bytes] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            assert "was replaced by" in error.str(), error
            refused[message.key()] = message.value() or b""

    for key, value in batch.items():
        producer.produce(topic, key=key, value=value, on_delivery=on_delivery)
    assert not producer.flush(TIMEOUT_S)
    return refused


class Job(Protocol):
    """The job, which runs from its construction on."""

    def fine(self) -> bool:
        """Whether it runs; raises what it has failed with."""

    def end(self) -> None:
        """End it where it is, in the middle of a batch as a rule."""


class StoppedJob:
    def __init__(self, spark: SparkSession, *what: Any) -> None:
        self._query: StreamingQuery = started(lambda: start_flights(spark, *what))

    def fine(self) -> bool:
        failure = self._query.exception()
        assert failure is None, failure
        return True

    def end(self) -> None:
        self._query.stop()


class KilledJob:
    """In a process of its own: that, its JVM and its Python workers are killed at once."""

    def __init__(self, log: Path, name: str, topics: tuple[str, str], conf: Any, checkpoint: Path, how: str) -> None:
        job = [sys.executable, "-m", "tests.support.flights_job", name, *topics, json.dumps(conf), str(checkpoint), how]
        self._process = LoggedProcess(job, log, own_session=True)
        try:
            self._process.wait_until_it_says(RUNS, 300)
        except AssertionError:
            self.end()
            raise

    def fine(self) -> bool:
        assert self._process.running, self._process.said[-5000:]
        return True

    def end(self) -> None:
        self._process.kill()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("through", "ends"), [("sink", "stopped"), ("arrow", "stopped"), ("arrow", "killed")])
def test_all_flights_arrive_in_order_while_both_topics_are_replaced(
    spark: SparkSession,
    served: Controlled,
    make_topic: MakeTopic,
    make_group: Callable[[], str],
    tmp_path: Path,
    through: Through,
    ends: str,
) -> None:
    register(spark)
    flights, name = load_flights(), f"flights-{uuid.uuid4().hex[:8]}"
    assert len(flights) == FLIGHTS
    topics = {"source": make_topic(12), "target": make_topic(12)}
    conf = {**served.conf, "modeaware.mode.log.topic": served.log, "partitioner": "murmur2_random"}
    sent = 0

    def start() -> Job:
        what = (name, (topics["source"], topics["target"]), conf, tmp_path / "checkpoint", through)
        return StoppedJob(spark, *what) if ends == "stopped" else KilledJob(tmp_path / "log", *what)

    def feed(share: int) -> None:
        nonlocal sent
        send(conf, topics["source"], sent, flights[sent : sent + share])
        sent = min(sent + share, FLIGHTS)

    def ask(which: str, *, pause: bool) -> None:
        topic = topics[which]
        command = ReplaceTopicCommand(topic, f"{topic}-v2", TO[which], pause_before_switch=pause)
        result = served.ask(command)
        assert result.code is ErrorCode.NONE, result.message

    def is_paused(record: TopicRecord) -> bool:
        return record.replacement is not None and record.replacement.reason == reasons.PAUSED

    def has_switched(record: TopicRecord) -> bool:
        return record.replacement is not None and record.replacement.switched_ms is not None

    phases: list[tuple[Callable[[str], object], Callable[[TopicRecord], bool]]] = [
        (lambda which: ask(which, pause=True), is_paused),
        (lambda which: ask(which, pause=False), has_switched),
        (lambda which: None, lambda record: topic_phase(record) in ("drain", "reclaim")),
        (lambda which: None, lambda record: topic_phase(record) == "reclaim"),
    ]
    share = -(-FLIGHTS // (4 * len(phases) + 1))
    listener, arrivals = ProgressListener(conf), Arrivals(conf, topics["target"], make_group())
    with arrivals, listening(spark, listener):
        listener.require(progress_group(name), [topics["source"]])
        feed(share)
        job = start()
        try:
            for which in TO:
                for act, reached in phases:
                    act(which)
                    feed(share)
                    served.wait_for(topics[which], reached, 240)
                    job.fine()
                    job.end()
                    feed(share)
                    job = start()
            eventually(lambda: job.fine() and len(arrivals.numbers) == FLIGHTS, 300, message="all of them")
            for topic in topics.values():
                served.wait_done(topic, 120)
        finally:
            job.end()
    assert sent == FLIGHTS
    assert arrivals.numbers == set(range(FLIGHTS))
    assert out_of_order(arrivals.records) == []
    assert {arrival.topic for arrival in arrivals.records} == {topics["target"], f"{topics['target']}-v2"}
