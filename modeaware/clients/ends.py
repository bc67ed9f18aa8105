"""Partitions that take no more writes: a member reports how far the group has read them, and shows a revocation.

The *end* of a partition is the offset behind its last record. Only partitions that take no more writes have one: the
sealed partitions of an old topic, and the retired partitions of a shrunk topic.

* *The group's progress is reported* until the controller opens the gate of the new topic for the group. In each
  assignment, the member sends one commit with a note for each end (:mod:`modeaware.notes`). With automatic commits, the
  library first commits the stored offsets, because the library's later commit would overwrite the note. If a retired
  partition delivered nothing, the member commits its start, because the drain waits for a commit. If the application
  commits with transactions, the member commits only in two cases: the group has committed the end, or has no commit on
  a partition that delivered nothing. Elsewhere, the member's commit would override a transaction's offsets.
* *A revocation is shown* once for each old topic or retired partition. It is shown if the application itself decides
  when to commit, got all records to the ends, and has not committed all. The application sees its partitions revoked,
  commits, and gets the partitions again from the committed offsets, as in a rebalance. Otherwise an application that
  commits every N records would hold up its group, or the drain of a shrunk topic, for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from modeaware.clients.actions import Commit, CommitStored, Committed
from modeaware.clients.partition import Committing, Partition, State, Step
from modeaware.clients.starts import Key
from modeaware.clients.subscription import Reading
from modeaware.notes import Note, kind_of
from modeaware.topic_view import TopicView

SHORT_S = 1.0
"""How long an application that got all records may take to commit before a revocation is shown. The time begins anew
after each assignment, because a group may rejoin in several rounds."""
TRIES = 3
"""How many times a revocation is shown, at most, if the application's callback raises each time."""

_Subject = tuple[str, int, int]


class Ended(NamedTuple):
    """A partition that the application holds, with its end.

    Attributes:
        is_old: the topic is an old topic whose gate is closed for the group, so the group has to report on it.
        is_final: no (further) revocation will be shown to the application.
    """

    key: Key
    partition: Partition
    end: int
    is_old: bool
    paused: bool
    is_final: bool


