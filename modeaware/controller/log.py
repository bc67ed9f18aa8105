"""The controller's hold on the mode log: create it where it is missing, fence, read to the end, append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modeaware.cluster.cluster import Cluster
from modeaware.controller.election import Election
from modeaware.errors import ClusterError, ControllerFenced, ErrorCode
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import OBSERVED_BROKERS_KEY, ObservedBrokersRecord
from modeaware.modelog.replay import Replay
from modeaware.modelog.topic import ensure_mode_log, log_weakness
from modeaware.modelog.writer import ModeLogWriter

READ_TIMEOUT_S = 20.0
"""For all of the log; what opening it takes stays below the election's max.poll.interval.ms (a test adds it up)."""


class ControllerLog:
    """The mode log under one controller. The controller's thread owns it.

    Every append is sent with the membership that ``election`` holds, and without one nothing is.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        topic: the mode log's name.

    Attributes:
        appends: how many appends have succeeded; it tells whether something was appended in between.
        timeout_s: how long an append may take; None: as the writer has it.
        observed: the brokers that were ever seen, as the log has it since it was opened; None: the record needs a newer
            reader. ``observed_unreadable``: the last record could not be read, and clients have none.
    """

    def __init__(self, cluster: Cluster, conf: Mapping[str, Any], topic: str, election: Election) -> None:
        self._cluster = cluster
        self._conf = dict(conf)
        self._topic = topic
        self._election = election
        self._writer: ModeLogWriter | None = None
        self.appends = 0
        self.timeout_s: float | None = None
        self.observed: ObservedBrokersRecord | None = None
        self.observed_unreadable = False

    @property
    def is_open(self) -> bool:
        """Whether :meth:`append` may be called: not before :meth:`open`, nor after an append that was fenced or whose
        outcome is not known."""
        return self._writer is not None and self._writer.is_open

    def ensure(self) -> None:
        """Create the mode log where it is missing.

        Raises:
            ClusterError: it cannot be created, or is not fit (more than one partition, not compacted); or (code
                REQUEST_TIMED_OUT) no broker answered, and the next try asks with new connections.
        """
        try:
            ensure_mode_log(self._cluster.admin, self._topic)
        except ClusterError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._cluster.renew_admin()
            raise

    def weakness(self) -> str | None:
        """How the log is kept less safely than it could be, and what to do; None: it is not, or nobody tells."""
        return log_weakness(self._cluster.admin, self._topic)

    def open(self) -> Replay:
        """Fence every earlier writer, then read the log to its end. A writer used before is thrown away.

        Raises:
            ControllerFenced: this one is not the leader; nobody was fenced.
            ClusterError: the log cannot be created, or is not fit (more than one partition, not compacted).
            ModeSourceError: it cannot be read.
        """
        self.close()
        self.ensure()
        self._membership()
        self._writer = ModeLogWriter(self._conf, self._topic)
        self._writer.open()
        replay = read_mode_log(self._conf, self._topic, READ_TIMEOUT_S, must_exist=True)
        newer = OBSERVED_BROKERS_KEY in replay.newer
        self.observed = None if newer else replay.observed_brokers or ObservedBrokersRecord()
        self.observed_unreadable = replay.is_unreadable(OBSERVED_BROKERS_KEY)
        return replay

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Append ``(key, value)`` records in one transaction, as the elected controller (invariant I5); a value of None
        is a tombstone.

        Raises:
            ControllerFenced: this one is not the leader any more; nothing was appended.
            ClusterError: it is not open; or not appended, or not known to be. Unless :attr:`is_open` says otherwise,
                open it before the next append.
        """
        if self._writer is None:
            raise ClusterError(f"mode log: topic {self._topic!r} is not open for writing", topic=self._topic)
        self._writer.append(records, self._membership(), self.timeout_s)
        self.appends += 1

    def close(self) -> None:
        """Let the writer go."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _membership(self) -> bytes:
        membership = self._election.group_metadata
        if membership is None:
            raise ControllerFenced(
                f"mode log: this controller is not the elected one of topic {self._topic!r}", topic=self._topic
            )
        return membership
