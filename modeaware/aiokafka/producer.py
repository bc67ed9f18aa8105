"""aiokafka's AIOKafkaProducer, choosing among writable partitions only, and the errors it raises.

This module alone imports aiokafka. ``aiokafka.AIOKafkaProducer`` is whatever that is when this module is first
imported, so a tracer or mock that replaced it there earlier stays in effect underneath ours.

Everything runs in the producer's event loop, except where the views' thread hands views over to it.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from typing import Any, Self

import aiokafka
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError

from modeaware.callouts import get_logger
from modeaware.clients.following import ClientErrors, acquired
from modeaware.clients.refusals import Refusals
from modeaware.clients.routes import NO_STATS, VerifiedRoutes
from modeaware.clients.settings import OVERRIDES, Settings, split_settings
from modeaware.config import ClientConfig
from modeaware.errors import ConfigError, KeyMoved, ModeSourceError, PartitionRetired, TopicReplaced, ViewTimeout
from modeaware.topic_view import TopicView
from modeaware.views.source import VERIFY_TIMEOUT_S, Views

log = get_logger(__name__)

TOKEN_TIMEOUT_S = 30.0
"""How long librdkafka's thread waits for a token that the event loop is to fetch."""
PICK = "_partition"
"""aiokafka's method that every record passes before it is queued, with an explicit partition or without one."""
WAIT = "_wait_on_metadata"
"""The method of aiokafka's client that every record awaits before that."""
ADD_MESSAGE, ADD_BATCH = "add_message", "add_batch"
"""The methods of aiokafka's accumulator that queue a record, or a batch, for a topic and a partition."""
APPEND = "_append_batch"
"""The method of aiokafka's accumulator that begins a batch of records for a topic and a partition."""
_ARGUMENTS = ("self", "topic", "partition", "key", "value", "serialized_key", "serialized_value")

if tuple(inspect.signature(getattr(aiokafka.AIOKafkaProducer, PICK, object)).parameters) != _ARGUMENTS:
    raise ImportError("aiokafka chooses partitions in another way than aiokafka 0.14 does", name=__name__)


class RetiredPartitionError(PartitionRetired, KafkaError, ValueError):  # type: ignore[misc,unused-ignore]  # untyped
    """A record was addressed to a partition that takes no writes; it was not queued. A ValueError as well, as with
    kafka-python. ``code`` is ``POLICY_VIOLATION``."""


class FirstViewTimeout(ViewTimeout, KafkaError):  # type: ignore[misc,unused-ignore]  # untyped
    """No first view within ``modeaware_view_timeout_ms``, and ``modeaware_on_unknown`` is ``error``."""


class FirstViewPending(ModeSourceError, KafkaTimeoutError, BufferError):  # type: ignore[misc,unused-ignore]  # untyped
    """No first view within ``modeaware_view_timeout_ms``, and ``modeaware_on_unknown`` is ``block``: try again. A
    ``KafkaTimeoutError``, and a BufferError as with confluent_kafka."""


class MovedKeyError(KeyMoved, KafkaError):  # type: ignore[misc,unused-ignore]  # untyped
    """A key has moved, and ``modeaware_on_resize`` is ``error``; nothing was queued."""


class ReplacedTopicError(TopicReplaced, MessageSizeTooLargeError):  # type: ignore[misc,unused-ignore]  # untyped
    """What the future of a record raises that brokers refused because its topic was replaced.

    A ``MessageSizeTooLargeError``, as the brokers have it. ``retriable``: the application may send the record again
    under the same name, and decides whether a record that is stored twice does harm.
    """

    retriable = True


ERRORS = ClientErrors(RetiredPartitionError, MovedKeyError, pending=FirstViewPending, timeout=FirstViewTimeout)


