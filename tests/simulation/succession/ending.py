"""The end of a schedule: nothing fails any more, everything gets time to finish, and a person does what reasons say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.state import in_progress
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from tests.simulation.broker import NAME, SUCCESSOR
from tests.simulation.drain_invariants import Violation
from tests.simulation.world import INTERVAL_MS, World

if TYPE_CHECKING:
    from tests.simulation.succession.schedule import Actions

ROUNDS, PERSONS_TURNS = 8, 20


def settle(world: World, actions: Actions) -> None:
    """Nothing fails any more; every change must finish, and every record reach every group."""
    calm_down(world)
    for _ in range(PERSONS_TURNS):
        if rounds(world):
            if actions.asked or "id-1" not in world.by_id or world.topics.get(NAME) is not world.by_id["id-1"]:
                break
            actions.replace()
            actions.asked = True  # it may be refused: the successor's name is taken
            continue
        person(world, actions)
    else:
        raise Violation("I2", f"a replacement does not finish: {reasons_of(world.first_record)} {world.first_record}")
    read_to_the_end(world)
    _check_end(world)


def calm_down(world: World) -> None:
    world.tell("from here on nothing fails any more")
    world.calm = True
    world.log.settle_pending(commit=True)
    while world.late:
        world.carry_out(*world.late.pop())
    world.doubtful = world.gitops = False
    world.policy = "delete"
    for controller in world.controllers:
        controller.member.frozen = not controller.alive
    world.time_ms += 11_000
    world.coordinator.expire(world.time_ms)
    for group in world.groups.values():
        group.stateful = False
        if not group.has_members and group.ever:
            group.start()


def read_to_the_end(world: World) -> None:
    for group in world.groups.values():
        if not group.has_members:  # it begins when all is done
            group.start()
    work(world)
    work(world)
    world.judge.at_the_end()


def work(world: World) -> None:
    for topic in list(world.topics.values()):
        for partition, log in enumerate(topic.logs):
            log.available = True
            world.apply_configs(topic, partition)
            world.apply_to_followers(topic, partition)
    for producer in world.producers:
        producer.flush()
        producer.end(commit=True)
        if producer.reader is not None:
            producer.reader.catch_up()
    for topic in list(world.topics.values()):
        for partition in range(len(topic.logs)):
            world.replicate(topic, partition)
    for group in world.groups.values():
        for member in group.members:
            if member.reader is not None:
                member.reader.catch_up()
        group.commit()
        group.rebalance()
        for _ in range(3):
            group.poll(10_000)
            group.commit()


def rounds(world: World) -> bool:
    for turn in range(ROUNDS):
        work(world)
        for controller in world.controllers:
            for _ in range(12):
                controller.step()
                if controller.alive and controller.claimed and not controller.engine.schedule.due(world.time_ms):
                    break
        if turn > 1 and any(c.claimed for c in world.controllers) and not unfinished(world):
            return True
        world.time_ms += INTERVAL_MS
    return False


def unfinished(world: World) -> list[TopicRecord]:
    return [record for record in world.log.truth.records.values() if in_progress(record)]


def reasons_of(record: TopicRecord | None) -> set[str]:
    if record is None:
        return set()
    found = {retired.reason for retired in record.retired.values()}
    found.add(record.replacement.reason if record.replacement is not None else None)
    return {reason for reason in found if reason is not None}


def person(world: World, actions: Actions) -> None:
    """Somebody reads the reasons, and does what they say."""
    for record in unfinished(world):
        found = reasons_of(record)
        successor = record.replacement.successor if record.replacement is not None else SUCCESSOR
        world.tell("somebody reads: %s", ", ".join(sorted(found)))
        for reason in sorted(found):
            code, _, name = reason.partition(":")
            if code == reasons.PAUSED:
                actions.ask(actions.command)
            elif code == reasons.GROUP_NOT_MOVED and not world.groups[name].aware:
                world.groups[name].move(successor)
            elif code == reasons.SUCCESSOR_GONE:
                world.hit("successor lost")
                if successor in world.topics:
                    world.delete(successor)
            elif code == reasons.GROUP_SUBSCRIBED:
                world.groups[name].leave(record.topic, successor)
            elif code == reasons.GROUP_LAG and world.groups[name].has_left(record.topic):
                world.groups[name].come_back(record.topic)
            elif code == reasons.RETENTION:
                for log in world.topics[record.topic].logs:
                    actions.expire(log, 1 << 30)
            elif code == reasons.NO_SUCCESSOR:
                world.delete(record.topic)
            elif code == reasons.PREDECESSOR_FIRST:
                _delete_unfenced(world, name)
            elif code == reasons.FENCE_DENIED:
                world.denied = False
            elif code in (reasons.GROUP_GONE, reasons.GROUP_NEVER_COMMITTED):
                rule = GroupRule("waive", name, "*", "not needed any more", world.time_ms)
                actions.ask(AlterGroupRulesCommand(add=(rule,)))
                world.groups[name].waived = True
            elif code not in _A_TURN_MORE:
                raise Violation("I2", f"a replacement does not finish by itself: {reason}")


def _delete_unfenced(world: World, topic: str) -> None:
    """A topic that was replaced without a fence is never deleted: its owner does."""
    record = world.log.truth.record(topic)
    if topic in world.topics and record is not None and record.replacement and not record.replacement.has_fence:
        world.delete(topic)


_A_TURN_MORE = (reasons.GROUP_LAG, reasons.GROUP_NOT_MOVED, reasons.NOT_FENCED, reasons.DELAY, reasons.DELETING)


def _check_end(world: World) -> None:
    """The name leads where the record says, and producers write there."""
    record = world.first_record
    now = record.replacement if record is not None else None
    if now is None or now.switched_ms is None:
        return
    predecessor = world.topics.get(NAME)
    own = predecessor is not None and record is not None and predecessor.topic_id == record.topic_id
    if own and now.fence != "none" and predecessor is not None and not predecessor.is_fenced:
        raise Violation("fence", "the predecessor is let go, and is not fenced")
    for producer in world.producers:
        target = producer.target()
        if producer.reader is not None and target is not None and target.topic_id != now.successor_id:
            raise Violation("I8", f"a producer writes to {target.topic_id}, the name leads to {now.successor_id}")
