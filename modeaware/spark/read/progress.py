"""Tells the controller how far streaming queries have come, so that a drain waits for Spark."""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from modeaware.errors import ConfigError
from modeaware.spark.read.positions import positions_of
from modeaware.spark.read.publisher import REQUEST_TIMEOUT_S, Publisher

logger = logging.getLogger(__name__)

PREFIX = "modeaware-spark-"
EXIT_TIMEOUT_S = 10.0
_GLOB = str.maketrans(dict.fromkeys("*?[]", "_"))


def progress_group(query: str) -> str:
    """The consumer group in which a query's progress is published: ``modeaware-spark-<name or id>``.

    Args:
        query: its name, or its id where it has none. (Characters of a glob become ``_``: rules about groups would take
            them for one.)
    """
    return PREFIX + query.translate(_GLOB)


class ProgressListener(StreamingQueryListener):
    """Publishes the progress of a session's streaming queries: ``spark.streams.addListener(ProgressListener(conf))``.

    After each batch, the offsets at which the query goes on are committed for a consumer group in its name, one that
    never has members, and with the first ones that group becomes a required reader of the topic
    (``modeaware groups require``). From then on no drain ends before the query has read a retired partition. What
    Kafka is read by Spark's source or by ``format("modeaware")`` counts; a query that reads a topic twice has come as
    far as its slower source.

    A query that has stopped stays required, because its checkpoint needs the records, until it is forgotten
    (``modeaware groups forget``). Until the first batch of a new query is done, nobody knows of it: :meth:`require`
    registers it before it starts.

    Callbacks never block: a thread publishes. What fails is logged and tried again. Spark tells the progress once the
    batch is in the checkpoint's commit log; with ``asyncProgressTrackingEnabled`` the checkpoint lags behind it, so do
    not use the two together.

    Args:
        conf: as for :class:`modeaware.Consumer`. The user needs what ``modeaware groups require`` needs, and READ on
            the groups.
        group: gives the group of a query from its ``StreamingQueryProgress``, None for a query that is not to be
            published: one that reads another cluster than ``conf``'s, for example. None (default): every query, under
            :func:`progress_group` of its name, or its id where it has none.

    Raises:
        ConfigError: a ``modeaware.`` setting is unknown or has a bad value.
    """

    def __init__(
        self, conf: Mapping[str, Any], *, group: Callable[[StreamingQueryProgress], str | None] | None = None
    ) -> None:
        super().__init__()
        self._conf = dict(conf)
        self._group = group
        self._publisher = Publisher(self._conf)
        me = weakref.ref(self)
        self._at_exit = lambda: _close(me)
        atexit.register(self._at_exit)  # by then no request can be begun that needs a thread: see close()

    def require(self, group: str, topics: Iterable[str], timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Have drains of ``topics`` wait for ``group``, now: before a query of that group is started for the first
        time.

        Args:
            group: such as :func:`progress_group` of the query's name.
            timeout_s: how long to wait for the controller, in seconds.

        Raises:
            ModeAwareError: no controller could be asked (ControllerUnavailable), or it refused (RequestRefused).
            ConfigError: the name is a glob.
        """
        self._publisher.require(_checked(group), topics, "a Spark query, before its first batch", timeout_s)

    def flush(self, timeout_s: float = REQUEST_TIMEOUT_S) -> bool:
        """Wait until all progress that Spark has told is published, and say whether it is."""
        return self._publisher.flush(timeout_s)

    def close(self, timeout_s: float = EXIT_TIMEOUT_S) -> None:
        """Publish what is left, for at most ``timeout_s`` seconds, and end.

        The process's exit does so, too, but for the registration of a group that is not required yet: a program that
        ends right after its first batch (``trigger(availableNow=True)``) calls this, or :meth:`flush`, before.
        """
        atexit.unregister(self._at_exit)
        self._publisher.close(timeout_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 # Spark's name
        """Nothing is known of its sources yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 # Spark's name
        """A batch is done."""
        self._publish(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 # Spark's name
        """A query that was started again and finds nothing to read tells no progress of its own accord."""
        query = (self.spark or SparkSession.active()).streams.get(str(event.id))
        if query is not None and (last := query.lastProgress) is not None:
            self._publish(last)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 # Spark's name
        """Its progress stays published, and it stays required."""

    def _publish(self, progress: StreamingQueryProgress) -> None:
        positions = positions_of((source.description, source.endOffset) for source in progress.sources)
        if not positions:
            return
        name = progress.name or str(progress.id)
        group = progress_group(name) if self._group is None else self._group(progress)
        if group is not None:
            self._publisher.publish(_checked(group), positions, f"the Spark query {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark Connect runs listeners in a process of the server.
        return (_made, (type(self), self._conf, self._group))


def _checked(group: str) -> str:
    if group != group.translate(_GLOB):
        raise ConfigError(f"group {group!r}: a rule about it would take it for a glob: leave out * ? [ and ]")
    return group


def _made(kind: type[ProgressListener], conf: Mapping[str, Any], group: Any) -> ProgressListener:
    return kind(conf, group=group)


def _close(listener: weakref.ref[ProgressListener]) -> None:
    if (found := listener()) is not None:
        found.close()
