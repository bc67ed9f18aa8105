"""docs/uninstall.md, followed to the letter: plain clients, an untouched cluster, nothing lost."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

import modeaware
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode
from tests.conftest import MakeKafka
from tests.support.kafka_tools import write_tools
from tests.support.plain import TIMEOUT_S, commit, create_topic, produce_keyed, watermarks
from tests.support.source_tree import ROOT
from tests.support.waiting import eventually
from tests.workload.deployment import OTHERS, OURS, PLAIN, Deployment
from tests.workload.record import Identity, key_bytes, value_bytes

BLOCK_TIMEOUT_S = 200
COMMAND = """\
import sys
from modeaware.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Machine:
    """A folder to work in, Python with modeaware and without, Kafka's tools, and a shell that remembers its variables.

    What modeaware depends on comes from the environment of the tests; modeaware itself is installed here alone.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        home = folder / "venv"
        venv.create(home, symlinks=True)
        self._bin = home / "bin"
        self.python = str(self._bin / "python")
        write_tools(self._bin)
        self._script("pip", f'exec {shlex.quote(sys.executable)} -m pip --python {shlex.quote(self.python)} "$@"')
        self._install(Path(self.answer("import sysconfig; print(sysconfig.get_path('purelib'))").strip()))
        self._remembered = folder / "variables.sh"
        self._remembered.write_text(
            "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()), encoding="utf-8"
        )

    def run(self, block: str) -> subprocess.CompletedProcess[str]:
        """Paste a block into the shell; what is exported lasts until the next one."""
        save = f"status=$?; export -p > {shlex.quote(str(self._remembered))}; exit $status"
        words = ["bash", "-c", f". {shlex.quote(str(self._remembered))}\ntrap '{save}' EXIT\nset -u\n{block}"]
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )

    def answer(self, program: str) -> str:
        """What a Python program of this machine prints; with its error where it ends with one."""
        words = [self.python, "-c", program]
        done = subprocess.run(
            words, cwd=self._bin, env=self._environment(), capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    def _install(self, packages: Path) -> None:
        """As an installer leaves it, in editable form: found by a .pth file, the command, and a list of all that."""
        (packages / "needs.pth").write_text(f"{Path(confluent_kafka.__file__).parents[1]}\n", encoding="utf-8")
        info = f"modeaware-{modeaware.__version__}.dist-info"
        files = {
            packages / "modeaware.pth": f"{ROOT}\n",
            packages / info / "METADATA": f"Metadata-Version: 2.1\nName: modeaware\nVersion: {modeaware.__version__}\n",
            packages / info / "INSTALLER": "pip\n",
            self._bin / "modeaware": f"#!{self.python}\n{COMMAND}",
        }
        (packages / info).mkdir()
        lines = [f"{info}/RECORD,,"]
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{os.path.relpath(path, packages)},sha256={digest},{len(text)}")
        (packages / info / "RECORD").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self._bin / "modeaware").chmod(0o755)

    def _script(self, name: str, line: str) -> None:
        (self._bin / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (self._bin / name).chmod(0o755)

    def _environment(self) -> dict[str, str]:
        left_out = ("PYTHONPATH", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        folders = os.environ["PATH"].split(os.pathsep)
        others = [folder for folder in folders if not (Path(folder) / "modeaware").exists()]
        return {**kept, "PATH": os.pathsep.join([str(self._bin), *others])}


PAGE = Path(__file__).parents[3] / "docs" / "uninstall.md"
LOG = "__partition_modes"
CONTROLLER = "User:controller"
HOLDS_IT_UP = "slow"
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RIGHTS = """
kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --add --allow-principal User:controller --topic __partition_modes \
    --operation Create --operation Read --operation Write
kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --add --allow-principal User:controller --operation Describe \
    --cluster --topic '*' --group '*'
kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --add --allow-principal User:controller --operation Write \
    --transactional-id modeaware-controller.__partition_modes
kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --add --allow-principal User:controller --operation Read \
    --group modeaware-controller.__partition_modes
kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --add --allow-principal User:billing --operation Read \
    --topic __partition_modes
