"""What a controller sees of the brokers: torn over several requests, and never more than a broker tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeaware.cluster.observer import Look
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, PartitionFacts, TopicFacts, WriterFacts
from modeaware.lifecycle.state import drains, in_progress
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.modelog.records import RetiredPartition, TopicRecord
from tests.simulation.broker import Log
from tests.simulation.faults import Fault

if TYPE_CHECKING:
    from tests.simulation.controller import Controller
    from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Looked:
    """What a controller saw when it last looked at the topic, and when, as the judge remembers it.

    Attributes:
        at: the first step that came after it had read the ends of the logs.
        step, now_ms: when it listed the groups.
        seen, sure: the groups that showed, and whether those are all there were.
        committed: the partitions on which each of them really had an offset then.
    """

    at: int = 0
    step: int = 0
    now_ms: int = 0
    seen: tuple[str, ...] = ()
    sure: bool = False
    committed: Mapping[str, frozenset[int]] = field(default_factory=dict)


GONE_AFTER_MS = 30_000
OTHERS_SHARE = 0.1
NO_FACTS: frozenset[int] = frozenset()


class SimObserver:
    """The engine's ``TopicObserver``: asks in the order of the real one, and other actors get their turn in between."""

    def __init__(self, world: World, controller: Controller) -> None:
        self._world = world
        self._controller = controller
        self._seen: dict[tuple[str, int], tuple[int, int, int, bool]] = {}
        self._missing_since_ms: dict[str, int] = {}
        self._retired: dict[str, list[int]] = {}
        self._at_rest: object = None

    def unchanged(self, topic_ids: Iterable[str]) -> bool:
        """Whether the logs of the retired partitions start and end where they did at the last call."""
        world, before, self._at_rest = self._world, self._at_rest, None
        self._ask("looks whether the topic is at rest")
        topic_id = None if world.topic is None else world.topic.topic_id
        if topic_id is None or set(topic_ids) != {topic_id}:
            return False
        logs = [world.log_of(p) for p in self._retired[topic_id]]
        if not all(log is not None and log.available for log in logs):
            return False
        self._at_rest = [(topic_id, log.log_start, len(log.records), log.epoch) for log in logs if log is not None]
        return self._at_rest == before

    def observe_all(self, looks: Sequence[Look], rules: Sequence[GroupRule] = ()) -> list[TopicFacts | ClusterError]:
        """Looks at the world's topic; what concerns the others of the pass takes its time before anything follows."""
        facts: list[TopicFacts | ClusterError] = [self._observe(topic, record, rules) for topic, record, *_ in looks]
        if self._world.side_random() < OTHERS_SHARE:
            self._world.io(self._controller, "looks at other topics")
        return facts

    def _observe(self, topic: str, record: TopicRecord | None, rules: Sequence[GroupRule]) -> TopicFacts:
        world = self._world
        self._ask("asks for the topic")
        found = None if world.strikes(Fault.STALE_BROKER) else world.topic  # one that knows no such topic
        if found is None:
            return TopicFacts(topic, None, gone=record is not None and self._gone(record))
        topic_id, count, policy = found.topic_id, len(found.logs), "delete"
        if record is not None and topic_id != record.topic_id:
            return TopicFacts(topic, topic_id, count, gone=self._gone(record))
        self._missing_since_ms.pop(topic_id, None)
        self._ask("asks for the stable offsets")
        wanted = range(count) if record is None else [p for p in record.closed if p < count]
        if record is not None:
            self._retired[topic_id] = list(wanted)
        stable = self._stable_offsets(wanted)
        self._ask("asks for the ends")
        looked_at = world.steps + 1  # what others did while this was asked for has happened, and is seen
        self._controller.looked = Looked(looked_at, step=world.steps, now_ms=world.time_ms)
        partitions = self._partitions(topic_id, record, stable)
        groups: dict[str, GroupFacts] = {}
        doubt: GroupsDoubt | None = GroupsDoubt("not asked for")
        if record is None or in_progress(record):
            self._ask("lists the groups")
            groups, doubt = self._groups(record, partitions, rules)
            committed = {name: frozenset(world.groups[name].committed) for name in groups}
            self._controller.looked = Looked(
                looked_at, world.steps, world.time_ms, tuple(groups), doubt is None, committed
            )
            policy = "delete" if world.topic is None else world.topic.cleanup_policy
        return TopicFacts(
            topic,
            topic_id,
            partition_count=count,
            cleanup_policy=policy,
            partitions=partitions,
            groups=groups,
            groups_doubt=doubt,
            listed_ms=self._controller.looked.now_ms,
        )

    def _ask(self, what: str) -> None:
        world = self._world
        world.io(self._controller, what)
        if world.strikes(Fault.OBSERVE_FAILED):
            world.tell("controller %d: no answer", self._controller.index)
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)

    def _stable_offsets(self, wanted: Sequence[int]) -> dict[int, int]:
        logs = {p: self._world.log_of(p) for p in wanted}
        return {p: log.stable for p, log in logs.items() if log is not None and log.available}

    def _partitions(
        self, topic_id: str, record: TopicRecord | None, stable: dict[int, int]
    ) -> dict[int, PartitionFacts]:
        facts = {}
        for partition, last_stable in stable.items():
            log = self._world.log_of(partition)
            if log is not None and log.available:
                facts[partition] = self._partition(topic_id, partition, log, last_stable, record)
        return facts

    def _partition(
        self, topic_id: str, partition: int, log: Log, stable: int, record: TopicRecord | None
    ) -> PartitionFacts:
        now_ms, end, key = self._world.time_ms, len(log.records), (topic_id, partition)
        last = self._seen.get(key)
        if last is None or last[:2] != (end, log.epoch):
            last = (end, log.epoch, now_ms, last is not None and last[0] != end)
            if record is not None:
                self._seen[key] = last
        seal_epoch_end, writers = None, ()
        if record is not None:
            retired = record.retired.get(partition, RetiredPartition())
            if retired.seal_leader_epoch is not None and retired.seal_leader_epoch != log.epoch:
                seal_epoch_end = log.epoch_end(retired.seal_leader_epoch)
            if retired.seal_offset is not None and end > retired.seal_offset:
                writers = (WriterFacts(7, 0, now_ms),)
        return PartitionFacts(log.log_start, end, stable, log.epoch, last[2], last[3], seal_epoch_end, writers)

    def _groups(
        self, record: TopicRecord | None, partitions: dict[int, PartitionFacts], rules: Sequence[GroupRule]
    ) -> tuple[dict[str, GroupFacts], GroupsDoubt | None]:
        """The groups that use the topic; ``omitted`` and ``hidden`` ones are left out, as brokers do it: with a doubt.

        Those that a rule requires by name are asked for all the same.
        """
        world, topic = self._world, self._world.topic
        named = {rule.group for rule in rules if rule.kind == REQUIRE and rule.applies(world.name, world.time_ms)}
        doubt = None
        if world.omitted:
            doubt = GroupsDoubt("the offsets topic has moved")
        elif world.hidden:
            doubt = GroupsDoubt("no right to DESCRIBE the cluster", hidden=True)
        seals: dict[int, int] = {}
        if record is not None and record.deletion is not None:
            seals = {
                p: r.seal_offset
                for p, r in record.retired.items()
                if r.seal_offset is not None and p in partitions and in_progress(record) and drains(p, record)
            }
        found = {}
        for name, group in world.groups.items():
            if not group.in_use or ((name in world.omitted or name in world.hidden) and name not in named):
                if group.in_use:
                    world.hit(Fault.GROUP_OMITTED if name in world.omitted else Fault.GROUPS_HIDDEN)
                continue
            truncated, epochless, caught_up = NO_FACTS, NO_FACTS, NO_FACTS
            if topic is not None:
                truncated = frozenset(p for p, c in group.committed.items() if self._truncated(topic.logs[p], *c))
                if group.epochless:
                    truncated, epochless = NO_FACTS, frozenset(group.committed)
                caught_up = frozenset(
                    p for p, seal in seals.items() if p < len(topic.logs) and world.clear(topic.logs[p], group, p, seal)
                )
            committed = {p: c[0] for p, c in group.committed.items()}
            found[name] = GroupFacts(
                committed, caught_up, group.has_members, group.kind, group.stateful, truncated, epochless
            )
        return found, doubt

    def _truncated(self, log: Log, offset: int, epoch: int) -> bool:
        """Whether what the group has read there was truncated, and something else was written since (or may be)."""
        end = max(log.epoch_end(epoch), log.log_start)
        return end < offset and (offset > log.end or not self._world.nothing_in(log, end, offset))

    def _gone(self, record: TopicRecord) -> bool:
        now_ms, topic = self._world.time_ms, self._world.topic
        if topic is not None and topic.topic_id == record.topic_id:
            self._missing_since_ms.pop(record.topic_id, None)
            return False
        return now_ms - self._missing_since_ms.setdefault(record.topic_id, now_ms) >= GONE_AFTER_MS


def ids_of_one_broker(world: World, names: Sequence[str]) -> Mapping[str, str | None]:
    """One broker's word, which may be stale: it still names the topic before, or knows none."""
    found = None if world.topic is None else world.topic.topic_id
    if world.odds[Fault.STALE_BROKER] and not world.calm and world.side_random() < 0.3:
        found = world.earlier_id if world.side_random() < 0.7 else None
    return dict.fromkeys(names, found)


def ids_of_each_broker(world: World, names: Sequence[str]) -> dict[int, Mapping[str, str | None]]:
    """Every broker's word: one of them is up to date."""
    return {0: dict.fromkeys(names, world.topic and world.topic.topic_id), 1: ids_of_one_broker(world, names)}
