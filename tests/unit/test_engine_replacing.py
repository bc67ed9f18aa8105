"""The engine and topics that are replaced: commands of one batch, what brokers refuse beforehand, and afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware.cluster.observer import SnapshotTarget
from modeaware.config import ControllerConfig
from modeaware.controller.engine import Engine
from modeaware.controller.schedule import elapsed_ms
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import (
    CreateTopic,
    DeleteOldTopic,
    DeleteTopic,
    Effect,
    FenceTopic,
    RemoveConfigs,
    ReplaceTopicCommand,
)
from modeaware.lifecycle.facts import FenceFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS, NO_FENCE
from modeaware.lifecycle.topic_deletion import FENCE_STABLE_MS
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from tests.support.simulated import MemoryLog, SimClock, SimCluster

A, B, NEW = "a", "b", "new"


class World:
    """Topics A and B; the engine's observer, and its effects. ``refused``: what brokers answer to a kind of effect."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.clusters = {topic: SimCluster(self.clock, topic, 2) for topic in (A, B)}
        self.refused: dict[type[Effect], ErrorCode] = {}
        self.performed: list[Effect] = []
        self.found: dict[str, TopicFacts] = {}
        self.gone: list[str] = []
        self.snapshots: list[SnapshotTarget] = []
        effects: Any = self
        self.log = MemoryLog()
        self.engine = Engine(self.log, effects, effects, ControllerConfig(), self.clock)
        self.engine.claim("test")
        self.after_append: list[TopicRecord | None] = []
        """Of each effect that was carried out, the record of its topic on the log by then."""

    def observe_all(
        self, targets: Sequence[SnapshotTarget], rules: Sequence[GroupRule] = ()
    ) -> list[TopicFacts | ClusterError]:
        self.snapshots += targets
        return [
            self.clusters[target.topic].observe(target.topic, target.record)
            if target.topic in self.clusters
            else self.found.get(target.topic, TopicFacts(target.topic, None))
            for target in targets
        ]

    def validate(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        codes = [self.refused.get(type(effect)) for effect in effects]
        return [None if code is None else ClusterError("refused", code=code) for code in codes]

    def perform(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        self.performed += effects
        self.after_append += [self.log.open().records.get(effect.topic_id) for effect in effects]
        return self.validate(effects)

    def deleted(self, topic_id: str) -> None:
        self.gone.append(topic_id)

    def ask(self, *commands: ReplaceTopicCommand) -> list[ErrorCode]:
        return [result.code for result in self.engine.execute(commands)]

    def check(self) -> None:
        self.engine.check([record.topic_id for record in self.engine.records])

    @property
    def record(self) -> TopicRecord:
        (record,) = self.engine.records
        return record


@pytest.fixture
def world() -> World:
    return World()


def test_two_topics_of_one_batch_do_not_get_one_new_topic(world: World) -> None:
    codes = world.ask(ReplaceTopicCommand(A, NEW, 1), ReplaceTopicCommand(B, NEW, 1))
    assert codes == [ErrorCode.NONE, ErrorCode.REASSIGNMENT_IN_PROGRESS]
    assert world.record.topic == A


def test_a_topic_of_the_batch_is_no_new_topic_in_it(world: World) -> None:
    codes = world.ask(ReplaceTopicCommand(A, NEW, 1), ReplaceTopicCommand(B, A, 1))
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FenceTopic, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (FenceTopic, ErrorCode.UNSUPPORTED_VERSION),
        (DeleteOldTopic, ErrorCode.TOPIC_DELETION_DISABLED),
        (CreateTopic, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (CreateTopic, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_brokers_would_refuse_is_refused_beforehand(world: World, kind: type[Effect], code: ErrorCode) -> None:
    world.refused = {kind: code}
    assert world.ask(ReplaceTopicCommand(A, NEW, 1)) == [code]
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, validate_only=True)) == [code]
    assert world.engine.records == ()
    needs_none = kind is not CreateTopic
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, fence="none")) == [ErrorCode.NONE if needs_none else code]


def test_what_brokers_would_not_delete_is_not_undone(world: World) -> None:
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, fence="none")) == [ErrorCode.NONE]
    undo = ReplaceTopicCommand(A, NEW, 1, undo=True)
    world.refused = {DeleteTopic: ErrorCode.TOPIC_DELETION_DISABLED}
    assert world.ask(undo) == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert world.record.replacement.undone_ms is None
    world.refused = {}
    assert world.ask(undo) == [ErrorCode.NONE]
    assert world.record.replacement.undone_ms is not None


