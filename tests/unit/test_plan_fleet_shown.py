"""The plan of a fleet as text, page and JSON, and the options of the command."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from modeaware import cli
from modeaware.cli import plan as command
from modeaware.cli.plan import topics_file
from modeaware.config import ControllerConfig
from modeaware.lifecycle.objections import objections
from modeaware.plan.diff import CurrentTopic, diff_topic
from modeaware.plan.file import read_files
from modeaware.plan.fleet import Fleet, Sizing, make_fleet_plan
from modeaware.plan.fleet_text import fleet_text
from modeaware.plan.html import fleet_html
from modeaware.plan.steps import Replace
from modeaware.reports.serialise import json_text
from tests.unit.test_plan_fleet import GROUP, WEEK, fleet, topic

LONG = "t" * 240
"""A name that leaves room for ``-v2``, and none for the end of an interim topic's."""


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The command scans no cluster but finds three topics; what it asked for is in the list."""
    asked: list[object] = []

    class NoSession:
        cluster = SimpleNamespace(brokers=None)

        def __enter__(self) -> NoSession:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def scan(session: object, chosen: object, days: int, sizing: Sizing, *, sample: bool) -> Fleet:
        asked[:] = [chosen, days, sizing, sample]
        return Fleet([topic("a"), topic("b", 6), topic("c", 2)], WEEK, unseen=("one thing",))

    monkeypatch.setattr(command, "open_session", lambda args, what: NoSession())
    monkeypatch.setattr(command, "scan", scan)
    return asked


def test_the_text_has_totals_brokers_and_the_topics_that_free_the_most() -> None:
    text = fleet_text(fleet(Sizing(most_on_broker=10, price=0.002)), limit=2)
    prose = " ".join(text.split())
    assert "Replacing 4 topics frees 106 of 140 partition replicas (75.7 %), by the rates of the last 7d." in prose
    assert "The first 1 free 52.9 %." in prose
    assert "1 topics are neither written nor read: deleting them frees 12 more replicas." in prose
    assert "Saved: 77.38 a month, for 53 partitions." in prose
    assert "17 above the limit" in text
    assert "Topics (2 of 6)" in text
    assert re.search(r"^  big +40 +3 +replace +74 +≤ 67 B +≤ 0\.7 +\S+ \S+ +7d +3 +3 members", text, re.MULTILINE)
    assert "small" not in text
    assert text.endswith("Not seen\n  one thing")
    assert "Not seen" not in fleet_text(replace(fleet(), unseen=()))


def test_an_empty_cluster_is_a_plan() -> None:
    plan = make_fleet_plan(Fleet((), WEEK), Sizing())
    assert fleet_text(plan).startswith("0 topics, 0 partition replicas")
    assert "<svg" not in fleet_html(plan)


def test_shrinks_are_said_to_free_no_replica() -> None:
    plan = make_fleet_plan(Fleet([topic()], WEEK, can_replace=False), Sizing())
    assert "1 topics can only be shrunk: a replacement needs brokers with KRaft." in " ".join(fleet_text(plan).split())
    assert plan.frees == 0


def test_the_page_needs_nothing_else_and_has_every_topic_with_its_reasons() -> None:
    page = fleet_html(fleet())
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<details>") == 6
    assert "modeaware replace big --keep-name --partitions 3" in page
    assert "cannot keep its name" not in page
    assert "the peak is an upper bound" in page
    path = re.search(r'<path d="M0 100(.*)L100 100Z"', page)
    assert path is not None
    assert path[1].endswith("L100.00 24.3"), "106 of 140 are freed"
    topics, replicas = (re.search(rf'<div class="{axis}">(.*?)</div>', page)[1] for axis in "xy")
    assert re.findall(r'left:(.*?)%">(.*?)<', topics) == [
        *(("0.00", "0"), ("25.00", "1"), ("50.00", "2"), ("75.00", "3"), ("100.00", "4")),
    ]
    assert re.findall(r'top:(.*?)%">(.*?)<', replicas) == [
        *(("100.00", "0"), ("64.29", "50"), ("28.57", "100"), ("0.00", "140")),
    ]
    why = "broker 7 creates topics automatically"
    page = fleet_html(make_fleet_plan(Fleet([topic("big")], WEEK, why_all_renamed=why), Sizing()))
    assert "modeaware replace big --with big-v2 --partitions" in page
    assert f"The topic cannot keep its name: {why}" in page


def test_names_of_the_cluster_are_escaped_on_the_page() -> None:
    groups = {"<b>": next(iter(GROUP.values()))}
    page = fleet_html(make_fleet_plan(Fleet([topic(groups=groups)], WEEK), Sizing()))
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_json_has_the_totals_of_all_topics() -> None:
    found = json.loads(json_text(fleet()))
    assert (found["schema_version"], found["frees"], found["curve"]) == (1, 106, [74, 94, 102, 106])
    first = found["topics"][0]
    assert (first["topic"], first["keep_name"], first["to"], first["needs"]) == ("big", True, 3, 3)
    assert first["rates"]["is_bound"] is True
    assert {note["code"] for note in first["notes"]} == {"peak-bound"}


def test_the_command_writes_page_and_file(
    scanned: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, file = tmp_path / "page.html", tmp_path / "topics.yaml"
    options = ["--window", "3d", "--sample", "--partition-bytes-per-second", "90", "--limit", "1"]
    options += ["--max-partitions-per-broker", "5", "--price-per-partition-hour", "0.002"]
    given = ["plan", "--all", "--exclude", "x*", *options, "--html", str(page), "--write", str(file)]
    assert cli.main(given) == 0
    chosen, days, sizing, sample = scanned
    assert (days, sample, sizing) == (3, True, Sizing(bytes_per_s=90, most_on_broker=5, price=0.002))
    assert callable(chosen)
    assert (chosen("orders"), chosen("x-1")) == (True, False)
    text = capsys.readouterr().out
    assert "Topics (1 of 3)" in text
    assert "Saved: 20.44 a month, for 14 partitions." in text
    assert len(re.findall("6 above the limit", text)) == 2, "both brokers have 6 replicas after the replacements"
    assert page.read_text().count("<details>") == 3
    assert [each.name for each in read_files([file])] == ["a"]


@pytest.mark.parametrize("price", ["nan", "inf", "-1", "cheap"])
def test_prices_that_are_none_are_refused(price: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["plan", "--all", "--bootstrap-server", "127.0.0.1:1", f"--price-per-partition-hour={price}"])
    assert f"'{price}' is no price" in capsys.readouterr().err


@pytest.mark.parametrize("why", [None, "broker 7 creates topics automatically (auto.create.topics.enable)"])
def test_written_topics_keep_their_names_where_the_cluster_admits_that(why: str | None, tmp_path: Path) -> None:
    found = Fleet([topic("a"), topic("b", 6)], WEEK, why_all_renamed=why)
    file = tmp_path / "topics.yaml"
    file.write_text(topics_file(make_fleet_plan(found, Sizing()), found, None))
    kept, renamed = ((None, True), (None, True)), (("a-v2", False), ("b-v2", False))
    assert tuple((each.replace, each.keep_name) for each in read_files([file])) == (renamed if why else kept)
    comment = " ".join(line.removeprefix("# ") for line in file.read_text().partition("version:")[0].splitlines())
    assert comment == (f"No topic keeps its name (keep_name: true): {why}" if why else "")


def test_a_topic_whose_interim_topic_cannot_be_named_gets_a_new_name(tmp_path: Path) -> None:
    found = Fleet([topic("a"), topic(LONG)], WEEK)
    text = topics_file(make_fleet_plan(found, Sizing()), found, None)
    (tmp_path / "topics.yaml").write_text(text)
    read = {each.name: (each.replace, each.keep_name) for each in read_files([tmp_path / "topics.yaml"])}
    assert read == {"a": (None, True), LONG: (f"{LONG}-v2", False)}
    assert "  # invalid topic name" in text
    assert not text.startswith("#")


def test_apply_does_not_refuse_what_was_written(tmp_path: Path) -> None:
    found = Fleet([topic("a"), topic(LONG), topic("b-v2", 24)], WEEK)
    (tmp_path / "topics.yaml").write_text(topics_file(make_fleet_plan(found, Sizing()), found, None))
    facts = {each.facts.topic: each.facts for each in found.topics}
    for each in read_files([tmp_path / "topics.yaml"]):
        of = facts[each.name]
        current = CurrentTopic(of.partition_count, frozenset({2}), {}, topic_id=of.topic_id)
        (step,) = diff_topic(each, current).steps
        assert isinstance(step, Replace)
        assert list(objections(step.command, None, of, ControllerConfig(), WEEK.now_ms)) == []


def test_a_file_of_shrinks_says_nothing_of_names() -> None:
    found = Fleet([topic()], WEEK, can_replace=False)
    text = topics_file(make_fleet_plan(found, Sizing()), found, None)
    assert (text.startswith("version: 1"), "keep_name" in text, "replace" in text) == (True, False, False)


def test_globs_choose_topics(scanned: list[object]) -> None:
    assert cli.main(["plan", "--topics", "a.*", "--topics", "b?", "--json"]) == 0
    chosen = scanned[0]
    assert callable(chosen)
    assert [name for name in ("a.x", "ax", "b1", "b12", "A.x") if chosen(name)] == ["a.x", "b1"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("plan", "pass TOPIC and --partitions, or --all"),
        ("plan t", "pass TOPIC and --partitions"),
        ("plan t --partitions 4 --write f", "--write works only with --all or --topics"),
        ("plan t --partitions 4 --window 2d", "--window works only with --all or --topics"),
        ("plan t --all", "--all and --topics take no TOPIC"),
        ("plan --all --sample 5", "--all and --topics take no TOPIC"),
        ("plan --all --window 90m", "whole days are needed"),
        ("plan --all --window 32d", "from 1d to 31d"),
    ],
)
def test_options_that_do_not_go_together(given: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(given.split())
    assert left.value.code == 2
    assert why in capsys.readouterr().err
