"""What happens to the brokers, to their topic and to the mode log."""

from __future__ import annotations

from dataclasses import replace

from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.records import CLAIM_KEY, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from tests.simulation.broker import NAME, Topic
from tests.simulation.faults import Fault
from tests.simulation.modelog import FOR_NEWER_READERS, RUBBISH
from tests.simulation.world import World


class BrokerActions:
    """Events on the brokers' side, and of the mode log."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _some_partition(self) -> tuple[Topic, int] | None:
        """One of a topic that is there; retired ones are more often met."""
        world = self.world
        if world.topic is None:
            return None
        retired = [p for p, mode in enumerate(world.modes) if not mode.writable and p < len(world.topic.logs)]
        among = retired if retired and world.random() < 0.5 else range(len(world.topic.logs))
        return world.topic, among[world.below(len(among))]

    def leader(self) -> None:
        """A leader goes or comes back; where elections are no events of their own, as another one with nothing lost."""
        found, world = self._some_partition(), self.world
        if found is None:
            return
        log = found[0].logs[found[1]]
        if log.available:
            world.hit(Fault.NO_LEADER)
        log.available = not log.available
        if log.available and not world.replaces:
            log.elect()
        world.tell("%s-%d %s", found[0].name, found[1], "has a leader again" if log.available else "has no leader")

    def truncate(self) -> None:
        """An unclean election: the end is lost, or the log start goes back; often it grows to its old end again."""
        found, world = self._some_partition(), self.world
        if found is None:
            return
        topic, partition = found
        log = topic.logs[partition]
        end = log.end
        if end == 0:
            return
        world.hit(Fault.TRUNCATION)
        to, start = end - 1 - world.below(min(end, 4)), log.log_start
        if start > 0 and world.random() < 0.4:
            to, start = end, world.below(start)  # brokers note log starts once a minute, and forget them when killed
        elif world.random() < 0.2:
            start = world.below(start + 1)
        world.lose(log.records[start : log.log_start])  # they come back, and nobody has a right to them any more
        log.truncate(to, start, world.steps)
        world.tell("partition %d is truncated to %d, and begins at %d", partition, to, log.log_start)
        if world.random() < 0.3:
            producer = world.producers[-1]
            producer.flush()
            for _ in range(end - to):
                producer.hand_over(b"", explicit=partition)
            producer.flush()

    def retention(self) -> None:
        found, world = self._some_partition(), self.world
        if found is None:
            return
        topic, partition = found
        log = topic.logs[partition]
        before = log.log_start
        log.expire(1 << 30 if world.random() < 0.4 else 1 + world.below(4))
        if log.log_start != before:
            world.hit(Fault.RETENTION)
        world.tell("retention: partition %d begins at %d", partition, log.log_start)
        record = world.record
        if record is not None and record.deletion is not None and record.deletion.policy == "retention":
            for each in record.closed:
                if each < len(topic.logs) and world.random() < 0.5:
                    topic.logs[each].expire(1 << 30)

    def cleanup_policy(self) -> None:
        world = self.world
        if world.topics:
            world.hit(Fault.CLEANUP_POLICY)
            world.policy_changed_at = world.steps
            world.policy = "compact" if world.policy == "delete" else "delete"
            world.tell("cleanup.policy is %s", world.policy)

    def recreate(self) -> None:
        """The topic goes, and comes again at once or later."""
        world = self.world
        if world.topic is None:
            world.make_again()
            return
        world.hit(Fault.RECREATED)
        at_once = world.random() < 0.5
        world.delete(NAME)
        if at_once:
            world.make_again()

    def grow_by_another_tool(self) -> None:
        topic = self.world.topic
        if topic is not None and len(topic.logs) < (6 if self.world.replaces else 8):
            self.world.hit(Fault.FOREIGN_GROWTH)
            topic.grow(len(topic.logs) + 1, self.world.steps)
            self.world.tell("another tool grows the topic to %d", len(topic.logs))

    def late_request(self) -> None:
        world = self.world
        if world.late:
            index = world.below(len(world.late))
            if world.late[index][0] is Fault.LATE_CREATE and not world.in_rare_phase and world.random() < 0.9:
                return  # rather later still: in the midst of the next change
            fault, request = world.late.pop(index)
            world.carry_out(fault, request)

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
            stray = TopicRecord(NAME, world.topic.topic_id, 0, epoch - 1, modes, None, retired)
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
        if self.world.log.pending is not None:
            self.world.log.settle_pending(self.world.random() < 0.5)
