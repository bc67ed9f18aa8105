"""``modeaware apply FILE...``: topics as files declare them, docs/apply.md."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from modeaware.admin.acls import ClusterAcls, read_acls
from modeaware.admin.new_topics import NewTopic, TopicReplacement
from modeaware.admin.successors import check_consequences, validate_successor
from modeaware.cli import INTERRUPTED, BadUsage, Command
from modeaware.cli.change import Change, check_count
from modeaware.cli.progress import confirmed, tell
from modeaware.cli.replace import ACCEPTING, VALIDATION_TIMEOUT_S
from modeaware.cli.session import add_change_options, add_connection_options, add_flags, kafka_errors, open_session
from modeaware.cluster.effects import alter_configs
from modeaware.errors import ControllerUnavailable, ModeAwareError
from modeaware.lifecycle.admission import Admission
from modeaware.lifecycle.objections import objection_to_change
from modeaware.modelog.records import TopicRecord
from modeaware.plan.diff import (
    CLEANUP_POLICY,
    FAILED,
    PENDING,
    REFUSED,
    ApplyReport,
    CurrentTopic,
    TopicDiff,
    diff_replaced,
    diff_topic,
)
from modeaware.plan.file import DesiredTopic, read_files
from modeaware.plan.steps import AcceptStateLoss, AlterConfigs, Create, Grow, Replace, Shrink, Step
from modeaware.printable import printable_lines
from modeaware.reports.describe import TopicDescription
from modeaware.reports.serialise import json_help, json_text
from modeaware.reports.session import ModeLog, Session
from modeaware.reports.topics import list_topics, topic_states
from modeaware.wire.client import is_running
from modeaware.wire.retries import Outcome, outcome_of

CHANGES_PENDING, SOME_FAILED = 3, 4


class Apply(Command):
    """Diffs, validates, asks, carries out; or only the first two."""

    epilog = f"""\
Shows the changes as a diff, has brokers and controller validate every step, asks, and carries them out. Fewer
partitions are a shrink by partition modes, or with replace: a new topic of that name in the place of this one, which
goes once its groups have read it. A topic that no file names is not touched. To run it again is harmless. The files are
described in docs/apply.md:

  version: 1
  topics:
    orders:
      partitions: 12
      replication_factor: 3
      configs: {{retention.ms: 604800000}}
      shrink: {{policy: drained, delay: 1h}}

{json_help(ApplyReport)}
Exit status: 0 done, or nothing to do; 1 nothing was changed, because of an error, a refusal, or a no; {CHANGES_PENDING}
with --check: changes are pending; {SOME_FAILED} at least one topic failed, and the others were changed or begun; 130
left by Ctrl-C.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML, see below")
        add_connection_options(parser)
        add_change_options(parser)
        check = f"as --dry-run, with exit status {CHANGES_PENDING} if changes are pending"
        add_flags(parser, check=check, **ACCEPTING, json="print one JSON object, see below")

    def run(self, args: argparse.Namespace) -> int:
        if args.json and not (args.yes or args.dry_run or args.check):
            raise BadUsage("--json needs --yes, --dry-run or --check: it cannot ask between its lines")
        desired = read_files(args.files)
        with open_session(args, "apply the files") as session, Change(session, args.timeout_ms / 1000) as change:
            return _Application(args, change, desired).run()


@dataclass(frozen=True)
class Found:
    """What was found once for all topics of the files.

    Attributes:
        topics: those that exist, as they are.
        unusable: why the records of some in the mode log cannot be used.
        names: of all topics of the cluster.
        acls: reads all ACLs, once.
        replaced: the records of topics that are being replaced, or were.
    """

    topics: dict[str, CurrentTopic]
    unusable: dict[str, str]
    log: ModeLog
    names: frozenset[str]
    acls: Callable[[], ClusterAcls | None]
    replaced: dict[str, TopicRecord] = field(default_factory=dict)


def look_at(session: Session, names: Sequence[str]) -> Found:
    """Read the mode log once, and ask the brokers for all topics at once."""
    log = session.read_log()
    listed = list_topics(session.cluster.brokers)
    internal = {topic.name for topic in listed.topics if topic.internal} | {log.topic}
    present = frozenset(topic.name for topic in listed.topics)
    topics: dict[str, CurrentTopic] = {}
    unusable: dict[str, str] = {}
    replaced: dict[str, TopicRecord] = {}
    for state in topic_states(session.cluster.brokers, [n for n in names if n in present], listed.live_brokers):
        if (error := log.unusable(state.name, state.topic_id)) is not None:
            unusable[state.name] = error.message
        topics[state.name] = CurrentTopic(
            count=len(state.partitions),
            replication_factors=frozenset(partition.replication_factor for partition in state.partitions),
            overrides=state.overrides,
            cleanup_policy=(state.configs or {}).get(CLEANUP_POLICY) or "delete",
            internal=state.name in internal,
            topic_id=state.topic_id,
            record=log.replay.records.get(state.topic_id),
        )
    for record in log.replaced:
        own = topics.get(record.topic)
        is_it = own is not None and own.record is record
        has_returned = own is not None and own.topic_id in log.replaces  # that record is of another topic
        if is_it or (record.replacing.switched_ms is not None and not has_returned):
            replaced[record.topic] = record
    return Found(topics, unusable, log, present, cache(partial(read_acls, session.cluster.brokers)), replaced)


