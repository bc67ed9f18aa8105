"""From a topic as it is to the one that is asked for: the steps, the warnings, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.apply.current import CurrentTopic
from modeaware.apply.desired import DesiredTopic, ShrinkRules
from modeaware.apply.planning import plan_topic
from modeaware.apply.steps import AlterConfigs, Create, Grow, Shrink
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from tests.support.applying import ModelTopic
from tests.support.lifecycle import TOPIC

DRAINED = ShrinkRules("drained", 0)


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
    rules = ShrinkRules("drained", 60_000, False, ("streams",))
    plan = ModelTopic(12).plan(wanted(4, shrink=rules))
    assert plan.steps == (Shrink(12, DeletePartitionsCommand(TOPIC, 4, 60_000, False, ("streams",), False)),)
    assert plan.needs_controller
    assert "67% of the keys move" in plan.warnings[0]
    assert "4 divides 12" in plan.warnings[0]
    assert "murmur2" in plan.warnings[0]
    assert "group 'streams' loses the state" in plan.warnings[1]
    (step,) = ModelTopic(12).plan(wanted(5)).steps
    assert isinstance(step, Shrink)
    assert step.command.delay_ms == -1, "where nothing is said, nothing is deleted early"


def test_more_partitions_revive_first() -> None:
    assert ModelTopic(2).plan(wanted(3)).steps == (
        Grow(2, CreatePartitionsCommand(TOPIC, 3), range(0), range(2, 3), by_controller=False),
    )
    plan = shrunk(done=True).plan(wanted(14))
    assert plan.steps == (Grow(4, CreatePartitionsCommand(TOPIC, 14), range(4, 12), range(12, 14), by_controller=True),)
    assert "4 does not divide 14" in plan.warnings[0]


def test_the_target_of_a_shrink_in_progress_is_in_progress() -> None:
    topic = shrunk()
    plan = topic.plan(wanted(4, shrink=DRAINED))
    assert (plan.status, plan.progress, plan.warnings) == ("in_progress", "seal of partitions 4-11", ())
    assert topic.plan(wanted(4)).warnings == (), "a file that says nothing of shrinks minds none"
    (warning,) = topic.plan(wanted(4, shrink=ShrinkRules())).warnings
    assert "goes on as it began (policy drained, delay_ms 0, without an evacuation)" in warning
    topic.settle()
    assert topic.plan(wanted(4, shrink=ShrinkRules())).status == "unchanged"


def test_other_targets_during_a_shrink() -> None:
    topic = shrunk()
    assert "--undo" in refusal(topic, wanted(3))
    back = topic.plan(wanted(6))
    assert back.steps == (Grow(4, CreatePartitionsCommand(TOPIC, 6), range(4, 6), range(12, 6), by_controller=True),)
    assert "takes back the shrink" in back.notes[0]


def test_configs_that_are_named_are_set_or_removed_and_others_stay() -> None:
    topic = ModelTopic(2, {"a": "1", "b": "2", "c": "3"})
    plan = topic.plan(wanted(2, configs={"a": "1", "b": None, "d": "4", "e": None}))
    assert plan.steps == (AlterConfigs({"d": "4"}, ("b",), {"b": "2"}),)
    assert plan.notes == ("configs of its own that the file does not name stay: c",)


@pytest.mark.parametrize(
    ("now", "same", "other"),
    [
        ("0.5", "0.50", "0.05"),
        ("7", "007", "70"),
        ("1.0E-5", "0.00001", "0.0001"),
        ("compact,delete", "compact, delete", "delete,compact"),
        ("true", "True", "false"),
        ("producer", " producer ", "Producer"),
        ("9223372036854775807", "9223372036854775807", "9223372036854775806"),
        ("", "", "0"),
    ],
)
def test_a_value_that_the_brokers_tell_in_another_way_is_the_same(now: str, same: str, other: str) -> None:
    """They tell what they have parsed: else such a file would never be done."""
    topic = ModelTopic(2, {"a": now})
    assert topic.plan(wanted(2, configs={"a": same})).status == "unchanged"
    assert topic.plan(wanted(2, configs={"a": other})).steps == (AlterConfigs({"a": other}, (), {"a": now}),)


def test_compacted_topics() -> None:
    compacted = ModelTopic(4, {"cleanup.policy": "compact"})
    assert "shrink: {evacuate: true}" in refusal(compacted, wanted(2))
    assert "leave shrink.evacuate out" in refusal(ModelTopic(4), wanted(2, shrink=ShrinkRules(evacuate=True)))
    plan = compacted.plan(wanted(2, shrink=ShrinkRules(evacuate=True)))
    assert "modeaware.spark.evacuate" in plan.warnings[1]
    alters = {"configs": {"cleanup.policy": "delete"}, "shrink": ShrinkRules(evacuate=True)}
    assert "cannot be altered together with a shrink" in refusal(compacted, wanted(2, **alters))
    compacted.take(plan)
    assert "nor during one" in refusal(compacted, wanted(2, configs={"cleanup.policy": None}))


def test_what_is_refused() -> None:
    current = CurrentTopic(2, frozenset({2, 3}))
    factor = plan_topic(wanted(2, replication_factor=3), current).refusal
    assert factor == (
        "its replication factor is 2 and 3, not 3: change it with modeaware reassign-partitions (--generate, "
        "--execute), or say what it is"
    )
    assert plan_topic(wanted(2), current).status == "unchanged"
    assert "internal" in str(plan_topic(wanted(3), replace(current, internal=True)).refusal)
    for absent in ("__consumer_offsets", "__share_group_state"):
        assert "internal" in str(plan_topic(replace(wanted(3), name=absent), None).refusal)
    blind = replace(current, overrides=None)
    assert "DESCRIBE_CONFIGS" in str(plan_topic(wanted(2, configs={"a": "1"}), blind).refusal)
    assert "DESCRIBE_CONFIGS" in str(plan_topic(wanted(1, shrink=ShrinkRules(evacuate=True)), blind).refusal)
    assert plan_topic(wanted(2), blind).status == "unchanged"


RULES = st.none() | st.builds(
    ShrinkRules,
    st.sampled_from(["retention", "drained"]),
    st.integers(0, 5),
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
