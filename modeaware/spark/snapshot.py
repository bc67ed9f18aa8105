"""The driver's facts for a job: a topic's modes, and its id, partitions and offsets on the cluster.

Views are kept between requests: every micro-batch needs them at least twice, and the first views take a quarter of a
second. One request shows whether the mode log has grown. If it has not, the views are current, and nothing is read.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from modeaware.callouts import InnerLock, get_logger
from modeaware.chain import chain_views
from modeaware.config import ClientConfig, split_client_config
from modeaware.errors import ClusterError, ErrorCode, ModeSourceError, TopicReplaced, ViewTimeout
from modeaware.librdkafka import (
    AdminClient,
    ConfigResource,
    Consumer,
    IsolationLevel,
    KafkaException,
    OffsetSpec,
    ResourceType,
    TopicCollection,
    TopicPartition,
)
from modeaware.modelog.connection import cluster_key, connection_conf, tail_conf
from modeaware.spark.errors import error_code, spark_errors
from modeaware.spark.worker import ProcessCache
from modeaware.topic_view import TopicView, known_id
from modeaware.views.registry import acquire
from modeaware.views.source import VERIFY_TIMEOUT_S, Views

logger = get_logger(__name__)

TIMEOUT_S = 30.0
IDLE_S = 60.0
"""How long views are kept after the last use."""
_END_TIMEOUT_S = 2.0
_FETCH_WAIT_MS = 10


def topic_chain(conf: Mapping[str, Any], topic: str, *, stale: bool = False) -> tuple[TopicView, ...]:
    """Return the views of the chain of topics that begins at the name ``topic``. Writers write to the last topic.

    Nearly always the chain has only one topic. The views include all changes that the mode source contains at the call.
    Their topic ids are compared with the cluster's (invariant I8).

    If the source cannot be read within ``modeaware.view.timeout.ms``, ``modeaware.on.unknown`` decides: ``writable``
    uses the last view, or takes every partition as ReadWrite if there is none; ``block`` and ``error`` raise.

    Args:
        conf: as for :class:`modeaware.Producer`.
        stale: for running queries: whether to continue with the last view even if ``modeaware.on.unknown`` forbids it.

    Raises:
        ViewTimeout: the modes are unknown; nothing was read or written.
        ConfigError: a ``modeaware.`` setting is unknown or has a bad value.
    """
    config, rest = split_client_config(conf)
    timeout_s = config.view_timeout_ms / 1000
    kept = kept_views(rest, config)
    views, failure = kept.views, None
    if ready := views.wait_ready(timeout_s):
        try:
            kept.refresh(timeout_s)
        except ModeSourceError as error:
            failure = error
    if failure is not None or not ready:
        why = failure or views.error() or "no answer"
        if config.on_unknown != "writable" and not (stale and ready):
            raise ViewTimeout(
                f"{topic}: no view of the partition modes within {config.view_timeout_ms} ms "
                f"(modeaware.view.timeout.ms): {why}. With modeaware.on.unknown=writable the job uses the last "
                "view, or takes every partition as writable",
                topic=topic,
            ) from failure
        logger.warning("%s: mode source unavailable (%s); continuing with the last view", topic, why)
    return _verified_chain(topic, views)


def _verified_chain(topic: str, views: Views) -> tuple[TopicView, ...]:
    compared: set[str] = set()
    while True:
        chain = chain_views(topic, views.view)
        names = {view.topic for view in chain} - compared
        if not names:
            return chain
        views.verify(names, VERIFY_TIMEOUT_S)
        compared |= names


@contextmanager
def written(conf: Mapping[str, Any], topic: str, *, acknowledged: bool = True) -> Iterator[TopicView]:
    """Enclose a job that writes to the name ``topic``: in ``with written(conf, topic) as view``, it writes by ``view``.

    Args:
        acknowledged: whether brokers have appended every record of a job that succeeds. False for Spark's sink: if
            brokers reject a batch and the producer splits it, Java's ``flush`` does not wait for the parts
            (KAFKA-19479, kafka-clients 3.9). The task succeeds before the producer reports their errors.

    Raises:
        TopicReplaced: the job failed or is not ``acknowledged``, and its topic was replaced meanwhile. Brokers reject
            data for a replaced topic.
        ViewTimeout, ConfigError: as :func:`topic_chain`; if not ``acknowledged``, also at the end of the block.
    """
    planned = topic_chain(conf, topic)[-1]
    meant = planned if acknowledged else _with_id(conf, planned)

    def replaced(*, stale: bool) -> TopicReplaced | None:
        *earlier, current = topic_chain(conf, topic, stale=stale)
        if not _views(conf).ready:  # modeaware.on.unknown=writable: nothing is known about the topic
            return None
        return _replaced(meant, earlier, current if acknowledged else _with_id(conf, current))

    try:
        yield planned
    except spark_errors() as error:
        if (why := replaced(stale=True)) is not None:
            raise why from error
        raise
    if not acknowledged and (why := replaced(stale=False)) is not None:
        raise why


def _with_id(conf: Mapping[str, Any], view: TopicView) -> TopicView:
    """Return the view, with the cluster's topic id if the view has none. The name alone does not identify the topic:
    after a rename back, two topics of the chain have the same name."""
    if view.topic_id is not None:
        return view
    return replace(view, topic_id=_views(conf).live_id(view.topic, VERIFY_TIMEOUT_S))


def reads_log(conf: Mapping[str, Any]) -> bool:
    """Return whether the modes come from the mode log, as far as that is known."""
    return bool(_views(conf).stats()["source"] == "log")


def _views(conf: Mapping[str, Any]) -> Views:
    config, rest = split_client_config(conf)
    return kept_views(rest, config).views


def _replaced(planned: TopicView, earlier: Iterable[TopicView], current: TopicView) -> TopicReplaced | None:
    """Return the error if the name no longer means the topic for which the job was planned, else None."""
    is_same = planned.topic == current.topic and current.applies_to(planned.topic_id)
    if is_same and not was_replaced(planned, earlier):
        return None
    other = current.topic if current.topic != planned.topic else "another topic of its name"
    return TopicReplaced(
        f"{planned.topic} was replaced by {other} while a job wrote to it: brokers may have rejected records of the "
        f"job. Run the job again under the same name: all its records go to {current.topic}, also those that were "
        "delivered before",
        topic=planned.topic,
        new_topic=current.topic,
    )


def was_replaced(planned: TopicView, earlier: Iterable[TopicView]) -> bool:
    """Return whether the topic for which a job was planned is among ``earlier``, the old topics of its name's chain."""
    return any(view.topic == planned.topic and view.applies_to(planned.topic_id) for view in earlier)


