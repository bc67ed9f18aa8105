"""A confluent_kafka consumer as a member of its group: librdkafka's events become inputs, and actions become calls.

:mod:`modeaware.clients.member` makes all decisions about partitions, gates, notes and starts. This module and its
neighbours only carry out the decisions. librdkafka calls :meth:`Membership.on_assign` with the partitions that the
coordinator gave to this member, in any mode. Under ``range``, which assigns contiguous runs, the member holds only the
partitions that it *owns* by range's rule over the readable partitions (:mod:`modeaware.clients.assignment` has the
theory). :class:`~modeaware.confluent.ownership.Ownership` finds these. It notes the views at the join, reads the
mode log after the assignment, and has the coordinator describe the group if partitions are hidden. Until the group is
described, the topic is *in doubt*: its partitions are withheld. If no description comes within
``ownership.GIVE_UP_S``, the plain assignment applies. If modes have changed since the join, the members take turns in
requesting a rebalance. Until the rebalance, a partition may have no owner.

The member *holds* the partitions that the application sees; all others in its assignment are hidden. A *gate* hides a
new topic until the group has read the old topic. When views change, the next poll calls :meth:`Membership.apply`. Only
the polling thread, in which callbacks run too, may use this module. Methods for any thread have a note in their
docstrings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.actions import (
    Action,
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
from modeaware.clients.member import Member, Traits
from modeaware.clients.member_views import MemberViews
from modeaware.clients.partition import Committing, State, Step
from modeaware.clients.starts import Key, Starts
from modeaware.clients.subscription import Gate, Reader
from modeaware.clients.tally import PARTITIONS_LEFT_OUT, PARTITIONS_TAKEN_UP, TALLY
from modeaware.config import ClientConfig
from modeaware.confluent.ends import PartitionEnds
from modeaware.confluent.names import first_offsets, physical_topic
from modeaware.confluent.offsets import (
    SINGLE_ANSWER_S,
    LibrdkafkaOffsets,
    NonMember,
    key_of,
    metadata_of,
    parts_of,
    positions,
)
from modeaware.confluent.own_commits import OwnCommits
from modeaware.confluent.ownership import GroupConf, Ownership, topics_of
from modeaware.confluent.patterns import Patterns, matches
from modeaware.confluent.requests import Requests
from modeaware.confluent.retarget import weakly
from modeaware.librdkafka import (
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from modeaware.topic_view import TopicView
from modeaware.views.source import Views

log = get_logger(__name__)

POSITION_CHECK_S = 0.1
"""How often positions are checked while a topic is read to its end."""
NOTICE_S, NOTICE_RETRY_S = 20.0, 1.0
"""How long, and how often, the metadata of a deleted topic is requested. The controller creates another topic of that
name only later."""
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_UNSET = (OFFSET_INVALID, OFFSET_STORED)
_UNTIMELY = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.STALE_MEMBER_EPOCH,
)
"""The coordinator's answers to a commit while the group rebalances."""
_NOT_NOW = (KafkaError._STATE, KafkaError._PREV_IN_PROGRESS, KafkaError._OUTDATED)
"""librdkafka's answers to a seek in a partition that is starting or stopping, or that was assigned meanwhile."""

Callback = Callable[[Any, list[TopicPartition]], Any]


@dataclass(frozen=True)
class Subscription:
    """The application's subscription, with its callbacks."""

    topics: tuple[str, ...]
    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None

    def covers(self, topic: str) -> bool:
        """Return whether changes of ``topic`` may concern this subscription. With a pattern, any topic may."""
        return topic in self.topics or any(name.startswith("^") for name in self.topics)

    def callback(self, event: Event) -> Callback | None:
        if event is Event.ASSIGNED:
            return self.on_assign
        return (self.on_lost if event is Event.LOST else None) or self.on_revoke


def member_of(conf: GroupConf, config: ClientConfig) -> Member:
    """Return the member for a consumer with these settings."""
    match = partial(matches, whole_names=conf.whole_names)
    return Member(
        Reader(conf.group_id, (), match, config.on_replace),
        Traits(conf.incremental, conf.static),
        Committing(conf.auto_commit, conf.stores_offsets),
    )


