"""Batch and streaming readers of ``format("modeaware")``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from modeaware.spark.read.positions import OUR_MARK
from modeaware.spark.source.cluster import TopicCluster
from modeaware.spark.source.errors import RecordsLost
from modeaware.spark.source.options import EARLIEST, LATEST, SourceOptions
from modeaware.spark.source.stretches import Stretch, readable_to, resolve, stretches_between

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT = 1
_ID_MARK = "modeaware:topic_id"
"""In the offsets beside the topic: the id of the topic that they are of. Offsets of before 0.3 have none."""


class BatchReader(DataSourceReader):
    """Reads the readable partitions, each in a task of its own, to the ends that they have when the job is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topic = options.one_topic

    def partitions(self) -> Sequence[Stretch]:
        """One stretch for each readable partition that has something to read."""
        options = self._options
        with closing(TopicCluster(options.conf, self._topic)) as cluster:
            view = cluster.view()
            readable = [p for p in cluster.partitions() if view.is_readable(p)]
            starts, ends = cluster.starts(readable), cluster.ends(readable)
        starting = EARLIEST if options.starting is None else options.starting
        ending = LATEST if options.ending is None else options.ending
        start = resolve("startingOffsets", starting, self._topic, starts, ends)
        end = resolve("endingOffsets", ending, self._topic, starts, ends)
        found = stretches_between(self._topic, start, end, strict=False)
        # Spark asks for at least one; an empty stretch is read without asking anybody.
        return found or [Stretch(self._topic, readable[0], 0, 0)]

    def read(self, partition: Stretch) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # pyspark's is the base class
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader):
    """Reads on from batch to batch, through shrinks and grows: the modes are read again for each.

    Offsets, in checkpoints and in progress: ``{"modeaware:offsets": 1, "modeaware:topic_id": "<id>", "<topic>":
    {"<partition>": <offset>}}``, always with every partition. They hold for that topic id alone (invariant I8).
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topic = options.one_topic
        self._kept: TopicCluster | None = None
        self._last: dict[int, int] = {}
        self._log_ends: dict[int, int] = {}
        self._topic_id: str | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 # Spark's name
        """Where a query without a checkpoint begins: at ``startingOffsets``, ``latest`` by default as Spark has it."""
        cluster = self._cluster()
        self._look_at_id(cluster)
        partitions = cluster.partitions()
        starts, ends = cluster.starts(partitions), cluster.ends(partitions)
        wanted = LATEST if self._options.starting is None else self._options.starting
        return self._told(resolve("startingOffsets", wanted, self._topic, starts, ends))

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 # Spark's name
        """How far the next batch may read."""
        cluster = self._cluster()
        self._look_at_id(cluster)
        ends = cluster.ends(cluster.partitions())
        # Looked at after the ends: what a shrink that is seen here forbids was written before it, or is a straggler.
        self._last, self._log_ends = readable_to(cluster.view(), ends, self._last), ends
        return self._told(self._last)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[Stretch]:
        """What the batch between two offsets reads."""
        before, after = self._offsets(start), self._offsets(end)
        strict = self._options.fail_on_data_loss
        read_id, live_id = start.get(_ID_MARK), end.get(_ID_MARK)
        if None not in (read_id, live_id) and read_id != live_id:
            if strict:
                raise RecordsLost(
                    f"topic {self._topic} was deleted and created again: its id is {live_id}, and the query has read "
                    f"{read_id}. Start with another checkpoint, or set failOnDataLoss to false to read the new topic "
                    "from its beginning",
                    topic=self._topic,
                )
            before = {}
        return stretches_between(self._topic, before, after, strict=strict, log_ends=self._log_ends)

    def read(self, partition: Stretch) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # pyspark's is the base class
        return _read(self._options, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Progress is published by :class:`~modeaware.spark.read.progress.ProgressListener`."""

    def stop(self) -> None:
        """Give the connections back."""
        if self._kept is not None:
            self._kept.close()

    def __getstate__(self) -> dict[str, Any]:
        # Executors read with it; connections stay where they are.
        return {**self.__dict__, "_kept": None}

    def _cluster(self) -> TopicCluster:
        # Not in the constructor: Spark gives the process 10 s to come up.
        if self._kept is None:
            self._kept = TopicCluster(self._options.conf, self._topic)
        return self._kept

    def _look_at_id(self, cluster: TopicCluster) -> None:
        # Before the ends: offsets that the new topic's ends are told with must not bear the old one's id for good.
        topic_id = cluster.topic_id()
        if topic_id is not None and topic_id != self._topic_id:
            self._topic_id, self._last = topic_id, {}

    def _told(self, offsets: Mapping[int, int]) -> dict[str, Any]:
        topic_id = {} if self._topic_id is None else {_ID_MARK: self._topic_id}
        return {OUR_MARK: _FORMAT, **topic_id, self._topic: {str(p): offset for p, offset in offsets.items()}}

    def _offsets(self, told: Mapping[str, Any]) -> dict[int, int]:
        return {int(p): int(offset) for p, offset in told.get(self._topic, {}).items()}


def _read(options: SourceOptions, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    if stretch.start >= stretch.end:
        return iter(())
    from modeaware.spark.source.fetching import fetch

    return fetch(options.conf, stretch, strict=options.fail_on_data_loss)
