"""A group between an old topic and its new one, step by step, with the real rule as the controller.

Two partitions of the old topic with one record each, up to three members of six kinds, and a record of the new topic.
Whatever can happen next is a step; the model says where one breaks the order of a key for a mode-aware member.

=====  ==============================================================================================
kind   a member that
=====  ==============================================================================================
AA     is mode-aware and commits by its library's timer
AM     is mode-aware; the application commits what it has handled
AT     is mode-aware; the application commits in transactions, and again
AB     is mode-aware; the application commits in batches, and never the last one
SA     is stock, commits by its library's timer, and is subscribed by name
SB     is stock, commits by its library's timer, and is subscribed by a pattern
=====  ==============================================================================================

It leaves out ``busy``, transactions in flight, waivers and chains.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from modeaware.lifecycle.drain import Requirement
from modeaware.lifecycle.facts import GroupFacts
from modeaware.lifecycle.moved import Decision, Limits, Seen, Way, decide, observe, verdict_on_group
from modeaware.modelog.moved import MovedRecord
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from modeaware.notes import Note
from tests.support.lifecycle import RO, TOPIC, TOPIC_ID, facts, log

AWARE, AUTO = frozenset({"AA", "AM", "AT", "AB"}), frozenset({"AA", "SA", "SB"})
KINDS = ("AA", "AM", "AT", "AB", "SA", "SB")
GROUP, PARTITIONS, ENDS = "g", (0, 1), {0: 1, 1: 1}
LIMITS = Limits(unnoted_ms=300_000, gate_timeout_ms=0)
RECORD = TopicRecord(
    TOPIC,
    TOPIC_ID,
    1,
    1,
    (RO, RO),
    retired={p: RetiredPartition(seal_offset=1, read_up_to=1) for p in PARTITIONS},
    required_groups=(GROUP,),
    replacement=Replacement("orders-v2", 2, 0, new_topic_id="id-2", announced_ms=1, switched_ms=2),
)
REQUIREMENT = Requirement(groups=(GROUP,))
NOT_GIVEN, AT_WORK, HANDLED = 0, 1, 2


class Violation(AssertionError):
    """A record was given to a mode-aware member out of the order of its key."""


Step = tuple[str, Callable[[], None]]


class Group:
    """The group, the controller that looks at it, and what they have come to.

    Args:
        kinds: of the members.
        classic: under the classic protocol, with its barrier; else under that of KIP-848, without one.
        acts: what may happen beside: ``crash`` (of one of several members), ``empty`` (of the last one), ``join``.
    """

    def __init__(self, kinds: tuple[str, ...], *, classic: bool, acts: frozenset[str] = frozenset()) -> None:
        self.kinds, self.classic, self.acts = kinds, classic, acts
        self.is_sealed = False
        self.wide = [kind == "SB" for kind in kinds]
        self.here = [True] * len(kinds)
        self.owner = [-1, -1]
        self.record = [NOT_GIVEN, NOT_GIVEN]
        self.given = [False, False]
        """Whether the partition's record was given to its present owner, or is not to be."""
        self.committed = [0, 0]
        self.note = [Note.NONE, Note.NONE]
        self.rejoining: set[int] = set()
        self.listed: tuple[bool, frozenset[int] | None] | None = None
        self.seen: Seen | None = None
        self.moved: MovedRecord | None = None
        self.by_given = False
        self.owners_then: list[int] | None = None
        self.has_new_record = False
        self.at_ms = 0
        self.told: list[str] = []
        self._rebalance()

    def walk(self, chance: random.Random, steps: int, *, until_moved: bool = False) -> None:
        """Take steps by chance.

        Raises:
            Violation: with the steps that led there.
        """
        for _ in range(steps):
            if until_moved and self.moved is not None:
                return
            name, take = chance.choice(list(self.steps()))
            self.told.append(name)
            take()

    def steps(self) -> Iterator[Step]:
        """Yield all that may happen next."""
        if not self.is_sealed:
            yield "seal", self._seal
        for p in PARTITIONS:
            yield from self._steps_of(p)
        for m, kind in enumerate(self.kinds):
            if self.here[m]:
                yield f"poll {kind}{m}", lambda m=m: self._poll(m)  # type: ignore[misc] # bound now
                if ("crash" in self.acts and sum(self.here) > 1) or "empty" in self.acts:
                    yield f"crash {kind}{m}", lambda m=m: self._crash(m)  # type: ignore[misc] # bound now
            elif "join" in self.acts and not self.rejoining and not self._is_anyone_at_work():
                yield f"join {kind}{m}", lambda m=m: self._join(m)  # type: ignore[misc] # bound now
        if self.is_sealed and self.moved is None:
            look = self._list if self.listed is None else self._read_offsets
            yield f"look {look.__name__}", look
            if not self._is_aware_at_work() and not self.rejoining and self._is_all_wide():
                yield "300 s pass", self._pass_time
        if self.moved is not None and not self.has_new_record and not (self.classic and self.rejoining):
            for m, kind in enumerate(self.kinds):
                if kind in AWARE and self.here[m] and self.wide[m] and m not in self.rejoining:
                    yield f"new record to {kind}{m}", lambda m=m: self._give_new(m)  # type: ignore[misc] # bound now

    # The old topic

    def _seal(self) -> None:
        self.is_sealed = True

    def _steps_of(self, p: int) -> Iterator[Step]:
        o = self.owner[p]
        if o < 0 or not self.here[o]:
            return
        kind = self.kinds[o]
        if not self.given[p] and o not in self.rejoining:
            yield f"give {p} to {kind}{o}", lambda: self._give(p)
        if kind in AUTO and self.given[p] and self.record[p] != NOT_GIVEN and not self.committed[p]:
            yield f"timer commits {p} of {kind}{o}", lambda: self._commit(p, Note.NONE)
        if kind in ("AM", "AT") and self.given[p] and self.record[p] == HANDLED:
            note = Note.READ if self.is_sealed else Note.NONE  # it rides on the application's own commit
            if not self.committed[p] or (kind == "AT" and self.note[p] is not note):
                yield f"application commits {p} of {kind}{o}", lambda: self._commit(p, note)

    def _give(self, p: int) -> None:
        if self.has_new_record and self.kinds[self.owner[p]] in AWARE and not self.by_given:
            self._violated(f"the record of {p} is given after the new topic's")
        self.record[p], self.given[p] = AT_WORK, True

    def _commit(self, p: int, note: Note) -> None:
        self.committed[p], self.note[p] = 1, note

    def _poll(self, m: int) -> None:
        """The application comes back for more: what it was given is handled."""
        own, kind = [p for p in PARTITIONS if self.owner[p] == m], self.kinds[m]
        for p in own:
            self.record[p] = HANDLED if self.record[p] == AT_WORK else self.record[p]
        self.rejoining.discard(m)
        if kind not in AWARE:
            return
        if not self.wide[m]:
            self.wide[m] = True
            if self.classic:
                self.rejoining = {other for other in range(len(self.kinds)) if self.here[other] and other != m}
        for p in own if self.is_sealed else ():
            if self.note[p] is not Note.READ and ((self.given[p] and self.record[p] == HANDLED) or self.committed[p]):
                if kind == "AA" or self.committed[p]:
                    self._commit(p, Note.READ)
                elif kind == "AB":
                    self.note[p] = Note.GIVEN

    # Membership

    def _crash(self, m: int) -> None:
        self.here[m] = False
        self.rejoining = set()
        self._rebalance()

    def _join(self, m: int) -> None:
        self.here[m], self.wide[m] = True, self.kinds[m] == "SB"
        self._rebalance()

    def _rebalance(self) -> None:
        """The present members share the partitions; one that changes hands starts at its commit."""
        present = [m for m, is_here in enumerate(self.here) if is_here]
        self.owners_then = None
        for p in PARTITIONS:
            before, after = self.owner[p], present[p % len(present)] if present else -1
            if self.note[p] is Note.READ and before >= 0 and self.kinds[before] == "AA":
                self.note[p] = Note.NONE  # librdkafka commits the offset anew when the partition is revoked
            if after == before:
                continue
            self.owner[p], self.given[p] = after, bool(self.committed[p])
            if self.note[p] is Note.GIVEN:
                self.note[p] = Note.NONE  # cleared by the member that takes the partition up
            if self.record[p] == AT_WORK and self.committed[p]:
                self.record[p] = HANDLED  # lost with the crash, as without modeaware
            if not self.committed[p]:
                self.record[p] = NOT_GIVEN

    def _is_anyone_at_work(self) -> bool:
        return any(self.record[p] == AT_WORK and self.owner[p] >= 0 for p in PARTITIONS)

    def _is_aware_at_work(self) -> bool:
        return any(
            self.record[p] == AT_WORK and self.owner[p] >= 0 and self.kinds[self.owner[p]] in AWARE for p in PARTITIONS
        )

    def _is_all_wide(self) -> bool:
        return all(self.wide[m] for m, kind in enumerate(self.kinds) if self.here[m] and kind in AWARE)

    # The controller

    def _pass_time(self) -> None:
        self.at_ms += LIMITS.unnoted_ms

    def _list(self) -> None:
        owned = None if self.classic and self.rejoining else frozenset(p for p in PARTITIONS if self.owner[p] >= 0)
        self.listed = any(self.here), owned

    def _read_offsets(self) -> None:
        assert self.listed is not None
        (has_members, owned), self.listed = self.listed, None
        group = GroupFacts(
            {p: 1 for p in PARTITIONS if self.committed[p]},
            has_members=has_members,
            notes={p: note for p, note in enumerate(self.note) if note is not Note.NONE},
            owned=owned,
        )
        uses = group.committed or group.notes or has_members
        look = facts(2, {p: log(1) for p in PARTITIONS}, {GROUP: group} if uses else {})
        self.seen = observe(self.seen, look, [GROUP], range(2), self.at_ms)
        verdict = verdict_on_group(GROUP, RECORD, ENDS, look, REQUIREMENT, self.seen, LIMITS, self.at_ms)
        decision: Decision = decide(RECORD, None, look, REQUIREMENT, self.seen, LIMITS, self.at_ms)
        if decision.record is not None:
            assert decision.record.moved.has_open_gate(GROUP)
            self.moved, self.owners_then = decision.record, list(self.owner)
            self.by_given = any(each.way is Way.GIVEN for each in verdict.partitions.values())

    # The new topic

    def _give_new(self, m: int) -> None:
        if any(self.owner[p] == m and self.record[p] == AT_WORK for p in PARTITIONS):
            return  # it is at work itself
        late = [
            p
            for p in PARTITIONS
            if self.record[p] != HANDLED and not (self.owner[p] >= 0 and self.kinds[self.owner[p]] not in AWARE)
        ]
        if self.by_given:  # a rebalance since then brings records again: documented
            late = [p for p in late if self.owners_then is not None and self.note[p] is not Note.GIVEN]
        self.has_new_record = True
        if late:
            self._violated(f"the new topic's record is given before those of {late} are handled")

    def _violated(self, what: str) -> None:
        protocol = "classic" if self.classic else "KIP-848"
        raise Violation(f"{'+'.join(self.kinds)} ({protocol}): {what}:\n  " + "\n  ".join(self.told))
