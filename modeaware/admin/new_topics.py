"""Topics and partitions to create, their placement, and the results. Pure.

``NewTopic`` and ``NewPartitions`` add KIP-409's minimum of live replicas to confluent_kafka's classes.
``NewPartitions`` also adds KIP-195's ``increaseTo``. A placement is rack-aware and even, and gives each partition
enough live replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from modeaware import librdkafka
from modeaware.config import DISABLED, ENABLED
from modeaware.errors import CreatedUnderReplicated, ErrorCode, RequestRefused
from modeaware.modelog.records import MAX_PARTITIONS

if TYPE_CHECKING:  # needs kafka-python, which an application that creates topics may lack
    from modeaware.cluster.metadata import RegisteredBroker

MAX_REPLICAS = 32_767


class _WithMinimum:
    def __init__(self, *args: Any, min_required_replication_factor: int | None = None, **kwargs: Any) -> None:
        minimum = min_required_replication_factor
        super().__init__(*args, **kwargs)
        if minimum is not None and (isinstance(minimum, bool) or not isinstance(minimum, int)):
            raise TypeError(f"the minimum replication factor must be an int, not {minimum!r}")
        if minimum is not None and minimum < 1:
            raise ValueError(f"the minimum replication factor must be 1 or more, not {minimum}")
        self.min_required_replication_factor = minimum


class NewTopic(_WithMinimum, librdkafka.NewTopic):
    """confluent_kafka's NewTopic with a minimum of live replicas for each partition (KIP-409).

    Args:
        args, kwargs: as the stock class takes them: ``topic``, ``num_partitions``, ``replication_factor``,
            ``replica_assignment``, ``config``.
        min_required_replication_factor: the least number of live replicas of each partition. The topic may then be
            created while other brokers are down, if the controller's ``modeaware.under.replicated.creation`` allows
            this. By default there is no minimum.

    Raises:
        TypeError, ValueError: the minimum is not an int, or below 1.
    """


class NewPartitions(_WithMinimum, librdkafka.NewPartitions):
    """confluent_kafka's NewPartitions with a minimum of live replicas for each new partition (KIP-409).

    Args:
        args, kwargs: as the stock class takes them: ``topic``, ``new_total_count``, ``replica_assignment``.
        min_required_replication_factor: as for :class:`NewTopic`.

    Raises:
        TypeError, ValueError: as for :class:`NewTopic`.
    """

    @classmethod
    def increase_to(
        cls,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        min_required_replication_factor: int | None = None,
    ) -> NewPartitions:
        """Return a growth to ``count`` partitions (KIP-195's ``increaseTo``): a value for a mapping by topic name.

        Args:
            count: the total number of partitions; for a topic with retired partitions, the number of writable ones.
            assignments: one list of brokers for each newly created partition, the preferred leader first. Each list is
                as long as the topic's replication factor. By default the cluster decides.
            min_required_replication_factor: as for :class:`NewTopic`.
        """
        chosen = {} if assignments is None else {"replica_assignment": [list(brokers) for brokers in assignments]}
        return cls("", count, min_required_replication_factor=min_required_replication_factor, **chosen)


class Accepted(NamedTuple):
    """Accepted consequences of a switch. The others are reasons to refuse a replacement (:class:`TopicReplacement`)."""

    access_loss: bool = False
    mirroring: bool = False
    auto_create: bool = False


@dataclass(frozen=True)
class TopicReplacement:
    """How to replace an old topic by a new topic.

    Attributes:
        new_topic: the new topic's name. No topic may have this name yet.
        num_partitions: the new topic's number of partitions. It may be the old topic's, unless ``keep_name`` is set.
        replication_factor: the new topic's replication factor: by default the old topic's; -1 for the brokers' default.
        config: configs of the new topic. They override the copied configs: those that are set on the old topic itself.
            A copied ``retention.bytes``, which limits one partition, is scaled, so that the topic keeps as much data.
        delete_partitions_delay_ms: delete the old topic when every group has read it, and no earlier than this many
            milliseconds from now. By default, its own retention has to empty it first.
        fence: ``config``: brokers refuse data for the old topic before its end counts as final; ``none``: brokers
            refuse nothing, and the end counts as final once no more records arrive.
        accept_state_loss: the names of groups that keep state per partition (Kafka Streams) and may lose that state.
            The controller refuses the replacement if such a group is not named here.
        evacuate: for a compacted topic: delete it only after the Spark job ``modeaware.spark.evacuate`` has copied the
            latest values of its keys to the new topic.
        accept_access_loss: proceed although the ACLs of the two names differ.
        accept_mirroring: proceed although MirrorMaker 2 is in use. It must not copy the configs of the fence.
        keep_name: replace the old topic by an interim topic, and the interim topic by a new topic of the old name.
            ``new_topic`` repeats that name (docs/replace-reference.md#keep-the-name).
        accept_auto_create: with ``keep_name``: proceed although brokers create topics automatically.
    """

    new_topic: str
    num_partitions: int
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    delete_partitions_delay_ms: int | None = None
    fence: str = "config"
    accept_state_loss: Sequence[str] = ()
    accept_access_loss: bool = False
    accept_mirroring: bool = False
    evacuate: bool = False
    keep_name: bool = False
    accept_auto_create: bool = False

    @property
    def accepted(self) -> Accepted:
        """The accepted consequences of the switch."""
        return Accepted(self.accept_access_loss, self.accept_mirroring, self.accept_auto_create)


def check_replacement(topic: str, wanted: TopicReplacement) -> None:
    """Raise TypeError for an argument of the wrong type, and RequestRefused for a number out of range."""
    if not isinstance(wanted, TopicReplacement):
        raise TypeError(f"topic {topic!r}: expected TopicReplacement, not {wanted!r}")
    for what, value, kind in (
        ("new_topic", wanted.new_topic, str),
        ("fence", wanted.fence, str),
        ("config", wanted.config, Mapping),
        ("num_partitions", wanted.num_partitions, int),
        ("replication_factor", -1 if wanted.replication_factor is None else wanted.replication_factor, int),
    ):
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(f"topic {topic!r}: {what} must be a {kind.__name__}, not {value!r}")
    groups = wanted.accept_state_loss
    if isinstance(groups, str) or not all(isinstance(group, str) for group in groups):
        raise TypeError(f"topic {topic!r}: accept_state_loss must be group names, not {groups!r}")
    if not topic:
        raise RequestRefused("a topic to replace has no name", code=ErrorCode.INVALID_TOPIC_EXCEPTION, topic=topic)
    count, factor = wanted.num_partitions, wanted.replication_factor
    if not 1 <= count <= MAX_PARTITIONS:
        why = f"topic {topic!r}: invalid partition count {count}: 1 to {MAX_PARTITIONS}"
        raise RequestRefused(why, code=ErrorCode.INVALID_PARTITIONS, topic=topic)
    if factor is not None and factor != -1 and not 1 <= factor <= MAX_REPLICAS:
        why = (
            f"topic {topic!r}: invalid replication factor {factor}: 1 to {MAX_REPLICAS}, or -1 for the brokers' default"
        )
        raise RequestRefused(why, code=ErrorCode.INVALID_REPLICATION_FACTOR, topic=topic)


@dataclass(frozen=True)
class CreationResult:
    """The result of a creation. Its under-replicated partitions are read from the cluster's metadata afterwards.

    Attributes:
        topic: the topic's name.
        partitions: the new partitions; () if revived partitions were enough.
        under_replicated: new partition -> its brokers whose replicas are not in sync yet, usually because the brokers
            are down. Empty if all replicas are in sync.
        validate_only: whether nothing was created. If so, the other attributes are the expected result.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    under_replicated: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    validate_only: bool = False

    def raise_for_under_replication(self) -> None:
        """Raise an exception if replicas are missing.

        Raises:
            CreatedUnderReplicated: partitions were created, but replicas are missing (KIP-409).
        """
        if self.under_replicated and not self.validate_only:
            raise CreatedUnderReplicated(
                f"{self.describe()}; the missing replicas follow when the brokers are back", topic=self.topic
            )

    def describe(self) -> str:
        """Return one line for people."""
        done = "can be created" if self.validate_only else "created"
        if not self.under_replicated:
            return f"topic {self.topic!r}: {done}"
        missing = ", ".join(
            f"{p} (brokers {', '.join(map(str, ids))})" for p, ids in sorted(self.under_replicated.items())[:5]
        )
        more = f" and {len(self.under_replicated) - 5} more" if len(self.under_replicated) > 5 else ""
        return f"topic {self.topic!r}: {done} under-replicated; partitions with missing replicas: {missing}{more}"


def minimum_of(new: librdkafka.NewTopic | librdkafka.NewPartitions) -> int | None:
    """Return the requested minimum, or None if there is none. Stock classes have none."""
    minimum: int | None = getattr(new, "min_required_replication_factor", None)
    return minimum


# Placement

Assignments = tuple[tuple[int, ...], ...]
"""For each partition its brokers, the preferred leader first."""


def place_by_policy(
    topic: str, count: int, factor: int, minimum: int, brokers: Sequence[RegisteredBroker], policy: str, start: int
) -> Assignments:
    """Place ``count`` partitions by the policy of under-replicated creations.

    Args:
        topic: for messages.
        factor, minimum: the replication factor, and the number of replicas of each partition that must be live.
        brokers: all known brokers, live or down.
        policy: ``disabled``: all replicas must be live. ``enabled``: live brokers get replicas first, then others.
            ``enabled_prefer_observed``: live brokers get the minimum of replicas, then any broker gets the rest.
        start: the start of the rotation: any number, preferably random.

    Raises:
        RequestRefused: (INVALID_REPLICATION_FACTOR) there are too few brokers, or too few live ones.
    """
    live = [broker for broker in brokers if broker.live]
    required = factor if policy == DISABLED else minimum
    if minimum > factor:
        _refuse(topic, f"a minimum of {_many(minimum, 'live replica')} is more than the replication factor {factor}")
    if len(live) < required:
        down = [broker for broker in brokers if not broker.live]
        advice = f"start the brokers that are down ({_ids(down)})" if down else "no other broker is known"
        if policy == DISABLED and minimum < factor:
            advice += f" (policy {policy}: all replicas must be alive)"
        _refuse(
            topic,
            f"each partition needs {_many(required, 'live replica')} and only {_many(len(live), 'broker')} "
            f"{'is' if len(live) == 1 else 'are'} alive ({_ids(live)}); {advice}",
        )
    if len(brokers) < factor:
        known = f"{_many(len(brokers), 'known broker')} ({_ids(brokers)})"
        _refuse(topic, f"a replication factor of {factor}, but only {known}")
    if policy == DISABLED or (policy == ENABLED and len(live) >= factor):
        return place(count, factor, live, factor, start)
    return place(count, factor, brokers, min(factor, len(live)) if policy == ENABLED else minimum, start)


def check_given(
    topic: str, assignments: Sequence[Sequence[int]], minimum: int, live: Iterable[int], policy: str
) -> None:
    """Check that the caller's assignments have enough live replicas.

    Raises:
        RequestRefused: (INVALID_REPLICATION_FACTOR) a partition has too few.
    """
    alive = set(live)
    for number, replicas in enumerate(assignments):
        required = len(replicas) if policy == DISABLED else minimum
        up = [node_id for node_id in replicas if node_id in alive]
        if len(up) < required:
            _refuse(
                topic,
                f"assignment {number} ({', '.join(map(str, replicas))}) has {_many(len(up), 'live replica')}, and "
                f"{required} {'is' if required == 1 else 'are'} required (policy {policy})",
            )


def place(count: int, factor: int, brokers: Sequence[RegisteredBroker], live_required: int, start: int) -> Assignments:
    """Place partitions as Kafka does: the replicas of a partition are on different brokers and, if there are enough
    racks, on different racks. Leaders, and then all replicas, are spread evenly over the brokers.

    Racks count only if every broker has a rack (Kafka's rule). In each partition, the first ``live_required`` replicas
    are on live brokers.

    Args:
        count: the number of partitions.
        factor: the number of replicas of each partition; at most the number of brokers.
        live_required: the least number of replicas on live brokers: from 1 to the number of live brokers.
        start: the start of the rotation.
    """
    ring = _striped(brokers)
    with_racks = all(broker.rack is not None for broker in ring)
    leaders: Counter[int] = Counter()
    load: Counter[int] = Counter()
    placed = []
    for number in range(count):
        first = (start + number) % len(ring)
        rotated = ring[first:] + ring[:first]
        chosen: list[RegisteredBroker] = []
        used: Counter[str | None] = Counter()
        while len(chosen) < factor:
            free = [b for b in rotated if b not in chosen and (b.live or len(chosen) >= live_required)]
            # min takes the first of equal brokers, so the rotation decides between these.
            if chosen:
                best = min(free, key=lambda b: (used[b.rack] if with_racks else 0, load[b.node_id]))
            else:
                best = min(free, key=lambda b: leaders[b.node_id])
            chosen.append(best)
            used[best.rack] += 1
            load[best.node_id] += 1
        leaders[chosen[0].node_id] += 1
        placed.append(tuple(broker.node_id for broker in chosen))
    return tuple(placed)


def _striped(brokers: Sequence[RegisteredBroker]) -> list[RegisteredBroker]:
    """Return the brokers in turn from each rack, so that neighbours are on different racks."""
    racks: dict[str, list[RegisteredBroker]] = {}
    for broker in sorted(brokers, key=lambda b: b.node_id):
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker for of_round in rounds for broker in of_round if broker is not None]


def _refuse(topic: str, why: str) -> None:
    raise RequestRefused(
        f"topic {topic!r}: {why}; nothing was created", code=ErrorCode.INVALID_REPLICATION_FACTOR, topic=topic
    )


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _ids(brokers: Sequence[RegisteredBroker]) -> str:
    return ", ".join(str(broker.node_id) for broker in brokers) or "none"
