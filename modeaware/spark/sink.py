"""Writing to writable partitions through Spark's own Kafka sink, and a writer of micro-batches.

If possible, the plug-ins for the JVM (:mod:`modeaware.spark.plug_ins`) make the sink's producer choose writable
partitions. Otherwise the frame gets a column ``partition``, if the sink's producer would choose wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from modeaware.callouts import get_logger
from modeaware.config import split_client_config
from modeaware.errors import ConfigError, PartitionRetired, TopicReplaced
from modeaware.spark.connector import PREFIX, Placement, chosen_partitioner, option_text, spark_options
from modeaware.spark.errors import EpochMoved
from modeaware.spark.plug_ins import partitioner_in_jvm, plug_in_options
from modeaware.spark.snapshot import TopicClient, topic_chain, was_replaced, written
from modeaware.topic_view import TopicView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = get_logger(__name__)

Through = Literal["sink", "arrow", "rows"]
THROUGH = ("sink", "arrow", "rows")
JAVA_NAME = "murmur2_random"
"""The default partitioner of Java's producer, and so of Spark's sink."""
_INTERCEPTORS = f"{PREFIX}interceptor.classes"
_REFUSED = {
    "topic": "pass the topic as an argument",
    "kafka.partitioner.class": "set 'partitioner' in conf: every client of the topic must use the same one",
    "kafka.partitioner.ignore.keys": "set 'partitioner' in conf, to 'random' for example",
}


def write_to_kafka(df: DataFrame, topic: str, conf: Mapping[str, Any], **options: Any) -> None:
    """Write a frame to ``topic`` through Spark's built-in Kafka sink, as a batch; returns when all is written.

    If Spark has the plug-ins for the JVM on its class path, the sink's producer uses them. Then a job follows a shrink,
    a growth and a replacement between any two records. The plug-ins have three conditions. The modes come from the mode
    log. The partitioner is one of theirs (murmur2_random, consistent_random, minimal_movement). The frame has no column
    ``partition``.

    Otherwise the sink's Java producer chooses while every partition is writable. If some are retired, or ``conf`` names
    a partitioner that Java's producer does not have, the frame gets a column ``partition``: ``writable[hash %
    len(writable)]``. Records that the partitioner does not hash are spread over the writable partitions. If the modes
    change during the job, it still writes by the modes at the call. Its records in retired partitions are drained, too.

    If another topic has replaced ``topic``, the job writes to the other topic. Delivery is at least once, and
    timestamps are dropped, as always by the sink.

    Args:
        df: the sink's columns: ``value``, and optionally ``key`` (both string or binary), ``headers`` and ``partition``
            (int). A partition that a row names is kept; if it is retired, the job fails.
        conf: as for :class:`modeaware.Producer`. ``partitioner`` defaults to Java's murmur2_random, as always in the
            sink; our other writers default to librdkafka's consistent_random. Set it so that all writers agree.
        options: further options of the sink, such as ``**{"kafka.linger.ms": "5"}``; they override ``conf``.

    Raises:
        ViewTimeout: the modes are unknown, and ``modeaware.on.unknown`` is not ``writable``. If this is raised before
            the job, nothing was written; if after it, brokers may have rejected records, so run the job again.
        ConfigError: ``conf`` or ``options`` has a setting that cannot be respected.
        PartitionRetired: no partition is writable.
        ClusterError: the topic does not exist.
        TopicReplaced: another topic has replaced this one meanwhile. Run the job again, even if the sink did not fail.
        PySparkException, Py4JJavaError: the job failed.
    """
    with written(conf, topic, acknowledged=False) as view:
        _write(view, df, conf, options)


def _write(view: TopicView, df: DataFrame, conf: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Write, and return whether the sink's producer follows changes of the modes by itself."""
    for option in options:
        if why := _REFUSED.get(option.lower()):
            raise ConfigError(f"{option}: {why}")
    settings = spark_options(conf, "producer") | {name: option_text(value) for name, value in options.items()}
    rule, _ = chosen_partitioner(conf, JAVA_NAME)
    if (name := partitioner_in_jvm(df, conf, rule)) is not None:
        _require_writable(view)
        interceptors = [settings.pop(option) for option in list(settings) if option.lower() == _INTERCEPTORS]
        settings |= plug_in_options(conf, name, ",".join(interceptors))
    elif (chosen := placement(view, conf)) is not None:
        from modeaware.spark.column import with_partition

        df = with_partition(df, chosen)
    df.write.format("kafka").options(**settings).option("topic", view.topic).save()
    return name is not None


