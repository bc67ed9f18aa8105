"""The invariants of the design, judged from what really happened and not from what the controller knows.

Checked as things happen: a record on the mode log against the one before, an effect when it is sent, a pick when it
is made, a view when it changes. :meth:`Judge.at_the_end` checks what can only be said once everybody had time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware.lifecycle.commands import Effect
from modeaware.lifecycle.state import MODE_TRANSITIONS, REPLICA_TRANSITIONS, partition_phase
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRulesRecord
from modeaware.modelog.moved import topic_id_of
from modeaware.modelog.records import CLAIM_KEY, RetiredPartition, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modes import PartitionMode
from tests.simulation.drain_invariants import Violation
from tests.simulation.faults import Fault
from tests.simulation.succession.judge import ChainJudge

if TYPE_CHECKING:
    from tests.simulation.controller import Controller
    from tests.simulation.world import World


NO_RULES = GroupRulesRecord()
RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


class Judge(ChainJudge):
    """Knows what really happened."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.rules_version = NO_RULES.version
        self._holder = ""

    def appended(self, truth: Replay, key: str, value: bytes | None, writer: Controller, *, late: bool) -> None:
        """A controller's record is on the log; ``truth`` is the log before it. ``late``: it was appended earlier."""
        if key == CLAIM_KEY:
            truth.apply(key, value)
            self._claimed(truth, writer, late=late)
            return
        if key in writer.not_for_it:
            raise Violation("I4", f"controller {writer.index} writes over what it cannot read: {key}")
        if key == GROUP_RULES_KEY:
            truth.apply(key, value)
            assert truth.group_rules is not None
            self.rules.in_force = truth.group_rules.rules
            self.rules_version = truth.group_rules.version
            writer.without_rules = False
            return
        if topic_id_of(key) is not None:
            rejected = truth.rejected
            truth.apply(key, value)
            if truth.rejected != rejected:
                raise Violation("I5", f"controller {writer.index} appended a decision that no reader takes")
            return
        before = truth.records.get(key)
        rejected = truth.rejected
        if value is None and self.world.topic is not None and self.world.topic.topic_id == key:
            raise Violation("I4", "the record of a topic that is there is removed")
        truth.apply(key, value)
        if truth.rejected != rejected:
            raise Violation("I5", f"controller {writer.index} appended a record that no reader takes")
        if value is None:
            self._removed(before)
        else:
            after = truth.records[key]
            if after.controller_epoch != self.epoch:
                raise Violation("I5", f"controller {writer.index} of epoch {after.controller_epoch} appends after "
                                f"epoch {self.epoch} has taken over")  # fmt: skip
            if after.to_json() != value:
                raise Violation("I4", "a record is not what it was before it was written")
            self._changed(before, after, writer)
        self.world.record_changed()

    def others_wrote(self, truth: Replay) -> None:
        """A record of somebody who is no controller, or not any more, is on the log: nothing follows from it (I5)."""
        if truth.claim is not None and truth.claim.controller_epoch != self.epoch:
            raise Violation("I5", f"the claim of epoch {truth.claim.controller_epoch} counts, after {self.epoch}")
        if truth.group_rules is not None and truth.group_rules.version != self.rules_version:
            raise Violation("I5", "rules about groups count which the controller in force has not written")

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
        if CLAIM_KEY in writer.not_for_it:
            raise Violation("I5", f"{made_by} claims what a newer controller holds")
        self.epoch, self._holder = epoch, made_by

    def _changed(self, before: TopicRecord | None, after: TopicRecord, writer: Controller) -> None:
        self.world.tell(
            "controller %d appends %s: %s", writer.index, after.version,
            lambda: f"{after.view().describe()}; {sorted({str(r.reason) for r in after.retired.values()})}",
        )  # fmt: skip
        if after.replacement is None or after.replacement.gone_ms is None:  # of one that is gone the modes are kept
            self._shape(after)
        if self.issued.setdefault((after.topic_id, after.version), after) != after:
            raise Violation("I4", f"version {after.version} was issued before with other content")
        self._note_required(before, after, writer)
        self._replaced(before, after, writer)
        if after.replacement is None:
            self._sealed(before, after, writer)
        if before is None:
            return
        if after.version <= before.version or after.epoch != before.epoch + 1:
            raise Violation("I4", f"version {after.version} comes after {before.version}")
        if after.waived and not after.waived.keys() <= before.waived.keys():
            self.world.hit(Fault.WAIVER, self.world.phase_of(before))  # the topic may have gone since it was looked at
        modes = zip(before.modes, after.modes, strict=False) if after.replacement is None else ()
        for partition, (old, new) in enumerate(modes):
            self._transition(partition, old, new, before, after, writer)

    @staticmethod
    def _shape(record: TopicRecord) -> None:
        retired = {p for p, mode in enumerate(record.modes) if mode is not RW}
        if set(record.closed) != retired or len(record.closed) != len(record.retired) + len(record.opening):
            what = f"retired are {sorted(record.retired)} and opening {sorted(record.opening)}"
            raise Violation("I3", f"{what}, by the modes {sorted(retired)} are one of both")
        if retired != set(range(record.writable_count, len(record.modes))):
            raise Violation("I3", f"the writable partitions are not the first ones: retired are {sorted(retired)}")

    def _sealed(self, before: TopicRecord | None, after: TopicRecord, writer: Controller) -> None:
        """A seal is the end of a log that was quiet, without an open transaction (phase 3 of the design)."""
        for partition, retired in after.retired.items():
            held = before.retired.get(partition) if before is not None else None
            if retired.seal_offset is None or (held is not None and held.seal_offset is not None):
                continue
            self._first_seal(partition, after, retired.seal_offset)
            log = self._log_as_seen(after.topic_id, partition, writer)
            if log is not None and log.truncated_at >= 0 and retired.truncated_to is None:
                self._cut_before(partition, log, retired.seal_offset)
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
            if new is RO:
                self._resumes(partition, before.retired[partition], after.retired[partition])
        if new is NONE and old is not NONE:
            self._released(partition, after, writer)
        if new is RW and old is RO and partition in before.opening:
            self._opened(partition, before, writer)

    @staticmethod
    def _resumes(partition: int, before: RetiredPartition, after: RetiredPartition) -> None:
        """Where a group without a commit goes on is never moved up: what lies between would be skipped (I2)."""
        told, now = (r.seal_offset if r.resume_offset is None else r.resume_offset for r in (before, after))
        if told is not None and (now is None or now > told):
            raise Violation("I2", f"partition {partition}: groups were to go on at {told}, and now at {now}")

    def _opened(self, partition: int, before: TopicRecord, writer: Controller) -> None:
        """A new partition takes writes: every group must have an offset on it, or its time is over (KIP-1327).

        At the time of the listing: between that and the append the topic may go, with all offsets, or offsets expire.
        That is the window which is documented. An offset that came since is no excuse.
        """
        since_ms = before.opening_since_ms
        if since_ms is not None and self.world.time_ms >= since_ms + self.world.config.open_timeout_ms:
            return
        listing = writer.looked
        if not listing.sure and not self.rules.closed(listing.now_ms):
            raise Violation("I2", f"partition {partition} is opened though not all groups are known")
        for name in listing.seen:
            if partition not in listing.committed[name] and self.world.groups[name].kind != "share":
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
            self._shrink_begins(after.topic_id)
            self.world.shrink_admitted(deletion)
            for name in listing.seen:
                if self.world.groups[name].stateful and name not in deletion.accept_state_loss:
                    raise Violation("I1", f"a shrink is admitted that costs group {name} its state")
            self._not_compacted(after, writer, "a shrink is admitted")
            if not listing.sure and after.groups_complete and not self.rules.closed(listing.now_ms):
                raise Violation("I1", "the groups of a doubtful listing count as complete")
        elif listing.sure and not writer.without_rules and not after.groups_complete and deletion == earlier:
            raise Violation("I1", "a sure listing does not complete the groups that a doubtful one had begun")
        if admitted or (before is not None and not before.groups_complete and after.groups_complete):
            self.required.setdefault(after.topic_id, set()).update(using)

    def effect_begins(self, controller: Controller, effect: Effect) -> None:
        """Right before a request the controller must have seen that it was not replaced (I5)."""
        if controller.epoch != self.epoch and controller.own_steps > 0:
            raise Violation("I5", f"controller {controller.index} was replaced before it began {type(effect).__name__}")

    def effect_sent(self, controller: Controller, effect: Effect) -> None:
        """A request leaves a controller: the brokers take it from anybody, so it must still be the one (I5)."""
        if controller.epoch != self.epoch:
            raise Violation("I5", f"controller {controller.index} was replaced and sends {type(effect).__name__}")
        self._of_chain_sent(effect)

    def memory(self, controller: Controller) -> None:
        """What the active controller believes is what the log says (I5)."""
        if controller.claimed and controller.epoch == self.epoch:
            truth = self.world.log.truth.records
            for record in controller.engine.records:
                if record != truth.get(record.topic_id):
                    raise Violation("I5", f"controller {controller.index} believes {record}")
