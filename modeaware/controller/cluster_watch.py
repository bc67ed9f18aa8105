"""What the active controller watches between passes: recreated topics, and brokers.

*Topics.* A periodic Metadata request to one broker, for the topics of all records, shows that a topic was deleted or
recreated (invariant I4). It takes a minute at most, mostly seconds, even if the check interval is long. The metadata of
one broker may be stale. So if this broker returns another id, all brokers are compared: a topic counts as recreated
only when every live broker returns another id.

*Brokers.* The mode log lists each broker that was observed, until the cluster confirms that the broker is no longer
registered. So a broker that is down is still known (KIP-409).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from modeaware.callouts import get_logger
from modeaware.clock import Clock
from modeaware.cluster.metadata import Ids, Registered
from modeaware.controller.engine import Engine
from modeaware.controller.failures import Failures
from modeaware.controller.log import ControllerLog
from modeaware.errors import ClusterError
from modeaware.modelog.records import OBSERVED_BROKERS_KEY, ObservedBrokersRecord, TopicRecord

logger = get_logger("modeaware.controller")

TOPICS_INTERVAL_S = 3.0
COST_SHARE = 1_000
"""The pause after a comparison of topics is the comparison's duration times this factor, because a comparison occupies
the thread and a broker. The shortest pause (3 s) is enough for some hundreds of topics. With 3 000 topics the pause is
some 15 s."""
LONGEST_INTERVAL_S = 60.0
BROKERS_INTERVAL_S = 10.0


class TopicWatch:
    """Compares the topic ids of all records with the cluster's. The controller's thread owns it."""

    def __init__(
        self,
        engine: Engine,
        ids_of_one: Callable[[Sequence[str]], Ids],
        ids_of_each: Callable[[Sequence[str]], Mapping[int, Ids]],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._ids_of_one = ids_of_one
        self._ids_of_each = ids_of_each
        self._clock = clock
        self._due_s = clock.monotonic_s()
        self._records: tuple[TopicRecord, ...] = ()
        self._names: list[str] = []
        self._ids: Ids | None = None
        self._missing: frozenset[str] = frozenset()

    def step(self) -> None:
        """If due, compare: remove the records of recreated topics, and check missing topics at once."""
        begun_s = self._clock.monotonic_s()
        if begun_s < self._due_s:
            return
        try:
            with self._engine.failures.isolated("a comparison of all topic ids"):
                replaced = self._compare()
        except ClusterError as error:
            logger.debug("cannot compare the ids of topics now: %s", error)
            replaced = ()
        now_s = self._clock.monotonic_s()
        pause_s = max(TOPICS_INTERVAL_S, COST_SHARE * (now_s - begun_s))
        self._due_s = now_s + min(pause_s, LONGEST_INTERVAL_S)
        if replaced:
            self._engine.remove(replaced)

    def _compare(self) -> tuple[str, ...]:
        records = self._engine.records
        if not records:
            return ()
        if records != self._records:
            self._records, self._names, self._ids = records, sorted({record.topic for record in records}), None
        ids = self._ids_of_one(self._names)
        if ids is self._ids:  # unchanged since a comparison without suspects
            return ()
        missing = frozenset(record.topic_id for record in records if ids.get(record.topic, "") is None)
        for topic_id in missing - self._missing:
            self._engine.check_at_once(topic_id)
        self._missing = missing
        suspects = replaced_records((record for record in records if not record.is_alias), [ids])
        if not suspects:
            self._ids = ids
            return ()
        ids_by_broker = self._ids_of_each(sorted({record.topic for record in suspects}))
        return tuple(record.topic_id for record in replaced_records(suspects, list(ids_by_broker.values())))


def replaced_records(records: Iterable[TopicRecord], answers: Sequence[Ids]) -> tuple[TopicRecord, ...]:
    """Return the records whose topic was deleted and recreated, according to all of ``answers``.

    Every broker must return an id for the name, and no broker the record's id. Any other answer delays the removal,
    because the broker may be stale. A topic that is missing on every broker is not returned:
    :class:`~modeaware.cluster.observer.Observer` waits before such a topic counts as gone. The record of an alias
    outlives its topic, so callers leave aliases out.

    Args:
        answers: for each broker, name -> topic id, or None if the broker has no topic of that name. Without answers, no
            record is returned.
    """
    return tuple(
        record
        for record in records
        if answers and all(ids.get(record.topic) not in (None, record.topic_id) for ids in answers)
    )


class BrokerWatch:
    """Keeps the record of observed brokers. The controller's thread owns it, and calls it while active."""

    def __init__(
        self, list_brokers: Callable[[], Registered], log: ControllerLog, policy: str | None, clock: Clock
    ) -> None:
        self._list_brokers = list_brokers
        self._log = log
        self._policy = policy
        self._clock = clock
        self._epoch: int | None = None
        self._failures = Failures()
        self._due_s = 0.0

    def step(self, controller_epoch: int) -> None:
        """If due, list the brokers; append the record if anything has changed.

        After a claim, other work is more urgent, so the first listing waits for :data:`BROKERS_INTERVAL_S`. The listing
        comes at once only if the log has no record of brokers yet, or the policy has changed.

        Raises:
            ControllerFenced, ClusterError: the append failed.
        """
        now_s = self._clock.monotonic_s()
        held = self._log.observed
        if held is None:
            return
        if controller_epoch != self._epoch:
            self._epoch = controller_epoch
            urgent = not held.brokers or self._policy not in (None, held.policy)
            self._due_s = now_s if urgent else now_s + BROKERS_INTERVAL_S
        if now_s < self._due_s:
            return
        self._due_s = now_s + BROKERS_INTERVAL_S
        try:
            with self._failures.isolated("a listing of the brokers"):
                registered = self._list_brokers()
        except ClusterError as error:
            logger.debug("cannot list the cluster's brokers now: %s", error)
            return
        # A broker stays in the record until the cluster confirms that the broker is no longer registered.
        kept = {} if registered.complete else dict(held.brokers)
        racks = {broker.node_id: broker.rack for broker in registered.brokers.values()}
        after = replace(held, policy=self._policy or held.policy, brokers=MappingProxyType({**kept, **racks}))
        if after == held and not self._log.observed_unreadable:
            return
        record: ObservedBrokersRecord = replace(after, controller_epoch=controller_epoch, epoch=held.epoch + 1)
        self._log.append([(OBSERVED_BROKERS_KEY, record.to_json())])
        self._log.observed, self._log.observed_unreadable = record, False
        logger.info("observed brokers: %s; under-replicated creation: %s", sorted(record.brokers), record.policy)
