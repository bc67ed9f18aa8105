"""The shrink that an evacuation works for, as the mode log has it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.clock import SYSTEM_CLOCK
from modeaware.config import split_client_config
from modeaware.errors import ClusterError
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import evacuation_of
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode, format_ranges
from modeaware.spark.errors import NothingToEvacuate, NotSealed
from modeaware.spark.evacuation.versions import Order
from modeaware.spark.snapshot import TopicClient

logger = logging.getLogger(__name__)

LOG_TIMEOUT_S = 30.0
CHECK_EVERY_S = 1.0
RETENTION = "delete.retention.ms"


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

    def still_holds(self, now: EvacuatingShrink | None) -> bool:
        """Whether work done for this is what ``now`` requires. Partitions may have become None: empty ones do so
        without an evacuation."""
        mine = (self.topic_id, self.group, self.survivors)
        if now is None or (now.topic_id, now.group, now.survivors) != mine:
            return False
        return now.seals.items() <= self.seals.items()


def shrink_of(topic: str, record: TopicRecord | None) -> EvacuatingShrink | None:
    """Return what a record requires; None while one of its retired partitions is not sealed. Raises NothingToEvacuate
    where no shrink of the topic is in force, or one without an evacuation."""
    group = evacuation_of(record)
    if record is None or record.deletion is None or group is None:
        found = "no shrink is in force" if record is None or record.deletion is None else "its shrink evacuates nothing"
        raise NothingToEvacuate(
            f"topic {topic!r}: {found}; start one with modeaware shrink --evacuate, which compacted topics require",
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
    """Return :func:`shrink_of` the record on the mode log now, and the record."""
    config, rest = split_client_config(conf)
    record = read_mode_log(rest, config.mode_log_topic, LOG_TIMEOUT_S).record(topic)
    return shrink_of(topic, record), record


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
            why = {reasons.text(reason) for reason in waiting.values() if reason is not None}
            raise NotSealed(
                f"{topic}: partitions {format_ranges(sorted(waiting))} are not sealed within {wait_s:g} s: "
                f"{'; '.join(sorted(why)) or 'is the controller running?'}. Nothing was copied",
                topic=topic,
            )
        if not logged:
            logger.info("%s: waiting for the seals of partitions %s", topic, format_ranges(sorted(waiting)))
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
            f"{shrink.topic_id} in the mode log. The controller forgets the old one by itself",
            topic=shrink.topic,
        )


def warn_of_lost_tombstones(client: TopicClient, admitted_ms: int) -> None:
    """Log a warning where a shrink is older than the topic keeps tombstones.

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
            "%s: its shrink is older than %s (%s ms): tombstones of keys deleted since may be gone, and then the old "
            "values are copied",
            client.topic,
            RETENTION,
            kept_ms,
        )
