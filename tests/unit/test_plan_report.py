"""A plan as text, JSON and a page."""

from __future__ import annotations

import io
import json
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware import cli
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.facts import GroupFacts, MembersSeen, PartitionFacts, TopicFacts
from modeaware.plan.html import plan_html
from modeaware.plan.report import ResizePlan, make_plan
from modeaware.plan.sample import TopicSnapshot
from modeaware.plan.text import duration, plan_text, target_text, verdict_text
from modeaware.reports.serialise import json_help, to_json
from partitioners import PURE_HASHES, Hash
from partitioners.hashes import murmur2
from partitioners.minimal_movement import jump_over
from tests.support.plan_samples import Place, records_of, sample_of, some_keys

CRC32 = PURE_HASHES[Hash.CRC32]
NOW_MS = 1_700_000_000_000
PLACES: dict[str, Place] = {
    "murmur2": lambda key, _: murmur2(key or b"", 12),
    "none": lambda key, n: n % 12,
    "own": lambda key, _: sum(key or b"") * 7 % 12,
    "mixed": lambda key, n: (murmur2 if n % 2 else CRC32)(key or b"", 12),
    "shrunk": lambda key, n: murmur2(key or b"", 12 if n < 500 else 6),
    "grown": lambda key, n: murmur2(key or b"", 8 if n < 1500 else 12),
    "one": lambda *_: 0,
    "minimal": lambda key, _: jump_over(murmur2)(key or b"", 12),
    "half own": lambda key, n: n // 2 % 12 if n % 3 == 0 else sum(key or b"") * 7 % 12,
    "partly": lambda key, n: n // 2 % 12 if n % 2 else murmur2(key or b"", 12),
}
NOT_SEEN = MembersSeen()


@lru_cache  # plans are immutable, and take a moment
def planned(
    place: str,
    target: int = 5,
    topic: str = "orders",
    keys: int = 500,
    count: int = 12,
    group: str = "<billing>",
    members: MembersSeen = NOT_SEEN,
) -> ResizePlan:
    sent = records_of(some_keys(keys, 3000) if keys else [None] * 3000, PLACES[place])
    sample = replace(sample_of(sent, count), topic=topic)
    groups = {group: GroupFacts({11: 3}, has_members=True, stateful=True, members=members)} if group else {}
    partitions = {p: PartitionFacts(log.start, log.end, log.end, 0, 0) for p, log in sample.logs.items()}
    facts = TopicFacts(topic, "id", count, partitions=partitions, groups=groups)
    return make_plan(TopicSnapshot(facts), sample, target, NOW_MS)


@pytest.mark.parametrize(
    ("place", "target", "of_the_target", "verdict"),
    [
        (
            "murmur2",
            5,
            "moves keys also between partitions that stay (4 or 6 would not).",
            "by murmur2, the hash of Kafka's Java producer, ",
        ),
        ("murmur2", 4, "4 divides 12: a hash modulo the number of partitions moves only keys of the retired ones.", ""),
        ("minimal", 5, "By minimal_movement only keys of the retired partitions move.", ""),
        ("none", 5, "12 -> 5: keys are not kept together now", "not kept together (round-robin, random or sticky)"),
        ("own", 5, "hash modulo the count, 91.7 % of the keys move; with any other rule, at least 58.3 %.", ""),
        ("half own", 5, "it is unknown which keys move", "keys are kept together in part, by another rule or by one"),
        ("shrunk", 3, "6 -> 3: ", ""),
        ("grown", 3, "", "The topic has grown from 8 to 12 partitions"),
        (
            "partly",
            3,
            "",
            " lie elsewhere: producers name the partition, or use another rule. The figures below count",
        ),
    ],
)
def test_target_and_verdict_in_sentences(place: str, target: int, of_the_target: str, verdict: str) -> None:
    assert of_the_target in target_text(planned(place, target))
    assert verdict in " ".join(verdict_text(planned(place, target)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"place": "mixed"}, "placed by 2 different rules: crc32 (librdkafka"),
        ({"place": "own", "keys": 0}, "No record of the sample has a key: no hash shows."),
        ({"place": "own", "keys": 0}, "no keys, so none move."),
        ({"place": "own", "keys": 0}, "Records without a key all lie in partition 0: producers name it"),
        ({"place": "none", "keys": 0}, "Records without a key go anywhere; they are counted as even load."),
        ({"place": "murmur2", "keys": 2}, "2 different keys are too few to tell hashes apart."),
        ({"place": "own", "keys": 10**9}, "Too few keys occur more than once"),
        ({"place": "one", "target": 2, "count": 1}, "There is one partition only: every hash puts all keys there."),
        ({"place": "murmur2", "group": ""}, "No group uses it."),
    ],
)
def test_what_a_topic_does_not_show_is_said(fields: dict[str, Any], sentence: str) -> None:
    assert sentence in " ".join(plan_text(planned(**fields)).split())


def test_durations_have_at_most_two_units() -> None:
    told = [duration(ms) for ms in (90, 12_000, 600_000, 10_800_000, 180_000_000)]
    assert told == ["90 ms", "12 s", "10 min", "3 h", "2 d 2 h"]


