"""A session: one connection to a cluster, with the mode log that its settings name, for commands and reports.

A report uses one reading of the mode log (:class:`ModeLog`), so that its records are of one moment. The group rules or
a topic's record may be unreadable: malformed, or written by a newer version. Then the rules or the modes in force are
unknown, and access to them raises RecordError.

Functions that take snapshots of topics raise RequestRefused if a named topic does not exist, and RecordError if its
record is unreadable. If brokers do not answer, or refuse, these functions raise ClusterError or ModeSourceError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.cluster import Cluster, TopicShape
from modeaware.cluster.observer import Observer
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.confluent.controller_calls import group_rules_of
from modeaware.errors import ClusterError, ErrorCode, RecordError, RequestRefused
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.keep_name import KeptName, kept_names
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import ClaimRecord, TopicRecord, replaced
from modeaware.modelog.replay import Replay
from modeaware.spelling import with_nearest
from modeaware.wire.security import bootstrap_servers

READ_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class ModeLog:
    """The contents of the mode log, ``topic``, at one reading."""

    topic: str
    replay: Replay

    @property
    def claim(self) -> ClaimRecord | None:
        """Return the claim of the latest controller. That controller may have ended."""
        return self.replay.claim

    @property
    def rules(self) -> tuple[GroupRule, ...]:
        """Return the operator's rules about groups, expired ones too."""
        return group_rules_of(self.replay, self.topic)

    @cached_property
    def replaced(self) -> tuple[TopicRecord, ...]:
        """Return the records of all topics with a replacement: in progress, complete or undone."""
        return tuple(record for record, _ in replaced(self.replay.records.values()))

    @cached_property
    def replaces(self) -> dict[str | None, str]:
        """Return the id of a new topic -> the name of its old topic."""
        return {record.replacing.new_topic_id: record.topic for record in self.replaced}

    @cached_property
    def kept_names(self) -> dict[str, KeptName]:
        """Return the changes that keep a name, each under the kept name and under the interim topic's name."""
        return kept_names(self.replaced)

    def record(self, topic: str, topic_id: str) -> TopicRecord | None:
        """Return the topic's record; None for a topic that was never changed."""
        if (error := self.unusable(topic, topic_id)) is not None:
            raise error
        return self.replay.records.get(topic_id)

    def unusable(self, topic: str, topic_id: str) -> RecordError | None:
        """Return the error if the topic's latest record cannot be read."""
        if not self.replay.is_unreadable(topic_id) and topic not in self.replay.unreadable:
            return None
        return RecordError(
            f"topic {topic!r}: its latest record in {self.topic!r} cannot be used (malformed, or written by a newer "
            "version); nothing was changed. Upgrade modeaware, or inspect the log",
            topic=topic,
        )

    def gone_ids(self, topic: str, topic_id: str) -> tuple[str, ...]:
        """Return the ids of deleted topics of this name with a record; no replaced ones. ``topic_id``: the live topic's
        id."""
        others = (record for record in self.replay.records_of(topic) if record.topic_id != topic_id)
        return tuple(record.topic_id for record in others if record.replacing.switched_ms is None)

    def deleted(self, topic: str) -> TopicRecord | None:
        """Return the record of an old topic with this name that a controller has deleted, or is deleting."""
        of_name = replaced(self.replay.records_of(topic))
        return next((record for record, replacement in of_name if replacement.deleting_ms is not None), None)

    def points_to(self, topic: str, topic_id: str | None = None) -> str | None:
        """Return the new topic to which the name of a deleted topic points; ``topic_id``: the live topic's id, if any.

        If the live topic itself replaced another topic, as after a rename back, return None.
        """
        if topic_id is not None and topic_id in self.replaces:
            return None
        others = ((record.topic_id, replacement) for record, replacement in replaced(self.replay.records_of(topic)))
        return next(
            (
                replacement.new_topic
                for record_id, replacement in others
                if record_id != topic_id and replacement.switched_ms is not None
            ),
            None,
        )


class Session:
    """A connection to a cluster. One thread at a time; a context manager.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        config: our settings; they name the mode log.
        controller: the assumed configs of this mode log's controller.
        cluster: the connection; a new one if None.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        config: ClientConfig,
        controller: ControllerConfig,
        cluster: Cluster | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.conf = conf
        self.config = config
        self.controller = controller
        self.clock = clock
        self.cluster = Cluster(conf) if cluster is None else cluster

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    @property
    def bootstrap_server(self) -> str:
        return bootstrap_servers(self.conf)

    def read_log(self) -> ModeLog:
        """Read the mode log to its end."""
        topic = self.config.mode_log_topic
        return ModeLog(topic, read_mode_log(self.conf, topic, READ_TIMEOUT_S))

    def shape(self, topic: str) -> TopicShape:
        """Return the topic's id and partition count."""
        if (shape := self.cluster.shape(topic)) is None:
            raise no_such_topic(topic, self.cluster.topic_names())
        return shape

    def snapshot(
        self, log: ModeLog, topics: Iterable[str], rules: Sequence[GroupRule], *, named: bool
    ) -> list[tuple[TopicRecord | None, TopicFacts]]:
        """Return each topic's record in ``log``, and its facts.

        If the user has ``named`` the topics, a missing topic or an unusable record is an error; otherwise the topic is
        omitted. A named topic that a controller has deleted is returned without partitions.
        """
        records = dict(self._records(log, topics, named=named))
        facts = self.observer().observe_for_reports(records, rules)
        return [(record, facts[topic]) for topic, (_, record) in records.items()]

    def _records(
        self, log: ModeLog, topics: Iterable[str], *, named: bool
    ) -> Iterator[tuple[str, tuple[TopicShape, TopicRecord | None]]]:
        for topic, shape in self.cluster.describe(topics).items():
            if isinstance(shape, ClusterError):
                raise shape
            if shape is None and named and (record := log.deleted(topic)) is not None:
                yield topic, (TopicShape(record.topic_id, internal=False, partition_count=0), record)
                continue
            if shape is None and named:
                raise no_such_topic(topic, self.cluster.topic_names(), log)
            if shape is not None and (named or log.unusable(topic, shape.topic_id) is None):
                yield topic, (shape, log.record(topic, shape.topic_id))

    def observer(self) -> Observer:
        """Return an observer that reads facts as the controller's observer does."""
        return Observer(self.cluster, self.conf, self.clock, mode_log=self.config.mode_log_topic)


def no_such_topic(topic: str, known: Iterable[str], log: ModeLog | None = None) -> RequestRefused:
    """Return the error for a topic that does not exist. The message names the new topic, if ``log`` has one, or else
    the nearest name in ``known``."""
    new_topic = log.points_to(topic) if log is not None else None
    why = f"topic {topic!r} does not exist"
    if new_topic is not None:
        why += f" any more: its name points to {new_topic!r}, which has replaced it"
    else:
        why = with_nearest(why, topic, known)
    return RequestRefused(why, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
