"""0.1.0 and this release read each other's frames and mode logs; docs/upgrade.md names what 0.1.0 does not know."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import modeaware
import partitioners
from modeaware.cli import COMMANDS
from modeaware.config import CLIENT_SETTING_NAMES
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRulesRecord
from modeaware.modelog.records import (
    CLAIM_KEY,
    OBSERVED_BROKERS_KEY,
    ClaimRecord,
    DeleteTopicPartitions,
    ObservedBrokersRecord,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modelog.replay import Replay, fold
from modeaware.modes import ReplicaState
from modeaware.wire import codec
from tests.support.modelog import NONE, RO, topic_record
from tests.support.old_release import ROOT, Release, old_release
from tests.support.recorded_log import Entry, recorded

TOPIC = {"name": "orders", "topic_id": "ASNFZ4mrze8BI0VniavN7w", "controller_epoch": 3, "mode_epoch": 7}
PARTITION = {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}

# Metadata with modes and DeletePartitions, told by a release and read by it. Every name in it is as old as 0.1.0.
FRAMES = """
from modeaware.wire import codec
try:  # up to 0.2.0
    from modeaware.wire import kip694
    node, Modes = kip694.ENDPOINT_NODE_ID, kip694.ModesResponse
    encode, decode = kip694.encode_modes_response, kip694.decode_modes_response
except ImportError:
    node, Modes = codec.ENDPOINT_NODE_ID, codec.ModesMetadataResponse
    encode = lambda message, number: codec.encode_response(message, 10, number)
    decode = lambda payload: codec.decode_response(payload, 3, 10)

def told(topic, partition, more, asked):
    t = Modes.MetadataResponseTopic
    p = t.MetadataResponsePartition
    parts = [
        p(error_code=0, partition_index=n, mode=mode, resume_offset=n + 9, reclaimed=mode < 0, **partition, **more)
        for n, mode in enumerate((0, 1, -1))
    ]
    answer = Modes(
        throttle_time_ms=0, brokers=[], cluster_id=None, controller_id=node,
        topics=[t(error_code=0, is_internal=False, partitions=parts, **topic)], controller_name="c-1",
    )
    d = codec.DeletePartitionsRequest
    wanted = d(timeout_ms=5, immediate_delete=False, delete_partitions_delay=7,
               topics=[d.DeletePartitionsTopic(name="orders", partitions=4, accept_state_loss=["app"], **asked)])
    wanted.with_header(correlation_id=2, client_id="c")
    return [encode(answer, 1).hex(), wanted.encode(version=0, header=True).hex()]

def read(frames):
    answer, wanted = map(bytes.fromhex, frames)
    number, modes = decode(answer)
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
    names: dict[str, Any] = {}
    exec(FRAMES, names)
    return names[program](*given) if isinstance(given, tuple) else names[program](given)


def test_0_1_0_reads_frames_with_what_it_does_not_know(old: Release) -> None:
    topic = TOPIC | {"previous_counts": [6, 12]}
    frames = here("told", (topic, PARTITION, {"handed_over": True}, {"evacuate": True}))
    assert old.evaluate(READ, [topic, PARTITION, {}, {}, frames]) == here("read", frames)


def test_frames_of_0_1_0_are_read(old: Release) -> None:
    frames = old.evaluate(TELL, [TOPIC, PARTITION, {}, {}, None])
    assert old.evaluate(READ, [TOPIC, PARTITION, {}, {}, frames]) == here("read", frames)
    (topic,) = codec.decode_response(bytes.fromhex(frames[0]), 3, 10)[1].topics  # type: ignore[index]  # a list of texts
    assert topic.previous_counts == [], "so there is nothing to hold keys back for"


def test_what_0_1_0_does_not_know_is_named_in_the_document(old: Release) -> None:
    page = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
    rollback = page.partition("## Rollback")[2].partition("\n## ")[0]
    settings = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    controllers = re.findall(r"^\| `((?:modeaware|delete)\.[\w.]+)` \|", settings, re.MULTILINE)
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
    released = [heading for heading in re.findall(r"^## .*$", changes, re.MULTILINE) if "Unreleased" not in heading]
    assert modeaware.__version__ in released[0]


# What a release makes of a log, record by record. Runs with either one: every name in it is as old as 0.1.0.
VIEWS = """
from modeaware.modelog.replay import Replay
def told(log):
    replay, found = Replay(), []
    for key, value in log:
        replay.apply(key, None if value is None else value.encode())
        views = [replay.view(topic) for topic in sorted(replay.topics)]
        found.append({
            "views": [
                [v.topic, v.version, [int(m) for m in v.modes], sorted(v.resume_offsets.items()), sorted(v.reclaimed)]
                for v in views
            ],
            "rejected": replay.rejected,
            "claimed": replay.claim and replay.claim.controller_epoch,
            "rules": replay.group_rules and [rule.group for rule in replay.group_rules.rules],
        })
    return found
"""
TELL_VIEWS = VIEWS + "print(json.dumps(told(json.load(sys.stdin))))"

