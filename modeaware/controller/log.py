"""The controller's hold on the mode log: create it where it is missing, fence, read to the end, append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modeaware.controller.cluster import Cluster
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.replay import Replay
from modeaware.modelog.topic import ensure_mode_log
from modeaware.modelog.writer import ModeLogWriter

READ_TIMEOUT_S = 60.0


class ControllerLog:
    """The mode log under one controller. One thread owns it.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        topic: the mode log's name.
    """

    def __init__(self, cluster: Cluster, conf: Mapping[str, Any], topic: str) -> None:
        self._cluster = cluster
        self._conf = dict(conf)
        self._topic = topic
        self._writer: ModeLogWriter | None = None

    def open(self) -> Replay:
        """Fence every earlier writer, then read the log to its end. A writer used before is thrown away.

        Raises:
            ClusterError: the log cannot be created, or is not fit (more than one partition, not compacted).
            ModeSourceError: it cannot be read.
        """
        self.close()
        ensure_mode_log(self._cluster.admin, self._topic)
        self._writer = ModeLogWriter(self._conf, self._topic)
        self._writer.open()
        return read_mode_log(self._conf, self._topic, READ_TIMEOUT_S, must_exist=True)

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Append ``(key, value)`` records in one transaction; a value of None is a tombstone.

        Raises:
            ControllerFenced: another controller has taken over.
            ClusterError: not appended, or not known to be; open again before the next append.
        """
        assert self._writer is not None, "open() comes first"
        self._writer.append(records)

    def close(self) -> None:
        """Let the writer go."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
