"""What displays of progress share: notes that are told once, in lines or above what is redrawn in place."""

from __future__ import annotations

import time
from typing import TextIO

from rich.live import Live

from modeaware.printable import printable


class Lines:
    """A line for each change; for files and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""

    def note(self, text: str) -> None:
        if text != self._last:
            self._last = text
            print(f"{time.strftime('%H:%M:%S')} {printable(text)}", file=self._out, flush=True)


class Redrawn:
    """A picture that is redrawn in place; for terminals."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._started_s = time.monotonic()
        self._note = ""

    def note(self, text: str) -> None:
        if text != self._note:
            self._note = text
            self._live.console.print(printable(text), style="yellow", markup=False, highlight=False)

    def _elapsed(self) -> str:
        """Minutes and seconds since it began."""
        elapsed_s = int(time.monotonic() - self._started_s)
        return f"{elapsed_s // 60}:{elapsed_s % 60:02}"
