"""The invariants where a name leads through several topics, and other topics come up under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware.lifecycle.alias import is_alias
from modeaware.lifecycle.replacement import NO_FENCE
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.topic_view import TopicView
from tests.simulation.drain_invariants import Violation
from tests.simulation.succession.judge import Judge

if TYPE_CHECKING:
    from tests.simulation.broker import Sent, Topic
    from tests.simulation.controller import Controller
    from tests.simulation.modelog import Reader
    from tests.simulation.succession.clients import Group, Producer
    from tests.simulation.world import World


class ChainJudge(Judge):
    """Also raises :class:`Violation` where a chain is left, or a topic is used that belongs to none.

    Attributes:
        last: the id of the topic that is written to.
        chain: the ids of the topics that the first name has led to.
        announced: the ids of successors.
        early: stock producers that wrote to the new topic of an old name before others did: their keys have no order.
        acknowledged_at: topic id -> the step at which its first record was acknowledged.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.last = "id-1"
        self.chain: set[str | None] = {"id-1"}
        self.announced: set[str | None] = set()
        self.early: set[int] = set()
        self.acknowledged_at: dict[str, int] = {}

    # The mode log

    def new_view(self, reader: Reader, before: TopicView, after: TopicView) -> None:
        if after.topic_id == before.topic_id:  # else its alias has ended: the name is looked at when it is used
            super().new_view(reader, before, after)

    def _removed(self, before: TopicRecord | None) -> None:
        """Only an alias ends. Where its name leads then is looked at when a client uses it."""
        if before is None or before.replacement is None or before.replacement.switched_ms is None:
            return
        if not is_alias(before):
            raise Violation("I8", f"the record of {before.topic} is removed, whose name leads to a successor")
        self.world.tell("the alias %s of %s ends", before.topic, before.topic_id)

    def _replaced(self, before: TopicRecord | None, after: TopicRecord, writer: Controller) -> None:
        now = after.replacement
        was = before.replacement if before is not None else None
        super()._replaced(before, after, writer)
        if now is not None and now.successor_id is not None and now.undone_ms is None:
            self.announced.add(now.successor_id)
        if now is None or now.switched_ms is None or (was is not None and was.switched_ms is not None):
            return
        if after.topic_id != self.last:
            raise Violation("I8", f"the name leads from {after.topic_id} on, and had led to {self.last} already")
        self.last = now.successor_id or ""
        self.chain.add(self.last)

    def _may_lead_on(self, was: Replacement, now: Replacement) -> bool:
        """An alias leads on, once the one that it led to is removed."""
        return was.gone_ms is not None and now.successor_id in self.chain

    def _adopted(self, now: Replacement, writer: Controller) -> None:
        topic = self.world.topics.get(now.successor)
        is_there = topic is not None and topic.topic_id == now.successor_id and now.announced_ms is not None
        if is_there and NO_FENCE.items() & topic.configs.items():
            raise Violation("fence", f"{topic.topic_id} is announced with configs that override a fence of its name")
        first = self.acknowledged_at.get(now.successor_id or "", writer.looked.at)
        if now.gone_ms is None and first < writer.looked.at:
            raise Violation("I8", f"{now.successor_id} is taken for the successor, and has records")

    # Effects

    def predecessor_deleted(self, controller: Controller, topic: Topic) -> None:
        """A chain goes from its beginning."""
        for record in self.world.log.truth.records.values():
            is_before = record.replacement is not None and record.replacement.successor_id == topic.topic_id
            if is_before and self.world.topics.get(record.topic) is self.world.by_id[record.topic_id]:
                raise Violation("I2", f"{topic.topic_id} is deleted before {record.topic_id}, which it replaces")
        super().predecessor_deleted(controller, topic)

    # Records

    def is_successor(self, topic: Topic) -> bool:
        return topic.topic_id in self.announced

    def acknowledged(self, topic: Topic, partition: int, offset: int, sent: Sent) -> None:
        self.acknowledged_at.setdefault(topic.topic_id, self.world.steps)
        super().acknowledged(topic, partition, offset, sent)

    def written(self, producer: Producer, topic: Topic) -> None:
        if producer.reader is None:
            self.early |= set() if topic.topic_id in self.chain else {producer.number}
            return
        # One that lags may know the name of a topic that is gone, and that another one has by now: no client can tell.
        if topic.topic_id not in self.chain and not producer.reader.behind:
            raise Violation("I8", f"a record goes to {topic.topic_id}, which no name leads to")

    def given(self, group: Group, topic: Topic, partition: int, offset: int, sent: Sent) -> None:
        if group.aware and topic.topic_id not in self.chain:
            raise Violation("I8", f"group {group.name} is given a record of {topic.topic_id}, which no name leads to")
        if sent.producer in self.early:
            group.given.setdefault(sent.number, self.world.steps)
            return
        super().given(group, topic, partition, offset, sent)

    @property
    def _has_fence(self) -> bool:
        records = self.world.log.truth.records.values()
        return all(record.replacement is None or record.replacement.has_fence for record in records)

    @property
    def _chain(self) -> set[str | None]:
        return self.chain

    def _is_for(self, group: Group, sent: Sent) -> bool:
        return group.aware or (sent.where is not None and sent.where[0] in group.committed)
