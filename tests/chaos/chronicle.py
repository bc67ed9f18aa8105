"""The run's own journal: what was done and what was seen, one JSON object a line."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Chronicle:
    """Notes events; any thread may. Each is in the file when :meth:`note` returns.

    Args:
        now_ms: the run's time.
        tell: called with each event, under a lock.
    """

    def __init__(self, path: Path, now_ms: Callable[[], int], tell: Callable[[Event], None]) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._now_ms = now_ms
        self._tell = tell
        self._turn = threading.Lock()

    def note(self, event: str, **what: Any) -> None:
        with self._turn:
            noted = {"at_ms": self._now_ms(), "event": event, **what}
            self._file.write(json.dumps(noted) + "\n")
            self._tell(noted)

    def close(self) -> None:
        with self._turn:
            self._file.close()


def read_events(path: Path) -> Iterator[Event]:
    """The events in order; a line torn by a kill is left out."""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
