"""From a file of topics to the steps that bring a topic there, the warnings, and what is rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.errors import ConfigError, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.objections import why_evacuate
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.plan.diff import CurrentTopic, TopicDiff, diff_replaced, diff_topic
from modeaware.plan.file import DesiredTopic, ShrinkRules, read_files, read_topics
from modeaware.plan.steps import AcceptStateLoss, AlterConfigs, Create, Grow, Replace, Shrink
from tests.support.lifecycle import LATER_MS, TOPIC, admitted, after, ask, facts


class ModelTopic:
    """One topic: its brokers' part, and its record in the mode log."""

    def __init__(self, count: int | None = None, configs: dict[str, str] | None = None) -> None:
        self.count = count
        self.configs = dict(configs or {})
        self.record: TopicRecord | None = None

    def current(self) -> CurrentTopic | None:
        if self.count is None:
            return None
        return CurrentTopic(self.count, frozenset({1}), dict(self.configs), record=self.record)

    def plan(self, desired: DesiredTopic) -> TopicDiff:
        """As ``modeaware apply`` does: the diff, of which the controller's rules may refuse a step."""
        diff, record = diff_topic(desired, self.current()), self.record
        try:
            for step in diff.steps:
                if isinstance(step, Grow | Shrink | AcceptStateLoss | Replace):
                    record = ask(step.command, record, self._facts()).record or record
        except RequestRefused as refused:
            return replace(diff, steps=(), refusal=refused.message)
        return diff

    def take(self, plan: TopicDiff) -> None:
        """Every step; one that the controller's rules refuse fails the test."""
        for step in plan.steps:
            if isinstance(step, Create):
                assert self.count is None
                self.count, self.configs = step.partitions, dict(step.configs)
            elif isinstance(step, AlterConfigs):
                self.configs |= step.set
                for name in step.remove:
                    del self.configs[name]
            elif isinstance(step, Grow) and not step.by_controller:
                assert self.record is None
                assert self.count is not None
                assert step.command.total_count > self.count
                self.count = step.command.total_count
            else:
                self.record = admitted(step.command, self.record, self._facts())
                self.count = max(self.count or 0, len(self.record.modes))

    def settle(self, passes: int = 8) -> None:
        """The controller goes on for a while; all logs are empty, and nobody reads them."""
        if self.record is not None:
            for n in range(passes):
                self.record = after(self.record, self._facts(), LATER_MS + n * 1_000_000)

    def add_by_another_tool(self, count: int) -> None:
        """Partitions that the mode log knows nothing of."""
        assert self.count is not None
        self.count += count

    def _facts(self) -> TopicFacts:
        assert self.count is not None
        return facts(self.count, cleanup_policy=self.configs.get("cleanup.policy", "delete"))


def mistakes(text: str) -> list[str]:
    return read_topics(text, "f")[1]


def topic(lines: str) -> str:
    """A file with one topic, whose lines begin at line 4."""
    return "version: 1\ntopics:\n  orders:\n" + "".join(f"    {line}\n" for line in lines.splitlines())


