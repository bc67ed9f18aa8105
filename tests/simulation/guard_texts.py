r"""The guards as a table: what each is called, which invariant breaks without it, and how the code reads then.

Below a guard's name stand ``module: old text => new text``, as often as it takes; ``\n`` is an end of line. Without a
new text the ``if`` at the beginning never holds. The number is a seed that once showed the guard's absence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """In ``module``, ``old`` (which occurs once) becomes ``new``."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Guard:
    name: str
    invariant: str
    seed: int
    changes: tuple[Change, ...]


TABLE = r"""
seal waits for quiet  seal 1
    lifecycle.seal: if now_ms < quiet_from_ms:
seal waits for open transactions  seal 35
    lifecycle.seal: if not log.is_stable:\n        return blocked(
high watermark = last stable offset  I2 2245
    lifecycle.seal: if not log.is_stable:\n        return blocked(
    lifecycle.steps: if not log.is_stable:\n        return Drain(
noted groups stay required  I2 843
    lifecycle.drain: {*noted, *using, *named} => {*using, *named}
groups that use the topic now are required  I2 12
    lifecycle.drain: {*noted, *using, *named} => {*noted, *named}
registered groups are required  I2 57
    lifecycle.drain: {*noted, *using, *named} => {*noted, *using}
a doubtful listing blocks  I2 9
    lifecycle.drain: if doubt is not None and doubt.rebalancing is None:
    lifecycle.drain: if doubt is not None:  # without
a doubtful snapshot is marked  I1 11
    lifecycle.admission: groups_complete=requirement.doubt is None => groups_complete=True
a doubtful snapshot is completed  I1 4
    lifecycle.passes: if record.groups_complete or this.requirement.doubt is not None: => if True:
lag blocks  I2 25
    lifecycle.drain: return None if committed >= seal_offset or caught_up else reasons.GROUP_LAG => return None
a group without a commit blocks  I2 66
    lifecycle.drain: return None if caught_up else reasons.GROUP_NEVER_COMMITTED => return None
a group that is gone blocks  I2 57
    lifecycle.drain: return Drain(reason=reasons.of_group(reasons.GROUP_GONE, name)) => continue
a commit on a truncated part is no proof  I2 64
    lifecycle.drain: if partition in group.truncated:
a commit without an epoch is no proof after a truncation  I2 1306
    lifecycle.drain: truncated_to is not None and partition in group.epochless and => False and
the delay is waited for  I1 81
    lifecycle.steps: if this.now_ms < deletion.earliest_ms:
rules about groups expire  I2 850
    modelog.group_rules: (self.expires_ms is None or now_ms < self.expires_ms) and => True and
retention is waited for  I2 2
    lifecycle.steps: Drain(reason=None if log.log_start >= seal_offset else reasons.RETENTION) => Drain()
never to wherever the end is  I1 7
    lifecycle.steps: return _Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)
        => return _Step(PartitionMode.NONE, retired, delete_up_to=-1)
only up to the seal  I1 7
    lifecycle.steps: return _Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)
        => return _Step(PartitionMode.NONE, retired, delete_up_to=retired.seal_offset + 1)
never beyond a required group's commit  I1 5
    modelog.records: min(self.seal_offset, self.lowest_commit) => self.seal_offset
    lifecycle.steps: lower = drain.lowest_commit(reclaim_offset) => lower = None
the drain is checked again before deletion  I1 74
    lifecycle.steps: return check_drain(partition, seal_offset, retired.truncated_to, log, this.facts,
        this.requirement)\n    return => return
retention deletes nothing  I1 926
    lifecycle.steps: if policy == RETENTION:  # the log start
    lifecycle.steps: again = deletion_of(this.record).policy != RETENTION => again = True
a compacted topic keeps its records  I1 9
    lifecycle.steps: if this.facts.compacted:\n        return Drain(reason=reasons.COMPACTED), None
    lifecycle.steps: if this.facts.compacted:\n        return Drain(reason=reasons.COMPACTED)\n
the topic id is checked before effects  I1 143
    cluster.effects: if any(live_ids.get(topic) != topic_id for live_ids in ids_by_node.values()) => if False
records go under the leader epoch that was seen  I1 10485
    tests.simulation.controller: if log is not None and log.epoch == effect.leader_epochs.get(partition):
        => if log is not None:
None partitions are watched  I2 12
    lifecycle.steps: if retired.seal_offset is None or seal_broken_by(retired.seal_offset, log) is not None:
        => if retired.seal_offset is None:
truncation shows by leader epoch  I1 148
    lifecycle.seal: or (log.seal_epoch_end is not None and log.seal_epoch_end < seal_offset) =>
one change at a time  I1 12
    lifecycle.objections: if in_progress(current):
the tail retires  I3 1
    lifecycle.admission: for partition in range(keep, writable): => for partition in range(writable - keep):
ReadOnly comes before None  I2 5
    lifecycle.admission: modes[partition] = PartitionMode.READ_ONLY => modes[partition] = PartitionMode.NONE
state is lost by name only  I1 32
    lifecycle.objections: if stateful:\n
the lowest id is revived first  I3 493
    lifecycle.growth: if p < total_count] => if p >= len(record.modes) - total_count]
opening waits for groups  I2 11
    lifecycle.growth: if waiting and this.now_ms < deadline_ms:
opening waits for a sure listing  I2 43
    lifecycle.growth: waiting = this.requirement.doubt is not None or => waiting =
gone only when confirmed  I4 14
    lifecycle.steps: if facts.gone: => if facts.topic_id != record.topic_id:
one broker's other id starts an inquiry only  I4 249
    controller.cluster_watch: in replaced_records(suspects, list(ids_by_broker.values()))) => in suspects)
every broker names another id  I4 533
    controller.cluster_watch: if answers and all( => if answers and any(
the lease is shown before an effect  I5 979
    controller.engine: if not appended:
leadership is confirmed before an effect  I5 3534
    controller.election: if self._election.confirm(LEASE_CONFIRM_TIMEOUT_S) is not True:
the lease is looked at before a request  I5 213
    controller.election: if self._clock.monotonic_s() - asked_s > self._lease_s:
an epoch is claimed once  I5 1
    controller.engine: known, self._given) + 1 => known, self._given)
fencing on append  I5 1
    tests.simulation.modelog: if self._epoch != self._log.epoch:
    tests.simulation.modelog: if not world.coordinator.accepts(controller.member, controller.member.generation):
opening ends what was left behind  I5 80
    tests.simulation.modelog: log.settle_pending(world.random() < 0.5)\n        log.epoch += 1 => log.epoch += 1
fencing by the generation  I5 1
    tests.simulation.modelog: if not world.coordinator.accepts(controller.member, controller.member.generation):
replaced controllers' records are dropped  I5 38
    modelog.replay: if self.claim is not None and controller_epoch < self.claim.controller_epoch:
versions only rise  I4 11
    modelog.replay: if held is not None and record.version < held.version:
an explicit partition is refused  I3 1
    clients.routes: if not is_absent and view.is_writable(partition): => if True:
a view applies to one topic id  I8 41
    topic_view: return topic_id is None or self.topic_id is None or self.topic_id == topic_id => return True
state is lost by name only, in a drain too  I2 103
    lifecycle.drain: if group.stateful and name not in requirement.accept_state_loss:
groups go on where the first seal was  I2 5
    lifecycle.seal: resume_offset=min(log.lowest_end, resume) => resume_offset=log.end_offset
a waiver is on the record before deletion  I1 8907
    lifecycle.steps: if lower is not None or not drain.waived.keys() <= this.record.waived.keys():
        => if lower is not None:
a waiver may be for those without a commit  I2 845
    lifecycle.drain: if not (rule.uncommitted_only and committed): => if True:
a change ends the rest of topics  I2 80
    controller.schedule: not unchanged or self._small_snapshots => self._small_snapshots
unreadable rules are a doubt  I2 303
    controller.engine: if not self._rules_unreadable: => if True:
deleted is said after it is done  I1 177
    lifecycle.steps: return _Step(PartitionMode.NONE, retired, delete_up_to=reclaim_offset)
        => return _Step(PartitionMode.NONE, replace(retired,
        replica_state=ReplicaState.DELETION_SUCCESSFUL), delete_up_to=reclaim_offset)
an immediate deletion takes no stragglers  I2 216
    lifecycle.state: state.stragglers > 0 or state.truncated_to => state.truncated_to
nor what replaced truncated records  I2 1306
    lifecycle.state: state.stragglers > 0 or state.truncated_to is not None or => state.stragglers > 0 or
the leader epoch of a seal is noted  I1 148
    lifecycle.seal: seal_leader_epoch=log.leader_epoch, reason=None => reason=None
a growth is on the log before it is done  I5 234
    controller.engine: admissions = [outcome.admission
        => self._create([o for o in admitted if getattr(o, "new", None)])\n        admissions = [outcome.admission
    controller.engine: if outcome.new is not None:
unlisted partitions take no writes  I3 18
    topic_view: return 0 <= partition < len(self.modes) and self.modes[partition].writable
        => return partition >= len(self.modes) or self.modes[partition].writable
the lease is looked at right before a request for many topics  I5 213
    cluster.cluster: isinstance(effect, kind)], check)) => isinstance(effect, kind)]))
an older claim is dropped  I5 1
    modelog.replay: if self.claim is not None and claim.controller_epoch < self.claim.controller_epoch:
replaced controllers' rules are dropped  I5 49
    modelog.replay: self._refuse_replaced(rules.controller_epoch, "the group rules") => pass
an epoch is claimed once, though the claim is unreadable  I5 91
    controller.engine: [self._rules.controller_epoch, *(record.controller_epoch for record in replay.records.values())]
        => [0]
    controller.engine: unknown = UNKNOWN_EPOCHS if replay.is_unreadable(CLAIM_KEY) else 0 => unknown = 0
what a newer version claimed is not claimed  I5 28
    controller.engine: if CLAIM_KEY in replay.newer:
records for newer readers are left alone  I4 370
    controller.engine: for key, record in replay.records.items() if key not in self._newer}
        => for key, record in replay.records.items()}
rules for newer readers are left alone  I4 940
    controller.engine: if GROUP_RULES_KEY in self._newer:
a compacted topic is not shrunk  I1 43
    lifecycle.objections: if facts.compacted:\n
only an empty topic is taken for the new topic  I8 3000000027
    lifecycle.replacement: if not _as_intended(new_topic, replacement):\n        alarm => if False:\n        alarm
the switch waits for a sure listing  I2 3000000073
    lifecycle.replacement: if requirement.doubt is not None:
the switch waits for groups with state  I1 3000000169
    lifecycle.replacement: if group.stateful and name not in replacement.accept_state_loss:
the switch can be paused  switch 3000000025
    lifecycle.replacement: return reasons.PAUSED if replacement.pause_before_switch else None => return None
the switch waits until every leader has answered the probe  fence 3000000000
    lifecycle.replacement: if replacement.has_fence and (unproved := _fence_doubt(facts)) is not None:
a group that comes with the switch is noted  I2 3000048980
    lifecycle.replacement: groups_complete=False, => groups_complete=True,
the configs before the fence are on the record first  fence 3000000000
    lifecycle.replacement: if replacement.own_configs is None:
the configs before the fence are noted once  fence 3000000000
    lifecycle.replacement: fenced_ms=replacement.fenced_ms or self._now_ms), ()
        => fenced_ms=replacement.fenced_ms or self._now_ms, own_configs=dict(self._fence.configs)), ()
a seal waits for the fence  seal 3000000005
    lifecycle.replacement: return fenced and log.log_end is not None => return log.log_end is not None
a fence is proved for one leader epoch  seal 3000000044
    lifecycle.replacement: fenced = self._fence.proved.get(partition) == log.leader_epoch
        => fenced = self._in_force
the brokers of all replicas show the fence  seal 3000002345
    tests.simulation.observer: if log.followers_fenced] => ]
a seal waits for the followers  seal 3000000140
    lifecycle.replacement: and log.log_end <= log.end_offset =>
a record behind a seal is drained  I2 3500000001
    lifecycle.replacement: if retired.seal_offset is not None and seal_broken_by(retired.seal_offset, log) is not None:
what overrides a fence of its name is removed before the new topic is announced  fence 4000000000
    lifecycle.replacement: if overriding := _overriding(new_topic, replacement):\n        return
        => if False:\n        return
a fence that was lifted is restored  I2 3000000140
    lifecycle.replacement: if self._in_force:\n => if self._in_force or replacement.fenced_ms is not None:\n
the old topic is drained before it is released  I2 3000004280
    lifecycle.replacement: if drain.reason is not None:
a topic is not released while its end is not final  I2 3520137710
    lifecycle.replacement: and all(self._is_final(p, log) for p, log in logs.items())
        => and all(self._fence.proved.get(p) == log.leader_epoch for p, log in logs.items())
every group comes to the new topic  I2 3000000000
    lifecycle.progress: return group is not None and group.has_committed(replacement.num_partitions)
        => return True
a deletion waits for the delay  delay 3500000000
    lifecycle.topic_deletion: return Stay(reasons.DELAY, due_ms) if now_ms < due_ms else None => return None
a deletion waits for retention  delay 3500000004
    lifecycle.topic_deletion: return None if emptied else Stay(reasons.RETENTION) => return None
a topic without a fence is never deleted  fence 3500000010
    lifecycle.topic_deletion: or _not_fenced(replacement, facts, now_ms)\n => \n
    lifecycle.replacement: elif replacement.released_ms is not None and replacement.has_fence:
        => elif replacement.released_ms is not None:
    tests.simulation.controller: if not all(fenced.get(p) == log.epoch for p, log in enumerate(logs)):
the fence is proved before a deletion  fence 3500000010
    lifecycle.topic_deletion: or _not_fenced(replacement, facts, now_ms)\n => \n
    tests.simulation.controller: if not all(fenced.get(p) == log.epoch for p, log in enumerate(logs)):
a deletion looks at the fence and the ends once more  fence 3500001599
    tests.simulation.controller: if not all(fenced.get(p) == log.epoch for p, log in enumerate(logs)):
    tests.simulation.controller: if [len(log.records) for log in logs] != [
        => if False and [len(log.records) for log in logs] != [
a fence is in force for a while before a deletion  fence 3500000138
    lifecycle.topic_deletion: return Stay(reasons.NOT_FENCED, stable_ms) if now_ms < stable_ms else None
        => return None
a fence that was lifted has to settle anew  fence 3500000138
    lifecycle.replacement: replacement = replace(replacement, fenced_ms=None)\n => pass\n
a doubtful list of groups deletes nothing  I2 3500000051
    lifecycle.topic_deletion: if (doubt := requirement.doubt) is not None:
    lifecycle.drain: if doubt is not None and doubt.rebalancing is None:
    lifecycle.drain: if doubt is not None:  # without
a group that was set back reads again before a deletion  I1 3500000027
    lifecycle.topic_deletion: if drain.reason is not None:
nothing is deleted under a subscriber  subscribed 3500000002
    lifecycle.topic_deletion: if group.subscribed:
a group in a rebalance may be subscribed  subscribed 3500000043
    lifecycle.topic_deletion: if group.subscribed is None:
a record says first that its topic is being deleted  record 3500000000
    lifecycle.replacement: return replace(replacement, deleting_ms=deleting_ms), (deletion,)
        => return replacement, (deletion,)
the new topic is created again if it was deleted  I2 3000000008
    lifecycle.replacement: if new_topic.topic_id is not None and _as_intended(new_topic, replacement):
what arrives too late is read  I2 3000004310
    lifecycle.replacement: elif held_up and replacement.released_ms is not None: => elif False:
partitions of another tool are drained  I2 3000032766
    lifecycle.state: if count <= len(record.modes): => if True:
a name points to the new topic without the old one  I8 3000000103
    lifecycle.alias: if replacement.switched_ms is None:\n        return None => if True:\n        return None
there is no undo after the switch  I8 3000000141
    lifecycle.objections: return back if switched else None => return None
an undo looks once more before it deletes  I1 3000000408
    tests.simulation.controller: if found is not None and found.touched:
only an untouched new topic is deleted  I1 3000000408
    lifecycle.replacement: if not (is_own or _as_intended(new_topic, replacement)): => if False:
    tests.simulation.controller: if found is not None and found.touched:
a group reads the old topic first  order 3000000134
    tests.simulation.succession.gate: or (has_read and is_next) or has_moved => or True or has_moved
all partitions of the old topic are read first  order 3000000827
    tests.simulation.succession.gate: return new_topic is not None and all( => return new_topic is not None and any(
a group that was there begins at the start  order 3000000193
    clients.starts: is_noted = group in new_topic.groups or not new_topic.groups_complete => is_noted = False
a gate opens where the old topic is gone  I2 3000000103
    tests.simulation.succession.gate: return new_topic is None or new_topic.gone or (has_read
        => return new_topic is None or (has_read
a late group reads the old topic  I2 3000000105
    tests.simulation.succession.gate: (new_topic.released and (has_read or has_moved)) => new_topic.released
a group comes to an empty topic before it leaves  I2 4010002009
    tests.simulation.succession.gate: (owes_commit or not => (not
a chain is deleted from its beginning  I2 4000000001
    lifecycle.topic_deletion: if facts.earlier_topic is not None:
a topic under an alias is not replaced  I8 4000000074
    lifecycle.alias: if not waits and record.topic in wanted and replacement.switched_ms is not None:
an alias ends only when its name has a topic again  I2 4000000033
    lifecycle.alias: for alias in ended if alias.topic_id != replacement.new_topic_id]
        => for alias in ended]
an alias ends when its name has a topic again  I2 4000000000
    lifecycle.alias: for alias in ended if alias.topic_id != replacement.new_topic_id]
        => for alias in ended if False]
an alias points to the next topic when the alias that it points to is removed  I2 4000000016
    lifecycle.alias: if before is None or alias.record.topic_id in gone: => if True:
a producer follows the chain to its end  I8 4000000005
    chain: return chain_views(topic, views)[-1] => return chain_views(topic, views)[:2][-1]
a group reads the chain to its end  I2 4000000000
    chain: *before, last = links(topic, views) => *before, last = links(topic, views)[:2]
a chain that leads back to a name is followed  I2 4000000000
    chain: is_free = view is None or view.topic_id is None or view.is_alias
        => is_free = view is None or view.topic_id is None
a gate waits for the one before it  order 4000000985
    tests.simulation.succession.gate: (has_read and is_next) => has_read
the alias is kept when another topic has its name  I8 4000000007
    lifecycle.alias: if replacement.gone_ms is not None:\n        return record
        => if replacement.gone_ms is not None:\n        return None
an interim topic is reserved  name 4500000000
    lifecycle.keep_name: if command.topic == interim and not is_own:
only an empty topic is removed from under a kept name  I2 4500000005
    lifecycle.keep_name: if facts.topic_id is None or not facts.untouched: => if facts.topic_id is None:
    tests.simulation.controller: if [len(log.records) for log in logs] != [
        => if False and [len(log.records) for log in logs] != [
"""


def _change(line: str) -> Change:
    place, _, texts = line.replace(r"\n", "\n").partition(": ")
    old, arrow, new = texts.partition(" =>")
    if not arrow:
        new = re.sub(r"\Aif .*:", "if False:", old)
    return Change(place if place.startswith("tests.") else f"modeaware.{place}", old, new.removeprefix(" "))


def _guard(entry: str) -> Guard:
    head, *changes = entry.replace("\n        ", " ").split("\n    ")
    name, invariant, seed = head.rsplit(maxsplit=2)
    return Guard(name, invariant, int(seed), tuple(map(_change, changes)))


GUARDS = tuple(map(_guard, re.split(r"\n(?=\S)", TABLE.strip())))
