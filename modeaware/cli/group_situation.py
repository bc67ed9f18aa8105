"""How things stand with the groups of topics before a rule about them is changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from modeaware.cli.options import Connection
from modeaware.cli.situation import READ_TIMEOUT_S
from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.groups.found import list_groups_with_members
from modeaware.cluster.observer import Observer
from modeaware.config import ControllerConfig
from modeaware.confluent.controller_calls import group_rules_of
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.phases import in_progress
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.reports.describe import unusable_record
from modeaware.reports.groups import TopicGroups, look_at_groups, report_groups

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupSituation:
    """The rules, and the groups of the topics looked at.

    Attributes:
        looked_at: record and facts of each topic, by which a rule can be tried out.
        claim: the claim of the controller, running or not.
    """

    rules: tuple[GroupRule, ...]
    looked_at: tuple[tuple[TopicRecord | None, TopicFacts], ...]
    ignored_groups: tuple[str, ...]
    now_ms: int
    claim: ClaimRecord | None

    @property
    def topics(self) -> tuple[TopicGroups, ...]:
        """The groups of each topic, by the rules as they are."""
        return self._report(self.rules)

    def with_rule(self, rule: GroupRule) -> tuple[TopicGroups, ...]:
        """The same, were ``rule`` among the rules."""
        others = tuple(other for other in self.rules if other.key != rule.key)
        return self._report((*others, rule))

    def _report(self, rules: tuple[GroupRule, ...]) -> tuple[TopicGroups, ...]:
        return tuple(
            report_groups(record, facts, rules, self.ignored_groups, self.now_ms) for record, facts in self.looked_at
        )


def look_at_topics(
    connection: Connection,
    cluster: Cluster,
    config: ControllerConfig,
    topic: str | None,
    wanted: Callable[[str], bool] = lambda topic: True,
) -> GroupSituation:
    """Look at one topic; or (None) at all that are in a change, leaving out what cannot be looked at. Groups are listed
    once, and only where there is a topic to look at.

    Args:
        wanted: which of the topics in a change, by name: a look takes a tenth of a second, and hundreds may be pending.

    Raises:
        RequestRefused: the topic that was named does not exist.
        RecordError: its record, or that of the rules, cannot be used.
        ClusterError, ModeSourceError: the brokers did not answer, or refused.
    """
    log_topic = config.mode_log_topic
    replay = read_mode_log(connection.conf, log_topic, READ_TIMEOUT_S)
    rules = group_rules_of(replay, log_topic)
    names = (
        [topic]
        if topic is not None
        else sorted(r.topic for r in replay.records.values() if in_progress(r) and wanted(r.topic))
    )
    listed = list_groups_with_members(cluster.brokers) if names else None
    observer = Observer(cluster, connection.conf, listed=listed)
    looked_at = []
    for name, shape in cluster.describe(names).items():
        if topic is not None and shape is None:
            raise RequestRefused(
                f"topic {name!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name
            )
        if shape is not None and _usable(replay, log_topic, name, shape.topic_id, must_be=topic is not None):
            record = replay.records.get(shape.topic_id)
            try:
                looked_at.append((record, look_at_groups(observer, name, record, rules)))
            except ClusterError as error:
                if topic is not None:
                    raise
                logger.warning("topic %s is left out: %s", name, error)
    now_ms = SYSTEM_CLOCK.now_ms()
    return GroupSituation(rules, tuple(looked_at), config.ignored_groups, now_ms, replay.claim)


def _usable(replay: Replay, log_topic: str, topic: str, topic_id: str, *, must_be: bool) -> bool:
    unusable = unusable_record(replay, log_topic, topic, topic_id)
    if unusable is not None and must_be:
        raise unusable
    return unusable is None
