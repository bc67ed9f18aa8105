"""The documents and the alert rules say what the code says, wherever that can be compared."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.picture import draw
from modeaware.cli import COMMANDS
from modeaware.config import ClientConfig, ControllerConfig, parse_controller_config, split_client_config
from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer
from modeaware.demo.audit import report_lines
from modeaware.lifecycle import reasons
from modeaware.lifecycle.state import MODE_TRANSITIONS, REPLICA_TRANSITIONS
from modeaware.modelog.group_rules import GroupRule, GroupRulesRecord
from modeaware.modelog.moved import MovedRecord
from modeaware.modelog.records import (
    ClaimRecord,
    DeleteTopicPartitions,
    ObservedBrokersRecord,
    Replacement,
    RetiredPartition,
    Straggler,
    TopicRecord,
)
from modeaware.views.choice import ModeSource
from tests.simulation.guard_texts import GUARDS, Change
from tests.support.offline import CONF
from tests.support.promql import problems
from tests.support.source_tree import ROOT, modules, tree

DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table(document: str, heading: str) -> dict[str, list[str]]:
    """The table whose first heading is ``heading``: first cell -> the other cells, without backticks."""
    lines = iter(document.splitlines())
    rows: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(f"| {heading} |"):
            next(lines)
            for row in lines:
                if not row.startswith("|"):
                    return rows
                first, *rest = [cell.strip().strip("`") for cell in row.strip("|").split("|")]
                rows[first] = rest
    raise AssertionError(f"there is no table with the heading {heading!r}")


def json_blocks(document: str) -> Iterator[bytes]:
    for block in re.findall(r"```json\n(.*?)```", document, re.DOTALL):
        yield json.dumps(json.loads(block), separators=(",", ":"), sort_keys=True).encode()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_repository_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_are_named_are_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"^ *```(?:sh|text)\n(.*?)```", text, re.MULTILINE | re.DOTALL))
    named = re.findall(r"`modeaware ([a-z][a-z-]*)", text)
    named += re.findall(r"^ *(?:\$ )?modeaware ([a-z][a-z-]*)", lines, re.MULTILINE)
    assert sorted(set(named) - {command.name for command in COMMANDS}) == []


def test_the_table_of_mode_transitions_is_the_codes() -> None:
    # The first table with this heading names what clients do; the one of the transitions has one more cell.
    documented = table(read("docs/invariants.md").partition("## The tables")[2], "mode")
    assert {mode: set(after[0].split(", ")) for mode, after in documented.items()} == {
        mode.label: {other.label for other in after} for mode, after in MODE_TRANSITIONS.items()
    }


def test_the_table_of_replica_transitions_is_the_codes() -> None:
    documented = table(read("docs/invariants.md").partition("## The tables")[2], "replica state")
    assert {state: set(after[0].split(", ")) for state, after in documented.items()} == {
        state.value: {other.value for other in after} for state, after in REPLICA_TRANSITIONS.items()
    }


def test_every_client_setting_is_documented_with_its_default() -> None:
    documented = {name: cells[0].strip("`") for name, cells in table(read("docs/settings.md"), "setting").items()}
    config, rest = split_client_config(documented)
    assert rest == {}, "these are no settings of ours"
    assert config == ClientConfig()
    assert len(documented) == len(fields(ClientConfig)) - 2, "all but librdkafka's own and the callback"


def figures(of: str) -> list[str]:
    """The keys in the table of what ``modeaware_stats()`` has, in the table's order."""
    return [name for cell in table(read("docs/observability.md"), of) for name in cell.split("`, `")]


def test_every_figure_of_a_client_is_documented(producer: Producer) -> None:
    with Consumer({**CONF, "group.id": "g"}) as consumer:
        assert {*figures("consumer's figure"), "views"} == consumer.modeaware_stats().keys()
    assert {*figures("producer's figure"), "views"} == producer.modeaware_stats().keys()


@pytest.mark.parametrize("mode_source", ["auto", "log", "wire"])
def test_every_figure_of_the_source_of_the_modes_is_documented(mode_source: str) -> None:
    documented = figures("source's figure")
    missing = {"log": documented[-4:], "wire": [name for name in documented if name.startswith("log_")]}
    source = ModeSource(CONF, ClientConfig(mode_source=mode_source))
    shared = {"clients"}  # a client's handle adds it
    assert source.stats().keys() | shared == {*documented} - {*missing.get(mode_source, [])}
    source.stop(0)


def test_every_controller_config_is_documented_with_its_default() -> None:
    documented = {name: cells[0].strip("`") for name, cells in table(read("docs/settings.md"), "config").items()}
    defaults = {name: value for name, value in documented.items() if value != "-"}  # "-": what was said before stays
    assert parse_controller_config(defaults) == ControllerConfig()
    assert len(documented) == len(fields(ControllerConfig))


def test_the_readme_quotes_and_draws_the_recorded_run_of_the_demo() -> None:
    report = json.loads(read("docs/demo-report.json"))
    assert draw(report) == read("docs/shrink.svg"), "python docs/picture.py docs/demo-report.json docs/shrink.svg"
    quoted = re.search(r"```text\n(  acknowledged.*?)```", read("README.md"), re.DOTALL)
    assert set(quoted[1].splitlines()) <= set(report_lines(report))


