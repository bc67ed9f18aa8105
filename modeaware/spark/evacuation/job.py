"""The evacuation of a compacted topic that is being shrunk, from its start to its proof."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from modeaware.config import split_client_config
from modeaware.errors import ClusterError
from modeaware.librdkafka import Consumer, KafkaException, TopicPartition
from modeaware.modelog.connection import connection_conf
from modeaware.modes import format_ranges
from modeaware.spark.evacuation.copying import Copied, Copy, CopyJob, copy_all
from modeaware.spark.evacuation.errors import EvacuationFailed, OtherPartitioner
from modeaware.spark.evacuation.latest import UNKEYED, decided, watermarks
from modeaware.spark.evacuation.placing import LEAST_SHARE, PLACER_OF, Placing, recognised
from modeaware.spark.evacuation.report import EvacuationReport
from modeaware.spark.evacuation.shrink import EvacuatingShrink, await_seals, check_topic_id, read_shrink
from modeaware.spark.evacuation.tombstones import warn_of_lost_tombstones
from modeaware.spark.evacuation.versions import Source, Verdict, Version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

DEFAULT_WAIT_S = 300.0
DEFAULT_PASSES = 10
_RECOGNISED_KEYS = 10_000


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
    """Copy the latest value of each key in the retired partitions to the partition it belongs to now, and record that.

    For a shrink that was asked for with ``--evacuate``, of a compacted topic: no retired partition of it becomes NONE
    before this has run. A key whose value in a partition that stays is newer
    (``modeaware.spark.evacuation.versions`` says which is) is left alone, whenever that value comes; deleted keys
    are copied as what they are, with null values; keys, headers and timestamps are kept (but not the timestamps of a
    topic with ``message.timestamp.type=LogAppendTime``), and one header is added. Producers and consumers go on
    meanwhile.

    Run it within ``delete.retention.ms`` of the shrink (24 h by default): the tombstone of a key that is deleted
    meanwhile lies in another partition than its value, and is dropped then (``modeaware.spark.evacuation.tombstones``).

    It may be stopped and run again at any time: what is copied already is not copied twice. Two at once do no harm, the
    later one stops the other. The proof is the offsets that it commits, once all is copied, for the consumer group that
    ``modeaware.lifecycle.evacuation`` names.

    Needs, beside reading and writing the topic and reading the mode log: WRITE and DESCRIBE on the transactional ids
    ``modeaware-evacuation-<topic>-*``, READ on the group ``modeaware-evacuation-<topic>-*``.

    Args:
        spark: a session with the connector (:func:`modeaware.spark.packages`).
        conf: as for :class:`modeaware.Producer`; its ``partitioner`` has to be that of the topic's producers.
        wait_s: how long to wait for retired partitions to be sealed, in seconds.
        passes: how often to begin anew where a seal is broken meanwhile, and how often the copy of one key is tried
            which producers write all the time.
        check_partitioner: refuse where less than 99 % of the keys lie where ``partitioner`` has put them.
        options: more options of Spark's Kafka source, such as ``minPartitions``.

    Raises:
        NothingToEvacuate: no such shrink of the topic is in force.
        NotSealed: retired partitions are not sealed within ``wait_s``.
        OtherPartitioner: the keys were placed by another partitioner.
        EvacuationFailed: see its message. It has recorded nothing. From an executor it comes as Spark's
            ``PythonException``, with the message in it.
        ModeSourceError, ClusterError, ConfigError: see their messages.
    """
    placing = Placing.of(split_client_config(conf)[1], topic)
    report = EvacuationReport(topic, "", {})
    for number in range(1, passes + 1):
        shrink = await_seals(conf, topic, wait_s)
        if not shrink.seals:
            return EvacuationReport(topic, shrink.group, {})
        check_topic_id(conf, shrink)
        logger.info("%s: evacuating partitions %s", topic, format_ranges(sorted(shrink.seals)))
        if number == 1:
            warn_of_lost_tombstones(conf, topic, shrink.order.admitted_ms)
        report = _Pass(spark, dict(conf), shrink, placing, passes, dict(options or {})).run(check_partitioner)
        now, _ = read_shrink(conf, topic)
        if shrink.still_holds(now):
            check_topic_id(conf, shrink)
            _record(conf, shrink, report)
            return replace(report, passes=number)
        logger.warning("%s: its retired partitions or their seals have changed meanwhile: once more", topic)
    raise EvacuationFailed(
        f"{topic}: its retired partitions or their seals changed in each of {passes} passes (a producer that honours "
        "no modes?): nothing is recorded",
        topic=topic,
    )


@dataclass(frozen=True)
class _Pass:
    spark: SparkSession
    conf: Mapping[str, Any]
    shrink: EvacuatingShrink
    placing: Placing
    tries: int
    options: Mapping[str, str]

    def run(self, check_partitioner: bool) -> EvacuationReport:
        from pyspark import StorageLevel

        shrink = self.shrink
        ends = {p: end for p, (_, end) in watermarks(self.conf, shrink.topic, shrink.survivors).items()}
        frame = decided(self.spark, self.conf, shrink, self.placing, ends, self.options)
        frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts = self._count(frame)
            if check_partitioner:
                self._check(frame, counts)
            done = self._copy(frame, ends) if counts.get(Verdict.COPY.value) else Copied()
        finally:
            frame.unpersist()
        return EvacuationReport(
            shrink.topic,
            shrink.group,
            dict(shrink.seals),
            keys=sum(counts.get(verdict.value, 0) for verdict in Verdict),
            copied=done.copied,
            tombstones=done.tombstones,
            placed=counts.get(Verdict.PLACED.value, 0) + done.placed,
            newer=counts.get(Verdict.NEWER.value, 0) + done.superseded,
            repaired=done.repaired,
            retries=done.retries,
            unkeyed=counts.get(UNKEYED, 0),
        )

    def _count(self, frame: DataFrame) -> dict[str, int]:
        """Verdict -> keys; of :data:`UNKEYED` the records; and how many keys could be checked, and lie right."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

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
        counts = {row["verdict"]: row["records"] if row["verdict"] == UNKEYED else row["keys"] for row in rows}
        return counts | {name: sum(row[name] for row in rows) for name in ("checked", "right")}

    def _check(self, frame: DataFrame, counts: Mapping[str, int]) -> None:
        checked, right = counts["checked"], counts["right"]
        if right >= LEAST_SHARE * checked:
            return
        topic, count, name = self.shrink.topic, self.shrink.count, self.placing.partitioner
        rows = frame.where("placed IS NOT NULL").select("key", "partition").limit(_RECOGNISED_KEYS).collect()
        shares = recognised(topic, count, [(bytes(row["key"]), row["partition"]) for row in rows])
        ours = PLACER_OF.get(name) if isinstance(name, str) else None
        if ours is not None and shares.get(ours, 0.0) >= LEAST_SHARE:
            return  # over several counts: the topic was grown once
        fitting = ", ".join(f"{placer} ({share:.1%})" for placer, share in shares.items())
        raise OtherPartitioner(
            f"{topic}: only {right} of {checked} keys in its retired partitions lie where {name!r} puts them among "
            f"{count} partitions: it would copy keys to where producers do not write them. "
            + (f"The keys look like those of {fitting}: give that as the partitioner" if fitting else "")
            + ("" if fitting else "No hash that is known fits")
            + ", or turn the check off (check_partitioner, --no-partitioner-check). Nothing was copied",
            topic=topic,
        )

    def _copy(self, frame: DataFrame, ends: Mapping[int, int]) -> Copied:
        shrink = self.shrink
        job = CopyJob(shrink.topic, shrink.epoch, self.conf, shrink.order, ends, self.tries)
        rows = (
            frame.where(f"verdict = '{Verdict.COPY.value}'")
            .select("home", "key", "value", "headers", "partition", "offset", "timestamp_ms", "source")
            .repartition(len(shrink.survivors), "home")  # all of a survivor in one task: one transactional id
            .sortWithinPartitions("home")
            .mapInArrow(_Copier(job), ", ".join(f"{each.name} long" for each in fields(Copied)))
            .collect()
        )
        return Copied(*(sum(row[each.name] for row in rows) for each in fields(Copied)))


