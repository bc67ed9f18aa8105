"""Replacing a topic: what is refused, one replacement from the request to its end, and what clients make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.chain import segments, written_topic
from modeaware.clients.gate import has_read, is_open, needs_predecessor, start_offset
from modeaware.controller.admitted import effects_to_come
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.alias import record_after
from modeaware.lifecycle.commands import (
    Advance,
    CreatePartitionsCommand,
    CreateTopic,
    DeletePredecessor,
    DeleteTopic,
    FenceTopic,
    RemoveConfigs,
    ReplaceTopicCommand,
)
from modeaware.lifecycle.facts import FenceFacts, GroupsDoubt, TopicFacts
from modeaware.lifecycle.replacement import (
    COMING_MS,
    FENCE_CONFIGS,
    NO_FENCE,
    SEARCH_AGAIN_MS,
    give_up_successor,
)
from modeaware.lifecycle.state import in_progress, topic_phase
from modeaware.lifecycle.topic_deletion import LOOK_AGAIN_MS
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
    admitted,
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

ANNOUNCE_MS = CONFIG.announce_ms
NAME, ID = "orders-v2", "id-of-the-successor"
ABSENT = TopicFacts(NAME, None)
COMMAND = ReplaceTopicCommand(TOPIC, NAME, 2)
ENDS = {0: 10, 1: 0, 2: 7}
DENIED = ClusterError("grant WRITE", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def successor(count: int = 2, ends: int = 0, **more: Any) -> TopicFacts:
    return TopicFacts(NAME, ID, partition_count=count, partitions={p: log(ends) for p in range(count)}, **more)


def seen(found: TopicFacts = ABSENT, *, fenced: bool = False, **more: Any) -> TopicFacts:
    """The predecessor: three partitions, and group ``billing``, which has read them."""
    ends = {p: log(end, log_end=end, read_up_to=end) for p, end in ENDS.items()}
    answered = frozenset(ENDS)
    fence = FenceFacts(FENCE_CONFIGS, dict.fromkeys(ENDS, 3), answered) if fenced else FenceFacts(answered=answered)
    return facts(3, ends, **{"groups": {"billing": group(ENDS)}, "successor": found, "fence": fence, **more})


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


def switched(now_ms: int = NOW_MS + ANNOUNCE_MS) -> TopicRecord:
    record = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    assert record is not None
    record = step(record, seen(successor()), now_ms).record
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("command", "found", "code", "says"),
    [
        (replace(COMMAND, successor=""), seen(), ErrorCode.INVALID_TOPIC_EXCEPTION, "invalid topic name ''"),
        (replace(COMMAND, successor="a b"), seen(), ErrorCode.INVALID_TOPIC_EXCEPTION, "invalid topic name"),
        (replace(COMMAND, successor=".."), seen(), ErrorCode.INVALID_TOPIC_EXCEPTION, "invalid topic name"),
        (replace(COMMAND, successor="x" * 250), seen(), ErrorCode.INVALID_TOPIC_EXCEPTION, "1 to 249 letters"),
        (replace(COMMAND, num_partitions=10**6), seen(), ErrorCode.INVALID_PARTITIONS, "1 to 100000"),
        (replace(COMMAND, delay_ms=-2), seen(), ErrorCode.INVALID_REQUEST, "0 or more"),
        (COMMAND, seen(topic_id=None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (COMMAND, seen(partitions={0: log()}), ErrorCode.LEADER_NOT_AVAILABLE, "check the brokers"),
        (replace(COMMAND, num_partitions=0), seen(), ErrorCode.INVALID_PARTITIONS, "1 to 100000"),
        (replace(COMMAND, successor=TOPIC), seen(), ErrorCode.INVALID_REQUEST, "a name of its own"),
        (replace(COMMAND, fence="wall"), seen(), ErrorCode.INVALID_REQUEST, "one of config, none"),
        (replace(COMMAND, undo=True), seen(), ErrorCode.INVALID_REQUEST, "nothing to undo"),
        (COMMAND, seen(successor()), ErrorCode.TOPIC_ALREADY_EXISTS, "choose another name"),
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


def test_a_topic_that_is_being_changed_is_refused() -> None:
    opening = TopicRecord(TOPIC, TOPIC_ID, 4, EPOCH, (RW, RW, RO), opening={2: OpeningPartition()})
    for record in (shrunk({2: RetiredPartition()}), opening):
        refusal = refused(COMMAND, record, seen())
        assert refusal.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert "under changes" in str(refusal)


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
    for record, remedy in ((admitted(COMMAND, seen=seen()), "--undo"), (switched(), "as it was")):
        refusal = refused(replace(COMMAND, **fields), record, seen(successor()))
        assert refusal.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert says in str(refusal)
        assert remedy in str(refusal)
        assert ask(COMMAND, record, seen(successor())).record is None, "the same one changes nothing"


def test_a_fence_is_not_put_on_by_a_repeat_nor_is_a_switch_that_was_made_paused() -> None:
    without = admitted(replace(COMMAND, fence="none"), seen=seen())
    assert "another fence ('none')" in str(refused(COMMAND, without, seen()))
    late = refused(replace(COMMAND, pause_before_switch=True), switched(), seen(successor()))
    assert "cannot pause before that any more" in str(late)


def test_what_a_repeat_leaves_out_stays_as_it_is() -> None:
    configs = {"retention.ms": "1"}
    command = replace(COMMAND, replication_factor=3, configs={**configs, "retention.bytes": "9"}, delay_ms=5)
    record = admitted(command, seen=seen())
    assert ask(COMMAND, record, seen()).record is None
    assert ask(replace(COMMAND, configs=configs), record, seen()).record is None
    fenced = admitted(replace(COMMAND, configs=configs), seen=seen())
    fenced = replace(fenced, replacement=replace(replacement(fenced), own_configs={}))
    copied = replace(COMMAND, configs={**configs, **FENCE_CONFIGS})
    assert ask(copied, fenced, seen()).record is None, "the predecessor has them by now, and they were copied anew"


def test_other_changes_of_a_replaced_topic_are_refused_with_what_to_do() -> None:
    for other in (shrink(2), grow(6)):
        assert "undo it (modeaware replace --undo)" in str(refused(other, admitted(COMMAND, seen=seen()), seen()))
        assert "change that topic" in str(refused(other, switched(), seen(successor())))


def test_partitions_that_a_shrink_retired_are_watched_until_the_switch_and_resume_after_it() -> None:
    before = shrunk({2: replace(DONE, seal_offset=5)})
    paused = replace(COMMAND, pause_before_switch=True)
    quiet = seen(successor(), partitions={**seen().partitions, 2: log(5, 5)})
    record = step(admitted(paused, before, replace(quiet, successor=ABSENT)), quiet, NOW_MS).record
    assert record is not None
    assert record.modes == (RW, RW, NONE)
    written = replace(quiet, partitions={**quiet.partitions, 2: log(7, 5)})
    found = step(record, written, NOW_MS + ANNOUNCE_MS)
    assert found.record is not None
    assert found.record.modes == (RW, RW, RO), "readable again"
    assert (found.record.retired[2].stragglers, len(found.alarms)) == (1, 1)
    assert replacement(found.record).reason == reasons.PAUSED
    assert found.record.version > record.version
    record = admitted(COMMAND, found.record, written)
    record = step(record, written, NOW_MS + ANNOUNCE_MS).record or record
    assert replacement(record).switched_ms is not None
    assert record.view().resume_offsets == {2: 7}, "groups have read it to there"
    assert (record.retired[2].stragglers, record.retired[0]) == (1, RetiredPartition())


def test_a_topic_that_comes_up_under_the_name_raises_one_alarm() -> None:
    gone = step(switched(), replace(seen(successor()), topic_id=None, gone=True), NOW_MS).record
    assert gone is not None
    other = replace(seen(successor()), topic_id="another", gone=True)
    found = step(gone, other, NOW_MS)
    assert found.record is not None
    (alarm,) = found.alarms
    assert "another topic has come up under the name" in alarm
    assert step(found.record, other, NOW_MS) == Advance()
    away = step(found.record, replace(other, topic_id=None), NOW_MS)
    assert away.record is not None
    assert (replacement(away.record).reason, away.alarms) == (None, ())


def test_a_successor_that_was_deleted_after_the_switch_is_created_anew() -> None:
    record = replace(switched(), groups_complete=True)
    missing = step(record, seen(ABSENT), NOW_MS + ANNOUNCE_MS)
    assert missing.record is not None
    assert (replacement(missing.record).reason, missing.alarms) == (reasons.UNAVAILABLE, ())
    found = step(missing.record, seen(replace(ABSENT, gone=True)), NOW_MS + ANNOUNCE_MS)
    assert found.record is not None
    assert replacement(found.record).reason == reasons.SUCCESSOR_GONE
    (alarm,) = found.alarms
    assert "created anew" in alarm
    again = step(found.record, seen(replace(ABSENT, gone=True)), NOW_MS + ANNOUNCE_MS)
    assert (again.record, again.alarms) == (None, ())
    assert again.effects == (CreateTopic(TOPIC, record.topic_id, NAME, 2, -1),)
    other = replace(successor(ends=4), topic_id="id-3")
    assert step(found.record, seen(other), NOW_MS + ANNOUNCE_MS).effects == ()
    empty = replace(other, partitions=successor().partitions)
    doubt = replace(empty, groups_doubt=GroupsDoubt("a coordinator is away"))
    assert step(found.record, seen(doubt), NOW_MS + ANNOUNCE_MS).record is None, "groups may have offsets on its name"
    made = step(found.record, seen(empty), NOW_MS + ANNOUNCE_MS).record
    assert made is not None
    assert (replacement(made).successor_id, replacement(made).reason) == ("id-3", None)
    overriding = replace(empty, configs=NO_FENCE)
    assert step(found.record, seen(overriding), NOW_MS + ANNOUNCE_MS).effects == (
        RemoveConfigs(NAME, "id-3", tuple(NO_FENCE), record.topic_id),
    )
    assert give_up_successor(made, EPOCH, NOW_MS) is None, "its name leads there"


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
def test_only_a_topic_exactly_as_intended_is_the_successor(found: dict[str, Any], is_it: bool) -> None:
    configs = {"retention.ms": "1", "cleanup.policy": "Compact, delete"}
    command = replace(COMMAND, configs=configs, replication_factor=3)
    after = step(admitted(command, seen=seen()), seen(replace(successor(), **found)), NOW_MS).record
    assert after is not None
    assert (after.replacement is not None) is is_it


def test_the_successor_is_announced_once_each_of_its_leaders_has_answered() -> None:
    record = admitted(COMMAND, seen=seen())
    assert step(record, seen(replace(successor(), partitions={0: log()})), NOW_MS).record in (None, record)
    announced = step(record, seen(successor()), NOW_MS).record
    assert announced is not None
    assert replacement(announced).announced_ms == NOW_MS


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"partitions": {0: log()}}, reasons.UNAVAILABLE),
        ({"groups_doubt": GroupsDoubt("group 'share' has an unknown type")}, reasons.GROUPS_UNKNOWN),
    ],
)
def test_what_keeps_a_successor_from_its_announcement_is_told_after_a_while(found: dict[str, Any], reason: str) -> None:
    record, doubtful = admitted(COMMAND, seen=seen()), seen(replace(successor(), **found))
    late_ms = replacement(record).requested_ms + COMING_MS
    assert step(record, doubtful, late_ms - 1) == Advance()
    noted = step(record, doubtful, late_ms).record
    assert noted is not None
    assert replacement(noted).reason == reason
    announced = step(noted, seen(successor()), late_ms).record
    assert announced is not None
    assert (replacement(announced).successor_id, replacement(announced).reason) == (ID, None)


def test_what_overrides_a_fence_that_brokers_may_have_kept_is_removed_before_the_announcement() -> None:
    own = {"compression.type": NO_FENCE["compression.type"]}
    for configs, names in (({}, tuple(NO_FENCE)), (own, ("max.message.bytes",))):
        record = admitted(replace(COMMAND, configs=configs), seen=seen())
        created = step(record, seen(successor(configs={**NO_FENCE, **configs})), NOW_MS)
        assert created == Advance(effects=(RemoveConfigs(NAME, ID, names, record.topic_id),))
        after = step(record, seen(successor(configs=configs)), NOW_MS).record
        assert after is not None
        assert replacement(after).successor_id == ID


def test_a_successor_on_which_groups_have_offsets_of_an_earlier_topic_is_not_announced() -> None:
    """Its first records lie before them, and these groups would skip those."""
    record = admitted(COMMAND, seen=seen())
    unread = GroupsDoubt("group 'billing' cannot be judged: its offsets cannot be read: COORDINATOR_LOAD_IN_PROGRESS")
    assert step(record, seen(successor(groups_doubt=unread)), NOW_MS).record in (None, record)
    found = step(record, seen(successor(groups={"billing": group({0: 0, 1: 208}), "new": group({0: 0})})), NOW_MS)
    assert found.record is not None
    assert found.record.replacement is None
    (alarm,) = found.alarms
    assert f"groups have offsets on '{NAME}' from an earlier topic of that name: billing. " in alarm
    announced = step(record, seen(successor(groups={"new": group({0: 0})})), NOW_MS).record
    assert announced is not None
    assert replacement(announced).successor_id == ID


@pytest.mark.parametrize(
    ("found", "leads_on"),
    [
        (successor(ends=4), True),
        (replace(successor(ends=4), topic_id="another"), False),
        (successor(), False),
        (replace(ABSENT, gone=True), False),
        (ABSENT, None),
        (replace(successor(ends=4), partitions={}), None),
    ],
)
def test_a_record_older_than_the_switch_leads_on_where_the_topic_is_gone(
    found: TopicFacts, leads_on: bool | None
) -> None:
    """The mode log was restored: that the successor has records shows that its predecessor's name led to it."""
    announced = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    assert announced is not None
    after = step(announced, replace(seen(found), topic_id=None, gone=True), NOW_MS)
    assert after.tombstone is (leads_on is False)
    assert (after.record is not None) is (leads_on is True)
    if after.record is not None:
        view = after.record.view().successor
        assert view is not None
        assert (view.topic, view.switched, view.let_go) == (NAME, True, True)
        assert after.record.modes == (RO,) * 3
        (alarm,) = after.alarms
        assert f"its name leads on to '{NAME}'" in alarm
    undone = replace(announced, replacement=replace(replacement(announced), undone_ms=NOW_MS))
    assert step(undone, replace(seen(found), topic_id=None, gone=True), NOW_MS).tombstone


