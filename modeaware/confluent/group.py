"""A confluent_kafka consumer as a member of its group: what it owns, what it reads, and when it requests a rebalance.

librdkafka calls :meth:`Membership.on_assign` with the partitions that the coordinator gave to this member, all modes
included. Of these it reads:

* the readable ones, by the views in force; those in mode None are assigned and hidden
  (:mod:`modeaware.confluent.partitions`), and shown when they are readable again;
* under ``range``, which deals contiguous runs, only those that it *owns* by range's rule over the readable partitions
  (:mod:`modeaware.clients.assignment` has the theory). For that :class:`Ownership` notes the views at the join, reads
  the mode log after the assignment, and where partitions are hidden, has the coordinator describe the group. Topics for
  which that is not certain are *in doubt*: their partitions are withheld until it is, for :data:`GIVE_UP_S` at most;
  then the plain assignment stands. Where the modes have changed since, the members take turns in requesting a
  rebalance.

So a partition that was given and is not read is hidden by its mode, withheld (in doubt, or owned by another member), or
declined by the application. A change of modes leaves a note for the polling thread, whose next poll calls
:meth:`Membership.apply`. The application sees its callbacks called with what it really holds.

All of it is for the polling thread, which the callbacks run in, except :meth:`Ownership.note`.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from modeaware.clients.assignment import hidden, possible_hidden, rejoin_turns, share
from modeaware.clients.starts import Key
from modeaware.config import with_topic_config
from modeaware.confluent.gates import UNOWNED_S, Gates
from modeaware.confluent.partitions import Partitions, key_of, parts_of
from modeaware.errors import ModeSourceError
from modeaware.librdkafka import AdminClient, KafkaError, KafkaException, TopicPartition
from modeaware.modelog.connection import connection_conf
from modeaware.topic_view import TopicView
from modeaware.views.source import VERIFY_TIMEOUT_S, Views

log = logging.getLogger(__name__)

REFRESH_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 2.0
RETRY_S = 0.5
SHOW_RETRY_S = 0.05
TURN_S = 1.0
GIVE_UP_S = 30.0
SEEN_VIEWS = 1_000
"""How many changes of a topic are remembered since a join; with more of them it is in doubt who owns what."""
RANGE = "range"
_NOTHING_HIDDEN: frozenset[frozenset[int]] = frozenset({frozenset()})
_METADATA_MAGIC = b"CGMDv2:"

Callback = Callable[[Any, list[TopicPartition]], Any]


@dataclass(frozen=True)
class GroupConf:
    """The settings that decide how an assignment may be changed.

    Attributes:
        group_id: ``group.id``.
        incremental: the rebalance protocol is cooperative (``cooperative-sticky``, or ``group.protocol=consumer``), so
            partitions are added and taken away one by one; else (eager) an assignment is replaced as a whole.
        may_be_range: the group may come to use the ``range`` strategy.
        offset_reset: ``auto.offset.reset``, as given.
        auto_commit: ``enable.auto.commit``.
        static: a member of the classic protocol with a ``group.instance.id``.
    """

    group_id: str
    incremental: bool = False
    may_be_range: bool = True
    offset_reset: str = "largest"
    auto_commit: bool = True
    static: bool = False

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> GroupConf:
        """Read ``conf``; what stands in ``default.topic.config`` overrides the rest, as confluent_kafka has it."""
        settings = with_topic_config(conf)
        strategies = [name.strip() for name in str(settings.get("partition.assignment.strategy", "range")).split(",")]
        consumer_protocol = str(settings.get("group.protocol", "classic")).lower() == "consumer"
        return cls(
            group_id=str(settings.get("group.id", "")),
            incremental=consumer_protocol or "cooperative-sticky" in strategies,
            may_be_range="range" in strategies and not consumer_protocol,
            offset_reset=str(settings.get("auto.offset.reset", "largest")),
            auto_commit=str(settings.get("enable.auto.commit", True)).lower() in ("true", "t", "1"),
            static=bool(settings.get("group.instance.id")) and not consumer_protocol,
        )


# What the coordinator returns of the group


class GroupAssignment(NamedTuple):
    """The assignment of all members in the present generation: the strategy, and topic -> member id -> partitions."""

    strategy: str
    topics: Mapping[str, Mapping[str, tuple[int, ...]]]

    def of(self, topic: str) -> Mapping[str, tuple[int, ...]]:
        return self.topics.get(topic, {})


class GroupMoved(Exception):
    """The group is in another generation than the caller, or about to be: another assignment is coming."""


class GroupUnknown(Exception):
    """The coordinator's answer is missing; ``final``: another request will not help (not authorised)."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class GroupDescriber:
    """Describes the consumer's own group; the admin client is made when first needed, and has no thread of ours."""

    def __init__(self, conf: Mapping[str, Any], group_id: str) -> None:
        self._conf = connection_conf(conf, "group")
        self._group_id = group_id
        self._admin: Any = None

    def describe(self, member: str, given: set[Key]) -> GroupAssignment:
        """Return the assignment of the generation in which ``member`` was given ``given``.

        A group that is stable and shows exactly this for the member id is in the caller's generation: the next one
        cannot be complete without a new join of this member.

        Raises:
            GroupMoved: it is not, or a rebalance is under way.
            GroupUnknown: no answer, or one that cannot be used.
        """
        description = self._request()
        if description.state != "Stable":
            raise GroupMoved(f"group {self._group_id} is {description.state}")
        topics: dict[str, dict[str, tuple[int, ...]]] = {}
        own: set[Key] | None = None
        for other in description.members:
            assignment = _decoded(other.assignment)
            if other.id == member:
                own = {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}
            for topic, partitions in assignment.items():
                topics.setdefault(topic, {})[other.id] = partitions
        if own != given:
            raise GroupMoved(f"group {self._group_id} shows another assignment for {member}")
        return GroupAssignment(description.protocol, topics)

    def _request(self) -> Any:
        if self._admin is None:
            self._admin = AdminClient(self._conf)
        try:
            # Not describe_consumer_groups: librdkafka aborts the process when that request's timeout runs out while the
            # coordinator is away (an assertion in rdkafka_queue.h, librdkafka 2.16). This older call does not.
            # Its deprecation concerns us alone; where warnings are errors the call would fail.
            warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)
            found = self._admin.list_groups(self._group_id, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self._unknown(error.args[0]) from error
        for group in found:
            if group.id == self._group_id:
                if group.error is not None:
                    raise self._unknown(group.error)
                return group
        raise GroupUnknown(f"group {self._group_id} not described: no broker lists it")

    def _unknown(self, error: KafkaError) -> GroupUnknown:
        final = error.code() in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        return GroupUnknown(f"group {self._group_id} not described: {error.str()}", final=final)

    def close(self) -> None:
        self._admin = None


def _decoded(data: bytes | None) -> dict[str, tuple[int, ...]]:
    """Topic -> partitions in a member's assignment (Kafka's ConsumerProtocolAssignment, any version)."""
    assignment: dict[str, tuple[int, ...]] = {}
    if not data:
        return assignment
    try:
        (count,), at = struct.unpack_from(">2xi", data), 6  # after the version
        for _ in range(count):
            (length,) = struct.unpack_from(">h", data, at)
            topic = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (partitions,) = struct.unpack_from(">i", data, at)
            assignment[topic] = struct.unpack_from(f">{partitions}i", data, at + 4)
            at += 4 + 4 * partitions
    except (struct.error, UnicodeDecodeError) as error:
        raise GroupUnknown(f"a member's assignment cannot be read: {error}", final=True) from error
    return assignment


def generation_of(metadata: Any) -> int | None:
    """Return the generation in a client's group metadata, None where its form is not the known one.

    librdkafka writes ``CGMDv2:``, the generation (int32), group id, member id and group instance id
    (``rd_kafka_consumer_group_metadata_write``); confluent_kafka returns these bytes.
    """
    if not isinstance(metadata, bytes) or not metadata.startswith(_METADATA_MAGIC):
        return None
    generation = metadata.removeprefix(_METADATA_MAGIC)[:4]
    return int.from_bytes(generation, "little", signed=True) if len(generation) == 4 else None


# What this member owns


class Ownership:
    """What one member owns in the group's generations under ``range``; under other strategies, all that it was given.

    Attributes:
        in_doubt: topics of the present assignment for which it is not certain what this member owns.
        withheld: partitions that this member was given and does not read: of topics in doubt, or owned by another.
        rejoins: how often this member requested a rebalance.
    """

    def __init__(
        self,
        stock: Any,
        conf: GroupConf,
        views: Views,
        describer: GroupDescriber,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stock = stock
        self._conf = conf
        self._views = views
        self._describer = describer
        self._now_s = now_s
        self._applies = conf.may_be_range and not conf.incremental
        self._lock = threading.Lock()
        self._joined: Mapping[str, TopicView] | None = None
        self._seen: dict[str, deque[TopicView]] = {}
        self._possible: dict[str, frozenset[frozenset[int]] | None] = {}
        self._described: GroupAssignment | None = None
        self._pin: tuple[str, int | None, frozenset[Key]] | None = None
        self._pinned: set[Key] = set()
        self._due_s: float | None = None
        self._give_up_s = 0.0
        self._turn_s: float | None = None
        self._rejoined_for: frozenset[tuple[str, tuple[int, int]]] = frozenset()
        self._short = False
        self.in_doubt: set[str] = set()
        self.withheld: set[Key] = set()
        self.rejoins = 0

    def note(self, view: TopicView) -> None:
        """Remember a view that came into force (any thread), and give the next requests their full time again."""
        self._give_up_s = self._now_s() + GIVE_UP_S
        if self._applies:
            with self._lock:
                self._seen.setdefault(view.topic, deque(maxlen=SEEN_VIEWS)).append(view)

    def before_join(self) -> None:
        """Note the views now in force; the next generation begins after this."""
        if self._applies:
            with self._lock:
                self._seen.clear()  # first: what arrives before the snapshot is in both
            self._joined = self._views.views() if self._views.ready else None
        self._due_s = self._turn_s = None
        # What is withheld stays so until the next assignment, which may be the same one again.

    def assigned(self, given: set[Key]) -> set[Key]:
        """Return what to have assigned of a new assignment: what this member owns, and what is :attr:`withheld`.

        Blocks for a read of the mode log and, where partitions are hidden under ``range``, for a description of the
        group (seconds at most).
        """
        if not self._applies:
            return set(given)
        pin = (self._stock.memberid(), generation_of(self._stock.consumer_group_metadata()), frozenset(given))
        if self._pin == pin and pin[1] is not None:
            # The same generation again (a follower that joins anew gets its assignment back): no member has released
            # anything.
            return self._pinned | self.withheld
        try:
            self._views.refresh(REFRESH_TIMEOUT_S)
        except ModeSourceError as error:
            log.warning("%s: assignment made by the last known modes: %s", self._conf.group_id, error)
        self._described, self._short = None, False
        self._possible = {topic: self._possible_of(topic) for topic in _topics(given)}
        self.in_doubt = {t for t, possible in self._possible.items() if possible != _NOTHING_HIDDEN}
        self.withheld = {key for key in given if key[0] in self.in_doubt}
        self._give_up_s = self._now_s() + GIVE_UP_S
        self._pin, self._pinned = pin, given - self.withheld
        if self.in_doubt:
            topics, own = set(self.in_doubt), self._resolve_doubt(given)
            if own is not None:
                self.withheld = {key for key in self.withheld if key[0] not in topics}
                self._pinned |= own
        return self._pinned | self.withheld

    def _possible_of(self, topic: str) -> frozenset[frozenset[int]] | None:
        now = self._views.view(topic)
        if self._joined is None:
            # Joined without any view (modeaware.on.unknown=writable): all is well unless partitions are hidden.
            return None if hidden(now) else _NOTHING_HIDDEN
        with self._lock:
            seen = list(self._seen.get(topic, ()))
        return possible_hidden(self._joined.get(topic) or TopicView.unlisted(topic), seen, now)

    def settle(self, given: set[Key]) -> None:
        """Resolve the topics that are still in doubt, if the group can be described now.

        Of what was withheld this member then takes what it owns. If it owns what it was not given, only another
        rebalance can bring that.
        """
        topics = set(self.in_doubt)
        own = self._resolve_doubt(given) if topics else None
        if own is not None:
            self._short = not own <= self.withheld
            self._pinned |= own & self.withheld
            self.withheld = {key for key in self.withheld if key[0] not in topics or key not in own}

    def _resolve_doubt(self, given: set[Key]) -> set[Key] | None:
        """What this member owns of the topics in doubt; None: not known yet, and :meth:`due_s` is when to try again."""
        self._due_s = None
        try:
            group = self._describe(given)
        except (GroupMoved, GroupUnknown) as error:
            if isinstance(error, GroupMoved) or not (error.final or self._now_s() >= self._give_up_s):
                log.info("%s: partitions of %s withheld for now: %s", self._conf.group_id, sorted(self.in_doubt), error)
                self._due_s = self._now_s() + RETRY_S
                return None
            log.warning("%s: %s keeps the assignment of all partitions, so members may be unevenly loaded: %s",
                        self._conf.group_id, sorted(self.in_doubt), error)  # fmt: skip
            group = GroupAssignment("unknown", {})
        own = {key for key in given if key[0] in self.in_doubt}
        if group.strategy == RANGE:
            me = self._stock.memberid()
            own = {(t, p) for t in self.in_doubt for p in share(group.of(t), me, self._possible.get(t))}
        self.in_doubt = set()
        return own

    def _describe(self, given: set[Key]) -> GroupAssignment:
        if self._described is None:
            self._described = self._describer.describe(self._stock.memberid(), given)
        return self._described

    def needs_rejoin(self, given: set[Key]) -> bool:
        """Return whether a rebalance would give this member other partitions, and none was requested by these views.

        Sets the time of its turn. False as well when that is not known (the group moved on, or is not described).
        """
        if not self.in_doubt:
            self._due_s = None
        if self._short:
            self._turn_s = self._turn_s or self._now_s()
            return True
        turn_s, self._turn_s = self._turn_s, None
        changed = self._changed_since(given)
        if not self._applies or not changed or changed == self._rejoined_for:
            return False
        try:
            group = self._describe(given)
        except (GroupMoved, GroupUnknown) as error:
            log.info("%s: not known whether a rebalance is needed: %s", self._conf.group_id, error)
            if self._now_s() < self._give_up_s:
                self._due_s = self._now_s() + RETRY_S
            return False
        turns: list[str] = []
        if group.strategy == RANGE:
            for topic in sorted(topic for topic, _ in changed):
                now = hidden(self._views.view(topic))
                turns += rejoin_turns(group.of(topic), self._possible.get(topic), now)
        me = self._stock.memberid()
        if me not in turns:
            return False
        if turn_s is None:
            turn_s = self._now_s() + TURN_S * list(dict.fromkeys(turns)).index(me)
        self._turn_s = turn_s
        return True

    def _changed_since(self, given: set[Key]) -> frozenset[tuple[str, tuple[int, int]]]:
        """The topics whose readable partitions may have changed since the assignment, with the versions in force."""
        topics = [topic for topic in _topics(given) if topic not in self.in_doubt and self.changed(topic)]
        return frozenset((topic, self._views.view(topic).version) for topic in topics)

    def changed(self, topic: str) -> bool:
        """Return whether the readable partitions may not be those by which the present generation was assigned."""
        return self._possible.get(topic, _NOTHING_HIDDEN) != frozenset({hidden(self._views.view(topic))})

    def my_turn(self, given: set[Key]) -> bool:
        """Return whether to request the rebalance now: the turn has come, and no other member has done it meanwhile."""
        if self._turn_s is None or self._now_s() < self._turn_s:
            return False
        try:
            self._describer.describe(self._stock.memberid(), given)
        except (GroupMoved, GroupUnknown) as error:
            log.debug("%s: no rebalance requested: %s", self._conf.group_id, error)
            self._turn_s = self._now_s() + RETRY_S
            return False
        self._rejoined_for = self._changed_since(given)
        self._turn_s, self._short = None, False
        self.rejoins += 1
        return True

    def lacks_owner(self, topics: set[str], given: set[Key]) -> bool:
        """Return whether no member of the group was given a partition of one of ``topics``; False where that is not
        known."""
        try:
            group = self._describer.describe(self._stock.memberid(), given)
        except (GroupMoved, GroupUnknown) as error:
            log.debug("%s: owners of %s not known: %s", self._conf.group_id, sorted(topics), error)
            return False
        return not all(any(group.of(topic).values()) for topic in topics)

    @property
    def unsettled(self) -> bool:
        """Whether there may be more to do for the present assignment than to hold what is owned."""
        return any(possible != _NOTHING_HIDDEN for possible in self._possible.values())

    def due_s(self) -> float | None:
        """Return when to act again, on the monotonic clock; None if there is nothing to wait for."""
        return min((at for at in (self._due_s, self._turn_s) if at is not None), default=None)


def _topics(given: Iterable[Key]) -> set[str]:
    return {topic for topic, _ in given}


# Between librdkafka's rebalances and the application


@dataclass(frozen=True)
class Subscription:
    """What the application subscribed to, with its callbacks."""

    topics: tuple[str, ...]
    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None

    def covers(self, topic: str) -> bool:
        """Return whether changes of ``topic`` may concern this subscription (librdkafka matches patterns: any may)."""
        return topic in self.topics or any(name.startswith("^") for name in self.topics)


class Membership:
    """Stands between librdkafka's rebalances and the application.

    Attributes:
        subscription: the last one; stays after ``unsubscribe()``, whose revocation still calls back.
        given: what the group gave to this member in this generation; None while it has no assignment.

    Args:
        look_again: has :meth:`apply` called by the polling thread soon.
    """

    def __init__(
        self,
        stock: Any,
        conf: GroupConf,
        partitions: Partitions,
        ownership: Ownership,
        gates: Gates,
        views: Views,
        look_again: Callable[[], None],
    ) -> None:
        self._stock = stock
        self._conf = conf
        self._partitions = partitions
        self._ownership = ownership
        self._gates = gates
        self._views = views
        self._look_again = look_again
        self._in_callback = False
        self._assigned_inside = False
        self._midlife: set[Key] | None = None
        self._hidden: set[Key] = set()
        self._changing: set[Key] = set()
        self._late: set[Key] = set()
        self._closing = self._subscribed = False
        self._retry_s: float | None = None
        self._unowned_s: float | None = None
        self._unowned_wait_s = UNOWNED_S
        self.subscription: Subscription | None = None
        self.given: set[Key] | None = None

    def join(self) -> None:
        """Subscribe for real; the views must be noted before."""
        self._ownership.before_join()
        self._partitions.manual = False
        self._subscribed = True
        if self.subscription is not None:
            self._gates.follow((), self.subscription.topics)
            self._gates.ask_before_joining()
            self._gates.topics(self.subscription.topics)
        self._subscribe()
        if self._gates.due_s() is not None:
            self._look_again()

    def _subscribe(self) -> None:
        """Subscribe to what is read in the place of the topics that the application has named."""
        if self.subscription is not None:
            self._stock.subscribe(
                list(self._gates.subscribed),
                on_assign=self.on_assign,
                on_revoke=lambda consumer, partitions: self._revoke(consumer, partitions, lost=False),
                on_lost=lambda consumer, partitions: self._revoke(consumer, partitions, lost=True),
            )

    def leave(self) -> None:
        """Request no rebalance any more; the application's callbacks still see the last revocation."""
        self._subscribed = False

    # What librdkafka calls

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """``partitions`` is the whole assignment (eager), or what is added to it (incremental)."""
        new = {key_of(p) for p in partitions}
        self._views.verify(_topics(new), VERIFY_TIMEOUT_S)  # before anything is decided by a view (invariant I8)
        self._partitions.manual = False
        if self._conf.incremental:
            self.given = (self.given or set()) | new
        else:
            self.given, new = new, self._ownership.assigned(new)
        self._gates.on_assign(new, self.given)
        shown = self._partitions.readable(new) - self._ownership.withheld
        self._hidden = new - shown
        callback = self.subscription.on_assign if self.subscription else None
        self._assigned_inside = False
        try:
            self._call(callback, consumer, shown)
        finally:
            if not self._assigned_inside:
                take = self._partitions.add if self._conf.incremental else self._partitions.assign
                take(parts_of(shown), hidden=self._hidden)
        self._partitions.commit()
        if self._ownership.unsettled or self._gates.due_s() is not None or self._conf.static:
            self._look_again()

    def _revoke(self, consumer: Any, partitions: list[TopicPartition], *, lost: bool) -> None:
        callback = None
        if self.subscription is not None:
            callback = (self.subscription.on_lost if lost else None) or self.subscription.on_revoke
        revoked = {key_of(p) for p in partitions}
        held = revoked & self._partitions.held if self._conf.incremental else set(self._partitions.held)
        idle = self._partitions.idle_before_leaving(held)
        self._late, self._retry_s = set(), None
        self._changing, self._hidden = revoked, set()
        try:
            # A revocation of hidden partitions only is none to the application.
            if held or not revoked:
                self._call(callback, consumer, held)
            if not lost and not self._closing:
                self._commit(idle)
        finally:
            self._ownership.before_join()
            # librdkafka's client unassigns what it revokes, unless the application did.
            if self._conf.incremental:
                self.given = (self.given or set()) - revoked
                self._partitions.forget(revoked)
            else:
                self.given = None
                self._partitions.clear()

    def before_close(self) -> None:
        """The last chance to send a request to the coordinator: within ``close()`` none is sent any more."""
        self._closing = True
        if self.given is not None:
            self._commit(self._partitions.idle_before_leaving(self._partitions.held))

    def _commit(self, idle: Mapping[Key, int]) -> None:
        """Commit for the next owner; without ``enable.auto.commit`` only if it is a change of modes that may have
        brought the rebalance about."""
        auto = self._conf.auto_commit
        self._partitions.commit({key: at for key, at in idle.items() if auto or self._ownership.changed(key[0])})

    def _call(self, callback: Callback | None, consumer: Any, keys: Iterable[Key]) -> None:
        if callback is None:
            return
        self._in_callback = True
        try:
            callback(consumer, parts_of(keys))
        finally:
            self._in_callback = False

    # What the application does itself, in its callbacks or outside

    def assign(self, partitions: list[TopicPartition], *, incremental: bool = False) -> None:
        """``assign`` or ``incremental_assign``; in mid-life, only what is offered may be chosen."""
        take = self._partitions.add if incremental else self._partitions.assign
        if self._midlife is not None:
            self._assigned_inside = True
            self._partitions.choose(self._midlife, partitions)
        elif self._in_callback:
            self._assigned_inside = True
            take(partitions, hidden=self._hidden - {key_of(p) for p in partitions})
        else:
            self._views.verify({p.topic for p in partitions}, VERIFY_TIMEOUT_S)
            self._partitions.manual = self.given is None
            take(partitions)
            if self._partitions.manual:
                self._gates.warn_of_manual(_topics(self._partitions.mine))

    def unassign(self) -> None:
        if self._midlife is None:
            self._assigned_inside = True
            self._partitions.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        if self._midlife is not None:
            return  # on_revoke in mid-life: what goes is hidden afterwards
        unseen = self._changing & (self._partitions.mine - self._partitions.held) if self._in_callback else set()
        self._partitions.remove([*partitions, *parts_of(unseen)])

    # Changes of modes

    def apply(self, consumer: Any) -> None:
        """Bring the assignment in line with the views in force."""
        if self._partitions.manual:
            self._gates.warn_of_manual(_topics(self._partitions.mine))
            self._align(consumer)
            return
        self._follow_topics()
        if self.given is None:
            return  # between two generations: the next on_assign sees the views
        if self._conf.incremental or not self._settled_by_rejoin(self.given):
            self._align(consumer)
            self._partitions.commit()

    def _follow_topics(self) -> None:
        """Look at the gates; subscribe to other topics where the application's are replaced."""
        if self.subscription is None or not self._subscribed:
            return
        self._gates.follow(self.given or (), self.subscription.topics)
        self._gates.look(self._partitions.mine, self._partitions.held)
        before, after = self._gates.subscribed, self._gates.topics(self.subscription.topics)
        if set(before) != set(after):
            log.info(
                "%s: %s, replaced: subscribing to %s from now on, no longer to %s",
                self._conf.group_id, list(self.subscription.topics), list(after), sorted(set(before) - set(after)),
            )  # fmt: skip
            self._ownership.before_join()
            self._subscribe()
        elif self.given is not None:
            self._claim_unowned(self.given)

    def _claim_unowned(self, given: set[Key]) -> None:
        """Request a rebalance where a topic that this static member subscribes to has no owner.

        A static member that starts again is given what it had, without a rebalance, also where it subscribes to more
        than before (KAFKA-12759): after a rolling restart no member might be given the successor.
        """
        missing = self._gates.successors - _topics(given) if self._conf.static else set()
        if not missing:
            self._unowned_s = None
        elif self._unowned_s is None:
            self._unowned_s = time.monotonic() + self._unowned_wait_s
        elif time.monotonic() >= self._unowned_s:
            self._unowned_wait_s *= 2  # it may be that none can be given
            self._unowned_s = time.monotonic() + self._unowned_wait_s
            if self._ownership.lacks_owner(missing, given):
                log.info("%s: requesting a rebalance, no member was given %s", self._conf.group_id, sorted(missing))
                self._rejoin()

    def _rejoin(self) -> None:
        """Leave the group and join it again: a follower that only joins again starts no rebalance."""
        self._stock.unsubscribe()
        # Postponed by librdkafka until the revocation is through and the group is left; which notes the views.
        self._subscribe()

    def _settled_by_rejoin(self, given: set[Key]) -> bool:
        """Settle what is in doubt under ``range``; True if a rebalance is needed, which then brings the assignment."""
        self._ownership.settle(given)
        if not self._subscribed or not self._ownership.needs_rejoin(given):
            return False
        self._partitions.commit()
        if self._ownership.my_turn(given):
            log.info("%s: requesting a rebalance, the readable partitions have changed", self._conf.group_id)
            self._rejoin()
        return True

    def _align(self, consumer: Any) -> None:
        """Hide and show until what is held is what the views in force allow.

        The application's callbacks are called as under its protocol: with what goes and what comes, or with all that it
        holds.
        """
        partitions, eager = self._partitions, not self._conf.incremental
        target = partitions.target - self._ownership.withheld
        if self._late:
            self._show(self._late & target)
        gone, back = partitions.held - target, target - partitions.held - self._late
        if not gone and not back:
            return
        log.info("%s: hiding %s, showing %s", self._conf.group_id, sorted(gone), sorted(back))
        callbacks = self.subscription if not partitions.manual else None
        self._midlife, self._assigned_inside = target if eager else back, False
        try:
            if callbacks and (gone or eager):
                self._call(callbacks.on_revoke, consumer, partitions.held if eager else gone)
            partitions.hide(gone)
            if callbacks and (back or eager):
                self._call(callbacks.on_assign, consumer, target if eager else back)
        finally:
            # Whatever the callbacks raise, what is held is right afterwards.
            self._midlife = None
            partitions.hide(gone)
            if not self._assigned_inside:
                self._show(back)

    def _show(self, keys: Iterable[Key]) -> None:
        self._late = self._partitions.show(keys)
        self._retry_s = time.monotonic() + SHOW_RETRY_S if self._late else None

    def due_s(self) -> float | None:
        """Return when :meth:`apply` is to be called again, on the monotonic clock; None if nothing waits."""
        gates = (self._gates.due_s(), self._unowned_s) if self._subscribed else ()
        times = (self._ownership.due_s(), self._retry_s, *gates)
        return min((at for at in times if at is not None), default=None)
