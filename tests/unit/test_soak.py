"""What a soak calls well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.soak.figures import Figures, as_json
from tests.workload.verdict import Verdict


def soaked(verdict: Verdict | None = None, **more: Any) -> Figures:
    verdict = verdict or Verdict(acknowledged=4)
    fields = {"written": 4, "replacements": 2, "deletions": 2, "errors": {}, **more}
    return Figures(60.0, refused={"MSG_SIZE_TOO_LARGE": 1}, read={"range": 3}, verdict=verdict.as_json(), **fields)


def broken(kind: str) -> Verdict:
    verdict = Verdict(acknowledged=4)
    verdict.broken(kind, "record 1")
    return verdict


def test_a_soak_is_well() -> None:
    end = soaked()
    assert end.problems() == []
    report = json.loads(json.dumps(as_json([end], soaked(broken("lost")), seed=1)))
    assert (report["ok"], report["verdict"]["violations"]) == (False, {"lost": 1})
    report = as_json([end], end, seed=1)
    assert (report["ok"], report["seed"], len(report["minutes"])) == (True, 1, 1)
    assert "refused 1  lag 1" in end.line()


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        (soaked(broken("lost")), "lost: 1 (acknowledged, not read by every group, and not readable any more)"),
        (soaked(Verdict()), "no record was acknowledged"),
        (soaked(replacements=0, deletions=0), "no topic was replaced"),
        (soaked(deletions=1), "2 topics were replaced, 1 were deleted"),
    ],
)
def test_what_is_wrong_is_told(end: Figures, problem: str) -> None:
    assert end.problems() == [problem]
    report = as_json([], end)
    assert (report["ok"], report["problems"]) == (False, [problem])


def test_the_verdicts_of_periods_add_up() -> None:
    whole = Verdict()
    for part in (Verdict(acknowledged=3, duplicates={"range": 1}), broken("lost")):
        whole.add(part)
    assert (whole.acknowledged, whole.duplicates, dict(whole.violations)) == (7, {"range": 1}, {"lost": 1})
