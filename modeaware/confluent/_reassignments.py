"""The part of our AdminClient that reassigns partitions (KIP-455, KIP-860)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from modeaware.confluent._admin_base import REQUEST_TIMEOUT_S, AdminBase
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import TopicPartition

if TYPE_CHECKING:
    from modeaware.admin.reassignments import PartitionReassignment
    from modeaware.wire.brokers.client import Brokers

_BROKER_TIMEOUT_S = 4.0
_Key = TypeVar("_Key", TopicPartition, tuple[str, int])


class ReassigningClient(AdminBase):
    """An admin client with the methods about reassignments."""

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
              CLUSTER_AUTHORIZATION_FAILED, or UNSUPPORTED_VERSION: a broker that does not know the option;
              cancellations of the same call are carried out all the same;
            - ReplicasChanged, a RequestRefused: its replicas are not the expected ones;
            - ClusterError: no answer; what became of it is not known.

        Raises:
            TypeError: an argument has the wrong type; nothing was sent.
            ValueError: a partition is named twice, or is in ``expected_replicas`` and not to be reassigned; nothing was
                sent.
        """
        keys = _pairs(reassignments)
        wanted = {pair: _wanted(pair, reassignments[key]) for pair, key in keys.items()}
        expected = None
        if expected_replicas is not None:
            expected_keys = _pairs(expected_replicas)
            expected = {pair: _ids(pair, expected_replicas[key]) for pair, key in expected_keys.items()}
            if stray := sorted(pair for pair in expected if wanted.get(pair) is None):
                raise ValueError(f"expected_replicas names what is not to be reassigned: {stray}")

        def work() -> dict[tuple[str, int], ModeAwareError | None]:
            from modeaware.admin.reassignments import alter_reassignments

            brokers = self._brokers(request_timeout)
            try:
                return alter_reassignments(
                    brokers,
                    wanted,
                    allow_replication_factor_change=allow_replication_factor_change,
                    expected_replicas=expected,
                    timeout_s=request_timeout,
                )
            finally:
                brokers.close()

        futures = self._futures(keys, work)
        return {key: futures[pair] for pair, key in keys.items()}

    def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> Future[dict[tuple[str, int], PartitionReassignment]]:
        """What is being reassigned, by the controller of the cluster (Java's ``Admin.listPartitionReassignments``).

        Args:
            partitions: those asked for; None: all. One that is not being reassigned is not in the answer.
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

            brokers = self._brokers(request_timeout)
            try:
                return {"": list_reassignments(brokers, wanted, request_timeout)}
            finally:
                brokers.close()

        return self._futures([""], work)[""]

    def _brokers(self, timeout_s: float) -> Brokers:
        """Connections for one call, since they are one thread's at a time; kafka-python is loaded when first needed."""
        from modeaware.wire.brokers.client import Brokers

        return Brokers(self._stock_conf, timeout_s=min(timeout_s, _BROKER_TIMEOUT_S))


def _name(pair: tuple[str, int]) -> str:
    return f"{pair[0]}-{pair[1]}"


def _pairs(keys: Iterable[_Key]) -> dict[tuple[str, int], _Key]:
    found: dict[tuple[str, int], _Key] = {}
    for key in keys:
        pair = _pair(key)
        if pair in found:
            raise ValueError(f"partition {_name(pair)} is named twice")
        found[pair] = key
    return found


def _pair(key: Any) -> tuple[str, int]:
    topic, partition = (key.topic, key.partition) if isinstance(key, TopicPartition) else _unpacked(key)
    if not isinstance(topic, str) or isinstance(partition, bool) or not isinstance(partition, int):
        raise TypeError(f"expected a TopicPartition or (topic, partition), not {key!r}")
    return topic, partition


def _unpacked(key: Any) -> tuple[Any, Any]:
    if not isinstance(key, tuple) or len(key) != 2:
        raise TypeError(f"expected a TopicPartition or (topic, partition), not {key!r}")
    return key


def _wanted(pair: tuple[str, int], replicas: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if replicas is None else _ids(pair, replicas)


def _ids(pair: tuple[str, int], replicas: Sequence[int]) -> tuple[int, ...]:
    if isinstance(replicas, str | bytes) or not isinstance(replicas, Sequence):
        raise TypeError(f"partition {_name(pair)}: the replicas must be a sequence of broker ids, not {replicas!r}")
    if any(isinstance(broker, bool) or not isinstance(broker, int) for broker in replicas):
        raise TypeError(f"partition {_name(pair)}: broker ids are ints: {replicas!r}")
    return tuple(replicas)
