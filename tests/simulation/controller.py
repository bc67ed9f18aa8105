"""A controller process: the real engine and checks, a thin daemon around them, requests that may fail in any way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast
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
from modeaware.lifecycle.commands import Command, CommandResult, CommitOffsets, CreatePartitions, DeleteRecords, Effect
from modeaware.modelog.records import TopicRecord
from tests.simulation.broker import SESSION_MS
from tests.simulation.faults import Fault, phase_of
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
            self._cluster.phase = phase_of(record)  # of the record it is done for
            self._world.judge.effect_begins(self._controller, effect)
        return super().perform(effects)


class SimCluster(Cluster):
    """The real check of the topic's id, over simulated brokers: itself (see seams)."""

    def __init__(self, world: World, controller: Controller) -> None:
        self._world = world
        self._controller = controller
        self.phase = 0

    @property
    def brokers(self) -> Any:
        return self

    def perform(self, effects: Sequence[Effect], check: Check = no_check) -> list[ClusterError | None]:
        """Asking for the id takes its time here; how things stand right before the request is read without any."""
        failures: list[ClusterError | None] = []
        for effect in effects:
            self._may_be_recreated()
            self._world.io(self._controller, "asks for the topic's id")
            replaced = replaced_topics(self.brokers, {effect.topic: effect.topic_id}).get(effect.topic)
            failures += [replaced] if replaced is not None else super().perform([effect], check)
        return failures

    def ids_of_each_broker(self, names: Sequence[str]) -> dict[int, Mapping[str, str | None]]:
        return {0: dict.fromkeys(names, None if self._world.topic is None else self._world.topic.topic_id)}

    def _may_be_recreated(self) -> None:
        """The topic may be replaced right before the check of its id, which must notice; or right after it."""
        if self._world.strikes(Fault.RECREATED_AT_EFFECT, self.phase):
            self._world.delete_topic()
            self._world.make_topic()

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
        self._check(effect, check)
        world.judge.effect_sent(self._controller, effect)
        world.judge.delete_sent(self._controller, replace(effect, offsets=led))
        world.io(self._controller, "sends DeleteRecords")
        self._may_be_recreated()
        self._may_be_refused()
        if world.happens(Fault.LATE_DELETE):
            world.late.append((Fault.LATE_DELETE, request))
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
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

    def _check(self, effect: Effect, check: Check) -> None:
        for replaced in replaced_topics(self.brokers, {effect.topic: effect.topic_id}).values():
            raise replaced
        check()

    def grow(
        self, effects: Sequence[CreatePartitions], check: Check = no_check, *, validate_only: bool = False
    ) -> list[ClusterError | None]:
        return each_alone(effects, lambda effect: self._grow(effect, validate_only, check))

    def _grow(self, effect: CreatePartitions, validate_only: bool, check: Check) -> None:
        world = self._world
        world.io(self._controller, "looks for the brokers' controller")
        if not validate_only:
            self._check(effect, check)
            world.judge.effect_sent(self._controller, effect)
        world.io(self._controller, "checks CreatePartitions" if validate_only else "sends CreatePartitions")
        self._may_be_refused()
        topic = world.topic
        if topic is None or effect.total_count <= len(topic.logs):
            raise ClusterError("not more than there are", code=ErrorCode.INVALID_PARTITIONS)
        if validate_only:
            return
        request = world.new_creation(effect)
        if world.happens(Fault.LATE_CREATE):
            world.late.append((Fault.LATE_CREATE, request))
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
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

    def _may_be_refused(self) -> None:
        if self._world.strikes(Fault.EFFECT_REFUSED):
            raise ClusterError("refused", code=ErrorCode.POLICY_VIOLATION)

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
    """

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
