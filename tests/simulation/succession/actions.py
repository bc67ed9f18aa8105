"""What may happen next where topics are replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from tests.simulation.actions import ANSWERS, Actions, Weighted
from tests.simulation.broker import NAME, NEW_TOPIC, Log, Topic
from tests.simulation.drain_invariants import Violation
from tests.simulation.ending import ROUNDS, work
from tests.simulation.faults import Fault, Kind
from tests.simulation.producers import Producer
from tests.simulation.succession.clients import Group
from tests.simulation.world import World

KEYS = 5


class ReplaceActions(Actions):
    """The events of a topic that is replaced. ``request`` is what is asked for, ``asked``: it was accepted."""

    share, fewest, spread, persons_turns = 0.4, 120, 160, 20
    answers = ANSWERS | {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    waits_ms = (100, 1_000, 3_000, 11_000, 61_000, 300_000)

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        count = 1 + world.below(4)
        fence = "none" if world.random() < 0.12 else "config"
        delay_ms = (None, 0, 0, 400_000)[world.below(4)] if world.deletes else None
        self.request = ReplaceTopicCommand(NAME, NEW_TOPIC, count, delay_ms=delay_ms, fence=fence)
        self.asked = False
        if world.kind is Kind.DELETIONS:
            self.sometimes = (*self.sometimes, (ReplaceActions.gitops, 0.5))

    def make_clients(self) -> None:
        world = self.world
        world.producers = [Producer(world, number, aware=number < 2) for number in range(3)]
        for name in ("billing", "audit", "stock", "late")[: 1 + world.below(4)]:
            aware = name != "stock"
            group = Group(world, name, 1 + world.below(2), aware=aware, latest=aware and world.random() < 0.4)
            world.groups[name] = group
            if name != "late":
                group.start()

    def more(self) -> list[Weighted]:
        return []

    def head_start(self) -> None:
        if self.world.deletes:
            self.calm_start(is_released)

    def calm_start(self, until: Callable[[World], bool]) -> None:
        """Nothing fails until the old topic is released, or nearly so: most of what follows is about its deletion."""
        world = self.world
        world.calm = True
        for _ in range(world.below(8)):
            self.produce()
        for _ in range(2 * ROUNDS):
            work(world)
            if not self.asked:
                self.replace()
            self.move_stock_group()
            for controller in world.controllers:
                for _ in range(1 + world.below(4)):
                    controller.step()
            if until(world):
                break
            world.time_ms += 11_000
        world.calm = False
        if world.random() < 0.2:
            self.lift()

    # At the end

    def ask_for_more(self) -> bool:
        world = self.world
        if self.asked or "id-1" not in world.by_id or world.topics.get(NAME) is not world.by_id["id-1"]:
            return False
        self.replace()
        self.asked = True  # it may be refused: the new topic's name is taken
        return True

    def check_end(self) -> None:
        """The name points where the record says, and producers write there."""
        world, record = self.world, self.world.first_record
        world.shrinks = int(is_released(world))
        now = record.replacement if record is not None else None
        if record is None or now is None or now.switched_ms is None:
            return
        old_topic = world.topics.get(NAME)
        own = old_topic is not None and old_topic.topic_id == record.topic_id
        if own and now.fence != "none" and old_topic is not None and not old_topic.is_fenced:
            raise Violation("fence", "the old topic is released, and is not fenced")
        for producer in world.producers:
            target = producer.target()
            if producer.reader is not None and target is not None and target.topic_id != now.new_topic_id:
                raise Violation("I8", f"a producer writes to {target.topic_id}, the name points to {now.new_topic_id}")

    # Controllers and people

    def controller(self) -> None:
        self.world.controllers[self.world.below(2)].step()

    def replace(self) -> None:
        if not self.asked or self.world.random() < 0.2:
            pause = not self.world.calm and self.world.random() < 0.15
            result = self.command(replace(self.request, pause_before_switch=pause))
            self.asked = self.asked or (result is not None and result.code is ErrorCode.NONE)

    def undo(self) -> None:
        if self.asked:
            result = self.command(replace(self.request, undo=True))
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
        group = self._group()
        group.set_back()
        group.start()

    # Producers

    def produce(self) -> None:
        producer = self._producer()
        for _ in range(1 + self.world.below(3)):
            producer.hand_over_some(KEYS)

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
            producer.finish(commit=self.world.random() < 0.7)

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
        """Somebody sets configs of the old topic, before a controller has noted them."""
        topic, record = self.world.topics.get(NAME), self.world.first_record
        replacement = record.replacement if record is not None else None
        if topic is not None and (replacement is None or replacement.own_configs is None) and not topic.is_fenced:
            topic.configs["max.message.bytes"] = "2000000"

    def recreate(self) -> None:
        """The old topic is deleted, and often made again."""
        world = self.world
        if NAME in world.topics:
            world.hit(Fault.RECREATED)
            world.delete(NAME)
        if world.random() < 0.5 and NAME not in world.topics:
            world.make(NAME, 2)
            if world.random() < 0.5:
                self.command(self.request)

    def take_name(self) -> None:
        """Somebody makes a topic of the new topic's name, and may write to it."""
        if NEW_TOPIC not in self.world.topics:
            topic = self.world.make(NEW_TOPIC, self.request.num_partitions + self.world.below(2))
            self.world.hit("name taken")
            if self.world.random() < 0.5:
                self.world.foreign_record(topic)

    def foreign_record(self) -> None:
        topic, record = self.world.topics.get(NEW_TOPIC), self.world.first_record
        if topic is not None and (
            record is None or record.replacement is None or record.replacement.switched_ms is None
        ):
            self.world.foreign_record(topic)

    def lose_new_topic(self) -> None:
        """Somebody deletes the new topic, and what was written to it."""
        topic = self.world.topics.get(NEW_TOPIC)
        record = self.world.first_record
        released = record is not None and record.replacement is not None and record.replacement.released_ms is not None
        if topic is not None and (not released or (self.world.deletes and self.world.random() < 0.2)):
            self.world.hit("new topic deleted")
            self.world.judge.lost_at = self.world.steps
            self.world.delete(NEW_TOPIC)

    # Groups

    def group_reads(self) -> None:
        group = self._group()
        group.refresh()
        group.poll(1 + self.world.below(5))
        if self.world.random() < 0.5:
            group.commit()

    def group_refreshes(self) -> None:
        self._group().refresh()

    def group_rebalances(self) -> None:
        group = self._group()
        if self.world.random() < 0.5:
            group.commit()
        group.rebalance()

    def group_stops(self) -> None:
        group = self._group()
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
        group = self._group()
        group.stateful, group.stateful_at = not group.stateful, self.world.steps