def test_a_topic_in_another_change_is_not_replaced_and_one_that_is_replaced_is_not_changed() -> None:
    assert refused(COMMAND, admitted(shrink(2), seen=seen()), seen()).code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    record = admitted(COMMAND, seen=seen())
    for other in (shrink(2), grow(6), replace(COMMAND, successor="other"), replace(COMMAND, num_partitions=3)):
        assert refused(other, record, seen()).code is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_a_replacement_goes_through_its_phases() -> None:
    record = admitted(COMMAND, seen=seen())
    assert topic_phase(record) == "create"
    assert TopicRecord.from_json(record.to_json()) == record
    first = step(record, seen(), NOW_MS)
    assert first.record is None
    assert first.effects == (CreateTopic(TOPIC, record.topic_id, NAME, 2, -1),)

    announced = step(record, seen(successor()), NOW_MS).record
    assert announced is not None
    assert (topic_phase(announced), replacement(announced).successor_id) == ("announce", ID)
    assert step(announced, seen(successor()), NOW_MS + ANNOUNCE_MS - 1).record is None

    record = switched()
    assert record.modes == (RO,) * 3
    assert record.required_groups == ("billing",)
    assert not record.groups_complete
    late = seen(successor(), groups={"billing": group(ENDS), "late": group({0: 10})})
    noted = step(record, late, NOW_MS + ANNOUNCE_MS).record
    assert noted is not None
    view = noted.view().successor
    assert view is not None
    assert (view.groups, view.groups_complete) == (frozenset({"billing", "late"}), True)
    record = step(record, seen(successor()), NOW_MS + ANNOUNCE_MS).record or record
    quiet_ms = NOW_MS + ANNOUNCE_MS + QUIET_MS
    assert step(record, seen(successor()), quiet_ms - 1).record is None
    own = seen(successor(), fence=FenceFacts({"compression.type": "zstd"}))
    noted = step(record, own, quiet_ms).record
    assert noted is not None
    assert replacement(noted).own_configs == {"compression.type": "zstd", "max.message.bytes": None}
    assert step(noted, own, quiet_ms).effects == (FenceTopic(TOPIC, record.topic_id, FENCE_CONFIGS),)

    sealed = step(noted, seen(successor(), fenced=True), quiet_ms).record
    assert sealed is not None
    assert topic_phase(sealed) == "drain"
    assert replacement(sealed).reason == reasons.of_group(reasons.GROUP_NOT_MOVED, "billing")
    assert {p: r.seal_offset for p, r in sealed.retired.items()} == ENDS
    view = sealed.view().successor
    assert view is not None
    assert (view.read_up_to, view.switched, view.let_go, view.groups) == (ENDS, True, False, frozenset({"billing"}))

    moved = successor(groups={"billing": group({0: 0, 1: 0})})
    tail = {0: log(10, log_end=11, read_up_to=10)}  # what is not replicated yet may be acknowledged
    waiting = step(sealed, seen(moved, fenced=True, partitions={**seen().partitions, **tail}), quiet_ms).record
    assert waiting is not None
    assert (replacement(waiting).reason, replacement(waiting).let_go_ms) == (reasons.NOT_FENCED, None)
    let_go = step(sealed, seen(moved, fenced=True), quiet_ms).record
    assert let_go is not None
    assert topic_phase(let_go) == "reclaim"
    assert in_progress(let_go)
    waiting = step(let_go, seen(moved, fenced=True), quiet_ms).record
    assert waiting is not None
    assert replacement(waiting) == replace(replacement(let_go), reason=reasons.RETENTION)
    assert step(waiting, seen(moved, fenced=True), quiet_ms).record is None


