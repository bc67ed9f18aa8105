"""Both releases understand each other's frames, and docs/upgrade.md names what 0.1.0 does not know at all."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

import modeaware
import partitioners
from modeaware.cli import COMMANDS
from modeaware.config import CLIENT_SETTING_NAMES
from modeaware.wire import codec, kip694
from tests.support.old_release import ROOT, Release, old_release

TOPIC = {"name": "orders", "topic_id": "ASNFZ4mrze8BI0VniavN7w", "controller_epoch": 3, "mode_epoch": 7}
PARTITION = {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}

# Metadata with modes and DeletePartitions, told by a release and read by it. Every name in it is as old as 0.1.0.
FRAMES = """
from modeaware.wire import codec, kip694

def told(topic, partition, more, asked):
    t = kip694.ModesResponse.MetadataResponseTopic
    p = t.MetadataResponsePartition
    parts = [
        p(error_code=0, partition_index=n, mode=mode, resume_offset=n + 9, reclaimed=mode < 0, **partition, **more)
        for n, mode in enumerate((0, 1, -1))
    ]
    answer = kip694.ModesResponse(
        throttle_time_ms=0, brokers=[], cluster_id=None, controller_id=kip694.ENDPOINT_NODE_ID,
        topics=[t(error_code=0, is_internal=False, partitions=parts, **topic)], controller_name="c-1",
    )
    d = codec.DeletePartitionsRequest
    wanted = d(timeout_ms=5, immediate_delete=False, delete_partitions_delay=7,
               topics=[d.DeletePartitionsTopic(name="orders", partitions=4, accept_state_loss=["app"], **asked)])
    wanted.with_header(correlation_id=2, client_id="c")
    return [kip694.encode_modes_response(answer, 1).hex(), wanted.encode(version=0, header=True).hex()]

def read(frames):
    answer, wanted = map(bytes.fromhex, frames)
    number, modes = kip694.decode_modes_response(answer)
    (topic,) = modes.topics
    asked = codec.DeletePartitionsRequest.decode(wanted, version=0, header=True)
    (one,) = asked.topics
    return [
        number, modes.controller_name, topic.name, topic.topic_id, topic.controller_epoch, topic.mode_epoch,
        [[p.partition_index, p.mode, p.resume_offset, p.reclaimed, p.leader_id] for p in topic.partitions],
        [asked.timeout_ms, asked.immediate_delete, asked.delete_partitions_delay],
        [one.name, one.partitions, list(one.accept_state_loss)],
    ]
"""
GIVEN = "topic, partition, more, asked, frames = json.load(sys.stdin)\n"
TELL = FRAMES + GIVEN + "print(json.dumps(told(topic, partition, more, asked)))"
READ = FRAMES + GIVEN + "print(json.dumps(read(frames)))"

KNOWS = """
import pkgutil, partitioners
from modeaware.cli import COMMANDS
from modeaware.config import parse_controller_config, split_client_config
from modeaware.errors import ConfigError
def known(parse, name):
    try:
        parse({name: "?"})
    except ConfigError as error:
        return not str(error).startswith("unknown")
    return True
clients, controllers = json.load(sys.stdin)
print(json.dumps({
    "commands": [command.name for command in COMMANDS],
    "modules": [module.name for module in pkgutil.iter_modules(modeaware.__path__)],
    "clients": [name for name in clients if known(split_client_config, name)],
    "controllers": [name for name in controllers if known(parse_controller_config, name)],
}))
"""
PUBLIC_MODULES = ("kafka_python", "aio", "aiokafka", "metrics", "spark", "testing")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return old_release(tmp_path_factory.mktemp("old") / "0.1.0")


def here(program: str, given: object) -> Any:
    """What FRAMES makes of it in this process."""
    names: dict[str, Any] = {"codec": codec, "kip694": kip694}
    exec(FRAMES, names)
    return names[program](*given) if isinstance(given, tuple) else names[program](given)


def test_0_1_0_reads_frames_with_what_it_does_not_know(old: Release) -> None:
    topic = TOPIC | {"previous_counts": [6, 12]}
    frames = here("told", (topic, PARTITION, {"handed_over": True}, {"evacuate": True}))
    assert old.evaluate(READ, [topic, PARTITION, {}, {}, frames]) == here("read", frames)


def test_frames_of_0_1_0_are_read(old: Release) -> None:
    frames = old.evaluate(TELL, [TOPIC, PARTITION, {}, {}, None])
    assert old.evaluate(READ, [TOPIC, PARTITION, {}, {}, frames]) == here("read", frames)
    (topic,) = kip694.decode_modes_response(bytes.fromhex(frames[0]))[1].topics  # type: ignore[index]  # a list of texts
    assert topic.previous_counts == [], "so there is nothing to hold keys back for"


def test_what_0_1_0_does_not_know_is_named_in_the_document(old: Release) -> None:
    page = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
    rollback = page.partition("## Rollback")[2].partition("\n## ")[0]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    controllers = re.findall(r"^\| `((?:modeaware|delete)\.[\w.]+)` \|", readme, re.MULTILINE)
    known: Any = old.evaluate(KNOWS, [list(CLIENT_SETTING_NAMES), controllers])
    unknown = {name for name in CLIENT_SETTING_NAMES if name not in known["clients"]}
    unknown |= {name for name in controllers if name not in {*known["controllers"], *CLIENT_SETTING_NAMES}}
    unknown |= {f"modeaware.{name}" for name in PUBLIC_MODULES if name not in known["modules"]}
    unknown |= {command.name for command in COMMANDS} - set(known["commands"])
    assert {"modeaware.on.resize", "modeaware.under.replicated.creation", "modeaware.aio", "apply"} <= unknown
    assert [name for name in sorted(unknown) if f"`{name}`" not in rollback] == []
    ours = set(partitioners.NAMES) - set(partitioners.LIBRDKAFKA_NAMES)
    assert [name for name in sorted(ours) if f"`{name}`" not in rollback] == []


def test_the_package_and_the_project_name_one_version(old: Release) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == modeaware.__version__ != old.version
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert modeaware.__version__ in re.findall(r"^## .*$", changes, re.MULTILINE)[0]
