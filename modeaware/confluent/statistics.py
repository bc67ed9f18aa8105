"""The load of partitions, from librdkafka's statistics about a producer's queue.

The application's own ``stats_cb`` is still called at its own interval. No code runs per record.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modeaware.config import with_topic_config

INTERVAL_MS = 1000

TIMEOUT_MS = 300_000
"""librdkafka's default for ``message.timeout.ms``."""
_TIMEOUT_SLACK_S = 5.0  # librdkafka checks once a second for expired records
LATEST = 3


def delivery_timeout_s(conf: Mapping[str, Any]) -> float:
    """Return the time within which a record is delivered or fails, by ``message.timeout.ms``."""
    merged = with_topic_config(conf)
    timeout_ms = _number(merged.get("message.timeout.ms", merged.get("delivery.timeout.ms")), TIMEOUT_MS)
    return timeout_ms / 1000 + _TIMEOUT_SLACK_S if timeout_ms > 0 else math.inf


def stats_settings(conf: Mapping[str, Any], ours: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings by which librdkafka passes its statistics to ``ours``, and to the application's callback.

    The interval is at most :data:`INTERVAL_MS`, and divides the application's interval, so that the application's
    callback gets every n-th statistics. If the application's interval is malformed, nothing is set, and librdkafka
    rejects the interval.
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


class QueueLoads:
    """The load of each partition: the records that wait for it, plus all records (of any partition) that its leader has
    not answered yet. Both grow if the broker is slow.

    The lowest of the latest three statistics (three seconds at most) counts: a fast broker has many records in flight
    at some moments, a slow broker at all moments. The polling thread adds statistics; any thread may read loads.
    """

    def __init__(self) -> None:
        self._latest: deque[dict[str, dict[int, int]]] = deque(maxlen=LATEST)
        self._aligned: dict[str, tuple[tuple[int, ...], Sequence[int]]] = {}

    def add(self, figures: str) -> None:
        """Add librdkafka's statistics, which are JSON."""
        statistics = json.loads(figures)
        sent = {
            broker["nodeid"]: broker["outbuf_msg_cnt"] + broker["waitresp_msg_cnt"]
            for broker in statistics["brokers"].values()
        }
        self._latest.append(
            {
                name: {
                    int(partition): max(counts["msgs"] - counts["txmsgs"], 0) + sent.get(counts["leader"], 0)
                    for partition, counts in topic["partitions"].items()
                }
                for name, topic in statistics["topics"].items()
            }
        )
        self._aligned = {}

    def of(self, topic: str, candidates: tuple[int, ...]) -> Sequence[int]:
        """Return the load of each candidate, or an empty sequence while it is unknown."""
        kept = self._aligned.get(topic)
        if kept is None or kept[0] is not candidates:
            loads = [statistics[topic] for statistics in list(self._latest) if topic in statistics]
            lowest = [min(load.get(partition, 0) for load in loads) for partition in candidates] if loads else ()
            kept = self._aligned[topic] = candidates, lowest
        return kept[1]


def _number(value: Any, default: int) -> int:
    """Return ``value`` as a number, or ``default`` if it is not a number (then librdkafka rejects the setting)."""
    return int(value) if str(value).isdecimal() else default
