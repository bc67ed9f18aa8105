"""0.1.0 and this release side by side: six processes in a rolling restart in mid-shrink, up and back down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.old_release import Release, new_release, old_release
from tests.support.plain import commit, ends, watermarks
from tests.support.rolling import BETWEEN, Deployment
from tests.support.waiting import eventually

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
RETIRED = range(4, 12)
HOLDS_IT_UP = "slow"
"""A group that has consumed nothing: the shrink is in its midst until it commits."""


@pytest.fixture
def old(tmp_path: Path) -> Release:
    return old_release(tmp_path / "0.1.0")


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(12)


@pytest.fixture
def site(setting: Controlled, topic: str, make_group: Callable[[], str], tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(setting.servers, setting.log, topic, make_group(), tmp_path)
    yield made
    made.kill()


# What is replaced in which order; "!" is killed instead of asked to stop. controller-1 is the active one at first.
UP = ("controller-2", "controller-1", "consumer-1", "consumer-2!", "producer-1", "producer-2")
DOWN = ("producer-1", "consumer-1", "producer-2", "consumer-2", "controller-1!", "controller-2")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("upwards", "order"), [(True, UP), (False, DOWN)], ids=["upgrade", "rollback"])
def test_a_rolling_restart_in_mid_shrink_loses_nothing(
    upwards: bool, order: tuple[str, ...], setting: Controlled, old: Release, topic: str, site: Deployment
) -> None:
    before, after = (old, new_release()) if upwards else (new_release(), old)
    assert before.version != after.version
    site.start("controller-1", before)
    eventually(lambda: _active(setting, site) == "controller-1", 60)
    for name in ("controller-2", "consumer-1", "consumer-2", "producer-1", "producer-2"):
        site.start(name, before)
    site.more()
    commit(setting.servers, HOLDS_IT_UP, topic, dict.fromkeys(range(12), 0))

    site.command(after, "shrink", topic, "--to", "4", "--yes", "--delete-partitions-delay", "0")
    waiting = f"group-lag:{HOLDS_IT_UP}"
    setting.wait_for(topic, lambda record: setting.reasons(topic) == {waiting}, 60)
    seals = {p: r.seal_offset for p, r in setting.record(topic).retired.items()}
    assert set(seals) == set(RETIRED)
    for name in order:
        site.replace(name.rstrip("!"), after, kill=name.endswith("!"))
        site.more()
        assert setting.modes(topic) == (RW,) * 4 + (RO,) * 8, name
    eventually(lambda: _active(setting, site) is not None, 60)
    assert {name: running.release for name, running in site.now.items()} == dict.fromkeys(site.now, after)
    commit(setting.servers, HOLDS_IT_UP, topic, ends(setting.servers, topic))
    done = setting.wait_done(topic, 90)

    assert done.modes == (RW,) * 4 + (NONE,) * 8
    assert {p: r.seal_offset for p, r in done.retired.items()} == seals
    assert [r.stragglers for r in done.retired.values()] == [0] * 8
    assert {p: ends for p, ends in watermarks(setting.servers, topic).items() if p in RETIRED} == {
        p: (seal, seal) for p, seal in seals.items()
    }, "nothing was written after the seal, and what was there is deleted"
    site.more()
    site.command(before, "grow", topic, "--to", "6", "--yes")
    setting.wait_for(topic, lambda record: record.modes == (RW,) * 6 + (NONE,) * 6, 60)
    site.more()
    assert read_mode_log(setting.conf, setting.log, 20).observed_brokers is not None
    if not upwards:  # what 0.1.0 does not know, all of its processes pass over
        assert [name for name, running in site.now.items() if "observed-brokers" not in running.said] == []
    site.stop()
    assert site.failed() == []
    assert site.acked() - site.read() == set()


@pytest.mark.timeout(300)
def test_0_1_0_beside_a_replacement_is_told_to_upgrade_and_loses_nothing(
    setting: Controlled, old: Release, topic: str, site: Deployment
) -> None:
    active = setting.start(fence_after_ms=2_000)
    for name in ("producer-1", "consumer-1", "controller-1"):
        site.start(name, old)
    site.more()
    result = setting.ask(ReplaceTopicCommand(topic, f"{topic}-v2", 4))
    assert result.code is ErrorCode.NONE, result.message
    moved = reasons.of_group(reasons.GROUP_NOT_MOVED, site.group)
    record = setting.wait_for(topic, lambda r: r.replacement is not None and r.replacement.reason == moved, 60)
    eventually(lambda: len(site.failed()) > BETWEEN)
    assert [line for line in site.failed() if "MSG_SIZE_TOO_LARGE" not in line] == []
    eventually(lambda: site.acked() <= site.read(), 30)
    for name, running in site.now.items():
        assert "needs a reader of version 2, this one is 1; upgrade modeaware" in running.said, name
    active.stop()
    eventually(lambda: _active(setting, site) == "controller-1", 60)
    assert setting.record(topic) == record, "the old controller leaves it as it is"


def _active(setting: Controlled, site: Deployment) -> str | None:
    """The controller whose claim stands on the log."""
    claim = setting.claim()
    if claim is None or claim.address is None:
        return None
    controllers = {name: running for name, running in site.now.items() if running.role == "command"}
    return next((n for n, r in controllers.items() if f"-{r.pid}-" in claim.controller_id), None)
