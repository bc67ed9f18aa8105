"""Histories for the judge of chaos runs, made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.chaos.history import Bounds, Chain, Contents, Fault, Gone, History, ReaderRun, Shrink, Transaction, WriterRun
from tests.chaos.journal import Entry, Kind
from tests.chaos.record import Identity
from tests.support.stories import Steps

GROUPS = ("a", "b")
KEYS = 3


def at(run: int, sequence: int) -> int:
    return Identity(run, sequence % KEYS, sequence).number


@dataclass
class Told:
    """A history in the making: one partition 0 unless said otherwise, every record read by both groups."""

    records: int = 6
    acks: list[Entry] = field(default_factory=list)
    reads: dict[str, list[Entry]] = field(default_factory=lambda: {group: [] for group in GROUPS})
    stored: list[Entry] = field(default_factory=list)
    more: dict[str, object] = field(default_factory=dict)
    writer: dict[str, object] = field(default_factory=dict)
    log_start: int = 0

    def __post_init__(self) -> None:
        for n in range(self.records):
            self.add(at(1, n), n)

    def add(self, number: int, offset: int, partition: int = 0, *, acked: bool = True) -> None:
        at_ms = 1_000 + 10 * offset
        if acked:
            self.acks.append((number, offset, at_ms, partition, Kind.ACKED))
        for group in GROUPS:
            self.read(group, number, offset, at_ms + 5, partition)
        self.stored.append((number, offset, 0, partition, Kind.STORED))

    def read(self, group: str, number: int, offset: int, at_ms: int, partition: int = 0) -> None:
        self.reads[group].append((number, offset, at_ms, partition, Kind.READ))

    def note(self, group: str, kind: Kind, at_ms: int = 0, since_ms: int = 0) -> None:
        self.reads[group].append((0, since_ms, at_ms, 0, kind))

    def unread_by(self, group: str, offset: int) -> None:
        self.reads[group] = [entry for entry in self.reads[group] if entry[1] != offset]

    def delete_below(self, offset: int) -> None:
        self.stored = [entry for entry in self.stored if entry[1] >= offset]
        self.log_start = offset

    def history(self) -> History:
        writer = WriterRun(1, "w", aware=True, acks=self.acks, bounds=[Bounds(0, 5, 5)])
        history = History(
            groups=GROUPS,
            writers=[replace(writer, **self.writer)],
            readers=[ReaderRun(f"{group}-1", group, entries) for group, entries in self.reads.items()],
            contents=Contents({0: self.log_start}, self.stored),
            writable={5: [0]},
        )
        return replace(history, **self.more)

    # What makes it a wrong history, or an unusual one

    def says(self, **more: object) -> None:
        """What the run has noted beside acknowledgements and reads."""
        self.more |= more

    def writer_says(self, **of_the_writer: object) -> None:
        self.writer |= of_the_writer

    def acknowledge(self, sequence: int, offset: int, at_ms: int) -> None:
        """One more record of the writer, which no log has."""
        self.acks.append((at(1, sequence), offset, at_ms, 0, Kind.ACKED))

    def acknowledge_instead(self, n: int, sequence: int, offset: int, at_ms: int) -> None:
        """The n-th acknowledgement is another one."""
        self.acks[n] = (at(1, sequence), offset, at_ms, 0, Kind.ACKED)

    def acknowledge_first(self, count: int) -> None:
        """No more than these are acknowledged."""
        self.acks = self.acks[:count]

    def lose(self, offset: int) -> None:
        """The log does not have it in the end."""
        self.stored = [entry for entry in self.stored if entry[1] != offset]

    def read_instead(self, group: str, sequence: int, offset: int, at_ms: int) -> None:
        """The last record that a group has read is another one."""
        self.reads[group][-1] = (at(1, sequence), offset, at_ms, 0, Kind.READ)

    def drop_before_the_last(self, group: str) -> None:
        self.reads[group].insert(-2, (0, 0, 0, 0, Kind.DROPPED))

    def read_again(self, at_ms: int) -> None:
        """Group a reads offset 3 again: some member's fault excuses that."""
        self.more["faults"] = [Fault(900, 2_000, "reader-kill", "a-1", "a")]
        self.note("a", Kind.TAKEN, 2_000)
        self.read("a", at(1, 3), 3, at_ms)

    def killed_with(self, *transactions: Transaction) -> None:
        self.writer["transactions"] = list(transactions)
        self.more["faults"] = [Fault(1_060, 1_070, "writer-kill", "w")]

    def chain(self, **ends: object) -> None:
        """Two chains of replaced topics, of which the second one ends like this."""
        well = Chain("range", 100, {"idempotent": [], "plain": []}, {"idempotent": 0}, [])
        self.more["chains"] = [well, well._replace(name="consumer", **ends)]


do = Steps()
READ_WHILE_NONE = (do.says(gone=[Gone(1_040, 0, 4, "None", 60_000)]), do.read_again(59_999))
NOT_DELETED = do.says(
    shrinks=[
        Shrink(2_000, 4, {0: 6, 1: 9}, {0: 6, 1: 8}, {0: 6, 1: 7}, {1: 0}),  # 1 starts below a commit
        Shrink(3_000, 4, {0: 6}, {0: 5}, {0: 5}, {0: 1}),  # and here a record is left
    ]
)
