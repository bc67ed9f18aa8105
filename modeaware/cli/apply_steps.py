"""Taking the steps of ``modeaware apply``."""

from __future__ import annotations

from collections.abc import Callable

from modeaware.admin.topics_to_make import NewPartitions
from modeaware.apply.brokers import alter_configs
from modeaware.apply.steps import AlterConfigs, Create, Grow, Shrink, Step, TopicPlan
from modeaware.cli.apply_look import new_topic
from modeaware.cli.embedded import ask_for_shrink, carry_out
from modeaware.cli.options import kafka_errors
from modeaware.cluster.cluster import Cluster
from modeaware.confluent.admin import AdminClient
from modeaware.controller.daemon import Controller
from modeaware.errors import ModeAwareError
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.modes import PartitionMode, format_ranges


class Carrier:
    """Takes steps, by the brokers and the controller. One thread.

    Args:
        embedded: the controller in this process; None: one runs elsewhere, or none is needed.
        say: gets a line for each step taken.
        timeout_s: how long a step that did nothing is retried.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: AdminClient,
        embedded: Controller | None,
        say: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._embedded = embedded
        self._say = say
        self._timeout_s = timeout_s

    def take(self, plan: TopicPlan) -> str | None:
        """Take the steps of one topic, up to the first that fails. Returns why it did."""
        try:
            with kafka_errors(f"change topic {plan.topic!r}"):
                for step in plan.steps:
                    self._say(f"{plan.topic}: {self._taken(plan.topic, step)}.")
        except ModeAwareError as error:
            return error.message
        return None

    def _taken(self, topic: str, step: Step) -> str:
        if isinstance(step, Create):
            self._admin.create_topics([new_topic(topic, step)])[topic].result()
            return f"created with {step.partitions} partitions"
        if isinstance(step, AlterConfigs):
            alter_configs(self._cluster.brokers, topic, step, validate_only=False)
            return f"configs altered: {', '.join((*step.set, *step.remove))}"
        if isinstance(step, Grow):
            self._grow(topic, step)
            return f"grown to {step.command.total_count} writable partitions"
        read_only = self._shrink(step.command)
        if isinstance(step, Shrink):
            return f"ReadOnly now: {format_ranges(read_only)}"
        return f"the loss of state is accepted of {', '.join(step.groups)}"

    def _grow(self, topic: str, step: Grow) -> None:
        if step.by_controller and self._embedded is not None:
            carry_out(self._embedded, step.command, self._timeout_s)
            return
        growth = {topic: NewPartitions(topic, step.command.total_count)}
        self._admin.create_partitions(growth, request_timeout=self._timeout_s)[topic].result()

    def _shrink(self, command: DeletePartitionsCommand) -> list[int]:
        """Returns the partitions that are ReadOnly now."""
        if self._embedded is not None:
            modes = dict(enumerate(carry_out(self._embedded, command, self._timeout_s).modes))
        else:
            modes = {**ask_for_shrink(self._admin, command, self._timeout_s)}
        return [partition for partition, mode in sorted(modes.items()) if mode is PartitionMode.READ_ONLY]
