"""The shrink that an evacuation works for, as the mode log has it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.config import split_client_config
from modeaware.errors import ClusterError
from modeaware.librdkafka_admin import AdminClient, TopicCollection
from modeaware.lifecycle import reasons
from modeaware.lifecycle.evacuation import evacuation_of
from modeaware.modelog.connection import connection_conf
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode, format_ranges
from modeaware.spark.evacuation.errors import NothingToEvacuate, NotSealed
from modeaware.spark.evacuation.versions import Order
from modeaware.views.topic_ids import TopicIdUnknown, id_from

logger = logging.getLogger(__name__)

LOG_TIMEOUT_S = 30.0
LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class EvacuatingShrink:
    """What there is to do, fixed: while the record says the same, work done by it counts.

    Attributes:
        topic, topic_id: its name, and the id (Kafka's base64 form) that the record is about.
        group: the consumer group that proves this evacuation.
        epoch: the evacuation's, which is in the group's name and in the header of each copy.
        count: how many partitions were writable before the shrink.
        survivors: the writable partitions, ascending: where keys belong now.
        seals: retired partition -> the offset up to which it is to be evacuated. Not those that are evacuated already.
        starts: where to begin, for retired partitions that were evacuated up to there before. Of a key with nothing
            behind it, survivors know all there is to know: its tombstone there may be compacted away by now.
        seal_epochs: the leader epochs of those seals, where they are known.
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
        """Whether work that was done for this is what ``now`` asks for. Partitions may have become None meanwhile:
        empty ones do so without an evacuation."""
        mine = (self.topic_id, self.group, self.survivors)
        if now is None or (now.topic_id, now.group, now.survivors) != mine:
            return False
        return now.seals.items() <= self.seals.items()


def shrink_of(topic: str, record: TopicRecord | None) -> EvacuatingShrink | None:
    """What a record asks for; None while one of its retired partitions is not sealed.

    Raises:
        NothingToEvacuate: no shrink of the topic is in force, or one without an evacuation.
    """
    group = evacuation_of(record)
    if record is None or record.deletion is None:
        raise NothingToEvacuate(
            f"topic {topic!r}: no shrink is in force: start one with modeaware shrink --evacuate", topic=topic
        )
    if group is None:
        raise NothingToEvacuate(
            f"topic {topic!r}: the shrink in force evacuates nothing: a compacted topic is shrunk with "
            "modeaware shrink --evacuate",
            topic=topic,
        )
    # What is None was evacuated, by this shrink or an earlier one: what was written since lies elsewhere.
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
    """The shrink in force now (see :func:`shrink_of`), and the topic's record.

    Args:
        conf: as for :class:`modeaware.Producer`.

    Raises:
        NothingToEvacuate: there is none, or it asks for no evacuation.
        ModeSourceError: the mode log cannot be read.
    """
    config, rest = split_client_config(conf)
    record = read_mode_log(rest, config.mode_log_topic, LOG_TIMEOUT_S).record(topic)
    return shrink_of(topic, record), record


def await_seals(conf: Mapping[str, Any], topic: str, wait_s: float, clock: Clock = SYSTEM_CLOCK) -> EvacuatingShrink:
    """The shrink in force, once every partition that it retires is sealed.

    Raises:
        NotSealed: not within ``wait_s`` seconds; says what they wait for.
        NothingToEvacuate, ModeSourceError: see :func:`read_shrink`.
    """
    deadline_s, told = clock.monotonic_s() + wait_s, False
    while True:
        shrink, record = read_shrink(conf, topic)
        if shrink is not None:
            return shrink
        assert record is not None, "a shrink is in force"
        waiting = {p: r.reason for p, r in record.retired.items() if r.seal_offset is None and not r.opening}
        if clock.monotonic_s() >= deadline_s:
            why = {reasons.text(reason) for reason in waiting.values() if reason is not None}
            raise NotSealed(
                f"{topic}: partitions {format_ranges(sorted(waiting))} are not sealed within {wait_s:g} s: "
                f"{'; '.join(sorted(why)) or 'is the controller running?'}. Nothing was copied",
                topic=topic,
            )
        if not told:
            logger.info("%s: waiting for the seals of partitions %s", topic, format_ranges(sorted(waiting)))
            told = True
        time.sleep(LOOK_EVERY_S)  # the controller seals when it is quiet: nothing tells us


def check_topic_id(conf: Mapping[str, Any], shrink: EvacuatingShrink) -> None:
    """See that the topic is the one that the mode log speaks of, and not another one that has its name by now.

    Raises:
        NothingToEvacuate: it is another one.
        ClusterError: no broker answers.
    """
    _, rest = split_client_config(conf)
    admin = AdminClient(connection_conf(rest, "evacuate"))  # it has to live until the answer is there
    asked = admin.describe_topics(TopicCollection([shrink.topic]), request_timeout=LOG_TIMEOUT_S)
    try:
        found = id_from(asked[shrink.topic], LOG_TIMEOUT_S + 1)
    except TopicIdUnknown as error:
        raise ClusterError(f"topic {shrink.topic!r} cannot be described: {error}", topic=shrink.topic) from error
    if found != shrink.topic_id:
        raise NothingToEvacuate(
            f"topic {shrink.topic!r} has been deleted and recreated since its shrink: the id is {found} now, and "
            f"{shrink.topic_id} in the mode log. The controller forgets the old one by itself",
            topic=shrink.topic,
        )
