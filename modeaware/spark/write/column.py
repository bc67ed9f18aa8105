"""The column ``partition`` of a frame that goes to Spark's Kafka sink."""

from __future__ import annotations

import logging
import random
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from modeaware.errors import ConfigError
from modeaware.spark.write.jvm_hash import index_in_jvm
from modeaware.spark.write.placing import Placing
from modeaware.spark.write.vectorised import index_udf

logger = logging.getLogger(__name__)

HashIn = Literal["python", "jvm"]

BLOCK_BITS = 7
"""Records without a key go to one partition in blocks of 128 within a task, which fills the producer's batches."""
_TASK_BITS = 33  # of monotonically_increasing_id: below them it counts a task's rows
_STARTS = 8
"""Where spreading may begin. A literal is part of the generated code: a few different ones stay compiled."""


def with_partition(frame: DataFrame, placing: Placing, hash_in: HashIn) -> DataFrame:
    """``frame`` with the column ``partition`` (int, never null) that :class:`~modeaware.spark.write.placing.Placing`
    asks for.

    A ``partition`` that the frame has is kept where it is not null. A retired one fails the job, when its row is
    written.

    Raises:
        ConfigError: the partitioner ``manual``, and no column ``partition``.
    """
    given = "partition" in frame.columns
    if placing.name == "manual":
        if not given:
            raise ConfigError(f"{placing.topic}: the partitioner 'manual' needs a column 'partition'")
        ours = _raise(
            F.lit(f"a record for {placing.topic} has no partition, which the partitioner 'manual' wants named")
        )
    else:
        ours = _partition(_index(frame, placing, hash_in), placing)
    if not given:
        return frame.withColumn("partition", ours)
    theirs = F.col("partition").cast("int")
    if placing.retired:
        refusal = F.concat(F.lit("partition "), theirs.cast("string"), F.lit(placing.retired))
        theirs = F.when(theirs.isin(list(placing.partitions)), theirs).otherwise(_raise(refusal))
    return frame.withColumn("partition", F.when(F.col("partition").isNull(), ours).otherwise(theirs))


def _raise(message: Column) -> Column:
    return F.raise_error(message).cast("int")


def _partition(index: Column, placing: Placing) -> Column:
    if placing.dense:
        return index
    return F.element_at(F.array(*[F.lit(partition) for partition in placing.partitions]), index + F.lit(1))


def _index(frame: DataFrame, placing: Placing, hash_in: HashIn) -> Column:
    """Which candidate each row goes to."""
    count, rule = len(placing.partitions), placing.rule
    key = F.col("key").cast("binary") if "key" in frame.columns else None
    if count == 1:
        return F.lit(0)
    if rule is not None and key is None and rule.null_hashed:
        key = F.lit(b"")
    if rule is not None and (rule.hash is None or key is None):
        return spread(count)
    if hash_in == "jvm" and rule is not None and key is not None:
        hashed, why = index_in_jvm(frame.sparkSession, key, placing.name or "", count)
        if hashed is not None:
            if rule.null_hashed:
                return F.coalesce(hashed, F.lit(_index_of_empty(placing)))
            if rule.empty_hashed:
                return F.coalesce(hashed, spread(count))
            return F.when(F.length(key) > 0, hashed).otherwise(spread(count))
        logger.warning("%s: keys are hashed in Python, as %s", placing.topic, why)
    return index_udf(placing)(F.lit(None).cast("binary") if key is None else key)


def _index_of_empty(placing: Placing) -> int:
    from partitioners.columns import partition_column

    return int(partition_column([b""], len(placing.partitions), placing.name or "")[0])


def spread(count: int) -> Column:
    """An index for rows that nothing is hashed of: blocks of rows take turns, tasks begin at different candidates."""
    row = F.monotonically_increasing_id()
    start = random.randrange(_STARTS) * count // _STARTS
    turn = F.shiftright(row, BLOCK_BITS) + F.shiftright(row, _TASK_BITS) + F.lit(start)
    return (turn % F.lit(count)).cast("int")
