"""The records of the mode log: their fields, and their form as JSON.

The key of a topic's record is its topic id, so that a topic deleted and recreated under its name starts afresh. Three
more keys hold one record each: :data:`CLAIM_KEY` (the active controller), :data:`OBSERVED_BROKERS_KEY`, and the key of
:mod:`modeaware.modelog.group_rules`. The old topic of a replacement may have a second record
(:mod:`modeaware.modelog.moved`). Each value is *complete*: a reader needs only the latest record of each key. So
duplicates are harmless, and compaction cannot split a change.

Compatibility: readers ignore unknown fields. A reader refuses a record whose ``min_reader`` is above the reader's
version, and keeps its last view of that topic. Writers leave out optional fields that have their default.

To add a field to a record, add one line to its dataclass: the type, the default (an older writer's records lack the
field), and the JSON form by :func:`form`. Describe the field in docs/mode-log.md, and pass it on in
:meth:`TopicRecord.view` if clients need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from modeaware.config import DISABLED, UNDER_REPLICATED_CREATION
from modeaware.durations import duration_text
from modeaware.interim import is_interim_of
from modeaware.modelog.json_form import (
    JsonFields,
    JsonRecord,
    VersionedRecord,
    columns,
    form,
    integer,
    listed,
    nested,
    optional_int,
    optional_text,
    text,
    texts,
)
from modeaware.modes import PartitionMode, ReplicaState, to_ranges
from modeaware.topic_view import NONE_MOVED, Moved, ReplacedBy, TopicView

CLAIM_KEY = "controller"
OBSERVED_BROKERS_KEY = "observed-brokers"
UNKNOWN_GENERATION = -1
MAX_RECORD_BYTES = 900_000
"""A record must fit a stock broker's ``message.max.bytes`` (1 048 588) with room for the envelope."""
MAX_PARTITIONS = 100_000
MAX_BROKERS = 10_000
"""Readers refuse a record with more partitions or brokers: a malformed record must not fill the memory."""


def _read_texts(value: Any) -> dict[str, str]:
    return {text(key): text(entry) for key, entry in value.items()}


def _read_modes(ranges: Any) -> tuple[PartitionMode, ...]:
    """Read a list of ``[first, last, mode]``, from partition 0 on; raises ValueError, TypeError."""
    modes: list[PartitionMode] = []
    for first, last, code in map(listed, listed(ranges)):
        if integer(first) != len(modes) or not first <= integer(last) < MAX_PARTITIONS:
            raise ValueError(
                f"mode range {first}-{last} does not follow on the one before, or exceeds {MAX_PARTITIONS}"
            )
        modes.extend([PartitionMode(integer(code))] * (last - first + 1))
    if not modes:
        raise ValueError("no modes")
    return tuple(modes)


def _write_modes(modes: tuple[PartitionMode, ...]) -> list[list[int]]:
    return [[first, last, int(mode)] for first, last, mode in to_ranges(modes)]


def _read_waived(by_reason: Any) -> dict[str, str]:
    return {text(group): text(reason) for reason, groups in by_reason.items() for group in texts(groups)}


def _write_waived(waived: Mapping[str, str]) -> dict[str, list[str]]:
    """Return reason -> groups: a waiver may apply to a thousand groups, and its reason is to be written once."""
    by_reason: dict[str, list[str]] = {}
    for group, reason in sorted(waived.items()):
        by_reason.setdefault(reason, []).append(group)
    return by_reason


# A topic, from its parts to the whole


RETENTION, DRAINED, IMMEDIATE = "retention", "drained", "immediate"
"""The reclaim policies, which decide when records are deleted."""


class Reclaims:
    """The delay of a change that deletes records, and the reclaim policy that follows from the delay.

    This is the base of such changes: of their commands, records, plans and reports. ``delay_ms`` is None if no delay
    was requested. Only a shrink may have ``immediate_delete``.
    """

    delay_ms: int | None
    immediate_delete: bool = False

    @property
    def policy(self) -> str:
        """Return the reclaim policy."""
        if self.immediate_delete:
            return IMMEDIATE
        return RETENTION if self.delay_ms is None else DRAINED

    @property
    def delay_text(self) -> str | None:
        """Return the requested delay as text, or None if none was requested."""
        return None if self.delay_ms is None else duration_text(self.delay_ms)

    def earliest_after(self, requested_ms: int) -> int:
        """Return the time before which nothing is deleted, for a request at ``requested_ms`` (meaningless for
        ``retention``)."""
        return requested_ms + (self.delay_ms or 0)


