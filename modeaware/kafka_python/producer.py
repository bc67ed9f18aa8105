"""kafka-python's KafkaProducer, choosing among writable partitions only."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from modeaware.kafka_python import _gateway
from modeaware.kafka_python._backlog import Backlog
from modeaware.kafka_python._connection import Hint, named_client
from modeaware.kafka_python._first_view import FirstView
from modeaware.kafka_python._partitioner_conf import one_of_ours
from modeaware.kafka_python._writable import WritablePartitioner
from modeaware.kafka_python.errors import HeldKeyError, MovedKeyError, RetiredPartitionError
from modeaware.keyword_settings import split_settings
from modeaware.views import registry
from modeaware.views.routes import RouteErrors, Routes, VerifiedRoutes
from modeaware.views.share import Share
from modeaware.views.source import Views
from partitioners.call_forms import for_kafka_python


class KafkaProducer(_gateway.KafkaProducer):  # type: ignore[misc,unused-ignore]  # untyped
    """``kafka.KafkaProducer`` with the same settings and methods, aware of partition modes.

    While a topic has retired partitions, its ``partitioner`` (kafka-python's, or the application's own) sees the
    writable ones only: a keyed record goes to ``writable[hash % len(writable)]``. A record whose partition, by whoever
    it was chosen, takes no writes is refused before it is queued. ``partitioner`` may also be a name that
    :func:`partitioners.named` knows, ``"package.module:name"``, or a partitioner of :mod:`partitioners`.

    Settings that begin with ``modeaware_`` are ours (:class:`~modeaware.config.ClientConfig`, with underscores). The
    constructor asks the cluster for its versions, as kafka-python's does; the first ``send`` waits for the first view
    of the modes as well. Methods may be called from any thread. ``close()``, ``with``, or dropping the producer gives
    its share of the views back.

    Raises:
        ConfigError: an unknown or bad ``modeaware_`` setting, or one that cannot be translated for the views.
        KafkaError, ValueError: as from kafka-python.
    """

    # Where __init__ has failed, __del__ calls close() all the same.
    _modeaware: _Modes | None = None

    def __init__(self, **configs: Any) -> None:
        settings = split_settings(configs)
        partitioner = one_of_ours(settings.theirs.get("partitioner"))
        if partitioner is not None:
            settings.theirs["partitioner"] = for_kafka_python(partitioner)
        # Without the callback: the source of the views outlives the client, and must not keep what hangs on it.
        views = registry.acquire(settings.conf, replace(settings.config, resize_callback=None))
        with ExitStack() as undo:
            undo.callback(views.close)
            super().__init__(**named_client(settings.theirs))
            undo.pop_all()
        backlog = partial(Backlog, self._accumulator) if settings.config.on_resize == "hold" else None
        errors = RouteErrors(RetiredPartitionError, HeldKeyError, MovedKeyError)
        routes = Routes(settings.config, errors, partitioner, backlog)
        self.config["partitioner"] = WritablePartitioner(self.config["partitioner"], routes)
        first_view = FirstView(settings.config, routes.known.wait, views.error)
        verified = VerifiedRoutes(views, routes, self.config["max_block_ms"] / 1000)
        self._modeaware = _Modes(views, routes, first_view, verified, Share(self, views, routes))
        self._metadata.add_listener(Hint(views))
        self._metadata.add_listener(verified.metadata_changed)

    @wraps(_gateway.KafkaProducer.send, assigned=(), updated=())  # its signature; tracers read arguments as they came
    def send(self, *args: Any, **kwargs: Any) -> Any:
        """As ``kafka.KafkaProducer.send``.

        Raises:
            RetiredPartitionError: ``partition`` takes no records; nothing was queued. A ``KafkaError`` and ValueError.
            HeldKeyError: the key has moved (``modeaware_on_resize="hold"``), and its old partition is not read to the
                end, or records of this producer for it are still queued: try again. A ``KafkaTimeoutError``.
            MovedKeyError: the key has moved (``modeaware_on_resize="error"``). A ``KafkaError``.
            FirstViewPending: no view of the modes yet (``modeaware_on_unknown="block"``). A ``KafkaTimeoutError``.
            FirstViewTimeout: no view of the modes yet (``modeaware_on_unknown="error"``). A ``KafkaError``.
            KafkaError, TypeError, ValueError: as from kafka-python.
        """
        modes = self._modeaware
        if modes is not None and not modes.first_view.over and not self._closed:
            modes.first_view.wait()
        return super().send(*args, **kwargs)

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> Any:
        # Explicit or picked, and the record is not queued yet; once it is, nothing here moves it (invariant I7).
        record = (key, serialized_key, value, serialized_value)
        if self._modeaware is None:
            return super()._partition(topic, partition, key, value, serialized_key, serialized_value)
        routes = self._modeaware.routes
        if routes.of(topic) is not None:
            self._modeaware.verified.check(topic)
        while True:
            route = routes.of(topic)
            chosen = super()._partition(topic, partition, key, value, serialized_key, serialized_value)
            if partition is not None or routes.of(topic) is route:
                break  # else the modes changed meanwhile, and what was picked may not be writable any more
        if chosen is None:
            return None
        routes.refuse_retired(topic, chosen)
        if partition is None and serialized_key is not None:
            picker = self.config["partitioner"]
            routes.look_at_key(
                topic, serialized_key, chosen, lambda count: picker.pick_over(count, topic, *record, self._metadata)
            )
        return chosen

    @wraps(_gateway.KafkaProducer.close, assigned=(), updated=())
    def close(self, *args: Any, **kwargs: Any) -> None:
        """As ``kafka.KafkaProducer.close``. The share of the views is given back; the last ones stay in force.

        A producer that could not be closed (its flush timed out, say) goes on, and keeps its share.
        """
        if "config" not in self.__dict__:
            return  # our settings were refused, and kafka-python's __init__ has not run
        super().close(*args, **kwargs)
        if self._modeaware is not None:
            self._modeaware.share.release()

    def modeaware_stats(self) -> dict[str, Any]:
        """Figures that cost nothing per record.

        Returns:
            ``state`` (``waiting`` for the first view, ``direct`` = the partitioner sees all partitions of every
            topic, ``routed``), ``routed_topics`` (how many topics have retired partitions), ``view_changes`` (how
            often views changed since the first one), ``resizes`` (how many of topics with keys were told of), and
            ``views``: what the shared source reports (``view_age_ms``, ...).
        """
        modes = self._modeaware
        if modes is None:
            return {"state": "waiting", "routed_topics": 0, "view_changes": 0, "resizes": 0, "views": {}}
        known = "routed" if modes.routes.routed_topics else "direct"
        return {
            "state": known if modes.routes.known.is_set() or modes.first_view.over else "waiting",
            "routed_topics": modes.routes.routed_topics,
            "view_changes": max(modes.routes.changes - 1, 0),
            "resizes": modes.routes.resizes,
            "views": modes.views.stats(),
        }


class _Modes:
    """What a producer has of ours."""

    def __init__(
        self, views: Views, routes: Routes, first_view: FirstView, verified: VerifiedRoutes, share: Share
    ) -> None:
        self.views = views
        self.routes = routes
        self.first_view = first_view
        self.verified = verified
        self.share = share
