"""The engine and topics that are replaced: commands of one batch, what brokers refuse beforehand, and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from modeaware.cluster.observer import Look
from modeaware.config import ControllerConfig
from modeaware.controller.engine import Engine
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import CreateTopic, DeleteTopic, Effect, FenceTopic, ReplaceTopicCommand
from modeaware.lifecycle.facts import PartitionFacts, TopicFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement, TopicRecord
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
        effects: Any = self
        self.engine = Engine(MemoryLog(), effects, effects, ControllerConfig(), self.clock)
        self.engine.claim("test")

    def observe_all(self, looks: Sequence[Look], rules: Sequence[GroupRule] = ()) -> list[TopicFacts | ClusterError]:
        return [
            self.clusters[look.topic].observe(look.topic, look.record)
            if look.topic in self.clusters
            else self.found.get(look.topic, TopicFacts(look.topic, None))
            for look in looks
        ]

    def validate(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        codes = [self.refused.get(type(effect)) for effect in effects]
        return [None if code is None else ClusterError("refused", code=code) for code in codes]

    def perform(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        self.performed += effects
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


def test_two_topics_of_one_batch_do_not_get_one_successor(world: World) -> None:
    codes = world.ask(ReplaceTopicCommand(A, NEW, 1), ReplaceTopicCommand(B, NEW, 1))
    assert codes == [ErrorCode.NONE, ErrorCode.REASSIGNMENT_IN_PROGRESS]
    assert world.record.topic == A


def test_a_topic_of_the_batch_is_no_successor_in_it(world: World) -> None:
    codes = world.ask(ReplaceTopicCommand(A, NEW, 1), ReplaceTopicCommand(B, A, 1))
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FenceTopic, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (FenceTopic, ErrorCode.UNSUPPORTED_VERSION),
        (CreateTopic, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (CreateTopic, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_brokers_would_refuse_is_refused_beforehand(world: World, kind: type[Effect], code: ErrorCode) -> None:
    world.refused = {kind: code}
    assert world.ask(ReplaceTopicCommand(A, NEW, 1)) == [code]
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, validate_only=True)) == [code]
    assert world.engine.records == ()
    needs_none = kind is FenceTopic
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, fence="none")) == [ErrorCode.NONE if needs_none else code]


def test_a_repeat_is_not_checked_again(world: World) -> None:
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, pause_before_switch=True)) == [ErrorCode.NONE]
    world.refused = {FenceTopic: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert world.ask(ReplaceTopicCommand(A, NEW, 1)) == [ErrorCode.NONE]
    assert world.record.replacement is not None
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
    """An unanswered one may not be done; then the successor has to be missing for a while."""
    world.ask(ReplaceTopicCommand(A, NEW, 1))
    world.found[NEW] = TopicFacts(NEW, "new-id", partition_count=1, partitions={0: PartitionFacts(0, 0, 0, 0, 0)})
    world.check()
    world.ask(ReplaceTopicCommand(A, NEW, 1, undo=True))
    assert world.record.replacement is not None
    assert world.record.replacement.reason == reasons.UNDOING
    world.refused[DeleteTopic] = ErrorCode.REQUEST_TIMED_OUT
    world.check()
    assert world.gone == []
    del world.refused[DeleteTopic]
    world.check()
    assert world.gone == ["new-id"]


def test_alias_is_forgotten_and_a_topic_adopted_in_one_append(world: World) -> None:
    old = TopicRecord(
        A, "gone", 5, 1, (PartitionMode.READ_ONLY,), min_reader=2,
        replacement=Replacement(NEW, 1, 0, successor_id="new", announced_ms=1, switched_ms=2, let_go_ms=3, gone_ms=4),
    )  # fmt: skip
    entries: list[tuple[str, bytes | None]] = []
    world.engine._append([old])  # a private call: as a controller that has replaced it would have
    append = world.engine._log.append
    world.engine._log.append = lambda found: (entries.extend(found), append(found))[1]  # type: ignore[method-assign]  # spied on
    topic_id = world.clusters[A].observe(A, None).topic_id
    assert topic_id is not None
    adopt = ReplaceTopicCommand(A, NEW, 1, adopt_id=topic_id)
    world.refused = {FenceTopic: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert world.ask(adopt) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    world.refused = {}
    assert world.ask(adopt) == [ErrorCode.NONE]
    assert [(key, value is None) for key, value in entries] == [(topic_id, False), ("gone", True)]
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, forget=True)) == [ErrorCode.INVALID_REQUEST], "it is no alias now"
    world.engine._append([old], [topic_id])
    assert world.ask(ReplaceTopicCommand(A, NEW, 1, forget=True)) == [ErrorCode.NONE]
    assert world.engine.records == ()
