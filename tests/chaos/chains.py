"""A topic of a run that is replaced again and again, each predecessor deleted, while the nemesis is at work.

Its writers and its group work under the topic's first name in this process: exactly what each was told and given is
known, so nothing has to be read back from topics that are gone. The nemesis harms the brokers and the controllers; the
group's members are restarted now and then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as PlainProducer
from confluent_kafka.admin import AdminClient

import modeaware
from modeaware.errors import ModeAwareError
from modeaware.topic_view import Successor
from tests.chaos.chronicle import Chronicle
from tests.chaos.plain import create_topic
from tests.chaos.setting import IDEMPOTENT, PARTITIONS, Setting
from tests.chaos.tasks import Task, insist, outcome, until
from tests.chaos.watch import Watch
from tests.support.background import Background
from tests.support.numbered import Member, Reading, Writer

COUNTS = (2, 9)
KEYS, PER_S = 20, 60.0
"""Of each writer."""
MEMBERS = 2
STAYS_S = (15.0, 60.0)
UNDONE_SHARE = 0.2
PAUSED_S = (0.0, 3.0)
REST_S = (0.0, 1.0)
POLL_S = 0.1
REQUEST_S = 20.0
INSIST_S = 120.0
DELETED_S = 180.0
READ_S = 120.0
CALL_S = 15.0
GIVE_UP_S = 40.0
CLOSED_S = 75.0
"""librdkafka commits a last time: for as long as a session at most (45 s), once its requests have timed out."""
REFUSED = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
"""What stock producers are told of a topic that is fenced, or gone."""
AWARE = {**IDEMPOTENT, "modeaware.on.resize": "ignore"}


class TransactionalWriter(Writer):
    """Writes each round in a transaction. What was not committed, or is not known to be, is void."""

    def send(self, messages: list[dict[str, Any]]) -> None:
        """Write a round; by a new producer where the last one failed."""
        try:
            self.producer.begin_transaction()
            super().send(list(messages))
            insist(lambda: self.producer.commit_transaction(CALL_S), GIVE_UP_S, retriable_only=True)
        except KafkaException as error:
            self.give_up(messages, error.args[0].name())
            # Not by abort_transaction(): librdkafka lacks KIP-890, so a request to end this transaction that arrives
            # late can end a part of the next one (librdkafka#5423). A new incarnation fences it.
            self.producer = self.make()


class MovedWriter(Writer):
    """A stock writer: once records are refused its owner makes a new producer, for the topic that is written now.

    Args:
        newest: the topic that is written now.
    """

    def __init__(self, make: Callable[[], Any], newest: Callable[[], str], *args: Any) -> None:
        super().__init__(make, newest(), *args)
        self._newest = newest
        self._refused = False

    def send(self, messages: list[dict[str, Any]]) -> None:
        """Write a round."""
        if self._refused and self.topic != (newest := self._newest()):
            while self.producer.flush(CALL_S):
                pass  # each record is acknowledged or refused in the end, at its delivery timeout at the latest
            self.producer, self.topic, self._refused = self.make(), newest, False
        super().send(messages)

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        """A delivery report."""
        self._refused |= error is not None and error.code() in REFUSED
        super().delivered(error, message)


class Closing(Background):
    """Closes a consumer."""

    def __init__(self, consumer: Any) -> None:
        super().__init__()
        self._consumer = consumer

    def work(self) -> None:
        self._consumer.close()


class ChainMember(Member):
    """A member of a chain's group.

    librdkafka (at least up to 2.16) may never return from closing a consumer to which partitions were assigned whose
    topic was deleted before their committed offsets had arrived (librdkafka#4674): stock consumers hang in the same
    way. As in an application whose process is killed then, another consumer takes the place, and the group has to go
    on. A close that hangs in modeaware's own code, or in a callback, fails the run.
    """

    def __init__(self, chronicle: Chronicle, *args: Any) -> None:
        super().__init__(*args)
        self._chronicle = chronicle

    def close(self, consumer: Any) -> None:
        """Take a consumer out of the group."""
        under_way = Closing(consumer)
        under_way.start()
        under_way.join(CLOSED_S)
        stack = under_way.stack()
        if not stack:
            under_way.fine()
            return
        if (stack[-1].name, stack[-1].line) != ("close", "super().close()"):
            raise AssertionError(f"{consumer} does not close:\n{''.join(stack.format())}")
        self._chronicle.note("not-closed", topic=self._topic)


class Replacer(Task):
    """Replaces one topic after another, and waits each time until it is deleted. Of some the replacement is undone.

    Args:
        name: of the chain, unique in the run.
        group: what is special in the configuration of the group's members.
    """

    def __init__(self, setting: Setting, watch: Watch, name: str, group: Mapping[str, Any]) -> None:
        super().__init__(watch.chronicle, f"replacer-{name}")
        self._setting = setting
        self._view = watch.view_of
        self._name, self._group = name, group
        self._chance = random.Random(f"{setting.seed}-replacer-{name}")
        self._admin = modeaware.AdminClient(setting.conf)
        self._brokers = AdminClient(setting.conf)
        self._first = self._topic = f"{setting.topic}-chain-{name}"
        self._attempts = 1
        self._deleted: list[str] = []

    def work(self) -> None:
        create_topic(self._setting, self._first, PARTITIONS)
        reading, writers = Reading(), self._writers()
        with closing(self._admin), ExitStack() as stack:
            for number in range(MEMBERS):
                chance = random.Random(f"{self._setting.seed}-{self._name}-{number}")
                stays_s = partial(chance.uniform, *STAYS_S)
                stack.enter_context(ChainMember(self.chronicle, self._consumer, self._first, reading, stays_s))
            for writer in writers.values():
                stack.enter_context(writer)
            while not self.done.wait(self._chance.uniform(*REST_S)):
                undo = bool(self._deleted) and self._chance.random() < UNDONE_SHARE
                self._undo() if undo else self._replace()
            for writer in writers.values():
                writer.stop()
            until(lambda: not any(reading.unread(each.written) for each in writers.values()), READ_S)
        self._note_end(reading, writers)

    def _writers(self) -> dict[str, Writer]:
        conf = {**self._setting.conf, "acks": "all", "linger.ms": 5}

        def transactional() -> Any:
            settings = {"transactional.id": self._first, "transaction.timeout.ms": 15_000}
            producer = modeaware.Producer({**conf, **AWARE, **settings})
            insist(lambda: producer.init_transactions(CALL_S), INSIST_S, retriable_only=True)
            return producer

        first, load = self._first, (KEYS, PER_S)
        return {
            "idempotent": Writer(lambda: modeaware.Producer({**conf, **AWARE}), first, "idempotent", *load),
            "transactional": TransactionalWriter(transactional, first, "transactional", *load),
            "plain": MovedWriter(lambda: PlainProducer(conf), lambda: self._topic, "plain", *load),
        }

    def _consumer(self) -> Any:
        settings = {"group.id": self._first, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        return modeaware.Consumer({**self._setting.conf, "auto.commit.interval.ms": 1_000, **settings, **self._group})

    def _replace(self) -> None:
        old, wanted = self._topic, self._wanted()
        began_ms = self._setting.now_ms()
        self._request(wanted, lambda found: found is not None and found.switched)
        self._topic = wanted.successor
        gone = until(lambda: old not in self._listed(), DELETED_S)
        self._deleted += [old] * gone
        event, took_s = "replaced" if gone else "not-deleted", (self._setting.now_ms() - began_ms) / 1000
        self.chronicle.note(event, topic=old, to=wanted.successor, count=wanted.num_partitions, took_s=took_s)

    def _undo(self) -> None:
        wanted = self._wanted()
        self._request(wanted, lambda found: found is not None, pause_before_switch=True)
        self.done.wait(self._chance.uniform(*PAUSED_S))
        self._request(wanted, lambda found: found is None, undo=True)
        self.chronicle.note("replacement-undone", topic=self._topic, to=wanted.successor)

    def _wanted(self) -> modeaware.TopicReplacement:
        self._attempts += 1
        count = self._chance.randint(*COUNTS)
        name = f"{self._first}-v{self._attempts}"
        return modeaware.TopicReplacement(name, num_partitions=count, delete_partitions_delay_ms=0)

    def _request(
        self, wanted: modeaware.TopicReplacement, done: Callable[[Successor | None], bool], **options: bool
    ) -> None:
        """Request until the view shows that it is done, however long the nemesis keeps it up.

        Raises:
            ModeAwareError: not within :data:`INSIST_S` seconds once the nemesis has ended.
        """
        topic, calm = self._topic, False

        def attempt() -> bool:
            # Whether it was done all the same the view will tell; a refusal for what is under way goes away.
            asked = self._admin.replace_topics({topic: wanted}, **options, request_timeout=REQUEST_S)[topic]
            self.chronicle.note("command", what=f"replace {topic}", **options, answer=outcome(asked))
            return until(lambda: done(self._successor(topic)), 5.0, POLL_S)

        while not until(attempt, INSIST_S):
            if calm:
                raise ModeAwareError(f"could not replace {topic} by {wanted.successor} in {INSIST_S:g} s: {options}")
            calm = self.done.is_set()

    def _successor(self, topic: str) -> Successor | None:
        return self._view(topic).successor

    def _listed(self) -> set[str]:
        """Return the topics that the brokers have now."""
        listed: set[str] = set()

        def attempt() -> None:
            try:
                listed.update(self._brokers.list_topics(timeout=CALL_S).topics)
            except KafkaException:  # librdkafka may have forgotten every broker for good (librdkafka#5301)
                self._brokers = AdminClient(self._setting.conf)
                raise

        insist(attempt, INSIST_S)
        return listed

    def _note_end(self, reading: Reading, writers: Mapping[str, Writer]) -> None:
        self.chronicle.note(
            "chain",
            name=self._name,
            deleted=len(self._deleted),
            back=sorted(self._listed().intersection(self._deleted)),
            acknowledged={name: each.written.acknowledged for name, each in writers.items()},
            void={name: dict(+each.failures) for name, each in writers.items()},
            unread={
                name: [f"{key.decode()} {number}" for key, number in sorted(reading.unread(each.written))]
                for name, each in writers.items()
            },
            # A stock writer that is not idempotent may reorder records by itself.
            out_of_order={n: reading.out_of_order(each.written) for n, each in writers.items() if n != "plain"},
            skips={name: [str(jump) for jump in reading.skips(each.written)] for name, each in writers.items()},
            duplicates=reading.duplicates,
            errors=dict(reading.errors),
        )
