"""Files of topics: what is read, and that every mistake is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from modeaware.apply.desired import DesiredTopic, ShrinkRules
from modeaware.apply.read import read_files, read_text
from modeaware.errors import ConfigError


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read_text(text, "f")
    return str(raised.value).splitlines()


def topic(lines: str) -> str:
    """A file with one topic, whose lines begin at line 4."""
    return "version: 1\ntopics:\n  orders:\n" + "".join(f"    {line}\n" for line in lines.splitlines())


def test_all_that_a_file_can_say() -> None:
    text = topic(
        "partitions: 4\nreplication_factor: 3\n"
        "configs: {retention.ms: 1, a: -1, b: true, c: 0.5, d: 'x y', e: null, f: False}\n"
        "shrink: {policy: drained, delay_ms: 9, evacuate: true, accept_state_loss: [g, h, g]}"
    )
    configs = {"retention.ms": "1", "a": "-1", "b": "true", "c": "0.5", "d": "x y", "e": None, "f": "false"}
    rules = ShrinkRules("drained", 9, True, ("g", "h"))
    assert read_text(text, "f") == [DesiredTopic("orders", 4, 3, configs, rules, "f, line 3")]


def test_what_is_left_out() -> None:
    (plain,) = read_text(topic("partitions: 1"))
    assert (plain.replication_factor, plain.configs, plain.shrink) == (None, {}, None)
    (ruled,) = read_text(topic("partitions: 1\nshrink: {}"))
    assert ruled.shrink == ShrinkRules()
    assert ruled.shrink_rules.command_delay_ms == -1
    assert read_text("version: 1\ntopics: {}") == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "partitions: 4\nreplicas: 3",
            "f, line 5: topic 'orders': unknown key 'replicas': did you mean 'replication_f",
        ),
        ("partitions: 4\nconfig: {}", "f, line 5: topic 'orders': unknown key 'config': did you mean 'configs'?"),
        ("partitions: 4\nowner: me", "f, line 5: topic 'orders': unknown key 'owner': known are partitions, replica"),
        ("partitions: 4\npartitions: 4", "f, line 5: topic 'orders': 'partitions' stands in line 4 already"),
        ("partitions: 0", "f, line 4: partitions: a whole number from 1 to 100000 is needed, not '0'"),
        ("partitions: 010", "f, line 4: partitions: a whole number from 1"),
        ("partitions: '4'", "f, line 4: partitions: a whole number from 1"),
        ("partitions: 4\nreplication_factor: 32768", "f, line 5: replication_factor: a whole number from 1 to 32767"),
        ("partitions: 4\nconfigs: [a]", "f, line 5: configs: keys with values are needed"),
        ("partitions: 4\nconfigs: {a: 1_000}", "f, line 5: config a: a text, a decimal number"),
        ("partitions: 4\nconfigs: {a: 1:30}", "f, line 5: config a: "),
        ("partitions: 4\nshrink: {policy: soon}", "f, line 5: policy: one of retention, drained, not 'soon'"),
        ("partitions: 4\nshrink: {policy: immediate}", "(modeaware shrink --immediate-delete is for a person to say)"),
        ("partitions: 4\nshrink: {delay_ms: 5}", "f, line 5: delay_ms belongs to policy: drained"),
        ("partitions: 4\nshrink: {policy: drained, delay_ms: -1}", "f, line 5: delay_ms: a whole number from 0"),
        ("partitions: 4\nshrink: {evacuate: yes}", "f, line 5: evacuate: true or false is needed"),
        ("partitions: 4\nshrink: {accept_state_loss: g}", "f, line 5: accept_state_loss: a list"),
        ("configs: {}", "f, line 3: topic 'orders': partitions: is needed"),
        ("? [a]\n: 4", "f, line 4: topic 'orders': a key has to be a text"),
    ],
)
def test_a_mistake_is_told_with_its_line(line: str, told: str) -> None:
    assert [each for each in mistakes(topic(line)) if told in each], mistakes(topic(line))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "f: it is empty: version: 1 and topics: are needed"),
        ("topics: {}", "f, line 1: version: 1 is needed; it says how the file is to be read"),
        ("version: 1", "f, line 1: topics: is needed"),
        ("version: 1\ntopic: {}\ntopics: {}", "f, line 2: the file: unknown key 'topic': did you mean 'topics'?"),
        ("version: 1\ntopics: [a]", "f, line 2: topics: keys with values are needed"),
        ("version: 1\ntopics:\n  a/b: {partitions: 1}", "f, line 3: 'a/b' cannot be a topic's name"),
        (
            "version: 1\ntopics:\n  a: {partitions: 1\n",
            "f, line 4: no YAML: expected ',' or '}', but got '<stream end>'",
        ),
        ("version: 1\n---\nversion: 1\n", "f, line 2: no YAML: but found another document"),
        ("version: 1\ntopics: *nobody\n", "f, line 2: no YAML: found undefined alias 'nobody'"),
    ],
)
def test_what_is_no_file_of_topics(text: str, told: str) -> None:
    assert mistakes(text) == [told]


@pytest.mark.parametrize("text", ["[" * 100_000, "version: 1\ntopics: \x00"])
def test_what_yaml_chokes_on_is_an_error_like_others(text: str) -> None:
    (told,) = mistakes(text)
    assert told.startswith("f: no YAML: ")


def test_a_topic_in_two_files_is_told_with_both_places(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("version: 1\ntopics:\n  a: {partitions: 1}\n")
    two.write_text("version: 1\ntopics:\n  b: {partitions: 1}\n  a: {partitions: 1}\n")
    with pytest.raises(ConfigError) as raised:
        read_files([one, two, tmp_path / "absent.yaml"])
    twice, absent = str(raised.value).splitlines()
    assert twice == f"{two}, line 4: topic 'a' stands in {one}, line 3 already"
    assert absent.startswith(f"cannot read {tmp_path / 'absent.yaml'}: ")
    two.write_text("version: 1\ntopics:\n  b: {partitions: 1}\n")
    assert [topic.name for topic in read_files([one, two])] == ["a", "b"]


def test_example_file_is_valid() -> None:
    topics = {topic.name: topic for topic in read_files([Path(__file__).parents[2] / "examples/topics.yaml"])}
    assert topics["orders"].shrink_rules.policy == "drained"


def test_file_builds_no_objects() -> None:
    assert mistakes("version: 1\ntopics: !!python/object/apply:os.getcwd []\n") == [
        "f, line 2: topics: keys with values are needed"
    ]
