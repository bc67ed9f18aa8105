"""What a keyed record of a shrunk topic costs outside ``produce``."""

from __future__ import annotations

import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.harness import Result, Round, Timing, interleave, stopwatch
from benchmarks.setting import PARTITIONS, WRITABLE, Setting
from modeaware.clients.settings import partitioner_of
from modeaware.config import ClientConfig
from modeaware.confluent.router import Router
from modeaware.librdkafka import murmur2
from modeaware.modes import PartitionMode
from modeaware.testing import FakeViews
from modeaware.topic_view import TopicView
from tests.support.random_keys import random_keys

SHORTEST, LONGEST = 16, 32
KEYS, PATH_ROUNDS = 2_000, 400
MOST_PATH = 2.5
TOPIC = "t"


def measure(setting: Setting) -> Iterator[Result]:
    """Every figure of this module; no Kafka is asked."""
    yield keyed_path(setting.rounds(PATH_ROUNDS))


def keyed_path(rounds: int) -> Result:
    """What is ours of a keyed ``produce`` on a shrunk topic, by the bare murmur2 in C.

    A C function that does nothing stands for librdkafka's ``produce``. Calls through the router of a producer that
    knows of the shrink, less those through one that knows of none with a partition given, by calls of murmur2 less the
    loop around them. (What a producer costs where nothing is retired is in ``produce``.)
    """
    nothing = sys.audit  # takes what produce takes by position, and has no hooks to call
    send, direct = routed(nothing, PARTITIONS, WRITABLE), routed(nothing, PARTITIONS)
    keys = random_keys(KEYS, 2, shortest=SHORTEST, longest=LONGEST).listed()

    def loop() -> None:
        for _ in keys:
            pass

    def hashed() -> None:
        for key in keys:
            murmur2(key, WRITABLE)

    def unrouted() -> None:
        for key in keys:
            direct(TOPIC, b"value", key, WRITABLE)

    def through() -> None:
        for key in keys:
            send(TOPIC, b"value", key)

    times = interleave({work.__name__: timed(work) for work in (loop, hashed, unrouted, through)}, rounds)
    own, bare = difference(times, "through", "unrouted"), difference(times, "hashed", "loop")
    return Result(
        "keyed path of a shrunk topic outside produce, by bare murmur2",
        statistics.median(mine / theirs for mine, theirs in zip(own, bare, strict=True)),
        "x",
        below=MOST_PATH,
        details={
            "murmur2_ns": round(statistics.median(bare) / KEYS * 1e9),
            "path_ns": round(statistics.median(own) / KEYS * 1e9),
        },
    )


def routed(produce: Callable[..., object], *writable: int) -> Callable[..., object]:
    """``produce`` as a producer's router has it called after so many of 48 partitions were writable, one after the
    other, and keyed records were sent each time: a resize was warned of."""

    def stock(client: object, *args: Any) -> object:
        return produce(*args)

    router = Router(stock, stock, FakeViews(), ClientConfig(), partitioner_of({"partitioner": "murmur2_random"}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for epoch, count in enumerate(writable, 1):
            modes = [PartitionMode.READ_WRITE] * count + [PartitionMode.READ_ONLY] * (PARTITIONS - count)
            router.follow({TOPIC: TopicView(TOPIC, version=(1, epoch), modes=tuple(modes))})
            router.produce.call(None, TOPIC, b"value", b"key")
    return partial(router.produce.call, None)


def difference(times: Mapping[str, Sequence[Timing]], whole: str, part: str) -> list[float]:
    """How much longer each round of ``whole`` took than the round of ``part`` beside it, in seconds of CPU time."""
    return [a.cpu_s - b.cpu_s for a, b in zip(times[whole], times[part], strict=True)]


def timed(work: Callable[[], object]) -> Round:
    """``work`` as a round."""

    def round_of() -> Timing:
        with stopwatch() as timing:
            work()
        return timing()

    return round_of
