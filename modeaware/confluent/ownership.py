"""The partitions that a member of a group owns: the settings, the coordinator's description of the group, and the rule.

:mod:`modeaware.confluent.group` has the purpose, and :mod:`modeaware.clients.assignment` the theory.
"""

from __future__ import annotations

import struct
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from modeaware.callouts import InnerLock, get_logger
from modeaware.clients.assignment import hidden, possible_hidden, rejoin_turns, share
from modeaware.clients.starts import Key
from modeaware.config import with_topic_config
from modeaware.errors import ModeSourceError
from modeaware.librdkafka import AdminClient, KafkaError, KafkaException, Renewed
from modeaware.modelog.connection import connection_conf
from modeaware.topic_view import TopicView
from modeaware.views.source import Views
from modeaware.wire.security import is_true

log = get_logger(__name__)

REFRESH_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 2.0
RETRY_S = 0.5
TURN_S = 1.0
GIVE_UP_S = 30.0
SEEN_VIEWS = 1_000
"""How many changes of a topic are remembered since a join. After more changes, the topic is in doubt."""
RANGE = "range"
_NOTHING_HIDDEN: frozenset[frozenset[int]] = frozenset({frozenset()})
_METADATA_MAGIC = b"CGMDv2:"


@dataclass(frozen=True)
class GroupConf:
    """The settings that determine how an assignment may be changed.

    Attributes:
        group_id: ``group.id``.
        incremental: the rebalance protocol is cooperative (``cooperative-sticky``, or ``group.protocol=consumer``):
            partitions are added and revoked one by one. If false (eager), each assignment replaces the last one.
        may_be_range: the group may at some time use the ``range`` strategy.
        offset_reset: ``auto.offset.reset``, as given.
        auto_commit: ``enable.auto.commit``.
        stores_offsets: librdkafka stores the offsets to commit by itself (``enable.auto.offset.store``).
        static: a member of the classic protocol with a ``group.instance.id``.
        whole_names: a pattern has to match a topic's whole name, not a part: under KIP-848, brokers match patterns.
        refresh_s: how often topics that a pattern may match are looked up, or None for never.
        creates_topics: brokers may create a topic that this consumer names and that does not exist.
        wants_ends: the application gets an event at the end of each partition (``enable.partition.eof``).
    """

    group_id: str
    incremental: bool = False
    may_be_range: bool = True
    offset_reset: str = "largest"
    auto_commit: bool = True
    stores_offsets: bool = True
    static: bool = False
    whole_names: bool = False
    refresh_s: float | None = 300.0
    creates_topics: bool = False
    wants_ends: bool = False

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> GroupConf:
        """Read ``conf``; its ``default.topic.config`` overrides the rest, as in confluent_kafka."""
        settings = with_topic_config(conf)
        strategies = [name.strip() for name in str(settings.get("partition.assignment.strategy", "range")).split(",")]
        consumer_protocol = str(settings.get("group.protocol", "classic")).lower() == "consumer"
        refresh_ms = int(settings.get("topic.metadata.refresh.interval.ms", 300_000))
        return cls(
            group_id=str(settings.get("group.id", "")),
            incremental=consumer_protocol or "cooperative-sticky" in strategies,
            may_be_range="range" in strategies and not consumer_protocol,
            offset_reset=str(settings.get("auto.offset.reset", "largest")),
            auto_commit=is_true(settings.get("enable.auto.commit", True)),
            stores_offsets=is_true(settings.get("enable.auto.offset.store", True)),
            static=bool(settings.get("group.instance.id")) and not consumer_protocol,
            whole_names=consumer_protocol,
            refresh_s=refresh_ms / 1000 if refresh_ms > 0 else None,
            creates_topics=is_true(settings.get("allow.auto.create.topics", False)),
            wants_ends=is_true(settings.get("enable.partition.eof", False)),
        )


# The coordinator's description of the group


class GroupAssignment(NamedTuple):
    """The assignment of all members in the present generation: the strategy, and topic -> member id -> partitions."""

    strategy: str
    topics: Mapping[str, Mapping[str, tuple[int, ...]]]

    def of(self, topic: str) -> Mapping[str, tuple[int, ...]]:
        return self.topics.get(topic, {})


class GroupMoved(Exception):
    """The group is in another generation than the caller, or will be soon: another assignment will follow."""


