"""The search for a log's last record, among the records that readers of committed records receive.

Any number of markers and aborted records may follow that record. So a search reads the last offsets first. While it
finds no record, each step goes further back, and reads several times as many offsets as the step before. So the whole
search costs little more than its last step. A result is kept while the log's end stays. If the end has moved, a search
reads no offsets below an earlier end whose last record is known. (A producer that aborts repeatedly moves the end at
every pass.) All searches of a pass share a time limit, and the next pass continues unfinished searches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from modeaware.cluster.metadata import Partition
from modeaware.errors import ClusterError
from modeaware.librdkafka import RENEW_S, TO_THE_END, Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.lifecycle.facts import PartitionFacts

SEARCH_S = 1.0
"""How long all searches of one snapshot together may take."""
ANSWER_S = 2.0
LAST_READ, FURTHER = 64, 12
"""The number of offsets before the end that the first step reads, and the factor by which each further step grows."""
_SETTINGS = {
    "group.id": "modeaware-last-records",
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    **TO_THE_END,
    # The consumer fetches even between two passes. Only the last fetched record counts, so limit the fetched ones.
    "queued.min.messages": 1_000,
    "queued.max.messages.kbytes": 4_096,
}


class _Log(NamedTuple):
    """A log up to an end. With another topic id, end or leader epoch it counts as another log."""

    topic_id: str
    end_offset: int
    leader_epoch: int


@dataclass
class _Search:
    """A search that goes back to the offset ``bound`` at most. If it finds no record, the result is ``known``."""

    log: _Log
    bound: int
    known: int
    back: int = LAST_READ
    last: int | None = None

    @property
    def start(self) -> int:
        return max(self.bound, self.log.end_offset - self.back)


class LastRecords:
    """Searches logs for their last records. One thread owns it.

    Args:
        conf: librdkafka configuration.
    """

    def __init__(self, conf: Mapping[str, Any], monotonic_s: Callable[[], float]) -> None:
        self._conf = {**conf, **_SETTINGS}
        self._monotonic_s = monotonic_s
        self._searches: dict[Partition, _Search] = {}
        self._reading: dict[Partition, _Search] = {}  # assigned partition -> its search
        self._known: dict[Partition, tuple[_Log, int]] = {}
        self._consumer: Consumer | None = None
        self._heard_s = 0.0  # when the consumer last returned something, or was made

    def find(
        self,
        topic_ids: Mapping[str, str],
        logs: Mapping[Partition, PartitionFacts],
        known: Mapping[Partition, tuple[int, int]],
    ) -> dict[Partition, int]:
        """Return the offset behind the last record, for those of ``logs`` whose search is done.

        Args:
            topic_ids: topic -> id, for all topics of the pass. Searches in all other topics continue.
            logs: the logs to search, all in topics of the pass. Results for other logs of these topics are dropped.
            known: partition -> an earlier end of its log, and the offset behind the last record before that end.

        Raises:
            ClusterError: brokers reject the read.
        """
        if not topic_ids:
            return {}
        wanted = {k: _Log(topic_ids[k[0]], log.end_offset, log.leader_epoch) for k, log in logs.items()}

        def stays(key: Partition, log: _Log) -> bool:
            return key[0] not in topic_ids or wanted.get(key) == log

        self._known = {key: record for key, record in self._known.items() if stays(key, record[0])}
        for key in [key for key, search in self._searches.items() if not stays(key, search.log)]:
            del self._searches[key]
        for key, log in logs.items():
            if log.empty:
                self._known[key] = wanted[key], log.log_start
            elif key not in self._known and key not in self._searches:
                end, last = known.get(key, (log.log_start, log.log_start))
                self._searches[key] = _Search(wanted[key], max(log.log_start, end), last)
        try:
            self._read()
        except KafkaException as error:
            self.close()
            raise ClusterError(f"cannot read the last records: {error.args[0].str()}") from error
        if not self._searches:
            self.close()
        return {key: self._known[key][1] for key in logs if key in self._known}

    def close(self) -> None:
        """Close the consumer. Results are kept; unfinished searches begin again."""
        self._searches.clear()
        self._reading.clear()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            consumer.close()

    def _read(self) -> None:
        if not self._searches:
            return
        deadline_s = self._monotonic_s() + SEARCH_S
        consumer = self._consumer
        if consumer is None:
            consumer = self._consumer = Consumer(self._conf)
            self._heard_s = deadline_s
        # A search that begins again reads from its own start. The records for the earlier search do not apply to it.
        if gone := [key for key, search in self._reading.items() if self._searches.get(key) is not search]:
            consumer.incremental_unassign([TopicPartition(*key) for key in gone])
        if new := [key for key, search in self._searches.items() if self._reading.get(key) is not search]:
            consumer.incremental_assign([TopicPartition(*key, self._searches[key].start) for key in new])
        self._reading = dict(self._searches)
        while self._searches and self._monotonic_s() < deadline_s:
            sought: set[Partition] = set()
            for message in consumer.consume(500, timeout=0.1):
                self._heard_s = deadline_s
                topic, partition = message.topic(), message.partition()
                if topic is not None and partition is not None and (topic, partition) not in sought:
                    self._take((topic, partition), message, consumer, sought)
        if self._searches and deadline_s - self._heard_s >= RENEW_S:  # received only markers, or has no connection
            consumer.list_topics(next(iter(self._searches))[0], timeout=ANSWER_S)
            self._heard_s = deadline_s

    def _take(self, key: Partition, message: Message, consumer: Consumer, sought: set[Partition]) -> None:
        """Process a result of the consumer for a partition; after a seek (``sought``), drop older results."""
        offset, error, search = message.offset(), message.error(), self._searches.get(key)
        if search is None:
            return
        end = search.log.end_offset
        at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if at_end and (offset is None or offset < end):  # the leader's high watermark is still lower
            return
        if error is not None and not at_end:  # the log may have changed: the search begins again
            del self._searches[key]
        elif not at_end and offset is not None and offset < end:
            search.last = offset
        if key in self._searches and (at_end or (offset is not None and offset >= end - 1)):
            if search.last is None and search.start > search.bound:
                search.back *= FURTHER
                consumer.seek(TopicPartition(*key, search.start))
                sought.add(key)
                return
            self._known[key] = search.log, search.known if search.last is None else search.last + 1
            del self._searches[key]
        if key not in self._searches:
            del self._reading[key]
            consumer.incremental_unassign([TopicPartition(*key)])
