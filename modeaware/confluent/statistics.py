"""What librdkafka's statistics say of a producer's queue: what is left of earlier records, and the load of partitions.

The application's own ``stats_cb`` is called at its own interval. Nothing is counted per record.
"""

from __future__ import annotations

import json
import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from modeaware import librdkafka
from modeaware.callouts import InnerLock
from modeaware.config import with_topic_config
from modeaware.confluent.retarget import Switch, idle_stats

INTERVAL_MS = 1000

CLOCKS: Final = (time.monotonic, time.time, time.perf_counter)
"""librdkafka timestamps its statistics with one of them: the first on Linux, others elsewhere."""
MARGIN_S = 0.1
"""A send that chose its partition just before the switch is in the queue by then."""
TIMEOUT_MS = 300_000
"""librdkafka's default for ``message.timeout.ms``."""
_TIMEOUT_SLACK_S = 5.0  # librdkafka looks once a second for records that are due
_UNASSIGNED = "-1"  # holds what waits for the topic's first metadata
LOOKS = 3

_IDEMPOTENT: Mapping[str, Callable[[str], bool]] = {
    "enable.idempotence": lambda _: False,  # the application's choice
    "acks": lambda value: value in ("all", "-1"),
    "request.required.acks": lambda value: value in ("all", "-1"),
    "max.in.flight": lambda value: _number(value, 6) <= 5,
    "max.in.flight.requests.per.connection": lambda value: _number(value, 6) <= 5,
    "retries": lambda value: _number(value, 0) > 0,
    "message.send.max.retries": lambda value: _number(value, 0) > 0,
    "queuing.strategy": lambda value: value == "fifo",
}
"""The settings on which librdkafka insists, and which values it takes, where ``enable.idempotence`` is set."""


def delivery_timeout_s(conf: Mapping[str, Any]) -> float:
    """Return the time after which a record is delivered, or has failed, by ``message.timeout.ms``."""
    merged = with_topic_config(conf)
    timeout_ms = _number(merged.get("message.timeout.ms", merged.get("delivery.timeout.ms")), TIMEOUT_MS)
    return timeout_ms / 1000 + _TIMEOUT_SLACK_S if timeout_ms > 0 else math.inf


