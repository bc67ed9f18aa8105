"""The end of a schedule: nothing fails any more, everything gets time to finish, and a person does what reasons say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import AlterGroupRulesCommand, DeletePartitionsCommand
from modeaware.lifecycle.state import in_progress
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from tests.simulation.broker import NAME
from tests.simulation.drain_invariants import Violation
from tests.simulation.faults import Fault
from tests.simulation.world import INTERVAL_MS, World

if TYPE_CHECKING:
    from tests.simulation.actions import Actions

ROUNDS = 8


def settle(world: World, actions: Actions) -> None:
    """Bring everything to its end: every change must finish, and every record reach every group."""
    calm_down(world)
    for _ in range(actions.persons_turns):
        if not rounds(world):
            actions.look_again()
            person(world, actions)
        elif not actions.ask_for_more():
            break
    else:
        left = [(record.topic, reasons_of(record)) for record in unfinished(world)]
        raise Violation("I2", f"a change does not finish: {left}")
    end_hanging_transactions(world)
    for group in world.groups.values():
        group.begin_at_last()
    work(world)
    work(world)  # members in doubt ask for another rebalance
    world.judge.at_the_end()
    actions.check_end()


def calm_down(world: World) -> None:
    """Leaders are back, what was in flight lands, requests that were given up are carried out."""
    world.tell("from here on nothing fails any more")
    world.calm = True
    world.log.settle_pending(commit=True)
    growths = [late for late in world.late if late[0] is Fault.LATE_CREATE and not world.replaces]
    late, world.late[:] = [late for late in world.late if late not in growths], growths
    while late:
        world.carry_out(*late.pop())
    _restore_the_log(world)
    world.omitted.clear()
    world.modes_away = world.doubtful = world.gitops = False
    if world.replaces:
        world.policy = "delete"
    else:
        if world.topic is None:
            world.make_again()
        _serve(world)
    for controller in world.controllers:
        controller.member.frozen = not controller.alive
    world.time_ms += 11_000
    world.coordinator.expire(world.time_ms)
    for group in world.groups.values():
        group.calm_down()


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


def _serve(world: World) -> None:
    """Brokers and producers do all that is left to do."""
    for topic in world.topics.values():
        for partition, log in enumerate(topic.logs):
            log.available = True
            world.apply_configs(topic, partition)
            world.apply_to_followers(topic, partition)
    for producer in world.producers:
        producer.flush()
        producer.end(commit=True)
        if producer.reader is not None:
            producer.reader.catch_up()
    for topic in world.topics.values():
        for partition in range(len(topic.logs)):
            world.replicate(topic, partition)


def work(world: World) -> None:
    """Brokers, producers and groups do all that is left to do."""
    _serve(world)
    for group in world.groups.values():
        group.read_all()


def rounds(world: World) -> bool:
    """Give everybody time; whether no change is in progress."""
    for turn in range(ROUNDS if world.replaces else ROUNDS - 2):
        work(world)
        for controller in world.controllers:
            for _ in range(12):
                controller.step()
                if controller.alive and controller.claimed and not controller.engine.schedule.due(world.time_ms):
                    break
        enough = 1 if world.replaces else 0  # a partition that is done is looked at again, too
        if turn > enough and any(c.claimed for c in world.controllers) and not unfinished(world):
            return True
        _expire_what_retention_takes(world)
        world.time_ms += INTERVAL_MS
    return False


def unfinished(world: World) -> list[TopicRecord]:
    """The records of changes in progress, and those of topics that are gone and were not replaced."""
    records = world.log.truth.records.values()
    topic_id = world.topic.topic_id if world.topic is not None else None
    return [r for r in records if in_progress(r) or not (world.replaces or r.topic_id == topic_id)]


def _expire_what_retention_takes(world: World) -> None:
    record = world.record
    if record is not None and record.deletion is not None and record.deletion.policy == "retention":
        assert world.topic is not None
        for partition in record.retired:
            if partition < len(world.topic.logs):
                world.topic.logs[partition].expire(1 << 30)


def reasons_of(record: TopicRecord) -> list[str]:
    found = {retired.reason for retired in record.retired.values()}
    found.add(record.replacement.reason if record.replacement is not None else None)
    return sorted(reason for reason in found if reason is not None)


def end_hanging_transactions(world: World) -> None:
    """``kafka-transactions abort``."""
    while world.hanging:
        world.hanging.pop().end(world, commit=False)


# A person


def person(world: World, actions: Actions) -> None:
    """Somebody reads the reasons, and does what they say."""
    for record in unfinished(world) if world.replaces else filter(None, [world.record]):
        found, known = reasons_of(record), REPLACING if world.replaces else RESIZING
        world.tell("somebody reads: %s", ", ".join(found))
        helped: set[str] = set()
        for reason in found:
            code, _, name = reason.partition(":")
            if code not in known:
                raise Violation("I2", f"a change does not finish by itself: {reason}")
            if name not in helped and known[code](world, actions, record, name):
                helped.add(name)


def _waive(world: World, actions: Actions, _record: object, name: str) -> None:
    actions.command(AlterGroupRulesCommand(add=(GroupRule("waive", name, "*", "not needed any more", world.time_ms),)))
    if name in world.groups:
        world.groups[name].waived = True


def _set_back(world: World, actions: Actions, _record: object, name: str) -> bool:
    world.groups[name].set_back_to_what_it_read()
    return True


def _truncated(world: World, actions: Actions, record: TopicRecord, name: str) -> bool:
    _set_back(world, actions, record, name)
    if world.groups[name].epochless:  # it will look the same again
        _waive(world, actions, record, name)
    return True


def _lags(world: World, actions: Actions, record: TopicRecord, name: str) -> bool:
    if not world.groups[name].sits_at_the_end:
        raise Violation("I2", f"a change does not finish by itself: group {name} lags")
    return _set_back(world, actions, record, name)


def _comes_back(world: World, _actions: Actions, record: TopicRecord, name: str) -> None:
    if world.groups[name].has_left(record.topic):
        world.groups[name].come_back(record.topic)


def _groups_unknown(world: World, actions: Actions, record: TopicRecord, _name: str) -> None:
    if not any(one.without_rules for one in world.controllers):
        raise Violation("I2", "a change does not finish by itself: the groups are not known")
    _waive(world, actions, record, "nobody")  # the rules are made again


def _accept_state_loss(_world: World, actions: Actions, record: TopicRecord, _name: str) -> None:
    deletion = record.deletion
    assert deletion is not None
    count, delay_ms, immediate = deletion.delete_partitions, deletion.delay_ms, deletion.immediate_delete
    actions.command(DeletePartitionsCommand(NAME, count, delay_ms, immediate, ("streams",)))


def _open_transaction(world: World, *_: object) -> None:
    end_hanging_transactions(world)


def _compacted(world: World, *_: object) -> None:
    world.policy = "delete"


def _hidden(world: World, *_: object) -> None:
    world.hidden.clear()


def _paused(_world: World, actions: Actions, *_: object) -> None:
    actions.command(actions.request)


def _not_moved(world: World, _actions: Actions, record: TopicRecord, name: str) -> None:
    if not world.groups[name].aware:
        world.groups[name].move(_new_topic(record))


def _new_topic(record: TopicRecord) -> str:
    assert record.replacement is not None
    return record.replacement.new_topic


def _new_topic_gone(world: World, _actions: Actions, record: TopicRecord, _name: str) -> None:
    world.hit("new topic lost")
    if _new_topic(record) in world.topics:
        world.delete(_new_topic(record))


def _subscribed(world: World, _actions: Actions, record: TopicRecord, name: str) -> None:
    world.groups[name].leave(record.topic, _new_topic(record))


def _retention(world: World, actions: Actions, record: TopicRecord, _name: str) -> None:
    for log in world.topics[record.topic].logs:
        actions.expire(log, 1 << 30)


def _no_new_topic(world: World, _actions: Actions, record: TopicRecord, _name: str) -> None:
    world.delete(record.topic)


def _earlier_topic_first(world: World, _actions: Actions, _record: object, topic: str) -> None:
    """A topic that was replaced without a fence is never deleted: its owner does."""
    record = world.log.truth.record(topic)
    if topic in world.topics and record is not None and record.replacement and not record.replacement.has_fence:
        world.delete(topic)


def _name_taken(_world: World, actions: Actions, *_: object) -> None:
    actions.go_away()


def _denied(world: World, *_: object) -> None:
    world.denied = False


def _a_turn_more(*_: object) -> None:
    """It passes by itself."""


Help = Callable[[World, "Actions", TopicRecord, str], object]
ANYWHERE: dict[str, Help] = {reasons.GROUP_GONE: _waive, reasons.GROUP_NEVER_COMMITTED: _waive}
RESIZING: dict[str, Help] = ANYWHERE | {
    reasons.GROUP_BEYOND_END: _set_back,
    reasons.GROUP_TRUNCATED: _truncated,
    reasons.GROUP_LAG: _lags,
    reasons.GROUPS_UNKNOWN: _groups_unknown,
    reasons.GROUP_STATEFUL: _accept_state_loss,
    reasons.OPEN_TRANSACTION: _open_transaction,
    reasons.COMPACTED: _compacted,
    reasons.GROUPS_HIDDEN: _hidden,
}
"""What a person does about a reason; what is true: no more for its group in this turn."""
REPLACING: dict[str, Help] = ANYWHERE | {
    reasons.PAUSED: _paused,
    reasons.GROUP_NOT_MOVED: _not_moved,
    reasons.NEW_TOPIC_GONE: _new_topic_gone,
    reasons.GROUP_SUBSCRIBED: _subscribed,
    reasons.GROUP_LAG: _comes_back,
    reasons.RETENTION: _retention,
    reasons.NO_NEW_TOPIC: _no_new_topic,
    reasons.EARLIER_TOPIC_FIRST: _earlier_topic_first,
    reasons.FENCE_DENIED: _denied,
    reasons.NOT_FENCED: _a_turn_more,
    reasons.DELAY: _a_turn_more,
    reasons.DELETING: _a_turn_more,
    reasons.NAME_TAKEN: _name_taken,
    reasons.OFFSETS_LEFT: _a_turn_more,
    reasons.RENAME_REFUSED: _a_turn_more,
    reasons.UNAVAILABLE: _a_turn_more,
}
