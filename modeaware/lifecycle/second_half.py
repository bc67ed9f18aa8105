"""The second half of a change that keeps the name: when the controller requests it, and when the change ends. Pure.

:mod:`modeaware.lifecycle.keep_name` explains the halves. An alias with ``keep_name`` *waits* for the second half. After
every pass over the alias, the controller checks the interim topic and the kept name. The controller then requests the
second half, or notes what blocks the request. No decision rests on a controller's memory. So after a crash a controller
repeats only requests that were not admitted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from modeaware.config import ControllerConfig
from modeaware.interim import is_interim_of
from modeaware.lifecycle import reasons
from modeaware.lifecycle.alias import FORGOTTEN_MS
from modeaware.lifecycle.commands import Effect, ReplaceTopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.keep_name import removal_of
from modeaware.lifecycle.objections import objections
from modeaware.modelog.records import TopicRecord


class Hindrance(NamedTuple):
    """Why the second half cannot begin.

    Attributes:
        reason: the reason code. None if the controller's own request got no answer: the reason in the record stays.
        effects: the effects that remove the obstacle.
        text: the cause, if the reason is a general one.
    """

    reason: str | None
    effects: tuple[Effect, ...] = ()
    text: str | None = None


def waits(record: TopicRecord, records: Mapping[str, TopicRecord]) -> bool:
    """Return whether the second half has still to begin; ``records``: the records of all topics, by topic id."""
    replacement = record.replacing
    if not (record.is_first_half and record.is_alias) or replacement.reason == reasons.POINTS_NOWHERE:
        return False
    interim = records.get(replacement.new_topic_id or "")
    return interim is None or not interim.has_replacement


def second_half_of(alias: TopicRecord) -> ReplaceTopicCommand:
    """Return the request that renames the interim topic back, with the settings of the first half. The limits in
    ``configs`` need no change: they are already scaled to the final number of partitions."""
    replacement = alias.replacing
    return ReplaceTopicCommand(
        topic=replacement.new_topic,
        new_topic=alias.topic,
        num_partitions=replacement.num_partitions,
        replication_factor=replacement.replication_factor,
        configs=replacement.configs,
        delay_ms=replacement.delay_ms,
        fence=replacement.fence,
        accept_state_loss=replacement.accept_state_loss,
        keep_name=True,
    )


def hindrance(
    alias: TopicRecord,
    interim: TopicRecord | None,
    facts: TopicFacts,
    config: ControllerConfig,
    now_ms: int,
    records: Collection[TopicRecord],
) -> Hindrance | None:
    """Return why the second half cannot begin, or None if nothing blocks it.

    Args:
        interim: the interim topic's record, if there is one.
        facts: the facts of the interim topic. Their ``new_topic`` is the topic that has the kept name now.
        records: of all topics that are or were replaced.
    """
    if (taken := facts.new_topic) is not None and taken.topic_id is not None:
        return Hindrance(reasons.NAME_TAKEN, removal_of(taken, alias.topic_id))
    for objection in objections(second_half_of(alias), interim, facts, config, now_ms, records):
        if objection.reason is not None:
            return Hindrance(objection.reason)
        return Hindrance(reasons.RENAME_REFUSED, text=str(objection.refusal))
    return None


def has_fence_left(record: TopicRecord) -> bool:
    """Return whether an earlier pass may have left its fence on a topic of the alias's name. The change now ends on the
    interim topic, so the fenced topic is no longer to be deleted."""
    replacement = record.replacing
    ends = is_interim_of(replacement.new_topic, record.topic) and not replacement.keep_name
    return record.is_alias and ends and replacement.reason == reasons.NAME_TAKEN


def closes(record: TopicRecord, now_ms: int) -> bool:
    """Return whether an interim topic's alias has existed for long enough to be removed."""
    gone_ms = record.replacing.gone_ms
    return record.is_second_half and gone_ms is not None and now_ms >= gone_ms + FORGOTTEN_MS


def is_unused(facts: TopicFacts) -> bool:
    """Return whether no topic has the name, and certainly no group is subscribed to it."""
    return facts.topic_id is None and facts.any_doubt is None and not any(g.subscribed for g in facts.groups.values())
