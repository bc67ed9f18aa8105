"""Replacing a compacted topic: what is refused, and what waits for the evacuation of all its partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import alter_group_rules
from modeaware.lifecycle.commands import AlterGroupRulesCommand, DeleteOldTopic, ReplaceTopicCommand
from modeaware.lifecycle.drain import evacuation_group, evacuation_of, is_evacuation_group
from modeaware.lifecycle.facts import FenceFacts, GroupFacts, TopicFacts
from modeaware.lifecycle.objections import why_evacuate
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.lifecycle.topic_deletion import FENCE_STABLE_MS
from modeaware.modelog.group_rules import GroupRulesRecord
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from tests.support.lifecycle import (
    CONFIG,
    EPOCH,
    NOW_MS,
    RO,
    RW,
    TOPIC,
    TOPIC_ID,
    Life,
    facts,
    group,
    log,
    refusal,
    refuse_alias,
    rule,
    shrink,
)
from tests.support.stories import Steps, Story

NAME, ID, COUNT = "orders-v2", "id-of-the-new-topic", 2
SEALS = {0: 10, 1: 0, 2: 7}
PROOF = "modeaware-evacuation-orders-5"
COMMAND = ReplaceTopicCommand(TOPIC, NAME, COUNT, delay_ms=0, evacuate=True)
LATER_MS = NOW_MS + FENCE_STABLE_MS


def seen(ends: dict[int, int] | None = None, proof: dict[int, int] | None = None, **more: Any) -> TopicFacts:
    """A fenced compacted topic that group ``billing`` has read and left; ``proof``: of the evacuation."""
    ends = SEALS if ends is None else ends
    logs = {p: log(end, log_end=end, read_up_to=end) for p, end in ends.items()}
    groups = {"billing": group(ends)} | ({} if proof is None else {PROOF: group(proof)})
    fence = FenceFacts(FENCE_CONFIGS, dict.fromkeys(SEALS, 3), frozenset(SEALS))
    about = {"cleanup_policy": "compact", "groups": groups, "new_topic": new_topic(), "fence": fence}
    return facts(3, logs, **{**about, **more})


def new_topic(topic_id: str | None = ID, groups: dict[str, GroupFacts] | None = None, **more: Any) -> TopicFacts:
    found = {"billing": group(dict.fromkeys(range(COUNT), 0))} if groups is None else groups
    logs = {p: log() for p in range(COUNT)}
    return TopicFacts(NAME, topic_id, **{"partition_count": COUNT, "partitions": logs, "groups": found, **more})


def of_sealed(**fields: Any) -> TopicRecord:
    """The record of a topic that is sealed and not released yet."""
    since = {"announced_ms": 1, "switched_ms": 2, "own_configs": {}, "fenced_ms": NOW_MS}
    about = {"requested_ms": 0, "delay_ms": 0, "new_topic_id": ID, "evacuation_epoch": 5}
    retired = {p: RetiredPartition(seal_offset=seal, seal_leader_epoch=3, read_up_to=seal) for p, seal in SEALS.items()}
    now = Replacement(**{"new_topic": NAME, "num_partitions": COUNT, **since, **about, **fields})
    groups = ("billing",)
    return TopicRecord(TOPIC, TOPIC_ID, 8, EPOCH, (RO,) * 3, retired=retired, required_groups=groups, replacement=now)


def test_new_topic_of_a_compacted_topic_is_not_replaced_before_that_is_gone() -> None:
    """A straggler has to be copied to it."""
    onward = ReplaceTopicCommand(NAME, "orders-v3", 1, evacuate=True)
    done = of_sealed(released_ms=NOW_MS)
    with pytest.raises(RequestRefused, match="wait until 'orders' is deleted") as refused:
        refuse_alias(onward, TopicFacts(NAME, ID), [done], NOW_MS)
    assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    for through in (
        of_sealed(released_ms=NOW_MS, gone_ms=NOW_MS),
        of_sealed(released_ms=NOW_MS, evacuation_epoch=None),
    ):
        refuse_alias(onward, TopicFacts(NAME, ID), [through], NOW_MS)


@pytest.mark.parametrize(
    ("command", "policy", "code", "says"),
    [
        (COMMAND, "delete", ErrorCode.INVALID_REQUEST, "omit --evacuate"),
        (replace(COMMAND, configs={"cleanup.policy": "delete"}), "compact", ErrorCode.INVALID_REQUEST, "compacted too"),
        (replace(COMMAND, delay_ms=None), "compact", ErrorCode.INVALID_REQUEST, "(--delay;"),
    ],
)
def test_what_is_refused(command: ReplaceTopicCommand, policy: str, code: ErrorCode, says: str) -> None:
    found = refusal(command, seen=seen(cleanup_policy=policy, new_topic=TopicFacts(NAME, None)))
    assert found.code is code
    assert says in str(found)


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_compacted_topic_is_never_shrunk_and_refused_in_the_words_of_a_replacement(policy: str) -> None:
    compacted = seen(cleanup_policy=policy, new_topic=TopicFacts(NAME, None))
    found = [refusal(command, seen=compacted) for command in (shrink(1), replace(COMMAND, evacuate=False))]
    assert [each.code for each in found] == [ErrorCode.POLICY_VIOLATION] * 2
    assert [str(each) for each in found] == [f"topic {TOPIC!r}: {why_evacuate(policy)}"] * 2


@pytest.mark.parametrize("name", ["-orders-", "-orders-x", "-orders-1-5", "-orders", "-orders-2-7", "-orders-\u0661"])
def test_groups_of_evacuations_of_other_topics_are_groups_like_any_other(name: str) -> None:
    assert not is_evacuation_group("orders", "modeaware-evacuation" + name)
    assert not is_evacuation_group("orders", "x-modeaware-evacuation-orders-7")
    assert is_evacuation_group("orders", PROOF)


@pytest.mark.parametrize("name", [PROOF, "modeaware-evacuation-*", evacuation_group("other", 3)])
def test_evacuation_cannot_be_waived(name: str) -> None:
    with pytest.raises(RequestRefused, match="cannot be waived") as caught:
        alter_group_rules(GroupRulesRecord(), AlterGroupRulesCommand(add=(rule("waive", name),)), 1, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


ABSENT = seen(new_topic=TopicFacts(NAME, None))
EARLIER = TopicRecord(TOPIC, TOPIC_ID, 4, EPOCH, (RW,) * 3)
SWITCH_MS = NOW_MS + CONFIG.announce_ms
PROVED = seen(proof=SEALS)
LAGGING = replace(PROVED, groups={**PROVED.groups, "billing": group({0: 9, 1: 0, 2: 7})})
LATE_ENDS = {**SEALS, 0: 12}
MARKED = seen({**SEALS, 0: 11})
MARKED = replace(MARKED, partitions={**MARKED.partitions, 0: log(11, log_end=11, read_up_to=10)})
LOST = seen(proof=SEALS, new_topic=TopicFacts(NAME, None, gone=True))
ANEW = seen(proof=SEALS, new_topic=new_topic("another id"))
do = Steps()
STORIES = {
    "the evacuation is on the record, and the switch is made": Story(
        (do.ask(COMMAND, ABSENT), do.has(evacuation=PROOF), do.is_kept_by_the_log()),
        do.ask(replace(COMMAND, evacuate=False), ABSENT, appended=False),  # a repeat need not name it
        (do.look(seen()), do.look(seen()), do.look(seen(), SWITCH_MS, is_switched=True)),
        record=EARLIER,
    ),
    "the evacuation of a topic that is never deleted is on the record": Story(
        do.ask(
            replace(COMMAND, delay_ms=None, fence="none", configs={"cleanup.policy": "compact,delete"}),
            ABSENT,
            evacuation=PROOF,
        ),
        record=EARLIER,
    ),
    "a topic that is compacted after the admission is not switched, nor evacuated by a repeat": Story(
        do.ask(replace(COMMAND, evacuate=False), replace(ABSENT, cleanup_policy="delete")),
        do.refuses(COMMAND, ABSENT, None, "another evacuation (False)"),
        (do.look(seen(), SWITCH_MS), do.look(seen(), SWITCH_MS, reason=reasons.COMPACTED)),
        record=EARLIER,
    ),
    "it is released only once each partition with records is evacuated to its seal": Story(
        *[
            do.glance(seen(proof=proof), is_released=False, not_evacuated=True)
            for proof in (None, {0: 10}, {0: 10, 2: 6}, {1: 0})
        ],
        do.look(seen(proof={0: 10, 2: 7}), is_released=True, evacuated_to={0: 10, 1: None, 2: 7}),
    ),
    "the proof counts from the first look that shows it, whatever happens to it later": Story(
        do.look(LAGGING, is_released=False, first_reason=reasons.of_group(reasons.GROUP_LAG, "billing")),
        (do.look(seen(), is_released=True), do.look(seen(), LATER_MS, kinds=[DeleteOldTopic])),
    ),
    "it is not deleted without the proof": Story(
        do.glance(seen(), LATER_MS, effects=(), reason=reasons.NOT_EVACUATED),
        do.look(PROVED, LATER_MS, kinds=[DeleteOldTopic]),
        released_ms=NOW_MS,
    ),
    "a record behind a seal is evacuated as well": Story(
        (do.look(PROVED), do.look(seen(LATE_ENDS, SEALS), is_released=False, first_reason=reasons.NOT_EVACUATED)),
        (do.has(evacuated_to={0: 10, 1: None, 2: 7}), do.look(seen(LATE_ENDS, {0: 12}), is_released=True)),
    ),
    "markers behind a seal leave it evacuated": Story(
        (do.look(PROVED), do.look(MARKED, is_released=True, seals={0: 11, 1: 0, 2: 7})),
        do.has(evacuated_to={0: 11, 1: None, 2: 7}),
    ),
    "markers are no proof": Story(
        do.look(replace(MARKED, groups={"billing": group(SEALS)}), evacuated_to={0: None, 1: None, 2: None})
    ),
    "the copies and the proof are gone once the new topic has been created again": Story(
        do.look(replace(PROVED, new_topic=new_topic(groups={})), evacuated_to={0: 10, 1: None, 2: 7}),
        (do.look(LOST), do.look(LOST), do.look(ANEW, new_topic_id="another id", is_released=False)),
        do.has(evacuated_to={0: None, 1: None, 2: None}, first_reason=reasons.NOT_EVACUATED, is_another_proof=True),
        do.glance(ANEW, phase="drain"),
        do.is_proved_by_its_own_group(ANEW),  # the group of the earlier proof is no reader
    ),
}


class EvacuatedLife(Life):
    shown = Life.shown | {
        "evacuation": evacuation_of,
        "evacuated_to": lambda record: {p: each.evacuated_to for p, each in record.retired.items()},
        "not_evacuated": lambda record: reasons.NOT_EVACUATED in {each.reason for each in record.retired.values()},
        "is_another_proof": lambda record: evacuation_of(record) not in (None, PROOF),
    }

    def __init__(self, record: TopicRecord | None = None, **fields: Any) -> None:
        super().__init__(record or of_sealed(**fields))

    def is_proved_by_its_own_group(self, seen: TopicFacts) -> None:
        groups = {**seen.groups, str(evacuation_of(self.record)): group(SEALS)}
        self.look(replace(seen, groups=groups), is_released=True)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_evacuated(story: Story) -> None:
    story.run(EvacuatedLife)
