"""The wheel in use: controllers as the compose file starts them and the commands of the pages, on a local Kafka."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from modeaware.local import LocalKafka
from modeaware.local.settings import free_ports
from release.distributions import empty_environment, own_wheel
from release.outcome import ROOT, Failed, run

READY_S = 60.0
PROGRAM_S = 120.0
TOPIC = "orders"
RECORDS = 200
_PRODUCER = """
import sys
from modeaware import Producer

servers, topic, partitions, first, count = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
delivered = []
producer = Producer({"bootstrap.servers": servers})
for number in range(first, first + count):
    producer.produce(topic, str(number), key=str(number), on_delivery=lambda *report: delivered.append(report))
assert producer.flush(60) == 0, "not all were delivered"
assert {error for error, _ in delivered} == {None}, delivered
assert {message.partition() for _, message in delivered} <= set(range(partitions)), "a retired partition was chosen"
assert producer.modeaware_stats()["in_c"], "the extension does not take records"
"""
_CONSUMER = """
import sys
from modeaware import Consumer

servers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": servers, "group.id": "billing", "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
read = []
while len(read) < count:
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        read.append(int(message.value()))
        consumer.commit(message, asynchronous=False)
consumer.close()
assert sorted(read) == list(range(count)), "records were lost or doubled"
"""


def check() -> str:
    """Run it all while an application reads; the metrics of the dashboard are in the pages of the controllers."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        inside = empty_environment(sys.executable, Path(folder), f"{own_wheel()}[controller,metrics]")
        kafka = stack.enter_context(LocalKafka()).bootstrap_servers
        pages = [stack.enter_context(controller(inside, command, kafka)) for command in compose_commands()]
        lines = list(page_commands())
        for number, line in enumerate(lines):
            run([inside / "modeaware", *line], environment={"MODEAWARE_BOOTSTRAP_SERVERS": kafka})
            if not number:  # the topic is there
                reading = stack.enter_context(program(inside, _CONSUMER, kafka, TOPIC, RECORDS * len(lines)))
            partitions = 12 if line[0] in ("topics", "plan") else 4
            with program(inside, _PRODUCER, kafka, TOPIC, partitions, RECORDS * number, RECORDS) as producing:
                finished(producing)
        finished(reading)
        exported = "".join(urlopen(f"http://{page}/metrics", timeout=10).read().decode() for page in pages)
    missing = dashboard_metrics() - exposed(exported)
    if missing:
        raise Failed(f"/metrics lacks {sorted(missing)}")
    ran = ", ".join(line[0] for line in lines)
    return (
        f"{ran} beside two controllers, {RECORDS * len(lines)} records read once; /metrics has what the dashboard shows"
    )


@contextmanager
def program(inside: Path, code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program in the environment of the wheel; it is ended with the block."""
    command = [str(inside / "python"), "-P", "-c", code, *map(str, arguments)]  # -P: not this checkout's modeaware
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(process: subprocess.Popen[str]) -> None:
    """Wait for the end of a program. Raises Failed with its output where it failed, or takes too long."""
    try:
        output, _ = process.communicate(timeout=PROGRAM_S)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"an application does not end: {error}") from error
    if process.returncode:
        raise Failed(output)


def exposed(text: str) -> set[str]:
    """Return the names of the samples that an exposition declares: counters have a suffix in the queries."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)", text, re.MULTILINE))
    return {name if kind != "counter" or name.endswith("_total") else f"{name}_total" for name, kind in kinds.items()}


def compose_commands() -> list[list[str]]:
    """Return the arguments of the controllers in the compose file."""
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))["services"]
    return [service["command"] for name, service in services.items() if name.startswith("controller")]


def page_commands() -> Iterator[list[str]]:
    """Yield the commands that the pages tell to type: those of docs/deploy.md, then the replacement of the README."""
    deploy = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    yield from (line.split() for line in re.findall(r"^in-compose (.*)$", deploy, re.MULTILINE))
    (line,) = re.findall(r"^modeaware (replace .*) --bootstrap-server localhost:9092$", readme, re.MULTILINE)
    yield [*line.split(), "--yes"]


def dashboard_metrics() -> set[str]:
    """Return the names of a controller's metrics in the queries of the dashboard, as an exposition declares them."""
    dashboard = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text(encoding="utf-8"))
    queries = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ()))
    return set(re.findall(r"\bmodeaware_(?:controller|topic)_\w+", queries))


@contextmanager
def controller(inside: Path, command: list[str], servers: str) -> Iterator[str]:
    """Run a controller until the end of the block, with ports of this machine; yields the address of its pages."""
    http, endpoint = free_ports(2)
    text = (
        " ".join(command).replace("0.0.0.0:9404", f"127.0.0.1:{http}").replace("0.0.0.0:9095", f"127.0.0.1:{endpoint}")
    )
    words = re.sub(r"controller-\d:9095", f"127.0.0.1:{endpoint}", text).split()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [inside / "modeaware", *words, f"--bootstrap-server={servers}"], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            await_ready(f"127.0.0.1:{http}")
            yield f"127.0.0.1:{http}"
        except BaseException:
            log.seek(0)
            print(log.read()[-2000:])
            raise
        finally:
            process.terminate()
            process.wait(30)


def await_ready(address: str) -> None:
    """Return when the controller at this address is ready. Raises Failed after :data:`READY_S`."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urlopen(f"http://{address}/ready", timeout=5):
                return
        except (URLError, OSError) as error:
            if time.monotonic() > deadline:
                raise Failed(f"no controller is ready at {address}: {error}") from error
            time.sleep(0.5)  # between two requests to a process that is starting
