"""A controller process: the real engine and checks, a thin daemon around them, requests that may fail in any way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast
from unittest.mock import patch

from modeaware.cluster import cluster, effects
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.effects import BATCHED, VALIDATED, Check, no_check, replaced_topics
from modeaware.config import ControllerConfig
from modeaware.controller.cluster_watch import TopicWatch
from modeaware.controller.election import Election, LeasedEffects
from modeaware.controller.engine import Engine
from modeaware.controller.failures import Failures
from modeaware.errors import ClusterError, ControllerFenced, ErrorCode, ModeSourceError, NewerRecord
from modeaware.lifecycle.commands import (
    Command,
    CommandResult,
    CommitOffsets,
    CreatePartitions,
    CreateTopic,
    DeleteOldTopic,
    DeleteRecords,
    DeleteTopic,
    Effect,
    FenceTopic,
    RemoveConfigs,
)
from modeaware.modelog.records import TopicRecord
from tests.simulation.broker import NAME, SESSION_MS, Topic
from tests.simulation.faults import Fault
from tests.simulation.modelog import LogSession
from tests.simulation.observer import Looked, SimObserver, ids_of_each_broker, ids_of_one_broker

if TYPE_CHECKING:
    from tests.simulation.world import World


_Effect = TypeVar("_Effect", bound=Effect)


class SimEffects(LeasedEffects):
    """The real lease; the judge is told when an effect begins."""

    def __init__(self, world: World, controller: Controller) -> None:
        cluster = SimCluster(world, controller)
        super().__init__(cluster, cast(Election, controller), SESSION_MS, world)
        self._world = world
        self._controller = controller
        self._cluster = cluster

    def perform(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        for effect in effects:
            record = {record.topic_id: record for record in self._controller.engine.records}.get(effect.topic_id)
            self._cluster.phase = self._world.phase_of(record)  # of the record it is done for
            self._world.judge.effect_begins(self._controller, effect)
        return super().perform(effects)


class SimCluster(Cluster):
    """The real check of the topic's id, over simulated brokers: itself (see seams). Carries out effects, or loses them,
    or does so later."""

    def __init__(self, world: World, controller: Controller) -> None:
        self._world = world
        self._controller = controller
        self.phase = 0

    @property
    def brokers(self) -> Any:
        return self

    def perform(self, effects: Sequence[Effect], check: Check = no_check) -> list[ClusterError | None]:
        """Asking for the id takes its time here; how things stand right before the request is read without any."""
        return each_alone(effects, lambda effect: self._one(effect, check))

    def _one(self, effect: Effect, check: Check) -> None:
        self._may_be_recreated()
        if isinstance(effect, DeleteOldTopic):
            self._check_at_rest(effect)
        self._world.io(self._controller, "asks for the topic's id")
        self._check_id(effect)
        if type(effect) in self.REPLACING:
            self._replace(effect, check)
            return
        for failure in super().perform([effect], check):
            if failure is not None:
                raise failure

    def ids_of_each_broker(self, names: Sequence[str]) -> dict[int, Mapping[str, str | None]]:
        topics = self._world.topics
        return {0: {name: topics[name].topic_id if name in topics else None for name in names}}

    def _may_be_recreated(self) -> None:
        """The topic may be replaced right before the check of its id, which must notice; or right after it."""
        if self._world.strikes(Fault.RECREATED_AT_EFFECT, self.phase):
            self._world.delete(NAME)
            self._world.make_again()

    def _check_id(self, effect: Effect) -> None:
        for replaced in replaced_topics(self.brokers, {effect.topic: effect.topic_id}).values():
            raise replaced

    # Of shrinks and growths

    def delete_records(self, effects: Sequence[DeleteRecords], check: Check = no_check) -> list[ClusterError | None]:
        return each_alone(effects, lambda effect: self._delete_records(effect, check))

    def _delete_records(self, effect: DeleteRecords, check: Check) -> None:
        world = self._world
        world.judge.deletes(self._controller, effect)
        world.io(self._controller, "looks for the leaders")
        led = self._led_as_seen(effect)
        if not led:
            raise ClusterError("put off: other leaders by now")
        request = world.new_deletion(replace(effect, offsets=led))
        self._check_id(effect)
        check()
        world.judge.effect_sent(self._controller, effect)
        world.judge.delete_sent(self._controller, replace(effect, offsets=led))
        world.io(self._controller, "sends DeleteRecords")
        self._may_be_recreated()
        self._may_be_refused()
        self._may_come_late(Fault.LATE_DELETE, request)
        error = request()
        if error is not None:
            raise ClusterError(error)
        self._may_lose_answer()
        if led != effect.offsets:
            raise ClusterError("put off: other leaders by now")

    def _led_as_seen(self, effect: DeleteRecords) -> dict[int, int]:
        """The offsets of those partitions that still have the leader epoch that was seen."""
        led = {}
        for partition, offset in effect.offsets.items():
            log = self._world.log_of(partition)
            if log is not None and log.epoch == effect.leader_epochs.get(partition):
                led[partition] = offset
        return led

    def grow(
        self, effects: Sequence[CreatePartitions], check: Check = no_check, *, validate_only: bool = False
    ) -> list[ClusterError | None]:
        return each_alone(effects, lambda effect: self._grow(effect, validate_only, check))

    def _grow(self, effect: CreatePartitions, validate_only: bool, check: Check) -> None:
        world = self._world
        world.io(self._controller, "looks for the brokers' controller")
        if not validate_only:
            self._check_id(effect)
            check()
            world.judge.effect_sent(self._controller, effect)
        world.io(self._controller, "checks CreatePartitions" if validate_only else "sends CreatePartitions")
        self._may_be_refused()
        topic = world.topic
        if topic is None or effect.total_count <= len(topic.logs):
            raise ClusterError("not more than there are", code=ErrorCode.INVALID_PARTITIONS)
        if validate_only:
            return
        request = world.new_creation(effect)
        self._may_come_late(Fault.LATE_CREATE, request)
        request()
        self._may_lose_answer()

    def commit_offsets(self, effect: CommitOffsets, check: Check) -> None:
        world = self._world
        world.io(self._controller, "looks for the group's coordinator")
        check()
        world.judge.effect_sent(self._controller, effect)
        world.io(self._controller, "commits offsets for a group")
        self._may_be_refused()
        group = world.groups.get(effect.group)
        if group is None or world.topic is None or group.has_members:
            raise ClusterError("refused", code=ErrorCode.UNKNOWN_SERVER_ERROR)
        for partition, offset in effect.offsets.items():
            log = world.log_of(partition)
            if log is not None:
                group.committed[partition] = (offset, log.epoch)
        self._may_lose_answer()

    # Of replacements

    def _replace(self, effect: Effect, check: Check) -> None:
        if isinstance(effect, DeleteTopic):
            self._check_untouched(effect)
        check()
        self._world.judge.effect_sent(self._controller, effect)
        self._world.io(self._controller, f"sends {type(effect).__name__}")
        self.REPLACING[type(effect)](self, effect)
        self._may_lose_answer()

    def _create_topic(self, effect: CreateTopic) -> None:
        world = self._world

        def create() -> None:
            if effect.new_topic not in world.topics:
                world.make(effect.new_topic, effect.num_partitions).configs |= effect.configs

        self._may_be_refused()
        if effect.new_topic in world.topics:
            raise ClusterError("exists", code=ErrorCode.TOPIC_ALREADY_EXISTS)
        self._may_come_late(Fault.LATE_CREATE, create)
        create()

    def _delete_topic(self, effect: DeleteTopic) -> None:
        self._world.judge.deleted(self._controller, self._found(effect.new_topic, effect.new_topic_id))
        self._world.delete(effect.new_topic)

    def _delete_old_topic(self, effect: DeleteOldTopic) -> None:
        self._may_be_refused()
        self._world.judge.old_topic_deleted(self._controller, self._found(effect.topic, effect.topic_id))
        self._world.delete(effect.topic)

    def _found(self, name: str, topic_id: str) -> Topic:
        topic = self._world.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            raise ClusterError("no such topic", code=ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def _fence(self, effect: FenceTopic) -> None:
        self._may_be_refused()
        world = self._world
        topic = world.topics.get(effect.topic)
        if topic is not None:
            world.tell("topic %s (%s) gets the fence", topic.name, topic.topic_id)
            topic.configs |= effect.configs
            for partition in range(len(topic.logs)):
                if world.random() < 0.5:
                    world.apply_configs(topic, partition)

    def _remove_configs(self, effect: RemoveConfigs) -> None:
        topic = self._world.topics.get(effect.topic)
        for name in effect.names if topic is not None else ():
            topic.configs.pop(name, None)

    REPLACING: ClassVar[dict[type[Effect], Callable[..., None]]] = {
        CreateTopic: _create_topic,
        DeleteTopic: _delete_topic,
        DeleteOldTopic: _delete_old_topic,
        FenceTopic: _fence,
        RemoveConfigs: _remove_configs,
    }

    def _check_untouched(self, effect: DeleteTopic) -> None:
        world = self._world
        found = world.topics.get(effect.new_topic)
        if found is not None and not world.calm and world.side_random() < 0.1:
            world.foreign_record(found)
        world.io(self._controller, "asks for the new topic's ends")
        self._controller.looked_again = world.steps
        found = world.topics.get(effect.new_topic)
        if found is not None and found.touched:
            raise ClusterError("it has records")

    def _check_at_rest(self, effect: DeleteOldTopic) -> None:
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
        if not self._world.replaces:
            return super().validate(effects)
        self._world.io(self._controller, "has brokers check effects")
        denied = ClusterError("denied", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return [denied if isinstance(effect, FenceTopic) and self._world.denied else None for effect in effects]

    # What becomes of a request

    def _may_be_refused(self) -> None:
        if self._world.strikes(Fault.EFFECT_REFUSED):
            raise ClusterError("refused", code=ErrorCode.POLICY_VIOLATION)

    def _may_come_late(self, fault: Fault, request: Callable[[], object]) -> None:
        if self._world.happens(fault):
            self._world.late.append((fault, request))
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)

    def _may_lose_answer(self) -> None:
        if self._world.strikes(Fault.EFFECT_ANSWER_LOST, self.phase):
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)


def each_alone(effects: Sequence[_Effect], perform: Callable[[_Effect], None]) -> list[ClusterError | None]:
    """Perform effects one after the other; return the failure of each."""
    failures: list[ClusterError | None] = []
    for effect in effects:
        try:
            perform(effect)
            failures.append(None)
        except ClusterError as error:
            failures.append(error)
    return failures


@contextmanager
def seams() -> Iterator[None]:
    """Within it schedules may run. It changes the process: no other code may use what it replaces.

    Every reader of the mode log parses the same bytes: they are parsed once. Records are immutable.
    """
    parse = lru_cache(1024)(TopicRecord.from_json)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with ExitStack() as patches:
            patches.enter_context(patch.object(TopicRecord, "from_json", staticmethod(parse)))
            patches.enter_context(patch.object(effects, "ids_of_each_broker", SimCluster.ids_of_each_broker))
            patches.enter_context(patch.object(cluster, "commit_offsets", SimCluster.commit_offsets))
            simulated = {DeleteRecords: SimCluster.delete_records, CreatePartitions: SimCluster.grow}
            patches.enter_context(patch.dict(BATCHED, simulated))
            patches.enter_context(
                patch.dict(VALIDATED, {CreatePartitions: partial(SimCluster.grow, validate_only=True)})
            )
            yield
    finally:
        logging.disable(before)


class Crash(Exception):
    """The controller's process dies here."""


