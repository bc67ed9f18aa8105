"""Creating topics and partitions: typed answers (KIP-195), and a minimum of live replicas (KIP-409)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modeaware.admin.placement import Assignments, candidates, check_given, place_by_policy
from modeaware.admin.reassignments import list_reassignments
from modeaware.admin.topics_to_make import CreationResult, minimum_of
from modeaware.cluster.answers import refusal
from modeaware.cluster.registered import Registered, registered_brokers
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka import KafkaError
from modeaware.librdkafka_admin import NewPartitions, NewTopic
from modeaware.modelog.records import ObservedBrokersRecord
from modeaware.wire.brokers.client import BULK_TIMEOUT_S, Brokers
from modeaware.wire.brokers.controller import ask_controller, route_to_controller
from modeaware.wire.brokers.messages import CreatePartitionsRequest, CreateTopicsRequest, MetadataRequest

Outcomes = dict[str, CreationResult | ModeAwareError]


@dataclass(frozen=True)
class Plan:
    """What is to be created of a topic, and how.

    Attributes:
        topic: its name.
        first, count: the new partitions are those from ``first`` on, below ``count``.
        assignments: where their replicas go; None: the brokers decide.
        live: the brokers that were alive when it was made; None where nobody asked.
    """

    topic: str
    first: int
    count: int
    assignments: Assignments | None = None
    live: frozenset[int] | None = None


class Creation:
    """One call's creations. Used by one thread; what it knows of the cluster is read once, when first needed.

    Args:
        brokers: the connection; the caller closes it.
        observed: reads the observed brokers and the policy; None where the mode log has no such record. It is called
            only where a minimum was asked for.
        timeout_s: how long all of it may take.
    """

    def __init__(
        self, brokers: Brokers, observed: Callable[[], ObservedBrokersRecord | None], timeout_s: float
    ) -> None:
        self._brokers = brokers
        self._observed = observed
        self._deadline_s = time.monotonic() + timeout_s
        self._seen: tuple[ObservedBrokersRecord, Registered] | None = None

    def create_topics(self, topics: Sequence[NewTopic], validate_only: bool = False) -> Outcomes:
        """Create topics that have a minimum, each by its own request: one that is refused is no reason for another.

        Errors are among the outcomes: RequestRefused: nothing was created; ClusterError: it is not known.

        Raises:
            ModeSourceError: the policy cannot be read.
            ClusterError: no broker says which ones are alive.
        """
        return {new.topic: self.outcome(self._create_topic, new, validate_only) for new in topics}

    def create_partitions(self, growths: Sequence[tuple[str, NewPartitions]], validate_only: bool = False) -> Outcomes:
        """Grow topics. Errors as :meth:`create_topics` has them."""
        plans = self.plan_growths(growths)
        outcomes: Outcomes = {topic: plan for topic, plan in plans.items() if isinstance(plan, ModeAwareError)}
        wanted = [plan for plan in plans.values() if isinstance(plan, Plan)]
        if not wanted:
            return outcomes
        asked = [(plan.topic, plan.count, plan.assignments) for plan in wanted]
        try:
            answers = create_partitions(self._brokers, asked, validate_only, self._left_s())
        except ModeAwareError as error:
            return {**outcomes, **dict.fromkeys((plan.topic for plan in wanted), error)}
        for plan in wanted:
            refused = answers.get(plan.topic)
            outcomes[plan.topic] = self.outcome(self.result, plan, validate_only) if refused is None else refused
        return outcomes

    def plan_growths(self, growths: Iterable[tuple[str, NewPartitions]]) -> dict[str, Plan | ModeAwareError]:
        """For each topic which partitions are to be made and, where there is a minimum, on which brokers.

        A topic that is not there gets a plan all the same: it is the brokers who say so. Raises as
        :meth:`create_topics` does.
        """
        wanted = list(growths)
        shapes = created_partitions(self._brokers, [topic for topic, _ in wanted])
        moving = self._moving(
            {topic: s for topic, new in wanted if new.new_total_count > len(s := shapes.get(topic, {}))}
        )
        plans: dict[str, Plan | ModeAwareError] = {}
        for topic, new in wanted:
            try:
                if topic in moving:
                    raise _in_progress(topic)
                plans[topic] = self._plan_growth(topic, new, shapes.get(topic, {}))
            except ModeAwareError as error:
                plans[topic] = error
        return plans

    def _moving(self, shapes: Mapping[str, Iterable[int]]) -> set[str]:
        """Topics with a reassignment in progress, as far as this user may know (DESCRIBE on the cluster)."""
        try:
            listed = list_reassignments(
                self._brokers, ((topic, p) for topic, shape in shapes.items() for p in shape), self._left_s()
            )
        except RequestRefused:
            return set()
        except ClusterError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:  # before Kafka 2.4, which tells nobody
                raise
            return set()
        return {topic for topic, _ in listed}

    def result(self, plan: Plan, validate_only: bool) -> CreationResult:
        """What the cluster says of the new partitions, once it shows them.

        Raises:
            ClusterError: (REQUEST_TIMED_OUT) they were created, and no broker shows them in time.
        """
        partitions = tuple(range(plan.first, plan.count))
        if validate_only:
            expected: Mapping[int, tuple[int, ...]] = {}
            if plan.assignments is not None and plan.live is not None:
                down = {
                    p: tuple(node_id for node_id in replicas if node_id not in plan.live)
                    for p, replicas in zip(partitions, plan.assignments, strict=False)
                }
                expected = {p: missing for p, missing in down.items() if missing}
            return CreationResult(plan.topic, partitions, expected, validate_only=True)
        return CreationResult(
            plan.topic, partitions, missing_replicas(self._brokers, plan.topic, partitions, self._left_s())
        )

    def outcome(
        self, step: Callable[[Any, bool], CreationResult], what: Any, validate_only: bool
    ) -> CreationResult | ModeAwareError:
        """What the step returns, or was refused with, or failed with at the brokers."""
        try:
            return step(what, validate_only)
        except (RequestRefused, ClusterError) as error:
            return error

    def _create_topic(self, new: NewTopic, validate_only: bool) -> CreationResult:
        plan = self._plan_topic(new)
        create_topics(self._brokers, new, plan.assignments, validate_only, self._left_s())
        return self.result(plan, validate_only)

    def _plan_topic(self, new: NewTopic) -> Plan:
        given = _given(new.replica_assignment)
        if given is not None:
            return self._checked(Plan(new.topic, 0, len(given), given), minimum_of(new))
        count, factor = int(new.num_partitions), int(new.replication_factor)
        if count == -1 or factor == -1:  # the brokers' defaults
            told = create_topics(self._brokers, new, None, True, self._left_s())
            count, factor = told.num_partitions, told.replication_factor
        if count < 1 or factor < 1:
            raise RequestRefused(
                f"topic {new.topic!r}: {count} partitions with {factor} replicas: give both, 1 or more",
                code=ErrorCode.INVALID_PARTITIONS if count < 1 else ErrorCode.INVALID_REPLICATION_FACTOR,
                topic=new.topic,
            )
        return self._placed(Plan(new.topic, 0, count), factor, minimum_of(new))

    def _plan_growth(self, topic: str, new: NewPartitions, replicas: Mapping[int, Sequence[int]]) -> Plan:
        given, minimum, count = _given(new.replica_assignment), minimum_of(new), int(new.new_total_count)
        if not replicas:
            replicas = self._awaited(topic, count)
        plan = Plan(topic, min(len(replicas), count), count, given)
        if minimum is None or count <= len(replicas):
            return plan
        if given is not None:
            return self._checked(plan, minimum)
        return self._placed(plan, len(replicas[min(replicas)]), minimum)

    def _awaited(self, topic: str, count: int) -> Mapping[int, Sequence[int]]:
        """The partitions of a topic that the one broker that was asked did not show: of a new one, perhaps.

        So no growth with a minimum is sent without assignments (KRaft would place it on brokers that are down), and the
        result names the partitions that are new.

        Raises:
            RequestRefused: the cluster says that there is no such topic, or what else it has against the growth.
            ClusterError: no answer, or no broker shows the topic in time.
        """
        while True:
            refused = create_partitions(self._brokers, [(topic, count, None)], True, self._left_s()).get(topic)
            if refused is not None:
                raise refused
            if shown := created_partitions(self._brokers, [topic]).get(topic):
                return shown
            if time.monotonic() > self._deadline_s:
                raise ClusterError(
                    f"topic {topic!r}: no broker shows its partitions in time; nothing was created",
                    code=ErrorCode.REQUEST_TIMED_OUT,
                    topic=topic,
                )
            time.sleep(LOOK_DELAY_S)  # the brokers' metadata follows the controller's in its own time

    def _placed(self, plan: Plan, factor: int, minimum: int | None) -> Plan:
        record, registered = self._known()
        up = {b.node_id: b.rack for b in registered.brokers.values() if b.live}
        down = {b.node_id: b.rack for b in registered.brokers.values() if not b.live}
        # One that the cluster has unregistered since is no broker any more (KIP-409: removed by hand).
        remembered = {n: rack for n, rack in record.brokers.items() if not registered.complete}
        assignments = place_by_policy(
            plan.topic,
            plan.count - plan.first,
            factor,
            factor if minimum is None else minimum,
            candidates(up, {**remembered, **down}),
            record.policy,
            random.randrange(1 << 16),
        )
        return replace(plan, assignments=assignments, live=frozenset(up))

    def _checked(self, plan: Plan, minimum: int | None) -> Plan:
        if minimum is None or plan.assignments is None:
            return plan
        record, registered = self._known()
        live = frozenset(broker.node_id for broker in registered.brokers.values() if broker.live)
        check_given(plan.topic, plan.assignments, minimum, live, record.policy)
        return replace(plan, live=live)

    def _known(self) -> tuple[ObservedBrokersRecord, Registered]:
        if self._seen is None:
            self._seen = (self._observed() or ObservedBrokersRecord(), registered_brokers(self._brokers))
        return self._seen

    def _left_s(self) -> float:
        return max(self._deadline_s - time.monotonic(), 0.001)


def _in_progress(topic: str) -> RequestRefused:
    """KIP-195 has the controller refuse it; KRaft takes old and new replicas together for the replication factor."""
    return RequestRefused(
        f"topic {topic!r}: a reassignment is in progress, and new partitions would get as many replicas as there are "
        "before and after it together: wait until it is done (modeaware reassign-partitions --list)",
        code=ErrorCode.REASSIGNMENT_IN_PROGRESS,
        topic=topic,
    )


def _given(assignments: Sequence[Sequence[int]] | None) -> Assignments | None:
    return tuple(tuple(brokers) for brokers in assignments) if assignments else None


Growth = tuple[str, int, Assignments | None]
"""A topic, its new partition count, and where the new partitions go (None: the brokers decide)."""

LOOK_DELAY_S = 0.1
_UNKNOWN_OUTCOME = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER)


def create_topics(
    brokers: Brokers, new: NewTopic, assignments: Assignments | None, validate_only: bool, timeout_s: float
) -> Any:
    """Create one topic, with ``assignments`` in place of its numbers; returns the broker's result for it.

    Raises:
        RequestRefused: nothing was created; ``code`` is the broker's.
        ClusterError: not known to be done.
    """
    topic = CreateTopicsRequest.CreatableTopic

    def request(timeout_ms: int) -> Any:
        wanted = topic(
            name=new.topic,
            num_partitions=-1 if assignments else int(new.num_partitions),
            replication_factor=-1 if assignments else int(new.replication_factor),
            assignments=[
                topic.CreatableReplicaAssignment(partition_index=p, broker_ids=list(ids))
                for p, ids in enumerate(assignments or ())
            ],
            configs=[
                topic.CreatableTopicConfig(name=str(name), value=str(value))
                for name, value in (new.config or {}).items()
            ],
        )
        return CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms, validate_only=validate_only, min_version=4)

    what = f"create topic {new.topic!r}"
    (result,) = _sent(brokers, what, request, timeout_s).topics
    error = answer_error(what, result.error_code, result.error_message, new.topic)
    if error is not None:
        raise error
    return result


def create_partitions(
    brokers: Brokers, growths: Sequence[Growth], validate_only: bool, timeout_s: float
) -> dict[str, ModeAwareError]:
    """Grow topics by one request; returns what was refused, by topic, as :func:`answer_error` has it.

    Raises:
        RequestRefused: (UNSUPPORTED_VERSION) the cluster is older than KIP-195.
        ClusterError: not known to be done.
    """
    topic = CreatePartitionsRequest.CreatePartitionsTopic

    def request(timeout_ms: int) -> Any:
        wanted = []
        for name, count, assignments in growths:
            placed = [topic.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments or ()]
            wanted.append(topic(name=name, count=count, assignments=placed or None))
        return CreatePartitionsRequest(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only)

    answer = _sent(brokers, "create partitions", request, timeout_s)
    errors = {
        result.name: answer_error(
            f"create partitions of topic {result.name!r}", result.error_code, result.error_message, result.name
        )
        for result in answer.results
    }
    return {name: error for name, error in errors.items() if error is not None}


def created_partitions(brokers: Brokers, topics: Iterable[str]) -> dict[str, dict[int, tuple[int, ...]]]:
    """Topic -> partition -> its replicas, of those topics that are there and that the user may see.

    Raises:
        ClusterError: no broker answered.
    """
    return {
        topic.name: {int(p.partition_index): tuple(p.replica_nodes) for p in topic.partitions}
        for topic in _described(brokers, topics)
        if not topic.error_code or topic.error_code == KafkaError.LEADER_NOT_AVAILABLE
    }


def missing_replicas(
    brokers: Brokers, topic: str, partitions: Sequence[int], timeout_s: float
) -> dict[int, tuple[int, ...]]:
    """Those of ``partitions`` that are under-replicated, and their replicas that are not in sync, once they are shown.

    Raises:
        ClusterError: (REQUEST_TIMED_OUT) no broker shows all of them in time.
    """
    deadline_s = time.monotonic() + timeout_s
    wanted = set(partitions)
    while wanted:
        shown: dict[int, Any] = {}
        for each in _described(brokers, [topic]):
            shown = {int(p.partition_index): p for p in each.partitions if int(p.partition_index) in wanted}
        if wanted <= shown.keys():
            missing = {
                p: tuple(n for n in entry.replica_nodes if n not in entry.isr_nodes)
                for p, entry in sorted(shown.items())
            }
            return {p: nodes for p, nodes in missing.items() if nodes}
        if time.monotonic() > deadline_s:
            raise ClusterError(
                f"topic {topic!r}: the new partitions were created, and the brokers do not show all of them yet: "
                "whether all replicas are there is not known",
                code=ErrorCode.REQUEST_TIMED_OUT,
                topic=topic,
            )
        time.sleep(LOOK_DELAY_S)  # the brokers' metadata follows the controller's in its own time
    return {}


def answer_error(what: str, number: int, message: str | None, topic: str | None = None) -> ModeAwareError | None:
    """Our error for the code that a broker answered a creation with; None for no error.

    RequestRefused where the broker has said no: nothing was changed. ClusterError where it may have been done.
    """
    if not number:
        return None
    error = refusal(what, number, message, topic=topic)
    if number in _UNKNOWN_OUTCOME:
        return error
    return RequestRefused(error.message, code=error.code or ErrorCode.UNKNOWN_SERVER_ERROR, topic=topic)


def _sent(brokers: Brokers, what: str, request: Any, timeout_s: float) -> Any:
    """The answer to a request that must not be done twice."""
    wait_s = max(min(timeout_s, 3 * BULK_TIMEOUT_S), 1.0)
    answer = ask_controller(
        brokers,
        route_to_controller(brokers),
        lambda: request(int(wait_s * 900)),  # the broker is to answer before we stop waiting
        lambda told: [each.error_code for each in (told.topics if hasattr(told, "topics") else told.results)],
        timeout_s=wait_s,
    )
    if isinstance(answer, ClusterError):
        if answer.code is ErrorCode.UNSUPPORTED_VERSION:
            raise RequestRefused(
                f"cannot {what}: the brokers are too old for this request ({answer}); upgrade them",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        raise ClusterError(f"cannot {what}: {answer}; it may have been done all the same", code=answer.code)
    return answer


def _described(brokers: Brokers, topics: Iterable[str]) -> list[Any]:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in dict.fromkeys(topics) if topic]
    if not wanted:
        return []
    return list(brokers.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=4)).topics)
