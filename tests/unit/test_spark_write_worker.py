"""What is forgotten between tasks of a Python worker, and what is not."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from modeaware.spark.write.worker import forget_archive_finders


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.10.9.9-src.zip", "org_hadoop-client-runtime.jar"])
def test_finders_of_sparks_archives_are_forgotten_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own, users = tmp_path / name, tmp_path / "users.zip"
    for module in ("of_spark_first", "of_spark_second", "of_a_user_first", "of_a_user_second"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for archive, module in ((own, "of_spark"), (users, "of_a_user")):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(f"{module}_first.py", "")
            file.writestr(f"{module}_second.py", "")
        monkeypatch.syspath_prepend(str(archive))
        monkeypatch.setitem(sys.path_importer_cache, str(archive), zipimport.zipimporter(str(archive)))
        importlib.import_module(f"{module}_first")
    forget_archive_finders()
    assert str(own) not in sys.path_importer_cache
    assert str(users) in sys.path_importer_cache
    importlib.import_module("of_spark_second")
    importlib.import_module("of_a_user_second")
    assert str(own) in sys.path_importer_cache
