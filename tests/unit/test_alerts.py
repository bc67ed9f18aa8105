"""The example alert rules: valid YAML and PromQL, over metrics that we export, with a page of the runbook each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from modeaware.lifecycle import reasons
from modeaware.metrics import ClientCollector
from modeaware.monitoring.controller_metrics import ControllerCollector
from tests.support.watched import busy_snapshot

ROOT = Path(__file__).parents[2]
GROUPS = yaml.safe_load((ROOT / "examples" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]


def exported() -> dict[str, tuple[str, ...]]:
    """The names that Prometheus gets -> their labels."""
    collectors = (ControllerCollector(busy_snapshot), ClientCollector())
    families = [family for collector in collectors for family in collector.describe()]
    return {
        family.name + ("_total" if family.type == "counter" else ""): tuple(family._labelnames) for family in families
    }


def selectors(expression: Any) -> Iterator[promql_parser.VectorSelector]:
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("lhs", "rhs", "expr", "vector_selector", "args"):
        part = getattr(expression, name, None)
        for each in part if isinstance(part, list) else [part]:
            if each is not None:
                yield from selectors(each)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule(rule: dict[str, Any]) -> None:
    known = exported()
    found = list(selectors(promql_parser.parse(rule["expr"])))
    named = set(re.findall(r"\bmodeaware_\w+", rule["expr"]))
    assert {selector.name for selector in found} == named, "every one is found, and no other"
    assert named <= set(known)
    for selector in found:
        for matcher in selector.matchers.matchers:
            assert matcher.name in known[selector.name]
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {"summary", "description", "runbook"} == set(rule["annotations"])
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_reasons_that_are_no_trouble_are_codes() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "ModeawareDrainBlocked"]
    (spared,) = re.findall(r'reason!~"([^"]+)"', rule["expr"])
    assert set(spared.split("|")) == reasons.AS_ASKED, "the page calls the same ones waiting"
