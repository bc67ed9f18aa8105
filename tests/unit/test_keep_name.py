"""A replacement that keeps the name: its two halves, the request in between, and what hinders it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware.cluster.observer import ANY_ID, SnapshotTarget
from modeaware.config import ControllerConfig
from modeaware.controller.admitted import Admitted
from modeaware.controller.engine import Engine
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.interim import interim_name, kept_name
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import Admission, admit, forget_alias
from modeaware.lifecycle.alias import CHECK_IN_GAP_MS, EPOCHS_FORGOTTEN_MS, FORGOTTEN_MS
from modeaware.lifecycle.commands import (
    CreatePartitionsCommand,
    CreateTopic,
    DeleteOldTopic,
    DeletePartitionsCommand,
    Effect,
    FenceTopic,
    RemoveConfigs,
    ReplaceTopicCommand,
    TopicCommand,
)
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, TopicFacts
from modeaware.lifecycle.passes import pass_over
from modeaware.lifecycle.replacement import FENCE_CONFIGS, give_up_new_topic
from modeaware.lifecycle.second_half import Hindrance, closes, hindrance, is_unused, second_half_of, waits
from modeaware.lifecycle.steps import advance
from modeaware.lifecycle.topic_deletion import CHECK_AGAIN_MS
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement, TopicRecord
from tests.support.lifecycle import CONFIG, EPOCH, NOW_MS, RO, TOPIC, TOPIC_ID, facts, group, log
from tests.support.simulated import MemoryLog, SimClock

INTERIM, INTERIM_ID = interim_name(TOPIC, TOPIC_ID), "id-of-the-interim"
FIRST = ReplaceTopicCommand(TOPIC, INTERIM, 4, delay_ms=5, configs={"retention.bytes": "30"}, keep_name=True)
SWITCHED = Replacement(
    INTERIM, 4, 0, configs={"retention.bytes": "30"}, delay_ms=5, accept_state_loss=("app",), keep_name=True,
    new_topic_id=INTERIM_ID, announced_ms=1, switched_ms=2, own_configs={},
)  # fmt: skip
GONE = replace(SWITCHED, released_ms=3, deleting_ms=4, gone_ms=NOW_MS)
ALIAS = TopicRecord(TOPIC, TOPIC_ID, 9, EPOCH, (RO,) * 12, replacement=GONE)
SECOND = second_half_of(ALIAS)
BACK = Replacement(TOPIC, 4, NOW_MS, keep_name=True)
LEADS_BACK = TopicRecord(INTERIM, INTERIM_ID, 0, EPOCH, (RO,) * 4, replacement=BACK)


def of_interim(name: TopicFacts | None = None, **more: Any) -> TopicFacts:
    """The interim topic, and what has the kept name: nothing, by default."""
    shown = TopicFacts(TOPIC, None) if name is None else name
    return facts(4, topic=INTERIM, topic_id=INTERIM_ID, new_topic=shown, **more)


def ask(command: TopicCommand, seen: TopicFacts, *records: TopicRecord, record: TopicRecord | None = None) -> Admission:
    return admit(command, record, seen, CONFIG, NOW_MS, (), records)


def test_interim_topic_is_named_by_the_kept_name_and_the_id_of_the_old_topic() -> None:
    assert INTERIM.startswith(f"{TOPIC}.modeaware-")
    assert kept_name(INTERIM) == TOPIC
    assert kept_name(interim_name(INTERIM, "x")) == INTERIM
    assert interim_name(TOPIC, TOPIC_ID) == INTERIM != interim_name(TOPIC, "another-id")
    assert [kept_name(name) for name in (TOPIC, "orders.modeaware-12345", "orders.modeaware-zzzz")] == [None] * 3


def test_each_half_is_known_by_the_names() -> None:
    assert (ALIAS.is_first_half, ALIAS.is_second_half) == (True, False)
    assert (LEADS_BACK.is_first_half, LEADS_BACK.is_second_half) == (False, True)
    plain = replace(LEADS_BACK, replacement=replace(BACK, keep_name=False))
    assert (plain.is_first_half, plain.is_second_half) == (False, False)
    assert (FIRST.returns_name, SECOND.returns_name) == (False, True)


# Requests


def test_request_is_on_the_record_and_a_repetition_changes_where_it_ends_after_the_switch_too() -> None:
    record = ask(FIRST, facts(new_topic=TopicFacts(INTERIM, None))).record
    assert record is not None
    assert record.is_first_half
    switched = replace(record, replacement=SWITCHED, modes=(RO,) * 12)
    plain = replace(FIRST, keep_name=False, configs={})
    stays = ask(plain, facts(), switched, record=switched).record
    assert stays is not None
    assert stays.replacing == replace(SWITCHED, keep_name=False)
    assert ask(replace(FIRST, configs={}), facts(), stays, record=stays).record == switched


@pytest.mark.parametrize(
    ("command", "seen", "code", "text"),
    [
        (replace(FIRST, fence="none"), {}, ErrorCode.INVALID_REQUEST, "--fence none"),
        (FIRST, {"cleanup_policy": "compact"}, ErrorCode.POLICY_VIOLATION, "compact"),
        (replace(FIRST, evacuate=True), {"cleanup_policy": "compact"}, ErrorCode.POLICY_VIOLATION, "cannot keep"),
        (replace(FIRST, new_topic="orders-v2"), {}, ErrorCode.INVALID_REQUEST, INTERIM),
        (replace(FIRST, num_partitions=12), {}, ErrorCode.INVALID_PARTITIONS, "12 partitions already"),
        (FIRST, {"new_topic": TopicFacts(INTERIM, "x")}, ErrorCode.TOPIC_ALREADY_EXISTS, "exists already"),
    ],
)
def test_what_cannot_keep_its_name_is_refused(
    command: ReplaceTopicCommand, seen: dict[str, Any], code: ErrorCode, text: str
) -> None:
    with pytest.raises(RequestRefused, match=text) as refused:
        ask(command, facts(**{"new_topic": TopicFacts(command.new_topic, None), **seen}))
    assert refused.value.code is code


@pytest.mark.parametrize("record", [ALIAS, replace(ALIAS, replacement=SWITCHED), LEADS_BACK])
@pytest.mark.parametrize(
    "command",
    [
        DeletePartitionsCommand(INTERIM, 1, 0),
        CreatePartitionsCommand(INTERIM, 9),
        ReplaceTopicCommand(INTERIM, "orders-v2", 2),
        ReplaceTopicCommand(INTERIM, TOPIC, 4),
    ],
)
def test_interim_topic_is_reserved(record: TopicRecord, command: TopicCommand) -> None:
    own = record if record is LEADS_BACK else None
    with pytest.raises(RequestRefused, match="interim topic of a change that keeps the name 'orders'") as refused:
        ask(command, of_interim(), record, record=own)
    assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_kept_name_is_not_forgotten() -> None:
    forget = ReplaceTopicCommand(TOPIC, INTERIM, 4, forget=True)
    with pytest.raises(RequestRefused, match="a change keeps this name"):
        forget_alias(forget, TopicFacts(TOPIC, None), [ALIAS])
    stays = replace(ALIAS, replacement=replace(GONE, keep_name=False))
    points_nowhere = replace(ALIAS, replacement=replace(GONE, reason=reasons.POINTS_NOWHERE))
    for ended in (stays, points_nowhere):
        assert forget_alias(forget, TopicFacts(TOPIC, None), [ended]).removed == (TOPIC_ID,)


def test_rules_about_groups_of_the_topic_hold_for_the_interim_topic() -> None:
    rule = GroupRule("waive", "billing", TOPIC, "moved", 0)
    assert rule.applies(INTERIM, 1)
    assert not rule.applies("orders-v2", 1)
    assert not GroupRule("waive", "billing", INTERIM, "moved", 0).applies(TOPIC, 1)


@pytest.mark.parametrize(("switched_ms", "remedy"), [(None, "undo the replacement first"), (2, "then rename back")])
def test_replacement_by_another_topic_than_the_interim_one_cannot_keep_the_name(
    switched_ms: int | None, remedy: str
) -> None:
    """A second half would never be known as one: the new topic does not have the name of an interim topic."""
    plain = replace(SWITCHED, new_topic="orders-v2", keep_name=False, switched_ms=switched_ms)
    record = replace(ALIAS, replacement=plain)
    asked = replace(FIRST, new_topic="orders-v2", accept_state_loss=("app",))
    with pytest.raises(RequestRefused, match=rf"is no interim topic, so it cannot keep its name: .*{remedy}"):
        ask(asked, facts(12), record=record)
    again = ask(replace(asked, keep_name=False), facts(12), record=record)
    assert again.record is None or again.record == record, "the plain replacement is repeated"


def test_name_is_not_kept_after_all_once_the_interim_topic_is_replaced_by_another_one() -> None:
    stays = replace(ALIAS, replacement=replace(SWITCHED, keep_name=False))
    other = replace(LEADS_BACK, replacement=Replacement("orders-v2", 2, 0))
    with pytest.raises(RequestRefused, match="the name stays an alias"):
        ask(replace(FIRST, configs={}), facts(), stays, other, record=stays)
    assert ask(replace(FIRST, configs={}), facts(), stays, record=stays).record is not None


# To stay on the interim topic


def test_change_ends_on_the_interim_topic_by_an_undo_of_its_second_half() -> None:
    stay = replace(SECOND, undo=True)
    waiting = ask(stay, of_interim(), ALIAS)
    assert (waiting.record, waiting.also) == (None, replace(ALIAS, replacement=replace(GONE, keep_name=False)))
    begun = ask(stay, of_interim(), ALIAS, LEADS_BACK, record=LEADS_BACK)
    assert begun.also == waiting.also
    assert begun.record is not None
    assert begun.record.replacing.undone_ms == NOW_MS
    switched = replace(LEADS_BACK, replacement=replace(BACK, new_topic_id="new", announced_ms=1, switched_ms=2))
    with pytest.raises(RequestRefused, match="its producers already write to 'orders'"):
        ask(stay, of_interim(), ALIAS, switched, record=switched)


def test_name_is_kept_after_all_by_the_request_for_the_second_half_which_the_controller_leads() -> None:
    stays = replace(ALIAS, replacement=replace(GONE, keep_name=False))
    taken = TopicFacts(TOPIC, "id-of-other", 1)
    for seen in (of_interim(), of_interim(taken)):
        admission = ask(SECOND, seen, stays)
        assert admission.record is None
        assert admission.also is not None
        assert admission.also.is_first_half
        assert waits(admission.also, {}), "the controller requests the second half, or says what hinders it"


def test_name_is_not_kept_after_all_where_the_interim_topic_is_gone() -> None:
    stays = replace(ALIAS, replacement=replace(GONE, keep_name=False))
    with pytest.raises(RequestRefused):
        ask(SECOND, TopicFacts(INTERIM, None, gone=True), stays)


@pytest.mark.parametrize("interim_is_gone", [False, True])
def test_brokers_do_not_validate_the_decision_to_stay_or_to_keep_the_name_after_all(interim_is_gone: bool) -> None:
    """Else they would refuse it exactly where it helps: where the name is taken, or the interim topic is gone."""
    stays = replace(ALIAS, replacement=replace(GONE, keep_name=False))
    seen = TopicFacts(INTERIM, None, gone=True) if interim_is_gone else of_interim(TopicFacts(TOPIC, "id-of-other", 1))
    for command, alias in ((replace(SECOND, undo=True), ALIAS), *([] if interim_is_gone else [(SECOND, stays)])):
        admission = ask(command, seen, alias)
        assert admission.also is not None
        assert Admitted(command, None, seen, admission).to_validate == ()
        tried = ask(replace(command, validate_only=True), seen, alias)
        assert (tried.also, Admitted(command, None, seen, tried).to_validate) == (None, ()), "a dry run changes nothing"


# A repetition between the halves


def test_state_loss_that_is_accepted_between_the_halves_holds_for_the_second_half() -> None:
    for number, command in enumerate((SECOND, replace(SECOND, replication_factor=-1, configs={}, delay_ms=None))):
        admission = ask(replace(command, accept_state_loss=("quix",)), of_interim(), ALIAS)
        assert admission.record is None, number
        assert admission.also is not None
        assert admission.message == "already under way; the loss of state is now accepted"
        assert second_half_of(admission.also).accept_state_loss == ("app", "quix")


def test_repetition_between_the_halves_changes_nothing_and_a_difference_is_refused() -> None:
    command = replace(SECOND, configs={}, delay_ms=None)
    seen = of_interim(TopicFacts(TOPIC, "id-of-other", 1))
    admission = ask(command, seen, ALIAS)
    assert (admission.record, admission.also) == (None, None)
    assert admission.message == "already under way; nothing changed"
    assert Admitted(command, None, seen, admission).to_validate == (), "brokers would refuse a name that is taken"
    for other in (replace(command, num_partitions=5), replace(command, delay_ms=6)):
        with pytest.raises(RequestRefused, match="it is already being replaced, with another") as refused:
            ask(other, of_interim(), ALIAS)
        assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    with pytest.raises(RequestRefused, match="the name points to"):
        ask(command, TopicFacts(INTERIM, None, gone=True), ALIAS)


# The second half


def test_second_half_is_requested_as_the_whole_was() -> None:
    whole = {"configs": GONE.configs, "delay_ms": 5, "accept_state_loss": ("app",), "keep_name": True}
    assert vars(ReplaceTopicCommand(INTERIM, TOPIC, 4)) | whole == vars(SECOND)
    forgotten = replace(ALIAS, replacement=replace(GONE, gone_ms=NOW_MS - EPOCHS_FORGOTTEN_MS))
    record = ask(SECOND, of_interim(), forgotten).record
    assert record is not None
    assert (record.replacing.configs, record.replacing.delay_ms) == ({"retention.bytes": "30"}, 5)


@pytest.mark.parametrize(
    ("alias", "interim", "expected"),
    [
        (GONE, None, True),
        (GONE, replace(LEADS_BACK, replacement=None), True),
        (GONE, LEADS_BACK, False),
        (SWITCHED, None, False),
        (replace(GONE, keep_name=False), None, False),
        (replace(GONE, reason=reasons.POINTS_NOWHERE), None, False),
        (replace(GONE, reason=reasons.NAME_TAKEN), None, True),
    ],
)
def test_alias_waits_until_something_leads_back(
    alias: Replacement, interim: TopicRecord | None, expected: bool
) -> None:
    records = {} if interim is None else {INTERIM_ID: interim}
    assert waits(replace(ALIAS, replacement=alias), records) is expected


UNTOUCHED = facts(2, topic_id="other")
REMOVED = (FenceTopic, DeleteOldTopic)


@pytest.mark.parametrize(
    ("count", "seen", "after_ms", "reason", "effects"),
    [
        (4, of_interim(), EPOCHS_FORGOTTEN_MS - 1, reasons.KNOWN_BY_CLIENTS, ()),
        (4, of_interim(), EPOCHS_FORGOTTEN_MS, None, ()),
        (4, of_interim(UNTOUCHED), 0, reasons.NAME_TAKEN, REMOVED),
        (4, of_interim(facts(2, {0: log(1)}, topic_id="other")), 0, reasons.NAME_TAKEN, ()),
        (4, of_interim(replace(UNTOUCHED, partitions={0: log()}, configs=FENCE_CONFIGS)), 0, reasons.NAME_TAKEN, ()),
        (4, of_interim(TopicFacts(TOPIC, None, groups={"b": group(subscribed=True)})), 0, "name-subscribed:b", ()),
        (13, of_interim(), FORGOTTEN_MS - 1, reasons.KNOWN_BY_CLIENTS, ()),
        (13, of_interim(), FORGOTTEN_MS, None, ()),
        (4, of_interim(cleanup_policy="compact"), EPOCHS_FORGOTTEN_MS, reasons.RENAME_REFUSED, ()),
        (4, of_interim(groups={"s": GroupFacts(stateful=True)}), EPOCHS_FORGOTTEN_MS, "group-stateful:s", ()),
        (4, replace(of_interim(), partitions={}), EPOCHS_FORGOTTEN_MS, reasons.UNAVAILABLE, ()),
    ],
)
def test_what_hinders_the_second_half_is_a_reason(
    count: int, seen: TopicFacts, after_ms: int, reason: str | None, effects: tuple[type[Effect], ...]
) -> None:
    alias = replace(ALIAS, replacement=replace(GONE, num_partitions=count))
    found = hindrance(alias, None, seen, CONFIG, NOW_MS + after_ms, [alias]) or Hindrance("")
    assert (found.reason or None, tuple(map(type, found.effects))) == (reason, effects)


def test_general_reason_has_the_cause_as_a_text() -> None:
    after_ms = NOW_MS + EPOCHS_FORGOTTEN_MS
    found = hindrance(ALIAS, None, of_interim(cleanup_policy="compact"), CONFIG, after_ms, [ALIAS])
    assert found is not None
    assert "a compacted topic cannot keep its name" in str(found.text)


def test_objections_read_only_the_records_that_have_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alias that waits asks for its objections in every pass: else a pass would cost the square of the topics."""
    read: list[str] = []

    def read_in(record: TopicRecord) -> bool:
        read.append(record.topic)
        return record.replacing.gone_ms is not None

    others = [
        replace(ALIAS, topic=f"t{n}", topic_id=f"id-{n}", replacement=replace(GONE, new_topic=f"t{n}-v2"))
        for n in range(9)
    ]
    monkeypatch.setattr(TopicRecord, "is_alias", property(read_in))
    found = hindrance(ALIAS, None, of_interim(), CONFIG, NOW_MS, [*others, ALIAS])
    assert found is not None
    assert found.reason == reasons.KNOWN_BY_CLIENTS
    assert set(read) == {TOPIC}