@dataclass(frozen=True)
class DeleteTopicPartitions(Reclaims, JsonFields):
    """KIP-694's DeleteTopicPartitionsRecord: the shrink in force for a topic. It is also a part of reports.

    All partitions from the id ``delete_partitions`` on are retired. The reclaim policy of their records is:

    - ``immediate`` if ``immediate_delete`` is set: delete without waiting for the drain;
    - ``retention`` if ``delay_ms`` is None: the topic's own retention deletes the records;
    - else ``drained``: records are deleted once drained, and no earlier than ``delay_ms`` after
      ``create_timestamp_ms``, the time of the admission (wall clock, ms since the epoch).

    The groups of ``accept_state_loss`` keep state per partition (Kafka Streams) and were named in the request. Their
    state for the keys that move to another partition stays behind.

    Attributes:
        delete_partitions: the partition count to keep.
        policy: retention, drained or immediate.
        delay_ms: the requested delay; null if none was requested.
        previous_count: the number of writable partitions before the shrink, which an undo restores.
        accept_state_loss: groups whose loss of state was accepted.
    """

    json_also: ClassVar = ("policy",)

    delete_partitions: int = field(metadata=form(integer))
    delay_ms: int | None = field(metadata=form(optional_int, key="delete_partitions_delay_ms"))
    immediate_delete: bool = field(metadata=form(bool))
    create_timestamp_ms: int = field(metadata=form(integer))
    previous_count: int = field(metadata=form(integer))
    accept_state_loss: tuple[str, ...] = field(default=(), metadata=form(texts, list))

    @property
    def earliest_ms(self) -> int:
        """Return the wall-clock time before which nothing is deleted (meaningless for ``retention``)."""
        return self.earliest_after(self.create_timestamp_ms)


@dataclass(frozen=True)
class Straggler(JsonFields):
    """The first record seen at or after the last broken seal, as the header of its batch describes the record.

    ``producer_id`` and ``producer_epoch`` are -1 for a producer that is not idempotent. If the batch could not be read,
    ``timestamp_ms`` is -1 and the producer is unknown. The record's key is not kept: all clients read the mode log.
    """

    offset: int = field(metadata=form(integer))
    producer_id: int = field(default=-1, metadata=form(integer))
    producer_epoch: int = field(default=-1, metadata=form(integer))
    timestamp_ms: int = field(default=-1, metadata=form(integer))

    @property
    def producer(self) -> str:
        """Return a description of the producer."""
        if self.producer_id >= 0:
            return producer_text(self.producer_id, self.producer_epoch)
        return "an unknown producer" if self.timestamp_ms < 0 else "a producer without an id (not idempotent)"


def producer_text(producer_id: int, epoch: int) -> str:
    """Return the identity of an idempotent producer, in words."""
    return f"producer id {producer_id} epoch {epoch}"