class AIOKafkaProducer(aiokafka.AIOKafkaProducer):  # type: ignore[misc,unused-ignore]  # untyped
    """``aiokafka.AIOKafkaProducer`` with the same arguments and methods, aware of partition modes.

    While a topic has retired partitions, its ``partitioner`` (aiokafka's, or the application's own) sees the writable
    ones only: a keyed record goes to ``writable[hash % len(writable)]``. A record for a partition that takes no writes,
    explicit or picked, is refused before it is queued; so is a batch (``send_batch``). What is queued when the
    modes change goes where it was going, and so does a ``send`` that waits for room in a full batch then. While every
    partition is writable, nothing of ours is on the way of a record.

    The name of a topic that was replaced leads to its successor, with that topic's partitions. Of records that were
    queued earlier, those that brokers refuse because of it fail with :class:`ReplacedTopicError`.

    Settings that begin with ``modeaware_`` are ours (:class:`modeaware.config.ClientConfig`, with underscores), but
    ``hold`` for ``modeaware_on_resize``. ``modeaware_librdkafka`` (a dict) replaces what is translated of the
    connection for the source of the modes, as with :class:`modeaware.kafka_python.KafkaProducer`.

    To be made and used in one event loop, and stopped: ``stop()``, or dropping the producer, gives its share of the
    views back.

    Raises:
        ConfigError: an unknown or bad ``modeaware_`` setting, or one that cannot be translated for the views.
        ValueError, RuntimeError: as from aiokafka.
    """

    _modeaware: Modes | None = None  # where __init__ has failed, __del__ runs all the same
    _modeaware_connected = False

    def __init__(self, **configs: Any) -> None:
        loop = configs.get("loop") or asyncio.get_running_loop()
        settings = split(configs, loop)
        with acquired(settings.conf, settings.config) as views:
            super().__init__(**settings.theirs)
        self._modeaware = Modes(self, views, settings.config, loop)
        # Whenever aiokafka has requested its metadata again, the modes may be old as well.
        self._metadata.add_listener(lambda _: views.refresh_soon())
        self._metadata.add_listener(self._modeaware.metadata_changed)

    async def start(self) -> None:
        """As ``aiokafka.AIOKafkaProducer.start``; waits for the first view of the modes as well.

        Raises:
            FirstViewPending: no view of the modes yet (``modeaware_on_unknown="block"``): start again, or stop. Until
                there is one, ``send`` raises the same. A ``KafkaTimeoutError``.
            FirstViewTimeout: no view of the modes yet (``modeaware_on_unknown="error"``). A ``KafkaError``.
            KafkaError: as from aiokafka.
        """
        if not self._modeaware_connected:
            await super().start()
            self._modeaware_connected = True
        if self._modeaware is not None:
            await self._modeaware.await_view()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()  # it may be connected already, and the block that would stop it is not entered
            raise
        return self

    async def stop(self) -> None:
        """As ``aiokafka.AIOKafkaProducer.stop``. The share of the views is given back; the last ones stay in force."""
        try:
            await super().stop()
        finally:
            if self._modeaware is not None:
                # In a thread: where it is the last share, it waits for the views' thread.
                await asyncio.to_thread(self._modeaware.release)

    def modeaware_stats(self) -> dict[str, Any]:
        """As :meth:`modeaware.Producer.modeaware_stats`; ``direct`` = all partitions are chosen from. Without
        ``in_c``."""
        return {**NO_STATS} if self._modeaware is None else self._modeaware.stats()


update_wrapper(AIOKafkaProducer.__init__, aiokafka.AIOKafkaProducer.__init__, assigned=(), updated=())  # its signature


