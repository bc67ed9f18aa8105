"""Schedules of chains: new topics are replaced, topics come up under aliases, and a name comes to be used again.

They begin when the first name points to the new topic, or when the old topic is released, or gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.modelog.records import Replacement, TopicRecord
from tests.simulation.broker import NAME, NEW_TOPIC, THIRD, Topic
from tests.simulation.drain_invariants import Violation
from tests.simulation.succession.actions import ReplaceActions, is_released
from tests.simulation.succession.clients import Group
from tests.simulation.world import World

OTHER = "returns"


class ChainActions(ReplaceActions):
    """What happens to a chain, one event at a time. ``request`` is about its last link.

    Attributes:
        links: how many of them are requested.
        skips_second: nothing is written to the second topic, and a group comes that has not read the first.
    """

    fewest, spread, persons_turns = 100, 200, 40

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.skips_second = seed % 16 == 9
        self.request = replace(self.request, delay_ms=(0, 0, 0, None)[world.below(4)])
        self.judge = world.judge
        self.links = (2, 2, 3, 4)[world.below(4)]
        if self.skips_second:
            self.request = replace(self.request, delay_ms=None)

    def head_start(self) -> None:
        world = self.world
        until = (_is_gone, _is_gone, is_released, _is_switched)[world.below(4)]
        if self.skips_second:
            world.groups["late"] = Group(world, "late", 1, aware=True, latest=False)
            until = self.is_at_the_third
        self.calm_start(until)

    # At the end

    def ask_for_more(self) -> bool:
        if self.is_complete:
            return False
        self.go_away()
        self.delete_unfenced()
        self.delete_left_over()
        self.replace()
        return True

    def check_end(self) -> None:
        """Every name that pointed to a new topic points to the last topic."""
        self.world.shrinks = int(len(self.judge.chain) > 2)
        for producer in self.world.producers:
            target = producer.target()
            if producer.reader is not None and target is not self.last:
                raise Violation("I8", f"producer {producer.number} writes to {target and target.topic_id}, "
                                      f"{producer.named} has pointed to {self.last.topic_id}")  # fmt: skip

    @property
    def last(self) -> Topic:
        """The topic that is written to."""
        return self.world.by_id[self.judge.last]

    def switched(self) -> Iterator[tuple[TopicRecord, Replacement]]:
        """The links."""
        for record in list(self.world.log.truth.records.values()):
            if record.replacement is not None and record.replacement.switched_ms is not None:
                yield record, record.replacement

    def aliases(self) -> list[tuple[TopicRecord, Replacement]]:
        return [(record, now) for record, now in self.switched() if record.is_alias]

    # People

    @property
    def is_complete(self) -> bool:
        """Whether the last link that is to be requested was, and the name points to it."""
        return len(self.judge.chain) > self.links

    def replace(self) -> None:
        self.look_again()
        if self.request.topic != self.last.name or (not self.asked and self.world.random() < 0.2):
            self._plan()
        if not self.is_complete:
            super().replace()

    def look_again(self) -> None:
        """See what is under way: a request may have been given up, and one without an answer may have been accepted."""
        record = self.world.log.truth.records.get(self.last.topic_id)
        now = record.replacement if record is not None else None
        self.asked = now is not None
        if now is not None:
            self.request = ReplaceTopicCommand(
                self.last.name, now.new_topic, now.num_partitions, delay_ms=now.delay_ms, fence=now.fence
            )

    def _plan(self) -> None:
        """Choose the name of the next topic: often the first name, once that is an alias."""
        world = self.world
        free = [name for name in (NAME, NEW_TOPIC, THIRD) if name not in world.topics]
        if free:
            name = free[0] if world.random() < 0.6 else free[world.below(len(free))]
            delay_ms = None if self.skips_second else (None, 0, 0, 0)[world.below(4)]
            fence = "none" if world.random() < 0.05 else "config"
            count = 1 + world.below(3)
            self.request = ReplaceTopicCommand(self.last.name, name, count, delay_ms=delay_ms, fence=fence)

    def undo(self) -> None:
        if self.asked and self.request.topic == self.last.name:
            result = self.command(replace(self.request, undo=True))
            if result is not None and result.code is ErrorCode.NONE:
                self.world.hit("undone")

    def move_stock_group(self) -> None:
        """The owners of stock groups follow, link by link; and so do those of stock producers, at any time."""
        world = self.world
        for record, now in self.switched():
            for group in world.groups.values():
                if group.aware or record.topic not in group.names or world.random() < 0.5:
                    continue
                group.move(now.new_topic)
                if world.random() < 0.3 and now.new_topic in group.names and group.has_read_all(record.topic):
                    group.leave(record.topic, now.new_topic)
        if world.random() < 0.2:
            world.producers[2].named = self.last.name

    def set_back(self) -> None:
        names = [record.topic for record, _ in self.switched()]
        group = self._group()
        if names:
            group.set_back(names[self.world.below(len(names))])
            group.start()

    def lift(self) -> None:
        fenced = [topic for topic in self.world.topics.values() if topic.is_fenced]
        if fenced:
            self.lift_from(fenced[self.world.below(len(fenced))])

    def produce(self) -> None:
        """In some schedules nothing is written to the second topic, and a group comes that has not read the first."""
        if self.skips_second and len(self.judge.chain) == 2:
            return
        super().produce()
        late = self.world.groups.get("late")
        if self.skips_second and len(self.judge.chain) > 2 and late is not None and not late.ever:
            late.start()

    def is_at_the_third(self, world: World) -> bool:
        """Whether the second topic was replaced as well, which is requested here."""
        if is_released(world) and len(self.judge.chain) == 2:
            self.replace()
        return len(self.judge.chain) > 2

    # Aliases

    def come_up(self) -> None:
        """A topic comes up under an alias: a stock producer that still has the name is why, or is not."""
        free = [record.topic for record, _ in self.aliases() if record.topic not in self.world.topics]
        if free:
            name = free[self.world.below(len(free))]
            self.world.make(name, 1 + self.world.below(3))
            self.world.hit("name taken")
            if self.world.random() < 0.7:
                self.world.producers[2].named = name

    def go_away(self) -> None:
        """Somebody deletes a topic that has come up under an alias."""
        for record, _ in self.aliases():
            topic = self.world.topics.get(record.topic)
            if topic is not None and topic.topic_id not in self.judge.announced:
                self.world.delete(record.topic)

    def delete_unfenced(self) -> None:
        """The owner deletes topics that were replaced without a fence, and are released: no controller does."""
        for record, now in self.switched():
            is_there = self.world.topics.get(record.topic) is self.world.by_id[record.topic_id]
            if is_there and not now.has_fence and now.released_ms is not None:
                self.world.delete(record.topic)

    def delete_left_over(self) -> None:
        """The owner deletes a topic that keeps the next one from its name: the new topic of an undone
        replacement, which stayed because somebody had written to it, or one that somebody has created in its place."""
        topic = self.world.topics.get(self.request.new_topic)
        if topic is None or topic.topic_id in self.judge.chain:
            return
        if topic.touched or topic.topic_id not in self.judge.announced:
            self.world.delete(topic.name)

    def replace_other(self) -> None:
        """Somebody takes a topic that has come up under an alias for the one that clients use."""
        for record, _ in self.aliases():
            if record.topic in self.world.topics and OTHER not in self.world.topics:
                self.command(ReplaceTopicCommand(record.topic, OTHER, 1))

    def forget(self) -> None:
        """All clients are moved to the name that an alias points to first."""
        found = self.aliases()
        if not found:
            return
        record, now = found[self.world.below(len(found))]
        for producer in self.world.producers:
            producer.named = now.new_topic if producer.named == record.topic else producer.named
        for group in self.world.groups.values():
            if group.named == record.topic:
                group.named = now.new_topic
                group.rebalance()
        self.command(ReplaceTopicCommand(record.topic, now.new_topic, now.num_partitions, forget=True))


ChainActions.always = (
    *ReplaceActions.always,
    (ChainActions.controller, 16),
    (ChainActions.replace, 4),
    (ChainActions.wait, 3),
)
ChainActions.sometimes = (
    (ChainActions.undo, 0.3),
    (ChainActions.set_back, 0.5),
    (ChainActions.transaction, 3),
    (ChainActions.election, 1),
    (ChainActions.leader, 1),
    (ChainActions.retention, 0.7),
    (ChainActions.lift, 0.7),
    (ChainActions.late_request, 3),
    (ChainActions.compaction, 1),
    (ChainActions.duplicates, 2),
    (ChainActions.group_rebalances, 3),
    (ChainActions.group_stops, 3),
    (ChainActions.doubt, 1),
    (ChainActions.come_up, 3),
    (ChainActions.go_away, 0.7),
    (ChainActions.go_away, 1.5),  # by an operator whom the alarm has reached
    (ChainActions.replace_other, 0.5),
    (ChainActions.forget, 0.4),
)


def _is_switched(world: World) -> bool:
    return len(world.judge.chain) > 1


def _is_gone(world: World) -> bool:
    return world.first_record is not None and world.first_record.is_alias
