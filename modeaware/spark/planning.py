"""The plan of a resize by every record of a topic: a sample selects the hashes to try, and Spark counts the rest.

Records are summed by key and partition in the JVM. Executors hash the keys in columns with NumPy, all rows of a key in
one call. Sums by partition reach the driver; keys do not. The report is that of ``modeaware plan``; see
:mod:`modeaware.plan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.cluster import Cluster
from modeaware.config import ControllerConfig, split_client_config
from modeaware.errors import ConfigError, ErrorCode, RequestRefused
from modeaware.librdkafka import KafkaException
from modeaware.modelog.connection import connection_conf
from modeaware.plan.effects import Counted, Fit, Held, Placed, Question
from modeaware.plan.recognise import Candidate, recognise
from modeaware.plan.report import ResizePlan, ask_for_counts, make_plan
from modeaware.plan.sample import Stretch, look, read_sample
from modeaware.reports.session import Session
from modeaware.spark.source import read_ranges
from partitioners import PLACERS
from partitioners.columns import hash_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_SAMPLE = 10_000
MOST_PARTITIONS = 100_000
"""For one topic: more than brokers hold. A mistyped number must not exhaust the executors' memory."""
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
_PLACERS = tuple(PLACERS)
WHOLES, REALS = 8, 3
HELD, FITS, KEYS = "held", "fits", "keys"
SCHEMA = pa.schema(
    [
        ("what", pa.string()),
        ("at", pa.int32()),
        ("wholes", pa.list_(pa.int64())),
        ("reals", pa.list_(pa.float64())),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
    ]
)
_AT_ONCE = 1 << 16
"""The number of rows hashed together: enough for NumPy, and a column of long keys still fits."""


def plan(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    partitions: int,
    *,
    sample: int = DEFAULT_SAMPLE,
    **options: Any,
) -> ResizePlan:
    """Return the effects of another number of partitions on ``topic``, by every record that it holds now.

        Spark reads each partition once, from its log start to its end at the call. Keys stay on the executors. Nothing
        is changed, no group is joined and nothing is committed; neither a controller nor a mode log is needed.

    ``modeaware.plan.text.plan_text``, ``modeaware.reports.serialise.to_json`` and ``modeaware.plan.html.plan_html``
    show the result as ``modeaware plan`` does.

    Args:
        conf: as for :class:`modeaware.Consumer`; only its connection settings are used.
        partitions: the number to plan for.
        sample: how many records the driver reads at most.
        options: further options of Spark's Kafka source, such as ``minPartitions``.

    Raises:
        RequestRefused: the topic does not exist, or ``partitions`` is its present number, or not 1 to 100 000.
        ClusterError: the brokers do not answer, or the topic cannot be read.
        ConfigError: a setting that a client does not accept.
        MissingExtra: kafka-python is not installed (``modeaware[controller]``).
    """
    if partitions > MOST_PARTITIONS:
        raise RequestRefused(
            f"{partitions} partitions: a plan may have at most {MOST_PARTITIONS}",
            code=ErrorCode.INVALID_PARTITIONS,
            topic=topic,
        )
    config, connection = split_client_config(conf)
    connection = connection_conf(connection, "plan")
    try:
        cluster = Cluster(connection)
    except KafkaException as error:
        raise ConfigError(f"client settings: {error.args[0].str()}") from error
    with Session(connection, config, ControllerConfig(), cluster) as session:
        snapshot = look(session, topic)
    read = read_sample(connection, topic, snapshot.facts.partition_count, snapshot.logs, sample)
    recognition = recognise(read)
    question = ask_for_counts(read, recognition, partitions)
    counted = count(spark, topic, conf, question, snapshot.logs, {name: str(value) for name, value in options.items()})
    now_ms = SYSTEM_CLOCK.now_ms()
    return make_plan(snapshot, read, partitions, now_ms, recognition=recognition, counted=counted)


