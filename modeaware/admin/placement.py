"""Where new replicas go: rack-aware, spread evenly, with enough live ones in each partition (KIP-409). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from modeaware.config import DISABLED, ENABLED
from modeaware.errors import ErrorCode, RequestRefused

Assignments = tuple[tuple[int, ...], ...]
"""For each partition its brokers, the preferred leader first."""


@dataclass(frozen=True)
class Candidate:
    """A broker that replicas can be put on; ``live``: it can take them now, else when it is back."""

    node_id: int
    rack: str | None
    live: bool


def candidates(live: Mapping[int, str | None], down: Mapping[int, str | None]) -> tuple[Candidate, ...]:
    """Candidates of broker ids and racks; one that is live is not down."""
    up = [Candidate(node_id, rack, True) for node_id, rack in sorted(live.items())]
    return (*up, *(Candidate(n, rack, False) for n, rack in sorted(down.items()) if n not in live))


def place_by_policy(
    topic: str,
    count: int,
    factor: int,
    minimum: int,
    brokers: Sequence[Candidate],
    policy: str,
    start: int,
) -> Assignments:
    """Place ``count`` partitions as the policy of under-replicated creations has it.

    Args:
        topic: for messages.
        factor, minimum: the replication factor, and how many replicas of each partition have to be live.
        brokers: live ones and those that are down.
        policy: ``disabled``: all replicas have to be live. ``enabled``: live brokers first, others for what is missing.
            ``enabled_prefer_observed``: all brokers alike, but for the minimum.
        start: where the rotation begins: any number, a random one.

    Raises:
        RequestRefused: (INVALID_REPLICATION_FACTOR) not enough brokers, or not enough live ones.
    """
    live = [broker for broker in brokers if broker.live]
    required = factor if policy == DISABLED else minimum
    if minimum > factor:
        _refuse(topic, f"a minimum of {_many(minimum, 'live replica')} is more than the replication factor {factor}")
    if len(live) < required:
        why = (
            f"each partition needs {_many(required, 'live replica')} and only {_many(len(live), 'broker')} "
            f"{'is' if len(live) == 1 else 'are'} alive "
            f"({_ids(live)}); {_down(brokers)}"
        )
        advice = f" (policy {policy}: all replicas have to be alive)" if policy == DISABLED and minimum < factor else ""
        _refuse(topic, why + advice)
    if len(brokers) < factor:
        _refuse(
            topic, f"a replication factor of {factor} and only {_many(len(brokers), 'known broker')} ({_ids(brokers)})"
        )
    if policy == DISABLED or (policy == ENABLED and len(live) >= factor):
        return place(count, factor, live, factor, start)
    return place(count, factor, brokers, min(factor, len(live)) if policy == ENABLED else minimum, start)


def check_given(
    topic: str,
    assignments: Sequence[Sequence[int]],
    minimum: int,
    live: Iterable[int],
    policy: str,
) -> None:
    """Whether assignments that the caller has chosen have enough live replicas.

    Raises:
        RequestRefused: (INVALID_REPLICATION_FACTOR) some partition has too few.
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


def place(count: int, factor: int, brokers: Sequence[Candidate], live_required: int, start: int) -> Assignments:
    """Place partitions: as Kafka's own placement, replicas of a partition are on different brokers and, as far as there
    are as many, on different racks; leaders, and then all replicas, are spread evenly over the brokers.

    Racks count only where every broker has one (Kafka's rule). The first replica is a live one, and live ones come
    before others as far as the required number goes.

    Args:
        count: how many partitions.
        factor: how many replicas each; at most as many as there are brokers.
        live_required: how many of these at least are on live brokers; 1 to the number of live brokers.
        start: where the rotation begins.
    """
    ring = _striped(brokers)
    with_racks = all(broker.rack is not None for broker in ring)
    leaders: Counter[int] = Counter()
    load: Counter[int] = Counter()
    placed = []
    for number in range(count):
        first = (start + number) % len(ring)
        rotated = ring[first:] + ring[:first]
        chosen: list[Candidate] = []
        used: Counter[str | None] = Counter()
        while len(chosen) < factor:
            free = [b for b in rotated if b not in chosen and (b.live or len(chosen) >= live_required)]
            # min takes the first of equals, so the rotation decides between them.
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


def _striped(brokers: Sequence[Candidate]) -> list[Candidate]:
    """The brokers in turn from each rack, so that neighbours are on different ones."""
    racks: dict[str, list[Candidate]] = {}
    for broker in sorted(brokers, key=lambda b: b.node_id):
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker for each in rounds for broker in each if broker is not None]


def _refuse(topic: str, why: str) -> None:
    raise RequestRefused(
        f"topic {topic!r}: {why}; nothing was created", code=ErrorCode.INVALID_REPLICATION_FACTOR, topic=topic
    )


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _ids(brokers: Sequence[Candidate]) -> str:
    return ", ".join(str(broker.node_id) for broker in brokers) or "none"


def _down(brokers: Sequence[Candidate]) -> str:
    down = [broker for broker in brokers if not broker.live]
    return f"start those that are down ({_ids(down)})" if down else "no other broker was ever seen"
