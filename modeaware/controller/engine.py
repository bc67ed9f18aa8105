"""The controller's work, one step at a time, on one thread: claim, execute a command, check a topic.

Decisions are :mod:`modeaware.lifecycle`'s. The order of things is the engine's: a record is on the log before anything
it announces is done, so a crash in between repeats an effect and never skips a record.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from modeaware.clock import Clock
from modeaware.config import ControllerConfig
from modeaware.controller.about import about_controller, about_record, about_topic, describe_waiting
from modeaware.controller.contact import NOWHERE, Contact
from modeaware.controller.failures import Failures
from modeaware.controller.ports import Effects, ModeLog, TopicObserver
from modeaware.controller.refusals import RULES_UNREADABLE, newer, not_begun, refusal
from modeaware.controller.schedule import Schedule, elapsed_ms
from modeaware.controller.watched import COMMAND, Watched
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, NewerRecord, RequestRefused
from modeaware.lifecycle.admit import admit
from modeaware.lifecycle.advance import advance, give_up_opening
from modeaware.lifecycle.commands import AlterGroupRulesCommand, Command, CommandResult, CreatePartitionsCommand
from modeaware.lifecycle.effects import CreatePartitions, Effect
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.group_rules import alter_group_rules
from modeaware.lifecycle.phases import is_settled
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.records import CLAIM_KEY, ClaimRecord, TopicRecord

logger = logging.getLogger("modeaware.controller")

UNKNOWN_EPOCHS = 1_000
"""How many epochs a claim that cannot be read may be ahead of all else on the log. Readers that knew it drop whatever
comes under a lower one."""


class Engine:
    """Keeps the records of one mode log. Not thread-safe: one thread owns it.

    Attributes:
        schedule: when to look at which topic again; on the time of :func:`elapsed_ms`.
        failures: keeps what nobody foresaw in the work on one topic from ending the work on all others.
        watched: what other threads may see of it.
    """

    def __init__(
        self, log: ModeLog, observer: TopicObserver, effects: Effects, config: ControllerConfig, clock: Clock
    ) -> None:
        self._log = log
        self._observer = observer
        self._effects = effects
        self._config = config
        self._clock = clock
        self._records: dict[str, TopicRecord] = {}
        self._newer: frozenset[str] = frozenset()
        self._rules = GroupRulesRecord()
        self._rules_unreadable = False
        self._claim: ClaimRecord | None = None
        self._given = 0  # the last epoch that a claim was made under, on the log or not
        self.schedule = Schedule(config.check_interval_ms)
        self.failures = Failures()
        self.watched = Watched()

    @property
    def records(self) -> tuple[TopicRecord, ...]:
        """The topics' records now in force."""
        return tuple(self._records.values())

    @property
    def group_rules(self) -> tuple[GroupRule, ...]:
        """The operator's rules about groups."""
        return self._rules.rules

    def claim(self, controller_id: str, contact: Contact = NOWHERE, not_before_ms: int = 0, seen_epoch: int = 0) -> int:
        """Become the controller: fence, read the log, claim it under the next epoch (invariant I5). Returns that epoch.

        Topics whose last record was written for a newer reader are left alone (invariant I4).

        Args:
            contact: where it takes commands.
            not_before_ms: the claim's time is no earlier, whatever the clock says: who joins the election later takes a
                place behind the claim's time.
            seen_epoch: the highest epoch that was ever seen on the log: where the log lost its tail it says less, and
                what was written under an epoch must not come again with other content.

        Raises:
            NewerRecord: the last claim itself was.
            ClusterError, ModeSourceError: the mode log cannot be read, or not appended to.
        """
        replay = self._log.open()
        if CLAIM_KEY in replay.newer:
            raise NewerRecord("the mode log was claimed by a controller of a newer version: upgrade modeaware")
        self._newer = frozenset(replay.newer)
        self._records = {key: record for key, record in replay.records.items() if key not in self._newer}
        self._rules = replay.group_rules or GroupRulesRecord()
        self._rules_unreadable = replay.is_unreadable(GROUP_RULES_KEY)
        # Records count beside the claim: an epoch is never given out twice, even where the claim cannot be read.
        epochs = [self._rules.controller_epoch, *(record.controller_epoch for record in replay.records.values())]
        epochs.append(replay.observed_brokers.controller_epoch if replay.observed_brokers is not None else 0)
        on_log = max(epochs + [replay.claim.controller_epoch if replay.claim is not None else 0])
        known = max(seen_epoch, self._claim.controller_epoch if self._claim is not None else 0)
        if on_log < known:
            logger.error("the mode log has lost its tail: it ends with epoch %d, and %d was there", on_log, known)
        unknown = UNKNOWN_EPOCHS if replay.is_unreadable(CLAIM_KEY) else 0
        epoch = self._given = max(on_log + unknown, known, self._given) + 1
        claimed_ms = max(self._clock.now_ms(), not_before_ms)
        claim = ClaimRecord(epoch, contact.address, controller_id, claimed_ms, contact.host, contact.security_protocol)
        self._log.append([(CLAIM_KEY, claim.to_json())])
        self._claim = claim
        self.watched.claimed(self._records.values(), self.group_rules, self._clock.now_ms())
        self.schedule = Schedule(self._config.check_interval_ms)
        for topic_id in self._records:
            self.check_at_once(topic_id)
        told = about_controller(controller_id, epoch)
        text = "controller %s claimed the mode log: epoch %d, %d topics"
        logger.info(text, controller_id, epoch, len(self._records), extra=told)
        return epoch

    def release(self) -> None:
        """Say on the log that no controller listens any more."""
        if self._claim is not None:
            claim = replace(self._claim, address=None, claimed_ms=max(self._clock.now_ms(), self._claim.claimed_ms))
            self._log.append([(CLAIM_KEY, claim.to_json())])
            self._claim = None

    def execute(self, command: Command) -> CommandResult:
        """Carry out one command. A refusal is a result, not an exception.

        What is done outside the log is on the log first, under this claim (invariant I5).

        Raises:
            ClusterError, ControllerFenced: the mode log could not be appended to; whether it was is known after a
                new claim.
        """
        if isinstance(command, AlterGroupRulesCommand):
            return self._alter_group_rules(command)
        record, epoch = None, self._epoch
        try:
            with self.failures.isolated(f"topic {command.topic!r}: a command"):
                facts = self._observe(command.topic, None)
                if facts.topic_id in self._newer:
                    raise newer(f"topic {command.topic!r}", command.topic)
                record = self._records.get(facts.topic_id or "")
                now_ms = self._clock.now_ms()
                admission = admit(command, record, facts, self._config, epoch, now_ms, self.group_rules)
                new = _new_partitions(command, admission.record, facts)
                if new is not None or (isinstance(command, CreatePartitionsCommand) and command.validate_only):
                    self._validate(command, facts)
        except (RequestRefused, ClusterError) as error:
            if isinstance(error, ClusterError):
                self.watched.failed(COMMAND)
            return refusal(command, not_begun(error), record)
        if admission.record is not None:
            self._append(admission.record)
            told = about_record(admission.record)
            logger.info("%s: %s", command, admission.record.view().describe(), extra=told)
        if new is not None and admission.record is not None:
            failure = self._create(new, admission.record, facts)
            if failure is not None:
                return refusal(command, failure, self._records.get(admission.record.topic_id))
        current = admission.record or record
        return CommandResult(command.topic, ErrorCode.NONE, admission.message, current.modes if current else ())

    def check(self, topic_id: str) -> bool:
        """One pass over a topic; plans the next. Returns whether anything changed.

        Raises:
            ClusterError, ControllerFenced: the mode log could not be appended to.
        """
        record, epoch = self._records[topic_id], self._epoch
        try:
            with self.failures.isolated(f"topic {record.topic!r}: a check"):
                facts = self._observe(record.topic, record)
                now_ms = self._clock.now_ms()
                self.watched.looked(topic_id, facts, now_ms)
                step = advance(record, facts, self._config, epoch, now_ms, self.group_rules)
        except (ClusterError, RequestRefused) as error:
            logger.warning("topic %s: cannot be checked now: %s", record.topic, error, extra=about_record(record))
            self.watched.not_looked(topic_id, str(error))
            self.put_off(topic_id)
            return False
        for alarm in step.alarms:
            logger.warning("%s", alarm, extra=about_record(record))
        if facts.groups_doubt is not None and not is_settled(record):
            text = "topic %s: which groups use it is not certain: %s"
            logger.info(text, record.topic, facts.groups_doubt.detail, extra=about_record(record))
        if step.tombstone:
            self._remove([topic_id])
            return True
        if step.record is not None:
            self._append(step.record)
            told = about_record(step.record)
            logger.info("%s, phase %s", step.record.view().describe(), describe_waiting(step.record), extra=told)
        performed = self._perform_all(step.effects, appended=step.record is not None)
        changed = step.record is not None or any(performed)
        # A topic that is not there is no settled one: whether it is gone is found out soon.
        settled = is_settled(self._records.get(topic_id)) and facts.topic_id == topic_id
        # What an effect did is seen by the next look, at once; one that failed is tried again after a while.
        due_in_ms = 0 if performed and all(performed) else None
        if step.due_ms is not None and not performed:
            due_in_ms = step.due_ms - self._clock.now_ms()
        settled = settled and not performed
        self.schedule.after_check(
            topic_id, elapsed_ms(self._clock), progress=changed, settled=settled, due_in_ms=due_in_ms
        )
        return changed

    def remove(self, topic_ids: Sequence[str]) -> None:
        """Remove the records of topics that every broker knows under another id.

        Raises:
            ClusterError, ControllerFenced: the mode log could not be appended to.
        """
        for topic_id in topic_ids:
            record = self._records[topic_id]
            text = "topic %r was deleted and recreated: the mode record of the earlier one, %s, is removed"
            logger.warning(text, record.topic, topic_id, extra=about_record(record))
        self._remove(topic_ids)

    def _remove(self, topic_ids: Sequence[str]) -> None:
        self._log.append([(topic_id, None) for topic_id in topic_ids])
        for topic_id in topic_ids:
            del self._records[topic_id]
            self.watched.removed(topic_id)
            self.schedule.forget(topic_id)

    def put_off(self, topic_id: str) -> None:
        """Look at the topic again after a while, a longer one each time."""
        self.schedule.after_check(topic_id, elapsed_ms(self._clock), progress=False, settled=False)

    def check_at_once(self, topic_id: str) -> None:
        """Have the topic checked as soon as there is time."""
        self.schedule.now(topic_id, elapsed_ms(self._clock))

    def _observe(self, topic: str, record: TopicRecord | None) -> TopicFacts:
        """The facts of a topic. While the rules about groups cannot be read, nobody knows who else is waited for, which
        is a doubt (invariant I2)."""
        facts = self._observer.observe(topic, record, self.group_rules)
        if self._rules_unreadable and (facts.groups_doubt is None or facts.groups_doubt.hidden):
            return replace(facts, groups_doubt=RULES_UNREADABLE)
        return facts

    def _alter_group_rules(self, command: AlterGroupRulesCommand) -> CommandResult:
        """Change the rules; every topic that waits is looked at again by them."""
        try:
            if GROUP_RULES_KEY in self._newer:
                raise newer("the rules about groups")
            after = alter_group_rules(self._rules, command, self._epoch)
        except RequestRefused as error:
            return refusal(command, error, None)
        if after != self._rules:
            self._log.append([(GROUP_RULES_KEY, after.to_json())])
            self._rules, self._rules_unreadable = after, False
            self.watched.ruled(after.rules)
            logger.info("group rules: %s", command)
            for record in self._records.values():
                if not is_settled(record):
                    self.check_at_once(record.topic_id)
        return CommandResult(command.topic)

    @property
    def _held_claim(self) -> ClaimRecord:
        if self._claim is None:
            raise ModeAwareError("the controller has not claimed the mode log")
        return self._claim

    @property
    def _epoch(self) -> int:
        return self._held_claim.controller_epoch

    def _append(self, record: TopicRecord) -> None:
        self._log.append([(record.topic_id, record.to_json())])
        self._records[record.topic_id] = record
        self.watched.appended(record, self._clock.now_ms())
        self.check_at_once(record.topic_id)

    def _validate(self, command: Command, facts: TopicFacts) -> None:
        """Have the brokers check a growth before anything is written: their refusal changes nothing."""
        if isinstance(command, CreatePartitionsCommand) and command.total_count > facts.partition_count:
            effect = CreatePartitions(command.topic, facts.topic_id or "", command.total_count, command.assignments)
            self._effects.create_partitions(effect, validate_only=True)

    def _create(self, effect: CreatePartitions, record: TopicRecord, facts: TopicFacts) -> ClusterError | None:
        error = self._perform(effect)
        if error is not None and error.code is ErrorCode.REQUEST_TIMED_OUT:  # they may exist by now: the record stays
            return ClusterError(f"{error}; it is tried again until it is done", code=error.code, topic=effect.topic)
        if error is not None:
            self._append(give_up_opening(record, facts, self._epoch, self._clock.now_ms()))
        return error

    def _take_back(self, effect: CreatePartitions, refused: ClusterError) -> None:
        """Give up a growth that was announced, and is refused now: nothing else ends it. Unless the topic has grown
        after all, by an earlier request that went unanswered."""
        record = self._records[effect.topic_id]
        try:
            with self.failures.isolated(f"topic {record.topic!r}: a look after a refused growth"):
                facts = self._observe(record.topic, record)
        except (ClusterError, RequestRefused) as error:
            logger.warning("topic %s: whether it has grown cannot be told now: %s", record.topic, error)
            return
        if facts.topic_id == record.topic_id and facts.partition_count < effect.total_count:
            self._append(give_up_opening(record, facts, self._epoch, self._clock.now_ms()))
            text, told = "topic %s: its growth to %d is given up: %s", about_record(record)
            logger.error(text, record.topic, effect.total_count, refused, extra=told)

    def _perform_all(self, effects: Sequence[Effect], *, appended: bool) -> list[bool]:
        """Carry the effects out, each right after an append, which fails for one that was replaced (invariant I5)."""
        performed = []
        for effect in effects:
            if not appended:
                self._log.append([(CLAIM_KEY, self._held_claim.to_json())])
            error = self._perform(effect)
            performed.append(error is None)
            appended = False
            told = about_topic(effect.topic, topic_id=effect.topic_id, effect=type(effect).__name__)
            if error is None:
                logger.info("topic %s: done: %s", effect.topic, effect, extra=told)
                continue
            logger.warning("topic %s: %s; looked at again later", effect.topic, error, extra=told)
            if isinstance(effect, CreatePartitions) and error.code not in _NOT_REFUSED:
                self._take_back(effect, error)
        return performed

    def _perform(self, effect: Effect) -> ClusterError | None:
        """Carry it out. Returns what went wrong; with code REQUEST_TIMED_OUT it may be done all the same."""
        what = f"topic {effect.topic!r}: {type(effect).__name__}"
        try:
            with self.failures.isolated(what, ErrorCode.REQUEST_TIMED_OUT):
                self._effects.perform(effect)
        except ClusterError as error:
            self.watched.failed(type(effect).__name__)
            return error
        return None


# Not known to be done; or one broker does not know the topic's id yet, and none was asked.
_NOT_REFUSED = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_ID})


def _new_partitions(command: Command, record: TopicRecord | None, facts: TopicFacts) -> CreatePartitions | None:
    """The growth on the brokers that this command needs, if any."""
    if not isinstance(command, CreatePartitionsCommand) or record is None:
        return None
    if len(record.modes) <= facts.partition_count:
        return None
    return CreatePartitions(record.topic, record.topic_id, len(record.modes), command.assignments)