class KeptViews:
    """A handle on the process's source of views, and a consumer that checks the end of the mode log. Thread-safe."""

    def __init__(self, conf: Mapping[str, Any], config: ClientConfig) -> None:
        self.views = acquire(conf, config)
        # read_uncommitted, so that records count as growth of the log even before their transaction is committed.
        self._conf = {**tail_conf(conf, fetch_wait_ms=_FETCH_WAIT_MS), "isolation.level": "read_uncommitted"}
        self._log = TopicPartition(config.mode_log_topic, 0)
        self._lock = InnerLock()
        self._consumer: Consumer | None = None
        self._closed = False
        self.idle = threading.Timer(IDLE_S, self.close)

    def refresh(self, timeout_s: float) -> None:
        """Make the views current: if the log may have grown, by :meth:`modeaware.views.source.Views.refresh`."""
        if not self._is_current():
            self.views.refresh(timeout_s)

    def _is_current(self) -> bool:
        """Return whether the views surely come from the mode log, and include all of it."""
        with self._lock:
            if self._closed or not self.views.stats().get("log_present"):
                return False
            self._consumer = self._consumer or Consumer(self._conf)
            try:
                _, end = self._consumer.get_watermark_offsets(self._log, timeout=_END_TIMEOUT_S)
            except KafkaException:  # refresh() will meet the same error, and report it
                return False
        stats = self.views.stats()
        return bool(stats["source"] == "log" and stats["log_position"] == end)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            consumer, self._consumer = self._consumer, None
        self.views.close()
        if consumer is not None:
            consumer.close()