@dataclass(frozen=True)
class RetiredPartition(JsonFields):
    """The state of one partition that takes no writes.

    Attributes:
        replica_state: KIP-694's state of its replicas.
        seal_offset: the end offset up to which the partition is drained (:mod:`modeaware.lifecycle.seal`); None until
            sealed.
        seal_leader_epoch: the leader epoch under which the seal was read, or was seen to be broken.
        drained_by: how many groups proved the drain by a committed offset. Each such offset is at or beyond the seal,
            or no record for the group lies between the offset and the seal. 0 for an empty partition.
        lowest_commit: the lowest committed offset of these groups if that offset is below the seal; else None.
        resume_offset: the offset at which a group without a commit continues once the partition is readable again. It
            is the first broken seal, or a lower end of the log after a truncation. None stands for the seal.
        reason: the code of what delays the partition (see :mod:`modeaware.lifecycle.reasons`), optionally with a group:
            ``"group-lag:billing"``. None if nothing delays it.
        stragglers: the number of seals that a late record broke.
        straggler: the record that broke the last of these seals.
        truncated_to: the lowest end of the log that was ever observed below a seal; None if there was none.
        evacuated_to: in a compacted old topic, the offset up to which records were copied to the new topic.
        read_up_to: in a sealed partition of an old topic, the offset behind the last record that readers are given.
    """

    # A look-up, not a call of the enum: replaying a log with many retired partitions takes a third less CPU time.
    replica_state: ReplicaState = field(
        default=ReplicaState.ONLINE, metadata=form({state.value: state for state in ReplicaState}.__getitem__)
    )
    seal_offset: int | None = field(default=None, metadata=form(optional_int))
    seal_leader_epoch: int | None = field(default=None, metadata=form(optional_int))
    resume_offset: int | None = field(default=None, metadata=form(optional_int))
    drained_by: int = field(default=0, metadata=form(integer))
    lowest_commit: int | None = field(default=None, metadata=form(optional_int))
    reason: str | None = field(default=None, metadata=form(lambda value: value))
    stragglers: int = field(default=0, metadata=form(integer))
    straggler: Straggler | None = field(default=None, metadata=nested(Straggler))
    truncated_to: int | None = field(default=None, metadata=form(optional_int))
    evacuated_to: int | None = field(default=None, metadata=form(optional_int))
    read_up_to: int | None = field(default=None, metadata=form(optional_int))

    @property
    def evacuated_to_seal(self) -> bool:
        """Return whether an evacuation of all records of the partition was proved; the proof need not be repeated."""
        return self.evacuated_to is not None and self.seal_offset is not None and self.evacuated_to >= self.seal_offset

    @property
    def reclaim_offset(self) -> int | None:
        """Return the offset up to which records are deleted once all groups have drained the partition: the seal, but
        never beyond a committed offset (invariant I1).

        A commit may lie below the seal if only control records or aborted records follow the commit. If the log then
        started after the commit, ``auto.offset.reset`` would decide where that group continues.
        """
        if self.seal_offset is None or self.lowest_commit is None:
            return self.seal_offset
        return min(self.seal_offset, self.lowest_commit)


@dataclass(frozen=True)
class OpeningPartition(JsonFields):
    """A new partition, closed to writes until groups have an offset on it.

    Attributes:
        offset: where groups begin to read the partition: 0, or the log start if another tool created the partition.
    """

    offset: int = field(default=0, metadata=form(integer))


