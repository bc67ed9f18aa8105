"""What an ``AIOKafkaProducer`` has of ours. All of it runs in the producer's event loop, but the listener's call."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Mapping
from typing import Any

from modeaware.aiokafka.errors import FirstViewPending, FirstViewTimeout, MovedKeyError, RetiredPartitionError
from modeaware.config import ClientConfig
from modeaware.topic_view import TopicView
from modeaware.views.routes import RouteErrors, Routes, VerifiedRoutes
from modeaware.views.share import Share
from modeaware.views.source import VERIFY_TIMEOUT_S, Views

log = logging.getLogger(__name__)

PICK = "_partition"
"""aiokafka's method that every record passes before it is queued, whoever chooses its partition."""
WAIT = "_wait_on_metadata"
"""The method of aiokafka's client that every record awaits before that."""


class Modes:
    """Follows the views for one producer, and stands before its ``_partition`` while that has to be.

    aiokafka's ``partitioner`` is not told the topic, and not asked where the application names the partition. So ours
    is an attribute of the producer that hides the method: before the first view, and while a topic has retired
    partitions. At other times there is nothing of ours on the way of a record.

    Args:
        producer: is not kept alive.
        views: the handle to follow, and to give back.
        config: our settings.
        loop: the producer's.

    Attributes:
        routes: where the records of each topic may go.
        verified: those of them that are about the topic that has the name now.
    """

    def __init__(self, producer: object, views: Views, config: ClientConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._producer = weakref.ref(producer)
        self._views = views
        self._config = config
        self._arrived = asyncio.Event()
        self._over = False  # records may be placed: there is a view, or nobody waits for one any more
        self.routes = Routes(config, RouteErrors(retired=RetiredPartitionError, moved=MovedKeyError))
        self.verified = VerifiedRoutes(views, self.routes, VERIFY_TIMEOUT_S)
        setattr(producer, PICK, _Pick(self._producer, self))
        self._share = Share(producer, views, _Listener(self, loop))

    async def first_view(self) -> None:
        """Return when records may be placed.

        Raises:
            FirstViewPending: no view in time, and ``on_unknown`` is ``block``.
            FirstViewTimeout: no view in time, and ``on_unknown`` is ``error``.
        """
        try:
            async with asyncio.timeout(self._config.view_timeout_ms / 1000):
                await self._arrived.wait()
        except TimeoutError:
            if self._config.on_unknown != "writable":
                self.check_known()
            if not self._over:
                log.warning("%s; every partition is taken as ReadWrite until there is one", self._message())
                self._over = True
                self._settle()

    def check_known(self) -> None:
        """
        Raises:
            FirstViewPending, FirstViewTimeout: records cannot be placed yet; by ``on_unknown``.
        """
        if not self._over:
            refusal = FirstViewTimeout if self._config.on_unknown == "error" else FirstViewPending
            raise refusal(f"{self._message()}; nothing was queued")

    def follow(self, changed: Mapping[str, TopicView]) -> None:
        """Put views in force."""
        try:
            self.routes(changed)
        finally:  # the application's callback may have raised
            self._over = True
            self._arrived.set()
            self._settle()

    def release(self) -> None:
        """Give the views back; the last ones stay in force. May take a moment, from any thread. Idempotent."""
        self._share.release()

    def stats(self) -> dict[str, Any]:
        """See :meth:`AIOKafkaProducer.modeaware_stats`."""
        known = "routed" if self.routes.routed_topics else "direct"
        return {
            "state": known if self._over else "waiting",
            "routed_topics": self.routes.routed_topics,
            "view_changes": max(self.routes.changes - 1, 0),
            "resizes": self.routes.resizes,
            "views": self._views.stats(),
        }

    def _settle(self) -> None:
        producer: Any = self._producer()
        if producer is None:
            return
        if self.routes.routed_topics:
            setattr(producer, PICK, _Pick(self._producer, self))
            setattr(producer.client, WAIT, _Wait(weakref.ref(producer.client), self.verified))
        else:
            vars(producer).pop(PICK, None)
            vars(producer.client).pop(WAIT, None)

    def _message(self) -> str:
        return (
            f"no view of the partition modes within {self._config.view_timeout_ms} ms (modeaware_view_timeout_ms): "
            f"{self._views.error() or 'the mode log was not read to its end yet'}"
        )


class _Listener:
    """Hands views over to the event loop, from whatever thread."""

    def __init__(self, modes: Modes, loop: asyncio.AbstractEventLoop) -> None:
        self._modes = modes
        self._loop = loop

    def __call__(self, changed: Mapping[str, TopicView]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._modes.follow, changed)
        except RuntimeError as error:
            log.debug("a producer was left behind by its event loop: %s", error)


class _Wait:
    """In the place of the ``_wait_on_metadata`` of a producer's client, while a topic has retired partitions."""

    def __init__(self, client: weakref.ref[Any], verified: VerifiedRoutes) -> None:
        self._client = client
        self._verified = verified

    async def __call__(self, topic: str) -> Any:
        """As ``AIOKafkaClient._wait_on_metadata``; the topic's route is verified when it returns."""
        client: Any = self._client()  # which calls this
        partitions = await getattr(type(client), WAIT)(client, topic)
        if not self._verified.has(topic):
            # A view that changes is handed over to the event loop before this returns, so it is followed by then.
            await asyncio.to_thread(self._verified.verify, topic)
            self._verified.mark(topic)
        return partitions


class _Pick:
    """In the place of a producer's ``_partition``."""

    def __init__(self, producer: weakref.ref[Any], modes: Modes) -> None:
        self._producer = producer
        self._modes = modes

    def __call__(
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
            RetiredPartitionError: the partition that was named, or every one of the topic, takes no records.
            MovedKeyError: the key has moved, and is to be refused.
            FirstViewPending, FirstViewTimeout: there is no view yet.
        """
        self._modes.check_known()
        producer: Any = self._producer()  # which calls this
        routes = self._modes.routes
        route = routes.of(topic)
        if partition is not None or route is None:
            chosen: int = getattr(type(producer), PICK)(
                producer, topic, partition, key, value, serialized_key, serialized_value
            )
            routes.refuse_retired(topic, chosen)
            return chosen
        if not route.writable:
            routes.refuse_retired(topic, 0)
        pick = producer._partitioner
        # The view's list also where aiokafka's metadata is older: all producers must hash over the same.
        available = producer._metadata.available_partitions_for_topic(topic) or ()
        chosen = pick(serialized_key, list(route.writable), [p for p in route.writable if p in available])
        routes.refuse_retired(topic, chosen)
        if serialized_key is not None:
            routes.look_at_key(
                topic, serialized_key, chosen, lambda count: pick(serialized_key, [*range(count)], [*range(count)])
            )
        return chosen
