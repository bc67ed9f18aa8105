"""``modeaware apply FILE...``: topics as files declare them, docs/apply.md."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from modeaware.cli import BadUsage, Command
from modeaware.cli.certificates import add_certificates_option
from modeaware.cli.change import Request, Seen
from modeaware.cli.declared import current_topics, diff_of
from modeaware.cli.outcome import Watch
from modeaware.cli.progress import Progress, tell
from modeaware.cli.replace import ACCEPTING, Consequences
from modeaware.cli.session import add_change_options, add_connection_options, add_flags, whole_number
from modeaware.errors import ControllerUnavailable, ModeAwareError
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.plan.diff import PENDING, REFUSED, ApplyReport, TopicDiff
from modeaware.plan.file import DesiredTopic, read_files
from modeaware.plan.pace import Pace, State, pace_text
from modeaware.plan.steps import BrokerStep, Replace
from modeaware.printable import printable_lines
from modeaware.reports.describe import TopicDescription
from modeaware.reports.serialise import json_help, json_text
from modeaware.wire.client import is_running

CHANGES_PENDING, SOME_FAILED = 3, 4


class Apply(Command):
    """Shows and validates the diff. Without --dry-run and --check, also requests confirmation and takes the steps."""

    epilog = f"""\
Shows the changes as a diff, lets the brokers and the controller validate every step, asks for confirmation, and
carries out the steps. With fewer partitions, the topic is shrunk by partition modes. With replace: NAME, a new topic
NAME takes the place of the topic. The old topic is deleted once its groups have read it. A topic that no file names is
not changed. A second run is harmless. docs/apply.md describes the files:

  version: 1
  topics:
    orders:
      partitions: 12
      replication_factor: 3
      configs: {{retention.ms: 604800000}}
      shrink: {{policy: drained, delay: 1h}}

{json_help(ApplyReport)}
Exit status: 0 done, or nothing to do; 1 an error, a refused topic, or you declined;
{CHANGES_PENDING} with --check: changes are pending; {SOME_FAILED} at least one topic failed, and the others were
changed or begun; 130 ended by Ctrl-C.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML, see below")
        add_connection_options(parser)
        add_change_options(parser)
        add_certificates_option(parser)
        check = f"like --dry-run, but exit with status {CHANGES_PENDING} if changes are pending"
        add_flags(parser, check=check, **ACCEPTING, json="print one JSON object, see below")
        parser.add_argument(
            "--at-once",
            type=whole_number(1),
            metavar="N",
            help="change N topics at a time, in the order of the files, and wait as with --wait. When one is done, "
            "the next begins. After the first topic that is refused, fails or needs an operator, no further topic "
            "begins; repeat the command to continue",
        )
        parser.add_argument(
            "--continue",
            dest="passes_trouble",
            action="store_true",
            help="with --at-once: skip topics that are refused, fail or need an operator, and continue with the others",
        )

    def run(self, args: argparse.Namespace) -> int:
        if args.json and not (args.yes or args.dry_run or args.check):
            raise BadUsage("--json needs --yes, --dry-run or --check: a question would break the JSON output")
        if args.passes_trouble and args.at_once is None:
            raise BadUsage("--continue works only with --at-once")
        args.dry_run = args.dry_run or args.check
        if args.at_once is None:
            return _Application(args, read_files(args.files)).run()
        args.wait = True
        return _Paced(args, read_files(args.files)).run()


