"""The brokers' side: topics with replicated logs, leader epochs and transactions; and the controllers' group."""

from __future__ import annotations

from dataclasses import dataclass, field

from modeaware.lifecycle.commands import is_fence

NAME, NEW_TOPIC, THIRD = "orders", "orders-v2", "orders-v3"
MARKER = -1
"""What lies at the offset of a control record; other entries are the numbers of records."""


@dataclass(eq=False, slots=True)
class Log:
    """One partition's log. ``records[offset]`` is a record's number or :data:`MARKER`.

    Its leader applies the topic's configs a moment after they were altered.

    Attributes:
        retained_from: how far the topic's own retention (or an unclean election) moved the log start.
        open: transaction -> its first offset, for those that are not ended.
        epochs: ``(leader epoch, its first offset)``, ascending.
        truncated_at: the step at which an unclean election last changed it.
        replicated: the high watermark: what lies below was acknowledged.
        fenced: its leader refuses data.
        followers_fenced: so would any follower, once it is elected.
        lifted_at, elected_at: the step at which the fence was last taken off, and at which it was last led anew.
        made_at: the step at which another tool added it; -1: it came with the topic.
    """

    records: list[int] = field(default_factory=list)
    log_start: int = 0
    retained_from: int = 0
    open: dict[int, int] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    available: bool = True
    truncated_at: int = -1
    was_end: int = 0
    written_at: int = -1
    written_ms: int = 0
    replicated: int = 0
    fenced: bool = False
    followers_fenced: bool = False
    lifted_at: int = -1
    elected_at: int = -1
    made_at: int = -1

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def stable(self) -> int:
        """The last stable offset: the first one of an open transaction, else the high watermark."""
        return min(self.replicated, *self.open.values()) if self.open else self.replicated

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]

    def epoch_end(self, epoch: int) -> int:
        """OffsetForLeaderEpoch: where the log of that leader epoch ended, as the leader knows it."""
        for other, start in self.epochs:
            if other > epoch:
                return start
        return len(self.records)

    def append(self, entry: int, step: int, now_ms: int, *, replicated: bool) -> None:
        self.records.append(entry)
        if replicated:
            self.replicated = len(self.records)
        self.written_at = step
        self.written_ms = now_ms

    def elect(self) -> None:
        """A clean election: the next leader epoch begins at the end."""
        self._begin_epoch(self.epoch + 1)

    def truncate(self, to: int, log_start: int, step: int) -> None:
        """An unclean election: a replica that has the records below ``to`` alone leads, with a log start of its own."""
        self.was_end = len(self.records)
        epoch = self.epoch + 1
        del self.records[to:]
        self.replicated = min(self.replicated, to)
        self.epochs = [(e, start) for e, start in self.epochs if start < to] or [(0, 0)]
        self._begin_epoch(epoch)
        self.log_start = min(log_start, to)
        self.retained_from = min(self.retained_from, to)
        self.open = {transaction: first for transaction, first in self.open.items() if first < to}
        self.truncated_at = step

    def _begin_epoch(self, epoch: int) -> None:
        end = len(self.records)
        self.epochs = [(e, start) for e, start in self.epochs if start < end]
        self.epochs.append((epoch, end))

    def expire(self, count: int) -> None:
        """The topic's own retention; it never goes beyond the last stable offset."""
        self.log_start = max(self.log_start, min(self.log_start + count, self.stable))
        self.retained_from = self.log_start


@dataclass(eq=False, slots=True)
class Sent:
    """A record: who sent it, and where and at which step it landed. ``number`` is its name in the logs.

    Attributes:
        lost: somebody deleted it, or it was deleted and has come back since: readers have no right to it.
    """

    number: int
    producer: int
    key: int
    acknowledged: bool = False
    aborted: bool = False
    lost: bool = False
    where: tuple[str, int, int] | None = None
    landed_at: int = -1


class Topic:
    """One topic; another one under the same name is another object, with another id."""

    def __init__(self, name: str, topic_id: str, partitions: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.logs = [Log() for _ in range(partitions)]
        self.configs: dict[str, str] = {}
        self.touched_at = self.lifted_ms = self.lifted_at = -1

    @property
    def touched(self) -> bool:
        """Whether somebody has written to it."""
        return self.touched_at >= 0

    @property
    def is_fenced(self) -> bool:
        return is_fence(self.configs)

    def grow(self, total_count: int, step: int) -> None:
        """CreatePartitions; fewer than there are changes nothing. A broker has the topic's configs when it creates a
        log: those of before."""
        fenced = self.is_fenced
        new = range(total_count - len(self.logs))
        self.logs += [Log(fenced=fenced, followers_fenced=fenced, made_at=step) for _ in new]


SESSION_MS = 10_000


@dataclass(eq=False, slots=True)
class Member:
    """One membership of a controller; a controller that starts again, or was thrown out, joins with a new one."""

    polled_ms: int
    frozen: bool = False
    """Nobody sends its heartbeats: its process is stopped, or dead."""
    generation: int = -1
    gone: bool = False
    rejoined: bool = True


class Coordinator:
    """A group on one partition: who owns it, in which generation. A standby never displaces the owner."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.owner: Member | None = None
        self.generation = 0
        self.preparing = False

    def join(self, now_ms: int) -> Member:
        member = Member(now_ms)
        self.members.append(member)
        self._prepare(member)
        return member

    def leave(self, member: Member) -> None:
        """Also what an expired session does."""
        if not member.gone:
            member.gone = True
            self.members.remove(member)
            self._prepare(None)

    def poll(self, member: Member, now_ms: int) -> bool:
        """The member's own poll: it takes part in a rebalance. Returns whether it owns the partition, as far as it
        knows; a member that is gone has to join again."""
        self.expire(now_ms)
        if member.gone:
            return False
        member.polled_ms = now_ms
        member.rejoined = True
        self._complete()
        if self.preparing:
            return False
        member.generation = self.generation
        return self.owner is member

    def expire(self, now_ms: int) -> None:
        """Throw out whoever has not been heard of for longer than the session."""
        late = [m for m in self.members if m.frozen and now_ms - m.polled_ms > SESSION_MS]
        for member in self.members:
            if not member.frozen:
                member.polled_ms = now_ms
        for member in late:
            self.leave(member)

    def accepts(self, member: Member, generation: int) -> bool:
        """Whether an offset commit with that member and generation is taken."""
        return not member.gone and generation == self.generation

    def _prepare(self, joining: Member | None) -> None:
        self.preparing = True
        for member in self.members:
            member.rejoined = member is joining
        self._complete()

    def _complete(self) -> None:
        if self.preparing and all(member.rejoined for member in self.members):
            self.preparing = False
            self.generation += 1
            if self.owner is None or self.owner.gone:
                self.owner = self.members[0] if self.members else None
