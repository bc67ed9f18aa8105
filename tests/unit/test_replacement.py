"""Replacing a topic: what is refused, one replacement from the request to its end, and what clients make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.clients.gate import has_read, is_open, needs_predecessor, segments, start_offset, written_topic
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import CreateTopic, DeleteTopic, FenceTopic, ReplaceTopicCommand
from modeaware.lifecycle.facts import FenceFacts, GroupsDoubt, TopicFacts
from modeaware.lifecycle.replacement import ANNOUNCE_MS, FENCE_CONFIGS, effects_to_come, record_after, refuse_alias
from modeaware.lifecycle.state import in_progress, topic_phase
from modeaware.modelog.records import MAX_RECORD_BYTES, REPLACEMENT_READER, Replacement, TopicRecord
from modeaware.topic_view import TopicView
from tests.support.lifecycle import (
    CONFIG,
    EPOCH,
    NOW_MS,
    QUIET_MS,
    RO,
    TOPIC,
    admitted,
    facts,
    group,
    grow,
    log,
    shrink,
)
from tests.support.lifecycle import look as step
from tests.support.lifecycle import refusal as refused

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


def switched(now_ms: int = NOW_MS + ANNOUNCE_MS) -> TopicRecord:
    record = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    assert record is not None
    record = step(record, seen(successor()), now_ms).record
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("command", "found", "code"),
    [
        (replace(COMMAND, num_partitions=0), seen(), ErrorCode.INVALID_PARTITIONS),
        (replace(COMMAND, successor=TOPIC), seen(), ErrorCode.INVALID_REQUEST),
        (replace(COMMAND, fence="wall"), seen(), ErrorCode.INVALID_REQUEST),
        (replace(COMMAND, undo=True), seen(), ErrorCode.INVALID_REQUEST),
        (COMMAND, seen(successor()), ErrorCode.TOPIC_ALREADY_EXISTS),
        (COMMAND, seen(internal=True), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (COMMAND, seen(cleanup_policy="compact"), ErrorCode.POLICY_VIOLATION),
        (COMMAND, seen(groups={"s": group({0: 1}, stateful=True)}), ErrorCode.POLICY_VIOLATION),
        (COMMAND, seen(stateful_owner="app"), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_cannot_be_replaced_is_refused_with_a_code(
    command: ReplaceTopicCommand, found: TopicFacts, code: ErrorCode
) -> None:
    assert refused(command, seen=found).code is code


def test_a_topic_in_another_change_is_not_replaced_and_one_that_is_replaced_is_not_changed() -> None:
    assert refused(COMMAND, admitted(shrink(2), seen=seen()), seen()).code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    record = admitted(COMMAND, seen=seen())
    for other in (shrink(2), grow(6), replace(COMMAND, successor="other"), replace(COMMAND, num_partitions=3)):
        assert refused(other, record, seen()).code is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_a_replacement_goes_through_its_phases() -> None:
    record = admitted(COMMAND, seen=seen())
    assert (topic_phase(record), record.min_reader) == ("create", REPLACEMENT_READER)
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
    let_go = step(sealed, seen(moved, fenced=True), quiet_ms).record
    assert let_go is not None
    assert topic_phase(let_go) == "done"
    assert not in_progress(let_go)
    assert step(let_go, seen(moved, fenced=True), quiet_ms).record is None


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


def test_a_replacement_without_a_fence_needs_no_probe() -> None:
    record = admitted(replace(COMMAND, fence="none"), seen=seen())
    assert [type(effect) for effect in effects_to_come(record)] == [CreateTopic]
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
    assert topic_phase(record) == "done"
    assert len(record.to_json()) < MAX_RECORD_BYTES / 4


def test_reasons_that_would_fill_the_record_are_given_once() -> None:
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
    assert replacement(record).reason == reasons.of_group(reasons.GROUP_LAG, name)
    assert step(record, replace(found, successor=successor()), NOW_MS + 60_000).record is None
    larger = facts(10_000, successor=ABSENT)
    assert refused(COMMAND, seen=larger).code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_undo_deletes_an_untouched_successor_by_its_id_and_not_after_the_switch() -> None:
    announced = step(admitted(COMMAND, seen=seen()), seen(successor()), NOW_MS).record
    undone = admitted(replace(COMMAND, undo=True), announced, seen(successor()))
    assert step(undone, seen(successor()), NOW_MS).effects == (DeleteTopic(TOPIC, undone.topic_id, NAME, ID),)
    left = step(undone, seen(successor(ends=1)), NOW_MS)
    assert left.effects == ()
    assert left.record is not None
    assert (left.record.replacement, left.record.min_reader, len(left.alarms)) == (None, 1, 1)
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
            refuse_alias(command, "another-id", records)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    refuse_alias(COMMAND, records[0].topic_id, records)


def test_a_successor_is_not_changed_before_its_predecessor_is_let_go_nor_shared() -> None:
    begun = switched()
    done = replace(begun, replacement=replace(replacement(begun), let_go_ms=NOW_MS))
    for command in (ReplaceTopicCommand(NAME, "orders-v3", 2), replace(shrink(1), topic=NAME)):
        with pytest.raises(RequestRefused, match="replaces 'orders'") as caught:
            refuse_alias(command, ID, [begun])
        assert caught.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        refuse_alias(command, ID, [done])
    with pytest.raises(RequestRefused, match="replaces 'orders'"):
        refuse_alias(ReplaceTopicCommand("other", NAME, 2), "another-id", [done])


def test_a_topic_that_was_let_go_is_kept_so_while_nothing_asks_for_groups() -> None:
    record = switched()
    record = replace(record, replacement=replace(replacement(record), own_configs={}))
    moved = successor(groups={"billing": group({0: 0, 1: 0})})
    later_ms = NOW_MS + 60_000
    sealed = step(record, seen(moved, fenced=True), later_ms).record
    assert sealed is not None
    done = sealed if replacement(sealed).let_go_ms else step(sealed, seen(moved, fenced=True), later_ms).record
    assert done is not None
    assert topic_phase(done) == "done"
    unasked = {"groups": {}, "groups_doubt": GroupsDoubt("not listed: nothing is in progress")}
    assert step(done, seen(moved, fenced=True, **unasked), later_ms).record is None
    away = seen(moved, fenced=True, **unasked)
    away = replace(away, partitions={p: each for p, each in away.partitions.items() if p != 1})
    without = step(done, away, later_ms).record or done
    assert topic_phase(without) == "done"


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
    assert needs_predecessor(view, has_read=True, has_moved=True), "until it is let go"
    assert (start_offset(view, "billing"), start_offset(view, "late")) == (0, None)
    assert start_offset(TopicView.unlisted(TOPIC), "billing") is None
    assert CONFIG.fence_after_ms == 60_000
