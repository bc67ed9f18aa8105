"""What happens around an evacuation: jobs, and what people try with them."""

from __future__ import annotations

from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.evacuation import evacuation_of
from modeaware.modelog.group_rules import GroupRule
from tests.simulation.people import PeopleActions


class EvacuationActions(PeopleActions):
    """Events of schedules with compacted topics."""

    def evacuation_starts(self) -> None:
        self.world.evacuator.start()

    def evacuation_ends(self) -> None:
        """A job commits: all, or what it had come to; the group may be that of a change that is over."""
        world, runs = self.world, self.world.evacuator.runs
        if runs:
            world.evacuator.finish(world.below(len(runs)), 1 << 30 if world.random() < 0.7 else world.below(2))

    def evacuation_dies(self) -> None:
        """A job ends, and has committed nothing."""
        world, runs = self.world, self.world.evacuator.runs
        if runs:
            runs.pop(world.below(len(runs)))

    def evacuation_expires(self) -> None:
        world, groups = self.world, list(self.world.evacuator.committed)
        if groups:
            world.evacuator.expire(groups[world.below(len(groups))])

    def waive_evacuation(self) -> None:
        """Somebody will not wait for it. It is refused."""
        group = evacuation_of(self.world.record)
        if group is not None:
            rule = GroupRule("waive", group, "*", "in a hurry", self.world.time_ms)
            self.command(AlterGroupRulesCommand(add=(rule,)))