class _Application(Request):
    """The topics as the files declare them."""

    what = "apply the files"
    together = True
    failed = SOME_FAILED

    def __init__(self, args: argparse.Namespace, desired: Sequence[DesiredTopic]) -> None:
        super().__init__(args, [topic.name for topic in desired])
        self._desired = {topic.name: topic for topic in desired}

    def take_snapshot(self, topics: Sequence[str]) -> Seen:
        session, desired = self.change.session, [self._desired[topic] for topic in topics]
        new_topics = [topic.replace for topic in desired if topic.replace is not None]
        log = session.read_log()
        current = current_topics(session, log, [*topics, *new_topics])
        self.drafts |= {topic.name: diff_of(topic, current, log) for topic in desired}
        self._consequences = Consequences(self.args, session)
        self._controller_runs = cache(partial(is_running, session.conf, log.claim))
        commands = [s.command for t in topics for s in self.drafts[t].steps if not isinstance(s, BrokerStep)]
        replacing = {command.new_topic for command in commands if isinstance(command, ReplaceTopicCommand)}
        return self.change.take_snapshot({*(command.topic for command in commands), *replacing}, log)

    def judge(self, topic: str, seen: Seen) -> TopicDiff:
        diff = self._with_controller(self.drafts[topic])
        notes = list(diff.notes)
        for step in diff.steps:
            if isinstance(step, BrokerStep):
                self.change.validate(topic, step)
                continue
            admission = self.admit(step.command, seen)
            notes += [admission.message] if admission.message is not None else []
            if isinstance(step, Replace):
                self._consequences.check(step.command)
            self.change.validate(topic, step, seen.facts(topic).topic_id)
        return replace(diff, notes=tuple(notes))

    def _with_controller(self, diff: TopicDiff) -> TopicDiff:
        """Return the diff, with a note if its change does not progress. Raise ControllerUnavailable if a step needs
        a controller and none runs."""
        how = "start one (modeaware controller), or pass --wait, so that this command does the controller's work"
        if self.args.wait:
            return diff
        if diff.needs_controller and not self._controller_runs():
            raise ControllerUnavailable(f"no controller is running: {how}")
        if diff.needs_controller or diff.progress is None:
            return diff
        with suppress(ControllerUnavailable):  # unknown from this host, or as this user
            if not self._controller_runs():
                return replace(diff, notes=(*diff.notes, f"no controller is running, so this change pauses: {how}"))
        return diff

    @property
    def report(self) -> ApplyReport:
        return ApplyReport(tuple(self.diffs.values()))

    def show(self) -> None:
        if not self.args.json:
            print(printable_lines(self.report.lines()))
        if self.together and any(diff.status == REFUSED for diff in self.diffs.values()):
            tell("error: at least one topic is refused, see above. Nothing was changed.")

    def proceed(self) -> int:
        pending = any(diff.status == PENDING for diff in self.diffs.values())
        try:
            status = super().proceed()
        finally:
            if self.args.json:
                print(json_text(self.report))
        return CHANGES_PENDING if self.args.check and pending and status == 0 else status

    def hints(self, begun: Mapping[str, Watch]) -> list[str]:
        return ["Run the command again to change the remaining topics."]


class _Paced(_Application):
    """The topics as the files declare them, some at a time (:mod:`modeaware.plan.pace`)."""

    def __init__(self, args: argparse.Namespace, desired: Sequence[DesiredTopic]) -> None:
        super().__init__(args, desired)
        self._pace = Pace(args.at_once, args.passes_trouble)
        self._left: dict[str, Watch] = {}
        self._watches: dict[str, Watch] = {}
        self._is_checked = False
        self.together = not args.passes_trouble

    def carry_out(self, begun: dict[str, Watch]) -> None:
        for topic in [topic for topic in begun if self.diffs[topic].status == PENDING]:
            del begun[topic]
        self._left, self._is_checked = begun, not begun
        self._watches |= begun
        if set(self._states().values()) <= {"done"}:
            return  # the output already shows that all topics are as declared
        self.wait(begun, self._begin_next)
        states = self._states()
        self.say(f"Topics: {pace_text(states)}.")
        if self._pace.is_stopped(states):
            tell(
                "The errors above stop the run: no further topic begins. A running controller completes the topics "
                "under way. Remove the cause and run the command again, or pass --continue to skip topics in trouble."
            )

    def _states(self) -> dict[str, State]:
        def state(diff: TopicDiff) -> State:
            if diff.error is not None:
                return "in trouble"
            if diff.topic in self._left:
                return "under way"
            if diff.status == PENDING:
                return "to begin"
            watch = self._watches.get(diff.topic)
            return "awaiting retention" if watch is not None and watch.awaits_retention else "done"

        return {topic: state(diff) for topic, diff in self.diffs.items()}

    def _begin_next(self, progress: Progress) -> list[str]:
        """Begin the topics that may begin now, and return those that are under way afterwards."""
        begun: list[str] = []
        if not self._is_checked:  # first find topics of an earlier run that are in trouble
            self._is_checked = True
            return begun
        while not begun and (due := self._pace.due(self._states())):
            self._check_again(due)
            may_begin = not self._pace.is_stopped(self._states())
            if may_begin:
                self.begin(due)
            for diff in (self.diffs[topic] for topic in due):
                if diff.error is None and (diff.is_under_way or (may_begin and diff.needs_controller)):
                    self._left[diff.topic] = self._watches[diff.topic] = Watch((*diff.steps, *diff.begun))
                    begun.append(diff.topic)
        progress.total = pace_text(self._states())
        return begun

    def _check_again(self, topics: Sequence[str]) -> None:
        """Check topics again: they may begin hours after they were shown."""
        for topic, diff in self.find(topics).items():
            shown, self.diffs[topic] = self.diffs[topic], diff
            if diff.status == PENDING and diff.steps != shown.steps:
                why = f"topic {topic!r} has changed since its steps were shown; run the command again"
                self.fail(topic, ModeAwareError(why))
            elif diff.refusal is not None:
                self.fail(topic, ModeAwareError(diff.refusal))

    def gives_up(self, topic: TopicDescription) -> bool:
        if topic.alarm is not None:
            del self._left[topic.topic]
            self.fail(topic.topic, ModeAwareError(f"topic {topic.topic!r}: {topic.alarm}", topic=topic.topic))
        return topic.alarm is not None or self._pace.is_stopped(self._states())
