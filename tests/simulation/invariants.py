"""The invariants of the design, judged from what really happened and not from what the controller knows.

Checked as things happen: a record on the mode log against the one before, an effect when it is sent, a pick when it
is made, a view when it changes. :meth:`Judge.at_the_end` checks what can only be said once everybody had time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware.lifecycle.effects import DeleteRecords, Effect
from modeaware.lifecycle.phases import partition_phase
from modeaware.modelog.group_rules import GROUP_RULES_KEY
from modeaware.modelog.records import CLAIM_KEY, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modes import MODE_TRANSITIONS, REPLICA_TRANSITIONS, PartitionMode, ReplicaState
from tests.simulation.broker import Log
from tests.simulation.client_invariants import ClientJudge, Violation
from tests.simulation.rules import Rules

if TYPE_CHECKING:
    from tests.simulation.controller import Controller
    from tests.simulation.world import World

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


class Judge(ClientJudge):
    """Knows what really happened.

    Attributes:
        required: topic id -> the groups that used it when its shrink was admitted, as far as a sure listing could tell.
        epoch: the controller epoch of the last claim.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.required: dict[str, set[str]] = {}
        self.rules = Rules()
        self.epoch = -1
        self._holder = ""

    # The mode log

    def appended(self, truth: Replay, key: str, value: bytes | None, writer: Controller, *, late: bool) -> None:
        """A controller's record is on the log; ``truth`` is the log before it. ``late``: it was appended earlier."""
        if key == CLAIM_KEY:
            truth.apply(key, value)
            self._claimed(truth, writer, late=late)
            return
        if key == GROUP_RULES_KEY:
            truth.apply(key, value)
            assert truth.group_rules is not None
            self.rules.replace(truth.group_rules.rules)
            return
        before = truth.records.get(key)
        rejected = truth.rejected
        if value is None and self.world.topic is not None and self.world.topic.topic_id == key:
            raise Violation("I4", "the record of a topic that is there is removed")
        truth.apply(key, value)
        if truth.rejected != rejected:
            raise Violation("I5", f"controller {writer.index} appended a record that no reader takes")
        if value is not None:
            after = truth.records[key]
            if after.controller_epoch != self.epoch:
                raise Violation("I5", f"controller {writer.index} of epoch {after.controller_epoch} appends after "
                                f"epoch {self.epoch} has taken over")  # fmt: skip
            if after.to_json() != value:
                raise Violation("I4", "a record is not what it was before it was written")
            self._successor(before, after, writer)
        self.world.record_changed()

    def _claimed(self, truth: Replay, writer: Controller, *, late: bool) -> None:
        """A claim is made, or made again by who holds it: by the elected one, under an epoch of its own."""
        assert truth.claim is not None
        epoch, made_by = truth.claim.controller_epoch, truth.claim.controller_id
        if epoch < self.epoch or (epoch == self.epoch and made_by != self._holder):
            raise Violation("I5", f"{made_by} claims under epoch {epoch}, {self._holder} holds {self.epoch}")
        if not late and self.world.coordinator.owner is not writer.member:
            raise Violation("I5", f"{made_by} claims, and another one was elected")
        if not late and epoch == self.epoch and not writer.claimed:
            raise Violation("I5", f"{made_by} begins with the epoch of an earlier claim, {epoch}")
        self.epoch, self._holder = epoch, made_by

    def _successor(self, before: TopicRecord | None, after: TopicRecord, writer: Controller) -> None:
        self.world.tell(
            "controller %d appends %s: %s", writer.index, after.version,
            lambda: "; ".join(_describe(p, after) for p in range(len(after.modes))),
        )  # fmt: skip
        self._shape(after)
        issued = self.issued.setdefault((after.topic_id, after.version), after.modes)
        if issued != after.modes:
            raise Violation("I4", f"version {after.version} was issued before with other modes")
        self._note_required(before, after, writer)
        self._sealed(before, after, writer)
        if before is None:
            return
        if after.version <= before.version or after.epoch != before.epoch + 1:
            raise Violation("I4", f"version {after.version} comes after {before.version}")
        for partition, (old, new) in enumerate(zip(before.modes, after.modes, strict=False)):
            self._transition(partition, old, new, before, after, writer)

    @staticmethod
    def _shape(record: TopicRecord) -> None:
        retired = {p for p, mode in enumerate(record.modes) if mode is not RW}
        if set(record.retired) != retired:
            raise Violation("I3", f"retired are {sorted(record.retired)}, by the modes {sorted(retired)}")
        if retired != set(range(record.writable_count, len(record.modes))):
            raise Violation("I3", f"the writable partitions are not the first ones: retired are {sorted(retired)}")

    def _sealed(self, before: TopicRecord | None, after: TopicRecord, writer: Controller) -> None:
        """A seal is the end of a log that was quiet, without an open transaction (phase 3 of the design)."""
        for partition, retired in after.retired.items():
            held = before.retired.get(partition) if before is not None else None
            if retired.opening or retired.seal_offset is None or (held is not None and held.seal_offset is not None):
                continue
            log = self._log_as_seen(after.topic_id, partition, writer)
            if log is None or log.written_at >= writer.looked.at or log.truncated_at >= 0:
                continue
            quiet_ms = self.world.time_ms - log.written_ms
            if quiet_ms < self.world.config.seal_quiet_ms:
                raise Violation("seal", f"partition {partition} is sealed after only {quiet_ms} ms without a record")
            if log.open:
                raise Violation("seal", f"partition {partition} is sealed while a transaction is open")
            if retired.seal_offset != log.end:
                raise Violation("seal", f"partition {partition} is sealed at {retired.seal_offset}, ends at {log.end}")

    def _transition(
        self,
        partition: int,
        old: PartitionMode,
        new: PartitionMode,
        before: TopicRecord,
        after: TopicRecord,
        writer: Controller,
    ) -> None:
        if new is not old and new not in MODE_TRANSITIONS[old]:
            raise Violation("I2", f"partition {partition} goes from {old.label} to {new.label}")
        if partition in before.retired and partition in after.retired:
            was, now = before.retired[partition].replica_state, after.retired[partition].replica_state
            if now is not was and now not in REPLICA_TRANSITIONS[was]:
                raise Violation("I2", f"partition {partition} goes from {was} to {now}")
        if new is NONE and old is not NONE:
            self._let_go(partition, after, writer)
        if new is RW and old is RO and before.retired[partition].opening:
            self._opened(partition, before, writer)

    def _let_go(self, partition: int, record: TopicRecord, writer: Controller) -> None:
        """Consumers will leave the partition: all that lies below the seal must have been read (I2)."""
        log = self._log_as_seen(record.topic_id, partition, writer)
        retired, deletion = record.retired[partition], record.deletion
        if retired.seal_offset is None or deletion is None:
            raise Violation("I2", f"partition {partition} becomes None without a seal")
        if log is None:
            return
        if by_order(partition, record):  # nobody is waited for, so nobody need get these, undone or not
            for group in self.world.groups.values():
                group.consumed.update(log.records[log.log_start : retired.seal_offset])
            return
        if deletion.policy == "retention":
            if log.log_start < retired.seal_offset:
                raise Violation("I2", f"partition {partition} becomes None before retention has emptied it")
            return
        self._all_have("I2", partition, log, retired.seal_offset, record.topic_id, writer)

    def _opened(self, partition: int, before: TopicRecord, writer: Controller) -> None:
        """A new partition takes writes: every group must have an offset on it, or its time is over (KIP-1327)."""
        since_ms = before.opening_since_ms
        if since_ms is not None and self.world.time_ms >= since_ms + self.world.config.open_timeout_ms:
            return
        listing = writer.looked
        if not listing.sure:
            raise Violation("I2", f"partition {partition} is opened though not all groups are known")
        for name in listing.seen:
            group = self.world.groups[name]
            if partition not in group.committed and group.in_use and group.kind != "share":
                raise Violation("I2", f"partition {partition} is opened before group {name} has an offset on it")

    def _note_required(self, before: TopicRecord | None, after: TopicRecord, writer: Controller) -> None:
        deletion, earlier = after.deletion, before.deletion if before is not None else None
        if deletion is None:
            return
        listing = writer.looked
        using = {name for name in listing.seen if self._counts(name)}
        admitted = earlier is None or earlier.create_timestamp_ms != deletion.create_timestamp_ms
        if admitted:
            if before is not None and earlier is not None:
                waiting = [
                    p for p, r in before.retired.items()
                    if p in after.retired and partition_phase(before.modes[p], r) != "done"
                ]  # fmt: skip
                if waiting:
                    raise Violation("I1", f"a second shrink is admitted while partitions {waiting} wait for the first")
            self.required[after.topic_id] = set()
            self.world.shrink_admitted(deletion)
            for name in listing.seen:
                if self.world.groups[name].stateful and name not in deletion.accept_state_loss:
                    raise Violation("I1", f"a shrink is admitted that costs group {name} its state")
            if not listing.sure and after.groups_complete and not self.rules.closed(listing.now_ms):
                raise Violation("I1", "the groups of a doubtful listing count as complete")
        elif listing.sure and not after.groups_complete and deletion == earlier:
            raise Violation("I1", "a sure listing does not complete the groups that a doubtful one had begun")
        if admitted or (before is not None and not before.groups_complete and after.groups_complete):
            self.required.setdefault(after.topic_id, set()).update(using)

    def _counts(self, name: str) -> bool:
        return not name.startswith("console-consumer-") or bool(self.world.groups[name].committed)

    # Effects

    def effect_begins(self, controller: Controller, effect: Effect) -> None:
        """Right before a request the controller must have seen that it was not replaced (I5)."""
        if controller.epoch != self.epoch and controller.own_steps > 0:
            raise Violation("I5", f"controller {controller.index} was replaced before it began {type(effect).__name__}")

    def effect_sent(self, controller: Controller, effect: Effect) -> None:
        """A request leaves a controller: the brokers take it from anybody, so it must still be the one (I5)."""
        if controller.epoch != self.epoch:
            raise Violation("I5", f"controller {controller.index} was replaced and sends {type(effect).__name__}")

    def deletes(self, controller: Controller, effect: DeleteRecords) -> None:
        """DeleteRecords is being sent: what it takes must have been read, or nobody needs it (I1)."""
        world = self.world
        if world.topic is None or world.topic.topic_id != effect.topic_id:
            raise Violation("I1", f"DeleteRecords is sent for {effect.topic_id}, and the topic is another one")
        record = world.log.truth.records.get(effect.topic_id)
        for partition, offset in effect.offsets.items():
            if offset < 0:
                raise Violation("I1", "DeleteRecords up to wherever the end is")
            log = self._log_as_seen(effect.topic_id, partition, controller)
            if log is None or record is None or controller.epoch != self.epoch:
                continue  # what it had seen has changed since: the window that is documented
            retired, deletion = record.retired.get(partition), record.deletion
            if retired is None or deletion is None or record.modes[partition] is not NONE:
                raise Violation("I1", f"records of partition {partition} go, which is not None")
            if offset != retired.reclaim_offset:
                raise Violation("I1", f"records of partition {partition} go up to {offset}, not to where they may")
            if deletion.policy == "retention":
                raise Violation("I1", f"records of partition {partition} go before retention takes them")
            again = retired.replica_state is ReplicaState.DELETION_SUCCESSFUL
            if again and not self.wanted(log.records[log.log_start : offset]):
                continue  # the log start was forgotten
            if world.topic.cleanup_policy != "delete" and world.topic.policy_changed_at < controller.looked.step:
                raise Violation("I1", f"records of partition {partition} go though the topic is compacted")
            if by_order(partition, record):
                continue
            if world.time_ms < deletion.earliest_ms:
                raise Violation("I1", f"records of partition {partition} go before the delay is over")
            self._all_have("I1", partition, log, offset, effect.topic_id, controller)

    def delete_sent(self, controller: Controller, effect: DeleteRecords) -> None:
        """DeleteRecords goes to leaders: where one was elected meanwhile that lost records, what it has instead must
        have been read as well (I1)."""
        topic, record = self.world.topic, self.world.log.truth.records.get(effect.topic_id)
        if topic is None or topic.topic_id != effect.topic_id or record is None or controller.epoch != self.epoch:
            return
        for partition, offset in effect.offsets.items():
            log = topic.logs[partition]
            if log.truncated_at >= controller.looked.at and not by_order(partition, record):
                self._all_have("I1", partition, log, offset, effect.topic_id, controller)

    def _log_as_seen(self, topic_id: str, partition: int, controller: Controller) -> Log | None:
        """The partition's log, unless it changed under the controller after it had looked."""
        topic = self.world.topic
        if topic is None or topic.topic_id != topic_id or partition >= len(topic.logs):
            return None
        log = topic.logs[partition]
        return None if log.truncated_at >= controller.looked.at else log

    def _all_have(
        self, invariant: str, partition: int, log: Log, offset: int, topic_id: str, controller: Controller
    ) -> None:
        """Every required group has got what lies below ``offset``, at the time of the controller's last listing."""
        world = self.world
        listing = controller.looked
        now_ms = listing.now_ms
        record = world.log.truth.records.get(topic_id)
        known_cut = record is not None and record.retired[partition].truncated_to is not None
        needed = self.wanted(log.records[log.log_start : offset])
        if not listing.sure and not self.rules.closed(now_ms):
            if needed:
                raise Violation(invariant, f"partition {partition}: not all groups are known, and {needed} would go")
            return
        present = {name for name in listing.seen if self._counts(name)}
        for name in sorted(self.required.get(topic_id, set()) | present | self.rules.registered(now_ms)):
            group = world.groups.get(name)
            if group is None or group.reset_at >= listing.step:
                continue
            commit = group.committed.get(partition)
            if self.rules.waived(name, now_ms, commit is not None):
                group.consumed.update(needed)  # once and for all: it will go on behind them
                continue
            if group.epochless and log.truncated_at >= 0 and not known_cut:
                group.consumed.update(needed)  # cut while there was no seal, of which nothing tells afterwards
                continue
            same = group.joined_at < listing.step  # not one that came up since, with a commit of its own
            if invariant == "I1" and same and commit is not None and log.log_start <= commit[0] < offset:
                raise Violation(invariant, f"partition {partition}: group {name} would be left below the log start")
            missing = [record for record in needed if record not in group.consumed]
            if missing:
                raise Violation(invariant, f"partition {partition}: group {name} has not got {missing}")

    # Controllers

    def memory(self, controller: Controller) -> None:
        """What the active controller believes is what the log says (I5)."""
        if controller.claimed and controller.epoch == self.epoch:
            truth = self.world.log.truth.records
            for record in controller.engine.records:
                if record != truth.get(record.topic_id):
                    raise Violation("I5", f"controller {controller.index} believes {record}")


def by_order(partition: int, record: TopicRecord) -> bool:
    """Whether what lies in the partition was given up by an immediate_delete, whoever has not read it.

    It counted what would be lost; that was neither what came after a seal nor what earlier shrinks have retired.
    """
    deletion = record.deletion
    if deletion is None or not deletion.immediate_delete:
        return False
    return partition < deletion.previous_count and record.retired[partition].stragglers == 0


def _describe(partition: int, record: TopicRecord) -> str:
    mode, retired = record.modes[partition], record.retired.get(partition)
    if retired is None:
        return f"{partition} {mode.label}"
    phase = partition_phase(mode, retired)
    seal = "" if retired.seal_offset is None else f" {retired.seal_offset}"
    return f"{partition} {mode.label} {phase}{seal}" + (f" ({retired.reason})" if retired.reason else "")
