"""``format("modeaware")``: a DataSource for batch and streaming, for reading and writing.

Spark finds it without registration if this package is installed (by its module ``pyspark_modeaware``).

A batch reads the readable partitions, up to their ends at the time the job is planned. A stream requests the modes
before each micro-batch, and so continues through shrinks and growths. A stream reads an old topic before the new topic
(:mod:`modeaware.spark.offsets`). The driver decides ranges of offsets; executors read them as Arrow batches.

Writers send Arrow batches through our Producer on the executors. The Producer routes by the executor's views. Delivery
is at least once.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from modeaware.config import split_client_config
from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.librdkafka import Consumer, KafkaError, Message, TopicPartition
from modeaware.spark.errors import RecordsLost
from modeaware.spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    Positions,
    RangesInOrder,
    Wanted,
    check_id,
    check_topics,
    existing,
    first_topics,
    is_continued,
    needs_ends,
    next_positions,
    ranges_between,
    refuse_gone,
    refuse_late,
    resolve,
    tasks,
)
from modeaware.spark.snapshot import TIMEOUT_S, TopicClient, TopicDescription, topic_chain
from modeaware.topic_view import TopicView
from modeaware.wire.security import bootstrap_servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# The columns of Spark's Kafka source with ``includeHeaders``.
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
SCHEMA = from_arrow_schema(_ARROW)
_WRITTEN = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "timestamp": ("timestamp", "bigint"),
    "topic": ("string",),
}
_SPARKS = frozenset({"checkpointlocation", "queryname", "outputmode"})  # Spark's own, which Spark may pass to us
_NAMED = {"earliest": EARLIEST, "latest": LATEST}

BATCH = 5_000
POLL_S = 0.5
SILENCE_S = 120.0
"""How long a read may wait for a record or the partition's end."""
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
# The consumer joins no group, so it needs no right on a group. After the other two errors, librdkafka reconnects.
_HARMLESS = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def register(spark: SparkSession) -> None:
    """Register ``format("modeaware")`` in a session whose Python cannot import the module ``pyspark_modeaware``.

    Spark imports modules named ``pyspark_*`` itself, and refuses to register a format twice. So if Python can import
    ours, nothing is done.
    """
    if find_spec("pyspark_modeaware") is None:
        spark.dataSource.register(ModeAwareDataSource)


@dataclass(frozen=True)
class SourceOptions:
    """The options of one reader or writer. A writer without a topic uses the column ``topic``."""

    topic: str | None
    conf: Mapping[str, Any]
    starting: Wanted | None = None
    ending: Wanted | None = None
    fail_on_data_loss: bool = True


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Split the options into ours and a client's configuration; Spark has put their names into lower case."""
    left = {name: value for name, value in options.items() if name not in _SPARKS}
    if "path" in left:
        raise ConfigError(
            'format("modeaware"): name the topic by option("topic", ...), not as the path of load() or save()'
        )
    topic = left.pop("topic", None)
    starting, ending = (_offsets(left, name, topic) for name in ("startingOffsets", "endingOffsets"))
    strict = left.pop("failondataloss", "true").lower()
    if strict not in ("true", "false"):
        raise ConfigError(f"failOnDataLoss: must be true or false, not {strict!r}")
    for name in left:
        if name.startswith("kafka."):
            raise ConfigError(f"{name}: use librdkafka's name {name[6:]!r}, without the prefix kafka.")
    if not bootstrap_servers(left):
        raise ConfigError('format("modeaware"): the option bootstrap.servers is missing')
    split_client_config(left)
    return SourceOptions(topic, left, starting, ending, strict == "true")


def _offsets(options: dict[str, str], name: str, topic: str | None) -> Wanted | None:
    value = options.pop(name.lower(), None)
    if value is None or value in _NAMED:
        return None if value is None else _NAMED[value]
    try:
        offsets = {int(p): offset for p, offset in json.loads(value)[topic].items()}
        if not all(type(offset) is int and offset >= EARLIEST for offset in offsets.values()):
            raise ValueError
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        example = json.dumps({topic: {"0": 23, "1": -2}})
        raise ConfigError(f"{name}: must be earliest, latest, or JSON such as {example}, not {value}") from error
    return offsets


