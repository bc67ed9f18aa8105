"""The search for the last record of a log, over several looks, by a consumer that is scripted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from modeaware.cluster import last_records
from modeaware.cluster.last_records import LAST_READ, LastRecords
from modeaware.errors import ClusterError
from modeaware.librdkafka import RENEW_S, KafkaError, KafkaException, TopicPartition
from modeaware.lifecycle.facts import PartitionFacts

TOPIC, OTHER, ID = "orders", "other", "id"
LOG = PartitionFacts(0, 100_000, 100_000, 3, 0)
EOF = KafkaError(KafkaError._PARTITION_EOF)


class Told:
    """A message, or the end of a partition, or an error of it."""

    def __init__(self, topic: str, offset: int, error: KafkaError | None = None) -> None:
        self._topic, self._offset, self._error = topic, offset, error

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Scripted:
    """A consumer; ``script`` is what each call of ``consume`` returns, of all of them."""

    made: list[Scripted]
    script: list[list[Told] | KafkaException]

    def __init__(self, conf: dict[str, Any]) -> None:
        self.starts: list[int] = []
        self.held: dict[str, TopicPartition] = {}
        self.closed, self.asked, self.forgets = False, 0, not self.made
        self.made.append(self)

    def assignment(self) -> list[TopicPartition]:
        return list(self.held.values())

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self.seek(each)
            self.held[each.topic] = each

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            del self.held[each.topic]

    def seek(self, partition: TopicPartition) -> None:
        self.starts.append(partition.offset)

    def consume(self, count: int, timeout: float) -> list[Told]:
        found = self.script.pop(0)
        if isinstance(found, KafkaException):
            raise found
        return found

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked += 1
        if self.forgets:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    Scripted.made, Scripted.script = [], []
    monkeypatch.setattr(last_records, "Consumer", Scripted)
    return Scripted


@pytest.fixture
def search() -> LastRecords:
    now_s = iter(range(100_000))
    return LastRecords({}, lambda: next(now_s) * 0.6)  # a look takes one call of consume


def test_a_search_goes_on_with_the_next_look_and_further_back(scripted: type[Scripted], search: LastRecords) -> None:
    logs = {(TOPIC, 0): LOG}
    scripted.script = [[], [Told(TOPIC, 100_000, EOF)], [Told(TOPIC, 99_500), Told(TOPIC, 100_000, EOF)]]
    assert search.find({TOPIC: ID}, logs, {}) == {}
    assert search.find({}, {}, {}) == {}, "a look at new topics alone"
    assert search.find({TOPIC: ID}, logs, {}) == {}
    assert search.find({TOPIC: ID}, logs, {}) == {(TOPIC, 0): 99_501}
    (consumer,) = scripted.made
    assert consumer.starts == [100_000 - LAST_READ, 100_000 - 12 * LAST_READ]
    assert consumer.closed
    assert search.find({TOPIC: ID}, logs, {}) == {(TOPIC, 0): 99_501}, "without another look at the log"


def test_what_came_before_a_seek_counts_for_nothing(scripted: type[Scripted], search: LastRecords) -> None:
    end = Told(TOPIC, 100_000, EOF)
    scripted.script = [[end, end], [end], [Told(TOPIC, 7), end]]
    small = {(TOPIC, 0): replace(LOG, log_start=5)}
    for _ in range(3):
        found = search.find({TOPIC: ID}, small, {})
    assert found == {(TOPIC, 0): 8}
    assert scripted.made[0].starts == [100_000 - LAST_READ, 100_000 - 12 * LAST_READ, 100_000 - 144 * LAST_READ]


def test_a_log_without_a_record_ends_where_it_starts(scripted: type[Scripted], search: LastRecords) -> None:
    short = replace(LOG, log_start=100_000 - 10)
    scripted.script = [[Told(TOPIC, 100_000, EOF)]]
    found = search.find({TOPIC: ID, OTHER: ID}, {(TOPIC, 0): short, (OTHER, 0): replace(LOG, log_start=100_000)}, {})
    assert found == {(TOPIC, 0): short.log_start, (OTHER, 0): 100_000}


def test_another_log_is_searched_anew_and_other_topics_go_on(scripted: type[Scripted], search: LastRecords) -> None:
    scripted.script = [[Told(TOPIC, 99_999)], [], [Told(TOPIC, 99_990), Told(TOPIC, 100_000, EOF)]]
    assert search.find({TOPIC: ID}, {(TOPIC, 0): LOG}, {}) == {(TOPIC, 0): 100_000}
    assert search.find({OTHER: ID}, {(OTHER, 0): LOG}, {}) == {}
    assert search.find({TOPIC: ID}, {(TOPIC, 0): replace(LOG, leader_epoch=4)}, {}) == {(TOPIC, 0): 99_991}
    assert not scripted.made[-1].closed, "of the other topic it still reads"


def test_a_search_of_a_log_that_has_grown_reads_again_what_the_one_before_it_has_read(
    scripted: type[Scripted], search: LastRecords
) -> None:
    short, more = replace(LOG, end_offset=20), replace(LOG, end_offset=21)
    scripted.script = [[Told(TOPIC, 7)], [Told(TOPIC, 7), Told(TOPIC, 20, EOF)], [Told(TOPIC, 21, EOF)]]
    assert search.find({TOPIC: ID}, {(TOPIC, 0): short}, {}) == {}
    assert search.find({TOPIC: ID}, {(TOPIC, 0): more}, {}) == {}, "the end that another one reached is not this one's"
    assert scripted.made[0].starts == [0, 0]
    assert search.find({TOPIC: ID}, {(TOPIC, 0): more}, {}) == {(TOPIC, 0): 8}


@pytest.mark.parametrize(("told", "found"), [([], 98_000), ([Told(TOPIC, 99_910)], 99_911)])
def test_no_search_goes_back_behind_what_is_known(
    scripted: type[Scripted], search: LastRecords, told: list[Told], found: int
) -> None:
    end = Told(TOPIC, 100_000, EOF)
    scripted.script = [[end], [*told, end]]
    known = {(TOPIC, 0): (99_900, 98_000)}
    assert search.find({TOPIC: ID}, {(TOPIC, 0): LOG}, known) == {}
    assert search.find({TOPIC: ID}, {(TOPIC, 0): LOG}, known) == {(TOPIC, 0): found}
    assert scripted.made[0].starts == [100_000 - LAST_READ, 99_900]


def test_an_error_of_a_partition_begins_its_search_anew(scripted: type[Scripted], search: LastRecords) -> None:
    gone = Told(TOPIC, -1001, KafkaError(KafkaError._AUTO_OFFSET_RESET))
    scripted.script = [[gone], [Told(TOPIC, 99_999)]]
    assert search.find({TOPIC: ID}, {(TOPIC, 0): LOG}, {}) == {}
    assert search.find({TOPIC: ID}, {(TOPIC, 0): LOG}, {}) == {(TOPIC, 0): 100_000}


def test_a_failure_of_the_consumer_is_an_error_and_closes_it(scripted: type[Scripted], search: LastRecords) -> None:
    scripted.script = [KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))]
    with pytest.raises(ClusterError, match="cannot read the last records"):
        search.find({TOPIC: ID}, {(TOPIC, 0): LOG}, {})
    assert scripted.made[0].closed


def test_a_consumer_that_returns_nothing_for_long_and_reaches_no_broker_is_made_anew(
    scripted: type[Scripted], search: LastRecords
) -> None:
    def silent_looks() -> int:
        """How many looks return nothing until the consumer is asked whether it reaches a broker."""
        scripted.script = [[] for _ in range(100)]
        before = sum(each.asked for each in scripted.made)
        for number in range(100):
            assert search.find({TOPIC: ID}, {(TOPIC, 0): LOG}, {}) == {}, (
                "markers and aborted records, as many as there are"
            )
            if sum(each.asked for each in scripted.made) > before:
                return number
        raise AssertionError("it is never asked")

    with pytest.raises(ClusterError, match="cannot read the last records"):
        silent_looks()
    assert silent_looks() >= RENEW_S / 2
    scripted.script = [[Told(TOPIC, 99_999)]]
    assert search.find({TOPIC: ID}, {(TOPIC, 0): LOG}, {}) == {(TOPIC, 0): 100_000}
    assert [each.asked for each in scripted.made] == [1, 1]
