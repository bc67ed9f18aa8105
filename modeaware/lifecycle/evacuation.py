"""Evacuation: before retired partitions of a compacted topic go, the latest value of each key is copied to survivors.

A Spark job does that (``modeaware.spark.evacuate``). Its proof is a commit: of each retired partition, the seal, by a
consumer group whose name stands for this one change. When the count changes again, keys belong elsewhere, and the name
is another one: an older proof never counts. Pure.
"""

from __future__ import annotations

import re

from modeaware.modelog.records import TopicRecord

EVACUATION_PREFIX = "modeaware-evacuation-"
"""Names of consumer groups that begin with it are ours."""
_EPOCH = re.compile(r"[0-9]+", re.ASCII)


def evacuation_group(topic: str, epoch: int) -> str:
    """The group whose commits prove the evacuation of ``topic``.

    Args:
        epoch: ``DeleteTopicPartitions.evacuation_epoch``: the topic's mode epoch since which keys belong where they do.
    """
    return f"{EVACUATION_PREFIX}{topic}-{epoch}"


def evacuation_of(record: TopicRecord | None) -> str | None:
    """The group that has to prove the evacuation of the topic's retired partitions; None: nothing is evacuated."""
    deletion = record.deletion if record is not None else None
    if record is None or deletion is None or not deletion.evacuate:
        return None
    return evacuation_group(record.topic, deletion.evacuation_epoch)


def is_evacuation_group(topic: str, group: str) -> bool:
    """Whether ``group`` is, or was, one that proves an evacuation of ``topic``: no reader, so no drain waits for it as
    for others."""
    prefix = f"{EVACUATION_PREFIX}{topic}-"
    return group.startswith(prefix) and _EPOCH.fullmatch(group, len(prefix)) is not None
