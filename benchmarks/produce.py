"""``produce``, enqueue only and until acknowledged: where nothing is shrunk, beside another topic that is, on a
shrunk topic with keys, and under the name of a topic that was replaced. Where the extension is built, the path in
Python runs beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import confluent_kafka

import modeaware
from benchmarks.harness import Result, Timing, compare, interleave, stopwatch
from benchmarks.setting import Setting
from modeaware.confluent import retarget, router

SIZES = (100, 1000)
ENQUEUED, ENQUEUE_ROUNDS = 4_000, 120
"""Rounds of a few milliseconds: most of them run through without another process of the machine in between."""
DELIVERED, DELIVER_ROUNDS = 10_000, 40
BATCH = "produce_batch"
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


def with_headers(send: Callable[..., Any], topic: str, value: bytes, keys: list[bytes]) -> None:
    headers = [("trace", b"1")]
    for key in keys:
        send(topic, value, key, headers=headers)


def in_batches(send: Callable[..., Any], topic: str, value: bytes, keys: list[bytes]) -> None:
    producer: Any = send.__self__  # type: ignore[attr-defined] # a bound method
    producer.produce_batch(topic, [{"value": value, "key": key} for key in keys])


class State(NamedTuple):
    """What a producer finds, and how fast it is to be beside the plain one.

    Attributes:
        limits: by the form of the call, and of the path in Python (by position, by name).
        delivered: the same until all is acknowledged.
    """

    name: str
    routed: bool
    limits: Mapping[str, float]
    in_python: tuple[float, float]
    delivered: float


FORMS = {
    "by position": by_position,
    "key=, value=": by_name,
    "on_delivery=": with_callback,
    "headers=": with_headers,
    BATCH: in_batches,
}


def _limits(least: float, **more: float) -> dict[str, float]:
    """``by_position``, ``by_name``, ``batch``: of these forms; ``least``: of all others."""
    named = {"by_position": "by position", "by_name": "key=, value=", "batch": BATCH}
    return {**dict.fromkeys(FORMS, least), **{named[name]: limit for name, limit in more.items()}}


DIRECT = State("nothing shrunk", False, _limits(0.97), (0.60, 1.0), 0.95)
BESIDE = State("another topic shrunk", True, _limits(0.95, by_position=0.88), (0.60, 0.85), 0.95)
SHRUNK = State("shrunk", True, _limits(0.85, by_name=1.20, batch=0.30), (0.50, 0.80), 1.0)
PAUSED = State("before a switch", True, _limits(0.95, by_position=0.88, batch=0.85), BESIDE.in_python, 0.95)
REPLACED = State("replaced", True, _limits(0.84, by_name=1.20, batch=0.30), (0.45, 0.75), 0.95)
"""librdkafka reads arguments by position faster than by name. What is added costs the same for both, so it shows most
by position; by name the extension gains, since it passes arguments on by position."""


@contextmanager
def in_python() -> Iterator[None]:
    """Producers of :class:`InPython` made meanwhile do without the extension."""
    built = router.RoutedProduce, retarget.Forward
    router.RoutedProduce, retarget.Forward = None, partial
    try:
        yield
    finally:
        router.RoutedProduce, retarget.Forward = built


class InPython(modeaware.Producer):
    """The method as it is without the extension."""

    produce = getattr(modeaware.Producer.produce, "function", modeaware.Producer.produce)


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
    topic, other, log = setting.make_topic(), setting.make_topic(), setting.make_log()
    yield from _measure(setting, topic, log.topic, DIRECT)
    setting.shrink(log, other)
    yield from _measure(setting, topic, log.topic, BESIDE)
    setting.shrink(log, topic)
    yield from _measure(setting, topic, log.topic, SHRUNK)
    old_topic, new_topic = setting.make_topic(), setting.make_topic()
    setting.replace(log, old_topic, new_topic, pause=True)
    yield from _measure(setting, old_topic, log.topic, PAUSED)
    setting.replace(log, old_topic, new_topic)
    yield from _measure(setting, new_topic, log.topic, REPLACED, name=old_topic)
    log.close()


def _measure(setting: Setting, topic: str, log: str, state: State, name: str | None = None) -> Iterator[Result]:
    """``name``: what the aware producers call the topic."""
    ours = name or topic
    plain = {"bootstrap.servers": setting.bootstrap_servers}
    aware = {**plain, "modeaware.mode.log.topic": log}
    for size in SIZES:
        value = b"x" * size
        contenders = {
            "plain": Contender(confluent_kafka.Producer, plain, topic, value),
            "empty subclass": Contender(Empty, plain, topic, value),
            "modeaware": Contender(modeaware.Producer, aware, ours, value),
        }
        with in_python():
            contenders["in Python"] = Contender(InPython, aware, ours, value)
        for contender in contenders.values():
            contender.deliver()  # waits for the first view
        _check_what_is_measured(contenders["modeaware"].producer, state)
        for form, send in FORMS.items():
            label = f"produce, {state.name}, {size} B, {form}"
            enqueue = {each: partial(contender.enqueue, send) for each, contender in contenders.items()}
            times = interleave(enqueue, setting.rounds(ENQUEUE_ROUNDS))
            yield compare(label, times, ENQUEUED, at_least=state.limits[form])
            if form == BATCH:  # the extension does not take part in it
                continue
            limit = state.in_python[form != "by position"]
            yield compare(f"{label}, in Python", times, ENQUEUED, at_least=limit, ours="in Python")
        times = interleave({name: c.deliver for name, c in contenders.items()}, setting.rounds(DELIVER_ROUNDS))
        yield compare(f"produce + flush, {state.name}, {size} B, acks=all", times, DELIVERED, at_least=state.delivered)
        for contender in contenders.values():
            contender.producer.close()


def _check_what_is_measured(producer: modeaware.Producer, state: State) -> None:
    stats = producer.modeaware_stats()
    if stats["state"] != ("routed" if state.routed else "direct") or not stats["in_c"]:
        raise RuntimeError(
            f"the producer is {stats['state']}, in C: {stats['in_c']}: this would measure something else"
        )