def test_all_that_a_file_can_say() -> None:
    text = topic(
        "partitions: 4\nreplication_factor: 3\n"
        "configs: {retention.ms: 1, a: -1, b: true, c: 0.5, d: 'x y', e: null, f: False}\n"
        "shrink: {policy: drained, delay: 9ms, accept_state_loss: [g, h, g]}\nreplace: orders-v2\nevacuate: true"
    )
    configs = {"retention.ms": "1", "a": "-1", "b": "true", "c": "0.5", "d": "x y", "e": None, "f": "false"}
    rules = ShrinkRules(9, ("g", "h"))
    desired = DesiredTopic("orders", 4, 3, configs, rules, "f, line 3", "orders-v2", evacuate=True)
    assert read_topics(text, "f") == ([desired], [])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("partitions: 4\nreplicas: 3", "f, line 5: topic 'orders': unknown key 'replicas': did you mean 'repl"),
        ("partitions: 4\nconfig: {}", "f, line 5: topic 'orders': unknown key 'config': did you mean 'configs'?"),
        ("partitions: 4\nowner: me", "f, line 5: topic 'orders': unknown key 'owner': known are partitions, replica"),
        ("partitions: 4\npartitions: 4", "f, line 5: topic 'orders': 'partitions' is already declared in line 4"),
        ("partitions: 0", "f, line 4: partitions: a whole number from 1 to 100000 is needed, not '0'"),
        ("partitions: '4'", "f, line 4: partitions: a whole number from 1"),
        ("partitions: 4\nreplication_factor: 32768", "f, line 5: replication_factor: a whole number from 1 to 32767"),
        ("partitions: 4\nconfigs: [a]", "f, line 5: configs: keys with values are needed"),
        ("partitions: 4\nconfigs: {a: 1_000}", "f, line 5: config a: a text, a decimal number"),
        ("partitions: 4\nshrink: {policy: soon}", "f, line 5: policy: one of retention, drained is needed, not 'soon'"),
        (
            "partitions: 4\nshrink: {policy: immediate}",
            "(not in a file: modeaware shrink --immediate-delete deletes at once)",
        ),
        ("partitions: 4\nshrink: {delay: 5s}", "f, line 5: delay works only with policy: drained"),
        ("partitions: 4\nshrink: {policy: drained, delay: -1s}", "f, line 5: delay: '-1s' is not a duration"),
        (
            "partitions: 4\nshrink: {policy: drained, delay: 3600000}",
            "f, line 5: delay: '3600000' has no unit: 3600000ms",
        ),
        ("partitions: 4\nshrink: {policy: drained, delay_ms: 5}", "unknown key 'delay_ms': did you mean 'delay'?"),
        ("partitions: 4\nshrink: {accept_state_loss: g}", "f, line 5: accept_state_loss: a list"),
        ("partitions: 4\nshrink: {accept_state_loss: [7]}", "f, line 5: accept_state_loss: a group's name is needed"),
        ("partitions: 4\nreplace: orders", "f, line 5: replace: the name of a new topic is needed, not 'orders'"),
        ("partitions: 4\nreplace: a/b", "f, line 5: replace: the name of a new topic is needed, not 'a/b'"),
        ("partitions: 4\nreplace: [b]", "f, line 5: replace: the name of a new topic is needed, not ''"),
        ("partitions: 4\nreplace: v2\nevacuate: 1", "f, line 6: evacuate: true or false is needed, not '1'"),
        ("partitions: 4\nevacuate: true", "f, line 5: evacuate works only with replace: a compacted topic is replaced"),
        ("partitions: 4\nshrink: {evacuate: true}", "f, line 5: shrink: unknown key 'evacuate'"),
        ("- partitions", "f, line 4: topic 'orders': keys with values are needed"),
        ("configs: {}", "f, line 3: topic 'orders': 'partitions' is needed"),
        ("? [a]\n: 4", "f, line 4: topic 'orders': a key has to be a text"),
    ],
)
def test_a_mistake_is_told_with_its_line(line: str, told: str) -> None:
    assert [each for each in mistakes(topic(line)) if told in each], mistakes(topic(line))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "f: the file is empty; 'version: 1' and 'topics' are needed"),
        ("topics: {}", "f, line 1: 'version: 1' is needed, the version of the file format"),
        ("version: 1", "f, line 1: 'topics' is needed"),
        ("version: 1\ntopic: {}\ntopics: {}", "f, line 2: the file: unknown key 'topic': did you mean 'topics'?"),
        ("version: 1\ntopics:\n  a/b: {partitions: 1}", "f, line 3: 'a/b' is not a valid topic name"),
        (
            "version: 1\ntopics:\n  a: {partitions: 1\n",
            "f, line 4: invalid YAML: expected ',' or '}', but got '<stream end>'",
        ),
        ("version: 1\n---\nversion: 1\n", "f, line 2: invalid YAML: but found another document"),
        ("version: 1\ntopics: *nobody\n", "f, line 2: invalid YAML: found undefined alias 'nobody'"),
        ("version: 1\ntopics: !!python/object/apply:os.getcwd []\n", "f, line 2: topics: keys with values are needed"),
    ],
)
def test_what_is_no_file_of_topics(text: str, told: str) -> None:
    assert mistakes(text) == [told]