@pytest.mark.parametrize(("members", "after_ms", "held_up"), [(True, 0, 0), (False, 0, 1), (True, COMING_MS, 1)])
def test_a_group_whose_members_are_on_the_successor_is_given_a_while(
    members: bool, after_ms: int, held_up: int
) -> None:
    """Then it is what holds the replacement up, with an alarm: its members may be stuck, or be gone by then."""
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    coming = seen(successor(groups={"billing": group({0: 0}, members=members)}), fenced=True)
    now_ms = (replacement(record).switched_ms or 0) + after_ms
    found = step(record, coming, now_ms)
    assert found.record is not None
    reason = reasons.of_group(reasons.GROUP_NOT_MOVED, "billing") if held_up else None
    assert (replacement(found.record).reason, replacement(found.record).let_go_ms) == (reason, None)
    assert len([alarm for alarm in found.alarms if "has no offset on the successor" in alarm]) == held_up
    if not held_up:
        assert found.due_ms == now_ms + SEARCH_AGAIN_MS


def test_groups_are_not_complete_by_a_listing_while_the_topic_does_not_answer() -> None:
    gone = seen(successor(), groups={}, partitions={})
    noted = step(switched(), gone, NOW_MS + ANNOUNCE_MS).record
    assert noted is not None
    assert not noted.groups_complete


