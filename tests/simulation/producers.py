"""Producers: aware ones with a view of any age, and those that know nothing of modes; transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeaware.clients.routes import route_for
from modeaware.topic_view import TopicView
from partitioners import PURE_HASHES, Hash, named
from tests.simulation.broker import MARKER, NAME, Topic
from tests.simulation.faults import Fault
from tests.simulation.modelog import Reader

if TYPE_CHECKING:
    from tests.simulation.world import World

PARTITIONER = named("consistent", hashes=PURE_HASHES)
KEYS = tuple(b"%d" % number for number in range(8))
CRC32 = PURE_HASHES[Hash.CRC32]


@dataclass(eq=False, slots=True)
class InFlight:
    """A record that was handed to the client library: its partition is settled (invariant I7)."""

    topic: Topic
    partition: int
    view: TopicView | None


@dataclass(eq=False, slots=True)
class Transaction:
    number: int
    topic: Topic
    touched: list[int] = field(default_factory=list)
    records: list[int] = field(default_factory=list)


class Producer:
    """A producer. Without a ``reader`` it is not aware; in ``queue`` is what has not reached its leader."""

    def __init__(self, world: World, aware: bool) -> None:
        self.world = world
        self.reader = Reader(world.log, NAME) if aware else None
        self.queue: list[InFlight] = []
        self.transaction: Transaction | None = None
        self.verified_id: str | None = None

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
        topic = self.world.topic
        if topic is None or len(self.queue) > 4:
            return
        picked = self.pick(key, topic, explicit)
        if picked is not None:
            sent = InFlight(topic, *picked)
            self.world.judge.handed_over(sent)
            self.queue.append(sent)

    def flush(self) -> None:
        """What was handed over reaches the leaders that answer; for another topic of the name it is an error."""
        world, left = self.world, []
        for sent in self.queue:
            if sent.topic is not world.topic:
                continue
            log = sent.topic.logs[sent.partition] if sent.partition < len(sent.topic.logs) else None
            if log is None or not log.available:
                left.append(sent)
                continue
            self._land(sent)
        self.queue = left

    def _land(self, sent: InFlight) -> None:
        world, partition = self.world, sent.partition
        log = sent.topic.logs[partition]
        record = world.new_record().number
        offset = len(log.records)
        world.append(log, record)
        if world.story is not None:
            how = "unaware" if sent.view is None else f"view {sent.view.version}"
            world.tell("record %d lands at %d-%d (%s)", record, partition, offset, how)
        transaction = self.transaction
        if transaction is not None and transaction.topic is sent.topic:
            if not transaction.records:
                world.hit(Fault.OPEN_TRANSACTION)
            log.open.setdefault(transaction.number, offset)
            if partition not in transaction.touched:
                transaction.touched.append(partition)
            transaction.records.append(record)
        if log.truncated_at >= 0 and offset + 1 >= log.was_end > 0:
            log.was_end = 0
            world.hit(Fault.REGROWTH)
        self._count(sent, partition)
        world.judge.landed(sent, log)

    def _count(self, sent: InFlight, partition: int) -> None:
        world = self.world
        if partition >= len(world.modes) or world.modes[partition].writable:
            return
        if sent.view is None:
            world.hit(Fault.UNAWARE)
            return
        behind = self.reader is not None and sent.view is not self.reader.view
        world.hit(Fault.RETRY_ACROSS_SWITCH if behind else Fault.STALE_PRODUCER)
        record = world.record
        if record is None or (retired := record.retired[partition]).opening or retired.seal_offset is None:
            return
        # Its view calls the partition writable, so it is at least this old; the record was handed over with it.
        if world.time_ms - world.retired_ms[partition] > max(world.delay_ms, world.config.seal_quiet_ms):
            world.hit(Fault.LONG_PAUSED_PRODUCER)

    def begin(self) -> None:
        if self.transaction is None and self.world.topic is not None and not self.queue:
            self.transaction = Transaction(self.world.new_number(), self.world.topic)

    def end(self, commit: bool) -> None:
        """Markers are written wherever it has records; of aborted records nobody is given any."""
        world, transaction = self.world, self.transaction
        if transaction is None:
            return
        self.flush()
        self.queue.clear()
        self.transaction = None
        end_transaction(world, transaction, commit)

    def hang(self) -> None:
        """It never ends the transaction; somebody else will have to."""
        if self.transaction is not None and self.transaction.touched:
            self.world.hit(Fault.HANGING_TRANSACTION)
            self.world.hanging.append(self.transaction)
            self.transaction = None


def end_transaction(world: World, transaction: Transaction, commit: bool) -> None:
    """Its markers go to every partition it touched."""
    world.tell("transaction %d is %s", transaction.number, "committed" if commit else "aborted")
    if not commit and transaction.records:
        world.hit(Fault.ABORTED_TRANSACTION)
        for number in transaction.records:
            world.sent[number].aborted = True
    for partition in transaction.touched:
        log = transaction.topic.logs[partition]
        log.open.pop(transaction.number, None)
        world.append(log, MARKER)
