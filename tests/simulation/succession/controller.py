"""A controller of this world: the real engine, an observer that asks in parts, and effects on the simulated brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from modeaware.cluster.cluster import Cluster
from modeaware.cluster.effects import Check, no_check
from modeaware.cluster.observer import ANY_ID, Look
from modeaware.controller.election import Election, LeasedEffects
from modeaware.controller.engine import Engine
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import (
    CreateTopic,
    DeletePredecessor,
    DeleteTopic,
    Effect,
    FenceTopic,
    RemoveConfigs,
)
from modeaware.lifecycle.facts import FenceFacts, GroupFacts, GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS, is_followed
from modeaware.lifecycle.state import in_progress
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.modelog.records import TopicRecord
from tests.simulation.broker import SESSION_MS
from tests.simulation.controller import Controller, Nothing
from tests.simulation.faults import Fault
from tests.simulation.modelog import LogSession
from tests.simulation.observer import GONE_AFTER_MS, Looked

if TYPE_CHECKING:
    from tests.simulation.succession.world import Partition, SimTopic, World

NOT_LISTED = GroupsDoubt("not listed: nothing is in progress")


class ReplacingController(Controller):
    """One controller; its methods are steps of its thread."""

    world: Any
    probed: frozenset[int] = frozenset()
    """The partitions whose leaders answered the last probes."""
    looked_again = proved_again = proved_again_ms = -1
    """The steps of the last look right before a topic is deleted, and of the last proof of its fence."""
    ends_again: tuple[int, ...] = ()
    """What was replicated of each log then."""

    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, index, world.config)  # type: ignore[arg-type] - what it asks for both worlds have

    def start(self) -> None:
        world = self.world
        self.alive, self.claimed, self.own_steps = True, False, 0
        self.looked, self.not_for_it, self.without_rules = Looked(), frozenset(), False
        self.member = world.coordinator.join(world.time_ms)
        effects = LeasedEffects(SimBrokers(world, self), cast(Election, self), SESSION_MS, world)
        self.engine = Engine(
            cast(Any, LogSession(world, world.log, self)),
            cast(Any, Observer(world, self)),
            effects,
            self._config,
            world,
        )
        self.engine.failures = Nothing()
        self.epoch = -1


class SimBrokers(Cluster):
    """Carries out effects, or loses them, or does so later."""

    def __init__(self, world: World, controller: ReplacingController) -> None:
        self._world = world
        self._controller = controller

    def perform(self, effects: Sequence[Effect], check: Check = no_check) -> list[ClusterError | None]:
        failures: list[ClusterError | None] = []
        for effect in effects:
            try:
                self._one(effect, check)
                failures.append(None)
            except ClusterError as error:
                failures.append(error)
        return failures

    def _one(self, effect: Effect, check: Check) -> None:
        world = self._world
        if isinstance(effect, DeletePredecessor):
            self._check_at_rest(effect)
        world.io(self._controller, "asks for the topic's id")
        topic = world.topics.get(effect.topic)
        if topic is None or topic.topic_id != effect.topic_id:
            raise ClusterError("another topic", code=ErrorCode.UNKNOWN_TOPIC_ID)
        if isinstance(effect, DeleteTopic):
            self._check_untouched(effect)
        check()
        world.judge.effect_sent(self._controller, effect)
        world.io(self._controller, f"sends {type(effect).__name__}")
        if isinstance(effect, CreateTopic):
            self._create(effect)
        elif isinstance(effect, DeleteTopic):
            found = world.topics.get(effect.successor)
            if found is None or found.topic_id != effect.successor_id:
                raise ClusterError("no such topic", code=ErrorCode.UNKNOWN_TOPIC_ID)
            world.judge.deleted(self._controller, found)
            world.delete(effect.successor)
        elif isinstance(effect, DeletePredecessor):
            if world.strikes(Fault.EFFECT_REFUSED):
                raise ClusterError("refused", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            found = world.topics.get(effect.topic)
            if found is None or found.topic_id != effect.topic_id:
                raise ClusterError("no such topic", code=ErrorCode.UNKNOWN_TOPIC_ID)
            world.judge.predecessor_deleted(self._controller, found)
            world.delete(effect.topic)
        elif isinstance(effect, FenceTopic):
            if world.strikes(Fault.EFFECT_REFUSED):
                raise ClusterError("refused", code=ErrorCode.POLICY_VIOLATION)
            topic = world.topics.get(effect.topic)
            if topic is not None:
                world.tell("topic %s (%s) gets the fence", topic.name, topic.topic_id)
                topic.configs |= effect.configs
                for partition in range(len(topic.logs)):
                    if world.random() < 0.5:
                        world.apply_configs(topic, partition)
        elif isinstance(effect, RemoveConfigs):
            found = world.topics.get(effect.topic)
            for name in effect.names if found is not None else ():
                found.configs.pop(name, None)
        if world.strikes(Fault.EFFECT_ANSWER_LOST):
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)

    def _check_untouched(self, effect: DeleteTopic) -> None:
        found = self._world.topics.get(effect.successor)
        if found is not None and not self._world.calm and self._world.side_random() < 0.1:
            self._world.foreign_record(found)
        self._world.io(self._controller, "asks for the successor's ends")
        self._controller.looked_again = self._world.steps
        found = self._world.topics.get(effect.successor)
        if found is not None and found.touched:
            raise ClusterError("it has records")

    def _check_at_rest(self, effect: DeletePredecessor) -> None:
        world, controller = self._world, self._controller
        world.io(controller, "proves the fence once more")
        controller.proved_again, controller.proved_again_ms = world.steps, world.time_ms
        found = world.topics.get(effect.topic)
        logs = found.logs if found is not None else []
        fenced = {p: log.epoch for p, log in enumerate(logs) if log.available and log.fenced and log.followers_fenced}
        world.io(controller, "asks for the ends once more")
        controller.looked_again = world.steps
        found = world.topics.get(effect.topic)
        logs = found.logs if found is not None else []
        controller.ends_again = tuple(log.replicated for log in logs)
        if not all(fenced.get(p) == log.epoch for p, log in enumerate(logs)):
            raise ClusterError("a leader does not refuse data")
        if [len(log.records) for log in logs] != [effect.seal_offsets.get(p) for p in range(len(logs))]:
            raise ClusterError("a log does not end at its seal")

    def validate(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        self._world.io(self._controller, "has brokers check effects")
        denied = ClusterError("denied", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return [denied if isinstance(effect, FenceTopic) and self._world.denied else None for effect in effects]

    def _create(self, effect: CreateTopic) -> None:
        world = self._world

        def create() -> None:
            if effect.successor not in world.topics:
                world.make(effect.successor, effect.num_partitions).configs |= effect.configs

        if world.strikes(Fault.EFFECT_REFUSED):
            raise ClusterError("refused", code=ErrorCode.POLICY_VIOLATION)
        if effect.successor in world.topics:
            raise ClusterError("exists", code=ErrorCode.TOPIC_ALREADY_EXISTS)
        if world.strikes(Fault.LATE_CREATE):
            world.late.append(create)
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        create()


class Observer:
    """The engine's observer: asks in the order of the real one, and others get their turn in between."""

    def __init__(self, world: World, controller: ReplacingController) -> None:
        self._world = world
        self._controller = controller
        self._seen: dict[tuple[str, int], tuple[int, int, int, bool]] = {}
        self._missing_since_ms: dict[str, int] = {}
        self._deleted: set[str] = set()

    def deleted(self, topic_id: str) -> None:
        self._deleted.add(topic_id)

    def unchanged(self, topic_ids: Iterable[str]) -> bool:
        return False

    def observe_all(self, looks: Sequence[Look], rules: Sequence[GroupRule] = ()) -> list[TopicFacts | ClusterError]:
        world = self._world
        self._ask("asks for the topics")
        shapes = {look: self._shape(look) for look in looks}
        others = {name: topic.topic_id for name, topic in world.topics.items()}
        fences = {look: self._fence(look, topic) for look, topic in shapes.items() if topic is not None}
        log_ends = {
            look: [len(log.records) for log in topic.logs] for look, topic in shapes.items() if topic is not None
        }
        self._ask("asks for the stable offsets")
        stable = {look: [log.last_stable for log in topic.logs] for look, topic in shapes.items() if topic is not None}
        self._ask("asks for the ends")
        logs = {
            look: self._partitions(look, topic, stable[look], log_ends[look], fences[look])
            for look, topic in shapes.items()
            if topic is not None
        }
        at = world.steps + 1
        self._ask("lists the groups")
        doubt = GroupsDoubt("the offsets topic has moved") if world.doubtful else None
        groups = {look: self._groups(look, topic) for look, topic in shapes.items() if topic is not None}
        world.group_begins()
        named = {rule.group for rule in rules if rule.kind == REQUIRE}
        seen = tuple(name for look in groups if look.record is not None for name in groups[look])
        if any(look.topic_id is None for look in looks):  # a look at successors alone comes after that at predecessors
            self._controller.looked = Looked(at, step=world.steps, now_ms=world.time_ms, seen=seen, sure=doubt is None)
        found: list[TopicFacts | ClusterError] = []
        for look in looks:
            topic = shapes[look]
            if topic is None:
                found.append(TopicFacts(look.topic, others.get(look.topic), gone=self._gone(look)))
                continue
            if look.record is not None and not in_progress(look.record):  # as the real one: nothing depends on groups
                groups[look] = {}
            listed = {n: g for n, g in groups[look].items() if doubt is None or n in named or world.side_random() < 0.5}
            found.append(
                TopicFacts(
                    look.topic,
                    topic.topic_id,
                    partition_count=len(topic.logs),
                    cleanup_policy=world.policy,
                    partitions=logs[look],
                    groups=listed,
                    groups_doubt=doubt if look.record is None or in_progress(look.record) else NOT_LISTED,
                    fence=fences[look],
                    configs=dict(topic.configs) if (look.topic_id or "").startswith(ANY_ID) else None,
                )
            )
        return found

    def _ask(self, what: str) -> None:
        self._world.io(self._controller, what)
        if self._world.strikes(Fault.OBSERVE_FAILED):
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)

    def _shape(self, look: Look) -> SimTopic | None:
        topic = self._world.topics.get(look.topic)
        if topic is None or not look.is_of(topic.topic_id):
            return None
        self._missing_since_ms.pop(look.expected_id or topic.topic_id, None)
        return topic

    def _gone(self, look: Look) -> bool:
        now_ms, wanted = self._world.time_ms, look.expected_id
        if wanted in self._deleted:
            return True
        return wanted is not None and now_ms - self._missing_since_ms.setdefault(wanted, now_ms) >= GONE_AFTER_MS

    def _fence(self, look: Look, topic: SimTopic) -> FenceFacts | None:
        now = is_followed(look.record)
        if now is None or not now.has_fence:
            return None
        configs = {name: topic.configs[name] for name in FENCE_CONFIGS if name in topic.configs}
        shown = [p for p, log in enumerate(topic.logs) if log.followers_fenced]
        self._ask("probes the fence")
        if self._world.denied:
            self._controller.probed = frozenset()
            return FenceFacts(configs, failure=ClusterError("denied", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        refused = {p: log.epoch for p, log in enumerate(topic.logs) if log.available and log.fenced}
        self._controller.probed = frozenset(p for p, log in enumerate(topic.logs) if log.available)
        return FenceFacts(configs, {p: refused[p] for p in shown if p in refused}, self._controller.probed)

    def _partitions(
        self, look: Look, topic: SimTopic, stable: list[int], log_ends: list[int], fence: FenceFacts | None
    ) -> dict[int, PartitionFacts]:
        record = look.record
        wanted = range(len(topic.logs)) if record is None else [p for p in record.closed if p < len(topic.logs)]
        facts = {}
        for partition in wanted:
            log = topic.logs[partition]
            if log.available and partition < len(log_ends):
                facts[partition] = self._partition(
                    (topic.topic_id, partition), log, stable[partition], log_ends[partition], record, fence
                )
        return facts

    def _partition(
        self,
        key: tuple[str, int],
        log: Partition,
        stable: int,
        log_end: int,
        record: TopicRecord | None,
        fence: FenceFacts | None,
    ) -> PartitionFacts:
        now_ms, end = self._world.time_ms, log.replicated
        last = self._seen.get(key)
        if last is None or last[:2] != (end, log.epoch):
            last = (end, log.epoch, now_ms, last is not None and last[0] != end)
            if record is not None:
                self._seen[key] = last
        seal_epoch_end, proved = None, fence is not None and fence.proved.get(key[1]) == log.epoch
        retired = record.retired[key[1]] if record is not None else None
        if retired is not None and retired.seal_leader_epoch not in (None, log.epoch):
            seal_epoch_end = min(log.epoch_end(retired.seal_leader_epoch or 0), end)
        final = proved and log_end <= end
        if record is not None and record.replacement is not None and record.replacement.fence == "none":
            final = True
        final = final or (retired is not None and retired.seal_offset is not None)
        read_up_to = (
            self._world.read_up_to(log) if retired is not None and (final or retired.seal_offset == end) else None
        )
        return PartitionFacts(
            log.log_start,
            end,
            min(stable, end),
            log.epoch,
            last[2],
            last[3],
            seal_epoch_end,
            log_end=log_end,
            read_up_to=read_up_to,
        )

    def _groups(self, look: Look, topic: SimTopic) -> dict[str, GroupFacts]:
        world, found = self._world, {}
        for name, group in world.groups.items():
            committed = group.committed.get(topic.topic_id, {})
            if not committed and topic.topic_id not in group.assigned:
                continue
            caught_up = frozenset(p for p, log in enumerate(topic.logs) if world.has_all(log, committed.get(p, 0)))
            subscribed: bool | None = topic.topic_id in group.assigned
            if world.deletes and group.has_members and not world.calm and world.side_random() < 0.05:  # in a rebalance
                subscribed = None
            found[name] = GroupFacts(
                dict(committed), caught_up, group.has_members, stateful=group.stateful, subscribed=subscribed
            )
        return found
