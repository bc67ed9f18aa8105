"""The demo's run: it makes topic, controller and clients, shrinks and replaces the topic, and prints each step."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import modeaware
from modeaware.config import ClientConfig, parse_controller_config
from modeaware.controller.daemon import Controller
from modeaware.demo.audit import (
    ID_HEADER,
    PARTITIONS,
    REPLACE_BY,
    SHRINK_TO,
    TIMEOUT_S,
    Ack,
    ModeHistory,
    count,
    faults,
    position_of,
    read_topic,
    record_id_of,
)
from modeaware.demo.flights import Flight, load_flights
from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka import KafkaError, KafkaException, Message, NewTopic, consistent
from modeaware.modes import PartitionMode, format_ranges
from modeaware.topic_view import REPLACEMENT_STATES, TopicView
from modeaware.views import registry
from modeaware.views.source import Views

PRODUCERS, CONSUMERS = 2, 3
RETIRED = range(SHRINK_TO, PARTITIONS)
PHASES = (
    *("before", "ReadOnly", "seal", "drain", "reclaim", "shrunk"),
    *("announce", "switch", "release", "delete", "replaced"),
)
EXPECTED_CHANGES_S = 22.0
PHASE_TIMEOUT_S = 120.0
LINE_INTERVAL_S, QUIET_S = 2.0, 15.0
CONTROLLER_CONFIGS = {
    # Shorter than the defaults: every client of this topic is mode-aware, and a person is watching.
    "modeaware.seal.quiet.ms": "2000",
    "delete.topic.partition.check.interval.ms": "2000",
}


@dataclass
class ProducerThread:
    """Sends its flights at an even rate and, once ``finishing`` is set, the rest at once. Notes acknowledgements."""

    conf: Mapping[str, Any]
    topic: str
    number: int
    flights: Sequence[Flight]
    views: Views
    history: ModeHistory
    rate_per_s: float
    finishing: threading.Event
    acks: list[Ack] = field(default_factory=list)
    began_s: float = 0.0
    ended_s: float = 0.0

    def __post_init__(self) -> None:
        self.producer = modeaware.Producer({**self.conf, "acks": "all", "enable.idempotence": True, "linger.ms": 20})

    def run(self, stopping: threading.Event) -> None:
        """Send all flights; return when all are acknowledged. Raise ModeAwareError if a record was not delivered."""
        self.began_s = last_s = time.monotonic()
        sent, due = 0, 0.0
        while sent < len(self.flights) and not stopping.is_set():
            now_s = time.monotonic()
            # The last flights are sent slowly, so that even a long phase has records until its end.
            due += (20 if due >= 0.95 * len(self.flights) else self.rate_per_s) * (now_s - last_s)
            last_s = now_s
            while sent < len(self.flights) and (sent < due or self.finishing.is_set()):
                self._send(f"{self.number}-{sent}", self.flights[sent])
                sent += 1
            self.producer.poll(0.02)
        self.producer.flush(TIMEOUT_S)
        if len(self.acks) != sent:
            raise ModeAwareError(f"{sent - len(self.acks)} records were not acknowledged in {TIMEOUT_S:.0f} s")
        self.ended_s = time.monotonic()

    def _send(self, record_id: str, flight: Flight) -> None:
        before, after = self.history.epoch, self.history.epoch

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise ModeAwareError(f"record {record_id} was not acknowledged: {error}")
            size, epochs = len(flight.value) + len(flight.key or b""), (before, after)
            self.acks.append(Ack(record_id, flight.key, size, *position_of(message), epochs, time.monotonic()))

        headers = [(ID_HEADER, record_id.encode())]
        while True:
            before = self.history.epoch
            try:
                self.producer.produce(self.topic, flight.value, flight.key, headers=headers, on_delivery=acknowledged)
                break
            except BufferError:
                self.producer.poll(0.02)  # the producer's queue is full
        after = self.views.view(self.topic).epoch
        self.producer.poll(0)

    @property
    def longest_gap_s(self) -> float:
        """The longest time without an acknowledgement."""
        times_s = [self.began_s, *(ack.at_s for ack in self.acks), self.ended_s]
        return max(after_s - before_s for before_s, after_s in pairwise(times_s))


@dataclass
class ConsumerThread:
    """A member of the group. It notes the id of every record that it receives."""

    conf: Mapping[str, Any]
    topic: str
    given: list[str] = field(default_factory=list)
    assigned: bool = False

    def run(self, stopping: threading.Event) -> None:
        consumer = modeaware.Consumer(self.conf)
        try:
            consumer.subscribe([self.topic])
            while not stopping.is_set():
                self.given += [record_id_of(message) for message in consumer.consume(500, 0.1)]
                self.assigned = bool(consumer.assignment())
        finally:
            consumer.close()


def shares_of(flights: Sequence[Flight]) -> list[list[Flight]]:
    """Return the flights of each producer. Each key belongs to one producer; new keys go to the producers in turn.

    The hash of a key does not choose the producer, because the hash also chooses the partition: each producer would
    then use only some partitions.
    """
    owners: dict[bytes, int] = {}
    shares: list[list[Flight]] = [[] for _ in range(PRODUCERS)]
    for number, flight in enumerate(flights):
        owner = number if flight.key is None else owners.setdefault(flight.key, len(owners))
        shares[owner % PRODUCERS].append(flight)
    return shares


class Story:
    """One run of the demo: :meth:`tell`. For one thread.

    Args:
        bootstrap_servers: the cluster.
        records: how many flights to send; None means all.
        lead_s: seconds without a change, before the shrink and after the replacement; half of it between the two.
    """

    def __init__(self, bootstrap_servers: str, records: int | None, lead_s: float) -> None:
        self._topic = f"flights-{uuid.uuid4().hex[:6]}"
        self._new_topic = f"{self._topic}-v2"
        self._conf = {"bootstrap.servers": bootstrap_servers, "log_level": 2}  # log lines would tear the screen
        group = {"group.id": f"{self._topic}-readers", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
        self._records = records
        self._lead_s = lead_s
        self._history = ModeHistory(self._topic)
        self._producers: list[ProducerThread] = []
        self._consumers = [ConsumerThread({**self._conf, **group}, self._topic) for _ in range(CONSUMERS)]
        self._running: list[Future[None]] = []
        self._finishing = threading.Event()
        self._stage = "starting"
        self._on_cluster: list[int] = []
        self._start_s = self._shown_s = time.monotonic()

    def tell(self) -> dict[str, Any]:
        """Run the whole demo and return the report; none of its threads is left when this returns."""
        with ExitStack() as closing:
            admin = modeaware.AdminClient(self._conf)
            new = NewTopic(self._topic, num_partitions=PARTITIONS, replication_factor=-1)
            admin.create_topics([new])[self._topic].result(TIMEOUT_S)
            self._event(f"topic {self._topic} with {PARTITIONS} partitions")
            closing.callback(self._delete_topics, admin)
            controller = Controller(
                self._conf, parse_controller_config(CONTROLLER_CONFIGS), controller_id=f"demo-of-{self._topic}"
            )
            closing.callback(controller.stop)
            controller.start(wait_active_s=TIMEOUT_S)
            self._event("a controller that keeps the modes")
            views = closing.enter_context(contextlib.closing(registry.acquire(self._conf, ClientConfig())))
            pool, stopping = closing.enter_context(ThreadPoolExecutor(PRODUCERS + CONSUMERS)), threading.Event()
            closing.callback(stopping.set)
            self._start_threads(pool, stopping, views)
            phases_s = self._shrink_and_replace(admin)
            self._read_to_end()
            report = self._audit(phases_s)
            admin.forget_aliases([self._topic])[self._topic].result(TIMEOUT_S)  # so that nothing stays on the cluster
            return report

    def _delete_topics(self, admin: modeaware.AdminClient) -> None:
        try:
            for topic in self._topics(admin):
                admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        except (KafkaException, ModeAwareError, TimeoutError) as error:  # must not hide why the run ended
            self._event(f"the topics of this run could not be deleted: {error}")

    def _topics(self, admin: modeaware.AdminClient) -> dict[str, int]:
        """Return this run's topics that are on the cluster -> their partition counts."""
        on_cluster = admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(on_cluster[name].partitions) for name in (self._topic, self._new_topic) if name in on_cluster}

    def _start_threads(self, pool: ThreadPoolExecutor, stopping: threading.Event, views: Views) -> None:
        self._running += [pool.submit(consumer.run, stopping) for consumer in self._consumers]
        flights = load_flights(self._records)
        self._event(f"{len(flights):,} flights to send")
        self._until(lambda: all(c.assigned for c in self._consumers), TIMEOUT_S, "partitions for every consumer")
        self._event(f"a group of {CONSUMERS} consumers, every one with partitions")
        for number, mine in enumerate(shares_of(flights)):
            rate = len(mine) / (2.5 * self._lead_s + EXPECTED_CHANGES_S)
            self._producers.append(
                ProducerThread(self._conf, self._topic, number, mine, views, self._history, rate, self._finishing)
            )
        views.subscribe(self._history.changed)  # after the producers' own listeners
        self._running += [pool.submit(producer.run, stopping) for producer in self._producers]
        self._until(lambda: all(p.acks for p in self._producers), TIMEOUT_S, "the first acknowledgements")
        self._event(f"{PRODUCERS} producers at work")

    def _shrink_and_replace(self, admin: modeaware.AdminClient) -> dict[str, float]:
        times_s = [self._linger(f"all {PARTITIONS} partitions ReadWrite", 0)]
        times_s.append(self._linger(f"all {PARTITIONS} partitions ReadWrite", self._lead_s))
        self._stage = f"shrinking to {SHRINK_TO}"
        self._event(f"asking for {SHRINK_TO} partitions (delay 0: delete once drained)")
        shrink = {self._topic: modeaware.DeletePartitions(SHRINK_TO)}
        admin.delete_partitions(shrink, delay_ms=0)[self._topic].result(TIMEOUT_S)
        retired = set(RETIRED)
        for condition, text in (
            (lambda view: len(view.writable) == SHRINK_TO, f"partitions {format_ranges(RETIRED)} are ReadOnly"),
            (lambda view: view.resume_offsets.keys() >= retired, "sealed: no aware producer writes to them any more"),
            (
                lambda view: all(view.mode(p) is PartitionMode.NONE for p in RETIRED),
                "drained by the group: they are in mode None",
            ),
            (lambda view: view.reclaimed >= retired, "reclaimed: their records are deleted"),
        ):
            times_s.append(self._await(condition, text))
        times_s.append(self._linger(f"{SHRINK_TO} partitions at work", self._lead_s / 2))

        self._counted(admin)
        self._stage = f"replacing by {self._new_topic}"
        self._event(f"requesting a replacement by a new topic of {REPLACE_BY} partitions")
        self._until(lambda: self._replaces(admin), PHASE_TIMEOUT_S, "the group to read what came before the shrink")
        for condition, text in (
            (_succession("announced"), f"announced: consumers hold the partitions of {self._new_topic}"),
            (_succession("switched"), f"switched: {self._topic} means {self._new_topic} to producers"),
            (_succession("released"), f"released: the group has read {self._topic} to its end"),
            (_succession("gone"), f"{self._topic} is deleted; its name is an alias of {self._new_topic}"),
        ):
            times_s.append(self._await(condition, text))
        self._counted(admin)
        self._linger(f"{REPLACE_BY} partitions at work", self._lead_s)
        self._stage = "sending the rest"
        self._finishing.set()
        self._until(lambda: all(p.ended_s for p in self._producers), PHASE_TIMEOUT_S, "the producers to finish")
        times_s.append(time.monotonic())
        self._event(f"every flight is sent and acknowledged: {self._acknowledged():,}")
        seconds = [round(max(end_s - start_s, 0.0), 3) for start_s, end_s in pairwise(times_s)]
        return dict(zip(PHASES, seconds, strict=True))

    def _replaces(self, admin: modeaware.AdminClient) -> bool:
        """Request the replacement; return whether it has begun.

        A controller refuses the replacement while the group reads keys that a shrink has moved.
        """
        replacement = modeaware.TopicReplacement(self._new_topic, REPLACE_BY, delete_partitions_delay_ms=0)
        try:
            admin.replace_topics({self._topic: replacement})[self._topic].result(TIMEOUT_S)
        except RequestRefused as error:
            if error.code is not ErrorCode.REASSIGNMENT_IN_PROGRESS:
                raise
            return False
        return True

    def _counted(self, admin: modeaware.AdminClient) -> None:
        self._on_cluster.append(sum(self._topics(admin).values()))
        self._event(f"the cluster has {self._on_cluster[-1]} partitions of it")

    def _read_to_end(self) -> None:
        """Wait until the group has received as many different records as were acknowledged, or none for a while. In
        the second case, the audit reports the missing records."""
        self._stage = "reading to the end"
        delivered, last_s = 0, time.monotonic()

        def at_end() -> bool:
            nonlocal delivered, last_s
            if self._delivered() > delivered:
                delivered, last_s = self._delivered(), time.monotonic()
            if delivered >= self._acknowledged() and len(self._given()) >= self._acknowledged():
                return True
            return time.monotonic() - last_s > QUIET_S

        self._until(at_end, PHASE_TIMEOUT_S, "the group to read to the end")
        self._event(f"the group has read to the end: {self._delivered():,}")

    def _audit(self, phases_s: dict[str, float]) -> dict[str, Any]:
        logs, stored = read_topic(self._conf, self._new_topic)
        self._event(f"audit: {len(stored):,} records read back with a plain consumer")
        acks = [ack for producer in self._producers for ack in producer.acks]
        report = {
            "topic": self._topic,
            "new_topic": self._new_topic,
            "shrunk": [PARTITIONS, SHRINK_TO],
            "replaced": [PARTITIONS, REPLACE_BY],
            "partitions_on_cluster": self._on_cluster,
            **count(acks, self._history, self._given(), stored, consistent),
            "longest_gap_s": [round(producer.longest_gap_s, 3) for producer in self._producers],
            "phases_s": phases_s,
            "partitions": {str(p): {"log_start": start, "log_end": end} for p, (start, end) in sorted(logs.items())},
        }
        return {**report, "faults": list(faults(report))}

    # Waiting

    def _linger(self, stage: str, seconds: float) -> float:
        """Let ``seconds`` pass; return the time of their end (monotonic seconds)."""
        self._stage = stage
        end_s = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= end_s, seconds + PHASE_TIMEOUT_S, "time to pass")
        return time.monotonic()

    def _await(self, condition: Callable[[TopicView], bool], text: str) -> float:
        """Wait until the topic's view fulfils the condition; return since when it has done so (monotonic seconds)."""
        self._until(lambda: self._history.since(condition) is not None, PHASE_TIMEOUT_S, text)
        self._event(text)
        return self._history.since(condition) or time.monotonic()

    def _until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            for thread in self._running:
                if thread.done():
                    thread.result()  # raises the thread's error
            if self._producers and time.monotonic() - self._shown_s >= LINE_INTERVAL_S:
                self._shown_s = time.monotonic()
                figures = f"{self._acknowledged():,} acknowledged, {self._delivered():,} delivered"
                writable = self._history.writable(self._history.epoch)
                where = format_ranges(writable) if writable else f"all of {self._new_topic}"
                self._event(f"  {self._stage}: {figures}; writable: {where}")
            if time.monotonic() > deadline_s:
                raise ModeAwareError(f"waited {timeout_s:.0f} s for: {what}; see modeaware topics --describe")
            time.sleep(0.1)  # the display is updated at this pace; every wait has a deadline

    def _event(self, text: str) -> None:
        print(f"{time.monotonic() - self._start_s:6.1f} s  {text}", flush=True)

    def _acknowledged(self) -> int:
        return sum(len(producer.acks) for producer in self._producers)

    def _delivered(self) -> int:
        return sum(len(consumer.given) for consumer in self._consumers)

    def _given(self) -> Counter[str]:
        return Counter(record_id for consumer in self._consumers for record_id in consumer.given)


def _succession(state: str) -> Callable[[TopicView], bool]:
    """Return a condition for a view: its replacement has reached ``state`` (one of ``REPLACEMENT_STATES``)."""
    return lambda view: view.replaced_by is not None and view.replaced_by.state >= REPLACEMENT_STATES.index(state)