class Modes(VerifiedRoutes):
    """The routes of one producer, which stand before its ``_partition`` while that has to be.

    aiokafka's ``partitioner`` is called without the topic, and not at all where the application names the partition. So
    ours is an attribute of the producer that hides the method: before the first view, and while a topic has retired
    partitions or a successor. Where a name leads to a successor, aiokafka's ``send`` looks up and queues by the name;
    attributes of its client and of its accumulator put the successor in its place. At other times there is nothing of
    ours on the way of a record.
    The producer, whose ``loop`` it is, is not kept alive.
    """

    def __init__(self, producer: object, views: Views, config: ClientConfig, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(VERIFY_TIMEOUT_S, views, config, ERRORS, look_anew=self._request_metadata)
        self._producer = weakref.ref(producer)
        self._view_timeout_s = config.view_timeout_ms / 1000
        self._loop = loop
        self._refusals = Refusals(views)
        self._explaining: set[asyncio.Task[None]] = set()
        self._turns: dict[str, asyncio.Future[None]] = {}  # of the last send under each name: done when it was placed
        self._arrived = asyncio.Event()
        setattr(producer, PICK, self.pick)
        self.serve(producer, self._hand_over)

    def _hand_over(self, changed: Mapping[str, TopicView]) -> None:
        try:
            self._loop.call_soon_threadsafe(self.follow, changed)
        except RuntimeError as error:
            log.debug("a producer has outlived its event loop: %s", error)

    def _request_metadata(self, topic: str) -> None:
        producer: Any = self._producer()
        if producer is not None and producer._modeaware_connected:
            producer.client.add_topic(topic)
            producer.client.force_metadata_update()

    def _point(self) -> None:
        self._arrived.set()
        self._settle()

    async def await_view(self) -> None:
        """Return when records may be placed.

        Raises:
            FirstViewPending, FirstViewTimeout: not in time; by ``on_unknown``.
        """
        self.first_view.begin()
        try:
            async with asyncio.timeout(self._view_timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            self.first_view.wait()
            self._settle()

    def _settle(self) -> None:
        producer: Any = self._producer()
        if producer is None:
            return
        client, accumulator = producer.client, producer._message_accumulator
        if self.routed_topics or self._names:
            setattr(producer, PICK, self.pick)
            setattr(client, WAIT, partial(self._wait, weakref.ref(client)))
        else:
            vars(producer).pop(PICK, None)
            vars(client).pop(WAIT, None)
        if self._names:
            setattr(accumulator, ADD_MESSAGE, partial(self._add_message, weakref.ref(accumulator)))
            setattr(accumulator, ADD_BATCH, partial(self._add_batch, weakref.ref(accumulator)))
            setattr(accumulator, APPEND, partial(self._append, weakref.ref(accumulator)))
            queued = (batch for batches in accumulator._batches.values() for batch in batches)
            for batch in (*queued, *accumulator._pending_batches):
                self._explain(batch)
        else:
            for name in (ADD_MESSAGE, ADD_BATCH, APPEND):
                vars(accumulator).pop(name, None)

    async def _wait(self, calling: weakref.ref[Any], name: str) -> Any:
        """As ``AIOKafkaClient._wait_on_metadata``, of the topic that records under ``name`` go to; its route is
        verified when it returns."""
        client: Any = calling()
        wait = partial(getattr(type(client), WAIT), client)
        before, turn = self._turns.get(name), self._loop.create_future()
        self._turns[name] = turn
        try:
            # Side by side, for it may fail only after a long time; below, where the name leads elsewhere, it is not.
            await wait(self.leads_to(name))
            # Then one after the other, in the order of the calls, as aiokafka queues records whose metadata are known.
            if before is not None and not before.done():
                await asyncio.shield(before)
            while True:
                topic = self.leads_to(name)
                partitions = await wait(topic)
                if self.unverified(name):
                    # A view that changes is handed over to the event loop before this returns: it is followed by then.
                    await asyncio.to_thread(self.verify, name)
                    self.mark(name)
                if topic == self.leads_to(name):
                    return partitions
        finally:
            if before is None or before.done():
                turn.set_result(None)
            else:  # it failed, or was cancelled, while others had their turns
                before.add_done_callback(lambda _: turn.set_result(None))

    def _add_message(self, adding: weakref.ref[Any], tp: Any, *args: Any, **kwargs: Any) -> Any:
        accumulator: Any = adding()
        return getattr(type(accumulator), ADD_MESSAGE)(accumulator, self._led(tp), *args, **kwargs)

    def _add_batch(self, adding: weakref.ref[Any], builder: Any, tp: Any, *args: Any, **kwargs: Any) -> Any:
        accumulator: Any = adding()
        return getattr(type(accumulator), ADD_BATCH)(accumulator, builder, self._led(tp), *args, **kwargs)

    def _led(self, tp: Any) -> Any:
        # Between the pick and this the event loop has run nothing else: the name leads where it did.
        topic = self.leads_to(tp.topic)
        return tp if topic == tp.topic else TopicPartition(topic, tp.partition)

    def _append(self, appending: weakref.ref[Any], *args: Any, **kwargs: Any) -> Any:
        accumulator: Any = appending()
        batch = getattr(type(accumulator), APPEND)(accumulator, *args, **kwargs)
        self._explain(batch)
        return batch

    def _explain(self, batch: Any) -> None:
        """Have the records of ``batch`` fail with our error where they are refused because their topic was replaced."""
        if self._names.segments(batch.tp.topic):
            batch.failure = partial(self._fail, batch)

    def _fail(self, batch: Any, exception: Any) -> None:
        if type(exception) is not MessageSizeTooLargeError:
            type(batch).failure(batch, exception)
        elif self._refusals.may_wait(batch.tp.topic):
            task = self._loop.create_task(self._explained(batch, exception))
            self._explaining.add(task)
            task.add_done_callback(self._explaining.discard)
        else:
            error = self._refusals.explain(batch.tp.topic, batch.tp.partition, ReplacedTopicError)
            type(batch).failure(batch, error or exception)

    async def _explained(self, batch: Any, exception: Any) -> None:
        # The views have to be waited for: those of a process that was suspended, say.
        error = None
        try:
            tp = batch.tp
            error = await asyncio.to_thread(self._refusals.explain, tp.topic, tp.partition, ReplacedTopicError)
        finally:  # also when the task is cancelled
            type(batch).failure(batch, error or exception)

    def pick(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> int:
        """As ``AIOKafkaProducer._partition``.

        Raises:
            RetiredPartitionError: the explicit partition, or every one of the topic, takes no records.
            MovedKeyError: the key has moved, and is to be refused.
            FirstViewPending, FirstViewTimeout: there is no view yet.
        """
        if not self._is_known():
            self.first_view.refuse()
        producer: Any = self._producer()  # which calls this
        name, topic = topic, self.leads_to(topic)
        route = self.of(topic)
        pick = producer._partitioner
        if partition is not None or route is None:
            if partition is not None:
                self.refuse_absent(name, partition)
            chosen: int = getattr(type(producer), PICK)(
                producer, topic, partition, key, value, serialized_key, serialized_value
            )
        else:
            if not route.writable:
                self.refuse_retired(topic, 0)
            # The view's list also where aiokafka's metadata is older: all producers must hash over the same.
            available = producer._metadata.available_partitions_for_topic(topic) or ()
            chosen = pick(serialized_key, list(route.writable), [p for p in route.writable if p in available])
        self.refuse_retired(topic, chosen)
        if partition is None and serialized_key is not None:
            self.look_at_key(
                name, serialized_key, chosen, lambda count: pick(serialized_key, [*range(count)], [*range(count)])
            )
        return chosen


def split(configs: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> Settings:
    """Part the keyword arguments of an ``AIOKafkaProducer``; see :func:`~modeaware.clients.settings.split_settings`.

    An ``ssl_context`` is translated as far as it can be read: its CA certificates and what it checks. Whether it has a
    client certificate is hidden: where brokers require one, ``modeaware_librdkafka`` has to name it.

    Args:
        loop: runs a token provider's coroutines.

    Raises:
        ConfigError: as from ``split_settings``; ``modeaware_on_resize`` is ``hold``.
    """
    words = dict(configs)
    protocol = str(words.get("security_protocol", "PLAINTEXT"))
    context = words.pop("ssl_context", None)
    if protocol.startswith("SASL"):
        words["sasl_mechanism"] = words.get("sasl_mechanism") or "PLAIN"
        if words.get("sasl_oauth_token_provider") is not None:
            words["sasl_oauth_token_provider"] = _TokenProvider(words["sasl_oauth_token_provider"], loop)
    settings = split_settings(words)
    if settings.config.on_resize == "hold":
        raise ConfigError(
            "modeaware_on_resize: 'hold' is not supported with aiokafka's producer, which does not report what it has "
            "queued; give 'warn' or 'error', or use confluent_kafka's or kafka-python's producer"
        )
    named = any(name.startswith("ssl.") for name in configs.get(OVERRIDES) or {})
    tls = {} if context is None or "SSL" not in protocol.split("_") or named else _of_context(context)
    theirs = {name: configs[name] for name in configs if name in settings.theirs or name == "ssl_context"}
    return replace(settings, conf={**settings.conf, **tls}, theirs=theirs)


def _of_context(context: ssl.SSLContext) -> dict[str, Any]:
    conf: dict[str, Any] = {}
    # None where they lie in OpenSSL's own directory, which it reads as it needs them: librdkafka looks there as well.
    authorities = context.get_ca_certs(binary_form=True)
    if authorities:
        conf["ssl.ca.pem"] = "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in authorities)
    if not context.check_hostname:
        conf["ssl.endpoint.identification.algorithm"] = "none"
    if context.verify_mode == ssl.CERT_NONE:
        conf["enable.ssl.certificate.verification"] = False
    return conf


@dataclass(frozen=True)
class _TokenProvider:
    """kafka-python's form of a token provider of aiokafka's, whose ``token`` is a coroutine. To be called in another
    thread than the event loop's."""

    provider: Any
    loop: asyncio.AbstractEventLoop

    def token(self) -> str:
        token = self.provider.token()
        try:
            future = asyncio.run_coroutine_threadsafe(token, self.loop)
        except RuntimeError:  # the loop is closed
            token.close()
            raise
        return str(future.result(TOKEN_TIMEOUT_S))

    def extensions(self) -> Mapping[str, str]:
        found: Mapping[str, str] = getattr(self.provider, "extensions", dict)() or {}
        return found
