"""A topic that was replaced is deleted: each condition alone keeps it, and what a pass over it records and does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.clients.starts import start_on_new_topic
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.alias import record_after
from modeaware.lifecycle.commands import DeleteOldTopic, FenceTopic
from modeaware.lifecycle.drain import requirement_of
from modeaware.lifecycle.facts import FenceFacts, GroupFacts, GroupsDoubt, TopicFacts
from modeaware.lifecycle.replacement import COMING_MS, FENCE_CONFIGS
from modeaware.lifecycle.topic_deletion import CHECK_AGAIN_MS, FENCE_STABLE_MS, why_it_stays
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from tests.support.lifecycle import EPOCH, NOW_MS, RO, TOPIC, TOPIC_ID, Life, facts, group, log, look, rule
from tests.support.stories import Steps, Story

NAME, ID = "orders-v2", "id-of-the-new-topic"
SEALS = {0: 10, 1: 0, 2: 7}
MOVED = {0: 3, 1: 0}
"""What a group has committed on the new topic."""


def record(**fields: Any) -> TopicRecord:
    """The record of a topic that is released, and may go at once."""
    about = {"requested_ms": 0, "delay_ms": 0, "new_topic_id": ID, "announced_ms": 1, "switched_ms": 2}
    since = {"own_configs": {}, "fenced_ms": NOW_MS - FENCE_STABLE_MS, "released_ms": NOW_MS - 1}
    now = Replacement(**{"new_topic": NAME, "num_partitions": 2, **about, **since, **fields})
    retired = {p: RetiredPartition(seal_offset=seal, seal_leader_epoch=3, read_up_to=seal) for p, seal in SEALS.items()}
    groups = ("billing",)
    return TopicRecord(TOPIC, TOPIC_ID, 5, EPOCH, (RO,) * 3, retired=retired, required_groups=groups, replacement=now)


def logs(**of_first: Any) -> dict[int, Any]:
    """The logs at their seals; the first one otherwise."""
    found = {p: log(seal, log_end=seal, read_up_to=seal) for p, seal in SEALS.items()}
    return {**found, 0: replace(found[0], **of_first)}


def new_topic(groups: dict[str, GroupFacts] | None = None, **more: Any) -> TopicFacts:
    found = {"billing": group(MOVED, members=True)} if groups is None else groups
    return TopicFacts(NAME, **{"topic_id": ID, "partition_count": 2, "groups": found, **more})


FENCE = FenceFacts(FENCE_CONFIGS, dict.fromkeys(SEALS, 3), frozenset(SEALS))


def seen(**others: Any) -> TopicFacts:
    """A look in which nothing speaks against the deletion."""
    return facts(
        3, **{"logs": logs(), "groups": {"billing": group(SEALS)}, "new_topic": new_topic(), "fence": FENCE, **others}
    )


def stays(
    found: TopicFacts, of: TopicRecord | None = None, *rules: GroupRule, now_ms: int = NOW_MS
) -> tuple[str, int | None] | None:
    of = record() if of is None else of
    requirement = requirement_of(of, found, rules, (), now_ms)
    return why_it_stays(of.replacement, of.retired, found, requirement, now_ms)


DENIED = ClusterError("grant WRITE", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
LAG = reasons.of_group(reasons.GROUP_LAG, "billing")
NOT_MOVED = reasons.of_group(reasons.GROUP_NOT_MOVED, "billing")
BACK = {**SEALS, 0: 9}


def test_nothing_speaks_against_it() -> None:
    assert stays(seen()) is None
    assert stays(seen(), record(delay_ms=NOW_MS)) is None


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"logs": {**logs(), 1: log(0)}, "partitions": {0: logs()[0]}}, reasons.UNAVAILABLE),
        ({"partition_count": 4}, reasons.UNAVAILABLE),
        ({"earlier_topic": "older"}, "earlier-topic-first:older"),
        ({"new_topic": TopicFacts(NAME, None, gone=True)}, reasons.NO_NEW_TOPIC),
        ({"new_topic": TopicFacts(NAME, None)}, reasons.UNAVAILABLE),
        ({"new_topic": new_topic(topic_id="another", gone=True)}, reasons.NO_NEW_TOPIC),
        ({"cleanup_policy": "compact"}, reasons.COMPACTED),
        ({"fence": None}, reasons.NOT_FENCED),
        ({"fence": replace(FENCE, failure=DENIED)}, reasons.FENCE_DENIED),
        ({"fence": replace(FENCE, failure=ClusterError("no"))}, reasons.NOT_FENCED),
        ({"fence": replace(FENCE, proved={0: 3, 1: 3})}, reasons.NOT_FENCED),
        ({"fence": replace(FENCE, proved={0: 2, 1: 3, 2: 3})}, reasons.NOT_FENCED),
        ({"logs": logs(last_stable_offset=9)}, reasons.OPEN_TRANSACTION),
        ({"logs": logs(log_end=11)}, reasons.END_NOT_READ),
        ({"logs": logs(log_end=None)}, reasons.END_NOT_READ),
        ({"logs": logs(log_end=11, end_offset=11, last_stable_offset=11)}, reasons.END_NOT_READ),
        ({"groups_doubt": GroupsDoubt("moved")}, reasons.GROUPS_UNKNOWN),
        ({"groups_doubt": GroupsDoubt("hidden", hidden=True)}, reasons.GROUPS_HIDDEN),
        ({"groups": {"billing": group(BACK)}}, LAG),
        ({"groups": {"billing": group({1: 0, 2: 7})}}, "group-never-committed:billing"),
        ({"groups": {"billing": group(SEALS), "late": group(SEALS)}}, "group-not-moved:late"),
        ({"new_topic": new_topic({})}, NOT_MOVED),
        ({"new_topic": new_topic({"billing": group({0: 3})})}, NOT_MOVED),
        ({"groups": {}, "new_topic": new_topic({})}, NOT_MOVED),
        ({"groups": {"billing": group(SEALS, members=True, subscribed=True)}}, "group-subscribed:billing"),
        ({"groups": {"billing": group(members=True, subscribed=True)}}, "group-never-committed:billing"),
    ],
)
def test_each_condition_alone_prevents_the_deletion(others: dict[str, Any], reason: str) -> None:
    found = stays(seen(**others))
    assert found[0] == reason


@pytest.mark.parametrize("fields", [{"fenced_ms": None}, {"fenced_ms": NOW_MS - FENCE_STABLE_MS + 1}])
def test_a_fence_that_has_not_been_in_force_for_long_keeps_it(fields: dict[str, Any]) -> None:
    found = stays(seen(), record(**fields))
    assert found[0] == reasons.NOT_FENCED
    assert found[1] == (NOW_MS + 1 if fields["fenced_ms"] else None)


def test_a_new_topic_that_was_found_deleted_stays_so_while_it_is_missing() -> None:
    """Whether a topic is gone takes a while to find out anew, after a takeover say."""
    missing, noted = TopicFacts(NAME, None), record(reason=reasons.NO_NEW_TOPIC)
    assert stays(seen(new_topic=missing), noted) == (reasons.NO_NEW_TOPIC, None)
    assert stays(seen(), noted) is None


def test_a_delay_counts_from_the_request() -> None:
    assert stays(seen(), record(delay_ms=NOW_MS + 5)) == (reasons.DELAY, NOW_MS + 5)


def test_without_a_delay_its_own_retention_has_to_empty_it_first() -> None:
    kept = record(delay_ms=None)
    assert stays(seen(), kept) == (reasons.RETENTION, None)
    emptied = {p: replace(each, log_start=SEALS[p]) for p, each in logs().items()}
    assert stays(seen(logs=emptied), kept) is None
    assert stays(seen(logs={**emptied, 2: logs()[2]}), kept) == (reasons.RETENTION, None)


def test_a_group_in_a_rebalance_is_looked_at_again_soon() -> None:
    rebalancing = ("group-rebalancing:other", NOW_MS + CHECK_AGAIN_MS)
    assert stays(seen(groups_doubt=GroupsDoubt("joins", rebalancing="other"))) == rebalancing
    groups = {"billing": group(SEALS), "other": group(SEALS, members=True, subscribed=None)}
    both = new_topic({"billing": group(MOVED), "other": group(MOVED)})
    assert stays(seen(groups=groups, new_topic=both)) == rebalancing


def test_a_waived_group_is_not_waited_for_but_while_it_is_subscribed() -> None:
    waive = rule("waive", "stock")
    assert stays(seen(groups={"billing": group(SEALS), "stock": group({0: 1})}), None, waive) is None
    subscribed = {"billing": group(SEALS), "stock": group({0: 1}, members=True, subscribed=True)}
    assert stays(seen(groups=subscribed), None, waive) == ("group-subscribed:stock", None)


def test_a_waiver_does_not_forgive_that_a_group_may_be_subscribed() -> None:
    """In a rebalance brokers do not say what a group consumes: until then its members may create the topic again."""
    rebalancing = {"stock": GroupsDoubt("group 'stock' is in a rebalance", rebalancing="stock")}
    later = ("group-rebalancing:stock", NOW_MS + CHECK_AGAIN_MS)
    assert stays(seen(unclear_groups=rebalancing), None, rule("waive", "stock")) == later
    unreadable = {"stock": GroupsDoubt("group 'stock' cannot be described")}
    assert stays(seen(unclear_groups=unreadable), None, rule("waive", "stock")) is None


def test_a_group_whose_offsets_have_expired_is_through_once_it_is_on_the_new_topic() -> None:
    assert stays(seen(groups={})) is None


DELETING = record(deleting_ms=NOW_MS, reason=reasons.DELETING)
DELETION = (DeleteOldTopic(TOPIC, TOPIC_ID, SEALS),)
GONE = TopicFacts(TOPIC, None, gone=True, new_topic=new_topic())
BROKEN = logs(end_offset=11, last_stable_offset=11, log_end=11, read_up_to=11)
LIFTED = seen(fence=FenceFacts(answered=frozenset(SEALS)))
SUBSCRIBED = {"billing": group(SEALS, members=True, subscribed=True)}
do = Steps()


def subscriber(members: bool, after_ms: int, held_up: int) -> Story:
    on_new_topic = new_topic({"billing": group(MOVED, members=True, subscribed=members)})
    reason = "group-subscribed:billing" if held_up else None
    return Story(
        do.look(
            seen(groups=SUBSCRIBED, new_topic=on_new_topic),
            NOW_MS + after_ms,
            effects=(),
            reason=reason,
            alarms=held_up,
        ),
        record=record(reason="delay"),
    )


STORIES = {
    "a record that is released in this pass is not deleted in it": Story(
        do.look(seen(), effects=(), released_ms=NOW_MS), record=record(released_ms=None)
    ),
    "the record says first that it is being deleted, and whose deletion it was": Story(
        do.look(seen(), effects=DELETION, deleting_ms=NOW_MS, reason=reasons.DELETING, alarms=0, phase="reclaim"),
        do.glance(seen(), NOW_MS + 5, appended=False, effects=DELETION),  # until it is gone, or something objects
        # Its leaders fall silent while it goes.
        do.glance(seen(partitions={}), NOW_MS + 5, appended=True, deleting_ms=NOW_MS, effects=()),
        do.look(GONE, NOW_MS + 9, alarms=0, gone_ms=NOW_MS + 9, reason=None, phase="done", in_progress=False),
        (do.has(seals=SEALS), do.is_an_alias_as_it_is()),  # the proof stays
        record=record(),
    ),
    "a deletion by another hand raises an alarm": Story(do.look(GONE, NOW_MS + 9, alarms=1), record=record()),
    "an objection takes the intent back": Story(
        do.look(seen(groups={"billing": group(BACK)}), NOW_MS + 5, effects=(), deleting_ms=None, reason=LAG),
        record=DELETING,
    ),
    "a record behind a seal takes the intent back": Story(
        do.look(seen(logs=BROKEN), NOW_MS + 5, appended=True, effects=(), deleting_ms=None, released_ms=None),
        record=DELETING,
    ),
    "a fence that is lifted is restored and settles anew": Story(
        do.look(LIFTED, effects=(FenceTopic(TOPIC, TOPIC_ID, FENCE_CONFIGS),), alarms=1, fenced_ms=None),
        do.look(seen(), NOW_MS + 5, effects=(), fenced_ms=NOW_MS + 5, due_ms=NOW_MS + 5 + FENCE_STABLE_MS),
        do.glance(seen(), NOW_MS + 4 + FENCE_STABLE_MS, effects=()),
        do.look(seen(), NOW_MS + 5 + FENCE_STABLE_MS, kinds=[DeleteOldTopic]),
        record=record(),
    ),
    "without a fence it is done once it is released": Story(
        (do.has(phase="done"), do.look(seen(fence=None), nothing=True)),
        record=record(fence="none", own_configs=None, fenced_ms=None),
    ),
    "a subscriber that is about to leave is no reason to wait": subscriber(True, 0, 0),
    "a subscriber is a reason to wait": subscriber(False, 0, 1),
    "a subscriber that has not left for long is a reason to wait": subscriber(True, COMING_MS, 1),
}


class DeletedLife(Life):
    def is_an_alias_as_it_is(self) -> None:
        assert record_after(self.record, NOW_MS) is self.record


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_deletion(story: Story) -> None:
    story.run(DeletedLife)


def test_group_that_is_made_anew_begins_where_it_says_once_a_controller_has_deleted_the_old_topic() -> None:
    """It had moved by then, or the topic would be there. Of a waived group that is not known."""
    noted = replace(record(), required_groups=("billing", "stopped"))
    begun = look(noted, seen(), rules=[rule("waive", "stopped")]).record
    assert begun is not None
    assert begun.waived == {"stopped": "because"}
    assert starts(begun) == [0, 0], "the old topic is there"
    assert starts(record_after(begun, NOW_MS)) == [None, 0]
    assert starts(record_after(noted, NOW_MS)) == [0, 0], "deleted by another hand: nothing is known"


def starts(record: TopicRecord | None) -> list[int | None]:
    assert record is not None
    return [start_on_new_topic(record.view(), group) for group in ("billing", "stopped")]
