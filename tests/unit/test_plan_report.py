"""A plan as text, JSON and a page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser

import pytest

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.plan.html import plan_html
from modeaware.plan.report import ResizePlan, make_plan, plan_json
from modeaware.plan.sample import TopicLook
from modeaware.plan.text import JSON_HELP, plan_text, target_text, verdict_text
from partitioners import PURE_HASHES, Hash
from partitioners.hashes import murmur2
from partitioners.minimal_movement import jump_over
from tests.support.plan_samples import Place, records_of, sample_of, some_keys

CRC32 = PURE_HASHES[Hash.CRC32]
NOW_MS = 1_700_000_000_000
VOID = {"meta", "rect", "line"}
PLACES: dict[str, Place] = {
    "murmur2": lambda key, _: murmur2(key or b"", 12),
    "none": lambda key, n: n % 12,
    "own": lambda key, _: sum(key or b"") * 7 % 12,
    "mixed": lambda key, n: (murmur2 if n % 2 else CRC32)(key or b"", 12),
    "shrunk": lambda key, n: murmur2(key or b"", 12 if n < 500 else 6),
    "grown": lambda key, n: murmur2(key or b"", 8 if n < 1500 else 12),
    "minimal": lambda key, _: jump_over(murmur2)(key or b"", 12),
    "half own": lambda key, n: n // 2 % 12 if n % 3 == 0 else sum(key or b"") * 7 % 12,
    "partly": lambda key, n: n // 2 % 12 if n % 2 else murmur2(key or b"", 12),
}


@lru_cache  # plans are immutable, and take a moment
def planned(
    place: str, target: int = 5, topic: str = "orders", keys: int = 500, count: int = 12, group: str = "<billing>"
) -> ResizePlan:
    sent = records_of(some_keys(keys, 3000) if keys else [None] * 3000, PLACES[place])
    sample = replace(sample_of(sent, count), topic=topic)
    groups = {group: GroupFacts({11: 3}, has_members=True, stateful=True)}
    partitions = {p: PartitionFacts(log.start, log.end, log.end, 0, 0) for p, log in sample.logs.items()}
    facts = TopicFacts(topic, "id", count, partitions=partitions, groups=groups)
    return make_plan(TopicLook(facts), sample, target, NOW_MS)


@pytest.mark.parametrize(
    ("place", "target", "text"),
    [
        ("murmur2", 5, "5 does not divide 12; fewer move with 4 ("),
        ("murmur2", 4, "4 divides 12: only keys of the retired partitions move."),
        ("minimal", 5, "By minimal_movement only keys of the retired partitions move."),
        ("none", 5, "12 -> 5: keys are not kept together now, so none has an order to lose."),
        ("own", 5, "Of any hash taken modulo the count it would be 91.7 %, and 58.3 % at the least."),
        ("half own", 5, "which keys move is not known"),
        ("shrunk", 3, "6 -> 3: "),
    ],
)
def test_the_target_in_a_sentence(place: str, target: int, text: str) -> None:
    assert text in target_text(planned(place, target))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("murmur2", "by murmur2, the hash of Kafka's Java producer, kafka-python, and librdkafka's murmur2 and"),
        ("none", "keys are not kept together (round-robin, random or sticky)"),
        ("half own", "keys are kept together in part, by another rule or by one that has changed"),
        ("grown", "The topic has grown from 8 to 12 partitions"),
        ("partly", " lie elsewhere: in partitions that producers name, or by another rule. What follows takes"),
    ],
)
def test_the_verdict_in_sentences(place: str, text: str) -> None:
    assert text in " ".join(verdict_text(planned(place, 3)))


@pytest.mark.parametrize(
    ("place", "target", "text"),
    [
        ("murmur2", 0, "0 partitions: at least 1 must stay"),
        ("murmur2", 12, "12 partitions: 'orders' has them already"),
        ("shrunk", 6, "6 partitions: of the 12 of 'orders', recent records are placed over 6 already"),
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
    assert re.search(r"^  REFUSED  Groups that keep state per partition", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80
    assert all(line == line.rstrip() for line in text.splitlines())
    assert text.isprintable() or set(text) - {"\n"} == {c for c in text if c.isprintable()}, "no colours, ever"


def names_of(told: object) -> set[str]:
    """Every field's, at any depth."""
    if isinstance(told, dict):
        return set(told).union(*map(names_of, told.values()))
    return set().union(*map(names_of, told)) if isinstance(told, list) else set()


def test_the_help_names_every_field_of_json_and_no_other() -> None:
    documented = set(re.findall(r'"(\w+)"', JSON_HELP))
    assert documented == names_of(plan_json(planned("murmur2")))


@pytest.mark.parametrize("place", ["murmur2", "half own", "grown"])
def test_json_says_the_same(place: str) -> None:
    plan = planned(place, 3)
    told = json.loads(json.dumps(plan_json(plan)))
    assert (told["topic"], told["partitions"], told["placed_over"], told["target"]) == ("orders", 12, plan.base, 3)
    assert [effect["target"] for effect in told["targets"]] == [effect.target for effect in plan.effects]
    assert told["hash"]["verdict"] == plan.recognition.verdict
    assert [len(effect["load_bytes"]) for effect in told["targets"]] == [len(effect.load) for effect in plan.effects]
    assert told["blockers"][0]["code"] == "stateful-groups"
    assert told["sample"]["records"] == 3000
    rate, load = told["targets"][0]["mean_bytes_per_s"], told["targets"][0]["mean_bytes"]
    assert rate == pytest.approx(load / 2999, rel=0.01), "a record a second"


class Page(HTMLParser):
    """Checks that elements nest, and collects what a page has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("place", ["murmur2", "half own", "grown"])
def test_the_page_is_whole_and_needs_nothing_else(place: str) -> None:
    page = plan_html(planned(place, 3, topic="<script>alert(1)</script>&"))
    found = Page(page)
    names = {tag for tag, _ in found.tags}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "use", "image", "a"})
    assert not re.search(r"url\(|@import|https?:|src=|href=|\son\w+=", page)
    assert "<script>alert(1)</script>&: " in found.text, "it is text"
    assert "<billing>" in found.text
    assert "prefers-color-scheme:dark" in page
    assert ("html", {"lang": "en"}) in found.tags
