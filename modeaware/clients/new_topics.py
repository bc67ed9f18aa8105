"""Start offsets that a member commits on a new topic, once the topic's gate is open for the member's group.

The old topic is kept until the group has a commit on every partition of the new topic. But a client library commits
nothing on a partition that delivered nothing. So each member commits the start offsets of its own partitions, with a
note (:data:`~modeaware.notes.OPENED`). If a partition has no commit after :data:`UNCOMMITTED_S`, any other member
commits the start offset. Right before, this member requests the committed offsets again, so that its commit does not
overwrite the first commit of an owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from modeaware.clients.actions import Action, Asked, Commit, Committed, Request, Start
from modeaware.clients.partition import Committing, Partition, State, Step
from modeaware.clients.starts import Key
from modeaware.clients.subscription import Gate, Reading
from modeaware.notes import OPENED
from modeaware.topic_view import ReplacedBy

ASK_S = 1.0
"""How often the group's committed offsets on a new topic are requested."""
UNCOMMITTED_S = 15.0
"""How long other members may take to commit their start offsets before this member commits them. A member that receives
records commits sooner, after ``auto.commit.interval.ms`` (5 s)."""


@dataclass(eq=False)
class _Waiting:
    """The work on a new topic, until the group has a commit on each of its partitions.

    Attributes:
        starts: the start offsets to commit.
        others: partitions of other members, or without an owner, whose start offsets are to be requested.
        other_starts: the start offsets of ``others``. They are committed if the next request shows no commit there.
    """

    since_s: float
    ask_s: float
    starts: dict[Key, Committed] = field(default_factory=dict)
    others: frozenset[Key] = frozenset()
    other_starts: dict[Key, Committed] = field(default_factory=dict)


class NewTopics:
    """The new topics of one member's assignment, by their ids."""

    def __init__(self) -> None:
        self._topics: dict[str, _Waiting | None] = {}  # by id; None once every partition has a commit

    def waits_for(self, topic_id: str | None) -> bool:
        """Return whether the group has yet to commit on the topic."""
        return topic_id is not None and self._topics.get(topic_id) is not None

    def to_do(
        self, reading: Reading, partitions: Mapping[Key, Partition], now_s: float
    ) -> tuple[Action | None, float | None]:
        """Return the action that is due, or the time of the next action. If no action is planned, return two Nones."""
        later: list[float] = []
        starts: dict[Key, Committed] = {}
        others: set[Key] = set()
        every: set[Key] = set()
        for topic, new_topic in _behind_open_gates(reading, {topic for topic, _ in partitions}):
            waiting = self._topics.setdefault(new_topic.topic_id, _Waiting(now_s, now_s))
            if waiting is None:
                continue
            starts |= {key: at for key, at in waiting.starts.items() if not _has_commit(partitions, key)}
            others |= waiting.others
            if waiting.ask_s <= now_s:
                every |= {(topic, partition) for partition in range(new_topic.partition_count)}
            else:
                later.append(waiting.ask_s)
        if starts:
            return Commit(starts), None
        if others:
            return Request(Asked.OTHER_STARTS, frozenset(others)), None
        return (Request(Asked.COMMITTED, frozenset(every)), None) if every else (None, min(later, default=None))

    def sent(self, keys: Iterable[Key]) -> None:
        """Note that commits of the starts of ``keys`` were sent. The next request shows whether brokers have them."""
        gone = set(keys)
        for waiting in self._topics.values():
            if waiting is not None:
                waiting.starts = {key: at for key, at in waiting.starts.items() if key not in gone}

    def found(self, keys: frozenset[Key], answer: Mapping[Key, Start], now_s: float) -> None:
        """Note the start offsets of ``keys``, partitions of other members. Offsets that ``answer`` lacks are
        unknown."""
        for waiting in self._topics.values():
            if waiting is not None and waiting.others & keys:
                offsets = {key: answer[key].offset for key in waiting.others & answer.keys()}
                waiting.other_starts = {key: Committed(at, OPENED) for key, at in offsets.items() if at is not None}
                waiting.others, waiting.ask_s = frozenset(), now_s if waiting.other_starts else now_s + ASK_S

    def committed(
        self,
        reading: Reading,
        partitions: Mapping[Key, Partition],
        how: Committing,
        keys: frozenset[Key],
        answer: Mapping[Key, Committed | None],
        now_s: float,
    ) -> None:
        """Note the group's commits on ``keys``. Commits that ``answer`` lacks are unknown."""
        for topic, new_topic in _behind_open_gates(reading, {topic for topic, _ in keys}):
            every = {(topic, partition) for partition in range(new_topic.partition_count)}
            waiting = self._topics.get(new_topic.topic_id)
            if waiting is None or not every <= keys:
                continue
            missing = {key for key in every & answer.keys() if answer[key] is None and not _has_commit(partitions, key)}
            if every <= answer.keys() and not missing:
                self._topics[new_topic.topic_id] = None
                continue
            read = {key for key in missing & partitions.keys() if partitions[key].state is not State.WITHHELD}
            own = {key: start for key in read if (start := _start(partitions[key], how))}
            waiting.starts = {key: waiting.other_starts[key] for key in missing & waiting.other_starts.keys()} | own
            others = missing - read - waiting.other_starts.keys()
            waiting.others = frozenset(others if now_s >= waiting.since_s + UNCOMMITTED_S else ())
            waiting.ask_s, waiting.other_starts = now_s + ASK_S, {}


def _behind_open_gates(reading: Reading, topics: set[str]) -> Iterable[tuple[str, ReplacedBy]]:
    """Yield each of ``topics`` that is a new topic with an open gate, and whose old topic waits for the group.

    A group that first appears after the release, and never used the old topic, need not commit.
    """
    group = reading.reader.group
    for topic in sorted(reading.new_topics & topics):
        new_topic = reading.old[topic].replaced_by
        if new_topic is None or new_topic.gone or reading.gate(topic) is not Gate.OPEN:
            continue
        if not new_topic.released or group in new_topic.groups or group in new_topic.moved.groups:
            yield topic, new_topic


def _has_commit(partitions: Mapping[Key, Partition], key: Key) -> bool:
    """Return whether this member has sent a commit on the partition, or brokers have returned one. The member's own
    commit counts because a request for commits may overtake it."""
    partition = partitions.get(key)
    return partition is not None and partition.committed is not None


def _start(partition: Partition, how: Committing) -> Committed | None:
    """Return the start offset of this member's own partition, if it has to be committed.

    Once records are delivered, the library commits their offsets instead. But an application that itself decides when
    to commit may commit much later; for such an application, the start offset is committed all the same.
    """
    is_idle = partition.position is None or (how.may_be_short and not how.transactional)
    is_known = partition.step is Step.DONE and partition.start is not None and partition.start >= 0
    return Committed(partition.start or 0, OPENED) if is_idle and is_known else None