class _Application:
    """One run. ``diffs``: what is to be done, and then what became of it."""

    def __init__(self, args: argparse.Namespace, change: Change, desired: Sequence[DesiredTopic]) -> None:
        self._args = args
        self._change = change
        self._session = change.session
        self._desired = desired
        self._diffs: dict[str, TopicDiff] = {}

    def run(self) -> int:
        found = self._look()
        diffs = self._diff(found)
        if not self._args.wait and any(diff.needs_controller or diff.progress is not None for diff in diffs):
            diffs = self._with_controller(diffs, found)
        for diff in diffs:
            self._diffs[diff.topic] = self._validated(diff, found) if diff.status == PENDING else diff
        if not self._args.json:
            print(printable_lines(self._report().lines()))
        try:
            return self._proceed(found)
        finally:
            if self._args.json:
                print(json_text(self._report()))

    def _report(self) -> ApplyReport:
        return ApplyReport(tuple(self._diffs.values()))

    def _look(self) -> Found:
        successors = [topic.replace for topic in self._desired if topic.replace is not None]
        return look_at(self._session, [*(topic.name for topic in self._desired), *successors])

    def _diff(self, found: Found) -> list[TopicDiff]:
        return [self._diff_one(desired, found) for desired in self._desired]

    def _diff_one(self, desired: DesiredTopic, found: Found) -> TopicDiff:
        record, refusal = found.replaced.get(desired.name), found.unusable.get(desired.name)
        now = record.replacement if record is not None else None
        if refusal is None and desired.name == found.log.topic:
            refusal = "the mode log: the controller makes and keeps it"
        if refusal is None and record is not None and now is not None:
            if desired.replace is not None:
                return diff_replaced(desired, record, now, found.topics.get(now.successor))
            refusal = objection_to_change(now)
        if refusal is not None:
            return TopicDiff(desired.name, desired.where, refusal=refusal)
        return diff_topic(desired, found.topics.get(desired.name))

    def _proceed(self, found: Found) -> int:
        args, diffs = self._args, list(self._diffs.values())
        pending = [diff for diff in diffs if diff.status == PENDING]
        if any(diff.status == REFUSED for diff in diffs):
            tell("error: refused, see above. Nothing was changed.")
            return 1
        if args.dry_run or args.check:
            self._say("Dry run: nothing was changed.")
            return CHANGES_PENDING if args.check and pending else 0
        if pending and not confirmed(yes=args.yes):
            self._say("Nothing was changed.")
            return 1
        if pending and not args.yes:  # the question may have been open for hours
            found = self._look()
            now = {diff.topic: diff.steps for diff in self._diff(found)}
            if others := [diff.topic for diff in pending if now[diff.topic] != diff.steps]:
                tell(f"error: no longer what was shown: {', '.join(others)}. Nothing was changed: run it again.")
                return 1
        begun = [diff.topic for diff in diffs if diff.needs_controller or diff.progress is not None]
        try:
            if args.wait and begun:
                self._change.embed(found.log.claim)
            for diff in pending:
                self._attempt(diff.topic, partial(self._carry_out, diff))
            for topic in begun if args.wait else ():
                if self._diffs[topic].failure is None:
                    self._attempt(topic, partial(self._wait, topic))
        except KeyboardInterrupt:
            tell("Left. What has begun continues while a controller runs; to do the rest, run it again.")
            return INTERRUPTED
        return SOME_FAILED if any(diff.status == FAILED for diff in self._diffs.values()) else 0

    def _validated(self, diff: TopicDiff, found: Found) -> TopicDiff:
        """Return the diff; or one that is refused, with the reason that the brokers or a controller would give."""
        record = found.topics[diff.topic].record if diff.topic in found.topics else None
        notes = list(diff.notes)
        try:
            with kafka_errors(f"change topic {diff.topic!r}"):
                for step in diff.steps:
                    if isinstance(step, Create | AlterConfigs):
                        _at_brokers(self._change, diff.topic, step, validate_only=True)
                        continue
                    admission = self._change.retry(partial(self._admission, step, record, found))
                    record = admission.record or record  # that the next step finds
                    notes += [admission.message] if admission.message is not None else []
        except ModeAwareError as error:
            return replace(diff, steps=(), refusal=error.message)
        return replace(diff, notes=tuple(notes))

    def _admission(
        self, step: Grow | Shrink | AcceptStateLoss | Replace, record: TopicRecord | None, found: Found
    ) -> Admission:
        change, session, args = self._change, self._session, self._args
        situation = replace(change.look(step.command.topic, found.log), record=record)
        if not isinstance(step, Replace):
            return change.validate(step.command, situation)
        command = step.command
        successor = session.observer().observe(command.successor, None)
        admission = change.admission(command, situation.with_successor(successor))
        wanted = TopicReplacement(
            command.successor,
            command.num_partitions,
            accept_access_loss=args.accept_access_loss,
            accept_mirroring=args.accept_mirroring,
        )
        check_consequences(command, wanted, found.acls, lambda: found.names, session.bootstrap_server)
        validate_successor(session.cluster.brokers, command, VALIDATION_TIMEOUT_S)
        return admission

    def _with_controller(self, diffs: list[TopicDiff], found: Found) -> list[TopicDiff]:
        """The diffs, where a controller runs; else those that need one refused, and a note on others in progress."""
        needed = any(diff.needs_controller for diff in diffs)
        try:
            if needed:
                self._change.retry(lambda: self._check_controller(found.log))
            elif not is_running(self._session.conf, found.log.claim):
                return [_without_controller(diff) for diff in diffs]
        except ControllerUnavailable as error:
            if needed and outcome_of(error) is Outcome.FINAL:
                raise
            return [_without_controller(diff) for diff in diffs] if needed else diffs
        return diffs

    def _check_controller(self, log: ModeLog) -> None:
        """Raises ControllerUnavailable where neither the controller of ``log`` answers, nor one that has taken over."""
        if not is_running(self._session.conf, log.claim):
            now = self._session.read_log().claim
            if now == log.claim or not is_running(self._session.conf, now):
                raise ControllerUnavailable("no controller is running for this cluster")

    def _attempt(self, topic: str, work: Callable[[], object]) -> None:
        """Keep an error, which by now does not mean that nothing was changed."""
        try:
            with kafka_errors(f"change topic {topic!r}"):
                work()
        except ModeAwareError as error:
            self._diffs[topic] = replace(self._diffs[topic], failure=error.message)
            tell(f"error: {topic}: {error}")

    def _carry_out(self, diff: TopicDiff) -> None:
        for step in diff.steps:
            self._say(f"{diff.topic}: {carry_out(self._change, diff.topic, step)}.")
        self._diffs[diff.topic] = replace(diff, applied=True)

    def _wait(self, topic: str) -> None:
        seen: list[TopicDescription] = []

        def ended(found: TopicDescription) -> bool:
            seen[:] = [found]
            return found.is_settled

        self._change.wait(topic, ended=ended)
        replaces = any(isinstance(step, Replace) for step in self._diffs[topic].steps)
        if replaces and seen and seen[0].replacement is None:
            raise ModeAwareError("its replacement was given up or undone; the controller's log says why", topic=topic)
        for step in self._diffs[topic].steps:
            if isinstance(step, Shrink | Grow):
                check_count(topic, seen, step.to)
        is_paused = bool(seen) and seen[0].is_paused
        self._say(f"{topic}: {'paused before the switch' if is_paused else 'done'}.")

    def _say(self, line: str) -> None:
        """For people: standard output is the program's with ``--json``."""
        (tell if self._args.json else print)(line)


