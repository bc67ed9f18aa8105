"""Groups of a name that stands for a chain of topics: aware ones before the gate, and stock ones."""

from __future__ import annotations

from modeaware.chain import read_topics, topics_before
from modeaware.clients.starts import start_on_new_topic
from modeaware.topic_view import TopicView
from tests.simulation.broker import MARKER, NAME, NEW_TOPIC, Topic
from tests.simulation.modelog import Reader
from tests.simulation.succession.gate import awaits_group, has_read, is_open, needs_old_topic
from tests.simulation.world import World


class Group:
    """One group, ``earliest`` or ``latest``; its members act in one step, each by a view of its own.

    Attributes:
        committed: topic id -> partition -> offset, as the coordinator keeps it.
        positions: (topic id, partition) -> the next offset of the member that owns it.
        given: the numbers of the records it was given, at their first time in order.
        excused: records that it need not be given: they lay there before a latest group began.
        began: the step at which it first had an offset on the old topic.
        named: the topic that its members subscribe to, of an aware group.
        names: the topics that its owner has started it on, of a stock group; the one it reads first comes last.
        subscribed_at: topic id -> the step since which it is assigned.
        set_back_at: the step at which it was last set back.
        waived: the operator waits for it no more.
    """

    def __init__(self, world: World, name: str, members: int, *, aware: bool, latest: bool) -> None:
        self.world = world
        self.name = name
        self.aware = aware
        self.latest = latest
        self.stateful = False
        self.stateful_at = -1  # the step since which that is so
        self.members = [Reader(world.log, NAME) if aware else None for _ in range(members)]
        self.has_members = False
        self.named = NAME
        self.names = [NAME]
        self.subscribed_at: dict[str, int] = {}
        self.set_back_at = -1
        self.waived = False
        self.ever = False
        self.committed: dict[str, dict[int, int]] = {}
        self.positions: dict[tuple[str, int], int] = {}
        self.owners: dict[tuple[str, int], Reader | None] = {}
        self.given: set[int] = set()
        self.excused: set[int] = set()
        self.began: int | None = None

    @property
    def readers(self) -> list[Reader]:
        return [reader for reader in self.members if reader is not None]

    def uses(self, topic: Topic) -> bool:
        return bool(self.committed.get(topic.topic_id)) or topic.topic_id in self.assigned

    @property
    def moved(self) -> bool:
        return NEW_TOPIC in self.names

    def has_left(self, topic: str) -> bool:
        """Whether the owner of a stock group has taken the topic out of its configuration."""
        return not self.aware and topic not in self.names

    @property
    def assigned(self) -> set[str]:
        """The ids of the topics that members own partitions of."""
        return {topic_id for topic_id, _ in self.owners} if self.has_members else set()

    def forget(self, topic_id: str) -> None:
        """Its topic was deleted: the coordinator drops the offsets."""
        self.committed.pop(topic_id, None)
        for key in [key for key in self.owners if key[0] == topic_id]:
            self.positions.pop(key, None)
            del self.owners[key]

    def start(self) -> None:
        self.has_members = self.ever = True
        self.rebalance()

    def stop(self, *, commit: bool) -> None:
        if commit:
            self.commit()
        self.has_members = False
        self.positions.clear()
        self.owners.clear()

    def rebalance(self) -> None:
        """Deal the partitions of all topics that a member's view names. What is not committed is read again."""
        world = self.world
        before = self.assigned
        self.positions.clear()
        self.owners.clear()
        if not self.has_members:
            return
        wanted: dict[str, Topic] = {}
        for member in self.members:
            if member is not None:
                member.catch_up()
            for topic in self._subscribed(member):
                wanted[topic.topic_id] = topic
        for topic in wanted.values():
            for partition in range(len(topic.logs)):
                self.owners[topic.topic_id, partition] = self.members[partition % len(self.members)]
        self.subscribed_at |= dict.fromkeys(self.assigned - before, world.steps)
        world.tell("group %s rebalances: %s", self.name, ", ".join(sorted(f"{t}-{p}" for t, p in self.owners)))
        self.assign()

    def _subscribed(self, reader: Reader | None) -> list[Topic]:
        topics = self.world.topics
        if reader is None:
            return [topics[name] for name in self.names if name in topics]
        ids = {self.named: reader.view_of(self.named).topic_id}

        def needs(view: TopicView) -> bool:
            assert view.replaced_by is not None, "its topic is replaced"
            ids.update({view.topic: view.topic_id, view.replaced_by.topic: view.replaced_by.topic_id})
            has_moved = bool(self.committed.get(view.replaced_by.topic_id)) and not self._held(view)
            before = reader.before().get(view.topic)
            is_awaited = before is not None and awaits_group(before, self.name, self._held(before))
            owes = is_awaited and len(self._held(view)) < len(view.modes)
            return needs_old_topic(view, has_read=self._has_read(view), has_moved=has_moved, owes_commit=owes)

        names = read_topics(self.named, reader.view_of, needs)
        found = [topics[name] for name in names if name in topics]
        return [each for each in found if self.world.chains or ids[each.name] in (None, each.topic_id)]

    def _held(self, view: TopicView) -> dict[int, int]:
        """What is committed on the topic of a view."""
        return self.committed.get(view.topic_id or "", {})

    def _has_read(self, view: TopicView) -> bool:
        topic = self.world.by_id.get(view.topic_id or "")
        return topic is not None and has_read(view, self._held(view), log_starts(topic))

    def assign(self) -> None:
        """Every start offset is explicit; it is resolved when the partition comes to a member."""
        for (topic_id, partition), reader in self.owners.items():
            if (topic_id, partition) in self.positions:
                continue
            topic = self.world.by_id[topic_id]
            log = topic.logs[partition]
            committed = self.committed.get(topic_id, {}).get(partition)
            if committed is None:
                committed = self._start(topic, partition, reader)
            self.positions[topic_id, partition] = max(committed, log.log_start)

    def _start(self, topic: Topic, partition: int, reader: Reader | None) -> int:
        log = topic.logs[partition]
        own = None
        if reader is not None:
            before = reader.before()
            if (view := before.get(topic.name)) is not None:
                own = start_on_new_topic(view, self.name, has_used=self._has_used(topic.name, before))
        if own is not None or not self.latest:
            return log.log_start if own is None else max(own, log.log_start)
        start = self._latest(topic, partition, reader)
        if (self.world.chains or topic.topic_id == "id-1") and self.aware and self.began is None:
            self.began = self.world.steps
        switched_at = self.world.switched_at.get(topic.name)
        used_before = self.began is not None and (switched_at is None or self.began < switched_at)
        if self.world.judge.may_skip(topic, used_before=used_before):
            self.excused |= {n for n in log.records[:start] if n != MARKER}
        # As aware clients do: a start that is not committed would be another one after a restart. Behind a gate: later.
        if self.aware and not (self.world.chains and self.world.judge.is_new_topic(topic)):
            self.committed.setdefault(topic.topic_id, {}).setdefault(partition, start)
        return start

    def _has_used(self, topic: str, before: dict[str, TopicView]) -> bool:
        """Whether it has offsets on one of the topics before a new topic that remain."""
        remain = (each for each in topics_before(topic, before) if each.replaced_by and not each.replaced_by.gone)
        return any(self._held(each) for each in remain)

    def _latest(self, topic: Topic, partition: int, reader: Reader | None) -> int:
        """Where ``latest`` begins: at the seal of a partition that takes no writes any more."""
        log = topic.logs[partition]
        view = reader.view_of(topic.name) if reader is not None and self.world.chains else None
        resume = view.resume_offsets.get(partition) if view is not None and view.applies_to(topic.topic_id) else None
        return log.replicated if resume is None else max(resume, log.log_start)

    def refresh(self) -> None:
        """Members take in what the mode log says; one that sees other topics asks for a rebalance."""
        before = self._seen()
        for reader in self.readers:
            reader.catch_up(1 + self.world.below(3))
        if self.has_members and before != self._seen():
            self.rebalance()

    def _seen(self) -> list[dict[str, tuple[str, bool]]]:
        """What decides about the subscription, by each member's views."""
        return [
            {
                name: (v.replaced_by.topic_id, v.replaced_by.released)
                for name, v in reader.views().items()
                if v.replaced_by
            }
            for reader in self.readers
        ]

    def poll(self, most: int) -> None:
        if not self.has_members:
            return
        for (topic_id, partition), reader in list(self.owners.items()):
            topic = self.world.by_id[topic_id]
            log = topic.logs[partition]
            position = self.positions.get((topic_id, partition))
            if position is None or not log.available or not self._may_read(topic, partition, reader):
                continue
            position = max(position, log.log_start)
            end = min(log.stable, position + most)
            last = None
            for offset in range(position, end):
                number = log.records[offset]
                if self.world.is_data(number):
                    self.world.judge.given(self, topic, partition, self.world.sent[number])
                    last = offset
            # A client's position moves by the records that it is given; it passes over nothing at the end.
            self.positions[topic_id, partition] = position if last is None else last + 1

    def _may_read(self, topic: Topic, partition: int, reader: Reader | None) -> bool:
        before = reader.before() if reader is not None else {}
        has_gate = self.world.judge.is_new_topic(topic) or (self.world.chains and topic.name in before)
        if reader is None or not has_gate:
            return True
        if topic.name in before:
            if not self._is_open(before[topic.name], before):
                return False
        elif not self.world.chains or topic.name != self.named:  # else it is a topic like others by now
            return False
        if partition not in self.committed.get(topic.topic_id, {}):
            self.world.hit("gate opened")
            self.committed.setdefault(topic.topic_id, {})[partition] = self.positions[topic.topic_id, partition]
        return True

    def _is_open(self, view: TopicView, before: dict[str, TopicView]) -> bool:
        """Whether the gate behind the topic of a view is open; ``before``: new topic -> the view of its old topic."""
        assert view.replaced_by is not None, "its topic is replaced"
        earlier = before.get(view.topic)
        is_next = (
            earlier is None or bool(earlier.replaced_by and earlier.replaced_by.gone) or self._is_open(earlier, before)
        )
        has_moved = bool(self.committed.get(view.replaced_by.topic_id))
        return is_open(view, has_read=self._has_read(view), has_moved=has_moved, is_next=is_next)

    def commit(self) -> None:
        for (topic_id, partition), position in self.positions.items():
            topic = self.world.by_id[topic_id]
            if self.world.topics.get(topic.name) is not topic:
                continue
            held = self.committed.setdefault(topic_id, {})
            started = self.aware or position > topic.logs[partition].log_start or partition in held
            if self.world.judge.is_new_topic(topic) and self.aware and partition not in held:
                continue  # its gate is shut
            if started:
                held[partition] = position

    # What its owner does

    def move(self, to: str = NEW_TOPIC) -> None:
        """The owner of a stock group stops it, commits 0 on the new topic, and starts it on both names."""
        new_topic = self.world.topics.get(to)
        if self.aware or new_topic is None or len(self.committed.get(new_topic.topic_id, ())) == len(new_topic.logs):
            return
        self.world.tell("the owner of group %s moves it", self.name)
        self.stop(commit=True)
        for partition in range(len(new_topic.logs)):
            self.committed.setdefault(new_topic.topic_id, {}).setdefault(partition, 0)
        self.names = self.names if to in self.names else [to, *self.names]
        self.start()

    def has_read_all(self, name: str = NAME) -> bool:
        """Whether nothing is left for it on the old topic, as its owner sees."""
        topic = self.world.topics.get(name)
        held = self.committed.get(topic.topic_id, {}) if topic is not None else {}
        return topic is None or all(self.world.has_all(log, held.get(p, 0)) for p, log in enumerate(topic.logs))

    def leave(self, name: str = NAME, to: str = NEW_TOPIC) -> None:
        """The owner of a stock group takes the old name out of its configuration."""
        self.move(to)
        if not self.aware:
            self.stop(commit=True)
            self.names = [to, *(each for each in self.names if each not in (name, to))]
            self.start()

    def come_back(self, name: str = NAME) -> None:
        """And puts it in again."""
        self.names.append(name)
        self.rebalance()

    def set_back(self, name: str = NAME) -> None:
        """``kafka-consumer-groups --reset-offsets``, of the old topic, while it is stopped."""
        self.stop(commit=True)
        topic = self.world.topics.get(name)
        if topic is not None and (held := self.committed.get(topic.topic_id)):
            for partition, offset in held.items():
                start = topic.logs[partition].log_start
                held[partition] = max(start, offset - 1 - self.world.below(3))
            self.set_back_at = self.world.steps
            self.world.hit("set back")

    # At the end of a schedule

    def calm_down(self) -> None:
        self.stateful = False
        if not self.has_members and self.ever:
            self.start()

    def begin_at_last(self) -> None:
        if not self.has_members:
            self.start()

    def read_all(self) -> None:
        for reader in self.readers:
            reader.catch_up()
        self.commit()
        self.rebalance()
        for _ in range(3):
            self.poll(10_000)
            self.commit()


def log_starts(topic: Topic) -> dict[int, int]:
    return {partition: log.log_start for partition, log in enumerate(topic.logs)}
