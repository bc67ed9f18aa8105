"""How long there is no active controller: after ``kill -9`` of it, and after it was stopped."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness import Result
from benchmarks.setting import Setting
from modeaware.config import ControllerConfig
from modeaware.controller.daemon import Controller
from modeaware.controller.status import Role
from tests.support.takeover import ControllerProcess, assert_one_at_a_time, history
from tests.support.waiting import eventually

ROUNDS = 5
LIMIT_S = 15.0


def measure(setting: Setting) -> Iterator[Result]:
    """With the default configs: a session of 8 s."""
    killed_s = [_takeover_s(setting, ControllerProcess.kill) for _ in range(1 if setting.quick else ROUNDS)]
    details = {"rounds": len(killed_s), "median_s": round(statistics.median(killed_s), 2)}
    yield Result("standby active after kill -9 of the controller, longest", max(killed_s), "s", None, LIMIT_S, details)
    stopped_s = [_takeover_s(setting, ControllerProcess.send_sigterm) for _ in range(1 if setting.quick else ROUNDS)]
    details = {"rounds": len(stopped_s), "median_s": round(statistics.median(stopped_s), 2)}
    yield Result("standby active after SIGTERM of the controller, longest", max(stopped_s), "s", details=details)


def _takeover_s(setting: Setting, end: Callable[[ControllerProcess], object]) -> float:
    """From the end of the active controller to the claim of the standby, on a mode log of their own."""
    log = setting.make_log()
    conf = {"bootstrap.servers": setting.bootstrap_servers}
    standby = Controller(conf, ControllerConfig(mode_log_topic=log.topic))
    with tempfile.TemporaryDirectory() as folder:
        process = ControllerProcess(conf, log.topic, Path(folder))
        try:
            process.wait_until_it_says("active: epoch")
            standby.start()
            if standby.role is not Role.STANDBY:
                raise RuntimeError(f"the second controller is {standby.role}")
            time.sleep(3)  # some heartbeats later
            start_s = time.monotonic()
            end(process)
            eventually(lambda: standby.is_active, 60, interval_s=0.01)
            took_s = time.monotonic() - start_s
        finally:
            process.kill()
            standby.stop()
    assert_one_at_a_time(history(conf, log.topic))
    return took_s
