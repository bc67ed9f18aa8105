"""What is checked of clients, and of drains and deletions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modeaware.lifecycle.commands import DeleteRecords
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode, ReplicaState
from modeaware.topic_view import TopicView
from tests.simulation.broker import Log
from tests.simulation.faults import Fault

if TYPE_CHECKING:
    from tests.simulation.controller import Controller
    from tests.simulation.groups import Group
    from tests.simulation.modelog import Reader
    from tests.simulation.observer import Looked
    from tests.simulation.producers import InFlight
    from tests.simulation.world import World


class Violation(AssertionError):
    """An invariant does not hold; ``invariant`` is its name in the design."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Rules:
    """The rules about groups, read independently of the lifecycle's code; plain group names only, and the one topic."""

    def __init__(self) -> None:
        self.in_force: Sequence[GroupRule] = ()

    def _of(self, kind: str, now_ms: int) -> list[GroupRule]:
        return [r for r in self.in_force if r.kind == kind and (r.expires_ms is None or now_ms < r.expires_ms)]

    def closed(self, now_ms: int) -> bool:
        return bool(self._of("closed", now_ms))

    def registered(self, now_ms: int) -> set[str]:
        return {rule.group for rule in self._of("require", now_ms)}

    def waived(self, name: str, now_ms: int, committed: bool) -> bool:
        return any(r.group == name and not (r.uncommitted_only and committed) for r in self._of("waive", now_ms))


