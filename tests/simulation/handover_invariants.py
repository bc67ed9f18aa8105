"""What is checked of handovers: keys are handed over once all who have to have read their older records (``order``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode
from tests.simulation.broker import Log
from tests.simulation.client_invariants import Violation
from tests.simulation.drain_invariants import DrainJudge, by_order

if TYPE_CHECKING:
    from tests.simulation.controller import Controller
    from tests.simulation.world import World


class HandoverJudge(DrainJudge):
    """The part of the judge that watches what producers who hold moved keys back go by.

    Attributes:
        left_over: topic id -> partition -> the records in it that a shrink before left unread: keys of theirs may have
            moved twice.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.left_over: dict[str, dict[int, frozenset[int]]] = {}

    def _handed_over(self, before: TopicRecord | None, after: TopicRecord, writer: Controller) -> None:
        """A record after the one before: what was noted for the handover, and what is handed over by it."""
        deletion, earlier = after.deletion, before.deletion if before is not None else None
        same = (
            deletion is not None
            and earlier is not None
            and deletion.create_timestamp_ms == earlier.create_timestamp_ms
            and deletion.delete_partitions == earlier.delete_partitions
        )
        self._note_left_over(before, after)
        if before is None or deletion is None or earlier is None or not same:
            if after.handed_over or after.handover_offsets:
                raise Violation("order", f"handed over is {after.handed_over} as a change begins, or none is left")
            if deletion is not None and deletion.handed_over:
                self._judge_left_over(after, writer)
            return
        was, now = _all(before), _all(after)
        if not was <= now:
            raise Violation("order", f"partitions {sorted(was - now)} were handed over, and are not any more")
        self._noted(before, after, writer)
        for partition in sorted(now - was):
            self._judge(partition, before, after, writer)
        if now - was:
            self._judge_left_over(after, writer)

    def _note_left_over(self, before: TopicRecord | None, after: TopicRecord) -> None:
        """Where a new shrink begins before another one is handed over, what was to be read then is to be read still."""
        deletion, earlier = after.deletion, before.deletion if before is not None else None
        topic = self.world.topic
        if deletion is None or topic is None or topic.topic_id != after.topic_id:
            self.left_over.pop(after.topic_id, None)
            return
        if before is None or earlier is None or earlier.create_timestamp_ms == deletion.create_timestamp_ms:
            return
        left = self.left_over.pop(after.topic_id, {})
        if earlier.handed_over:
            return
        for partition in set(range(earlier.previous_count)) - _all(before):
            if before.modes[partition] is not PartitionMode.NONE:
                left[partition] = frozenset(topic.logs[partition].records)
        if left:
            self.left_over[after.topic_id] = left

    def _judge_left_over(self, after: TopicRecord, writer: Controller) -> None:
        for partition, numbers in self.left_over.get(after.topic_id, {}).items():
            log = self._log_as_seen(after.topic_id, partition, writer)
            if log is None or after.modes[partition] is PartitionMode.NONE:
                continue
            there = numbers.intersection(log.records[log.log_start :])
            self._must_have_read(partition, log, sorted(there - self.given_up), after, writer)

    def _noted(self, before: TopicRecord, after: TopicRecord, writer: Controller) -> None:
        """A survivor's offset is its end at a time when every retired partition was sealed."""
        for partition, offset in after.handover_offsets.items():
            if partition in before.handover_offsets:
                if before.handover_offsets[partition] != offset:
                    raise Violation("order", f"the handover offset of partition {partition} has moved to {offset}")
                continue
            assert after.deletion is not None
            open_ = [
                p for p, r in after.retired.items()
                if p < after.deletion.previous_count and after.modes[p] is not PartitionMode.NONE
                and r.seal_offset is None
            ]  # fmt: skip
            if open_:
                raise Violation("order", f"partition {partition} is noted at {offset}, and {open_} are not sealed")
            log = self._log_as_seen(after.topic_id, partition, writer)
            if log is not None and offset < self._end_as_seen(log, writer):
                raise Violation("order", f"partition {partition} is noted at {offset}, before its end")

    def _judge(self, partition: int, before: TopicRecord, after: TopicRecord, writer: Controller) -> None:
        retired, log = after.retired.get(partition), self._log_as_seen(after.topic_id, partition, writer)
        if log is None or (retired is not None and after.modes[partition] is PartitionMode.NONE):
            return  # who lets go of a partition is judged there
        if retired is None:
            noted = {**before.handover_offsets, **after.handover_offsets}.get(partition)
            self._all_have_read(
                partition, log, self._end_as_seen(log, writer) if noted is None else noted, after, writer
            )
        elif retired.seal_offset is None:
            raise Violation("order", f"partition {partition} is handed over without a seal")
        elif not by_order(partition, after):
            if after.deletion is not None and after.deletion.evacuate:
                self._evacuated(partition, log, retired.seal_offset, after, "order")
            self._all_have_read(partition, log, retired.seal_offset, after, writer)

    def _end_as_seen(self, log: Log, controller: Controller) -> int:
        """Behind the last record that was there when the controller asked for the ends of survivors."""
        end, landed = len(log.records), self.world.landed
        while end and (log.records[end - 1] < 0 or landed[log.records[end - 1]] > controller.looked.ends_at):
            end -= 1
        return end

    def _all_have_read(
        self, partition: int, log: Log, offset: int, record: TopicRecord, controller: Controller
    ) -> None:
        """Every required group has got what lies below ``offset``, at the time of the controller's last listing."""
        self._must_have_read(partition, log, log.records[log.log_start : offset], record, controller)

    def _must_have_read(
        self, partition: int, log: Log, records: list[int], record: TopicRecord, controller: Controller
    ) -> None:
        """Of what was there when the controller read the partition's end: where the log was truncated since, what is at
        those offsets now came later, from producers that know the switch or behind a seal."""
        world, listing = self.world, controller.looked
        last_step = listing.at - 1 if partition in record.retired else listing.ends_at
        needed = [number for number in self.wanted(records) if world.landed[number] <= last_step]
        if not needed:
            return
        if controller.without_rules or not (listing.sure or self.rules.closed(listing.now_ms)):
            raise Violation("order", f"partition {partition} is handed over, and not all groups are known")
        present = {name for name in listing.seen if self._counts(name)}
        registered = self.rules.registered(listing.now_ms)
        for name in sorted(self.required.get(record.topic_id, set()) | present | registered):
            group = world.groups.get(name)
            if group is None or group.reset_at >= listing.step:
                continue
            committed = partition in group.committed and group.began.get(partition, -1) < listing.step
            if self.rules.waived(name, listing.now_ms, committed):
                continue
            if group.epochless and log.truncated_at >= 0:
                continue  # nobody can tell what it has read
            missing = [number for number in needed if number not in group.consumed]
            if missing:
                raise Violation(
                    "order", f"partition {partition} is handed over, and group {name} has not got {missing}"
                )


def _all(record: TopicRecord) -> set[int]:
    """The partitions that are handed over."""
    deletion = record.deletion
    if deletion is not None and deletion.handed_over:
        return set(range(deletion.previous_count))
    return set(record.handed_over)
