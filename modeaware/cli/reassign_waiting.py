"""``--wait``: watch reassignments until they are done, on standard error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from modeaware.admin.log_dirs import placed, replica_name
from modeaware.admin.reassignment_json import Plan
from modeaware.admin.reassignment_progress import copied, replica_sizes
from modeaware.admin.reassignment_state import look
from modeaware.cli.aside import aside
from modeaware.cli.progress import Lines, Redrawn
from modeaware.cli.reassign_text import ids, name
from modeaware.errors import ClusterError
from modeaware.wire.brokers.client import Brokers

LOOK_INTERVAL_S = 1.0
_MOST_ROWS = 12


@dataclass(frozen=True)
class Row:
    """What is moving, where to, and the bytes that are there and that are to be."""

    what: str
    target: str
    copied_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Look:
    """How far a plan has come: how many moves it has (of partitions, and of directories), and those that go on."""

    count: int
    moving: tuple[Row, ...]

    @property
    def share(self) -> float:
        """From 0 to 1; what moves counts by its bytes, and for less than what is done."""
        parts = [0.99 * row.copied_bytes / row.total_bytes if row.total_bytes else 0.0 for row in self.moving]
        return (self.count - len(parts) + sum(parts)) / max(self.count, 1)


class Progress(Protocol):
    """Where the progress is shown."""

    def show(self, look: Look) -> None: ...

    def note(self, text: str) -> None:
        """Something the person should know."""
        ...


class PlainProgress(Lines):
    """A line for each change; for files and pipes."""

    def show(self, look: Look) -> None:
        self.note(f"{look.count - len(look.moving)} of {look.count} moves done ({look.share:.0%})")


class LiveProgress(Redrawn):
    """A bar for the whole and one for each partition that moves; redrawn in place, for terminals."""

    def show(self, look: Look) -> None:
        self._note = ""
        done = look.count - len(look.moving)
        head = f"{done} of {look.count} moves done  {self._elapsed()}"
        rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for row in look.moving[:_MOST_ROWS]:
            bar = ProgressBar(total=max(row.total_bytes, 1), completed=row.copied_bytes, width=30)
            rows.add_row(row.what, f"-> {row.target}", bar, f"{megabytes(row.copied_bytes)} MB")
        if len(look.moving) > _MOST_ROWS:
            rows.add_row(f"and {len(look.moving) - _MOST_ROWS} more")
        whole = Padding(ProgressBar(total=1, completed=look.share, width=60), 0)
        self._live.update(Group(Text(head, "bold"), whole, rows))


def megabytes(count: int) -> str:
    """``12.3``."""
    return f"{count / 1e6:,.1f}"


@contextmanager
def progress_on(out: TextIO) -> Iterator[Progress]:
    """A live display where ``out`` is a terminal, else plain lines."""
    if not out.isatty():
        yield PlainProgress(out)
        return
    with Live(console=Console(file=out, markup=False, emoji=False), refresh_per_second=4, transient=False) as live:
        yield LiveProgress(live)


def see(brokers: Brokers, plan: Plan) -> Look:
    """Ask how far the plan has come.

    Raises:
        RequestRefused: not authorized, say.
        ClusterError: no answer.
    """
    states, in_progress = look(brokers, plan.partitions)
    moving = {key: in_progress[key] for key in plan.partitions if states[key].active}
    sizes = replica_sizes(brokers, moving) if moving else {}
    rows = [Row(name(key), ids(each.target), *copied(key, each, sizes)) for key, each in sorted(moving.items())]
    logs = sorted(placed(brokers, plan.log_dirs)) if plan.log_dirs else []
    whole = {log.replica: log.size for log in logs if not log.is_future}
    for log in logs:
        if log.is_future:
            total = whole.get(log.replica, 0)
            rows.append(Row(replica_name(log.replica), log.folder, min(log.size, total), total))
    return Look(len(plan.partitions) + len(plan.log_dirs), tuple(rows))


def wait_until_settled(look_once: Callable[[], Look], progress: Progress, interval_s: float = LOOK_INTERVAL_S) -> None:
    """Look and show until nothing of the plan is moving. A look that fails is noted and tried again.

    Raises:
        RequestRefused: it may not be asked.
    """
    pause = threading.Event()
    while True:
        try:
            seen = look_once()
        except ClusterError as error:
            progress.note(f"cannot look just now: {error}")
        else:
            progress.show(seen)
            if not seen.moving:
                return
        pause.wait(interval_s)


def wait_for_plan(brokers: Brokers, plan: Plan, out: TextIO) -> None:
    """Watch the plan until nothing of it is moving.

    Raises:
        KeyboardInterrupt: the person has had enough; nothing is taken back.
    """
    with progress_on(out) as progress:
        wait_until_settled(lambda: aside(lambda: see(brokers, plan), stop=lambda: None), progress)