@pytest.mark.parametrize("text", ["[" * 100_000, "version: 1\ntopics: \x00"])
def test_what_yaml_chokes_on_is_an_error_like_others(text: str) -> None:
    (told,) = mistakes(text)
    assert told.startswith("f: invalid YAML: ")


def test_a_topic_in_two_files_is_told_with_both_places(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("version: 1\ntopics:\n  a: {partitions: 1}\n")
    two.write_text("version: 1\ntopics:\n  b: {partitions: 1}\n  a: {partitions: 1}\n")
    with pytest.raises(ConfigError) as raised:
        read_files([one, two, tmp_path / "absent.yaml"])
    twice, absent = str(raised.value).splitlines()
    assert twice == f"{two}, line 4: topic 'a' is already declared in {one}, line 3"
    assert absent.startswith(f"cannot read {tmp_path / 'absent.yaml'}: ")
    two.write_text("version: 1\ntopics:\n  b: {partitions: 1}\n")
    assert [topic.name for topic in read_files([one, two])] == ["a", "b"]


def test_a_new_topic_replaces_one_topic_and_is_none_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    a, b = ("  a: {partitions: 1, replace: c}\n", "  b: {partitions: 1, replace: c}\n")
    file.write_text(f"version: 1\ntopics:\n{a}{b}  c: {{partitions: 1}}\n")
    with pytest.raises(ConfigError) as raised:
        read_files([file])
    assert str(raised.value).splitlines() == [
        f"{file}, line 3: replace: 'c' is declared in {file}, line 5 as a topic of its own",
        f"{file}, line 4: replace: 'c' is declared in {file}, line 5 as a topic of its own",
        f"{file}, line 4: replace: 'c' already replaces 'a'",
    ]
    file.write_text(f"version: 1\ntopics:\n{a}")
    (topic,) = read_files([file])
    assert topic.replace == "c"


def test_what_aliases_share_is_read_once() -> None:
    def shared(configs: str, shrink: str) -> str:
        first = f"version: 1\ntopics:\n  t0: {{partitions: 1, configs: &c {configs}, shrink: &s {shrink}}}\n"
        return first + "".join(f"  t{n}: {{partitions: 1, configs: *c, shrink: *s}}\n" for n in range(1, 100))

    topics, wrong = read_topics(shared("{retention.ms: 1}", "{policy: drained}"), "f")
    assert (len(topics), wrong) == (100, [])
    assert all(one.configs is topics[0].configs and one.shrink is topics[0].shrink for one in topics)
    assert len(mistakes(shared("{a: 0x1}", "{delay: 1s}"))) == 2
    many = ", ".join(f"c{n}: 1" for n in range(251))
    (wrong_number,) = mistakes(shared(f"{{{many}}}", "{}"))
    assert wrong_number == "f, line 3: configs: 251 entries; a topic may have at most 250"
    a, b = read_topics(topics_of("{partitions: 1, shrink: {accept_state_loss: %s}}", "[g, h]"), "f")[0]
    assert a.shrink is not b.shrink
    assert a.shrink_rules.accept_state_loss is b.shrink_rules.accept_state_loss


def topics_of(body: str, value: str) -> str:
    """A file with two topics, a and b, which share one value by an alias."""
    return f"version: 1\ntopics:\n  a: {body % f'&v {value}'}\n  b: {body % '*v'}\n"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("%s", "{partitions: 1, x: 1}"),
        ("{partitions: %s}", "0"),
        ("{partitions: 1, replication_factor: %s}", "0"),
        ("{partitions: 1, replace: %s}", "a/b"),
        ("{partitions: 1, keep_name: %s}", "1"),
        ("{partitions: 1, replace: c, evacuate: %s}", "1"),
        ("{partitions: 1, configs: {a: %s}}", "0x1"),
        ("{partitions: 1, shrink: {policy: %s}}", "soon"),
        ("{partitions: 1, shrink: {policy: drained, delay: %s}}", "1"),
        ("{partitions: 1, shrink: {accept_state_loss: %s}}", "[7]"),
    ],
)
def test_shared_value_that_is_wrong_is_reported_once(body: str, value: str) -> None:
    assert len([line for line in mistakes(topics_of(body, value)) if "already replaces" not in line]) == 1


