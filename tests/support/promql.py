"""Queries of Prometheus against the metrics that controllers and clients export."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import promql_parser

from modeaware.metrics import ClientCollector
from modeaware.monitoring.controller_metrics import ControllerCollector
from tests.support.watched import busy_snapshot


def exported(*collectors: ControllerCollector | ClientCollector) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The names that Prometheus gets -> their types and labels."""
    families = [family for collector in collectors for family in collector.describe()]
    return {
        family.name + ("_total" if family.type == "counter" else ""): (family.type, tuple(family._labelnames))
        for family in families
    }


@cache
def all_exported() -> dict[str, tuple[str, tuple[str, ...]]]:
    return exported(ControllerCollector(busy_snapshot), ClientCollector())


def selectors(expression: Any) -> Iterator[promql_parser.VectorSelector]:
    """The selectors of a parsed query."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("lhs", "rhs", "expr", "vector_selector", "args"):
        part = getattr(expression, name, None)
        for each in part if isinstance(part, list) else [part]:
            if each is not None:
                yield from selectors(each)


def problems(query: str, of_prometheus: frozenset[str] = frozenset()) -> list[str]:
    """What a query names that is not exported: metrics, and labels but for those that Prometheus itself adds."""
    found = list(selectors(promql_parser.parse(query)))
    named = set(re.findall(r"\bmodeaware_\w+", query))
    wrong = sorted(named - all_exported().keys()) + sorted(named ^ {selector.name for selector in found})
    return wrong + [
        f"{selector.name}: {matcher.name}"
        for selector in found
        for matcher in selector.matchers.matchers
        if selector.name in all_exported() and matcher.name not in {*all_exported()[selector.name][1], *of_prometheus}
    ]
