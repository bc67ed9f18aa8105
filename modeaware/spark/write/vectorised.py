"""Indices of keys in Python workers, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas import functions

from modeaware.spark.write.placing import Placing
from modeaware.spark.write.worker import forget_archive_finders
from partitioners import Partitioner, TopicPartitioner
from partitioners.columns import partition_column

_pandas_udf: Any = functions.pandas_udf  # its types do not know a function of strings as annotations


def index_udf(placing: Placing) -> Callable[[Column], Column]:
    """A function of a binary column: which of ``placing.partitions`` each row goes to, as an int that is never null.

    Rows that nothing is hashed of take turns, from a random candidate on in each batch of rows.
    """
    name, partitioner, topic, count = placing.name, placing.partitioner, placing.topic, len(placing.partitions)
    picks = _hashed(name or "", count) if partitioner is None else _picked(partitioner, topic, count)
    made: Callable[[Column], Column] = _pandas_udf(picks, "int").asNondeterministic()
    return made


def _hashed(name: str, count: int) -> Callable[[pd.Series], pd.Series]:
    def index(keys: pd.Series) -> pd.Series:
        forget_archive_finders()
        # As an Arrow array again: its bytes are read in place, where NumPy's objects would be one by one.
        return pd.Series(partition_column(pa.array(keys.to_numpy(), pa.binary(), from_pandas=True), count, name))

    return index


def _picked(partitioner: Partitioner, topic: str, count: int) -> Callable[[pd.Series], pd.Series]:
    """The application's own partitioner, row by row; one object for each task."""
    made: list[TopicPartitioner] = []

    def index(keys: pd.Series) -> pd.Series:
        if not made:
            made.append(partitioner.for_topic(topic))
        pick = made[0].partition
        return pd.Series([pick(key, count) for key in keys.tolist()], dtype="int32")

    return index
