"""aiokafka's AIOKafkaProducer, choosing among writable partitions only, and the errors it raises.

This module alone imports aiokafka. ``aiokafka.AIOKafkaProducer`` is whatever that is when this module is first
imported, so a tracer or mock that replaced it there earlier stays in effect underneath ours.

Everything runs in the producer's event loop, except where the views' thread hands views over to it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from typing import Any, Self

import aiokafka
from aiokafka.errors import KafkaError, KafkaTimeoutError

from modeaware.clients.following import ClientErrors, acquired
from modeaware.clients.routes import NO_STATS, VerifiedRoutes
from modeaware.clients.settings import OVERRIDES, Settings, split_settings
from modeaware.config import ClientConfig
from modeaware.errors import ConfigError, KeyMoved, ModeSourceError, PartitionRetired, ViewTimeout
from modeaware.topic_view import TopicView
from modeaware.views.source import VERIFY_TIMEOUT_S, Views

log = logging.getLogger(__name__)

TOKEN_TIMEOUT_S = 30.0
"""How long librdkafka's thread waits for a token that the event loop is to fetch."""
PICK = "_partition"
"""aiokafka's method that every record passes before it is queued, with an explicit partition or without one."""
WAIT = "_wait_on_metadata"
"""The method of aiokafka's client that every record awaits before that."""
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


ERRORS = ClientErrors(RetiredPartitionError, MovedKeyError, pending=FirstViewPending, timeout=FirstViewTimeout)


class AIOKafkaProducer(aiokafka.AIOKafkaProducer):  # type: ignore[misc,unused-ignore]  # untyped
    """``aiokafka.AIOKafkaProducer`` with the same arguments and methods, aware of partition modes.

    While a topic has retired partitions, its ``partitioner`` (aiokafka's, or the application's own) sees the writable
    ones only: a keyed record goes to ``writable[hash % len(writable)]``. A record for a partition that takes no writes,
    explicit or picked, is refused before it is queued; so is a batch (``send_batch``). What is queued when the
    modes change goes where it was going, and so does a ``send`` that waits for room in a full batch then. While every
    partition is writable, nothing of ours is on the way of a record.

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
    partitions. At other times there is nothing of ours on the way of a record.
    The producer, whose ``loop`` it is, is not kept alive.
    """

    def __init__(self, producer: object, views: Views, config: ClientConfig, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(VERIFY_TIMEOUT_S, views, config, ERRORS)
        self._producer = weakref.ref(producer)
        self._view_timeout_s = config.view_timeout_ms / 1000
        self._loop = loop
        self._arrived = asyncio.Event()
        setattr(producer, PICK, self.pick)
        self.serve(producer, self._hand_over)

    def _hand_over(self, changed: Mapping[str, TopicView]) -> None:
        try:
            self._loop.call_soon_threadsafe(self.follow, changed)
        except RuntimeError as error:
            log.debug("a producer has outlived its event loop: %s", error)

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
        if self.routed_topics:
            setattr(producer, PICK, self.pick)
            setattr(producer.client, WAIT, partial(self._wait, weakref.ref(producer.client)))
        else:
            vars(producer).pop(PICK, None)
            vars(producer.client).pop(WAIT, None)

    async def _wait(self, calling: weakref.ref[Any], topic: str) -> Any:
        """As ``AIOKafkaClient._wait_on_metadata``; the topic's route is verified when it returns."""
        client: Any = calling()
        partitions = await getattr(type(client), WAIT)(client, topic)
        if not self.is_verified(topic):
            # A view that changes is handed over to the event loop before this returns, so it is followed by then.
            await asyncio.to_thread(self.verify, topic)
            self.mark(topic)
        return partitions

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
        route = self.of(topic)
        if partition is not None or route is None:
            chosen: int = getattr(type(producer), PICK)(
                producer, topic, partition, key, value, serialized_key, serialized_value
            )
            self.refuse_retired(topic, chosen)
            return chosen
        if not route.writable:
            self.refuse_retired(topic, 0)
        pick = producer._partitioner
        # The view's list also where aiokafka's metadata is older: all producers must hash over the same.
        available = producer._metadata.available_partitions_for_topic(topic) or ()
        chosen = pick(serialized_key, list(route.writable), [p for p in route.writable if p in available])
        self.refuse_retired(topic, chosen)
        if serialized_key is not None:
            self.look_at_key(
                topic, serialized_key, chosen, lambda count: pick(serialized_key, [*range(count)], [*range(count)])
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