@pytest.mark.parametrize(
    "lines",
    [
        "? &long {long}\n: {{partitions: 1, x: 1, y: 1}}\n? *long\n: 1",
        "a: {{partitions: 1, ? &long {long} : 1}}\nb: {{partitions: 1, ? *long : 1}}",
        "a: {{partitions: 1, configs: {{? &long {long} : 0x1}}}}\nb: {{partitions: 1, configs: {{? *long : 0x2}}}}",
        "a: {{partitions: 1, replace: {long}}}",
    ],
)
def test_message_does_not_repeat_a_long_text(lines: str) -> None:
    topics = lines.format(long="x" * 10_000).replace("\n", "\n  ")
    told = mistakes(f"version: 1\ntopics:\n  {topics}\n")
    assert told
    assert max(map(len, told)) < 1_000


def test_example_file_is_valid() -> None:
    topics = {topic.name: topic for topic in read_files([Path(__file__).parents[2] / "examples/topics.yaml"])}
    assert topics["orders"].shrink_rules.delay_ms is not None


DRAINED = ShrinkRules(0)


def wanted(partitions: int, **fields: object) -> DesiredTopic:
    return DesiredTopic(TOPIC, partitions, **fields)  # type: ignore[arg-type]  # whatever the test says


def shrunk(count: int = 12, to: int = 4, *, done: bool = False, rules: ShrinkRules = DRAINED) -> ModelTopic:
    topic = ModelTopic(count)
    topic.take(topic.plan(wanted(to, shrink=rules)))
    if done:
        topic.settle()
        current = topic.current()
        assert current is not None
        assert not current.in_progress
    return topic


def refusal(topic: ModelTopic, desired: DesiredTopic) -> str:
    plan = topic.plan(desired)
    assert (plan.status, plan.steps) == ("refused", ())
    assert plan.refusal is not None
    return plan.refusal


def test_a_topic_that_is_not_there_is_created() -> None:
    plan = ModelTopic().plan(wanted(3, replication_factor=2, configs={"a": "1", "b": None}))
    assert plan.steps == (Create(3, 2, {"a": "1"}),)
    assert not plan.needs_controller


def test_fewer_partitions_are_a_shrink_as_the_file_says_it() -> None:
    rules = ShrinkRules(60_000, ("streams",))
    plan = ModelTopic(12).plan(wanted(4, shrink=rules))
    assert plan.steps == (Shrink(12, DeletePartitionsCommand(TOPIC, 4, 60_000, False, ("streams",))),)
    assert plan.needs_controller
    assert "67% of the keys move" in plan.warnings[0]
    assert "4 divides 12" in plan.warnings[0]
    assert "murmur2" in plan.warnings[0]
    assert "group 'streams' loses the state" in plan.warnings[1]
    (step,) = ModelTopic(12).plan(wanted(5)).steps
    assert isinstance(step, Shrink)
    assert step.command.delay_ms is None, "where nothing is said, nothing is deleted early"


def test_more_partitions_revive_first() -> None:
    assert ModelTopic(2).plan(wanted(3)).steps == (
        Grow(2, CreatePartitionsCommand(TOPIC, 3), range(0), range(2, 3), by_controller=False),
    )
    plan = shrunk(done=True).plan(wanted(14))
    assert plan.steps == (Grow(4, CreatePartitionsCommand(TOPIC, 14), range(4, 12), range(12, 14), by_controller=True),)
    assert "14 is no multiple of 4" in plan.warnings[0]


def test_the_target_of_a_shrink_in_progress_is_in_progress() -> None:
    topic = shrunk()
    plan = topic.plan(wanted(4, shrink=DRAINED))
    assert (plan.status, plan.progress, plan.warnings) == ("in_progress", "seal of partitions 4-11", ())
    assert topic.plan(wanted(4)).warnings == (), "a file that says nothing of shrinks minds none"
    (warning,) = topic.plan(wanted(4, shrink=ShrinkRules())).warnings
    assert "shrink in progress, which has another policy ('drained'), another delay ('0s'); the file's rules" in warning
    topic.settle()
    assert topic.plan(wanted(4, shrink=ShrinkRules())).status == "unchanged"


