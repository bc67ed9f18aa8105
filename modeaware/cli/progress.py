"""The terminal: displays of progress, work that Ctrl-C can interrupt, and the question before a change."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TextIO, TypeVar

from rich.live import Live

from modeaware.errors import RequestRefused
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


_T = TypeVar("_T")
STOP_TIMEOUT_S = 10.0


def aside(work: Callable[[], _T], stop: Callable[[], None] | None = None) -> _T:
    """The result of ``work``, or what it raises.

    Python raises a KeyboardInterrupt in the main thread, wherever that is, and the client libraries are no place for
    it: kafka-python logs it and goes on, or is left with a lock that is held; confluent_kafka loses it while it lets go
    of a client. So the main thread does nothing but wait.

    Args:
        stop: has the work end early; called after an interruption, and the end is then waited for, up to
            :data:`STOP_TIMEOUT_S`. None: work that only reads, and is left behind.

    Raises:
        KeyboardInterrupt: as soon as it comes; with ``stop``, when the work has ended.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the one who waits raises it
            future.set_exception(error)

    thread = threading.Thread(target=run, name="modeaware-aside", daemon=True)
    thread.start()
    try:
        return future.result()
    except KeyboardInterrupt:
        if stop is not None:
            stop()
            thread.join(STOP_TIMEOUT_S)
        raise


def ask(question: str, *, yes: bool, is_terminal: bool, read_line: Callable[[str], str] = input) -> bool | None:
    """Whether to go on: True or False, and None where nobody can be asked."""
    if yes:
        return True
    if not is_terminal:
        return None
    try:
        return read_line(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def confirmed(*, yes: bool) -> bool:
    """Ask whether to go on, unless ``--yes`` has said so.

    Raises:
        RequestRefused: nobody can be asked.
    """
    answer = ask("Go on?", yes=yes, is_terminal=sys.stdin.isatty())
    if answer is None:
        raise RequestRefused(
            "nobody can be asked (standard input is no terminal): say --yes to go on; nothing was changed"
        )
    return answer
