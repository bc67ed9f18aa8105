"""A demo producer: a process with a ``modeaware.Producer`` that sends its flights and notes every acknowledgement."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO

import modeaware
from modeaware.config import ClientConfig
from modeaware.demo.flights import Flight, read_share
from modeaware.demo.journal import Ack, position_of
from modeaware.demo.pace import Pace
from modeaware.demo.setting import ID_HEADER, Setting
from modeaware.demo.worker import Link
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaError, Message
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.source import Views

REPORT_INTERVAL_S = 0.25
IDLE_POLL_S = 0.02
FLUSH_TIMEOUT_S = 60.0


def run(link: Link, setting: Setting, number: int) -> None:
    """Send until all flights have gone and are acknowledged.

    Raises:
        ModeAwareError: a record was refused or not acknowledged.
    """
    flights = read_share(setting.flights_path(number))
    conf = {"bootstrap.servers": setting.bootstrap_servers, "acks": "all", "enable.idempotence": True, "linger.ms": 20}
    with setting.acks_path(number).open("w", encoding="ascii") as journal:
        producer = modeaware.Producer(conf)
        views = registry.acquire(conf, ClientConfig())
        try:
            sender = Sender(link, setting, number, producer, views, journal)
            sender.send_all(flights)
        finally:
            views.close()


class Seen:
    """The mode epochs this process has seen come into force.

    Its listener is subscribed after the producer's own. So once it has been called with an epoch, the producer routes
    by that epoch or a later one: a lower bound. The shared views have an epoch before any listener: an upper bound.
    """

    def __init__(self, views: Views, topic: str) -> None:
        self._views = views
        self._topic = topic
        self.epoch = TopicView.unlisted(topic).epoch
        self.seen_ms: dict[int, int] = {}
        self.writable: dict[int, list[int]] = {}
        views.subscribe(self._changed)

    def upper_bound(self) -> int:
        """The epoch in force now."""
        return self._views.view(self._topic).epoch

    def _changed(self, changed: Mapping[str, TopicView]) -> None:
        view = changed.get(self._topic)
        if view is not None:
            self.writable[view.epoch] = list(view.writable)
            self.seen_ms[view.epoch] = _now_ms()
            self.epoch = view.epoch


class Sender:
    """Sends flights at the story's pace. One thread owns it."""

    def __init__(
        self, link: Link, setting: Setting, number: int, producer: modeaware.Producer, views: Views, journal: TextIO
    ) -> None:
        self._link = link
        self._setting = setting
        self._number = number
        self._producer = producer
        self._journal = journal
        if not views.wait_ready(FLUSH_TIMEOUT_S):
            raise ModeAwareError(f"no view of the partition modes: {views.error()}")
        self._seen = Seen(views, setting.topic)
        self._sizes = array("l")
        self._before = array("l")
        self._after = array("l")
        self._acked = 0
        self._began_ms = 0
        self._reported_s = 0.0

    def send_all(self, flights: list[Flight]) -> None:
        """Send at the pace of the story, and return when every record is acknowledged."""
        pace = Pace(len(flights), self._setting.stages)
        self._began_ms = _now_ms()
        sent = 0
        while sent < len(flights):
            if self._link.stopping.is_set():
                raise ModeAwareError(f"told to stop with {len(flights) - sent} flights still to send")
            due = pace.due(self._link.stage, time.monotonic())
            while sent < due:
                self._send(sent, flights[sent])
                sent += 1
            self._producer.poll(IDLE_POLL_S)
            self._report()
        self._settle(sent)

    def _send(self, sequence: int, flight: Flight) -> None:
        record_id = f"{self._number}-{sequence}"
        self._sizes.append(len(flight.value) + len(flight.key or b""))
        before = self._seen.epoch
        while not self._try(record_id, flight, partial(self._acknowledged, record_id, sequence)):
            self._producer.poll(IDLE_POLL_S)  # the queue is full
            before = self._seen.epoch
        self._before.append(before)
        self._after.append(self._seen.upper_bound())
        self._producer.poll(0)

    def _try(self, record_id: str, flight: Flight, on_delivery: Callable[[KafkaError | None, Message], None]) -> bool:
        try:
            self._producer.produce(
                self._setting.topic,
                flight.value,
                flight.key,
                headers=[(ID_HEADER, record_id.encode())],
                on_delivery=on_delivery,
            )
        except BufferError:
            return False
        return True

    def _acknowledged(self, record_id: str, sequence: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise ModeAwareError(f"record {record_id} was not acknowledged: {error}")
        self._acked += 1
        bounds = (self._before[sequence], self._after[sequence])
        ack = Ack(record_id, *position_of(message), *bounds, self._sizes[sequence], _now_ms())
        self._journal.write(ack.line())

    def _settle(self, sent: int) -> None:
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if left or self._acked != sent:
            raise ModeAwareError(f"{sent - self._acked} records were not acknowledged in {FLUSH_TIMEOUT_S:.0f} s")
        self._report(now=True)
        self._link.report(
            began_ms=self._began_ms, ended_ms=_now_ms(), seen_ms=self._seen.seen_ms, writable=self._seen.writable
        )

    def _report(self, *, now: bool = False) -> None:
        now_s = time.monotonic()
        if now or now_s - self._reported_s >= REPORT_INTERVAL_S:
            self._reported_s = now_s
            self._link.report(acknowledged=self._acked, epoch=self._seen.epoch)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
