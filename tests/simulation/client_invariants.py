"""What is checked of clients: views that never go back, keys that stay, one reader a partition, nothing left unread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.simulation.broker import Log

if TYPE_CHECKING:
    from tests.simulation.groups import Group
    from tests.simulation.modelog import Reader
    from tests.simulation.producers import InFlight
    from tests.simulation.world import World


class Violation(AssertionError):
    """An invariant does not hold; ``invariant`` is its name in the design."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class ClientJudge:
    """The half of the judge that watches clients.

    Attributes:
        issued: (topic id, version) -> the modes that were written under it.

    That a client without its mode source goes on with its last view (I6), and that a record that was handed over is not
    rerouted (I7), is judged of the simulated producers. No guard of these can be taken away here: the code that keeps
    them (``modeaware.views``, ``modeaware.confluent``) is made of threads around librdkafka, and not in reach.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.issued: dict[tuple[str, tuple[int, int]], tuple[PartitionMode, ...]] = {}
        self._keyed: dict[tuple[str | None, tuple[int, int], bytes], int] = {}
        self._known: dict[Reader, TopicView] = {}
        self._handed: dict[InFlight, tuple[int, TopicView | None]] = {}

    def new_view(self, reader: Reader, before: TopicView, after: TopicView) -> None:
        """A client's view changes; of one topic it only ever gets newer (I4)."""
        self._known[reader] = after
        if after.topic_id is not None and (after.topic_id, after.version) not in self.issued:
            raise Violation("I5", f"a client follows {after.version}, a record that does not count")
        if after.topic_id == before.topic_id and after.version < before.version:
            raise Violation("I4", f"a client's view goes from {before.version} back to {after.version}")

    def verified(self, view: TopicView) -> None:
        """A client has compared topic ids and acts on ``view`` next: it is none of another topic of that name (I8)."""
        topic = self.world.topic
        if topic is not None and view.topic_id is not None and view.topic_id != topic.topic_id:
            raise Violation("I8", f"a client applies the view of {view.topic_id} to {topic.topic_id}")

    def picked(self, reader: Reader, view: TopicView, key: bytes | None, partition: int) -> None:
        """An aware producer chose: by the last view it got, whatever is out of reach (I6); a partition which that calls
        ReadWrite, the same for a key in one epoch (I3)."""
        if view is not self._known.get(reader, view):
            raise Violation("I6", f"a producer chose by {view.version} and had {self._known[reader].version}")
        if view.all_writable:
            return
        if partition >= len(view.modes) or view.modes[partition] is not PartitionMode.READ_WRITE:
            raise Violation("I3", f"an aware producer chose partition {partition} of {view.describe()}")
        if key is not None and self._keyed.setdefault((view.topic_id, view.version, key), partition) != partition:
            raise Violation("I3", f"key {key!r} moved to partition {partition} within {view.version}")

    def handed_over(self, sent: InFlight) -> None:
        """A record is the client library's from now on."""
        self._handed[sent] = (sent.partition, sent.view)

    def landed(self, sent: InFlight, offset: int, log: Log) -> None:
        """A record lies where it was to go when it was handed over (I7); one that was rerouted before that, at or after
        its partition's switch offset."""
        topic, view, partition = self.world.topic, sent.view, sent.partition
        if self._handed.pop(sent) != (partition, view) or sent.topic.logs[partition] is not log:
            raise Violation("I7", f"a record in flight was rerouted to partition {partition}")
        if view is None or topic is None or view.topic_id != topic.topic_id or log.truncated_at >= 0:
            return
        record = self.world.log.truth.records.get(view.topic_id)
        if record is not None and record.deletion is not None and view.version >= record.version:
            switch = record.switch_offsets.get(partition)
            if switch is not None and offset < switch:
                raise Violation("I3", f"a rerouted record lies at {offset}, before the switch offset {switch}")

    def dealt(self, group: Group, taken: set[int], mine: frozenset[int]) -> None:
        """No two members of a group read one partition."""
        if not taken.isdisjoint(mine):
            raise Violation("I2", f"two members of group {group.name} read {sorted(taken & mine)}")

    def at_the_end(self) -> None:
        """Everybody had time: every record that is there was delivered to every group that is in use (I2)."""
        world = self.world
        if world.topic is None:
            return
        for name, group in world.groups.items():
            if not (group.has_members and group.commits):
                continue
            for partition, log in enumerate(world.topic.logs):
                if world.rests(partition):  # who comes now gets from survivors what was copied there
                    continue
                left = self.wanted(log.records[log.log_start :])
                missing = [record for record in left if record not in group.consumed]
                if missing:
                    raise Violation("I2", f"partition {partition}: group {name} never gets {missing}")

    def wanted(self, records: list[int]) -> list[int]:
        """Those of a log's entries that groups have a right to."""
        world = self.world
        return [r for r in records if r >= 0 and r not in world.aborted and r not in world.gone]
