"""The options of ``modeaware check``, before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from modeaware import cli
from modeaware.cli import check
from modeaware.cli.options import Connection
from modeaware.reports.rights.findings import Report, Setting, State, Verdict
from modeaware.reports.rights.needs import Scope


class Stub:
    """In the place of the cluster."""

    brokers = None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Scope]:
    """The scopes of the checks; each finds nothing that fails, unless a topic is called ``bad``."""
    scopes: list[Scope] = []

    def found(_: object, scope: Scope, conf: object) -> Report:
        scopes.append(scope)
        state = State.FAIL if "bad" in scope.topics else State.PASS
        return Report(scope, (), (Setting("it", Verdict(state)),), False, 1)

    def connected(target: Connection) -> Stub:
        return Stub()

    monkeypatch.setattr(check, "check", found)
    monkeypatch.setattr(check, "connect", connected)
    return scopes


def run(*arguments: str) -> int:
    return cli.main(["check", "--bootstrap-server", "here:1", *arguments])


@pytest.mark.parametrize(
    ("arguments", "settings", "principal"),
    [
        ((), "", "User:NAME"),
        ((), "sasl.username=ann\n", "User:ann"),
        (("--principal", "User:CN=x,O=y"), "sasl.username=ann\n", "User:CN=x,O=y"),
        (("--principal", "bob"), "", "User:bob"),
    ],
)
def test_whose_rights_they_are(
    arguments: tuple[str, ...],
    settings: str,
    principal: str,
    asked: list[Scope],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(settings)
    assert run("--role", "operator", "--command-config", str(config), *arguments) == 0
    assert capsys.readouterr().out.startswith(f"operator as {principal} at here:1,")


def test_the_mode_log_is_the_one_of_the_settings(asked: list[Scope], tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("modeaware.mode.log.topic=modes\nmodeaware.mode.source=wire\n")
    assert run("--role", "client", "--command-config", str(config)) == 0
    assert (asked[-1].mode_log, asked[-1].reads_log) == ("modes", False)
    session = ("--config", "modeaware.controller.session.timeout.ms=6000")
    assert run("--role", "controller", "--config", "modeaware.mode.log.topic=others", *session) == 0
    assert (asked[-1].mode_log, asked[-1].reads_log, asked[-1].session_timeout_ms) == ("others", True, 6000)