"""


@pytest.mark.timeout(600)  # Kafka's tools, each a JVM, are run one after the other
def test_the_page_ends_with_plain_clients_an_untouched_cluster_and_nothing_lost(
    make_kafka: MakeKafka, tmp_path: Path
) -> None:
    servers = make_kafka(configs=ACLS).bootstrap_servers
    first = key_bytes(0), value_bytes(Identity(OTHERS, 0, 0).number)
    variables = {"BOOTSTRAP": servers, "CONTROLLER_PRINCIPAL": CONTROLLER}
    machine = Machine(tmp_path, variables)
    for name in ("client.properties", "admin.properties"):
        (machine.folder / name).touch()
    applications = {}
    for topic in ("shrunk", "midst"):
        create_topic(servers, topic, 6, configs={"retention.ms": "86400000"})
        applications[topic] = Deployment(servers, LOG, topic, f"group-of-{topic}", tmp_path)
        produce_keyed(servers, topic, [first], partition=5)
        commit(servers, HOLDS_IT_UP, topic, dict.fromkeys(range(6), 0))
    try:
        _begin(applications)
        before = _cluster(servers)
        _adopt(machine, applications, servers)
        _follow(
            machine,
            {
                "clients": lambda: _restart(applications, PLAIN),
                "controllers": lambda: applications["shrunk"].now.pop("controller-1").stop(),
            },
        )
        ends = {topic: watermarks(servers, topic) for topic in applications}
        _more(applications)
        for topic, application in applications.items():
            now = watermarks(servers, topic)
            assert all(now[p][1] > end for p, (_, end) in ends[topic].items()), "all partitions are written to again"
            application.stop()
            application.check(ordered=False)
        assert _cluster(servers) == before
        assert "No module named 'modeaware'" in machine.answer("import modeaware")
        assert machine.run("command -v modeaware").stdout == ""
    finally:
        for application in applications.values():
            application.kill()


def _begin(applications: dict[str, Deployment]) -> None:
    for application in applications.values():
        for name in ("consumer-1", "producer-1"):
            application.start(name, PLAIN)
    _more(applications)


def _restart(applications: dict[str, Deployment], clients: str) -> None:
    for application in applications.values():
        for name in ("producer-1", "consumer-1"):
            application.replace(name, clients)
    _more(applications)


def _more(applications: dict[str, Deployment]) -> None:
    for application in applications.values():
        application.more()


def _adopt(machine: Machine, applications: dict[str, Deployment], servers: str) -> None:
    """What the documents say of the way in: rights, clients, the controller; then one shrink, and half of another."""
    done = machine.run(RIGHTS)
    assert done.returncode == 0, done.stderr
    _restart(applications, OURS)
    applications["shrunk"].start("controller-1")
    eventually(lambda: _claimed(servers), 60)
    shrink = '--partitions 2 --yes --delay 0s --bootstrap-server "$BOOTSTRAP"'
    ends = {p: end for p, (_, end) in watermarks(servers, "shrunk").items()}
    commit(servers, HOLDS_IT_UP, "shrunk", {p: end for p, end in ends.items() if p < 2})
    for topic in applications:
        asked = machine.run(f"modeaware shrink {topic} {shrink}")
        assert asked.returncode == 0, asked.stderr
    eventually(lambda: all(r.seal_offset is not None for r in _record(servers, "shrunk").retired.values()), 60)
    seals = {p: r.seal_offset for p, r in _record(servers, "shrunk").retired.items()}
    commit(servers, HOLDS_IT_UP, "shrunk", {p: seal for p, seal in seals.items() if seal is not None})
    eventually(lambda: topic_phase(_record(servers, "shrunk")) == "done", 60)
    eventually(lambda: topic_phase(_record(servers, "midst")) == "drain", 60)
    assert _record(servers, "shrunk").modes[2:] == (PartitionMode.NONE,) * 4
    assert _record(servers, "midst").modes[2:] == (PartitionMode.READ_ONLY,) * 4
    _more(applications)


def _claimed(servers: str) -> bool:
    claim = read_mode_log({"bootstrap.servers": servers}, LOG, 20).claim
    return claim is not None and claim.address is not None


def _record(servers: str, topic: str) -> TopicRecord:
    record = read_mode_log({"bootstrap.servers": servers}, LOG, 20).record(topic)
    assert record is not None
    return record


def _follow(machine: Machine, by_hand: dict[str, Callable[[], None]]) -> None:
    """Run the page's blocks in order; where it says that somebody does something, do that."""
    page = PAGE.read_text(encoding="utf-8")
    steps = list(re.finditer(r"^<!-- by hand: (\w+) -->$|^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    assert [step[1] for step in steps if step[1]] == list(by_hand)
    for step in steps:
        if step[1]:
            by_hand[step[1]]()
            continue
        done = machine.run(step[2])
        if page[: step.start()].rstrip().endswith("prints nothing:"):
            assert (done.stdout, done.stderr) == ("", ""), step[2]
        else:
            assert done.returncode == 0, f"{step[2]}\n{done.stdout}\n{done.stderr}"


def _cluster(servers: str) -> dict[str, Any]:
    """Topics with partitions and configs, the broker's configs, groups, ACLs; Kafka's internal topics are left out."""
    admin = AdminClient({"bootstrap.servers": servers})
    topics = {
        name: len(topic.partitions)
        for name, topic in admin.list_topics(timeout=TIMEOUT_S).topics.items()
        if name not in ("__consumer_offsets", "__transaction_state")
    }
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics] + [
        ConfigResource(ResourceType.BROKER, "1")
    ]
    configs = {
        resource.name: {name: entry.value for name, entry in future.result(TIMEOUT_S).items() if not entry.is_default}
        for resource, future in admin.describe_configs(resources).items()
    }
    anything = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    )
    return {
        "topics": topics,
        "configs": configs,
        "groups": sorted(group.group_id for group in admin.list_consumer_groups().result(TIMEOUT_S).valid),
        "acls": sorted(map(str, admin.describe_acls(anything).result(TIMEOUT_S))),
    }
