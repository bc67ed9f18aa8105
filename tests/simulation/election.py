"""The controllers' consumer group, and what fences: its generations, and the epochs of the transactional id."""

from __future__ import annotations

SESSION_MS = 10_000


class Member:
    """One membership of a controller; a controller that starts again, or was thrown out, joins with a new one."""

    __slots__ = ("frozen", "generation", "gone", "polled_ms", "rejoined")

    def __init__(self, now_ms: int) -> None:
        self.polled_ms = now_ms
        self.frozen = False
        """Nobody sends its heartbeats: its process is stopped, or dead."""
        self.generation = -1
        self.gone = False
        self.rejoined = True


class Coordinator:
    """A group on one partition: who owns it, in which generation. A standby never displaces the owner."""

    __slots__ = ("generation", "members", "owner", "preparing")

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

    def expire(self, now_ms: int) -> int:
        """Throw out whoever has not been heard of for longer than the session; how many those were."""
        late = [m for m in self.members if m.frozen and now_ms - m.polled_ms > SESSION_MS]
        for member in self.members:
            if not member.frozen:
                member.polled_ms = now_ms
        for member in late:
            self.leave(member)
        return len(late)

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
