"""Publishes the progress of streaming queries, so that a drain waits for Spark.

Spark keeps a query's offsets in its checkpoint and commits none, so a drain cannot see the query. A listener on the
session commits the offsets of each finished batch for a consumer group without members. Before its first commit, the
listener registers a rule that requires the group (``modeaware groups require``), so that no drain misses the group. If
that fails, the listener commits all the same, and retries.

Spark delivers events late: those of a query's last batch come after ``awaitTermination()`` has returned, and a listener
that is too far behind misses events. The query's own ``lastProgress`` is up to date, even after the query's end. So
:meth:`ProgressListener.flush` reads ``lastProgress`` of every query, and does not wait for events.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
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
from pyspark.sql.streaming.query import StreamingQuery

from modeaware.callouts import InnerLock, get_logger
from modeaware.config import split_client_config
from modeaware.confluent.admin import AdminClient
from modeaware.errors import ConfigError, ErrorCode, ModeAwareError
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from modeaware.modelog.connection import shared_settings
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.spark.errors import spark_errors
from modeaware.spark.offsets import OUR_MARK, Offsets
from modeaware.topic_view import known_id

logger = get_logger(__name__)

PREFIX = "modeaware-spark-"
REQUEST_TIMEOUT_S = 20.0
EXIT_TIMEOUT_S = 10.0
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
REPEAT_WARNING_S = 600.0
"""The pause between two log lines about a failure that lasts."""
IDLE_S = 60.0
"""For how long a group's consumer is kept without a commit."""
_KAFKA = "Kafka"  # the beginning of a Spark Kafka source's description: KafkaV2[Subscribe[flights]]
_GLOB = str.maketrans(dict.fromkeys("*?[]", "_"))

Positions = dict[str, dict[int, int]]
"""Topic -> partition -> the offset at which the query continues."""


def progress_group(query: str) -> str:
    """Return the consumer group of a query's progress: ``modeaware-spark-<name>``, with the id if there is no name.

    The characters that mean something in a glob become ``_``, because rules can name groups by globs.
    """
    return PREFIX + query.translate(_GLOB)


