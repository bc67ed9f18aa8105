"""The command line on a real Kafka: shrink, watch, describe, undo; and bad input, which changes nothing."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
from argparse import Namespace
from contextlib import closing

import pytest

from modeaware import cli
from modeaware.cli.session import connect, connection
from modeaware.controller.daemon import Controller
from tests.conftest import MakeTopic
from tests.support.command_line import QUICK, WAIT, Site
from tests.support.plain import ends
from tests.support.waiting import eventually

TIMEOUT_S = 30.0


def test_shrink_and_wait_where_no_controller_runs_then_undo(site: Site, filled: str) -> None:
    told = site.run("shrink", filled, "--partitions", "2", *WAIT)
    assert told.status == 0, told.err
    assert "WARNING: Brokers do not enforce modes: producers without modeaware continue" in told.err
    assert "2 divides 6" in told.err
    assert "No controller is running: this command does the controller's work." in told.err
    assert told.out.splitlines() == [f"{filled}: ReadOnly now: 2-5.", f"{filled}: done."]
    described = site.describe(filled)
    assert (described["phase"], described["writable"], described["deletion"]["policy"]) == ("done", 2, "drained")
    assert [p["mode"] for p in described["partitions"]] == ["ReadWrite"] * 2 + ["None"] * 4
    assert all(p["log_start"] == p["seal_offset"] == p["log_end"] for p in described["partitions"][2:])

    undone = site.run("topics", "--undo", "--topic", filled, "--yes", "--wait", *QUICK)
    assert undone.status == 0, undone.err
    assert site.modes(filled) == ["ReadWrite"] * 6
    before = site.log()
    twice = site.run("topics", "--undo", "--topic", filled, "--yes")
    assert (twice.status, twice.out) == (0, f"{filled}: nothing to undo: no partition is retired.\n")
    assert site.log() == before


def test_a_running_controller_is_used(site: Site, filled: str, controller: Controller) -> None:
    told = site.run("topics", "--alter", "--topic", filled, "--partitions", "2", "--yes")
    assert told.status == 0, told.err
    assert "--undo" in told.out
    assert "No controller" not in told.err
    waited = site.run("shrink", filled, "--partitions", "2", "--yes", "--wait", "--delay", "0s")
    assert waited.status == 1, "the policy of a shrink in progress is not changed"
    grown = site.run("topics", "--alter", "--topic", filled, "--partitions", "8", "--yes", "--wait")
    assert grown.status == 0, grown.err
    assert "WARNING: If partitions are increased" in grown.err
    assert "WARNING: The topic is currently under changes" in grown.err
    assert site.modes(filled) == ["ReadWrite"] * 8


def test_a_silent_first_server_does_not_end_a_command(site: Site) -> None:
    """A broker that takes connections and never answers is passed over, at the start as well."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{site.servers}"
        with connect(connection(Namespace(bootstrap_server=servers, command_config=None))) as session:
            assert session.cluster.brokers.node_ids()


def test_a_dry_run_shows_the_plan_and_changes_nothing(site: Site, filled: str) -> None:
    told = site.run("shrink", filled, "--partitions", "4", "--dry-run", "--immediate-delete")
    assert told.status == 0, told.err
    assert "ReadOnly: 4-5" in told.err
    assert told.out == "Dry run: nothing was changed.\n"
    assert site.run("grow", filled, "--partitions", "9", "--dry-run").status == 0
    assert site.log() is None
    assert len(site.modes(filled)) == 6


def test_ctrl_c_leaves_the_wait_without_harm(site: Site, filled: str) -> None:
    """A group that lags holds the drain up; the one who waits leaves, and comes back when the group has read on."""
    site.commit(filled, f"slow-{filled}", dict.fromkeys(range(6), 0))

    process = site.spawn("shrink", filled, "--partitions", "2", *WAIT)
    try:
        # Not only `phase drain`: on a busy machine the list of groups is incomplete now and then.
        waits_for = f"slow-{filled}"
        eventually(
            lambda: waits_for in str(site.describe(filled)["partitions"][2]["waits_for"]), 4 * TIMEOUT_S, interval_s=0.5
        )
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == cli.INTERRUPTED, err
    assert "pause until a controller runs: modeaware controller" in err
    assert "--undo" in err
    assert "Traceback" not in err
    modes = [p["mode"] for p in site.describe(filled)["partitions"]]
    assert modes == ["ReadWrite"] * 2 + ["ReadOnly"] * 4
    waits = rf"shrink from 6 to 2 +drain +2-5 .*  group 'slow-{filled}' has not read to the seal"
    eventually(lambda: re.search(waits, site.run("status").out), 4 * TIMEOUT_S, interval_s=0.5)
    assert "No controller is running: these changes pause." in site.run("status").out
    program, *command = shlex.split(
        json.loads(site.run("status", filled, "--json").out)["changes"][0]["waiting"][0]["next"]
    )
    assert (program, cli.main(command)) == ("modeaware", 0), "it can be typed as it is"

    site.commit(filled, f"slow-{filled}", ends(site.servers, filled))
    again = site.run("shrink", filled, "--partitions", "2", *WAIT)
    assert again.status == 0, again.err
    assert "already under way" in again.err
    assert site.modes(filled) == ["ReadWrite"] * 2 + ["None"] * 4
    for command in ("shrink", "grow"):
        done = site.run(command, filled, "--partitions", "2", "--wait", "--yes")
        told = f"{filled}: already has 2 writable partitions, nothing to do.\n"
        assert (done.status, done.out) == (0, told), done.err


def test_bad_input_is_one_clear_line_and_changes_nothing(
    site: Site, controller: Controller, make_topic: MakeTopic
) -> None:
    plain, compacted, absent = make_topic(6), make_topic(6, cleanup_policy="compact"), f"absent-{site.mode_log}"
    site.commit(plain, f"g-{plain}", {0: 0})  # the first commit makes the brokers create __consumer_offsets
    for command, topic, count, complaint in (
        ("shrink", plain, "0", "at least 1 must stay"),
        ("shrink", plain, "7", "modeaware grow"),
        ("shrink", absent, "2", "does not exist"),
        ("shrink", "__consumer_offsets", "2", "internal"),
        ("shrink", compacted, "2", "cleanup.policy"),
        ("grow", plain, "5", "not an increase"),
        ("grow", absent, "3", "does not exist"),
        ("shrink", f"{plain}x", "2", f"did you mean '{plain}'?"),
    ):
        told = site.run(command, topic, "--partitions", count, "--yes")
        assert (told.status, told.out) == (1, "")
        [error] = told.err.splitlines()
        assert error.startswith("error: ")
        assert complaint in error
        assert topic not in site.changed_topics()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_controller_command_runs_until_it_is_told_to_stop(site: Site, filled: str, number: signal.Signals) -> None:
    process = site.spawn("controller", "--config", "modeaware.seal.quiet.ms=200")
    try:
        told = site.run("shrink", filled, "--partitions", "2", "--yes")
        assert f"{filled}: ReadOnly now: 2-5." in told.out
        second = site.run("controller", "--once")
        assert second.status == 1
        assert "another controller is running" in second.err
        process.send_signal(number)
        _, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "claimed the mode log" in err
    assert "Traceback" not in err