@pytest.mark.parametrize(
    ("now", "same", "other"),
    [
        ("0.5", "0.50", "0.05"),
        ("1.0E-5", "0.00001", "0.0001"),
        ("compact,delete", "compact, delete", "delete,compact"),
        ("true", "True", "false"),
        ("producer", " producer ", "Producer"),
    ],
)
def test_a_value_that_the_brokers_tell_in_another_way_is_the_same(now: str, same: str, other: str) -> None:
    """They tell what they have parsed: else such a file would never be done."""
    topic = ModelTopic(2, {"a": now})
    assert topic.plan(wanted(2, configs={"a": same})).status == "unchanged"
    assert topic.plan(wanted(2, configs={"a": other})).steps == (AlterConfigs({"a": other}, (), {"a": now}),)


def test_compacted_topics() -> None:
    compacted = ModelTopic(4, {"cleanup.policy": "compact"})
    assert why_evacuate("compact") in refusal(compacted, wanted(2))
    topic = ModelTopic(4)
    assert "cannot change during a shrink, or together with one" in refusal(
        topic, wanted(2, configs={"cleanup.policy": "compact"})
    )
    topic.take(topic.plan(wanted(2)))
    assert "together with one" in refusal(topic, wanted(2, configs={"cleanup.policy": "compact"}))


def test_what_is_refused() -> None:
    current = CurrentTopic(2, frozenset({2, 3}))
    factor = diff_topic(wanted(2, replication_factor=3), current).refusal
    assert factor == (
        "its replication factor is 2 and 3, not 3; "
        "change it with modeaware reassign-partitions, or declare the present factor"
    )
    assert diff_topic(wanted(2), current).status == "unchanged"
    assert "internal" in str(diff_topic(wanted(3), replace(current, internal=True)).refusal)
    for absent in ("__consumer_offsets", "__share_group_state"):
        assert "internal" in str(diff_topic(replace(wanted(3), name=absent), None).refusal)
    blind = replace(current, overrides=None)
    assert "DESCRIBE_CONFIGS" in str(diff_topic(wanted(2, configs={"a": "1"}), blind).refusal)
    assert diff_topic(wanted(2), blind).status == "unchanged"


def test_partitions_that_another_tool_added_are_taken_up_first() -> None:
    topic = shrunk(done=True)
    topic.add_by_another_tool(14)
    for partitions in (2, 13):
        assert "another tool has added partitions 12-25: first grow it to 26" in refusal(topic, wanted(partitions))


RULES = st.none() | st.builds(
    ShrinkRules,
    st.none() | st.integers(0, 5),
    accept_state_loss=st.sampled_from([(), ("a",), ("a", "b")]),
)
CONFIGS = st.dictionaries(st.sampled_from("abc"), st.none() | st.sampled_from("12"))
DESIRED = st.builds(wanted, st.integers(1, 9), configs=CONFIGS, shrink=RULES)


@given(st.none() | st.integers(1, 9), st.lists(st.tuples(DESIRED, st.booleans(), st.integers(0, 20)), max_size=6))
@pytest.mark.filterwarnings("error")
def test_a_plan_that_is_taken_leads_there_and_leaves_nothing_to_do(
    count: int | None, story: list[tuple[DesiredTopic, bool, int]]
) -> None:
    """Whatever was applied before, finished or not; the controller's own rules admit every step."""
    topic = ModelTopic(count)
    for desired, settles, added in story:
        plan = topic.plan(desired)
        topic.take(plan)
        again, current = topic.plan(desired), topic.current()
        if plan.refusal is None:
            assert (again.steps, again.refusal) == ((), None)
            assert current is not None
            assert current.goal == desired.partitions
            configs = {name: topic.configs.get(name) for name in desired.configs}
            assert configs == desired.configs
        else:
            assert again == plan
        if settles:
            topic.settle()
            settled = topic.current()
            assert settled is None or settled.goal == (current.goal if current is not None else None)
        if added == 20 and topic.count is not None:
            topic.add_by_another_tool(1)


