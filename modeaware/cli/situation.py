"""How things stand with one topic before it is changed."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.cli.options import Connection
from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.observer import Observer
from modeaware.config import ControllerConfig
from modeaware.confluent.controller_calls import group_rules_of
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.admission import Admission
from modeaware.lifecycle.admit import admit
from modeaware.lifecycle.commands import TopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.reports.describe import unusable_record

READ_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Situation:
    """One topic, as the mode log and the brokers show it now.

    Attributes:
        record: its record; None for a topic that was never changed.
        facts: its partitions and groups.
        claim: the claim of the controller, running or not.
        rules: the operator's rules about groups.
    """

    topic: str
    record: TopicRecord | None
    facts: TopicFacts
    claim: ClaimRecord | None = None
    rules: tuple[GroupRule, ...] = ()

    @property
    def count(self) -> int:
        """How many partitions the topic has on the brokers."""
        return self.facts.partition_count

    @property
    def writable_count(self) -> int:
        """How many partitions take writes."""
        return self.record.writable_count if self.record is not None else self.facts.partition_count

    def admission(self, command: TopicCommand, config: ControllerConfig) -> Admission:
        """What a controller with ``config`` would make of the command. Changes nothing.

        Raises:
            RequestRefused: it would refuse.
        """
        epoch = self.claim.controller_epoch if self.claim is not None else 0
        return admit(command, self.record, self.facts, config, epoch, SYSTEM_CLOCK.now_ms(), self.rules)


def look(connection: Connection, cluster: Cluster, topic: str) -> Situation:
    """Read the mode log and ask the brokers.

    Raises:
        RequestRefused: the topic does not exist.
        RecordError: its record in the mode log, or the one with the rules about groups, cannot be used.
        ClusterError, ModeSourceError: the brokers did not answer, or refused.
    """
    log_topic = connection.config.mode_log_topic
    replay = read_mode_log(connection.conf, log_topic, READ_TIMEOUT_S)
    rules = group_rules_of(replay, log_topic)
    facts = Observer(cluster, connection.conf).observe(topic, None, rules)
    if facts.topic_id is None:
        raise RequestRefused(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
    if (unusable := unusable_record(replay, log_topic, topic, facts.topic_id)) is not None:
        raise unusable
    return Situation(topic, replay.records.get(facts.topic_id), facts, replay.claim, rules)
