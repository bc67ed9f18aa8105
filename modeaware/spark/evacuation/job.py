"""The evacuation of a compacted topic that is being shrunk or replaced, from the seals to the proof."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from modeaware.callouts import get_logger
from modeaware.clock import SYSTEM_CLOCK
from modeaware.config import split_client_config
from modeaware.errors import ClusterError
from modeaware.librdkafka import Consumer, KafkaException, TopicPartition
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import evacuation_of
from modeaware.lifecycle.state import in_progress
from modeaware.modelog.connection import connection_conf
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modes import PartitionMode, format_ranges
from modeaware.plan.recognise import recognise
from modeaware.plan.sample import Sample, SampledRecord, Stretch
from modeaware.spark.errors import EvacuationFailed, NothingToEvacuate, NotSealed, OtherPartitioner
from modeaware.spark.evacuation.copies import Copied, Copy, CopyJob, copy_all
from modeaware.spark.evacuation.versions import DIGEST_SQL, HEADER, KeyPlaces, Order, Source, Verdict, Version, number
from modeaware.spark.snapshot import TopicClient
from modeaware.spark.source import read_ranges
from modeaware.topic_view import TopicView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = get_logger(__name__)

DEFAULT_WAIT_S = 300.0
DEFAULT_PASSES = 10
LOG_TIMEOUT_S = 30.0
CHECK_EVERY_S = 1.0
RETENTION = "delete.retention.ms"
_COMMITTED = {"isolation.level": "read_committed"}
LEAST_SHARE = 0.99
"""Of the keys in the retired partitions, how many must lie where the partitioner places them."""
_RECOGNISED_KEYS = 10_000
_NO_LEADER_EPOCH = -1
UNKEYED = "unkeyed"
"""Beside the verdicts: a partition's records without a key."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema(
    [
        ("verdict", pa.string()),
        ("records", pa.int64()),  # of an UNKEYED row
        ("placed", pa.bool_()),  # whether the key lies where the partitioner places it; null: its bytes do not tell
        ("home", pa.int32()),
        ("key", pa.binary()),
        ("partition", pa.int32()),
        # Of keys to be copied alone:
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("source", pa.string()),
        ("digest", pa.string()),
    ]
)


@dataclass(frozen=True)
class EvacuationReport:
    """The figures of an evacuation whose proof is committed.

    Attributes:
        topic: its name.
        group: the consumer group whose commits are the proof.
        seals: retired partition -> the offset up to which it is evacuated. Empty: nothing was left to do.
        keys: how many keys the retired partitions hold.
        copied: how many of them were copied to the partition they belong to now.
        tombstones: how many of those are deleted keys (null values).
        placed: keys whose copy an earlier run has made.
        newer: keys that have a newer value in a partition that stays.
        repaired: values written once more, because an aborted copy lies behind them.
        retries: how many transactions of copies were aborted because a producer had written one of their keys.
        unkeyed: records without a key in the retired partitions; compaction does not apply to them, they stay behind.
        passes: how often the partitions were read: more than once where a seal was broken meanwhile.
    """

    topic: str
    group: str
    seals: Mapping[int, int]
    keys: int = 0
    copied: int = 0
    tombstones: int = 0
    placed: int = 0
    newer: int = 0
    repaired: int = 0
    retries: int = 0
    unkeyed: int = 0
    passes: int = 0

    def __str__(self) -> str:
        if not self.seals:
            return f"{self.topic}: every retired partition is evacuated already."
        lines = [
            f"{self.topic}: partitions {format_ranges(sorted(self.seals))} are evacuated, each up to its seal.",
            f"  {self.keys} keys: {self.copied} copied ({self.tombstones} of them as deleted ones).",
            f"  {self.placed} were copied before, {self.newer} have a newer value where they belong now.",
        ]
        if self.retries:
            lines.append(
                f"  Producers wrote the same keys meanwhile: {self.retries} transactions of copies were aborted and "
                f"retried; {self.repaired} newer values were written once more."
            )
        if self.unkeyed:
            lines.append(f"  {self.unkeyed} records without a key stay behind.")
        lines.append(f"  The proof is committed for group {self.group!r}; the controller's next check finds it.")
        return "\n".join(lines)


