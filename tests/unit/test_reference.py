"""The API reference: it is made without a warning, and every public name is in it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

from modeaware.testing import FakeViews
from modeaware.views.source import Views

ROOT = Path(__file__).parents[2]
PUBLIC = (
    "modeaware",
    "modeaware.kafka_python",
    "modeaware.aio",
    "modeaware.metrics",
    "modeaware.spark",
    "modeaware.testing",
    "modeaware.local",
    "partitioners",
)
# Sphinx says by itself where its pages are; what ``make docs`` runs has to be what is run here.
BUILD = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", "docs/reference", "."]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as ``make docs`` makes them."""
    folder = tmp_path_factory.mktemp("pages")
    done = subprocess.run([sys.executable, *BUILD, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def documented(pages: Path) -> set[str]:
    """Full names of all that the reference describes."""
    inventory = InventoryFile.loads((pages / "objects.inv").read_bytes(), uri="")
    return {name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str, documented: set[str]) -> None:
    assert module in documented
    assert [name for name in import_module(module).__all__ if f"{module}.{name}" not in documented] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_method_says_what_it_does(module: str) -> None:
    """Its own words, or those of the class it overrides a method of."""
    silent = []
    for name in import_module(module).__all__:
        one = getattr(import_module(module), name)
        if inspect.isclass(one):
            own = [method for method, value in vars(one).items() if _is_method(value) and not method.startswith("_")]
            told = own if one is not FakeViews else set(own) - set(vars(Views))
            silent += [f"{name}.{method}" for method in told if not inspect.getdoc(getattr(one, method))]
    assert silent == []


def _is_method(value: object) -> bool:
    return inspect.isfunction(getattr(value, "__func__", value)) or isinstance(value, property)


def test_every_error_is_in_the_reference(documented: set[str]) -> None:
    errors = import_module("modeaware.errors")
    names = [
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    assert len(names) > 15
    assert [name for name in names if f"modeaware.errors.{name}" not in documented] == []


def test_every_fixture_for_tests_is_in_the_reference(documented: set[str]) -> None:
    source = (ROOT / "modeaware" / "testing" / "plugin.py").read_text(encoding="utf-8")
    fixtures = re.findall(r"^def (modeaware_\w+)\(", source, re.MULTILINE)
    assert len(fixtures) >= 4
    assert [name for name in fixtures if f"modeaware.testing.plugin.{name}" not in documented] == []


def test_every_page_of_the_repository_is_among_the_pages(pages: Path) -> None:
    sources = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]
    made = [pages / source.relative_to(ROOT).with_suffix(".html") for source in sources]
    assert [page.name for page in made if not page.exists()] == []
