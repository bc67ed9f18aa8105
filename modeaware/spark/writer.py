"""Writers that use our Producer on the executors, by rows or by Arrow batches (less costly: no row is pickled).

The column ``value`` is required; ``key``, ``partition``, ``timestamp``, ``headers`` and ``topic`` are optional. All
further columns are ignored. Delivery is at least once: any failure fails the whole task, which Spark runs again. Spark
runs many short tasks in one Python worker, so the worker keeps one producer for each configuration.
"""

from __future__ import annotations

import hashlib
import operator
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby, repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from modeaware.callouts import InnerLock
from modeaware.config import split_client_config
from modeaware.confluent.delivery import Deliveries, Reported
from modeaware.confluent.errors import FirstViewPending
from modeaware.confluent.producer import Producer
from modeaware.errors import ConfigError, ModeAwareError, ModeSourceError, ViewTimeout
from modeaware.librdkafka import KafkaError, KafkaException, Message
from modeaware.spark.errors import WriteFailed, error_code
from modeaware.spark.worker import ProcessCache, forget_archive_finders
from modeaware.topic_view import NO_EPOCH, TopicView
from modeaware.views.registry import acquire

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COLUMNS = ("key", "value", "partition", "timestamp", "headers", "topic")
SCHEMA = "records long"
"""The rows that the function of :func:`arrow_writer` yields: one row with the number of a task's records."""
MOST = 8
"""How many unused producers a process keeps."""
LINGER_MS = 50
POLL_EVERY = 2_000
"""The number of records after which delivery reports are served: serving them frees places in librdkafka's queue."""
FULL_POLL_S = 0.05
_REFUSED = {
    "on_delivery": "the writer serves delivery reports itself, and raises failures",
    "delivery.report.only.error": "the writer serves delivery reports itself",
    "transactional.id": "Spark runs tasks again and in parallel, which one transactional id does not allow",
}
# Settings that librdkafka may refuse together with idempotence: if one is set, the writers do not set idempotence.
_ABOUT_IDEMPOTENCE = frozenset(
    {
        *("enable.idempotence", "acks", "request.required.acks", "retries", "message.send.max.retries"),
        *("max.in.flight", "max.in.flight.requests.per.connection", "queuing.strategy", "default.topic.config"),
    }
)
_ABOUT_LINGER = frozenset({"linger.ms", "queue.buffering.max.ms", "default.topic.config"})

Version = tuple[int, int]
Headers = list[tuple[str, bytes | None]]


# The writers


class PartitionWriter:
    """The function that :func:`foreach_partition_writer` returns. Picklable."""

    def __init__(self, topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None) -> None:
        producer_conf(conf)  # raises on the driver, before every executor would raise
        self.topic = topic
        self.conf = dict(conf)
        self.at_least = at_least
        self._key = key_of(conf)

    def __call__(self, rows: Iterable[Any]) -> None:
        with self._sender() as sender:
            for fields, alike in groupby(rows, _fields):  # nearly always one group
                _send_rows(sender, fields, alike)

    def _sender(self) -> Sender:
        return Sender(self.topic, self.conf, at_least=self.at_least, key=self._key)


