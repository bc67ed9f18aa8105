"""Creating topics and partitions: typed answers (KIP-195), and a minimum of live replicas (KIP-409).

If a creation has a minimum and no assignment, this module assigns the brokers: the brokers' own placement (KRaft's)
also uses brokers that are down. An error that concerns one topic alone is returned. RequestRefused means that nothing
was created. After a ClusterError, something may have been created.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from modeaware.admin.new_topics import Assignments, CreationResult, check_given, minimum_of, place_by_policy
from modeaware.admin.reassignments import list_reassignments, request_failure
from modeaware.cluster.metadata import RegisteredBroker, metadata_request, registered_brokers
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka import KafkaError, NewPartitions, NewTopic
from modeaware.modelog.records import ObservedBrokersRecord
from modeaware.wire.brokers import BULK_TIMEOUT_S, Brokers, ask_controller, route_to_controller
from modeaware.wire.requests import CreatePartitionsRequest, CreateTopicsRequest
from modeaware.wire.retries import Deadline

_T = TypeVar("_T")
Outcomes = dict[str, CreationResult | ModeAwareError]
METADATA_PAUSE_S = 0.1
"""The pause between requests for the brokers' metadata, which lags behind the metadata of the cluster's controller."""


@dataclass(frozen=True)
class Placement:
    """The partitions of a topic that are to be created, and their brokers.

    Attributes:
        first, count: the new partitions are those from ``first`` to ``count - 1``.
        assignments: the brokers of their replicas, or None if the cluster decides.
        live: the brokers that were alive when the partitions were placed, or None if this was not determined.
    """

    topic: str
    first: int
    count: int
    assignments: Assignments | None = None
    live: frozenset[int] | None = None


Send = Callable[[Sequence[Placement]], Mapping[str, object]]
"""Creates partitions; returns for each topic an error, or any other value. If it raises, all topics have that error."""


class Creation:
    """The creations of one call. For one thread. The policy and the list of brokers are read once, when first needed.

    Args:
        brokers: the connection; the caller closes it.
        observed: reads the record of observed brokers, which has the policy, and returns the record or None. Called
            only if a minimum is requested.
        deadline: the deadline of all requests together.
    """

    def __init__(
        self, brokers: Brokers, observed: Callable[[], ObservedBrokersRecord | None], deadline: Deadline
    ) -> None:
        self._brokers = brokers
        self._observed = observed
        self._deadline = deadline

    def create_topics(self, topics: Iterable[NewTopic], validate_only: bool = False) -> Outcomes:
        """Create topics that have a minimum. Each gets its own request, so that a refusal affects no other topic."""
        return {new.topic: _outcome(partial(self._create_topic, new, validate_only)) for new in topics}

    def create_partitions(
        self, growths: Mapping[str, NewPartitions], validate_only: bool = False, send: Send | None = None
    ) -> Outcomes:
        """Grow topics by one request. A topic that the answer leaves out is missing from the outcomes.

        Args:
            send: creates the placed partitions; by default, by a request to the brokers.
        """
        try:
            placements = self._place_growths(growths)
        except ModeAwareError as error:
            return dict.fromkeys(growths, error)
        outcomes: Outcomes = {topic: e for topic, e in placements.items() if isinstance(e, ModeAwareError)}
        placed = {topic: p for topic, p in placements.items() if isinstance(p, Placement)}
        if not placed:
            return outcomes
        send = send or (lambda wanted: create_partitions(self._brokers, wanted, validate_only, self._deadline.left_s()))
        try:
            answers = send(list(placed.values()))
        except ModeAwareError as error:
            answers = dict.fromkeys(placed, error)
        for topic, placement in placed.items():
            if isinstance(answer := answers.get(topic), ModeAwareError):
                outcomes[topic] = answer
            elif topic in answers:
                outcomes[topic] = _outcome(partial(self._result, placement, validate_only))
        return outcomes

    def _place_growths(self, growths: Mapping[str, NewPartitions]) -> dict[str, Placement | ModeAwareError]:
        """Return which partitions to create and, if there is a minimum, on which brokers.

        If brokers do not list a topic, they validate its growth first. Their refusal, if any, is the topic's outcome.
        """
        shapes = created_partitions(self._brokers, growths)
        moving = self._moving({t: s for t, new in growths.items() if new.new_total_count > len(s := shapes.get(t, {}))})
        return {
            topic: _moving_refusal(topic)
            if topic in moving
            else _outcome(partial(self._place_growth, topic, new, shapes.get(topic, {})))
            for topic, new in growths.items()
        }

    def _moving(self, shapes: Mapping[str, Iterable[int]]) -> set[str]:
        """Return topics with a reassignment in progress, as far as this user may see (DESCRIBE on the cluster)."""
        partitions = ((topic, p) for topic, shape in shapes.items() for p in shape)
        try:
            return {topic for topic, _ in list_reassignments(self._brokers, partitions, self._deadline.left_s())}
        except (RequestRefused, ClusterError) as error:
            # Kafka before 2.4 lists none. If no broker is the controller right now, the growth itself is refused.
            unknown = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NOT_CONTROLLER)
            if isinstance(error, ClusterError) and error.code not in unknown:
                raise
            return set()

    def _result(self, placement: Placement, validate_only: bool) -> CreationResult:
        """Return the result: the new partitions as brokers list them or, for a validation, the expected ones.

        Raises:
            ClusterError: (REQUEST_TIMED_OUT) the partitions were created, but no broker shows them in time.
        """
        topic, partitions = placement.topic, tuple(range(placement.first, placement.count))
        if not validate_only:
            return CreationResult(topic, partitions, missing_replicas(self._brokers, topic, partitions, self._deadline))
        missing: dict[int, tuple[int, ...]] = {}
        if placement.assignments is not None and placement.live is not None:
            for partition, ids in zip(partitions, placement.assignments, strict=False):
                if down := tuple(node_id for node_id in ids if node_id not in placement.live):
                    missing[partition] = down
        return CreationResult(topic, partitions, missing, validate_only=True)

    def _create_topic(self, new: NewTopic, validate_only: bool) -> CreationResult:
        placement = self._place_topic(new)
        create_topic(self._brokers, new, placement.assignments, validate_only, self._deadline.left_s())
        return self._result(placement, validate_only)

    def _place_topic(self, new: NewTopic) -> Placement:
        given = _given(new.replica_assignment)
        if given is not None:
            return self._checked(Placement(new.topic, 0, len(given), given), minimum_of(new))
        count, factor = int(new.num_partitions), int(new.replication_factor)
        if count == -1 or factor == -1:  # the brokers' defaults
            answer = create_topic(self._brokers, new, None, True, self._deadline.left_s())
            count, factor = answer.num_partitions, answer.replication_factor
        if count < 1 or factor < 1:
            raise RequestRefused(
                f"topic {new.topic!r}: {count} partitions, {factor} replicas; both must be at least 1",
                code=ErrorCode.INVALID_PARTITIONS if count < 1 else ErrorCode.INVALID_REPLICATION_FACTOR,
                topic=new.topic,
            )
        return self._placed(Placement(new.topic, 0, count), factor, minimum_of(new))

    def _place_growth(self, topic: str, new: NewPartitions, replicas: Mapping[int, Sequence[int]]) -> Placement:
        given, minimum, count = _given(new.replica_assignment), minimum_of(new), int(new.new_total_count)
        if not replicas:
            replicas = self._awaited(topic, count)
        placement = Placement(topic, min(len(replicas), count), count, given)
        if minimum is None or count <= len(replicas):
            return placement
        if given is not None:
            return self._checked(placement, minimum)
        return self._placed(placement, len(replicas[min(replicas)]), minimum)

    def _awaited(self, topic: str, count: int) -> Mapping[int, Sequence[int]]:
        """Return the partitions of a topic that the first broker did not list, once a broker lists them.

        The topic may be new. A growth needs the present partitions: they determine the first new one, and the
        replication factor.

        Raises:
            RequestRefused: there is no such topic, or the growth is refused for another reason.
            ClusterError: no answer, or no broker shows the topic in time.
        """
        unplaced = [Placement(topic, 0, count)]
        while True:
            refused = create_partitions(self._brokers, unplaced, True, self._deadline.left_s()).get(topic)
            if refused is not None:
                raise refused
            if shown := created_partitions(self._brokers, [topic]).get(topic):
                return shown
            if self._deadline.is_over:
                raise ClusterError(
                    f"topic {topic!r}: no broker returned its partitions in time; nothing was created. Retry",
                    code=ErrorCode.REQUEST_TIMED_OUT,
                    topic=topic,
                )
            time.sleep(METADATA_PAUSE_S)  # no request can wait until a broker's metadata has caught up

    def _placed(self, placement: Placement, factor: int, minimum: int | None) -> Placement:
        policy, brokers = self._known
        assignments = place_by_policy(
            placement.topic,
            placement.count - placement.first,
            factor,
            factor if minimum is None else minimum,
            brokers,
            policy,
            random.randrange(1 << 16),
        )
        return replace(placement, assignments=assignments, live=_live(brokers))

    def _checked(self, placement: Placement, minimum: int | None) -> Placement:
        if minimum is None or placement.assignments is None:
            return placement
        policy, brokers = self._known
        check_given(placement.topic, placement.assignments, minimum, _live(brokers), policy)
        return replace(placement, live=_live(brokers))

    @cached_property
    def _known(self) -> tuple[str, list[RegisteredBroker]]:
        """Return the policy of under-replicated creations, and all brokers, including those that are down."""
        record, registered = self._observed() or ObservedBrokersRecord(), registered_brokers(self._brokers)
        known = dict(registered.brokers)
        if not registered.complete:  # if complete, a missing broker was unregistered (KIP-409: by hand)
            for node_id, rack in record.brokers.items():
                known.setdefault(node_id, RegisteredBroker(node_id, rack, live=False))
        return record.policy, [known[node_id] for node_id in sorted(known)]


def _live(brokers: Iterable[RegisteredBroker]) -> frozenset[int]:
    return frozenset(broker.node_id for broker in brokers if broker.live)


def _outcome(step: Callable[[], _T]) -> _T | ModeAwareError:
    try:
        return step()
    except ModeAwareError as error:
        return error


def _moving_refusal(topic: str) -> RequestRefused:
    # KIP-195 requires the refusal. KRaft would take the number of old and new replicas as the replication factor.
    return RequestRefused(
        f"topic {topic!r}: a reassignment is in progress, so new partitions would get too many replicas. Wait until "
        "the reassignment is done (modeaware reassign-partitions --list)",
        code=ErrorCode.REASSIGNMENT_IN_PROGRESS,
        topic=topic,
    )


def _given(assignments: Sequence[Sequence[int]] | None) -> Assignments | None:
    return tuple(tuple(brokers) for brokers in assignments) if assignments else None


def create_topic(
    brokers: Brokers, new: NewTopic, assignments: Assignments | None, validate_only: bool, timeout_s: float
) -> Any:
    """Create one topic and return the broker's result. ``assignments`` replace the counts in ``new``.

    Raises:
        RequestRefused: nothing was created; ``code`` is the broker's.
        ClusterError: the outcome is unknown.
    """
    topic = CreateTopicsRequest.CreatableTopic
    wanted = topic(
        name=new.topic,
        num_partitions=-1 if assignments else int(new.num_partitions),
        replication_factor=-1 if assignments else int(new.replication_factor),
        assignments=[
            topic.CreatableReplicaAssignment(partition_index=p, broker_ids=list(ids))
            for p, ids in enumerate(assignments or ())
        ],
        configs=[
            topic.CreatableTopicConfig(name=str(name), value=str(value)) for name, value in (new.config or {}).items()
        ],
    )

    def request(timeout_ms: int) -> Any:
        return CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms, validate_only=validate_only, min_version=4)

    what = f"create topic {new.topic!r}"
    (result,) = _send(brokers, what, request, lambda answer: answer.topics, timeout_s)
    if result.error_code:
        raise request_failure(what, result.error_code, result.error_message, new.topic)
    return result


def create_partitions(
    brokers: Brokers, growths: Iterable[Placement], validate_only: bool, timeout_s: float
) -> dict[str, ModeAwareError | None]:
    """Grow topics by one request; return for each topic an error, or None.

    Raises:
        RequestRefused: (UNSUPPORTED_VERSION) the cluster does not support KIP-195 yet.
        ClusterError: the outcome is unknown.
    """
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    wanted = []
    for growth in growths:
        placed = [topic.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in growth.assignments or ()]
        wanted.append(topic(name=growth.topic, count=growth.count, assignments=placed or None))

    def request(timeout_ms: int) -> Any:
        return CreatePartitionsRequest(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only)

    results = _send(brokers, "create partitions", request, lambda answer: answer.results, timeout_s)
    return {
        r.name: request_failure(f"create partitions of topic {r.name!r}", r.error_code, r.error_message, r.name)
        if r.error_code
        else None
        for r in results
    }


def created_partitions(brokers: Brokers, topics: Iterable[str]) -> dict[str, dict[int, tuple[int, ...]]]:
    """Return topic -> partition -> its replicas, for existing topics that the user may see.

    Raises:
        ClusterError: no broker answered.
    """
    return {
        topic.name: {int(p.partition_index): tuple(p.replica_nodes) for p in topic.partitions}
        for topic in _described(brokers, topics)
        if not topic.error_code or topic.error_code == KafkaError.LEADER_NOT_AVAILABLE
    }


def missing_replicas(
    brokers: Brokers, topic: str, partitions: Sequence[int], deadline: Deadline
) -> dict[int, tuple[int, ...]]:
    """Return under-replicated partition -> its replicas that are not in sync, once brokers show ``partitions``.

    Raises:
        ClusterError: (REQUEST_TIMED_OUT) no broker shows all of them in time.
    """
    while partitions:
        shown = {int(p.partition_index): p for described in _described(brokers, [topic]) for p in described.partitions}
        if shown.keys() >= set(partitions):
            missing = {p: tuple(n for n in shown[p].replica_nodes if n not in shown[p].isr_nodes) for p in partitions}
            return {p: nodes for p, nodes in missing.items() if nodes}
        if deadline.is_over:
            raise ClusterError(
                f"topic {topic!r}: the new partitions were created, but brokers do not list all of them yet; it is "
                "unknown whether all replicas are in sync",
                code=ErrorCode.REQUEST_TIMED_OUT,
                topic=topic,
            )
        time.sleep(METADATA_PAUSE_S)  # no request can wait until a broker's metadata has caught up
    return {}


def _send(
    brokers: Brokers, what: str, request: Callable[[int], Any], results: Callable[[Any], Any], timeout_s: float
) -> Any:
    """Return the results of a request that must not be sent twice."""
    wait_s = max(min(timeout_s, 3 * BULK_TIMEOUT_S), 1.0)
    answer = ask_controller(
        brokers,
        route_to_controller(brokers),
        lambda: request(int(wait_s * 900)),  # the broker's timeout ends before ours
        lambda answer: [result.error_code for result in results(answer)],
        timeout_s=wait_s,
    )
    if not isinstance(answer, ClusterError):
        return results(answer)
    if answer.code is ErrorCode.UNSUPPORTED_VERSION:
        raise RequestRefused(f"cannot {what}: {answer}", code=ErrorCode.UNSUPPORTED_VERSION)
    raise ClusterError(f"cannot {what}: {answer}; the outcome is unknown", code=answer.code)


def _described(brokers: Brokers, topics: Iterable[str]) -> list[Any]:
    names = [topic for topic in dict.fromkeys(topics) if topic]
    return list(brokers.ask(metadata_request(names, min_version=4)).topics) if names else []