def test_a_doubtful_list_of_groups_lets_nothing_go_though_retention_has_emptied_it() -> None:
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    found = seen(successor(groups={"billing": group({0: 0, 1: 0})}), fenced=True)
    empty = {p: replace(each, log_start=each.end_offset) for p, each in found.partitions.items()}
    doubtful = replace(found, partitions=empty, groups_doubt=GroupsDoubt("?"))
    waiting = step(record, doubtful, NOW_MS + 60_000).record
    assert waiting is not None
    assert replacement(waiting).reason == reasons.GROUPS_UNKNOWN
    assert topic_phase(waiting) == "drain"


def test_a_record_behind_a_seal_is_drained_though_the_fence_is_proved_again_in_the_same_pass() -> None:
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    moved = seen(successor(groups={"billing": group({0: 0, 1: 0})}), fenced=True)
    let_go = step(record, moved, NOW_MS + 60_000).record
    assert let_go is not None
    assert topic_phase(let_go) == "reclaim"
    end = ENDS[0] + 1
    late = replace(moved, partitions={**moved.partitions, 0: log(end, log_end=end, read_up_to=end)})
    broken = step(let_go, late, NOW_MS + 61_000).record
    assert broken is not None
    assert (broken.retired[0].seal_offset, broken.retired[0].read_up_to) == (end, end), "gates wait for it, too"
    assert replacement(broken).let_go_ms is None
    assert broken.retired[0].reason == reasons.of_group(reasons.GROUP_LAG, "billing")


