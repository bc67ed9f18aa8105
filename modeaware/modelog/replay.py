"""The fold over the mode log: from its records, in order, to the current state. Pure: no IO, no clock.

Each value is complete, so the fold needs only the latest record of each key: ``fold(compact(log)) == fold(log)``. A
repeated record changes nothing. Versions only rise (invariant I4), and records that a replaced controller appended
after a later claim do not count (invariant I5).
"""

from __future__ import annotations

from collections.abc import Iterable

from modeaware.callouts import get_logger
from modeaware.errors import NewerRecord, RecordError
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRulesRecord
from modeaware.modelog.json_form import VersionedRecord
from modeaware.modelog.moved import MovedRecord, moved_key, topic_id_of
from modeaware.modelog.records import (
    CLAIM_KEY,
    OBSERVED_BROKERS_KEY,
    ClaimRecord,
    ObservedBrokersRecord,
    TopicRecord,
)
from modeaware.topic_view import NONE_MOVED, Moved, TopicView

logger = get_logger(__name__)

MAX_KEY_BYTES = 1_000
"""The longest key that is read. The keys of mode records are below 100 bytes."""
MAX_REMEMBERED_KEYS = 1_000
"""The most unreadable keys that are remembered: malformed records must fill neither memory nor the program's log."""


class Replay:
    """The contents of the mode log, up to the last applied record. Not thread-safe: its owner serialises the calls.

    Attributes:
        records: topic id -> the latest record of that topic.
        moved: id of an old topic -> the latest record of the groups whose gate of its new topic is open.
        claim: the claim of the latest controller, or None if no claim was read.
        group_rules: the operator's rules about groups, if there are any.
        observed_brokers: the brokers that were ever seen, or None if no controller has recorded them.
        rejected: how many records were malformed, outdated, or of a replaced controller.
        removed: the ids of topics whose latest record is a tombstone.
        newer: the keys whose latest record was written for a newer reader.
    """

    def __init__(self) -> None:
        self.records: dict[str, TopicRecord] = {}
        self.moved: dict[str, MovedRecord] = {}
        self.claim: ClaimRecord | None = None
        self.group_rules: GroupRulesRecord | None = None
        self.observed_brokers: ObservedBrokersRecord | None = None
        self.rejected = 0
        self.removed: set[str] = set()
        self.newer: set[str] = set()
        self._ids: dict[str, list[str]] = {}  # name -> ids of topics of that name, in the order of application
        self._unreadable: dict[str, str] = {}  # key -> the topic's name, or the key if the record has none
        self._logged: set[str] = set()

    def apply(self, key: str | bytes | None, value: bytes | None) -> frozenset[str]:
        """Apply the next record of the log (UTF-8 key; a value of None is a tombstone).

        A record changes nothing if it cannot be read, is older than the record held for its key, or is of a replaced
        controller. Such a record is counted, and the program's log has a warning, once per key.

        Returns:
            The names of the topics whose record may have changed: usually one; none for a claim or a rejected record.
        """
        try:
            name = _key_text(key)
            changed: frozenset[str] = frozenset()
            if name == CLAIM_KEY:
                self._apply_claim(value)
            elif name == GROUP_RULES_KEY:
                self._apply_group_rules(value)
            elif name == OBSERVED_BROKERS_KEY:
                self._apply_observed_brokers(value)
            elif (topic_id := topic_id_of(name)) is not None:
                changed = self._apply_moved(topic_id, value)
            else:
                changed = self._apply_topic(name, value)
        except RecordError as error:
            self._reject(key, error)
            return frozenset()
        self._unreadable.pop(name, None)
        self.newer.discard(name)
        return changed

    def record(self, topic: str) -> TopicRecord | None:
        """Return the record of the topic of that name. If several topic ids have the name, the last one written."""
        records = self.records_of(topic)
        return records[-1] if records else None

    def records_of(self, topic: str) -> list[TopicRecord]:
        """Return the records of all topic ids that have, or had, that name, in the order of their last writes."""
        return [self.records[topic_id] for topic_id in self._ids.get(topic, ())]

    def view_of(self, record: TopicRecord) -> TopicView:
        """Return the clients' view of the topic with this record."""
        return record.view(self.moved_of(record.topic_id))

    def moved_of(self, topic_id: str) -> Moved:
        """Return the groups whose gate of the new topic is open, by the old topic's id."""
        record = self.moved.get(topic_id)
        return NONE_MOVED if record is None else record.moved

    @property
    def topics(self) -> Iterable[str]:
        """The names of the topics that have a record."""
        return self._ids.keys()

    @property
    def unreadable(self) -> list[str]:
        """Return the topics whose latest record was rejected, sorted. Where the name is unknown, return the key."""
        return sorted(set(self._unreadable.values()))

    def is_unreadable(self, key: str) -> bool:
        """Return whether the latest record under this key was rejected: the current state is unknown."""
        return key in self._unreadable

    def _apply_claim(self, value: bytes | None) -> None:
        if value is None:
            raise RecordError("mode log: a tombstone for the claim; a claim cannot be deleted")
        claim = ClaimRecord.from_json(value)
        if self.claim is not None and claim.controller_epoch < self.claim.controller_epoch:
            raise RecordError(
                f"mode log: a claim of controller epoch {claim.controller_epoch} came after one of epoch "
                f"{self.claim.controller_epoch}"
            )
        self.claim = claim

    def _apply_group_rules(self, value: bytes | None) -> None:
        rules = None if value is None else GroupRulesRecord.from_json(value)
        if rules is not None:
            self._refuse_replaced(rules.controller_epoch, "the group rules")
            _refuse_older(rules, self.group_rules, "the group rules")
        self.group_rules = rules

    def _apply_observed_brokers(self, value: bytes | None) -> None:
        observed = None if value is None else ObservedBrokersRecord.from_json(value)
        if observed is not None:
            self._refuse_replaced(observed.controller_epoch, "the observed brokers")
            _refuse_older(observed, self.observed_brokers, "the observed brokers")
        self.observed_brokers = observed

    def _apply_moved(self, topic_id: str, value: bytes | None) -> frozenset[str]:
        if value is None:
            self.moved.pop(topic_id, None)
        else:
            record = MovedRecord.from_json(value)
            if record.topic_id != topic_id:
                key = moved_key(topic_id)
                raise RecordError(f"mode log: the record with the key {key!r} is about topic id {record.topic_id!r}")
            what = f"the groups that moved from topic id {topic_id!r}"
            self._refuse_replaced(record.controller_epoch, what)
            _refuse_older(record, self.moved.get(topic_id), what)
            self.moved[topic_id] = record
        held = self.records.get(topic_id)  # compaction may leave this record before the topic's own
        return frozenset() if held is None else frozenset({held.topic})

    def _refuse_replaced(self, controller_epoch: int, what: str) -> None:
        if self.claim is not None and controller_epoch < self.claim.controller_epoch:
            raise RecordError(
                f"mode log: a record of {what} was written by controller epoch {controller_epoch} "
                f"after epoch {self.claim.controller_epoch} had taken over"
            )

    def _apply_topic(self, topic_id: str, value: bytes | None) -> frozenset[str]:
        held = self.records.get(topic_id)
        if value is None:
            self.removed.add(topic_id)
            return self._forget(topic_id)
        record = TopicRecord.from_json(value)
        if record.topic_id != topic_id:
            raise RecordError(f"mode log: the record with the key {topic_id!r} is about topic id {record.topic_id!r}")
        self._refuse_replaced(record.controller_epoch, repr(record.topic))
        _refuse_older(record, held, repr(record.topic))
        # A record of the held version is a duplicate, but is applied: compaction keeps the last copy, and the position
        # of that copy decides which of two topics of one name was written last.
        changed = self._forget(topic_id)
        self.removed.discard(topic_id)
        self.records[topic_id] = record
        self._ids.setdefault(record.topic, []).append(topic_id)
        return changed | {record.topic}

    def _forget(self, topic_id: str) -> frozenset[str]:
        held = self.records.pop(topic_id, None)
        if held is None:
            return frozenset()
        ids = self._ids[held.topic]
        ids.remove(topic_id)
        if not ids:
            del self._ids[held.topic]
        return frozenset({held.topic})

    def _reject(self, key: str | bytes | None, error: RecordError) -> None:
        self.rejected += 1
        shortened = None if key is None else key[:MAX_KEY_BYTES]
        name = shortened.decode(errors="backslashreplace") if isinstance(shortened, bytes) else str(shortened)
        held = self.records.get(topic_id_of(name) or name)
        if isinstance(error, NewerRecord):
            self.newer.add(name)
        in_use = held is not None or name in (CLAIM_KEY, GROUP_RULES_KEY, OBSERVED_BROKERS_KEY)
        if in_use or len(self._unreadable) < MAX_REMEMBERED_KEYS:
            self._unreadable[name] = held.topic if held is not None else error.topic or name
        if name not in self._logged and len(self._logged) < MAX_REMEMBERED_KEYS:
            self._logged.add(name)
            logger.warning("%s (key %.80r); %s", error, name, "the last one stays in force" if held else "ignored")


def _refuse_older(record: VersionedRecord, held: VersionedRecord | None, what: str) -> None:
    if held is not None and record.version < held.version:
        raise RecordError(f"mode log: a record of {what} has version {record.version} and comes after {held.version}")


def _key_text(key: str | bytes | None) -> str:
    if key is None:
        raise RecordError("mode log: a record without a key")
    if len(key) > MAX_KEY_BYTES:
        raise RecordError(f"mode log: a key of {len(key)} bytes; at most {MAX_KEY_BYTES} are read")
    if isinstance(key, str):
        return key
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"mode log: a key that is not UTF-8 ({error})") from error