def placement(view: TopicView, conf: Mapping[str, Any]) -> Placement | None:
    """Return the placement of a job's records in the topic of ``view``, or None if the sink's own producer places them.

    Raises ConfigError, PartitionRetired and ClusterError as :func:`write_to_kafka` does.
    """
    rule, partitioner = chosen_partitioner(conf, JAVA_NAME)
    if view.all_writable:
        if rule is not None and rule.is_javas:  # Java's producer spreads null keys in its own way (KIP-794)
            return None
        return Placement(view.topic, tuple(TopicClient(conf, view.topic).describe().partitions), partitioner, rule)
    _require_writable(view)
    refusal = (
        f" of {view.topic} takes no records ({view.describe()}): leave the column null, or name a ReadWrite partition"
    )
    return Placement(view.topic, view.writable, partitioner, rule, refusal)


def _require_writable(view: TopicView) -> None:
    if not view.all_writable and not view.writable:
        raise PartitionRetired(
            f"no partition of {view.topic} takes records now ({view.describe()}); grow the topic", topic=view.topic
        )


def _take_the_same(before: TopicView, after: TopicView) -> bool:
    """Return whether the same partitions of the same topic take records. Epochs may differ: each step has its own."""
    same_topic = before.topic == after.topic and before.applies_to(after.topic_id)
    listed = before.writable == after.writable or not before.modes  # without a record all partitions are writable
    return same_topic and before.all_writable == after.all_writable and listed


def foreach_batch_writer(
    topic: str,
    conf: Mapping[str, Any],
    *,
    through: Through = "sink",
    retries: int = 3,
    **options: Any,
) -> BatchWriter:
    """Return a function for ``df.writeStream.foreachBatch(writer)``.

    The modes are read before each batch is written, and again afterwards. If other partitions take records by then, the
    whole batch is written again, except through a sink whose producer follows the modes by itself. After a replacement,
    the batch is written again if brokers have rejected a part of it. With ``sink``, it is always written again, because
    the sink may not report a rejection. After ``retries`` further attempts :class:`~modeaware.spark.EpochMoved` (or
    ``TopicReplaced``) fails the query; its restart from the checkpoint writes the batch once more. Delivery is at least
    once, as for ``foreachBatch``. A batch that is written again is computed again: keep non-deterministic expressions
    out of the query, or persist the frame.

    Args:
        conf: as for :func:`write_to_kafka` and the other writers.
        through: ``sink`` (:func:`write_to_kafka`), ``arrow`` (:func:`~modeaware.spark.write_arrow`, which keeps
            timestamps) or ``rows`` (:func:`~modeaware.spark.foreach_partition_writer`). The default partitioner of
            ``sink`` is murmur2_random; that of the others is consistent_random.
        retries: how often a batch is written again, at most.
        options: further options, only for ``sink``; see :func:`write_to_kafka`.
    """
    return BatchWriter(topic, dict(conf), through, retries, options)


@dataclass
class BatchWriter:
    """The function that :func:`foreach_batch_writer` returns. Picklable."""

    topic: str
    conf: Mapping[str, Any]
    through: Through
    retries: int
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.through not in THROUGH:
            raise ConfigError(f"the argument through must be one of {', '.join(THROUGH)}, not {self.through!r}")
        if self.options and self.through != "sink":
            raise ConfigError(f"{', '.join(self.options)}: options of the sink, but through is {self.through!r}")
        if self.retries < 0:
            raise ConfigError(f"retries must be 0 or more, not {self.retries}")
        split_client_config(self.conf)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        for left in range(self.retries, -1, -1):
            try:
                with written(self.conf, self.topic, acknowledged=self.through != "sink") as view:
                    follows = self._write(view, df)
            except TopicReplaced as error:
                if not left:
                    raise
                logger.warning("batch %d: %s; writing it again", batch_id, error)
                continue
            if follows:
                return
            *earlier, current = topic_chain(self.conf, self.topic)
            # A topic that was replaced has still taken the whole batch. Consumers read that topic before the new one.
            if _take_the_same(view, current) or was_replaced(view, earlier):
                return
            logger.warning(
                "%s: modes moved from epoch %d to %d while batch %d was written%s",
                current.topic,
                view.epoch,
                current.epoch,
                batch_id,
                "; writing it again" if left else "",
            )
        raise EpochMoved(
            f"{self.topic}: its modes changed each of the {self.retries + 1} times that batch {batch_id} was written "
            f"(now {current.describe()}); the batch is in the topic, partly under older modes. Start the query again "
            "from its checkpoint, so that the batch is written once more",
            topic=self.topic,
        )

    def _write(self, view: TopicView, df: DataFrame) -> bool:
        """Write, and return whether the writer follows a shrink within the batch, so that no second write is needed."""
        from modeaware.spark.writer import PartitionWriter, write_arrow_by

        if self.through == "sink":
            return _write(view, df, self.conf, self.options)
        if self.through == "arrow":
            write_arrow_by(view, df, self.conf)
        else:
            df.foreachPartition(PartitionWriter(view.topic, self.conf, at_least=view.version))
        return False
