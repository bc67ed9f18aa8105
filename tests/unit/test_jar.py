"""Where the producer plug-ins for the JVM are."""

from __future__ import annotations

from pathlib import Path

import pytest

from modeaware import cli, jar


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "modeaware.jar"
    monkeypatch.setattr(jar, "_JAR", place)
    return place


def test_the_command_prints_the_path_of_the_jar(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place.write_bytes(b"")
    assert cli.main(["jar"]) == 0
    assert capsys.readouterr().out == f"{place}\n"


def test_without_a_jar_the_command_tells_how_to_get_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["jar"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "make jar" in said.err
    assert jar.HOW_TO_GET in said.err