def test_only_markers_behind_a_seal_break_nothing() -> None:
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    sealed = step(record, seen(successor(), fenced=True), NOW_MS + 60_000).record
    assert sealed is not None
    ends = {p: log(end + 1, log_end=end + 1, read_up_to=end) for p, end in ENDS.items()}
    found = step(sealed, replace(seen(successor(), fenced=True), partitions=ends), NOW_MS + 60_000)
    assert found.record is not None
    assert found.alarms == ()
    assert found.record.view().successor == sealed.view().successor
    written = {p: replace(each, read_up_to=each.end_offset) for p, each in ends.items()}
    broken = step(sealed, replace(seen(successor(), fenced=True), partitions=written), NOW_MS + 60_000)
    assert len(broken.alarms) == 3
    assert "written at or after the seal" in broken.alarms[0]


def test_the_switch_waits_for_what_a_person_has_to_decide() -> None:
    announced = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    assert announced is not None
    later_ms = NOW_MS + ANNOUNCE_MS
    for found, reason in (
        (seen(successor(), groups_doubt=GroupsDoubt("?")), reasons.GROUPS_UNKNOWN),
        (seen(successor(), groups_doubt=GroupsDoubt("?", settling="g")), reasons.of_group(reasons.GROUP_SETTLING, "g")),
        (seen(successor(), groups={"s": group({0: 1}, stateful=True)}), reasons.of_group(reasons.GROUP_STATEFUL, "s")),
        (seen(successor(), cleanup_policy="compact"), reasons.COMPACTED),
        (seen(successor(), fence=FenceFacts(answered=frozenset({0, 1}))), reasons.FENCE_UNKNOWN),
        (seen(successor(), fence=None), reasons.FENCE_UNKNOWN),
        (seen(successor(), fence=FenceFacts(failure=DENIED)), reasons.FENCE_DENIED),
    ):
        waiting = step(announced, found, later_ms).record
        assert waiting is not None
        assert (replacement(waiting).reason, replacement(waiting).switched_ms) == (reason, None)
    paused = admitted(replace(COMMAND, pause_before_switch=True), announced, seen(successor()))
    waiting = step(paused, seen(successor()), later_ms).record
    assert waiting is not None
    assert replacement(waiting).reason == reasons.PAUSED
    assert replacement(admitted(COMMAND, waiting, seen(successor()))).pause_before_switch is False


def test_groups_are_listed_again_soon_while_one_is_in_a_rebalance_and_that_is_no_alarm() -> None:
    announced = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    waiting = step(announced, seen(successor(), groups_doubt=GroupsDoubt("?", settling="g")), NOW_MS + 60_000)
    assert (waiting.due_ms, waiting.alarms) == (NOW_MS + 60_000 + LOOK_AGAIN_MS, ())
    assert step(announced, seen(successor(), groups_doubt=GroupsDoubt("?")), NOW_MS + 60_000).due_ms is None
    settled = step(step(announced, seen(successor(), groups_doubt=GroupsDoubt("?", settling="g")), NOW_MS).record,
                   seen(successor()), NOW_MS + 1).record  # fmt: skip
    assert settled is not None
    assert (replacement(settled).reason, replacement(settled).switched_ms) == (None, None), "what is over is not shown"


def test_a_replacement_without_a_fence_needs_no_probe() -> None:
    record = admitted(replace(COMMAND, fence="none"), seen=seen())
    assert [type(effect) for effect in effects_to_come(replace(COMMAND, fence="none"), TOPIC_ID)] == [CreateTopic]
    assert [type(effect) for effect in effects_to_come(COMMAND, TOPIC_ID)] == [
        CreateTopic,
        FenceTopic,
        DeletePredecessor,
    ]
    for _ in range(2):
        record = step(record, seen(successor(), fence=None), NOW_MS + ANNOUNCE_MS).record or record
    record = step(record, seen(successor(), fence=None), NOW_MS + 2 * ANNOUNCE_MS).record or record
    assert replacement(record).switched_ms is not None


