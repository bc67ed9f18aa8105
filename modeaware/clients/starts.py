"""Where a consumer starts to read. Every start is decided once, as an offset, when the partition is assigned.

``auto.offset.reset`` is resolved at that moment, and does not decide later. Otherwise ``latest`` could skip records: a
partition that has delivered nothing, and is assigned again, would start at its new end. (If brokers do not return a
start in time, librdkafka decides: :mod:`.member`.) :func:`start_offset` is the rule. The start is the first of these
offsets that exists:

1. the group's committed offset;
2. if ``latest`` would skip records, the *resume offset*. For a retired or new partition, a view has this offset
   (``TopicView.resume_offsets``), and :meth:`Starts.remember` keeps it after the partition takes writes again. The
   resume offset is 0 for a topic that is new to the group: the topic was created again while this consumer lived, or
   replaces a topic of the group;
3. the log start or the log end, as ``auto.offset.reset`` names it.

On a topic with modes and on a new topic, an offset below the brokers' log start is raised to the log start: else
``auto.offset.reset`` would replace the offset.

A topic that was deleted and created again under its name is another topic: resume offsets, positions and commits of the
deleted topic do not count (invariant I8). The recreation is proved if the view in force has another topic id, or if
the cluster has returned another id and the view was set aside. A topic's record that was removed from the mode log
proves nothing, because the topic may still exist: then the cluster's id decides.

librdkafka commits only what was delivered, and so do many applications. So a partition that delivers nothing has no
commit. The controller would wait for a commit for ever, and ``latest`` would decide again for the next owner. Therefore
consumers commit the start offsets of idle partitions (:meth:`Starts.idle`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from modeaware.callouts import InnerLock, get_logger
from modeaware.chain import old_topics, topics_before
from modeaware.topic_view import TopicView
from modeaware.views.source import VERIFY_TIMEOUT_S, Views

logger = get_logger(__name__)

Key = tuple[str, int]
"""A topic and a partition; kafka-python's ``TopicPartition`` is such a tuple."""

EARLIEST = frozenset({"smallest", "earliest", "beginning"})
LATEST = frozenset({"largest", "latest", "end"})
LOG_START = -2
"""The logical offset of a log's start, in librdkafka and in Kafka's protocol."""


class Committed(NamedTuple):
    """The offset and metadata that a group has committed on a partition."""

    offset: int
    metadata: str = ""


class Start(NamedTuple):
    """The start offset of a partition.

    Attributes:
        offset: the start, or None if the client library decides it.
        committed: the group's commit, or None if the group has none.
    """

    offset: int | None
    committed: Committed | None = None


def start_offset(committed: int | None, resume: int | None, named: int | None, log_start: int | None) -> int | None:
    """Return where to start, or None if no offset is known.

    Args:
        committed: the group's committed offset, if there is one.
        resume: the resume offset, or None if none applies.
        named: the log start or the log end, as ``auto.offset.reset`` names it; None if the setting names neither.
        log_start: the partition's log start.
    """
    start = committed
    if start is None and resume is not None:
        # An end below the resume offset: the log was truncated, or another topic has the name now.
        start = resume if named is None else min(resume, named)
    if start is None:
        return named
    return start if log_start is None else max(start, log_start)


def start_on_new_topic(view: TopicView, group: str, *, has_used: bool = False) -> int | None:
    """Return where a group without a commit begins to read the new topic that replaces the topic of ``view``. Return
    None if ``auto.offset.reset`` decides.

    A group that begins before the release starts at 0, too. If the fence is lifted (brokers accept records for the old
    topic again), the group may still get records of the old topic. By then it must not have skipped newer records of
    the new topic.

    Args:
        has_used: the group has offsets on the old topic or on an earlier topic of the chain: the group was away for
            long, or its offsets were set. So the group continues on the new topic, and must skip no record there.
    """
    new_topic = view.replaced_by
    if new_topic is None:
        return None
    is_noted = group in new_topic.groups or not new_topic.groups_complete
    return 0 if is_noted or has_used or not new_topic.released else None


