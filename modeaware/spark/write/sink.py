"""Spark's own Kafka sink, with partitions chosen among the writable ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modeaware.errors import ConfigError
from modeaware.spark.driver import partition_ids, topic_view
from modeaware.spark.java_conf import spark_options
from modeaware.spark.write.placing import asks_for_partitions, placing
from modeaware.topic_view import TopicView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from modeaware.spark.write.column import HashIn

_REFUSED = {
    "topic": "the topic is an argument of its own",
    "kafka.partitioner.class": "name conf's 'partitioner': every client of the topic has to use the same",
    "kafka.partitioner.ignore.keys": "name conf's 'partitioner': 'random' for one",
}


def write_to_kafka(
    df: DataFrame, topic: str, conf: Mapping[str, Any], *, hash_in: HashIn = "python", **options: Any
) -> None:
    """Write a frame to ``topic`` through Spark's built-in Kafka sink, as a batch; returns when all is written.

    While every partition is writable, the sink gets the frame as it is, and its Java producer chooses. Where some are
    retired, or ``conf`` names a partitioner that Java's producer does not have, the frame gets a column ``partition``:
    ``writable[hash % len(writable)]``. Records without a key (and what else the partitioner does not hash) are spread
    over the writable partitions.

    The modes are those in force when this is called: a job that runs on after a change writes by the old ones to its
    end, and the controller waits for that (see docs/spark.md). ``foreach_batch_writer`` looks again for each batch.
    Delivered at least once, as by the sink; it drops timestamps.

    Args:
        df: columns as the sink wants them: ``value``, and where wanted ``key`` (both string or binary), ``headers``,
            ``partition`` (int). A partition that a row names is kept; a retired one fails the job.
        topic: its name.
        conf: as for :class:`modeaware.Producer`. Its ``partitioner`` decides how keys are hashed; where it names none,
            Java's murmur2_random does, as always in the sink (other writers here, like the Producer, have librdkafka's
            consistent_random by default: name it to have all agree).
        hash_in: where keys are hashed when a column is needed: ``python`` (NumPy over Arrow batches), or ``jvm``
            (Kafka's own murmur2, SQL's crc32), which is faster. It is compared with ours on some hundred keys, once for
            each application; where it is not there or does not agree, a warning is logged, and Python hashes.
        options: further options of the sink, such as ``**{"kafka.linger.ms": "5"}``; they win over ``conf``.

    Raises:
        ViewTimeout: the modes are not known, and ``modeaware.on.unknown`` is not ``writable``; nothing was written.
        ConfigError: ``conf`` or ``options`` hold what cannot be respected.
        PartitionRetired: no partition is writable.
        ClusterError: the topic is not there.
        PySparkException, Py4JJavaError: the job failed.
    """
    write_by(topic_view(conf, topic), df, conf, hash_in, options)


def write_by(
    view: TopicView, df: DataFrame, conf: Mapping[str, Any], hash_in: HashIn, options: Mapping[str, Any]
) -> None:
    """:func:`write_to_kafka` by the modes of ``view``."""
    if hash_in not in ("python", "jvm"):
        raise ConfigError(f"hash_in must be 'python' or 'jvm', not {hash_in!r}")
    for name in options:
        if why := _REFUSED.get(name.lower()):
            raise ConfigError(f"{name}: {why}")
    partitions = partition_ids(conf, view.topic) if asks_for_partitions(view, conf) else None
    chosen = placing(view, conf, partitions)
    if chosen is not None:
        from modeaware.spark.write.column import with_partition

        df = with_partition(df, chosen, hash_in)
    settings = {**spark_options(conf, "producer"), **{name: str(value) for name, value in options.items()}}
    df.write.format("kafka").options(**settings).option("topic", view.topic).save()
