"""The invariants of replacements: where a name points, what is sealed and released, and what is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware.lifecycle.commands import DeleteOldTopic, Effect, FenceTopic
from modeaware.lifecycle.replacement import FENCE_CONFIGS, NO_FENCE
from modeaware.lifecycle.topic_deletion import FENCE_STABLE_MS
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.topic_view import TopicView
from tests.simulation.broker import NEW_TOPIC
from tests.simulation.drain_invariants import DrainJudge, Violation

if TYPE_CHECKING:
    from tests.simulation.broker import Sent, Topic
    from tests.simulation.controller import Controller
    from tests.simulation.producers import Producer
    from tests.simulation.succession.clients import Group
    from tests.simulation.world import World


class ChainJudge(DrainJudge):
    """The part of the judge that watches chains of topics.

    Attributes:
        sealed: (topic id, partition) -> the seal that is in force.
        lifted, lost_at: somebody has lifted a fence; the step at which a new topic was last deleted by hand.
        last: the id of the topic that is written to.
        chain: the ids of the topics that the first name has pointed to. Another one of the name is nobody's (I8).
        announced: the ids of new topics.
        early: stock producers that wrote to the new topic of an old name before others did: their keys have no order.
        acknowledged_at: topic id -> the step at which its first record was acknowledged.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.sealed: dict[tuple[str, int], int] = {}
        self.lifted = False
        self.lost_at = -1
        self.last = "id-1"
        self.chain: set[str | None] = {"id-1"}
        self.announced: set[str | None] = set()
        self.early: set[int] = set()
        self.acknowledged_at: dict[str, int] = {}

    # The mode log

    def _leads(self, before: TopicView, after: TopicView) -> None:
        """A client's view changes: a name that has pointed to a new topic points there for good (I8)."""
        was, now = before.replaced_by, after.replaced_by
        if was is None or not was.switched or (now is not None and now.topic_id == was.topic_id):
            return
        if self.world.chains and after.topic_id != before.topic_id:
            return  # its alias has ended: the name is looked at when it is used
        if now is None or self.world.topics.get(was.topic) is self.world.by_id[was.topic_id]:
            raise Violation("I8", f"{before.topic} pointed to {was.topic_id}, and points to {now and now.topic_id}")

    def _removed(self, before: TopicRecord | None) -> None:
        """Only an alias of a chain ends. Where its name points then is looked at when a client uses it."""
        if before is None or before.replacement is None or before.replacement.switched_ms is None:
            return
        if not (self.world.chains and before.is_alias):
            raise Violation("I8", f"the record of {before.topic} is removed, whose name points to a new topic")
        self.world.tell("the alias %s of %s ends", before.topic, before.topic_id)

    def _replaced(self, before: TopicRecord | None, after: TopicRecord, writer: Controller) -> None:
        was = before.replacement if before is not None else None
        now = after.replacement
        if was is not None and was.switched_ms is not None:
            same = now is not None and (now.new_topic_id == was.new_topic_id or self._may_lead_on(was, now))
            if now is None or not same or now.switched_ms != was.switched_ms:
                raise Violation(
                    "I8", f"{after.topic} pointed to {was.new_topic_id} since {was.switched_ms}, and does not now"
                )
            if now.undone_ms is not None:
                raise Violation("I8", f"the replacement of {after.topic} is undone after its switch")
        if now is None:
            return
        self._leads_on(was, now, after)
        if was is not None and was.own_configs is not None and now.own_configs != was.own_configs:
            raise Violation("fence", f"the configs before the fence were {was.own_configs}, and are {now.own_configs}")
        if now.own_configs is not None and FENCE_CONFIGS.items() <= now.own_configs.items():
            raise Violation("fence", "the fence itself is noted as the configs before it")
        if now.new_topic_id is not None and (was is None or was.new_topic_id != now.new_topic_id):
            self._adopted(now, writer)
        if now.switched_ms is not None and (was is None or was.switched_ms is None) and now.gone_ms is None:
            self._switched(after, now, writer)
        for partition, retired in after.retired.items():
            held = before.retired.get(partition) if before is not None else None
            if retired.seal_offset is None:
                self.sealed.pop((after.topic_id, partition), None)
            elif held is None or held.seal_offset is None:
                self._end_sealed(after, now, partition, retired.seal_offset, writer)
        if now.released_ms is not None and now.gone_ms is None:
            if left := [p for p, r in after.retired.items() if r.seal_offset is None or r.reason is not None]:
                raise Violation("I2", f"it is released, and partitions {left} are not drained")
            if was is None or was.released_ms is None:
                self._topic_released(after, now, writer)

    def _leads_on(self, was: Replacement | None, now: Replacement, after: TopicRecord) -> None:
        """A chain grows at its end alone."""
        if now.new_topic_id is not None and now.undone_ms is None:
            self.announced.add(now.new_topic_id)
        if now.switched_ms is None:
            return
        if was is None or was.switched_ms is None:
            if self.world.chains and after.topic_id != self.last:
                raise Violation("I8", f"{after.topic_id} is replaced, and the name points to {self.last} already")
        elif was.new_topic_id == now.new_topic_id:
            return
        if after.topic_id in self.chain and now.new_topic_id not in self.chain:
            self.last = now.new_topic_id or ""
            self.chain.add(now.new_topic_id)

    def _may_lead_on(self, was: Replacement, now: Replacement) -> bool:
        """Whether a name may point to another new topic: the alias that it pointed to is removed; or the new topic was
        deleted by hand before groups came to it."""
        if self.world.chains:
            return was.gone_ms is not None and now.new_topic_id in self.chain
        is_lost = self.world.topics.get(was.new_topic) is not self.world.by_id[was.new_topic_id or ""]
        return is_lost and was.released_ms is None

    def _adopted(self, now: Replacement, writer: Controller) -> None:
        topic = self.world.by_id[now.new_topic_id or ""]
        is_there = self.world.topics.get(topic.name) is topic
        if is_there and now.announced_ms is not None and NO_FENCE.items() & topic.configs.items():
            raise Violation("fence", f"{topic.topic_id} is announced with configs that override a fence of its name")
        if now.gone_ms is not None:
            return
        if self.acknowledged_at.get(topic.topic_id, writer.looked.at) < writer.looked.at:
            raise Violation("I8", f"{topic.topic_id} is taken for the new topic, and has records")
        if len(topic.logs) != now.num_partitions:
            raise Violation("I8", f"{topic.topic_id} is taken for the new topic, and has {len(topic.logs)} partitions")

    def _switched(self, after: TopicRecord, now: Replacement, writer: Controller) -> None:
        if now.pause_before_switch:
            raise Violation("switch", "it switches though it is to pause")
        if now.undone_ms is not None:
            raise Violation("switch", "it switches though it is undone")
        if any(mode.writable for mode in after.modes):
            raise Violation("switch", f"partitions of the old topic are writable: {after.modes}")
        if not writer.looked.sure:
            raise Violation("I2", "it switches though not all groups are known")
        logs = self.world.by_id[after.topic_id].logs
        older = {p for p, log in enumerate(logs) if log.made_at < writer.looked.step - 20}
        if now.has_fence and not writer.probed >= older:
            raise Violation("fence", "it switches though a leader has not answered the probe of the fence")
        groups = self.world.groups
        seen = writer.looked.of_topic[after.topic_id]
        if missing := set(seen) - set(after.required_groups):
            raise Violation("I2", f"the switch does not note {missing}")
        named = [n for n in seen if groups[n].stateful and groups[n].stateful_at < writer.looked.at]
        if lost := [n for n in named if n not in now.accept_state_loss]:
            raise Violation("I1", f"the switch costs {lost} their state")
        self.required[after.topic_id] = set(after.required_groups)
        self.world.switched_at[now.new_topic] = self.world.steps

    def _end_sealed(self, after: TopicRecord, now: Replacement, partition: int, seal: int, writer: Controller) -> None:
        topic = self.world.by_id[after.topic_id]
        log = topic.logs[partition]
        self.sealed[after.topic_id, partition] = seal
        changed = max(log.lifted_at, log.elected_at)
        if now.fence == "none" or changed >= writer.looked.step - 20:
            return
        if any(self.world.is_data(number) for number in log.records[seal:]) and log.written_at < writer.looked.at:
            raise Violation("seal", f"partition {partition} is sealed at {seal}, and more had been appended")

    def _topic_released(self, after: TopicRecord, now: Replacement, writer: Controller) -> None:
        """Every required group has read the old topic, and has an offset on the new topic (I2)."""
        world = self.world
        topic, new_topic = world.by_id[after.topic_id], world.by_id[now.new_topic_id or ""]
        if not writer.looked.sure:
            raise Violation("I2", "it is released though not all groups are known")
        for name in self.required.get(after.topic_id, set()) | set(writer.looked.of_topic[after.topic_id]):
            group = world.groups[name]
            if group.waived:
                continue
            moved = group.committed.get(new_topic.topic_id, {})
            if world.topics.get(new_topic.name) is new_topic and not moved.keys() >= set(range(len(new_topic.logs))):
                raise Violation("I2", f"it is released before {name} has come to the new topic")
            for partition, log in enumerate(topic.logs):
                if log.written_at >= writer.looked.at or log.made_at >= writer.looked.step - 20:
                    continue
                start = max(group.committed.get(topic.topic_id, {}).get(partition, 0), log.log_start)
                retired = after.retired.get(partition)
                # Without a fence a record that is acknowledged after the look is late, and is drained yet.
                end = log.replicated if now.has_fence or retired is None else retired.seal_offset
                left = [n for n in log.records[start:end] if world.is_data(n) and n not in group.given]
                if [n for n in left if n not in group.excused]:
                    raise Violation("I2", f"it is released before {name} has read {left} of partition {partition}")

    # Effects

    def _of_chain_sent(self, effect: Effect) -> None:
        """What a record has to say before a topic is fenced, or deleted."""
        record = self.world.log.truth.records.get(effect.topic_id)
        now = record.replacement if record is not None else None
        if record is None and isinstance(effect, FenceTopic | DeleteOldTopic):
            self._in_the_way(effect)
            return
        if isinstance(effect, FenceTopic):
            if now is None or now.switched_ms is None:
                raise Violation("fence", "a topic is fenced whose name points to no new topic")
            if now.own_configs is None:
                raise Violation("fence", "a topic is fenced before its configs are on the record")
        if isinstance(effect, DeleteOldTopic) and (now is None or None in (now.released_ms, now.deleting_ms)):
            raise Violation("record", f"{effect.topic_id} is to be deleted, and its record does not say so first")

    def _in_the_way(self, effect: FenceTopic | DeleteOldTopic) -> None:
        """A topic without a record is fenced or deleted only under a name that is kept and has another topic."""
        waiting = (r.topic if r.is_first_half else r.replacing.new_topic for r in self.world.log.truth.records.values()
                   if (r.is_first_half and r.is_alias) or r.is_second_half)  # fmt: skip
        if effect.topic not in waiting or effect.topic_id in self.chain | self.announced:
            raise Violation("fence", f"{effect.topic_id} is fenced or deleted, and is in the way of nothing")

    def deleted(self, controller: Controller, topic: Topic) -> None:
        if topic.touched and topic.touched_at < controller.looked_again:
            raise Violation("I1", f"{topic.name} is deleted, and somebody has written to it")

    def old_topic_deleted(self, controller: Controller, topic: Topic) -> None:
        """Nothing that happened before the last checks speaks against it; what happens after them no one can see."""
        world, looked = self.world, controller.looked
        for each in world.log.truth.records.values():  # a chain goes from its beginning
            is_before = each.replacement is not None and each.replacement.new_topic_id == topic.topic_id
            if is_before and world.topics.get(each.topic) is world.by_id[each.topic_id]:
                raise Violation("I2", f"{topic.topic_id} is deleted before {each.topic_id}, which it replaces")
        record = world.log.truth.records.get(topic.topic_id)
        if record is None:
            if topic.touched:
                raise Violation("I2", f"{topic.topic_id} is deleted, and has records")
            world.hit("removed")
            return
        now = record.replacement
        assert now is not None, "it has one"
        if now.fence == "none":
            raise Violation("fence", f"{topic.topic_id} is deleted, and has no fence")
        world.hit("old topic deleted")
        self._fenced_at_the_end(controller, topic)
        if now.delay_ms is not None and world.time_ms < now.requested_ms + now.delay_ms:
            raise Violation("delay", f"{topic.topic_id} is deleted too early")
        left = [log for log, end in zip(topic.logs, controller.ends_again, strict=False) if log.log_start < end]
        if now.delay_ms is None and left:
            raise Violation("delay", f"{topic.topic_id} is deleted, and retention has not emptied it")
        if not looked.sure:
            raise Violation("I2", f"{topic.topic_id} is deleted though not all groups are known")
        if self.lost_at < looked.at and world.topics.get(now.new_topic) is not world.by_id[now.new_topic_id or ""]:
            raise Violation("I8", f"{topic.topic_id} is deleted, and the new topic is not there")
        required = self.required.get(topic.topic_id, set()) | set(looked.of_topic[topic.topic_id])
        for name, group in world.groups.items():
            if topic.topic_id in group.assigned and group.subscribed_at[topic.topic_id] < looked.at:
                raise Violation("subscribed", f"{topic.topic_id} is deleted while {name} is subscribed to it")
            if name in required and not group.waived:
                self._topic_read(controller, topic, group)

    def _fenced_at_the_end(self, controller: Controller, topic: Topic) -> None:
        proved = controller.proved_again
        for partition, log in enumerate(topic.logs):
            if not log.fenced and max(log.lifted_at, log.elected_at, log.made_at) < proved:
                raise Violation("fence", f"partition {partition} of {topic.topic_id} is deleted, and takes data")
        until_ms = topic.lifted_ms + FENCE_STABLE_MS
        if 0 <= topic.lifted_at < controller.looked.at and controller.proved_again_ms < until_ms:
            raise Violation("fence", f"{topic.topic_id} is deleted a moment after its fence was lifted")

    def _topic_read(self, controller: Controller, topic: Topic, group: Group) -> None:
        """The group was given all that was acknowledged, and does not have to read any of it again (I1)."""
        held = group.committed.get(topic.topic_id, {})
        for partition, (log, end) in enumerate(zip(topic.logs, controller.ends_again, strict=False)):
            numbers = [n for n in log.records[log.log_start : end] if self.world.is_data(n)]
            if left := [n for n in numbers if n not in group.given and n not in group.excused]:
                raise Violation(
                    "I1", f"{left} of partition {partition} are deleted, and {group.name} has not read them"
                )
            again = log.records[max(held.get(partition, end), log.log_start) : end]
            if group.set_back_at < controller.looked.at and any(map(self.world.is_data, again)):
                raise Violation("I1", f"partition {partition} is deleted, and {group.name} reads it again")

    # Records

    def is_new_topic(self, topic: Topic) -> bool:
        """Whether aware groups read it behind a gate."""
        return topic.topic_id in self.announced if self.world.chains else topic.name == NEW_TOPIC

    def may_skip(self, topic: Topic, *, used_before: bool) -> bool:
        """Whether a group may begin at the end: one from before the switch has to be given all that followed."""
        return not (self.is_new_topic(topic) and used_before)

    def written(self, producer: Producer, topic: Topic) -> None:
        """A producer has a record for the topic."""
        if not self.world.chains or topic.topic_id in self.chain:
            return
        # One that lags may know the name of a topic that is gone, and that another one has by now: no client can tell.
        if producer.reader is None:
            self.early.add(producer.number)
        elif not producer.reader.behind:
            raise Violation("I8", f"a record goes to {topic.topic_id}, which no name points to")

    def acknowledged(self, topic: Topic, partition: int, offset: int, sent: Sent) -> None:
        self.acknowledged_at.setdefault(topic.topic_id, self.world.steps)
        seal = self.sealed.get((topic.topic_id, partition))
        if seal is not None and offset >= seal and not self.lifted and not sent.aborted:
            record = self.world.log.truth.records.get(topic.topic_id)
            if record is not None and record.replacement is not None and record.replacement.has_fence:
                raise Violation(
                    "seal", f"{topic.name}-{partition}: offset {offset} is acknowledged, the seal is {seal}"
                )

    def given(self, group: Group, topic: Topic, partition: int, sent: Sent) -> None:
        if group.aware and self.world.chains and topic.topic_id not in self.chain:
            raise Violation("I8", f"group {group.name} is given a record of {topic.topic_id}, which no name points to")
        if sent.number in group.given:
            return
        if group.aware and not self.lifted and sent.producer not in self.early:
            here = (topic.topic_id, partition)
            earlier = [  # where another tool has grown a topic, its keys have moved
                other.number for other in self.world.sent[: sent.number]
                if (other.producer, other.key) == (sent.producer, sent.key)
                and other.where is not None and (other.where[0] != here[0] or other.where[:2] == here)
                and self._is_owed(other, group)
            ]  # fmt: skip
            if earlier and self._has_fence:
                raise Violation("order", f"group {group.name} is given {sent.number} before {earlier}")
        group.given.add(sent.number)
        self.world.tell("group %s is given record %d", group.name, sent.number)

    def _is_owed(self, sent: Sent, group: Group) -> bool:
        """Whether the group has not been given a record that it is to be given."""
        if not sent.acknowledged or sent.aborted or sent.lost or sent.where is None or sent.where[0] not in self.chain:
            return False
        return sent.number not in group.given and sent.number not in group.excused

    @property
    def _has_fence(self) -> bool:
        """Whether what arrives behind a seal is a breach: without a fence it is drained, and late."""
        records = self.world.log.truth.records.values()
        return all(record.replacement is None or record.replacement.has_fence for record in records)

    def _all_given(self) -> None:
        """Every record that was acknowledged was given to every group that has to read it (I2)."""
        for group in self.world.groups.values():
            if group.waived or not group.ever:
                continue
            missing = [each for each in self.world.sent if self._is_owed(each, group) and self._is_for(group, each)]
            if missing:
                where = [each.where for each in missing]
                raise Violation("I2", f"group {group.name} is never given {missing}, at {where}")

    def _is_for(self, group: Group, sent: Sent) -> bool:
        """Whether the group has to be given such a record: not a stock one that was not moved, and now cannot be."""
        if self.world.chains:
            return group.aware or (sent.where is not None and sent.where[0] in group.committed)
        record = self.world.first_record
        now = record.replacement if record is not None else None
        return now is None or now.gone_ms is None or group.aware or group.moved
