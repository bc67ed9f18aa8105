"""The column ``partition`` of a frame that goes to Spark's Kafka sink.

Indices of keys among the candidates are computed in Python workers, a batch of rows at a time, or inside the JVM: CRC32
is SQL's, murmur2 Kafka's own ``Utils.murmur2``, called from generated code through Catalyst's StaticInvoke. That is no
public interface of Spark, and missing over Spark Connect, so the JVM's hashes are compared with ours before their use.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.pandas import functions

from modeaware.callouts import get_logger
from modeaware.errors import ConfigError
from modeaware.spark.connector import HashIn, Placement
from modeaware.spark.worker import forget_archive_finders
from partitioners import Hash, Rule, TopicPartitioner
from partitioners.columns import partition_column

logger = get_logger(__name__)

BLOCK_BITS = 7
"""Records without a key go to one partition in blocks of 128 within a task, which fills the producer's batches."""
_TASK_BITS = 33  # of monotonically_increasing_id: below them it counts a task's rows
_STARTS = 8
"""Where spreading may begin. A literal is part of the generated code: a few different ones stay compiled."""
_TEST_COUNTS = (4, 7, 1000)
_pandas_udf: Any = functions.pandas_udf  # its types do not know a function of strings as annotations


def with_partition(frame: DataFrame, placed: Placement, hash_in: HashIn) -> DataFrame:
    """Return ``frame`` with the column ``partition`` (int, never null).

    A ``partition`` that the frame has is kept where it is not null. A retired one fails the job when its row is
    written. ConfigError where there is no such column, and the partitioner picks none.
    """
    given = "partition" in frame.columns
    if placed.rule is not None and not placed.rule.spreads:
        if not given:
            raise ConfigError(f"{placed.topic}: the partitioner {placed.rule.name!r} needs a column 'partition'")
        ours = _raise(F.lit(f"{placed.topic}: a record has no partition, and {placed.rule.name!r} chooses none"))
    else:
        ours = _index(frame, placed, hash_in)
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


def _index(frame: DataFrame, placed: Placement, hash_in: HashIn) -> Column:
    """Which candidate each row goes to."""
    count, rule = len(placed.partitions), placed.rule
    key = F.col("key").cast("binary") if "key" in frame.columns else None
    if count == 1:
        return F.lit(0)
    if rule is not None and key is None and rule.null_hashed:
        key = F.lit(b"")
    if rule is not None and (rule.hash is None or key is None):
        return spread(count)
    if hash_in == "jvm" and rule is not None and key is not None:
        hashed, why = _index_in_jvm(frame.sparkSession, key, count, rule)
        if hashed is not None:
            return hashed
        logger.warning("%s: keys are hashed in Python: %s", placed.topic, why)
    return index_udf(placed)(F.lit(None).cast("binary") if key is None else key)


def spread(count: int) -> Column:
    """Return an index for rows that are not hashed: blocks of rows take turns, tasks begin at different candidates."""
    row = F.monotonically_increasing_id()
    start = random.randrange(_STARTS) * count // _STARTS
    turn = F.shiftright(row, BLOCK_BITS) + F.shiftright(row, _TASK_BITS) + F.lit(start)
    return (turn % F.lit(count)).cast("int")


def index_udf(placed: Placement) -> Callable[[Column], Column]:
    """Return a function of a binary column: the index of each row's candidate, never null.

    Rows that are not hashed take turns, from a random candidate on in each batch of rows.
    """
    partitioner, topic, count = placed.partitioner, placed.topic, len(placed.partitions)
    name = None if placed.rule is None else placed.rule.name
    made: list[TopicPartitioner] = []  # one for each task

    def hashed(keys: pd.Series) -> pd.Series:
        forget_archive_finders()
        # As an Arrow array again: its bytes are read in place, where NumPy's objects would be one by one.
        return pd.Series(partition_column(pa.array(keys.to_numpy(), pa.binary(), from_pandas=True), count, name or ""))

    def picked(keys: pd.Series) -> pd.Series:
        if not made:
            made.append(partitioner.for_topic(topic))
        pick = made[0].partition
        return pd.Series([pick(key, count) for key in keys.tolist()], dtype="int32")

    udf: Callable[[Column], Column] = _pandas_udf(picked if name is None else hashed, "int").asNondeterministic()
    return udf


