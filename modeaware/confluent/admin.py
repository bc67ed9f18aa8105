"""confluent_kafka's AdminClient, with KIP-694's DeletePartitions beside what it has.

Needs the extra ``controller`` (kafka-python's codec) for the requests that go to our controller, and only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from modeaware.confluent.controller_calls import REQUEST_TIMEOUT_S, Answers
from modeaware.confluent.creation import CreatingClient
from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka import TopicPartition
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import RETENTION_DELAY_MS
from modeaware.retries import Deadline
from modeaware.topic_view import TopicView

if TYPE_CHECKING:
    from modeaware.admin.reassignments import PartitionReassignment
    from modeaware.wire.brokers import Brokers
    from modeaware.wire.messages import TopicResult

_BROKER_TIMEOUT_S = 4.0
_Key = TypeVar("_Key", TopicPartition, tuple[str, int])


@dataclass(frozen=True)
class DeletePartitions:
    """KIP-694's class of this name: how far to shrink one topic.

    Attributes:
        total_count: how many partitions to keep; the ones with the highest ids are retired.
        immediate_delete: delete the retired partitions' records without waiting for a delay or for consumers.
        accept_state_loss: the names of groups that keep state per partition (Kafka Streams) and may lose what belongs
            to the keys that move. Without its name here, such a group makes the controller refuse the shrink.
        evacuate: for a compacted topic, and for such alone: no partition goes before the Spark job
            ``modeaware.spark.evacuate`` has copied the latest values of its keys to the partitions that stay.
    """

    total_count: int
    immediate_delete: bool = False
    accept_state_loss: Sequence[str] = ()
    evacuate: bool = False


class AdminClient(CreatingClient):
    """A drop-in for ``confluent_kafka.admin.AdminClient``: same constructor and methods, and some of ours.

    The constructor does not block and sends nothing to the cluster. All methods may be called from any thread.
    Commands to the controller are sent to the address that its claim in the mode log gives.

    Args:
        conf: librdkafka's settings and ours (``modeaware.*``, see :class:`modeaware.config.ClientConfig`).
        kwargs: as the stock class takes them (``logger=``).

    Raises:
        ConfigError: an unknown ``modeaware.`` setting, or a bad value.
    """

    def delete_partitions(
        self,
        partitions: Mapping[str, DeletePartitions],
        delay_ms: int | None = None,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[TopicResult]]:
        """Shrink topics (KIP-694 ``deletePartitions``): retire their last partitions, which take no records any more.

        Args:
            partitions: per topic, how many partitions to keep.
            delay_ms: records of the retired partitions are deleted once every group has consumed them, and no earlier
                than this many milliseconds from now. None (the default): they are never deleted early, the topic's own
                retention takes them.
            request_timeout: the deadline, in seconds. Until then the call is retried where nothing was done: no
                controller answers, another one is taking over, partitions have no leader yet. See
                ``modeaware.retries``, also for unknown topics and for requests without an answer.

        Returns:
            Per topic a future of :class:`~modeaware.wire.messages.TopicResult`: the retired partitions and their
            modes. It is done when the shrink is on the log; draining follows. It fails with RequestRefused
            (nothing changed; ``code`` says why), ControllerUnavailable (nothing was sent), ClusterError (what became of
            it is not known), or ModeSourceError (the mode log cannot be read).

        Raises:
            RequestRefused: a count below 1 or a negative delay; nothing was sent.
            TypeError: an argument has the wrong type.
        """
        _check_wanted(partitions)
        delay = RETENTION_DELAY_MS if delay_ms is None else _checked_delay_ms(delay_ms)
        deadline = Deadline(request_timeout)

        def work() -> Answers:
            answers: Answers = {}
            views = self._calls.views(deadline)
            for immediate in (False, True):  # a request says it once, for all of its topics
                chosen = {t: p for t, p in partitions.items() if bool(p.immediate_delete) is immediate}
                counts = {t: p.total_count for t, p in chosen.items()}
                accepted = {t: p.accept_state_loss for t, p in chosen.items()}
                evacuate = {t for t, p in chosen.items() if p.evacuate}
                if counts:
                    answers |= self._calls.delete_partitions(
                        views, counts, delay, immediate, accepted, evacuate, deadline
                    )
            return answers

        return self._futures(partitions, work)

    def describe_modes(
        self, topics: Iterable[str] | None = None, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> dict[str, Future[TopicView]]:
        """The partition modes on the mode log now: per topic a future of a :class:`~modeaware.topic_view.TopicView`.

        Args:
            topics: one that has no record (never shrunk) has empty ``modes``: all are ReadWrite.
                None: every topic that has a record; this form blocks until the log has been read.
            request_timeout: how long to wait for the log, in seconds; then the futures fail with ModeSourceError.

        Raises:
            ModeSourceError: ``topics`` is None and the log cannot be read.
        """
        wanted = None if topics is None else list(dict.fromkeys(topics))
        deadline = Deadline(request_timeout)

        def work() -> dict[str, TopicView]:
            views = self._calls.views(deadline)
            return dict(views.views()) if wanted is None else {topic: views.view(topic) for topic in wanted}

        if wanted is not None:
            return self._futures(wanted, work)
        found = work()
        return self._futures(found, lambda: found)

    def alter_group_rules(
        self,
        add: Iterable[GroupRule] = (),
        remove: Iterable[tuple[str, str, str]] = (),
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> Future[None]:
        """Change the rules about the groups that a drain waits for: all of it in one step, or nothing.

        Args:
            add: rules; one takes the place of a rule with the same kind, group and topic.
            remove: rules by their ``(kind, group, topic)``, removed before any is added.
            request_timeout: how long to wait for the controller's answer, in seconds.

        Returns:
            A future that is done when the rules are on the log. It fails as those of :meth:`delete_partitions` do;
            RequestRefused: a rule that cannot be one, or one to be removed that is not there.

        Raises:
            TypeError: an argument has the wrong type; nothing was sent.
        """
        command = AlterGroupRulesCommand(_checked_rules(add), _checked_keys(remove))
        deadline = Deadline(request_timeout)

        def work() -> dict[str, ModeAwareError | None]:
            answers = self._calls.alter_group_rules(self._calls.views(deadline), command, deadline)
            return {topic: answer if isinstance(answer, ModeAwareError) else None for topic, answer in answers.items()}

        return self._futures([command.topic], work)[command.topic]

    def describe_group_rules(self, request_timeout: float = REQUEST_TIMEOUT_S) -> Future[tuple[GroupRule, ...]]:
        """The rules about groups on the mode log now, in the order they were made; expired ones are still among them.

        Args:
            request_timeout: how long to wait for the log, in seconds.

        Returns:
            A future; it fails with ModeSourceError (the log cannot be read) or RecordError (nor can the rules).
        """
        deadline = Deadline(request_timeout)
        return self._futures([""], lambda: {"": self._calls.group_rules(deadline)})[""]

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[_Key, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        expected_replicas: Mapping[_Key, Sequence[int]] | None = None,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[_Key, Future[None]]:
        """Move partitions to other brokers, or cancel that (Java's ``Admin.alterPartitionReassignments``).

        Args:
            reassignments: per partition (a TopicPartition, of which topic and partition count, or a pair) the broker
                ids its replicas shall be on, the preferred leader first; None: cancel its reassignment in progress.
            allow_replication_factor_change: False: a partition whose number of replicas would change is refused
                (KIP-860). For one in mid-reassignment the number counts that it shall have at its end, so that a set of
                replicas that was read too early is not made permanent. Needs Kafka 4.1; no effect on cancellations.
            expected_replicas: compare-and-set: of the partitions named here (all of them in ``reassignments``), only
                those are reassigned whose replicas are these, in this order, on every live broker's metadata, and that
                the controller is not reassigning. This is looked at right before the request is sent; no client can
                shut the moment in between. Every live broker has to answer.
            request_timeout: how long to wait for each answer, in seconds.

        Returns:
            Per partition, under the caller's own key, a future that is done when the reassignment is accepted (it goes
            on after that: see :meth:`list_partition_reassignments`) or the cancellation is done. It fails for that
            partition alone with

            - RequestRefused, nothing was changed there; ``code`` is INVALID_REPLICATION_FACTOR (KIP-860),
              INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS (of a cancellation),
              CLUSTER_AUTHORIZATION_FAILED, or UNSUPPORTED_VERSION: the broker does not have the option;
              cancellations of the same call are carried out all the same;
            - ReplicasChanged, a RequestRefused: its replicas are not the expected ones;
            - ClusterError: no answer; what became of it is not known.

        Raises:
            TypeError: an argument has the wrong type; nothing was sent.
            ValueError: a partition is named twice, or is in ``expected_replicas`` and not to be reassigned; nothing was
                sent.
        """
        keys = _pairs(reassignments)
        wanted = {
            pair: None if (replicas := reassignments[key]) is None else _ids(pair, replicas)
            for pair, key in keys.items()
        }
        expected = None
        if expected_replicas is not None:
            expected_keys = _pairs(expected_replicas)
            expected = {pair: _ids(pair, expected_replicas[key]) for pair, key in expected_keys.items()}
            if stray := sorted(pair for pair in expected if wanted.get(pair) is None):
                raise ValueError(f"expected_replicas names what is not to be reassigned: {stray}")

        def work() -> dict[tuple[str, int], ModeAwareError | None]:
            from modeaware.admin.reassignments import alter_reassignments

            with closing(self._brokers(request_timeout)) as brokers:
                return alter_reassignments(
                    brokers,
                    wanted,
                    allow_replication_factor_change=allow_replication_factor_change,
                    expected_replicas=expected,
                    timeout_s=request_timeout,
                )

        futures = self._futures(keys, work)
        return {key: futures[pair] for pair, key in keys.items()}

    def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> Future[dict[tuple[str, int], PartitionReassignment]]:
        """What is being reassigned, by the controller of the cluster (Java's ``Admin.listPartitionReassignments``).

        Args:
            partitions: None: all. One that is not being reassigned is not in the answer.
            request_timeout: how long to wait for the answer, in seconds.

        Returns:
            A future of a mapping (topic, partition) ->
            :class:`~modeaware.admin.reassignments.PartitionReassignment`. It fails with RequestRefused (not authorized)
            or ClusterError (no answer).

        Raises:
            TypeError: an argument has the wrong type.
        """
        wanted = None if partitions is None else [_pair(key) for key in partitions]

        def work() -> dict[str, Any]:
            from modeaware.admin.reassignments import list_reassignments

            with closing(self._brokers(request_timeout)) as brokers:
                return {"": list_reassignments(brokers, wanted, request_timeout)}

        return self._futures([""], work)[""]

    def _brokers(self, timeout_s: float) -> Brokers:
        """Connections for one call, since they are one thread's at a time; kafka-python is loaded when first needed."""
        from modeaware.wire.brokers import Brokers

        return Brokers(self._stock_conf, timeout_s=min(timeout_s, _BROKER_TIMEOUT_S))


def _check_wanted(partitions: Mapping[str, DeletePartitions]) -> None:
    for topic, wanted in partitions.items():
        if not isinstance(wanted, DeletePartitions):
            raise TypeError(f"topic {topic!r}: expected DeletePartitions, not {wanted!r}")
        count = wanted.total_count
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"topic {topic!r}: the partition count must be an int, not {count!r}")
        groups = wanted.accept_state_loss
        if isinstance(groups, str) or not all(isinstance(group, str) for group in groups):
            raise TypeError(f"topic {topic!r}: accept_state_loss must be group names, not {groups!r}")
        if not isinstance(wanted.evacuate, bool):
            raise TypeError(f"topic {topic!r}: evacuate must be a bool, not {wanted.evacuate!r}")
        if count < 1:
            raise RequestRefused(
                f"topic {topic!r}: {count} partitions: at least 1 must stay",
                code=ErrorCode.INVALID_PARTITIONS,
                topic=topic,
            )