# Another topic in the place of this one


def replaced(partitions: int = 4, **fields: object) -> DesiredTopic:
    return wanted(partitions, replace="orders-v2", **fields)


def test_another_number_is_a_replacement_where_the_file_says_so() -> None:
    topic = ModelTopic(12, {"retention.bytes": "100", "retention.ms": "5", "segment.ms": "6"})
    configs = {"retention.ms": "7", "segment.ms": None}
    plan = topic.plan(replaced(4, configs=configs, shrink=ShrinkRules(9, ("g",))))
    (step,) = plan.steps
    assert isinstance(step, Replace)
    command = step.command
    assert (command.topic, command.new_topic, command.num_partitions) == (TOPIC, "orders-v2", 4)
    assert command.configs == {"retention.bytes": "300", "retention.ms": "7"}, "copied, scaled and named"
    assert (command.replication_factor, command.delay_ms, command.accept_state_loss) == (1, 9, ("g",))
    assert (step.before, step.to, plan.needs_controller) == (12, 4, True)
    assert "modeaware replace --dry-run" in plan.notes[0]
    (more,) = topic.plan(replaced(24, replication_factor=3)).steps
    assert isinstance(more, Replace)
    assert (more.command.num_partitions, more.command.replication_factor, more.command.policy) == (24, 3, "retention")


def test_a_topic_with_the_number_or_none_at_all_is_not_replaced() -> None:
    assert ModelTopic(4).plan(replaced(4)).status == "unchanged"
    assert ModelTopic(4).plan(replaced(4, configs={"a": "1"})).steps == (AlterConfigs({"a": "1"}),)
    assert ModelTopic().plan(replaced(4)).steps == (Create(4, None, {}),)
    assert "replication factor is 1, not 3" in refusal(ModelTopic(4), replaced(4, replication_factor=3))


def test_a_replacement_that_cannot_be_is_refused() -> None:
    assert "another change is in progress" in refusal(shrunk(12, 4), replaced(3))
    assert "omit --evacuate (in a file: evacuate)" in refusal(ModelTopic(12), replaced(4, evacuate=True))
    compacted = ModelTopic(12, {"cleanup.policy": "compact"})
    assert why_evacuate("compact") in refusal(compacted, replaced(4))
    assert "in a file: shrink: {policy: drained}" in refusal(compacted, replaced(4, evacuate=True))
    plan = compacted.plan(replaced(4, shrink=ShrinkRules(0), evacuate=True))
    (step,) = plan.steps
    assert isinstance(step, Replace)
    assert step.command.evacuate
    assert "modeaware.spark.evacuate" in plan.warnings[0]
    hidden = diff_topic(replaced(4), CurrentTopic(12, frozenset({1}), None))
    assert "DESCRIBE_CONFIGS" in (hidden.refusal or "")


NOW = Replacement("orders-v2", 4, 1, new_topic_id="v2-id", announced_ms=2)
DONE = replace(NOW, switched_ms=3, released_ms=4)
ONWARD = TopicRecord(
    "orders-v2", "v2-id", 1, 1, (PartitionMode.READ_ONLY,) * 4, replacement=replace(DONE, new_topic="orders-v3")
)


def plan_of(now: Replacement, new_topic: CurrentTopic | None = None, desired: DesiredTopic | None = None) -> TopicDiff:
    record = TopicRecord(TOPIC, "id", 1, 1, (PartitionMode.READ_ONLY,) * 12, replacement=now)
    return diff_replaced(desired or replaced(4), record, now, new_topic)


