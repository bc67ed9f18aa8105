"""Groups of mode-aware and stock members follow a topic that is replaced: stock members note nothing, so the gate opens
once their commits have been unchanged for ``modeaware.gate.unnoted.ms``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modeaware.local import Kafka
from tests.support.controlled import Controlled
from tests.support.succession import Following
from tests.workload.applications import BatchWorker
from tests.workload.load import Load

UNNOTED_MS = 6_000
WORK_S = 3.0
"""Shorter than that, and longer than it takes to seal a topic: what is committed then is still worked on."""


@pytest.fixture(scope="module")
def served(kafka: Kafka) -> Iterator[Controlled]:
    with Controlled(kafka) as made:
        made.start(gate_unnoted_ms=UNNOTED_MS)
        yield made


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky", "consumer"])
@pytest.mark.parametrize("by", ["name", "pattern"])
def test_keys_keep_their_order_in_a_group_with_stock_members(
    following: Following, strategy: str | None, by: str
) -> None:
    load = Load()
    conf = following.conf(strategy, auto_commit_interval_ms=200, topic_metadata_refresh_interval_ms=1_000)
    topics = [following.topic] if by == "name" else [f"^{following.topic}$"]
    following.writer(load)
    following.readers(load, conf, 0, 0)
    (slow,) = following.readers(load, conf, 0, topics=topics, stock=True, kind=BatchWorker)
    with load.running():
        load.await_held(following.topic, 12)
        load.await_given(following.topic, 300)
        slow.work_s = WORK_S
        following.replace()
        load.await_given(following.new_topic, 1_000)
        slow.work_s = 0.0
        following.served.wait_done(following.topic)
    load.check()