@dataclass(frozen=True)
class _Copier:
    """What ``mapInArrow`` calls on the executors: rows sorted by home to one row of :class:`Copied` for each home."""

    job: CopyJob

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for home, own in groupby(rows, lambda row: int(row["home"])):
            done = copy_all(self.job, home, map(_copy_of, own))
            yield pa.RecordBatch.from_pylist([{each.name: getattr(done, each.name) for each in fields(Copied)}])


def _copy_of(row: Mapping[str, Any]) -> Copy:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    version = Version(row["partition"], row["offset"], row["timestamp_ms"], Source.parse(row["source"]))
    return Copy(row["key"], row["value"], headers, version)


def _record(conf: Mapping[str, Any], shrink: EvacuatingShrink, report: EvacuationReport) -> None:
    """Commit the seals: the proof, which the controller waits for."""
    _, rest = split_client_config(conf)
    note = json.dumps({"keys": report.keys, "copied": report.copied, "newer": report.newer})
    offsets = [
        TopicPartition(shrink.topic, p, seal, note, shrink.seal_epochs[p])
        if p in shrink.seal_epochs
        else TopicPartition(shrink.topic, p, seal, note)
        for p, seal in sorted(shrink.seals.items())
    ]
    settings = {"group.id": shrink.group, "enable.auto.commit": False}
    try:
        with closing(Consumer({**connection_conf(rest, "evacuate"), **settings})) as proving:
            committed = proving.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        raise _unproved(shrink, error.args[0].str()) from error
    failed = {str(each.error) for each in committed or () if each.error is not None}
    if failed:
        raise _unproved(shrink, "; ".join(sorted(failed)))


def _unproved(shrink: EvacuatingShrink, why: str) -> ClusterError:
    return ClusterError(
        f"{shrink.topic}: all is copied, but its proof could not be committed for group {shrink.group!r}: {why}. Run "
        "it again: nothing is copied twice",
        topic=shrink.topic,
    )
