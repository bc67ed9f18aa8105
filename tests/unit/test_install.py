"""``modeaware.install()`` and ``modeaware run``: which classes are replaced, and what a program can tell."""

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
from tests.support.program import run_program


def _said(text: str) -> list[str]:
    """The lines of a program that has to succeed without a word on standard error."""
    done = run_program(text)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("first", ["import modeaware", "import confluent_kafka.aio, confluent_kafka.admin, kafka"])
def test_the_packages_hand_out_our_classes_and_then_theirs_again(first: str) -> None:
    program = f"""
import importlib
{first}
import modeaware
names = [("confluent_kafka", n) for n in ("Producer", "Consumer", "SerializingProducer", "DeserializingConsumer")]
names += [("confluent_kafka.cimpl", "Producer"), ("confluent_kafka.admin", "AdminClient")]
names += [("confluent_kafka.aio", n) for n in ("AIOProducer", "AIOConsumer", "AsyncSerializingProducer")]
names += [("kafka", "KafkaProducer"), ("kafka", "KafkaConsumer"), ("kafka.producer.kafka", "KafkaProducer")]
classes = lambda: [getattr(importlib.import_module(module), name) for module, name in names]
stock = classes()
modeaware.install()
ours = classes()
assert all(c.__module__.startswith("modeaware.") for c in ours), ours
assert all(issubclass(our, its) for our, its in zip(ours, stock))
modeaware.install()
assert classes() == ours
assert ours[0] is modeaware.Producer and ours[5] is modeaware.AdminClient
modeaware.uninstall()
assert classes() == stock
modeaware.uninstall()
assert classes() == stock
import confluent_kafka.admin
assert type(confluent_kafka.admin).__name__ == "module" and "AdminClient" in vars(confluent_kafka.admin)
print("done")
"""
    assert _said(program) == ["done"]


@pytest.mark.parametrize("tracer_first", [True, False])
def test_a_tracers_class_stays_in_effect_underneath(tracer_first: bool) -> None:
    order = ("trace()", "import modeaware") if tracer_first else ("import modeaware; modeaware.Producer", "trace()")
    program = f"""
import confluent_kafka
def trace():
    class Traced(confluent_kafka.Producer):
        made = []
        def __init__(self, *args, **kwargs):
            self.made.append(self)
            super().__init__(*args, **kwargs)
    confluent_kafka.Producer = Traced
    global traced
    traced = Traced
{order[0]}
{order[1]}
modeaware.install()
for cls in (confluent_kafka.Producer, modeaware.Producer, confluent_kafka.SerializingProducer):
    producer = cls({{"bootstrap.servers": "127.0.0.1:1", "log_level": 0}})
    assert isinstance(producer, modeaware.Producer) and isinstance(producer, traced)
    producer.close()
print(len(traced.made))
modeaware.uninstall()
print(confluent_kafka.Producer is traced)
"""
    assert _said(program) == ["3", "True"]


def test_clients_of_a_framework_get_them_and_what_install_says_wins_over_the_environment() -> None:
    program = """
import os
os.environ["MODEAWARE_MODE_LOG_TOPIC"] = "of-the-environment"
os.environ["MODEAWARE_VIEW_TIMEOUT_MS"] = "17"
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
import modeaware
from modeaware.views import registry
asked = []
registry.acquire, acquire = lambda conf, config: asked.append(config) or acquire(conf, config), registry.acquire
modeaware.install(modeaware_mode_log_topic="modes")
modeaware.install(**{"modeaware.on.resize": "ignore"})
conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
Producer(conf).close()
Producer({**conf, "modeaware.mode.log.topic": "its-own"}).close()
Consumer({**conf, "group.id": "g"}).close()
modeaware.uninstall()
modeaware.Producer(conf).close()
for config in asked:
    print(config.mode_log_topic, config.view_timeout_ms, config.on_resize)
"""
    assert _said(program) == [
        "modes 17 ignore",
        "its-own 17 ignore",
        "modes 17 ignore",
        "__partition_modes 10000 warn",
    ]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("modeaware.install(); import quixstreams", "named"),
        ("import quixstreams; modeaware.install()", "named"),
        ("modeaware.install(); modeaware.install(); import quixstreams", "named"),
        ("modeaware.install(modeaware_on_replace='ordered'); import quixstreams", "ordered"),
        ("modeaware.install()", "None"),
        ("modeaware.install(); modeaware.uninstall(); import quixstreams", "None"),
    ],
)
def test_consumers_beside_quixstreams_read_only_what_they_name(tmp_path: Path, program: str, expected: str) -> None:
    (tmp_path / "quixstreams.py").touch()
    path = f"import sys, modeaware; sys.path.insert(0, {str(tmp_path)!r})"
    said = "from modeaware.config import process_settings; print(process_settings().get('modeaware.on.replace'))"
    assert _said("\n".join([path, program, said])) == [expected]


def test_another_package_of_the_name_of_kafka_python_is_left_alone_and_that_is_logged() -> None:
    done = run_program("""
import sys, types
sys.modules["kafka"] = types.ModuleType("kafka")
import confluent_kafka, modeaware
modeaware.install()
print(hasattr(sys.modules["kafka"], "KafkaProducer"), confluent_kafka.Producer is modeaware.Producer)
""")
    assert (done.returncode, done.stdout) == (0, "False True\n")
    assert "kafka-python's clients stay unchanged" in done.stderr


# ``modeaware run``: the program must not be able to tell, but for its clients


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


@pytest.mark.parametrize(("number", "handled"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_signals_reach_it(directory: Path, number: signal.Signals, handled: bool) -> None:
    handler = f"signal.signal({int(number)}, lambda *_: sys.exit(9))" if handled else ""
    (directory / "waits.py").write_text(
        f"import signal, sys\n{handler}\nprint('ready', flush=True)\nwhile True:\n    signal.pause()\n"
    )
    command = [*OURS, str(directory / "waits.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
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


def test_an_error_about_a_setting_of_the_client_library_does_not_show_its_value() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.password") as caught:
        variables(["sasl.password=geheim"])
    assert "geheim" not in str(caught.value)