def count(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    question: Question,
    logs: Mapping[int, Stretch],
    options: Mapping[str, str],
) -> Counted:
    """Count every record of ``logs``; no key reaches the driver."""
    tally, logs = Tally(question), {partition: log for partition, log in logs.items() if log.length > 0}
    if logs:
        starts, ends = {p: log.start for p, log in logs.items()}, {p: log.end for p, log in logs.items()}
        # Records that retention removes meanwhile are not counted; with fixed offsets no others can be missed. Records
        # of open and aborted transactions count: the plan is about the places of records.
        options = {"failOnDataLoss": "false", **options}
        records = read_ranges(spark, topic, conf, ends, starts, "read_uncommitted", options)
        for row in _summed(records, question).collect():
            tally.merge(Sums(*row))
    return tally.counted()


def _summed(records: DataFrame, question: Question) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the usual name
    from pyspark.sql.pandas.types import from_arrow_schema

    def length(name: str) -> Any:
        return F.coalesce(F.octet_length(name), F.lit(0)).cast("bigint")

    headers = F.aggregate(
        "headers",
        F.lit(0).cast("bigint"),
        lambda size, header: (
            size + F.octet_length(header["key"]) + F.coalesce(F.octet_length(header["value"]), F.lit(0))
        ),
    )
    size = length("key") + length("value") + F.coalesce(headers, F.lit(0))
    by_key = (
        records.select("key", "partition", size.alias("size"), F.unix_millis("timestamp").alias("stamp_ms"))
        # First by both: a key (or none) that most records have is counted where it is read.
        .groupBy("key", "partition")
        .agg(
            F.count("*").alias("records"),
            F.sum("size").alias("sizes"),
            F.coalesce(F.min(F.when(F.col("stamp_ms") > 0, F.col("stamp_ms"))), F.lit(-1)).alias("first_ms"),
            F.max("stamp_ms").alias("last_ms"),
        )
        .repartition("key")
        .sortWithinPartitions("key")
    )
    return (
        by_key.mapInArrow(Counting(question), from_arrow_schema(SCHEMA))
        .groupBy("what", "at")
        .agg(
            F.array(*[F.sum(F.col("wholes")[at]) for at in range(WHOLES)]).alias("wholes"),
            F.array(*[F.sum(F.col("reals")[at]) for at in range(REALS)]).alias("reals"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
        )
    )


# On the executors


class Sums(NamedTuple):
    """A sum for one subject, to be added over all tasks; a row of :data:`SCHEMA`.

    ``what`` is HELD, of a partition; FITS, of a candidate; KEYS, of all keys; or a count, of one of its partitions.
    """

    what: str
    at: int
    wholes: list[int]
    reals: list[float]
    first_ms: int | None = None
    last_ms: int | None = None


class Rows(NamedTuple):
    """Records and bytes by key and partition; the rows of one key are adjacent. A timestamp below 1 means none."""

    keys: Any
    partitions: Integers
    records: Integers
    sizes: Integers
    first_ms: Integers
    last_ms: Integers

    def only(self, which: Flags) -> Rows:
        at = np.flatnonzero(which)
        return Rows(self.keys.take(at), *(column[at] for column in self[1:]))


class Tally:
    """The sums of one task, or of all of them. For one thread."""

    def __init__(self, question: Question) -> None:
        self._question = question
        # Evidence of each placer over the topic's count, then the placements, each tried on what earlier ones left.
        self._candidates = [*(Candidate(name, question.count) for name in _PLACERS), *question.placements]
        lengths = {HELD: question.count, FITS: len(self._candidates), KEYS: 1}
        lengths |= {str(count): count for count in question.counts}
        self._wholes = {what: np.zeros((length, WHOLES), np.int64) for what, length in lengths.items()}
        self._reals = {what: np.zeros((lengths[what], REALS)) for what in (FITS, KEYS)}
        self._first_ms = np.full(question.count, np.iinfo(np.int64).max)
        self._last_ms = np.zeros(question.count, np.int64)

    def add(self, rows: Rows) -> None:
        """Count some rows: all of each of their keys."""
        null = rows.keys.is_null().to_numpy(zero_copy_only=False)
        empty = (_lengths(rows.keys) == 0) & ~null
        columns = [part * which for which in (True, null, empty) for part in (rows.records, rows.sizes)]
        np.add.at(self._wholes[HELD][:, : len(columns)], rows.partitions, np.stack(columns, axis=1))
        np.maximum.at(self._last_ms, rows.partitions, rows.last_ms)
        stamped = rows.first_ms > 0
        np.minimum.at(self._first_ms, rows.partitions[stamped], rows.first_ms[stamped])
        keyed = rows.only(~(null | empty))
        if len(keyed.partitions):
            self._add_keyed(keyed)

    def sums(self) -> Iterator[Sums]:
        """Yield the sums that are not zero."""
        for what, wholes in self._wholes.items():
            reals = self._reals.get(what)
            for at in np.flatnonzero(wholes.any(axis=1)).tolist():
                stamped = what == HELD and self._last_ms[at] > 0
                yield Sums(
                    what,
                    at,
                    wholes[at].tolist(),
                    [0.0] * REALS if reals is None else reals[at].tolist(),
                    int(self._first_ms[at]) if stamped else None,
                    int(self._last_ms[at]) if stamped else None,
                )

    def merge(self, sums: Sums) -> None:
        """Add the sums of other tasks."""
        self._wholes[sums.what][sums.at] += np.asarray(sums.wholes, np.int64)
        if sums.what in self._reals:
            self._reals[sums.what][sums.at] += np.asarray(sums.reals)
        if sums.first_ms is not None and sums.last_ms is not None:
            self._first_ms[sums.at] = min(self._first_ms[sums.at], sums.first_ms)
            self._last_ms[sums.at] = max(self._last_ms[sums.at], sums.last_ms)

    def counted(self) -> Counted:
        """Return the answer to the question."""
        held, placed, fits = {}, {}, []
        for sums in self.sums():
            if sums.what == HELD:
                held[sums.at] = Held(*sums.wholes[:6])._replace(first_ms=sums.first_ms, last_ms=sums.last_ms)
            elif sums.what not in (FITS, KEYS):
                placed[int(sums.what), sums.at] = Placed(*sums.wholes)
        for wholes, reals in zip(self._wholes[FITS].tolist(), self._reals[FITS].tolist(), strict=True):
            fits.append(Fit(*wholes[:2], *reals))
        evidence = dict(zip(_PLACERS, fits, strict=False))
        keys, repeated = self._wholes[KEYS][0, :2].tolist()
        together = float(self._reals[KEYS][0, 0])
        return Counted(self._question, held, placed, evidence, tuple(fits[len(_PLACERS) :]), keys, repeated, together)

    def _add_keyed(self, rows: Rows) -> None:
        starts = _key_starts(rows.keys)
        key = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(rows.keys)))  # the key number of each row
        places = _Places(rows.keys.take(starts))
        of_key = np.add.reduceat(rows.records, starts)
        repeated = of_key > 1
        pairs = np.add.reduceat(rows.records * (rows.records - 1), starts)[repeated]
        possible = of_key[repeated] * (of_key[repeated] - 1)
        self._wholes[KEYS][0, :2] += (len(starts), len(pairs))
        self._reals[KEYS][0, 0] += (pairs / possible).sum()
        share, left = rows.records / of_key[key], np.ones(len(key), np.bool_)
        present = self._question.present
        chosen = np.full(len(key), -1 if present is None else _PLACERS.index(present))
        for at, candidate in enumerate(self._candidates):
            matching = left & (places.of(candidate)[key] == rows.partitions)
            low = left & (rows.partitions < candidate.over)
            tried = key[left]
            different = int(np.count_nonzero(np.diff(tried))) + 1 if len(tried) else 0
            self._wholes[FITS][at, :2] += (different, rows.records[matching].sum())
            self._reals[FITS][at] += (share[matching].sum(), share[left].sum(), share[low].sum())
            if at >= len(_PLACERS):  # a placement: later placements are tried on the rest
                chosen[matching] = _PLACERS.index(candidate.name)
                left = left & ~matching
        if present is not None:
            self._add_placed(places, key, chosen, rows)

    def _add_placed(self, places: _Places, key: Integers, chosen: Integers, rows: Rows) -> None:
        cases, of_case = np.unique(key * len(_PLACERS) + chosen, return_inverse=True)
        records, sizes = (_sums_of(of_case, column, len(cases)) for column in (rows.records, rows.sizes))
        key, placer = cases // len(_PLACERS), cases % len(_PLACERS)
        ones = np.ones(len(cases), np.int64)
        before = places.of_cases(key, placer, self._question.base)
        for count in self._question.counts:
            after = before if count == self._question.base else places.of_cases(key, placer, count)
            moved, stay = (before != after).astype(np.int64), (before < count).astype(np.int64)
            columns = (ones, moved, stay, stay * moved, records, records * moved, sizes, sizes * moved)
            np.add.at(self._wholes[str(count)], after, np.stack(columns, axis=1))


