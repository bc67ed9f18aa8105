"""``modeaware run``: the program must not be able to tell, but for its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from modeaware.cli import main
from modeaware.cli.run import variables
from modeaware.errors import ConfigError

PLAIN = [sys.executable]
OURS = [sys.executable, "-m", "modeaware", "run"]
TELLING = """
import __main__, json, pickle, sys, threading
import beside

class Thing:
    pass

def late():
    threading.main_thread().join()
    print(sys.modules["__main__"].Thing is Thing)

if __name__ == "__main__":
    threading.Thread(target=late).start()
    spec = __main__.__spec__
    told = {"argv": sys.argv, "path": sys.path[0], "file": __file__, "name": __name__, "package": __package__}
    told |= {"spec": spec and spec.name, "thing": type(pickle.loads(pickle.dumps(Thing()))) is Thing, "in": input()}
    told |= {"flags": [sys.flags.dev_mode, sys.warnoptions], "cached": __cached__, "loader": type(__loader__).__name__}
    print(json.dumps(told), vars(__main__) is globals(), __builtins__.__name__)
    print("on standard error", file=sys.stderr)
    sys.exit(7)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a program, its module, and a package that can be run; not the working directory."""
    (tmp_path / "app.py").write_text(TELLING)
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "__main__.py").write_text(TELLING)
    with zipfile.ZipFile(tmp_path / "packed", "w") as packed:
        packed.writestr("__main__.py", TELLING)
        packed.writestr("beside.py", "")
    return tmp_path


def _run(
    command: list[str], directory: Path, script: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    if script is not None:
        (directory / "script.py").write_text(script)
        command = [*command, "script.py"]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(
        command, cwd=directory, input="a line\n", capture_output=True, text=True, timeout=60, check=False, env=environ
    )


@pytest.mark.parametrize(
    "program",
    [
        ["app.py", "--set", "x", "-m", "y", "--", "--help"],
        ["-m", "pack", "--flag", "--", "value"],
        ["packed", "--", "-x"],
    ],
)
def test_a_program_sees_what_it_sees_without_us(directory: Path, program: list[str]) -> None:
    plain = _run([*PLAIN, "-Wignore", *program], directory)
    ours = _run([sys.executable, "-Wignore", *OURS[1:], *program], directory)
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert plain.returncode == 7


def test_settings_reach_them(directory: Path) -> None:
    script = "from modeaware.config import process_settings\nprint(sorted(process_settings().items()))"
    command = [*OURS, "--set", "modeaware.mode.log.topic=modes", "--set=modeaware.on.resize=hold"]
    ours = _run(command, directory, script, MODEAWARE_ON_RESIZE="error", MODEAWARE_MODE_SOURCE="log")
    assert ours.stdout == str([
        ("modeaware.mode.log.topic", "modes"),
        ("modeaware.mode.source", "log"),
        ("modeaware.on.resize", "hold"),
    ]) + "\n"  # fmt: skip


@pytest.mark.parametrize(("number", "handled"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_signals_reach_it(directory: Path, number: signal.Signals, handled: bool) -> None:
    handler = f"signal.signal({int(number)}, lambda *_: sys.exit(9))" if handled else ""
    (directory / "waits.py").write_text(
        f"import signal, sys\n{handler}\nprint('ready', flush=True)\nwhile True:\n    signal.pause()\n"
    )
    command = [*OURS, str(directory / "waits.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (9 if handled else -number)


@pytest.mark.parametrize("program", [["missing.py"], ["-m", "no_such_module"]])
def test_what_is_not_there_is_said(directory: Path, program: list[str]) -> None:
    ours = _run([*OURS, *program], directory)
    assert (ours.returncode, ours.stdout) == (_run([*PLAIN, *program], directory).returncode, "") or program[0] == "-m"
    assert ours.returncode == 2
    assert ours.stderr.startswith("error: cannot run ")
    assert len(ours.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "setting", ["modeaware.mode.log.topic", "client.id=x", "modeaware.resize_cb=f", "modeaware.mode.source=air"]
)
def test_a_bad_setting_starts_nothing(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError):
        variables([setting])
    assert main(["run", "--set", setting, "app.py"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
