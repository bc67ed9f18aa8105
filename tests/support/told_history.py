"""Histories for the judge of chaos runs, made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.chaos.history import Bounds, Contents, Fault, Gone, History, ReaderRun, Shrink, Transaction, WriterRun
from tests.chaos.journal import Entry, Kind
from tests.chaos.record import Identity

GROUPS = ("a", "b")
KEYS = 3


def at(run: int, sequence: int) -> int:
    return Identity(run, sequence % KEYS, sequence).number


@dataclass
class Story:
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


def read_again(story: Story, at_ms: int) -> None:
    """Group a reads offset 3 again: some member's fault excuses that."""
    story.more["faults"] = [Fault(900, 2_000, "reader-kill", "a-1", "a")]
    story.note("a", Kind.TAKEN, 2_000)
    story.read("a", at(1, 3), 3, at_ms)


def killed_with(story: Story, *transactions: Transaction) -> None:
    story.writer["transactions"] = list(transactions)
    story.more["faults"] = [Fault(1_060, 1_070, "writer-kill", "w")]


def read_while_none(story: Story) -> None:
    story.more["gone"] = [Gone(1_040, 0, 4, "None", 60_000)]
    read_again(story, 59_999)


def not_deleted(story: Story) -> None:
    story.more["shrinks"] = [
        Shrink(2_000, 4, {0: 6, 1: 9}, {0: 6, 1: 8}, {0: 6, 1: 7}, {1: 0}),  # 1 starts below a commit
        Shrink(3_000, 4, {0: 6}, {0: 5}, {0: 5}, {0: 1}),  # and here a record is left
    ]