def test_a_fence_that_may_not_be_probed_raises_one_alarm_that_names_the_right() -> None:
    record = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    assert record is not None
    denied = seen(successor(), fence=FenceFacts(failure=DENIED))
    found = step(record, denied, NOW_MS + ANNOUNCE_MS)
    assert found.record is not None
    (alarm,) = found.alarms
    assert "grant WRITE" in alarm
    assert step(found.record, denied, NOW_MS + ANNOUNCE_MS).alarms == ()
    record = switched()
    record = replace(record, groups_complete=True, replacement=replace(replacement(record), own_configs={}))
    found = step(record, denied, NOW_MS + ANNOUNCE_MS)
    assert found.record is not None
    assert (found.record.retired[0].reason, len(found.alarms)) == (reasons.FENCE_DENIED, 1)
    unknown = replace(record, replacement=replace(replacement(record), own_configs=None))
    hidden = step(unknown, denied, NOW_MS + 120_000)
    assert hidden.effects == ()
    assert replacement(hidden.record or unknown).own_configs is None, "what is hidden is not noted as unset"
    assert step(found.record, denied, NOW_MS + ANNOUNCE_MS).alarms == ()


def test_it_is_let_go_once_the_last_record_of_each_partition_is_known() -> None:
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    moved = seen(successor(groups={"billing": group({0: 0, 1: 0})}), fenced=True)
    searching = {p: replace(each, read_up_to=None) for p, each in moved.partitions.items()}
    waiting = step(record, replace(moved, partitions=searching), NOW_MS + 60_000)
    assert waiting.record is not None
    assert replacement(waiting.record).reason == reasons.END_NOT_READ
    assert waiting.due_ms == NOW_MS + 61_000
    done = step(waiting.record, moved, NOW_MS + 61_000).record
    assert done is not None
    assert replacement(done).let_go_ms is not None


def test_the_record_of_a_large_topic_with_many_groups_fits_the_mode_log() -> None:
    count = 1_000
    groups = {f"{'a-long-name-of-a-group-' * 5}{n}": group(dict.fromkeys(range(count), 10)) for n in range(20)}
    logs = {p: log(10**12, log_end=10**12, read_up_to=10**12) for p in range(count)}
    fence = FenceFacts(FENCE_CONFIGS, dict.fromkeys(range(count), 3), frozenset(range(count)))
    found = facts(count, logs, groups, successor=ABSENT, fence=fence)
    record = admitted(COMMAND, seen=found)
    for now_ms in (NOW_MS, NOW_MS + ANNOUNCE_MS, NOW_MS + 60_000, NOW_MS + 60_000):
        record = step(record, replace(found, successor=successor()), now_ms).record or record
        assert len(record.to_json()) < MAX_RECORD_BYTES / 2
    assert record.retired[0].reason == reasons.of_group(reasons.GROUP_LAG, min(groups))
    read = {name: group(dict.fromkeys(range(count), 10**12)) for name in groups}
    moved = successor(groups=dict.fromkeys(groups, group({0: 0, 1: 0})))
    record = step(record, replace(found, groups=read, successor=moved), NOW_MS + 60_000).record or record
    assert topic_phase(record) == "reclaim"
    assert len(record.to_json()) < MAX_RECORD_BYTES / 4


def test_reason_that_all_partitions_share_is_written_once() -> None:
    count, name = 4_000, "g" * 249
    logs = {p: log(10**9, log_end=10**9, read_up_to=10**9) for p in range(count)}
    fence = FenceFacts(FENCE_CONFIGS, dict.fromkeys(range(count), 3), frozenset(range(count)))
    groups = {name: group(dict.fromkeys(range(count), 1))}
    found = facts(count, logs, groups, successor=ABSENT, fence=fence)
    record = admitted(COMMAND, seen=found)
    for now_ms in (NOW_MS, NOW_MS + ANNOUNCE_MS, NOW_MS + 60_000, NOW_MS + 60_000):
        record = step(record, replace(found, successor=successor()), now_ms).record or record
    assert len(record.to_json()) < MAX_RECORD_BYTES
    assert topic_phase(record) == "drain"
    assert record.retired[0].reason == reasons.of_group(reasons.GROUP_LAG, name)
    assert step(record, replace(found, successor=successor()), NOW_MS + 60_000).record is None
    larger = facts(10_000, successor=ABSENT)
    assert refused(COMMAND, seen=larger).code is ErrorCode.MESSAGE_TOO_LARGE


