"""Replacing a topic: what is refused, one replacement from the request to its end, and what clients make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.chain import chain_views, written_topic
from modeaware.clients.starts import start_on_new_topic
from modeaware.controller.admitted import effects_to_come
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.alias import record_after
from modeaware.lifecycle.commands import (
    CreatePartitionsCommand,
    CreateTopic,
    DeleteOldTopic,
    DeleteTopic,
    FenceTopic,
    RemoveConfigs,
    ReplaceTopicCommand,
)
from modeaware.lifecycle.drain import noted_groups
from modeaware.lifecycle.facts import FenceFacts, GroupsDoubt, TopicFacts, WriterFacts
from modeaware.lifecycle.replacement import (
    COMING_MS,
    FENCE_CONFIGS,
    NO_FENCE,
    SEARCH_AGAIN_MS,
    give_up_new_topic,
)
from modeaware.lifecycle.state import in_progress, topic_phase
from modeaware.lifecycle.topic_deletion import CHECK_AGAIN_MS
from modeaware.modelog.records import (
    MAX_RECORD_BYTES,
    DeleteTopicPartitions,
    OpeningPartition,
    Replacement,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modes import ReplicaState
from modeaware.topic_view import TopicView
from tests.support.lifecycle import (
    CONFIG,
    EPOCH,
    NONE,
    NOW_MS,
    QUIET_MS,
    RO,
    RW,
    TOPIC,
    TOPIC_ID,
    Life,
    admitted,
    after,
    ask,
    facts,
    group,
    grow,
    log,
    refuse_alias,
    shrink,
)
from tests.support.lifecycle import look as step
from tests.support.lifecycle import refusal as refused
from tests.support.stories import Steps, Story

ANNOUNCE_MS = CONFIG.announce_ms
NAME, ID = "orders-v2", "id-of-the-new-topic"
ABSENT = TopicFacts(NAME, None)
COMMAND = ReplaceTopicCommand(TOPIC, NAME, 2)
ENDS = {0: 10, 1: 0, 2: 7}
DENIED = ClusterError("grant WRITE", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def new_topic(count: int = 2, ends: int = 0, **more: Any) -> TopicFacts:
    return TopicFacts(NAME, ID, partition_count=count, partitions={p: log(ends) for p in range(count)}, **more)


def seen(found: TopicFacts = ABSENT, *, fenced: bool = False, **more: Any) -> TopicFacts:
    """The old topic: three partitions, and group ``billing``, which has read them."""
    ends = {p: log(end, log_end=end, read_up_to=end) for p, end in ENDS.items()}
    answered = frozenset(ENDS)
    fence = FenceFacts(FENCE_CONFIGS, dict.fromkeys(ENDS, 3), answered) if fenced else FenceFacts(answered=answered)
    return facts(3, ends, **{"groups": {"billing": group(ENDS)}, "new_topic": found, "fence": fence, **more})


def replacement(record: TopicRecord) -> Replacement:
    assert record.replacement is not None
    return record.replacement


DONE = RetiredPartition(replica_state=ReplicaState.DELETION_SUCCESSFUL, seal_offset=7, seal_leader_epoch=3)


def shrunk(retired: dict[int, RetiredPartition], **fields: Any) -> TopicRecord:
    """The record of a topic that was shrunk from three partitions to two."""
    about = {"delay_ms": 0, "immediate_delete": False, "create_timestamp_ms": 0, "previous_count": 3}
    deletion = DeleteTopicPartitions(2, **{**about, **fields})
    mode = NONE if retired[2].seal_offset is not None else RO
    return TopicRecord(TOPIC, TOPIC_ID, 4, EPOCH, (RW, RW, mode), deletion=deletion, retired=retired)


def noted(record: TopicRecord, **fields: Any) -> TopicRecord:
    """The record with this of its replacement."""
    return replace(record, replacement=replace(replacement(record), **fields))


BEGUN = admitted(COMMAND, seen=seen())
ANNOUNCED = after(BEGUN, seen(new_topic()), NOW_MS)
SWITCH_MS, LATER_MS = NOW_MS + ANNOUNCE_MS, NOW_MS + 60_000
SWITCHED = after(ANNOUNCED, seen(new_topic()), SWITCH_MS)
READ = noted(SWITCHED, own_configs={})
"""Switched, and what configs the topic had before its fence is known."""
PAUSED = replace(COMMAND, pause_before_switch=True)
READY, FENCED = seen(new_topic()), seen(new_topic(), fenced=True)
MOVED = new_topic(groups={"billing": group({0: 0, 1: 0})})
MOVED_FENCED = seen(MOVED, fenced=True)
NOT_FENCED_YET = FenceFacts(answered=frozenset({0, 1}))
DENIED_FENCE = seen(new_topic(), fence=FenceFacts(failure=DENIED))
GONE = replace(seen(new_topic()), topic_id=None, gone=True)
ANOTHER = replace(GONE, topic_id="another")
NOT_MOVED = reasons.of_group(reasons.GROUP_NOT_MOVED, "billing")
SETTLING = GroupsDoubt("?", rebalancing="g")
MANY_GROUPS = {"billing": group(ENDS)} | {f"{n:05d}-{'x' * 240}": group(ENDS) for n in range(4_000)}
MANY_MOVED = seen(new_topic(groups=dict.fromkeys(MANY_GROUPS, group({0: 0, 1: 0}))), fenced=True, groups=MANY_GROUPS)
SHRUNK = {2: replace(DONE, seal_offset=5)}
QUIET = seen(new_topic(), partitions={**seen().partitions, 2: log(5, 5)})
STRAGGLER = replace(QUIET, partitions={**QUIET.partitions, 2: log(7, 5)})
LOST = seen(replace(ABSENT, gone=True))
OTHER = replace(new_topic(ends=4), topic_id="id-3")
ANEW = replace(OTHER, partitions=new_topic().partitions)
ZSTD = seen(new_topic(), fence=FenceFacts({"compression.type": "zstd"}))
SEAL_MS = SWITCH_MS + QUIET_MS
LATE_GROUP = {"billing": group(ENDS), "late": group({0: 10})}
NOT_REPLICATED = replace(MOVED_FENCED, partitions={**seen().partitions, 0: log(10, log_end=11, read_up_to=10)})
EMPTIED = {p: replace(each, log_start=each.end_offset) for p, each in MOVED_FENCED.partitions.items()}
BEHIND_SEAL = {**MOVED_FENCED.partitions, 0: log(11, log_end=11, read_up_to=11)}
SEARCHING = replace(
    MOVED_FENCED, partitions={p: replace(each, read_up_to=None) for p, each in MOVED_FENCED.partitions.items()}
)
MARKERS = {p: log(end + 1, log_end=end + 1, read_up_to=end) for p, end in ENDS.items()}
ONLY_MARKERS = replace(FENCED, partitions=MARKERS)
WRITTEN = replace(FENCED, partitions={p: replace(each, read_up_to=each.end_offset) for p, each in MARKERS.items()})
STATEFUL = {"billing": group(ENDS), "s": group(ENDS, stateful=True)}
UNKNOWN = {"groups": {}, "groups_doubt": GroupsDoubt("the coordinators have moved")}
AWAY = {p: each for p, each in MOVED_FENCED.partitions.items() if p != 1}
ON_NEW = {"new": group({0: 0})}
UNREAD = GroupsDoubt("group 'billing' cannot be judged: its offsets cannot be read: COORDINATOR_LOAD_IN_PROGRESS")
do = Steps()


def coming(found: dict[str, Any], reason: str) -> Story:
    doubtful, late_ms = seen(replace(new_topic(), **found)), replacement(BEGUN).requested_ms + COMING_MS
    return Story(
        (do.look(doubtful, late_ms - 1, nothing=True), do.look(doubtful, late_ms, reason=reason)),
        do.look(READY, late_ms, new_topic_id=ID, reason=None),
        record=BEGUN,
    )


def overridden(configs: dict[str, str], *removed: str) -> Story:
    kept = seen(new_topic(configs={**NO_FENCE, **configs}))
    effects = (RemoveConfigs(NAME, ID, removed, TOPIC_ID),)
    return Story(
        do.look(kept, appended=False, tombstone=False, due_ms=None, alarms=0, effects=effects),
        do.look(seen(new_topic(configs=configs)), new_topic_id=ID),
        record=admitted(replace(COMMAND, configs=configs), seen=seen()),
    )


STORIES = {
    "partitions that a shrink retired are watched until the switch and resume after it": Story(
        (do.ask(PAUSED, replace(QUIET, new_topic=ABSENT)), do.look(QUIET, modes=(RW, RW, NONE))),
        # Readable again.
        do.look(STRAGGLER, SWITCH_MS, modes=(RW, RW, RO), newer=True, alarms=1, reason=reasons.PAUSED),
        (do.has(stragglers=1), do.ask(COMMAND, STRAGGLER), do.look(STRAGGLER, SWITCH_MS, is_switched=True)),
        do.has(resume_offsets={2: 7}, stragglers=1, first=RetiredPartition()),  # groups have read it to there
        record=shrunk(SHRUNK),
    ),
    "groups that a shrink has noted stay required until the switch, and after an undo": Story(
        (do.ask(PAUSED, replace(QUIET, new_topic=ABSENT)), do.look(QUIET), do.look(STRAGGLER, SWITCH_MS)),
        (do.look(STRAGGLER, LATER_MS), do.look(STRAGGLER, LATER_MS)),
        do.has(reasons={reasons.of_group(reasons.GROUP_GONE, "away")}, required_groups=("away", "billing")),
        (
            do.ask(replace(COMMAND, undo=True), STRAGGLER),
            do.look(replace(STRAGGLER, new_topic=replace(ABSENT, gone=True))),
        ),
        do.has(is_replaced=False, required_groups=("away", "billing"), waived={"late": "it is old"}),
        record=replace(shrunk(SHRUNK), required_groups=("away", "billing"), waived={"late": "it is old"}),
    ),
    "groups that only a shrink has noted are not those of the replacement": Story(
        (
            do.ask(COMMAND, replace(QUIET, new_topic=ABSENT)),
            do.look(QUIET),
            do.look(QUIET, SWITCH_MS, is_switched=True),
        ),
        do.has(required_groups=("billing",), waived={}),
        record=replace(shrunk(SHRUNK), required_groups=("away", "billing"), waived={"late": "it is old"}),
    ),
    "a topic that comes up under the name raises one alarm": Story(
        (do.look(GONE, changed=True), do.look(ANOTHER, alarm="another topic has the name of the alias")),
        (do.look(ANOTHER, nothing=True), do.look(replace(ANOTHER, topic_id=None), appended=True, alarms=0)),
        do.has(reason=None),
        record=SWITCHED,
    ),
    "the new topic is created again if it was deleted after the switch": Story(
        do.look(seen(ABSENT), SWITCH_MS, reason=reasons.UNAVAILABLE, alarms=0),
        do.look(LOST, SWITCH_MS, reason=reasons.NEW_TOPIC_GONE, alarm="creating it again"),
        do.look(LOST, SWITCH_MS, appended=False, alarms=0, effects=(CreateTopic(TOPIC, TOPIC_ID, NAME, 2, -1),)),
        do.glance(seen(OTHER), SWITCH_MS, effects=()),
        # Groups may have offsets on its name.
        do.glance(seen(replace(ANEW, groups_doubt=GroupsDoubt("a coordinator is away"))), SWITCH_MS, appended=False),
        do.glance(
            seen(replace(ANEW, configs=NO_FENCE)),
            SWITCH_MS,
            effects=(RemoveConfigs(NAME, "id-3", tuple(NO_FENCE), TOPIC_ID),),
        ),
        # The name points there.
        (do.look(seen(ANEW), SWITCH_MS, new_topic_id="id-3", reason=None), do.keeps_its_new_topic()),
        record=replace(SWITCHED, groups_complete=True),
    ),
    "a new topic that was replaced in turn, and is gone, is not created again": Story(
        # Producers of the old topic's name would write to it, and its own producers to the topic after it.
        do.look(replace(seen(ABSENT), new_topic_replaced=True), SWITCH_MS, reason=reasons.UNAVAILABLE, alarms=0),
        do.look(
            replace(LOST, new_topic_replaced=True), SWITCH_MS, reason=reasons.NO_NEW_TOPIC, alarm="this topic stays"
        ),
        do.look(replace(LOST, new_topic_replaced=True), SWITCH_MS, appended=False, effects=()),
        record=replace(SWITCHED, groups_complete=True),
    ),
    "the new topic is announced once each of its leaders has answered": Story(
        do.look(seen(replace(new_topic(), partitions={0: log()})), changed=False),
        do.look(READY, announced_ms=NOW_MS),
        record=BEGUN,
    ),
    "the partitions of the new topic that are unknown are told after a while": coming(
        {"partitions": {0: log()}}, reasons.UNAVAILABLE
    ),
    "groups that may be on the new topic are told after a while": coming(
        {"groups_doubt": GroupsDoubt("group 'share' has an unknown type")}, reasons.GROUPS_UNKNOWN
    ),
    "what overrides a fence is removed before the announcement": overridden({}, *NO_FENCE),
    "what overrides a fence and is wanted stays": overridden(
        {"compression.type": NO_FENCE["compression.type"]}, "max.message.bytes"
    ),
    "a new topic on which groups have offsets of an earlier topic is not announced": Story(
        # Its first records lie before them, and these groups would skip those.
        do.glance(seen(new_topic(groups_doubt=UNREAD)), changed=False),
        do.glance(
            seen(new_topic(groups={"billing": group({0: 0, 1: 208}), **ON_NEW})),
            is_replaced=False,
            alarm=f"groups have offsets on '{NAME}' from an earlier topic of that name: billing. ",
        ),
        do.look(seen(new_topic(groups=ON_NEW)), new_topic_id=ID),
        record=BEGUN,
    ),
    "a replacement goes through its phases": Story(
        (do.has(phase="create"), do.is_kept_by_the_log()),
        do.look(seen(), appended=False, effects=(CreateTopic(TOPIC, TOPIC_ID, NAME, 2, -1),)),
        do.look(READY, phase="announce", new_topic_id=ID),
        (do.look(READY, SWITCH_MS - 1, appended=False), do.look(READY, SWITCH_MS)),
        do.has(modes=(RO,) * 3, required_groups=("billing",), groups_complete=False),
        do.glance(seen(new_topic(), groups=LATE_GROUP), SWITCH_MS, groups_seen=({"billing", "late"}, True)),
        (do.look(READY, SWITCH_MS), do.look(READY, SEAL_MS - 1, appended=False)),
        do.look(ZSTD, SEAL_MS, own_configs={"compression.type": "zstd", "max.message.bytes": None}),
        do.glance(ZSTD, SEAL_MS, effects=(FenceTopic(TOPIC, TOPIC_ID, FENCE_CONFIGS),)),
        do.look(FENCED, SEAL_MS, phase="drain", reason=NOT_MOVED, seals=ENDS),
        do.has(is_switched=True, is_released=False, read_up_to=ENDS, groups_seen=({"billing"}, True)),
        # What is not replicated yet may be acknowledged.
        do.glance(NOT_REPLICATED, SEAL_MS, reason=reasons.NOT_FENCED, released_ms=None),
        do.look(MOVED_FENCED, SEAL_MS, phase="reclaim", in_progress=True, released_ms=SEAL_MS),
        do.look(MOVED_FENCED, SEAL_MS, reason=reasons.RETENTION, fields={"reason"}),
        do.look(MOVED_FENCED, SEAL_MS, appended=False),
        record=BEGUN,
    ),
    "groups are not complete by a listing while the topic does not answer": Story(
        do.look(seen(new_topic(), groups={}, partitions={}), SWITCH_MS, appended=True, groups_complete=False),
        record=SWITCHED,
    ),
    "an incomplete list of groups prevents the release even if retention has emptied the topic": Story(
        do.look(replace(MOVED_FENCED, partitions=EMPTIED, groups_doubt=GroupsDoubt("?")), LATER_MS, phase="drain"),
        do.has(reason=reasons.GROUPS_UNKNOWN),
        record=READ,
    ),
    "a record behind a seal is drained though the fence is proved again in the same pass": Story(
        do.look(MOVED_FENCED, LATER_MS, phase="reclaim"),
        do.look(replace(MOVED_FENCED, partitions=BEHIND_SEAL), NOW_MS + 61_000, released_ms=None),
        # Gates wait for it, too.
        do.has(seals={**ENDS, 0: 11}, read_up_to={**ENDS, 0: 11}),
        do.has(first_reason=reasons.of_group(reasons.GROUP_LAG, "billing")),
        record=READ,
    ),
    "only markers behind a seal break nothing": Story(
        do.look(FENCED, LATER_MS, appended=True),
        do.glance(ONLY_MARKERS, LATER_MS, appended=True, alarms=0, new_topic_stays=True),
        do.glance(WRITTEN, LATER_MS, alarms=3, first_alarm="written at or after the seal"),
        record=READ,
    ),
    "the switch waits for what a person has to decide": Story(
        *[
            (do.glance(found, SWITCH_MS, reason=reason, switched_ms=None),)
            for found, reason in (
                (seen(new_topic(), groups_doubt=GroupsDoubt("?")), reasons.GROUPS_UNKNOWN),
                (seen(new_topic(), groups_doubt=SETTLING), reasons.of_group(reasons.GROUP_REBALANCING, "g")),
                (
                    seen(new_topic(), groups={"s": group({0: 1}, stateful=True)}),
                    reasons.of_group(reasons.GROUP_STATEFUL, "s"),
                ),
                (seen(new_topic(), cleanup_policy="compact"), reasons.COMPACTED),
                (seen(new_topic(), fence=NOT_FENCED_YET), reasons.FENCE_UNKNOWN),
                (seen(new_topic(), fence=None), reasons.FENCE_UNKNOWN),
                (DENIED_FENCE, reasons.FENCE_DENIED),
            )
        ],
        (do.ask(PAUSED, READY), do.look(READY, SWITCH_MS, reason=reasons.PAUSED)),
        do.ask(COMMAND, READY, pause_before_switch=False),
        record=ANNOUNCED,
    ),
    "groups are listed again soon while one is in a rebalance, and that is no alarm": Story(
        do.glance(seen(new_topic(), groups_doubt=SETTLING), LATER_MS, due_ms=LATER_MS + CHECK_AGAIN_MS, alarms=0),
        do.glance(seen(new_topic(), groups_doubt=GroupsDoubt("?")), LATER_MS, due_ms=None),
        do.look(seen(new_topic(), groups_doubt=SETTLING), appended=True),
        # What is over is not shown.
        do.look(READY, NOW_MS + 1, appended=True, reason=None, switched_ms=None),
        record=ANNOUNCED,
    ),
    "a replacement without a fence needs no probe": Story(
        [do.look(seen(new_topic(), fence=None), at_ms) for at_ms in (SWITCH_MS, SWITCH_MS, SWITCH_MS + ANNOUNCE_MS)],
        do.has(is_switched=True),
        record=admitted(replace(COMMAND, fence="none"), seen=seen()),
    ),
    "a fence that may not be probed raises one alarm that names the right": Story(
        (do.look(DENIED_FENCE, SWITCH_MS, alarm="grant WRITE"), do.look(DENIED_FENCE, SWITCH_MS, alarms=0)),
        record=ANNOUNCED,
    ),
    "a fence that may not be probed after the switch raises one alarm": Story(
        do.look(DENIED_FENCE, SWITCH_MS, first_reason=reasons.FENCE_DENIED, alarms=1),
        do.look(DENIED_FENCE, SWITCH_MS, alarms=0),
        record=replace(READ, groups_complete=True),
    ),
    "configs that may not be read are not noted as unset": Story(
        do.look(DENIED_FENCE, NOW_MS + 120_000, effects=(), own_configs=None),
        record=replace(SWITCHED, groups_complete=True),
    ),
    "it is released once the last record of each partition is known": Story(
        do.look(SEARCHING, LATER_MS, reason=reasons.END_NOT_READ, due_ms=NOW_MS + 61_000),
        do.look(MOVED_FENCED, NOW_MS + 61_000, is_released=True),
        record=READ,
    ),
    "the switch waits for room for the groups and can be undone meanwhile": Story(
        do.look(seen(new_topic(), groups=MANY_GROUPS), SWITCH_MS, switched_ms=None, reason=reasons.GROUPS_TOO_MANY),
        do.would_ask(replace(COMMAND, undo=True), seen(new_topic(), groups=MANY_GROUPS), undone_ms=NOW_MS),
        do.look(READY, SWITCH_MS, is_switched=True),
        record=ANNOUNCED,
    ),
    "groups that come after the switch and do not fit delay the deletion": Story(
        (do.look(MANY_MOVED, LATER_MS), do.look(MANY_MOVED, LATER_MS)),
        do.has(groups_complete=False, released_ms=None, reasons={reasons.GROUPS_TOO_MANY, None}),
        (do.look(MOVED_FENCED, LATER_MS), do.look(MOVED_FENCED, LATER_MS)),
        do.has(groups_complete=True, released_ms=LATER_MS),
        record=READ,
    ),
    "an undo deletes an untouched new topic by its id, and not after the switch": Story(
        do.ask(replace(COMMAND, undo=True), READY),
        do.glance(READY, effects=(DeleteTopic(TOPIC, TOPIC_ID, NAME, ID),)),
        do.glance(seen(new_topic(ends=1)), effects=(), is_replaced=False, alarms=1),
        do.look(LOST, appended=True),
        record=ANNOUNCED,
    ),
    "a topic of the name with records is not taken for the new topic": Story(
        do.look(seen(new_topic(ends=1)), is_replaced=False, first_alarm="another topic"), record=BEGUN
    ),
    "a topic that was released is kept so whatever is known of groups and leaders": Story(
        do.look(MOVED_FENCED, LATER_MS, phase="reclaim", released_ms=LATER_MS),
        do.glance(seen(MOVED, fenced=True, **UNKNOWN), LATER_MS, appended=True, released_ms=LATER_MS),
        do.look(seen(MOVED, fenced=True, **UNKNOWN, partitions=AWAY), LATER_MS, phase="reclaim", reasons={None}),
        record=READ,
    ),
    "state that was given up by name holds nothing up": Story(
        do.look(seen(new_topic(), fenced=True, groups=STATEFUL), LATER_MS),
        do.has(first_reason=reasons.of_group(reasons.GROUP_STATEFUL, "s")),
        do.ask(replace(COMMAND, accept_state_loss=("s",)), seen(new_topic(), groups=STATEFUL)),
        do.look(seen(new_topic(), fenced=True, groups=STATEFUL), LATER_MS, appended=True, first_reason=None),
        record=READ,
    ),
    "a fence is not put on by a repeat": Story(
        do.refuses(COMMAND, seen(), None, "another fence ('none')"),
        record=admitted(replace(COMMAND, fence="none"), seen=seen()),
    ),
    "a switch that was made is not paused, undone or changed": Story(
        do.refuses(PAUSED, READY, None, "too late to pause before the switch"),
        do.refuses(replace(COMMAND, undo=True), READY, ErrorCode.REASSIGNMENT_IN_PROGRESS),
        [do.refuses(other, READY, None, "change that topic") for other in (shrink(2), grow(6))],
        record=SWITCHED,
    ),
    "a topic that is replaced is not changed": Story(
        [
            do.refuses(other, seen(), ErrorCode.REASSIGNMENT_IN_PROGRESS, "undo it (modeaware replace --undo)")
            for other in (shrink(2), grow(6))
        ],
        [
            do.refuses(replace(COMMAND, **other), seen(), ErrorCode.REASSIGNMENT_IN_PROGRESS)
            for other in ({"new_topic": "other"}, {"num_partitions": 3})
        ],
        record=BEGUN,
    ),
    "what a repeat leaves out stays as it is": Story(
        do.ask(COMMAND, seen(), appended=False),
        do.ask(replace(COMMAND, configs={"retention.ms": "1"}), seen(), appended=False),
        record=admitted(
            replace(COMMAND, replication_factor=3, configs={"retention.ms": "1", "retention.bytes": "9"}, delay_ms=5),
            seen=seen(),
        ),
    ),
    "configs of the fence may be copied anew by a repeat: the old topic has them by now": Story(
        do.ask(replace(COMMAND, configs={"retention.ms": "1", **FENCE_CONFIGS}), seen(), appended=False),
        record=noted(admitted(replace(COMMAND, configs={"retention.ms": "1"}), seen=seen()), own_configs={}),
    ),
}


class ReplacedLife(Life):
    def keeps_its_new_topic(self) -> None:
        assert give_up_new_topic(self.record) is None


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (admitted(shrink(2), seen=seen()), "topic 'orders'"),
        (shrunk({2: RetiredPartition()}), "another change"),
        (TopicRecord(TOPIC, TOPIC_ID, 4, EPOCH, (RW, RW, RO), opening={2: OpeningPartition()}), "another change"),
    ],
    ids=["begun", "retired", "new"],
)
def test_a_topic_that_is_being_changed_is_refused(record: TopicRecord, says: str) -> None:
    refusal = refused(COMMAND, record, seen())
    assert refusal.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert says in str(refusal)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_replacement(story: Story) -> None:
    story.run(ReplacedLife)


@pytest.mark.parametrize(
    ("command", "found", "code", "says"),
    [
        (replace(COMMAND, new_topic=""), seen(), ErrorCode.INVALID_TOPIC_EXCEPTION, "invalid topic name ''"),
        (
            replace(COMMAND, new_topic="", num_partitions=0),
            seen(),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "invalid topic name",
        ),
        (replace(COMMAND, new_topic="a b"), seen(), ErrorCode.INVALID_TOPIC_EXCEPTION, "invalid topic name"),
        (replace(COMMAND, new_topic=".."), seen(), ErrorCode.INVALID_TOPIC_EXCEPTION, "invalid topic name"),
        (replace(COMMAND, new_topic="x" * 250), seen(), ErrorCode.INVALID_TOPIC_EXCEPTION, "1 to 249 letters"),
        (replace(COMMAND, num_partitions=10**6), seen(), ErrorCode.INVALID_PARTITIONS, "1 to 100000"),
        (replace(COMMAND, delay_ms=-2), seen(), ErrorCode.INVALID_REQUEST, "0 or more"),
        (COMMAND, seen(topic_id=None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (COMMAND, seen(partitions={0: log()}), ErrorCode.LEADER_NOT_AVAILABLE, "check the brokers"),
        (replace(COMMAND, num_partitions=0), seen(), ErrorCode.INVALID_PARTITIONS, "1 to 100000"),
        (replace(COMMAND, new_topic=TOPIC), seen(), ErrorCode.INVALID_REQUEST, "a name of its own"),
        (replace(COMMAND, fence="wall"), seen(), ErrorCode.INVALID_REQUEST, "one of config, none"),
        (replace(COMMAND, undo=True), seen(), ErrorCode.INVALID_REQUEST, "nothing to undo"),
        (COMMAND, seen(new_topic()), ErrorCode.TOPIC_ALREADY_EXISTS, "choose another name"),
        (COMMAND, seen(internal=True), ErrorCode.INVALID_TOPIC_EXCEPTION, "internal"),
        (COMMAND, seen(cleanup_policy="compact"), ErrorCode.POLICY_VIOLATION, "--evacuate"),
        (COMMAND, seen(groups={"s": group({0: 1}, stateful=True)}), ErrorCode.POLICY_VIOLATION, "--accept-state-loss"),
        (COMMAND, seen(stateful_owner="app"), ErrorCode.POLICY_VIOLATION, "Streams application 'app'"),
    ],
)
def test_what_cannot_be_replaced_is_refused_with_a_code_and_what_to_do(
    command: ReplaceTopicCommand, found: TopicFacts, code: ErrorCode, says: str
) -> None:
    refusal = refused(command, seen=found)
    assert refusal.code is code
    assert says in str(refusal)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"num_partitions": 3}, "number of partitions (2)"),
        ({"replication_factor": 3}, "replication factor (-1)"),
        ({"configs": {"retention.ms": "1"}}, "set of configs"),
        ({"delay_ms": 5}, "another delay (none)"),
        ({"fence": "none"}, "fence ('config')"),
        ({"configs": FENCE_CONFIGS}, "set of configs"),
    ],
)
def test_a_repeat_with_other_settings_is_refused(fields: dict[str, Any], says: str) -> None:
    for record, remedy in ((admitted(COMMAND, seen=seen()), "--undo"), (SWITCHED, "with the same options")):
        refusal = refused(replace(COMMAND, **fields), record, seen(new_topic()))
        assert refusal.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert says in str(refusal)
        assert remedy in str(refusal)
        assert ask(COMMAND, record, seen(new_topic())).record is None, "the same one changes nothing"


@pytest.mark.parametrize(
    ("found", "is_it"),
    [
        ({"configs": {"retention.ms": "1", "cleanup.policy": "compact,delete"}, "replication_factor": 3}, True),
        ({"configs": {"retention.ms": "1"}}, False),
        ({"configs": {"retention.ms": "1", "cleanup.policy": "compact,delete", "max.message.bytes": "9"}}, False),
        ({"replication_factor": 1}, False),
        ({"partition_count": 3, "partitions": {p: log() for p in range(3)}}, False),
    ],
)
def test_only_a_topic_exactly_as_intended_is_the_new_topic(found: dict[str, Any], is_it: bool) -> None:
    configs = {"retention.ms": "1", "cleanup.policy": "Compact, delete"}
    command = replace(COMMAND, configs=configs, replication_factor=3)
    after = step(admitted(command, seen=seen()), seen(replace(new_topic(), **found)), NOW_MS).record
    assert (after.replacement is not None) is is_it


@pytest.mark.parametrize(
    ("found", "becomes_alias"),
    [
        (new_topic(ends=4), True),
        (replace(new_topic(ends=4), topic_id="another"), False),
        (new_topic(), False),
        (replace(ABSENT, gone=True), False),
        (ABSENT, None),
        (replace(new_topic(ends=4), partitions={}), None),
    ],
)
def test_deleted_topics_name_becomes_an_alias_even_by_a_record_older_than_the_switch(
    found: TopicFacts, becomes_alias: bool | None
) -> None:
    """The mode log was restored: that the new topic has records shows that the old topic's name pointed to it."""
    announced = step(admitted(COMMAND, seen=seen()), seen(new_topic()), NOW_MS).record
    assert announced is not None
    after = step(announced, replace(seen(found), topic_id=None, gone=True), NOW_MS)
    assert after.tombstone is (becomes_alias is False)
    assert (after.record is not None) is (becomes_alias is True)
    if after.record is not None:
        view = after.record.view().replaced_by
        assert (view.topic, view.switched, view.released) == (NAME, True, True)
        assert after.record.modes == (RO,) * 3
        (alarm,) = after.alarms
        assert f"its name points to '{NAME}'" in alarm
    undone = replace(announced, replacement=replace(replacement(announced), undone_ms=NOW_MS))
    assert step(undone, replace(seen(found), topic_id=None, gone=True), NOW_MS).tombstone


