"""``modeaware apply FILE...``: topics as files declare them, docs/apply.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from modeaware.apply.desired import DesiredTopic
from modeaware.apply.planning import plan_topic
from modeaware.apply.read import read_files
from modeaware.apply.steps import PENDING, REFUSED, TopicPlan
from modeaware.cli import INTERRUPTED
from modeaware.cli.apply_look import Found, Validation, look_at
from modeaware.cli.apply_steps import Carrier
from modeaware.cli.apply_text import plan_lines, plans_json
from modeaware.cli.confirm import confirmed
from modeaware.cli.embedded import embedded_controller, our_settings, tell
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
from modeaware.cli.situation import READ_TIMEOUT_S
from modeaware.cli.waiting import wait_for_topic
from modeaware.cluster.cluster import Cluster
from modeaware.config import ControllerConfig
from modeaware.confluent.admin import AdminClient
from modeaware.controller.daemon import Controller
from modeaware.errors import ControllerUnavailable, ModeAwareError
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import ClaimRecord
from modeaware.printable import printable_lines
from modeaware.retries import Deadline, Outcome, Retrying, outcome_of
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