class ArrowWriter(PartitionWriter):
    """The function that :func:`arrow_writer` returns. Picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # batches, not rows
        import pyarrow as pa

        with self._sender() as sender:
            for batch in batches:
                send_batch(sender, batch)
        yield pa.RecordBatch.from_arrays([pa.array([sender.sent], pa.int64())], ["records"])


def foreach_partition_writer(
    topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None
) -> PartitionWriter:
    """Return a function that writes the rows of one partition of a frame or an RDD: ``df.foreachPartition(writer)``.

    When a row is sent, our Producer on the executor chooses among the partitions that are writable by its view.
    A full queue makes the task wait; an undelivered record fails the task, at its end or earlier. Unless ``conf`` says
    otherwise, producers are idempotent (retries keep the order), and their ``linger.ms`` is 50.

    Rows are ``Row``, named tuples or dicts with ``value`` and optionally ``key`` (bytes or str), ``partition`` (int;
    null: the partitioner chooses), ``timestamp`` (a Spark timestamp, or Unix time in ms; null: now), ``headers`` (array
    of struct of ``key`` and ``value``) and ``topic`` (null: ``topic``).

    Args:
        topic: the topic of rows that name none.
        conf: as for :class:`modeaware.Producer`, without ``on_delivery`` and ``transactional.id``. ``conf`` is pickled
            for the executors. ``partitioner`` defaults to librdkafka's consistent_random, as in the Producer; the
            default of ``write_to_kafka`` is Java's.
        at_least: the lowest ``TopicView.version`` by which an executor may write.

    Raises:
        ConfigError: ``conf`` has a setting that cannot be respected. (Executors raise the errors of
            ``modeaware.spark.writer.Sender``.)
    """
    return PartitionWriter(topic, conf, at_least=at_least)


def arrow_writer(topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None) -> ArrowWriter:
    """Return a function for ``df.mapInArrow(writer, modeaware.spark.writer.SCHEMA)``: it does the same as the function
    of :func:`foreach_partition_writer`, but much faster. Compute the frame that ``mapInArrow`` returns only once: each
    computation writes the records again."""
    return ArrowWriter(topic, conf, at_least=at_least)


def write_arrow(df: DataFrame, topic: str, conf: Mapping[str, Any]) -> int:
    """Write a frame through :func:`arrow_writer` and return how many records were written.

    Unlike Spark's Kafka sink, this function keeps the column ``timestamp``.

    Raises:
        ViewTimeout: the modes are unknown; nothing was written.
        ConfigError: ``conf`` has a setting that cannot be respected, or the frame has no ``value``.
        TopicReplaced: the job failed, and another topic has replaced this one meanwhile: run the job again.
        PythonException, Py4JJavaError: the job failed; the text includes the executor's error.
    """
    from modeaware.spark.snapshot import written

    with written(conf, topic) as view:
        return write_arrow_by(view, df, conf)


def write_arrow_by(view: TopicView, df: DataFrame, conf: Mapping[str, Any]) -> int:
    """Write a frame as :func:`write_arrow` does, by the modes of ``view`` or newer ones."""
    known = [name for name in COLUMNS if name in df.columns]
    if "value" not in known:
        raise ConfigError(f"{view.topic}: the frame needs a column 'value'; it has {', '.join(df.columns)}")
    written = df.select(*known).mapInArrow(arrow_writer(view.topic, conf, at_least=view.version), SCHEMA)
    return sum(row.records for row in written.collect())


# Rows and batches as records


def _send_rows(sender: Sender, fields: Sequence[str], rows: Iterator[Any]) -> None:
    """Send rows that have the same columns."""
    if "value" not in fields:
        raise ConfigError(f"a row needs a column 'value'; it has {', '.join(map(str, fields)) or 'none'}")
    first = next(rows)
    rows, by_name = chain((first,), rows), isinstance(first, Mapping)
    key, value, partition, timestamp, headers, topic = (
        operator.itemgetter(name if by_name else fields.index(name)) if name in fields else lambda row: None
        for name in COLUMNS
    )
    if not {"partition", "timestamp", "headers", "topic"}.intersection(fields):
        sender.send_pairs((as_bytes(key(row)), as_bytes(value(row))) for row in rows)
        return
    for row in rows:
        sender.send(
            as_bytes(key(row)),
            as_bytes(value(row)),
            partition(row),
            as_ms(timestamp(row)),
            as_headers(headers(row)),
            topic(row),
        )


def _fields(row: Any) -> Sequence[str]:
    """Return the names of a row's columns."""
    names: Sequence[str] | None = getattr(row, "__fields__", None)  # of a Row
    if names is None:
        names = list(row) if isinstance(row, Mapping) else getattr(row, "_fields", None)
    if names is None:
        raise ConfigError(f"a row must be a Row with names, a named tuple or a dict, not {type(row).__name__}")
    return names