def test_a_repeat_is_not_checked_again(world: World) -> None:
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, pause_before_switch=True)) == [ErrorCode.NONE]
    world.refused = {FenceTopic: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert world.ask(ReplaceTopicCommand(A, NEW, 1)) == [ErrorCode.NONE]
    assert not world.record.replacement.pause_before_switch


@pytest.mark.parametrize(
    ("code", "stays"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.TOPIC_ALREADY_EXISTS, True),
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.POLICY_VIOLATION, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_a_creation_is_given_up_on_definite_answers_alone(world: World, code: ErrorCode, stays: bool) -> None:
    world.ask(ReplaceTopicCommand(A, NEW, 1))
    world.refused = {CreateTopic: code}
    world.check()
    assert [type(effect) for effect in world.performed] == [CreateTopic]
    assert (world.record.replacement is not None) is stays


def test_the_observer_is_told_of_an_acknowledged_deletion_alone(world: World) -> None:
    """An unanswered one may not be done; then the new topic has to be missing for a while."""
    world.ask(ReplaceTopicCommand(A, NEW, 1))
    world.found[NEW] = TopicFacts(NEW, "new-id", partition_count=1, partitions={0: PartitionFacts(0, 0, 0, 0, 0)})
    world.check()
    world.ask(ReplaceTopicCommand(A, NEW, 1, undo=True))
    assert world.record.replacement.reason == reasons.UNDOING
    world.refused[DeleteTopic] = ErrorCode.REQUEST_TIMED_OUT
    world.check()
    assert world.gone == []
    del world.refused[DeleteTopic]
    world.check()
    assert world.gone == ["new-id"]


def released(topic: str, topic_id: str, new: str, **fields: Any) -> TopicRecord:
    """The record of a topic of one empty partition that may be deleted."""
    since = {"requested_ms": 0, "delay_ms": 0, "announced_ms": 1, "switched_ms": 2, "own_configs": {}}
    now = Replacement(**{"new_topic": new, "num_partitions": 1, "new_topic_id": f"id-of-{new}", **since, **fields})
    retired = {0: RetiredPartition(seal_offset=0, seal_leader_epoch=0, read_up_to=0)}
    modes = (PartitionMode.READ_ONLY,)
    return TopicRecord(topic, topic_id, 3, 1, modes, retired=retired, replacement=now, required_groups=())


class Deleting(World):
    """A topic OLD, replaced by NEW, that may be deleted."""

    def __init__(self) -> None:
        super().__init__()
        logs = {0: PartitionFacts(0, 0, 0, 0, 0, log_end=0, read_up_to=0)}
        fence = FenceFacts(FENCE_CONFIGS, {0: 0}, frozenset({0}))
        self.found["old"] = TopicFacts("old", "id-of-old", 1, partitions=logs, fence=fence)
        self.found[NEW] = TopicFacts(NEW, f"id-of-{NEW}", 1, partitions=logs)
        self.record_is(released("old", "id-of-old", NEW, fenced_ms=-FENCE_STABLE_MS, released_ms=3))

    def record_is(self, *records: TopicRecord) -> None:
        """What another controller has left on the log."""
        claim = self.log.open().claim
        assert claim is not None
        now = [replace(record, controller_epoch=claim.controller_epoch) for record in records]
        self.log.entries += [(record.topic_id, record.to_json()) for record in now]
        self.engine.claim("test")

    def old(self) -> Replacement:
        (record,) = (record for record in self.engine.records if record.topic == "old")
        assert record.replacement is not None
        return record.replacement


def test_the_record_says_that_a_topic_is_being_deleted_before_it_is() -> None:
    world = Deleting()
    world.check()
    assert world.performed == [DeleteOldTopic("old", "id-of-old", {0: 0})]
    (before,) = world.after_append
    assert before.replacement.deleting_ms == world.old().deleting_ms
    assert world.gone == ["id-of-old"], "the observer need not wait until it believes it"


def test_nothing_is_done_on_brokers_while_the_log_cannot_keep_its_record() -> None:
    world = Deleting()
    world.log.unfit = "topic 'modes' has cleanup.policy=delete"
    world.check()
    assert world.performed == []
    assert world.old().deleting_ms is not None
    world.log.unfit = None
    world.check()
    assert world.performed == [DeleteOldTopic("old", "id-of-old", {0: 0})]


def test_a_controller_that_finds_the_topic_gone_knows_whose_deletion_it_was(caplog: pytest.LogCaptureFixture) -> None:
    world = Deleting()
    world.refused[DeleteOldTopic] = ErrorCode.REQUEST_TIMED_OUT
    world.check()
    assert world.gone == []
    world.engine.claim("another")
    world.found["old"] = TopicFacts("old", None, gone=True)
    caplog.clear()
    world.check()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert world.old().gone_ms is not None
    assert len(world.performed) == 1


def test_a_record_older_than_the_switch_is_not_removed_where_another_topic_has_the_name() -> None:
    """Of a mode log that was restored: whether its name pointed to the new topic, that one's records show."""
    world = Deleting()
    world.record_is(released("old", "id-of-old", NEW, switched_ms=None, own_configs=None))
    world.engine.remove(["id-of-old"])
    assert world.old().new_topic_id == f"id-of-{NEW}"
    world.found["old"] = TopicFacts("old", "another", 1, gone=True)
    world.found[NEW] = replace(world.found[NEW], partitions={0: PartitionFacts(0, 4, 4, 0, 0)})
    world.check()
    assert world.old().gone_ms is not None


def test_a_new_topic_that_has_the_name_of_an_alias_overrides_a_fence_that_brokers_may_have_kept() -> None:
    world = Deleting()
    intent = {"new_topic_id": None, "announced_ms": None, "switched_ms": None, "own_configs": None}
    begun = [released(topic, f"id-of-{topic}", new, **intent) for topic, new in ((NEW, "old"), (A, "b"))]
    alias = released("old", "id-of-old", NEW, released_ms=3, gone_ms=4)
    world.record_is(alias, *(replace(each, modes=(PartitionMode.READ_WRITE,), retired={}) for each in begun))
    world.found["old"] = TopicFacts("old", None, gone=True)
    del world.clusters[A], world.clusters[B]
    world.found[A] = replace(world.found[NEW], topic=A, topic_id="id-of-a")
    world.check()
    created = {each.new_topic: each.configs for each in world.performed if isinstance(each, CreateTopic)}
    assert created == {"old": NO_FENCE, "b": {}}
    world.found["old"] = TopicFacts("old", "id-3", 1, partitions=world.found[NEW].partitions, configs=NO_FENCE)
    world.refused = {RemoveConfigs: ErrorCode.REQUEST_TIMED_OUT}
    world.check()
    troubles = {seen.record.topic: seen.trouble for seen in world.engine.watched.seen().topics}
    assert "refused" in str(troubles[NEW]), "shown on the old topic"
    world.refused = {RemoveConfigs: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    world.check()
    assert [each.topic for each in world.engine.records if each.replacement is None] == [NEW], "it is given up"


def test_fence_that_brokers_refuse_to_set_is_told_until_they_set_it() -> None:
    """The right was there when the replacement was requested."""
    world, told = Deleting(), []
    world.found["old"] = replace(world.found["old"], fence=FenceFacts(answered=frozenset({0})))
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.POLICY_VIOLATION):
        world.refused = {FenceTopic: code}
        for _ in range(2):
            world.check()
        told.append(world.old().reason)
    world.found["old"] = replace(world.found["old"], fence=FenceFacts(FENCE_CONFIGS, {0: 0}, frozenset({0})))
    world.check()  # somebody else has set it
    told.append(world.old().reason)
    assert told == [reasons.FENCE_DENIED, reasons.NOT_FENCED, reasons.FENCE_DENIED, reasons.NOT_FENCED]


def test_aliases_are_looked_at_together_and_by_their_ids_alone() -> None:
    """There are more of them with each topic that was ever replaced."""
    world = Deleting()
    aliases = [released(name, f"id-of-{name}", NEW, released_ms=3, gone_ms=4) for name in ("old", "older")]
    world.record_is(*aliases)
    world.found |= {each.topic: TopicFacts(each.topic, None, gone=True) for each in aliases}
    due = world.engine.schedule.due(elapsed_ms(world.clock))
    for topic_id in due:
        world.engine.check([topic_id])
        world.clock.advance(700)
    for _ in range(20):
        world.clock.advance(max(0, (world.engine.schedule.next_ms() or 0) - elapsed_ms(world.clock)))
        due = world.engine.schedule.due(elapsed_ms(world.clock))
        world.engine.check(due)
    assert len(due) == 2
    assert world.snapshots[-1] == SnapshotTarget(NEW, None, f"id-of-{NEW}", id_alone=True)


def test_nothing_is_deleted_where_the_record_is_not_appended() -> None:
    world = Deleting()
    world.log.failure = ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
    with pytest.raises(ClusterError):
        world.check()
    assert world.performed == []


def test_record_that_is_too_large_keeps_the_alias_that_would_end_with_it() -> None:
    world = Deleting()
    gone = {"released_ms": 3, "gone_ms": 4}
    back, other = (
        released(NEW, f"id-of-{NEW}", "old", new_topic_id="id-3", **gone),
        released("other", "id-of-other", "x"),
    )
    world.record_is(released("old", "id-of-old", NEW, **gone))
    for too_large, left in (({back.topic_id, other.topic_id}, ["old"]), ({other.topic_id}, [NEW])):
        world.log.too_large = too_large
        assert world.engine._append([other, back]).keys() == too_large
        assert [record.topic for record in world.engine.records] == left


def test_a_topic_of_a_chain_is_deleted_after_the_one_that_it_has_replaced() -> None:
    world = Deleting()
    older = released("older", "id-of-older", "old", fence="none", released_ms=3)
    world.found["older"] = TopicFacts("older", "id-of-older", 1, partitions=world.found["old"].partitions)
    world.record_is(older)
    world.check()
    assert world.performed == []
    assert world.old().reason == "earlier-topic-first:older"
    assert older.replacement is not None
    world.record_is(replace(older, epoch=9, replacement=replace(older.replacement, gone_ms=4)))
    world.found["older"] = TopicFacts("older", None, gone=True)
    world.check()
    assert [effect.topic for effect in world.performed] == ["old"]


def test_a_new_topic_that_was_replaced_in_turn_is_not_created_again() -> None:
    world = Deleting()
    first = released("older", "id-of-older", "old", released_ms=None, reason=reasons.NEW_TOPIC_GONE)
    world.found["older"] = TopicFacts("older", "id-of-older", 1, partitions=world.found["old"].partitions)
    world.found["old"] = TopicFacts("old", None, gone=True)
    world.record_is(first, released("old", "id-of-old", NEW, gone_ms=4))
    world.check()
    assert not [effect for effect in world.performed if isinstance(effect, CreateTopic)]
    assert {record.topic: record.replacing.reason for record in world.engine.records}["older"] == "no-new-topic"


def test_each_of_two_replaced_topics_of_one_name_gets_the_facts_of_its_own_new_topic() -> None:
    """The first is not known to be gone yet when the second, created under its name, is replaced."""
    world = Deleting()
    world.record_is(released("old", "id-of-old", NEW), released("old", "id-of-second", "newer"))
    world.snapshots.clear()
    world.check()
    assert {target.topic for target in world.snapshots} == {"old", NEW, "newer"}


def test_alias_is_forgotten_once(world: World) -> None:
    old = TopicRecord(
        A, "gone", 5, 1, (PartitionMode.READ_ONLY,),
        replacement=Replacement(NEW, 1, 0, new_topic_id="new", announced_ms=1, switched_ms=2, released_ms=3, gone_ms=4),
    )  # fmt: skip
    world.engine._append([old])  # a private call: as a controller that has replaced it would have
    forget = ReplaceTopicCommand(A, NEW, 1, forget=True)
    assert world.ask(forget) == [ErrorCode.NONE]
    assert world.engine.records == ()
    assert world.ask(forget) == [ErrorCode.INVALID_REQUEST], "it is no alias now"


def test_aliases_of_a_chain_stay_when_another_topic_comes_up_under_the_first_name() -> None:
    """And point to the last topic, in the same append, when the second one is forgotten."""
    world = Deleting()
    gone = released("older", "id-of-older", "old", released_ms=3, gone_ms=4)
    world.record_is(gone, released("old", "id-of-old", NEW, released_ms=3, gone_ms=4))
    world.found["old"] = TopicFacts("old", None, gone=True)
    world.found["older"] = TopicFacts("older", "another", 1, gone=True)
    world.check()
    reasons = {record.topic: record.replacement.reason for record in world.engine.records if record.replacement}
    assert reasons == {"older": "name-taken", "old": None}
    forget = ReplaceTopicCommand("old", NEW, 1, forget=True)
    assert [result.code for result in world.engine.execute([forget])] == [ErrorCode.NONE]
    (left,) = world.engine.records
    assert (left.topic, left.replacement.new_topic, left.replacement.new_topic_id) == ("older", NEW, f"id-of-{NEW}")


def test_an_alias_may_change_in_the_pass_in_which_it_ends() -> None:
    world = Deleting()
    alias = released("old", "id-of-old", NEW, released_ms=3, gone_ms=4, reason=reasons.NAME_TAKEN)
    world.record_is(alias, released(NEW, f"id-of-{NEW}", "old", new_topic_id="id-3", released_ms=3, deleting_ms=4))
    world.found["old"] = replace(world.found["old"], topic_id="id-3", gone=True)
    world.found[NEW] = TopicFacts(NEW, None, gone=True)
    world.check()
    assert [record.topic for record in world.engine.records] == [NEW]
    assert world.log.open().records.keys() == {f"id-of-{NEW}"}
