"""Applications that commit every N records, or some seconds after one, never commit the last records: for these the
gate of a topic that is replaced opens nevertheless, and a shrink is drained."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.succession import Following
from tests.support.waiting import eventually
from tests.workload.applications import RareCommitter
from tests.workload.load import Load

RARELY: dict[str, dict[str, Any]] = {"every 100 records": {"every": 100}, "5 s after one": {"after_s": 5.0}}
FIRST_S = 45.0
"""Within 15 s on an idle machine."""
rarely = pytest.mark.parametrize("options", RARELY.values(), ids=RARELY)
with_revoke = pytest.mark.parametrize("revoke_commits", [False, True], ids=["", "and on_revoke"])


def begin(following: Following, strategy: str | None, load: Load, **options: Any) -> Load:
    following.writer(load)
    conf = following.conf(strategy, enable_auto_commit=False)
    following.readers(load, conf, 0, 0, kind=RareCommitter, **options)
    return load


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky", "consumer"])
@with_revoke
@rarely
def test_group_that_commits_rarely_reads_the_new_topic(
    following: Following, options: dict[str, Any], revoke_commits: bool, strategy: str | None
) -> None:
    load = begin(following, strategy, Load(), **options, revoke_commits=revoke_commits)
    with load.running():
        load.await_held(following.topic, 12)
        load.await_given(following.topic, 1_000)
        following.replace()
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.switched_ms)
        given = load.ledger.read_by
        eventually(lambda: load.fine() and given(load.ledger.groups[0], following.new_topic), FIRST_S,
                   message="the first record of the new topic")  # fmt: skip
        load.await_given(following.new_topic, 300)
    load.check()


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky", "consumer"])
@rarely
def test_shrink_is_drained_by_a_group_that_commits_rarely_and_when_it_is_revoked(
    following: Following, options: dict[str, Any], strategy: str | None
) -> None:
    load = begin(following, strategy, Load(ordered=()), **options, revoke_commits=True)
    with load.running():
        load.await_held(following.topic, 12)
        load.await_given(following.topic, 1_000)
        following.served.shrink(following.topic, 4)
        following.served.wait_done(following.topic, 60)
        load.await_held(following.topic, 4)
    load.check()