def as_bytes(value: Any) -> bytes | None:
    """Return a key or a value as bytes: Spark's binary is a bytearray, which confluent_kafka refuses for keys."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _no_bytes(type(value).__name__)


def as_ms(timestamp: Any) -> int | None:
    """Return a timestamp as Unix time in ms. An int is already in ms. A datetime without a zone is local time."""
    if timestamp is None or isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, datetime):
        return round(timestamp.timestamp() * 1_000_000) // 1000
    raise _no_timestamp(type(timestamp).__name__)


def _no_bytes(kind: object) -> ConfigError:
    return ConfigError(f"keys and values are binary or string, not {kind}: cast the column")


def _no_timestamp(kind: object) -> ConfigError:
    return ConfigError(f"the column timestamp is {kind}: cast it to timestamp, or to whole ms (bigint)")


def as_headers(headers: Any) -> Headers | None:
    """Return headers given as structs, tuples or dicts of ``key`` and ``value``."""
    if not headers:
        return None
    return [
        (header["key"], as_bytes(header["value"])) if isinstance(header, Mapping) else (header[0], as_bytes(header[1]))
        for header in headers
    ]


def send_batch(sender: Sender, batch: pa.RecordBatch) -> None:
    """Queue the rows of an Arrow batch; ConfigError if a column is missing or has an unsupported type."""
    columns = {name: batch.column(name) for name in batch.schema.names if name in COLUMNS}
    if "value" not in columns:
        raise ConfigError(f"a batch needs a column 'value'; it has {', '.join(batch.schema.names)}")
    values = _bytes_column(columns["value"])
    keys = _bytes_column(columns["key"]) if "key" in columns else repeat(None, len(values))
    if columns.keys() <= {"key", "value"}:
        sender.send_pairs(zip(keys, values, strict=True))
        return
    nothing = [None] * len(values)  # a list, not an iterator: several columns may share it
    rest = [
        columns["partition"].to_pylist() if "partition" in columns else nothing,
        _ms_column(columns["timestamp"]) if "timestamp" in columns else nothing,
        map(as_headers, columns["headers"].to_pylist()) if "headers" in columns else nothing,
        columns["topic"].to_pylist() if "topic" in columns else nothing,
    ]
    for row in zip(keys, values, *rest, strict=True):
        sender.send(*row)


def _bytes_column(column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise _no_bytes(kind)
    return column.to_pylist()  # type: ignore[no-any-return] # pyarrow's


def _ms_column(column: pa.Array) -> list[int | None]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise _no_timestamp(column.type)
    return column.to_pylist()  # type: ignore[no-any-return] # pyarrow's


# Producers, shared by the tasks of a process


def producer_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``conf`` with the writers' settings. Only failures get delivery reports. Unless ``conf`` says otherwise,
    the producer is idempotent (retries keep the order of a task's records), and ``linger.ms`` is 50 (a task sends whole
    batches). ConfigError if ``conf`` has a setting that the writers decide, or a bad ``modeaware.`` setting.
    """
    for name, why in _REFUSED.items():
        if conf.get(name) is not None:
            raise ConfigError(f"{name}: {why}; remove the setting")
    split_client_config(conf)
    ours: dict[str, Any] = {"delivery.report.only.error": True}
    if not _ABOUT_IDEMPOTENCE.intersection(conf):
        ours["enable.idempotence"] = True
    if not _ABOUT_LINGER.intersection(conf):
        ours["linger.ms"] = LINGER_MS
    return {**conf, **ours}


def key_of(conf: Mapping[str, Any]) -> str:
    """Return a digest of a configuration. Compute it once and pass it on: the pickled form of functions may vary."""
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(sorted(conf.items(), key=lambda item: item[0]))  # type: ignore[no-untyped-call] # pyspark's
    return hashlib.sha256(pickled).hexdigest()