def test_switch_waits_for_room_for_the_groups_and_can_be_undone_meanwhile() -> None:
    groups = {"billing": group(ENDS)} | {f"{n:05d}-{'x' * 240}": group(ENDS) for n in range(4_000)}
    record = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    assert record is not None
    waiting = step(record, seen(successor(), groups=groups), NOW_MS + ANNOUNCE_MS).record
    assert waiting is not None
    assert (replacement(waiting).switched_ms, replacement(waiting).reason) == (None, reasons.GROUPS_TOO_MANY)
    undo = replace(COMMAND, undo=True)
    assert replacement(admitted(undo, waiting, seen(successor(), groups=groups))).undone_ms == NOW_MS
    done = step(waiting, seen(successor()), NOW_MS + ANNOUNCE_MS).record
    assert done is not None
    assert replacement(done).switched_ms is not None


def test_groups_that_come_after_the_switch_and_do_not_fit_delay_the_deletion() -> None:
    record = replace(switched(), replacement=replace(replacement(switched()), own_configs={}))
    groups = {"billing": group(ENDS)} | {f"{n:05d}-{'x' * 240}": group(ENDS) for n in range(4_000)}
    found = successor(groups=dict.fromkeys(groups, group({0: 0, 1: 0})))
    for _ in range(2):
        record = step(record, seen(found, fenced=True, groups=groups), NOW_MS + 60_000).record or record
    assert (record.groups_complete, replacement(record).let_go_ms) == (False, None)
    assert {each.reason for each in record.retired.values()} == {reasons.GROUPS_TOO_MANY, None}
    moved = successor(groups={"billing": group({0: 0, 1: 0})})
    for _ in range(2):
        record = step(record, seen(moved, fenced=True), NOW_MS + 60_000).record or record
    assert (record.groups_complete, replacement(record).let_go_ms) == (True, NOW_MS + 60_000)


def test_an_undo_deletes_an_untouched_successor_by_its_id_and_not_after_the_switch() -> None:
    announced = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    undone = admitted(replace(COMMAND, undo=True), announced, seen(successor()))
    assert step(undone, seen(successor()), NOW_MS).effects == (DeleteTopic(TOPIC, undone.topic_id, NAME, ID),)
    left = step(undone, seen(successor(ends=1)), NOW_MS)
    assert left.effects == ()
    assert left.record is not None
    assert (left.record.replacement, len(left.alarms)) == (None, 1)
    assert step(undone, seen(replace(ABSENT, gone=True)), NOW_MS).record is not None
    late = refused(replace(COMMAND, undo=True), switched(), seen(successor()))
    assert late.code is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_a_topic_of_the_name_with_records_is_not_taken_for_the_successor() -> None:
    found = step(admitted(COMMAND, seen=seen()), seen(successor(ends=1)), NOW_MS)
    assert found.record is not None
    assert found.record.replacement is None
    assert "another topic" in found.alarms[0]


def test_the_name_leads_on_where_the_predecessor_is_gone() -> None:
    assert record_after(admitted(COMMAND, seen=seen()), EPOCH, NOW_MS) is None
    gone = step(switched(), replace(seen(successor()), topic_id=None, gone=True), NOW_MS).record
    assert gone is not None
    assert not in_progress(gone)
    assert record_after(gone, EPOCH, NOW_MS) is gone
    view = gone.view()
    assert written_topic(TOPIC, {TOPIC: view, NAME: TopicView.unlisted(NAME)}.__getitem__).topic_id == ID
    assert not needs_predecessor(view, has_read=False, has_moved=False)


def test_a_topic_of_another_id_under_the_successors_name_leads_nowhere() -> None:
    view = switched().view()
    assert view.successor is not None
    onward = replace(view.successor, topic="third", topic_id="id-of-third")
    other = TopicView(NAME, "another-id", (1, 1), view.modes, successor=onward)
    views = {TOPIC: view, NAME: other, "third": TopicView.unlisted("third")}
    assert [each.topic for each in segments(TOPIC, views.__getitem__)] == [TOPIC, NAME]
    views[NAME] = replace(other, topic_id=view.successor.topic_id)
    assert written_topic(TOPIC, views.__getitem__).topic == "third"


def test_a_topic_under_a_name_that_leads_elsewhere_is_not_changed() -> None:
    records = [switched()]
    for command in (shrink(2), COMMAND, ReplaceTopicCommand("other", TOPIC, 2)):
        with pytest.raises(RequestRefused, match="leads to 'orders-v2'") as caught:
            refuse_alias(command, TopicFacts("", "another-id"), records, NOW_MS)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    refuse_alias(COMMAND, TopicFacts("", records[0].topic_id), records, NOW_MS)


def test_a_successor_is_not_changed_before_its_predecessor_is_let_go_nor_shared() -> None:
    begun = switched()
    done = replace(begun, replacement=replace(replacement(begun), let_go_ms=NOW_MS))
    for command in (ReplaceTopicCommand(NAME, "orders-v3", 2), CreatePartitionsCommand(NAME, 9)):
        with pytest.raises(RequestRefused, match="replaces 'orders': wait until that is done") as caught:
            refuse_alias(command, TopicFacts("", ID), [begun], NOW_MS)
        assert caught.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        refuse_alias(command, TopicFacts("", ID), [done], NOW_MS)
    with pytest.raises(RequestRefused, match="replaces 'orders'"):
        refuse_alias(ReplaceTopicCommand("other", NAME, 2), TopicFacts("", "another-id"), [done], NOW_MS)


