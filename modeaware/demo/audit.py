"""The audit: what was acknowledged, what was delivered, and what lies in Kafka. Pure counting, without any client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from modeaware.demo.journal import Ack, Delivery


class Stored(NamedTuple):
    """A record as a plain consumer finds it in the topic afterwards."""

    id: str
    key: bytes | None


@dataclass(frozen=True)
class ProducerRun:
    """One producer's run.

    Attributes:
        acks: its acknowledgements, in the order they came in.
        writable: mode epoch -> the partitions writable in it, as this producer saw them. An epoch that is missing
            (before the first) means: all of them.
        seen_ms: mode epoch -> when it saw it come into force (monotonic, ms).
        began_ms, ended_ms: when it began to send, and when all it sent was acknowledged.
    """

    acks: Sequence[Ack]
    writable: Mapping[int, Sequence[int]]
    seen_ms: Mapping[int, int]
    began_ms: int
    ended_ms: int

    @property
    def longest_gap_ms(self) -> int:
        """The longest time without an acknowledgement."""
        times_ms = [self.began_ms, *(ack.at_ms for ack in self.acks), self.ended_ms]
        return max(after - before for before, after in pairwise(times_ms))

    def choices(self, partition_count: int) -> Iterator[tuple[Ack, list[Sequence[int]]]]:
        """Each acknowledgement with the lists of writable partitions that may have been in force when the record's
        partition was chosen."""
        known: dict[tuple[int, int], list[Sequence[int]]] = {}
        for ack in self.acks:
            bounds = (ack.epoch_before, ack.epoch_after)
            if bounds not in known:
                known[bounds] = self._lists_between(*bounds, partition_count)
            yield ack, known[bounds]

    def _lists_between(self, before: int, after: int, partition_count: int) -> list[Sequence[int]]:
        epochs = {before, after, *(epoch for epoch in self.writable if before < epoch < after)}
        return [self.writable.get(epoch, range(partition_count)) for epoch in sorted(epochs)]


@dataclass(frozen=True)
class Counts:
    """The audit's figures.

    Attributes:
        acknowledged: records the brokers acknowledged to the producers.
        delivered: distinct records the group was given.
        lost: acknowledged records that the group was never given. The first few ids are in ``lost_ids``.
        duplicates: deliveries beyond a record's first.
        in_retired_after_switch: records in a partition that was not writable in the view their producer had when it
            called ``produce()``.
        late_in_retired: records that were queued before their producer saw the switch and were acknowledged in a
            retired partition after; allowed, and delivered like any other.
        misplaced: records with a key that lie in a writable partition other than the one their key's hash names.
        contradictions: acknowledged records that do not lie where their acknowledgement said, though not deleted.
        longest_gap_s: per producer, its longest time without an acknowledgement.
        bytes_reclaimed: keys and values of the acknowledged records that lie below their partition's log start.
    """

    acknowledged: int
    delivered: int
    lost: int
    duplicates: int
    in_retired_after_switch: int
    late_in_retired: int
    misplaced: int
    contradictions: int
    longest_gap_s: tuple[float, ...]
    records_reclaimed: int
    bytes_reclaimed: int
    lost_ids: tuple[str, ...] = field(default=())


def count(
    producers: Sequence[ProducerRun],
    deliveries: Iterable[Delivery],
    stored: Mapping[tuple[int, int], Stored],
    log_starts: Mapping[int, int],
    choose: Callable[[bytes, int], int],
    survivors: int,
) -> Counts:
    """Count.

    Args:
        stored: (partition, offset) -> the record there, for all that is still in the topic.
        log_starts: partition -> log start offset, for all partitions.
        choose: (key, n) -> index, the partitioner's hash.
        survivors: how many partitions the shrink left.
    """
    given = Counter(delivery.id for delivery in deliveries)
    acks = [ack for producer in producers for ack in producer.acks]
    lost = sorted({ack.id for ack in acks} - given.keys())
    deleted = [ack for ack in acks if ack.offset < log_starts[ack.partition]]
    return Counts(
        acknowledged=len(acks),
        delivered=len(given),
        lost=len(lost),
        duplicates=given.total() - len(given),
        in_retired_after_switch=sum(_in_retired(producer, len(log_starts)) for producer in producers),
        late_in_retired=sum(_late_in_retired(producer, survivors) for producer in producers),
        misplaced=sum(_misplaced(producer, stored, len(log_starts), choose) for producer in producers),
        contradictions=_contradictions(acks, stored, log_starts),
        longest_gap_s=tuple(producer.longest_gap_ms / 1000 for producer in producers),
        records_reclaimed=len(deleted),
        bytes_reclaimed=sum(ack.size for ack in deleted),
        lost_ids=tuple(lost[:10]),
    )


def _in_retired(producer: ProducerRun, partition_count: int) -> int:
    return sum(
        all(ack.partition not in writable for writable in lists) for ack, lists in producer.choices(partition_count)
    )


def _late_in_retired(producer: ProducerRun, survivors: int) -> int:
    switch_epoch = min((epoch for epoch, left in producer.writable.items() if len(left) == survivors), default=None)
    if switch_epoch is None:
        return 0
    switched_ms = producer.seen_ms[switch_epoch]
    return sum(
        ack.epoch_before < switch_epoch and ack.at_ms > switched_ms and ack.partition >= survivors
        for ack in producer.acks
    )


def _misplaced(
    producer: ProducerRun,
    stored: Mapping[tuple[int, int], Stored],
    partition_count: int,
    choose: Callable[[bytes, int], int],
) -> int:
    misplaced = 0
    for ack, lists in producer.choices(partition_count):
        record = stored.get((ack.partition, ack.offset))
        if record is None or not record.key:
            continue  # deleted since, or without a key: the partitioner may put it anywhere
        misplaced += all(ack.partition != writable[choose(record.key, len(writable))] for writable in lists)
    return misplaced


def _contradictions(
    acks: Iterable[Ack], stored: Mapping[tuple[int, int], Stored], log_starts: Mapping[int, int]
) -> int:
    """An acknowledged record must lie where its acknowledgement said, unless that offset is below the log's start."""
    contradictions = 0
    for ack in acks:
        found = stored.get((ack.partition, ack.offset))
        if found is None:
            contradictions += ack.offset >= log_starts[ack.partition]
        else:
            contradictions += found.id != ack.id
    return contradictions
