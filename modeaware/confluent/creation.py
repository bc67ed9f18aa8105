"""Creating topics and partitions through our AdminClient: KIP-195, KIP-409, and the topics that have been shrunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from modeaware.admin.topics_to_make import CreationResult, minimum_of
from modeaware.confluent.controller_calls import REQUEST_TIMEOUT_S, AdminBase
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka_admin import NewPartitions, NewTopic
from modeaware.lifecycle.commands import CreatePartitionsCommand
from modeaware.retries import Deadline
from modeaware.views.source import Views

if TYPE_CHECKING:
    from modeaware.admin.creation import Creation

_OPTIONS = {"operation_timeout", "request_timeout", "validate_only"}
_Outcomes = dict[str, CreationResult | ModeAwareError]


class CreatingClient(AdminBase):
    """What AdminClient creates."""

    def create_topics(  # type: ignore[override]  # the stock method overrides its own base class likewise
        self, new_topics: Sequence[NewTopic], **kwargs: Any
    ) -> dict[str, Future[Any]]:
        """Create topics: as the stock method, and those with a ``min_required_replication_factor`` by KIP-409.

        Such a topic is placed here, rack-aware, and sent with its assignment: the brokers' own placement takes no
        notice of which brokers are alive. Which ones may be down is said by the controller's policy
        (``modeaware.under.replicated.creation``), which stands in the mode log; with ``disabled``, and without a mode
        log, all replicas have to be alive. What is alive is what the brokers say: one that was killed counts until its
        ``broker.session.timeout.ms`` is over.

        Args:
            new_topics: stock ones and ours (:class:`modeaware.NewTopic`).
            kwargs: the stock method's: ``operation_timeout``, ``request_timeout`` (seconds), ``validate_only``.

        Returns:
            Per topic a future. Without a minimum: the stock method's (None; KafkaException). With one: of a
            :class:`~modeaware.admin.topics_to_make.CreationResult`; it fails with RequestRefused (nothing was created;
            INVALID_REPLICATION_FACTOR: fewer live replicas than the minimum), ClusterError (what became of it is not
            known; REQUEST_TIMED_OUT), or ModeSourceError (the policy cannot be read).

        Raises:
            RequestRefused: INVALID_REQUEST: a topic comes twice, and one has a minimum; nothing was sent.
            ValueError: numbers of one with a minimum contradict its ``replica_assignment``, as of the stock method.
        """
        ours = [new for new in new_topics if minimum_of(new) is not None]
        if not ours or not kwargs.keys() <= _OPTIONS:
            return super().create_topics(list(new_topics), **kwargs)  # type: ignore[no-any-return,unused-ignore]  # untyped
        _refuse_duplicates([new.topic for new in new_topics])
        for new in ours:
            _check_numbers(new)
        others = [new for new in new_topics if minimum_of(new) is None]
        deadline, validate_only = _deadline(kwargs), bool(kwargs.get("validate_only", False))

        def work() -> _Outcomes:
            with self._creation(deadline) as creation:
                return creation.create_topics(ours, validate_only)

        stock = super().create_topics(others, **kwargs) if others else {}
        return {**stock, **self._futures([new.topic for new in ours], work)}

    def create_partitions(  # type: ignore[override]  # the stock method overrides its own base class likewise
        self,
        new_partitions: Sequence[NewPartitions] | Mapping[str, NewPartitions],
        *,
        timeout_ms: int | None = None,
        **kwargs: Any,
    ) -> dict[str, Future[Any]]:
        """Grow topics: as the stock method (a list), or as KIP-195 has it (a mapping), and right for shrunk topics.

        A topic with a record in the mode log goes to the controller: the count then is one of *writable* partitions,
        retired ones are revived first, and assignments and the minimum are for the really new partitions. Every other
        topic goes to the brokers. A minimum is kept as :meth:`create_topics` says.

        Args:
            new_partitions: a list, as the stock method has it, or by topic (``NewPartitions.increase_to(6)``).
            timeout_ms: KIP-195's option, in milliseconds; in place of ``request_timeout``.
            kwargs: the stock method's: ``operation_timeout``, ``request_timeout`` (seconds, 60), ``validate_only``
                (False; nothing is changed).

        Returns:
            Per topic a future. Of a list, without a minimum: the stock method's (None; KafkaException with the broker's
            code). Of a mapping, or with a minimum: of a :class:`~modeaware.admin.topics_to_make.CreationResult`; it
            fails with RequestRefused (nothing was changed; ``code`` is Kafka's: see docs/admin.md), ClusterError (what
            became of it is not known), ControllerUnavailable (a shrunk topic, and nothing was sent) or ModeSourceError.

        Raises:
            RequestRefused: INVALID_REQUEST: a topic comes twice, and one has a minimum; nothing was sent.
        """
        if timeout_ms is not None:
            kwargs["request_timeout"] = timeout_ms / 1000
        growths, typed = _growths(new_partitions)
        topics = [topic for topic, _ in growths]
        plain = not isinstance(new_partitions, Mapping) and not typed
        if not isinstance(new_partitions, Mapping) and (
            not kwargs.keys() <= _OPTIONS or (plain and (not topics or len(set(topics)) < len(topics)))
        ):  # the stock method has an error for such arguments
            return super().create_partitions(list(new_partitions), **kwargs)  # type: ignore[no-any-return,unused-ignore]  # untyped
        _refuse_unknown(kwargs)
        _refuse_duplicates(topics)
        return {
            **self._create_as_stock([new for topic, new in growths if topic not in typed], kwargs),
            **self._create_typed([(topic, new) for topic, new in growths if topic in typed], kwargs),
        }

    def _create_as_stock(self, growths: Sequence[NewPartitions], kwargs: dict[str, Any]) -> dict[str, Future[Any]]:
        deadline = _deadline(kwargs)

        def work() -> dict[str, Any]:
            views = self._calls.views(deadline)
            ours = [new for new in growths if _has_record(views, new.topic)]
            options = dict(kwargs)
            if "request_timeout" in options:
                options["request_timeout"] = deadline.left_s()  # reading the modes has taken some of it
            at_brokers = self._create_stock([new for new in growths if new not in ours], options)
            commands = [_command(new.topic, new, _assignments(new)) for new in ours]
            validate_only = bool(kwargs.get("validate_only", False))
            answers = self._calls.create_partitions(views, commands, validate_only, deadline) if ours else {}
            results = {topic: answer if isinstance(answer, Exception) else None for topic, answer in answers.items()}
            return results | {topic: _failure(topic, f, deadline.left_s() + 1) for topic, f in at_brokers.items()}

        return self._futures([new.topic for new in growths], work, as_stock=True)

    def _create_typed(
        self, growths: Sequence[tuple[str, NewPartitions]], kwargs: dict[str, Any]
    ) -> dict[str, Future[Any]]:
        deadline, validate_only = _deadline(kwargs), bool(kwargs.get("validate_only", False))

        def work() -> _Outcomes:
            views = self._calls.views(deadline)
            with self._creation(deadline) as creation:
                ours = [(topic, new) for topic, new in growths if _has_record(views, topic)]
                at_brokers = [growth for growth in growths if growth not in ours]
                return {
                    **_each(at_brokers, lambda: creation.create_partitions(at_brokers, validate_only)),
                    **_each(ours, lambda: self._grow_shrunk(creation, views, ours, validate_only, deadline)),
                }

        return self._futures([topic for topic, _ in growths], work)

    def _grow_shrunk(
        self,
        creation: Creation,
        views: Views,
        growths: Sequence[tuple[str, NewPartitions]],
        validate_only: bool,
        deadline: Deadline,
    ) -> _Outcomes:
        """Through the controller, which revives first."""
        if not growths:
            return {}
        plans = creation.place_growths(growths)
        refused = {topic: plan for topic, plan in plans.items() if isinstance(plan, ModeAwareError)}
        commands = [
            _command(topic, new, plan.assignments)
            for topic, new in growths
            if not isinstance(plan := plans[topic], ModeAwareError)
        ]
        answers = self._calls.create_partitions(views, commands, validate_only, deadline) if commands else {}
        results: _Outcomes = {**refused}
        for topic, answer in answers.items():
            plan = plans[topic]
            if isinstance(answer, ModeAwareError) or isinstance(plan, ModeAwareError):
                results[topic] = answer if isinstance(answer, ModeAwareError) else results[topic]
            else:
                results[topic] = creation.outcome(creation.result, plan, validate_only)
        return results

    def _create_stock(self, new_partitions: list[NewPartitions], options: dict[str, Any]) -> dict[str, Future[None]]:
        return super().create_partitions(new_partitions, **options) if new_partitions else {}

    @contextmanager
    def _creation(self, deadline: Deadline) -> Iterator[Creation]:
        from modeaware.admin.creation import Creation
        from modeaware.wire.brokers import Brokers

        with closing(Brokers(self._stock_conf)) as brokers:
            yield Creation(brokers, lambda: self._calls.observed_brokers(deadline), deadline.left_s())


def _growths(
    new_partitions: Iterable[NewPartitions] | Mapping[str, NewPartitions],
) -> tuple[list[tuple[str, NewPartitions]], set[str]]:
    """By topic, and which topics get typed answers."""
    if not isinstance(new_partitions, Mapping):
        listed = list(new_partitions)
        return [(new.topic, new) for new in listed], {new.topic for new in listed if minimum_of(new) is not None}
    for topic, new in new_partitions.items():
        if not isinstance(new, NewPartitions):
            raise TypeError(f"topic {topic!r}: expected NewPartitions, not {new!r}")
    return list(new_partitions.items()), set(new_partitions)


def _each(growths: Iterable[tuple[str, NewPartitions]], step: Callable[[], _Outcomes]) -> _Outcomes:
    """What the step says; what makes it fail as a whole is the outcome of each of its topics, and of no others."""
    try:
        return step()
    except ModeAwareError as error:
        return {topic: error for topic, _ in growths}


def _refuse_duplicates(topics: Sequence[str]) -> None:
    twice = next((topic for topic, times in Counter(topics).items() if times > 1), None)
    if twice is not None:
        raise RequestRefused(
            f"topic {twice!r} is named twice in one request; name each topic once",
            code=ErrorCode.INVALID_REQUEST,
            topic=twice,
        )


def _check_numbers(new: NewTopic) -> None:
    """As the stock method checks them."""
    given = new.replica_assignment
    if not given:
        return
    if new.replication_factor != -1:
        raise ValueError(f"topic {new.topic!r}: replication_factor and replica_assignment are mutually exclusive")
    if new.num_partitions not in (-1, len(given)):
        raise ValueError(
            f"topic {new.topic!r}: replica_assignment must be of as many partitions as num_partitions: "
            f"{len(given)}, not {new.num_partitions}"
        )


def _failure(topic: str, future: Future[None], timeout_s: float) -> BaseException | None:
    try:
        return future.exception(timeout_s)
    except FutureTimeoutError:
        return ClusterError(
            f"create partitions of topic {topic!r}: no answer in time; it may have been done all the same",
            code=ErrorCode.REQUEST_TIMED_OUT,
            topic=topic,
        )


def _refuse_unknown(kwargs: Mapping[str, Any]) -> None:
    unknown = sorted(kwargs.keys() - _OPTIONS)
    if unknown:
        raise TypeError(f"unknown arguments: {', '.join(unknown)}")


def _deadline(kwargs: Mapping[str, Any]) -> Deadline:
    return Deadline(float(kwargs.get("request_timeout", REQUEST_TIMEOUT_S)))


def _has_record(views: Views, topic: str) -> bool:
    return views.view(topic).topic_id is not None


def _assignments(new: NewPartitions) -> tuple[tuple[int, ...], ...] | None:
    replicas = new.replica_assignment
    return tuple(tuple(brokers) for brokers in replicas) if replicas else None


def _command(
    topic: str, new: NewPartitions, assignments: tuple[tuple[int, ...], ...] | None
) -> CreatePartitionsCommand:
    return CreatePartitionsCommand(topic, new.new_total_count, assignments)
