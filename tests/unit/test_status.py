"""``modeaware status``: every change under way, what blocks it, and the command to run next."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from modeaware import cli
from modeaware.cli import status
from modeaware.errors import ControllerUnavailable
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import MembersSeen
from modeaware.lifecycle.report import ReplacementReport, TopicReport
from modeaware.modes import PartitionMode
from modeaware.reports.status import BY_ITSELF, NEXT, StatusReport, status_report
from tests.unit.test_cli_display import draining, partition, shrinking

SERVER = ("--bootstrap-server", "k:1")
REPLACEMENT = ReplacementReport(
    "orders-v2",
    *("id-2", 4, "config", None, False, (), 1, 2, 3, None, None, None, None, None),
    reason="group-not-moved:billing",
)


def typed(*words: str) -> str:
    return shlex.join(words)


def replaced(reason: str | None, **fields: object) -> TopicReport:
    """A topic that is being replaced, and waits as a whole."""
    now = replace(REPLACEMENT, reason=reason)
    topic = TopicReport("orders", "id", 3, "announce", None, (), (partition(0), partition(1)), replacement=now)
    return replace(topic, **fields)  # type: ignore[arg-type]  # mypy cannot see the fields' types


def waiting(topic: TopicReport) -> tuple[str | None, str | None]:
    """What the change waits for, and the command that is proposed."""
    ((found,),) = [change.waiting for change in status_report([topic], typed).changes]
    return found.waits_for, found.next


def test_one_line_for_the_partitions_that_wait_for_the_same() -> None:
    done = draining(6, phase="done", reason=None)
    report = status_report([shrinking(draining(4), draining(5, reason="delay"), done)], typed)
    (change,) = report.changes
    assert (change.topic, change.change, change.phase) == ("orders", "shrink from 6 to 4", "drain")
    assert [(w.partitions, w.phase, w.reason, w.next) for w in change.waiting] == [
        ((4,), "drain", "group-lag:billing", "modeaware groups list orders"),
        ((5,), "drain", "delay", None),
    ]
    assert change.waiting[0].waits_for == reasons.text("group-lag:billing")


def test_only_changes_under_way_are_shown() -> None:
    assert status_report([replace(shrinking(draining(4)), phase="done")], typed) == StatusReport(True, ())


def test_growth_and_replacement_have_their_names() -> None:
    new = partition(4, mode=PartitionMode.READ_ONLY, phase="opening", reason="opening")
    growth = replace(shrinking(new), phase="opening", deletion=None)
    replacing = replaced("paused")
    undone = replaced("undoing", replacement=replace(REPLACEMENT, reason="undoing", undone_ms=9))
    assert [change.change for change in status_report([growth, replacing, undone], typed).changes] == [
        "growth to 5",
        "replacement by orders-v2 (4)",
        "undo of the replacement by orders-v2",
    ]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("group-gone:it's", "groups waive 'it'\"'\"'s' --topic orders --reason WHY --expires 7d"),
        ("group-never-committed:b", "groups waive b --topic orders --reason WHY --expires 7d --uncommitted-only"),
        ("groups-hidden", "check --role controller orders"),
        ("partition-unavailable", "topics --describe --unavailable-partitions --topic orders"),
        ("group-stateful:app", "shrink orders --partitions 4 --delay=1m --accept-state-loss app"),
        ("compacted", "topics --undo --topic orders"),
        ("still-written", None),
        ("retention", None),
        (None, None),
        ("of-a-newer-controller", "topics --describe --topic orders"),
        ("group-gone", "groups list orders"),  # the name did not fit the record
    ],
)
def test_next_command_of_a_shrink(reason: str | None, expected: str | None) -> None:
    found = waiting(shrinking(draining(4, reason=reason)))
    assert found[1] == (None if expected is None else f"modeaware {expected}")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("paused", "replace orders"),
        ("group-not-moved:billing", "groups prepare billing --topic orders-v2"),
        ("fence-denied", "check --role controller orders --new-topic orders-v2"),
        ("group-stateful:app", "replace orders --accept-state-loss app"),
        ("compacted", "replace orders --undo"),
        ("earlier-topic-first:old", "topics --describe --topic old"),
        ("no-new-topic", "topics --delete --topic orders"),
        ("deleting", None),
    ],
)
def test_next_command_of_a_replacement(reason: str, expected: str | None) -> None:
    assert waiting(replaced(reason)) == (reasons.text(reason), None if expected is None else f"modeaware {expected}")


def test_every_reason_of_a_change_has_a_next_command_or_needs_none() -> None:
    of_aliases = {reasons.NAME_TAKEN, reasons.POINTS_NOWHERE, reasons.NAME_SUBSCRIBED}
    assert {*NEXT, *BY_ITSELF, *of_aliases} == reasons.CODES


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[TopicReport]:
    """The topics that the cluster has."""
    found: list[TopicReport] = []
    session = SimpleNamespace(read_log=lambda: SimpleNamespace(claim="claim"), conf={})
    monkeypatch.setattr(status, "open_session", lambda *_: nullcontext(session))
    monkeypatch.setattr(status, "describe_all_parts", lambda _session, _names, _log: found)
    monkeypatch.setattr(status, "is_running", lambda *_: True)
    return found


def test_text_is_one_table(told: list[TopicReport], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", *SERVER]) == 0
    assert capsys.readouterr().out == "No change is under way.\n"
    members = (SimpleNamespace(members=seen) for seen in (MembersSeen(2, 1, 3), MembersSeen(), MembersSeen(1)))
    told += [shrinking(draining(4), draining(5)), replaced("paused", topic="payments", groups=tuple(members))]
    assert cli.main(["status", *SERVER]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert re.split("  +", heading) == ["Topic", "Change", "Phase", "Partitions", "Members", "Waits for", "Next"]
    assert [re.split("  +", line) for line in lines] == [
        [
            *("orders", "shrink from 6 to 4", "drain", "4-5", "none"),
            "group 'billing' has not read to the seal",
            "modeaware groups list orders --bootstrap-server k:1",
        ],
        [
            *("payments", "replacement by orders-v2 (4)", "announce", "-", "3 seen to be mode-aware, 1 unknown"),
            *("the replacement is paused before the switch, as requested",),
            "modeaware replace payments --bootstrap-server k:1",
        ],
    ]


def test_missing_controller_blocks_every_change(
    told: list[TopicReport], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told.append(shrinking(draining(4)))
    monkeypatch.setattr(status, "is_running", lambda *_: False)
    assert cli.main(["status", *SERVER]) == 0
    rest = "No controller is running: these changes pause. Start one: modeaware controller --bootstrap-server k:1"
    assert rest in capsys.readouterr().out

    def cannot_tell(*_: object) -> bool:
        raise ControllerUnavailable("the controller listens on loopback")

    monkeypatch.setattr(status, "is_running", cannot_tell)
    assert cli.main(["status", *SERVER, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["schema_version"], shown["controller_runs"]) == (1, None)
    assert shown["changes"][0]["waiting"][0]["next"] == "modeaware groups list orders --bootstrap-server k:1"
