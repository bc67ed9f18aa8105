"""The records of the mode log: their fields, and their form as JSON.

The key of a topic's record is its topic id, so that a topic deleted and recreated under its name starts afresh. Three
more keys hold one record each: :data:`CLAIM_KEY` (the active controller), :data:`OBSERVED_BROKERS_KEY`, and that of
:mod:`modeaware.modelog.group_rules`. A value holds the *whole* truth about its key, so a reader needs only the latest
record of each key, duplicates are harmless, and compaction cannot split a change.

Compatibility: readers ignore fields they do not know, and refuse a record whose ``min_reader`` is above theirs (they
keep the last view they have of that topic). Fields at their default are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from modeaware.config import DISABLED, UNDER_REPLICATED_CREATION
from modeaware.errors import NewerRecord, RecordError
from modeaware.modes import PartitionMode, PartitionState, ReplicaState, runs, to_ranges
from modeaware.topic_view import TopicView

CLAIM_KEY = "controller"
OBSERVED_BROKERS_KEY = "observed-brokers"
RETENTION_DELAY_MS = -1
WRITER_VERSION = 1
READER_VERSION = 1
MAX_PARTITIONS = 100_000
MAX_BROKERS = 10_000
"""No record lists more of either: rubbish must not fill the memory."""


# The JSON form that all records share: an object with a version, read with care.


def dump(fields: Mapping[str, Any], *, min_reader: int = READER_VERSION) -> bytes:
    """Return a record's value on the log: compact UTF-8 JSON, keys sorted, so equal records are equal bytes."""
    envelope = {"version": WRITER_VERSION, "min_reader": min_reader}
    return json.dumps({**envelope, **fields}, separators=(",", ":"), sort_keys=True).encode()


def load(value: bytes, *, reader_version: int = READER_VERSION) -> dict[str, Any]:
    """Return the fields of a value.

    Args:
        value: the record's bytes.
        reader_version: the newest form of this kind of record that can be read here.

    Raises:
        NewerRecord: it was written for a newer reader.
        RecordError: it is not a JSON object.
    """
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"mode log: not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise RecordError(f"mode log: not a JSON object but {type(fields).__name__}")
    min_reader = fields.get("min_reader", 1)
    if not isinstance(min_reader, int):
        raise RecordError(f"mode log: min_reader is {min_reader!r}, not a number")
    if min_reader > reader_version:
        raise NewerRecord(
            f"mode log: the record of {fields.get('topic', 'the controller')!r} needs a reader of version "
            f"{min_reader}, this one is {reader_version}; upgrade modeaware",
            topic=topic if isinstance(topic := fields.get("topic"), str) else None,
        )
    return fields


@contextmanager
def parsing(kind: str) -> Iterator[None]:
    """Turn what goes wrong while the fields of a record are read into a RecordError that names its ``kind``."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RecordError(f"mode log: not {kind} ({type(error).__name__}: {error})") from error


def text(value: Any) -> str:
    """Return a field that must be a string; raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value


def optional_int(value: Any) -> int | None:
    """Return a field that may be missing or null."""
    return None if value is None else int(value)


def _modes(ranges: Any) -> tuple[PartitionMode, ...]:
    """Modes as a list of ``[first, last, mode]``, from partition 0 on; raises ValueError, TypeError."""
    modes: list[PartitionMode] = []
    for first, last, code in ranges:
        if first != len(modes) or not first <= last < MAX_PARTITIONS:
            raise ValueError(f"mode ranges leave a gap, overlap or end beyond {MAX_PARTITIONS} at {first}-{last}")
        modes.extend([PartitionMode(code)] * (last - first + 1))
    if not modes:
        raise ValueError("no modes")
    return tuple(modes)


def _partitions(ranges: Any) -> tuple[int, ...]:
    """Partitions as a list of ``[first, last]``, ascending; raises ValueError, TypeError."""
    partitions: list[int] = []
    for first, last in ranges:
        if not (partitions[-1] if partitions else -1) < first <= last < MAX_PARTITIONS:
            raise ValueError(f"ranges of partitions overlap or end beyond {MAX_PARTITIONS} at {first}-{last}")
        partitions.extend(range(first, last + 1))
    return tuple(partitions)


def _offsets(by_partition: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in by_partition.items()}


