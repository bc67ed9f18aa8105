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
from modeaware.plan.targets import Share
from modeaware.plan.text import JSON_HELP, bar, encodable, plan_text, skyline
from modeaware.plan.topic_look import TopicLook
from modeaware.plan.words import duration, number, share_text, size, target_text, verdict_text
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
        ("murmur2", 24, "24 is a multiple of 12: keys move to new partitions only."),
        ("murmur2", 13, "13 is no multiple of 12; fewer move with 24 ("),
        ("minimal", 5, "By minimal_movement only keys of the retired partitions move."),
        ("minimal", 13, "By minimal_movement keys move to new partitions only."),
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
        ("none", "None of these: murmur2, crc32, fnv1a, minimal_movement. None explains even a quarter"),
        ("none", "keys are not kept together (round-robin, random or sticky)"),
        ("own", "another rule places them, such as a partitioner of your own"),
        ("half own", "keys are kept together in part, by another rule or by one that has changed"),
        ("mixed", "by 2 different rules"),
        ("shrunk", "Recent records are placed over 6 of the 12 partitions"),
        ("grown", "The topic has grown from 8 to 12 partitions"),
        ("partly", " lie elsewhere: in partitions that producers name, or by another rule. What follows takes"),
    ],
)
def test_the_verdict_in_sentences(place: str, text: str) -> None:
    assert text in " ".join(verdict_text(planned(place, 3)))


@pytest.mark.parametrize("place", ["murmur2", "mixed", "shrunk", "grown", "minimal"])
def test_where_all_is_explained_nothing_is_said_to_lie_elsewhere(place: str) -> None:
    assert planned(place, 3).recognition.unexplained == pytest.approx(0.0, abs=1e-9)
    assert "elsewhere" not in " ".join(verdict_text(planned(place, 3)))


def test_a_count_that_moves_as_many_is_no_better_one() -> None:
    """Of a prime number of partitions every lower count keeps one key in so many."""
    sent = records_of(some_keys(500, 3000), lambda key, _: murmur2(key or b"", 13))
    plan = make_plan(TopicLook(TopicFacts("t", "id", 13)), sample_of(sent, 13), 6, NOW_MS)
    assert 1 in [effect.target for effect in plan.effects if effect.divides]
    assert target_text(plan).endswith("6 does not divide 13.")


def test_without_keys_nothing_moves() -> None:
    plan = planned("none", keys=0)
    assert target_text(plan) == "12 -> 5: no keys, so none move."
    assert verdict_text(plan) == [
        "No record of the sample has a key: no hash shows.",
        "Records without a key go anywhere; they are counted as even load.",
    ]


def test_without_keys_and_all_in_one_partition() -> None:
    """As librdkafka's murmur2 does it: the load is anything but even."""
    plan = planned("murmur2", keys=0)
    assert verdict_text(plan)[1].startswith(f"Records without a key all lie in partition {murmur2(b'', 12)}: ")
    assert plan.now.skew == 12.0
    assert (plan.chosen.load, plan.chosen.skew) == ((), None)
    assert plan_json(plan)["hash"]["null_keys_partition"] == murmur2(b"", 12)
    assert plan_json(planned("none", keys=0))["hash"]["null_keys_partition"] is None


def test_of_an_unknown_rule_the_load_is_known_as_it_is() -> None:
    plan = planned("own")
    lies = [100.0 * sum(record.partition == p for record in plan.sample.records) for p in range(12)]
    assert list(plan.now.load) == pytest.approx(lies)
    assert plan.chosen.load == ()


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


@pytest.mark.parametrize("place", PLACES)
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


def test_what_is_to_be_copied_is_not_broken() -> None:
    group = "a-group-" + "with-a-long-name-" * 8
    text = plan_text(planned("murmur2", group=group))
    assert f" {group}" in "".join(text.partition("In the way")[1:])
    assert "--accept-state-loss" in text


def names_of(told: object) -> set[str]:
    """Every field's, at any depth."""
    if isinstance(told, dict):
        return set(told).union(*map(names_of, told.values()))
    return set().union(*map(names_of, told)) if isinstance(told, list) else set()


def test_the_help_names_every_field_of_json_and_no_other() -> None:
    documented = set(re.findall(r'"(\w+)"', JSON_HELP))
    assert documented == names_of(plan_json(planned("murmur2")))


@pytest.mark.parametrize("place", PLACES)
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


@pytest.mark.parametrize("place", PLACES)
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


@pytest.mark.parametrize("place", PLACES)
def test_the_page_can_be_read_aloud(place: str) -> None:
    found = Page(plan_html(planned(place, 3)))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    plots = [attributes for tag, attributes in found.tags if tag == "svg"]
    assert plots
    for plot in plots:
        assert plot["role"] == "img"
        assert set((plot["aria-labelledby"] or "").split()) <= set(ids)
    tables = sum(tag == "table" for tag, _ in found.tags)
    assert tables == sum(tag == "caption" for tag, _ in found.tags) == 2
    assert all("scope" in attributes for tag, attributes in found.tags if tag == "th")
    headings = [tag for tag, _ in found.tags if re.fullmatch(r"h\d", tag)]
    assert headings == ["h1", *["h2"] * 5]


def test_a_topic_of_many_partitions_is_drawn_all_the_same() -> None:
    sent = records_of(some_keys(1000, 3000), lambda key, _: murmur2(key or b"", 1000))
    sample = sample_of(sent, 1000)
    partitions = {p: PartitionFacts(log.start, log.end, log.end, 0, 0) for p, log in sample.logs.items()}
    plan = make_plan(TopicLook(TopicFacts("t", "id", 1000, partitions=partitions)), sample, 600, NOW_MS)
    assert plan.recognition.verdict == "recognised"
    assert sum(tag == "rect" for tag, _ in Page(plan_html(plan)).tags) < 1200
    text = plan_text(plan)
    assert max(map(len, text.splitlines())) <= 80
    assert "the most of each 4 partitions" in text
    assert sum(set(line.strip("0123456789 ")) <= set("▁▂▃▄▅▆▇█") for line in text.splitlines() if line.strip()) <= 8


def test_bars() -> None:
    assert bar(0, 4) == "    "
    assert bar(0.001, 4) == "▏   "
    assert bar(0.5, 4) == "██  "
    assert bar(0.53, 4) == "██▏ "
    assert bar(7, 4) == "████"
    assert skyline([0, 1, 2, 4], 4) == "▁▃▅█"
    assert skyline([0, 0], 0) == "▁▁"


def test_plain_characters_where_there_are_no_others() -> None:
    assert encodable("██▏ ±3", "utf-8") == "██▏ ±3"
    assert encodable("██▏ ±3 ▁█", "ascii") == "##. ~3 _#"
    encodable(plan_text(planned("murmur2")), "ascii").encode("ascii")


def test_figures_for_people() -> None:
    assert number(1234567.4) == "1 234 567"
    assert [size(value) for value in (0, 999, 1500, 2.5e6, 7e15)] == ["0 B", "999 B", "1.5 kB", "2.5 MB", "7000.0 TB"]
    spans = [90, 12_000, 600_000, 7_200_000, 300_000_000]
    assert [duration(ms) for ms in spans] == ["90 ms", "12 s", "10 min", "2 h", "3 d 11 h"]
    shares = (None, Share(0.0, 0.01), Share(1.0, 0.0), Share(0.2493, 0.0081))
    assert [share_text(share) for share in shares] == ["?", "0 %", "100 %", "24.9 % ±0.8"]
