"""One schedule: everything that happens in it follows from its seed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CommandResult, ReplaceTopicCommand, TopicCommand
from tests.simulation.broker import NAME, SUCCESSOR, Log, Topic
from tests.simulation.faults import Coverage, Fault, Kind
from tests.simulation.succession.clients import Group, Producer
from tests.simulation.succession.ending import ROUNDS, settle, work
from tests.simulation.world import World

DELETE_FROM = 3_500_000_000
"""From this seed on, schedules are about the deletion of the predecessor: it begins when nothing else is left to do."""
Event = Callable[["Actions"], None]


class Actions:
    """What happens, one event at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        count = 1 + world.below(4)
        fence = "none" if world.random() < 0.12 else "config"
        delay_ms = (None, 0, 0, 400_000)[world.below(4)] if world.deletes else None
        self.command = ReplaceTopicCommand(NAME, SUCCESSOR, count, delay_ms=delay_ms, fence=fence)
        self.asked = False

    # Time and controllers

    def controller(self) -> None:
        self.world.controllers[self.world.below(2)].step()

    def time(self) -> None:
        world = self.world
        world.time_ms += (100, 1_000, 3_000, 11_000, 61_000, 300_000)[world.below(6)]
        world.coordinator.expire(world.time_ms)

    # People

    def ask(self, command: TopicCommand | AlterGroupRulesCommand) -> CommandResult | None:
        for controller in self.world.controllers:
            result = controller.execute(command)
            if result is not None:
                self.world.tell("a command is answered: %s %s", result.code.name, result.message)
                return result
        return None

    def replace(self) -> None:
        if not self.asked or self.world.random() < 0.2:
            pause = not self.world.calm and self.world.random() < 0.15
            result = self.ask(replace(self.command, pause_before_switch=pause))
            self.asked = self.asked or (result is not None and result.code is ErrorCode.NONE)

    def undo(self) -> None:
        if self.asked:
            result = self.ask(replace(self.command, undo=True))
            if result is not None and result.code is ErrorCode.NONE:
                self.world.hit("undone")

    def move_stock_group(self) -> None:
        for group in self.world.groups.values():
            record = self.world.first_record
            switched = record is not None and record.replacement is not None and record.replacement.switched_ms
            if not group.aware and switched and self.world.random() < 0.5:
                group.move()
                if self.world.deletes and self.world.random() < 0.2 and group.moved and group.has_read_all():
                    group.leave()

    def set_back(self) -> None:
        group = self._some_group()
        group.set_back()
        group.start()

    # Producers

    def _producer(self) -> Producer:
        return self.world.producers[self.world.below(len(self.world.producers))]

    def produce(self) -> None:
        producer = self._producer()
        for _ in range(1 + self.world.below(3)):
            producer.hand_over()

    def flush(self) -> None:
        self._producer().flush(1 + self.world.below(4))

    def learn(self) -> None:
        producer = self._producer()
        if producer.reader is not None:
            producer.reader.catch_up(1 + self.world.below(4))

    def transaction(self) -> None:
        producer = self._producer()
        if producer.transaction is None:
            producer.begin()
        else:
            producer.flush()
            producer.queue.clear()
            producer.end(commit=self.world.random() < 0.7)

    # Brokers

    def _some_partition(self) -> tuple[Topic, int] | None:
        topics = list(self.world.topics.values())
        if not topics:
            return None
        topic = topics[self.world.below(len(topics))]
        return topic, self.world.below(len(topic.logs))

    def replicate(self) -> None:
        for topic in self.world.topics.values():
            for partition, log in enumerate(topic.logs):
                if self.world.random() < 0.7:
                    ahead = len(log.records) - log.replicated
                    some = log.replicated + self.world.below(ahead + 1)
                    self.world.replicate(topic, partition, some if self.world.random() < 0.3 else None)

    def configs(self) -> None:
        if self.world.gitops and self.world.random() < 0.5:
            self.lift()
        odds = 1.0 if self.world.deletes and self.world.random() < 0.3 else 0.6
        for topic in self.world.topics.values():
            for partition in range(len(topic.logs)):
                if self.world.random() < odds:
                    self.world.apply_configs(topic, partition)
                if self.world.random() < odds:
                    self.world.apply_to_followers(topic, partition)

    def election(self) -> None:
        """Another leader: what the followers had is kept, and it may take the configs a moment later."""
        found = self._some_partition()
        if found is None:
            return
        topic, partition = found
        log, world = topic.logs[partition], self.world
        world.hit("election")
        world.lose(log.records[log.replicated :])
        log.truncate(log.replicated, log.log_start, world.steps)
        log.truncated_at = -1
        log.elected_at = world.steps
        log.fenced = log.followers_fenced  # the old leader is one of the others now
        if world.random() < 0.5:
            world.apply_configs(topic, partition)
        world.tell("%s-%d has another leader%s", topic.name, partition, ", fenced" if log.fenced else "")

    def leader(self) -> None:
        found = self._some_partition()
        if found is not None:
            log = found[0].logs[found[1]]
            log.available = not log.available
            self.world.hit(Fault.NO_LEADER)

    def retention(self) -> None:
        found = self._some_partition()
        if found is None:
            return
        topic, partition = found
        if self.world.random() < 0.3:
            for log in topic.logs:
                self.expire(log, 1 << 30)
        self.expire(topic.logs[partition], 1 + self.world.below(3))

    def expire(self, log: Log, count: int) -> None:
        before = log.log_start
        log.log_start = max(before, min(before + count, log.stable))
        self.world.lose(log.records[before : log.log_start])
        self.world.hit(Fault.RETENTION)

    def grow(self) -> None:
        """Another tool adds a partition."""
        topic = self.world.topics.get(NAME)
        if topic is not None and len(topic.logs) < 6:
            topic.grow(len(topic.logs) + 1, self.world.steps)
            self.world.hit(Fault.FOREIGN_GROWTH)

    def lift(self) -> None:
        """GitOps, or a person, puts the configs back."""
        topic = self.world.topics.get(NAME)
        if topic is not None and topic.is_fenced:
            self.lift_from(topic)

    def lift_from(self, topic: Topic) -> None:
        self.world.hit("fence lifted")
        self.world.judge.lifted = True
        topic.configs.clear()
        topic.lifted_ms, topic.lifted_at = self.world.time_ms, self.world.steps
        self.world.tell("the fence is lifted")
        self.configs()

    def gitops(self) -> None:
        """What puts the configs back again and again begins, or ends."""
        self.world.gitops = not self.world.gitops

    def own_configs(self) -> None:
        """Somebody sets configs of the predecessor, before a controller has noted them."""
        topic, record = self.world.topics.get(NAME), self.world.first_record
        replacement = record.replacement if record is not None else None
        if topic is not None and (replacement is None or replacement.own_configs is None) and not topic.is_fenced:
            topic.configs["max.message.bytes"] = "2000000"

    def recreate(self) -> None:
        """The predecessor is deleted, and often made again."""
        world = self.world
        if NAME in world.topics:
            world.hit(Fault.RECREATED)
            world.delete(NAME)
        if world.random() < 0.5 and NAME not in world.topics:
            world.make(NAME, 2)
            if world.random() < 0.5:
                self.ask(self.command)

    def take_name(self) -> None:
        """Somebody makes a topic of the successor's name, and may write to it."""
        if SUCCESSOR not in self.world.topics:
            topic = self.world.make(SUCCESSOR, self.command.num_partitions + self.world.below(2))
            self.world.hit("name taken")
            if self.world.random() < 0.5:
                self.world.foreign_record(topic)

    def foreign_record(self) -> None:
        topic, record = self.world.topics.get(SUCCESSOR), self.world.first_record
        if topic is not None and (
            record is None or record.replacement is None or record.replacement.switched_ms is None
        ):
            self.world.foreign_record(topic)

    def lose_successor(self) -> None:
        """Somebody deletes the successor, and what was written to it."""
        topic = self.world.topics.get(SUCCESSOR)
        record = self.world.first_record
        let_go = record is not None and record.replacement is not None and record.replacement.let_go_ms is not None
        if topic is not None and (not let_go or (self.world.deletes and self.world.random() < 0.2)):
            self.world.hit("successor deleted")
            self.world.judge.lost_at = self.world.steps
            self.world.delete(SUCCESSOR)

    def late_request(self) -> None:
        if self.world.late:
            self.world.carry_out(*self.world.late.pop(self.world.below(len(self.world.late))))

    def compaction(self) -> None:
        self.world.log.compact(self.world.below(len(self.world.log.entries) + 1))

    def duplicates(self) -> None:
        if self.world.log.entries:
            self.world.log.duplicate(1 + self.world.below(4))

    # Groups

    def _some_group(self) -> Group:
        groups = list(self.world.groups.values())
        return groups[self.world.below(len(groups))]

    def group_reads(self) -> None:
        group = self._some_group()
        group.refresh()
        group.poll(1 + self.world.below(5))
        if self.world.random() < 0.5:
            group.commit()

    def group_refreshes(self) -> None:
        self._some_group().refresh()

    def group_rebalances(self) -> None:
        group = self._some_group()
        if self.world.random() < 0.5:
            group.commit()
        group.rebalance()

    def group_stops(self) -> None:
        group = self._some_group()
        if group.has_members:
            group.stop(commit=self.world.random() < 0.5)
        else:
            group.start()

    def doubt(self) -> None:
        self.world.doubtful = not self.world.doubtful

    def deny(self) -> None:
        """Somebody takes the right to probe the fence, or grants it again."""
        self.world.denied = not self.world.denied
        self.world.hit("probe denied")

    def stateful(self) -> None:
        group = self._some_group()
        group.stateful, group.stateful_at = not group.stateful, self.world.steps

    def policy(self) -> None:
        self.world.policy = "compact" if self.world.policy == "delete" else "delete"


