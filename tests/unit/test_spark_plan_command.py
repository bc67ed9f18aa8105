"""The options of ``python -m modeaware.spark.plan``; no Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from modeaware.errors import RequestRefused
from modeaware.spark.planning import command

USUAL = ("--bootstrap-server", "nowhere:1", "--topic", "orders", "--partitions", "4")


class Session:
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    monkeypatch.setattr(command, "session", lambda name, settings: made)
    return made


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--sample", "0"), "'0' is not a whole number above 0"),
        (("--partitions", "few"), "invalid int value"),
        (("--spark-conf", "spark.master"), "'spark.master' is not KEY=VALUE"),
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], error: str) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main([*USUAL, *options])
    assert caught.value.code == 2
    assert error in capsys.readouterr().err


def test_what_is_asked_for_reaches_the_plan(
    monkeypatch: pytest.MonkeyPatch, session: Session, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[Any] = []

    def plan(*args: Any, **kwargs: Any) -> None:
        asked.append((args, kwargs))
        raise RequestRefused("no such topic")

    monkeypatch.setattr(command, "plan", plan)
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    options = ("--command-config", str(config), "--source-option", "minPartitions=64", "--sample", "70")
    assert command.main([*USUAL, *options]) == 1
    conf = {"security.protocol": "SSL", "bootstrap.servers": "nowhere:1"}
    assert asked == [((session, "orders", conf, 4), {"sample": 70, "minPartitions": "64"})]
    assert capsys.readouterr().err == "error: no such topic\n"
    assert session.stopped == 1
