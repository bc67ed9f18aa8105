"""What people and the clock do: time passes, controllers take their turns, commands are given."""

from __future__ import annotations

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    Command,
    CommandResult,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
)
from modeaware.modelog.group_rules import GroupRule
from tests.simulation.world import World

WAITS_MS = (0, 100, 1_000, 1_000, 10_000, 10_000, 30_000, 60_000, 300_000)
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


class PeopleActions:
    """Events that people bring about."""

    def __init__(self, world: World) -> None:
        self.world = world

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
        world.time_ms += WAITS_MS[world.below(len(WAITS_MS))]
        world.coordinator.expire(world.time_ms)

    def shrink(self) -> None:
        world = self.world
        count = 4 if world.topic is None else len(world.topic.logs)
        dice = world.random()
        delay_ms = 0 if dice < 0.65 else -1 if dice < 0.85 else 60_000
        accept = ("streams",) if world.random() < 0.7 else ()
        to = world.below(count + 1) if world.random() < 0.15 else 1 + world.below(max(count - 1, 1))
        immediate = world.random() < 0.1
        self.command(DeletePartitionsCommand(world.name, to, delay_ms, immediate, accept, self._evacuates(immediate)))

    def _evacuates(self, immediate: bool) -> bool:
        """As the topic needs it, mostly."""
        world = self.world
        if not world.compacted or world.topic is None:
            return False
        needed = world.topic.cleanup_policy != "delete" and not immediate
        return needed if world.random() < 0.9 else not needed

    def grow(self) -> None:
        world = self.world
        count = len(world.modes) if world.modes else 4 if world.topic is None else len(world.topic.logs)
        to = min(count, 7) if world.random() < 0.5 else 1 + world.below(7)
        self.command(CreatePartitionsCommand(world.name, to, validate_only=world.random() < 0.05))

    def rule(self) -> None:
        """A rule about groups comes or goes."""
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
                    assert result.code in ANSWERS, result
                    return result
        return None