def test_the_examples_of_the_mode_log_are_records() -> None:
    topic, moved, claim, rules, observed = json_blocks(read("docs/mode-log.md"))
    record = TopicRecord.from_json(topic)
    assert record.to_json() == topic, "the example is not as the controller writes it"
    assert record.deletion.policy == "drained"
    assert {p for p, mode in enumerate(record.modes) if not mode.writable} == set(record.retired)
    assert MovedRecord.from_json(moved).to_json() == moved
    assert ClaimRecord.from_json(claim).to_json() == claim
    assert GroupRulesRecord.from_json(rules).to_json() == rules
    assert ObservedBrokersRecord.from_json(observed).to_json() == observed


RECORDS = (
    TopicRecord,
    MovedRecord,
    Replacement,
    RetiredPartition,
    Straggler,
    ClaimRecord,
    GroupRulesRecord,
    GroupRule,
    ObservedBrokersRecord,
)


def test_every_field_of_the_mode_log_is_documented() -> None:
    document = read("docs/mode-log.md")
    names = {field.name for cls in RECORDS for field in fields(cls)}
    names |= {field.name for field in fields(DeleteTopicPartitions)}
    names = names - {"delay_ms"} | {"delete_partitions_delay_ms"}
    assert [name for name in sorted(names) if f"`{name}`" not in document and f".{name}`" not in document] == []


# The example alert rules


GROUPS = yaml.safe_load(read("examples/alerts.yaml"))["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule(rule: dict[str, Any]) -> None:
    assert problems(rule["expr"]) == []
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {"summary", "description", "runbook"} == set(rule["annotations"])
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_reasons_that_are_no_trouble_are_codes() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "ModeawareDrainBlocked"]
    (spared,) = re.findall(r'reason!~"([^"]+)"', rule["expr"])
    assert set(spared.split("|")) == reasons.AS_ASKED, "the page calls the same ones waiting"


def test_every_reason_is_explained() -> None:
    documented = set(
        re.findall(r"^\| `([a-z-]+)` \|", read("docs/drain.md") + read("docs/replace-reference.md"), re.MULTILINE)
    )
    assert documented >= reasons.CODES - {reasons.OPENING}, "opening is a phase, too"


# docs/invariants.md: the invariants, where each is guarded, and the tests that miss the guard


DOCUMENT = read("docs/invariants.md")
SIMULATOR = "simulator"
NAMES = tuple(f"I{number}" for number in range(1, 10))
CITATION = re.compile(r"\binvariants?\s+(I\d+(?:(?:,\s*|\s+and\s+)I\d+)*)")


def sections() -> dict[str, str]:
    """The text below each invariant's heading, by its name."""
    parts = re.split(r"^## ", DOCUMENT, flags=re.MULTILINE)
    return {part.partition(".")[0]: part for part in parts if re.match(r"I\d+\. ", part)}


def guards() -> Iterator[tuple[str, str, str]]:
    """The rules: the invariant, ``module:function``, and what fails without the guard: a test, or the
    simulator where no test is named."""
    for name, text in sections().items():
        for where, test in re.findall(r"^- .*: `(modeaware\.[\w.:]+)`(?:, `(.*)`)?$", text, re.MULTILINE):
            yield name, where, test or SIMULATOR


def cited() -> set[tuple[str, str]]:
    """Each name that the code cites, with the module that does."""
    texts = {module: path.read_text(encoding="utf-8") for module, path in modules().items()}
    return {
        (name, module)
        for module, text in texts.items()
        for names in CITATION.findall(text)
        for name in re.findall(r"I\d+", names)
    }


def function_of(change: Change) -> str:
    """``module:function`` of the innermost function in which a change of source text lies."""
    path = modules()[change.module]
    text = path.read_text(encoding="utf-8")
    line = text[: text.index(change.old)].count("\n") + 1
    around = [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return f"{change.module}:{max(around, key=lambda node: node.lineno).name}"


def names_of_tests(node: ast.AST, of: str = "") -> Iterator[str]:
    """Their names as pytest takes them: with the class, where the test is in one, and with the story, of a table."""
    tables = (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.Assign))
    named = next((each.value for each in tables if ast.unparse(each.targets[0]) == "STORIES"), ast.Dict([], []))
    stories = [key.value for key in named.keys if isinstance(key, ast.Constant)]
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef):
            yield from names_of_tests(each, f"{of}{each.name}::")
        elif isinstance(each, ast.FunctionDef):
            yield f"{of}{each.name}"
            if [argument.arg for argument in each.args.args] == ["story"]:
                yield from (f"{of}{each.name}[{story}]" for story in stories)


def test_the_invariants_are_those_that_there_are_and_each_is_cited() -> None:
    assert tuple(sections()) == NAMES
    assert {name for name, _ in cited()} == set(NAMES)


def test_a_guard_is_there_and_says_what_for() -> None:
    functions = {
        f"{module}:{node.name}"
        for module, path in modules().items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {where for _, where, _ in guards()} - functions == set()
    listed = {(name, where.partition(":")[0]) for name, where, _ in guards()}
    # Where versions are explained, and where the sources of views meet: what they lead to is listed.
    described = {("I4", "modeaware.topic_view")}
    assert cited() == listed | described


def test_the_simulators_guards_are_the_pages() -> None:
    removed = {
        (guard.invariant, function_of(change))
        for guard in GUARDS
        for change in guard.changes
        if guard.invariant in NAMES and change.module.startswith("modeaware.")
    }
    assert {(name, where) for name, where, test in guards() if test == SIMULATOR} == removed


def test_a_named_test_is_there() -> None:
    named = {test for _, _, test in guards() if test != SIMULATOR}
    paths = {test.partition("::")[0] for test in named}
    assert named - {f"{path}::{test}" for path in paths for test in names_of_tests(tree(ROOT / path))} == set()
