"""``modeaware apply FILE...``: topics as files declare them, docs/apply.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from modeaware.admin.topics_to_make import NewPartitions, NewTopic
from modeaware.apply.brokers import alter_configs, overrides
from modeaware.apply.desired import (
    IN_PROGRESS,
    PENDING,
    REFUSED,
    AcceptStateLoss,
    AlterConfigs,
    Create,
    CurrentTopic,
    DesiredTopic,
    Grow,
    Shrink,
    Step,
    TopicPlan,
)
from modeaware.apply.planning import CLEANUP_POLICY, plan_topic
from modeaware.apply.read import read_files
from modeaware.cli import INTERRUPTED
from modeaware.cli.embedded import ask_for_shrink, carry_out, embedded_controller, our_settings, tell
from modeaware.cli.options import (
    Connection,
    add_connection_options,
    add_controller_config_option,
    add_timeout_option,
    connect,
    connection,
    controller_config,
    kafka_errors,
)
from modeaware.cli.progress import confirmed
from modeaware.cli.situation import READ_TIMEOUT_S, Situation
from modeaware.cli.waiting import wait_for_topic
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.observer import Observer
from modeaware.config import ControllerConfig
from modeaware.confluent.admin import AdminClient
from modeaware.confluent.controller_calls import group_rules_of
from modeaware.controller.daemon import Controller
from modeaware.errors import ControllerUnavailable, ModeAwareError
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.effects import CreatePartitions
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import RETENTION_DELAY_MS, ClaimRecord, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modes import PartitionMode, format_ranges
from modeaware.printable import printable_lines
from modeaware.reports.describe import unusable_record
from modeaware.reports.topic_list import list_topics
from modeaware.reports.topic_state import topic_states
from modeaware.retries import Deadline, Outcome, Retrying, RetryPolicy, outcome_of
from modeaware.wire.client import is_running

CHANGES_PENDING, SOME_FAILED = 3, 4
HELP = """\
Shows what is to be done as a diff, has brokers and controller validate every step, asks, and does it. Fewer partitions
are a shrink by partition modes; no topic is ever deleted, and one that no file names is not touched. To run it again is
harmless. The files are described in docs/apply.md:

  version: 1
  topics:
    orders:
      partitions: 12
      replication_factor: 3
      configs: {retention.ms: 604800000}
      shrink: {policy: drained, delay_ms: 3600000}

--json prints one object:
  {"version", "changed", "topics": [{"topic", "where", "status", "steps", "warnings", "notes", "in_progress", "error"}]}
status is unchanged, in_progress, pending, refused, applied or failed; a step is {"step": "create", "grow", "shrink",
"alter_configs" or "accept_state_loss", ...}. Fields may be added.

