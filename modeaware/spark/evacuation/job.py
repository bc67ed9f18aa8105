"""The evacuation of a compacted topic that is being replaced: copy each key's latest value to the new topic, then prove
it by commits. The evacuation begins when the old topic's partitions are sealed."""

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
from modeaware.modes import format_ranges
from modeaware.plan.recognise import recognise
from modeaware.plan.sample import Sample, SampledRecord, Stretch
from modeaware.spark.errors import EvacuationFailed, NothingToEvacuate, NotSealed, OtherPartitioner
from modeaware.spark.evacuation.copies import Copied, Copy, CopyJob, copy_all
from modeaware.spark.evacuation.versions import DIGEST_SQL, HEADER, KeyPlaces, NewRecord, OldRecord, Verdict, decide
from modeaware.spark.snapshot import TopicClient
from modeaware.spark.source import read_ranges
from modeaware.topic_view import TopicView

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

logger = get_logger(__name__)

DEFAULT_WAIT_S = 300.0
DEFAULT_PASSES = 10
LOG_TIMEOUT_S = 30.0
CHECK_EVERY_S = 1.0
RETENTION = "delete.retention.ms"
_COMMITTED = {"isolation.level": "read_committed"}
LEAST_SHARE = 0.99
"""The least share of the old topic's keys that must be in the partitions where the partitioner places them."""
_RECOGNISED_KEYS = 10_000
_NO_LEADER_EPOCH = -1
UNKEYED = "unkeyed"
"""The verdict of a row that counts a partition's records without a key."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema(
    [
        ("verdict", pa.string()),
        ("records", pa.int64()),  # only in an UNKEYED row
        ("placed", pa.bool_()),  # whether the key is where the partitioner places it; null if an empty key has no place
        ("home", pa.int32()),  # the key's partition in the new topic
        ("key", pa.binary()),
        ("partition", pa.int32()),
        # Only in the rows of keys to be copied:
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
    ]
)


@dataclass(frozen=True)
class EvacuationReport:
    """The figures of an evacuation whose proof is committed.

    Attributes:
        topic: the topic's name.
        group: the consumer group whose commits are the proof.
        seals: partition -> the offset up to which it is evacuated. Empty if nothing was left to do.
        keys: the number of keys in these partitions.
        copied: the number of keys copied to the new topic.
        tombstones: how many of the copied keys are deleted keys (null values).
        placed: the number of keys that an earlier run has copied.
        newer: the number of keys that have a newer value in the new topic.
        repaired: how many values of producers were written once more, because an aborted copy follows them in the log.
        retries: how many transactions of copies were aborted because a producer had written one of their keys.
        unkeyed: the number of records without a key, which are not copied: compaction drops them, too.
        passes: how often the partitions were read; more than once if seals or the new topic changed meanwhile.
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
            return f"{self.topic}: every partition is already evacuated."
        lines = [
            f"{self.topic}: partitions {format_ranges(sorted(self.seals))} are evacuated, each up to its seal.",
            f"  {self.keys} keys: {self.copied} copied ({self.tombstones} of them as tombstones).",
            f"  {self.placed} were copied before, {self.newer} have a newer value in the new topic.",
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
    """Copy the latest value of each key of an old topic to the new topic, and commit the proof.

    The old topic is compacted, and its replacement with ``--evacuate`` releases it only after the evacuation. If a
    producer writes a key to the new topic, before or after the copy, the producer's value stays.

    Deleted keys are copied as null values. Copies keep key, headers and timestamp (the timestamp not under
    ``LogAppendTime``), and get one further header. Producers and consumers continue meanwhile.

    Run the evacuation within ``delete.retention.ms`` of the switch (24 h by default). Later, the tombstone of a key
    that was deleted after the switch may be gone from the new topic. Then the deleted value is copied. An evacuation
    may be stopped and run again at any time. It copies nothing twice unless the new topic's partitions have changed. If
    two run at once, the later one stops the other. The proof is the offsets committed for the evacuation's group.

    The user must be allowed to read the old topic and the mode log, and to read and write the new topic. The user also
    needs READ on the group ``modeaware-evacuation-<old topic>-*``, and WRITE and DESCRIBE on the transactional ids
    ``modeaware-evacuation-<new topic>-*``.

    Args:
        conf: as for :class:`modeaware.Producer`; its ``partitioner`` must be that of the topic's producers.
        wait_s: how long to wait for the seals, in seconds.
        passes: how often to read the partitions, if their seals or the new topic change meanwhile; and how often to try
            the copy of a key that producers keep writing.
        check_partitioner: whether to refuse if less than 99 % of the keys are where ``partitioner`` places them.
        options: further options of Spark's Kafka source, such as ``minPartitions``.

    Raises:
        NothingToEvacuate: no replacement of the topic with ``--evacuate`` is in force.
        NotSealed: partitions are not sealed within ``wait_s``.
        OtherPartitioner: another partitioner has placed the keys.
        EvacuationFailed: no proof is committed. An executor's error arrives as Spark's ``PythonException``.
        ModeSourceError, ClusterError, ConfigError: see their messages.
    """
    places = KeyPlaces.of(conf, topic)
    client = TopicClient({**conf, **_COMMITTED}, topic)
    for attempt in range(1, passes + 1):
        work = await_seals(conf, topic, wait_s)
        if not work.seals:
            return EvacuationReport(topic, work.group, {})
        check_topic_id(client, work)
        logger.info("%s: evacuating partitions %s", topic, format_ranges(sorted(work.seals)))
        target = TopicClient({**conf, **_COMMITTED}, work.new_topic)
        if attempt == 1:
            warn_of_lost_tombstones(target, work.switched_ms)
        log_starts = client.starts(work.starts)
        starts = {p: start for p, start in work.starts.items() if start > log_starts[p]}
        ends = target.ends(work.homes)
        frame = judged(spark, conf, work, places, starts, ends, dict(options or {}))
        job = CopyJob(work.new_topic, work.topic_id, work.epoch, dict(conf), ends, passes, work.new_topic_id)
        report = _copy(frame, job, work, places if check_partitioner else None)
        current, _ = read_evacuation(conf, topic)
        if work.still_holds(current):
            check_topic_id(client, work)
            _prove(conf, work, report)
            return replace(report, passes=attempt)
        logger.warning("%s: its seals or its new topic changed during the copy; reading again", topic)
    raise EvacuationFailed(
        f"{topic}: its seals or its new topic changed in each of {passes} passes (does a producer ignore the modes?); "
        "no proof is committed",
        topic=topic,
    )


# The evacuation, by the mode log


@dataclass(frozen=True)
class Evacuation:
    """The evacuation that the mode log requires. Its copies count while the topic's record requires this evacuation.

    Attributes:
        topic_id: in Kafka's base64 form.
        group: the consumer group whose commits prove this evacuation.
        epoch: the evacuation's epoch, in the group's name and in the header of each copy.
        count: the number of partitions of the topic.
        seals: partition -> the offset up to which to evacuate it; only of partitions that are not evacuated yet.
        starts: partition -> the offset up to which an earlier run has evacuated it. This run begins at that offset.
            Keys with records only below that offset need nothing more, even if compaction has dropped their tombstones
            in the new topic.
        seal_epochs: partition -> the leader epoch of its seal, if known.
        switched_ms: the Unix time of the switch, since when producers write to the new topic.
        homes: the writable partitions of the new topic, ascending; the partitioner chooses a key's home among them.
    """

    topic: str
    topic_id: str
    group: str
    epoch: int
    count: int
    seals: Mapping[int, int]
    starts: Mapping[int, int]
    seal_epochs: Mapping[int, int]
    switched_ms: int
    new_topic: str
    new_topic_id: str | None
    homes: tuple[int, ...]

    def still_holds(self, current: Evacuation | None) -> bool:
        """Return whether the work for this evacuation fulfils ``current``, which may have fewer partitions."""
        if current is None or (current.topic_id, current.group) != (self.topic_id, self.group):
            return False
        if (current.homes, current.new_topic_id) != (self.homes, self.new_topic_id):
            return False
        return current.seals.items() <= self.seals.items()


def read_evacuation(conf: Mapping[str, Any], topic: str) -> tuple[Evacuation | None, TopicRecord]:
    """Return the evacuation that the mode log requires now (:func:`evacuation_in`), and the topic's record."""
    config, rest = split_client_config(conf)
    replay = read_mode_log(rest, config.mode_log_topic, LOG_TIMEOUT_S)
    record = replay.record(topic)
    if record is None or not record.has_replacement:
        why = "it is not being replaced; run modeaware replace --evacuate first"
        raise NothingToEvacuate(f"topic {topic!r}: {why}", topic=topic)
    replacement = record.replacing
    new = next((r for r in replay.records_of(replacement.new_topic) if r.topic_id == replacement.new_topic_id), None)
    is_sealed = replacement.switched_ms is not None and all(r.seal_offset is not None for r in record.retired.values())
    homes = new_topic_partitions(conf, replacement, new) if is_sealed and replacement.gone_ms is None else ()
    return evacuation_in(record, replacement, homes), record


def new_topic_partitions(
    conf: Mapping[str, Any], replacement: Replacement, record: TopicRecord | None
) -> tuple[int, ...]:
    """Return the writable partitions of the new topic, whose record is ``record``. Raise EvacuationFailed if another
    topic has the name, or the new topic is being changed: producers may not write the keys where the copies go."""
    name = replacement.new_topic
    topic = TopicClient(conf, name).describe()
    view = TopicView.unlisted(name) if record is None else record.view()
    writable = tuple(p for p in topic.partitions if view.mode(p).writable)
    if topic.topic_id != replacement.new_topic_id or in_progress(record) or not writable:
        why = "another topic has its name" if topic.topic_id != replacement.new_topic_id else "it is being changed"
        raise EvacuationFailed(f"topic {name!r} cannot take copies now: {why}; run the evacuation later", topic=name)
    return writable


def evacuation_in(record: TopicRecord, replacement: Replacement, homes: tuple[int, ...]) -> Evacuation | None:
    """Return the evacuation that the record of a replaced topic requires; None before all its partitions are sealed.
    Raise NothingToEvacuate if the replacement evacuates nothing, or the old topic is deleted.

    Args:
        homes: the writable partitions of the new topic.
    """
    group = evacuation_of(record)
    if group is None or replacement.evacuation_epoch is None or replacement.gone_ms is not None:
        reason = "it was replaced without --evacuate" if group is None else "it was replaced and deleted"
        raise NothingToEvacuate(f"topic {record.topic!r}: {reason}", topic=record.topic)
    ends = {p: r.seal_offset for p, r in record.retired.items() if r.seal_offset is not None}
    if replacement.switched_ms is None or len(ends) < len(record.retired):
        return None
    left = {p: r for p, r in record.retired.items() if not r.evacuated_to_seal}
    return Evacuation(
        record.topic,
        record.topic_id,
        group,
        replacement.evacuation_epoch,
        len(record.modes),
        {p: ends[p] for p in left},
        {p: r.evacuated_to for p, r in left.items() if r.evacuated_to is not None},
        {p: r.seal_leader_epoch for p, r in left.items() if r.seal_leader_epoch is not None},
        replacement.switched_ms,
        replacement.new_topic,
        replacement.new_topic_id,
        homes,
    )


def await_seals(conf: Mapping[str, Any], topic: str, wait_s: float) -> Evacuation:
    """Return the evacuation once every partition of the topic is sealed; NotSealed after ``wait_s`` seconds."""
    deadline_s, logged = time.monotonic() + wait_s, False
    while True:
        work, record = read_evacuation(conf, topic)
        if work is not None:
            return work
        waiting = {p: r.reason for p, r in record.retired.items() if r.seal_offset is None}
        if time.monotonic() >= deadline_s:
            held_up = [*waiting.values(), record.replacing.reason]
            why = {reasons.text(reason) for reason in held_up if reason is not None}
            what = f"partitions {format_ranges(sorted(waiting))} are" if waiting else "it is"
            raise NotSealed(
                f"{topic}: {what} not sealed within {wait_s:g} s: "
                f"{'; '.join(sorted(why)) or 'is the controller running?'}. Nothing was copied",
                topic=topic,
            )
        if not logged:
            logger.info(
                "%s: waiting for the seals of partitions %s",
                topic,
                format_ranges(sorted(waiting)) or "(none is retired yet)",
            )
            logged = True
        time.sleep(CHECK_EVERY_S)  # the controller seals a partition once no more records arrive


def check_topic_id(client: TopicClient, work: Evacuation) -> None:
    """Verify that the live topic has the id of the mode log; NothingToEvacuate if another topic has the name now."""
    live_id = client.describe().topic_id
    if live_id is None:
        raise ClusterError(f"topic {work.topic!r}: the brokers return no topic ids", topic=work.topic)
    if live_id != work.topic_id:
        raise NothingToEvacuate(
            f"topic {work.topic!r} was deleted and recreated: its id is {live_id}, and {work.topic_id} in the mode log",
            topic=work.topic,
        )


def warn_of_lost_tombstones(client: TopicClient, switched_ms: int) -> None:
    """Log a warning if the switch was longer ago than the new topic (the topic of ``client``) keeps tombstones.

    If a key was deleted after the switch, its tombstone is in the new topic, and its old value still in the old topic.
    Once compaction has dropped the tombstone, the evacuation would copy the deleted value.
    """
    try:
        kept_ms = client.setting(RETENTION)
    except ClusterError as error:
        logger.info("%s: its %s is unknown: %s", client.topic, RETENTION, error)
        return
    if kept_ms is not None and kept_ms.isdecimal() and SYSTEM_CLOCK.now_ms() - switched_ms > int(kept_ms):
        logger.warning(
            "%s: the switch was longer ago than the topic's %s (%s ms). Tombstones of keys that were deleted since the "
            "switch may be gone; then the deleted values are copied",
            client.topic,
            RETENTION,
            kept_ms,
        )


# The verdict on each key


def judged(
    spark: SparkSession,
    conf: Mapping[str, Any],
    work: Evacuation,
    places: KeyPlaces,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    options: Mapping[str, str],
) -> DataFrame:
    """Return a row with a verdict for each key of the topic.

    The old topic is read to its seals, from ``starts`` or else from its log starts; the new topic is read to ``ends``.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the usual name
    from pyspark.sql.pandas.types import from_arrow_schema

    def last_of(topic: str, ends: Mapping[int, int], starts: Mapping[int, int], **columns: Column) -> DataFrame:
        """Return the last record of each key and partition, and the number of records."""
        records = read_ranges(spark, topic, conf, ends, starts, options).select(
            *("key", "partition", "offset", F.unix_millis("timestamp").alias("timestamp_ms")),
            *(column.alias(name) for name, column in columns.items()),
        )
        last = F.max_by(F.struct("partition", "offset", "timestamp_ms", *columns), "offset")
        return records.groupBy("key", "partition").agg(last.alias("last"), F.count("*").alias("records"))

    old = (
        last_of(work.topic, work.seals, starts, value=F.col("value"), headers=F.col("headers"))
        .groupBy("key")
        .agg(F.collect_list("last").alias("old"), F.sum("records").alias("records"))
    )
    ours = F.filter("headers", lambda header: header["key"] == F.lit(HEADER))
    source = F.try_element_at(ours, F.lit(-1))["value"].cast("string")
    new = (
        last_of(work.new_topic, ends, {}, source=source, digest=F.when(source.isNotNull(), F.expr(DIGEST_SQL)))
        .where(F.col("key").isNotNull())
        .groupBy("key")
        .agg(F.collect_list("last").alias("new"))
    )
    joined = old.join(new, "key", "left").select("key", "records", "old", "new")
    return joined.mapInArrow(_Judge(work, places), from_arrow_schema(_ARROW))


@dataclass(frozen=True)
class _Judge:
    """The function of ``mapInArrow`` that makes the verdicts, on the executors."""

    work: Evacuation
    places: KeyPlaces

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist(list(self._rows(batch.to_pylist())), schema=_ARROW)

    def _rows(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        work, keys = self.work, [row["key"] or b"" for row in rows]
        indices = self.places.indices(keys, len(work.homes))
        before = self.places.indices(keys, work.count)
        empty_placed = self.places.empty_placed
        for row, index, index_before in zip(rows, indices, before, strict=True):
            key, home = row["key"], work.homes[index]
            if key is None:
                yield {"verdict": UNKEYED, "records": row["records"]}
                continue
            old = {old_record(last): last for last in row["old"]}
            new = [new_record(last, work.topic_id) for last in row["new"] or ()]
            verdict, newest = decide(list(old), new, home)
            lie = {record.partition for record in old}
            yield {
                "verdict": verdict.value,
                "placed": index_before in lie if key or empty_placed else None,
                "home": home,
                "partition": min(lie),
                **(old[newest] if verdict is Verdict.COPY else {}),
                "key": key,
            }


def old_record(row: Mapping[str, Any]) -> OldRecord:
    """Return the old topic's record that a row describes."""
    return OldRecord(row["partition"], row["offset"], row["timestamp_ms"])


def new_record(row: Mapping[str, Any], old_id: str) -> NewRecord:
    """Return the new topic's record that a row describes."""
    source = OldRecord.parse(row["source"], old_id, row["digest"])
    return NewRecord(row["partition"], row["offset"], row["timestamp_ms"], source)


# Copies, and the proof


def _copy(frame: DataFrame, job: CopyJob, work: Evacuation, checked: KeyPlaces | None) -> EvacuationReport:
    """Count the verdicts, check with them that the partitioner is that of the producers, and copy."""
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
            _check_partitioner(frame, checked, work.count, right, of)
        done = Copied()
        if keys.get(Verdict.COPY.value):
            copied = (
                frame.where(f"verdict = '{Verdict.COPY.value}'")
                .repartition(len(work.homes), "home")  # all rows of a home in one task: one transactional id
                .sortWithinPartitions("home")
                .mapInArrow(_Copier(job), ", ".join(f"{field.name} long" for field in fields(Copied)))
                .collect()
            )
            done = Copied(*(sum(row[field.name] for row in copied) for field in fields(Copied)))
    finally:
        frame.unpersist()
    return EvacuationReport(
        work.topic,
        work.group,
        dict(work.seals),
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
    """Raise OtherPartitioner, unless the partitioner places the keys by smaller counts, from before the topic grew."""
    rows = frame.where("placed IS NOT NULL").select("key", "partition").limit(_RECOGNISED_KEYS).collect()
    records = tuple(SampledRecord(row["partition"], n, bytes(row["key"]), 0) for n, row in enumerate(rows))
    stretches = {p: Stretch(0, len(records)) for p in range(count)}
    known = recognise(Sample(places.topic, count, len(records), stretches, records))
    keys, ours, shares = list(known.numbers), 0.0, dict[str, float]()
    for placement in known.placements:
        share = placement.matched / max(known.keys, 1)
        shares[placement.name] = shares.get(placement.name, 0.0) + share
        expected = [placement.candidate.puts(known.numbers[key]) for key in keys]
        ours += share * (places.indices(keys, placement.over) == expected)
    if ours >= LEAST_SHARE:
        return
    fitting = ", ".join(f"{name} ({share:.1%})" for name, share in shares.items())
    advice = "No known hash fits: pass the producers' own partitioner"
    if fitting:
        advice = f"The keys look like those of {fitting}: use that partitioner"
    raise OtherPartitioner(
        f"{places.topic}: only {right} of {of} keys are where {places.partitioner!r} places "
        f"them among {count} partitions, so copies would go to partitions where producers do not write these keys. "
        f"{advice}, or disable the check (check_partitioner, --no-partitioner-check). Nothing was copied",
        topic=places.topic,
    )


@dataclass(frozen=True)
class _Copier:
    """The function of ``mapInArrow`` that copies, on the executors: all rows of a home become one :class:`Copied`."""

    job: CopyJob

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for home, own in groupby(rows, lambda row: int(row["home"])):
            done = copy_all(self.job, home, map(_copy_of, own))
            yield pa.RecordBatch.from_pylist([{field.name: getattr(done, field.name) for field in fields(Copied)}])


def _copy_of(row: Mapping[str, Any]) -> Copy[OldRecord]:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    return Copy(row["key"], row["value"], headers, old_record(row))


def _prove(conf: Mapping[str, Any], work: Evacuation, report: EvacuationReport) -> None:
    """Commit the seals as offsets of the evacuation's group: the controller waits for these commits."""
    note = json.dumps({"keys": report.keys, "copied": report.copied, "newer": report.newer})
    offsets = [
        TopicPartition(work.topic, p, seal, note, work.seal_epochs.get(p, _NO_LEADER_EPOCH))
        for p, seal in sorted(work.seals.items())
    ]
    settings = {"group.id": work.group, "enable.auto.commit": False}
    try:
        with closing(Consumer({**connection_conf(split_client_config(conf)[1], "evacuate"), **settings})) as consumer:
            for done in consumer.commit(offsets=offsets, asynchronous=False) or ():
                if done.error is not None:
                    raise KafkaException(done.error)
    except KafkaException as error:
        raise ClusterError(
            f"{work.topic}: all is copied, but the proof could not be committed for group {work.group!r}: "
            f"{error.args[0].str()}. Run the evacuation again; nothing is copied twice",
            topic=work.topic,
        ) from error
