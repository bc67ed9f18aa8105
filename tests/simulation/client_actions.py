"""What producers and groups do."""

from __future__ import annotations

from tests.simulation.faults import Fault
from tests.simulation.groups import Group
from tests.simulation.producers import KEYS, Producer
from tests.simulation.world import World


class ClientActions:
    """Events on the clients' side."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _producer(self, aware: bool | None = None) -> Producer:
        producers = self.world.producers
        if aware is None:
            return producers[self.world.below(len(producers))]
        return producers[self.world.below(len(producers) - 1)] if aware else producers[-1]

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
        """The application names the partition."""
        producer, world = self._producer(), self.world
        producer.hand_over(b"", explicit=world.below(8))
        producer.flush()

    def produce_unaware(self) -> None:
        producer = self._producer(aware=False)
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
            producer.end(commit=world.random() < 0.6)

    def modes_away(self) -> None:
        """Producers cannot reach the mode log for a while."""
        world = self.world
        world.modes_away = not world.modes_away
        world.begins(Fault.MODES_OUT_OF_REACH)
        world.tell("the mode log is %s producers' reach", "out of" if world.modes_away else "within")

    # Groups

    def _group(self) -> Group:
        groups = list(self.world.groups.values())
        return groups[self.world.below(len(groups))]

    def poll(self) -> None:
        """A group reads what there is."""
        group, world = self._group(), self.world
        if group.has_members:
            if world.random() < 0.3:
                group.rebalance()
            group.poll(1 + world.below(20), behind=False)

    def poll_all(self) -> None:
        """Every group with members reads all it can."""
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
        self._turn(self.world.omitted, Fault.GROUP_OMITTED, "left out of listings")

    def hide(self) -> None:
        """The controller loses the right to see all groups, and gets it back."""
        self._turn(self.world.hidden, Fault.GROUPS_HIDDEN, "hidden: no right to DESCRIBE the cluster")

    def _turn(self, unseen: set[str], fault: Fault, how: str) -> None:
        """One group is not seen any more, or the one that was not is seen again."""
        if unseen:
            unseen.clear()
            return
        group = self._group()
        self.world.tell("group %s is %s", group.name, how)
        self.world.begins(fault)
        unseen.add(group.name)
