"""The guards as texts: where each stands, and what is left when it is gone."""

from __future__ import annotations

from tests.simulation.evacuation_guard_texts import EVACUATION_GUARDS
from tests.simulation.guard_form import (
    ADVANCE,
    ASSIGNMENT,
    BROKERS,
    CLUSTER,
    DRAIN,
    ENGINE,
    GROWING,
    HANDOVER,
    LEASE,
    LOG,
    OPENING,
    POLICY,
    RECORDS,
    REPLACED,
    REPLAY,
    REQUIREMENT,
    ROUTING,
    RULES,
    SHRINKING,
    STEPS,
    TOPIC_VIEW,
    TOPIC_WATCH,
    Guard,
    guard,
)

GUARDS: tuple[Guard, ...] = (
    # Seal
    guard("seal waits for quiet", "seal", 1, STEPS, "if now.now_ms < quiet_from_ms:", "if False:"),
    guard(
        "seal waits for open transactions", "seal", 35,
        STEPS, "if not log.settled:\n        return _blocked(", "if False:\n        return _blocked(",
    ),
    guard(
        "high watermark = last stable offset", "I2", 1343,
        STEPS, "if not log.settled:\n        return _blocked(", "if False:\n        return _blocked(",
        STEPS, "if not log.settled:\n        return Drain(", "if False:\n        return Drain(",
    ),
    # Drain
    guard(
        "noted groups stay required", "I2", 843,
        REQUIREMENT, "{*noted, *using, *named}", "{*using, *named}",
    ),
    guard(
        "groups that use the topic now are required", "I2", 5,
        REQUIREMENT, "{*noted, *using, *named}", "{*noted, *named}",
    ),
    guard(
        "registered groups are required", "I2", 20,
        REQUIREMENT, "{*noted, *using, *named}", "{*noted, *using}",
    ),
    guard("a doubtful listing blocks", "I2", 14, DRAIN, "if requirement.doubt is not None:", "if False:"),
    guard(
        "a doubtful snapshot is marked", "I1", 11,
        SHRINKING, "groups_complete=requirement.doubt is None", "groups_complete=True",
    ),
    guard(
        "a doubtful snapshot is completed", "I1", 14,
        ADVANCE, "if record.groups_complete or requirement.doubt is not None:", "if True:",
    ),
    guard(
        "lag blocks", "I2", 25,
        DRAIN, "return None if committed >= seal_offset or caught_up else reasons.GROUP_LAG", "return None",
    ),
    guard(
        "a group without a commit blocks", "I2", 5,
        DRAIN, "return None if caught_up else reasons.GROUP_NEVER_COMMITTED", "return None",
    ),
    guard(
        "a group that is gone blocks", "I2", 20,
        DRAIN, "return Drain(reason=reasons.of_group(reasons.GROUP_GONE, name))", "continue",
    ),
    guard(
        "a commit on a truncated part is no proof", "I2", 264,
        DRAIN, "if partition in group.truncated:", "if False:",
    ),
    guard(
        "a commit without an epoch is no proof after a truncation", "I2", 1306,
        DRAIN, "if truncated_to is not None and partition in group.epochless and committed > ",
        "if False and committed > ",
    ),
    guard(
        "the delay is waited for", "I1", 81,
        STEPS, "if now.now_ms < deletion.earliest_ms:", "if False:",
    ),
    guard(
        "rules about groups expire", "I2", 5,
        RULES, "(self.expires_ms is None or now_ms < self.expires_ms) and", "True and",
    ),
    guard(
        "retention is waited for", "I2", 2,
        STEPS, "Drain(reason=None if log.log_start >= seal_offset else reasons.RETENTION)", "Drain()",
    ),
    # Reclaim
    guard(
        "never to wherever the end is", "I1", 7,
        STEPS, "return Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)",
        "return Step(PartitionMode.NONE, retired, delete_up_to=-1)",
    ),
    guard(
        "only up to the seal", "I1", 7,
        STEPS, "return Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)",
        "return Step(PartitionMode.NONE, retired, delete_up_to=retired.seal_offset + 1)",
    ),
    guard(
        "never beyond a required group's commit", "I1", 14,
        RECORDS, "min([self.seal_offset, *self.drained.values()])", "self.seal_offset",
        STEPS, "lower = min(drain.proof.values(), default=reclaim_offset) < reclaim_offset", "lower = False",
    ),
    guard(
        "the drain is checked again before deletion", "I1", 74,
        STEPS, "return check_drain(partition, seal_offset, retired.truncated_to, log, now.facts, requirement)\n"
        "    return",
        "return",
    ),
    guard(
        "retention deletes nothing", "I1", 719,
        STEPS, 'if policy == "retention":  # the log start', "if False:  # the log start",
        STEPS, 'again = deletion_of(now.record).policy != "retention"', "again = True",
    ),
    guard(
        "a compacted topic keeps its records", "I1", 9,
        STEPS, "if now.facts.compacted and not deletion.evacuate:\n"
        "        return Drain(reason=reasons.COMPACTED), None",
        "if False:\n        return Drain(), None",
        STEPS, "if now.facts.compacted and not retired.evacuated:\n        return Drain(reason=reasons.COMPACTED)\n",
        "if False:\n        return Drain()\n",
    ),
    guard("the topic id is checked before effects", "I1", 116, CLUSTER, "if found != {effect.topic_id}:", "if False:"),
    guard(
        "records go under the leader epoch that was seen", "I1", 6096,
        BROKERS, "if log is not None and log.epoch == effect.leader_epochs.get(partition):", "if log is not None:",
    ),
    # Watch
    guard(
        "None partitions are watched", "I2", 12,
        STEPS, "if retired.seal_offset is None or seal_broken_by(retired.seal_offset, log) is not None:",
        "if retired.seal_offset is None:",
    ),
    guard(
        "truncation shows by leader epoch", "I1", 57,
        DRAIN, " or (log.seal_epoch_end is not None and log.seal_epoch_end < seal_offset)", "",
    ),
    # Admission, undo, growth
    guard(
        "one change at a time", "I1", 12,
        SHRINKING, "if in_progress(record):\n        raise", "if False:\n        raise",
    ),
    guard(
        "the tail retires", "I3", 1,
        SHRINKING, "for partition in range(keep, writable):", "for partition in range(writable - keep):",
    ),
    guard(
        "ReadOnly comes before None", "I2", 5,
        SHRINKING, "modes[partition] = PartitionMode.READ_ONLY", "modes[partition] = PartitionMode.NONE",
    ),
    guard(
        "state is lost by name only", "I1", 32,
        SHRINKING, "if stateful:\n", "if False:\n",
    ),
    guard(
        "the lowest id is revived first", "I3", 19,
        GROWING, "if p < total_count and not", "if p >= len(record.modes) - total_count and not",
    ),
    guard("opening waits for groups", "I2", 11, OPENING, "if waiting and now_ms < deadline_ms:", "if False:"),
    guard(
        "opening waits for a sure listing", "I2", 40,
        OPENING, "waiting = facts.groups_doubt is not None or", "waiting =",
    ),
    guard(
        "gone only when confirmed", "I4", 14,
        ADVANCE, "if facts.gone:", "if facts.topic_id != record.topic_id:",
    ),
    guard(
        "one broker's other id starts an inquiry only", "I4", 45,
        TOPIC_WATCH, "for record in replaced_records(suspects, list(told.values())))", "for record in suspects)",
    ),
    guard(
        "every broker names another id", "I4", 129,
        REPLACED, "if told and all(", "if told and any(",
    ),
    # One controller, one order
    guard("the lease is shown before an effect", "I5", 979, ENGINE, "if not appended:", "if False:"),
    guard(
        "leadership is confirmed before an effect", "I5", 40,
        LEASE, "if self._election.confirm(CONFIRM_TIMEOUT_S) is not True:", "if False:",
    ),
    guard(
        "the lease is looked at before a request", "I5", 213,
        LEASE, "if self._clock.monotonic_s() - asked_s > self._lease_s:", "if False:",
    ),
    guard(
        "an epoch is claimed once", "I5", 1,
        ENGINE, "known, self._given) + 1", "known, self._given)",
    ),
    guard(
        "fencing on append", "I5", 1,
        LOG, "if self._epoch != self._log.epoch:", "if False:",
        LOG, "if not world.coordinator.accepts(controller.member, controller.member.generation):", "if False:",
    ),
    guard(
        "opening ends what was left behind", "I5", 80,
        LOG, "log.settle_pending(world.random() < 0.5)\n        log.epoch += 1", "log.epoch += 1",
    ),
    guard(
        "fencing by the generation", "I5", 2,
        LOG, "if not world.coordinator.accepts(controller.member, controller.member.generation):", "if False:",
    ),
    guard(
        "replaced controllers' records are dropped", "I5", 4,
        REPLAY, "if self.claim is not None and controller_epoch < self.claim.controller_epoch:", "if False:",
    ),
    guard(
        "versions only rise", "I4", 11,
        REPLAY, "if held is not None and record.version < held.version:", "if False:",
    ),
    # Clients
    guard("an explicit partition is refused", "I3", 1, ROUTING, "if view.is_writable(partition):", "if True:"),
    guard(
        "a view applies to one topic id", "I8", 41,
        TOPIC_VIEW, "return topic_id is None or self.topic_id is None or self.topic_id == topic_id", "return True",
    ),
    guard(
        "versions do not order a topic made anew", "I2", 1_000_004_458,
        ASSIGNMENT, "if len(topic_ids) > 1:", "if False:",
    ),
    # Drain and reclaim, more closely
    guard(
        "state is lost by name only, in a drain too", "I2", 103,
        DRAIN, "if group.stateful and name not in requirement.accept_state_loss:", "if False:",
    ),
    guard(
        "groups go on where the first seal was", "I2", 1,
        STEPS, "resume_offset=min(log.lowest_end, resume)", "resume_offset=log.end_offset",
    ),
    guard(
        "switch offsets are noted", "I3", 1,
        SHRINKING, "switch_offsets={p: facts.partitions[p].end_offset for p in range(keep)}", "switch_offsets={}",
    ),
    guard(
        "a waiver is on the record before deletion", "I1", 4460,
        STEPS, "if lower or not drain.waived.keys() <= now.record.waived.keys():", "if lower:",
    ),
    guard(
        "a waiver may be for those without a commit", "I2", 1205,
        REQUIREMENT, "(rule.uncommitted_only and committed) or (rule.glob and is_registered)",
        "(rule.glob and is_registered)",
    ),
    guard(
        "unreadable rules are a doubt", "I2", 303,
        ENGINE, "if self._rules_unreadable and (", "if False and (",
    ),
    guard(
        "deleted is said after it is done", "I1", 3143,
        STEPS, "return Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)",
        "return Step(PartitionMode.NONE, replace(retired, partition_state=PartitionState.NON_EXISTENT, "
        "replica_state=ReplicaState.DELETION_SUCCESSFUL), delete_up_to=reclaim_offset)",
    ),
    guard(
        "an immediate deletion takes no stragglers", "I2", 130,
        POLICY, "now.stragglers > 0 or now.truncated_to", "now.truncated_to",
    ),
    guard(
        "nor what replaced truncated records", "I2", 305,
        POLICY, "now.stragglers > 0 or now.truncated_to is not None or", "now.stragglers > 0 or",
    ),
    guard(
        "the leader epoch of a seal is noted", "I1", 148,
        STEPS, "seal_leader_epoch=log.leader_epoch, reason=None", "reason=None",
    ),
    guard(
        "what was truncated twice counts from the lowest end", "I2", 951571,
        STEPS, "truncated_to=min(retired.truncated_to, log.lowest_end))", "truncated_to=retired.truncated_to)",
    ),
    # Handover
    guard(
        "handover waits for the groups", "order", 1,
        HANDOVER, "return check_drain(partition, until, truncated_to, log, now.facts, now.requirement).done",
        "return True",
    ),
    guard(
        "survivors are noted after all seals", "order", 1,
        HANDOVER, "record.modes[p] is PartitionMode.NONE or retired.seal_offset is not None", "True",
    ),
    guard(
        "groups are waited for beyond the shrink", "order", 185,
        REQUIREMENT, "return required_of(record.required_groups, facts,", "return required_of((), facts,",
    ),
    guard(
        "a shrink on top hands over all or nothing", "order", 943,
        SHRINKING, "earlier_counts=_not_handed_over(record),", "earlier_counts=(),",
    ),
    guard(
        "a shrink begins with nothing handed over", "order", 31,
        SHRINKING, "        handed_over=(),\n        handover_offsets={},\n", "",
    ),
    guard(
        "an undo drops what was handed over", "order", 11,
        GROWING, "deletion=deletion, handed_over=(), handover_offsets={})", "deletion=deletion)",
    ),
    # Growth, more closely
    guard(
        "a growth is on the log before it is done", "I5", 234,
        ENGINE,
        "        if admission.record is not None:\n            self._append(admission.record)\n"
        "            told = about_record(admission.record)\n"
        '            logger.info("%s: %s", command, admission.record.view().describe(), extra=told)\n'
        "        if new is not None and admission.record is not None:\n"
        "            failure = self._create(new, admission.record, facts)\n",
        "        if new is not None:\n            self._effects.perform(new)\n"
        "        if admission.record is not None:\n            self._append(admission.record)\n"
        "        if False:\n            failure = None\n",
    ),
    guard(
        "unlisted partitions take no writes", "I3", 18,
        TOPIC_VIEW, "return 0 <= partition < len(self.modes) and self.modes[partition].writable",
        "return partition >= len(self.modes) or self.modes[partition].writable",
    ),
    # One controller, more closely
    guard(
        "the lease is looked at right before DeleteRecords", "I5", 213,
        CLUSTER, "delete_records(self.brokers, effect, last_checks)", "delete_records(self.brokers, effect)",
    ),
    guard(
        "an older claim is dropped", "I5", 1,
        REPLAY, "if self.claim is not None and claim.controller_epoch < self.claim.controller_epoch:", "if False:",
    ),
    guard(
        "replaced controllers' rules are dropped", "I5", 4,
        REPLAY, 'self._refuse_replaced(rules.controller_epoch, "the group rules")', "pass",
    ),
    guard(
        "an epoch is claimed once, though the claim is unreadable", "I5", 91,
        ENGINE, "epochs = [self._rules.controller_epoch, *(record.controller_epoch for record in "
        "replay.records.values())]", "epochs = [0]",
        ENGINE, "unknown = UNKNOWN_EPOCHS if replay.is_unreadable(CLAIM_KEY) else 0", "unknown = 0",
    ),
    guard(
        "what a newer version claimed is not claimed", "I5", 140,
        ENGINE, "if CLAIM_KEY in replay.newer:", "if False:",
    ),
    guard(
        "records for newer readers are left alone", "I4", 370,
        ENGINE, "for key, record in replay.records.items() if key not in self._newer}",
        "for key, record in replay.records.items()}",
    ),
    guard(
        "rules for newer readers are left alone", "I4", 940,
        ENGINE, "if GROUP_RULES_KEY in self._newer:", "if False:",
    ),
    *EVACUATION_GUARDS,
)  # fmt: skip
