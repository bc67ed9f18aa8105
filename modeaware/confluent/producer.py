"""``modeaware.Producer``: confluent_kafka's Producer, choosing among writable partitions only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar

from modeaware import librdkafka
from modeaware.clients.over import over
from modeaware.clients.routes import NO_STATS
from modeaware.clients.settings import given_conf, is_beyond_librdkafka, partitioner_of
from modeaware.config import split_client_config, with_process_settings
from modeaware.confluent import named
from modeaware.confluent.commits import transactional_offsets
from modeaware.confluent.delivery import Deliveries
from modeaware.confluent.errors import StaleHints
from modeaware.confluent.retarget import ABSENT, following, slot_of_produce, stock_method
from modeaware.confluent.route_table import UNASSIGNED, notice_deletion, partition_count, renew_metadata
from modeaware.confluent.router import RoutedInPython, Router
from modeaware.confluent.statistics import QueueLoads, stats_settings
from modeaware.librdkafka import ClusterMetadata, KafkaError, KafkaException, Message
from modeaware.views import registry
from modeaware.wire.capabilities import IDENTITY
from partitioners import wants_load

P = TypeVar("P", bound="Producer")
Callback = Callable[[KafkaError | None, Message], object] | None
Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]] | None
K = TypeVar("K")
V = TypeVar("V")


class _Slots(librdkafka.Producer):
    """Has the slots for the targets of :func:`~modeaware.confluent.retarget.following` methods."""

    __slots__ = ("_following_produce", "_following_produce_batch")
    _following_produce: Any


class Producer(_Slots):
    """confluent_kafka's ``Producer`` with the same constructor forms, methods and callbacks, aware of partition modes.

    While all partitions of a topic are writable, or its modes are unknown, librdkafka chooses. If this holds for all
    topics, and the package has its C extension, no code of ours runs per record. While a topic has retired partitions,
    a record with a key and without an explicit partition goes to ``writable[hash % len(writable)]``. ``partitioner``
    determines the hash; ``sticky.partitioning.linger.ms`` applies as well.

    ``partitioner`` may also be a partitioner that librdkafka does not have: one of :data:`partitioners.NAMES`, the
    ``"package.module:name"`` of a :class:`partitioners.Partitioner` (class or function), or such an object. Such a
    partitioner picks for every record without an explicit partition: among the writable partitions, or among all if
    none is retired.

    Settings that begin with ``modeaware.`` are ours (:class:`modeaware.config.ClientConfig`); all others are
    librdkafka's. The constructor does not block; the first send waits for the first view of the modes. Methods may be
    called from any thread, as with confluent_kafka. The producer releases its share of the views by ``close()``, at the
    end of ``with``, and when it is dropped.

    A reference to ``produce`` (``send = producer.produce``) follows later changes of the modes. Records also pass
    through the ``produce`` of a subclass, and through one that a tracer has put over ``confluent_kafka.Producer``
    before the producer was made.

    Raises:
        ConfigError: an unknown ``modeaware.`` setting (the message gives the nearest known name) or a bad value.
        KafkaException, TypeError: as from confluent_kafka.
    """

    _modeaware: Router | None = None  # None before __init__: the stock class raises its own error

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        return super().__new__(_over_patched(cls), *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        config, conf = split_client_config(with_process_settings(given_conf(args, kwargs)))
        beyond = is_beyond_librdkafka(conf.get("partitioner"))
        partitioner = partitioner_of(conf) if beyond else None
        loads = QueueLoads() if partitioner is not None and wants_load(partitioner) else None
        hints = StaleHints()
        deliveries = Deliveries(conf)
        theirs = {**IDENTITY, **hints.listening(conf), **deliveries.settings()}
        if beyond:
            del theirs["partitioner"]
        if loads is not None:
            theirs |= stats_settings(theirs, loads.add)
        super().__init__(theirs)
        if partitioner is None:  # librdkafka has accepted the setting
            partitioner = partitioner_of(conf)
        # No resize callback: the views' source outlives the producer, and must not keep the producer's objects alive.
        self._count = partition_count(self, config.view_timeout_ms / 1000)
        views = hints.views = deliveries.views = registry.acquire(conf, config)
        stock = stock_method(Producer, type(self), "produce")
        self._modeaware = router = Router(
            stock,
            stock_method(Producer, type(self), "produce_batch"),
            views,
            config,
            partitioner,
            count=self._count if beyond else None,
            load=None if loads is None else loads.of,
            deliveries=deliveries,
            renew_metadata=partial(renew_metadata, partition_count(self, 1.0)),
            notice_deletion=notice_deletion(self),
        )
        router.serve(self)
        self._following_produce = slot_of_produce(router.produce.call, stock)
        self._following_produce_batch = router.produce_batch.call

    @following
    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = UNASSIGNED,
        callback: Callback = ABSENT,
        on_delivery: Callback = None,
        timestamp: int = 0,
        headers: Headers = None,
    ) -> None:
        """Queue a record: confluent_kafka's ``produce`` with the same arguments.

        ``on_delivery`` is another name of ``callback``; if ``callback`` is given at all, it takes precedence.

        Raises:
            RetiredPartitionChosen: ``partition``, or every partition, takes no records; nothing was queued. A
                ``KafkaException``.
            modeaware.confluent.errors.FirstViewPending: no view of the modes yet (``modeaware.on.unknown=block``). A
                ``BufferError``.
            modeaware.confluent.errors.FirstViewTimeout: no view of the modes yet (``modeaware.on.unknown=error``). A
                ``KafkaException``.
            BufferError, KafkaException, TypeError, RuntimeError: as from confluent_kafka.
        """
        # The hot path without the extension (which does the same in C): at most a look-up, a hash and one call.
        try:
            send = self._following_produce.func
        except AttributeError:  # __init__ has not run
            send = librdkafka.Producer.produce
        if callback is not ABSENT:
            on_delivery = callback
        base, to, where, routed = send, topic, partition, type(send) is RoutedInPython
        if routed:
            base = send.base
            count = send.counts.get(topic, send.absent) if type(topic) is str and partition == UNASSIGNED else 0
            if type(count) is tuple:
                to, count = count
            if count > 0:
                hashed = key.encode() if type(key) is str else key
                if hashed and type(hashed) is bytes:
                    where = send.hash_function(hashed, count)
                else:
                    count = 0
            if not count or (send.reports and topic in send.reports):
                send.slow(self, topic, value, key, partition, on_delivery, None, timestamp, headers)
                return
        try:
            if headers is None and timestamp == 0:
                base(self, to, value, key, where, on_delivery)
            else:
                base(self, to, value, key, where, on_delivery, None, timestamp, headers)
        except KafkaException as error:
            if not routed:
                raise
            send.retry(self, error, where, to, value, key, on_delivery, timestamp, headers)

    @following
    def produce_batch(self, *args: Any, **kwargs: Any) -> int:
        """Queue records: confluent_kafka's ``produce_batch``, routed like :meth:`produce`.

        Raises:
            RetiredPartitionChosen: ``partition``, or that of a message, takes no records; nothing was queued.
            BufferError, KafkaException, TypeError, RuntimeError: as from :meth:`produce`.
        """
        router = self._modeaware
        if router is None:
            return super().produce_batch(*args, **kwargs)
        return router.produce_batch.call(self, *args, **kwargs)  # type: ignore[no-any-return] # as librdkafka's

    def writable_partitions(self, topic: str) -> tuple[int, ...]:
        """Return the partitions to which a record under ``topic`` may be addressed now, ascending.

        For the name of a replaced topic, these are partitions of the topic to which records under the name go. Waits
        for the first view of the modes, like ``produce``, and for the cluster's metadata if no partition is retired.
        The modes may change at any time: a ``produce`` to a partition that was retired since raises
        RetiredPartitionChosen.

        Raises:
            modeaware.confluent.errors.FirstViewPending, modeaware.confluent.errors.FirstViewTimeout: as from
                :meth:`produce`.
            KafkaException: the cluster has no such topic, or no broker answers within ``modeaware.view.timeout.ms``.
        """
        assert self._modeaware is not None, "the constructor has run"
        return self._modeaware.named.writable_partitions(topic, self._count)

    def list_topics(self, *args: Any, **kwargs: Any) -> ClusterMetadata:
        """As ``confluent_kafka.Producer.list_topics``: partitions as the brokers have them, retired ones included.

        The name of a replaced topic stands for the topic to which records under the name go.
        """
        if self._modeaware is None:
            return super().list_topics(*args, **kwargs)  # type: ignore[no-any-return] # its stub is untyped
        return named.list_topics(super().list_topics, self._modeaware.named.written, *args, **kwargs)

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, *args: Any, **kwargs: Any) -> None:
        """As ``confluent_kafka.Producer.send_offsets_to_transaction``. If an offset is the end of a partition of a
        replaced topic and has no metadata, a note is added: the group has read the partition."""
        noted = transactional_offsets(positions, group_metadata)
        super().send_offsets_to_transaction(noted, group_metadata, *args, **kwargs)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As ``confluent_kafka.Producer.set_sasl_credentials``; the views are read with the new credentials as well."""
        super().set_sasl_credentials(username, password)
        if self._modeaware is not None:
            self._modeaware.set_sasl_credentials(username, password)

    def close(self) -> bool:
        """Flush and close, like confluent_kafka's producer. The last views decide about records that delivery callbacks
        send meanwhile."""
        with _closing(self._modeaware):
            return super().close()

    def __exit__(self, *exception: Any) -> Any:
        with _closing(self._modeaware):
            return super().__exit__(*exception)

    def modeaware_stats(self) -> dict[str, Any]:
        """Return figures that cost nothing per record.

        ``state`` (``waiting`` for the first view, ``direct`` = librdkafka's own ``produce``, ``routed``),
        ``routed_topics`` (how many have retired partitions), ``view_changes`` (since the first views), ``resizes``
        (reported resizes of topics with keys), ``in_c`` (records of shrunk topics go through the extension, not through
        Python), ``replaced`` (names of replaced topics, each with the topic that its records go to), and ``views``: the
        report of the shared source (``view_age_ms``, ...).
        """
        return {**NO_STATS, "in_c": False} if self._modeaware is None else self._modeaware.stats()


@contextmanager
def _closing(router: Router | None) -> Iterator[None]:
    """Release the views before the client is closed. The routes stay, for sends from its delivery callbacks."""
    if router is None:
        yield
        return
    router.release()
    try:
        yield
    finally:
        router.close()


def _over_patched(cls: type[P]) -> type[P]:
    """Return ``cls``. If a subclass has replaced ``confluent_kafka.Producer`` (for example a tracer installed after our
    import), return ``cls`` over that subclass."""
    current: object = librdkafka.confluent_kafka.Producer
    return over(cls, current) if isinstance(current, type) and issubclass(current, librdkafka.Producer) else cls


class SerializingProducer(librdkafka.SerializingProducer[K, V], Producer, Generic[K, V]):  # type: ignore[misc] # confluent_kafka's takes objects
    """confluent_kafka's ``SerializingProducer`` with the same settings; it sends through :class:`modeaware.Producer`.

    The hash of a key is that of its serialized form.
    """
