"""Micro-batches of a streaming query, each by the modes in force when it is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from modeaware.config import split_client_config
from modeaware.errors import ConfigError
from modeaware.spark.driver import topic_view
from modeaware.spark.write.errors import EpochMoved
from modeaware.spark.write.sink import write_by
from modeaware.topic_view import TopicView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from modeaware.spark.write.column import HashIn

logger = logging.getLogger(__name__)

Through = Literal["sink", "arrow", "rows"]
THROUGH = ("sink", "arrow", "rows")


def foreach_batch_writer(
    topic: str,
    conf: Mapping[str, Any],
    *,
    through: Through = "sink",
    retries: int = 3,
    hash_in: HashIn = "python",
    **options: Any,
) -> BatchWriter:
    """A function for ``df.writeStream.foreachBatch(writer)``.

    The modes are read anew for every batch, and again when it is written. Where the topic's epoch has moved in between
    and other partitions take records, some may be where the new modes have no writes: the whole batch is written again
    under the new ones, and where that keeps happening :class:`~modeaware.spark.write.errors.EpochMoved` fails the
    query, which writes the batch again when it is started from its checkpoint. So at least once, like ``foreachBatch``
    itself. A batch is computed again when it is written again: keep what is not deterministic out of the query, or
    persist.

    Args:
        topic: its name.
        conf: as for :func:`~modeaware.spark.write_to_kafka` and the other writers.
        through: ``sink`` (Spark's own, by ``write_to_kafka``), ``arrow`` (:func:`~modeaware.spark.write_arrow`,
            which keeps timestamps) or ``rows`` (``foreach_partition_writer``). Where ``conf`` names no
            partitioner, the first has murmur2_random and the others consistent_random.
        retries: how often a batch is written again, at most.
        hash_in, options: for ``sink``, see there.

    Raises:
        ConfigError: a bad argument.
    """
    return BatchWriter(topic, conf, through=through, retries=retries, hash_in=hash_in, options=options)


class BatchWriter:
    """What :func:`foreach_batch_writer` returns: picklable."""

    def __init__(
        self,
        topic: str,
        conf: Mapping[str, Any],
        *,
        through: Through,
        retries: int,
        hash_in: HashIn,
        options: Mapping[str, Any],
    ) -> None:
        if through not in THROUGH:
            raise ConfigError(f"through must be one of {', '.join(THROUGH)}, not {through!r}")
        if options and through != "sink":
            raise ConfigError(f"{', '.join(options)}: options of the sink, which 'through' does not name")
        if retries < 0:
            raise ConfigError(f"retries must be 0 or more, not {retries}")
        split_client_config(conf)
        self.topic = topic
        self.conf = dict(conf)
        self.through = through
        self.retries = retries
        self.hash_in: HashIn = hash_in
        self.options = dict(options)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        view = topic_view(self.conf, self.topic)
        for left in range(self.retries, -1, -1):
            self._write(view, df)
            before, view = view, topic_view(self.conf, self.topic)
            if _takes_the_same(view, before):
                return
            logger.warning(
                "%s: its modes moved from epoch %d to %d while batch %d was written%s",
                self.topic,
                before.epoch,
                view.epoch,
                batch_id,
                "; it is written again" if left else "",
            )
        raise EpochMoved(
            f"{self.topic}: its modes changed each time batch {batch_id} was written, {self.retries + 1} times in all "
            f"(now {view.describe()}); the batch is in the topic, partly under older modes: start the query again from "
            "its checkpoint, which writes it once more",
            topic=self.topic,
        )

    def _write(self, view: TopicView, df: DataFrame) -> None:
        if self.through == "sink":
            write_by(view, df, self.conf, self.hash_in, self.options)
            return
        # Loaded here: the sink alone needs no PyArrow.
        from modeaware.spark.write.arrow import write_arrow_by
        from modeaware.spark.write.rows import PartitionWriter

        if self.through == "arrow":
            write_arrow_by(view, df, self.conf)
        else:
            df.foreachPartition(PartitionWriter(self.topic, self.conf, at_least=view.version))


def _takes_the_same(view: TopicView, before: TopicView) -> bool:
    """Whether the same partitions of the same topic take records: an epoch moves at each step of a shrink, too."""
    mine, others = ((v.topic_id, v.all_writable, v.writable) for v in (view, before))
    return mine == others
