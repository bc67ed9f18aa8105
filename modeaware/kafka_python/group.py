"""A kafka-python consumer as a member of its group: kafka-python's events become inputs, and actions become calls.

:mod:`modeaware.clients.member` makes all decisions about partitions, gates, notes and starts. This package only carries
out the decisions. A *gate* hides a new topic until the group has read the old topic. kafka-python is assigned all
partitions that the group gave to this member. Partitions that the application does not hold are paused and not shown,
so each keeps its owner in the group.

Properties of kafka-python (3.0.12):

* It calls a rebalance listener in its own thread, while the polling thread waits. No code may block this thread until
  brokers answer. So kafka-python's thread shows a revocation, but only notes an assignment. The polling thread takes
  the assignment before it fetches (:meth:`Membership.apply`).
* It keeps a partition's position and pause flag during an assignment; under an eager protocol, also over a rebalance.
* It detects a loss of the membership only before a join, and keeps the positions of partitions that are assigned again.
  But by then other members may have read on, and another topic may have the name. So :meth:`Membership._drop_stale`
  drops two kinds of partitions before the assignment: those that the member has lost when it joins again, and those of
  a topic that the member left and subscribed to again since its last join. It also drops the position of a partition
  whose records the application has dropped, if the partition was not yet read again.

The member's own commits are asynchronous; a later poll gets the answers.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.actions import (
    Action,
    Asked,
    Assign,
    Commit,
    CommitStored,
    Committed,
    Event,
    Pause,
    Request,
    Resume,
    Seek,
    Show,
    Start,
    Subscribe,
)
from modeaware.clients.member import Member
from modeaware.clients.member_views import MemberViews
from modeaware.clients.partition import State, Step
from modeaware.clients.places import find_places, find_restarts
from modeaware.clients.starts import Key, Starts
from modeaware.clients.taken_metadata import metadata_taken
from modeaware.clients.tally import PARTITIONS_LEFT_OUT, PARTITIONS_TAKEN_UP, TALLY
from modeaware.kafka_python._gateway import (
    AsyncConsumerRebalanceListener,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    TopicPartition,
)
from modeaware.kafka_python.assignors import ReadableAssignor
from modeaware.kafka_python.commits import CommitNotes, Commits, metadata_key
from modeaware.kafka_python.offsets import (
    KafkaPythonOffsets,
    Partition,
    Parts,
    as_committed,
    partitions_of,
    to_commit,
)
from modeaware.kafka_python.topics import Topics

log = get_logger(__name__)

POSITION_CHECK_S = 0.1
"""How often positions are checked while a topic is read to its end."""
LEAST_ANSWER_MS = 250
MOST_ANSWER_MS = 1000
"""How long a poll waits for the group's commits, within its timeout. They are requested again later."""
COMMIT_TIMEOUT_MS = 5000
_CALLBACKS = {
    Event.ASSIGNED: "on_partitions_assigned",
    Event.REVOKED: "on_partitions_revoked",
    Event.LOST: "on_partitions_lost",
}


