"""The engine of changes: the phases of each command that resizes, replaces or applies topics, in this order.

1. *Snapshot*: the mode log is read once, and the brokers describe the topics (:class:`Situation`).
2. *Objections*: requests that a controller or the brokers would refuse are refused now, by the controller's own rules
   (:meth:`Change.admission`) and by validations of the brokers (:meth:`Change.validate`). One request shows,
   for all topics, whether brokers delete topics.
3. *Steps*: the effect of the command on each topic is a :class:`~modeaware.plan.diff.TopicDiff`. All later phases work
   on the diff's steps (:mod:`modeaware.plan.steps`).
4. *Confirm*: the steps are shown, and the user decides. A question may stay open for hours, so the first three phases
   are repeated after the answer. If the steps have changed by then, nothing is done.
5. *Carry out*: the running controller, or a controller in this process (``--wait``), carries out the steps. From here
   on, an error about one topic fails only that topic.
6. *Wait* (``--wait``): the wait for a topic ends when its change is done, needs another command, or only waits for the
   topic's retention (:mod:`modeaware.cli.outcome`).

Each command has a :class:`Request`. Its :meth:`Request.judge` returns the wanted steps of a topic.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from modeaware.admin.new_topics import NewPartitions
from modeaware.admin.replacements import validate_new_topic
from modeaware.cli import INTERRUPTED, BadUsage
from modeaware.cli.certificates import CertificateFolder
from modeaware.cli.embedded import admin_client, carry_out_all, embedded_controller
from modeaware.cli.outcome import Watch, outcome
from modeaware.cli.progress import (
    Begin,
    begin_none,
    run_interruptibly,
    status_without_change,
    tell,
    wait_for_topics,
)
from modeaware.cli.session import command_line, kafka_errors, open_session
from modeaware.cluster.effects import deletes_topics, deletion_disabled
from modeaware.cluster.fence import fence_missing, has_fence
from modeaware.cluster.observer import SnapshotTarget
from modeaware.confluent.admin import AdminClient
from modeaware.confluent.controller_calls import REQUEST_TIMEOUT_S, ControllerCalls, DeletePartitions
from modeaware.controller.admitted import Admitted
from modeaware.controller.daemon import Controller
from modeaware.errors import ClusterError, ModeAwareError, RequestRefused
from modeaware.lifecycle.admission import Admission, admit
from modeaware.lifecycle.commands import (
    CreatePartitions,
    CreatePartitionsCommand,
    DeleteOldTopic,
    DeletePartitionsCommand,
    DeleteTopic,
    FenceTopic,
    ReplaceTopicCommand,
    TopicCommand,
)
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import ClaimRecord, TopicRecord, replaced
from modeaware.plan.diff import FAILED, PENDING, REFUSED, UNCHANGED, CurrentTopic, TopicDiff
from modeaware.plan.steps import BrokerStep, Grow, Replace, Step
from modeaware.printable import printable_lines
from modeaware.reports.describe import TopicDescription
from modeaware.reports.session import ModeLog, Session, no_such_topic
from modeaware.wire.retries import Deadline, Retrying, RetryPolicy

VALIDATION_TIMEOUT_S = 10.0
Answers = Mapping[str, TopicDiff | ModeAwareError]
"""Topic -> its diff, or the reason why there is none."""


@dataclass(frozen=True)
class Situation:
    """The current state of one topic, in the mode log and on the brokers. A topic never changed has no ``record``.

    Attributes:
        replaced: the records of all topics that are or were replaced.
    """

    topic: str
    record: TopicRecord | None
    facts: TopicFacts
    rules: tuple[GroupRule, ...] = ()
    replaced: Collection[TopicRecord] = ()

    @property
    def current(self) -> CurrentTopic:
        """The topic's state, from its record and the brokers' responses."""
        return CurrentTopic(self.facts.partition_count, topic_id=self.facts.topic_id, record=self.record)

    @property
    def writable_count(self) -> int:
        """The number of partitions that take writes."""
        return self.current.known.writable_count


@dataclass(frozen=True)
class Seen:
    """One snapshot of the cluster: the mode log, and the facts about topics by name."""

    session: Session
    log: ModeLog
    observed: Mapping[str, TopicFacts | ClusterError]

    def facts(self, topic: str) -> TopicFacts:
        """Return the facts about a topic, which need not exist. Raises ClusterError if brokers did not answer."""
        facts = self.observed[topic]
        if isinstance(facts, ClusterError):
            raise facts
        return facts

    def situation(self, topic: str) -> Situation:
        """Return the state of a topic that is to be changed. Raises the errors of :mod:`.reports.session`."""
        facts = self.facts(topic)
        if facts.topic_id is None:
            raise no_such_topic(topic, self.session.cluster.topic_names(), self.log)
        record = self.log.record(topic, facts.topic_id)
        return Situation(topic, record, facts, self.log.rules, self.log.replaced)


class Change:
    """The requests that the phases send to a cluster, in one session. A context manager; one thread.

    Commands go to the running controller, or after :meth:`embed` to a controller in this process.

    Args:
        timeout_s: how long attempts that changed nothing are retried. All reads and validations before a question share
            one such limit. So do all commands that are sent together.
    """

    def __init__(self, session: Session, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.session = session
        self._timeout_s = timeout_s
        self._stack = ExitStack()
        self._embedded: Controller | None = None

    def __enter__(self) -> Change:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def admin(self) -> AdminClient:
        return self._stack.enter_context(admin_client(self.session))

    def retry_each(self, topics: Sequence[str], attempt: Callable[[Sequence[str]], Answers]) -> Answers:
        """Return the answer or the error of each topic; attempts are retried until the deadline."""
        retrying = Retrying(Deadline(self._timeout_s), RetryPolicy.from_conf(self.session.conf))
        return retrying.each(topics, attempt, repeatable=True, resolve=lambda _, last: last)

    def take_snapshot(self, topics: Collection[str], log: ModeLog | None = None) -> Seen:
        """Read topics together, with ``log``; without ``log``, read the mode log first."""
        log = self.session.read_log() if log is None else log
        targets = [SnapshotTarget(topic, None) for topic in topics]
        facts = self.session.observer().observe_all(targets, log.rules) if targets else []
        return Seen(self.session, log, dict(zip(topics, facts, strict=True)))

    def admission(self, command: TopicCommand, situation: Situation) -> Admission:
        """Return how a controller would admit the command. Raises RequestRefused if the controller would refuse."""
        config, now_ms = self.session.controller, self.session.clock.now_ms()
        record, facts, rules, replaced = situation.record, situation.facts, situation.rules, situation.replaced
        return admit(command, record, facts, config, now_ms, rules, replaced)

    def validate(self, topic: str, step: Step, topic_id: str | None = None) -> None:
        """Make the brokers validate their part of a step. Raises RequestRefused if they refuse."""
        if isinstance(step, BrokerStep):
            step.at_brokers(topic, self.admin, self.session.cluster.brokers, validate_only=True)
        elif isinstance(step, Replace):
            validate_new_topic(self.session.cluster.brokers, step.command, VALIDATION_TIMEOUT_S)
        elif isinstance(step, Grow) and step.created:
            if not step.by_controller or topic_id is None:
                self.grow(step, validate_only=True)
                return
            growth = CreatePartitions(topic, topic_id, step.to, step.command.assignments)
            (refused,) = self.session.cluster.validate([growth])
            if refused is not None:
                raise refused

    def embed(self, claim: ClaimRecord | None) -> None:
        """Run a controller in this process, unless the controller of ``claim`` or of a later claim runs."""
        self._embedded = self._stack.enter_context(embedded_controller(self.session, claim))

    @property
    def is_embedded(self) -> bool:
        return self._embedded is not None

    def send(self, steps: Sequence[Step]) -> dict[str, ModeAwareError | None]:
        """Send the commands of ``steps`` (at most one step for a topic) to a controller, all together.

        Returns:
            Topic -> why the step failed; None if the controller carried out the step. A topic is missing if its step
            does not go to a controller.
        """
        commands = {
            step.command.topic: step.command
            for step in steps
            if not isinstance(step, BrokerStep) and goes_to_controller(step)
        }
        answers: Mapping[str, object]
        try:
            if self._embedded is not None:
                answers = carry_out_all(self._embedded, commands, self._timeout_s)
            else:
                answers = self._ask(list(commands.values())) if commands else {}
        except ModeAwareError as error:
            return dict.fromkeys(commands, error)
        why = "the controller's response lacks the topic; the outcome is unknown. Describe the topic before a retry"
        missing = {topic: ModeAwareError(f"topic {topic!r}: {why}") for topic in commands}
        return {t: a if isinstance(a, ModeAwareError) else None for t, a in (missing | dict(answers)).items()}

    def _ask(self, commands: Sequence[TopicCommand]) -> Mapping[str, object]:
        """Return the answers of the running controller. After Ctrl-C no further attempt begins: a late one could
        change a topic minutes later."""
        deadline, session = Deadline(self._timeout_s), self.session

        def ask() -> Mapping[str, object]:
            views = calls.views(deadline)
            replaced = [command for command in commands if isinstance(command, ReplaceTopicCommand)]
            answers = calls.replace_topics(views, replaced, False, deadline)
            grown = [command for command in commands if isinstance(command, CreatePartitionsCommand)]
            answers |= calls.create_partitions(views, grown, False, deadline)
            for command in commands:
                if isinstance(command, DeletePartitionsCommand):
                    wanted = DeletePartitions(command.total_count, command.immediate_delete, command.accept_state_loss)
                    answers |= calls.delete_partitions(views, {command.topic: wanted}, command.delay_ms, deadline)
            return answers

        with closing(ControllerCalls(session.conf, session.config)) as calls:
            return run_interruptibly(ask, stop=calls.give_up)

    def carry_out(self, topic: str, step: Step) -> None:
        """Carry out a step, by the brokers alone or by a controller."""
        if isinstance(step, BrokerStep):
            step.at_brokers(topic, self.admin, self.session.cluster.brokers, validate_only=False)
        elif isinstance(step, Grow) and not goes_to_controller(step):
            self.grow(step, validate_only=False)
        elif (failure := self.send([step])[topic]) is not None:
            raise failure

    def grow(self, step: Grow, *, validate_only: bool) -> None:
        """Grow a topic at the brokers. If a minimum of live replicas is requested, this process places the replicas."""
        command = step.command
        replicas = {} if command.assignments is None else {"replica_assignment": [*map(list, command.assignments)]}
        new = NewPartitions(
            command.topic, command.total_count, **replicas, min_required_replication_factor=step.minimum
        )
        futures = self.admin.create_partitions(
            {command.topic: new}, validate_only=validate_only, request_timeout=self._timeout_s
        )
        result = futures[command.topic].result()
        if result.under_replicated:
            (tell if validate_only else print)(result.describe())

    def wait(
        self,
        *topics: str,
        ended: Callable[[TopicDescription], bool],
        lost: Callable[[RequestRefused], None],
        begin: Begin = begin_none,
    ) -> None:
        """Show the progress until each of ``topics``, and each topic that ``begin`` adds, has ended or is lost. The
        arguments are those of :func:`wait_for_topics`."""

        def failure() -> BaseException | None:
            return self._embedded.failure if self._embedded is not None else None

        wait_for_topics(self.session, topics, failure, ended, lost, begin)


def goes_to_controller(step: Step) -> bool:
    """Return whether the step's command makes a controller carry out the whole step."""
    return step.by_controller and not (isinstance(step, Grow) and step.minimum is not None)