def stats_settings(conf: Mapping[str, Any], ours: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings that have ``ours`` called with the statistics, beside the application's own callback.

    The interval is at most :data:`INTERVAL_MS`, and a whole fraction of the application's (0 = never).
    Nothing is set where that is malformed, which librdkafka rejects.
    """
    configured = str(conf.get("statistics.interval.ms", 0))
    if not configured.isdecimal():
        return {}
    theirs_ms = int(configured)
    every = -(-theirs_ms // INTERVAL_MS) or 1
    while theirs_ms % every:
        every += 1
    callback = conf.get("stats_cb") if theirs_ms else None
    count = 0

    def thinned(figures: str) -> None:
        nonlocal count
        ours(figures)
        count += 1
        if count % every == 0 and callback is not None:
            callback(figures)

    return {
        "statistics.interval.ms": theirs_ms // every if theirs_ms else INTERVAL_MS,
        "stats_cb": ours if callback is None else thinned,
    }


class Backlog:
    """What was in the producer's queue for one topic when it was made. Any thread may read it.

    All of it is out when the queue is empty for once. A partition's part is out by librdkafka's statistics: ``msgs`` is
    how many records were queued for a partition, and ``acked_msgid`` how far they are acknowledged, in that order;
    idempotent producers alone keep the latter. (The queue lengths there do not do: records that linger or wait for
    their broker are in none of them, and ``xmit_msgq_cnt`` is always 0.) A record that fails last of a partition's is
    never acknowledged; but within ``message.timeout.ms`` (``timeout_s``) each is delivered or fails.
    """

    def __init__(self, topic: str, queued: Callable[[], int], timeout_s: float = math.inf) -> None:
        self.topic = topic
        self._queued = queued
        self._since_s = [clock() for clock in CLOCKS]
        self._deadline_s = time.monotonic() + timeout_s
        self._marks: dict[int, int] | None = None  # partition -> how many records were queued for it, where not all out
        self._over = False

    @property
    def over(self) -> bool:
        """See :class:`modeaware.clients.resize.Backlog`."""
        if not self._over:
            self._over = not self._queued() or time.monotonic() >= self._deadline_s
        return self._over

    def drained(self, partition: int) -> bool:
        """See :class:`modeaware.clients.resize.Backlog`."""
        return self.over or (self._marks is not None and partition not in self._marks)

    def look(self, statistics: Mapping[str, Any]) -> None:
        """Take in librdkafka's statistics, as decoded from JSON."""
        if self._over or not self._later(statistics["ts"] / 1_000_000):
            return
        partitions = statistics["topics"].get(self.topic, {}).get("partitions", {})
        if self._marks is None:
            if partitions.get(_UNASSIGNED, {}).get("msgq_cnt"):
                return
            self._marks = {int(p): figures["msgs"] for p, figures in partitions.items() if p != _UNASSIGNED}
        self._marks = {p: mark for p, mark in self._marks.items() if not _acked(partitions, p, mark)}
        if not self._marks or not statistics["msg_cnt"]:
            self._over = True

    def _later(self, at_s: float) -> bool:
        """Whether statistics of ``at_s`` by librdkafka's clock are of the time since. They may be served any time."""
        _, since_s = min(zip(CLOCKS, self._since_s, strict=True), key=lambda pair: abs(pair[0]() - at_s))
        return at_s > since_s + MARGIN_S


def _acked(partitions: Mapping[str, Any], partition: int, mark: int) -> bool:
    figures = partitions.get(str(partition))
    # More acknowledged than queued: librdkafka counts anew, since the partition was gone for a while.
    return figures is not None and (mark == 0 or mark <= figures["acked_msgid"] <= figures["msgs"])


class Backlogs:
    """The backlogs of one producer: :meth:`start` one when keys move.

    While there is none that is not over, statistics go to a function in C that does nothing.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = conf
        self._timeout_s = delivery_timeout_s(conf)
        self._producer: Callable[[], Any] = lambda: None
        self._open: list[Backlog] = []
        self._lock = InnerLock()
        self._stats: Switch = idle_stats()
        self._idle = self._stats.target
        self._attentive = self._look

    def settings(self) -> dict[str, Any]:
        """Return what to add to the application's configuration, or to set in place of what it has.

        ``enable.idempotence`` where no other setting contradicts it: retries would change the order of a key's records
        without it as well.
        """
        ours = stats_settings(self._conf, self._stats.call)
        merged = with_topic_config(self._conf)
        if ours and all(allows(str(merged[name])) for name, allows in _IDEMPOTENT.items() if name in merged):
            ours["enable.idempotence"] = True
        return ours

    def follow(self, producer: librdkafka.Producer) -> None:
        """Follow the producer that was made with :meth:`settings`; it is not kept alive."""
        self._producer = weakref.ref(producer)

    def start(self, topic: str) -> Backlog:
        """Return what is in the queue for ``topic`` now."""
        backlog = Backlog(topic, self._queued, self._timeout_s)
        with self._lock:
            self._open = [other for other in self._open if other.topic != topic]
            if not backlog.over:
                self._open.append(backlog)
            self._point()
        return backlog

    def _queued(self) -> int:
        producer = self._producer()
        return 0 if producer is None else librdkafka.Producer.__len__(producer)

    def _look(self, figures: str) -> None:
        followed = [backlog for backlog in self._open if not backlog.over]
        if followed:
            statistics = json.loads(figures)
            for backlog in followed:
                backlog.look(statistics)
        with self._lock:
            self._open = [backlog for backlog in self._open if not backlog.over]
            self._point()

    def _point(self) -> None:
        self._stats.point_to(self._attentive if self._open else self._idle)


class QueueLoads:
    """The load of every topic's partitions: the records that wait to be sent to one, and those that its leader has been
    sent and has not answered, to whichever partition. A slow broker's grow.

    Of the latest three statistics (three seconds) the lowest counts: a fast broker has much in flight at some moments,
    a slow one at all of them. The polling thread brings statistics; any thread may read loads.
    """

    def __init__(self) -> None:
        self._looks: deque[dict[str, dict[int, int]]] = deque(maxlen=LOOKS)
        self._aligned: dict[str, tuple[tuple[int, ...], Sequence[int]]] = {}

    def look(self, figures: str) -> None:
        """Take in librdkafka's statistics."""
        statistics = json.loads(figures)
        sent = {
            broker["nodeid"]: broker["outbuf_msg_cnt"] + broker["waitresp_msg_cnt"]
            for broker in statistics["brokers"].values()
        }
        self._looks.append(
            {
                name: {
                    int(partition): max(found["msgs"] - found["txmsgs"], 0) + sent.get(found["leader"], 0)
                    for partition, found in topic["partitions"].items()
                }
                for name, topic in statistics["topics"].items()
            }
        )
        self._aligned = {}

    def of(self, topic: str, candidates: tuple[int, ...]) -> Sequence[int]:
        """Return the load of each candidate; empty where it is not known yet."""
        kept = self._aligned.get(topic)
        if kept is None or kept[0] is not candidates:
            looks = [look[topic] for look in list(self._looks) if topic in look]
            lowest = [min(look.get(partition, 0) for look in looks) for partition in candidates] if looks else ()
            kept = self._aligned[topic] = candidates, lowest
        return kept[1]


def _number(value: Any, default: int) -> int:
    """Return ``value``; ``default`` where it is no number, which librdkafka rejects."""
    return int(value) if str(value).isdecimal() else default