ALWAYS: tuple[tuple[Event, float], ...] = (
    (Actions.controller, 14),
    (Actions.time, 5),
    (Actions.replace, 3),
    (Actions.produce, 8),
    (Actions.flush, 8),
    (Actions.learn, 5),
    (Actions.replicate, 7),
    (Actions.configs, 4),
    (Actions.group_reads, 10),
    (Actions.group_refreshes, 3),
    (Actions.move_stock_group, 1),
)
SOMETIMES: tuple[tuple[Event, float], ...] = (
    (Actions.undo, 0.5),
    (Actions.set_back, 1),
    (Actions.transaction, 4),
    (Actions.election, 1.5),
    (Actions.leader, 1.5),
    (Actions.retention, 1),
    (Actions.grow, 0.7),
    (Actions.lift, 2),
    (Actions.own_configs, 2),
    (Actions.recreate, 0.3),
    (Actions.take_name, 0.2),
    (Actions.foreign_record, 0.4),
    (Actions.lose_successor, 0.4),
    (Actions.late_request, 3),
    (Actions.compaction, 1),
    (Actions.duplicates, 2),
    (Actions.group_rebalances, 3),
    (Actions.group_stops, 3),
    (Actions.doubt, 2),
    (Actions.stateful, 0.5),
    (Actions.deny, 0.7),
    (Actions.policy, 0.5),
)