def evacuate(
    spark: SparkSession,
    topic: str,
    conf: Mapping[str, Any],
    *,
    wait_s: float = DEFAULT_WAIT_S,
    passes: int = DEFAULT_PASSES,
    check_partitioner: bool = True,
    options: Mapping[str, str] | None = None,
) -> EvacuationReport:
    """Copy the latest value of each key in the retired partitions to the partition it belongs to now, and prove that.

    For a shrink of a compacted topic that was requested with ``--evacuate``: no retired partition becomes NONE before
    this has run. A key whose value in a partition that stays is newer is left alone, whenever that value arrives. For a
    replacement the same: the values of the whole topic are copied to its successor, and it is not let go before.

    Deleted keys are copied as null values. Keys, headers and timestamps are kept (not with ``LogAppendTime``), and one
    header is added. Producers and consumers continue meanwhile.

    Run it within ``delete.retention.ms`` of the shrink (24 h by default): later, the tombstone of a key deleted in the
    meantime may be gone. It may be stopped and run again at any time, and copies nothing twice. Of two at once the
    later one stops the other. The proof is the offsets that it commits at the end for the shrink's group.

    The user needs, beside reading and writing the topic and reading the mode log: WRITE and DESCRIBE on the
    transactional ids ``modeaware-evacuation-<topic>-*``, READ on the group ``modeaware-evacuation-<topic>-*``. Of a
    topic that is replaced the transactional ids, and the right to write, are those of its successor.

    Args:
        conf: as for :class:`modeaware.Producer`; its ``partitioner`` must be that of the topic's producers.
        wait_s: how long to wait for the seals, in seconds.
        passes: how often to begin again where a seal is broken meanwhile, and how often to try the copy of a key that
            producers keep writing.
        check_partitioner: refuse where less than 99 % of the keys lie where ``partitioner`` places them.
        options: more options of Spark's Kafka source, such as ``minPartitions``.

    Raises:
        NothingToEvacuate: no such shrink or replacement of the topic is in force.
        NotSealed: retired partitions are not sealed within ``wait_s``.
        OtherPartitioner: another partitioner has placed the keys.
        EvacuationFailed: no proof is committed. From an executor it arrives as Spark's ``PythonException``.
        ModeSourceError, ClusterError, ConfigError: see their messages.
    """
    places = KeyPlaces.of(conf, topic)
    client = TopicClient({**conf, **_COMMITTED}, topic)
    for attempt in range(1, passes + 1):
        shrink = await_seals(conf, topic, wait_s)
        if not shrink.seals:
            return EvacuationReport(topic, shrink.group, {})
        check_topic_id(client, shrink)
        logger.info("%s: evacuating partitions %s", topic, format_ranges(sorted(shrink.seals)))
        target = client if shrink.successor is None else TopicClient({**conf, **_COMMITTED}, shrink.successor)
        if attempt == 1:
            warn_of_lost_tombstones(target, shrink.order.admitted_ms)
        log_starts = client.starts(shrink.starts)
        starts = {p: start for p, start in shrink.starts.items() if start > log_starts[p]}
        ends = target.ends(shrink.survivors)
        frame = judged(spark, conf, shrink, places, starts, ends, dict(options or {}))
        job = CopyJob(target.topic, shrink.topic_id, shrink.epoch, dict(conf), shrink.order, ends, passes)
        report = _copy(frame, job, shrink, places if check_partitioner else None)
        now, _ = read_shrink(conf, topic)
        if shrink.still_holds(now):
            check_topic_id(client, shrink)
            _prove(conf, shrink, report)
            return replace(report, passes=attempt)
        logger.warning("%s: its retired partitions or their seals have changed meanwhile; reading again", topic)
    raise EvacuationFailed(
        f"{topic}: its retired partitions or their seals changed in each of {passes} passes (a producer that honours "
        "no modes?); no proof is committed",
        topic=topic,
    )


# The shrink, as the mode log has it


