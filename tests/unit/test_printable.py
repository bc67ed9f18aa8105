"""Names of the cluster may hold any character; nothing that people read shows them raw."""

from __future__ import annotations

import io
import json
import logging
from contextlib import redirect_stderr
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from modeaware.cli.progress import Progress, progress_on, tell
from modeaware.cli.reassign import _failed  # private: the lines of a refusal
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.errors import LocalKafkaError, ModeAwareError
from modeaware.lifecycle.facts import GroupFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.plan.html import plan_html
from modeaware.plan.text import plan_text
from modeaware.printable import printable, printable_lines, table
from modeaware.reports.describe import describe_text
from modeaware.reports.groups import GroupsReport, given_up, groups_text, report_groups, rule_text
from modeaware.reports.serialise import to_json
from tests.support.program import run_program
from tests.unit.test_cli_display import draining, shrinking
from tests.unit.test_plan_report import planned
from tests.unit.test_report_groups import FACTS, IGNORED, NOW, RECORD

FORGED = "none (all drained)"
HOSTILE = (
    f"g\n{FORGED}",
    f"g\r{FORGED}\x1b[2K",
    "\x1b]0;title\x07\x1b[31mred",
    "c1\x9b31m\x85next",
    "bidi\u202egpj.exe\u2066\u200f",
    f"lines\u2028{FORGED}\u2029",
    "[bold red]x[/bold red][link=https://example.org]y[/link]:boom:",
    "<script>alert(1)</script>\"'&\ufeff\udcff",
)
each_hostile_name = pytest.mark.parametrize("name", HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])


def is_safe(text: str) -> bool:
    """Whether each of the lines that ``text`` was joined of is printable. Tabs are kafka-topics' own."""
    return all(line.replace("\t", "").isprintable() for line in text.split("\n"))


@given(st.text())
def test_every_text_is_made_printable_and_stays_so(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(str(shown)) == shown
    assert (shown == text) == text.isprintable()
    assert len(printable_lines([text, "x"]).split("\n")) == 2


def test_escapes_can_be_read() -> None:
    assert printable("a\x1b[0m\nb\x9b\u202e\udcff ä→") == r"a\x1b[0m\nb\x9b\u202e\udcff ä→"


def _group_texts(name: str) -> list[str]:
    rule = GroupRule("waive", name, "orders", name, 0)
    facts = replace(FACTS, groups={**FACTS.groups, name: GroupFacts({})})
    topics = [report_groups(RECORD, facts, [rule], IGNORED, NOW)]
    without = [report_groups(RECORD, facts, [], IGNORED, NOW)]
    shown = to_json(GroupsReport.of(topics, [rule], NOW))
    assert json.loads(json.dumps(shown))["rules"][0]["group"] == name, "JSON is exact"
    text = groups_text(GroupsReport.of([replace(topics[0], topic=name, groups_doubt=name)], [rule], NOW))
    assert printable(name) in text
    with redirect_stderr(io.StringIO()) as told:
        tell(rule_text(rule), *given_up(without, topics, rule))
    return [text, told.getvalue()]


def _descriptions(name: str) -> Any:
    partition = draining(4, lagging_group=name, reason=f"group-lag:{name}")
    topic = shrinking(partition)
    return replace(topic, topic=name, required_groups=(name,), waived={name: name}, groups_doubt=name)


def _progress(name: str) -> list[str]:
    out, screen = io.StringIO(), io.StringIO()
    Progress(out).show(_descriptions(name))
    Progress(out).note(name)
    console = Console(file=screen, markup=False, emoji=False, width=500)
    with Live(console=console, auto_refresh=False) as live:
        picture = Progress(screen, live)
        picture.show(_descriptions(name))
        live.refresh()
        picture.note(name)
    assert printable(name) in screen.getvalue()
    return [out.getvalue(), screen.getvalue()]


def _plans(name: str) -> list[str]:
    plan = planned("murmur2", 5, group=name)
    page = plan_html(plan)
    assert "<script" not in page
    return [plan_text(plan), page]


def _errors(name: str) -> list[str]:
    error = ModeAwareError(f"broker: {name}")
    retired = RetiredPartitionChosen(name, topic="t", partition=1)
    assert retired.args[0].str() == printable(name)
    local = LocalKafkaError(f"refused:\n{name.splitlines()[0]}")
    assert str(local).startswith("refused:\n"), "the lines of a local log stay lines"
    return [str(error), str(error.args[0]), str(retired), str(local), str(_failed("head", {("t", 0): error}))]


RENDERERS = {
    "groups": _group_texts,
    "describe": lambda name: [describe_text([_descriptions(name)], expand=False)],
    "table": lambda name: table(("A", "B"), [(name, "x"), ("short", name)], {"B"}),
    "progress": _progress,
    "plan": _plans,
    "errors": _errors,
}


@each_hostile_name
@pytest.mark.parametrize("renderer", RENDERERS)
def test_hostile_name_is_escaped_wherever_people_read_it(renderer: str, name: str) -> None:
    for text in RENDERERS[renderer](name):
        assert is_safe(text), repr(text)
        assert FORGED not in [line.strip() for line in text.split("\n")]


@each_hostile_name
def test_hostile_name_is_escaped_in_every_log(name: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("modeaware.some.module").warning("group %s of %d", name, 1)
    assert caplog.messages == [f"group {printable(name)} of 1"]
    caplog.clear()
    logging.getLogger("an.application").warning("%s", name)
    assert caplog.messages == [name], "the logs of others are theirs"


def test_logs_of_an_application_without_handlers_still_reach_standard_error() -> None:
    log = "logging.getLogger('modeaware.x')"
    program = f"import logging, modeaware; {log}.warning('a\\x1bb'); {log}.info('no')"
    done = run_program(program)
    assert (done.returncode, done.stderr) == (0, "a\\x1bb\n")


@pytest.mark.parametrize(
    ("where", "propagate"), [("modeaware.x", True), ("modeaware.x", False), ("modeaware", False), ("", True)]
)
def test_record_reaches_the_handler_of_an_application_once_and_nothing_else(where: str, propagate: bool) -> None:
    program = (
        f"import logging, modeaware, sys; at = logging.getLogger({where!r}); at.propagate = {propagate}; "
        "at.addHandler(logging.StreamHandler(sys.stdout)); logging.getLogger('modeaware.x').warning('seen')"
    )
    done = run_program(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "seen\n", "")


def test_malformed_log_call_is_left_to_the_handlers(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TypeError):
        logging.getLogger("modeaware.x").warning("%d records", "no")
    assert caplog.records[-1].msg == "%d records"


def test_live_display_takes_no_style_from_a_name_and_notes_a_thing_once() -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign] # a terminal
    name = "[red]x[/red]"
    topic = shrinking(draining(4, reason=f"group-lag:{name}"), draining(5, phase="done", reason=None))
    with progress_on(screen) as progress:
        progress.show(replace(topic, topic=name))
        progress.note("brokers [away]")
        progress.note("brokers [away]")
    assert screen.getvalue().count(name) == 2, "the topic and the group it waits for"
    assert screen.getvalue().count("brokers [away]") == 1
    assert "1 of 2 partitions done" in screen.getvalue()
