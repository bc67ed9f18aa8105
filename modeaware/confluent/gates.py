"""The gates of a confluent_kafka consumer: what :mod:`modeaware.clients.gates` needs of librdkafka.

No topic can be left out of a pattern here: librdkafka matches it (a part of the name), or a broker under KIP-848 (the
whole name), and neither expression has a "but not". So once a topic is let go, the topics that the pattern matches are
subscribed to by their names instead, and looked up as often as librdkafka would. Not only until the topic is gone:
librdkafka (2.16) looks up a topic whose partitions it had as long as the consumer lives, and would report every second
that the topic, which the pattern matches, does not exist. A consumer that begins when the topic is gone subscribes to
the pattern, unless that matches no topic, which librdkafka reports as an error.

All of it is for the polling thread.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients import gates
from modeaware.clients.gates import ANSWER_S, ASK_S, Committed
from modeaware.clients.starts import Key, Starts
from modeaware.config import ClientConfig
from modeaware.confluent.names import physical_topic
from modeaware.confluent.partitions import SINGLE_ANSWER_S, LibrdkafkaOffsets, key_of, parts_of
from modeaware.librdkafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Renewed,
    TopicPartition,
)
from modeaware.modelog.connection import connection_conf
from modeaware.views.source import Views

log = get_logger(__name__)

LONGEST_RETRY_S = 300.0
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


def _matches(pattern: str, topic: str, *, whole_names: bool) -> bool | None:
    """Whether a pattern matches: a broker's (RE2) a whole name, or librdkafka's (POSIX) a part of it; None: it is not
    Python's as well."""
    search, foreign = (re.fullmatch, r"\[:") if whole_names else (re.search, r"\[:|\\[dD]")
    try:
        return None if re.search(foreign, pattern) else search(pattern, topic) is not None
    except (re.error, FutureWarning):  # a set within a set; raised where warnings are errors
        return None


