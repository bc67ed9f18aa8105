"""``--wait``: watch a change until it is done, on standard error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from modeaware.cli.display import alike, number
from modeaware.cli.options import Connection
from modeaware.cli.progress import Lines, Redrawn, aside
from modeaware.errors import ClusterError, ModeSourceError
from modeaware.modes import format_ranges
from modeaware.printable import printable
from modeaware.reports.describe import PartitionDescription, TopicDescription, describe_topics
from modeaware.topic_view import TopicView
from modeaware.views import registry

LOOK_INTERVAL_S = 2.0
"""How often the brokers are asked for offsets and lag; a change of modes is seen at once."""


@dataclass(frozen=True)
class Line:
    """Partitions that are in one phase and wait for the same; ``lag`` is the sum over them."""

    phase: str
    partitions: str
    lag: int
    waits_for: str


def progress_lines(description: TopicDescription) -> list[Line]:
    """How far each partition that is not ReadWrite has come."""
    changing = concerned(description)
    return [
        Line(
            group[0].phase or "",
            format_ranges(p.partition for p in group),
            sum(p.lag or 0 for p in group),
            printable(group[0].waits_for or ""),
        )
        for group in alike(changing, lambda p: (p.phase, p.reason))
    ]


def concerned(description: TopicDescription) -> list[PartitionDescription]:
    """The partitions that the change is about: not those that an earlier shrink is done with."""
    deletion = description.deletion
    retired = range(deletion.delete_partitions, deletion.previous_count) if deletion is not None else range(0)
    return [p for p in description.partitions if p.phase is not None and (p.phase != "done" or p.partition in retired)]


def done_share(description: TopicDescription) -> tuple[int, int]:
    """How many of the partitions concerned are done, and how many are concerned."""
    phases = [partition.phase for partition in concerned(description)]
    return phases.count("done"), len(phases)


class Progress(Protocol):
    """Where the progress is shown."""

    def show(self, description: TopicDescription) -> None: ...

    def note(self, text: str) -> None:
        """Something the person should know, such as brokers that cannot be asked just now."""
        ...


class PlainProgress(Lines):
    """A line for each change; for files and pipes."""

    def show(self, description: TopicDescription) -> None:
        told = "; ".join(
            f"{line.phase} {line.partitions}" + (f" ({line.waits_for})" if line.waits_for else "")
            for line in progress_lines(description)
        )
        self.note(f"{description.topic}: {told or 'every partition ReadWrite'}")


class LiveProgress(Redrawn):
    """A table that is redrawn in place; for terminals."""

    def show(self, description: TopicDescription) -> None:
        self._note = ""
        self._live.update(self._picture(description))

    def _picture(self, description: TopicDescription) -> Group:
        done, count = done_share(description)
        head = Text.assemble(
            (printable(description.topic), "bold"),
            f"  {done} of {count} partitions done  {self._elapsed()}",
        )
        rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading, side in (("Phase", "left"), ("Partitions", "left"), ("Lag", "right"), ("Waits for", "left")):
            rows.add_column(heading, justify="right" if side == "right" else "left", header_style="dim")
        for line in progress_lines(description):
            rows.add_row(line.phase, line.partitions, number(line.lag), line.waits_for or "-")
        bar = Padding(ProgressBar(total=max(count, 1), completed=done, width=60), 0)  # by itself it ends no line
        return Group(head, bar, rows)


@contextmanager
def progress_on(out: TextIO) -> Iterator[Progress]:
    """A live display where ``out`` is a terminal, else plain lines."""
    if not out.isatty():
        yield PlainProgress(out)
        return
    console = Console(file=out, markup=False, emoji=False)  # a name is no style
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        yield LiveProgress(live)


def wait_until_done(
    describe: Callable[[], TopicDescription],
    changed: threading.Event,
    progress: Progress,
    failure: Callable[[], BaseException | None],
    interval_s: float = LOOK_INTERVAL_S,
) -> TopicDescription:
    """Look, show, wait for a change or the next look; until no change of the topic is in progress.

    A look that fails is noted and tried again.

    Args:
        changed: set by whoever hears of a change; cleared here.
        failure: why the change will not go on, if it will not (the embedded controller has stopped); raised.

    Raises:
        RequestRefused: the topic is gone.
    """
    while True:
        changed.clear()
        try:
            description = describe()
        except (ClusterError, ModeSourceError) as error:
            progress.note(f"cannot look just now: {error}")
        else:
            progress.show(description)
            if description.phase == "done":
                return description
        if (error_now := failure()) is not None:
            raise error_now
        changed.wait(interval_s)


def wait_for_topic(
    connection: Connection, topic: str, failure: Callable[[], BaseException | None], out: TextIO
) -> TopicDescription:
    """Watch ``topic`` on the cluster until no change is in progress.

    Raises:
        KeyboardInterrupt: the person has had enough; nothing is taken back.
    """
    changed = threading.Event()

    def listen(views: Mapping[str, TopicView]) -> None:
        if topic in views:
            changed.set()

    def describe() -> TopicDescription:
        return aside(lambda: describe_topics(connection.conf, connection.config.mode_log_topic, [topic])[0])

    views = registry.acquire(connection.conf, connection.config)
    try:
        views.subscribe(listen)
        with progress_on(out) as progress:
            return wait_until_done(describe, changed, progress, failure)
    finally:
        views.unsubscribe(listen)
        views.close()