def _by_partition(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


# A topic, from its parts to the whole


@dataclass(frozen=True)
class DeleteTopicPartitions:
    """KIP-694's DeleteTopicPartitionsRecord: the shrink in force for a topic.

    Attributes:
        delete_partitions: the partition count to keep; all partitions from this id on are retired.
        delay_ms: -1 for the ``retention`` reclaim policy (records go when the topic's own retention takes them), else
            ``drained``: records go once drained, and no earlier than this many milliseconds after
            ``create_timestamp_ms``.
        immediate_delete: delete without waiting for the drain.
        create_timestamp_ms: when the request was admitted (wall clock, ms since the epoch).
        previous_count: how many partitions were writable before, which is what an undo goes back to.
        accept_state_loss: groups that keep state per partition (Kafka Streams) and were named in the request all the
            same: what they keep for the keys that move stays behind.
        handed_over: all partitions below ``previous_count`` are handed over: every group that is waited for has read
            what was written to them before the switch (see :mod:`modeaware.lifecycle.handover`). True as well where a
            controller without handovers wrote the record: it would never report one.
        earlier_counts: ``previous_count`` of the earlier shrinks that were not handed over when this one was admitted,
            ascending: a key may still be in the partition it was in before one of them, so no partition is handed over
            before all are.
        revived_ms: when a part of the shrink was last undone (wall clock); None: never.
        evacuate: the topic may be compacted: no retired partition becomes None before its latest values are copied to
            survivors (see :mod:`modeaware.lifecycle.evacuation`).
        evacuation_epoch: the topic's epoch since which the count has been this one: that of the admission, or of the
            last part that was undone. It names the evacuation; -1 where nothing is evacuated.
    """

    delete_partitions: int
    delay_ms: int
    immediate_delete: bool
    create_timestamp_ms: int
    previous_count: int
    accept_state_loss: tuple[str, ...] = ()
    handed_over: bool = False
    earlier_counts: tuple[int, ...] = ()
    revived_ms: int | None = None
    evacuate: bool = False
    evacuation_epoch: int = -1

    @property
    def policy(self) -> str:
        """The reclaim policy: ``retention``, ``drained`` or ``immediate``."""
        if self.immediate_delete:
            return "immediate"
        return "retention" if self.delay_ms == RETENTION_DELAY_MS else "drained"

    @property
    def earliest_ms(self) -> int:
        """The wall-clock time before which nothing is deleted (meaningless for ``retention``)."""
        return self.create_timestamp_ms + max(self.delay_ms, 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        fields: dict[str, Any] = {
            "delete_partitions": self.delete_partitions,
            "delete_partitions_delay_ms": self.delay_ms,
            "immediate_delete": self.immediate_delete,
            "create_timestamp_ms": self.create_timestamp_ms,
            "previous_count": self.previous_count,
        }
        if self.accept_state_loss:
            fields["accept_state_loss"] = list(self.accept_state_loss)
        if not self.handed_over:  # a missing field means a writer without handovers, which never reports one
            fields["handed_over"] = False
        if self.earlier_counts:
            fields["earlier_counts"] = list(self.earlier_counts)
        if self.revived_ms is not None:
            fields["revived_ms"] = self.revived_ms
        if self.evacuate:
            fields |= {"evacuate": True, "evacuation_epoch": self.evacuation_epoch}
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> DeleteTopicPartitions | None:
        if fields is None:
            return None
        return cls(
            delete_partitions=int(fields["delete_partitions"]),
            delay_ms=int(fields["delete_partitions_delay_ms"]),
            immediate_delete=bool(fields["immediate_delete"]),
            create_timestamp_ms=int(fields["create_timestamp_ms"]),
            previous_count=int(fields["previous_count"]),
            accept_state_loss=tuple(text(group) for group in fields.get("accept_state_loss", ())),
            handed_over=bool(fields.get("handed_over", True)),
            earlier_counts=tuple(int(count) for count in fields.get("earlier_counts", ())),
            revived_ms=optional_int(fields.get("revived_ms")),
            evacuate=bool(fields.get("evacuate", False)),
            evacuation_epoch=int(fields.get("evacuation_epoch", -1)),
        )


@dataclass(frozen=True)
class Straggler:
    """The last record that was seen to arrive at or after a seal, and what the leader returned of its producer.

    ``producer_id`` is -1, and the others too, where the leader returned none (a producer without idempotence).
    """

    offset: int
    producer_id: int = -1
    producer_epoch: int = -1
    timestamp_ms: int = -1

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {name: value for name, value in asdict(self).items() if value != -1}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Straggler | None:
        if fields is None:
            return None
        more = ("producer_id", "producer_epoch", "timestamp_ms")
        return cls(offset=int(fields["offset"]), **{name: int(fields[name]) for name in more if name in fields})


@dataclass(frozen=True)
class RetiredPartition:
    """The state of one partition that takes no writes.

    Attributes:
        partition_state, replica_state: KIP-694's states.
        seal_offset: its end offset once no aware producer can still write there; None until sealed.
        seal_leader_epoch: the leader epoch under which the seal was read, or was found broken.
        drained: proof of the drain: group -> committed offset, at or beyond the seal, or before it with nothing between
            them that a group would be given. Empty for an empty partition.
        resume_offset: where a group without a commit reads on once the partition is readable again, while that is below
            the seal: the first seal that a straggler broke. None: the seal itself.
        reason: what holds it up, as a code (see :mod:`modeaware.lifecycle.reasons`), optionally with a group:
            ``"group-lag:billing"``. None: nothing.
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
        behind it, ``auto.offset.reset`` would decide where that group continues.
        """
        return None if self.seal_offset is None else min([self.seal_offset, *self.drained.values()])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = {name: value for name, value in vars(self).items() if value != _RETIRED_DEFAULTS[name]}
        if self.drained:
            found["drained"] = dict(self.drained)
        if self.straggler is not None:
            found["straggler"] = self.straggler.to_dict()
        return found

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RetiredPartition:
        return cls(**{name: read(fields[name]) for name, read in _RETIRED_FIELDS.items() if name in fields})


_RETIRED_DEFAULTS = vars(RetiredPartition())
_RETIRED_FIELDS: dict[str, Callable[[Any], Any]] = {
    # Looked up instead of called: replaying a log with many retired partitions takes a third less CPU time.
    "partition_state": {state.value: state for state in PartitionState}.__getitem__,
    "replica_state": {state.value: state for state in ReplicaState}.__getitem__,
    "seal_offset": optional_int,
    "seal_leader_epoch": optional_int,
    "resume_offset": optional_int,
    "drained": lambda value: {str(group): int(offset) for group, offset in value.items()},
    "reason": lambda value: value,
    "opening": bool,
    "stragglers": int,
    "straggler": Straggler.from_dict,
    "truncated_to": optional_int,
    "evacuated": bool,
    "evacuated_to": optional_int,
    "switch_offset": optional_int,
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
        """Return the record's value on the log."""
        values: dict[str, Any] = {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "epoch": self.epoch,
            "controller_epoch": self.controller_epoch,
            "modes": [[first, last, int(mode)] for first, last, mode in to_ranges(self.modes)],
            "retired": {str(partition): retired.to_dict() for partition, retired in self.retired.items()},
            "switch_offsets": _by_partition(self.switch_offsets),
            "required_groups": sorted(self.required_groups),
            "changed_ms": self.changed_ms,
        }
        if not self.groups_complete:
            values["groups_complete"] = False
        if self.handed_over:
            values["handed_over"] = [list(run) for run in runs(self.handed_over)]
        if self.handover_offsets:
            values["handover_offsets"] = _by_partition(self.handover_offsets)
        if self.waived:
            values["waived"] = dict(self.waived)
        if self.opening_since_ms is not None:
            values["opening_since_ms"] = self.opening_since_ms
            values["opening_assignments"] = [list(replicas) for replicas in self.opening_assignments]
        if self.deletion is not None:
            values["deletion"] = self.deletion.to_dict()
        return dump(values, min_reader=self.min_reader)

    @classmethod
    def from_json(cls, value: bytes) -> TopicRecord:
        """Parse a value of the mode log.

        Raises:
            RecordError: the value is not a topic record, or needs a newer reader.
        """
        with parsing("a topic record"):
            found = load(value)
            record = cls(
                topic=text(found["topic"]),
                topic_id=text(found["topic_id"]),
                epoch=int(found["epoch"]),
                controller_epoch=int(found["controller_epoch"]),
                modes=_modes(found["modes"]),
                deletion=DeleteTopicPartitions.from_dict(found.get("deletion")),
                retired={int(p): RetiredPartition.from_dict(each) for p, each in found.get("retired", {}).items()},
                switch_offsets=_offsets(found.get("switch_offsets", {})),
                handed_over=_partitions(found.get("handed_over", ())),
                handover_offsets=_offsets(found.get("handover_offsets", {})),
                required_groups=tuple(text(group) for group in found.get("required_groups", ())),
                groups_complete=bool(found.get("groups_complete", True)),
                waived={text(group): text(reason) for group, reason in found.get("waived", {}).items()},
                opening_since_ms=optional_int(found.get("opening_since_ms")),
                opening_assignments=tuple(tuple(map(int, each)) for each in found.get("opening_assignments", ())),
                changed_ms=int(found.get("changed_ms", 0)),
                min_reader=int(found.get("min_reader", 1)),
            )
            if not all(0 <= p < len(record.modes) and not record.modes[p].writable for p in record.retired):
                raise ValueError("a ReadWrite partition, or one without a mode, among the retired")
            return record

    def view(self) -> TopicView:
        """Return what clients need of this record."""
        handing_over = self.deletion
        if handing_over is not None and (handing_over.handed_over or handing_over.previous_count <= 0):
            handing_over = None
        resume = {p: r.seal_offset if r.resume_offset is None else r.resume_offset for p, r in self.retired.items()}
        done = ReplicaState.DELETION_SUCCESSFUL
        return TopicView(
            topic=self.topic,
            topic_id=self.topic_id,
            version=self.version,
            modes=self.modes,
            resume_offsets={p: offset for p, offset in resume.items() if offset is not None},
            reclaimed=frozenset(p for p, r in self.retired.items() if r.replica_state is done),
            previous_count=None if handing_over is None else handing_over.previous_count,
            handed_over=frozenset() if handing_over is None else frozenset(self.handed_over),
            earlier_counts=() if handing_over is None else handing_over.earlier_counts,
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
        controller_id: its name, which its listener gives as well: a command reaches the one that claimed, or none.
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
        return dump(asdict(self))

    @classmethod
    def from_json(cls, value: bytes) -> ClaimRecord:
        """Parse a value of the mode log; see :meth:`TopicRecord.from_json`."""
        with parsing("a claim record"):
            found = load(value)
            address = found["address"]
            return cls(
                controller_epoch=int(found["controller_epoch"]),
                address=None if address is None else text(address),
                controller_id=text(found["controller_id"]),
                claimed_ms=int(found.get("claimed_ms", 0)),
                host=text(found.get("host", "")),
                security_protocol=text(found.get("security_protocol", "PLAINTEXT")),
            )


@dataclass(frozen=True)
class ObservedBrokersRecord:
    """Which brokers were ever seen, those included that are down (KIP-409's ``/brokers/observed_ids``), and what
    creations may do about these (``modeaware.under.replicated.creation``).

    The active controller writes it; our AdminClient reads it when a creation asks for a minimum of live replicas. Other
    clients pass it over.

    Attributes:
        policy: ``disabled``, ``enabled`` or ``enabled_prefer_observed``.
        brokers: broker id -> its rack, or None.
    """

    policy: str = DISABLED
    brokers: Mapping[int, str | None] = field(default_factory=lambda: MappingProxyType({}))
    controller_epoch: int = 0
    epoch: int = -1

    @property
    def version(self) -> tuple[int, int]:
        return (self.controller_epoch, self.epoch)

    def to_json(self) -> bytes:
        brokers = [{"id": node_id, "rack": rack} for node_id, rack in sorted(self.brokers.items())]
        return dump({**vars(self), "brokers": brokers})

    @classmethod
    def from_json(cls, value: bytes) -> ObservedBrokersRecord:
        """Parse a value of the mode log; see :meth:`TopicRecord.from_json`."""
        with parsing("a record of observed brokers"):
            found = load(value)
            if len(found["brokers"]) > MAX_BROKERS:
                raise ValueError(f"{len(found['brokers'])} brokers")
            if found["policy"] not in UNDER_REPLICATED_CREATION:
                raise ValueError(f"no such policy: {found['policy']!r}")
            racks = {int(each["id"]): each.get("rack") for each in found["brokers"]}
            return cls(
                policy=found["policy"],
                brokers=MappingProxyType({node: None if rack is None else text(rack) for node, rack in racks.items()}),
                controller_epoch=int(found["controller_epoch"]),
                epoch=int(found["epoch"]),
            )
