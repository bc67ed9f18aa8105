"""The differences between topics and their declarations in files or commands, from one reading of brokers and log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modeaware.lifecycle.keep_name import kept
from modeaware.lifecycle.objections import objection_to_change
from modeaware.modelog.records import replaced
from modeaware.plan.diff import CurrentTopic, TopicDiff, diff_kept, diff_replaced, diff_topic
from modeaware.plan.file import DesiredTopic
from modeaware.reports.session import ModeLog, Session
from modeaware.reports.topics import list_topics, topic_states


def current_topics(session: Session, log: ModeLog, names: Sequence[str]) -> dict[str, CurrentTopic]:
    """Return the current state of those topics that exist, read together."""
    listed = list_topics(session.cluster.brokers)
    internal = {topic.name for topic in listed.topics if topic.internal} | {log.topic}
    present = {topic.name for topic in listed.topics}
    return {
        state.name: CurrentTopic(
            count=len(state.partitions),
            replication_factors=frozenset(partition.replication_factor for partition in state.partitions),
            overrides=state.overrides,
            internal=state.name in internal,
            topic_id=state.topic_id,
            record=log.replay.records.get(state.topic_id),
        )
        for state in topic_states(session.cluster.brokers, [n for n in names if n in present], listed.live_brokers)
    }


def diff_of(desired: DesiredTopic, topics: Mapping[str, CurrentTopic], log: ModeLog) -> TopicDiff:
    """Return the diff of a topic; its replacement may be in progress or complete."""
    name, current = desired.name, topics.get(desired.name)
    if current is not None and (error := log.unusable(name, current.topic_id or "")) is not None:
        return TopicDiff(name, desired.where, refusal=error.message)
    if name == log.topic:
        return TopicDiff(name, desired.where, refusal="it is the mode log, which only controllers change")
    if (change := kept(name, log.replaced)) is not None and not change.is_over and (change.keeps or desired.keep_name):
        return diff_kept(desired, change)
    for record, replacement in replaced(log.replaced):
        if record.topic != name:
            continue
        is_it = current is not None and current.record is record
        has_returned = current is not None and current.topic_id in log.replaces  # then the record's topic is deleted
        if is_it or (replacement.switched_ms is not None and not has_returned):
            if desired.replace is not None:
                return diff_replaced(desired, record, replacement, topics.get(replacement.new_topic))
            return TopicDiff(name, desired.where, refusal=objection_to_change(replacement))
    return diff_topic(desired, current)