class GroupUnknown(Exception):
    """The coordinator returned no usable description. If ``final``, another request will not help (not authorised)."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class GroupDescriber:
    """Describes the consumer's own group. The admin client is made when first needed, and has no thread of ours."""

    def __init__(self, conf: Mapping[str, Any], group_id: str) -> None:
        self._group_id = group_id
        self._admin: Renewed[Any] = Renewed(AdminClient, connection_conf(conf, "group"))
        self.set_sasl_credentials = self._admin.set_sasl_credentials

    def describe(self, member: str, given: set[Key]) -> GroupAssignment:
        """Return the assignment of the generation in which the group gave ``member`` the partitions ``given``.

        A stable group whose description has exactly ``given`` for the member id is in the caller's generation: the next
        generation cannot be complete without a new join of this member.

        Raises:
            GroupMoved: the group is in another generation, or rebalances.
            GroupUnknown: no answer, or an unusable one.
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
            raise GroupMoved(f"group {self._group_id} gives {member} other partitions than librdkafka has")
        return GroupAssignment(description.protocol, topics)

    def _request(self) -> Any:
        try:
            # Not describe_consumer_groups: librdkafka aborts the process when that request's timeout expires while the
            # coordinator is away (an assertion in rdkafka_queue.h, librdkafka 2.16). This older call does not abort.
            # Its DeprecationWarning does not help the application, and would be an error where warnings are errors.
            warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)
            groups = self._admin.ask(lambda admin: admin.list_groups(self._group_id, timeout=REQUEST_TIMEOUT_S))
        except KafkaException as error:
            raise self._unknown(error.args[0]) from error
        for group in groups:
            if group.id == self._group_id:
                if group.error is not None:
                    raise self._unknown(group.error)
                return group
        raise GroupUnknown(f"group {self._group_id} not described: no broker lists it")

    def _unknown(self, error: KafkaError) -> GroupUnknown:
        final = error.code() in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        return GroupUnknown(f"group {self._group_id} not described: {error.str()}", final=final)

    def close(self) -> None:
        self._admin.close()


def _decoded(data: bytes | None) -> dict[str, tuple[int, ...]]:
    """Return topic -> partitions of a member's assignment (Kafka's ConsumerProtocolAssignment, any version)."""
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
    """Return the generation in a client's group metadata, or None if the metadata has an unknown form.

    librdkafka writes ``CGMDv2:``, the generation (int32), group id, member id and group instance id
    (``rd_kafka_consumer_group_metadata_write``); confluent_kafka returns these bytes.
    """
    if not isinstance(metadata, bytes) or not metadata.startswith(_METADATA_MAGIC):
        return None
    generation = metadata.removeprefix(_METADATA_MAGIC)[:4]
    return int.from_bytes(generation, "little", signed=True) if len(generation) == 4 else None


# The partitions that this member owns


class Ownership:
    """The partitions that one member owns in a generation.

    Under ``range``, range's rule assigns the readable partitions, and a hidden partition belongs to the member that was
    given it. Under any other strategy, a member owns all partitions that it was given.

    Attributes:
        in_doubt: topics of the present assignment for which it is not certain what this member owns.
        withheld: partitions that the member was given and does not read: their topic is in doubt, or the member does
            not own them.
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
        self._lock = InnerLock()
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
        """Remember a view that came into force (any thread), and restart the time until this member gives up."""
        self._give_up_s = self._now_s() + GIVE_UP_S
        if self._applies:
            with self._lock:
                self._seen.setdefault(view.topic, deque(maxlen=SEEN_VIEWS)).append(view)

    def before_join(self) -> None:
        """Note the views now in force, before the next generation begins."""
        if self._applies:
            with self._lock:
                self._seen.clear()  # first: else a view that arrives now might be neither in _seen nor in _joined
            self._joined = self._views.views() if self._views.ready else None
        self._due_s = self._turn_s = None
        # Withheld partitions stay withheld until the next assignment, which may be the same one again.

    def assigned(self, given: set[Key]) -> set[Key]:
        """Return which partitions of an assignment to assign: those that this member owns, and :attr:`withheld`.

        Blocks for a read of the mode log and, if partitions are hidden under ``range``, for a description of the group
        (seconds at most).
        """
        if not self._applies:
            return set(given)
        pin = (self._stock.memberid(), generation_of(self._stock.consumer_group_metadata()), frozenset(given))
        if self._pin == pin and pin[1] is not None:
            # The same generation again (a follower that rejoins gets its assignment back), in which no member has
            # released a partition. So the answer is the same.
            return self._pinned | self.withheld
        try:
            self._views.refresh(REFRESH_TIMEOUT_S)
        except ModeSourceError as error:
            log.warning("%s: partitions are assigned by the last known modes: %s", self._conf.group_id, error)
        self._described, self._short = None, False
        self._possible = {topic: self._possible_of(topic) for topic in topics_of(given)}
        self.in_doubt = {t for t, possible in self._possible.items() if possible != _NOTHING_HIDDEN}
        self.withheld = {key for key in given if key[0] in self.in_doubt}
        self._give_up_s = self._now_s() + GIVE_UP_S
        self._pin, self._pinned = pin, given - self.withheld
        if self.in_doubt:
            own = self._resolve_doubt(given)
            if own is not None:
                self.withheld -= own
                self.withheld = self.unowned  # assigned as well, so that their starts are known
                self._pinned |= own
        return self._pinned | self.withheld

    @property
    def unowned(self) -> set[Key]:
        """Return the withheld partitions that perhaps no member owns, because the members may have used views with
        different hidden partitions. Topics in doubt are left out."""
        described = {topic for topic in topics_of(self.withheld) if topic not in self.in_doubt}
        uncertain = {topic for topic in described if len(self._possible.get(topic) or ()) != 1}
        return {key for key in self.withheld if key[0] in uncertain}

    def _possible_of(self, topic: str) -> frozenset[frozenset[int]] | None:
        view = self._views.view(topic)
        if self._joined is None:
            # Joined without any view (modeaware.on.unknown=writable): a problem only if partitions are hidden.
            return None if hidden(view) else _NOTHING_HIDDEN
        with self._lock:
            seen = list(self._seen.get(topic, ()))
        return possible_hidden(self._joined.get(topic) or TopicView.unlisted(topic), seen, view)

    def resolve(self, given: set[Key]) -> None:
        """Resolve the topics that are still in doubt, if the group can be described now.

        This member then takes the withheld partitions that it owns. A partition that it owns and was not given can
        only come with another rebalance.
        """
        own = self._resolve_doubt(given) if self.in_doubt else None
        if own is not None:
            self._short = not own <= self.withheld
            self._pinned |= own & self.withheld
            self.withheld -= own

    def _resolve_doubt(self, given: set[Key]) -> set[Key] | None:
        """Return the partitions of topics in doubt that this member owns. Return None if they are unknown until a
        repetition at :meth:`due_s`."""
        self._due_s = None
        try:
            group = self._describe(given)
        except (GroupMoved, GroupUnknown) as error:
            if isinstance(error, GroupMoved) or not (error.final or self._now_s() >= self._give_up_s):
                log.info(
                    "%s: this member does not read partitions of %s yet: %s",
                    self._conf.group_id, sorted(self.in_doubt), error,
                )  # fmt: skip
                self._due_s = self._now_s() + RETRY_S
                return None
            log.warning(
                "%s: the group cannot be described (%s): this member keeps all assigned partitions of %s. Members may "
                "be unevenly loaded", self._conf.group_id, error, sorted(self.in_doubt),
            )  # fmt: skip
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
        """Return whether a rebalance would give this member other partitions, and none was requested for these views.

        Sets the time of this member's turn. Returns False if the group rebalances or could not be described.
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
            log.info("%s: it is unknown whether a rebalance is needed: %s", self._conf.group_id, error)
            if self._now_s() < self._give_up_s:
                self._due_s = self._now_s() + RETRY_S
            return False
        turns: list[str] = []
        if group.strategy == RANGE:
            for topic in sorted(topic for topic, _ in changed):
                hidden_now = hidden(self._views.view(topic))
                turns += rejoin_turns(group.of(topic), self._possible.get(topic), hidden_now)
        me = self._stock.memberid()
        if me not in turns:
            return False
        if turn_s is None:
            turn_s = self._now_s() + TURN_S * list(dict.fromkeys(turns)).index(me)
        self._turn_s = turn_s
        return True

    def _changed_since(self, given: set[Key]) -> frozenset[tuple[str, tuple[int, int]]]:
        """Return topics whose readable partitions may have changed since the assignment, with the views' versions."""
        topics = [topic for topic in topics_of(given) if topic not in self.in_doubt and self.changed(topic)]
        return frozenset((topic, self._views.view(topic).version) for topic in topics)

    def changed(self, topic: str) -> bool:
        """Return whether the readable partitions may differ from those by which this generation was assigned."""
        return self._possible.get(topic, _NOTHING_HIDDEN) != frozenset({hidden(self._views.view(topic))})

    def my_turn(self, given: set[Key]) -> bool:
        """Return whether to request the rebalance now: it is this member's turn, and no other member has done so."""
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
        """Return whether one of ``topics`` has no owner: no member was given a partition of the topic. Return False if
        this is unknown."""
        try:
            group = self._describer.describe(self._stock.memberid(), given)
        except (GroupMoved, GroupUnknown) as error:
            log.debug("%s: owners of %s unknown: %s", self._conf.group_id, sorted(topics), error)
            return False
        return not all(any(group.of(topic).values()) for topic in topics)

    @property
    def is_uncertain(self) -> bool:
        """Whether the present assignment may need more work, because partitions may be hidden."""
        return any(possible != _NOTHING_HIDDEN for possible in self._possible.values())

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Describe the group with other credentials (any thread)."""
        self._describer.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Close the client that describes the group."""
        self._describer.close()

    def due_s(self) -> float | None:
        """Return when to act again, on the monotonic clock, or None if nothing is planned."""
        return min((at for at in (self._due_s, self._turn_s) if at is not None), default=None)


def topics_of(given: Iterable[Key]) -> set[str]:
    """Return the topics of partitions."""
    return {topic for topic, _ in given}