class DrainJudge:
    """The part of the judge that watches clients, what is released, and what is deleted.

    I6 and I7 are judged of the simulated producers. No guard of these can be taken away here: the code that keeps them
    (``modeaware.views``, ``modeaware.confluent``) is made of threads around librdkafka, and not in reach.

    Attributes:
        issued: (topic id, version) -> the record that was written under it.
        required: topic id -> the groups that used it when its shrink was admitted, as far as a sure listing could tell.
        epoch: the controller epoch of the last claim.
        given_up: the records that an immediate_delete takes unread: those before the first seal after it was asked for.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.issued: dict[tuple[str, tuple[int, int]], TopicRecord] = {}
        self.required: dict[str, set[str]] = {}
        self.rules = Rules()
        self.epoch = -1
        self.given_up: set[int] = set()
        self._keyed: dict[tuple[str | None, tuple[int, int], bytes], int] = {}
        self._known: dict[Reader, TopicView] = {}
        self._handed: dict[InFlight, tuple[int, TopicView | None]] = {}
        self._sealed_once: set[tuple[str, int]] = set()

    def new_view(self, reader: Reader, before: TopicView, after: TopicView) -> None:
        """A client's view changes; of one topic it only ever gets newer (I4)."""
        self._known[reader] = after
        if after.topic_id is not None and (after.topic_id, after.version) not in self.issued:
            raise Violation("I5", f"a client follows {after.version}, a record that does not count")
        if after.topic_id == before.topic_id and after.version < before.version:
            raise Violation("I4", f"a client's view goes from {before.version} back to {after.version}")
        self._leads(before, after)

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
        self._handed[sent] = (sent.partition, sent.view)

    def landed(self, sent: InFlight, log: Log) -> None:
        """A record lies where it was to go when it was handed over (I7)."""
        if self._handed.pop(sent) != (sent.partition, sent.view) or sent.topic.logs[sent.partition] is not log:
            raise Violation("I7", f"a record in flight was rerouted to partition {sent.partition}")

    def dealt(self, group: Group, taken: set[int], mine: frozenset[int]) -> None:
        """No two members of a group read one partition."""
        if not taken.isdisjoint(mine):
            raise Violation("I2", f"two members of group {group.name} read {sorted(taken & mine)}")

    def at_the_end(self) -> None:
        """Everybody had time: every record that is there was delivered to every group that is in use (I2)."""
        world = self.world
        if world.replaces:
            self._all_given()
            return
        if world.topic is None:
            return
        for name, group in world.groups.items():
            if not (group.has_members and group.commits):
                continue
            for partition, log in enumerate(world.topic.logs):
                left = self.wanted(log.records[log.log_start :])
                missing = [record for record in left if record not in group.consumed]
                if missing:
                    raise Violation("I2", f"partition {partition}: group {name} never gets {missing}")

    def wanted(self, records: list[int]) -> list[int]:
        """Those of a log's entries that groups have a right to."""
        sent = self.world.sent
        return [r for r in records if r >= 0 and not (sent[r].aborted or sent[r].lost)]

    def _shrink_begins(self, topic_id: str) -> None:
        self._sealed_once = {sealed for sealed in self._sealed_once if sealed[0] != topic_id}

    def _first_seal(self, partition: int, record: TopicRecord, seal_offset: int) -> None:
        """Of an immediate_delete, what lies before the first seal is given up; what comes later is not."""
        deletion, topic, key = record.deletion, self.world.topic, (record.topic_id, partition)
        if deletion is None or not deletion.immediate_delete or key in self._sealed_once:
            return
        self._sealed_once.add(key)
        if partition < deletion.previous_count and topic is not None and topic.topic_id == record.topic_id:
            self.given_up.update(topic.logs[partition].records[:seal_offset])

    def _cut_before(self, partition: int, log: Log, seal_offset: int) -> None:
        """A log that was cut while there was no seal: of what a commit of before stands for, nothing tells any more,
        not even when it is cut again."""
        for group in self.world.groups.values():
            commit = group.committed.get(partition)
            if group.epochless and commit is not None:
                group.consumed.update(log.records[: min(commit[0], seal_offset)])

    def _released(self, partition: int, record: TopicRecord, writer: Controller) -> None:
        """Consumers will leave the partition: all that lies below the seal must have been read (I2)."""
        log = self._log_as_seen(record.topic_id, partition, writer)
        retired, deletion = record.retired[partition], record.deletion
        if retired.seal_offset is None or deletion is None:
            raise Violation("I2", f"partition {partition} becomes None without a seal")
        if log is None:
            return
        if deletion.immediate_delete:  # nobody is waited for, so nobody need get these, undone or not
            given = self.given_up.intersection(log.records[log.log_start : retired.seal_offset])
            for group in self.world.groups.values():
                group.consumed.update(given)
        if deletion.policy == "retention":
            if log.log_start < retired.seal_offset:
                raise Violation("I2", f"partition {partition} becomes None before retention has emptied it")
            return
        self._all_have("I2", partition, log, retired.seal_offset, record, writer)

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
            if retired is None or deletion is None or record.modes[partition] is not PartitionMode.NONE:
                raise Violation("I1", f"records of partition {partition} go, which is not None")
            if offset != retired.reclaim_offset:
                raise Violation("I1", f"records of partition {partition} go up to {offset}, not to where they may")
            if deletion.policy == "retention":
                raise Violation("I1", f"records of partition {partition} go before retention takes them")
            again = retired.replica_state is ReplicaState.DELETION_SUCCESSFUL
            if again and not self.wanted(log.records[log.log_start : offset]):
                continue  # the log start was forgotten
            self._not_compacted(record, controller, f"records of partition {partition} go")
            if world.time_ms < deletion.earliest_ms and not by_order(partition, record):
                raise Violation("I1", f"records of partition {partition} go before the delay is over")
            self._all_have("I1", partition, log, offset, record, controller)

    def _not_compacted(self, record: TopicRecord, controller: Controller, what: str) -> None:
        """The latest value of each key of a compacted topic must be kept."""
        topic = self.world.topic
        if topic is None or topic.topic_id != record.topic_id or self.world.policy_changed_at >= controller.looked.step:
            return
        if self.world.policy != "delete":
            raise Violation("I1", f"{what} though the topic is compacted")

    def delete_sent(self, controller: Controller, effect: DeleteRecords) -> None:
        """DeleteRecords goes to leaders: where one was elected meanwhile that lost records, what it has instead must
        have been read as well (I1)."""
        topic, record = self.world.topic, self.world.log.truth.records.get(effect.topic_id)
        if topic is None or topic.topic_id != effect.topic_id or record is None or controller.epoch != self.epoch:
            return
        for partition, offset in effect.offsets.items():
            log = topic.logs[partition]
            if log.truncated_at >= controller.looked.at and not by_order(partition, record):
                self._all_have("I1", partition, log, offset, record, controller)

    def _log_as_seen(self, topic_id: str, partition: int, controller: Controller) -> Log | None:
        """The partition's log, unless it changed under the controller after it had looked."""
        topic = self.world.topic
        if topic is None or topic.topic_id != topic_id or partition >= len(topic.logs):
            return None
        log = topic.logs[partition]
        return None if log.truncated_at >= controller.looked.at else log

    def _all_have(
        self, invariant: str, partition: int, log: Log, offset: int, record: TopicRecord, controller: Controller
    ) -> None:
        """Every required group has got what lies below ``offset``, at the time of the controller's last listing."""
        if log.log_start >= offset:
            return
        world, listing, deletion = self.world, controller.looked, record.deletion
        assert deletion is not None
        needed = self.wanted(log.records[log.log_start : offset])
        if deletion.immediate_delete:
            needed = [number for number in needed if number not in self.given_up]
            if not needed:
                return
        if needed and controller.without_rules:
            raise Violation(invariant, f"partition {partition}: nobody can read the rules, and {needed} would go")
        if not listing.sure and not self.rules.closed(listing.now_ms):
            if needed:
                raise Violation(invariant, f"partition {partition}: not all groups are known, and {needed} would go")
            return
        for group, is_waived in self._required_groups(record.topic_id, partition, listing):
            name, commit = group.name, group.committed.get(partition)
            missing = [number for number in needed if number not in group.consumed]
            if is_waived:
                if missing:
                    world.hit(Fault.WAIVER)
                    if name not in record.waived:
                        raise Violation(invariant, f"partition {partition}: group {name} has not got {missing}, and "
                                        "the record does not say that it is waived")  # fmt: skip
                group.consumed.update(needed)  # once and for all: it will go on behind them
                continue
            if group.stateful and name in listing.seen and name not in deletion.accept_state_loss:
                raise Violation(invariant, f"partition {partition}: group {name} would lose its state")
            if group.epochless and log.truncated_at >= 0 and record.retired[partition].truncated_to is None:
                group.consumed.update(needed)  # cut while there was no seal, of which nothing tells afterwards
                continue
            same = group.joined_at < listing.step  # not one that came up since, with a commit of its own
            if invariant == "I1" and same and commit is not None and log.log_start <= commit[0] < offset:
                raise Violation(invariant, f"partition {partition}: group {name} would be left below the log start")
            if missing:
                raise Violation(invariant, f"partition {partition}: group {name} has not got {missing}")

    def _required_groups(self, topic_id: str, partition: int, listing: Looked) -> Iterator[tuple[Group, bool]]:
        """The groups that must have read the partition at the time of a listing; with it, whether each is waived."""
        present = {name for name in listing.seen if self._counts(name)}
        for name in sorted(self.required.get(topic_id, set()) | present | self.rules.registered(listing.now_ms)):
            group = self.world.groups.get(name)
            if group is not None and group.reset_at < listing.step:
                committed = partition in group.committed and group.began.get(partition, -1) < listing.step
                yield group, self.rules.waived(name, listing.now_ms, committed)

    def _counts(self, name: str) -> bool:
        return not name.startswith("console-consumer-") or bool(self.world.groups[name].committed)


def by_order(partition: int, record: TopicRecord) -> bool:
    """Whether what lies in the partition was given up by an immediate_delete, whoever has not read it.

    It counted what would be lost; that was neither what came after a seal nor what earlier shrinks have retired.
    """
    deletion = record.deletion
    if deletion is None or not deletion.immediate_delete:
        return False
    return partition < deletion.previous_count and record.retired[partition].stragglers == 0