def test_alias_that_waits_until_clients_have_forgotten_its_topic_is_due_then() -> None:
    def due_ms(reason: str | None, after_ms: int, count: int = 4) -> int | None:
        alias = replace(ALIAS, replacement=replace(GONE, reason=reason, num_partitions=count))
        seen = TopicFacts(TOPIC, None, gone=True, new_topic=INTERIM_TOPIC)
        return advance(pass_over(alias, seen, (), CONFIG, NOW_MS + after_ms)).due_ms

    assert due_ms(reasons.KNOWN_BY_CLIENTS, 1_000) == NOW_MS + 1_000 + CHECK_IN_GAP_MS
    assert due_ms(reasons.KNOWN_BY_CLIENTS, 1_000, 13) == NOW_MS + 1_000 + CHECK_IN_GAP_MS
    assert due_ms(reasons.KNOWN_BY_CLIENTS, EPOCHS_FORGOTTEN_MS - 4_000) == NOW_MS + EPOCHS_FORGOTTEN_MS
    assert due_ms(reasons.KNOWN_BY_CLIENTS, EPOCHS_FORGOTTEN_MS) == NOW_MS + EPOCHS_FORGOTTEN_MS + CHECK_AGAIN_MS
    assert due_ms(reasons.NAME_TAKEN, 1_000) == NOW_MS + 1_000 + CHECK_AGAIN_MS