def _sent_for(step: Step) -> str:
    """Return the topic of a step's command, or "" if the step has no command for a controller."""
    return "" if isinstance(step, BrokerStep) else step.command.topic


class Request:
    """A command's request to change some topics, and one run of the engine. Each command has a subclass.

    Attributes:
        what: the action of the command, as messages about errors of Kafka name it.
        together: whether nothing is changed if one topic is refused. Such a command prints hints only after Ctrl-C.
        failed: the exit status if a topic failed.
        change: the connection by which the phases send requests.
        claim: the active controller's claim, as :meth:`find` has read it.
        drafts: topic -> the diff to show if the topic is refused; :meth:`find` adds the reason.
        diffs: topic -> the diff with its steps, and later with its outcome.
    """

    what = "change the topic"
    together = False
    failed = 1

    def __init__(self, args: argparse.Namespace, topics: Iterable[str]) -> None:
        self.args = args
        self._folder = getattr(args, "certificates", None)
        if self._folder is not None and not args.wait:
            raise BadUsage("--certificates works only with --wait")
        if self._folder is not None and not self._folder.is_dir():
            raise BadUsage(f"--certificates: {self._folder} is not an existing folder")
        self.topics = list(topics)
        self.claim: ClaimRecord | None = None
        self.diffs: dict[str, TopicDiff] = {}
        self.drafts: dict[str, TopicDiff] = {}
        self._made: dict[str, TopicRecord] = {}

    def take_snapshot(self, topics: Sequence[str]) -> Seen:
        """Read the cluster's facts about these topics, for :meth:`judge`."""
        return self.change.take_snapshot(topics)

    def judge(self, topic: str, seen: Seen) -> TopicDiff:
        """Return the steps of a topic. Raises ModeAwareError if the steps would be refused."""
        raise NotImplementedError

    def find(self, topics: Sequence[str] | None = None) -> dict[str, TopicDiff]:
        """Return the diffs of ``topics``, or of all topics of the command. Change and show nothing."""
        self._made.clear()
        self._deletes = cache(lambda: deletes_topics(self.change.session.cluster.brokers))
        self._fences = cache(lambda: has_fence(self.change.session.cluster.brokers))

        def attempt(topics: Sequence[str]) -> Answers:
            try:
                seen = self.take_snapshot(topics)
            except ModeAwareError as error:
                return dict.fromkeys(topics, error)
            self.claim = seen.log.claim
            return {topic: self._judged(topic, seen) for topic in topics}

        answers = self.change.retry_each(self.topics if topics is None else topics, attempt)
        return {
            topic: replace(self.drafts.get(topic, TopicDiff(topic)), steps=(), refusal=diff.message)
            if isinstance(diff, ModeAwareError)
            else diff
            for topic, diff in answers.items()
        }

    def _judged(self, topic: str, seen: Seen) -> TopicDiff | ModeAwareError:
        try:
            with kafka_errors(f"change topic {topic!r}"):
                return self.judge(topic, seen)
        except ModeAwareError as error:
            self._made.pop(topic, None)
            return error

    def admit(self, command: TopicCommand, seen: Seen) -> Admission:
        """Return how a controller would admit a command after the commands that this method has already admitted.
        Raises RequestRefused if the controller would refuse the command. Raises ClusterError if the command ends with a
        deletion, and brokers delete no topics."""
        situation = seen.situation(command.topic)
        facts, record = situation.facts, self._made.get(command.topic, situation.record)
        if isinstance(command, ReplaceTopicCommand):
            facts = replace(facts, new_topic=seen.facts(command.new_topic))
        known = [*situation.replaced, *(topic.record for topic in replaced(self._made.values()))]
        admission = self.change.admission(command, replace(situation, record=record, facts=facts, replaced=known))
        self._validate(Admitted(command, record, facts, admission))
        if admission.record is not None:
            self._made[command.topic] = admission.record
        return admission

    def _validate(self, admitted: Admitted) -> None:
        """Raise ClusterError for what this user may find out as well as a controller: brokers without a fence, or
        brokers that delete no topics where the replacement, or its undo, ends with a deletion."""
        for effect in admitted.to_validate:
            if isinstance(effect, DeleteTopic | DeleteOldTopic) and not self._deletes():
                raise deletion_disabled(effect)
            if isinstance(effect, FenceTopic) and not self._fences():
                raise fence_missing(effect.topic)

    def shown(self, diff: TopicDiff) -> Iterable[str]:
        """Return the lines about one topic to show before the question. :meth:`show` adds refusals, and the notes of
        topics where nothing is to be done."""
        return () if diff.status in (REFUSED, UNCHANGED) else diff.lines()

    def show(self) -> None:
        """Show the findings."""
        diffs = self.diffs.values()
        for diff in diffs:
            tell(*self.shown(diff))
        tell(*dict.fromkeys(f"error: {diff.refusal}" for diff in diffs if diff.refusal is not None))
        self.say(*(f"{diff.topic}: {note}." for diff in diffs if diff.status == UNCHANGED for note in diff.notes))

    def run(self) -> int:
        """Run all phases, and return the exit status."""
        with open_session(self.args, self.what) as session, Change(session, self.args.timeout_ms / 1000) as self.change:
            self.diffs = self.find()
            self.show()
            return self.proceed()

    def proceed(self) -> int:
        """Run the phases after the first snapshot, and return the exit status."""
        args, diffs = self.args, list(self.diffs.values())
        refused, pending = (any(diff.status == status for diff in diffs) for status in (REFUSED, PENDING))
        if refused and (self.together or all(diff.status == REFUSED for diff in diffs)):
            return 1
        status = status_without_change(dry_run=args.dry_run, yes=args.yes, asks=pending, say=self.say)
        if status is not None:
            return status or int(refused)
        if pending and not args.yes and not self._is_as_shown():
            return 1
        begun = {
            diff.topic: Watch((*diff.steps, *diff.begun))
            for diff in diffs
            if diff.status != REFUSED and (diff.needs_controller or diff.is_under_way)
        }
        try:
            if args.wait and begun:
                self.change.embed(self.claim)
            self.carry_out(begun)
        except KeyboardInterrupt:
            state = "continue while a controller runs"
            if self.change.is_embedded:
                state = f"pause until a controller runs: {command_line(args, 'modeaware', 'controller')}"
            tell(f"Interrupted. Changes that have begun {state}", *self.hints(begun))
            return INTERRUPTED
        return self.failed if any(diff.status == FAILED for diff in self.diffs.values()) else int(refused)

    def _is_as_shown(self) -> bool:
        current = self.find()
        if others := [topic for topic, diff in self.diffs.items() if current[topic].steps != diff.steps]:
            what = f"the steps for {', '.join(others)} differ from those shown"
            tell(f"error: {what}. No step was taken; run the command again.")
        return not others

    def carry_out(self, begun: dict[str, Watch]) -> None:
        """Take the steps of all topics. If a wait is requested, wait for the end of the topics in ``begun``. Topics
        that fail or end are removed from ``begun``."""
        pending = [diff.topic for diff in self.diffs.values() if diff.status == PENDING]
        if pending:
            self.begin(pending)
        for topic in [topic for topic in begun if self.diffs[topic].failure is not None]:
            del begun[topic]
        if self.args.wait:
            if begun:
                self.wait(begun)
        elif pending and not self.together:
            self.say(*self.hints(begun))

    def begin(self, topics: Iterable[str]) -> None:
        """Take the pending steps of these topics. The first steps of all topics go to a controller together."""
        pending = [diff for topic in topics if (diff := self.diffs[topic]).status == PENDING]
        failures = self.change.send([diff.steps[0] for diff in pending])
        for diff in pending:
            self._attempt(diff.topic, partial(self._take, diff, failures.get(_sent_for(diff.steps[0]))))

    def _take(self, diff: TopicDiff, failure: ModeAwareError | None) -> None:
        """Take the steps in turn. ``failure``: the error of a controller that has already tried the first step."""
        if failure is not None:
            raise failure
        for number, step in enumerate(diff.steps):
            if number > 0 or not goes_to_controller(step):
                self.change.carry_out(diff.topic, step)
            self.say(f"{diff.topic}: {step.done()}.")
        self.diffs[diff.topic] = replace(diff, applied=True)

    def wait(self, left: dict[str, Watch], begin: Begin = begin_none) -> None:
        """Wait for the end of each topic (``begin`` may add topics), and print each outcome at once."""
        certificates = CertificateFolder(self._folder, self.change.session)

        def ended(topic: TopicDescription) -> bool:
            certificates.write(topic)
            if not left[topic.topic].ended(topic):
                return self.gives_up(topic)
            watch = left.pop(topic.topic)
            self._attempt(topic.topic, lambda: self.say(*outcome(self.change.session, topic.topic, watch)))
            return True

        def lost(error: RequestRefused) -> None:
            if error.topic is not None and left.pop(error.topic, None) is not None:
                self.fail(error.topic, error)

        try:
            with kafka_errors("wait for the change"):
                self.change.wait(*left, ended=ended, lost=lost, begin=begin)
        except ModeAwareError as error:
            for topic in left:
                self.fail(topic, error)

    def gives_up(self, topic: TopicDescription) -> bool:
        """Return whether to stop waiting for a topic that has not ended."""
        return False

    def _attempt(self, topic: str, work: Callable[[], object]) -> None:
        """Do ``work``; an error fails the topic. The steps before the error stay taken."""
        try:
            with kafka_errors(f"change topic {topic!r}"):
                work()
        except ModeAwareError as error:
            self.fail(topic, error)

    def fail(self, topic: str, error: ModeAwareError) -> None:
        """Note and show why a topic has failed."""
        self.diffs[topic] = replace(self.diffs[topic], failure=error.message)
        tell(f"error: {error}")

    def hints(self, begun: Mapping[str, Watch]) -> list[str]:
        """Return lines with commands that the user may run next, to watch or undo changes that have begun."""
        line = partial(command_line, self.args, "modeaware")
        hints = [f"Watch it:     {line('topics', '--describe', '--topic', topic)}" for topic in begun]
        hints += [
            f"Undo it:      {line('topics', '--undo', '--topic', topic)}" for topic, w in begun.items() if w.shrinks
        ]
        if replaced := [topic for topic, watch in begun.items() if watch.is_undoable]:
            hints.append(f"Undo it:      {line('replace', *replaced, '--undo')} (until the switch)")
        return hints

    def say(self, *lines: str) -> None:
        """Print lines for people, on standard error if standard output has the JSON (``--json``)."""
        if getattr(self.args, "json", False):
            tell(*lines)
        elif lines:
            print(printable_lines(lines))
