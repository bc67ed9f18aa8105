"""Where the producer plug-ins for the JVM are, and what an installation does without the means to compile them."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from modeaware import cli, jar
from tests.support.source_tree import ROOT


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


class Hook:
    """Stands in for hatchling's class, which only builds install."""

    target_name = "sdist"  # as for a wheel, except that no extension is compiled

    def __init__(self, root: Path) -> None:
        self.root, self.app = str(root), Mock()

    def __class_getitem__(cls, _: object) -> type[Hook]:
        return cls


def test_an_installation_without_kafkas_jars_succeeds_without_the_jar_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copytree(ROOT / "java", tmp_path / "java")
    built = tmp_path / "modeaware" / "modeaware.jar"
    built.parent.mkdir()
    built.write_bytes(b"of an earlier build")
    monkeypatch.setenv("MODEAWARE_KAFKA_JARS", str(empty))
    interface = SimpleNamespace(BuildHookInterface=Hook)
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    for name in ("setuptools", "setuptools.command.build_ext", "setuptools.errors"):
        monkeypatch.setitem(sys.modules, name, Mock())
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["CompiledParts"](tmp_path)
    build_data: dict[str, Any] = {"artifacts": []}
    hook.initialize("standard", build_data)
    assert build_data == {"artifacts": []}
    assert not built.exists()
    [warning] = [call.args[0] for call in hook.app.display_warning.call_args_list]
    assert "modeaware is built without its jar" in warning
    assert "no jars of kafka-clients and slf4j-api" in warning or "no javac" in warning


def test_a_build_finds_the_jars_that_modeaware_local_has_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODEAWARE_KAFKA_JARS", raising=False)
    monkeypatch.setenv("MODEAWARE_CACHE_DIR", str(tmp_path))
    find_jars = runpy.run_path(str(ROOT / "java" / "build.py"))["find_jars"]
    assert find_jars() is None
    both = ("kafka-clients-4.2.0.jar", "slf4j-api-1.7.36.jar")
    for folder, names in {"kafka-4.2.0": both, "kafka-4.4.0": both[:1], "kafka-tools-4.2.0": both}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    (tmp_path / "kafka-4.2.0-ready-46ca7876").mkdir()
    assert find_jars() == tmp_path / "kafka-4.2.0"