@dataclass(frozen=True)
class Replacement(Reclaims, JsonFields):
    """The replacement of an old topic by a new topic. The old topic's record holds the replacement.

    See :mod:`modeaware.lifecycle.replacement` for the phases. Times are wall-clock, in ms since the epoch. A time is
    None until its event.

    Attributes:
        new_topic, num_partitions, replication_factor, configs: the new topic to create, as requested. A factor of -1
            is the brokers' default.
        delay_ms: as in :class:`DeleteTopicPartitions`, for the records of the old topic and the topic itself.
        fence: ``config``: brokers refuse data for the old topic before it is sealed; ``none``: brokers take data, and
            the old topic is sealed once it is quiet.
        pause_before_switch: complete the phases before the switch, then wait.
        keep_name: whether this is one half of a change that keeps the topic's name
            (:mod:`modeaware.lifecycle.keep_name`).
        accept_state_loss: as in :class:`DeleteTopicPartitions`.
        requested_ms: when the replacement was admitted.
        new_topic_id: the new topic's id, or None if it may not exist yet. A topic of another id is not the new topic.
        announced_ms: when clients were first able to see the new topic.
        switched_ms: the switch: when producers began to write to the new topic and no longer to the old one.
        own_configs: config of the fence -> the value that the old topic itself had before the fence, or None if the
            topic had not set the config. Until the values are noted, the whole attribute is None.
        fenced_ms: the time since which every snapshot has shown the fence in force.
        released_ms: the release: when each required group had drained the old topic, and had an offset on every
            partition of the new topic.
        deleting_ms: when a controller began to delete the old topic; None again once something blocks the deletion.
        gone_ms: when the old topic was seen to be gone. The record stays as an alias: the old name points to the new
            topic.
        undone_ms: when the replacement was undone, which deletes the new topic.
        evacuation_epoch: the epoch of the record in which this new topic was set; the evacuation group's name contains
            this epoch. With such an epoch, the old topic is compacted, and is not released before the topic's latest
            values are copied to the new topic. None if nothing is evacuated.
        reason: the code of what holds the replacement up as a whole, as in :class:`RetiredPartition`.
    """

    new_topic: str = field(metadata=form(text))
    num_partitions: int = field(metadata=form(integer))
    requested_ms: int = field(metadata=form(integer))
    replication_factor: int = field(default=-1, metadata=form(integer))
    configs: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=form(_read_texts, dict))
    delay_ms: int | None = field(default=None, metadata=form(optional_int, key="delete_partitions_delay_ms"))
    fence: str = field(default="config", metadata=form(text))
    pause_before_switch: bool = field(default=False, metadata=form(bool))
    keep_name: bool = field(default=False, metadata=form(bool))
    accept_state_loss: tuple[str, ...] = field(default=(), metadata=form(texts, list))
    new_topic_id: str | None = field(default=None, metadata=form(optional_text))
    announced_ms: int | None = field(default=None, metadata=form(optional_int))
    switched_ms: int | None = field(default=None, metadata=form(optional_int))
    own_configs: Mapping[str, str | None] | None = field(
        default=None,
        hash=False,
        metadata=form(
            lambda value: None if value is None else {text(k): optional_text(v) for k, v in value.items()}, dict
        ),
    )
    fenced_ms: int | None = field(default=None, metadata=form(optional_int))
    released_ms: int | None = field(default=None, metadata=form(optional_int))
    deleting_ms: int | None = field(default=None, metadata=form(optional_int))
    gone_ms: int | None = field(default=None, metadata=form(optional_int))
    undone_ms: int | None = field(default=None, metadata=form(optional_int))
    evacuation_epoch: int | None = field(default=None, metadata=form(optional_int))
    reason: str | None = field(default=None, metadata=form(optional_text))

    @property
    def has_fence(self) -> bool:
        """Return whether brokers refuse data before the seal; else the old topic is sealed once it is quiet."""
        return self.fence != "none"


NO_REPLACEMENT = Replacement("", 0, 0)


