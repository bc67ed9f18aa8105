"""One schedule: everything that happens in it follows from its seed. At its end everything gets time to finish."""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate

from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import AlterGroupRulesCommand, DeletePartitionsCommand
from modeaware.lifecycle.state import in_progress
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from modeaware.modes import ReplicaState
from tests.simulation.actions import ALWAYS, SOMETIMES, Actions
from tests.simulation.broker import NAME
from tests.simulation.drain_invariants import Violation
from tests.simulation.faults import Coverage, Fault, Kind
from tests.simulation.groups import Group
from tests.simulation.modelog import Reader
from tests.simulation.producers import Producer, end_transaction
from tests.simulation.world import INTERVAL_MS, World

ROUNDS = 6
PERSONS_TURNS = 16


def settle(world: World, actions: Actions) -> None:
    """Bring everything to its end: every change must finish, and every record reach every group."""
    world.tell("from here on nothing fails any more")
    world.calm = True
    _calm_down(world)
    _finish(world, actions)
    if world.late:  # growths that were given up, of a topic that was made anew since
        while world.late:
            world.carry_out(*world.late.pop())
        _finish(world, actions)
    _end_hanging_transactions(world)
    for _ in range(2):  # members in doubt ask for another rebalance
        for group in world.groups.values():
            _read_all(group)
    world.judge.at_the_end()
    _check_reclaimed(world)


def _finish(world: World, actions: Actions) -> None:
    for _ in range(PERSONS_TURNS):
        if _rounds(world):
            return
        _person(world, actions)
    raise Violation("I2", f"a change does not finish: {_reasons(world.record)}")


def _calm_down(world: World) -> None:
    """Leaders are back, what was in flight lands, requests that were given up are carried out."""
    world.log.settle_pending(commit=True)
    growths = [late for late in world.late if late[0] is Fault.LATE_CREATE]
    late, world.late[:] = [late for late in world.late if late not in growths], growths
    while late:
        world.carry_out(*late.pop())
    _restore_the_log(world)
    if world.topic is None:
        world.make_again()
    assert world.topic is not None
    for log in world.topic.logs:
        log.available = True
    world.omitted.clear()
    world.modes_away = False
    for producer in world.producers:
        producer.flush()
        producer.end(commit=True)
        if producer.reader is not None:
            producer.reader.catch_up()
    for controller in world.controllers:
        controller.member.frozen = not controller.alive
    world.time_ms += 11_000
    world.coordinator.expire(world.time_ms)
    for group in world.groups.values():
        if group.in_use:
            group.join()


def _restore_the_log(world: World) -> None:
    """Nothing on the mode log is for newer readers any more; controllers that left it alone begin again."""
    newer = [key for key, (is_newer, _) in world.log.spoilt.items() if is_newer]
    if newer or any(controller.not_for_it for controller in world.controllers):
        for controller in world.controllers:
            controller.alive, controller.claimed = False, False
            controller.member.frozen = True
        world.log.spoilt.update(dict.fromkeys(newer, (True, -1)))  # nobody is left who would write it himself
        world.log.left_alone = frozenset(newer)
        world.log.restore()


def _rounds(world: World) -> bool:
    """Give everybody time; whether no change is in progress."""
    for turn in range(ROUNDS):
        for group in world.groups.values():
            _read_all(group)
        for controller in world.controllers:
            for _ in range(12):
                controller.step()
                if not controller.alive or not controller.claimed:
                    continue
                if not controller.engine.schedule.due(world.time_ms):
                    break
        if turn > 0 and _finished(world):  # a partition that is done is looked at again, too
            return True
        _expire_what_retention_takes(world)
        world.time_ms += INTERVAL_MS
    return False


def _read_all(group: Group) -> None:
    if group.has_members:
        group.rebalance()
        group.poll(10_000, behind=False)


def _finished(world: World) -> bool:
    records = world.log.truth.records
    if not any(controller.claimed for controller in world.controllers):
        return False
    assert world.topic is not None
    return all(key == world.topic.topic_id and not in_progress(record) for key, record in records.items())


def _expire_what_retention_takes(world: World) -> None:
    record = world.record
    retained = record is not None and record.deletion is not None and record.deletion.policy == "retention"
    if record is not None and retained:
        assert world.topic is not None
        for partition in record.retired:
            if partition < len(world.topic.logs):
                world.topic.logs[partition].expire(1 << 30)


def _reasons(record: TopicRecord | None) -> list[str]:
    return [] if record is None else sorted({r.reason for r in record.retired.values() if r.reason is not None})


def _person(world: World, actions: Actions) -> None:
    """Somebody reads the reasons, and does what they say."""
    found = _reasons(world.record)
    world.tell("somebody reads: %s", ", ".join(found))
    helped: set[str] = set()
    for reason in found:
        code, _, name = reason.partition(":")
        if name in helped:
            continue
        if code in (reasons.GROUP_GONE, reasons.GROUP_NEVER_COMMITTED):
            _waive(world, actions, name)
        elif code in (reasons.GROUP_BEYOND_END, reasons.GROUP_TRUNCATED) or (
            code == reasons.GROUP_LAG and _sits_at_the_end(world, name)
        ):
            _set_back(world, name)
            helped.add(name)
            if code == reasons.GROUP_TRUNCATED and world.groups[name].epochless:  # it will look the same again
                _waive(world, actions, name)
        elif code == reasons.GROUPS_UNKNOWN and any(one.without_rules for one in world.controllers):
            _waive(world, actions, "nobody")  # the rules are made again
        elif code == reasons.GROUP_STATEFUL:
            _accept_state_loss(world, actions)
        elif code == reasons.OPEN_TRANSACTION:
            _end_hanging_transactions(world)
        elif code == reasons.COMPACTED:
            world.policy = "delete"
        elif code == reasons.GROUPS_HIDDEN:
            world.hidden.clear()
        else:
            raise Violation("I2", f"a change does not finish by itself: {reason}")