@pytest.mark.parametrize(("members", "after_ms", "held_up"), [(True, 0, 0), (False, 0, 1), (True, COMING_MS, 1)])
def test_a_group_whose_members_are_on_the_new_topic_is_given_a_while(
    members: bool, after_ms: int, held_up: int
) -> None:
    """Then it is what holds the replacement up, with an alarm: its members may be stuck, or be gone by then."""
    record = READ
    coming = seen(new_topic(groups={"billing": group({0: 0}, members=members)}), fenced=True)
    now_ms = (replacement(record).switched_ms or 0) + after_ms
    found = step(record, coming, now_ms)
    assert found.record is not None
    reason = reasons.of_group(reasons.GROUP_NOT_MOVED, "billing") if held_up else None
    assert (replacement(found.record).reason, replacement(found.record).released_ms) == (reason, None)
    assert len([alarm for alarm in found.alarms if "has no offset on the new topic" in alarm]) == held_up
    if not held_up:
        assert found.due_ms == now_ms + SEARCH_AGAIN_MS


@pytest.mark.parametrize(
    ("quiet_ms", "writers", "reason"),
    [
        (0, (), None),
        (QUIET_MS, (), reasons.OPEN_TRANSACTION),
        (0, (WriterFacts(77, 1, transaction_start=4),), reasons.OPEN_TRANSACTION),
    ],
    ids=["the stable offset may lag", "it does not lag any more", "a writer with a transaction"],
)
def test_fenced_partition_whose_last_stable_offset_is_below_its_end(
    quiet_ms: int, writers: tuple[WriterFacts, ...], reason: str | None
) -> None:
    """Leaders may not tell who writes; then it is an open transaction once the end has stood still for long enough."""
    open_ = log(10, stable=4, log_end=10, quiet_since_ms=LATER_MS - quiet_ms, writers=writers)
    found = seen(new_topic(), fenced=True)
    record = step(READ, replace(found, partitions={**found.partitions, 0: open_}), LATER_MS).record
    assert (record.retired[0].seal_offset, record.retired[0].reason) == (None, reason)