@dataclass(frozen=True)
class TopicRecord(VersionedRecord):
    """All that the mode log holds about one topic.

    Attributes:
        retired, opening: every partition whose mode is not ReadWrite has an entry in one of the two.
        required_groups: the groups that used the topic, or were registered, when the change was admitted.
        groups_complete: False if the list of groups was incomplete: the first complete list adds the missing groups.
        drained_groups: the groups whose committed offsets have proved the drains of retired partitions, without
            repetitions. None if the record had no room for the names (:mod:`modeaware.lifecycle.record_size`).
        waived: waived group -> the reason. A partition became None, or the old topic was deleted, without waiting for
            the group.
        opening_since_ms, opening_assignments: when the growth in progress began, and its new partitions' replicas.
        replacement: the replacement of this topic, in progress or complete, if there was one.
    """

    KIND = "a topic record"

    topic: str = field(metadata=form(text))
    topic_id: str = field(metadata=form(text))
    epoch: int = field(metadata=form(integer))
    controller_epoch: int = field(metadata=form(integer))
    modes: tuple[PartitionMode, ...] = field(metadata=form(_read_modes, _write_modes))
    deletion: DeleteTopicPartitions | None = field(default=None, metadata=nested(DeleteTopicPartitions))
    retired: Mapping[int, RetiredPartition] = field(
        default_factory=dict, hash=False, metadata=columns(RetiredPartition, MAX_PARTITIONS, required=True)
    )
    required_groups: tuple[str, ...] = field(default=(), metadata=form(texts, sorted, required=True))
    groups_complete: bool = field(default=True, metadata=form(bool))
    drained_groups: tuple[str, ...] | None = field(
        default=(), metadata=form(lambda value: None if value is None else texts(value))
    )
    waived: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=form(_read_waived, _write_waived))
    opening: Mapping[int, OpeningPartition] = field(
        default_factory=dict, hash=False, metadata=columns(OpeningPartition, MAX_PARTITIONS)
    )
    opening_since_ms: int | None = field(default=None, metadata=form(optional_int))
    opening_assignments: tuple[tuple[int, ...], ...] = field(
        default=(),
        metadata=form(
            lambda value: tuple(tuple(map(integer, listed(replicas))) for replicas in listed(value)),
            lambda value: [list(replicas) for replicas in value],
        ),
    )
    replacement: Replacement | None = field(default=None, metadata=nested(Replacement))
    changed_ms: int = field(default=0, metadata=form(integer, required=True))

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Self:
        record = super().from_dict(members)
        if not all(0 <= p < len(record.modes) and not record.modes[p].writable for p in record.closed):
            raise ValueError("a retired or opening partition is ReadWrite, or has no mode")
        return record

    @property
    def closed(self) -> list[int]:
        """Return the partitions that take no writes, ascending."""
        return sorted({*self.retired, *self.opening})

    @property
    def has_replacement(self) -> bool:
        """Return whether the topic is being replaced, or was."""
        return self.replacement is not None

    @property
    def replacing(self) -> Replacement:
        """Return the topic's replacement, or an empty replacement for a topic that was never replaced."""
        return self.replacement or NO_REPLACEMENT

    @property
    def is_alias(self) -> bool:
        """Return whether the topic was replaced and is gone, so that its name points to the new topic alone."""
        return self.replacing.gone_ms is not None

    @property
    def is_second_half(self) -> bool:
        """Return whether this is the interim topic of a change that keeps a name, and its new topic gets that name."""
        replacement = self.replacing
        return replacement.keep_name and is_interim_of(self.topic, replacement.new_topic)

    @property
    def is_first_half(self) -> bool:
        """Return whether the topic has the name that a change keeps, and is replaced by an interim topic."""
        return self.replacing.keep_name and not self.is_second_half

    @property
    def writable_count(self) -> int:
        return sum(mode.writable for mode in self.modes)

    def view(self, moved: Moved = NONE_MOVED) -> TopicView:
        """Return the part of this record that clients need.

        Args:
            moved: the groups whose gate of the new topic is open. A second record has this list
                (:mod:`modeaware.modelog.moved`).
        """
        # Offsets of a topic that is gone are no resume offsets: another topic may have the name now.
        known = {} if self.is_alias else self.retired
        resume = {p: r.seal_offset if r.resume_offset is None else r.resume_offset for p, r in known.items()}
        resume |= {p: opening.offset for p, opening in self.opening.items()}
        done = ReplicaState.DELETION_SUCCESSFUL
        return TopicView(
            topic=self.topic,
            topic_id=self.topic_id,
            version=self.version,
            modes=self.modes,
            resume_offsets={p: offset for p, offset in resume.items() if offset is not None},
            reclaimed=frozenset(p for p, r in known.items() if r.replica_state is done),
            previous_count=None if self.deletion is None else self.deletion.previous_count,
            replaced_by=self._new_topic(moved),
        )

    def _new_topic(self, moved: Moved) -> ReplacedBy | None:
        replacement = self.replacing
        if replacement.new_topic_id is None or replacement.undone_ms is not None:
            return None
        switched = replacement.switched_ms is not None
        return ReplacedBy(
            topic=replacement.new_topic,
            topic_id=replacement.new_topic_id,
            partition_count=replacement.num_partitions,
            switched=switched,
            released=replacement.released_ms is not None,
            gone=replacement.gone_ms is not None,
            read_up_to={p: r.read_up_to for p, r in self.retired.items() if r.read_up_to is not None},
            groups=self._comes_from_the_start(switched=switched),
            groups_complete=self.groups_complete or not switched,
            moved=moved,
        )

    def _comes_from_the_start(self, *, switched: bool) -> frozenset[str]:
        """Return the groups that read the new topic from its start, because they have used the old one.

        If the controller has deleted the old topic, only waived groups do. Every other group had an offset on each
        partition of the new topic by then. If such a group now lacks offsets there, it was deleted or reset later, and
        begins anew.
        """
        groups = frozenset(self.required_groups if switched else ())
        return groups.intersection(self.waived) if self.is_alias and self.replacing.deleting_ms is not None else groups

    def stamped(self, controller_epoch: int, now_ms: int) -> TopicRecord:
        """Return the next record of this topic: epoch + 1, under the given controller epoch."""
        return replace(self, epoch=self.epoch + 1, controller_epoch=controller_epoch, changed_ms=now_ms)


