"""The mode log under a controller: created if missing, fenced, read to its end, appended to, watched.

Only the election's leader opens the log and appends (:class:`ControllerLog`). All controllers follow the claim
(:class:`ClaimWatch`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from modeaware.callouts import get_logger
from modeaware.cluster.cluster import Cluster
from modeaware.controller.election import Election
from modeaware.controller.inbox import NOT_BEGUN
from modeaware.errors import ClusterError, ControllerFenced, ErrorCode, RecordError
from modeaware.modelog.reader import LogAbsent, LogRecord, LogRewound, read_mode_log, read_to_end
from modeaware.modelog.records import CLAIM_KEY, OBSERVED_BROKERS_KEY, ClaimRecord, ObservedBrokersRecord
from modeaware.modelog.replay import Replay
from modeaware.modelog.topic import DESCRIBE_TIMEOUT_S, LogTopic, describe_mode_log, ensure_mode_log, log_weakness
from modeaware.modelog.writer import APPEND_TIMEOUT_S, ModeLogWriter
from modeaware.wire.retries import Deadline

logger = get_logger("modeaware.controller")

READ_TIMEOUT_S = 20.0
"""The time for reading the whole log: short enough that opening takes less than max.poll.interval.ms (tested)."""
SLOW_READ_S = 5.0
"""A read that takes longer is logged."""
_T = TypeVar("_T")


class ControllerLog:
    """The mode log under one controller. The controller's thread owns it.

    Every append is sent with the membership of ``election``; without a membership nothing is appended.

    Attributes:
        appends: the number of successful appends.
        timeout_s: how long an append may take. If it is None, the writer's default holds.
        unfit: why the topic may lose the last append: the topic was altered after the claim. None if the topic is fit.
            Until the topic is fit again, no effect of a record may be performed.
        observed: the observed brokers, as on the log; None if the record needs a newer reader.
        observed_unreadable: whether the last record of the observed brokers is unreadable. Clients then have no list of
            observed brokers.
    """

    def __init__(self, cluster: Cluster, conf: Mapping[str, Any], topic: str, election: Election) -> None:
        self._cluster = cluster
        self._conf = dict(conf)
        self._topic = topic
        self._election = election
        self._writer: ModeLogWriter | None = None
        self._topic_id: str | None = None
        self.unfit: str | None = None
        self.appends = 0
        self.timeout_s: float | None = None
        self.observed: ObservedBrokersRecord | None = None
        self.observed_unreadable = False

    @property
    def is_open(self) -> bool:
        """Return whether :meth:`append` may be called: after :meth:`open`, until the log is closed. An append that is
        fenced, or has an unknown outcome, closes the log."""
        return self._writer is not None and self._writer.is_open

    def ensure(self) -> str:
        """Create the mode log if it is missing, else check its partitions and configs; return its topic id."""
        return self._of_brokers(lambda: ensure_mode_log(self._cluster.admin, self._topic))

    def _of_brokers(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except ClusterError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._cluster.renew_admin()
            raise

    def weakness(self) -> str | None:
        """Return why the log is less safe than a new log, or None (also if brokers do not answer in time). Raise
        ClusterError if the log is unfit."""
        return log_weakness(self._cluster.admin, self._topic)

    def open(self) -> Replay:
        """Fence every earlier writer, then read the log to its end. An earlier writer of this object is closed."""
        self.close()
        topic_id = self.ensure()
        if self._topic_id not in (None, topic_id):
            text = (
                "mode log: topic %r was deleted and created again: its records are lost, restore them (docs/runbook.md)"
            )
            logger.error(text, self._topic)
        self._topic_id = topic_id
        self._membership()
        self._writer = ModeLogWriter(self._conf, self._topic)
        self._writer.open()
        begun_s = time.monotonic()
        replay = read_mode_log(self._conf, self._topic, READ_TIMEOUT_S, must_exist=True)
        if (took_s := time.monotonic() - begun_s) > SLOW_READ_S:
            text = "reading the mode log took %.1f s; above %g s no controller can start. Check that it is compacted"
            logger.warning(text, took_s, READ_TIMEOUT_S)
        newer = OBSERVED_BROKERS_KEY in replay.newer
        self.observed = None if newer else replay.observed_brokers or ObservedBrokersRecord()
        self.observed_unreadable = replay.is_unreadable(OBSERVED_BROKERS_KEY)
        return replay

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Append ``(key, value)`` records in one transaction, as the elected controller (invariant I5); a value of None
        is a tombstone.

        Before each append the brokers describe the topic. If the topic was recreated, nothing is appended. Otherwise
        the next controller would read a log that contains only the new records. The description includes the topic's
        configs. Effects follow an append, so the configs are checked before effects, too; see :attr:`unfit`.

        Raises:
            ControllerFenced: this is no longer the elected controller. With code NOT_BEGUN nothing was appended;
                otherwise the append may have succeeded, if only its response was lost.
            ClusterError: the append failed, or its outcome is unknown. With code NOT_BEGUN nothing was appended: the
                log is not open, its topic cannot be described, or its topic has another id now. If :attr:`is_open`
                is False, open the log before the next append.
        """
        if self._writer is None:
            text = f"mode log: topic {self._topic!r} is not open for writing"
            raise ClusterError(text, code=NOT_BEGUN, topic=self._topic)
        deadline = Deadline(APPEND_TIMEOUT_S if self.timeout_s is None else self.timeout_s)
        log_topic = self._described(deadline)
        if log_topic.topic_id != self._topic_id:
            self.close()
            raise ClusterError(
                f"mode log: topic {self._topic!r} was deleted and created again: nothing was appended to it",
                code=NOT_BEGUN,
                topic=self._topic,
            )
        self.unfit = log_topic.unfit
        self._writer.append(records, self._membership(), deadline.left_s())
        self.appends += 1

    def _described(self, deadline: Deadline) -> LogTopic:
        """Return the brokers' description of the topic; after a timeout, repeat the request on another connection."""

        def describe() -> LogTopic:
            timeout_s = min(DESCRIBE_TIMEOUT_S, deadline.left_s())
            return self._of_brokers(lambda: describe_mode_log(self._cluster.admin, self._topic, timeout_s))

        try:
            try:
                return describe()
            except ClusterError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                return describe()
        except ClusterError as error:
            raise ClusterError(f"{error.message}; nothing was appended", code=NOT_BEGUN, topic=self._topic) from error

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _membership(self) -> bytes:
        membership = self._election.group_metadata
        if membership is None:
            raise ControllerFenced(
                f"mode log: this controller is not elected for topic {self._topic!r}: nothing was appended",
                code=NOT_BEGUN,
                topic=self._topic,
            )
        return membership


