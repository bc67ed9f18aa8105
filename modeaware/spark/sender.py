"""Sending the records of one task on an executor, through a producer that the process keeps for the next task.

Spark runs many short tasks in one Python worker, so producers are kept by configuration. Delivery is at least once:
where anything fails, the whole task fails and is run again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from modeaware.config import split_client_config
from modeaware.confluent.errors import FirstViewPending
from modeaware.confluent.producer import Producer
from modeaware.errors import ConfigError, KeyHeld, ModeAwareError, ModeSourceError, ViewTimeout
from modeaware.librdkafka import KafkaError, KafkaException, Message
from modeaware.spark.errors import WriteFailed, error_code
from modeaware.spark.worker import forget_archive_finders
from modeaware.topic_view import NO_EPOCH, TopicView
from modeaware.views.registry import acquire

logger = logging.getLogger(__name__)

MOST = 8
"""How many unused producers a process keeps."""
LINGER_MS = 50
POLL_EVERY = 2_000
"""After how many records delivery reports are served: they free places in the queue."""
FULL_POLL_S = 0.05
HELD_WARNING_S = 30.0
_REFUSED = {
    "on_delivery": "the writer serves delivery reports itself, and raises what fails",
    "delivery.report.only.error": "the writer serves delivery reports itself",
    "transactional.id": "Spark runs tasks again and in parallel, which one transactional id does not allow",
}
# Settings that librdkafka may refuse together with idempotence: where one is set, the default stays.
_ABOUT_IDEMPOTENCE = frozenset(
    {
        *("enable.idempotence", "acks", "request.required.acks", "retries", "message.send.max.retries"),
        *("max.in.flight", "max.in.flight.requests.per.connection", "queuing.strategy", "default.topic.config"),
    }
)
_ABOUT_LINGER = frozenset({"linger.ms", "queue.buffering.max.ms", "default.topic.config"})

Version = tuple[int, int]
Headers = Iterable[tuple[str, bytes | None]]


def producer_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``conf`` as the writers use it: only failures are reported, and unless it says otherwise the producer is
    idempotent (retries keep the order of a task's records) and ``linger.ms`` is 50 (a task sends whole batches).

    Raises:
        ConfigError: it sets ``on_delivery`` or another setting that the writers decide, or a bad ``modeaware.`` one.
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
    """Return a digest of a configuration. With functions in it, compute it once and pass it on."""
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(sorted(conf.items(), key=lambda item: item[0]))  # type: ignore[no-untyped-call] # pyspark's
    return hashlib.sha256(pickled).hexdigest()


class SharedProducer:
    """A producer for the tasks of one process, in sequence or in parallel.

    Attributes:
        users: how many senders use it now.
        broken: it had a fatal error: the next task makes another one.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._config, rest = split_client_config(conf)
        self.producer = Producer(producer_conf(conf))
        self.views = acquire(rest, self._config)
        self._turn = threading.Condition()
        self._versions: dict[str, Version] = {}
        self.views.subscribe(self._on_views)  # after the producer, which therefore has the views before this does
        self.users = 0
        self.broken = False

    def await_version(self, topic: str, version: Version) -> None:
        """Wait until the producer routes by modes of ``topic`` that are at least of ``version``.

        Raises:
            ViewTimeout: not within ``modeaware.view.timeout.ms``.
        """
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
                f"{topic}: the job was planned by epoch {version[1]} of its modes, and this executor has only "
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


_lock = threading.Lock()
_producers: OrderedDict[str, SharedProducer] = OrderedDict()  # the least recently used first
_of_parents: list[OrderedDict[str, SharedProducer]] = []


def borrow(key: str, conf: Mapping[str, Any]) -> SharedProducer:
    """Return this process's producer for ``conf``, to be given back. Thread-safe."""
    with _lock:
        shared = _producers.get(key)
        if shared is None or shared.broken:
            shared = _producers[key] = SharedProducer(conf)
        _producers.move_to_end(key)
        shared.users += 1
        return shared


def give_back(key: str, shared: SharedProducer) -> None:
    """Keep the producer for the next task, unless it is broken or too many are unused."""
    with _lock:
        shared.users -= 1
        closing = []
        if shared.broken and not shared.users:
            closing.append(shared)
            if _producers.get(key) is shared:
                del _producers[key]
        unused = [name for name, each in _producers.items() if not each.users]
        closing += [_producers.pop(name) for name in unused[: max(len(unused) - MOST, 0)]]
    for each in closing:
        each.close()


def forget_parent() -> None:
    """In a forked child, where librdkafka's handles must not be destroyed: leave the parent's alone."""
    global _lock, _producers
    _of_parents.append(_producers)
    _lock, _producers = threading.Lock(), OrderedDict()


os.register_at_fork(after_in_child=forget_parent)


class Sender:
    """Sends the records of one task: ``with Sender(topic, conf) as sender``. For one thread.

    The block's end waits until every record is delivered, at most ``message.timeout.ms``, and raises the first failure.
    A block that raises does not wait: queued records may still be delivered.

    Args:
        topic: where records go that name no topic.
        conf: see :func:`producer_conf`.
        at_least: the ``TopicView.version`` by which the driver planned the job.
        key: :func:`key_of` ``conf``, where the caller has it.

    Attributes:
        sent: how many records were queued.

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
        # Bound once: the attribute follows the modes (see modeaware.Producer).
        self._produce = self._shared.producer.produce
        self._poll = self._shared.producer.poll
        self._failed = self._on_delivery
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
        """Queue a record; waits while the queue is full.

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
            arguments["headers"] = headers if type(headers) is list else list(headers)
        try:
            self._produce(topic or self.topic, value, key, **arguments)
        except (BufferError, KafkaException) as error:
            self._retry(error, topic or self.topic, value, key, arguments)
        self.sent += 1
        if self.sent >= self._next_poll:
            self._serve()

    def send_pairs(self, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """:meth:`send` many keys and values and nothing else, faster."""
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
        """The record was not queued because of ``error``: retry until it is, or raise what waiting cannot change."""
        warn_at_s = time.monotonic() + HELD_WARNING_S
        # Without a first view, produce has waited for it already. With one, it bounds the wait for the topic id itself.
        while isinstance(error, BufferError) and (self._shared.views.ready or not isinstance(error, FirstViewPending)):
            self._poll(FULL_POLL_S)
            if self._failure is not None:
                raise self._failure
            if isinstance(error, KeyHeld) and time.monotonic() > warn_at_s:
                logger.warning("%s: still waiting: %s", topic, error)
                warn_at_s = time.monotonic() + HELD_WARNING_S
            try:
                self._produce(topic, value, key, **arguments)
                return
            except (BufferError, KafkaException) as further:
                error = further
        if isinstance(error, FirstViewPending):
            raise ViewTimeout(f"{topic}: {error.message}", topic=topic) from error
        if isinstance(error, ModeAwareError):
            raise error  # a retired partition, or a moved key
        raise self._write_failed(error.args[0], topic, None) from error

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = self._write_failed(error, message.topic() or self.topic, message.partition())

    def _write_failed(self, error: KafkaError, topic: str, partition: int | None) -> WriteFailed:
        if error.fatal() or error.code() == KafkaError._FATAL:  # delivery reports have only the code
            self._shared.broken = True
        known = partition if partition is not None and partition >= 0 else None
        where = topic if known is None else f"partition {known} of {topic}"
        return WriteFailed(
            f"{where}: a record was not delivered: {error.str()} ({error.name()}). Delivered records of this task are "
            "written again when it is run again",
            code=error_code(error),
            topic=topic,
            partition=known,
        )
