"""Loops that read a topic and write another one in transactions, while both topics are replaced: each record is written
once, and each key in its order."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.group import settings_of
from tests.support.plain import drain_topic
from tests.workload.journal import Kind
from tests.workload.load import Load
from tests.workload.reader import WAIT_S, Reader
from tests.workload.record import Identity, key_bytes, log_of, number_of, value_bytes
from tests.workload.writer import CALL_S, GIVE_UP_S, TransactionalWriter, insist

EACH = 50
"""The most records of a transaction; it also ends when no record comes."""
ABORTED_SHARE = 0.2
PER_S = 150.0

log = logging.getLogger("workload")


class Loop(Reader):
    """Writes what it reads to another topic, in transactions with its offsets. It notes what it has committed.

    After an abort it begins again at the group's offsets. A revocation ends its transaction.

    Args:
        make_producer: makes its transactional producer.
        to: the topic that it writes.
        by_position: it sends ``position(assignment())``; else the offsets behind the records that it was given.
        chance: decides which transactions it aborts on purpose.

    Attributes:
        ends: how its transactions ended.
    """

    def __init__(
        self,
        *args: Any,
        make_producer: Callable[[], Any],
        to: str,
        by_position: bool,
        chance: random.Random,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.ends: Counter[str] = Counter()
        self._make_producer, self._to, self._by_position, self._chance = make_producer, to, by_position, chance
        self._taken: list[tuple[int, str, int, int]] = []
        self._begins_again = False

    def subscribe(self) -> None:
        self._producer = self._make_producer()
        insist(lambda: self._producer.init_transactions(CALL_S), GIVE_UP_S, retriable_only=True)
        self.consumer.subscribe(self.topics, on_revoke=self._revoked, on_lost=self._lost)

    def turn(self) -> None:
        message = self.consumer.poll(WAIT_S)
        self.held = frozenset((each.topic, each.partition) for each in self.consumer.assignment())
        if self._begins_again:
            self._begin_again()  # the message comes again, too
            return
        self.take([] if message is None else [message])
        if self._taken and (message is None or len(self._taken) >= EACH):
            self._end()

    def given(self, number: int, topic: str, partition: int, offset: int) -> None:
        if not self._taken:
            self._producer.begin_transaction()
        self._taken.append((number, topic, partition, offset))
        self._producer.produce(self._to, value_bytes(number), key_bytes(Identity.of(number).key))
        self._producer.poll(0)

    def close(self, consumer: Any) -> None:
        if self._taken:
            self._commit()
        super().close(consumer)
        self._producer.close()

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        if self._taken:
            self._end()

    def _lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        if self._taken:
            self._abort("lost")

    def _end(self) -> None:
        if self._chance.random() < ABORTED_SHARE:
            self._abort("aborted")
        else:
            self._commit()

    def _commit(self) -> None:
        metadata = self.consumer.consumer_group_metadata()
        try:
            offsets = self._offsets()
            self._producer.send_offsets_to_transaction(offsets, metadata, CALL_S)
            insist(lambda: self._producer.commit_transaction(CALL_S), GIVE_UP_S, retriable_only=True)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            log.warning("the transaction is aborted: %s", error)
            self._abort("failed")
            return
        self.ends["committed"] += 1
        for number, topic, partition, offset in self._taken:
            self.sink.note(Kind.READ, number, log_of(topic, partition), offset)
            self.pace.event()
        self.sink.flush()
        self._taken.clear()

    def _offsets(self) -> list[TopicPartition]:
        if self._by_position:
            positions: list[TopicPartition] = self.consumer.position(self.consumer.assignment())
            return positions
        behind = {(topic, partition): offset + 1 for _, topic, partition, offset in self._taken}
        return [TopicPartition(*key, offset) for key, offset in behind.items()]

    def _abort(self, why: str) -> None:
        self._producer.flush(CALL_S)  # an abort before brokers know the transaction is fatal (librdkafka#4849)
        insist(lambda: self._producer.abort_transaction(CALL_S), GIVE_UP_S, retriable_only=True)
        self.ends[why] += 1
        self._taken.clear()
        self._begins_again = True

    def _begin_again(self) -> None:
        self._begins_again = False
        for each in self.consumer.committed(self.consumer.assignment(), CALL_S):
            place = TopicPartition(each.topic, each.partition, each.offset if each.offset >= 0 else OFFSET_BEGINNING)
            insist(partial(self.consumer.seek, place), GIVE_UP_S)


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky", "consumer"])
@pytest.mark.parametrize("by_position", [False, True], ids=["offsets", "positions"])
def test_each_record_is_written_once_while_source_and_sink_are_replaced(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], by_position: bool, strategy: str | None
) -> None:
    source, sink, group, numbers, load = make_topic(12), make_topic(12), make_group(), count(1), Load()
    aware = {**served.conf, "modeaware.mode.log.topic": served.log}
    reading = {
        **aware,
        **settings_of(strategy),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }

    def transactional() -> Any:
        return modeaware.Producer({**aware, "transactional.id": f"{group}-{next(numbers)}", "linger.ms": 2})

    def loop() -> Loop:
        made = load.reader(
            lambda: modeaware.Consumer(reading), [source], kind=Loop, make_producer=transactional, to=sink,
            by_position=by_position, chance=random.Random(len(load.readers)),
        )  # fmt: skip
        assert isinstance(made, Loop)
        return made

    def replace(topic: str) -> None:
        assert served.ask(ReplaceTopicCommand(topic, f"{topic}-v2", 4)).code is ErrorCode.NONE

    load.writer(lambda: modeaware.Producer({**aware, "linger.ms": 2}), source, per_s=PER_S)
    load.writer(transactional, source, TransactionalWriter, per_s=PER_S)
    loops = [loop()]
    with load.running():
        load.more()
        replace(source)
        loops.append(loop())
        with loops[-1]:  # joins the group, and leaves it
            load.await_given(f"{source}-v2")
            load.more()
        replace(sink)
        served.wait_for(sink, lambda record: record.replacement and record.replacement.switched_ms)
        load.more()
        served.wait_done(source)
    load.check(
        servers=served.servers, chain={source: 12, f"{source}-v2": 4}, seals=served.seals(source),
        refused=["MSG_SIZE_TOO_LARGE"],
    )  # fmt: skip
    assert all(each.ends["committed"] for each in loops), [each.ends for each in loops]
    assert loops[0].ends["aborted"], loops[0].ends
    logs = [drain_topic(served.servers, topic) for topic in (sink, f"{sink}-v2")]
    assert all(logs)
    written = [number_of(message.value(), message.key()) for each in logs for message in each]
    assert Counter(written) == Counter(each.number for each in load.ledger.committed())
    last: dict[tuple[int, int], int] = {}
    for run, key, sequence in map(Identity.of, written):
        assert sequence > last.get((run, key), -1), Identity(run, key, sequence)
        last[run, key] = sequence