def test_a_replacement_in_progress_is_waited_for() -> None:
    under_way = plan_of(NOW)
    assert (under_way.status, under_way.progress) == ("in_progress", "announce of its replacement by orders-v2")
    assert plan_of(replace(NOW, switched_ms=3)).progress == "drain of its replacement by orders-v2"
    assert "continue it with modeaware replace orders" in plan_of(replace(NOW, reason=reasons.PAUSED)).notes[0]
    there = CurrentTopic(4, frozenset({1}), topic_id="v2-id")
    soon = replace(DONE, delay_ms=0, fence="config")
    assert plan_of(soon, there).progress == "reclaim of its replacement by orders-v2", "with --wait until it is deleted"
    assert plan_of(replace(soon, gone_ms=5), there).status == "unchanged"
    assert plan_of(replace(soon, delay_ms=None), there).status == "unchanged", "as long as its retention takes"


@pytest.mark.parametrize(
    ("fields", "differs"),
    [
        ({}, None),
        ({"shrink": ShrinkRules(3_600_000), "configs": {"a": "1"}}, None),
        ({"shrink": ShrinkRules(604_800_000)}, "another delay ('1h')"),
        ({"shrink": ShrinkRules()}, "another policy ('drained')"),
        ({"replication_factor": 3, "configs": {"a": "2"}}, "another replication factor (1), another set of configs"),
        ({"evacuate": True}, "another evacuation (False)"),
    ],
)
def test_a_file_with_other_settings_than_the_replacement_in_progress_is_told_so(
    fields: dict[str, object], differs: str | None
) -> None:
    under_way = replace(NOW, delay_ms=3_600_000, configs={"a": "1"}, replication_factor=1)
    plan = plan_of(under_way, desired=replaced(4, **fields))
    assert (plan.status, plan.steps, len(plan.warnings)) == ("in_progress", (), 0 if differs is None else 1)
    for warning in plan.warnings:
        assert warning.startswith(f"the file does not change the replacement in progress, which has {differs}")
        assert warning in "\n".join(plan.lines())


@pytest.mark.parametrize(
    ("now", "partitions", "new_topic", "told"),
    [
        (NOW, 3, "orders-v2", "with another number of partitions (4): undo the replacement"),
        (
            replace(NOW, switched_ms=3),
            3,
            "orders-v2",
            "another number of partitions (4): repeat the command with the same options",
        ),
        (NOW, 4, "orders-v3", "it is already being replaced by 'orders-v2'"),
        (replace(NOW, undone_ms=5), 4, "orders-v2", "its replacement by 'orders-v2' is being undone"),
        (DONE, 4, "orders-v3", "its name points to 'orders-v2'"),
    ],
)
def test_another_replacement_than_the_declared_one_is_refused(
    now: Replacement, partitions: int, new_topic: str, told: str
) -> None:
    plan = plan_of(now, CurrentTopic(4), wanted(partitions, replace=new_topic))
    assert plan.status == "refused"
    assert told in (plan.refusal or "")


@pytest.mark.parametrize(
    ("new_topic", "told"),
    [
        (None, "does not exist any more: declare the topic that the alias points to"),
        (
            CurrentTopic(4, frozenset({1}), {"a": "1"}, topic_id="other"),
            "(another topic has its name): declare the topic",
        ),
        (CurrentTopic(5, frozenset({1}), topic_id="v2-id"), "which has 5 partitions: declare orders-v2 instead"),
        (
            CurrentTopic(4, frozenset({1}), {"a": "2"}, topic_id="v2-id"),
            "whose configs are not as declared (a): declare orders-v2 instead",
        ),
        (CurrentTopic(4, frozenset({2}), {"a": "1"}, topic_id="v2-id"), "its replication factor is 2, not 1"),
        (CurrentTopic(4, topic_id="v2-id", record=ONWARD), "by 'orders-v3': declare orders-v3 instead"),
    ],
)
def test_what_has_replaced_a_topic_is_as_declared_or_its_own(new_topic: CurrentTopic | None, told: str) -> None:
    desired = replaced(4, replication_factor=1, configs={"a": "1"})
    as_declared = CurrentTopic(4, frozenset({1}), {"a": "1"}, topic_id="v2-id")
    assert plan_of(DONE, as_declared, desired).status == "unchanged"
    plan = plan_of(DONE, new_topic, desired)
    assert plan.status == "refused"
    assert told in (plan.refusal or "")