DELETING: tuple[tuple[Event, float], ...] = ((Actions.gitops, 0.5),)


def run(seed: int, coverage: Coverage, story: list[str] | None = None) -> World:
    world = World(seed, Kind.DELETIONS if seed >= DELETE_FROM else Kind.REPLACEMENTS, coverage, story)
    actions = Actions(world)
    make_clients(world)
    weighted = list(ALWAYS)
    for event, weight in (*SOMETIMES, *(DELETING if world.deletes else ())):
        if world.random() < 0.4:
            weighted.append((event, weight * (0.5 + 2 * world.random())))
    sums = list(accumulate(weight for _, weight in weighted))

    def act() -> None:
        world.steps += 1
        weighted[bisect(sums, world.random() * sums[-1])][0](actions)

    if world.deletes:
        head_start(world, actions, is_let_go)
    world.act = act
    for _ in range(120 + world.below(160)):
        act()
    settle(world, actions)
    world.shrinks = int(is_let_go(world))
    return world


def make_clients(world: World) -> None:
    world.producers = [
        Producer(world, 0, aware=True),
        Producer(world, 1, aware=True),
        Producer(world, 2, aware=False),
    ]
    for name in ("billing", "audit", "stock", "late")[: 1 + world.below(4)]:
        aware = name != "stock"
        group = Group(world, name, 1 + world.below(2), aware=aware, latest=aware and world.random() < 0.4)
        world.groups[name] = group
        if name != "late":
            group.start()


def is_let_go(world: World) -> bool:
    now = world.first_record.replacement if world.first_record is not None else None
    return now is not None and now.let_go_ms is not None


def head_start(world: World, actions: Actions, until: Callable[[World], bool]) -> None:
    """Nothing fails until the predecessor is let go, or nearly so: most of what follows is about its deletion."""
    world.calm = True
    for _ in range(world.below(8)):
        actions.produce()
    for _ in range(2 * ROUNDS):
        work(world)
        if not actions.asked:
            actions.replace()
        actions.move_stock_group()
        for controller in world.controllers:
            for _ in range(1 + world.below(4)):
                controller.step()
        if until(world):
            break
        world.time_ms += 11_000
    world.calm = False
    if world.random() < 0.2:
        actions.lift()
