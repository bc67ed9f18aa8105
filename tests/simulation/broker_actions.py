"""What happens to the brokers and their topic."""

from __future__ import annotations

from tests.simulation.faults import Fault
from tests.simulation.world import World


class BrokerActions:
    """Events on the brokers' side."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _some_partition(self) -> int | None:
        world = self.world
        if world.topic is None:
            return None
        retired = [p for p, mode in enumerate(world.modes) if not mode.writable and p < len(world.topic.logs)]
        if retired and world.random() < 0.5:
            return retired[world.below(len(retired))]
        return world.below(len(world.topic.logs))

    def leader(self) -> None:
        """A leader goes or comes back; sometimes another one is elected with nothing lost."""
        world, partition = self.world, self._some_partition()
        if partition is None or world.topic is None:
            return
        log = world.topic.logs[partition]
        if log.available:
            world.hit(Fault.NO_LEADER)
        log.available = not log.available
        if log.available:
            log.elect()
        world.tell("partition %d %s", partition, "has a leader again" if log.available else "has no leader")

    def truncate(self) -> None:
        """An unclean election: the end is lost, or the log start goes back; often it grows to its old end again."""
        world, partition = self.world, self._some_partition()
        if partition is None or world.topic is None:
            return
        log = world.topic.logs[partition]
        end = log.end
        if end == 0:
            return
        world.hit(Fault.TRUNCATION)
        to, start = end - 1 - world.below(min(end, 4)), log.log_start
        if start > 0 and world.random() < 0.4:
            to, start = end, world.below(start)  # brokers note log starts once a minute, and forget them when killed
        elif world.random() < 0.2:
            start = world.below(start + 1)
        world.gone.update(log.records[start : log.log_start])  # they come back, and nobody has a right to them any more
        log.truncate(to, start, world.steps)
        world.tell("partition %d is truncated to %d, and begins at %d", partition, to, log.log_start)
        if world.random() < 0.3:
            producer = world.producers[-1]
            producer.flush()
            for _ in range(end - to):
                producer.hand_over(b"", explicit=partition)
            producer.flush()

    def retention(self) -> None:
        world, partition = self.world, self._some_partition()
        if partition is None or world.topic is None:
            return
        if not world.cleans_by_age:
            return
        log = world.topic.logs[partition]
        before = log.log_start
        log.expire(1 << 30 if world.random() < 0.4 else 1 + world.below(4))
        if log.log_start != before:
            world.hit(Fault.RETENTION)
        world.tell("retention: partition %d begins at %d", partition, log.log_start)
        record = world.record
        if record is not None and record.deletion is not None and record.deletion.policy == "retention":
            for each in record.retired:
                if each < len(world.topic.logs) and world.random() < 0.5:
                    world.topic.logs[each].expire(1 << 30)

    def cleanup_policy(self) -> None:
        topic = self.world.topic
        if topic is not None:
            self.world.hit(Fault.CLEANUP_POLICY)
            topic.policy_changed_at = self.world.steps
            other = "compact" if topic.cleanup_policy == "delete" else "delete"
            topic.cleanup_policy = self.world.new_policy() if self.world.compacted else other
            self.world.tell("cleanup.policy is %s", topic.cleanup_policy)

    def recreate(self) -> None:
        """The topic goes, and comes again at once or later."""
        world = self.world
        if world.topic is None:
            world.make_topic()
            return
        world.hit(Fault.RECREATED)
        if world.random() < 0.5:
            world.recreate()
        else:
            world.delete_topic()

    def grow_by_another_tool(self) -> None:
        topic = self.world.topic
        if topic is not None and len(topic.logs) < 8:
            self.world.hit(Fault.FOREIGN_GROWTH)
            topic.grow(len(topic.logs) + 1)
            self.world.tell("another tool grows the topic to %d", len(topic.logs))

    def late_request(self) -> None:
        """A request that was given up long ago is carried out."""
        world = self.world
        if world.late:
            index = world.below(len(world.late))
            if world.late[index][0] is Fault.LATE_CREATE and not world.in_rare_phase and world.random() < 0.9:
                return  # rather later still: in the midst of the next change
            fault, request = world.late.pop(index)
            world.carry_out(fault, request)