def test_effects_to_come() -> None:
    kinds = [CreateTopic, FenceTopic, DeleteOldTopic]
    for command, expected in ((COMMAND, kinds), (replace(COMMAND, fence="none"), kinds[:1])):
        assert [type(effect) for effect in effects_to_come(command, TOPIC_ID)] == expected


def test_the_record_of_a_large_topic_with_many_groups_fits_the_mode_log() -> None:
    count = 1_000
    groups = {f"{'a-long-name-of-a-group-' * 5}{n}": group(dict.fromkeys(range(count), 10)) for n in range(20)}
    logs = {p: log(10**12, log_end=10**12, read_up_to=10**12) for p in range(count)}
    fence = FenceFacts(FENCE_CONFIGS, dict.fromkeys(range(count), 3), frozenset(range(count)))
    found = facts(count, logs, groups, new_topic=ABSENT, fence=fence)
    record = admitted(COMMAND, seen=found)
    for now_ms in (NOW_MS, NOW_MS + ANNOUNCE_MS, NOW_MS + 60_000, NOW_MS + 60_000):
        record = step(record, replace(found, new_topic=new_topic()), now_ms).record or record
        assert len(record.to_json()) < MAX_RECORD_BYTES / 2
    assert record.retired[0].reason == reasons.of_group(reasons.GROUP_LAG, min(groups))
    read = {name: group(dict.fromkeys(range(count), 10**12)) for name in groups}
    moved = new_topic(groups=dict.fromkeys(groups, group({0: 0, 1: 0})))
    record = step(record, replace(found, groups=read, new_topic=moved), NOW_MS + 60_000).record or record
    assert topic_phase(record) == "reclaim"
    assert len(record.to_json()) < MAX_RECORD_BYTES / 4


