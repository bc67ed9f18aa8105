"""A topic of a run that is replaced again and again, each old topic deleted, while the nemesis is at work.

Its writers and its group work under the topic's first name in this process: exactly what each was told and given is
known, so nothing has to be read back from topics that are gone. The nemesis harms the brokers and the controllers; the
group's members are restarted now and then.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as PlainProducer
from confluent_kafka.admin import AdminClient

import modeaware
from modeaware.errors import ModeAwareError
from modeaware.topic_view import ReplacedBy
from tests.chaos.chronicle import Chronicle
from tests.chaos.plain import create_topic
from tests.chaos.setting import IDEMPOTENT, PARTITIONS, Setting
from tests.chaos.tasks import Task, outcome, until
from tests.chaos.watch import Watch
from tests.support.background import Background
from tests.workload.evidence import OPEN_END, Evidence, Fault
from tests.workload.journal import Sink
from tests.workload.judge import judge
from tests.workload.load import Load
from tests.workload.reader import Reader
from tests.workload.writer import CALL_S, LONG_S, TransactionalWriter, Writer, insist

log = logging.getLogger("chains")
TRANSACTIONAL = "transactional"

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
CLOSED_S = 75.0
"""librdkafka commits a last time: for as long as a session at most (45 s), once its requests have timed out."""
REFUSED = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
"""What stock producers are told of a topic that is fenced, or gone."""
AWARE = {**IDEMPOTENT, "modeaware.on.resize": "ignore"}


class RenewedWriter(TransactionalWriter):
    """Becomes another incarnation where a transaction fails.

    Not by abort_transaction(): librdkafka lacks KIP-890, so a request to end this transaction that arrives late can end
    a part of the next one (librdkafka#5423). A new incarnation fences it.

    Args:
        more: what the next incarnation notes into, and its run.
    """

    def __init__(self, *args: Any, more: Callable[[], tuple[Sink, int]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._more = more
        self.renewed = 0

    def turn(self, count: int) -> None:
        try:
            super().turn(count)
        except KafkaException as error:
            self._begin_anew(error)

    def failed(self, error: KafkaException) -> None:
        self._begin_anew(error)

    def finish(self) -> None:
        try:
            super().finish()
        except KafkaException as error:
            self._begin_anew(error)
            super().finish()

    def _begin_anew(self, why: object) -> None:
        log.warning("another incarnation: %s", why)
        self.renewed += 1
        self.producer = self.make()
        self.sink, self.incarnation = self._more()
        self.sequence = 0
        self.begin()


class MovedWriter(Writer):
    """A stock writer: once records are refused its owner makes a new producer, for the topic that is written now.

    Args:
        newest: the topic that is written now.
    """

    def __init__(self, *args: Any, newest: Callable[[], str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._newest = newest
        self._refused = False

    def turn(self, count: int) -> None:
        if self._refused and self.topic != (newest := self._newest()):
            while self.producer.flush(CALL_S):
                pass  # each record is acknowledged or refused in the end, at its delivery timeout at the latest
            self.producer, self.topic, self._refused = self.make(), newest, False
        super().turn(count)

    def refused(self, number: int, code: int, why: str) -> None:
        self._refused |= code in REFUSED
        super().refused(number, code, why)


class Closing(Background):
    """Closes a consumer."""

    def __init__(self, consumer: Any) -> None:
        super().__init__()
        self._consumer = consumer

    def work(self) -> None:
        self._consumer.close()


class ChainMember(Reader):
    """A member of a chain's group.

    librdkafka (at least up to 2.16) may never return from closing a consumer to which partitions were assigned whose
    topic was deleted before their committed offsets had arrived (librdkafka#4674): stock consumers hang in the same
    way. As in an application whose process is killed then, another consumer takes the place, and the group has to go
    on. A close that hangs in modeaware's own code, or in a callback, fails the run.
    """

    def __init__(self, *args: Any, chronicle: Chronicle, **options: Any) -> None:
        super().__init__(*args, **options)
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
        self._chronicle.note("not-closed", topic=self.topics[0])


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
        load = Load(self._name)
        transactional = self._add_writers(load)
        for number in range(MEMBERS):
            chance = random.Random(f"{self._setting.seed}-{self._name}-{number}")
            options: dict[str, Any] = {"chronicle": self.chronicle, "stays_s": partial(chance.uniform, *STAYS_S)}
            load.reader(self._consumer, [self._first], kind=ChainMember, batch=1_000, **options)
        with closing(self._admin), ExitStack() as stack:
            for each in (*load.readers, *load.writers):
                stack.enter_context(each)
            while not self.done.wait(self._chance.uniform(*REST_S)):
                undo = bool(self._deleted) and self._chance.random() < UNDONE_SHARE
                self._undo() if undo else self._replace()
            for writer in load.writers:
                writer.stop()
            until(lambda: not load.ledger.unread()[self._name], READ_S, 1.0)
        self._note_end(load, transactional)

    def _add_writers(self, load: Load) -> RenewedWriter:
        """Add one of each kind; the transactional one."""
        conf = {**self._setting.conf, "acks": "all", "linger.ms": 5}
        first = self._first
        options: dict[str, Any] = {"keys": KEYS, "per_s": PER_S, "batch": True, "catch_up_s": LONG_S}
        settings = {"transactional.id": first, "transaction.timeout.ms": 15_000}
        load.writer(lambda: modeaware.Producer({**conf, **AWARE}), first, **options)
        sink, run = load.sink(TRANSACTIONAL, transactional=True)
        transactional = RenewedWriter(
            lambda: modeaware.Producer({**conf, **AWARE, **settings}),
            first,
            sink,
            run,
            more=lambda: load.sink(TRANSACTIONAL, transactional=True),
            **options,
        )
        load.writers.append(transactional)
        # A stock writer that is not idempotent may double records, and reorder them, by itself.
        sink, run = load.sink("plain", once=False, in_order=False)
        moved = MovedWriter(lambda: PlainProducer(conf), first, sink, run, newest=lambda: self._topic, **options)
        load.writers.append(moved)
        return transactional

    def _consumer(self) -> Any:
        settings = {"group.id": self._first, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        return modeaware.Consumer({**self._setting.conf, "auto.commit.interval.ms": 1_000, **settings, **self._group})

    def _replace(self) -> None:
        old, wanted = self._topic, self._wanted()
        began_ms = self._setting.now_ms()
        self._request(wanted, lambda found: found is not None and found.switched)
        self._topic = wanted.new_topic
        gone = until(lambda: old not in self._listed(), DELETED_S)
        self._deleted += [old] * gone
        event, took_s = "replaced" if gone else "not-deleted", (self._setting.now_ms() - began_ms) / 1000
        self.chronicle.note(event, topic=old, to=wanted.new_topic, count=wanted.num_partitions, took_s=took_s)

    def _undo(self) -> None:
        wanted = self._wanted()
        self._request(wanted, lambda found: found is not None, pause_before_switch=True)
        self.done.wait(self._chance.uniform(*PAUSED_S))
        self._request(wanted, lambda found: found is None, undo=True)
        self.chronicle.note("replacement-undone", topic=self._topic, to=wanted.new_topic)

    def _wanted(self) -> modeaware.TopicReplacement:
        self._attempts += 1
        count = self._chance.randint(*COUNTS)
        name = f"{self._first}-v{self._attempts}"
        return modeaware.TopicReplacement(name, num_partitions=count, delete_partitions_delay_ms=0)

    def _request(
        self, wanted: modeaware.TopicReplacement, done: Callable[[ReplacedBy | None], bool], **options: bool
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
            return until(lambda: done(self._new_topic(topic)), 5.0, POLL_S)

        while not until(attempt, INSIST_S):
            if calm:
                raise ModeAwareError(f"could not replace {topic} by {wanted.new_topic} in {INSIST_S:g} s: {options}")
            calm = self.done.is_set()

    def _new_topic(self, topic: str) -> ReplacedBy | None:
        return self._view(topic).replaced_by

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

    def _note_end(self, load: Load, transactional: RenewedWriter) -> None:
        """Judge: through replacements and deletions the group was given every acknowledged record, each key in order.

        Its members come and go, so it may read records again; and the transactional writer fails and begins anew.
        """
        faults = [
            Fault(0, OPEN_END, "reader-restart", self._name, self._name),
            *[Fault(0, OPEN_END, "failed-by-itself", TRANSACTIONAL)] * transactional.renewed,
        ]
        back = sorted(self._listed().intersection(self._deleted))
        verdict = judge(load.ledger, Evidence(faults=faults, back=back))
        self.chronicle.note(
            "chain",
            name=self._name,
            deleted=len(self._deleted),
            acknowledged=verdict.acknowledged,
            violations=dict(verdict.violations),
            examples=verdict.examples,
            refused=dict(sum((writer.failures for writer in load.writers), Counter())),
            duplicates=verdict.duplicates[self._name],
            errors=dict(sum((reader.errors for reader in load.readers), Counter())),
        )
