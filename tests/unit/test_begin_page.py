"""The page that begins with a cluster of too many partitions quotes what the commands print of a made fleet."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

from modeaware.cli.plan import topics_file
from modeaware.plan.fleet import Fleet, FleetPlan, ScannedTopic, Sizing, make_fleet_plan
from modeaware.plan.fleet_text import fleet_text
from tests.support.source_tree import ROOT
from tests.unit.test_plan_fleet import WEEK, held, logs_of, topic

TEAMS = ("orders", "payments", "stock", "shipping", "search", "clicks", "audit", "fraud", "mail", "profiles")
EVENTS = ("created", "changed", "deleted", "retry", "failed", "snapshot", "export", "daily", "test", "alerts")
REGIONS = ("eu", "us", "ap", "sa", "af")


def made_fleet() -> tuple[FleetPlan, Fleet]:
    """500 topics on three brokers: counts, rates and groups as a cluster has them that has grown for years."""
    fleet = Fleet([made(n, ".".join(name)) for n, name in enumerate(NAMES)], WEEK)
    return make_fleet_plan(fleet, Sizing()), fleet


NAMES = [*product(TEAMS, EVENTS, REGIONS)]


def made(number: int, name: str) -> ScannedTopic:
    """A topic whose every figure follows from its number."""
    count = (12, 12, 24, 48, 12, 6, 96)[number % 7]
    per_day = int(10 ** (number * 7 % 19 / 2)) if number % 11 else 0
    members = (0, 1, 2, 3, 6, 12)[number % 6]
    groups = held(**{f"{name.split('.')[0]}-service": members}) if number % 4 else {}
    logs = logs_of(count, per_day, size=100 + number % 900, hour_share=0.1)
    of = topic(name, count, groups=groups, logs=logs, cleanup_policy="compact" if number % 13 == 0 else "delete")
    return replace(of, replicas=dict.fromkeys((1, 2, 3), count))


def quoted(command: str) -> str:
    """What the page quotes below a command."""
    page = (ROOT / "docs" / "begin.md").read_text(encoding="utf-8")
    found = re.search(rf"^\$ {re.escape(command)}.*\n((?:.*\n)*?)```$", page, re.MULTILINE)
    assert found is not None, command
    return found[1].rstrip("\n")


def test_the_table_is_what_a_scan_prints() -> None:
    assert quoted("modeaware plan --all --limit 3") == fleet_text(made_fleet()[0], 3)


def test_the_file_is_what_a_scan_writes() -> None:
    assert quoted("head -n 9 ten.yaml").splitlines() == topics_file(*made_fleet(), 10).splitlines()[:9]
