"""What a controller sees of the brokers: torn over several requests, and never more than a broker tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeaware.cluster.observer import ANY_ID, SnapshotTarget
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.facts import FenceFacts, GroupFacts, GroupsDoubt, PartitionFacts, TopicFacts, WriterFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS, is_followed
from modeaware.lifecycle.state import drains, in_progress, moving
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.modelog.records import RetiredPartition, TopicRecord
from tests.simulation.broker import NAME, Log, Topic
from tests.simulation.faults import Fault

if TYPE_CHECKING:
    from tests.simulation.controller import Controller
    from tests.simulation.groups import Group
    from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Looked:
    """What a controller saw when it last looked at topics, and when, as the judge remembers it.

    Attributes:
        at: the first step that came after it had read the ends of the logs.
        step, now_ms: when it listed the groups.
        of_topic: topic id -> the groups that showed; ``sure`` is whether those are all there were.
        committed: the partitions on which each of them really had an offset then.
    """

    at: int = 0
    step: int = 0
    now_ms: int = 0
    of_topic: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sure: bool = False
    committed: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def seen(self) -> set[str]:
        """The groups that showed of any topic."""
        return {name for names in self.of_topic.values() for name in names}


GONE_AFTER_MS = 30_000
OTHERS_SHARE = 0.1
NO_FACTS: frozenset[int] = frozenset()
NOT_LISTED = GroupsDoubt("not listed: nothing is in progress")


class SimObserver:
    """The engine's ``TopicObserver``: asks in the order of the real one, and other actors get their turn in between."""

    def __init__(self, world: World, controller: Controller) -> None:
        self._world = world
        self._controller = controller
        self._seen: dict[tuple[str, int], tuple[int, int, int, bool]] = {}
        self._missing_since_ms: dict[str, int] = {}
        self._deleted: set[str] = set()
        self._retired: dict[str, list[int]] = {}
        self._at_rest: object = None

    def deleted(self, topic_id: str) -> None:
        self._deleted.add(topic_id)

    def unchanged(self, topic_ids: Iterable[str]) -> bool:
        """Whether the logs of the retired partitions start and end where they did at the last call."""
        world, before, self._at_rest = self._world, self._at_rest, None
        if world.replaces:
            return False
        self._ask("looks whether the topic is at rest")
        topic_id = None if world.topic is None else world.topic.topic_id
        if topic_id is None or set(topic_ids) != {topic_id}:
            return False
        logs = [world.log_of(p) for p in self._retired[topic_id]]
        if not all(log is not None and log.available for log in logs):
            return False
        self._at_rest = [(topic_id, log.log_start, len(log.records), log.epoch) for log in logs if log is not None]
        return self._at_rest == before

    def observe_all(
        self, targets: Sequence[SnapshotTarget], rules: Sequence[GroupRule] = ()
    ) -> list[TopicFacts | ClusterError]:
        """Observe topics; what concerns others of the pass takes its time before anything follows."""
        facts = self._observe_all(targets, rules)
        if not self._world.replaces and self._world.side_random() < OTHERS_SHARE:
            self._world.io(self._controller, "looks at other topics")
        return facts

    def _observe_all(
        self, targets: Sequence[SnapshotTarget], rules: Sequence[GroupRule]
    ) -> list[TopicFacts | ClusterError]:
        world = self._world
        self._ask("asks for the topics")
        topics = {} if world.strikes(Fault.STALE_BROKER) else dict(world.topics)  # one that knows no such topic
        there: dict[SnapshotTarget, Topic] = {}
        for target in targets:
            topic = topics.get(target.topic)
            if topic is not None and target.is_of(topic.topic_id):
                self._missing_since_ms.pop(target.expected_id or topic.topic_id, None)
                there[target] = topic
        if there or world.replaces:  # in a chain there is always another topic to ask about
            fences = {target: self._fence(target, topic) for target, topic in there.items()}
            log_ends = {target: [len(log.records) for log in topic.logs] for target, topic in there.items()}
            self._ask("asks for the stable offsets")
            stable = {target: self._stable(target, topic, len(log_ends[target])) for target, topic in there.items()}
            self._ask("asks for the ends")
            at = world.steps + 1  # what others did while this was asked for has happened, and is seen
            logs = {
                target: self._partitions(target.record, topic, stable[target], log_ends[target], fences[target])
                for target, topic in there.items()
            }
            groups = self._groups(there, logs, rules, at)
        found: list[TopicFacts | ClusterError] = []
        for target in targets:
            topic = there.get(target)
            if topic is None:
                other = topics.get(target.topic)
                found.append(TopicFacts(target.topic, other and other.topic_id, gone=self._gone(target)))
                continue
            listed, doubt = groups[target]
            found.append(
                TopicFacts(
                    target.topic,
                    topic.topic_id,
                    partition_count=len(log_ends[target]),
                    cleanup_policy=world.policy if is_asked_about(target) else "delete",
                    partitions=logs[target],
                    groups=listed,
                    groups_doubt=doubt,
                    fence=fences[target],
                    configs=dict(topic.configs) if (target.topic_id or "").startswith(ANY_ID) else None,
                    listed_ms=self._controller.looked.now_ms,
                )
            )
        return found

    def _ask(self, what: str) -> None:
        world = self._world
        world.io(self._controller, what)
        if world.strikes(Fault.OBSERVE_FAILED):
            world.tell("controller %d: no answer", self._controller.index)
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)

    def _fence(self, target: SnapshotTarget, topic: Topic) -> FenceFacts | None:
        if target.record is None or not is_followed(target.record) or not target.record.replacing.has_fence:
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

    def _logs_now(self, topic: Topic) -> list[Log]:
        """What brokers tell of the topic by now: they are asked by its name."""
        found = topic if self._world.replaces else self._world.topic
        return [] if found is None else found.logs

    def _stable(self, target: SnapshotTarget, topic: Topic, count: int) -> dict[int, int]:
        """The stable offsets of the partitions that are looked at."""
        record = target.record
        wanted = range(count) if record is None else [p for p in record.closed if p < count]
        if record is not None:
            self._retired[topic.topic_id] = list(wanted)
        logs = self._logs_now(topic)
        return {p: logs[p].stable for p in wanted if p < len(logs) and logs[p].available}

    def _partitions(
        self,
        record: TopicRecord | None,
        topic: Topic,
        stable: dict[int, int],
        log_ends: list[int],
        fence: FenceFacts | None,
    ) -> dict[int, PartitionFacts]:
        facts, logs = {}, self._logs_now(topic)
        for partition, last_stable in stable.items():
            if partition < len(logs) and logs[partition].available:
                log = logs[partition]
                found = self._partition((topic.topic_id, partition), log, last_stable, record)
                if record is not None and record.replacement is not None:
                    found = self._replaced(found, partition, log, log_ends[partition], record, fence)
                facts[partition] = found
        return facts

    def _partition(self, key: tuple[str, int], log: Log, stable: int, record: TopicRecord | None) -> PartitionFacts:
        now_ms, end = self._world.time_ms, log.replicated
        last = self._seen.get(key)
        if last is None or last[:2] != (end, log.epoch):
            last = (end, log.epoch, now_ms, last is not None and last[0] != end)
            if record is not None:
                self._seen[key] = last
        seal_epoch_end, writers = None, ()
        if record is not None:
            retired = record.retired.get(key[1], RetiredPartition())
            if retired.seal_leader_epoch is not None and retired.seal_leader_epoch != log.epoch:
                seal_epoch_end = min(log.epoch_end(retired.seal_leader_epoch), end)
            if retired.seal_offset is not None and end > retired.seal_offset and record.replacement is None:
                writers = (WriterFacts(7, 0, now_ms),)
        return PartitionFacts(
            log.log_start, end, min(stable, end), log.epoch, last[2], last[3], seal_epoch_end, writers
        )

    def _replaced(
        self,
        facts: PartitionFacts,
        partition: int,
        log: Log,
        log_end: int,
        record: TopicRecord,
        fence: FenceFacts | None,
    ) -> PartitionFacts:
        """With what is asked for besides where the topic is replaced."""
        assert record.replacement is not None
        retired, end = record.retired[partition], facts.end_offset
        is_proved = fence is not None and fence.proved.get(partition) == log.epoch
        is_final = (is_proved and log_end <= end) or not record.replacement.has_fence or retired.seal_offset is not None
        has_end = is_final or retired.seal_offset == end
        return replace(facts, log_end=log_end, read_up_to=self._world.read_up_to(log) if has_end else None)

    def _groups(
        self,
        there: Mapping[SnapshotTarget, Topic],
        logs: Mapping[SnapshotTarget, Mapping[int, PartitionFacts]],
        rules: Sequence[GroupRule],
        at: int,
    ) -> dict[SnapshotTarget, tuple[dict[str, GroupFacts], GroupsDoubt | None]]:
        """The groups that use each topic; ``omitted`` and ``hidden`` ones are left out, as brokers do it: with a doubt.

        Those that a rule requires by name are asked for all the same.
        """
        world, controller = self._world, self._controller
        if not (any(map(is_asked_about, there)) or world.replaces):
            controller.looked = Looked(at, step=world.steps, now_ms=world.time_ms)
            return dict.fromkeys(there, ({}, NOT_LISTED))
        self._ask("lists the groups")
        doubt = None
        if world.omitted or world.doubtful:
            doubt = GroupsDoubt("the offsets topic has moved")
        elif world.hidden:
            doubt = GroupsDoubt("no right to DESCRIBE the cluster", hidden=True)
        named = {rule.group for rule in rules if rule.kind == REQUIRE and rule.applies(NAME, world.time_ms)}
        using = {target: self._using(target.record, topic, logs[target], named) for target, topic in there.items()}
        world.group_begins()
        if any(
            target.topic_id is None for target in there
        ):  # the snapshot of new topics comes after that of old topics
            of_topic = {t.topic_id: tuple(using[target]) for target, t in there.items() if target.topic_id is None}
            committed = {name: frozenset(world.groups[name].committed) for names in of_topic.values() for name in names}
            controller.looked = Looked(at, world.steps, world.time_ms, of_topic, doubt is None, committed)
        found: dict[SnapshotTarget, tuple[dict[str, GroupFacts], GroupsDoubt | None]] = {}
        for target in there:
            if not is_asked_about(target):  # nothing depends on groups
                found[target] = {}, NOT_LISTED
                continue
            listed = {
                name: group
                for name, group in using[target].items()
                if not world.doubtful or name in named or world.side_random() < 0.5
            }
            found[target] = listed, doubt
        return found

    def _using(
        self, record: TopicRecord | None, topic: Topic, logs: Mapping[int, PartitionFacts], named: set[str]
    ) -> dict[str, GroupFacts]:
        world, found = self._world, {}
        for name, group in world.groups.items():
            if not group.uses(topic):
                continue
            if (name in world.omitted or name in world.hidden) and name not in named:
                world.hit(Fault.GROUP_OMITTED if name in world.omitted else Fault.GROUPS_HIDDEN)
                continue
            found[name] = self._of_chain(group, topic) if world.replaces else self._of_resized(group, record, logs)
        return found

    def _of_resized(
        self, group: Group, record: TopicRecord | None, partitions: Mapping[int, PartitionFacts]
    ) -> GroupFacts:
        world, topic = self._world, self._world.topic
        truncated, epochless, caught_up = NO_FACTS, NO_FACTS, NO_FACTS
        if topic is not None:
            truncated = frozenset(p for p, c in group.committed.items() if self._truncated(topic.logs[p], *c))
            if group.epochless:
                truncated, epochless = NO_FACTS, frozenset(group.committed)
            if record is not None and record.deletion is not None and in_progress(record):
                seals = {p: r.seal_offset for p, r in record.retired.items() if p in partitions and drains(p, record)}
                caught_up = frozenset(
                    p for p, seal in seals.items()
                    if seal is not None and p < len(topic.logs) and world.clear(topic.logs[p], group, p, seal)
                )  # fmt: skip
        committed = {p: c[0] for p, c in group.committed.items()}
        return GroupFacts(committed, caught_up, group.has_members, group.kind, group.stateful, truncated, epochless)

    def _of_chain(self, group: Group, topic: Topic) -> GroupFacts:
        world, committed = self._world, group.committed.get(topic.topic_id, {})
        caught_up = frozenset(p for p, log in enumerate(topic.logs) if world.has_all(log, committed.get(p, 0)))
        subscribed: bool | None = topic.topic_id in group.assigned
        if world.deletes and group.has_members and not world.calm and world.side_random() < 0.05:  # in a rebalance
            subscribed = None
        return GroupFacts(dict(committed), caught_up, group.has_members, stateful=group.stateful, subscribed=subscribed)

    def _truncated(self, log: Log, offset: int, epoch: int) -> bool:
        """Whether what the group has read there was truncated, and something else was written since (or may be)."""
        end = max(log.epoch_end(epoch), log.log_start)
        return end < offset and (offset > log.end or not self._world.nothing_in(log, end, offset))

    def _gone(self, target: SnapshotTarget) -> bool:
        now_ms, wanted = self._world.time_ms, target.expected_id
        topic = self._world.topics.get(target.topic)
        if wanted is None or wanted in self._deleted:
            return wanted is not None
        if topic is not None and topic.topic_id == wanted:
            self._missing_since_ms.pop(wanted, None)
            return False
        return now_ms - self._missing_since_ms.setdefault(wanted, now_ms) >= GONE_AFTER_MS


def is_asked_about(target: SnapshotTarget) -> bool:
    """Whether anything depends on the groups of the topic."""
    return target.record is None or in_progress(target.record) or moving(target.record)


def ids_of_one_broker(world: World, names: Sequence[str]) -> Mapping[str, str | None]:
    """One broker's word, which may be stale: it still names the topic before, or knows none."""
    found = None if world.topic is None else world.topic.topic_id
    if world.odds[Fault.STALE_BROKER] and not world.calm and world.side_random() < 0.3:
        found = world.earlier_id if world.side_random() < 0.7 else None
    return dict.fromkeys(names, found)


def ids_of_each_broker(world: World, names: Sequence[str]) -> dict[int, Mapping[str, str | None]]:
    """Every broker's word: one of them is up to date."""
    return {0: dict.fromkeys(names, world.topic and world.topic.topic_id), 1: ids_of_one_broker(world, names)}