class Nothing(Failures):
    """Everything that may happen here is foreseen: what is not, a violation say, ends the schedule."""

    @contextmanager
    def isolated(self, what: str, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> Iterator[None]:
        yield


class Controller:
    """One controller; its methods are steps of its thread.

    Attributes:
        busy: it is within a step (paused there, when anybody else moves).
        claimed: its engine holds the claim, as far as it knows.
        own_steps: its requests since its last successful append.
        looked: what it saw when it last looked at the topic.
        not_for_it: the keys of the mode log whose record was for newer readers when it read the log.
        without_rules: the rules about groups could not be read then, and have not been written since.
        probed: the partitions whose leaders answered the last probes of a fence.
        looked_again, proved_again: the steps of the last look right before a topic is deleted, and of the last proof of
            its fence.
        ends_again: what was replicated of each log then.
    """

    probed: frozenset[int] = frozenset()
    looked_again = proved_again = proved_again_ms = -1
    ends_again: tuple[int, ...] = ()

    def __init__(self, world: World, index: int, config: ControllerConfig) -> None:
        self.world = world
        self.index = index
        self._config = config
        self.alive = False
        self.busy = False
        self.start()

    def start(self) -> None:
        world = self.world
        self.alive, self.claimed = True, False
        self.own_steps = 0
        self.looked = Looked()
        self.not_for_it: frozenset[str] = frozenset()
        self.without_rules = False
        self.member = world.coordinator.join(world.time_ms)
        log = LogSession(world, world.log, self)
        self.engine = Engine(log, SimObserver(world, self), SimEffects(world, self), self._config, world)
        self.engine.failures = Nothing()
        one, each = partial(ids_of_one_broker, world), partial(ids_of_each_broker, world)
        self.watch = TopicWatch(self.engine, one, each, world)
        self.epoch = -1

    def step(self) -> None:
        """One turn of the daemon's loop: the election, the claim, one topic that is due."""
        if self.busy:
            return
        if not self.alive:
            self.world.tell("controller %d starts", self.index)
            self.start()
            return
        if not self._elected():
            return
        if not self.claimed:
            self._run(self._claim)
            return
        if self.world.ids_are_watched:
            self._run(self.watch.step)
            if not self.claimed:
                return
        due = self.engine.schedule.due(self.world.time_ms)
        if due:
            self._run(lambda: self.engine.check(self.engine.awake(due[:1])))

    def confirm(self, _timeout_s: float) -> bool | None:
        """Ask the coordinator; its yes counts as a heartbeat. None: no answer."""
        world, member = self.world, self.member
        world.io(self, "asks whether it is still the elected one")
        if world.strikes(Fault.OBSERVE_FAILED):
            return None
        world.coordinator.expire(world.time_ms)
        if world.coordinator.owner is not member or not world.coordinator.accepts(member, member.generation):
            return False
        member.polled_ms = world.time_ms
        return True

    def execute(self, command: Command) -> CommandResult | None:
        """A command from an admin; None: no answer, or not the active controller."""
        if self.busy or not self.alive or not self.claimed or not self._elected():
            return None
        results: list[CommandResult] = []
        self._run(lambda: results.extend(self.engine.execute([command])))
        return results[0] if results else None

    def _elected(self) -> bool:
        world = self.world
        if self.member.gone:
            self.member = world.coordinator.join(world.time_ms)
            self.claimed = False
        if not world.coordinator.poll(self.member, world.time_ms):
            if not world.coordinator.preparing:
                self.claimed = False
            return False
        return True

    def _claim(self) -> None:
        self.epoch = self.engine.claim(f"controller-{self.index}")
        self.claimed = True
        self.world.tell("controller %d has claimed the mode log: epoch %d", self.index, self.epoch)

    def _run(self, job: Callable[[], object]) -> None:
        self.busy = True
        try:
            job()
        except Crash:
            self.alive, self.claimed = False, False
            self.member.frozen = True
        except ControllerFenced:
            self.claimed = False
            self.world.coordinator.leave(self.member)
        except (ClusterError, ModeSourceError, NewerRecord):
            self.claimed = False
        finally:
            self.busy = False
        self.world.judge.memory(self)