class SharedProducer:
    """A producer for the tasks of one process, in sequence or in parallel."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._config, rest = split_client_config(conf)
        self.producer = Producer(producer_conf(conf))
        self.views = acquire(rest, self._config)
        # The producer cannot explain the rejection of records that were queued before a new topic was announced.
        self.deliveries = Deliveries(rest)
        self.deliveries.views = self.views
        self._turn = threading.Condition(InnerLock())
        self._versions: dict[str, Version] = {}
        self.views.subscribe(self._on_views)  # after the producer's own listener, which therefore runs first
        self.users = 0  # the senders that use this producer now
        self.broken = False  # after a fatal error: the next task makes another producer

    def await_version(self, topic: str, version: Version) -> None:
        """Wait until the producer routes by ``version`` of the modes of ``topic``, or by a later version; ViewTimeout
        after ``modeaware.view.timeout.ms``."""
        if self._follows(topic, version):
            return
        timeout_s = self._config.view_timeout_ms / 1000
        failure: Exception | None = None
        if self.views.wait_ready(timeout_s):
            try:
                self.views.refresh(timeout_s)
            except ModeSourceError as error:
                failure = error
        with self._turn:  # the view may be in force a moment before the producer's listener has run
            followed = self._turn.wait_for(lambda: self._follows(topic, version), 0 if failure else timeout_s)
        if not followed:
            view = self.views.view(topic) if self.views.ready else TopicView.unlisted(topic)
            raise ViewTimeout(
                f"{topic}: the job was planned with epoch {version[1]} of its modes, but this executor has only "
                f"{view.describe()}: {failure or self.views.error() or 'its mode source lags'}; nothing was written",
                topic=topic,
            )

    def _follows(self, topic: str, version: Version) -> bool:
        return version <= NO_EPOCH or self._versions.get(topic, NO_EPOCH) >= version

    def _on_views(self, changed: Mapping[str, TopicView]) -> None:
        with self._turn:
            self._versions.update({topic: view.version for topic, view in changed.items()})
            self._turn.notify_all()

    def close(self) -> None:
        self.views.close()
        self.producer.flush(1.0)
        self.producer.close()


producers: ProcessCache[SharedProducer] = ProcessCache()  # the least recently used first


def borrow(key: str, conf: Mapping[str, Any]) -> SharedProducer:
    """Return this process's producer for ``conf``. The caller ends with :func:`give_back`. Thread-safe."""
    with producers.lock:
        shared = producers.held.pop(key, None)
        if shared is None or shared.broken:
            shared = SharedProducer(conf)
        producers.held[key] = shared
        shared.users += 1
        return shared


def give_back(key: str, shared: SharedProducer) -> None:
    """Keep the producer for the next task, unless it is broken or too many are unused."""
    with producers.lock:
        shared.users -= 1
        closing = []
        if shared.broken and not shared.users:
            closing.append(shared)
            if producers.held.get(key) is shared:
                del producers.held[key]
        unused = [name for name, producer in producers.held.items() if not producer.users]
        closing += [producers.held.pop(name) for name in unused[: max(len(unused) - MOST, 0)]]
    for producer in closing:
        producer.close()


