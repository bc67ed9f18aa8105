"""Child processes of the demo: started fresh, told what to do and heard over a pipe, never outliving their parent."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from modeaware.errors import ModeAwareError
from modeaware.printable import printable_lines

STOP = -1
STOP_TIMEOUT_S = 20.0
# A fresh interpreter: a fork would copy librdkafka's state without its threads.
_SPAWN = multiprocessing.get_context("spawn")

Figures = dict[str, Any]


class WorkerFailed(ModeAwareError):
    """A process of the demo failed or ended when it should not have; the message says which and why."""


class Link:
    """A child's end of the pipe. ``report`` is for one thread; the rest may be used from any.

    Attributes:
        stage: the number of the story's stage in force.
        stopping: set when the parent wants the child to end.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.stage = 0
        self.stopping = threading.Event()
        threading.Thread(target=self._listen, name="demo-link", daemon=True).start()

    def report(self, **figures: Any) -> None:
        """Send figures to the parent; later ones replace earlier ones of the same name."""
        self._connection.send(figures)

    def _listen(self) -> None:
        while True:
            try:
                stage = self._connection.recv()
            except (EOFError, OSError):
                os._exit(3)  # the parent is gone: nobody is left to report to
            if stage == STOP:
                self.stopping.set()
            else:
                self.stage = stage


class Worker:
    """One child process, as its parent sees it. Not thread-safe.

    Args:
        name: for messages and for its log file.
        target: an importable function, called in the child as ``target(link, *arguments)``.
        folder: where its log goes (``NAME.log``).

    Attributes:
        figures: the latest figures it reported.
    """

    def __init__(self, name: str, folder: Path, target: Callable[..., None], *arguments: Any) -> None:
        self.name = name
        self.figures: Figures = {}
        self._ended = False
        self._connection, theirs = _SPAWN.Pipe(duplex=True)
        self._process = _SPAWN.Process(
            target=_run, name=f"demo-{name}", args=(theirs, name, folder, target, arguments), daemon=True
        )
        self._process.start()
        theirs.close()  # so that each side sees the other's end

    @property
    def ended(self) -> bool:
        """Whether it has done its work and ended."""
        return self._ended

    def enter(self, stage: int) -> None:
        """Tell it which stage of the story is in force (:data:`STOP`: end)."""
        try:
            self._connection.send(stage)
        except OSError:
            self.hear()  # it is gone: say why

    def hear(self) -> None:
        """Take in what it reported.

        Raises:
            WorkerFailed: it failed.
        """
        try:
            while not self._ended and self._connection.poll():
                self._take(self._connection.recv())
        except (EOFError, OSError):
            self._process.join(STOP_TIMEOUT_S)
            raise WorkerFailed(f"{self.name} died (exit status {self._process.exitcode})") from None

    def _take(self, message: Figures) -> None:
        failure = message.pop("failure", None)
        if failure is not None:
            raise WorkerFailed(printable_lines([f"{self.name} failed:", *str(failure).splitlines()]))
        self._ended = message.pop("ended", False)
        self.figures.update(message)

    def close(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Have the child end, by force where it does not; nothing of it is left afterwards."""
        if self._process.is_alive():
            with suppress(OSError):  # it has just ended
                self._connection.send(STOP)
            self._process.join(timeout_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()


def _run(
    connection: Connection, name: str, folder: Path, target: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    """The child's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent decides
    logging.basicConfig(
        filename=folder / f"{name}.log",
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    link = Link(connection)
    try:
        target(link, *arguments)
    except ModeAwareError as error:
        logging.error("%s", error)
        link.report(failure=str(error))
        raise SystemExit(1) from error
    except Exception:
        logging.exception("failed")
        link.report(failure=traceback.format_exc().rstrip())
        raise
    link.report(ended=True)