def test_a_topic_in_the_way_is_deleted_by_its_id_behind_a_fence_and_only_while_it_is_empty() -> None:
    found = hindrance(ALIAS, None, of_interim(UNTOUCHED), CONFIG, NOW_MS, [ALIAS])
    assert found is not None
    fence, deletion = found.effects
    assert isinstance(fence, FenceTopic)
    assert (fence.topic, fence.topic_id) == (TOPIC, "other")
    assert deletion == DeleteOldTopic(TOPIC, "other", {0: 0, 1: 0})


def second_pass(found: TopicFacts, replacement: Replacement = BACK) -> tuple[TopicRecord | None, list[type[Effect]]]:
    """The pass over the interim topic that is to create the new topic."""
    record = replace(LEADS_BACK, replacement=replacement)
    step = advance(pass_over(record, of_interim(found), (), CONFIG, NOW_MS))
    return step.record, [type(effect) for effect in step.effects]


@pytest.mark.parametrize(
    ("found", "reason", "effects"),
    [
        (facts(4, topic_id="new", groups={"late": group({0: 7})}), "offsets-left:late", [*REMOVED]),
        (facts(2, topic_id="other"), reasons.NAME_TAKEN, [*REMOVED]),
        (facts(4, {0: log(3)}, topic_id="other"), reasons.NAME_TAKEN, []),
        (facts(4, {0: log(3)}, topic_id="other", configs=FENCE_CONFIGS), reasons.NAME_TAKEN, [RemoveConfigs]),
    ],
)
def test_second_half_is_not_given_up_for_another_topic_or_offsets(
    found: TopicFacts, reason: str, effects: list[type[Effect]]
) -> None:
    record, performed = second_pass(found)
    assert record is not None
    assert (record.replacing.reason, performed) == (reason, effects)
    given_up, _ = second_pass(found, replace(BACK, keep_name=False))
    assert given_up is not None
    assert given_up.replacement is None, "any other replacement is given up"