# What a controller of that release writes of each topic when it has something to write of it.
REWRITTEN = """
from modeaware.modelog.replay import Replay
replay = Replay()
for key, value in json.load(sys.stdin):
    replay.apply(key, None if value is None else value.encode())
print(json.dumps([[key, record.to_json().decode()] for key, record in replay.records.items()]))
"""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Rubbish is no news here."""
    with patch.object(logging.getLogger("modeaware.modelog.replay"), "disabled", True):
        yield


def views(log: list[Entry]) -> Any:
    """What this release makes of a log."""
    names: dict[str, Any] = {}
    exec(VIEWS, names)
    return json.loads(json.dumps(names["told"](log)))


def replayed(log: list[Entry]) -> Replay:
    return fold((key, None if value is None else value.encode()) for key, value in log)


NEW_DELETION = DeleteTopicPartitions(
    *(4, 0, False, 1_000, 12),
    accept_state_loss=("streams",),
    earlier_counts=(16, 24),
    revived_ms=5_000,
    evacuate=True,
    evacuation_epoch=3,
)


def new_records() -> list[TopicRecord]:
    """Records with all that 0.1.0 does not know."""
    retired = {
        4: RetiredPartition(seal_offset=7, drained_by=1, evacuated_to=5, switch_offset=3),
        5: RetiredPartition(
            replica_state=ReplicaState.DELETION_INELIGIBLE, seal_offset=9, reason="compacted", evacuated=True
        ),
    }
    record = topic_record("new", count=6, deletion=NEW_DELETION, handed_over=(0, 1, 5), handover_offsets={2: 640})
    modes = (*record.modes[:4], RO, NONE)
    return [replace(record, retired=retired, modes=modes), topic_record("plain", rest=NONE)]


def new_log() -> list[Entry]:
    """What a controller of now writes after one of 0.1.0, with every kind of record there is."""
    observed = ObservedBrokersRecord(brokers={1: "a", 2: None}, controller_epoch=3, epoch=0)
    log = recorded()
    taken_over = max(json.loads(value)["controller_epoch"] for _, value in log if value is not None) + 1
    log.append((CLAIM_KEY, ClaimRecord(taken_over, "host:1", "c").to_json().decode()))
    log.append((OBSERVED_BROKERS_KEY, replace(observed, controller_epoch=taken_over).to_json().decode()))
    records = [*replayed(log).records.values(), *new_records()]
    log += [(r.topic_id, r.stamped(taken_over, 9_000).to_json().decode()) for r in records]
    return log


def test_a_log_of_0_1_0_says_now_what_it_said_then(old: Release) -> None:
    log = recorded()
    assert views(log) == old.evaluate(TELL_VIEWS, log)
    assert replayed(log).rejected == 0


def test_what_is_written_now_0_1_0_reads(old: Release) -> None:
    log = new_log()
    then: Any = old.evaluate(TELL_VIEWS, log)
    now = views(log)
    assert [each["views"] for each in then] == [each["views"] for each in now]
    assert [each["claimed"] for each in then] == [each["claimed"] for each in now]
    assert then[-1]["rejected"] == 1, "the observed brokers, a key that it passes over, and nothing else"
    assert now[-1]["rejected"] == 0


def test_what_a_controller_of_0_1_0_drops_when_it_takes_over_is_what_the_document_says(old: Release) -> None:
    """The list stands in docs/mode-log.md; nothing in it lets a record be deleted that would not have been."""
    log = new_log()
    answer: Any = old.evaluate(REWRITTEN, log)
    after = {key: TopicRecord.from_json(value.encode()) for key, value in answer}
    before = replayed(log).records
    assert after.keys() == before.keys()
    for key, record in before.items():
        kept = {
            p: replace(retired, evacuated=False, evacuated_to=None, switch_offset=None)
            for p, retired in record.retired.items()
        }
        deletion = record.deletion and replace(
            record.deletion, handed_over=True, earlier_counts=(), revived_ms=None, evacuate=False, evacuation_epoch=-1
        )
        expected = replace(record, retired=kept, deletion=deletion, handed_over=(), handover_offsets={})
        assert after[key] == expected


names = st.text("abcdefgh_", min_size=1, max_size=8).map(lambda name: f"later_{name}")
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
unknown = st.dictionaries(names, anything, max_size=4)


@given(unknown, unknown, unknown, unknown, st.integers(1, 99))
def test_fields_that_are_not_known_are_ignored_at_every_level(
    top: dict[str, Any], deletion: dict[str, Any], retired: dict[str, Any], straggler: dict[str, Any], version: int
) -> None:
    for key, value in recorded():
        if value is None:
            continue
        fields = {**top, **json.loads(value), "version": version}
        if "deletion" in fields:
            fields["deletion"] |= deletion
        columns = fields.get("retired", {})
        columns |= retired
        for each in columns.get("straggler", []):
            each |= straggler
        kind = {CLAIM_KEY: ClaimRecord, GROUP_RULES_KEY: GroupRulesRecord}.get(key, TopicRecord)
        assert kind.from_json(json.dumps(fields).encode()) == kind.from_json(value.encode())


def test_0_1_0_refuses_what_it_is_told_to_refuse_and_ignores_what_it_does_not_know(old: Release) -> None:
    held = topic_record("orders", 1)
    known = json.loads(held.to_json())
    more = known | {"version": 7, "later": [1], "epoch": 2}
    newer = known | {"version": 7, "min_reader": 2, "epoch": 3}
    told: Any = old.evaluate(TELL_VIEWS, [(held.topic_id, json.dumps(fields)) for fields in (known, more, newer)])
    assert [each["views"][0][1] for each in told] == [[1, 1], [1, 2], [1, 2]]
    assert [each["rejected"] for each in told] == [0, 0, 1]
