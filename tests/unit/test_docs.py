"""The documents say what the code says, wherever that can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from modeaware.cli import COMMANDS
from modeaware.config import ClientConfig, ControllerConfig, parse_controller_config, split_client_config
from modeaware.modelog.group_rules import GroupRule, GroupRulesRecord
from modeaware.modelog.records import (
    ClaimRecord,
    DeleteTopicPartitions,
    ObservedBrokersRecord,
    RetiredPartition,
    Straggler,
    TopicRecord,
)
from modeaware.modes import MODE_TRANSITIONS, REPLICA_TRANSITIONS

ROOT = Path(__file__).parents[2]
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
    documented = table(read("docs/how-it-works.md").partition("## The tables")[2], "mode")
    assert {mode: set(after[0].split(", ")) for mode, after in documented.items()} == {
        mode.label: {other.label for other in after} for mode, after in MODE_TRANSITIONS.items()
    }


def test_the_table_of_replica_transitions_is_the_codes() -> None:
    documented = table(read("docs/how-it-works.md"), "replica state")
    assert {state: set(after[0].split(", ")) for state, after in documented.items()} == {
        state.value: {other.value for other in after} for state, after in REPLICA_TRANSITIONS.items()
    }


def test_every_client_setting_is_documented_with_its_default() -> None:
    documented = {name: cells[0].strip("`") for name, cells in table(read("README.md"), "setting").items()}
    config, rest = split_client_config(documented)
    assert rest == {}, "these are no settings of ours"
    assert config == ClientConfig()
    assert len(documented) == len(fields(ClientConfig)) - 2, "all but librdkafka's own and the callback"


def test_every_controller_config_is_documented_with_its_default() -> None:
    documented = {name: cells[0].strip("`") for name, cells in table(read("README.md"), "config").items()}
    defaults = {name: value for name, value in documented.items() if value != "-"}  # "-": what was said before stays
    assert parse_controller_config(defaults) == ControllerConfig()
    assert len(documented) == len(fields(ControllerConfig))


def test_the_examples_of_the_mode_log_are_records() -> None:
    topic, claim, rules, observed = json_blocks(read("docs/mode-log.md"))
    record = TopicRecord.from_json(topic)
    assert record.to_json() == topic, "the example is not as the controller writes it"
    assert record.deletion is not None
    assert record.deletion.policy == "drained"
    assert {p for p, mode in enumerate(record.modes) if not mode.writable} == set(record.retired)
    assert ClaimRecord.from_json(claim).to_json() == claim
    assert GroupRulesRecord.from_json(rules).to_json() == rules
    assert ObservedBrokersRecord.from_json(observed).to_json() == observed


RECORDS = (TopicRecord, RetiredPartition, Straggler, ClaimRecord, GroupRulesRecord, GroupRule, ObservedBrokersRecord)


def test_every_field_of_the_mode_log_is_documented() -> None:
    document = read("docs/mode-log.md")
    names = {field.name for cls in RECORDS for field in fields(cls)}
    names |= {field.name for field in fields(DeleteTopicPartitions)} - {"delay_ms"} | {"delete_partitions_delay_ms"}
    names = names - {"glob"} | {"literal"}
    assert [name for name in sorted(names) if f"`{name}`" not in document and f".{name}`" not in document] == []