class BrokerOffsets(Protocol):
    """Offsets that a client library requests from brokers. Partitions without an answer are left out."""

    def committed(self, keys: Collection[Key]) -> Mapping[Key, Committed | None]:
        """Return the group's commits, with None for a partition without a commit."""

    def committed_elsewhere(self, keys: Collection[Key]) -> Mapping[Key, int | None]:
        """Return the group's committed offsets on topics that the consumer does not, and perhaps may not, read."""

    def log_starts(self, keys: Collection[Key]) -> Mapping[Key, int]: ...

    def log_ends(self, keys: Collection[Key]) -> Mapping[Key, int]: ...


class Found(NamedTuple):
    """What :meth:`Starts.find` found.

    Attributes:
        starts: the starts that are decided. One without an offset is left to the client library.
        unknown: partitions about which an answer is missing (they may have no leader).
    """

    starts: dict[Key, Start]
    unknown: set[Key]


class _Started(NamedTuple):
    offset: int | None = None
    topic_id: str | None = None
    old_topic: TopicView | None = None


class Starts:
    """Finds start offsets, and remembers where partitions started. Any thread may call :meth:`remember`; all other
    methods belong to the polling thread.

    Args:
        views: the client's share.
        reset: ``auto.offset.reset``.
        group: the consumer's group.

    Attributes:
        has_commit: partitions on which the group is known to have a commit.
    """

    def __init__(self, views: Views, reset: str, group: str = "") -> None:
        self._views = views
        self._group = group
        self._old_topics: Mapping[str, TopicView] = {}
        self.earliest = reset.lower() in EARLIEST
        self.latest = reset.lower() in LATEST
        self._lock = InnerLock()
        self._resume: dict[Key, tuple[str | None, int]] = {}
        self._ids: dict[str, str | None] = {}  # topics with partitions that were assigned -> the last known id
        self._created_again: dict[str, set[int]] = {}  # recreated topics -> their partitions that started since
        self._started: dict[Key, _Started] = {}
        self._told: set[str] = set()
        self.has_commit: set[Key] = set()

    def remember(self, view: TopicView) -> None:
        """Keep the resume offsets of ``view``, because a later view may no longer have them (any thread).

        The lowest offset counts: a partition may be revived and retired again before this consumer returns to it.
        """
        with self._lock:
            for partition, offset in view.resume_offsets.items():
                topic_id, known = self._resume.get((view.topic, partition), (None, offset))
                oldest = min(known, offset) if topic_id == view.topic_id else offset
                self._resume[view.topic, partition] = view.topic_id, oldest
            if view.topic in self._ids and self._ids[view.topic] is None:  # assigned before the topic had a record
                self._ids[view.topic] = view.topic_id

    def assigning(self, topics: Iterable[str]) -> None:
        """Note that partitions of ``topics`` are being assigned. Their views have been verified as far as possible."""
        self._old_topics = old_topics(self._views.views())
        for topic in topics:
            view = self._views.view(topic)
            self.remember(view)
            if self._is_another(topic, self._ids.get(topic)):
                with self._lock:
                    self._resume = {
                        key: kept for key, kept in self._resume.items() if key[0] != topic or kept[0] == view.topic_id
                    }
                self.has_commit = {key for key in self.has_commit if key[0] != topic}
                self._created_again[topic] = set()
                self._ids[topic] = view.topic_id
            else:
                self._ids[topic] = view.topic_id or self._ids.get(topic)

    def _is_another(self, topic: str, topic_id: str | None) -> bool:
        """Return whether the name ``topic`` now belongs to another topic than the one with ``topic_id``."""
        view = self._views.view(topic)
        if topic_id is None or view.topic_id == topic_id:
            return False
        if view.topic_id is not None or self._views.recorded((topic,)):
            return True
        return self._views.live_id(topic, VERIFY_TIMEOUT_S) not in (None, topic_id)  # the record was removed

    def find(
        self, keys: Iterable[Key], offsets: BrokerOffsets, *, group: bool = True, ask_again: bool = False
    ) -> Found:
        """Find the start offsets of partitions for which the application has set none.

        Args:
            offsets: requests offsets from brokers.
            group: whether the consumer has a group, whose commits count.
            ask_again: a partition waits until brokers have returned all its offsets. If false, those returned decide.
        """
        parts = set(keys)
        self.assigning({topic for topic, _ in parts})
        commits: Mapping[Key, Committed | None] = offsets.committed(parts) if group else dict.fromkeys(parts)
        committed = {key: commit.offset for key, commit in commits.items() if commit is not None}
        new = commits.keys() - committed.keys()
        if group:
            self._log_deleted({topic for topic, _ in new})
        used = self._used_before({topic for topic, _ in new}, offsets) if group else ()
        resumed = {
            key: offset for key in new if (offset := self._resume_offset(key, has_used=key[0] in used)) is not None
        }
        to_name = new if self.earliest or self.latest else set()
        behind = {key for key, offset in (committed | resumed).items() if self.may_be_behind(key, offset)}
        named: Mapping[Key, int] = {}
        if to_name:
            named = offsets.log_starts(to_name) if self.earliest else offsets.log_ends(to_name)
        log_starts = offsets.log_starts(behind) if behind else {}
        unknown = (parts - commits.keys()) | (to_name - named.keys()) | (behind - log_starts.keys())
        starts = {}
        for key in commits.keys() - unknown if ask_again else commits:
            at = start_offset(committed.get(key), resumed.get(key), named.get(key), log_starts.get(key))
            starts[key] = Start(at, commits[key])
        self.has_commit.update(committed)
        self.known(parts - unknown if ask_again else parts)
        return Found(starts, unknown)

    def may_be_behind(self, key: Key, offset: int) -> bool:
        """Return whether ``offset`` may lie below the log start although retention has deleted no unread record: the
        controller has deleted the records there, or only a transaction's marker lies between. ``auto.offset.reset``
        must not decide then. If retention has deleted records and ``auto.offset.reset`` names an error, the consumer
        gets this error.
        """
        view = self._views.view(key[0])
        marked = view.topic_id is not None or key[0] in self._created_again
        reclaimed_to = view.resume_offsets.get(key[1], 0) if key[1] in view.reclaimed else 0
        return offset >= 0 and ((self.latest and marked) or key[0] in self._old_topics or offset < reclaimed_to)

    def _used_before(self, topics: Iterable[str], offsets: BrokerOffsets) -> set[str]:
        """Return the new topics among ``topics`` in whose chain the group has offsets on an earlier topic. A new topic
        is left out if :func:`start_on_new_topic` decides without these offsets. Unknown offsets count as use: it is
        safer to read records again than to skip them."""
        before: dict[str, set[Key]] = {}
        for topic in () if self.earliest else topics:
            view = self._old_topics.get(topic)
            if view is None or start_on_new_topic(view, self._group) is not None:
                continue
            for earlier in topics_before(topic, self._old_topics):
                if not earlier.is_alias:
                    before.setdefault(topic, set()).update((earlier.topic, p) for p in range(len(earlier.modes)))
        answer = offsets.committed_elsewhere(set().union(*before.values())) if before else {}
        return {topic for topic, keys in before.items() if any(answer.get(key, 0) is not None for key in keys)}

    def _resume_offset(self, key: Key, *, has_used: bool) -> int | None:
        topic, partition = key
        view = self._views.view(topic)
        if self.earliest:
            return None
        old_topic = self._old_topics.get(topic)
        start = None if old_topic is None else start_on_new_topic(old_topic, self._group, has_used=has_used)
        if start is not None:
            return start
        if not self.latest and view.is_readable(partition):
            return None
        if topic in self._created_again and partition not in self._created_again[topic]:
            return 0
        with self._lock:
            topic_id, remembered = self._resume.get(key, (None, None))
        known = [view.resume_offsets.get(partition), remembered if view.topic_id == topic_id else None]
        return min((offset for offset in known if offset is not None), default=None)

    def _log_deleted(self, topics: Collection[str]) -> None:
        """Log once for each of ``topics`` whose old topic is deleted: its unread records are lost to the group."""
        for topic in sorted(self._old_topics.keys() & set(topics) - self._told):
            before = self._old_topics[topic]
            if before.replaced_by is not None and before.replaced_by.gone:
                self._told.add(topic)
                logger.log(
                    logging.WARNING if self._group in before.replaced_by.groups else logging.INFO,
                    "group %r starts at topic %r, which replaced the deleted topic %r; records of the deleted topic "
                    "that the group had not read are lost to the group",
                    *(self._group, topic, before.topic),
                )

    def known(self, keys: Iterable[Key]) -> None:
        """Note that ``keys`` have a start, which was found, or set by the application.

        A resume offset that the view no longer has counts for one assignment only, so it is forgotten now.
        """
        with self._lock:
            for topic, partition in keys:
                if partition not in self._views.view(topic).resume_offsets:
                    self._resume.pop((topic, partition), None)
                if topic in self._created_again:
                    self._created_again[topic].add(partition)

    # Partitions of this assignment

    def started(self, key: Key, offset: int | None) -> None:
        """Note that ``key`` starts at ``offset``. With None or a negative offset, the client library decides."""
        before = self._old_topics.get(key[0])
        old_topic = None if before is None else self._views.view(before.topic)
        self._started[key] = _Started(offset, self._views.view(key[0]).topic_id, old_topic)

    def hidden(self, key: Key) -> None:
        """Note that ``key`` is hidden. The view that hides it has the topic's id, which may have been unknown at the
        start."""
        before = self._started.get(key, _Started())
        if before.topic_id is None:
            self._started[key] = before._replace(topic_id=self._views.view(key[0]).topic_id)

    def forget(self, keys: Iterable[Key]) -> None:
        """Note that ``keys`` are no longer assigned."""
        for key in keys:
            self._started.pop(key, None)
            self.has_commit.discard(key)

    def keep(self, keys: Collection[Key]) -> None:
        """Note that ``keys`` are assigned, and no others."""
        self.forget((self._started.keys() | self.has_commit).difference(keys))

    def first_of(self, key: Key) -> int | None:
        """Return where ``key`` is read if it has delivered nothing: at its start. Return None if the start is the log
        end, or is counted from there: the client library has resolved it, and the log end may have moved since."""
        offset = self.start_of(key)
        return offset if offset is None or offset >= 0 or offset == LOG_START else None

    def start_of(self, key: Key) -> int | None:
        """Return where ``key`` started, as it was given to :meth:`started`."""
        return self._started.get(key, _Started()).offset

    def is_of_another_topic(self, key: Key) -> bool:
        """Return whether the topic was deleted and created again since ``key`` started. May request the topic's id.

        A new topic may have no record. If the new topic was created again, the old topic's record has the other id.
        """
        start = self._started.get(key, _Started())
        if (before := start.old_topic) is not None:
            was, new_topic = before.replaced_by, self._views.view(before.topic).replaced_by
            if (
                was is not None
                and new_topic is not None
                and new_topic.topic == was.topic
                and new_topic.topic_id != was.topic_id
            ):
                return True
        return self._is_another(key[0], start.topic_id)

    def idle(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Return the start offsets of those of ``keys`` that have no commit. The member releases ``keys``, and commits
        the start offsets of those that delivered nothing.

        The result has only partitions of topics with modes, and only with ``latest``, because ``latest`` would decide
        again for their next owner.
        """
        if not self.latest:
            return {}
        starts = {
            key: self._started[key].offset for key in set(keys) & self._started.keys() if key not in self.has_commit
        }
        topics = {topic for topic, _ in starts}
        with_modes = self._views.recorded(topics) | (topics & self._created_again.keys())
        return {
            key: start
            for key, start in starts.items()
            if start is not None
            and start >= 0
            and self._started[key].topic_id in (None, self._views.view(key[0]).topic_id)
            and key[0] in with_modes
        }
