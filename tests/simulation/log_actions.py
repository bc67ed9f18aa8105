"""What happens to the mode log."""

from __future__ import annotations

from dataclasses import replace

from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.records import CLAIM_KEY, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from tests.simulation.faults import Fault
from tests.simulation.modelog import FOR_NEWER_READERS, RUBBISH
from tests.simulation.world import World


class LogActions:
    """Events of the mode log."""

    def __init__(self, world: World) -> None:
        self.world = world

    def compaction(self) -> None:
        world = self.world
        before = len(world.log.entries)
        world.log.compact(world.below(before + 1))
        if len(world.log.entries) < before:
            world.hit(Fault.COMPACTION)
        world.tell("the mode log is compacted: %d records", len(world.log.entries))

    def duplicates(self) -> None:
        world = self.world
        if world.log.entries:
            world.hit(Fault.DUPLICATES)
            world.tell("the last records of the mode log come twice")
            world.log.duplicate(1 + world.below(4))

    def stray(self) -> None:
        """A record of a replaced controller got past the fences; the active one has its own behind it at once."""
        world, epoch = self.world, self.world.judge.epoch
        if epoch < 2 or CLAIM_KEY in world.log.spoilt:
            return  # without a claim nothing tells who was replaced
        dice = world.random()
        found = self._stray_claim() if dice < 0.15 else self._stray_rules() if dice < 0.3 else self._stray_record()
        if found is None:
            return
        key, stray, behind = found
        world.hit(Fault.STRAY_RECORD)
        world.tell("a record of a replaced controller (%s), and at once the one in force", key)
        for reader in world.readers:  # who has not seen the claim cannot tell
            reader.catch_up()
        world.log.write([(key, stray), (key, behind)], None)

    def _stray_record(self) -> tuple[str, bytes, bytes | None] | None:
        world, record, epoch = self.world, self.world.record, self.world.judge.epoch
        if world.topic is None:
            return None
        if record is None:
            modes = (PartitionMode.READ_ONLY,) * len(world.topic.logs)
            retired = dict.fromkeys(range(len(modes)), RetiredPartition())
            stray = TopicRecord(world.name, world.topic.topic_id, 0, epoch - 1, modes, None, retired)
            return stray.topic_id, stray.to_json(), None
        if record.controller_epoch != epoch:
            return None
        stray = replace(record, controller_epoch=epoch - 1, epoch=record.epoch + 1)
        return stray.topic_id, stray.to_json(), record.to_json()

    def _stray_claim(self) -> tuple[str, bytes, bytes | None] | None:
        claim = self.world.log.truth.claim
        if claim is None:
            return None
        stray = replace(claim, controller_epoch=claim.controller_epoch - 1, controller_id="replaced")
        return CLAIM_KEY, stray.to_json(), claim.to_json()

    def _stray_rules(self) -> tuple[str, bytes, bytes | None] | None:
        world, rules, epoch = self.world, self.world.log.truth.group_rules, self.world.judge.epoch
        if rules is not None and rules.controller_epoch != epoch:
            return None  # those in force would not be taken either, once they come behind the claim
        waived = tuple(GroupRule("waive", name, "*", "stray", world.time_ms) for name in world.groups)
        stray = GroupRulesRecord(waived, epoch - 1, 0 if rules is None else rules.epoch + 1)
        return GROUP_RULES_KEY, stray.to_json(), None if rules is None else rules.to_json()

    def rubbish(self) -> None:
        world = self.world
        world.hit(Fault.RUBBISH)
        world.tell("rubbish in the mode log")
        key = RUBBISH[world.below(len(RUBBISH))]
        value = RUBBISH[world.below(len(RUBBISH))] if world.random() < 0.8 else None
        world.log.write([(key, value)], None)

    def rubbish_in_use(self) -> None:
        """Rubbish, or a record for newer readers, stands where something is read; or does so no longer."""
        world, log = self.world, self.world.log
        if log.spoilt and world.random() < 0.6:
            world.tell("what was written for newer readers is written for all again")
            log.restore()
            return
        keys = [key for key in log.keys_in_use if key not in log.spoilt]
        if keys:
            key = keys[world.below(len(keys))]
            value = FOR_NEWER_READERS if world.random() < 0.3 else RUBBISH[world.below(len(RUBBISH))]
            world.hit(Fault.RUBBISH_IN_USE)
            world.tell("rubbish under the key %s: %s", key, value)
            log.write([(key, value)], None)

    def late_append(self) -> None:
        """The outcome of an append that was given up is settled."""
        if self.world.log.pending is not None:
            self.world.log.settle_pending(self.world.random() < 0.5)
