"""Requests that each partition's leader has to answer, and how a leader is found that has just moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from modeaware.cluster.answers import refusal
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.messages import MetadataRequest

ATTEMPTS = 2
_MOVED = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,  # NOT_LEADER_OR_FOLLOWER by now
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
_Route = tuple[int, int]
Build = Callable[[Mapping[int, int]], Any]
"""The request for some partitions of one leader: partition -> the leader epoch it is thought to lead under."""


class _Answered(NamedTuple):
    entry: Any
    """The partition's entry in the response, or a ClusterError."""
    by: _Route | None
    moved: bool


class LeaderRequests:
    """Asks the leaders of one topic's partitions.

    Who leads is asked for when it is first needed and kept for the requests that follow. Where a broker says that the
    leader is another one, or does not answer, it is asked for anew, and the partition's new leader once more.
    """

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._routes: dict[int, _Route] | None = None
        self._refusal: ClusterError | None = None

    def ask(
        self, partitions: Iterable[int], what: str, build: Build, only_under: Mapping[int, int] | None = None
    ) -> dict[int, Any]:
        """Each partition's entry of its leader's response (error code 0), or a :class:`ClusterError`.

        Args:
            what: what is asked for, as it follows "cannot" in errors.
            only_under: partition -> the leader epoch that alone will do; where another one is known nothing is sent.

        Raises:
            ClusterError: no broker says who leads.
        """
        wanted = sorted(set(partitions))
        routes = self._routes if self._routes is not None else self._find()
        answered = self._round(wanted, routes, what, build, only_under)
        for _ in range(1, ATTEMPTS):
            failed = {p: each for p, each in answered.items() if isinstance(each.entry, ClusterError)}
            if not any(each.moved or each.entry.code is ErrorCode.REQUEST_TIMED_OUT for each in failed.values()):
                break
            routes = self._find()
            again = [p for p, each in failed.items() if p in routes and (each.moved or each.by != routes[p])]
            answered |= self._round(again, routes, what, build, only_under)
        return {p: each.entry for p, each in answered.items()}

    def _round(
        self,
        partitions: Iterable[int],
        routes: Mapping[int, _Route],
        what: str,
        build: Build,
        only_under: Mapping[int, int] | None,
    ) -> dict[int, _Answered]:
        found: dict[int, _Answered] = {}
        led: dict[int, dict[int, int]] = {}
        for partition in partitions:
            if partition in routes:
                node, epoch = routes[partition]
                if only_under is not None and epoch != only_under.get(partition):
                    found[partition] = _Answered(self._other_epoch(what, partition, epoch), routes[partition], True)
                else:
                    led.setdefault(node, {})[partition] = epoch
            else:
                error = self._refusal or self._error(what, partition, KafkaError.LEADER_NOT_AVAILABLE)
                found[partition] = _Answered(error, None, self._refusal is None)
        asks = [Ask(node, build(some)) for node, some in sorted(led.items())]
        for ask, answer in zip(asks, self._brokers.ask_each(asks), strict=True):
            entries = {}
            if not isinstance(answer, ClusterError):
                entries = {entry.partition_index: entry for topic in answer.topics for entry in topic.partitions}
            for partition in led[ask.node_id]:
                entry = answer if isinstance(answer, ClusterError) else entries.get(partition)
                found[partition] = self._read(what, partition, routes[partition], entry)
        return found

    def _read(self, what: str, partition: int, by: _Route, entry: Any) -> _Answered:
        name = f"{self._topic}-{partition}"
        if isinstance(entry, ClusterError):
            text = f"cannot {what} {name}: {entry}"
            return _Answered(ClusterError(text, code=entry.code, topic=self._topic, partition=partition), by, False)
        if entry is None:
            return _Answered(ClusterError(f"cannot {what} {name}: broker {by[0]} left it out of its answer"), by, False)
        if entry.error_code:
            return _Answered(self._error(what, partition, entry.error_code), by, entry.error_code in _MOVED)
        return _Answered(entry, by, False)

    def _other_epoch(self, what: str, partition: int, epoch: int) -> ClusterError:
        return ClusterError(
            f"put off: {what} {self._topic}-{partition}: led under epoch {epoch}, and was looked at under another",
            topic=self._topic,
            partition=partition,
        )

    def _error(self, what: str, partition: int, number: int) -> ClusterError:
        return refusal(f"{what} {self._topic}-{partition}", number, topic=self._topic, partition=partition)

    def _find(self) -> dict[int, _Route]:
        named = MetadataRequest.MetadataRequestTopic(name=self._topic)
        answer = self._brokers.ask(MetadataRequest(topics=[named], allow_auto_topic_creation=False, min_version=7))
        (topic,) = answer.topics
        self._refusal = None
        if topic.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
            self._refusal = refusal(f"find the leaders of topic {self._topic!r}", topic.error_code, topic=self._topic)
        self._routes = {
            p.partition_index: (int(p.leader_id), int(p.leader_epoch)) for p in topic.partitions if p.leader_id >= 0
        }
        return self._routes