class Replaced(NamedTuple):
    """The record of an old topic, and the replacement in the record."""

    record: TopicRecord
    replacement: Replacement

    def changed(self, **changes: Any) -> TopicRecord:
        """Return the record with the fields ``changes`` of the replacement changed."""
        return replace(self.record, replacement=replace(self.replacement, **changes))


def replaced(records: Iterable[TopicRecord]) -> Iterator[Replaced]:
    """Yield the records of topics whose replacement is in progress or complete."""
    return (Replaced(record, record.replacing) for record in records if record.has_replacement)


@dataclass(frozen=True)
class ClaimRecord(JsonRecord):
    """Names the active controller.

    Attributes:
        controller_epoch: higher than in every earlier claim, except that a renewed claim (another generation) keeps
            the epoch.
        address: the controller's listener, ``host:port``; None when the controller has stopped, or has no listener.
        controller_id: the controller's name. Its listener returns the same name, so that a command reaches the
            controller that claimed, or no controller.
        host: the controller's host: a loopback address is valid on that host only.
        security_protocol: the protocol of the listener, as a value of ``security.protocol``.
        generation: the generation of the election's group in which the controller leads. Each generation has its own
            claim. :data:`UNKNOWN_GENERATION` if the generation is unknown.
        pages: ``host:port`` of the controller's status page; None when the controller has stopped, or serves no page.
    """

    KIND = "a claim record"

    controller_epoch: int = field(metadata=form(integer))
    address: str | None = field(metadata=form(optional_text))
    controller_id: str = field(metadata=form(text))
    claimed_ms: int = field(default=0, metadata=form(integer, required=True))
    host: str = field(default="", metadata=form(text, required=True))
    security_protocol: str = field(default="PLAINTEXT", metadata=form(text, required=True))
    generation: int = field(default=UNKNOWN_GENERATION, metadata=form(integer))
    pages: str | None = field(default=None, metadata=form(optional_text))


def _read_policy(value: Any) -> str:
    if value not in UNDER_REPLICATED_CREATION:
        raise ValueError(f"no such policy: {value!r}")
    return text(value)


def _read_brokers(value: Any) -> Mapping[int, str | None]:
    if len(value) > MAX_BROKERS:
        raise ValueError(f"{len(value)} brokers; at most {MAX_BROKERS} are allowed")
    return MappingProxyType({integer(broker["id"]): optional_text(broker.get("rack")) for broker in listed(value)})


def _write_brokers(brokers: Mapping[int, str | None]) -> list[dict[str, Any]]:
    return [{"id": node_id, "rack": rack} for node_id, rack in sorted(brokers.items())]


@dataclass(frozen=True)
class ObservedBrokersRecord(VersionedRecord):
    """The brokers that were ever observed, including brokers that are down (KIP-409's ``/brokers/observed_ids``), and
    the policy for creating topics while brokers are down (``modeaware.under.replicated.creation``).

    The active controller writes the record. Our AdminClient reads it when a creation requests a minimum of live
    replicas. Other clients ignore it.

    Attributes:
        policy: ``disabled``, ``enabled`` or ``enabled_prefer_observed``.
        brokers: broker id -> its rack, or None.
    """

    KIND = "a record of observed brokers"

    policy: str = field(default=DISABLED, metadata=form(_read_policy, required=True))
    brokers: Mapping[int, str | None] = field(
        default_factory=lambda: MappingProxyType({}), metadata=form(_read_brokers, _write_brokers, required=True)
    )
    controller_epoch: int = field(default=0, metadata=form(integer, required=True))
    epoch: int = field(default=-1, metadata=form(integer, required=True))
