"""Where the simulator is put in the place of IO that the real code does by itself, while schedules run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from unittest.mock import patch

from modeaware.cluster import cluster
from modeaware.cluster.effect_requests import Check, no_check
from modeaware.lifecycle.effects import CommitOffsets, CreatePartitions, DeleteRecords
from modeaware.modelog.records import TopicRecord
from tests.simulation.effects import SimCluster


def _delete_records(brokers: SimCluster, effect: DeleteRecords, check: Check = no_check) -> None:
    brokers.delete_records(effect, check)


def _create_partitions(
    brokers: SimCluster, effect: CreatePartitions, validate_only: bool, check: Check = no_check
) -> None:
    brokers.grow(effect, validate_only, check)


def _commit_offsets(brokers: SimCluster, effect: CommitOffsets, check: Check = no_check) -> None:
    brokers.commit_offsets(effect, check)


@contextmanager
def seams() -> Iterator[None]:
    """Within it schedules may run. It changes the process: no other code may use what it replaces.

    * Every reader of the mode log parses the same bytes: they are parsed once. Records are immutable.
    * What ``cluster.cluster`` asks of the brokers goes to simulated ones.
    * Warnings about rubbish, crashes and refusals are no news here.
    """
    parse = lru_cache(1024)(TopicRecord.from_json)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with ExitStack() as patches:
            patches.enter_context(patch.object(TopicRecord, "from_json", staticmethod(parse)))
            for name, simulated in (
                ("topic_ids", SimCluster.topic_ids),
                ("delete_records", _delete_records),
                ("create_partitions", _create_partitions),
                ("commit_offsets", _commit_offsets),
            ):
                patches.enter_context(patch.object(cluster, name, simulated))
            yield
    finally:
        logging.disable(before)