Exit status: 0 done, or nothing to do; 1 nothing was changed, because of an error, a refusal, or a no; 3 with --check:
changes are pending; 4 at least one topic failed, and the others were brought on their way; 130 left by Ctrl-C.
"""


class Apply:
    """Plans, validates, asks, does; or only the first two."""

    name = "apply"
    help = "bring topics to what a file declares: fewer partitions are a shrink, nothing is ever deleted"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = HELP
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML, see below")
        add_connection_options(parser)
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument(
            "--dry-run", action="store_true", help="validate, and show what would be done; change nothing"
        )
        parser.add_argument(
            "--check",
            action="store_true",
            help=f"as --dry-run, with exit status {CHANGES_PENDING} if changes are pending",
        )
        parser.add_argument(
            "--wait",
            action="store_true",
            help="show the progress of shrinks and growths until all are done (Ctrl-C leaves it without harm); does "
            "the controller's work where none runs",
        )
        add_timeout_option(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object, see below")
        add_controller_config_option(parser, "--controller-config", " (for --wait where no controller runs)")

    def run(self, args: argparse.Namespace) -> int:
        looks_only = args.dry_run or args.check
        if args.json and not (args.yes or looks_only):
            self._parser.error("--json needs --yes, --dry-run or --check: nobody is asked between its lines")
        desired = read_files(args.files)
        target = connection(args, defaults={"log_level": 0})
        config = controller_config(args, target.config)
        with kafka_errors("apply the files"):
            cluster = connect(target)
            try:
                with AdminClient({**target.conf, **our_settings(target)}) as admin:
                    return _Application(args, target, cluster, admin, config).run(desired)
            finally:
                cluster.close()


class _Application:
    """One run."""

    def __init__(
        self,
        args: argparse.Namespace,
        target: Connection,
        cluster: Cluster,
        admin: AdminClient,
        config: ControllerConfig,
    ) -> None:
        self._args = args
        self._target = target
        self._cluster = cluster
        self._admin = admin
        self._config = config
        self._failures: dict[str, str | None] = {}

    def run(self, desired: Sequence[DesiredTopic]) -> int:
        found = self._look(desired)
        plans = self._validated(self._plans(desired, found), found)
        if not self._args.json:
            print(printable_lines(plan_lines(plans)))
        try:
            return self._go_on(desired, plans, found)
        finally:
            if self._args.json:
                print(json.dumps(plans_json(plans, self._failures), indent=2))

    def _look(self, desired: Sequence[DesiredTopic]) -> Found:
        return look_at(self._target, self._cluster, [topic.name for topic in desired])

    def _plans(self, desired: Sequence[DesiredTopic], found: Found) -> list[TopicPlan]:
        return [_plan(topic, found, self._target) for topic in desired]

    def _go_on(self, desired: Sequence[DesiredTopic], plans: Sequence[TopicPlan], found: Found) -> int:
        pending = [plan for plan in plans if plan.status == PENDING]
        looks_only = self._args.dry_run or self._args.check
        if any(plan.status == REFUSED for plan in plans):
            tell("error: refused, see above. Nothing was changed.")
            return 1
        if looks_only:
            self._say("Dry run: nothing was changed.")
            return CHANGES_PENDING if self._args.check and pending else 0
        if pending and not confirmed(yes=self._args.yes):
            self._say("Nothing was changed.")
            return 1
        if pending and not self._args.yes:  # the question may have stood there for hours
            found = self._look(desired)
            now = {plan.topic: plan.steps for plan in self._plans(desired, found)}
            others = [plan.topic for plan in pending if now[plan.topic] != plan.steps]
            if others:
                tell(f"error: no longer what was shown: {', '.join(others)}. Nothing was changed: run it again.")
                return 1
        begun = [plan.topic for plan in plans if plan.needs_controller or plan.progress is not None]
        wait = self._args.wait and bool(begun)
        claim = found.replay.claim
        with embedded_controller(self._target, self._config, claim) if wait else nullcontext() as embedded:
            try:
                self._take(pending, embedded)
                for topic in begun if wait else ():
                    self._wait_for(topic, embedded)
            except KeyboardInterrupt:
                tell("Left. What has begun goes on while a controller runs; to do the rest, run it again.")
                return INTERRUPTED
        failed = [topic for topic, error in self._failures.items() if error is not None]
        return SOME_FAILED if failed else 0

    def _validated(self, plans: Sequence[TopicPlan], found: Found) -> list[TopicPlan]:
        if not self._args.wait and any(p.needs_controller or p.progress is not None for p in plans):
            plans = self._with_controller(plans, found)
        timeout_s = self._args.timeout
        validation = Validation(self._target, self._cluster, self._admin, self._config, found, timeout_s)
        return [validation.of(plan) if plan.status == PENDING else plan for plan in plans]

    def _with_controller(self, plans: Sequence[TopicPlan], found: Found) -> Sequence[TopicPlan]:
        """The plans, where one runs; else those that need it are refused, and of others in progress it is told.

        Raises:
            ControllerUnavailable: whether one runs cannot be told from here, and it is needed.
        """
        needed = any(plan.needs_controller for plan in plans)
        claim = found.replay.claim
        try:
            if needed:
                Retrying(Deadline(self._args.timeout)).call(lambda: self._check_controller(claim), repeatable=True)
            elif not is_running(self._target.conf, claim):
                return [_without_controller(plan) for plan in plans]
        except ControllerUnavailable as error:
            if needed and outcome_of(error) is Outcome.FINAL:
                raise
            return [_without_controller(plan) for plan in plans] if needed else plans
        return plans

    def _check_controller(self, claim: ClaimRecord | None) -> None:
        """Check that a controller answers: the one that made ``claim``, or one that has taken over meanwhile.

        Raises:
            ControllerUnavailable: none answers; or whether one runs cannot be told from here.
        """
        if is_running(self._target.conf, claim):
            return
        now = read_mode_log(self._target.conf, self._target.config.mode_log_topic, READ_TIMEOUT_S).claim
        if now == claim or not is_running(self._target.conf, now):
            raise ControllerUnavailable("no controller is running for this cluster")

    def _take(self, pending: Sequence[TopicPlan], embedded: Controller | None) -> None:
        carrier = Carrier(self._cluster, self._admin, embedded, self._say, self._args.timeout)
        for plan in pending:
            error = self._failures[plan.topic] = carrier.take(plan)
            if error is not None:
                tell(f"error: {plan.topic}: {error}")

    def _wait_for(self, topic: str, embedded: Controller | None) -> None:
        if self._failures.get(topic) is not None:
            return
        try:
            with kafka_errors(f"watch topic {topic!r}"):  # told here: by now something was changed
                wait_for_topic(self._target, topic, lambda: embedded.failure if embedded else None, sys.stderr)
        except ModeAwareError as error:
            self._failures[topic] = error.message
            tell(f"error: {topic}: {error}")
        else:
            self._say(f"{topic}: done.")

    def _say(self, line: str) -> None:
        """For people: standard output is the program's with ``--json``."""
        (tell if self._args.json else print)(line)


