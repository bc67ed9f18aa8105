"""What may happen next: one method an event, each with dice of its own; and how often which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    Command,
    CommandResult,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
)
from modeaware.modelog.group_rules import GroupRule
from modeaware.modes import ReplicaState
from tests.simulation.broker import NAME
from tests.simulation.broker_actions import BrokerActions
from tests.simulation.drain_invariants import Violation
from tests.simulation.faults import Fault
from tests.simulation.groups import Group
from tests.simulation.modelog import Reader
from tests.simulation.producers import KEYS, Producer
from tests.simulation.world import World

ANEW_FROM = 1_000_000_000
"""From this seed on, topics are made anew, records of the mode log come twice, and groups rebalance all the time."""
ANSWERS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


Event = Callable[[Any], None]
Weighted = tuple[Event, float]


class Actions(BrokerActions):
    """The events of one world, those of shrinks and growths; whoever holds this decides which one comes next.

    Attributes:
        share: how likely one of ``sometimes`` is to be in a schedule.
        fewest, spread: a schedule has so many events, and up to so many more.
        persons_turns: how often at its end people read the reasons.
        late_odds: how likely what was given up is to be carried out before an event; None: as an event alone.
    """

    share, fewest, spread, persons_turns = 0.45, 50, 70, 32
    late_odds: float | None = None
    answers = ANSWERS
    always: tuple[Weighted, ...]
    """Event and weight, of those that are in every schedule."""
    sometimes: tuple[Weighted, ...]
    """Those that a schedule has or has not."""
    waits_ms: tuple[int, ...] = (0, 100, 1_000, 1_000, 10_000, 10_000, 30_000, 60_000, 300_000)

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world)
        self.anew = seed >= ANEW_FROM

    def make_clients(self) -> None:
        """A topic in use: some groups have read a part of it, a controller has its first turn."""
        world = self.world
        world.producers = [Producer(world, number, aware=number < 2) for number in range(3)]
        for name in ("billing", "audit", "share", "streams", "console-consumer-1")[: 1 + world.below(5)]:
            aware = name != "console-consumer-1" and world.random() < 0.75
            latest = name == "console-consumer-1" or world.random() < 0.4
            readers = [Reader(world.log, NAME) for _ in range(1 + (world.random() < 0.3))]
            kind = name if name in ("share", "streams") else "classic"
            commits = name != "console-consumer-1"
            group = Group(world, name, aware, latest, kind, commits, name == "audit", readers if aware else [])
            group.stateful = name == "streams" and world.random() < 0.5
            world.groups[name] = group
        assert world.topic is not None
        for producer in world.producers:
            for log in world.topic.logs:
                if world.random() < 0.5:
                    log.append(world.new_record().number, 0, 0, replicated=True)
            producer.flush()
        for group in world.groups.values():
            if world.random() < 0.6:
                group.join()
                group.poll(world.below(3), behind=False)
        world.controllers[0].step()

    def more(self) -> list[tuple[Event, float]]:
        """Events that are in this schedule besides."""
        world, found = self.world, list[tuple[Event, float]]()
        if world.odds[Fault.LATE_CREATE] or world.odds[Fault.LATE_DELETE]:  # what is late finds things changed
            found += [(Actions.grow, 0.4), (Actions.recreate_before_late, 3.0)]
        if self.anew:
            found += [(Actions.recreate, 1.5), (Actions.duplicates, 8.0), (Actions.shrink, 6.0), (Actions.join, 6.0)]
        self.late_odds = 0.15 if world.random() < 0.5 else 0.0
        return found

    def head_start(self) -> None:
        """What happens before anything fails."""

    # At the end (``ending``)

    def go_away(self) -> None:
        """Somebody deletes a topic that is in the way of a change, where there is one."""

    def look_again(self) -> None:
        """See what is under way, before a person does what reasons say."""

    def ask_for_more(self) -> bool:
        """All that was asked for is done; whether there is more. Growths that were given up, of a topic that was made
        anew since."""
        late = self.world.late
        had_some = bool(late)
        while late:
            self.world.carry_out(*late.pop())
        return had_some

    def check_end(self) -> None:
        """What is called deleted is deleted."""
        world, record = self.world, self.world.record
        if record is None:
            return
        assert world.topic is not None
        for partition, retired in record.retired.items():
            log = world.topic.logs[partition]
            left = world.judge.wanted(log.records[log.log_start :])
            if retired.replica_state is ReplicaState.DELETION_SUCCESSFUL and left:
                raise Violation("I2", f"partition {partition} is done, and {left} is still there")

    # Time, controllers and people

    def controller(self) -> None:
        """A controller's thread takes a turn; often the clock has moved to when something is due there."""
        world = self.world
        one = world.controllers[world.below(2)]
        if not one.claimed:
            other = world.controllers[1 - one.index]
            if other.claimed and world.random() < 0.7:
                one = other
        if one.claimed and not one.busy and world.random() < 0.8:
            due_ms = one.engine.schedule.next_ms()
            if due_ms is not None and due_ms > world.time_ms:
                world.time_ms = due_ms
        one.step()

    def wait(self) -> None:
        world = self.world
        world.time_ms += self.waits_ms[world.below(len(self.waits_ms))]
        world.coordinator.expire(world.time_ms)

    def shrink(self) -> None:
        world = self.world
        count = 4 if world.topic is None else len(world.topic.logs)
        dice = world.random()
        delay_ms = 0 if dice < 0.65 else None if dice < 0.85 else 60_000
        accept = ("streams",) if world.random() < 0.7 else ()
        to = world.below(count + 1) if world.random() < 0.15 else 1 + world.below(max(count - 1, 1))
        immediate = world.random() < 0.1
        self.command(DeletePartitionsCommand(NAME, to, delay_ms, immediate, accept))

    def grow(self) -> None:
        world = self.world
        exist = 4 if world.topic is None else len(world.topic.logs)
        count = max(len(world.modes), exist)  # with all that another tool added
        to = min(count, 7) if world.random() < 0.5 else 1 + world.below(7)
        self.command(CreatePartitionsCommand(NAME, to, validate_only=world.random() < 0.05))

    def rule(self) -> None:
        world = self.world
        kind = ("waive", "waive", "waive", "require", "closed")[world.below(5)]
        names = list(world.groups)
        group = "" if kind == "closed" else names[world.below(len(names))]
        if world.random() < 0.3:
            self.command(AlterGroupRulesCommand(remove=((kind, group, "*"),)))
            return
        expires_ms = world.time_ms + 60_000 if world.random() < 0.5 else None
        rule = GroupRule(kind, group, "*", "test", world.time_ms, expires_ms, kind == "waive" and world.random() < 0.3)
        self.command(AlterGroupRulesCommand(add=(rule,)))
        if kind == "waive" and world.random() < 0.4:  # nobody needs it any more: what it has read is no proof either
            for partition, mode in enumerate(world.modes):
                if not mode.writable:
                    world.groups[group].reset(partition)

    def command(self, command: Command) -> CommandResult | None:
        for controller in self.world.controllers:
            if controller.claimed and not controller.busy:
                self.world.tell("somebody asks controller %d: %s", controller.index, command)
                result = controller.execute(command)
                if result is not None:
                    self.world.tell("the answer: %s %s", result.code.name, result.message)
                    assert result.code in self.answers, result
                    return result
        return None

    def _producer(self, aware: bool = False) -> Producer:
        """Any one, or an aware one: the last is not."""
        producers = self.world.producers
        return producers[self.world.below(len(producers) - aware)]

    def produce(self) -> None:
        """An aware producer that knows all there is to know."""
        producer, world = self._producer(aware=True), self.world
        if world.random() < 0.7:
            producer.learn()
        for _ in range(1 + world.below(3)):
            producer.hand_over(KEYS[world.below(len(KEYS))])
        if world.random() < 0.7:
            producer.flush()

    def produce_behind(self) -> None:
        """An aware producer with whatever view it has, perhaps one record of the log newer."""
        producer, world = self._producer(aware=True), self.world
        if world.random() < 0.2:
            producer.learn(1)
        producer.hand_over(KEYS[world.below(len(KEYS))])
        if world.random() < 0.5:
            producer.flush()

    def produce_explicit(self) -> None:
        producer, world = self._producer(), self.world
        producer.hand_over(b"", explicit=world.below(8))
        producer.flush()

    def produce_unaware(self) -> None:
        producer = self.world.producers[-1]
        producer.hand_over(KEYS[self.world.below(len(KEYS))])
        producer.flush()

    def flush(self) -> None:
        producer, world = self._producer(), self.world
        if producer.queue and world.random() < 0.5:
            producer.learn()
        producer.flush()

    def transaction(self) -> None:
        producer, world = self._producer(), self.world
        if producer.transaction is None:
            producer.begin()
            producer.hand_over(KEYS[world.below(len(KEYS))])
            producer.flush()
        elif world.random() < 0.2 and world.odds[Fault.HANGING_TRANSACTION]:
            producer.hang()
        else:
            producer.finish(commit=world.random() < 0.6)

    def modes_away(self) -> None:
        world = self.world
        world.modes_away = not world.modes_away
        world.tell("the mode log is %s producers' reach", "out of" if world.modes_away else "within")

    def _group(self) -> Group:
        groups = list(self.world.groups.values())
        return groups[self.world.below(len(groups))]

    def poll(self) -> None:
        group, world = self._group(), self.world
        if group.has_members:
            if world.random() < 0.3:
                group.rebalance()
            group.poll(1 + world.below(20), behind=False)

    def poll_all(self) -> None:
        for group in self.world.groups.values():
            if group.has_members:
                group.poll(1000, behind=False)

    def poll_behind(self) -> None:
        """A group reads a little, and learns of modes late."""
        group = self._group()
        if group.has_members:
            group.poll(1, behind=True)

    def join(self) -> None:
        group, world = self._group(), self.world
        if not group.has_members:
            world.tell("group %s comes up", group.name)
            world.hit(Fault.CONSOLE_GROUP if not group.commits else Fault.LATE_GROUP)
            group.join()

    def leave(self) -> None:
        group, world = self._group(), self.world
        if group.has_members:
            world.tell("group %s leaves", group.name)
            world.hit(Fault.GROUP_LEAVES)
            group.leave()

    def expire(self) -> None:
        """The offsets of a group without members are dropped."""
        group, world = self._group(), self.world
        if not group.has_members and group.committed:
            world.tell("the offsets of group %s expire", group.name)
            world.hit(Fault.OFFSETS_EXPIRE)
            group.committed.clear()

    def reset(self) -> None:
        group, world = self._group(), self.world
        partition = world.below(6)
        if partition in group.committed:
            world.tell("group %s goes back to the start of partition %d", group.name, partition)
            world.hit(Fault.GROUP_RESET)
            group.reset(partition)

    def omit(self) -> None:
        """Listings leave a group out for a while, and one can tell (the offsets topic moves)."""
        self._turn(self.world.omitted, "left out of listings")

    def hide(self) -> None:
        """The controller loses the right to see all groups, and gets it back."""
        self._turn(self.world.hidden, "hidden: no right to DESCRIBE the cluster")

    def _turn(self, unseen: set[str], how: str) -> None:
        """One group is not seen any more, or the one that was not is seen again."""
        if unseen:
            unseen.clear()
            return
        group = self._group()
        self.world.tell("group %s is %s", group.name, how)
        unseen.add(group.name)

    def forget_start(self) -> None:
        """Brokers note log starts once a minute: killed all at once, they forget that records were deleted."""
        world = self.world
        if world.topic is None:
            return
        retired = [p for p, mode in enumerate(world.modes) if not mode.writable and p < len(world.topic.logs)]
        logs = [log for log in (world.topic.logs[p] for p in retired) if log.log_start > 0]
        for log in logs:
            start = world.below(log.log_start)
            world.lose(log.records[start : log.log_start])
            log.truncate(log.end, start, world.steps)
        if logs:
            world.hit(Fault.TRUNCATION)
            world.tell("the log starts of partitions %s go back", retired)

    def recreate_before_late(self) -> None:
        """A growth that was given up will find another topic, which has fewer partitions, and is being shrunk."""
        if any(fault is Fault.LATE_CREATE for fault, _ in self.world.late):
            self.recreate()
            if self.world.topic is None:
                self.world.make_again()
            self.shrink()