@dataclass(frozen=True)
class EvacuatingShrink:
    """What is to be done. Work done for it counts while the record says the same.

    Attributes:
        topic_id: in Kafka's base64 form.
        group: the consumer group that proves this evacuation.
        epoch: the evacuation's, which is in the group's name and in the header of each copy.
        count: how many partitions were writable before the shrink.
        survivors: the writable partitions, ascending: where keys belong now.
        seals: retired partition -> the offset up to which to evacuate it; without those that are evacuated.
        starts: where to begin in retired partitions that were evacuated up to there before. For a key without later
            records the survivors are complete: its tombstone there may be compacted away by now.
        seal_epochs: the leader epochs of the seals, where known.
        order: which value is the newest.
        successor, successor_id: of a topic that is replaced, the topic whose partitions are the survivors.
    """

    topic: str
    topic_id: str
    group: str
    epoch: int
    count: int
    survivors: tuple[int, ...]
    seals: Mapping[int, int]
    starts: Mapping[int, int]
    seal_epochs: Mapping[int, int]
    order: Order
    successor: str | None = None
    successor_id: str | None = None

    def still_holds(self, now: EvacuatingShrink | None) -> bool:
        """Whether work done for this is what ``now`` requires. Partitions may have become None: empty ones do so
        without an evacuation."""
        if now is None or (now.topic_id, now.group) != (self.topic_id, self.group):
            return False
        if (now.survivors, now.successor_id) != (self.survivors, self.successor_id):
            return False
        return now.seals.items() <= self.seals.items()


def shrink_of(topic: str, record: TopicRecord | None) -> EvacuatingShrink | None:
    """Return what a record requires; None while one of its retired partitions is not sealed. Raises NothingToEvacuate
    where no shrink of the topic is in force, or one without an evacuation."""
    group = evacuation_of(record)
    if record is None or record.deletion is None or group is None:
        found = "no shrink is in force" if record is None or record.deletion is None else "its shrink evacuates nothing"
        raise NothingToEvacuate(
            f"topic {topic!r}: {found}; start one with modeaware shrink --evacuate or modeaware replace --evacuate",
            topic=topic,
        )
    # A partition in mode None was evacuated, by this shrink or an earlier one: later records lie elsewhere.
    left = {
        p: retired
        for p, retired in record.retired.items()
        if record.modes[p] is PartitionMode.READ_ONLY and not retired.opening
    }
    seals = {p: retired.seal_offset for p, retired in left.items() if retired.seal_offset is not None}
    if len(seals) < len(left):
        return None
    firsts = {p: r.resume_offset for p, r in left.items() if r.resume_offset is not None}
    switches = {p: r.switch_offset for p, r in left.items() if r.switch_offset is not None}
    survivors = tuple(p for p, mode in enumerate(record.modes) if mode.writable)
    return EvacuatingShrink(
        topic,
        record.topic_id,
        group,
        record.deletion.evacuation_epoch,
        record.deletion.previous_count,
        survivors,
        seals,
        {p: r.evacuated_to for p, r in left.items() if r.evacuated_to is not None},
        {p: r.seal_leader_epoch for p, r in left.items() if r.seal_leader_epoch is not None},
        Order(
            {p: offset for p, offset in record.switch_offsets.items() if p in survivors},
            {**seals, **firsts, **switches},
            record.deletion.create_timestamp_ms,
        ),
    )


def read_shrink(conf: Mapping[str, Any], topic: str) -> tuple[EvacuatingShrink | None, TopicRecord | None]:
    """Return :func:`shrink_of` the record on the mode log now, or :func:`replaced_of` it, and the record."""
    config, rest = split_client_config(conf)
    replay = read_mode_log(rest, config.mode_log_topic, LOG_TIMEOUT_S)
    record = replay.record(topic)
    if record is None or record.replacement is None:
        return shrink_of(topic, record), record
    now = record.replacement
    successor = next((r for r in replay.records_of(now.successor) if r.topic_id == now.successor_id), None)
    is_sealed = now.switched_ms is not None and all(r.seal_offset is not None for r in record.retired.values())
    partitions = successor_partitions(conf, now, successor) if is_sealed and now.gone_ms is None else ()
    return replaced_of(record, now, partitions), record


def successor_partitions(
    conf: Mapping[str, Any], replacement: Replacement, record: TopicRecord | None
) -> tuple[int, ...]:
    """Return the writable partitions of the successor, which has ``record``; EvacuationFailed while it is changed: keys
    would be copied to where producers do not write them."""
    name = replacement.successor
    found = TopicClient(conf, name).describe()
    view = TopicView.unlisted(name) if record is None else record.view()
    writable = tuple(p for p in found.partitions if view.mode(p).writable)
    if found.topic_id != replacement.successor_id or in_progress(record) or not writable:
        why = "another topic has its name" if found.topic_id != replacement.successor_id else "it is changed itself"
        raise EvacuationFailed(f"topic {name!r} cannot take copies now: {why}; run the evacuation later", topic=name)
    return writable