def test_reason_that_all_partitions_share_is_written_once() -> None:
    count, name = 4_000, "g" * 249
    logs = {p: log(10**9, log_end=10**9, read_up_to=10**9) for p in range(count)}
    fence = FenceFacts(FENCE_CONFIGS, dict.fromkeys(range(count), 3), frozenset(range(count)))
    groups = {name: group(dict.fromkeys(range(count), 1))}
    found = facts(count, logs, groups, new_topic=ABSENT, fence=fence)
    record = admitted(COMMAND, seen=found)
    for now_ms in (NOW_MS, NOW_MS + ANNOUNCE_MS, NOW_MS + 60_000, NOW_MS + 60_000):
        record = step(record, replace(found, new_topic=new_topic()), now_ms).record or record
    assert len(record.to_json()) < MAX_RECORD_BYTES
    assert topic_phase(record) == "drain"
    assert record.retired[0].reason == reasons.of_group(reasons.GROUP_LAG, name)
    assert step(record, replace(found, new_topic=new_topic()), NOW_MS + 60_000).record is None
    larger = facts(10_000, new_topic=ABSENT)
    assert refused(COMMAND, seen=larger).code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_name_leads_on_where_the_old_topic_is_gone() -> None:
    assert record_after(admitted(COMMAND, seen=seen()), NOW_MS) is None
    gone = step(SWITCHED, replace(seen(new_topic()), topic_id=None, gone=True), NOW_MS).record
    assert gone is not None
    assert not in_progress(gone)
    assert record_after(gone, NOW_MS) is gone
    view = gone.view()
    assert written_topic(TOPIC, {TOPIC: view, NAME: TopicView.unlisted(NAME)}.__getitem__).topic_id == ID


