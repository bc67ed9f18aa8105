"""aiokafka's AIOKafkaProducer, choosing among writable partitions only."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import ExitStack
from dataclasses import replace
from functools import update_wrapper
from typing import Any, Self

from modeaware.aiokafka import _gateway
from modeaware.aiokafka._modes import Modes
from modeaware.aiokafka._settings import split
from modeaware.views import registry

_ARGUMENTS = ("self", "topic", "partition", "key", "value", "serialized_key", "serialized_value")

if tuple(inspect.signature(getattr(_gateway.AIOKafkaProducer, "_partition", object)).parameters) != _ARGUMENTS:
    raise ImportError("aiokafka chooses partitions in another way than aiokafka 0.14 does", name=__name__)


class AIOKafkaProducer(_gateway.AIOKafkaProducer):  # type: ignore[misc,unused-ignore]  # untyped
    """``aiokafka.AIOKafkaProducer`` with the same arguments and methods, aware of partition modes.

    While a topic has retired partitions, its ``partitioner`` (aiokafka's, or the application's own) sees the writable
    ones only: a keyed record goes to ``writable[hash % len(writable)]``. A record whose partition, by whoever it was
    chosen, takes no writes is refused before it is queued; so is a batch (``send_batch``). What is queued when the
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
        # Without the callback: the source of the views outlives the client, and must not keep what hangs on it.
        views = registry.acquire(settings.conf, replace(settings.config, resize_callback=None))
        with ExitStack() as undo:
            undo.callback(views.close)
            super().__init__(**settings.theirs)
            undo.pop_all()
        self._modeaware = Modes(self, views, settings.config, loop)
        # Whenever aiokafka has asked for its metadata again, the modes may be old as well.
        self._metadata.add_listener(lambda _: views.refresh_soon())
        self._metadata.add_listener(self._modeaware.verified.metadata_changed)

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
            await self._modeaware.first_view()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()  # it may be connected already, and nobody else will: the block is not entered
            raise
        return self

    async def stop(self) -> None:
        """As ``aiokafka.AIOKafkaProducer.stop``. The share of the views is given back; the last ones stay in force."""
        try:
            await super().stop()
        finally:
            if self._modeaware is not None:
                await asyncio.to_thread(self._modeaware.release)  # which waits for the views' thread, if it is the last

    def modeaware_stats(self) -> dict[str, Any]:
        """Figures that cost nothing per record.

        Returns:
            ``state`` (``waiting`` for the first view, ``direct`` = aiokafka chooses among all partitions of every
            topic, ``routed``), ``routed_topics`` (how many topics have retired partitions), ``view_changes`` (how
            often views changed since the first one), ``resizes`` (how many of topics with keys were told of), and
            ``views``: what the shared source reports (``view_age_ms``, ...).
        """
        if self._modeaware is None:
            return {"state": "waiting", "routed_topics": 0, "view_changes": 0, "resizes": 0, "views": {}}
        return self._modeaware.stats()


update_wrapper(AIOKafkaProducer.__init__, _gateway.AIOKafkaProducer.__init__, assigned=(), updated=())  # its signature