class _Places:
    """The partitions that placers give different keys; each hash and each placement is computed once."""

    def __init__(self, keys: Any) -> None:
        hashed = cache(lambda which: hash_column(keys, which))

        def of(candidate: Candidate) -> Integers:
            placer = PLACERS[candidate.name]
            indices: Integers = placer.column(hashed(placer.hash).copy(), candidate.over).astype(np.int64)
            return indices

        self.of = cache(of)

    def of_cases(self, key: Integers, placer: Integers, count: int) -> Integers:
        """Return the partition of each case: a key by its number, a placer by its index."""
        partitions = np.empty(len(key), np.int64)
        for at in np.unique(placer).tolist():
            own = placer == at
            partitions[own] = self.of(Candidate(_PLACERS[at], count))[key[own]]
        return partitions


class Counting:
    """The function of ``mapInArrow``, on executors: batches sorted by key become one batch of sums. Picklable."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        tally = Tally(self._question)
        waiting: list[Any] = []
        for batch in batches:
            waiting.append(batch)
            if sum(part.num_rows for part in waiting) >= _AT_ONCE:
                table = pa.Table.from_batches(waiting)
                whole = int(_key_starts(_keys(table))[-1])  # the rows of the last key may continue in the next batch
                tally.add(_rows(table.slice(0, whole)))
                waiting = table.slice(whole).to_batches()
        if any(part.num_rows for part in waiting):
            tally.add(_rows(pa.Table.from_batches(waiting)))
        yield pa.RecordBatch.from_pylist([sums._asdict() for sums in tally.sums()], SCHEMA)


def _keys(table: Any) -> Any:
    chunks = table.column("key").combine_chunks()
    return chunks.combine_chunks() if hasattr(chunks, "combine_chunks") else chunks


def _rows(table: Any) -> Rows:
    names = ("partition", "records", "sizes", "first_ms", "last_ms")
    return Rows(_keys(table), *(table.column(name).to_numpy().astype("int64") for name in names))


def _key_starts(keys: Any) -> Integers:
    """Return where the rows of each key begin, in a column that is not empty."""
    before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
    differ = pc.or_(pc.fill_null(pc.not_equal(after, before), False), pc.xor(after.is_null(), before.is_null()))
    return np.concatenate([[0], np.flatnonzero(differ.to_numpy(zero_copy_only=False)) + 1])


def _lengths(keys: Any) -> Integers:
    lengths: Integers = pc.fill_null(pc.binary_length(keys), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _sums_of(groups: Integers, column: Integers, count: int) -> Integers:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, groups, column)
    return sums