def test_a_successor_is_not_shrunk_before_its_predecessor_is_gone() -> None:
    """A group that has an offset on the predecessor alone would not be waited for."""
    begun, command = switched(), replace(shrink(1), topic=NAME)
    done = replace(begun, replacement=replace(replacement(begun), let_go_ms=NOW_MS))
    for record, until in ((begun, "that is done"), (done, "'orders' is deleted")):
        with pytest.raises(RequestRefused, match=f"replaces 'orders': wait until {until}") as caught:
            refuse_alias(command, TopicFacts("", ID), [record], NOW_MS)
        assert caught.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    refuse_alias(command, TopicFacts("", "another-id"), [done], NOW_MS)
    gone = record_after(done, EPOCH, NOW_MS)
    assert gone is not None
    refuse_alias(command, TopicFacts("", ID), [gone], NOW_MS)
    third = replace(gone, topic=NAME, topic_id=ID)
    third = replace(third, replacement=replace(replacement(gone), successor="third", successor_id="id-3"))
    command = replace(command, topic="third")
    with pytest.raises(RequestRefused, match=r"has led to this topic from 'orders'.*: wait until 'orders' is deleted"):
        refuse_alias(command, TopicFacts("", "id-3"), [done, third], NOW_MS)
    refuse_alias(command, TopicFacts("", "id-3"), [gone, third], NOW_MS)
    other = replace(gone, topic="other", replacement=third.replacement, topic_id="id-of-other")
    for records in ([done, other, third], [third, done, other]):
        with pytest.raises(RequestRefused, match="from 'orders'"):
            refuse_alias(command, TopicFacts("", "id-3"), records, NOW_MS)


def test_a_topic_that_was_let_go_is_kept_so_whatever_is_known_of_groups_and_leaders() -> None:
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    moved = successor(groups={"billing": group({0: 0, 1: 0})})
    later_ms = NOW_MS + 60_000
    sealed = step(record, seen(moved, fenced=True), later_ms).record
    assert sealed is not None
    done = sealed if replacement(sealed).let_go_ms else step(sealed, seen(moved, fenced=True), later_ms).record
    assert done is not None
    assert topic_phase(done) == "reclaim"
    unknown = {"groups": {}, "groups_doubt": GroupsDoubt("the coordinators have moved")}
    kept = step(done, seen(moved, fenced=True, **unknown), later_ms).record
    assert kept is not None
    assert replacement(kept).let_go_ms == replacement(done).let_go_ms
    away = seen(moved, fenced=True, **unknown)
    away = replace(away, partitions={p: each for p, each in away.partitions.items() if p != 1})
    without = step(done, away, later_ms).record or done
    assert topic_phase(without) == "reclaim"
    assert not any(retired.reason for retired in without.retired.values())


def test_state_that_was_given_up_by_name_holds_nothing_up() -> None:
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    stateful = {"billing": group(ENDS), "s": group(ENDS, stateful=True)}
    waiting = step(record, seen(successor(), fenced=True, groups=stateful), NOW_MS + 60_000).record
    assert waiting is not None
    assert waiting.retired[0].reason == reasons.of_group(reasons.GROUP_STATEFUL, "s")
    accepted = admitted(replace(COMMAND, accept_state_loss=("s",)), waiting, seen(successor(), groups=stateful))
    drained = step(accepted, seen(successor(), fenced=True, groups=stateful), NOW_MS + 60_000).record
    assert drained is not None
    assert drained.retired[0].reason is None


def test_the_gate_opens_for_a_group_that_has_read_the_predecessor() -> None:
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    before = record.view()
    assert not has_read(before, ENDS, {}), "no end is final yet"
    sealed = step(record, seen(successor(), fenced=True), NOW_MS + 60_000).record
    assert sealed is not None
    view = sealed.view()
    assert has_read(view, ENDS, {})
    assert has_read(view, {0: 10}, {2: 7}), "what retention has taken need not be read"
    assert not has_read(view, {0: 10, 2: 6}, {})
    assert not is_open(view, has_read=False, has_moved=False)
    assert is_open(view, has_read=False, has_moved=True)
    assert is_open(view, has_read=False, has_moved=False, waived=True)
    assert is_open(view, has_read=True, has_moved=False)
    assert not is_open(view, has_read=True, has_moved=False, is_next=False), "in a chain, behind a gate that is shut"
    assert needs_predecessor(view, has_read=True, has_moved=True), "until it is let go"
    assert (start_offset(view, "billing"), start_offset(view, "late")) == (0, 0), "not let go yet"
    assert view.successor is not None
    let_go = replace(view, successor=replace(view.successor, let_go=True))
    assert (start_offset(let_go, "billing"), start_offset(let_go, "late")) == (0, None)
    assert start_offset(let_go, "late", has_used=True) == 0, "it comes from the predecessor"
    assert start_offset(TopicView.unlisted(TOPIC), "billing") is None
    assert CONFIG.fence_after_ms == 60_000
