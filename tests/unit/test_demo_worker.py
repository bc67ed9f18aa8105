"""The demo's child processes: what goes wrong in one is told, and none is left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeaware.demo.worker import STOP, Link, Worker, WorkerFailed
from modeaware.errors import ModeAwareError
from tests.support.waiting import eventually

Start = Callable[..., Worker]


def counts_stages(link: Link, first: int) -> None:
    link.report(pid=os.getpid(), stage=first)
    while not link.stopping.wait(0.01):
        link.report(stage=link.stage)
    link.report(told_to_stop=True)


def refuses(link: Link) -> None:
    raise ModeAwareError("there is no such topic")


def breaks(link: Link) -> None:
    raise KeyError("a bug")


def hangs(link: Link) -> None:
    link.report(pid=os.getpid())
    threading.Event().wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a child for the test, and ends it afterwards."""
    started: list[Worker] = []

    def make(target: Callable[..., None], *arguments: int) -> Worker:
        started.append(Worker("worker", tmp_path, target, *arguments))
        return started[-1]

    yield make
    for worker in started:
        worker.close(0)


def heard(worker: Worker, figure: str) -> bool:
    worker.hear()
    return figure in worker.figures


def failure_of(worker: Worker) -> str:
    with pytest.raises(WorkerFailed) as failed:
        eventually(lambda: heard(worker, "nothing of that name"))
    return str(failed.value)


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_child_is_told_stages_and_to_stop(start: Start) -> None:
    worker = start(counts_stages, 7)
    eventually(lambda: heard(worker, "pid"))
    worker.enter(3)
    eventually(lambda: heard(worker, "stage") and worker.figures["stage"] == 3)
    assert not worker.ended
    worker.enter(STOP)
    eventually(lambda: heard(worker, "told_to_stop") and worker.ended)


@pytest.mark.parametrize(
    ("target", "told"), [(refuses, "worker failed:\nthere is no such topic"), (breaks, "KeyError: 'a bug'")]
)
def test_a_failure_is_told_with_its_cause(start: Start, tmp_path: Path, target: Callable[..., None], told: str) -> None:
    assert told in failure_of(start(target))
    assert told.splitlines()[-1] in (tmp_path / "worker.log").read_text()


def test_a_child_that_dies_is_noticed(start: Start) -> None:
    worker = start(hangs)
    eventually(lambda: heard(worker, "pid"))
    os.kill(worker.figures["pid"], signal.SIGKILL)
    assert "worker died (exit status -9)" in failure_of(worker)


def test_a_child_that_does_not_stop_is_killed(start: Start) -> None:
    worker = start(hangs)
    eventually(lambda: heard(worker, "pid"))
    worker.close(0.1)
    assert not is_there(worker.figures["pid"])


def test_ctrl_c_is_the_parents_business(start: Start) -> None:
    worker = start(counts_stages, 0)
    eventually(lambda: heard(worker, "pid"))
    os.kill(worker.figures["pid"], signal.SIGINT)
    worker.enter(1)
    eventually(lambda: heard(worker, "stage") and worker.figures["stage"] == 1)
    assert is_there(worker.figures["pid"])
