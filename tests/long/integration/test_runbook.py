"""The runbook's programs, as they stand: a mode log is copied, lost and written again."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.topic import ensure_mode_log
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, produce
from tests.support.waiting import eventually

PAGE = Path(__file__).parents[3] / "docs" / "runbook.md"


def programs() -> list[str]:
    """The Python programs of the page: the backup, and the restore."""
    found = re.findall(r"^ *```python\n(.*?)^ *```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(program) for program in found]


def run(program: str, setting: Controlled, folder: Path) -> None:
    text = program.replace("localhost:9092", setting.servers).replace("__partition_modes", setting.log)
    assert setting.log in text
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def lose(setting: Controlled) -> None:
    """Delete the mode log and make an empty one, once brokers know that it is gone."""
    setting.admin.delete_topics([setting.log])[setting.log].result(30)
    eventually(lambda: setting.log not in setting.admin.list_topics(timeout=10).topics, 60)

    def is_made() -> bool:
        ensure_mode_log(setting.admin, setting.log)
        return read_mode_log(setting.conf, setting.log, 20).records == {}

    eventually(is_made, 60)


def test_a_lost_mode_log_is_restored(setting: Controlled, make_topic: MakeTopic, tmp_path: Path) -> None:
    backup, restore = programs()
    topic = make_topic(4)
    produce(setting, topic, 200)
    controller = setting.start()
    setting.shrink(topic, 1)
    before = setting.wait_done(topic)
    claim = setting.claim()
    assert claim is not None
    run(backup, setting, tmp_path)
    controller.stop()
    lose(setting)
    run(restore, setting, tmp_path)
    assert setting.record(topic) == before
    produce(setting, topic, 5, partition=3)  # by a client that was started while there were no modes
    setting.start()
    after = setting.wait_for(topic, lambda record: record.retired[3].stragglers == 1 and record.epoch > before.epoch)
    assert after.controller_epoch > claim.controller_epoch
    after = setting.wait_done(topic)
    assert after.modes == (PartitionMode.READ_WRITE,) + (PartitionMode.NONE,) * 3
    # Offsets go on where they were, and what had come meanwhile was drained like everything else.
    end = before.retired[3].seal_offset
    assert end is not None
    assert after.retired[3].seal_offset == end + 5