@pytest.mark.parametrize("end", [0, 1])
def test_undo_of_the_second_half_lifts_the_fence_of_a_topic_in_the_way(end: int) -> None:
    """Else that topic would refuse all records for ever."""
    begun = ask(replace(SECOND, undo=True), of_interim(), ALIAS, LEADS_BACK, record=LEADS_BACK).record
    assert begun is not None
    other = facts(2, {0: log(end), 1: log()}, topic_id="other")
    assert second_pass(replace(other, configs=FENCE_CONFIGS), begun.replacing) == (None, [RemoveConfigs])
    ended, performed = second_pass(replace(other, configs={}), begun.replacing)
    assert ended is not None
    assert (ended.replacement, performed) == (None, [])


def test_second_half_is_not_given_up_where_brokers_refuse_the_new_topic() -> None:
    after = give_up_new_topic(LEADS_BACK)
    assert after is not None
    assert after.replacing.reason == reasons.RENAME_REFUSED
    assert give_up_new_topic(replace(ALIAS, replacement=replace(GONE, switched_ms=None))) == replace(
        ALIAS, replacement=None
    )


# Its end


def test_alias_of_the_interim_topic_ends_after_ten_minutes_without_subscribers() -> None:
    closing = replace(LEADS_BACK, replacement=replace(BACK, switched_ms=1, gone_ms=NOW_MS))
    assert [closes(closing, NOW_MS + FORGOTTEN_MS - more) for more in (1, 0)] == [False, True]
    assert not closes(ALIAS, NOW_MS + FORGOTTEN_MS)
    assert not closes(LEADS_BACK, NOW_MS + FORGOTTEN_MS)
    absent = TopicFacts(INTERIM, None)
    assert is_unused(replace(absent, groups={"b": GroupFacts({0: 1})}))
    assert not is_unused(replace(absent, groups={"b": group(subscribed=True)}))
    assert not is_unused(replace(absent, groups_doubt=GroupsDoubt("a broker is silent")))
    assert not is_unused(replace(absent, topic_id="other"))