def test_command_prints_plain_characters_where_it_must_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned("murmur2")
    session, seen = SimpleNamespace(cluster=None, conf={}), SimpleNamespace(facts=TopicFacts("t", "id", 12), logs={})
    for name, value in (("take_snapshot", seen), ("read_sample", None), ("make_plan", plan)):
        monkeypatch.setattr(f"modeaware.cli.plan.{name}", lambda *_, value=value: value)
    monkeypatch.setattr("modeaware.cli.plan.open_session", lambda *_: nullcontext(session))
    written, page = io.BytesIO(), tmp_path / "plan.html"
    command = ["plan", "--bootstrap-server", "x:1", "t", "--partitions", "5", "--html"]
    with io.TextIOWrapper(written, "iso-8859-1") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert cli.main([*command, str(page)]) == 0
        assert cli.main([*command, str(tmp_path / "absent" / "plan.html")]) == 1
        assert b"12 -> 5: 90.2 % ~2.6 of the keys move" in written.getvalue()
    assert page.read_text() == plan_html(plan)
    shown = capsys.readouterr().err
    assert f"Written: {page}\nerror: cannot write {tmp_path}/absent/plan.html: No such file" in shown


@pytest.mark.parametrize(
    ("place", "target", "text"),
    [
        ("murmur2", 0, "0 partitions: at least 1 must stay"),
        ("murmur2", 12, "12 partitions: 'orders' has that many already"),
        ("shrunk", 6, "6 partitions: recent records of 'orders' already use only that many of its 12 partitions"),
    ],
)
def test_no_plan_for_what_is_or_cannot_be(place: str, target: int, text: str) -> None:
    with pytest.raises(RequestRefused, match=text) as caught:
        planned(place, target)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("place", ["murmur2", "half own", "grown"])
def test_the_text_has_every_section(place: str) -> None:
    plan = planned(place, 3)
    text = plan_text(plan)
    headings = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert headings[1:] == ["Sample", "Hash", "Targets", "Load of a partition", "Groups", "In the way"]
    assert re.search(r"^  >  +3 ", text, re.MULTILINE), "the target that was asked for is marked"
    assert re.search(r"^  REFUSED  groups that keep state per partition", text, re.MULTILINE)
    assert all(len(line) <= 80 and line.isprintable() and line == line.rstrip() for line in text.splitlines())


def test_text_has_the_members_that_are_seen_to_be_mode_aware() -> None:
    text = plan_text(planned("murmur2", members=MembersSeen(aware=2, unknown=1)))
    assert "\n  <billing>  classic, keeps state  2 seen to be mode-aware, 1 unknown  " in text


def names_of(told: object) -> set[str]:
    """Every field's, at any depth."""
    if isinstance(told, dict):
        return set(told).union(*map(names_of, told.values()))
    return set().union(*map(names_of, told)) if isinstance(told, list) else set()


def test_json_says_the_same_and_the_help_names_every_field_and_no_other() -> None:
    plan = planned("shrunk", 3)
    told = json.loads(json.dumps(to_json(plan)))
    documented = set(re.findall(r"^ {2,6}(\w+)(?::|$)", json_help(ResizePlan), re.MULTILINE))
    assert documented == names_of(told) | {"bytes", "records", "span_ms"}
    assert (told["topic"], told["partitions"], told["placed_over"], told["target"]) == ("orders", 12, 6, 3)
    shown = [(effect["target"], len(effect["load_bytes"])) for effect in told["targets"]]
    assert shown == [(effect.target, len(effect.load)) for effect in plan.effects]
    rate, load = told["targets"][0]["mean_bytes_per_s"], told["targets"][0]["mean_bytes"]
    assert rate == pytest.approx(load / 2999, rel=0.01), "a record a second"


@pytest.mark.parametrize("place", ["murmur2", "half own", "grown"])
def test_page_needs_nothing_else_and_shows_names_as_text(place: str) -> None:
    page = plan_html(planned(place, 3, topic="<script>alert(1)</script>&"))
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"<(?:script|link|img|iframe|object|use|image|a)\b", page)
    assert not re.search(r"url\(|@import|https?:|src=|href=|\son\w+=", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;: " in page
    assert "&lt;billing&gt;" in page


@pytest.mark.parametrize(
    ("place", "count", "target", "partitions"),
    [
        ("murmur2", 12, 5, {12: ["0", "5", "11"], 5: ["0", "1", "2", "3", "4"]}),
        ("murmur2", 12, 1, {12: ["0", "5", "11"], 1: ["0"]}),
        ("own", 300, 5, {300: ["0", "100", "200", "298"]}),  # 150 columns: each stands for two partitions
    ],
)
def test_page_names_the_partitions_and_the_greatest_load_of_its_charts(
    place: str, count: int, target: int, partitions: dict[int, list[str]]
) -> None:
    plan = planned(place, target, count=count)
    page = plan_html(plan)
    shown = re.findall(r'<div class="x">(.*?)</div>', page)
    assert [re.findall(r">(\d+)</span>", labels) for labels in shown] == [*partitions.values()]
    (greatest,) = re.findall(r"^  From 0 to (.*?),", plan_text(plan), re.MULTILINE)
    heights = [re.findall(r">([^<]+)</span>", labels) for labels in re.findall(r'<div class="y">(.*?)</div>', page)]
    assert heights == [[greatest, "0"]] * len(partitions)
    assert re.findall(r"<figcaption>(.*?)</figcaption>", page) == [
        f"Load of each of {n} partitions" for n in partitions
    ]