class ProgressListener(StreamingQueryListener):
    """Publishes the progress of a session's streaming queries: ``spark.streams.addListener(ProgressListener(conf))``.

    After each batch, the offsets at which the query continues are committed for a group of the query. The group is
    required on the topic: no drain ends before the query has read the retired partitions. The listener publishes the
    sources ``format("kafka")`` and ``format("modeaware")``. If a query reads a topic by two sources, the slower counts.
    For ``format("modeaware")`` on a replaced topic, both topics are published, so the old topic is not released before
    the query has reached the new topic.

    A stopped query's group stays required until ``modeaware groups forget``, because its checkpoint needs the records.
    No drain waits for a new query before its first batch is done: so call :meth:`require` before the start. Do not
    combine the listener with ``asyncProgressTrackingEnabled``: the checkpoint then lags behind the reported progress.

    Callbacks do not wait for Kafka: a thread publishes, logs failures, and retries until it succeeds or newer offsets
    replace the old ones. Thread-safe.

    Args:
        conf: as for :class:`modeaware.Consumer`; only the connection and ``modeaware.`` settings are used. The user
            needs the rights of ``modeaware groups require``, and READ on the groups.
        group: a function that returns a query's group from its ``StreamingQueryProgress``. None means not to publish
            the query, for example if it reads another cluster. Default: :func:`progress_group` of the name or id.

    Raises:
        ConfigError: a ``modeaware.`` setting is unknown or has a bad value.
    """

    def __init__(
        self, conf: Mapping[str, Any], *, group: Callable[[StreamingQueryProgress], str | None] | None = None
    ) -> None:
        super().__init__()
        self._conf = dict(conf)
        self._group = group
        _, rest = split_client_config(conf)
        ours = {name: value for name, value in conf.items() if name not in rest}
        self._settings = {**shared_settings(rest), "enable.auto.commit": False, "log_level": 0}
        self._admin = AdminClient({**shared_settings(rest), **ours, "log_level": 0})
        self._registering = InnerLock()
        self._required: set[tuple[str, str]] = set()
        self._consumers: dict[str, tuple[Consumer, float]] = {}  # with the time of the last commit
        self._turn = threading.Condition(InnerLock())
        # A query's id -> its last run. The entry stays until Spark has delivered all events of the run.
        self._queries: dict[str, tuple[str, StreamingQuery]] = {}
        self._batches: dict[str, tuple[str, int]] = {}  # a query's id -> the run and batch of its last noted progress
        self._pending: dict[str, Positions] = {}
        self._ids: dict[str, dict[str, str]] = {}  # a group -> topic -> the id of the topic that its query has read
        self._reasons: dict[str, str] = {}
        self._publishing: dict[str, Positions] = {}
        self._closed = False
        self._thread: threading.Thread | None = None
        self._logged: dict[str, tuple[str, float]] = {}
        atexit.register(self.close)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark Connect runs listeners in a process of the server.
        return (partial(type(self), group=self._group), (self._conf,))

    def require(self, group: str, topics: Iterable[str], timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Make drains of ``topics`` wait for ``group`` now, before the first start of its query.

        ``group`` is, for example, :func:`progress_group` of the query's name.

        Raises:
            ModeAwareError: no controller answered (ControllerUnavailable), or the controller refused (RequestRefused).
            ConfigError: the group's name has characters of a glob.
        """
        self._require(_checked(group), topics, "a Spark query, before its first batch", timeout_s)

    def flush(self, timeout_s: float = REQUEST_TIMEOUT_S) -> bool:
        """Publish the last finished batch of each query, also of queries that have just ended, and wait until all are
        published. Return False on timeout, or if the progress of a query cannot be read."""
        with self._turn:
            queries = list(self._queries.values())
        unread = [run for run, query in queries if not self._note_last(run, query)]
        with self._turn:
            return self._turn.wait_for(lambda: not self._unpublished(), timeout_s) and not unread

    def close(self, timeout_s: float = EXIT_TIMEOUT_S) -> None:
        """Call :meth:`flush` for at most ``timeout_s`` seconds, and stop. Idempotent.

        The interpreter's exit closes the listener, but can no longer register a group. So a program that may end right
        after its first batch (``trigger(availableNow=True)``) has to call this method after ``awaitTermination()``.
        """
        atexit.unregister(self.close)
        self.flush(timeout_s)
        with self._turn:
            self._closed = True
            self._queries.clear()
            unpublished = self._unpublished()
            self._turn.notify_all()
        if unpublished:
            logger.warning("progress of groups %s was not published within %g s", unpublished, timeout_s)
        if self._thread is not None:
            self._thread.join(timeout_s)
        for group in tuple(self._consumers):
            self._close_consumer(group)
        self._admin.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 # Spark's name
        with self._turn:  # an earlier run's progress does not count for this run, whose checkpoint may be older
            self._queries.pop(str(event.id), None)
            self._batches.pop(str(event.id), None)
        self._follow(str(event.id), str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 # Spark's name
        self._note(event.progress)
        self._follow(str(event.progress.id), str(event.progress.runId))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 # Spark's name
        # A restarted query with nothing to read reports no progress.
        self._note_last_of(str(event.id), str(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 # Spark's name
        """Forget the query. Its progress stays published, and its group required."""
        query_id, run = str(event.id), str(event.runId)
        self._note_last_of(query_id, run)
        with self._turn:
            if self._queries.get(query_id, (run,))[0] == run:
                self._queries.pop(query_id, None)
                self._batches.pop(query_id, None)

    def _follow(self, query_id: str, run: str) -> None:
        """Keep the query object of a run. When the run has ended, the object still has the progress, but ``streams``
        lacks the query."""
        if self._queries.get(query_id, ("",))[0] == run:
            return
        query = (self.spark or SparkSession.active()).streams.get(query_id)
        with self._turn:
            if query is not None and str(query.runId) == run and not self._closed:
                self._queries[query_id] = run, query

    def _note_last_of(self, query_id: str, run: str) -> None:
        followed, query = self._queries.get(query_id, ("", None))
        if query is not None and followed == run:
            self._note_last(run, query)

    def _note_last(self, run: str, query: StreamingQuery) -> bool:
        """Note the last progress of a query; False if Spark does not return it."""
        try:
            last = query.lastProgress
        except spark_errors() as error:
            logger.warning("progress of the run %s of a Spark query cannot be read: %s", run, error)
            return False
        if last is not None:
            self._note(last)
        return True

    def _note(self, progress: StreamingQueryProgress) -> None:
        # Read the JSON, not the attributes: if PySpark has made the progress from JSON (lastProgress since 4.1, all of
        # Spark Connect), its `endOffset` is the text of a Python dict.
        sources = json.loads(progress.json)["sources"]
        ends = [(source["description"], source["endOffset"]) for source in sources]
        positions = positions_of(ends)
        if not positions:
            return
        name = progress.name or str(progress.id)
        if (group := progress_group(name) if self._group is None else self._group(progress)) is None:
            return
        query, run, batch = str(progress.id), str(progress.runId), progress.batchId
        with self._turn:
            followed, noted = self._queries.get(query, (run,))[0], self._batches.get(query, (run, batch))
            if self._closed or followed != run or (noted[0] == run and batch < noted[1]):  # a late event
                return
            self._batches[query] = run, batch
            self._pending.setdefault(_checked(group), {}).update(positions)
            self._reasons[group] = f"the Spark query {name}"
            for _, end in ends:  # positions that wait for a retry keep the ids of their topics
                self._ids.setdefault(group, {}).update(ids_of(end))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="modeaware-spark-progress", daemon=True)
                self._thread.start()
            self._turn.notify_all()

    def _unpublished(self) -> list[str]:
        return sorted({*self._pending, *self._publishing})

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._pending or self._closed, IDLE_S if self._consumers else None)
                if self._closed:
                    return
                taken, self._pending = self._pending, {}
                self._publishing = taken
            failed = {group: positions for group, positions in taken.items() if not self._publish(group, positions)}
            self._close_idle()
            with self._turn:
                for group, positions in failed.items():
                    self._pending[group] = positions | self._pending.get(group, {})
                self._publishing = {}
                self._turn.notify_all()
                if failed:
                    self._turn.wait(retry_s)
                retry_s = min(retry_s * 2, LONGEST_RETRY_S) if failed else FIRST_RETRY_S

    def _publish(self, group: str, positions: Positions) -> bool:
        """Add the rule, commit the offsets, and return whether both succeeded. If the rule cannot be added, the offsets
        are committed all the same: a controller can use them without the rule."""
        failures = []
        try:
            self._require(group, positions, self._reasons[group])
        except (ModeAwareError, RuntimeError) as error:  # RuntimeError at the interpreter's exit: no new threads
            failures.append(f"the group is not registered, so a drain may not wait for it: {error}")
        try:
            self._commit(group, positions)
        except KafkaException as error:
            failures.append(f"offsets not committed, drains wait: {error.args[0].str()}")
            self._close_consumer(group)
        failure, now_s = "; ".join(failures), time.monotonic()
        last, at_s = self._logged.get(group, ("", 0.0))
        if failure and (failure != last or now_s - at_s > REPEAT_WARNING_S):
            logger.warning("progress of group %s not published: %s; retrying", group, failure)
            self._logged[group] = (failure, now_s)
        elif last and not failure:
            logger.warning("progress of %s published again", group)
            del self._logged[group]
        return not failures

    def _close_idle(self) -> None:
        """Close the consumers of groups without progress for some time: each query has a group, and queries end."""
        idle_s = time.monotonic() - IDLE_S
        for group in [group for group, (_, used_s) in tuple(self._consumers.items()) if used_s <= idle_s]:
            self._close_consumer(group)

    def _close_consumer(self, group: str) -> None:
        consumer, _ = self._consumers.pop(group, (None, 0.0))
        if consumer is not None:
            consumer.close()

    def _require(self, group: str, topics: Iterable[str], reason: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Add the rules that are missing. A rule that was found or added once is not requested again."""
        with self._registering:
            missing = [topic for topic in topics if (group, topic) not in self._required]
            if not missing:
                return
            rules = _answer(self._admin.describe_group_rules(timeout_s), timeout_s)
            mine = (rule for rule in rules if (rule.kind, rule.group) == (REQUIRE, group))
            kept = {rule.topic for rule in mine if rule.expires_ms is None}
            now_ms = time.time_ns() // 1_000_000
            add = [GroupRule(REQUIRE, group, topic, reason, now_ms) for topic in missing if topic not in kept]
            if add:
                _answer(self._admin.alter_group_rules(add, request_timeout=timeout_s), timeout_s)
            self._required.update((group, topic) for topic in missing)

    def _commit(self, group: str, positions: Positions) -> None:
        consumer, _ = self._consumers.get(group) or (Consumer({**self._settings, "group.id": group}), 0.0)
        self._consumers[group] = consumer, time.monotonic()
        others = self._recreated(group, positions)
        own = {topic: of_topic for topic, of_topic in positions.items() if topic not in others}
        offsets = [TopicPartition(t, p, offset) for t, of_topic in own.items() for p, offset in of_topic.items()]
        if not offsets:
            return
        for done in consumer.commit(offsets=offsets, asynchronous=False) or ():
            # An unknown topic is no failure: the topic was deleted, so no drain of the topic waits.
            if done.error is not None and done.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(done.error)

    def _recreated(self, group: str, positions: Positions) -> set[str]:
        """Return the topics of a chain whose name another topic has by now: a commit would claim that the query has
        reached that other topic."""
        ids = self._ids.get(group, {})
        asked = [topic for topic in positions if topic in ids]
        others: set[str] = set()
        if len(positions) < 2 or not asked:
            return others
        answers = self._admin.describe_topics(TopicCollection(asked), request_timeout=REQUEST_TIMEOUT_S)
        for topic, answer in answers.items():
            try:
                topic_id = known_id(answer.result(REQUEST_TIMEOUT_S + 5).topic_id)
            except TimeoutError as error:
                raise KafkaException(
                    KafkaError(KafkaError._TIMED_OUT, "no broker has returned the topic ids")
                ) from error
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                continue
            if topic_id not in (None, ids[topic]):
                others.add(topic)
        return others


def _checked(group: str) -> str:
    if group != group.translate(_GLOB):
        raise ConfigError(f"group {group!r}: rules about groups are globs; remove * ? [ and ]")
    return group


def positions_of(sources: Iterable[tuple[str, Any]]) -> Positions:
    """Return a query's positions. ``sources`` has each source's description and end offset, from a progress's JSON."""
    positions: Positions = {}
    ours: list[Positions] = []
    for description, end_offset in sources:
        of_source = {topic: offsets for topic, offsets in _offsets(description, end_offset).items() if offsets}
        ours += [of_source] if of_source and OUR_MARK in end_offset else []
        for topic, offsets in of_source.items():
            other = positions.get(topic)
            both = offsets if other is None else {p: min(o, other[p]) for p, o in offsets.items() if p in other}
            positions[topic] = both
    missing = _not_reached(ours)
    return {topic: offsets for topic, offsets in positions.items() if offsets and topic not in missing}


def _not_reached(sources: Iterable[Positions]) -> set[str]:
    """Return the topics that one source has reached, while another source reads an earlier topic of their chain."""
    missing = set()
    for one in sources:
        earlier: set[str] = set()
        for topic in one:
            if any(topic not in other and not earlier.isdisjoint(other) for other in sources):
                missing.add(topic)
            earlier.add(topic)
    return missing


def ids_of(end_offset: Any) -> Mapping[str, str]:
    """Return the topic ids in a source's end offset: of ``format("modeaware")`` only."""
    return Offsets.from_json(end_offset).ids if isinstance(end_offset, dict) and OUR_MARK in end_offset else {}


def _offsets(description: str, offsets: Any) -> Positions:
    if not isinstance(offsets, dict) or not (description.startswith(_KAFKA) or OUR_MARK in offsets):
        return {}
    return {
        topic: {int(p): o for p, o in by_partition.items() if p.isdecimal() and type(o) is int and o >= 0}
        for topic, by_partition in offsets.items()
        if isinstance(by_partition, Mapping)
    }


def _answer(future: Future[Any], timeout_s: float) -> Any:
    try:
        error = future.exception(timeout_s + 5)
    except TimeoutError as timeout:
        raise ModeAwareError("the controller did not answer in time", code=ErrorCode.REQUEST_TIMED_OUT) from timeout
    if error is not None and not isinstance(error, ModeAwareError):
        raise ModeAwareError(f"request failed: {type(error).__name__}: {error}") from error
    return future.result()
