"""What ``modeaware reassign-partitions`` does and says where something is in its way."""

from __future__ import annotations

import argparse
import io
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modeaware.admin.reassignment_json import Plan
from modeaware.cli import reassign
from modeaware.cli.reassign_actions import Execution, execute, verify
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from tests.support.fake_brokers import FakeCluster

TO_3 = Plan({("t", 0): (3,)})
WITH_1_AND_3 = {(2, "t"), (4, "1"), (4, "3")}
STAYS = "The throttle stays set; remove it with: again --verify"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({("t", 0): (1,), ("t", 1): (1, 2), ("u", 0): (1,)})


def throttled(plan: Plan = TO_3, **more: Any) -> Execution:
    return Execution(plan, throttle=5, command="again", **more)


def test_the_way_back_is_written_before_anything_changes(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    written, seen = io.BytesIO(), []
    cluster.before_change = lambda name: seen.append(b"during rollback" in written.getvalue())
    with io.TextIOWrapper(written) as out:
        monkeypatch.setattr(sys, "stdout", out)
        execute(cluster, throttled())
    assert len(seen) > 1
    assert all(seen)


def test_a_broker_that_is_down_is_moved_off(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.down = {1}
    execute(cluster, throttled())
    assert cluster.altered == [(True, {("t", 0): (3,)})]
    assert cluster.configs.keys() == {(2, "t"), (4, "3")}
    told = capsys.readouterr()
    assert told.err == "No throttle on broker 1: not alive\n"
    assert "limit was set to 5 B/s" in told.out


def test_a_throttle_goes_where_all_is_refused(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.configs = {(4, "1"): {"other": "x"}}
    cluster.refuse_all = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(RequestRefused):
        execute(cluster, throttled())
    assert cluster.configs == {(4, "1"): {"other": "x"}}
    assert capsys.readouterr().err == "Nothing was started; the throttle is removed again\n"


@pytest.mark.parametrize("at", ["IncrementalAlterConfigs", "AlterPartitionReassignments"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ClusterError])
def test_who_interrupts_is_told_of_the_throttle(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], at: str, error: type[BaseException]
) -> None:
    def interrupt(name: str) -> None:
        if name == at:
            raise error("now")

    cluster.before_change = interrupt
    with pytest.raises((error, RequestRefused)):
        execute(cluster, throttled())
    assert STAYS in capsys.readouterr().err


def test_commands_after_an_interruption_can_be_typed_as_they_are(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written, seen = io.BytesIO(), []

    def interrupt(*_: object) -> None:
        seen.append(written.getvalue())
        raise KeyboardInterrupt

    monkeypatch.setattr(reassign, "wait_for_plan", interrupt)
    args = argparse.Namespace(
        bootstrap_server="one:1,two:2",
        command_config=Path("my client.conf"),
        reassignment_json_file=Path("it's.json"),
        preserve_throttles=False,
    )
    with io.TextIOWrapper(written) as out, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        print("started")
        with pytest.raises(KeyboardInterrupt):
            reassign._wait(cluster, TO_3, args)  # private: the command would make a cluster of its own
    assert seen == [b"started\n"]
    watch = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("Watch it:"))
    assert shlex.split(watch.removeprefix("Watch it:")) == [
        *("modeaware", "reassign-partitions", "--bootstrap-server", "one:1,two:2"),
        *("--command-config", "my client.conf", "--reassignment-json-file", "it's.json", "--verify", "--wait"),
    ]


def test_what_is_not_as_expected_sets_no_throttle(cluster: FakeCluster) -> None:
    changed: list[str] = []
    cluster.before_change = changed.append
    with pytest.raises(RequestRefused, match="not the expected"):
        execute(cluster, throttled(expected={("t", 0): (2,)}))
    assert changed == []


def test_where_nobody_knows_what_was_begun_the_throttle_stays(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refuse_all = ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(RequestRefused):
        execute(cluster, throttled())
    assert cluster.configs.keys() == WITH_1_AND_3
    assert STAYS in capsys.readouterr().err


def test_after_a_partial_refusal_the_throttle_stays(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.refuse = {("u", 0): ErrorCode.INVALID_REPLICATION_FACTOR}
    with pytest.raises(RequestRefused):
        execute(cluster, throttled(Plan({("t", 0): (3,), ("u", 0): (2, 3)})))
    assert cluster.configs.keys() >= WITH_1_AND_3
    assert STAYS in capsys.readouterr().err


def test_a_broker_that_lags_is_asked_again(cluster: FakeCluster) -> None:
    cluster.behind = {1: {("t", 0): (2,), ("t", 1): (1, 2)}}

    def pauses_s() -> Iterator[float]:
        yield 0.0
        cluster.behind = {}
        yield 0.0

    there = Plan({("t", 0): (1,), ("t", 1): (1, 2)})
    assert not verify(cluster, there, preserve_throttles=True)
    assert verify(cluster, there, preserve_throttles=True, pauses_s=pauses_s())
    assert not verify(cluster, TO_3, preserve_throttles=True, pauses_s=[0.0, 0.0])
