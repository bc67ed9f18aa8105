"""A topic is replaced whose group has a member with ``enable.auto.commit`` and one that commits by itself."""

from __future__ import annotations

import pytest

from tests.support.succession import Following
from tests.workload.applications import BatchWorker
from tests.workload.load import Load

WORK_S = 5.0
"""Longer than it takes to seal a topic: what was written before the switch is then still worked on."""


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky", "consumer"])
def test_keys_keep_their_order_where_members_differ_in_enable_auto_commit(
    following: Following, strategy: str | None
) -> None:
    load = Load()
    following.writer(load)
    by_itself = following.conf(strategy, enable_auto_commit=False)
    (slow,) = following.readers(load, following.conf(strategy, auto_commit_interval_ms=50), 0, kind=BatchWorker)
    following.readers(load, by_itself, 0, 0, kind=BatchWorker, every=1)
    following.replace_at_work(load, slow, WORK_S)