def replaced_of(record: TopicRecord, replacement: Replacement, partitions: tuple[int, ...]) -> EvacuatingShrink | None:
    """Return what the record of a topic that is replaced requires; None before all its partitions are sealed.
    NothingToEvacuate as of :func:`shrink_of`.

    Args:
        partitions: the successor's.
    """
    group = evacuation_of(record)
    if group is None or replacement.evacuation_epoch is None or replacement.gone_ms is not None:
        found = "its replacement evacuates nothing" if group is None else "it is replaced and gone"
        raise NothingToEvacuate(f"topic {record.topic!r}: {found}", topic=record.topic)
    ends = {p: r.seal_offset for p, r in record.retired.items() if r.seal_offset is not None}
    if replacement.switched_ms is None or len(ends) < len(record.retired):
        return None
    left = {p: r for p, r in record.retired.items() if not r.evacuated_to_seal}
    seals = {p: ends[p] for p in left}
    return EvacuatingShrink(
        record.topic,
        record.topic_id,
        group,
        replacement.evacuation_epoch,
        len(record.modes),
        partitions,
        seals,
        {p: r.evacuated_to for p, r in left.items() if r.evacuated_to is not None},
        {p: r.seal_leader_epoch for p, r in left.items() if r.seal_leader_epoch is not None},
        # Copies of what was evacuated before are compared with stragglers: nothing of the topic is late.
        Order(dict.fromkeys(partitions, 0), {number(p): end for p, end in ends.items()}, replacement.switched_ms),
        replacement.successor,
        replacement.successor_id,
    )


def await_seals(conf: Mapping[str, Any], topic: str, wait_s: float) -> EvacuatingShrink:
    """Return the shrink in force once every partition that it retires is sealed; NotSealed after ``wait_s`` seconds."""
    deadline_s, logged = time.monotonic() + wait_s, False
    while True:
        shrink, record = read_shrink(conf, topic)
        if shrink is not None:
            return shrink
        assert record is not None, "a shrink is in force"
        waiting = {p: r.reason for p, r in record.retired.items() if r.seal_offset is None and not r.opening}
        if time.monotonic() >= deadline_s:
            held_up = [*waiting.values(), record.replacement.reason if record.replacement is not None else None]
            why = {reasons.text(reason) for reason in held_up if reason is not None}
            what = f"partitions {format_ranges(sorted(waiting))} are" if waiting else "it is"
            raise NotSealed(
                f"{topic}: {what} not sealed within {wait_s:g} s: "
                f"{'; '.join(sorted(why)) or 'is the controller running?'}. Nothing was copied",
                topic=topic,
            )
        if not logged:
            logger.info(
                "%s: waiting for the seals of partitions %s", topic, format_ranges(sorted(waiting)) or "to come"
            )
            logged = True
        time.sleep(CHECK_EVERY_S)  # the controller seals quiet partitions in its own time


def check_topic_id(client: TopicClient, shrink: EvacuatingShrink) -> None:
    """Verify that the live topic is the one of the mode log; NothingToEvacuate where another has its name now."""
    found = client.describe().topic_id
    if found is None:
        raise ClusterError(f"topic {shrink.topic!r}: the brokers return no topic ids", topic=shrink.topic)
    if found != shrink.topic_id:
        raise NothingToEvacuate(
            f"topic {shrink.topic!r} was deleted and recreated after its shrink: its id is {found}, and "
            f"{shrink.topic_id} in the mode log. The controller removes the old record by itself",
            topic=shrink.topic,
        )


def warn_of_lost_tombstones(client: TopicClient, admitted_ms: int) -> None:
    """Log a warning where a change is older than the topic keeps tombstones: of one that is replaced, the successor.

    The tombstone of a key deleted since then lies in another partition than its value. Once compaction has dropped it,
    nothing shows that the value is deleted, and the evacuation copies it.
    """
    try:
        kept_ms = client.setting(RETENTION)
    except ClusterError as error:
        logger.info("%s: its %s is unknown: %s", client.topic, RETENTION, error)
        return
    if kept_ms is not None and kept_ms.isdecimal() and SYSTEM_CLOCK.now_ms() - admitted_ms > int(kept_ms):
        logger.warning(
            "%s: the change is older than %s (%s ms): tombstones of keys deleted since may be gone, and then the old "
            "values are copied",
            client.topic,
            RETENTION,
            kept_ms,
        )


# What becomes of each key of the retired partitions


