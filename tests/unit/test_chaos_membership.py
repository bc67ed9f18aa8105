"""Members of a KIP-848 group whose client missed its assignment, as a chaos run finds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from modeaware.local import LocalKafka
from tests.chaos import story
from tests.chaos.chronicle import Chronicle, Event, read_events
from tests.chaos.fleet import Child, Fleet
from tests.chaos.membership import MissedAssignment, assignments, last_received, missed_assignments
from tests.chaos.report import Report
from tests.chaos.setting import Setting
from tests.chaos.verdict import Verdict
from tests.support.kafka_tools import Done

DESCRIPTION = """
GROUP           CONSUMER-ID            HOST            CLIENT-ID     #PARTITIONS     CURRENT-EPOCH   CURRENT-ASSIGNMENT            TARGET-EPOCH    TARGET-ASSIGNMENT
chaos-1-consumer HQIKM4bQQlyLo2sEbt8IzQ /127.0.0.1      consumer-0-12 4               7               chaos-1:2,3,8,9               9               chaos-1:0,1,2,3,8,9
chaos-1-consumer SU6jp9xvT0eoAUKkM5b5Fg /127.0.0.1      consumer-1-33 4               9               chaos-1:4,5,6,7               9               chaos-1:4,5,6,7,10,11
chaos-1-consumer bUAAopkmQXa5ru6lqDFIBA /127.0.0.1      consumer-2-34 0               9               -                             9               -
"""  # noqa: E501 - as Kafka's tool prints it


def _received(partitions: range | tuple[int, ...], topic_id: str = "mr4Qj9JFRrGZqXC3DO6Mog") -> str:
    text = ", ".join(f"(null)({topic_id})[{partition}]" for partition in partitions)
    client = "%7|1795392807.922|HEARTBEAT|consumer-0-12#consumer-1| [thrd:main]"
    return f'{client}: ConsumerGroupHeartbeat received target assignment "{text}"'


def test_description_is_parsed_by_its_columns() -> None:
    assert assignments(DESCRIPTION) == {
        "consumer-0-12": {2, 3, 8, 9},
        "consumer-1-33": {4, 5, 6, 7},
        "consumer-2-34": set(),
    }
    assert assignments("Error: the coordinator is not available.\n") == {}


def test_last_received_assignment_counts() -> None:
    lines = [_received(range(12)), "2026-11-22 23:00:00,000 INFO client: TAKEN [(0, 17)]", _received((2, 3, 10, 11))]
    assert last_received(lines) == frozenset({2, 3, 10, 11})
    assert last_received([*lines, _received(())]) == frozenset()


def test_assignment_is_unknown_without_a_log_line_or_when_cut_short() -> None:
    assert last_received(["%4|1.5|REQTMOUT|consumer-0-12#consumer-1| [thrd:main]: Timed out"]) is None
    assert last_received([_received(range(12))[:-40] + '..."']) is None


def test_lost_revocation_is_a_missed_assignment() -> None:
    received = {"consumer-0-12": frozenset({2, 3, 8, 9, 10, 11}), "consumer-1-33": frozenset({4, 5, 6, 7})}
    missed = MissedAssignment("consumer-0-12", (2, 3, 8, 9), (2, 3, 8, 9, 10, 11))
    assert missed_assignments(DESCRIPTION, received) == [missed]


def test_received_assignment_is_no_missed_one_whatever_the_client_does_with_it() -> None:
    received = {"consumer-0-12": frozenset({2, 3, 8, 9}), "consumer-1-33": frozenset({4, 5, 6, 7})}
    assert missed_assignments(DESCRIPTION, received) == []


def test_members_with_unknown_assignments_are_left_out() -> None:
    assert missed_assignments(DESCRIPTION, {"consumer-1-33": None, "consumer-1-21": frozenset({0, 1})}) == []


class _Member:
    """A reader that reads to the end once it is started again."""

    def __init__(self, name: str, run: int, *received: str) -> None:
        self.name, self.run, self.group = name, run, "consumer"
        self.turn = Child(name, "reader", "consumer", [], Path()).turn
        self.lines = [*received]
        self.starts = 0

    def log_lines(self) -> list[str]:
        return self.lines

    def terminate(self) -> None:
        pass

    def wait(self, timeout_s: float) -> bool:
        return True


class _Fleet:
    def __init__(self, chronicle: Chronicle, *members: _Member) -> None:
        self.chronicle, self.members = chronicle, members

    def of(self, role: str) -> list[_Member]:
        return [*self.members]

    def start_child(self, child: _Member) -> None:
        child.starts += 1


def _drain(members: list[_Member], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    setting = Setting("localhost:9", "chaos-1", folder, 0, 1, 1.0)
    monkeypatch.setattr(story, "DRAIN_S", 0.0)
    monkeypatch.setattr(story, "LOOK_S", 0.0)
    monkeypatch.setattr(story, "finish_tool", lambda command: Done(0, DESCRIPTION, ""))
    monkeypatch.setattr(story, "unread", lambda *_: {} if any(each.starts for each in members) else {0: 7, 1: 9})
    chronicle = Chronicle(setting.events_path, lambda: 0, lambda event: None)
    fleet = cast(Fleet, _Fleet(chronicle, *members))
    story.Story(setting, cast(LocalKafka, None), fleet, (0.0, 0.0))._drain("consumer")
    chronicle.close()
    return list(read_events(setting.events_path))


def test_run_restarts_the_member_that_missed_its_assignment_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = _Member("consumer-0", 12, _received((2, 3, 8, 9, 10, 11)))
    other = _Member("consumer-1", 33, _received((4, 5, 6, 7)))
    events = _drain([stale, other], tmp_path, monkeypatch)
    assert (stale.starts, other.starts) == (1, 0)
    assert [event["event"] for event in events] == ["members", "members", "assignment-missed", "drained"]
    report: dict[str, Any] = Report(1, events, Verdict(), 0.0, 0.0).as_json()
    assert json.loads(json.dumps(report))["assignments_missed"] == ["consumer-0-12"]


def test_run_restarts_no_member_that_received_its_assignment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [
        _Member("consumer-0", 12, _received((2, 3, 8, 9))),
        _Member("consumer-1", 33, _received((4, 5, 6, 7))),
    ]
    events = _drain(members, tmp_path, monkeypatch)
    assert [member.starts for member in members] == [0, 0]
    assert [event["event"] for event in events] == ["members", "members", "not-drained"]
    assert events[-1]["left"] == {"0": 7, "1": 9}
