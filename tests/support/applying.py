"""A model of a cluster with one topic, to which plans of ``modeaware apply`` are applied by the controller's rules."""

from __future__ import annotations

from modeaware.apply.desired import AlterConfigs, Create, CurrentTopic, DesiredTopic, Grow, TopicPlan
from modeaware.apply.planning import plan_topic
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.records import TopicRecord
from tests.support.lifecycle import LATER_MS, admitted, after, facts


class ModelTopic:
    """One topic: its brokers' part, and its record in the mode log."""

    def __init__(self, count: int | None = None, configs: dict[str, str] | None = None) -> None:
        self.count = count
        self.configs = dict(configs or {})
        self.record: TopicRecord | None = None

    def current(self) -> CurrentTopic | None:
        if self.count is None:
            return None
        policy = self.configs.get("cleanup.policy", "delete")
        return CurrentTopic(self.count, frozenset({1}), dict(self.configs), policy, record=self.record)

    def plan(self, desired: DesiredTopic) -> TopicPlan:
        return plan_topic(desired, self.current())

    def take(self, plan: TopicPlan) -> None:
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