def _without_controller(plan: TopicPlan) -> TopicPlan:
    how = "start one (modeaware controller), or say --wait, which does its work until all is done"
    if plan.needs_controller:
        return replace(plan, steps=(), refusal=f"no controller is running, which keeps the modes: {how}")
    if plan.progress is not None:
        return replace(plan, notes=(*plan.notes, f"no controller is running, and nothing moves: {how}"))
    return plan


def _plan(desired: DesiredTopic, found: Found, target: Connection) -> TopicPlan:
    if desired.name in found.unusable:
        return TopicPlan(desired.name, desired.where, refusal=found.unusable[desired.name])
    if desired.name == target.config.mode_log_topic:
        return TopicPlan(desired.name, desired.where, refusal="the mode log: the controller makes it, and keeps it")
    return plan_topic(desired, found.topics.get(desired.name))


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


APPLIED, FAILED = "applied", "failed"
_DEFAULT = "the cluster's default"


def plan_lines(plans: Sequence[TopicPlan]) -> Iterator[str]:
    """Each topic with something to tell, and the sum. Marks: ``+`` new, ``~`` other, ``-`` gone, ``!`` read this."""
    for plan in plans:
        if plan.status in (PENDING, REFUSED) or plan.progress is not None:
            yield from _topic_lines(plan)
    statuses = [plan.status for plan in plans]
    counts = (
        (PENDING, "to change"),
        (IN_PROGRESS, "in progress"),
        ("unchanged", "as declared"),
        (REFUSED, "refused"),
    )
    told = ", ".join(f"{statuses.count(status)} {words}" for status, words in counts if status in statuses)
    yield f"Topics: {told or 'none'}."


def _topic_lines(plan: TopicPlan) -> Iterator[str]:
    yield f"{plan.topic} ({plan.where})"
    if plan.refusal is not None:
        yield f"  ! refused: {plan.refusal}"
    for step in plan.steps:
        for line in step_lines(step):
            yield f"  {line}"
    for warning in plan.warnings if plan.refusal is None else ():
        yield f"  ! WARNING: {warning}"
    if plan.progress is not None and plan.refusal is None:
        yield f"  = in progress: {plan.progress}"
    for note in plan.notes if plan.refusal is None else ():
        yield f"    ({note})"


