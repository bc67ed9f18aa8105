"""``produce``: with all partitions writable, and on a shrunk topic with keys; enqueue only, and until acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka

import modeaware
from benchmarks.harness import Result, Timing, compare, interleave, stopwatch
from benchmarks.setting import Setting

SIZES = (100, 1000)
ENQUEUED, ENQUEUE_ROUNDS = 4_000, 120
"""Rounds of a few milliseconds: most of them run through without another process of the machine in between."""
DELIVERED, DELIVER_ROUNDS = 10_000, 40
KEYS = [b"key-%d" % number for number in range(DELIVERED)]


class Empty(confluent_kafka.Producer):
    """What any subclass costs."""


def by_name(send: Callable[..., Any], topic: str, value: bytes, keys: list[bytes]) -> None:
    for key in keys:
        send(topic, value=value, key=key)


def by_position(send: Callable[..., Any], topic: str, value: bytes, keys: list[bytes]) -> None:
    for key in keys:
        send(topic, value, key)


def with_callback(send: Callable[..., Any], topic: str, value: bytes, keys: list[bytes]) -> None:
    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            raise confluent_kafka.KafkaException(error)

    for key in keys:
        send(topic, value=value, key=key, on_delivery=on_delivery)


FORMS = {"key=, value=": by_name, "by position": by_position, "on_delivery=": with_callback}
DIRECT_LIMIT, SHRUNK_LIMIT = 0.95, 0.70
"""For every form of a call: a program may use any. (The C method reads arguments by position faster than by name, and
what is added costs the same for both, so a shrunk topic shows most there.)"""


class Contender:
    """A producer and its rounds of a fixed number of records."""

    def __init__(self, kind: type[Any], conf: dict[str, Any], topic: str, value: bytes) -> None:
        tuned = {
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            "acks": "all",
        }
        self.producer = kind({**tuned, **conf})
        self.producer.list_topics(topic, timeout=30)
        self._arguments = (self.producer.produce, topic, value)

    def enqueue(self, form: Callable[..., None]) -> Timing:
        with stopwatch() as timing:
            form(*self._arguments, KEYS[:ENQUEUED])
        self._flush()
        return timing()

    def deliver(self) -> Timing:
        with stopwatch() as timing:
            with_callback(*self._arguments, KEYS)
            self._flush()
        return timing()

    def _flush(self) -> None:
        if left := self.producer.flush(60):
            raise RuntimeError(f"{left} records were not delivered in 60 s")


def measure(setting: Setting) -> Iterator[Result]:
    topic, log = setting.make_topic(), setting.make_log()
    for shrunk in (False, True):
        if shrunk:
            setting.shrink(log, topic)
        for size in SIZES:
            yield from _measure(setting, topic, log.topic, shrunk, size)
    log.close()


def _measure(setting: Setting, topic: str, log: str, shrunk: bool, size: int) -> Iterator[Result]:
    plain = {"bootstrap.servers": setting.bootstrap_servers}
    aware = {**plain, "modeaware.mode.log.topic": log}
    value = b"x" * size
    contenders = {
        "plain": Contender(confluent_kafka.Producer, plain, topic, value),
        "empty subclass": Contender(Empty, plain, topic, value),
        "modeaware": Contender(modeaware.Producer, aware, topic, value),
    }
    contenders["modeaware"].deliver()  # waits for the first view
    _check_what_is_measured(contenders["modeaware"].producer, shrunk)
    state = "shrunk, keyed" if shrunk else "all writable"
    enqueue_limit = SHRUNK_LIMIT if shrunk else DIRECT_LIMIT
    for form, send in FORMS.items():
        enqueue = {name: partial(contender.enqueue, send) for name, contender in contenders.items()}
        times = interleave(enqueue, setting.rounds(ENQUEUE_ROUNDS))
        yield compare(f"produce, {state}, {size} B, {form}", times, ENQUEUED, at_least=enqueue_limit)
    times = interleave({name: c.deliver for name, c in contenders.items()}, setting.rounds(DELIVER_ROUNDS))
    yield compare(f"produce + flush, {state}, {size} B, acks=all", times, DELIVERED, at_least=0.95)
    for contender in contenders.values():
        contender.producer.close()


def _check_what_is_measured(producer: modeaware.Producer, shrunk: bool) -> None:
    state = producer.modeaware_stats()["state"]
    if state != ("routed" if shrunk else "direct"):
        raise RuntimeError(f"the producer is {state}: this would measure something else")