def kept_views(conf: Mapping[str, Any], config: ClientConfig) -> KeptViews:
    """Return the shared views of the cluster in ``conf``, which the caller does not close. Thread-safe.

    Args:
        conf: the connection, without ``modeaware.`` settings.
    """
    key = (cluster_key(conf, config.mode_log_topic), config.mode_source)

    def release() -> None:
        with _kept.lock:
            if kept.idle is not threading.current_thread():
                return  # the views were used again in the meantime
            del _kept.held[key]
        kept.close()

    with _kept.lock:
        kept = _kept.held.get(key) or _kept.held.setdefault(key, KeptViews(conf, config))
        kept.idle.cancel()
        kept.idle = threading.Timer(IDLE_S, release)
        kept.idle.daemon = True
        kept.idle.start()
        return kept


def release_kept() -> None:
    """Close all kept views now."""
    with _kept.lock:
        released = list(_kept.held.values())
        _kept.held.clear()
    for kept in released:
        kept.idle.cancel()
        kept.close()


_kept: ProcessCache[KeptViews] = ProcessCache()
atexit.register(release_kept)


class TopicDescription(NamedTuple):
    """A topic's partitions, ascending, of all modes; and its id, or None if brokers return no ids."""

    partitions: list[int]
    topic_id: str | None


class TopicClient:
    """Requests one topic's description, configuration and offsets. Never creates the topic. For one thread.

    Every method raises ClusterError if no broker answers, or if the topic does not exist (UNKNOWN_TOPIC_OR_PARTITION).

    Args:
        conf: as for :class:`modeaware.Consumer`. With ``isolation.level`` ``read_committed``, librdkafka's default, the
            log end is before the first open transaction.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self.topic = topic
        _, rest = split_client_config(conf)
        self._admin = AdminClient(connection_conf(rest, "spark"))
        committed = rest.get("isolation.level", "read_committed") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def describe(self) -> TopicDescription:
        topics = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=TIMEOUT_S)
        description = self._answer(topics[self.topic], "cannot be described")
        return TopicDescription(sorted(p.id for p in description.partitions), known_id(description.topic_id))

    def setting(self, name: str) -> str | None:
        """Return the value of a topic configuration, also if it is the default; None if there is none."""
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        future = self._admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource]
        entry = self._answer(future, "has a configuration that cannot be read").get(name)
        return None if entry is None else str(entry.value)

    def starts(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the log start offsets."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the log end offsets, by the ``isolation.level`` of ``conf``."""
        return self._offsets(partitions, OffsetSpec.latest())

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        requested = {TopicPartition(self.topic, p): spec for p in partitions}
        if not requested:
            return {}
        answers = self._admin.list_offsets(requested, isolation_level=self._isolation, request_timeout=TIMEOUT_S)
        return {p.partition: self._answer(answer, "has unknown offsets").offset for p, answer in answers.items()}

    def _answer(self, future: Future[Any], failure: str) -> Any:
        try:
            return future.result(TIMEOUT_S + 5)
        except (KafkaException, TimeoutError) as error:
            kafka = error.args[0] if isinstance(error, KafkaException) else None
            raise ClusterError(
                f"topic {self.topic!r} {failure}: {'no answer' if kafka is None else kafka.str()}",
                code=(None if kafka is None else error_code(kafka)) or ErrorCode.REQUEST_TIMED_OUT,
                topic=self.topic,
            ) from error
