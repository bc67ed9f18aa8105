"""Looks at the topic about once a second while the demo runs: modes, offsets, lag."""

from __future__ import annotations

import logging
import threading
import time
from typing import NamedTuple

from modeaware.config import DEFAULT_MODE_LOG_TOPIC
from modeaware.demo.setting import Setting
from modeaware.errors import ModeAwareError
from modeaware.reports.describe import PartitionDescription, TopicDescription, describe_topics

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0


class Look(NamedTuple):
    """What one look found; ``rates`` is records a second per partition since the look before."""

    description: TopicDescription
    rates: dict[int, float]
    at_s: float

    @property
    def lag(self) -> int | None:
        """Records the group has still to consume; None where that is not known of every partition."""
        lags = [partition.lag for partition in self.description.partitions]
        return sum(lag for lag in lags if lag is not None) if None not in lags else None


class Watch:
    """Looks at the topic in a thread of its own. :attr:`latest` may be read from any thread.

    Attributes:
        latest: the newest look, None before the first.
        error: why the newest attempt failed; None if it did not.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-watch", daemon=True)
        self.latest: Look | None = None
        self.error: ModeAwareError | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; returns when the thread has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            try:
                [description] = describe_topics(self._setting.quiet_conf, DEFAULT_MODE_LOG_TOPIC, [self._setting.topic])
            except ModeAwareError as error:
                logger.warning("cannot look at the topic: %s", error)
                self.error = error
                continue
            now_s = time.monotonic()
            self.latest, self.error = Look(description, _rates(self.latest, description, now_s), now_s), None


def _rates(before: Look | None, now: TopicDescription, now_s: float) -> dict[int, float]:
    if before is None or now_s <= before.at_s:
        return {}
    ends = {p.partition: p.log_end for p in before.description.partitions}
    return {p.partition: _growth(ends.get(p.partition), p) / (now_s - before.at_s) for p in now.partitions}


def _growth(end_before: int | None, partition: PartitionDescription) -> int:
    if end_before is None or partition.log_end is None:
        return 0
    return partition.log_end - end_before