class Gates(gates.Gates):
    """The gates of one consumer.

    Args:
        stock: the client's own methods.
        is_polling: whether a call of ``poll`` or ``consume`` is under way, which may have taken records already.
        is_inside: whether a callback of librdkafka is.
        onlooker: whom to ask what the group has committed, and which topics there are; None: the client itself, which
            is not asked for the latter.
        whole_names, refresh_s, creates_topics: as :class:`~modeaware.confluent.ownership.GroupConf` has them.

    Attributes:
        listed: what is subscribed to by name in the place of patterns.
    """

    def __init__(
        self,
        stock: Any,
        group_id: str,
        auto_commit: bool,
        config: ClientConfig,
        views: Views,
        starts: Starts,
        is_polling: Callable[[], bool],
        now_s: Callable[[], float] = time.monotonic,
        is_inside: Callable[[], bool] = lambda: False,
        onlooker: Onlooker | None = None,
        *,
        whole_names: bool = False,
        refresh_s: float | None = None,
        creates_topics: bool = False,
    ) -> None:
        client = LibrdkafkaGroup(stock, group_id, is_polling, is_inside, onlooker)
        match = partial(_matches, whole_names=whole_names)
        super().__init__(client, group_id, auto_commit, config, views, starts, now_s, match=match)
        self._onlooker = onlooker
        self._refresh_s = refresh_s
        self._keeps_patterns = creates_topics
        self._all: frozenset[str] = frozenset()
        self._list_s: float | None = None
        self._retry_wait_s: float | None = None  # None: the last request was answered
        self._lists = False
        self._met: set[str] = set()  # topics that were replaced, and not gone, in this consumer's time
        self._as_is: set[str] = set()
        self.listed: frozenset[str] = frozenset()

    def topics(self, names: Iterable[str]) -> tuple[str, ...]:
        self.listed, self._lists = frozenset(), False
        views = self._views.views().items()
        self._met |= {topic for topic, view in views if view.successor is not None and not view.successor.gone}
        found = super().topics(names)
        if not self._lists:
            self._all, self._list_s, self._retry_wait_s = frozenset(), None, None
            self.close_unused()
        return found

    def _without(self, pattern: str, left_out: Collection[str]) -> list[str]:
        if not left_out or self._keeps_patterns:  # a deleted topic that is named would be created again
            return [pattern]
        is_harmless = self._met.isdisjoint(left_out)
        if is_harmless and (pattern in self._as_is or self._matches_successor(pattern, left_out)):
            return [pattern]
        topics = self._list()
        found = sorted(topic for topic in topics.difference(left_out) if self._match(pattern, topic))
        if is_harmless and found:
            self._as_is.add(pattern)
            return [pattern]
        self._lists = True
        if not topics:
            return [pattern]
        self.listed |= frozenset(found)
        return found

    def _absent(self, topics: Iterable[str]) -> set[str]:
        return super()._absent(topic for topic in topics if topic not in self.listed)

    def _matches_successor(self, pattern: str, left_out: Iterable[str]) -> bool:
        return any(self._match(pattern, each) for topic in left_out for each in self._read_topics(topic))

    def _list(self) -> frozenset[str]:
        """Return all topics, as they were when it was last time to look; empty: not known yet."""
        if self._onlooker is not None and (not self._all if self._list_s is None else self._now_s() >= self._list_s):
            self._take_list(self._onlooker.topics())
        return self._all

    def _take_list(self, topics: frozenset[str]) -> None:
        """Keep all topics; empty: the request was not answered, and is repeated after twice the wait of before."""
        if topics:
            self._all, self._retry_wait_s, wait_s = topics, None, self._refresh_s
        else:
            longest_s = LONGEST_RETRY_S if self._refresh_s is None else max(self._refresh_s, ASK_S)
            wait_s = ASK_S if self._retry_wait_s is None else min(2 * self._retry_wait_s, longest_s)
            self._retry_wait_s = wait_s
        self._list_s = None if wait_s is None else self._now_s() + wait_s
        self.close_unused()

    def due_s(self) -> float | None:
        return min((at for at in (super().due_s(), self._list_s) if at is not None), default=None)

    def look(self, mine: Collection[Key], held: Collection[Key]) -> None:
        super().look(mine, held)
        self.close_unused()

    def close_unused(self) -> None:
        """Close the onlooker where no gate needs it."""
        if super().due_s() is None and self._retry_wait_s is None:
            self.close()

    def close(self) -> None:
        """No gate is left. Idempotent."""
        if self._onlooker is not None:
            self._onlooker.close()

    def is_absence(self, message: Message) -> bool:
        """Return whether ``message`` is the event that a topic does not exist (any more) which the application does not
        read by its own choice: a hidden one, or one that its pattern matches."""
        error, topic = message.error(), physical_topic(message)
        if error is None or topic is None or error.code() not in _ABSENT:
            return False
        if topic not in self.listed and not self._is_hidden(topic):
            return False
        log.info("%s: %s: %s", self._group_id, topic, error.str())
        if topic in self.listed:
            self._list_s = self._now_s()
        return True

    def _is_hidden(self, topic: str) -> bool:
        return topic in self.shut and (topic in self.added or self._is_alias(topic))


class Onlooker:
    """A consumer that never joins the group, and is asked for what the group has committed.

    librdkafka keeps every partition that a consumer was asked about. Once the topic is deleted it queues an error for
    each of them every second, until the partition is assigned and given back: without end for one that other members
    read. So it is not the application's consumer that is asked, which also has to wait for the answer to a fetch first
    (``fetch.wait.max.ms``).
    """

    def __init__(self, conf: Mapping[str, Any], group_id: str) -> None:
        same = {"group.id": group_id, "isolation.level": conf.get("isolation.level", "read_committed")}
        settings = {**connection_conf(conf, "offsets"), **same, "enable.auto.commit": False}
        self._client = Renewed(Consumer, settings, lambda consumer: consumer.close())
        self._group_id = group_id
        self.set_sasl_credentials = self._client.set_sasl_credentials

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._client.ask(lambda consumer: consumer.committed(partitions, timeout=timeout))

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._client.ask(lambda consumer: consumer.offsets_for_times(partitions, timeout=timeout))

    def topics(self) -> frozenset[str]:
        """Return the names of all topics; empty: no answer."""
        try:
            found = self._client.ask(lambda consumer: consumer.list_topics(timeout=ANSWER_S)).topics
        except KafkaException as error:
            log.debug("%s: topics not known: %s", self._group_id, error)
            return frozenset()
        return frozenset(name for name, topic in found.items() if topic.error is None)

    def close(self) -> None:
        self._client.close()


