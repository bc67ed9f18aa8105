"""kafka-python's KafkaProducer, choosing among writable partitions only."""

from __future__ import annotations

import threading
import warnings
from functools import partial, wraps
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.following import ClientErrors, acquired
from modeaware.clients.named import PairedName
from modeaware.clients.refusals import Refusals
from modeaware.clients.routes import NO_STATS, Route, Routes
from modeaware.clients.settings import own_partitioner, split_settings
from modeaware.kafka_python import _gateway
from modeaware.kafka_python.commits import transactional_offsets
from modeaware.kafka_python.errors import (
    FirstViewPending,
    FirstViewTimeout,
    ReplacedTopicError,
    RetiredPartitionError,
)
from modeaware.views.source import VERIFY_TIMEOUT_S, Views
from partitioners.call_forms import for_kafka_python

log = get_logger(__name__)

METADATA_WAIT_S = 1.0
"""How long the thread that applies a view waits for the metadata of a new topic that has the name of an earlier one."""

ERRORS = ClientErrors(RetiredPartitionError, FirstViewPending, FirstViewTimeout)


class VerifiedRoutes(Routes):
    """Routes that are verified before their first record, and again when the client's metadata has changed.

    So if a topic was deleted and created again under its name, not even the first record is placed by the modes of the
    deleted topic. Thread-safe.

    Args:
        timeout_s: how long a call of :meth:`verify` may take.
    """

    def __init__(self, timeout_s: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timeout_s = min(timeout_s, VERIFY_TIMEOUT_S)

    def verify(self, name: str) -> None:
        """Verify the views on which a record under ``name`` depends (invariant I8), unless they are verified. May
        block; see ``Views.verify``."""
        if unverified := self.unverified(name):
            self._views.verify([topic for topic, _ in unverified], self._timeout_s)
            self._verified |= dict(self.unverified(name))  # the views in force by now

    def refuse_absent(self, name: str, partition: int) -> None:
        """Refuse a partition that was meant for an old topic of ``name``, and that the new topic does not have.

        Raises:
            PartitionRetired: see :meth:`Route.refusal`.
        """
        route: Route | None = self._routes.get(name)
        if route is not None and route.name is not None:
            route.refuse_retired(partition, self._errors.retired)

    def metadata_changed(self, _: object = None) -> None:
        """Verify again, because the client's metadata has changed."""
        self._verified.clear()


class KafkaProducer(_gateway.KafkaProducer):  # type: ignore[misc,unused-ignore]  # untyped
    """``kafka.KafkaProducer`` with the same settings and methods, aware of partition modes.

    While a topic has retired partitions, the ``partitioner`` (kafka-python's, or the application's own) sees only the
    writable ones: a keyed record goes to ``writable[hash % len(writable)]``. If the partition that was given or picked
    takes no writes, the record is refused before it is queued. ``partitioner`` may also be a name that
    :func:`partitioners.named` accepts, ``"package.module:name"``, or a partitioner of :mod:`partitioners`.

    Records under the name of a replaced topic go to the partitions of its new topic; serializers get the name that the
    application used. If brokers reject a record because it was queued before the switch, the record fails with
    :class:`~modeaware.kafka_python.errors.ReplacedTopicError`.

    Settings that begin with ``modeaware_`` are ours (:class:`~modeaware.config.ClientConfig`, with underscores). Like
    kafka-python's, the constructor requests the versions of the cluster. The first ``send`` also waits for the first
    view of the modes. Methods may be called from any thread. The producer releases its share of the views by
    ``close()``, at the end of ``with``, and when it is dropped.

    Raises:
        ConfigError: an unknown or bad ``modeaware_`` setting, or a connection setting that cannot be translated for
            librdkafka, which reads the views.
        KafkaError, ValueError: as from kafka-python.
    """

    # None until __init__ is done. If __init__ fails, __del__ calls close() all the same.
    _modeaware: VerifiedRoutes | None = None

    def __init__(self, **configs: Any) -> None:
        settings = split_settings(configs)
        partitioner = own_partitioner(settings.theirs.get("partitioner"))
        if partitioner is not None:
            settings.theirs["partitioner"] = for_kafka_python(partitioner)
        with acquired(settings.conf, settings.config) as views:
            super().__init__(**_gateway.named_client(settings.theirs))
        max_block_s = self.config["max_block_ms"] / 1000
        self._modeaware = routes = VerifiedRoutes(
            *(max_block_s, views, settings.config, ERRORS, partitioner),
            renew_metadata=partial(_renew_metadata, self._metadata),
        )
        self.config["partitioner"] = WritablePartitioner(self.config["partitioner"], routes)
        _report_refusals(self._sender, self._transaction_manager, Refusals(views))
        routes.serve(self)
        _gateway.add_listener(self._metadata, partial(_metadata_changed, views, self._accumulator))
        _gateway.add_listener(self._metadata, routes.metadata_changed)

    @wraps(_gateway.KafkaProducer.send, assigned=(), updated=())  # kafka-python's signature; tracers read raw arguments
    def send(self, *args: Any, **kwargs: Any) -> Any:
        """As ``kafka.KafkaProducer.send``.

        Raises:
            RetiredPartitionError: ``partition`` takes no records; nothing was queued. A ``KafkaError`` and ValueError.
            FirstViewPending: no view of the modes yet (``modeaware_on_unknown="block"``). A ``KafkaTimeoutError``.
            FirstViewTimeout: no view of the modes yet (``modeaware_on_unknown="error"``). A ``KafkaError``.
            KafkaError, TypeError, ValueError: as from kafka-python.
        """
        routes = self._modeaware
        if routes is not None and not routes.first_view.over and not self._closed:
            routes.first_view.wait()
        name: Any = args[0] if args else kwargs.get("topic")
        while True:
            topic = name if routes is None else _led(routes, name)
            try:
                if topic is name:
                    return super().send(*args, **kwargs)
                if args:
                    return super().send(topic, *args[1:], **kwargs)
                return super().send(**{**kwargs, "topic": topic})
            except RetiredPartitionError:
                if routes is None or topic == routes.points_to(name):
                    raise
                # The topic was replaced meanwhile. Nothing was queued.

    def _serialize(self, serializer: Any, topic: str, headers: Any, data: Any) -> Any:
        return super()._serialize(serializer, _name_of(topic), headers, data)

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> Any:
        # Check given and picked partitions before the record is queued: queued records never move (invariant I7).
        routes = self._modeaware
        if routes is None:
            return super()._partition(topic, partition, key, value, serialized_key, serialized_value)
        name = _name_of(topic)
        if routes.of(topic) is not None or topic is not name:
            routes.verify(name)
        if partition is not None and topic is not name:
            routes.refuse_absent(name, partition)
        while True:
            route = routes.of(topic)
            chosen = super()._partition(topic, partition, key, value, serialized_key, serialized_value)
            if partition is not None or routes.of(topic) is route:
                break  # else pick again: the modes have changed, and the picked partition may be retired by now
        if chosen is None:
            return None
        routes.refuse_retired(topic, chosen)
        if partition is None and serialized_key is not None:
            routes.observe_key(name, serialized_key)
        return chosen

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """As ``kafka.KafkaProducer.send_offsets_to_transaction``. If an offset is the end of a partition of a
        replaced topic and has no metadata, a note is added: the group has read the partition."""
        super().send_offsets_to_transaction(transactional_offsets(offsets, group_metadata), group_metadata)

    def partitions_for(self, topic: str) -> set[int]:
        """As ``kafka.KafkaProducer.partitions_for``, including retired partitions. For the name of a replaced topic,
        return the partitions of the topic to which records under the name go."""
        routes = self._modeaware
        partitions: set[int] = super().partitions_for(topic if routes is None else routes.named.written(topic))
        return partitions

    def writable_partitions(self, topic: str) -> tuple[int, ...]:
        """See :meth:`modeaware.Producer.writable_partitions`.

        Raises:
            FirstViewPending, FirstViewTimeout: as from :meth:`send`.
            KafkaError: as from kafka-python's ``partitions_for``, for example because the cluster has no such topic.
        """
        assert self._modeaware is not None, "the constructor has run"
        stock = super().partitions_for
        return self._modeaware.named.writable_partitions(topic, lambda written: len(stock(written)))

    @wraps(_gateway.KafkaProducer.close, assigned=(), updated=())
    def close(self, *args: Any, **kwargs: Any) -> None:
        """As ``kafka.KafkaProducer.close``. Releases the share of the views; the last views stay in force.

        If the producer cannot be closed, for example because its flush times out, it continues and keeps its share.
        """
        if "config" not in self.__dict__:
            return  # our settings were rejected, and kafka-python's __init__ has not run
        super().close(*args, **kwargs)
        if self._modeaware is not None:
            self._modeaware.close()

    def modeaware_stats(self) -> dict[str, Any]:
        """As :meth:`modeaware.Producer.modeaware_stats`, without ``in_c``. The state ``direct`` means that every
        partition is writable."""
        return {**NO_STATS} if self._modeaware is None else self._modeaware.stats()


def _led(routes: VerifiedRoutes, name: Any) -> Any:
    """Return the topic for a record under ``name``: ``name`` itself, unless the name points to another topic."""
    if not isinstance(name, str) or routes.points_to(name) == name:
        return name
    routes.verify(name)
    topic = routes.points_to(name)
    return name if topic == name else PairedName.of(topic, name, topic)


def _name_of(topic: str) -> str:
    return topic.logical if isinstance(topic, PairedName) else topic


def _metadata_changed(views: Views, accumulator: Any, metadata: Any) -> None:
    """Process kafka-python's new metadata of the cluster (called in kafka-python's thread)."""
    views.refresh_soon()
    queues = list(accumulator._batches)
    gone = _gateway.deleted({*tuple(metadata._topics), *(partition.topic for partition in queues)}, views)
    metadata._topics.difference_update(gone)
    for partition in queues:
        if partition.topic in gone:  # kafka-python would look for the leaders of empty queues, too
            with accumulator._tp_lock(partition):
                if not accumulator._batches.get(partition) and not accumulator._appends_in_progress.get():
                    accumulator._batches.pop(partition, None)


def _renew_metadata(metadata: Any, topic: str) -> None:
    """Make kafka-python's sender thread request the metadata of a topic, and wait for the metadata.

    Only the sender thread may add the topic, because this thread may be iterating over the topics. If the topics
    changed meanwhile, the sender thread would never request metadata again (3.0.12).
    """
    done = threading.Event()

    def renew() -> None:
        metadata.add_topic(topic)
        metadata.request_update().add_both(lambda _: done.set())

    metadata._manager.call_soon(renew)
    if not done.wait(METADATA_WAIT_S):
        log.warning(
            "topic %s: another topic had this name before, and the metadata of this topic was not received yet", topic
        )


def _report_refusals(sender: Any, transactions: Any, refusals: Refusals) -> None:
    """Make records that brokers reject because their topic was replaced fail with ``ReplacedTopicError``.

    All records of a batch fail at once. Otherwise kafka-python would split a rejected batch until each record is sent
    alone. A producer without transactions continues. Otherwise an idempotent one would never send again.
    """
    dispatch, classify = sender._dispatch_error, transactions and transactions.classify_batch_error

    def explained(batch: Any, exception: Any, partition_response: Any) -> None:  # kafka-python passes these by name
        error = None
        if type(exception) is _gateway.MessageSizeTooLargeError:
            topic, partition = batch.topic_partition
            error = refusals.explain(topic, partition, ReplacedTopicError)
        dispatch(batch, error or exception, partition_response)

    def classified(error: Any, batch: Any, **kwargs: Any) -> Any:
        is_fenced = isinstance(error, ReplacedTopicError)
        if isinstance(error, _gateway.MessageSizeTooLargeError):  # brokers may fence before the view shows the switch
            is_fenced |= refusals.may_be_fenced(batch.topic_partition.topic)
        if is_fenced and not transactions.is_transactional():
            return transactions.ERROR_CLASS_RETRIABLE  # the batch is not retried, and the producer continues
        return classify(error, batch, **kwargs)

    sender._dispatch_error = explained
    if transactions is not None:
        transactions.classify_batch_error = classified


class WritablePartitioner(_gateway.Partitioner):  # type: ignore[misc,unused-ignore]  # untyped
    """Makes another partitioner choose among the writable partitions.

    The other partitioner gets a ``ClusterMetadata`` with only the writable partitions; those with a leader are the
    available ones. kafka-python's own partitioners compute ``all[murmur2 % len(all)]``. So they send a key to
    ``writable[murmur2 % len(writable)]``, whichever leaders are available and however old the metadata is.

    Attributes:
        inner: the application's partitioner, of either form that kafka-python accepts.
    """

    def __init__(self, inner: Any, routes: Routes) -> None:
        self.inner = inner
        self._routes = routes

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> Any:
        """As ``kafka.partitioner.Partitioner.partition``.

        Raises:
            RetiredPartitionError: no partition of the topic is writable.
        """
        seen = self._shown(topic, cluster)
        if isinstance(self.inner, _gateway.Partitioner):
            return self.inner.partition(topic, key, serialized_key, value, serialized_value, seen)
        warnings.warn("partitioner does not implement kafka.partitioner.Partitioner", DeprecationWarning, stacklevel=3)
        return self.inner.partition(topic, serialized_key, seen)

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        """As ``StickyPartitioner.on_new_batch``; called on :attr:`inner` if it has that method."""
        hook = getattr(self.inner, "on_new_batch", None)
        if hook is not None:
            hook(topic, self._shown(topic, cluster), prev_partition)

    def _shown(self, topic: str, cluster: Any) -> Any:
        route = self._routes.of(topic)
        if route is None:
            return cluster
        if not route.writable:
            route.refuse_retired(0, RetiredPartitionError)
        return WritablePart(cluster, topic, route.writable)


class WritablePart:
    """kafka-python's ``ClusterMetadata``, with the writable partitions of one topic in place of all its partitions."""

    def __init__(self, cluster: Any, topic: str, writable: tuple[int, ...]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._writable = writable

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        # By the view, even if the cluster's metadata is older: all producers must hash over the same partitions.
        if topic != self._topic:
            return self._cluster.partitions_for_topic(topic)  # type: ignore[no-any-return]  # as kafka-python's
        return set(self._writable)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        available = self._cluster.available_partitions_for_topic(topic)
        if topic != self._topic or available is None:
            return available  # type: ignore[no-any-return]  # as kafka-python's
        return set(available).intersection(self._writable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
