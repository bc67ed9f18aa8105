"""Which partitions librdkafka's consumers fetch: an assignment does not show that a ``latest`` start was looked up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
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

    def await_fetched(
        self, topic: str, partitions: Iterable[int], members: int = 1, poll: Callable[[], object] = lambda: None
    ) -> None:
        """Wait until so many consumers fetch these partitions, each by one of them, and no other partition is fetched.

        Without a commit, a partition that moves to a member that joins later would start at its end once more.

        Args:
            poll: polls the consumers, unless other threads do.
        """
        want = Counter(partitions)

        def is_fetched() -> bool:
            poll()
            of_each = [found for topics in list(self._of_client.values()) if (found := topics.get(topic))]
            fetched = Counter(p for found in of_each for p in found)
            assert (len(of_each), fetched) == (members, want), f"of {topic} are fetched: {of_each}"
            return True

        for _ in range(2):  # the first statistics may be older than the assignment
            self._of_client.clear()
            eventually(is_fetched, 60)