ReplaceActions.always = (
    (ReplaceActions.controller, 14),
    (ReplaceActions.wait, 5),
    (ReplaceActions.replace, 3),
    (ReplaceActions.produce, 8),
    (ReplaceActions.flush, 8),
    (ReplaceActions.learn, 5),
    (ReplaceActions.replicate, 7),
    (ReplaceActions.configs, 4),
    (ReplaceActions.group_reads, 10),
    (ReplaceActions.group_refreshes, 3),
    (ReplaceActions.move_stock_group, 1),
)
ReplaceActions.sometimes = (
    (ReplaceActions.undo, 0.5),
    (ReplaceActions.set_back, 1),
    (ReplaceActions.transaction, 4),
    (ReplaceActions.election, 1.5),
    (ReplaceActions.leader, 1.5),
    (ReplaceActions.retention, 1),
    (ReplaceActions.grow_by_another_tool, 0.7),
    (ReplaceActions.lift, 2),
    (ReplaceActions.own_configs, 2),
    (ReplaceActions.recreate, 0.3),
    (ReplaceActions.take_name, 0.2),
    (ReplaceActions.foreign_record, 0.4),
    (ReplaceActions.lose_new_topic, 0.4),
    (ReplaceActions.late_request, 3),
    (ReplaceActions.compaction, 1),
    (ReplaceActions.duplicates, 2),
    (ReplaceActions.group_rebalances, 3),
    (ReplaceActions.group_stops, 3),
    (ReplaceActions.doubt, 2),
    (ReplaceActions.stateful, 0.5),
    (ReplaceActions.deny, 0.7),
    (ReplaceActions.cleanup_policy, 0.5),
)


def is_released(world: World) -> bool:
    now = world.first_record.replacement if world.first_record is not None else None
    return now is not None and now.released_ms is not None
