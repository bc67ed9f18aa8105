"""Schedules of a topic that keeps its name: the controller leads it over an interim topic, and nobody repeats anything.

People may say that it stays on the interim topic, and that it is to have its name after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from modeaware.errors import ErrorCode
from modeaware.interim import interim_name
from modeaware.lifecycle.commands import CommandResult, DeletePartitionsCommand, ReplaceTopicCommand
from modeaware.modelog.records import TopicRecord
from tests.simulation.actions import Weighted
from tests.simulation.broker import NAME, THIRD, Topic
from tests.simulation.drain_invariants import Violation
from tests.simulation.succession.chain_schedule import ChainActions
from tests.simulation.world import World

INTERIM = interim_name(NAME, "id-1")


class KeptNameActions(ChainActions):
    """The events of one change of two halves.

    Attributes:
        wish: whether the topic is to have its name in the end; it may be said otherwise until the second switch.
        was_undone: the change was taken back before its first switch.
        is_other: the interim topic is changed by another command, since it was to stay.
    """

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.skips_second = False
        count = 1 + world.below(4)
        count += count == len(world.topics[NAME].logs)
        delay_ms = (0, 0, 0, 400_000, None)[world.below(5)]
        self.first = ReplaceTopicCommand(NAME, INTERIM, count, delay_ms=delay_ms, keep_name=True)
        self.request = self.first
        self.wish = True
        self.was_undone = False
        self.is_other = False

    # At the end

    @property
    def is_complete(self) -> bool:
        """Whether the last topic is the one that is to be the last, and nothing of the change is left."""
        if self.last.topic_id == "id-1" or self.world.topics.get(self.last.name) is not self.last:
            return False
        return not self._of_interim() if self.last.name == NAME else not self.wish

    def _of_interim(self) -> list[TopicRecord]:
        return [record for record in self.world.log.truth.records.values() if record.topic == INTERIM]

    def ask_for_more(self) -> bool:
        if self.is_complete or self.was_undone or self.is_other:
            return False
        self.go_away()
        self.replace()
        return True

    def check_end(self) -> None:
        """The name has the topic that was asked for, and no other one is left."""
        super().check_end()
        world = self.world
        world.shrinks = int(self.is_complete)
        if self.was_undone or self.is_other:
            return
        count = len(self.last.logs)
        if count < self.first.num_partitions:
            raise Violation("name", f"{self.last.name} has {count} partitions, not {self.first.num_partitions}")
        aliases = [record for record in world.log.truth.records.values() if record.is_alias]
        if self.last.name == NAME and (INTERIM in world.topics or aliases):
            raise Violation("name", "the interim topic or an alias is left")

    # People

    def replace(self) -> None:
        """The first request, until it is accepted; the second half is the controller's. It is for people only to say
        where the change is to end: they repeat that where it is not so."""
        self.look_again()
        if self.was_undone or self.last.topic_id != "id-1":
            self._say()
        elif not self.asked or self.world.random() < 0.2:
            pause = not self.world.calm and self.world.random() < 0.15
            result = self.command(replace(self.first, pause_before_switch=pause))
            self.asked = self.asked or (result is not None and result.code is ErrorCode.NONE)

    def look_again(self) -> None:
        record = self.world.first_record
        self.asked = record is not None and record.replacement is not None
        is_over = self.world.topics.get(NAME) is not self.world.by_id["id-1"] and self.last.topic_id == "id-1"
        self.was_undone |= is_over

    def _say(self) -> None:
        """Repeat where the change is to end, where its record says otherwise."""
        first, world = self.world.first_record, self.world
        now = first.replacement if first is not None else None
        if first is None or now is None or self.last.name != INTERIM:
            return
        back = replace(self.first, topic=INTERIM, new_topic=NAME)
        second = world.log.truth.records.get(self.last.topic_id)
        leads_back = second is not None and second.replacement is not None and second.replacement.undone_ms is None
        if not first.is_alias:
            if now.keep_name is not self.wish:
                self.command(replace(self.first, keep_name=self.wish))
        elif self.wish and not now.keep_name and not leads_back:
            self.command(back)
        elif not self.wish and (now.keep_name or leads_back):
            self.command(replace(back, undo=True))

    def stay(self) -> None:
        """The owner changes their mind: it stays on the interim topic, or does not."""
        if self.last.topic_id != "id-1" and self.last.name == INTERIM:
            self.wish = not self.wish
            self.world.hit("stays" if not self.wish else "keeps its name after all")
            self._say()

    def undo(self) -> None:
        if self.asked and self.last.topic_id == "id-1":
            result = self.command(replace(self.first, undo=True))
            if result is not None and result.code is ErrorCode.NONE:
                self.world.hit("undone")

    def disturb(self) -> None:
        """Somebody changes the interim topic, or its name's alias, as if it were any other."""
        first = self.world.first_record
        if first is None or not first.is_first_half or INTERIM not in self.world.topics:
            return
        commands = (
            DeletePartitionsCommand(INTERIM, 1, 0),
            ReplaceTopicCommand(INTERIM, THIRD, 1),
            ReplaceTopicCommand(NAME, INTERIM, 1, forget=True),
        )
        self._is_refused(self.command(commands[self.world.below(len(commands))]))

    def _is_refused(self, result: CommandResult | None) -> None:
        if result is None or result.code is not ErrorCode.NONE:
            return
        first = self.world.first_record
        if first is not None and first.is_first_half:
            raise Violation("name", f"the interim topic is changed by another command: {result}")
        self.is_other = True  # it was admitted after the owner had changed their mind

    def go_away(self) -> None:
        """Somebody copies the records of a topic that has come up under the name, or is left of a second half that was
        taken back, and deletes it; markers count."""
        topic, records = self.world.topics.get(NAME), self.world.log.truth.records.values()
        if topic is None or topic.topic_id in {"id-1", *(record.replacing.new_topic_id for record in records)}:
            return
        if any(log.records for log in topic.logs):
            self.world.delete(NAME)

    def create_automatically(self) -> None:
        """Brokers create the topic of the name for a client that asks for it: often nothing is written to it."""
        first = self.world.first_record
        if first is not None and first.is_alias and NAME not in self.world.topics:
            made = self.world.make(NAME, 1 + self.world.below(3))
            self.world.hit("created automatically")
            if self.world.random() < 0.3:
                self._write(made)

    def _write(self, topic: Topic) -> None:
        producer = self.world.producers[2]
        producer.named = topic.name
        producer.hand_over_some(5)
        producer.flush()


OTHER_CHAINS = ("come_up", "replace_other", "forget", "undo", "go_away")
"""Events of chains that this change has in another form, or not."""


def _own(events: Iterable[Weighted]) -> Iterator[Weighted]:
    """Yield the events of any chain, as this class has them."""
    for event, weight in events:
        if event.__name__ not in OTHER_CHAINS:
            yield getattr(KeptNameActions, event.__name__), weight


KeptNameActions.always = tuple(_own(ChainActions.always))
KeptNameActions.sometimes = (
    *_own(ChainActions.sometimes),
    (KeptNameActions.undo, 0.1),
    (KeptNameActions.stay, 0.2),
    (KeptNameActions.disturb, 1.5),
    (KeptNameActions.create_automatically, 1.5),
    (KeptNameActions.go_away, 1.0),
)
