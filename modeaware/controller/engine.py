"""The controller's work, one step at a time, on one thread: claim, execute a command, check a topic.

:mod:`modeaware.lifecycle` decides; the engine keeps the order of steps. A check takes one *snapshot* (one round of
requests) of the due topics, and decides each topic's next step. It then appends the changed records, and performs the
*effects* (requests that change something on brokers). So after a crash in between, an effect may be repeated, but no
effect lacks its record. A schedule determines when each topic is due. An unexpected error about one topic is contained
to that topic.

An *alias* is the name of a deleted old topic; it points to the new topic. A *gate* hides a new topic from a group. A
change that keeps a topic's name replaces the topic twice, by way of an *interim topic*; the second replacement is the
*second half* (:mod:`modeaware.lifecycle.keep_name`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modeaware.callouts import get_logger
from modeaware.clock import Clock
from modeaware.cluster.observer import ANY_ID, Observer, SnapshotTarget
from modeaware.config import ControllerConfig
from modeaware.controller.admitted import Admitted, refusal
from modeaware.controller.election import LeasedEffects
from modeaware.controller.failures import Failures
from modeaware.controller.inbox import NOT_BEGUN
from modeaware.controller.log import NOWHERE, Contact, ControllerLog
from modeaware.controller.moved import Entry, MovedGroups
from modeaware.controller.schedule import Resting, Schedule, elapsed_ms
from modeaware.controller.status import COMMAND, Watched, about_controller, about_record, describe_waiting
from modeaware.errors import (
    ClusterError,
    ErrorCode,
    ModeAwareError,
    NewerRecord,
    RequestRefused,
)
from modeaware.lifecycle.admission import admit, alter_group_rules, forget_alias
from modeaware.lifecycle.alias import (
    Chain,
    chain_of,
    earlier_topic_of,
    ended_by,
    facts_for_alias,
    is_new_topic_replaced,
    record_after,
    relink,
)
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    Command,
    CommandResult,
    CreatePartitions,
    CreateTopic,
    DeleteOldTopic,
    DeleteRecords,
    DeleteTopic,
    Effect,
    FenceTopic,
    RemoveConfigs,
    ReplaceTopicCommand,
    TopicCommand,
    is_fence,
)
from modeaware.lifecycle.facts import GroupsDoubt, TopicFacts
from modeaware.lifecycle.growth import give_up_opening
from modeaware.lifecycle.keep_name import lifted_fence
from modeaware.lifecycle.moved import Decision
from modeaware.lifecycle.passes import Advance, Pass, pass_over
from modeaware.lifecycle.reasons import AS_ASKED, NAME_TAKEN, NEW_TOPIC_GONE, RENAME_REFUSED
from modeaware.lifecycle.reasons import text as reason_text
from modeaware.lifecycle.replacement import NO_FENCE, give_up_new_topic
from modeaware.lifecycle.second_half import (
    Hindrance,
    closes,
    has_fence_left,
    hindrance,
    is_unused,
    second_half_of,
    waits,
)
from modeaware.lifecycle.state import in_progress
from modeaware.lifecycle.steps import advance
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.moved import moved_key, topic_id_of
from modeaware.modelog.records import (
    CLAIM_KEY,
    OBSERVED_BROKERS_KEY,
    UNKNOWN_GENERATION,
    ClaimRecord,
    Replaced,
    Replacement,
    TopicRecord,
    replaced,
)

logger = get_logger("modeaware.controller")

UNKNOWN_EPOCHS = 1_000
"""How many epochs an unreadable claim may be ahead of all other records. The next claim needs a higher epoch than the
unreadable one, because readers drop records with an epoch below the last claim's."""
_RULES_UNREADABLE = GroupsDoubt("the record of group rules cannot be read: upgrade modeaware, or add the rules again")
# REQUEST_TIMED_OUT: the outcome is unknown. INVALID_PARTITIONS: brokers have validated the growth before, so the topic
# has that many partitions by now.
_MAYBE_GROWN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_PARTITIONS})
_NOT_ANSWERED = frozenset({NOT_BEGUN, ErrorCode.REQUEST_TIMED_OUT})
_REFUSED_FOR_GOOD = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Permanent rejections: the same request would be rejected again. In a pass, an effect is retried after any
other rejection."""


class Engine:
    """Keeps the records of one mode log. Not thread-safe: one thread owns it."""

    def __init__(
        self, log: ControllerLog, observer: Observer, effects: LeasedEffects, config: ControllerConfig, clock: Clock
    ) -> None:
        self._log = log
        self._observer = observer
        self._effects = effects
        self._config = config
        self._clock = clock
        self._records: dict[str, TopicRecord] = {}
        self._newer: frozenset[str] = frozenset()
        self._newer_topics: list[str] = []
        self._rules = GroupRulesRecord()
        self._rules_unreadable = False
        self._claim: ClaimRecord | None = None
        self._given = 0  # the epoch of the last claim, on the log or not
        self.schedule = Schedule(config.check_interval_ms)
        self._resting = Resting()
        self.moved = MovedGroups(config)
        self._refused_fences: set[str] = set()
        self._refused_names: dict[str, str] = {}  # topic id of an alias -> why its name cannot be given back
        self.failures = Failures()
        self.watched = Watched()

    @property
    def records(self) -> tuple[TopicRecord, ...]:
        return tuple(self._records.values())

    @property
    def group_rules(self) -> tuple[GroupRule, ...]:
        return self._rules.rules

    def claim(
        self,
        controller_id: str,
        contact: Contact = NOWHERE,
        not_before_ms: int = 0,
        seen_epoch: int = 0,
        generation: int = UNKNOWN_GENERATION,
    ) -> int:
        """Become the active controller: fence other writers, read the log, claim it under the next epoch
        (invariant I5). Return that epoch.

        Topics whose last record needs a newer reader are not changed (invariant I4).

        Args:
            not_before_ms: the claim contains this time or a later one. A member that joins the election later takes a
                time after the claim's.
            seen_epoch: the highest epoch that was ever read. A log that lost its tail has lower epochs, and an epoch
                must not be used again with other content.
            generation: the generation of the election's group.
        """
        replay = self._log.open()
        if CLAIM_KEY in replay.newer:
            raise NewerRecord("the mode log was claimed by a controller of a newer version: upgrade modeaware")
        self._newer = frozenset(replay.newer)
        others = {GROUP_RULES_KEY, OBSERVED_BROKERS_KEY}
        self._newer_topics = sorted(key for key in self._newer - others if topic_id_of(key) is None)
        self._records = {key: record for key, record in replay.records.items() if key not in self._newer}
        self._rules = replay.group_rules or GroupRulesRecord()
        self._rules_unreadable = replay.is_unreadable(GROUP_RULES_KEY)
        # The epochs of all records count, so that no epoch is used twice even if the claim cannot be read.
        epochs = [self._rules.controller_epoch, *(record.controller_epoch for record in replay.records.values())]
        epochs += [record.controller_epoch for record in replay.moved.values()]
        epochs.append(replay.observed_brokers.controller_epoch if replay.observed_brokers is not None else 0)
        on_log = max(epochs + [replay.claim.controller_epoch if replay.claim is not None else 0])
        known = max(seen_epoch, self._claim.controller_epoch if self._claim is not None else 0)
        if on_log < known:
            logger.error("the mode log has lost its tail: its last epoch is %d, but %d was read before", on_log, known)
        unknown = UNKNOWN_EPOCHS if replay.is_unreadable(CLAIM_KEY) else 0
        epoch = self._given = max(on_log + unknown, known, self._given) + 1
        claimed_ms = max(self._clock.now_ms(), not_before_ms)
        claim = ClaimRecord(
            epoch,
            contact.address,
            controller_id,
            claimed_ms,
            contact.host,
            contact.security_protocol,
            generation,
            contact.pages,
        )
        self._log.append([(CLAIM_KEY, claim.to_json())])
        self._claim = claim
        self.watched.claimed(self._records.values(), self.group_rules, self._clock.now_ms())
        self.schedule = Schedule(self._config.check_interval_ms)
        self._resting = Resting()
        moved = {t: record for t, record in replay.moved.items() if moved_key(t) not in self._newer}
        self.moved = MovedGroups(self._config, moved, self._newer)
        for topic_id in self._records:
            self.check_at_once(topic_id)
        text = "controller %s claimed the mode log: epoch %d, %d topics"
        logger.info(text, controller_id, epoch, len(self._records), extra=about_controller(controller_id, epoch))
        return epoch

    def renew(self, generation: int) -> None:
        """If the election's group has a new, known generation, append the claim again with that generation."""
        if self._claim is not None and generation not in (self._claim.generation, UNKNOWN_GENERATION):
            claim = replace(self._claim, generation=generation)
            self._log.append([(CLAIM_KEY, claim.to_json())])
            self._claim = claim

    def release(self) -> None:
        """Append a claim without an address: this controller takes no more commands."""
        if self._claim is not None:
            claim = replace(
                self._claim, address=None, pages=None, claimed_ms=max(self._clock.now_ms(), self._claim.claimed_ms)
            )
            self._log.append([(CLAIM_KEY, claim.to_json())])
            self._claim = None

    def stand_by(self) -> None:
        """Close the consumer that the observer keeps between passes."""
        self._observer.close()

    def execute(self, commands: Sequence[Command]) -> list[CommandResult]:
        """Execute commands on different topics, with one snapshot and one append. A refusal is a result, not an
        exception.

        The record of a change is on the log, under this claim, before the change is made (invariant I5).

        Returns:
            The results of the first commands, at least of one. The other commands were not begun.
        """
        if isinstance(commands[0], AlterGroupRulesCommand):
            return [self._alter_group_rules(commands[0])]
        chosen: list[TopicCommand] = []
        for command in commands:
            if isinstance(command, AlterGroupRulesCommand):
                break
            chosen.append(command)
        return self._execute(chosen, self._snapshot_for(chosen))

    def _snapshot_for(self, commands: Sequence[TopicCommand]) -> list[TopicFacts | ClusterError]:
        return self._snapshot(
            [SnapshotTarget(command.topic, None) for command in commands],
            [
                SnapshotTarget(command.new_topic, None) if isinstance(command, ReplaceTopicCommand) else None
                for command in commands
            ],
        )

    def _execute(
        self, chosen: Sequence[TopicCommand], observed: Sequence[TopicFacts | ClusterError]
    ) -> list[CommandResult]:
        admitted = self._validate(self._admit_all(chosen, observed))
        admissions = [outcome.admission for outcome in admitted if isinstance(outcome, Admitted)]
        failures = self._append_whole(
            [
                (list(filter(None, (admission.record, admission.also))), list(admission.removed))
                for admission in admissions
            ]
        )

        def appended(outcome: Admitted | CommandResult) -> Admitted | CommandResult:
            if not isinstance(outcome, Admitted):
                return outcome
            failed = next((failures[each] for each in _changed(outcome) if each in failures), None)
            return outcome if failed is None else refusal(outcome.command, failed, outcome.record)

        return self._carry_out([appended(outcome) for outcome in admitted])

    def _admit_all(
        self, commands: Sequence[TopicCommand], observed: Sequence[TopicFacts | ClusterError]
    ) -> list[Admitted | CommandResult]:
        """Decide on commands in order. Each decision takes into account the replacements of earlier commands."""
        known = {record.topic_id: record for record, _ in replaced(self._records.values())}
        admitted = []
        for command, facts in zip(commands, observed, strict=False):
            outcome = self._admit(command, facts, tuple(known.values()))
            if (
                isinstance(outcome, Admitted)
                and (record := outcome.admission.record) is not None
                and record.has_replacement
            ):
                known[record.topic_id] = record
            admitted.append(outcome)
        return admitted

    def _admit(
        self, command: TopicCommand, facts: TopicFacts | ClusterError, known: Sequence[TopicRecord]
    ) -> Admitted | CommandResult:
        record = None
        try:
            if isinstance(facts, ClusterError):
                raise facts
            with self.failures.isolated(f"topic {command.topic!r}: a command"):
                if facts.topic_id in self._newer:
                    raise _newer(f"topic {command.topic!r}", command.topic)
                now_ms = self._clock.now_ms()
                if isinstance(command, ReplaceTopicCommand) and command.forget:
                    return Admitted(command, None, facts, forget_alias(command, facts, known))
                record = self._records.get(facts.topic_id or "")
                admission = admit(command, record, facts, self._config, now_ms, self.group_rules, known)
        except (RequestRefused, ClusterError) as error:
            return self._not_begun(command, error, record)
        return Admitted(command, record, facts, admission)

    def _validate(self, admitted: Sequence[Admitted | CommandResult]) -> list[Admitted | CommandResult]:
        """Make the brokers validate effects before anything is appended, so that a rejection changes nothing."""
        checked = [
            (outcome, effect) for outcome in admitted if isinstance(outcome, Admitted) for effect in outcome.to_validate
        ]
        refused: dict[str, CommandResult] = {}
        for (outcome, _), error in zip(checked, self._validated([effect for _, effect in checked]), strict=True):
            if error is not None and outcome.topic_id not in refused:
                refused[outcome.topic_id] = self._not_begun(outcome.command, error, outcome.record)
        return [
            refused.get(outcome.topic_id, outcome) if isinstance(outcome, Admitted) else outcome for outcome in admitted
        ]

    def _validated(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        if not effects:
            return []
        try:
            with self.failures.isolated("the validation of a change"):
                return self._effects.validate(effects)
        except ClusterError as error:
            if len(effects) == 1:
                return [error]
            half = len(effects) // 2  # so that an error about one topic does not block other topics
            return self._validated(effects[:half]) + self._validated(effects[half:])

    def _not_begun(self, command: TopicCommand, error: ModeAwareError, record: TopicRecord | None) -> CommandResult:
        """Return the answer to a command that failed before anything was appended."""
        if isinstance(error, ClusterError):
            self.watched.failed(COMMAND)
        if error.code is ErrorCode.REQUEST_TIMED_OUT:  # nothing was appended, so the outcome is known
            error = ClusterError(f"{error.message}; nothing was changed", code=NOT_BEGUN, topic=error.topic)
        return refusal(command, error, record)

    def _carry_out(self, admitted: Sequence[Admitted | CommandResult]) -> list[CommandResult]:
        """Create the partitions of commands, after the append; return the results of the commands."""
        growths = []
        for outcome in admitted:
            if not isinstance(outcome, Admitted):
                continue
            for topic_id in outcome.admission.removed:
                logger.warning(
                    "topic %r: the alias and its record (topic id %s) are removed", outcome.command.topic, topic_id
                )
            if outcome.admission.record is not None:
                record = self._records[outcome.topic_id]
                logger.info("%s: %s", outcome.command, record.view().describe(), extra=about_record(record))
                if outcome.new is not None:
                    growths.append(outcome)
        failures = self._create(growths)
        return [
            outcome
            if isinstance(outcome, CommandResult)
            else refusal(outcome.command, failures[outcome.topic_id], self._records.get(outcome.topic_id))
            if outcome.topic_id in failures
            else outcome.result
            for outcome in admitted
        ]

    def check(self, topic_ids: Sequence[str]) -> bool:
        """Check topics in one pass: one snapshot of all, one append, then the effects. Plan each topic's next check.

        If the common snapshot fails, only the first topics are checked, and the other topics stay due.

        Returns:
            Whether anything changed.
        """
        records = [self._records[topic_id] for topic_id in topic_ids]
        if not records:
            return False
        new_topics = [_new_topic(record.replacing) if record.has_replacement else None for record in records]
        began_ms, began_cpu_s = elapsed_ms(self._clock), self._clock.cpu_s()
        observed = self._snapshot([SnapshotTarget(record.topic, record) for record in records], new_topics)
        chain = chain_of(self._records.values())
        checked = [self._advance(record, facts, chain) for record, facts in zip(records, observed, strict=False)]
        passed = [topic for topic in checked if topic is not None]
        gone = [topic.topic_id for topic in passed if topic.step.tombstone]
        stay = [topic for topic in passed if not topic.step.tombstone]
        failures = self._append([topic.step.record for topic in stay if topic.step.record is not None], gone)
        stay = [topic for topic in stay if topic.topic_id not in failures]
        for topic_id in failures:
            self.put_off(topic_id)
        for topic in stay:
            record = self._records.get(topic.topic_id)  # missing if the topic was an alias whose record is removed
            if topic.step.record is not None and record is not None:
                waiting = describe_waiting(record)
                logger.info("%s, phase %s", record.view().describe(), waiting, extra=about_record(record))
        appended = any(topic.step.record is not None for topic in stay) or bool(gone)
        performed = self._perform_all([effect for topic in stay for effect in topic.step.effects], appended=appended)
        outcomes = iter(performed)
        of_topic = {topic.topic_id: [next(outcomes) for _ in topic.step.effects] for topic in stay}
        known = [topic for topic in stay if topic.topic_id in self._records]  # else the alias is removed
        decisions = self._open_gates(known, began_ms)
        pace_ms = self._paces(decisions, began_ms, (self._clock.cpu_s() - began_cpu_s) * 1000 / len(observed))
        changed = bool(gone)
        changed |= self._keep_names([topic.topic_id for topic in known])
        for topic in known:
            if topic.topic_id in self._records:  # else it was the alias of an interim topic, and is removed
                changed |= self._plan(topic, of_topic[topic.topic_id], pace_ms.get(topic.topic_id))
        return changed

    def _keep_names(self, topic_ids: Sequence[str]) -> bool:
        """Request the second halves of changes that keep names, remove unused aliases of interim topics, and lift
        leftover fences (:mod:`modeaware.lifecycle.second_half`). Return whether anything changed."""
        passed = [record for topic_id in topic_ids if (record := self._records.get(topic_id)) is not None]
        closing = [record for record in passed if closes(record, self._clock.now_ms())]
        unused = self._observe([SnapshotTarget(record.topic, None) for record in closing]) if closing else []
        snapshot = zip(closing, unused, strict=False)
        ended = [record.topic_id for record, facts in snapshot if isinstance(facts, TopicFacts) and is_unused(facts)]
        self._append([], ended)
        waiting = [record for record in passed if waits(record, self._records)]
        changed = self._rename_back(waiting) if waiting else False
        fenced = [record for record in passed if has_fence_left(record)]
        taken = self._topics_named(fenced, id_alone=True)
        lifted = [effect for record in fenced for effect in lifted_fence(taken[record.topic], record.topic_id)]
        self._perform_all(lifted, appended=False)
        return changed or bool(ended or lifted)

    def _topics_named(self, aliases: Sequence[TopicRecord], *, id_alone: bool = False) -> dict[str, TopicFacts]:
        """Return for each alias's name the facts of the topic that has the name now; empty facts if there is no such
        topic. The facts include the topic's own configs, which show a fence that an earlier pass has set."""
        targets = [SnapshotTarget(alias.topic, None, ANY_ID + alias.topic, id_alone) for alias in aliases]
        found = self._observe(targets) if targets else []
        absent = {alias.topic: TopicFacts(alias.topic, None) for alias in aliases}
        return absent | {facts.topic: facts for facts in found if isinstance(facts, TopicFacts)}

    def _rename_back(self, waiting: Sequence[TopicRecord]) -> bool:
        """Request the second half for each of these aliases, or note what blocks the request."""
        now_ms, known = self._clock.now_ms(), tuple(record for record, _ in replaced(self._records.values()))
        begun: list[tuple[TopicRecord, TopicFacts]] = []
        hindered: list[tuple[TopicRecord, Hindrance]] = []
        snapshot = self._snapshot_for([second_half_of(alias) for alias in waiting])
        taken = self._topics_named([alias for alias in waiting if alias.replacing.reason == NAME_TAKEN])
        for alias, facts in zip(waiting, snapshot, strict=False):
            interim_id = alias.replacing.new_topic_id or ""
            if isinstance(facts, ClusterError) or facts.topic_id != interim_id:
                continue
            if (again := taken.get(alias.topic)) is not None and again.topic_id is not None:
                facts = replace(facts, new_topic=again)
            hinders = hindrance(alias, self._records.get(interim_id), facts, self._config, now_ms, known)
            if hinders is None:
                begun.append((alias, facts))
            else:
                hindered.append((alias, hinders))
        commands = [second_half_of(alias) for alias, _ in begun]
        results = self._execute(commands, [facts for _, facts in begun]) if begun else []
        for (alias, _), result in zip(begun, results, strict=False):
            if result.code is not ErrorCode.NONE:
                reason = None if result.code in _NOT_ANSWERED else RENAME_REFUSED
                hindered.append((alias, Hindrance(reason, text=result.message)))
        refused = {alias.topic_id: obstacle.text for alias, obstacle in hindered if obstacle.text is not None}
        changes = []
        for alias, obstacle in hindered:
            reason = alias.replacing.reason if obstacle.reason is None else obstacle.reason
            if reason != alias.replacing.reason:
                changes.append(Replaced(alias, alias.replacing).changed(reason=reason))
            elif refused.get(alias.topic_id) == self._refused_names.get(alias.topic_id):
                continue  # logged before
            why = obstacle.text or reason_text(reason or "")
            level = logging.INFO if obstacle.text is None and reason in AS_ASKED else logging.WARNING
            logger.log(level, "topic %s: not renamed back yet: %s", alias.topic, why, extra=about_record(alias))
        for alias, _ in (*begun, *hindered):
            self._refused_names.pop(alias.topic_id, None)
        self._refused_names |= refused
        failed = self._append(changes)
        for topic_id, why in refused.items():
            self.watched.not_performed(topic_id, why)
        if effects := [effect for _, obstacle in hindered for effect in obstacle.effects]:
            self._perform_all(effects, appended=len(failed) < len(changes))
        return bool(begun or changes)

    def _open_gates(self, checked: Sequence[_Checked], at_ms: int) -> dict[str, Decision]:
        """Decide, by the facts of the pass, for which groups the gates of new topics open. Append the decisions. No
        other step of the pass depends on these appends.

        Args:
            at_ms: the time at which the snapshot began.

        Returns:
            Topic id -> the decision.
        """
        decisions: dict[str, Decision] = {}
        for topic in checked:
            record = self._records[topic.topic_id]
            try:
                with self.failures.isolated(f"topic {record.topic!r}: the check of the groups"):
                    decision = self.moved.after_snapshot(topic.this, record, at_ms)
            except ClusterError as error:
                logger.warning("topic %s: gates unchanged: %s", record.topic, error)
                continue
            decisions[record.topic_id] = decision
            self.watched.decided(record.topic_id, self.moved.moved(record.topic_id))
            for alarm in decision.alarms:
                logger.warning("%s", alarm, extra=about_record(record))
        stamp = self._epoch, self._clock.now_ms()
        self._append_gates(self.moved.to_append(self._records, stamp, elapsed_ms(self._clock)))
        return decisions

    def _append_gates(self, entries: Sequence[Entry]) -> None:
        """Append decisions about gates. A decision that is too large to append blocks no other topic. The gates of its
        own topic stay as they are, and a later pass repeats the append."""
        if (error := self._append_together(entries)) is None:
            return
        if len(entries) > 1:
            for entry in entries:
                self._append_gates([entry])
            return
        topic_id = topic_id_of(entries[0][0]) or ""
        record = self._records.get(topic_id)
        text = f"gates unchanged: {error}; raise max.message.bytes of the mode log"
        logger.error("topic %s: %s", topic_id if record is None else record.topic, text)
        self.watched.not_performed(topic_id, text)
        self.moved.too_large(topic_id)

    def _paces(self, decisions: Mapping[str, Decision], began_ms: int, cost_ms: float) -> dict[str, int]:
        """Return topic id -> the milliseconds until the topic is due because of its groups.

        Args:
            began_ms: the time at which the pass began.
            cost_ms: the CPU time of the pass, divided by the number of its topics.
        """
        now_ms = elapsed_ms(self._clock)
        due_ms = self.moved.next_checks_ms(decisions, cost_ms, now_ms - began_ms, now_ms)
        return {topic_id: max(due - now_ms, 0) for topic_id, due in due_ms.items()}

    def awake(self, due: Sequence[str]) -> Sequence[str]:
        """Return the topics that need a whole snapshot now. If one of ``due`` drains, add all other draining topics.

        If topics at rest are due, a small snapshot of all topics at rest comes first (:class:`Resting`). A topic for
        which the small snapshot is enough gets its next check planned, and is not returned.
        """
        due = self.moved.with_draining(due, self.schedule.due_ms)
        if self._resting.topic_ids.isdisjoint(due):
            return due
        try:
            with self.failures.isolated("a small snapshot"):
                unchanged = self._observer.unchanged(self._resting.topic_ids)
        except ClusterError as error:
            logger.debug("cannot check topics without changes: %s", error)
            unchanged = False
        rested = self._resting.after_small_snapshot(unchanged=unchanged)
        for topic_id in rested:
            self.schedule.after_check(topic_id, elapsed_ms(self._clock), progress=False, idle=True)
        self.watched.unchanged(rested, self._clock.now_ms())
        return [topic_id for topic_id in due if topic_id not in rested]

    def _advance(self, record: TopicRecord, facts: TopicFacts | ClusterError, chain: Chain) -> _Checked | None:
        """Decide by the facts of a topic. If the facts are unknown, put the topic off and return None.

        Args:
            chain: what :func:`~modeaware.lifecycle.alias.chain_of` returns for all records.
        """
        try:
            if isinstance(facts, ClusterError):
                raise facts
            with self.failures.isolated(f"topic {record.topic!r}: a check"):
                now_ms = self._clock.now_ms()
                facts = replace(
                    facts,
                    earlier_topic=earlier_topic_of(facts.topic_id, chain),
                    new_topic_replaced=is_new_topic_replaced(record, self._records),
                )
                fence = facts.fence
                if fence is not None and record.topic_id in self._refused_fences and not is_fence(fence.configs):
                    facts = replace(facts, fence=replace(fence, refused=True))
                self.watched.checked(record.topic_id, facts, now_ms)
                if record.is_alias:
                    facts = facts_for_alias(record, facts, self._records)
                this = pass_over(record, facts, self.group_rules, self._config, now_ms)
                step = advance(this)
        except (ClusterError, RequestRefused) as error:
            logger.warning("topic %s: check failed, retrying: %s", record.topic, error, extra=about_record(record))
            self.watched.not_checked(record.topic_id, str(error))
            self.put_off(record.topic_id)
            return None
        for alarm in step.alarms:
            logger.warning("%s", alarm, extra=about_record(record))
        if (doubt := this.requirement.doubt) is not None and in_progress(record):
            text = "topic %s: the list of its consumer groups may be incomplete: %s"
            logger.info(text, record.topic, doubt.detail, extra=about_record(record))
        return _Checked(this, step)

    def _over_kept_fence(self, effect: CreateTopic) -> CreateTopic:
        """Return the creation of a new topic, with configs that override a kept fence if necessary.

        If the new topic gets the name of a deleted old topic (a rename back), brokers may have kept that topic's fence.
        """
        before = (
            replacement
            for r, replacement in replaced(self._records.values())
            if r.topic == effect.new_topic and r.is_alias
        )
        was_fenced = any(replacement.has_fence for replacement in before)
        return replace(effect, configs={**NO_FENCE, **effect.configs}) if was_fenced else effect

    def _plan(self, checked: _Checked, performed: Sequence[bool], pace_ms: int | None) -> bool:
        """Plan the next check of a topic, by the performed effects and the pace of the topic's groups. Return whether
        the topic changed."""
        topic_id, record, facts, step = checked.topic_id, checked.this.record, checked.this.facts, checked.step
        changed = step.record is not None or any(performed)
        # A missing topic is not idle: a pass decides soon whether the topic is gone.
        present = facts.topic_id == topic_id
        idle = not in_progress(self._records.get(topic_id)) and present and not performed
        # The next pass follows at once, and shows the result of the effects. A failed effect is repeated after a while.
        due_in_ms = 0 if performed and all(performed) else None
        if step.due_ms is not None and not performed:
            due_in_ms = step.due_ms - self._clock.now_ms()
        elif record.is_alias and not changed:  # all aliases are due at the same time, for one pass over all
            due_in_ms = self._config.check_interval_ms - elapsed_ms(self._clock) % self._config.check_interval_ms
        self.schedule.after_check(
            topic_id,
            elapsed_ms(self._clock),
            progress=changed,
            idle=idle,
            due_in_ms=due_in_ms,
            pace_ms=pace_ms,
        )
        if (due_ms := self.schedule.due_ms(topic_id)) is not None:
            self.watched.planned(topic_id, self._clock.now_ms() + due_ms - elapsed_ms(self._clock))
        if idle and step == Advance() and _only_logs_matter(record, facts):
            self._resting.add(topic_id)
        else:
            self._resting.discard(topic_id)
        return changed

    def remove(self, topic_ids: Sequence[str]) -> None:
        """Remove the records of recreated topics (every broker returns another id), or make their names aliases."""
        kept, gone = [], []
        for topic_id in topic_ids:
            record = self._records[topic_id]
            if record.replacing.new_topic_id is not None and record.replacing.switched_ms is None:
                self.check_at_once(topic_id)  # the state of the new topic decides about the record
                continue
            after = record_after(record, self._clock.now_ms())
            text = "topic %r was deleted and recreated: the mode record of the deleted topic (id %s) is removed"
            if after is not None:
                text = (
                    "topic %r was deleted and recreated: its name points to the topic that replaced the deleted "
                    "one (id %s)"
                )
            if after is not record:
                logger.warning(text, record.topic, topic_id, extra=about_record(record))
            kept += [after] if after is not None and after is not record else []
            gone += [topic_id] if after is None else []
        self._append(kept, gone)

    def put_off(self, topic_id: str) -> None:
        self.schedule.after_check(topic_id, elapsed_ms(self._clock), progress=False, idle=False)

    def check_at_once(self, topic_id: str) -> None:
        self._resting.discard(topic_id)
        self.schedule.now(topic_id, elapsed_ms(self._clock))

    def _snapshot(
        self, targets: Sequence[SnapshotTarget], new_topics: Sequence[SnapshotTarget | None]
    ) -> list[TopicFacts | ClusterError]:
        """Return the facts that :meth:`_observe` returns, with the facts of the new topics.

        New topics get a snapshot of their own, because a new topic may also be one of ``targets``, with its own change.

        Args:
            new_topics: for each of ``targets``, the :class:`SnapshotTarget` of the topic's new topic, or None.
        """
        observed = self._observe(targets)
        pending = list(dict.fromkeys(filter(None, new_topics[: len(observed)])))
        others: dict[SnapshotTarget, TopicFacts | ClusterError] = {}
        while pending:
            some = self._observe(pending)
            others |= zip(pending, some, strict=False)
            pending = pending[len(some) :]
        return [
            facts if new_topic is None else _merged(facts, others[new_topic])
            for facts, new_topic in zip(observed, new_topics, strict=False)
        ]

    def _observe(self, targets: Sequence[SnapshotTarget]) -> list[TopicFacts | ClusterError]:
        """Return the facts of all topics. If their common snapshot fails, return the facts of the first topics, of one
        at least. After a timeout, return the error for each topic.

        So an error about one topic blocks no other topic, and no decision rests on facts that became old during another
        snapshot. Unreadable group rules make the list of groups uncertain: they may require more groups (invariant I2).
        """
        what = f"topic {targets[0][0]!r}: a snapshot" if len(targets) == 1 else "a snapshot of many topics"
        try:
            with self.failures.isolated(what):
                observed = self._observer.observe_all(targets, self.group_rules)
        except ClusterError as error:
            if len(targets) == 1 or error.code is ErrorCode.REQUEST_TIMED_OUT:
                return [error] * len(targets)
            return self._observe(targets[: len(targets) // 2])
        if not self._rules_unreadable:
            return observed
        return [
            replace(facts, groups_doubt=_RULES_UNREADABLE)
            if isinstance(facts, TopicFacts) and (facts.groups_doubt is None or facts.groups_doubt.hidden)
            else facts
            for facts in observed
        ]

    def _alter_group_rules(self, command: AlterGroupRulesCommand) -> CommandResult:
        """Change the rules, and check every waiting topic again. Rules of a newer version stay (invariant I4)."""
        try:
            if GROUP_RULES_KEY in self._newer:
                raise _newer("the rules about groups")
            after = alter_group_rules(self._rules, command, self._epoch, self._clock.now_ms())
        except RequestRefused as error:
            return refusal(command, error, None)
        if after != self._rules:
            self._log.append([(GROUP_RULES_KEY, after.to_json())])
            self._rules, self._rules_unreadable = after, False
            self.watched.ruled(after.rules)
            logger.info("group rules: %s", command)
            for record in self._records.values():
                if in_progress(record):
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

    def _append(self, records: Sequence[TopicRecord], gone: Sequence[str] = ()) -> dict[str, ClusterError]:
        """Append records, and tombstones of topics that are ``gone``, in one transaction.

        Returns:
            Topic id -> the error, if the record was too large to append. All other records were appended.
        """
        return self._append_whole([([record], []) for record in records] + [([], [topic_id]) for topic_id in gone])

    def _append_whole(self, units: Sequence[tuple[list[TopicRecord], list[str]]]) -> dict[str, ClusterError]:
        """Append units of records and tombstones, each unit whole or not at all; return errors like :meth:`_append`."""
        held = self._records.values()
        stamp = self._epoch, self._clock.now_ms()
        records = [record.stamped(*stamp) for some, _ in units for record in some]
        ended = [topic_id for record in records for topic_id in ended_by(record, held)]
        gone = [g for g in dict.fromkeys([t for _, some in units for t in some] + ended) if g in self._records]
        if gone:
            records += [alias.stamped(*stamp) for alias in relink(gone, records, held)]
        entries = [(record.topic_id, record.to_json()) for record in records] + [(topic_id, None) for topic_id in gone]
        entries += [(moved_key(topic_id), None) for topic_id in gone if topic_id in self.moved]
        if (error := self._append_together(entries)) is not None:
            if len(units) == 1:
                logger.error("%s", error)
                (changed, removed), *_ = units
                return dict.fromkeys([record.topic_id for record in changed] or removed, error)
            return {topic_id: failure for unit in units for topic_id, failure in self._append_whole([unit]).items()}
        for record in records:
            self._records[record.topic_id] = record
            self.watched.appended(record, self._clock.now_ms())
            self.check_at_once(record.topic_id)
        for topic_id in gone:
            del self._records[topic_id]
            self._resting.discard(topic_id)
            self.moved.forget(topic_id)
            self.watched.removed(topic_id)
            self.schedule.forget(topic_id)
        return {}

    def _append_together(self, entries: Sequence[Entry]) -> ClusterError | None:
        """Append entries, all or none. Return the error if one is too large; any other error is raised."""
        try:
            if entries:
                self._log.append(entries)
        except ClusterError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE or not self._log.is_open:
                raise
            return error
        return None

    def _create(self, growths: Sequence[Admitted]) -> dict[str, ClusterError]:
        """Create the partitions of commands. Return topic id -> the error, for growths that failed or are uncertain."""
        effects = [growth.new for growth in growths if growth.new is not None]
        failures: dict[str, ClusterError] = {}
        given_up = []
        for growth, error in zip(growths, self._perform(effects) if effects else (), strict=True):
            record = growth.admission.record
            if error is None or record is None:
                continue
            failures[growth.topic_id] = error
            if error.code in _MAYBE_GROWN:  # the partitions may exist by now: the record stays
                text = f"{error}; retrying until the partitions exist"
                failures[growth.topic_id] = ClusterError(text, code=error.code, topic=record.topic)
            else:
                given_up.append(give_up_opening(self._records[growth.topic_id], growth.facts))
        self._append(given_up)
        return failures

    def _take_back(self, effect: CreatePartitions, refused: ClusterError) -> None:
        """Give up a recorded growth that brokers reject permanently. Keep the growth if the topic has grown: an earlier
        request with an unknown outcome may have succeeded."""
        record = self._records[effect.topic_id]
        (facts,) = self._observe([SnapshotTarget(record.topic, record)])
        if isinstance(facts, ClusterError):
            logger.warning(
                "topic %s: growth rejected, and it is unknown whether the topic has grown: %s", record.topic, facts
            )
            return
        if facts.topic_id == record.topic_id and facts.partition_count < effect.total_count:
            self._append([give_up_opening(record, facts)])
            text = "topic %s: growth to %d given up: %s"
            logger.error(text, record.topic, effect.total_count, refused, extra=about_record(record))

    def _perform_all(self, effects: Sequence[Effect], *, appended: bool) -> list[bool]:
        """Perform effects right after an append. If ``appended`` is false, append the claim first: the append fails for
        a replaced controller (invariant I5). Return for each effect whether it was performed."""
        if not effects:
            return []
        if not appended:
            self._log.append([(CLAIM_KEY, self._held_claim.to_json())])
        effects = [self._over_kept_fence(e) if isinstance(e, CreateTopic) else e for e in effects]
        errors = self._perform(effects)
        for effect, error in zip(effects, errors, strict=True):
            about = {"topic": effect.topic, "topic_id": effect.topic_id, "effect": type(effect).__name__}
            if isinstance(effect, FenceTopic):
                self._refused_fences.discard(effect.topic_id)
            if error is None:
                logger.info("topic %s: done: %s", effect.topic, effect, extra=about)
                if isinstance(effect, DeleteTopic):
                    self._observer.deleted(effect.new_topic_id)
                elif isinstance(effect, DeleteOldTopic):
                    self._observer.deleted(effect.topic_id)
                continue
            logger.warning("topic %s: %s; retrying later", effect.topic, error, extra=about)
            of_topic = effect.old_topic_id if isinstance(effect, RemoveConfigs) else effect.topic_id
            self.watched.not_performed(of_topic, str(error))
            if isinstance(effect, CreatePartitions) and error.code in _REFUSED_FOR_GOOD - _MAYBE_GROWN:
                self._take_back(effect, error)
            elif isinstance(effect, FenceTopic) and error.code in _REFUSED_FOR_GOOD:
                self._refused_fences.add(effect.topic_id)
            elif isinstance(effect, CreateTopic | RemoveConfigs) and error.code in _REFUSED_FOR_GOOD:
                topic_id = effect.topic_id if isinstance(effect, CreateTopic) else effect.old_topic_id
                given_up = give_up_new_topic(self._records[topic_id])
                if given_up is not None and given_up != self._records[topic_id]:
                    self._append([given_up])
                if given_up is not None and not given_up.has_replacement:
                    logger.error("topic %s: replacement given up: %s", effect.topic, error, extra=about)
        return [error is None for error in errors]

    def _why_put_off(self, effect: Effect) -> str | None:
        """Return why an effect is put off, or None. First reason: the log may lose the append before the effect. Second
        reason: the effect deletes records, and a topic whose record needs a newer reader may come earlier in the chain
        (invariant I1)."""
        if (unfit := self._log.unfit) is not None:
            return f"put off until the mode log can keep the change: {unfit}"
        if self._newer_topics and isinstance(effect, DeleteRecords | DeleteOldTopic):
            return (
                f"put off: the record of topic id {self._newer_topics[0]} needs a newer version of modeaware, and "
                "groups may still move from that topic; upgrade this controller"
            )
        return None

    def _perform(self, effects: Sequence[Effect]) -> list[ClusterError | None]:
        """Perform effects, except those that are put off. Return each effect's failure. With the code REQUEST_TIMED_OUT
        the outcome is unknown, or the effect was put off."""
        put_off = [self._why_put_off(effect) for effect in effects]
        if any(put_off):
            fit = [effect for effect, why in zip(effects, put_off, strict=True) if why is None]
            failures = iter(self._perform(fit) if fit else ())
            return [
                next(failures) if why is None else ClusterError(why, code=ErrorCode.REQUEST_TIMED_OUT, topic=e.topic)
                for e, why in zip(effects, put_off, strict=True)
            ]
        what = "a batch of changes" if len(effects) > 1 else f"topic {effects[0].topic!r}: {type(effects[0]).__name__}"
        try:
            with self.failures.isolated(what, ErrorCode.REQUEST_TIMED_OUT):
                errors = self._effects.perform(effects)
        except ClusterError as error:
            if len(effects) > 1:  # so that one error blocks no other effect; repeating an effect does no harm
                half = len(effects) // 2
                return self._perform(effects[:half]) + self._perform(effects[half:])
            errors = [error]
        for effect, failure in zip(effects, errors, strict=True):
            if failure is not None:
                self.watched.failed(type(effect).__name__)
        return errors


@dataclass(frozen=True)
class _Checked:
    """A topic that was checked: the pass, and the decided step."""

    this: Pass
    step: Advance

    @property
    def topic_id(self) -> str:
        return self.this.record.topic_id


def _changed(outcome: Admitted) -> list[str]:
    """Return the ids of the topics whose records an admitted command changes."""
    records = (outcome.admission.record, outcome.admission.also)
    changed = (record.topic_id for record in records if record is not None)
    return [outcome.topic_id, *changed, *outcome.admission.removed]


def _only_logs_matter(record: TopicRecord, facts: TopicFacts) -> bool:
    """Return whether an idle topic depends only on the logs of its retired partitions, and all these logs are known."""
    return not record.has_replacement and record.retired.keys() <= facts.partitions.keys()


def _new_topic(replacement: Replacement) -> SnapshotTarget:
    name, known = replacement.new_topic, replacement.new_topic_id
    is_lost = replacement.reason == NEW_TOPIC_GONE and replacement.released_ms is None
    return SnapshotTarget(
        name, None, ANY_ID + name if known is None or is_lost else known, replacement.gone_ms is not None
    )


def _merged(of_topic: TopicFacts | ClusterError, of_new_topic: TopicFacts | ClusterError) -> TopicFacts | ClusterError:
    if isinstance(of_topic, ClusterError) or isinstance(of_new_topic, ClusterError):
        return of_topic if isinstance(of_topic, ClusterError) else of_new_topic
    return replace(of_topic, new_topic=of_new_topic)


def _newer(what: str, topic: str | None = None) -> RequestRefused:
    return RequestRefused(
        f"{what}: the record was written by a newer version of modeaware; upgrade this controller",
        code=ErrorCode.UNSUPPORTED_VERSION,
        topic=topic,
    )