Actions.always = (
    (Actions.controller, 34),
    (Actions.wait, 5),
    (Actions.shrink, 6.5),
    (Actions.grow, 0.8),
    (Actions.produce, 8),
    (Actions.flush, 3),
    (Actions.poll, 8),
    (Actions.poll_all, 5),
    (Actions.poll_behind, 4),
    (Actions.join, 2),
)

Actions.sometimes = (
    (Actions.produce_behind, 6),
    (Actions.produce_explicit, 2),
    (Actions.produce_unaware, 2),
    (Actions.transaction, 3),
    (Actions.modes_away, 1),
    (Actions.leave, 1.5),
    (Actions.expire, 1.5),
    (Actions.reset, 1),
    (Actions.omit, 1.5),
    (Actions.hide, 1.5),
    (Actions.rule, 2),
    (Actions.leader, 2),
    (Actions.truncate, 1.5),
    (Actions.forget_start, 0.8),
    (Actions.retention, 1.5),
    (Actions.cleanup_policy, 0.5),
    (Actions.recreate, 0.4),
    (Actions.grow_by_another_tool, 0.7),
    (Actions.late_request, 2),
    (Actions.compaction, 1.5),
    (Actions.duplicates, 1),
    (Actions.stray, 1),
    (Actions.rubbish, 1),
    (Actions.rubbish_in_use, 0.7),
    (Actions.late_append, 1),
)