# The engine


class World:
    """An engine over topics that the test makes up. ``refused``: what brokers answer to a kind of effect."""

    def __init__(self, *records: TopicRecord) -> None:
        self.clock = SimClock()
        self.log = MemoryLog()
        self.log.append([(record.topic_id, record.to_json()) for record in records])
        self.found: dict[str, TopicFacts] = {}
        self.refused: dict[type[Effect], ErrorCode] = {}
        self.performed: list[Effect] = []
        effects: Any = self
        self.engine = Engine(self.log, effects, effects, ControllerConfig(), self.clock)
        self.engine.claim("test")

    def observe_all(
        self, targets: Sequence[SnapshotTarget], _: Sequence[GroupRule] = ()
    ) -> list[TopicFacts | ClusterError]:
        found = []
        for look in targets:
            each = self.found.get(look.topic, TopicFacts(look.topic, None))
            missing = look.record is not None and each.topic_id != look.record.topic_id
            if not (look.topic_id or "").startswith(ANY_ID):
                each = replace(each, configs=None)
            found.append(replace(each, partitions={}, gone=True) if missing else each)
        return [*found]

    def validate(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        codes = [self.refused.get(type(effect)) for effect in effects]
        return [None if code is None else ClusterError("refused", code=code) for code in codes]

    def perform(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        self.performed += effects
        return self.validate(effects)

    def deleted(self, _: str) -> None:
        pass

    def check(self) -> dict[str, TopicRecord]:
        self.engine.check([record.topic_id for record in self.engine.records])
        return {record.topic: record for record in self.engine.records}


INTERIM_TOPIC = facts(4, topic=INTERIM, topic_id=INTERIM_ID)
DELETED = replace(ALIAS, replacement=replace(GONE, gone_ms=None))


def test_engine_requests_the_second_half_once_client_libraries_have_forgotten_the_old_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(DELETED)
    world.found[INTERIM] = INTERIM_TOPIC
    records = world.check()
    assert records[TOPIC].is_alias
    assert records[TOPIC].replacing.reason == reasons.KNOWN_BY_CLIENTS
    assert INTERIM not in records
    assert {record.levelno for record in caplog.records if "not renamed" in record.message} <= {logging.INFO}
    world.clock.advance(EPOCHS_FORGOTTEN_MS)
    records = world.check()
    assert records[INTERIM].is_second_half
    assert world.check()[INTERIM] == records[INTERIM], "it is requested once"
    assert [type(effect) for effect in world.performed] == [CreateTopic]


def test_engine_notes_what_hinders_it_and_requests_it_as_soon_as_that_is_gone() -> None:
    world = World(ALIAS)
    world.clock.advance(EPOCHS_FORGOTTEN_MS)
    world.found = {INTERIM: INTERIM_TOPIC, TOPIC: facts(2, {0: log(1)}, topic_id="other")}
    records = world.check()
    assert INTERIM not in records
    assert records[TOPIC].replacing.reason == reasons.NAME_TAKEN
    epoch = records[TOPIC].epoch
    assert world.check()[TOPIC].epoch == epoch, "a reason is written once"
    assert world.performed == []
    del world.found[TOPIC]
    records = world.check()
    assert records[INTERIM].is_second_half
    assert world.check()[TOPIC].replacing.reason is None


def test_engine_removes_an_empty_topic_that_has_the_name() -> None:
    world = World(ALIAS)
    world.found = {INTERIM: INTERIM_TOPIC, TOPIC: facts(2, topic_id="other")}
    world.check()
    assert [type(effect) for effect in world.performed] == [FenceTopic, DeleteOldTopic]


def test_engine_lifts_the_fence_of_a_topic_that_got_a_record_before_the_fence() -> None:
    """Else its producers would fail for ever."""
    world = World(ALIAS)
    world.found = {INTERIM: INTERIM_TOPIC, TOPIC: facts(2, topic_id="other")}
    world.refused = {DeleteOldTopic: ErrorCode.INVALID_REQUEST}
    world.check()
    assert [type(effect) for effect in world.performed] == [FenceTopic, DeleteOldTopic]
    world.performed.clear()
    world.found[TOPIC] = facts(2, {0: log(1)}, topic_id="other", configs=FENCE_CONFIGS)
    world.check()
    assert world.performed == [RemoveConfigs(TOPIC, "other", tuple(FENCE_CONFIGS), TOPIC_ID)]
    world.found[TOPIC] = facts(2, {0: log(1)}, topic_id="other", configs={})
    assert world.check()[TOPIC].replacing.reason == reasons.NAME_TAKEN
    assert len(world.performed) == 1


@pytest.mark.parametrize("end", [0, 1])
def test_engine_lifts_the_fence_of_a_topic_in_the_way_once_the_change_ends_on_the_interim_topic(end: int) -> None:
    world = World(replace(ALIAS, replacement=replace(GONE, keep_name=False)))
    fenced = facts(2, {0: log(end), 1: log()}, topic_id="other", configs=FENCE_CONFIGS)
    world.found = {INTERIM: INTERIM_TOPIC, TOPIC: fenced}
    assert world.check()[TOPIC].replacing.reason == reasons.NAME_TAKEN
    assert world.performed == [RemoveConfigs(TOPIC, "other", tuple(FENCE_CONFIGS), TOPIC_ID)]
    world.found[TOPIC] = replace(fenced, configs={})
    world.check()
    assert len(world.performed) == 1


def test_engine_shows_each_cause_of_a_refusal_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ALIAS)
    world.clock.advance(EPOCHS_FORGOTTEN_MS)
    world.found[INTERIM] = replace(INTERIM_TOPIC, cleanup_policy="compact")

    def causes() -> list[str]:
        world.check()
        world.check()
        return [record.message for record in caplog.records if "not renamed back" in record.message]

    (compacted,) = causes()
    assert "a compacted topic cannot keep its name" in compacted
    (seen,) = world.engine.watched.seen().topics
    assert "a compacted topic cannot keep its name" in str(seen.trouble)
    world.found[INTERIM] = INTERIM_TOPIC
    world.refused = {CreateTopic: ErrorCode.POLICY_VIOLATION}
    _, refused = causes()
    assert refused.endswith("refused")


def test_no_answer_of_brokers_is_no_refusal() -> None:
    """A refusal is an alarm, and stops ``modeaware apply --at-once``: waiting does not help."""
    world = World(replace(ALIAS, replacement=replace(GONE, reason=reasons.KNOWN_BY_CLIENTS)))
    world.clock.advance(EPOCHS_FORGOTTEN_MS)
    world.found[INTERIM] = INTERIM_TOPIC
    world.refused = {CreateTopic: ErrorCode.REQUEST_TIMED_OUT}
    assert world.check()[TOPIC].replacing.reason == reasons.KNOWN_BY_CLIENTS
    world.refused = {CreateTopic: ErrorCode.POLICY_VIOLATION}
    reason = world.check()[TOPIC].replacing.reason
    assert reason == reasons.RENAME_REFUSED
    assert reasons.is_alarm(reason)


@pytest.mark.parametrize("kind", [CreateTopic, FenceTopic])
def test_engine_repeats_what_brokers_refuse(kind: type[Effect]) -> None:
    world = World(ALIAS)
    world.clock.advance(EPOCHS_FORGOTTEN_MS)
    world.found[INTERIM] = INTERIM_TOPIC
    world.refused = {kind: ErrorCode.POLICY_VIOLATION}
    assert world.check()[TOPIC].replacing.reason == reasons.RENAME_REFUSED
    world.refused = {}
    assert world.check()[INTERIM].is_second_half


def test_engine_does_not_give_up_a_second_half_whose_topic_is_refused_later() -> None:
    world = World(ALIAS, LEADS_BACK)
    world.found[INTERIM] = INTERIM_TOPIC
    world.refused = {CreateTopic: ErrorCode.POLICY_VIOLATION}
    assert world.check()[INTERIM].replacing.reason == reasons.RENAME_REFUSED
    epoch = world.check()[INTERIM].epoch
    assert world.check()[INTERIM].epoch == epoch


def test_engine_ends_the_alias_of_the_interim_topic() -> None:
    gone = replace(BACK, new_topic_id="new", switched_ms=1, released_ms=2, gone_ms=NOW_MS)
    closing = replace(LEADS_BACK, replacement=gone)
    world = World(closing)
    world.found[TOPIC] = facts(4, topic_id="new")
    assert INTERIM in world.check()
    world.found[INTERIM] = TopicFacts(INTERIM, None, groups={"stock": group(subscribed=True)})
    world.clock.advance(FORGOTTEN_MS)
    assert INTERIM in world.check(), "a group is subscribed to the name"
    del world.found[INTERIM]
    assert INTERIM not in world.check()
