"""The column ``partition`` of a frame for Spark's Kafka sink.

A row's partition is one of the candidates (:class:`~modeaware.spark.connector.Placement`). Python workers compute the
candidate's index from the key, for a batch of rows at a time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.pandas import functions
from pyspark.sql.types import IntegerType

from modeaware.errors import ConfigError
from modeaware.spark.connector import Placement, topic_partitioner
from modeaware.spark.worker import forget_archive_finders
from partitioners import Partitioner, TopicPartitioner

BLOCK_BITS = 7
"""In a task, 128 consecutive records without a key go to one partition, which fills the producer's batches."""
_TASK_BITS = 33  # in monotonically_increasing_id, the lower 33 bits count a task's rows
_STARTS = 8
"""The number of candidates with which :func:`spread` may begin. The start is a literal in the code that Spark generates
and compiles, so many different starts would mean many compilations."""
_pandas_udf: Any = functions.pandas_udf  # its type hints reject functions whose annotations are strings


def with_partition(frame: DataFrame, placed: Placement) -> DataFrame:
    """Return ``frame`` with the column ``partition`` (int, never null).

    An existing column ``partition`` is kept where it is not null. If it names a retired partition, the job fails when
    that row is written. ConfigError if there is no such column and the partitioner picks no partition.
    """
    given = "partition" in frame.columns
    if placed.rule is not None and not placed.rule.spreads:
        if not given:
            raise ConfigError(f"{placed.topic}: the partitioner {placed.rule.name!r} needs a column 'partition'")
        ours = _raise(F.lit(f"{placed.topic}: a record has no partition, and {placed.rule.name!r} chooses none"))
    else:
        ours = _index(frame, placed)
        if placed.partitions != tuple(range(len(placed.partitions))):
            ours = F.element_at(F.array(*map(F.lit, placed.partitions)), ours + F.lit(1))
    if not given:
        return frame.withColumn("partition", ours)
    theirs = F.col("partition").cast("int")
    if placed.refusal:
        refusal = F.concat(F.lit("partition "), theirs.cast("string"), F.lit(placed.refusal))
        theirs = F.when(theirs.isin(list(placed.partitions)), theirs).otherwise(_raise(refusal))
    return frame.withColumn("partition", F.when(F.col("partition").isNull(), ours).otherwise(theirs))


def _raise(message: Column) -> Column:
    return F.raise_error(message).cast("int")


def _index(frame: DataFrame, placed: Placement) -> Column:
    """Return a column with the index of each row's candidate."""
    count, rule = len(placed.partitions), placed.rule
    key = F.col("key").cast("binary") if "key" in frame.columns else None
    if count == 1:
        return F.lit(0)
    if rule is not None and key is None and rule.null_hashed:
        key = F.lit(b"")
    if rule is not None and (rule.hash is None or key is None):
        return spread(count)
    return index_udf(placed)(F.lit(None).cast("binary") if key is None else key)


def spread(count: int) -> Column:
    """Return the index for rows that are not hashed. Blocks of rows take turns; tasks begin at different candidates."""
    row = F.monotonically_increasing_id()
    start = random.randrange(_STARTS) * count // _STARTS
    turn = F.shiftright(row, BLOCK_BITS) + F.shiftright(row, _TASK_BITS) + F.lit(start)
    return (turn % F.lit(count)).cast("int")


def index_udf(placed: Placement) -> Callable[[Column], Column]:
    """Return a function of a binary column: the index of each row's candidate, never null.

    Rows that a named partitioner does not hash take turns over the candidates. Each batch of rows starts at a random
    candidate. An application's own partitioner picks for every row.
    """
    chosen: str | Partitioner = placed.partitioner if placed.rule is None else placed.rule.name
    topic, count, is_named = placed.topic, len(placed.partitions), placed.rule is not None
    made: list[TopicPartitioner] = []  # the partitioner, made once in each task

    def picked(keys: pd.Series) -> pd.Series:
        forget_archive_finders()
        if not made:
            made.append(topic_partitioner(chosen, topic))
        pick, is_hashed = made[0].partition, made[0].requires_consistency
        turns = itertools.count(random.randrange(count))
        indices = [pick(key, count) if not is_named or is_hashed(key) else next(turns) % count for key in keys.tolist()]
        return pd.Series(indices, dtype="int32")

    udf: Callable[[Column], Column] = _pandas_udf(picked, IntegerType()).asNondeterministic()
    return udf