def _checked_rules(rules: Iterable[GroupRule]) -> tuple[GroupRule, ...]:
    checked = tuple(rules)
    for rule in checked:
        if not isinstance(rule, GroupRule):
            raise TypeError(f"expected a GroupRule, not {rule!r}")
    return checked


def _checked_keys(keys: Iterable[Any]) -> tuple[tuple[str, str, str], ...]:
    checked = tuple(keys)
    for key in checked:
        if not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)):
            raise TypeError(f"expected (kind, group, topic) of a rule, not {key!r}")
    return checked


def _checked_delay_ms(delay_ms: int) -> int:
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, int):
        raise TypeError(f"the delay must be an int (milliseconds), not {delay_ms!r}")
    if delay_ms < 0:
        raise RequestRefused(f"a delay of {delay_ms} ms: 0 or more, or None to leave deletion to the topic's retention")
    return delay_ms


def _pairs(keys: Iterable[_Key]) -> dict[tuple[str, int], _Key]:
    found: dict[tuple[str, int], _Key] = {}
    for key in keys:
        pair = _pair(key)
        if pair in found:
            raise ValueError(f"partition {pair[0]}-{pair[1]} is named twice")
        found[pair] = key
    return found


def _pair(key: Any) -> tuple[str, int]:
    pair = (key.topic, key.partition) if isinstance(key, TopicPartition) else key
    match pair:
        case (str() as topic, int() as partition) if isinstance(pair, tuple) and not isinstance(partition, bool):
            return topic, partition
    raise TypeError(f"expected a TopicPartition or (topic, partition), not {key!r}")


def _ids(pair: tuple[str, int], replicas: Sequence[int]) -> tuple[int, ...]:
    if isinstance(replicas, str | bytes) or not isinstance(replicas, Sequence):
        raise TypeError(f"partition {pair[0]}-{pair[1]}: replicas must be a sequence of broker ids, not {replicas!r}")
    if any(isinstance(broker, bool) or not isinstance(broker, int) for broker in replicas):
        raise TypeError(f"partition {pair[0]}-{pair[1]}: broker ids are ints: {replicas!r}")
    return tuple(replicas)
