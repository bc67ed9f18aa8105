"""``modeaware.Producer``: confluent_kafka's Producer, choosing among writable partitions only."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

from modeaware import librdkafka
from modeaware.config import PREFIX, split_client_config, with_oauth_callback, with_process_settings
from modeaware.confluent._backlog import Backlogs
from modeaware.confluent._every_topic import partition_count
from modeaware.confluent._hints import Hints
from modeaware.confluent._load import QueueLoads
from modeaware.confluent._partitioner_conf import is_beyond_librdkafka, partitioner_of
from modeaware.confluent._router import Listener, Router
from modeaware.views import registry
from modeaware.views.share import Share
from modeaware.views.source import Views
from modeaware.wire.api_versions import SOFTWARE_NAME, UNDERLYING_NAME
from partitioners import UniformSticky

P = TypeVar("P", bound="Producer")


class Producer(librdkafka.Producer):
    """confluent_kafka's ``Producer`` with the same constructor forms, methods and callbacks, aware of partition modes.

    While all partitions of a topic are writable (or nothing is known of it), librdkafka chooses and nothing of ours
    runs per record. While some are retired, a record without an explicit partition goes to ``writable[hash %
    len(writable)]``, hashed as the setting ``partitioner`` says (``sticky.partitioning.linger.ms`` counts as well).

    ``partitioner`` may also be one that librdkafka does not have: one of :data:`partitioners.NAMES`, the
    ``"package.module:name"`` of a :class:`partitioners.Partitioner`, class or function, or such an object. It picks for
    every record then, among all partitions where none is retired.

    Settings that begin with ``modeaware.`` are ours (:class:`modeaware.config.ClientConfig`); all others are
    librdkafka's. The constructor does not block; the first send waits for the first view of the modes. Methods may be
    called from any thread, as with confluent_kafka. ``close()``, ``with``, or dropping the producer gives its share of
    the views back.

    ``produce`` may be kept (``send = producer.produce``): it follows the modes. A subclass's ``produce`` is called, and
    so is one that a tracer put over ``confluent_kafka.Producer`` before the producer was made.

    Raises:
        ConfigError: an unknown ``modeaware.`` setting (the message gives the nearest known name) or a bad value.
        KafkaException, TypeError: as from confluent_kafka.
    """

    _modeaware: _Routing | None = None  # where __init__ has not run, the stock class has its say

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        return super().__new__(_over_patched(cls), *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        settings = {
            str(name): value for conf in (*args[:1], kwargs) if isinstance(conf, dict) for name, value in conf.items()
        }
        config, conf = split_client_config(with_process_settings(settings))
        beyond = is_beyond_librdkafka(conf.get("partitioner"))
        partitioner = partitioner_of(conf) if beyond else None
        hints = Hints()
        theirs = [hints.listening(_without_ours(arg)) for arg in args]
        named = hints.listening(_without_ours(kwargs))
        first = next((conf for conf in (*theirs[:1], named) if isinstance(conf, dict) and conf), None)
        if first is not None:
            first[SOFTWARE_NAME] = settings.get(SOFTWARE_NAME, UNDERLYING_NAME)
        backlogs = Backlogs(conf) if config.on_resize == "hold" else None
        if backlogs is not None and first is not None:
            (named or first).update(backlogs.settings())  # of two, confluent_kafka takes what is named
        loads = QueueLoads() if isinstance(partitioner, UniformSticky) else None
        if loads is not None and first is not None:
            target = named or first
            target.update(loads.settings({**conf, **target}))
        if named:
            super().__init__(*theirs, **named)
        else:  # an empty ** is not nothing to it: it would take no configuration for an empty one
            super().__init__(*theirs)
        if partitioner is None:  # librdkafka has accepted it by now
            partitioner = partitioner_of(conf)
        count = partition_count(self, config.view_timeout_ms / 1000) if beyond else None
        if backlogs is not None:
            backlogs.follow(self)
        # Without the callback: the source of the views outlives the producer, and must not keep what hangs on it.
        views = hints.views = registry.acquire(conf, replace(config, resize_callback=None))
        backlog = None if backlogs is None else backlogs.start
        load = None if loads is None else loads.of
        stock = (super().produce, super().produce_batch)
        router = Router(*stock, partitioner, config, views.error, count, backlog, load, views.verify)
        self._modeaware = _Routing(self, router, views)
        for name, ours, switch in (
            ("produce", _PRODUCE, router.produce),
            ("produce_batch", _PRODUCE_BATCH, router.produce_batch),
        ):
            # The attribute hides the method of the class: only where that is ours, and nobody set another.
            if getattr(type(self), name) is ours and name not in self.__dict__:
                setattr(self, name, switch.call)

    def produce(self, *args: Any, **kwargs: Any) -> None:
        """Queue a record: confluent_kafka's ``produce`` with the same arguments.

        Raises:
            RetiredPartitionChosen: ``partition`` takes no records; nothing was queued. A ``KafkaException``.
            KeyHeld: the key has moved, and its old partition is not read to the end, or records of this producer for it
                are still queued (``modeaware.on.resize=hold``). A ``BufferError``: nothing was queued,
                ``poll()`` and try again. In a transaction, abort that first: nothing is handed over of a partition
                with an open one.
            MovedKeyRefused: the key has moved (``modeaware.on.resize=error``). A ``KafkaException``.
            modeaware.confluent.errors.FirstViewPending: no view of the modes yet (``modeaware.on.unknown=block``). A
                ``BufferError``.
            modeaware.confluent.errors.FirstViewTimeout: no view of the modes yet (``modeaware.on.unknown=error``). A
                ``KafkaException``.
            BufferError, KafkaException, TypeError, RuntimeError: as from confluent_kafka.
        """
        # Reached by super().produce() and Producer.produce(p, ...) only: p.produce is an attribute, see __init__.
        routing = self._modeaware
        if routing is None:
            super().produce(*args, **kwargs)
        else:
            routing.router.produce.call(*args, **kwargs)

    def produce_batch(self, *args: Any, **kwargs: Any) -> int:
        """Queue records: confluent_kafka's ``produce_batch``, routed like :meth:`produce`.

        Messages whose keys are held (``modeaware.on.resize=hold``) are not counted, and have the ``_error`` that a full
        queue gives them. A key held once in a call is held for the rest of it: try its messages again in their order.

        Raises:
            RetiredPartitionChosen: a message, or ``partition``, names one that takes no records; nothing was queued.
            MovedKeyRefused: a key has moved (``modeaware.on.resize=error``); nothing was queued.
            BufferError, KafkaException, TypeError, RuntimeError: as there.
        """
        routing = self._modeaware
        if routing is None:
            return super().produce_batch(*args, **kwargs)
        return routing.router.produce_batch.call(*args, **kwargs)  # type: ignore[no-any-return] # as librdkafka's

    def close(self) -> bool:
        """Flush and close, as confluent_kafka does. Records sent from delivery callbacks are routed by the last
        views."""
        with _closing(self._modeaware):
            return super().close()

    def __exit__(self, *exception: Any) -> Any:
        with _closing(self._modeaware):
            return super().__exit__(*exception)

    def modeaware_stats(self) -> dict[str, Any]:
        """Figures that cost nothing per record.

        Returns:
            ``state`` (``waiting`` for the first view, ``direct`` = librdkafka's own ``produce``, ``routed``),
            ``routed_topics`` (how many topics have retired partitions), ``view_changes`` (how often views changed
            since the first one), ``resizes`` (how many resizes of topics with keys were told of), and ``views``: what
            the shared source reports (``view_age_ms``, ``stale``, ...).
        """
        routing = self._modeaware
        if routing is None:
            return {"state": "waiting", "routed_topics": 0, "view_changes": 0, "resizes": 0, "views": {}}
        return {
            "state": routing.router.state,
            "routed_topics": routing.router.routed_topics,
            "view_changes": max(routing.router.changes - 1, 0),
            "resizes": routing.router.resizes,
            "views": routing.views.stats(),
        }


class _Routing:
    """What a producer has of ours: its router, and its share of the views that the router follows."""

    def __init__(self, producer: Producer, router: Router, views: Views) -> None:
        self.router = router
        self.views = views
        self.share = Share(producer, views, Listener(router))


@contextmanager
def _closing(routing: _Routing | None) -> Iterator[None]:
    """The views go before the client that they serve; the routes stay for what its delivery callbacks still send."""
    if routing is None:
        yield
        return
    routing.share.release()
    try:
        yield
    finally:
        routing.router.close()


# As they are now: whoever patches the class later wants to be called.
_PRODUCE = Producer.produce
_PRODUCE_BATCH = Producer.produce_batch


def _without_ours(conf: Any) -> Any:
    if not isinstance(conf, dict):
        return conf  # librdkafka's to refuse
    theirs = {
        name: value
        for name, value in conf.items()
        if not (str(name).startswith(PREFIX) or (name == "partitioner" and is_beyond_librdkafka(value)))
    }
    return with_oauth_callback(theirs)


def _over_patched(cls: type[P]) -> type[P]:
    """``cls``; or where somebody has put a subclass of his own in the place of ``confluent_kafka.Producer``, as tracers
    do, maybe after we were imported: ``cls`` over that.
    """
    current: object = librdkafka.confluent_kafka.Producer
    if current is librdkafka.Producer or not isinstance(current, type) or issubclass(cls, current):
        return cls
    if not issubclass(current, librdkafka.Producer):
        return cls
    if issubclass(current, cls):
        return current
    if (cls, current) not in _OVER:
        _OVER[cls, current] = _over(cls, current)
    return _OVER[cls, current]  # type: ignore[return-value] # a subclass of cls


_OVER: dict[tuple[type[Producer], type], type[Producer]] = {}


def _over(cls: type[P], patched: type) -> type[P]:
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return types.new_class(cls.__name__, (cls, patched), exec_body=lambda body: body.update(names))
