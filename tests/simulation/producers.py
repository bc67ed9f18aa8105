"""Producers: aware ones with a view of any age, and those that know nothing of modes; transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeaware.chain import written_topic
from modeaware.clients.routes import route_for
from modeaware.topic_view import TopicView
from partitioners import PURE_HASHES, Hash, named
from tests.simulation.broker import MARKER, NAME, Log, Sent, Topic
from tests.simulation.faults import Fault
from tests.simulation.modelog import Reader

if TYPE_CHECKING:
    from tests.simulation.world import World

PARTITIONER = named("consistent", hashes=PURE_HASHES)
KEYS = tuple(b"%d" % number for number in range(8))
CRC32 = PURE_HASHES[Hash.CRC32]


@dataclass(eq=False, slots=True)
class InFlight:
    """A record that was handed to the client library: its topic and partition are settled (invariant I7)."""

    topic: Topic
    partition: int
    view: TopicView | None
    sent: Sent


@dataclass(eq=False, slots=True)
class Transaction:
    """Markers are written wherever it ``touched`` a log; of aborted records readers are given none."""

    number: int
    touched: list[Log] = field(default_factory=list)
    records: list[Sent] = field(default_factory=list)

    def end(self, world: World, commit: bool) -> None:
        """Markers go past any fence."""
        world.tell("transaction %d is %s", self.number, "committed" if commit else "aborted")
        if not commit and self.records:
            world.hit(Fault.ABORTED_TRANSACTION)
            for sent in self.records:
                sent.aborted = True
        for log in self.touched:
            log.open.pop(self.number, None)
            world.append(log, MARKER)


class Producer:
    """A producer. Without a ``reader`` it is not aware; in ``queue`` is what has not reached its leader.

    Attributes:
        named: the topic that its application names.
    """

    def __init__(self, world: World, number: int, *, aware: bool) -> None:
        self.world = world
        self.number = number
        self.named = NAME
        self.reader = Reader(world.log, NAME) if aware else None
        self.queue: list[InFlight] = []
        self.transaction: Transaction | None = None
        self.verified_id: str | None = None

    def target(self) -> Topic | None:
        """The topic that its next record goes to."""
        world = self.world
        if self.reader is None or not world.replaces:
            return world.topics.get(self.named)
        view = written_topic(self.named, self.reader.view_of)
        topic = world.topics.get(view.topic)
        if world.chains:  # by its name, as client libraries do; the judge looks whose topic that is
            return topic
        return topic if topic is not None and view.applies_to(topic.topic_id) else None

    def pick(self, key: bytes, topic: Topic, explicit: int | None = None) -> tuple[int, TopicView | None] | None:
        """The partition for a record, and the view that decided; None where it is refused."""
        count = len(topic.logs)
        if self.reader is None:
            return (CRC32(key, count) if explicit is None else explicit % count), None
        if self.reader.view.topic_id not in (None, self.verified_id):  # the first record by a view of that id
            self.reader.verify()
            self.verified_id = self.reader.view.topic_id
        view = self.reader.view
        if self.world.modes_away:
            self.world.hit(Fault.MODES_OUT_OF_REACH)
        route = route_for(view, PARTITIONER)
        if explicit is not None:
            partition = explicit % count
            if route is not None and route.refusal(partition) is not None:
                return None
        elif route is None:
            partition = CRC32(key, count)
        elif not route.writable:
            return None
        else:
            partition = route.pick(key)
        self.world.judge.picked(self.reader, view, key if explicit is None else None, partition)
        return partition, view

    def learn(self, count: int = 1 << 30) -> None:
        """Take in what the mode log says, or up to ``count`` records of it; nothing while it is out of reach."""
        if self.reader is not None and not self.world.modes_away:
            self.reader.catch_up(count)

    def hand_over(self, key: bytes, explicit: int | None = None) -> None:
        topic = self.target()
        if topic is None or len(self.queue) > 4:
            return
        picked = self.pick(key, topic, explicit)
        if picked is not None:
            self._queue(topic, *picked, 0)

    def hand_over_some(self, keys: int) -> None:
        """A record of one of so many keys, each with a partition of its own at every topic: by their order."""
        topic = self.target()
        if topic is None or len(self.queue) > 5:
            return
        self.world.judge.written(self, topic)
        key = self.world.below(keys)
        self._queue(topic, key % len(topic.logs), None, key)

    def _queue(self, topic: Topic, partition: int, view: TopicView | None, key: int) -> None:
        each = InFlight(topic, partition, view, self.world.new_record(self.number, key))
        self.world.judge.handed_over(each)
        self.queue.append(each)

    def flush(self, most: int = 1 << 30) -> None:
        """What was handed over reaches the leaders that answer, in its order; for another topic of the name it is an
        error. A refusal is told to the application, and never retried (I7)."""
        world, left = self.world, []
        blocked: set[tuple[Topic, int]] = set()
        for each in self.queue:
            topic, partition = each.topic, each.partition
            if world.topics.get(topic.name) is not topic:
                continue
            log = topic.logs[partition] if partition < len(topic.logs) else None
            if most <= 0 or log is None or not log.available or (topic, partition) in blocked:
                left.append(each)
                blocked.add((topic, partition))
                continue
            most -= 1
            if not log.fenced:
                self._land(each, log)
                continue
            world.hit("refused by the fence")
            if self.transaction is not None:
                self.end(commit=False)
        self.queue = left

    def _land(self, each: InFlight, log: Log) -> None:
        world, sent, offset = self.world, each.sent, len(log.records)
        world.append(log, sent.number)
        each.topic.touched_at = world.steps
        sent.where = (each.topic.topic_id, each.partition, offset)
        if world.story is not None:
            how = "unaware" if self.reader is None else f"view {each.view and each.view.version}"
            where = f"{each.topic.name}-{each.partition}@{offset}"
            world.tell(
                "record %d (producer %d, key %d, %s) lands at %s", sent.number, self.number, sent.key, how, where
            )
        if self.transaction is not None:
            if not self.transaction.records:
                world.hit(Fault.OPEN_TRANSACTION)
            log.open.setdefault(self.transaction.number, offset)
            if log not in self.transaction.touched:
                self.transaction.touched.append(log)
            self.transaction.records.append(sent)
        if log.truncated_at >= 0 and offset + 1 >= log.was_end > 0:
            log.was_end = 0
            world.hit(Fault.REGROWTH)
        self._count(each)
        world.judge.landed(each, log)

    def _count(self, each: InFlight) -> None:
        world, partition = self.world, each.partition
        if partition >= len(world.modes) or world.modes[partition].writable:
            return
        if each.view is None:
            world.hit(Fault.UNAWARE)
            return
        behind = self.reader is not None and each.view is not self.reader.view
        world.hit(Fault.RETRY_ACROSS_SWITCH if behind else Fault.STALE_PRODUCER)
        record = world.record
        retired = record.retired.get(partition) if record is not None else None
        if retired is None or retired.seal_offset is None:
            return
        # Its view calls the partition writable, so it is at least this old; the record was handed over with it.
        if world.time_ms - world.retired_ms[partition] > max(world.delay_ms, world.config.seal_quiet_ms):
            world.hit(Fault.LONG_PAUSED_PRODUCER)

    def begin(self) -> None:
        """It may announce a partition to the coordinator that it writes nothing to: that gets a marker, too."""
        topic = self.target()
        if self.transaction is None and topic is not None and not self.queue:
            self.transaction = Transaction(self.world.new_number())
            if self.world.replaces:
                self.transaction.touched.append(topic.logs[self.world.below(len(topic.logs))])

    def end(self, commit: bool) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            transaction.end(self.world, commit)

    def finish(self, commit: bool) -> None:
        """End the transaction when all that can be sent was."""
        self.flush()
        self.queue.clear()
        self.end(commit)

    def hang(self) -> None:
        """It never ends the transaction; somebody else will have to."""
        if self.transaction is not None and self.transaction.touched:
            self.world.hit(Fault.HANGING_TRANSACTION)
            self.world.hanging.append(self.transaction)
            self.transaction = None
