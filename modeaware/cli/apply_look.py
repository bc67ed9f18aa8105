"""What ``modeaware apply`` reads before it plans, and the validation of each step before any is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modeaware.admin.topics_to_make import NewPartitions, NewTopic
from modeaware.apply.brokers import alter_configs, overrides
from modeaware.apply.current import CurrentTopic
from modeaware.apply.planning import CLEANUP_POLICY
from modeaware.apply.steps import AlterConfigs, Create, Grow, Step, TopicPlan
from modeaware.cli.options import Connection, kafka_errors
from modeaware.cli.situation import READ_TIMEOUT_S, Situation
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.observer import Observer
from modeaware.config import ControllerConfig
from modeaware.confluent.admin import AdminClient
from modeaware.confluent.controller_calls import group_rules_of
from modeaware.errors import ModeAwareError
from modeaware.lifecycle.effects import CreatePartitions
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.reports.describe import unusable_record
from modeaware.reports.topic_list import list_topics
from modeaware.reports.topic_state import topic_states
from modeaware.retries import Deadline, Retrying, RetryPolicy


@dataclass(frozen=True)
class Found:
    """The topics of the files as they are.

    Attributes:
        topics: those that are there.
        unusable: topics whose record in the mode log cannot be used, and why.
        replay: the mode log.
    """

    topics: Mapping[str, CurrentTopic]
    unusable: Mapping[str, str]
    replay: Replay


def look_at(target: Connection, cluster: Cluster, names: Sequence[str]) -> Found:
    """Read the mode log once, and ask the brokers for all topics at once.

    Raises:
        ClusterError, ModeSourceError: no answer, or it was refused.
    """
    log_topic = target.config.mode_log_topic
    replay = read_mode_log(target.conf, log_topic, READ_TIMEOUT_S)
    listed = list_topics(cluster.brokers)
    internal = {topic.name for topic in listed.topics if topic.internal} | {log_topic}
    present = {topic.name for topic in listed.topics}
    there = [name for name in names if name in present]
    own = overrides(cluster.brokers, there) if there else {}
    topics, unusable = {}, {}
    for state in topic_states(cluster.brokers, there, listed.live_brokers) if there else []:
        error = unusable_record(replay, log_topic, state.name, state.topic_id)
        if error is not None:
            unusable[state.name] = error.message
        topics[state.name] = CurrentTopic(
            count=len(state.partitions),
            replication_factors=frozenset(partition.replication_factor for partition in state.partitions),
            overrides=own.get(state.name),
            cleanup_policy=(state.configs or {}).get(CLEANUP_POLICY) or "delete",
            internal=state.name in internal,
            record=replay.records.get(state.topic_id),
        )
    return Found(topics, unusable, replay)


class Validation:
    """Has each step checked by whoever will take it; nothing is changed. One thread.

    Args:
        config: what a controller is taken to be configured with.
        timeout_s: how long a check that may succeed later is retried.
    """

    def __init__(
        self,
        target: Connection,
        cluster: Cluster,
        admin: AdminClient,
        config: ControllerConfig,
        found: Found,
        timeout_s: float,
    ) -> None:
        self._target = target
        self._cluster = cluster
        self._admin = admin
        self._config = config
        self._found = found
        self._deadline = Deadline(timeout_s)
        self._policy = RetryPolicy.from_conf(target.conf)
        self._record: TopicRecord | None = None

    def of(self, plan: TopicPlan) -> TopicPlan:
        """The plan; or one that is refused, with the reason that the brokers or a controller would give."""
        self._record = self._found.topics[plan.topic].record if plan.topic in self._found.topics else None
        try:
            with kafka_errors(f"change topic {plan.topic!r}"):
                notes = [note for step in plan.steps if (note := self._check(plan.topic, step)) is not None]
        except ModeAwareError as error:
            return replace(plan, steps=(), refusal=error.message)
        return replace(plan, notes=(*plan.notes, *notes))

    def _check(self, topic: str, step: Step) -> str | None:
        if isinstance(step, Create):
            self._admin.create_topics([new_topic(topic, step)], validate_only=True)[topic].result()
        elif isinstance(step, AlterConfigs):
            alter_configs(self._cluster.brokers, topic, step, validate_only=True)
        elif isinstance(step, Grow) and not step.by_controller:
            growth = {topic: NewPartitions(topic, step.command.total_count)}
            self._admin.create_partitions(growth, validate_only=True)[topic].result()
        else:
            retrying = Retrying(self._deadline, self._policy)
            return retrying.call(lambda: self._admission(topic, step), repeatable=True)
        return None

    def _admission(self, topic: str, step: Step) -> str | None:
        """By the rules of the controller, whose work it is."""
        assert not isinstance(step, (Create, AlterConfigs))
        rules = group_rules_of(self._found.replay, self._target.config.mode_log_topic)
        facts = Observer(self._cluster, self._target.conf).observe(topic, None, rules)
        situation = Situation(topic, self._record, facts, self._found.replay.claim, rules)
        admission = situation.admission(step.command, self._config)
        self._record = admission.record or self._record  # what the next step finds
        if isinstance(step, Grow) and step.created:
            assert facts.topic_id is not None
            growth = CreatePartitions(topic, facts.topic_id, step.command.total_count, None)
            self._cluster.create_partitions(growth, validate_only=True)
        return admission.message


def new_topic(topic: str, step: Create) -> NewTopic:
    """What a new topic is asked for with."""
    replicas = {} if step.replication_factor is None else {"replication_factor": step.replication_factor}
    return NewTopic(topic, num_partitions=step.partitions, config=dict(step.configs), **replicas)