def _waive(world: World, actions: Actions, name: str) -> None:
    rule = GroupRule("waive", name, "*", "not needed any more", world.time_ms)
    actions.command(AlterGroupRulesCommand(add=(rule,)))


def _end_hanging_transactions(world: World) -> None:
    """``kafka-transactions abort``."""
    while world.hanging:
        end_transaction(world, world.hanging.pop(), commit=False)


def _sits_at_the_end(world: World, name: str) -> bool:
    """Retention went past a latest group's commit: it waits at the end, and commits nothing before a record comes."""
    group, topic = world.groups[name], world.topic
    assert topic is not None
    return group.latest and any(
        offset < topic.logs[p].log_start and group.positions.get(p) == topic.logs[p].end
        for p, (offset, _) in group.committed.items()
    )


def _set_back(world: World, name: str) -> None:
    """``kafka-consumer-groups --reset-offsets``: to where the log still is what the group has read."""
    group, topic = world.groups[name], world.topic
    assert topic is not None
    for partition, (offset, epoch) in list(group.committed.items()):
        log = topic.logs[partition]
        if offset < log.log_start and group.positions.get(partition) == log.end:
            group.committed[partition] = (log.end, log.epoch)
        else:
            group.committed[partition] = (max(min(offset, log.epoch_end(epoch)), log.log_start), log.epoch)
            group.positions.pop(partition, None)


def _accept_state_loss(world: World, actions: Actions) -> None:
    record = world.record
    assert record is not None
    assert record.deletion is not None
    deletion = record.deletion
    count, delay_ms, immediate = deletion.delete_partitions, deletion.delay_ms, deletion.immediate_delete
    again = DeletePartitionsCommand(NAME, count, delay_ms, immediate, ("streams",))
    actions.command(again)


def _check_reclaimed(world: World) -> None:
    """What is called deleted is deleted."""
    record = world.record
    if record is None:
        return
    assert world.topic is not None
    for partition, retired in record.retired.items():
        log = world.topic.logs[partition]
        left = world.judge.wanted(log.records[log.log_start :])
        if retired.replica_state is ReplicaState.DELETION_SUCCESSFUL and left:
            raise Violation("I2", f"partition {partition} is done, and {left} is still there")


ANEW_FROM = 1_000_000_000
"""From this seed on, topics are made anew, records of the mode log come twice, and groups rebalance all the time."""


def run(seed: int, coverage: Coverage, story: list[str] | None = None) -> World:
    world = new_world(seed, coverage, story)
    actions = Actions(world)
    weighted = list(ALWAYS)
    for event in SOMETIMES:
        if world.random() < 0.45:
            weighted.append((event[0], event[1] * (0.5 + 2 * world.random())))
    if world.odds[Fault.LATE_CREATE] or world.odds[Fault.LATE_DELETE]:  # what is late finds things changed
        weighted += [(Actions.grow, 0.4), (Actions.recreate_before_late, 3.0)]
    if seed >= ANEW_FROM:
        weighted += [(Actions.recreate, 1.5), (Actions.duplicates, 8.0)]
        weighted += [(Actions.shrink, 6.0), (Actions.join, 6.0)]
    late_odds = 0.15 if world.random() < 0.5 else 0.0
    sums = list(accumulate(weight for _, weight in weighted))
    events, total, random = [event for event, _ in weighted], sums[-1], world.random

    def act() -> None:
        world.steps += 1
        if world.late and random() < (0.5 if world.in_rare_phase else 0.3 if world.opening else late_odds):
            actions.late_request()
        events[bisect(sums, random() * total)](actions)

    world.act = act
    for _ in range(50 + world.below(70)):
        act()
    settle(world, actions)
    return world


def new_world(seed: int, coverage: Coverage, story: list[str] | None = None) -> World:
    """A topic in use: some groups have read a part of it, a controller has its first turn."""
    world = World(seed, Kind.RESIZES, coverage, story)
    assert world.topic is not None
    _make_clients(world)
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
    return world


def _make_clients(world: World) -> None:
    world.producers = [Producer(world, aware=True), Producer(world, aware=True), Producer(world, aware=False)]
    for name in ("billing", "audit", "share", "streams", "console-consumer-1")[: 1 + world.below(5)]:
        aware = name != "console-consumer-1" and world.random() < 0.75
        latest = name == "console-consumer-1" or world.random() < 0.4
        readers = [Reader(world.log, NAME) for _ in range(1 + (world.random() < 0.3))]
        kind = name if name in ("share", "streams") else "classic"
        commits = name != "console-consumer-1"
        group = Group(world, name, aware, latest, kind, commits, name == "audit", readers if aware else [])
        group.stateful = name == "streams" and world.random() < 0.5
        world.groups[name] = group