class Sender:
    """Sends the records of one task: ``with Sender(topic, conf) as sender``. For one thread.

    The block's end waits until every record is delivered, at most ``message.timeout.ms``, and raises the first failure.
    A block that raises does not wait: queued records may still be delivered. ``sent`` is the number of queued records.

    Args:
        topic, conf, at_least: as for :func:`foreach_partition_writer`.
        key: the digest of ``conf`` (:func:`key_of`), if the caller has it.

    Raises:
        ViewTimeout: the modes of ``at_least`` did not arrive.
        ConfigError, KafkaException: as from :class:`modeaware.Producer`.
    """

    def __init__(
        self, topic: str, conf: Mapping[str, Any], *, at_least: Version | None = None, key: str | None = None
    ) -> None:
        self.topic = topic
        self.sent = 0
        self._failure: WriteFailed | None = None
        self._key = key or key_of(conf)
        forget_archive_finders()
        self._shared = borrow(self._key, conf)
        # Bound once: a reference to ``produce`` follows the modes (see modeaware.Producer).
        self._produce = self._shared.producer.produce
        self._poll = self._shared.producer.poll
        self._failed = Reported(self._shared.deliveries.report, self._on_delivery)
        self._next_poll = POLL_EVERY
        if at_least is not None:
            try:
                self._shared.await_version(topic, at_least)
            except ModeAwareError:
                give_back(self._key, self._shared)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while kind is None and self._failure is None and self._shared.producer.flush(1.0):
                pass
        finally:
            give_back(self._key, self._shared)
        if kind is None and self._failure is not None:
            raise self._failure

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        topic: str | None = None,
    ) -> None:
        """Queue a record; wait while the queue is full.

        Raises:
            PartitionRetired: ``partition`` takes no records.
            ViewTimeout: the modes are unknown within ``modeaware.view.timeout.ms``.
            WriteFailed: this record was refused, or an earlier one has failed.
        """
        arguments: dict[str, Any] = {"on_delivery": self._failed}
        if partition is not None:
            arguments["partition"] = partition
        if timestamp_ms is not None:
            arguments["timestamp"] = timestamp_ms or 1  # 0 means "now" to confluent_kafka
        if headers:
            arguments["headers"] = headers
        try:
            self._produce(topic or self.topic, value, key, **arguments)
        except (BufferError, KafkaException) as error:
            self._retry(error, topic or self.topic, value, key, arguments)
        self.sent += 1
        if self.sent >= self._next_poll:
            self._serve()

    def send_pairs(self, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Queue many records that have only a key and a value: faster than :meth:`send`."""
        produce, topic, failed = self._produce, self.topic, self._failed
        left = POLL_EVERY
        for key, value in pairs:
            try:
                produce(topic, value, key, on_delivery=failed)
            except (BufferError, KafkaException) as error:
                self._retry(error, topic, value, key, {"on_delivery": failed})
            left -= 1
            if not left:
                left = POLL_EVERY
                self.sent += POLL_EVERY
                self._serve()
        self.sent += POLL_EVERY - left

    def _serve(self) -> None:
        """Serve delivery reports; raise the first failure."""
        self._next_poll = self.sent + POLL_EVERY
        self._poll(0)
        if self._failure is not None:
            raise self._failure

    def _retry(
        self, error: Exception, topic: str, value: bytes | None, key: bytes | None, arguments: Mapping[str, Any]
    ) -> None:
        """Retry a record that was not queued because of ``error``; raise an error that waiting cannot change."""
        # If there is no view yet, ``produce`` has already waited for one, so a retry is useless. If there is a view,
        # ``produce`` itself limits its wait for the topic's id.
        while isinstance(error, BufferError) and (self._shared.views.ready or not isinstance(error, FirstViewPending)):
            self._poll(FULL_POLL_S)
            if self._failure is not None:
                raise self._failure
            try:
                self._produce(topic, value, key, **arguments)
                return
            except (BufferError, KafkaException) as further:
                error = further
        if isinstance(error, FirstViewPending):
            raise ViewTimeout(f"{topic}: {error.message}", topic=topic) from error
        if isinstance(error, ModeAwareError):
            raise error  # a retired partition
        raise self._write_failed(error.args[0], topic, None) from error

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = self._write_failed(error, message.topic() or self.topic, message.partition())

    def _write_failed(self, error: KafkaError, topic: str, partition: int | None) -> WriteFailed:
        if error.fatal() or error.code() == KafkaError._FATAL:  # a delivery report's error has only the code
            self._shared.broken = True
        known = partition if partition is not None and partition >= 0 else None
        where = topic if known is None else f"partition {known} of {topic}"
        return WriteFailed(
            f"{where}: a record was not delivered: {error.str()} ({error.name()}). Delivered records of this task are "
            "written again when Spark runs the task again",
            code=error_code(error),
            topic=topic,
            partition=known,
        )