class LibrdkafkaGroup:
    """:class:`~modeaware.clients.gates.GroupClient` by librdkafka."""

    def __init__(
        self,
        stock: Any,
        group_id: str,
        is_polling: Callable[[], bool],
        is_inside: Callable[[], bool],
        onlooker: Onlooker | None,
    ) -> None:
        self._stock = stock
        self._group_id = group_id
        self._is_polling = is_polling
        self._is_inside = is_inside
        self._missed: set[str] = set()
        self._asked = onlooker or stock
        self.offsets = LibrdkafkaOffsets(self._asked, group_id)

    def is_polling(self) -> bool:
        return self._is_polling()

    def positions(self, keys: Collection[Key]) -> dict[Key, int | None]:
        if not keys:
            return {}
        places = self._stock.position(parts_of(keys))
        return {key_of(p): p.offset if p.offset >= 0 else None for p in places}

    def committed(self, keys: Collection[Key], *, after_own: bool = False) -> dict[Key, Committed | None]:
        try:  # another client's request may overtake this one's commits
            answer = (self._stock if after_own else self._asked).committed(parts_of(keys), timeout=ANSWER_S)
        except KafkaException as error:
            log.debug("%s: committed offsets not known: %s", self._group_id, error)
            return {}
        found = {key_of(p): p for p in answer if p.error is None}
        return {key: Committed(p.offset, _metadata_of(p)) if p.offset >= 0 else None for key, p in found.items()}

    def log_starts(self, keys: Collection[Key]) -> dict[Key, int]:
        return self.offsets.log_starts_now(keys)

    def commit_delivered(self) -> None:
        self._commit()

    def commit(self, offsets: Mapping[Key, Committed]) -> None:
        self._commit(offsets=[TopicPartition(*key, *at) for key, at in offsets.items()])

    def _commit(self, **what: Any) -> None:
        try:
            self._stock.commit(**what, asynchronous=True)
        except KafkaException as error:
            log.debug("%s: nothing committed: %s", self._group_id, error)

    def have_topics(self, topics: Mapping[str, bool]) -> set[str]:
        found = {topic for topic, is_switched in topics.items() if is_switched}
        new = sorted(topics.keys() - found)
        there: list[str] = []
        deadline_s = time.monotonic() + ANSWER_S
        for topic in () if self._is_inside() else found & self._missed:
            # librdkafka keeps for minutes that its user may not see a topic, and would subscribe by that.
            if time.monotonic() < deadline_s:
                with suppress(KafkaException):
                    self._stock.list_topics(topic, timeout=ANSWER_S)
        for topic in random.sample(new, len(new)):  # the same ones must not always come first
            if time.monotonic() < deadline_s and self._has_topics(self._asked, [topic], SINGLE_ANSWER_S):
                there.append(topic)
        # The client itself subscribes by what it has learned. It is asked once, since its fetch is answered first.
        if there and not self._has_topics(self._stock, there, ANSWER_S):
            self._missed.update(there)
            return found
        return found.union(there)

    def _has_topics(self, client: Any, topics: Collection[str], timeout_s: float) -> bool:
        # Not by list_topics(): within a callback, it makes confluent_kafka abort at that poll's next callback.
        asked = [TopicPartition(topic, 0, OFFSET_END) for topic in topics]
        try:
            errors = [p.error for p in client.offsets_for_times(asked, timeout=timeout_s)]
        except KafkaException as failure:
            errors = [failure.args[0]]
        missing = [error for error in errors if error and error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED]
        if missing:
            log.debug("%s: %s: %s", self._group_id, sorted(topics), missing[0])
        return not missing


def _metadata_of(committed: TopicPartition) -> str:
    try:
        return committed.metadata or ""
    except UnicodeDecodeError:
        # confluent_kafka reads on behind metadata that another client has not ended with a zero byte.
        return "not readable"
