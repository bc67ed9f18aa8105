"""What a person sees while the demo runs: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from modeaware.demo.watch import Look
from modeaware.modes import PartitionMode, format_ranges

LINE_INTERVAL_S = 2.0
_STYLES = {PartitionMode.READ_WRITE: "green", PartitionMode.READ_ONLY: "yellow", PartitionMode.NONE: "dim"}


@dataclass(frozen=True)
class Picture:
    """What is to be shown.

    Attributes:
        stage: where the story is, in a few words.
        acknowledged: records acknowledged, per producer.
        delivered: records delivered, per consumer.
        assigned: the partitions each consumer holds.
        look: the newest look at the topic, if there is one.
    """

    stage: str
    acknowledged: Sequence[int]
    delivered: Sequence[int]
    assigned: Sequence[Sequence[int]]
    look: Look | None


class Screen(Protocol):
    """Shows the demo's progress. A context manager, used by one thread."""

    def event(self, text: str) -> None:
        """Something happened: a line that stays."""

    def show(self, picture: Picture) -> None:
        """The state now; may be called often."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_screen(*, plain: bool = False) -> Screen:
    """A table where standard output is a terminal, else lines."""
    return Lines() if plain or not sys.stdout.isatty() else Board()


class Lines:
    """Events as lines, and the state as a line every two seconds."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._shown_s = 0.0

    def event(self, text: str) -> None:
        self._print(text)

    def show(self, picture: Picture) -> None:
        if picture.look is None or time.monotonic() - self._shown_s < LINE_INTERVAL_S:
            return
        self._shown_s = time.monotonic()
        totals = f"{sum(picture.acknowledged):,} acknowledged, {sum(picture.delivered):,} delivered"
        self._print(f"  {picture.stage}: {totals}; {_modes_line(picture.look)}")

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._start_s:6.1f} s  {text}", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None


class Board:
    """Events as lines above a table of the partitions that is kept up to date."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._live = Live(console=Console(), refresh_per_second=4, transient=True)

    def event(self, text: str) -> None:
        self._live.console.print(f"{time.monotonic() - self._start_s:6.1f} s  {text}", highlight=False, markup=False)

    def show(self, picture: Picture) -> None:
        self._live.update(Group(*self._parts(picture)))

    def _parts(self, picture: Picture) -> list[Text | Table]:
        elapsed = f"{time.monotonic() - self._start_s:6.1f} s  {picture.stage}"
        parts: list[Text | Table] = [Text(""), Text(elapsed, style="bold")]
        parts.append(Text(f"          producers acknowledged {_each(picture.acknowledged)}"))
        parts.append(Text(f"          consumers were given    {_each(picture.delivered)}"))
        held = "   ".join(format_ranges(partitions) for partitions in picture.assigned)
        parts.append(Text(f"          consumers hold          {held}"))
        if picture.look is not None:
            parts.append(_table(picture.look))
        return parts

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()


def _each(figures: Sequence[int]) -> str:
    return "   ".join(f"{figure:,}" for figure in figures)


def _modes_line(look: Look) -> str:
    partitions = look.description.partitions
    shown = []
    for mode in PartitionMode:
        of_mode = [p for p in partitions if p.mode is mode]
        if of_mode:
            phases = "/".join(dict.fromkeys(p.phase for p in of_mode if p.phase is not None))
            shown.append(
                f"{mode.label} {format_ranges(p.partition for p in of_mode)}" + (f" ({phases})" if phases else "")
            )
    lag = "?" if look.lag is None else f"{look.lag:,}"
    return f"{', '.join(shown)}; {sum(look.rates.values()):,.0f} records/s, lag {lag}"


def _table(look: Look) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for heading in ("partition", "log start", "log end", "records/s", "lag"):
        table.add_column(heading, justify="right")
    for heading in ("mode", "phase", "waits for"):
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for p in look.description.partitions:
        table.add_row(
            str(p.partition),
            _figure(p.log_start),
            _figure(p.log_end),
            f"{look.rates.get(p.partition, 0.0):,.0f}",
            _figure(p.lag),
            p.mode.label,
            p.phase or "",
            p.waits_for or "",
            style=_STYLES[p.mode],
        )
    return table


def _figure(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
