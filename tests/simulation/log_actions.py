"""What happens to the mode log."""

from __future__ import annotations

from dataclasses import replace

from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from tests.simulation.faults import Fault
from tests.simulation.modelog import RUBBISH
from tests.simulation.world import World


class LogActions:
    """Events of the mode log."""

    def __init__(self, world: World) -> None:
        self.world = world

    def compaction(self) -> None:
        world = self.world
        world.hit(Fault.COMPACTION)
        world.log.compact(world.below(len(world.log.entries) + 1))
        world.tell("the mode log is compacted: %d records", len(world.log.entries))

    def duplicates(self) -> None:
        world = self.world
        if world.log.entries:
            world.hit(Fault.DUPLICATES)
            world.tell("the last records of the mode log come twice")
            world.log.duplicate(1 + world.below(4))

    def stray(self) -> None:
        """A record of a replaced controller got past the fences; the active one has its own behind it at once."""
        world, record, epoch = self.world, self.world.record, self.world.judge.epoch
        if world.topic is None or epoch < 2:
            return
        if record is None:
            modes = (PartitionMode.READ_ONLY,) * len(world.topic.logs)
            retired = dict.fromkeys(range(len(modes)), RetiredPartition())
            stray = TopicRecord(world.name, world.topic.topic_id, 0, epoch - 1, modes, None, retired)
        elif record.controller_epoch == epoch:
            stray = replace(record, controller_epoch=epoch - 1, epoch=record.epoch + 1)
        else:
            return
        world.hit(Fault.STRAY_RECORD)
        world.tell("a record of a replaced controller, and at once the one in force")
        for reader in world.readers:  # who has not seen the claim cannot tell
            reader.catch_up()
        behind = None if record is None else record.to_json()
        world.log.write([(stray.topic_id, stray.to_json()), (stray.topic_id, behind)], None)

    def rubbish(self) -> None:
        world = self.world
        world.hit(Fault.RUBBISH)
        world.tell("rubbish in the mode log")
        key = RUBBISH[world.below(len(RUBBISH))]
        value = RUBBISH[world.below(len(RUBBISH))] if world.random() < 0.8 else None
        world.log.write([(key, value)], None)

    def late_append(self) -> None:
        """The outcome of an append that was given up is settled."""
        if self.world.log.pending is not None:
            self.world.log.settle_pending(self.world.random() < 0.5)
