"""What a consumer holds of the partitions its group gave it: all but those in mode None.

kafka-python is assigned all of them. The ones in mode None are *hidden*: paused by us, and left out of what the
application sees. So the group's idea of who owns what stays as it is, and a change of modes between two rebalances is a
pause, or a resume at the position where reading stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from modeaware.kafka_python._starts import Partition, Starts
from modeaware.tally import PARTITIONS_LEFT_OUT, PARTITIONS_TAKEN_UP, TALLY
from modeaware.topic_view import TopicView


class Holding:
    """For the polling thread, and kafka-python's own thread while the former waits for it in a rebalance.

    Args:
        subscription: kafka-python's SubscriptionState.
        starts: where partitions start.
        view_of: the view in force of a topic.

    Attributes:
        hidden: partitions that are assigned, and paused by us.
    """

    def __init__(self, subscription: Any, starts: Starts, view_of: Callable[[str], TopicView]) -> None:
        self._subscription = subscription
        self._starts = starts
        self._view_of = view_of
        self._paused_by_application: set[Partition] = set()  # of the hidden ones
        self._hidden_of: dict[Partition, str | None] = {}  # the topic id for which a partition was hidden
        self.hidden: set[Partition] = set()

    def unreadable(self, partitions: Iterable[Partition]) -> set[Partition]:
        """Those of ``partitions`` that are in mode None, by the views in force."""
        return {p for p in partitions if not self._view_of(p.topic).is_readable(p.partition)}

    def assigned(self) -> set[Partition]:
        """What kafka-python is assigned."""
        partitions: set[Partition] = self._subscription.assigned_partitions()
        return partitions

    def held(self) -> set[Partition]:
        """What the application sees."""
        return self.assigned() - self.hidden

    def settle(self) -> None:
        """After a change of the assignment: hide what is in mode None, and nothing else."""
        assigned = self.assigned()
        self._starts.keep(assigned)
        target = self.unreadable(assigned)
        self.show((self.hidden & assigned) - target)
        self.hidden &= assigned
        self._hidden_of = {p: topic_id for p, topic_id in self._hidden_of.items() if p in self.hidden}
        self.hide(target)

    def changes(self) -> tuple[set[Partition], set[Partition]]:
        """What the views in force let go, and what they bring back, of what is assigned."""
        assigned = self.assigned()
        target = self.unreadable(assigned)
        return target - self.hidden, (self.hidden & assigned) - target

    def hide(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if not self._subscription.is_paused(partition):  # also one that was lost, and is given to us anew
                self._paused_by_application.discard(partition)
            elif partition not in self.hidden:
                self._paused_by_application.add(partition)
            self._subscription.pause(partition)
            if partition not in self.hidden:
                TALLY.add(PARTITIONS_LEFT_OUT)
                self._hidden_of[partition] = self._view_of(partition.topic).topic_id
            self.hidden.add(partition)

    def show(self, partitions: Iterable[Partition]) -> None:
        """Hold ``partitions`` again, each from where it was, or from its start."""
        for partition in partitions:
            self.hidden.discard(partition)
            TALLY.add(PARTITIONS_TAKEN_UP)
            position = self._subscription.position(partition)
            start = None if position is None else self._starts.returning(partition, position.offset)
            if self._hidden_of.pop(partition, None) != self._view_of(partition.topic).topic_id and position is not None:
                start = 0  # the position is one of a topic that is gone (invariant I8)
            if start is not None:
                self._subscription.seek(partition, start)
            if partition not in self._paused_by_application:
                self._subscription.resume(partition)

    def positions(self) -> dict[Partition, int]:
        """Where reading is, of partitions whose position is known."""
        return {p: consumed.offset for p, consumed in self._subscription.all_consumed_offsets().items()}

    # The application's own calls

    def paused_by_application(self, partitions: Collection[Partition]) -> None:
        self._paused_by_application |= self.hidden.intersection(partitions)

    def resumed_by_application(self, partitions: Collection[Partition]) -> list[Partition]:
        """Those of ``partitions`` that may go on now; hidden ones go on when they are readable again."""
        self._paused_by_application.difference_update(partitions)
        return [p for p in partitions if p not in self.hidden]