def judged(
    spark: SparkSession,
    conf: Mapping[str, Any],
    shrink: EvacuatingShrink,
    places: KeyPlaces,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    options: Mapping[str, str],
) -> DataFrame:
    """Return a row with a verdict for each key of the retired partitions, which are read from ``starts`` or their log
    starts to their seals, and the survivors to ``ends``."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name
    from pyspark.sql.pandas.types import from_arrow_schema

    def last_of(topic: str, ends: Mapping[int, int], starts: Mapping[int, int], *columns: str) -> DataFrame:
        """The last record of each key and partition, and how many there are."""
        ours = F.filter("headers", lambda header: header["key"] == F.lit(HEADER))
        partition = F.col("partition") if topic == target else F.lit(number(0)) - F.col("partition")
        source = F.try_element_at(ours, F.lit(-1))["value"].cast("string")
        records = read_ranges(spark, topic, conf, ends, starts, "read_committed", options).select(
            *("key", "value", "headers", partition.alias("partition"), "offset"),
            F.unix_millis("timestamp").alias("timestamp_ms"),
            source.alias("source"),
            F.when(source.isNotNull(), F.expr(DIGEST_SQL)).alias("digest"),
        )
        last = F.max_by(F.struct("partition", "offset", "timestamp_ms", "source", "digest", *columns), "offset")
        return records.groupBy("key", "partition").agg(last.alias("last"), F.count("*").alias("records"))

    target = shrink.topic if shrink.successor is None else shrink.successor
    retired = (
        last_of(shrink.topic, shrink.seals, starts, "value", "headers")
        .groupBy("key")
        .agg(F.collect_list("last").alias("retired"), F.sum("records").alias("records"))
    )
    survivors = (
        last_of(target, ends, {})
        .where(F.col("key").isNotNull())
        .groupBy("key")
        .agg(F.collect_list("last").alias("survivors"))
    )
    joined = retired.join(survivors, "key", "left").select("key", "records", "retired", "survivors")
    return joined.mapInArrow(_Judge(shrink, places), from_arrow_schema(_ARROW))


@dataclass(frozen=True)
class _Judge:
    """What ``mapInArrow`` calls on the executors."""

    shrink: EvacuatingShrink
    places: KeyPlaces

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist(list(self._rows(batch.to_pylist())), schema=_ARROW)

    def _rows(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        shrink, keys = self.shrink, [row["key"] or b"" for row in rows]
        indices = self.places.indices(keys, len(shrink.survivors)).tolist()
        before = self.places.indices(keys, shrink.count).tolist()
        empty_placed = self.places.empty_placed
        for row, index, index_before in zip(rows, indices, before, strict=True):
            key, home = row["key"], shrink.survivors[index]
            if key is None:
                yield {"verdict": UNKEYED, "records": row["records"]}
                continue
            retired = {version_of(last, shrink.topic_id): last for last in row["retired"]}
            survivors = [version_of(last, shrink.topic_id) for last in row["survivors"] or ()]
            verdict, version = shrink.order.decide(list(retired), survivors, home)
            places = {max(last.partition, number(last.partition)) for last in retired}  # not as they are numbered
            lie = {p for p in places if p < shrink.count}
            yield {
                "verdict": verdict.value,
                "placed": index_before in lie if lie and (key or empty_placed) else None,
                "home": home,
                "partition": min(lie, default=None),
                **(retired[version] if verdict is Verdict.COPY else {}),
                "key": key,
            }


def version_of(record: Mapping[str, Any], evacuated_id: str) -> Version:
    """Return the version of a record with the columns of a row; ``evacuated_id``: of the topic that is evacuated."""
    source = Source.parse(record["source"], evacuated_id, record["digest"])
    return Version(record["partition"], record["offset"], record["timestamp_ms"], source)


# Copies, and the proof


def _copy(frame: DataFrame, job: CopyJob, shrink: EvacuatingShrink, checked: KeyPlaces | None) -> EvacuationReport:
    """Count the verdicts, check the partitioner by them, and copy."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        rows = (
            frame.groupBy("verdict")
            .agg(
                F.count("*").alias("keys"),
                F.sum("records").alias("records"),
                F.count("placed").alias("checked"),
                F.count_if("placed").alias("right"),
            )
            .collect()
        )
        keys = {row["verdict"]: row["keys"] for row in rows if row["verdict"] != UNKEYED}
        right, of = (sum(row[name] for row in rows) for name in ("right", "checked"))
        if checked is not None and right < LEAST_SHARE * of:
            _check_partitioner(frame, checked, shrink.count, right, of)
        done = Copied()
        if keys.get(Verdict.COPY.value):
            copied = (
                frame.where(f"verdict = '{Verdict.COPY.value}'")
                .repartition(len(shrink.survivors), "home")  # all of a survivor in one task: one transactional id
                .sortWithinPartitions("home")
                .mapInArrow(_Copier(job), ", ".join(f"{each.name} long" for each in fields(Copied)))
                .collect()
            )
            done = Copied(*(sum(row[each.name] for row in copied) for each in fields(Copied)))
    finally:
        frame.unpersist()
    return EvacuationReport(
        shrink.topic,
        shrink.group,
        dict(shrink.seals),
        keys=sum(keys.values()),
        copied=done.copied,
        tombstones=done.tombstones,
        placed=keys.get(Verdict.PLACED.value, 0) + done.placed,
        newer=keys.get(Verdict.NEWER.value, 0) + done.superseded,
        repaired=done.repaired,
        retries=done.retries,
        unkeyed=sum(row["records"] for row in rows if row["verdict"] == UNKEYED),
    )