class ModeAwareDataSource(DataSource):
    """``spark.read``, ``readStream``, ``write`` and ``writeStream`` with ``.format("modeaware")``.

    Options: ``topic``; for reading ``startingOffsets``, ``endingOffsets`` (batch) and ``failOnDataLoss``, with the
    meaning of Spark's Kafka source. Every other option is a setting of :class:`modeaware.Producer` or
    :class:`modeaware.Consumer`, under its own name: ``bootstrap.servers``, ``modeaware.mode.log.topic``.
    """

    @classmethod
    def name(cls) -> str:
        return "modeaware"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(self._read_options(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 # Spark's name
        options = self._read_options(schema)
        if options.ending is not None:
            raise ConfigError("endingOffsets: a stream has no end")
        return StreamReader(options)

    def _read_options(self, schema: StructType) -> SourceOptions:
        if schema.simpleString() != SCHEMA.simpleString():
            raise ConfigError(f"the schema that the source returns is fixed: {SCHEMA.simpleString()}")
        return parse_options(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: use mode("append"), or outputMode("append")')
        options = parse_options(dict(self.options))
        types = {field.name: field.dataType.simpleString() for field in schema}
        if "value" not in types:
            raise ConfigError(f"the frame needs a column 'value'; it has {', '.join(types)}")
        for name, allowed in _WRITTEN.items():
            if types.get(name, allowed[0]) not in allowed:
                raise ConfigError(f"the column {name} is {types[name]}: cast it to {allowed[0]}")
        if options.topic is None and "topic" not in types:
            raise ConfigError('format("modeaware"): the option topic is missing, and there is no column of that name')
        return Writer(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: N802 # Spark's name
        return self.writer(schema, overwrite)


class _Reader:
    """The common part of batches and streams. Pickled to the executors."""

    def __init__(self, options: SourceOptions) -> None:
        if not options.topic:
            raise ConfigError('format("modeaware"): the option topic is missing')
        self._options = options
        self._topic = options.topic
        self._clients: dict[str, TopicClient] = {}
        self._gone: list[TopicView] = []

    def read(self, partition: OffsetRange | RangesInOrder) -> Iterator[pa.RecordBatch]:
        for offset_range in partition.ranges if isinstance(partition, RangesInOrder) else (partition,):
            yield from fetch(self._options.conf, offset_range, strict=self._options.fail_on_data_loss)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_clients": {}}

    def _client(self, topic: str) -> TopicClient:
        # Not in the constructor: Spark gives the process 10 s to start, and a client may take longer.
        if not self._clients:
            Consumer(_conf_of(self._options.conf, strict=True)).close()  # so that a bad setting raises here, once
        if topic not in self._clients:
            self._clients[topic] = TopicClient(self._options.conf, topic)
        return self._clients[topic]

    def _views(self) -> tuple[TopicView, ...]:
        """Return the views of the topics in the chain of the option ``topic``, without deleted topics."""
        chain = topic_chain(self._options.conf, self._topic, stale=True)
        there = existing(chain)
        self._gone = [view for view in chain if view not in there]
        return there

    def _wanted(self, name: str, wanted: Wanted, topic: str) -> Wanted:
        """Return ``wanted``. Raise ConfigError if it has offsets for a topic that the application does not name."""
        if isinstance(wanted, int) or topic == self._topic:
            return wanted
        raise ConfigError(f"{name}: {self._topic} was replaced by {topic} and deleted: name {topic} instead")


class BatchReader(_Reader, DataSourceReader):  # type: ignore[misc] # read() of our own ranges
    """Reads each readable partition in a task of its own. The tasks of an old topic are listed before the new topic's;
    Spark may run tasks of both in parallel."""

    def partitions(self) -> Sequence[OffsetRange]:
        """Return a range for each readable partition that has records to read."""
        options, ranges = self._options, list[OffsetRange]()
        starting = EARLIEST if options.starting is None else options.starting
        ending = LATEST if options.ending is None else options.ending
        for view in self._views():
            topic, client = view.topic, self._client(view.topic)
            described = client.describe()
            readable = [p for p in every_partition(view, described) if view.is_readable(p)]
            starts, ends = client.starts(readable), client.ends(readable)
            start = resolve("startingOffsets", self._wanted("startingOffsets", starting, topic), topic, starts, ends)
            end = resolve("endingOffsets", self._wanted("endingOffsets", ending, topic), topic, starts, ends)
            ranges += ranges_between(topic, start, end, strict=False, topic_id=described.topic_id)
            if not isinstance(ending, int):
                break  # the batch ends within this topic
            starting = starting if isinstance(starting, int) else EARLIEST
        # Spark requires at least one range; an empty range is read without a connection.
        return ranges or [OffsetRange(self._topic, 0, 0, 0)]


class StreamReader(_Reader, DataSourceStreamReader):  # type: ignore[misc] # read() of our own ranges
    """Reads micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._starting = LATEST if options.starting is None else options.starting
        self._chain: tuple[TopicView, ...] = ()
        self._ids: dict[str, str] = {}
        self._initial: dict[str, Any] | None = None
        self._position: Positions | None = None
        self._position_ids: Mapping[str, str] = {}
        self._given: dict[str, dict[int, int]] = {}
        self._log_ends: Positions = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 # Spark's name
        """Return where a query without a checkpoint begins: ``startingOffsets``, by default ``latest`` as in Spark.

        Once an old topic is released, ``latest`` means the end of the new topic, as for a consumer group.
        """
        positions = {}
        for view in first_topics(self._views(), self._starting):
            topic, client, partitions = view.topic, self._client(view.topic), self._partitions(view)
            starts, ends = client.starts(partitions), client.ends(partitions)
            name = "startingOffsets"
            positions[topic] = resolve(name, self._wanted(name, self._starting, topic), topic, starts, ends)
        self._initial = Offsets(positions, self._ids).to_json()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 # Spark's name
        ends: dict[str, Mapping[int, int]] = {}
        views = self._chain or self._views()
        for view in views:
            try:
                self._add_ends(ends, view)
            except ClusterError as error:
                if not self._goes(view, error):
                    raise
        # The views are read after the ends, so the modes are at least as new as the ends.
        self._chain = self._views()
        ids = {view.topic: view.topic_id for view in self._chain}
        for view in views:
            if not view.applies_to(ids.get(view.topic)):  # a rename back has put another topic under this name
                ends.pop(view.topic, None)
        for view in self._chain:
            self._add_ends(ends, view)
        self._given, self._log_ends = next_positions(self._chain, ends, self._position, self._given), ends
        latest = Offsets(self._given, self._ids, self._skipped())
        if self._position is not None:  # checked before Spark writes the batch to its checkpoint
            check_topics(self._topic, Offsets(self._position, self._position_ids), latest, strict=False)
        return latest.to_json()

    def _skipped(self) -> tuple[str, ...]:
        """Return the topics that a new query skips: it begins at their ends, and its first batch goes beyond them."""
        first = first_topics(self._chain, self._starting)
        if self._starting != LATEST or self._position is not None or len(first) >= len(self._given):
            return ()
        return tuple(view.topic for view in first)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[OffsetRange | RangesInOrder]:
        before, after, strict = Offsets.from_json(start), Offsets.from_json(end), self._options.fail_on_data_loss
        for topic, topic_id in after.ids.items():  # a topic whose end is not requested any more keeps its id
            self._ids.setdefault(topic, topic_id)
        if self._position is None:  # the batch may come from the checkpoint: then the views were not read yet
            self._views()
        if start != self._initial:  # not the first batch of a new query
            check_topics(self._topic, before, after, strict=strict, gone=self._gone)
            refuse_late(self._gone, before, after, strict=strict)
        ranges = []
        for topic, ends in after.positions.items():
            begin = before.positions[topic] if is_continued(topic, before, after) else None
            if strict:
                check_id(topic, before, after)
            if any(view.topic == topic and view.applies_to(after.ids.get(topic)) for view in self._gone):
                is_new = start == self._initial and self._starting == LATEST
                is_skipped = is_new and (topic in after.skipped or topic == next(iter(after.positions)))
                refuse_gone(topic, ends if is_skipped else begin or {}, ends, strict=strict)
                continue
            if start == self._initial:
                begin = self._first(topic, begin, ends, after.skipped)
            log_ends, planned_id = self._log_ends.get(topic), after.ids.get(topic)
            of_topic = ranges_between(topic, begin or {}, ends, strict=strict, log_ends=log_ends, topic_id=planned_id)
            ranges.append(of_topic)
        self._position, self._position_ids = after.positions, after.ids
        return tasks(ranges)

    def _first(
        self, topic: str, begin: Mapping[int, int] | None, ends: Mapping[int, int], skipped: Sequence[str]
    ) -> Mapping[int, int]:
        """Return where a new query begins to read a topic."""
        if topic in skipped:
            return ends
        if begin is None or skipped:  # a new topic; retention may have deleted its first records
            return self._client(topic).starts(ends)
        wanted = dict.fromkeys(begin, self._starting) if isinstance(self._starting, int) else self._starting
        # Spark requests the first batch's end before the beginning. If records arrive in between, the beginning must
        # not be behind the end.
        return {p: min(at, ends.get(p, at)) if wanted.get(p) == LATEST else at for p, at in begin.items()}

    def _add_ends(self, ends: dict[str, Mapping[int, int]], view: TopicView) -> None:
        """Add the ends of the topic to ``ends``, if they are missing there."""
        topic = view.topic
        if topic in ends:
            return
        if needs_ends(view, self._position):
            partitions = self._partitions(view)  # this notes the topic id, before the ends are requested
            ends[topic] = {**self._given.get(topic, {}), **self._client(topic).ends(partitions)}
        else:
            ends[topic] = (self._position or {})[topic]

    def _goes(self, view: TopicView, error: ClusterError) -> bool:
        """Return whether ``error`` means that the old topic of ``view`` was deleted, which may happen at any time. Wait
        until the mode log has the deletion, for at most :data:`TIMEOUT_S`."""
        until_s = time.monotonic() + TIMEOUT_S
        while error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and time.monotonic() < until_s:
            current = [v for v in self._views() if v.topic == view.topic and v.applies_to(view.topic_id)]
            if not current or not needs_ends(current[0], self._position):
                return True
            if not current[0].is_replaced:
                return False
            time.sleep(POLL_S)  # until the controller has appended the deletion
        return False

    def _partitions(self, view: TopicView) -> list[int]:
        topic = view.topic
        # Request the id before the ends. If another topic gets the name in between, the next call finds another id.
        described = self._client(topic).describe()
        topic_id = described.topic_id
        if topic_id is not None and topic_id != self._ids.get(topic):
            self._ids[topic] = topic_id
            self._given.pop(topic, None)
        return every_partition(view, described)


def every_partition(view: TopicView, described: TopicDescription) -> list[int]:
    """Return the partitions of a topic. A topic never loses a partition, so the view's writable ones count even if the
    broker of the description does not have them yet. (Other partitions in the view may not be created yet.)"""
    is_same = described.topic_id is not None and described.topic_id == view.topic_id
    return sorted({*described.partitions, *(view.writable if is_same else ())})


def _conf_of(conf: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """Return the settings of a consumer that is assigned its partitions, joins no group and commits nothing."""
    return {
        "group.id": f"modeaware-spark-{uuid.uuid4().hex}",  # librdkafka requires one
        **split_client_config(conf)[1],
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "auto.offset.reset": "error" if strict else "earliest",
    }


def fetch(conf: Mapping[str, Any], wanted: OffsetRange, *, strict: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range; no record is yielded for offsets of control records and of compacted records.

    Raises:
        RecordsLost: ``strict`` is true, and the first records were deleted, or another topic has the name by now. If
            ``strict`` is false, the existing records are read.
        ClusterError: the partition cannot be read, or returns nothing for :data:`SILENCE_S`.
    """
    if wanted.start >= wanted.end:
        return
    topic = TopicClient(conf, wanted.topic) if strict and wanted.topic_id is not None else None
    with closing(Consumer(_conf_of(conf, strict=strict))) as consumer:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        heard_s, ended, begun = time.monotonic(), False, False
        while not ended:
            messages = consumer.consume(BATCH, timeout=POLL_S)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > SILENCE_S:
                raise _unreadable(wanted, f"no answer for {SILENCE_S:g} s", ErrorCode.REQUEST_TIMED_OUT)
            records, ended = _records(messages, wanted)
            if topic is not None and (ended or (records and not begun)):
                _check_topic(topic, wanted)
            begun = begun or bool(records)
            if records:
                yield _batch(records, wanted)


def _check_topic(topic: TopicClient, wanted: OffsetRange) -> None:
    """Raise RecordsLost if another topic has got the name since the range was planned (invariant I8). A deletion since
    the last record is no error. Raise ClusterError if no broker answers."""
    try:
        live_id = topic.describe().topic_id
    except ClusterError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return
    if live_id not in (None, wanted.topic_id):
        raise RecordsLost(
            f"{wanted}: another topic has this name by now, and the records of the earlier one are lost. Use a new "
            "checkpoint location, or set failOnDataLoss to false",
            topic=wanted.topic,
            partition=wanted.partition,
        )


def _records(messages: list[Message], wanted: OffsetRange) -> tuple[list[Message], bool]:
    """Return those of the messages that are records of the range, and whether the range's end has been reached."""
    records: list[Message] = []
    for message in messages:
        error, offset = message.error(), message.offset()
        if error is None and offset is not None:
            if offset < wanted.end:
                records.append(message)
            if offset + 1 >= wanted.end:
                return records, True
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            # This is the log end on one broker. A new leader, or a follower that serves reads, may lag for a moment.
            if offset is not None and offset >= wanted.end:
                return records, True
        elif error is not None and error.code() in _LOST:
            raise RecordsLost(
                f"{wanted}: its first records no longer exist ({error.str()}): retention removed them, or a drain did "
                "not wait for this query (see ProgressListener). Set failOnDataLoss to false to read the rest",
                topic=wanted.topic,
                partition=wanted.partition,
            )
        elif error is not None and (error.fatal() or error.code() not in _HARMLESS):
            raise _unreadable(wanted, error.str())
    return records, False


def _unreadable(wanted: OffsetRange, why: str, code: ErrorCode | None = None) -> ClusterError:
    return ClusterError(f"{wanted} cannot be read: {why}", code=code, topic=wanted.topic, partition=wanted.partition)


def _batch(messages: list[Message], wanted: OffsetRange) -> pa.RecordBatch:
    kinds_and_times = [message.timestamp() for message in messages]
    columns = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [wanted.topic] * len(messages),
        [wanted.partition] * len(messages),
        [message.offset() for message in messages],
        [time_ms * 1_000 if kind else None for kind, time_ms in kinds_and_times],
        [kind - 1 for kind, _ in kinds_and_times],  # librdkafka counts from 1, Kafka from 0
        [_headers(message, wanted) for message in messages],
    ]
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _headers(message: Message, wanted: OffsetRange) -> list[dict[str, Any]] | None:
    try:
        headers = message.headers()
    except (UnicodeDecodeError, SystemError) as error:  # the client decodes the names, which may be any bytes
        raise _unreadable(wanted, f"the record at {message.offset()} has a header whose name is not UTF-8") from error
    return [{"key": header[0], "value": header[1]} for header in headers] if headers else None


class Writer(DataSourceArrowWriter, DataSourceStreamWriter):
    """Writes a frame or a micro-batch; a task ends once its records are acknowledged.

    For streams, too, this is an Arrow writer, so that Spark passes whole batches and not rows.
    """

    def __init__(self, options: SourceOptions) -> None:
        from modeaware.spark.writer import producer_conf

        producer_conf(options.conf)  # raises on the driver, before every executor would raise
        self._options = options
        self._topic, self._at_least = "", None
        if options.topic is not None:
            view = topic_chain(options.conf, options.topic)[-1]
            self._topic, self._at_least = view.topic, view.version

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the batches of one task, on an executor."""
        from modeaware.spark.writer import Sender, send_batch

        if (first := next(iterator, None)) is not None:
            with Sender(self._topic, self._options.conf, at_least=self._at_least) as sender:
                for batch in chain([first], iterator):
                    send_batch(sender, batch)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803 # Spark's name
        """Do nothing: every task has ended with acknowledged records."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803 # Spark's name
        """Do nothing: written records stay, and the batch is written again."""