class Ends:
    """The ends of the partitions of one member.

    Args:
        partitions, paused: the member's partitions, and those that the application has paused.

    Attributes:
        sees_revocations: the application has a callback for revocations.
    """

    def __init__(self, partitions: Mapping[Key, Partition], paused: Set[Key]) -> None:
        self._partitions = partitions
        self._paused = paused
        self._shown: set[_Subject] = set()  # the subjects of the revocations that were shown
        self._raised: Counter[_Subject] = Counter()
        self._short_s: dict[str, float] = {}
        self.sees_revocations = False

    def ended(self, reading: Reading, how: Committing) -> list[Ended]:
        """Return the partitions that the application holds and that have an end."""
        may_show = self._may_show(how)
        ended = []
        for key, partition in self._partitions.items():
            topic = reading.topic(key[0])
            if not topic.ends or partition.state is not State.SHOWN or partition.step is not Step.DONE:
                continue
            if (end := topic.ends.get(key[1])) is not None:
                is_due = may_show and (topic.awaits_report or topic.view.replaced_by is None)
                is_final = not is_due or _subject(topic.view, key, end) in self._shown
                ended.append(Ended(key, partition, end, topic.awaits_report, key in self._paused, is_final))
        return ended

    def _may_show(self, how: Committing) -> bool:
        """Return whether a revocation may be shown, so that the application commits."""
        return self.sees_revocations and how.may_be_short and not how.transactional

    def is_watched(self, reading: Reading, key: Key, how: Committing) -> bool:
        """Return whether the position or the commits of a partition still have to be observed."""
        topic, partition = reading.topic(key[0]), self._partitions[key]
        end = topic.ends.get(key[1])
        if end is None or reading.reader.has_open_gate(topic.view):
            return False
        if not partition.is_handled(end, paused=key in self._paused):
            return True
        if not reading.reader.group:
            return False
        if not topic.awaits_report and not self._may_show(how):
            return False
        at = partition.committed
        is_reported = at is not None and at.offset >= end
        return not is_reported or (
            topic.awaits_report and kind_of(at.metadata if at else "") not in (Note.READ, Note.FOREIGN)
        )

    def unknown(self, ended: Iterable[Ended], how: Committing) -> list[Key]:
        """Return the partitions whose commit is unknown and needed: the partition is at its end, or its position is
        unknown, too."""
        return [
            entry.key
            for entry in ended
            if not entry.partition.knows_commit
            and (entry.is_old or not entry.is_final)
            and not entry.partition.needs_flush(entry.end, how, paused=entry.paused)
            and entry.partition.may_be_at(entry.end)
        ]

    def to_report(self, ended: Iterable[Ended], how: Committing) -> Commit | CommitStored | None:
        """Return the next commit that reports progress, or first a commit of the stored offsets if one is needed."""
        notes: dict[Key, Committed] = {}
        for entry in ended:
            may_flush = entry.is_old or not entry.is_final
            if may_flush and entry.partition.needs_flush(entry.end, how, paused=entry.paused):
                return CommitStored()
            if entry.is_old:
                note = entry.partition.note(entry.end, how, paused=entry.paused, is_final=entry.is_final)
            else:
                note = entry.partition.idle_start(entry.end)
            if note is not None:
                notes[entry.key] = note
        return Commit(notes) if notes else None

    def to_revoke(self, reading: Reading, ended: Iterable[Ended], now_s: float) -> tuple[set[Key], float | None]:
        """Return the partitions to show as revoked now, and the time at which more may be due. The partitions of a
        topic that have an end are shown together."""
        short = self._short(reading, ended)
        self._short_s = {topic: self._short_s.get(topic, now_s + SHORT_S) for topic in short}
        due = {topic for topic, at_s in self._short_s.items() if at_s <= now_s}
        later_s = min((at_s for topic, at_s in self._short_s.items() if topic not in due), default=None)
        return {entry.key for entry in ended if entry.key[0] in due}, later_s

    def show(self, reading: Reading, keys: Iterable[Key]) -> None:
        """Note that ``keys`` are being shown as revoked."""
        self._shown |= _subjects(reading, keys)

    def repeat(self, reading: Reading, keys: Iterable[Key]) -> None:
        """Note that the application's callback raised when ``keys`` were shown as revoked."""
        subjects = _subjects(reading, keys)
        self._raised.update(subjects)
        self._shown -= {subject for subject in subjects if self._raised[subject] < TRIES}

    def assigned(self) -> None:
        """Note that the group has given this member an assignment."""
        self._short_s.clear()

    def _short(self, reading: Reading, ended: Iterable[Ended]) -> set[str]:
        """Return the topics of which the application got all records to the ends, but has not committed all."""
        may_be = {entry.key[0] for entry in ended if not entry.is_final and entry.partition.is_short(entry.end)}
        if not may_be:
            return may_be
        done = {entry.key for entry in ended if entry.partition.is_handled(entry.end, paused=entry.paused)}
        busy = {entry.key[0] for entry in ended if entry.key not in done}
        busy |= {key[0] for key in self._partitions if key not in done and reading.view(key[0]).replaced_by is not None}
        return may_be - busy


def _subjects(reading: Reading, keys: Iterable[Key]) -> set[_Subject]:
    ends = {key: reading.topic(key[0]).ends.get(key[1]) for key in keys}
    return {_subject(reading.view(key[0]), key, end) for key, end in ends.items() if end is not None}


def _subject(view: TopicView, key: Key, end: int) -> _Subject:
    """Return the subject of a shown revocation: an old topic as a whole, or a retired partition with its end."""
    topic = view.topic_id or key[0]
    return (topic, -1, -1) if view.replaced_by is not None else (topic, key[1], end)