def _check_partitioner(frame: DataFrame, places: KeyPlaces, count: int, right: int, of: int) -> None:
    """Refuse, unless the same partitioner has placed the keys over several counts: the topic was grown once."""
    rows = frame.where("placed IS NOT NULL").select("key", "partition").limit(_RECOGNISED_KEYS).collect()
    records = tuple(
        SampledRecord(max(row["partition"], number(row["partition"])), n, bytes(row["key"]), 0)
        for n, row in enumerate(rows)
    )
    stretches = {p: Stretch(0, len(records)) for p in range(count)}
    known = recognise(Sample(places.topic, count, len(records), stretches, records))
    keys, ours, shares = list(known.numbers), 0.0, dict[str, float]()
    for found in known.placements:
        share = found.matched / max(known.keys, 1)
        shares[found.name] = shares.get(found.name, 0.0) + share
        expected = [found.candidate.puts(known.numbers[key]) for key in keys]
        ours += share * (places.indices(keys, found.over).tolist() == expected)
    if ours >= LEAST_SHARE:
        return
    fitting = ", ".join(f"{name} ({share:.1%})" for name, share in shares.items())
    advice = f"the keys look like those of {fitting}; use that partitioner" if fitting else "no known hash fits"
    raise OtherPartitioner(
        f"{places.topic}: only {right} of {of} keys in its retired partitions lie where {places.partitioner!r} places "
        f"them among {count} partitions, so keys would be copied to where producers do not write them; {advice}, or "
        "disable the check (check_partitioner, --no-partitioner-check). Nothing was copied",
        topic=places.topic,
    )


@dataclass(frozen=True)
class _Copier:
    """What ``mapInArrow`` calls on the executors: rows sorted by home become one row of :class:`Copied` a home."""

    job: CopyJob

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for home, own in groupby(rows, lambda row: int(row["home"])):
            copies = (_copy_of(row, self.job.evacuated_id) for row in own)
            done = copy_all(self.job, home, copies)
            yield pa.RecordBatch.from_pylist([{each.name: getattr(done, each.name) for each in fields(Copied)}])


def _copy_of(row: Mapping[str, Any], evacuated_id: str) -> Copy:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    return Copy(row["key"], row["value"], headers, version_of(row, evacuated_id))


def _prove(conf: Mapping[str, Any], shrink: EvacuatingShrink, report: EvacuationReport) -> None:
    """Commit the seals for the shrink's group, which the controller waits for."""
    note = json.dumps({"keys": report.keys, "copied": report.copied, "newer": report.newer})
    offsets = [
        TopicPartition(shrink.topic, p, seal, note, shrink.seal_epochs.get(p, _NO_LEADER_EPOCH))
        for p, seal in sorted(shrink.seals.items())
    ]
    settings = {"group.id": shrink.group, "enable.auto.commit": False}
    try:
        with closing(Consumer({**connection_conf(split_client_config(conf)[1], "evacuate"), **settings})) as consumer:
            for done in consumer.commit(offsets=offsets, asynchronous=False) or ():
                if done.error is not None:
                    raise KafkaException(done.error)
    except KafkaException as error:
        raise ClusterError(
            f"{shrink.topic}: all is copied, but the proof could not be committed for group {shrink.group!r}: "
            f"{error.args[0].str()}. Run the evacuation again: nothing is copied twice",
            topic=shrink.topic,
        ) from error