def _index_in_jvm(spark: SparkSession, key: Column, count: int, rule: Rule) -> tuple[Column | None, str]:
    """The index by the JVM's hash; or None, and why there is none."""
    placer = rule.placer
    if placer is None or placer.hash not in _FORMS or not placer.is_remainder:
        return None, f"the JVM has no {rule.name}"
    if (why := _why_not(spark, placer.hash)) is not None:
        return None, why
    hashed = _FORMS[placer.hash](spark, key, count)
    if rule.null_hashed:
        return F.coalesce(hashed, F.lit(int(partition_column([b""], count, rule.name)[0]))), ""
    if rule.empty_hashed:
        return F.coalesce(hashed, spread(count)), ""
    return F.when(F.length(key) > 0, hashed).otherwise(spread(count)), ""


_checked: dict[tuple[str, Hash], str | None] = {}
"""Application and hash -> why the JVM's cannot be used; None: it agrees with ours."""


def _why_not(spark: SparkSession, which: Hash) -> str | None:
    application = spark.sparkContext.applicationId if _is_classic(spark) else None
    at = (str(application), which)
    if application is None or at not in _checked:
        _checked[at] = _self_test(spark, which)
    return _checked[at]


def _self_test(spark: SparkSession, which: Hash) -> str | None:
    """Why the JVM's hash cannot be used; None where it agrees with ours: for the empty key, all bytes and lengths."""
    source = random.Random(694)
    keys = [b"", *(bytes([byte]) for byte in range(256)), *(source.randbytes(length) for length in range(2, 130))]
    keys += [source.randbytes(length) for length in (1_000, 4_097, 10_001)]
    keys += [bytes([byte]) * 4 for byte in range(0, 256, 15)]
    name, made = {Hash.MURMUR2: "murmur2", Hash.CRC32: "consistent"}[which], _FORMS[which]
    try:
        column = F.col("key")
        rows = (
            spark.createDataFrame([(key,) for key in keys], "key binary")
            .select("key", F.array(*[made(spark, column, count) for count in _TEST_COUNTS]).alias("indices"))
            .collect()
        )
    except (Py4JError, PySparkException, AttributeError, TypeError) as error:
        return f"the JVM cannot compute {name}: {str(error).splitlines()[0]}"
    by_key = {bytes(row.key): list(row.indices) for row in rows}
    expected = zip(*(partition_column(keys, count, name).tolist() for count in _TEST_COUNTS), strict=True)
    wrong = [key for key, indices in zip(keys, expected, strict=True) if by_key.get(key) != list(indices)]
    return f"the JVM's {name} does not agree with ours, for example on {wrong[0]!r}" if wrong else None


def _is_classic(spark: SparkSession) -> bool:
    return hasattr(spark, "_jvm") and hasattr(spark, "_jsparkSession")


def _crc32(spark: SparkSession, key: Column, count: int) -> Column:
    return (F.crc32(key) % F.lit(count)).cast("int")


def _murmur2(spark: SparkSession, key: Column, count: int) -> Column:
    if not _is_classic(spark):
        raise AttributeError("this session has no JVM of its own (Spark Connect)")
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    utils = jvm.java.lang.Class.forName("org.apache.kafka.common.utils.Utils", True, loader)
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    invoked = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        utils,
        jvm.org.apache.spark.sql.types.DataTypes.IntegerType,
        "murmur2",
        jvm.org.apache.spark.api.python.PythonUtils.toSeq([expressions.expression(key._jc)]),
        jvm.org.apache.spark.api.python.PythonUtils.toSeq([]),
        True,  # null for a null key
        True,
        True,  # deterministic
        jvm.scala.Option.empty(),
    )
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(expressions.column(invoked)).bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(count)


_FORMS: dict[Hash, Callable[[SparkSession, Column, int], Column]] = {Hash.CRC32: _crc32, Hash.MURMUR2: _murmur2}
