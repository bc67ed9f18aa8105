"""The records of the mode log: their fields, and their form as JSON.

The key of a topic's record is its topic id, so that a topic deleted and recreated under its name starts afresh; the key
of the claim record is :data:`CLAIM_KEY`. (The rules about groups are in :mod:`modeaware.modelog.group_rules`.) A value
holds the *whole* truth about its key, so a reader needs only the latest record of each key, duplicates are harmless,
and compaction cannot split a change.

Compatibility: readers ignore fields they do not know, and refuse a record whose ``min_reader`` is above
:data:`~modeaware.modelog.json_fields.READER_VERSION` (they keep the last view they have of that topic).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from modeaware.errors import RecordError
from modeaware.modelog.deletion import DeleteTopicPartitions
from modeaware.modelog.json_fields import (
    READER_VERSION,
    WRITER_VERSION,
    dump,
    load,
    modes_of,
    optional_int,
    partitions_of,
    text,
)
from modeaware.modelog.straggler import Straggler
from modeaware.modes import PartitionMode, PartitionState, ReplicaState, runs, to_ranges
from modeaware.topic_view import TopicView

CLAIM_KEY = "controller"
# Looked up instead of called: replaying a log with many retired partitions takes a third less CPU time.
_PARTITION_STATES = {state.value: state for state in PartitionState}
_REPLICA_STATES = {state.value: state for state in ReplicaState}


@dataclass(frozen=True)
class RetiredPartition:
    """What the controller knows of one partition that takes no writes.

    Attributes:
        partition_state, replica_state: KIP-694's states.
        seal_offset: its end offset once no aware producer can still write there; None until sealed.
        seal_leader_epoch: the leader epoch under which the seal was read, or was found broken.
        drained: proof of the drain: group -> committed offset, at or beyond the seal, or before it with nothing between
            them that a group would be given. Empty for an empty partition.
        resume_offset: where a group without a commit goes on once the partition is readable again, while that is below
            the seal: the first seal that a straggler broke. None: the seal itself.
        reason: why it does not go on, as a code (see :mod:`modeaware.lifecycle.reasons`), optionally with a group:
            ``"group-lag:billing"``. None when nothing holds it up.
        opening: the partition is new, not retired: created, and closed to writes until groups know it.
        stragglers: how often a record arrived at or after a seal.
        straggler: the last of them.
        truncated_to: the lowest end its log was found to have, or to have had for a while, where that was below a seal.
        evacuated: it is None, and what lies below its seal was copied to survivors before.
        evacuated_to: up to where that was so once, since it was retired: what lies below need not be copied again.
        switch_offset: its end when the shrink was admitted, where it is evacuated: what follows was written meanwhile.
    """

    partition_state: PartitionState = PartitionState.ONLINE
    replica_state: ReplicaState = ReplicaState.ONLINE
    seal_offset: int | None = None
    seal_leader_epoch: int | None = None
    resume_offset: int | None = None
    drained: Mapping[str, int] = field(default_factory=dict, hash=False)
    reason: str | None = None
    opening: bool = False
    stragglers: int = 0
    straggler: Straggler | None = None
    truncated_to: int | None = None
    evacuated: bool = False
    evacuated_to: int | None = None
    switch_offset: int | None = None

    @property
    def reclaim_offset(self) -> int | None:
        """Up to where the records go once all is drained: the seal, but never beyond a committed offset (invariant I1).

        A commit may lie below the seal where nothing but control records or aborted ones follow it. With the log start
        behind it, ``auto.offset.reset`` would decide where that group goes on.
        """
        return None if self.seal_offset is None else min([self.seal_offset, *self.drained.values()])

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; what is at its default is left out."""
        fields: dict[str, Any] = {
            "partition_state": self.partition_state.value,
            "replica_state": self.replica_state.value,
            "seal_offset": self.seal_offset,
            "seal_leader_epoch": self.seal_leader_epoch,
            "resume_offset": self.resume_offset,
            "drained": dict(sorted(self.drained.items())),
            "reason": self.reason,
            "opening": self.opening,
            "stragglers": self.stragglers,
            "straggler": self.straggler.to_dict() if self.straggler is not None else None,
            "truncated_to": self.truncated_to,
            "evacuated": self.evacuated,
            "evacuated_to": self.evacuated_to,
            "switch_offset": self.switch_offset,
        }
        return {name: value for name, value in fields.items() if value != _DEFAULTS.get(name)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RetiredPartition:
        return cls(
            partition_state=_PARTITION_STATES[fields.get("partition_state", "OnlinePartition")],
            replica_state=_REPLICA_STATES[fields.get("replica_state", "OnlineReplica")],
            seal_offset=optional_int(fields.get("seal_offset")),
            seal_leader_epoch=optional_int(fields.get("seal_leader_epoch")),
            resume_offset=optional_int(fields.get("resume_offset")),
            drained={str(group): int(offset) for group, offset in fields.get("drained", {}).items()},
            reason=fields.get("reason"),
            opening=bool(fields.get("opening", False)),
            stragglers=int(fields.get("stragglers", 0)),
            straggler=Straggler.from_dict(fields.get("straggler")),
            truncated_to=optional_int(fields.get("truncated_to")),
            evacuated=bool(fields.get("evacuated", False)),
            evacuated_to=optional_int(fields.get("evacuated_to")),
            switch_offset=optional_int(fields.get("switch_offset")),
        )


_DEFAULTS: dict[str, Any] = {
    "partition_state": PartitionState.ONLINE.value,
    "replica_state": ReplicaState.ONLINE.value,
    "drained": {},
    "opening": False,
    "stragglers": 0,
    "evacuated": False,
}


@dataclass(frozen=True)
class TopicRecord:
    """The whole truth about one topic, as the mode log holds it.

    ``retired`` has an entry for every partition whose mode is not ReadWrite. ``switch_offsets`` gives, per survivor,
    its end offset read before the shrink was appended, so every rerouted record lies at or after it.

    While a shrink's partitions are not all handed over (``deletion.handed_over``), ``handed_over`` are those that are,
    ascending, and ``handover_offsets`` gives, per survivor that is not, its end offset once the retired ones were
    sealed: from there on no aware producer writes keys that have moved away from it.

    ``required_groups`` are the groups that used the topic when the change was admitted; with ``groups_complete`` False
    that list could not be sure, and the first sure one completes it. ``waived`` names the groups that a partition did
    not wait for when it became None, each with the reason of the waiver.
    """

    topic: str
    topic_id: str
    epoch: int
    controller_epoch: int
    modes: tuple[PartitionMode, ...]
    deletion: DeleteTopicPartitions | None = None
    retired: Mapping[int, RetiredPartition] = field(default_factory=dict, hash=False)
    switch_offsets: Mapping[int, int] = field(default_factory=dict, hash=False)
    handed_over: tuple[int, ...] = ()
    handover_offsets: Mapping[int, int] = field(default_factory=dict, hash=False)
    required_groups: tuple[str, ...] = ()
    groups_complete: bool = True
    waived: Mapping[str, str] = field(default_factory=dict, hash=False)
    opening_since_ms: int | None = None
    opening_assignments: tuple[tuple[int, ...], ...] = ()
    changed_ms: int = 0
    min_reader: int = READER_VERSION

    @property
    def version(self) -> tuple[int, int]:
        return (self.controller_epoch, self.epoch)

    @property
    def writable_count(self) -> int:
        return sum(mode.writable for mode in self.modes)

    def to_json(self) -> bytes:
        """The record's value on the log: compact UTF-8 JSON, keys sorted, so equal records are equal bytes."""
        fields: dict[str, Any] = {
            "version": WRITER_VERSION,
            "min_reader": self.min_reader,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "epoch": self.epoch,
            "controller_epoch": self.controller_epoch,
            "modes": [[first, last, int(mode)] for first, last, mode in to_ranges(self.modes)],
            "retired": {str(p): self.retired[p].to_dict() for p in sorted(self.retired)},
            "switch_offsets": {str(p): self.switch_offsets[p] for p in sorted(self.switch_offsets)},
            "required_groups": sorted(self.required_groups),
            "changed_ms": self.changed_ms,
        }
        if not self.groups_complete:
            fields["groups_complete"] = False
        if self.handed_over:
            fields["handed_over"] = [list(run) for run in runs(self.handed_over)]
        if self.handover_offsets:
            fields["handover_offsets"] = {str(p): self.handover_offsets[p] for p in sorted(self.handover_offsets)}
        if self.waived:
            fields["waived"] = dict(self.waived)
        if self.opening_since_ms is not None:
            fields["opening_since_ms"] = self.opening_since_ms
            fields["opening_assignments"] = [list(replicas) for replicas in self.opening_assignments]
        if self.deletion is not None:
            fields["deletion"] = self.deletion.to_dict()
        return dump(fields)

    @classmethod
    def from_json(cls, value: bytes) -> TopicRecord:
        """Parse a value of the mode log.

        Raises:
            RecordError: the value is not a topic record, or needs a newer reader.
        """
        fields = load(value)
        try:
            record = cls(
                topic=text(fields["topic"]),
                topic_id=text(fields["topic_id"]),
                epoch=int(fields["epoch"]),
                controller_epoch=int(fields["controller_epoch"]),
                modes=modes_of(fields["modes"]),
                deletion=DeleteTopicPartitions.from_dict(fields.get("deletion")),
                retired={int(p): RetiredPartition.from_dict(r) for p, r in fields.get("retired", {}).items()},
                switch_offsets={int(p): int(o) for p, o in fields.get("switch_offsets", {}).items()},
                handed_over=partitions_of(fields.get("handed_over", ())),
                handover_offsets={int(p): int(o) for p, o in fields.get("handover_offsets", {}).items()},
                required_groups=tuple(text(group) for group in fields.get("required_groups", ())),
                groups_complete=bool(fields.get("groups_complete", True)),
                waived={text(group): text(reason) for group, reason in fields.get("waived", {}).items()},
                opening_since_ms=optional_int(fields.get("opening_since_ms")),
                opening_assignments=tuple(
                    tuple(int(b) for b in replicas) for replicas in fields.get("opening_assignments", ())
                ),
                changed_ms=int(fields.get("changed_ms", 0)),
                min_reader=int(fields.get("min_reader", 1)),
            )
            if not all(0 <= p < len(record.modes) and not record.modes[p].writable for p in record.retired):
                raise ValueError("a ReadWrite partition, or one without a mode, among the retired")
            return record
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RecordError(f"mode log: not a topic record ({type(error).__name__}: {error})") from error

    def view(self) -> TopicView:
        """What clients need of this record."""
        deletion = self.deletion
        handing_over = deletion is not None and not deletion.handed_over and deletion.previous_count > 0
        return TopicView(
            topic=self.topic,
            topic_id=self.topic_id,
            version=self.version,
            modes=self.modes,
            resume_offsets={
                p: resume
                for p, r in self.retired.items()
                if (resume := r.seal_offset if r.resume_offset is None else r.resume_offset) is not None
            },
            reclaimed=frozenset(
                p for p, r in self.retired.items() if r.replica_state is ReplicaState.DELETION_SUCCESSFUL
            ),
            previous_count=deletion.previous_count if deletion is not None and handing_over else None,
            handed_over=frozenset(self.handed_over) if handing_over else frozenset(),
            earlier_counts=deletion.earlier_counts if deletion is not None and handing_over else (),
        )

    def stamped(self, controller_epoch: int, now_ms: int) -> TopicRecord:
        """The next record of this topic: epoch + 1, under the given controller epoch."""
        return replace(self, epoch=self.epoch + 1, controller_epoch=controller_epoch, changed_ms=now_ms)


@dataclass(frozen=True)
class ClaimRecord:
    """Names the active controller.

    Attributes:
        controller_epoch: +1 at every claim.
        address: its listener, ``host:port``; None when it has stopped, or has none.
        controller_id: its name, which its listener gives as well: a command reaches the one that claimed, or nobody.
        host: the host it runs on: a loopback address means nothing on any other.
        security_protocol: what clients speak to it, in the words of ``security.protocol``.
    """

    controller_epoch: int
    address: str | None
    controller_id: str
    claimed_ms: int = 0
    host: str = ""
    security_protocol: str = "PLAINTEXT"

    def to_json(self) -> bytes:
        return dump(
            {
                "version": WRITER_VERSION,
                "min_reader": 1,
                "controller_epoch": self.controller_epoch,
                "address": self.address,
                "controller_id": self.controller_id,
                "claimed_ms": self.claimed_ms,
                "host": self.host,
                "security_protocol": self.security_protocol,
            }
        )

    @classmethod
    def from_json(cls, value: bytes) -> ClaimRecord:
        fields = load(value)
        try:
            address = fields["address"]
            return cls(
                controller_epoch=int(fields["controller_epoch"]),
                address=None if address is None else text(address),
                controller_id=text(fields["controller_id"]),
                claimed_ms=int(fields.get("claimed_ms", 0)),
                host=text(fields.get("host", "")),
                security_protocol=text(fields.get("security_protocol", "PLAINTEXT")),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RecordError(f"mode log: not a claim record ({type(error).__name__}: {error})") from error
