"""Hashes of keys inside the JVM, checked against ours before they are used.

CRC32 is SQL's. murmur2 is Kafka's own ``Utils.murmur2``, called from generated code through Catalyst's StaticInvoke:
not a public interface of Spark, and not there over Spark Connect.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from partitioners import RULES, Hash
from partitioners.columns import partition_column
from partitioners.table import OUR_RULES

_TEST_COUNTS = (4, 7, 1000)
_checked: dict[tuple[str, Hash], str | None] = {}
"""Application and hash -> why the JVM's cannot be used; None: it agrees with ours."""


def index_in_jvm(spark: SparkSession, key: Column, name: str, count: int) -> tuple[Column | None, str]:
    """The index among ``count`` candidates of each key by the partitioner ``name``, where keys are hashed and not null.

    Args:
        key: a binary column.

    Returns:
        the column, which is null where the key is; or None and why there is none.
    """
    rule = RULES.get(name) or OUR_RULES[name]
    if rule.hash is None or rule.hash not in _FORMS or name == "minimal_movement":
        return None, f"the JVM has no {name}"
    why = _why_not(spark, rule.hash)
    if why is not None:
        return None, why
    return _FORMS[rule.hash](spark, key, count), ""


def _why_not(spark: SparkSession, which: Hash) -> str | None:
    application = getattr(getattr(spark, "sparkContext", None), "applicationId", None) if _is_classic(spark) else None
    at = (str(application), which)
    if application is None or at not in _checked:
        _checked[at] = self_test(spark, which)
    return _checked[at]


def self_test(spark: SparkSession, which: Hash, form: Callable[..., Column] | None = None) -> str | None:
    """Why the JVM's ``which`` (or ``form`` in its place) cannot be used; None where it gives what ours gives, for some
    hundred keys: the empty one, every byte, all lengths up to 130, long ones."""
    keys = test_keys()
    name = {Hash.MURMUR2: "murmur2", Hash.CRC32: "consistent"}[which]
    made = form or _FORMS[which]
    try:
        column = F.col("key")
        rows = (
            spark.createDataFrame([(key,) for key in keys], "key binary")
            .select("key", F.array(*[made(spark, column, count) for count in _TEST_COUNTS]).alias("found"))
            .collect()
        )
    except (Py4JError, PySparkException, AttributeError, TypeError) as error:
        return f"the JVM cannot compute {name}: {str(error).splitlines()[0]}"
    by_key = {bytes(row.key): list(row.found) for row in rows}
    expected = zip(*(partition_column(keys, count, name).tolist() for count in _TEST_COUNTS), strict=True)
    wrong = [key for key, found in zip(keys, expected, strict=True) if by_key.get(key) != list(found)]
    return f"the JVM's {name} does not agree with ours, on {wrong[0]!r} for one" if wrong else None


def test_keys() -> list[bytes]:
    """Different keys to compare hashes on."""
    source = random.Random(694)
    keys = [b"", *(bytes([byte]) for byte in range(256)), *(source.randbytes(length) for length in range(2, 130))]
    keys += [source.randbytes(length) for length in (1_000, 4_097, 10_001)]
    keys += [bytes([byte]) * 4 for byte in range(0, 256, 15)]
    return keys


def _is_classic(spark: SparkSession) -> bool:
    return hasattr(spark, "_jvm") and hasattr(spark, "_jsparkSession")


def _crc32(spark: SparkSession, key: Column, count: int) -> Column:
    return (F.crc32(key) % F.lit(count)).cast("int")


def _murmur2(spark: SparkSession, key: Column, count: int) -> Column:
    return _kafkas_murmur2(spark, key).bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(count)


def _kafkas_murmur2(spark: SparkSession, key: Column) -> Column:
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

    return ClassicColumn(expressions.column(invoked))


_FORMS: dict[Hash, Callable[[SparkSession, Column, int], Column]] = {
    Hash.CRC32: _crc32,
    Hash.MURMUR2: _murmur2,
}