class Membership:
    """The layer between librdkafka's rebalances and the application.

    Args:
        stock: the client's own methods.
        client: returns the client, with which callbacks are called.
        apply_soon: makes the polling thread call :meth:`apply` soon.

    Attributes:
        subscription: the last one. It is kept after ``unsubscribe()``, because the revocation calls its callback.
        given: the partitions that the group gave to this member in this generation, or None without an assignment.
        watches: whether the application's positions and commits have to be observed.
        sees_absences: whether events may arrive about topics that the application has not named.
    """

    def __init__(
        self,
        stock: Any,
        client: Callable[[], Any],
        conf: GroupConf,
        member: Member,
        ownership: Ownership,
        starts: Starts,
        non_member: NonMember,
        commits: OwnCommits,
        views: Views,
        apply_soon: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stock = stock
        self._client = client
        self._conf = conf
        self._ownership = ownership
        self._starts = starts
        self._non_member = non_member
        self._commits = commits
        commits.answered, commits.reported = weakly(self._was_committed), weakly(self._was_reported)
        self._views = MemberViews(member, views, conf.group_id)
        self._apply_soon = apply_soon
        self._now_s = now_s
        self._offsets = LibrdkafkaOffsets(stock, conf.group_id, non_member)
        self._requests = Requests(stock, non_member, member, starts, self._offsets, ownership)
        self._patterns = Patterns(
            member.reading.reader.match, non_member, conf.refresh_s, keeps_patterns=conf.creates_topics, now_s=now_s
        )
        self.member = member
        self.ends = PartitionEnds(stock, member, weakly(self._seek_one), wanted=conf.wants_ends)
        self._showing: Show | None = None
        self._rebalancing = False
        self._revoking: set[Key] = set()
        self._inside = False
        self._closing = False
        self._subscribed: tuple[str, ...] = ()
        self._positions_checked_s = 0.0
        self._watched: set[Key] = set()
        self._assigned_topics: set[str] = set()
        # Deleted topics that librdkafka still has -> the end of the requests for their metadata (None: none was sent).
        self._notices: dict[str, float | None] = {}
        self._notice_s: float | None = None
        self._added: set[str] = set()  # topics that this member has subscribed to beyond the application's names
        self.subscription: Subscription | None = None
        self.given: set[Key] | None = None
        self.watches = self.sees_absences = False

    # Subscription

    def join(self) -> None:
        """Subscribe at librdkafka."""
        assert self.subscription is not None
        self._view()
        self._ownership.before_join()
        self.member.subscribe(self.subscription.topics, sees_revocations=self.subscription.on_revoke is not None)
        self._run()
        if self.due_s() is not None:
            self._apply_soon()

    def leave(self) -> None:
        """Stop requesting rebalances; the application's callbacks still see the last revocation."""
        self.member.unsubscribe()
        self._subscribed = ()

    def _subscribe(self, subscribe: Subscribe) -> None:
        topics = self._patterns.topics(subscribe)
        if self._subscribed and set(topics) != set(self._subscribed):
            log.info(
                "%s: subscribing to %s from now on, no longer to %s",
                self._conf.group_id, list(topics), sorted(set(self._subscribed) - set(topics)),
            )  # fmt: skip
            self._ownership.before_join()
        self._subscribed = topics
        is_named = self.member.reading.reader.names_topic
        self._added |= {topic for topic in topics if not topic.startswith("^") and not is_named(topic)}
        self._stock.subscribe(
            list(topics),
            on_assign=self.on_assign,
            on_revoke=lambda consumer, partitions: self._revoke(partitions, lost=False),
            on_lost=lambda consumer, partitions: self._revoke(partitions, lost=True),
        )

    def _rejoin(self) -> None:
        """Leave the group and join it again. Without the leave, only a join of its leader starts a rebalance."""
        self._stock.unsubscribe()
        # librdkafka subscribes only when the member has left the group. Before the leave, _revoke() notes the views.
        self._subscribe(self.member.wanted)

    # What librdkafka calls

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Take ``partitions``: the whole assignment (eager), or an addition to it (incremental)."""
        if self._closing:
            return  # librdkafka revokes them at once, and every request for their offsets would time out
        new = {key_of(p) for p in partitions}
        self._views.before_assignment(topics_of(new))  # before a view decides anything (invariant I8)
        if self._conf.incremental:
            self.given = (self.given or set()) | new
        else:
            self.given, new = new, self._ownership.assigned(new)
        self._view()
        self.ends.forget(self.member.partitions.keys() if not self._conf.incremental else ())
        self.member.assigned(new, withheld=self._ownership.withheld)
        if not new and not self._conf.incremental:
            self._stock.assign([])  # without any call, confluent_kafka would assign all of ``partitions``
        try:
            self._rebalance()
        finally:
            if self._ownership.is_uncertain or self._conf.static or self.due_s() is not None:
                self._apply_soon()

    def _revoke(self, partitions: list[TopicPartition], *, lost: bool) -> None:
        revoked = {key_of(p) for p in partitions}
        gone = revoked if self._conf.incremental else set(self.member.partitions)
        idle = self._starts.idle(self._leaving(gone))
        self._revoking = revoked
        self.member.revoked(revoked, lost=lost)
        try:
            self._rebalance()
            if not lost and not self._closing:
                self._commit_idle(idle)
        finally:
            self._ownership.before_join()
            self.given = (self.given or set()) - revoked if self._conf.incremental else None
            self._revoking = set()
            self.ends.forget(gone)
            self._starts.forget(gone)

    def _rebalance(self) -> None:
        """Carry out the actions of a rebalance, even if a callback of the application raises."""
        self._rebalancing = True
        try:
            try:
                self._run(rebalancing=True)
            finally:
                self._run(rebalancing=True)
        finally:
            self._rebalancing = False

    def before_close(self) -> None:
        """Send the member's last requests to the coordinator: none is sent within ``close()``."""
        self._closing = True
        if self.given is not None:
            self._commit_idle(self._starts.idle(self._leaving(self.member.partitions)))

    def _commit_idle(self, idle: Mapping[Key, int]) -> None:
        """Commit the starts of ``idle`` partitions for the next owner, if they delivered nothing and have no commit.

        The group's commits are requested now, because another client may have committed since. Without
        ``enable.auto.commit``, do this only if a change of modes may have caused the rebalance.
        """
        auto = self._conf.auto_commit
        due = {key: at for key, at in idle.items() if auto or self._ownership.changed(key[0])}
        due = {key: due[key] for key, position in positions(self._stock, due).items() if position is None}
        without = {key: Committed(due[key]) for key, at in self._offsets.committed(due).items() if at is None}
        if without and self._closing:
            self._commit_now(without)
        elif without:
            self._send(Commit(without))

    # Calls of the application, in its callbacks or outside

    def assign(self, partitions: list[TopicPartition], *, incremental: bool = False) -> None:
        """Carry out ``assign`` or ``incremental_assign``. A callback that is called between rebalances can take only
        partitions that are assigned already; others are ignored."""
        show, self._showing = self._showing, None
        if show is not None and show.event is not Event.ASSIGNED:
            self._showing = show
            return
        places = self._chosen(partitions)
        if show is not None:
            if not self._rebalancing:
                for key in places.keys() - self.member.partitions.keys():
                    log.warning("%s [%d] is ignored, because it is not assigned to this consumer now", *key)
            self.member.done(show, places, self._now_s())
        else:
            self._check(partitions, incremental=incremental)
            self._views.verify({p.topic for p in partitions})
            self._view()
            self.ends.forget(places if incremental else self.member.partitions.keys())
            self.member.assigned_by_application(places, incremental=incremental)
            if not places and not incremental:
                self._stock.assign([])
        try:
            self._run(rebalancing=True)
        except KafkaException:  # librdkafka has refused the call, and would refuse its repetition
            self._forget({key for key, each in self.member.partitions.items() if each.step is Step.ASSIGN})
            raise
        if self.member.manual:
            self._views.follow()  # logs a warning
        if self.due_s() is not None:
            self._apply_soon()

    def _check(self, partitions: list[TopicPartition], *, incremental: bool) -> None:
        """Let librdkafka refuse a call that does not fit the group's protocol, or that adds partitions which the
        application holds already. A refused call leaves the assignment unchanged.

        Raises:
            KafkaException: as from librdkafka.
        """
        is_unfit = self.given is not None and incremental is not self._conf.incremental
        if is_unfit or (incremental and not self._held().isdisjoint(map(key_of, partitions))):
            (self._stock.incremental_assign if incremental else self._stock.assign)(partitions)

    def _chosen(self, partitions: Iterable[TopicPartition]) -> dict[Key, int | None]:
        """Return the offsets that the application has chosen, with numbers for "beginning" and "end"."""
        places: dict[Key, int | None] = {key_of(p): None if p.offset in _UNSET else p.offset for p in partitions}
        self._offsets.remember(partitions)
        logical = {key: at for key, at in places.items() if at is not None and at < 0}
        if logical and self.given is not None:
            places |= self._offsets.listed(logical)
        return places

    def unassign(self) -> None:
        if self._showing is not None and not self._rebalancing:
            return  # between rebalances, the member hides the partitions after the callback
        self._stock.unassign()
        if self._showing is None:
            self._forget(None)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        if self._showing is not None and not self._rebalancing:
            return  # between rebalances, the member hides the partitions after the callback
        hidden = (self._revoking & self.member.partitions.keys()) - self._held() - set(map(key_of, partitions))
        self._stock.incremental_unassign([*partitions, *parts_of(hidden)])
        self._revoking = self._revoking - hidden  # librdkafka would refuse a later call that names them again
        if self._showing is None:
            self._forget({key_of(p) for p in partitions})

    def _forget(self, keys: set[Key] | None) -> None:
        gone = set(self.member.partitions) if keys is None else keys
        self.member.unassigned_by_application(keys)
        self.ends.forget(gone)
        self._starts.forget(gone)

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._stock.pause(partitions)
        self.member.pause(map(key_of, partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        now = self.member.resume(map(key_of, partitions)) | self.ends.running(map(key_of, partitions))
        self._stock.resume([p for p in partitions if key_of(p) in now])

    def seek(self, partition: TopicPartition) -> None:
        self._stock.seek(partition)
        key, at = key_of(partition), partition.offset
        self.ends.sought(key)
        if key not in self.member.partitions:
            return
        if at < 0 and key in self.member.watched():
            at = self._offsets.listed({key: at}).get(key, at)
        self.member.sought(key, at)
        self._starts.started(key, at)

    def visible(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return ``partitions`` without those that the application does not hold."""
        hidden = self.member.partitions.keys() - self._held()
        return [p for p in partitions if key_of(p) not in hidden] if hidden else partitions

    def _held(self) -> set[Key]:
        return {key for key, each in self.member.partitions.items() if each.state is State.SHOWN}

    def _leaving(self, among: Collection[Key]) -> set[Key]:
        """Return the partitions that the next owner has to continue: those that this member holds or is about to show,
        and those that perhaps no member owns."""
        own = {key for key, each in self.member.partitions.items() if each.state in (State.SHOWN, State.GIVEN)}
        return (own | self._ownership.unowned.intersection(self.member.partitions)).intersection(among)

    # Changes of views, and polls

    def apply(self, *, inside: bool, taken: Collection[Message] = ()) -> None:
        """Carry out due work, by the views in force.

        Args:
            inside: within a call of librdkafka, which may have taken records that the application did not get yet.
            taken: records that the running ``consume`` has taken and not returned yet. Work that affects these records
                waits until the application has them, and :meth:`due_s` stays due.
        """
        self._inside = inside
        self._view()
        if not inside:
            self._check_positions(taken)
        if not self.member.manual and self.given is not None and not self._conf.incremental:
            self._ownership.resolve(self.given)
            if self._subscribed and self._ownership.needs_rejoin(self.given):
                if not taken and self._ownership.my_turn(self.given):
                    log.info(
                        "%s: requesting a rebalance, because the readable partitions have changed", self._conf.group_id
                    )
                    self._rejoin()
                return
            self.member.ownership_known(self._ownership.withheld)
        self._run(carrying=bool(taken))
        if taken:
            return
        if not inside:
            self._notice_deletions()
        if self._patterns.due_s is not None and self._now_s() >= self._patterns.due_s:
            wanted = self.member.wanted
            if self._subscribed and set(self._patterns.topics(wanted)) != set(self._subscribed):
                self._subscribe(wanted)
        if self.due_s() is None:
            self._non_member.close()

    def _notice_deletions(self) -> None:
        """Make librdkafka notice the deletion of topics of which this consumer has had partitions.

        If a broker answers that there is no such topic, librdkafka forgets the topic's leader epochs 30 s later.
        Otherwise librdkafka never reads a later topic of that name with lower leader epochs (docs/client-faults.md). So
        a topic's metadata is requested until a broker gives this answer, for ``NOTICE_S`` at most.
        """
        is_deleted = self.member.reading.is_alias
        deleted = set(filter(is_deleted, self._assigned_topics))
        self._assigned_topics |= {topic for topic, _ in self.member.partitions if not is_deleted(topic)}
        self._assigned_topics -= deleted
        if not self._conf.creates_topics:  # on brokers that create topics, the request would create the topic again
            self._notices |= dict.fromkeys(sorted(deleted))
        if self._notice_s is not None and self._now_s() < self._notice_s:
            return
        self._notice_s, began_s = None, self._now_s()
        for topic, until_s in tuple(self._notices.items()):
            if self._now_s() - began_s > POSITION_CHECK_S:
                self._notice_s = self._now_s()  # the other topics wait for the next poll, so that no poll takes long
                return
            if until_s is None:
                until_s = self._notices[topic] = self._now_s() + NOTICE_S
            if not self._is_absent(topic):
                if self._now_s() < until_s:
                    self._notice_s = self._now_s() + NOTICE_RETRY_S  # other topics wait, too
                    return
                log.warning(
                    "%s was deleted, and no broker has confirmed the deletion to this consumer: if another topic "
                    "gets the name, restart the consumer (docs/client-faults.md)",
                    topic,
                )
            del self._notices[topic]

    def _is_absent(self, topic: str) -> bool:
        """Request the metadata of a topic, and return whether a broker answers that there is no such topic."""
        try:
            return self._stock.list_topics(topic, timeout=SINGLE_ANSWER_S).topics[topic].error is not None
        except KafkaException as error:
            log.debug("%s was deleted, and its metadata was not requested: %s", topic, error)
            return False

    def _view(self) -> None:
        self._views.follow()
        self._patterns.viewed(self.member.reading.views)

    def _check_positions(self, taken: Iterable[Message]) -> None:
        self._positions_checked_s = self._now_s()
        watched = self.member.watched()
        at = positions(self._stock, watched)
        for key, offset in first_offsets(taken).items():
            if key in at:
                at[key] = None if offset == self.member.partitions[key].base else offset
        # Earlier commits of the application on these partitions were not observed.
        self.member.doubted(key for key in watched - self._watched if at[key] is not None)
        self._watched = watched
        if watched:
            self.member.polled(at)

    def is_ending(self, topic: str | None) -> bool:
        """Return whether records of ``topic`` must not wait until their batch is full: the topic has ends, and the gate
        behind the topic is closed. If a rebalance came meanwhile, the next owner would find a commit behind the
        waiting records, and would report these as read.
        """
        return (
            topic is not None
            and self.member.reading.topic(topic).awaits_report
            and bool(self.member.reading.topic(topic).ends)
        )

    def take_back(self, messages: Iterable[Message]) -> None:
        """Make librdkafka return ``messages`` again, because the application did not get them."""
        for key, offset in first_offsets(messages).items():
            if key not in self.member.partitions:
                continue  # the group's commit decides where the next owner begins
            try:
                self._seek_now(TopicPartition(*key, offset))
            except KafkaException as error:
                log.warning(
                    "%s [%d]: records from offset %d on were not returned to the application, and the seek back to "
                    "them failed: %s",
                    *key,
                    offset,
                    error,
                )

    def due_s(self) -> float | None:
        """Return when to call :meth:`apply` again, on the monotonic clock, or None if nothing waits."""
        times = [self.member.due_s, self._ownership.due_s(), self._patterns.due_s, self.ends.retry_s, self._notice_s]
        if self.given is not None and (self.watches or self._commits.pending):
            times.append(self._positions_checked_s + POSITION_CHECK_S)
        return min((at for at in times if at is not None), default=None)

    # Actions

    def _run(self, *, rebalancing: bool = False, carrying: bool = False) -> None:
        """Carry out the actions that are due."""
        while (action := self.member.next(self._now_s(), rebalancing=rebalancing, carrying=carrying)) is not None:
            if isinstance(action, Show):
                self._show(action)
                continue
            if isinstance(action, Commit | CommitStored):
                if self._send(action):
                    self.member.begun(action)
                else:
                    self.member.failed(action, self._now_s())
                continue
            try:
                answer = self._carry_out(action)
            except KafkaException as error:
                if not isinstance(action, Request):
                    raise
                log.debug("%s: %s: %s", self._conf.group_id, action, error)
                self.member.failed(action, self._now_s())
            else:
                self.member.done(action, answer, self._now_s())
        self.ends.run_to_end()
        self.watches = bool(self.member.watched())
        self._commits.listen(self.watches or self.member.has_dropped)
        self.sees_absences = bool(self._patterns.listed) or any(
            map(self._is_hidden, self._added.union(self._subscribed))
        )

    def _show(self, show: Show) -> None:
        callback = self.subscription.callback(show.event) if self.subscription else None
        self._showing, has_returned = show, False
        try:
            if callback is not None:
                callback(self._client(), parts_of(show.keys))
            has_returned = True
        except KafkaException as error:
            is_untimely = show.event is Event.REVOKED and error.args[0].code() in _UNTIMELY
            if self._rebalancing or not is_untimely:
                raise
            # The group rebalances during the revocation shown here. The rebalance revokes again, and the application
            # can then commit.
            log.info(
                "%s: on_revoke raised %s, because the group is rebalancing; continuing", self._conf.group_id, error
            )
        finally:
            if self._showing is show:
                self._showing = None
                if has_returned:
                    self.member.done(show, None, self._now_s())
                else:
                    self.member.failed(show, self._now_s())
                self._reset_stored(show.keys)

    def _reset_stored(self, keys: Iterable[Key]) -> None:
        """Reset the offsets that the application has stored itself, if it may have dropped the records. A revocation by
        librdkafka does this (#2782), a seek does not. The partition's start is stored instead, which sets no commit
        back: librdkafka commits nothing below its last commit."""
        how, partitions = self.member.committing, self.member.partitions
        if how.stores or how.automatic or not self.member.has_dropped:
            return
        dropped = ((key, partitions[key].start) for key in keys if key in partitions and partitions[key].is_dropped)
        starts = [TopicPartition(*key, at) for key, at in dropped if at is not None and at >= 0]
        if starts:
            self._stock.store_offsets(offsets=starts)

    def _carry_out(self, action: Action) -> Any:
        match action:
            case Assign(places, whole):
                self._assign(places, whole=whole)
            case Pause(keys):
                TALLY.add(PARTITIONS_LEFT_OUT, len(keys))
                self.ends.pause(keys)
                for key in keys:
                    self._starts.hidden(key)
            case Resume(keys):
                TALLY.add(PARTITIONS_TAKEN_UP, len(keys))
                self.ends.shown(keys)
                self._stock.resume(parts_of(keys))
            case Seek(places):
                return {key for key, at in places.items() if self._seek(key, at)}
            case Subscribe():
                self._subscribe(action)
            case Rejoin():
                log.info("%s: requesting a rebalance, because a new topic has no owner", self._conf.group_id)
                self._rejoin()
            case Request(what, keys):
                return self._requests.answer(what, keys, self.given or set(), inside=self._inside)
        return None

    def _assign(self, places: Mapping[Key, int | None], *, whole: bool) -> None:
        starts = {}
        for key, at in sorted(places.items()):
            end = self.ends.end_of(key)
            starts[key] = end if end is not None and (at is None or at < end) else at
        self.ends.pause_first(starts)
        parts = [
            TopicPartition(*key, OFFSET_INVALID) if at is None else self._offsets.placed(key, at)
            for key, at in starts.items()
        ]
        (self._stock.assign if whole else self._stock.incremental_assign)(parts)
        for key, at in places.items():
            self._starts.started(key, at)

    def _seek(self, key: Key, at: int | None) -> bool:
        return at is None or self._seek_one(TopicPartition(*key, at))

    def _seek_now(self, place: TopicPartition) -> None:
        try:
            self._stock.seek(place)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._OUTDATED:
                raise
            self._stock.seek(place)  # again: an assignment has overtaken the first seek

    def _seek_one(self, place: TopicPartition) -> bool:
        try:
            self._seek_now(place)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_NOW:
                raise
            return False
        self._starts.started(key_of(place), place.offset)
        return True

    # Commits

    def _send(self, action: Commit | CommitStored) -> bool:
        try:
            self._commits.send(self._stock, action)
        except KafkaException as error:
            log.warning("%s: offsets not committed: %s", self._conf.group_id, error)
            return False
        return True

    def _was_committed(
        self, action: Commit | CommitStored, error: KafkaError | None, parts: list[TopicPartition]
    ) -> None:
        """Process the result of a commit by this package; runs within a call of librdkafka."""
        is_empty = error is not None and error.code() == KafkaError._NO_OFFSET
        if error is not None and not is_empty:
            log.warning("%s: offsets of %d partitions not committed: %s", self._conf.group_id, len(parts), error)
        if not self.member.has_begun(action):
            return
        done = {key_of(p): Committed(p.offset, metadata_of(p)) for p in parts if p.error is None}
        if isinstance(action, Commit):
            self.member.done(action, done.keys(), self._now_s())
        elif error is None or is_empty:
            self.member.done(action, {key: at for key, at in done.items() if at.offset >= 0}, self._now_s())
        else:
            self.member.failed(action, self._now_s())
        self._apply_soon()

    def _was_reported(self, error: KafkaError | None, parts: list[TopicPartition]) -> None:
        """Process the result of a commit by the application or by librdkafka's timer; runs within a call of librdkafka.
        Without the timer, a success is not noted: the application's commit was noted when it was made, and a later
        commit may have been noted since."""
        done = [p for p in parts if p.error is None and p.offset >= 0]
        if error is not None:
            self.member.doubted(map(key_of, parts))
            self._apply_soon()
        elif self._conf.auto_commit:
            self.member.committed({key_of(p): Committed(p.offset, metadata_of(p)) for p in done})

    def _commit_now(self, offsets: Mapping[Key, Committed]) -> None:
        parts = [TopicPartition(*key, *at) for key, at in sorted(offsets.items())]
        try:
            self._stock.commit(offsets=parts, asynchronous=False)
        except KafkaException as error:
            log.warning("%s: offsets of %d partitions not committed: %s", self._conf.group_id, len(parts), error)

    # Calls of any thread, and events

    def is_absence(self, message: Message) -> bool:
        """Return whether ``message`` reports the absence of a topic that the application did not choose by name: a
        hidden topic, or one that a pattern matches."""
        error, topic = message.error(), physical_topic(message)
        if error is None or topic is None or error.code() not in _ABSENT:
            return False
        is_listed = topic in self._patterns.listed
        if not is_listed and not self._is_hidden(topic):
            return False
        log.info("%s: %s: %s", self._conf.group_id, topic, error.str())
        if is_listed:
            self._patterns.refresh_soon()
            self._apply_soon()
        return True

    def _is_hidden(self, topic: str) -> bool:
        reading = self.member.reading
        is_own = topic in self._added or reading.is_alias(topic)
        return is_own and reading.gate(topic) in (Gate.CLOSED, Gate.UNNAMED, Gate.LEFT)

    def concerns(self, topics: set[str]) -> bool:
        """Return whether views of ``topics`` may change the partitions that are read (any thread)."""
        if self.subscription is not None and any(map(self.subscription.covers, topics)):
            return True
        known = {topic for topic, _ in tuple(self.member.partitions)}
        return not topics.isdisjoint(known.union(self._subscribed))

    def note(self, view: TopicView) -> None:
        """Note that ``view``, which may change the partitions that are read, came into force (any thread)."""
        self._ownership.note(view)
        self._starts.remember(view)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use other credentials in the auxiliary clients (any thread)."""
        self._ownership.set_sasl_credentials(username, password)
        self._non_member.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Close the auxiliary clients."""
        self._ownership.close()
        self._non_member.close()

    def stats(self) -> dict[str, Any]:
        """Return the group's part of ``modeaware_stats`` (any thread)."""
        own = self._ownership
        return {**self._views.stats(), "in_doubt": sorted(own.in_doubt), "rejoins": own.rejoins}
