"""Frameworks over Kafka clients, each in a folder of its own beside the test environment.

QuixStreams asks for a confluent-kafka older than ours, so that pip would not install both: it comes without its
dependencies, and these by themselves. So does Faust, whose aiokafka is to be the one of the test environment. The
folders stay (``MODEAWARE_CACHE_DIR``); the first test that asks installs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modeaware.local.jars import cache_folder, locked

QUIXSTREAMS = "quixstreams==3.28.1"
QUIXSTREAMS_NEEDS = (
    *("attrs", "authlib<2", "fastavro", "httpx", "jsonlines", "jsonpath-ng", "jsonschema"),
    *("orjson", "protobuf", "pydantic>=2.7,<3", "pydantic-settings", "requests", "rocksdict", "typing-extensions"),
)
FAUST = "faust-streaming==0.15.3"
FAUST_NEEDS = (
    *("aiohttp>=3.8,<4", "aiohttp_cors>=0.7,<2", "click>=6.7,<8.4", "croniter>=0.3.16", "intervaltree>=3.2"),
    *("mode-streaming>=0.6", "mypy_extensions", "six", "terminaltables>=3.1,<4", "venusian==3.1.0", "yarl>=1,<2"),
)


def quixstreams() -> Path:
    """The folder to be put on ``PYTHONPATH``."""
    return _installed(QUIXSTREAMS, QUIXSTREAMS_NEEDS)


def faust() -> Path:
    """The same for Faust, without aiokafka."""
    return _installed(FAUST, FAUST_NEEDS)


def _installed(package: str, needs: tuple[str, ...]) -> Path:
    folder = cache_folder() / "frameworks" / f"{package.replace('==', '-')}-{sysconfig.get_python_version()}"
    done = folder / ".done"
    with locked(folder.with_name(folder.name + ".lock")):
        if not done.exists():
            _pip("--upgrade", "--target", str(folder), *needs)
            _pip("--upgrade", "--target", str(folder), "--no-deps", package)
            done.touch()
    return folder


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def programs(commands: list[list[str]], log: Path, **variables: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of this Python, all of whose output goes to the file ``log``; they are killed at the end."""
    running: list[subprocess.Popen[bytes]] = []
    with log.open("ab") as output:
        try:
            for command in commands:
                running.append(
                    subprocess.Popen(
                        [sys.executable, *command],
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env={**os.environ, **variables},
                    )
                )
            yield running
        finally:
            for process in running:
                process.kill()
                process.wait()
