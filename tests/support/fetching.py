"""Which partitions librdkafka's consumers fetch: an assignment does not show that a ``latest`` start was looked up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.support.waiting import eventually

INTERVAL_MS = 200


class Fetching:
    """The partitions that consumers fetch, by their statistics.

    Attributes:
        conf: the settings by which a consumer reports here.
    """

    def __init__(self) -> None:
        self.conf: dict[str, Any] = {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self._note}
        self._of_client: dict[str, dict[str, set[int]]] = {}

    def _note(self, statistics: str) -> None:
        said = json.loads(statistics)
        self._of_client[said["name"]] = {
            topic: {
                int(partition)
                for partition, state in of_topic["partitions"].items()
                if state["fetch_state"] == "active"
            }
            for topic, of_topic in said["topics"].items()
        }

    def await_fetched(self, topic: str, partitions: Iterable[int]) -> None:
        """Wait until each of these partitions is fetched by one consumer, and no other partition is."""
        want = Counter(partitions)

        def fetched() -> Counter[int]:
            return Counter(p for topics in list(self._of_client.values()) for p in topics.get(topic, ()))

        for _ in range(2):  # the first statistics may be older than the assignment
            self._of_client.clear()
            eventually(lambda: fetched() == want, 60, message=f"{sorted(want)} of {topic} fetched")
