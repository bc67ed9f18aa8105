"""What a run of chaos has to reach, and what fails it."""

from __future__ import annotations

import pytest

from tests.chaos.clients import GAVE_UP, TRANSACTION_FAILED
from tests.chaos.lifeline import BROKERS_LOST
from tests.chaos.report import Report
from tests.chaos.setting import CHAINS
from tests.workload.verdict import Verdict


def events(**ends: object) -> list[dict[str, object]]:
    """What a run's chronicle has of its chains."""
    well = {"acknowledged": 100, "refused": {}, "duplicates": 0, "errors": {}, "deleted": 1, **ends}
    chains = [{"event": "chain", "name": name, **well} for name in CHAINS]
    return [{"at_ms": 1, **event} for event in ({"event": "replaced"}, {"event": "replaced"}, *chains)]


def missed(run: list[dict[str, object]], minutes: float = 0.5) -> set[str]:
    report = Report(1, run, Verdict(), 0.0, minutes)
    return {goal.what for goal in report.goals if not goal.met}


def test_a_run_whose_chains_were_not_judged_is_not_well() -> None:
    assert missed(events()) == set()
    assert missed(events()[:-1]) == {"chains of replaced topics that were judged"}
    assert missed(events(acknowledged=0)) == {"records acknowledged in them"}


def test_a_run_whose_routing_was_not_judged_is_not_well() -> None:
    verdict = Verdict()
    verdict.routing["aware"] = 5
    goals = Report(1, events(), verdict, 0.0, 0.5).goals
    assert [goal.what for goal in goals if not goal.met] == ["records whose routing was judged"]


def test_a_long_run_has_to_replace_topics() -> None:
    assert "replacements completed" in missed(events(), minutes=2)
    assert "replacements completed" not in missed(2 * events(), minutes=2)


def test_a_record_lost_in_a_chain_fails_the_run() -> None:
    verdict = Verdict()
    verdict.adopt({"lost": 1}, {"lost": ["record 7"]}, "range")
    report = Report(1, events(), verdict, 0.0, 0.5)
    assert not report.ok
    assert {"VIOLATION lost: 1", "    range: record 7"} <= {line.partition(" (")[0] for line in report.lines()}
    assert report.as_json()["replacements"] == {
        "completed": 2,
        "not_deleted": 0,
        "undone": 0,
        "topics_deleted": len(CHAINS),
    }


@pytest.mark.parametrize(
    ("process", "last_words", "failed"),
    [
        ("range-0", f"ERROR client: {GAVE_UP}: {BROKERS_LOST}", False),
        ("range-0", f"ERROR client: {GAVE_UP}: KafkaError{{FATAL,code=_FATAL}}", True),
        ("unaware-transactional", f"ERROR client: {GAVE_UP}: KafkaError{{FATAL,code=_FENCED}}", False),
        ("aware-transactional", f"ERROR client: {GAVE_UP}: KafkaError{{code=_FAIL,str={TRANSACTION_FAILED}}}", False),
        ("unaware-idempotent", f"ERROR client: {GAVE_UP}: KafkaError{{FATAL,code=_FENCED}}", True),
    ],
)
def test_a_client_that_ends_by_itself_fails_the_run_unless_the_fault_is_known(
    process: str, last_words: str, failed: bool
) -> None:
    ended = {"at_ms": 1, "event": "ended-by-itself", "process": process, "last_words": last_words}
    assert missed([*events(), ended]) == ({"ended by itself"} if failed else set())