def _without_controller(diff: TopicDiff) -> TopicDiff:
    how = "start one (modeaware controller), or pass --wait, which does its work until all is done"
    if diff.needs_controller:
        return replace(diff, steps=(), refusal=f"no controller is running to keep the modes: {how}")
    if diff.progress is not None:
        return replace(diff, notes=(*diff.notes, f"no controller is running, so nothing progresses: {how}"))
    return diff


def carry_out(change: Change, topic: str, step: Step) -> str:
    """Take a step. Returns what was done, in words."""
    if not step.by_controller:
        return _at_brokers(change, topic, step, validate_only=False)
    assert not isinstance(step, (Create, AlterConfigs))
    if isinstance(step, Replace):
        if (failure := change.replace([step.command])[topic]) is not None:
            raise failure
        return f"being replaced by {step.command.successor} ({step.to} partitions)"
    done = change.carry_out(step.command)
    return f"the loss of state is accepted of {', '.join(step.groups)}" if isinstance(step, AcceptStateLoss) else done


def _at_brokers(change: Change, topic: str, step: Step, *, validate_only: bool) -> str:
    if isinstance(step, Create):
        replicas = {} if step.replication_factor is None else {"replication_factor": step.replication_factor}
        new = NewTopic(topic, num_partitions=step.partitions, config=dict(step.configs), **replicas)
        change.admin.create_topics([new], validate_only=validate_only)[topic].result()
        return f"created with {step.partitions} partitions"
    if isinstance(step, Grow):
        change.grow(step.command, validate_only=validate_only)
        return f"grown to {step.to} writable partitions"
    assert isinstance(step, AlterConfigs), "the rest is a controller's work"
    alter_configs(change.session.cluster.brokers, topic, step.set, step.remove, validate_only=validate_only)
    return f"configs altered: {', '.join((*step.set, *step.remove))}"
