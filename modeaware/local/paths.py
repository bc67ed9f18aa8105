"""The folders of this user that modeaware.local writes to, and a lock between processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """For what can be made again: ``MODEAWARE_CACHE_DIR``, ``$XDG_CACHE_HOME/modeaware`` or ``~/.cache/modeaware``."""
    return _user_folder("MODEAWARE_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """For what runs: ``MODEAWARE_STATE_DIR``, ``$XDG_STATE_HOME/modeaware`` or ``~/.local/state/modeaware``."""
    return _user_folder("MODEAWARE_STATE_DIR", "XDG_STATE_HOME", ".local/state")


def _user_folder(ours: str, xdg: str, below_home: str) -> Path:
    if named := os.environ.get(ours):
        return Path(named).absolute()
    base = os.environ.get(xdg)
    return (Path(base) if base else Path.home() / below_home).absolute() / "modeaware"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; it ends with the block or with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
