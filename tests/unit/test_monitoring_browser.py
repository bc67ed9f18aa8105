"""Getting a browser for the tests: every way is tried, none can fail the run, and a failure is not tried again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import browser

Answer = Callable[[tuple[str, ...]], int]


class Machine:
    """One without a browser: what is run on it, and how that ends."""

    def __init__(self, patch: pytest.MonkeyPatch, *, root: bool, answer: Answer) -> None:
        self.ran: list[str] = []
        self.found: dict[str, str] = {"apt-get": "/usr/bin/apt-get"} if root else {}
        self._answer = answer
        patch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        patch.setattr(shutil, "which", self.found.get)
        patch.setattr(subprocess, "run", self._run)

    def _run(self, command: tuple[str, ...], **options: object) -> subprocess.CompletedProcess[str]:
        assert options["timeout"] == browser.PATIENCE_S
        self.ran.append("playwright" if "playwright" in command else "update" if "update" in command else "apt")
        return subprocess.CompletedProcess(command, self._answer(command))


def fails(command: tuple[str, ...]) -> int:
    return 100


def hangs(command: tuple[str, ...]) -> int:
    raise subprocess.TimeoutExpired(command, 1)


def test_one_on_path_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(monkeypatch, root=True, answer=fails)
    machine.found["google-chrome"] = "/opt/google-chrome"
    assert browser.get(tmp_path / "tried") == "browser: /opt/google-chrome"
    assert machine.ran == []


@pytest.mark.parametrize("answer", [fails, hangs])
@pytest.mark.parametrize(("root", "ran"), [(True, ["apt", "update", "playwright"]), (False, ["playwright"])])
def test_without_any_it_says_so_and_tries_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Answer, root: bool, ran: list[str]
) -> None:
    machine = Machine(monkeypatch, root=root, answer=answer)
    assert browser.get(tmp_path / "tried") == browser.HINT
    assert machine.ran == ran
    assert browser.HINT in browser.get(tmp_path / "tried")
    assert machine.ran == ran


def test_debians_then_playwrights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(monkeypatch, root=True, answer=lambda command: 0)
    browser.get(tmp_path / "tried")
    assert machine.ran == ["apt"]
    machine = Machine(monkeypatch, root=False, answer=lambda command: 0)
    assert browser.get(tmp_path / "tried") == "browser: playwright's own"
    assert not (tmp_path / "tried").exists()


def test_one_that_cannot_be_started_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "on_path", lambda: "/bin/false")
    with pytest.raises(pytest.skip.Exception, match="install chromium"), browser.browser():
        pytest.fail("/bin/false is no browser")
