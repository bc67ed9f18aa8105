"""How much a producer has on its way to each partition, by librdkafka's statistics, for partitioners that follow it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from modeaware.confluent._attention import with_stats

LOOKS = 3


class QueueLoads:
    """The load of every topic's partitions: the records that wait to be sent to one, and those that its leader has been
    sent and has not answered, to whichever partition. A slow broker's grow.

    Of the latest three statistics (three seconds) the lowest counts: a fast broker has much in flight at some moments,
    a slow one at all of them.

    The thread that polls brings statistics; any thread asks.
    """

    def __init__(self) -> None:
        self._looks: deque[dict[str, dict[int, int]]] = deque(maxlen=LOOKS)
        self._aligned: dict[str, tuple[tuple[int, ...], Sequence[int]]] = {}

    def settings(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """What to set in place of what the application's configuration has."""
        if not str(conf.get("statistics.interval.ms", 0)).isdecimal():
            return {}  # librdkafka's to refuse
        watched = with_stats(conf, self.look)
        return {name: watched[name] for name in ("statistics.interval.ms", "stats_cb")}

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
        """The load of each candidate; empty where it is not known yet."""
        kept = self._aligned.get(topic)
        if kept is None or kept[0] is not candidates:
            looks = [look[topic] for look in list(self._looks) if topic in look]
            lowest = [min(look.get(partition, 0) for look in looks) for partition in candidates] if looks else ()
            kept = self._aligned[topic] = candidates, lowest
        return kept[1]