def test_a_topic_of_another_id_under_the_new_topics_name_points_nowhere() -> None:
    view = SWITCHED.view()
    assert view.replaced_by is not None
    onward = replace(view.replaced_by, topic="third", topic_id="id-of-third")
    other = TopicView(NAME, "another-id", (1, 1), view.modes, replaced_by=onward)
    views = {TOPIC: view, NAME: other, "third": TopicView.unlisted("third")}
    assert [each.topic for each in chain_views(TOPIC, views.__getitem__)] == [TOPIC, NAME]
    views[NAME] = replace(other, topic_id=view.replaced_by.topic_id)
    assert written_topic(TOPIC, views.__getitem__).topic == "third"


def test_a_topic_under_the_name_of_an_alias_is_not_changed() -> None:
    records = [SWITCHED]
    for command in (shrink(2), COMMAND, ReplaceTopicCommand("other", TOPIC, 2)):
        with pytest.raises(RequestRefused, match="points to 'orders-v2'") as caught:
            refuse_alias(command, TopicFacts("", "another-id"), records, NOW_MS)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    refuse_alias(COMMAND, TopicFacts("", records[0].topic_id), records, NOW_MS)


def test_a_new_topic_is_not_changed_before_its_old_topic_is_released_nor_shared() -> None:
    begun = SWITCHED
    done = replace(begun, replacement=replace(replacement(begun), released_ms=NOW_MS))
    for command in (ReplaceTopicCommand(NAME, "orders-v3", 2), CreatePartitionsCommand(NAME, 9)):
        with pytest.raises(RequestRefused, match="replaces 'orders': wait until its groups have moved") as caught:
            refuse_alias(command, TopicFacts("", ID), [begun], NOW_MS)
        assert caught.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        refuse_alias(command, TopicFacts("", ID), [done], NOW_MS)
    with pytest.raises(RequestRefused, match="replaces 'orders'"):
        refuse_alias(ReplaceTopicCommand("other", NAME, 2), TopicFacts("", "another-id"), [done], NOW_MS)


