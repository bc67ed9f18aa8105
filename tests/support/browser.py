"""A real browser for the tests of the status page: looked for on PATH; ``make browser`` gets one where it can."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
HINT = "no browser: install chromium (Debian: apt-get install chromium; elsewhere: playwright install chromium)"
PATIENCE_S = 300
_APT = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20")
_INSTALL = (*_APT, "install", "-y", "--no-install-recommends", "chromium")


def on_path() -> str | None:
    """The first browser on PATH that playwright can drive."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless one, from PATH or else playwright's own. Skips the test where none can be started."""
    with sync_playwright() as playwright:
        try:
            running = playwright.chromium.launch(executable_path=on_path(), args=FLAGS, timeout=180_000)
        except Error as error:
            pytest.skip(f"{HINT}. {error.message.splitlines()[0]}")
        try:
            yield running
        finally:
            running.close()


def get(tried: Path) -> str:
    """See that there is a browser; return what has become of it. Never raises, and gives up: one test needs it.

    Args:
        tried: a file that is left where none could be had, so that the next run does not try again.
    """
    if on_path() is None and not tried.exists():
        as_root = os.geteuid() == 0 and shutil.which("apt-get") is not None
        if as_root and (_done(*_INSTALL) or (_done(*_APT, "update") and _done(*_INSTALL))):
            return f"browser: {on_path()}"
        if _done(sys.executable, "-m", "playwright", "install", "chromium"):
            return "browser: playwright's own"
        tried.touch()
    return f"browser: {on_path() or HINT}"


def _done(*command: str) -> bool:
    print("browser:", " ".join(command[:1] + command[-2:]), flush=True)
    env, devnull = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, subprocess.DEVNULL
    try:
        subprocess.run(command, stdin=devnull, stdout=devnull, env=env, timeout=PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"browser: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    print(get(Path(sys.argv[1])))
