"""An application in this process: writers and groups of a topic, whatever becomes of it, and one ledger of them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.support.plain import drain_topic, watermarks
from tests.support.waiting import eventually
from tests.workload.evidence import Evidence, crc32_place, logs_of
from tests.workload.journal import Sink
from tests.workload.judge import judge
from tests.workload.ledger import ACKED, SIGHTED, Ledger
from tests.workload.reader import Reader
from tests.workload.record import log_of, number_of
from tests.workload.verdict import Verdict
from tests.workload.writer import Pace, Writer

WAIT_S = 90.0
MORE = 300


class Load:
    """Writers and readers, and what they noted.

    Args:
        groups: all of them are to read everything; each key in its order, unless ``ordered`` names others.
    """

    def __init__(self, *groups: str, ordered: Iterable[str] | None = None) -> None:
        names = groups or ("group",)
        self.ledger = Ledger(names, names if ordered is None else tuple(ordered))
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self._runs = 0

    def sink(self, name: str, **what: bool) -> tuple[Sink, int]:
        """What one more incarnation of a writer notes into, and its run."""
        self._runs += 1
        return self.ledger.writer(self._runs, name, **what), self._runs

    def writer(
        self,
        make: Callable[[], Any],
        topic: str,
        kind: Callable[..., Writer] = Writer,
        *,
        once: bool = True,
        **options: Any,
    ) -> Writer:
        """Make a writer; its context starts and stops it."""
        name = f"writer-{len(self.writers) + 1}"
        self.writers.append(kind(make, topic, *self.sink(name, once=once), **options))
        return self.writers[-1]

    def reader(
        self,
        make: Callable[[], Any],
        topics: Sequence[str],
        group: str = "",
        kind: Callable[..., Reader] = Reader,
        **options: Any,
    ) -> Reader:
        """Make a member of a group, the first one by default; its context starts and stops it."""
        group = group or self.ledger.groups[0]
        sink = self.ledger.reader(group, f"{group}-{len(self.readers) + 1}")
        self.readers.append(kind(make, topics, sink, **options))
        return self.readers[-1]

    @contextmanager
    def running(self) -> Iterator[None]:
        """All readers run, and all writers within; what was acknowledged is read before readers stop."""
        with ExitStack() as reading:
            for reader in self.readers:
                reading.enter_context(reader)
            with ExitStack() as writing:
                for writer in self.writers:
                    writing.enter_context(writer)
                yield
            self.await_read()

    def fine(self) -> bool:
        """True, or raise what a writer or a reader has failed with."""
        return all(each.fine() for each in (*self.writers, *self.readers))

    @property
    def paces(self) -> list[Pace]:
        """The paces of writers, then of readers."""
        return [*(each.pace for each in self.writers), *(each.pace for each in self.readers)]

    @property
    def stats(self) -> list[Any]:
        return [each.stats for each in self.readers]

    def more(self, count: int = MORE, group: str = "") -> None:
        """Wait until each group, or one of them, has read so many records more."""
        groups = [group] if group else self.ledger.groups
        goals = {each: self.ledger.distinct[each] + count for each in groups}

        def read() -> bool:
            return self.fine() and all(self.ledger.distinct[each] >= goal for each, goal in goals.items())

        eventually(read, WAIT_S)

    def await_read(self, *groups: str) -> None:
        """Wait until each of these groups, by default of all, has read what was acknowledged."""

        def read() -> bool:
            unread = self.ledger.unread(groups or None)
            assert self.fine()
            assert not any(unread.values()), (unread, self.stats)
            return True

        eventually(read, WAIT_S, interval_s=0.5)

    def await_given(self, topic: str, count: int = 1, group: str = "") -> None:
        """Wait until a group was given so many records of a topic."""

        def given() -> bool:
            assert self.fine()
            assert len(self.ledger.read_by(group or self.ledger.groups[0], topic)) >= count, self.stats
            return True

        eventually(given, WAIT_S, interval_s=0.2)

    def held(self, topic: str) -> list[int]:
        """The partitions of a topic that readers hold."""
        return [partition for reader in self.readers for name, partition in reader.held if name == topic]

    def await_held(self, topic: str, count: int) -> None:
        """Wait until readers hold ``count`` partitions of the topic, each once."""

        def held() -> bool:
            assert self.fine()
            assert sorted(self.held(topic)) == list(range(count)), [sorted(each.held) for each in self.readers]
            return True

        eventually(held, WAIT_S)

    def pause_ms(self, before: str, after: str) -> int:
        """How long the first group was given nothing between two topics, in ms."""
        last, first = (self.ledger.read_by(self.ledger.groups[0], topic).values() for topic in (before, after))
        return min(at_ms for at_ms, _ in first) - max(at_ms for _, at_ms in last)

    def given_of(self, *topics: str) -> bool:
        """Whether all records that groups were given are of these topics, and some of each."""
        return _same(self.ledger.logs_with(SIGHTED), topics)

    def acknowledged_in(self, *topics: str) -> bool:
        """Whether all records that were acknowledged lie in these topics, and some in each."""
        return _same(self.ledger.logs_with(ACKED), topics)

    def check(
        self,
        groups: Sequence[str] | None = None,
        *,
        servers: str = "",
        chain: Mapping[str, int] | None = None,
        place: Callable[[bytes, int], int] = crc32_place,
        seals: Mapping[str, Mapping[int, int]] | None = None,
        reused: Iterable[str] = (),
        refused: Iterable[str] = (),
    ) -> Verdict:
        """Judge once it is over.

        Args:
            groups: those that had to read everything; all by default.
            chain: the topics that are there -> their partition counts. Brokers at ``servers`` are asked what they hold.
            place: where keys are placed.
            seals: topic -> partition -> the seal.
            reused: names that more than one topic had.
            refused: errors with which records may be refused, by name.

        Raises:
            AssertionError: a promise was broken, or a record was refused.
        """
        self.fine()
        chain = chain or {}
        starts: dict[int, int] = {}
        for topic in chain:
            starts |= {log_of(topic, p): start for p, (start, _) in watermarks(servers, topic).items()}
            for message in drain_topic(servers, topic):
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.ledger.store(number_of(message.value(), message.key()), log_of(topic, partition), offset)
        by_log = {log_of(topic, p): seal for topic, each in (seals or {}).items() for p, seal in each.items()}
        logs = logs_of(reused, self.ledger.logs)
        evidence = Evidence(groups, starts, counts=chain, place=place, seals=by_log, reused=logs)
        verdict = judge(self.ledger, evidence)
        assert verdict.ok, verdict
        assert verdict.acknowledged > 0
        failures = [(error, count) for each in self.writers for error, count in each.failures.items()]
        assert not [each for each in failures if each[0] not in refused], failures
        assert not (errors := [each.errors for each in self.readers if each.errors]), errors
        return verdict


def _same(logs: Iterable[int], topics: Sequence[str]) -> bool:
    return {log >> 16 for log in logs} == {log_of(topic, 0) >> 16 for topic in topics}
