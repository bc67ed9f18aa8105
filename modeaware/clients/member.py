"""A member of a consumer group: one state machine over a client library, without IO, clock or threads.

A mode-aware consumer hides partitions in mode None, hides a new topic until the topic's gate opens, and reports how far
the group has read an old topic. This module makes all of these decisions. :mod:`.partition` has the states of one
partition, :mod:`.subscription` the subscription and the gates, and :mod:`modeaware.notes` the reports.

**Inputs** are events: an assignment (:meth:`Member.assigned`, :meth:`~Member.revoked`), new views
(:meth:`~Member.viewed`), and calls of the application (:meth:`~Member.pause`, :meth:`~Member.sought`,
:meth:`~Member.polled`, ...). The methods note what has happened, and call nothing. **Outputs** are actions. The shell
(the code over one library) calls :meth:`Member.next` until the result is None. The shell carries out each action in the
polling thread, and answers each action. An action is the difference between the present state and the wanted one. So an
action that failed, or was answered in part, is repeated while the difference remains; :attr:`Member.due_s` is the time
of the repetition. Within the library's callback for an assignment or a revocation, only actions of that event are done.

Rules, and their reasons:

* *A hidden partition is paused in each assignment*, after it is assigned: librdkafka ignores a pause of a partition
  that it does not have, and loses the pause flags of a topic that was deleted.
* *A hidden partition stays in the library's assignment*, paused. Under an eager protocol, the partition's removal would
  discard positions and stored offsets. Under an incremental protocol, librdkafka may have a revocation in its queue,
  and would take the removal as the answer to this revocation. The group's assignment does not change either, so each
  partition has an owner.
* *Only the application resumes what the application has paused*, even if the partition was hidden in between.
  librdkafka keeps a partition's pause flag when the partition is assigned again (:attr:`Traits.keeps_pauses`);
  kafka-python does not.
* *A partition is shown only when its position is known*: while it was hidden, retention may have deleted records, or
  another topic may have taken the name. A partition whose position is unknown is shown later, and delays no other one.
* *A partition's start is known, as an offset, before the partition is read.* So ``auto.offset.reset`` never decides
  later. If a start is not found within librdkafka's callback, librdkafka decides (:attr:`Traits.waits_for_starts`).
* *The callbacks show what the application holds.* Under an eager protocol, a change between rebalances is shown as a
  rebalance: all partitions are revoked, then all partitions that the application still holds are assigned. Under an
  incremental protocol, only the partitions that change are shown. A revocation of hidden partitions alone is not shown.
  A partition that the application leaves out of ``assign()`` is declined until the next assignment, or until the
  application adds it (incremental).
* *A revoked partition is read again from the group's commit*, as after a rebalance, if the application sees the
  revocation and decides what is committed. Such an application may have dropped uncommitted records.

:mod:`.joining` keeps the subscription. :mod:`.ends` reports how far the group has read topics that take no writes any
more. :mod:`.new_topics` commits the offsets at which the group starts on a new topic.

Thread-safety: none; only the polling thread may use a member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from modeaware.clients.actions import (
    Action,
    Asked,
    Assign,
    Commit,
    CommitStored,
    Committed,
    Event,
    Pause,
    Rejoin,
    Request,
    Resume,
    Seek,
    Show,
    Subscribe,
)
from modeaware.clients.ends import Ends
from modeaware.clients.joining import ASK_S, Joining
from modeaware.clients.new_topics import NewTopics
from modeaware.clients.partition import Committing, Partition, State, Step
from modeaware.clients.starts import Key
from modeaware.clients.subscription import Gate, Reader, Reading, read
from modeaware.topic_view import TopicView

RETRY_S = 0.1
"""The shortest wait before a request without an answer is repeated; longer if the request itself took longer."""
LONGEST_RETRY_S = 10.0
"""The longest wait before a commit is repeated. The wait doubles with each failure."""
JOIN_S = 10.0
"""For this time after the member has subscribed or rejoined, no revocation is shown: brokers would reject a commit in
the application's callback, because the generation has changed. An assignment ends the wait early. The wait is limited,
because under an incremental protocol the group may have no assignment to send. A library that reports
:attr:`Member.joining` needs no wait."""


@dataclass(frozen=True)
class Traits:
    """The properties of a client library and of its configuration.

    Attributes:
        incremental: partitions are assigned and revoked one by one (``cooperative-sticky``, KIP-848). If false, the
            protocol is *eager*: each assignment replaces the last one as a whole.
        static: a member of the classic protocol with a ``group.instance.id``.
        keeps_pauses: a paused partition is still paused when it is assigned again.
        waits_for_starts: a partition may be assigned before its start is known. If false, the library decides a start
            that is not found in time.
    """

    incremental: bool = False
    static: bool = False
    keeps_pauses: bool = True
    waits_for_starts: bool = False


class _Begun(NamedTuple):
    """A commit under way, and each partition with its position and its committed offset when this commit began."""

    action: Commit | CommitStored
    partitions: Mapping[Key, tuple[Partition, int | None, Committed | None]]


@dataclass(frozen=True)
class _Turn:
    """A call of the application's callback, and the changes that follow it.

    Attributes:
        hides, shows, leaves: the partitions that are then hidden, shown, or revoked.
        restarts: the partitions that are read again from the group's commit when they are shown again.
    """

    show: Show
    hides: frozenset[Key] = frozenset()
    shows: frozenset[Key] = frozenset()
    leaves: frozenset[Key] = frozenset()
    restarts: frozenset[Key] = frozenset()
    is_rebalance: bool = False


class Member:
    """One member of a group.

    Args:
        reader: the group, and how it subscribes; :meth:`subscribe` sets the names.

    Attributes:
        partitions: the partitions that this member is assigned.
        reading: what the member reads, by the views of the last :meth:`viewed`.
        withheld: partitions that another member owns, or may own.
        manual: the application assigns by itself, outside of any subscription, so no gate applies.
        paused: partitions that the application has paused.
        joining: the library is rejoining the group and rejects commits. It is None if the library does not report this.
        due_s: when to call :meth:`next` again after a result of None. If ``due_s`` is None: after the next input.
    """

    def __init__(self, reader: Reader, traits: Traits, committing: Committing) -> None:
        self.traits = traits
        self.committing = committing
        self.reading: Reading = read(reader, {})
        self.partitions: dict[Key, Partition] = {}
        self.withheld: frozenset[Key] = frozenset()
        self.manual = False
        self.joining: bool | None = None
        self.due_s: float | None = None
        self._is_assigned = False
        self._is_subscribed = False
        self._turns: deque[_Turn] = deque()
        self._is_between = False  # eager, outside a rebalance: all is revoked, nothing assigned yet
        self._replaces = False  # the application's last assignment is a whole one
        self.paused: set[Key] = set()
        self._held_back: set[Key] = set()  # paused by this member's actions, perhaps in an earlier assignment
        self._joining = Joining(static=traits.static)
        self._new = NewTopics()
        self._ends = Ends(self.partitions, self.paused)
        self._begun: _Begun | None = None
        self._commit_s = 0.0
        self._commit_wait_s = RETRY_S
        self._joining_until_s: float | None = None
        self._asked_s = 0.0
        self._is_carrying = False
        self._again_s = 0.0

    # Inputs: views and subscription

    def viewed(self, views: Mapping[str, TopicView]) -> None:
        """Put ``views`` in force. They contain all topics that have a record."""
        before, self.reading = self.reading, read(self.reading.reader, views)
        if self.committing.transactional:  # a transaction may have committed, without a note, before the end was known
            self.doubted(key for key in self.partitions if self._is_new_end(key, before))

    def _is_new_end(self, key: Key, before: Reading) -> bool:
        topic = self.reading.topic(key[0])
        return topic.awaits_report and key[1] in topic.ends and key[1] not in before.topic(key[0]).ends

    def subscribe(self, names: Iterable[str], *, sees_revocations: bool) -> None:
        """Note that the application subscribes to ``names``.

        Args:
            sees_revocations: the application has a callback for revocations.
        """
        self._read(names=tuple(names))
        self._ends.sees_revocations, self._is_subscribed, self.manual = sees_revocations, True, False
        self._joining.subscribed = None

    def unsubscribe(self) -> None:
        """Note that the application leaves the group; :meth:`revoked` shows its callback the last revocation."""
        self._is_subscribed = False

    def _read(self, **changes: Any) -> None:
        self.reading = read(replace(self.reading.reader, **changes), self.reading.views)

    # Inputs: assignments

    def assigned(self, keys: Collection[Key], *, withheld: Collection[Key] = ()) -> None:
        """Note that the group assigns ``keys``: the whole assignment (eager), or an addition to it (incremental).

        Args:
            withheld: the partitions of the whole assignment that another member may own.
        """
        self.manual, self._replaces, self._joining_until_s = False, False, None
        self._ends.assigned()
        if not self.traits.incremental:
            self._forget(set(self.partitions))
        self.withheld = frozenset(withheld)
        self._add(keys)
        self._is_assigned = True
        shown = frozenset(key for key in keys if self.partitions[key].state is State.GIVEN)
        if shown or not keys or not self.traits.incremental:
            self._turns.append(_Turn(Show(Event.ASSIGNED, shown), shows=shown, is_rebalance=True))

    def ownership_known(self, withheld: Collection[Key]) -> None:
        """Note that ownership is certain for all partitions but ``withheld``."""
        self.withheld = frozenset(withheld)

    def revoked(self, keys: Collection[Key], *, lost: bool = False) -> None:
        """Note that the group revokes ``keys``. An eager protocol always revokes the whole assignment."""
        gone = set(self.partitions) if not self.traits.incremental else self.partitions.keys() & set(keys)
        held = frozenset(key for key in gone if self.partitions[key].state is State.SHOWN)
        event = Event.LOST if lost else Event.REVOKED
        turn = _Turn(Show(event, held), leaves=frozenset(gone), is_rebalance=True)
        if held or not keys:
            self._turns.append(turn)
        else:
            self._apply(turn, None)

    def assigned_by_application(self, places: Mapping[Key, int | None], *, incremental: bool = False) -> None:
        """Note that the application assigns partitions outside of its callbacks. ``places`` has the offset of each, or
        None if the application gives none. The call does not decline a partition of the group's assignment that was
        never shown: this partition is shown later. An incremental call may take a partition that was declined.
        """
        self._is_assigned = self._is_assigned and self._is_subscribed
        self.manual = not self._is_assigned
        unseen = {
            key for key, partition in self.partitions.items() if partition.state not in (State.SHOWN, State.DECLINED)
        }
        kept = set(self.partitions) if incremental else unseen if self._is_assigned else set()
        known = places.keys() & self.partitions.keys() if incremental else ()
        taken = {key for key in known if self.partitions[key].step.is_assigned}  # the library would refuse to add these
        self._forget((self.partitions.keys() - kept | self.partitions.keys() & places.keys()) - taken)
        self._replaces = not incremental
        if not incremental:
            for partition in self.partitions.values():
                partition.step, partition.is_paused = Step.START, False  # the library's assignment is replaced
        self._add(places.keys() - taken)
        for key, offset in places.items():
            partition = self.partitions[key]
            self._choose(partition, offset)
            if partition.state is State.DECLINED:
                partition.state = self._wanted(key, State.GIVEN)
            elif partition.state is State.GIVEN and key not in taken:
                partition.state = State.SHOWN

    def unassigned_by_application(self, keys: Collection[Key] | None = None) -> None:
        """Note that the application removes ``keys`` from its assignment, or with None all partitions."""
        self._is_assigned = self._is_assigned and (keys is not None or self._is_subscribed)
        self._forget(set(self.partitions) if keys is None else set(keys))

    def _add(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.partitions[key] = made = Partition()
            made.state = self._wanted(key, State.GIVEN)
            if made.state is State.SHOWN:
                made.state = State.GIVEN
            if not self.traits.keeps_pauses:
                self.paused.discard(key)
                self._held_back.discard(key)

    def _forget(self, keys: set[Key]) -> None:
        for key in keys:
            self.partitions.pop(key, None)
        if not self.traits.keeps_pauses:
            self.paused -= keys
            self._held_back -= keys

    # Inputs: calls of the application

    def polled(self, positions: Mapping[Key, int | None]) -> None:
        """Note that the application polls. Records up to ``positions`` were returned before this poll.

        Args:
            positions: of the partitions that :meth:`watched` returned. None: no record since the assignment or seek.
        """
        for key, position in positions.items():
            if key in self.partitions and self.partitions[key].state is State.SHOWN:
                self.partitions[key].takes_position(position)
        if not self.reading.reader.group:
            self._pass()

    def watched(self) -> set[Key]:
        """Return the partitions whose positions affect a decision."""
        shown = {key for key, partition in self.partitions.items() if partition.state is State.SHOWN}
        new = {key for key in shown if self._new.waits_for(self.reading.topic_id(key[0]))}
        new |= {key for key in shown if self.partitions[key].is_dropped}
        return new | {key for key in shown if self._ends.is_watched(self.reading, key, self.committing)}

    def pause(self, keys: Iterable[Key]) -> None:
        """Note that the application pauses ``keys``; the library pauses them, too."""
        self.paused.update(keys)

    def resume(self, keys: Iterable[Key]) -> set[Key]:
        """Note that the application resumes ``keys``. Return the partitions to resume in the library now."""
        resumed = set(keys)
        self.paused -= resumed
        return resumed - self._held_back

    def sought(self, key: Key, offset: int) -> None:
        """Note that the application has sought ``offset`` in a partition, and that the seek is done.

        Args:
            offset: negative if it is not known as a number.
        """
        if (partition := self.partitions.get(key)) is not None:
            partition.sought(offset)
            partition.is_chosen, is_assigned = False, partition.step.is_assigned
            if is_assigned:
                partition.step = Step.DONE
            # The seek that is done has resolved a logical offset, which may stand for a later offset by now.
            if partition.state is not State.SHOWN and (offset >= 0 or not is_assigned):
                self._choose(partition, offset)

    def metadata(self, key: Key, offset: int, position: int | None, *, in_transaction: bool = False) -> str:
        """Return the metadata for a commit of the application at ``offset`` that has no metadata of its own.

        Args:
            position: the library's present position, which counts the records that the last poll has returned.
        """
        partition, topic = self.partitions.get(key), self.reading.topic(key[0])
        end = topic.ends.get(key[1])
        if partition is None or end is None or not self._is_assigned or not topic.awaits_report:
            return ""
        paused = key in self.paused
        return partition.rides(offset, position, end, self.committing, paused=paused, in_transaction=in_transaction)

    def committed(self, offsets: Mapping[Key, Committed]) -> None:
        """Note commits: of the application, of the library's timer (which may have overwritten a note), or of stored
        offsets (which the library sends later)."""
        for key, at in offsets.items():
            if (partition := self.partitions.get(key)) is not None:
                # A commit below the start proves nothing: it may be a late answer from before the assignment.
                partition.committed, partition.knows_commit = at, at.offset >= (partition.start or 0)

    def doubted(self, keys: Iterable[Key]) -> None:
        """Note that the committed offsets are unknown, because commits of the application have failed or were not seen.
        The offsets are requested where a decision needs them."""
        for key in keys:
            if (partition := self.partitions.get(key)) is not None:
                partition.knows_commit = False

    def stored(self, keys: Iterable[Key]) -> None:
        """Note that the application has stored offsets, which the library commits later."""
        for key in keys:
            if (partition := self.partitions.get(key)) is not None:
                partition.flushed = False

    def commits_with_transactions(self) -> None:
        """Note that the application has taken the group's metadata, and so commits with transactions."""
        self.committing = replace(self.committing, transactional=True)

    # Outputs

    def next(self, now_s: float, *, rebalancing: bool = False, carrying: bool = False) -> Action | None:
        """Return the next action, repeatedly until it is answered. Return None if no action is due before
        :attr:`due_s`.

        Args:
            now_s: the time, on any monotonic clock.
            rebalancing: within a callback of the library for an assignment or a revocation.
            carrying: the library has returned records that the application gets only after this call. Until then only
                requests and commits are made, because a seek would make the library return these records again.
        """
        self.due_s, self._asked_s, self._is_carrying = None, now_s, carrying
        found = self._first(self._to_show, self._to_assign, self._to_pause)
        if found is None and not rebalancing:
            found = self._first(self._to_change, self._to_place, self._to_report, self._to_start, self._to_follow)
        is_held = carrying and not isinstance(found, Request | Commit | CommitStored | None)
        if is_held or (rebalancing and found is None):
            self.due_s = now_s
            return None
        return found

    def _first(self, *parts: Callable[[float], Action | None]) -> Action | None:
        return next((found for part in parts if (found := part(self._asked_s)) is not None), None)

    def _wait(self, at_s: float) -> None:
        self.due_s = at_s if self.due_s is None else min(self.due_s, at_s)

    def _due(self, keys: Iterable[Key], now_s: float) -> frozenset[Key]:
        """Return those of ``keys`` whose retry time has come."""
        due: set[Key] = set()
        for key in keys:
            if (retry_s := self.partitions[key].retry_s) <= now_s:
                due.add(key)
            else:
                self._wait(retry_s)
        return frozenset(due)

    def _at(self, *steps: Step) -> Iterator[Key]:
        return (key for key, partition in self.partitions.items() if partition.step in steps)

    def _to_show(self, now_s: float) -> Action | None:
        return self._turns[0].show if self._turns else None

    def _to_assign(self, now_s: float) -> Action | None:
        if keys := self._due(self._at(Step.START), now_s):
            return Request(Asked.STARTS, keys)
        places = {key: self.partitions[key].place for key in self._at(Step.ASSIGN)}
        is_whole = (self._replaces or not self.traits.incremental) and len(places) == len(self.partitions)
        return Assign(places, is_whole) if places else None

    def _to_pause(self, now_s: float) -> Action | None:
        placed = {
            key
            for key, partition in self.partitions.items()
            if partition.step.is_assigned or self.traits.waits_for_starts
        }
        shown = {key for key in placed if self.partitions[key].state is State.SHOWN}
        if pause := {key for key in placed - shown if not self.partitions[key].is_paused}:
            return Pause(frozenset(pause))
        ready = {key for key in shown if self.partitions[key].step is Step.DONE}
        if resume := ready & self._held_back:
            if free := resume - self.paused:
                return Resume(frozenset(free))
            self._not_paused(resume)  # the application has paused them, and its resume() will reach the library
        return None

    def _not_paused(self, keys: Collection[Key]) -> None:
        self._held_back.difference_update(keys)
        for key in self.partitions.keys() & keys:
            self.partitions[key].is_paused = False

    # What is held

    def _wanted(self, key: Key, now: State) -> State:
        """Return the state that a partition in state ``now`` should have."""
        if now is State.DECLINED:
            return State.DECLINED
        if key in self.withheld and not self.manual:
            return State.WITHHELD
        topic = self.reading.topic(key[0])
        if not topic.view.is_readable(key[1]):
            return State.HIDDEN_BY_MODE
        gate = Gate.ABSENT if self.manual else topic.gate
        if gate is Gate.CLOSED or (gate in (Gate.LEFT, Gate.UNNAMED) and now is not State.SHOWN):
            return State.HIDDEN_BY_GATE
        return State.SHOWN

    def _to_change(self, now_s: float) -> Action | None:
        """Hide and show partitions until the application holds what the views in force allow."""
        hides: set[Key] = set()
        for key, partition in self.partitions.items():
            wanted = self._wanted(key, partition.state)
            if partition.state is State.SHOWN:
                if wanted is not State.SHOWN:
                    hides.add(key)
            elif wanted is not State.SHOWN:
                partition.state = wanted
            elif partition.state is not State.GIVEN:
                partition.state = State.GIVEN
                if partition.step is Step.DONE:
                    partition.step = Step.PLACE
        given = [key for key, partition in self.partitions.items() if partition.state is State.GIVEN]
        for step, what in ((Step.RESTART, Asked.RESTARTS), (Step.PLACE, Asked.PLACES)):
            if keys := self._due((key for key in given if self.partitions[key].step is step), now_s):
                return (self._to_flush(keys, now_s) if step is Step.RESTART else None) or Request(what, keys)
        shows = {key for key in given if self.partitions[key].step in (Step.SEEK, Step.DONE)}
        is_left = self._is_between and not given  # a callback for the assignment is due, though it has no partitions
        if (hides or shows or is_left) and self._may_change(now_s):
            self._change(frozenset(hides), frozenset(shows))
        return self._to_show(now_s) or self._to_pause(now_s)

    @property
    def wanted(self) -> Subscribe:
        """The subscription that this member's views require."""
        return self._joining.wanted(self.reading)

    @property
    def may_drop(self) -> bool:
        """Whether the application may drop uncommitted records in its callback for a revocation."""
        return not self.manual and self._ends.sees_revocations and self.committing.may_drop

    @property
    def has_dropped(self) -> bool:
        """Whether the application may have dropped records of a partition, and has got no record of it since (any
        thread)."""
        return any(each.is_dropped for each in tuple(self.partitions.values()))

    def _to_flush(self, keys: Collection[Key], now_s: float) -> CommitStored | None:
        """Commit the offsets that the application has stored, as the library does at a revocation."""
        is_free = self._begun is None and now_s >= self._commit_s
        is_due = self.committing.automatic and not all(self.partitions[key].flushed for key in keys)
        return CommitStored() if is_free and is_due else None

    def _may_change(self, now_s: float) -> bool:
        """Return whether a change may be shown now: the application first has to get the records already returned."""
        if self._is_carrying:
            self._wait(now_s)
        return not self._is_carrying

    def _change(self, hides: frozenset[Key], shows: frozenset[Key], revoked: frozenset[Key] = frozenset()) -> None:
        """Have the callbacks show which partitions are hidden, shown, and revoked, in the form of the group's protocol.
        Partitions that stay, but are read again, are shown once their commits are known."""
        held = frozenset(key for key, partition in self.partitions.items() if partition.state is State.SHOWN)
        eager = not self.traits.incremental
        goes = held if eager else hides | revoked
        restarts = goes if self.may_drop else frozenset()
        stays = goes - hides - restarts
        turns = []
        if goes or (eager and not self._is_between):
            turns.append(_Turn(Show(Event.REVOKED, goes), hides, restarts=restarts))
        if (shows or eager) and restarts <= hides:
            turns.append(_Turn(Show(Event.ASSIGNED, stays | shows), shows=shows))
        if not self.manual:
            self._turns += turns
        else:  # no callback is called for the application's own assignment
            for turn in turns:
                self._apply(turn, None)

    def _to_place(self, now_s: float) -> Action | None:
        shown = (key for key in self._at(Step.SEEK) if self.partitions[key].state is State.SHOWN)
        keys = self._due(shown, now_s)
        return Seek({key: self.partitions[key].place for key in keys}) if keys else None

    @staticmethod
    def _choose(partition: Partition, offset: int | None) -> None:
        """Note that the application has chosen where to read a partition."""
        if offset is not None:
            partition.place, partition.is_chosen = offset, True
            if partition.step in (Step.PLACE, Step.RESTART, Step.DONE):
                partition.step = Step.SEEK

    # Reports

    def _to_report(self, now_s: float) -> Action | None:
        """Report how far the group has read topics that take no writes any more, and show revocations."""
        if not self._is_assigned or not self.reading.reader.group:
            return None
        ended = self._ends.ended(self.reading, self.committing)
        if self._begun is not None:
            pass  # done() or failed() will follow
        elif now_s < self._commit_s:
            self._wait(self._commit_s)
        elif unknown := self._due(self._ends.unknown(ended, self.committing), now_s):
            return Request(Asked.COMMITTED, unknown)
        elif (report := self._ends.to_report(ended, self.committing)) is not None:
            return report
        if self._may_be_joining(now_s):
            return None
        revoked, later_s = self._ends.to_revoke(self.reading, ended, now_s)
        if revoked and self._may_change(now_s):
            self._ends.show(self.reading, revoked)
            if not self.traits.incremental:
                revoked = {key for key, partition in self.partitions.items() if partition.state is State.SHOWN}
            self._change(frozenset(), frozenset(), frozenset(revoked))
        return self._or_later(self._to_show(now_s), later_s)

    def _may_be_joining(self, now_s: float) -> bool:
        """Return whether a commit of the application may be rejected now."""
        until_s = self._joining_until_s
        if self.joining is not None:
            until_s = now_s + RETRY_S if self.joining else None
        if until_s is None or until_s <= now_s:
            return False
        self._wait(until_s)
        return True

    def _pass(self) -> None:
        """Note the old topics that this consumer, which has no group, has read to their ends."""
        found = self._ends.ended(self.reading, self.committing)
        ended = {each.key for each in found if each.partition.is_handled(each.end, paused=False)}
        passed = {
            view.topic_id
            for view in self.reading.views.values()
            if view.replaced_by is not None and view.topic_id is not None and view.modes
            and ended.issuperset((view.topic, partition) for partition in range(len(view.modes)))
        }  # fmt: skip
        if not passed <= self.reading.reader.passed:
            self._read(passed=self.reading.reader.passed | passed)

    # The subscription, and new topics

    def _to_start(self, now_s: float) -> Action | None:
        reader = self.reading.reader
        if not self._is_assigned or not reader.group or not reader.follows or self._begun is not None:
            return None
        return self._or_later(*self._new.to_do(self.reading, self.partitions, now_s))

    def _to_follow(self, now_s: float) -> Action | None:
        if not self._is_subscribed:
            return None
        topics = {topic for topic, _ in self.partitions} if self._is_assigned else None
        return self._or_later(*self._joining.to_do(self.reading, topics, now_s))

    def _or_later(self, action: Action | None, later_s: float | None) -> Action | None:
        if later_s is not None:
            self._wait(later_s)
        return action

    # Answers

    def begun(self, action: Commit | CommitStored) -> None:
        """Note that ``action`` is under way. :meth:`done` or :meth:`failed` follows later, before any other commit."""
        now = {key: (partition, partition.position, partition.committed) for key, partition in self.partitions.items()}
        self._begun = _Begun(action, now)

    def has_begun(self, action: Action) -> bool:
        """Return whether ``action`` is a commit under way."""
        return self._begun is not None and self._begun.action is action

    def _same(self, action: Action) -> dict[Key, Partition]:
        """Note that a commit was answered. Return the partitions that are unchanged since the commit began: of the same
        assignment, with the same position and commit."""
        begun, self._begun = self._begun, None
        if begun is None or begun.action is not action:
            return dict(self.partitions)
        then, now = begun.partitions, self.partitions
        return {
            k: partition
            for k, partition in now.items()
            if then.get(k) == (partition, partition.position, partition.committed)
        }

    def done(self, action: Action, answer: Any, now_s: float) -> None:
        """Note that ``action`` was carried out.

        Args:
            answer: as the docstring of the action's class describes it, or None if the class describes no answer.
        """
        self._again_s = now_s + max(RETRY_S, now_s - self._asked_s)
        match action:
            case Show():
                self._apply(self._turns.popleft(), answer)
            case Assign(places):
                self._placed(places, places)
            case Seek(places):
                self._placed(places, answer)
            case Pause(keys):
                self._held_back |= keys
                for key in keys & self.partitions.keys():
                    self.partitions[key].is_paused = True
            case Resume(keys):
                self._not_paused(keys)
            case Commit(offsets):
                same = self._same(action)
                self._was_committed({key: offsets[key] for key in answer}, offsets, same, now_s)
            case CommitStored():
                self._was_flushed(answer, self._same(action))
            case Subscribe():
                self._joining.subscribed = action
                self._joining_until_s = now_s + JOIN_S
            case Rejoin():
                self._joining.rejoined()
                self._joining_until_s = now_s + JOIN_S
            case Request(what, keys):
                self._was_answered(what, keys, answer, now_s)

    def failed(self, action: Action, now_s: float) -> None:
        """Note that ``action`` was not carried out, or not answered. The member repeats later what is still to be done.
        If a start is not found within librdkafka's callback, librdkafka decides the start.

        A callback that has raised counts as called. Only a revocation whose purpose is a commit by the application is
        shown again.
        """
        if isinstance(action, CommitStored):
            self._same(action)
            self._commit_later(now_s)
        elif isinstance(action, Show):
            self._ends.repeat(self.reading, self._turns[0].restarts)
            self.done(action, None, now_s)
        elif isinstance(action, Seek | Commit | Request):
            self.done(action, {}, now_s)

    def _commit_later(self, now_s: float) -> None:
        self._commit_s = now_s + max(self._commit_wait_s, now_s - self._asked_s)
        self._commit_wait_s = min(2 * self._commit_wait_s, LONGEST_RETRY_S)

    def _apply(self, turn: _Turn, choice: Mapping[Key, int | None] | None) -> None:
        for key in turn.hides | turn.restarts:
            if (partition := self.partitions.get(key)) is not None:
                partition.state = self._wanted(key, partition.state) if key in turn.hides else State.GIVEN
                partition.polled = False
                if key in turn.restarts and partition.step.is_assigned:
                    partition.step, partition.is_dropped = Step.RESTART, True
        self._forget(set(turn.leaves))
        for key in turn.shows & self.partitions.keys():
            is_taken = choice is None or key in choice
            self.partitions[key].state = State.SHOWN if is_taken else State.DECLINED
        for key, offset in (choice or {}).items():
            if key not in self.partitions and turn.is_rebalance:
                self._add([key])
                self.partitions[key].state = self._wanted(key, State.SHOWN)
            if key in self.partitions:
                self._choose(self.partitions[key], offset)
        if choice is not None and turn.show.event is Event.ASSIGNED:
            for key in turn.show.keys & self.partitions.keys() - choice.keys():
                self.partitions[key].state = State.DECLINED
        eager = not self.traits.incremental
        if eager and turn.show.event is not Event.ASSIGNED and turn.is_rebalance:
            self._is_assigned = False
        self._is_between = eager and turn.show.event is Event.REVOKED and not turn.is_rebalance

    def _placed(self, places: Mapping[Key, int | None], placed: Collection[Key]) -> None:
        for key, place in places.items():
            if (partition := self.partitions.get(key)) is None or partition.step not in (Step.ASSIGN, Step.SEEK):
                continue
            if key in placed:
                partition.reads_from(place)
            else:
                partition.retry_s = self._again_s

    def _was_committed(
        self,
        offsets: Mapping[Key, Committed],
        sent: Mapping[Key, Committed],
        same: Mapping[Key, Partition],
        now_s: float,
    ) -> None:
        self.committed({key: at for key, at in offsets.items() if key in same})
        self._new.sent(sent)
        if offsets.keys() == sent.keys():
            self._commit_wait_s = RETRY_S
        else:
            self._commit_later(now_s)

    def _was_flushed(self, stored: Mapping[Key, Committed], same: Mapping[Key, Partition]) -> None:
        for key, partition in same.items():
            partition.flushed = True
            if key in stored:
                partition.committed, partition.knows_commit = stored[key], True
            elif partition.furthest >= 0:  # the library may have committed earlier, by its timer
                partition.knows_commit = False

    def _was_answered(self, what: Asked, keys: frozenset[Key], answer: Mapping[Key, Any], now_s: float) -> None:
        match what:
            case Asked.STARTS | Asked.PLACES | Asked.RESTARTS:
                for key in keys & self.partitions.keys():
                    self._was_found(self.partitions[key], what, key in answer, answer.get(key))
            case Asked.COMMITTED:
                self._learn_commits(keys, answer, now_s)
            case Asked.OTHER_STARTS:
                self._new.found(keys, answer, now_s)
            case Asked.OWNED:
                self._joining.owned(keys, answer, now_s)
            case Asked.TOPICS:
                self._joining.there(self.reading, keys & answer.keys(), max(now_s + ASK_S, self._again_s))

    def _was_found(self, partition: Partition, what: Asked, is_answered: bool, answer: Any) -> None:
        if what is Asked.STARTS and partition.step is Step.START:
            if is_answered:
                partition.starts(answer)
            elif self.traits.waits_for_starts:
                partition.retry_s = self._again_s
            else:
                partition.step = Step.ASSIGN
        elif (what, partition.step) in ((Asked.PLACES, Step.PLACE), (Asked.RESTARTS, Step.RESTART)):
            if not is_answered:
                partition.retry_s = self._again_s
            elif what is Asked.PLACES:
                partition.goes_on(answer)
            else:
                partition.restarts(answer)

    def _learn_commits(self, keys: frozenset[Key], answer: Mapping[Key, Committed | None], now_s: float) -> None:
        for key in keys & self.partitions.keys():
            partition = self.partitions[key]
            if key not in answer:
                partition.retry_s = self._again_s
                continue
            if answer[key] is not None or not partition.knows_commit:
                partition.learns_commit(answer[key])
        self._new.committed(self.reading, self.partitions, self.committing, keys, answer, now_s)
