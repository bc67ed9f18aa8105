"""Repeated requests about topics that rarely change: responses are compared as bytes.

Decoding responses about thousands of topics takes tens of milliseconds; comparing them takes almost no time. Equal
bytes show that nothing has changed. If the bytes differ, the response is decoded, or a whole snapshot is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modeaware.cluster.metadata import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    Ids,
    Leader,
    Partition,
    list_offsets_request,
    metadata_request,
    topic_ids,
)
from modeaware.errors import ClusterError
from modeaware.wire.brokers import Ask, Brokers
from modeaware.wire.transport import CORRELATION_BYTES, Repeated

_CONTROLLER_ID_BYTES = 4


class IdsOfOneBroker:
    """Requests the ids of the same topics repeatedly, each time from one broker. The ids may be stale."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._names: tuple[str, ...] = ()
        self._request: Repeated | None = None
        self._cluster_id = b""
        self._compared: tuple[bytes, bytes] | None = None
        self._ids: Ids = {}

    def __call__(self, names: Sequence[str]) -> Ids:
        """Return the ids. If nothing has changed, this is the same object as before."""
        request = self._request
        if request is None or tuple(names) != self._names:
            request, self._names, self._compared = Repeated(metadata_request(names, 10, 10)), tuple(names), None
        self._request = None  # set again on success
        answer = self._brokers.ask(request)
        if self._compared is None or self._comparable(answer) != self._compared:
            response = request.decoded(answer)
            self._cluster_id = (response.cluster_id or "").encode()
            self._ids, self._compared = topic_ids(response), self._comparable(answer)
        self._request = request
        return self._ids

    def _comparable(self, answer: bytes) -> tuple[bytes, bytes]:
        """Return the bytes before and after the controller's id, without the id: it is that of a random broker."""
        if not self._cluster_id:
            return answer[CORRELATION_BYTES:], b""
        before, _, after = answer[CORRELATION_BYTES:].partition(self._cluster_id)
        return before, after[_CONTROLLER_ID_BYTES:]


class OffsetsWatch:
    """Checks whether log starts, log ends and leader epochs of partitions are unchanged."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._leaders: Mapping[Partition, Leader] = {}
        self._asks: list[Ask] = []
        self._compared: list[bytes] = []

    def unchanged(self, leaders: Mapping[Partition, Leader]) -> bool:
        """Return whether the last call was for the same partitions and leaders, and every leader's response is the same
        again. An error, or a leader that does not answer, counts as a change each time."""
        if not leaders:
            return True
        if leaders != self._leaders or not self._compared:
            self._leaders, self._asks, self._compared = dict(leaders), _requests(leaders), []
        before, self._compared = self._compared, []
        answers = self._brokers.ask_each(self._asks)
        if any(isinstance(answer, ClusterError) for answer in answers):
            return False
        compared = [answer[CORRELATION_BYTES:] for answer in answers]
        same = compared == before
        decoded = () if same else map(Repeated.decoded, (ask.request for ask in self._asks), answers)
        if not any(map(_has_error, decoded)):
            self._compared = compared
        return same


def _has_error(response: Any) -> bool:
    return any(partition.error_code for topic in response.topics for partition in topic.partitions)


def _requests(leaders: Mapping[Partition, Leader]) -> list[Ask]:
    led: dict[int, dict[str, dict[int, int]]] = {}
    for (topic, p), (node, epoch) in sorted(leaders.items()):
        led.setdefault(node, {}).setdefault(topic, {})[p] = epoch
    return [
        Ask(node, Repeated(list_offsets_request(topics, timestamp, READ_UNCOMMITTED)))
        for node, topics in sorted(led.items())
        for timestamp in (EARLIEST, LATEST)
    ]