# Claims


@dataclass(frozen=True)
class Contact:
    """The listener and the status page of a controller, in the fields of its
    :class:`~modeaware.modelog.records.ClaimRecord`."""

    address: str | None = None
    host: str = ""
    security_protocol: str = "PLAINTEXT"
    pages: str | None = None


NOWHERE = Contact()


class ClaimWatch:
    """The latest claim on the mode log. Each read continues where the last read ended. One thread owns the watch.

    Attributes:
        claim: the latest claim, or None if there is none.
        absent: whether the mode log was absent at the last read.
        highest_epoch: the highest epoch of all claims ever read, even if the log has lost its tail or was recreated; 0
            if no claim was read.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self._conf = dict(conf)
        self._topic = topic
        self._position = 0
        self.claim: ClaimRecord | None = None
        self.absent = False
        self.highest_epoch = 0

    def read(self, timeout_s: float) -> ClaimRecord | None:
        """Read the records since the last read, and return the claim; None if the log does not exist."""
        try:
            self._position = read_to_end(self._conf, self._topic, self._position, self._apply, timeout_s)
        except LogAbsent:
            self._position, self.claim, self.absent = 0, None, True
            return None
        except LogRewound:  # another log has this name now: the claim was on the earlier log
            self._position, self.claim = 0, None
            self._position = read_to_end(self._conf, self._topic, 0, self._apply, timeout_s)
        self.absent = False
        return self.claim

    def _apply(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.key == CLAIM_KEY.encode() and record.value is not None:
                try:
                    self.claim = ClaimRecord.from_json(record.value)
                except RecordError:
                    self.claim = None  # malformed, or written by a newer version
                    continue
                self.highest_epoch = max(self.highest_epoch, self.claim.controller_epoch)


def describe_claim(claim: ClaimRecord | None) -> str:
    """Return in words which controller was active last. Only the election shows whether it is still active."""
    if claim is None:
        return "no controller has claimed the mode log yet"
    name = claim.controller_id if not claim.host else f"{claim.controller_id} on host {claim.host}"
    if claim.address is None:
        return f"the last controller, {name} (epoch {claim.controller_epoch}), has stopped, or takes no commands"
    return f"the last claim is that of {name} (epoch {claim.controller_epoch}), at {claim.address}"