def step_lines(step: Step) -> list[str]:
    """One step as a diff."""
    if isinstance(step, Create):
        factor = "" if step.replication_factor is None else f", replication factor {step.replication_factor}"
        configs = [f"    + {name}: {value}" for name, value in step.configs.items()]
        return [f"+ create with {step.partitions} partitions{factor}", *configs]
    if isinstance(step, AlterConfigs):
        before = step.before or {}
        changed = [
            f"{'~' if name in before else '+'} {name}: {before.get(name, _DEFAULT)} -> {value}"
            for name, value in step.set.items()
        ]
        return changed + [f"- {name}: {before.get(name)} -> {_DEFAULT}" for name in step.remove]
    if isinstance(step, AcceptStateLoss):
        return [f"~ the shrink in progress goes on although {', '.join(step.groups)} keep state"]
    head = f"~ partitions: {step.before} -> {step.command.total_count}"
    if isinstance(step, Grow):
        revived = [f"    ReadWrite again: {format_ranges(step.revived)}"] if step.revived else []
        return [head, *revived, *([f"    new: {format_ranges(step.created)}"] if step.created else [])]
    retired = range(step.command.total_count, step.before)
    return [head, f"    ReadOnly: {format_ranges(retired)}; {_policy(step)}"]


def _policy(step: Shrink) -> str:
    command = step.command
    if step.records_stay:
        return "evacuated first; then no client reads them any more, and their records stay on the brokers"
    if command.delay_ms == RETENTION_DELAY_MS:
        told = "policy retention: their records stay until the topic's own retention takes them"
    else:
        earliest = f", {command.delay_ms} ms from now at the earliest" if command.delay_ms else ""
        told = f"policy drained: their records are deleted once every group has read them{earliest}"
    return f"{told}; evacuated first" if command.evacuate else told


def plans_json(plans: Sequence[TopicPlan], failures: Mapping[str, str | None]) -> dict[str, Any]:
    """All of it; ``failures``: of each topic whose steps were taken why that failed, or None."""
    return {
        "version": 1,
        "changed": sum(1 for error in failures.values() if error is None),
        "topics": [_topic_json(plan, failures) for plan in plans],
    }


def _topic_json(plan: TopicPlan, failures: Mapping[str, str | None]) -> dict[str, Any]:
    failure = failures.get(plan.topic)
    status = plan.status if plan.topic not in failures else APPLIED if failure is None else FAILED
    return {
        "topic": plan.topic,
        "where": plan.where,
        "status": status,
        "steps": [_step_json(step) for step in plan.steps],
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
        "in_progress": plan.progress,
        "error": failure if failure is not None else plan.refusal,
    }


def _step_json(step: Step) -> dict[str, Any]:
    if isinstance(step, Create):
        return {
            "step": "create",
            "partitions": step.partitions,
            "replication_factor": step.replication_factor,
            "configs": dict(step.configs),
        }
    if isinstance(step, AlterConfigs):
        return {"step": "alter_configs", "set": dict(step.set), "remove": list(step.remove)}
    if isinstance(step, AcceptStateLoss):
        return {"step": "accept_state_loss", "groups": list(step.groups)}
    sizes = {"from": step.before, "to": step.command.total_count}
    if isinstance(step, Grow):
        return {"step": "grow", **sizes, "revived": list(step.revived), "created": list(step.created)}
    command = step.command
    retention = command.delay_ms == RETENTION_DELAY_MS
    return {
        "step": "shrink",
        **sizes,
        "policy": "retention" if retention else "drained",
        "delay_ms": None if retention else command.delay_ms,
        "evacuate": command.evacuate,
        "accept_state_loss": list(command.accept_state_loss),
    }