def test_a_new_topic_is_not_shrunk_before_its_old_topic_is_gone() -> None:
    """A group that has an offset on the old topic alone would not be waited for."""
    begun, command = SWITCHED, replace(shrink(1), topic=NAME)
    done = replace(begun, replacement=replace(replacement(begun), released_ms=NOW_MS))
    for record, until in ((begun, "its groups have moved"), (done, "'orders' is deleted")):
        with pytest.raises(RequestRefused, match=f"replaces 'orders': wait until {until}") as caught:
            refuse_alias(command, TopicFacts("", ID), [record], NOW_MS)
        assert caught.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    refuse_alias(command, TopicFacts("", "another-id"), [done], NOW_MS)
    gone = record_after(done, NOW_MS)
    assert gone is not None
    refuse_alias(command, TopicFacts("", ID), [gone], NOW_MS)
    third = replace(gone, topic=NAME, topic_id=ID)
    third = replace(third, replacement=replace(replacement(gone), new_topic="third", new_topic_id="id-3"))
    command = replace(command, topic="third")
    with pytest.raises(RequestRefused, match=r"groups of 'orders', an earlier .*: wait until 'orders' is deleted"):
        refuse_alias(command, TopicFacts("", "id-3"), [done, third], NOW_MS)
    refuse_alias(command, TopicFacts("", "id-3"), [gone, third], NOW_MS)
    other = replace(gone, topic="other", replacement=third.replacement, topic_id="id-of-other")
    for records in ([done, other, third], [third, done, other]):
        with pytest.raises(RequestRefused, match="groups of 'orders'"):
            refuse_alias(command, TopicFacts("", "id-3"), records, NOW_MS)