class Membership(AsyncConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]  # untyped
    """The layer between kafka-python's coordinator and the application's listener.

    The polling thread uses it, and kafka-python's thread while the polling thread waits. Any thread may set
    :attr:`noted`, and add to :attr:`changed`.

    Args:
        parts: the consumer's parts, which do not keep the consumer alive.
        auto_commit: kafka-python commits all positions before a rebalance.

    Attributes:
        views: the views by which the member decides.
        in_group: the consumer has a group.
        inner: the application's listener (synchronous or not), or None if it has none.
        noted: there may be work for the next poll.
        changed: topics whose modes have changed since the last join began.
        rejoins: the number of requested rebalances.
    """

    def __init__(
        self,
        parts: Parts,
        member: Member,
        starts: Starts,
        views: MemberViews,
        topics: Topics,
        *,
        in_group: bool,
        auto_commit: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = parts
        self._subscription = parts.subscription
        self._starts = starts
        self.views = views
        self._topics = topics
        self.in_group = in_group
        self._auto_commit = auto_commit
        self._now_s = now_s
        self.member = member
        self.notes = CommitNotes(member, parts)
        self.inner: Any = None
        self.noted = True
        self.changed: set[str] = set()
        self._changed_before: set[str] = set()  # those that changed before the join, until its assignment is taken
        self.rejoins = 0
        self._arrived: set[Partition] | None = None  # assigned by the group, not yet by us
        self._paused: set[Key] = set()  # the application's pauses that an eager protocol's next assignment keeps
        self._is_lost = False  # the group has dropped this member since its last join
        self._restarting: set[Key] = set()  # revoked before they were read again from the group's commit
        self._showing: Show | None = None
        self._timeout_ms = 0.0
        self._positions_checked_s = 0.0
        self._watches = False
        self._drop_stale()

    # Calls of kafka-python, in its own thread

    def join_begins(self) -> None:
        """Note that the member sends a join. The member's assignment may lack changes of modes that are noted from now
        on: these changes may cause the next rebalance."""
        self._changed_before |= self.changed
        self.changed -= self._changed_before

    async def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
        before = self._arrived if self._arrived is not None and self.member.traits.incremental else set()
        self._arrived = before | set(assigned)

    async def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None:
        keys = set(revoked)
        idle = {} if self._auto_commit else {key: at for key, at in self._leaving().items() if key in keys}
        try:
            await self._revoke(keys, lost=False)
        finally:
            await self._commit_starts(idle, COMMIT_TIMEOUT_MS)

    async def on_partitions_lost(self, lost: Iterable[Partition]) -> None:
        await self._revoke(set(lost), lost=True)

    async def _revoke(self, keys: set[Partition], *, lost: bool) -> None:
        self.noted = True
        if self.member.traits.incremental:
            self._arrived = (self._arrived or set()) - keys or None
            self._paused -= keys
        else:  # kafka-python may repeat the revocation after the member has dropped its pauses
            self._arrived, self._paused = None, (self._paused | self.member.paused).intersection(keys)
            self._restarting |= {
                key for key, each in self.member.partitions.items() if each.is_dropped and each.step is not Step.DONE
            }
        self.member.revoked(keys, lost=lost)
        while isinstance(show := self.member.next(self._now_s(), rebalancing=True), Show):
            await self._call(show)

    async def _call(self, show: Show) -> None:
        """Call the application's listener, synchronous or not."""
        self._showing, has_returned = show, False
        try:
            if (listener := self._listener) is not None:
                answer = getattr(listener, _CALLBACKS[show.event])(partitions_of(show.keys))
                if inspect.isawaitable(answer):
                    await answer
            has_returned = True
        finally:
            self._showing = None
            if has_returned:
                self.member.done(show, None, self._now_s())
            else:
                self.member.failed(show, self._now_s())

    async def _commit_starts(self, idle: Mapping[Key, int], timeout_ms: float) -> None:
        """Commit the starts of partitions that delivered nothing. Leave out partitions on which the group has a commit
        by now, of an earlier owner or of the application by other means."""
        if not idle:
            return
        coordinator = self._parts.coordinator
        try:
            found = await coordinator.fetch_committed_offsets_async(partitions_of(idle), timeout_ms=timeout_ms)
            without = {TopicPartition(*key): to_commit(Committed(at)) for key, at in idle.items() if key not in found}
            await coordinator._commit_offsets_sync_async(without, timeout_ms=timeout_ms)
            self._starts.has_commit.update(idle)
        except KafkaError as error:
            log.warning("start offsets of %d idle partitions not committed: %s", len(idle), error)

    def _drop_stale(self) -> None:
        """Before each assignment, drop what kafka-python keeps of partitions that must start anew. The top of the
        module has the reasons."""
        coordinator = self._parts.coordinator
        kind = type(coordinator)

        def reset_generation(*args: Any, **kwargs: Any) -> None:
            self._is_lost = True
            kind.reset_generation(coordinator, *args, **kwargs)

        async def on_join_complete(*joined: Any, **named: Any) -> None:
            is_lost, self._is_lost, left, self._topics.left = self._is_lost, False, self._topics.left, set()
            stale = {p for p in self._subscription.assigned_partitions() if is_lost or p.topic in left}
            restarting, self._restarting = self._restarting, set()
            try:
                if stale and self.member.traits.incremental:  # an eager protocol has revoked all partitions before
                    await self.on_partitions_lost(stale)
            except Exception as error:
                raise _callback_failed() from error
            finally:
                self._forget(stale)
                self._drop_positions(restarting)
                await kind._on_join_complete_async(coordinator, *joined, **named)

        coordinator.reset_generation = reset_generation
        coordinator._on_join_complete_async = on_join_complete

    def _forget(self, partitions: Collection[Partition]) -> None:
        self._starts.forget(partitions)
        with self._subscription._lock:
            for partition in partitions:
                self._subscription.assignment.pop(partition, None)

    def _drop_positions(self, partitions: Collection[Key]) -> None:
        """Make ``partitions`` start anew. Their pauses stay, as in each rebalance of an eager protocol."""
        with self._subscription._lock:
            for partition in self._subscription.assignment.keys() & partitions:
                self._subscription.assignment[partition]._position = None

    # Calls of the application

    def subscribe(self, names: Iterable[str], listener: Any) -> None:
        """Note that the application has subscribed at kafka-python."""
        self.inner, self._topics.names = listener, tuple(names)
        self.member.subscribe(self._topics.names, sees_revocations=listener is not None and self.in_group)
        self.noted = True

    def unsubscribe(self) -> None:
        self.inner, self._topics.names, self._arrived, self._paused = None, (), None, set()
        self.member.unsubscribe()
        self.member.unassigned_by_application()
        self.noted = True

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Note that the application has assigned ``partitions`` at kafka-python."""
        keys = set(partitions)
        paused = set(self.member.paused)
        self.views.verify({topic for topic, _ in keys})
        self.views.follow()
        self._starts.keep(keys)
        self.member.assigned_by_application(dict.fromkeys(keys))
        self._keep_pauses(keys, paused)
        self._run(rebalancing=True)
        self.views.follow()
        self.noted = True

    def pause(self, partitions: Collection[Partition]) -> None:
        self.member.pause(partitions)
        self._paused.update(partitions)  # the group may have revoked them, and assign them again
        self.noted = True

    def resume(self, partitions: Collection[Partition]) -> list[Partition]:
        """Return those of ``partitions`` that kafka-python resumes now."""
        now = self.member.resume(partitions)
        self._paused.difference_update(partitions)
        self.noted = True
        return [each for each in partitions if each in now]

    def sought(self, partitions: Iterable[Partition], offset: int | None = None) -> None:
        """Note that the application has sought ``offset``. If it is None, kafka-python requests the offset."""
        for each in partitions:
            self.member.sought(each, -1 if offset is None else offset)
            self._starts.started(each, offset)
            self._restarting.discard(each)
        self.noted = True

    def commits_with_transactions(self, metadata: Any) -> None:
        """Note that the application has taken the group's metadata."""
        self.member.commits_with_transactions()
        metadata_taken(metadata_key(metadata), self.notes)

    def held(self) -> set[Partition]:
        """Return the partitions that the application sees."""
        shown = {key for key, each in self.member.partitions.items() if each.state is State.SHOWN}
        if self._showing is not None and self._showing.event is Event.ASSIGNED:
            shown |= self._showing.keys
        return {each for each in self._subscription.assigned_partitions() if each in shown}

    def paused(self) -> set[Partition]:
        """Return those of :meth:`held` that the application has paused."""
        return {each for each in self.held() if each in self.member.paused}

    def place_missing(self, timeout_ms: float | None) -> None:
        """Find the starts of partitions without a position in kafka-python, because the application requests a
        position. Call no listener: the request itself may come from the application's listener."""
        missing = self._subscription.missing_fetch_positions()
        if not missing:
            return
        self._timeout_ms = MOST_ANSWER_MS if timeout_ms is None else timeout_ms
        try:
            self._assign({key: each.offset for key, each in self._find_starts(frozenset(missing)).items()})
        except KafkaTimeoutError as error:
            log.debug("starts of %d partitions unknown: %s", len(missing), error)

    # Polls

    def apply(self, timeout_ms: float) -> None:
        """Do the due work by the views in force, between records and before kafka-python fetches.

        Args:
            timeout_ms: the rest of the application's poll.

        Raises:
            KafkaError: the application's listener has raised, or the starts of partitions could not be requested.
        """
        self._give_back_parked()
        if not self.in_group:
            self._take_assignment()
        due_s = self.due_s()
        if not self.noted and self._arrived is None and (due_s is None or due_s > self._now_s()):
            return
        self._timeout_ms, self.noted, is_done = timeout_ms, False, False
        try:
            self._take_arrived()
            self.views.follow()
            self._commit_leaving()
            self._rejoin_if_stale()
            self._check_positions()
            self._run()
            is_done = True
        finally:
            self.noted |= not is_done  # the next poll tries again

    def _give_back_parked(self) -> None:
        """Make kafka-python return records that were fetched before a pause, once their partitions resume.

        kafka-python (3.0.12) returns such records only while ``_next_partition_records`` is None, and not while it is
        an object without records. So the resumed partition would not be read any more.
        """
        fetcher = self._parts.fetcher
        if fetcher._paused_partition_records and not fetcher._next_partition_records:
            fetcher._next_partition_records = None

    def due_s(self) -> float | None:
        """Return when :meth:`apply` has work to do, on the monotonic clock, or None if only after the next event."""
        times = [self.member.due_s, self._positions_checked_s + POSITION_CHECK_S if self._watches else None]
        return min((at for at in times if at is not None), default=None)

    def _take_assignment(self) -> None:
        """Take the assignment of a consumer without a group: kafka-python assigns all partitions that it learns of."""
        if not self._subscription.partitions_auto_assigned():
            return
        assigned = self._subscription.assigned_partitions()
        if gone := self.member.partitions.keys() - assigned:
            self.member.revoked(gone)
            self.noted = True
        if new := assigned - self.member.partitions.keys():
            self._arrived = new

    def _take_arrived(self) -> None:
        """Take the partitions that the group gave to this member."""
        if self._arrived is None:
            return
        assigned = self._subscription.assigned_partitions()
        arrived = self._arrived & assigned
        self.views.before_assignment({topic for topic, _ in arrived})
        self._parts.coordinator._offset_fetch_futures.clear()  # answers from before the assignment
        self._starts.keep(assigned)
        self._arrived = None
        self._changed_before.clear()
        self.member.assigned(arrived)
        self._keep_pauses(arrived, self._paused)
        self._paused = set()

    def _keep_pauses(self, keys: Iterable[Partition], paused: Collection[Key]) -> None:
        """Resume partitions still paused from an earlier assignment, except those that the application paused."""
        for key in keys:
            if self._subscription.is_paused(key):
                if key in paused:
                    self.member.pause([key])
                else:
                    self._subscription.resume(key)

    def _check_positions(self) -> None:
        self._positions_checked_s = self._now_s()
        if watched := self.member.watched():
            self.member.polled({key: self._given(key) for key in watched})

    def _given(self, key: Key) -> int | None:
        """Return the offset up to which the application got records since the assignment or a seek, or None."""
        at = self._position(key)
        return None if at == self.member.partitions[key].base else at

    def _position(self, key: Key) -> int | None:
        state = self._subscription.assignment.get(key)
        place = None if state is None else state.position
        return None if place is None else int(place.offset)

    def _leaving(self) -> dict[Key, int]:
        """Return the commits for the next owners: the starts of partitions that delivered nothing and have no commit,
        if a change of modes may have caused a rebalance."""
        held = [
            key
            for key, each in self.member.partitions.items()
            if each.state in (State.SHOWN, State.GIVEN, State.HIDDEN_BY_MODE)
        ]
        changed = self.changed | self._changed_before
        idle = self._starts.idle([key for key in held if key[0] in changed])
        return {key: at for key, at in idle.items() if self._position(key) == at}

    def _commit_leaving(self) -> None:
        """Commit the starts of idle partitions before a revocation under a cooperative protocol: at the revocation,
        their positions would be gone. If kafka-python commits all positions, do nothing."""
        if self._is_grouped and self.member.traits.incremental and not self._auto_commit and (idle := self._leaving()):
            self._parts.net.run(self._commit_starts, idle, self._answer_ms)

    def _rejoin_if_stale(self) -> None:
        """Request a rebalance if this member leads the group, and the readable partitions have changed since it
        computed the assignment."""
        coordinator = self._parts.coordinator
        if not coordinator._is_leader or coordinator.rejoin_needed:
            return
        # The other assignors may have assigned in earlier generations, with another protocol.
        assignor = coordinator._assignors.get(coordinator._generation.protocol)
        if isinstance(assignor, ReadableAssignor) and assignor.stale():
            log.info("%s: requesting a rebalance, because the readable partitions have changed", self._topics.group_id)
            self.rejoins += 1
            coordinator.request_rejoin()

    @property
    def _is_grouped(self) -> bool:
        return self.in_group and bool(self._subscription.partitions_auto_assigned())

    @property
    def _listener(self) -> Any:
        return self.inner if self._is_grouped else None

    # Actions

    def _run(self, *, rebalancing: bool = False) -> None:
        """Carry out the actions that are due."""
        coordinator = self._parts.coordinator
        self.member.joining = coordinator.generation_if_stable() is None or coordinator.need_rejoin()
        while (action := self.member.next(self._now_s(), rebalancing=rebalancing)) is not None:
            if isinstance(action, Show):
                self._show(action)
            elif isinstance(action, Commit | CommitStored):
                self._send(action)
            else:
                try:
                    answer = self._carry_out(action)
                except KafkaError as error:
                    if not _is_repeated(action, error):
                        raise
                    log.debug("%s: %s: %s", self._topics.group_id, action, error)
                    self.member.failed(action, self._now_s())
                else:
                    self.member.done(action, answer, self._now_s())
        self._watches = bool(self.member.watched())

    def _show(self, show: Show) -> None:
        log.debug("%s: showing that %d partitions are %s", self._topics.group_id, len(show.keys), show.event.value)
        if self._listener is None:
            self.member.done(show, None, self._now_s())
            return
        try:
            self._parts.net.run(self._call, show)  # in kafka-python's thread, as in a rebalance
        except Exception as error:
            raise _callback_failed() from error

    def _carry_out(self, action: Action) -> Any:
        match action:
            case Assign(places):
                self._assign(places)
            case Pause(keys):
                self._pause(keys)
            case Resume(keys):
                TALLY.add(PARTITIONS_TAKEN_UP, len(keys))
                for key in keys & self._subscription.assigned_partitions():
                    self._subscription.resume(key)
            case Seek(places):
                self._seek(places)
                return places.keys()
            case Subscribe():
                self._topics.subscribe(action)
            case Request(what, keys):
                return self._request(what, keys)
        return None

    def _assign(self, places: Mapping[Key, int | None]) -> None:
        """Make kafka-python read partitions from ``places``. A position that kafka-python already has is kept: the
        application has sought, or kafka-python has read the partition before.

        Raises:
            NoOffsetForPartitionError: as from kafka-python, for partitions without a start.
        """
        missing = self._subscription.missing_fetch_positions()
        self._seek({key: at for key, at in places.items() if key in missing})
        unknown = {key for key, at in places.items() if at is None and key in missing}
        if unknown and not self.member.manual:
            raise NoOffsetForPartitionError(partitions_of(unknown))

    def _seek(self, places: Mapping[Key, int | None]) -> None:
        for key in places.keys() & self._subscription.assigned_partitions():
            if (at := places[key]) is not None and at >= 0:  # else kafka-python itself requests the offset of a seek
                self._subscription.seek(TopicPartition(*key), at)
                self._starts.started(key, at)

    def _pause(self, keys: Collection[Key]) -> None:
        TALLY.add(PARTITIONS_LEFT_OUT, len(keys))
        for key in keys & self._subscription.assigned_partitions():
            self._subscription.pause(key)
            self._starts.hidden(key)

    def _send(self, action: Commit | CommitStored) -> None:
        def answered(committed: Commits | None) -> None:
            self.noted = True
            if committed is None:
                self.member.failed(action, self._now_s())
            else:
                self.member.done(action, {key: as_committed(at) for key, at in committed.items()}, self._now_s())

        if isinstance(action, Commit):
            offsets = {TopicPartition(*key): to_commit(at) for key, at in action.offsets.items()}
        else:
            offsets = self.notes.consumed()
        self.notes.send(offsets, answered)
        self.member.begun(action)

    # Requests

    def _request(self, what: Asked, keys: frozenset[Key]) -> Mapping[Key, Any]:
        match what:
            case Asked.STARTS:
                return self._find_starts(keys)
            case Asked.OTHER_STARTS:
                return self._starts.find(keys, self._offsets(), ask_again=True).starts
            case Asked.PLACES:
                return self._find_places(keys)
            case Asked.RESTARTS:
                offsets = self._offsets()
                return find_restarts(
                    self.member.partitions, {key: self._position(key) for key in keys},
                    offsets.committed_now(keys), self._starts, offsets, offsets.log_starts_by_topic,
                )  # fmt: skip
            case Asked.COMMITTED:
                return self._offsets().committed_now(keys)
            case Asked.OWNED:
                return {}
            case Asked.TOPICS:
                return dict.fromkeys(keys, True)  # a topic that brokers lack is no error for kafka-python

    def _offsets(self) -> KafkaPythonOffsets:
        """Return the object that requests offsets outside a rebalance."""
        return KafkaPythonOffsets(self._parts, self._answer_ms)

    @property
    def _answer_ms(self) -> float:
        return min(max(self._timeout_ms, LEAST_ANSWER_MS), MOST_ANSWER_MS)

    def _find_starts(self, keys: frozenset[Key]) -> dict[Key, Start]:
        if self.member.manual:
            return dict.fromkeys(keys, Start(None))
        offsets = KafkaPythonOffsets(self._parts, self._timeout_ms)
        positions = {key: at for key in keys if (at := self._position(key)) is not None}
        starts: dict[Key, Start] = {}
        if new := keys - positions.keys():
            self.views.verify({topic for topic, _ in new})
            starts, unknown = self._starts.find(new, offsets, group=self.in_group, ask_again=True)
            if unknown:
                self._parts.cluster.request_update()
        if positions:  # kafka-python has read these partitions before, or the application has sought
            commits = offsets.committed_now(positions.keys()) if self.in_group else {}
            starts |= {key: Start(self._begun_at(key, at), commits.get(key)) for key, at in positions.items()}
        return starts

    def _begun_at(self, key: Key, position: int) -> int:
        """Return where a partition started that kafka-python reads on at ``position``. An eager rebalance keeps the
        position: the application may not have committed the records before it."""
        start = self._starts.start_of(key)
        return position if start is None else min(start, position)

    def _find_places(self, keys: frozenset[Key]) -> Mapping[Key, Any]:
        positions = {key: self._position(key) for key in keys}
        given = {key: None if at == self._starts.start_of(key) else at for key, at in positions.items()}
        offsets = self._offsets()
        return find_places(given, self._starts, offsets, offsets.log_starts_by_topic, group=self.in_group)


def _is_repeated(action: Action, error: Exception) -> bool:
    """Return whether a failed request is repeated silently. A request for starts is repeated only after a timeout."""
    return isinstance(action, Request) and (action.what is not Asked.STARTS or isinstance(error, KafkaTimeoutError))


def _callback_failed() -> Exception:
    failed: Callable[[str], Exception] = KafkaError
    return failed("User rebalance callback throws an error")