def test_groups_of_a_replacement_begin_at_the_start_of_the_new_topic() -> None:
    assert READ.view().replaced_by.read_up_to == {}, "no end is final yet"
    view = step(READ, seen(new_topic(), fenced=True), NOW_MS + 60_000).record.view()
    assert view.replaced_by.read_up_to == ENDS
    assert (start_on_new_topic(view, "billing"), start_on_new_topic(view, "late")) == (0, 0), "not released yet"
    released = replace(view, replaced_by=replace(view.replaced_by, released=True))
    assert (start_on_new_topic(released, "billing"), start_on_new_topic(released, "late")) == (0, None)
    assert start_on_new_topic(released, "late", has_used=True) == 0, "it comes from the old topic"
    assert start_on_new_topic(TopicView.unlisted(TOPIC), "billing") is None
    assert CONFIG.fence_after_ms == 60_000


@pytest.mark.parametrize(("retired", "noted"), [(DONE, ()), (RetiredPartition(), ("away",))])
def test_reports_before_the_switch_name_the_groups_of_a_shrink_that_goes_on(
    retired: RetiredPartition, noted: tuple[str, ...]
) -> None:
    begun = replace(shrunk({2: retired}), required_groups=("away",), replacement=Replacement(NAME, 2, NOW_MS))
    assert noted_groups(begun) == noted
    assert noted_groups(replace(begun, replacement=None)) == ("away",), "of the shrink itself"
