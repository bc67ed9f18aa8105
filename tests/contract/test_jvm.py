"""The producer plug-ins for the JVM against this package: where keys go, and what readers make of one mode log."""

from __future__ import annotations

import json
import logging
import random
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from confluent_kafka import murmur2
from kafka.record.default_records import DefaultRecordBatchBuilder

from modeaware import Producer
from modeaware.chain import written_topic
from modeaware.config import ClientConfig
from modeaware.confluent import router  # private: a producer with and without the extension
from modeaware.librdkafka import Producer as StockProducer
from modeaware.lifecycle.state import PHASES, topic_phase
from modeaware.local.jars import kafka_jars
from modeaware.modelog.group_rules import GROUP_RULES_KEY
from modeaware.modelog.json_form import MAX_READ_BYTES, JsonRecord
from modeaware.modelog.moved import MOVED_PREFIX
from modeaware.modelog.reader import LogRecord
from modeaware.modelog.records import (
    CLAIM_KEY,
    OBSERVED_BROKERS_KEY,
    ClaimRecord,
    DeleteTopicPartitions,
    OpeningPartition,
    Replacement,
    Straggler,
    TopicRecord,
)
from modeaware.modelog.replay import MAX_KEY_BYTES, Replay
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.log import LogSource
from modeaware.views.store import ViewStore
from partitioners import named
from tests.simulation.controller import seams
from tests.simulation.guards import FIRST_SEED
from tests.simulation.report import CHAIN_FROM, DELETE_FROM, NAMES_FROM, REPLACE_FROM, Report, run
from tests.support.jvm import answers, build_jar, plug_ins_jar, run_java
from tests.support.modelog import NONE, RO, RW, for_newer_readers, topic_record
from tests.support.offline import CONF, Acquired, finish

HASHES = ("murmur2_random", "consistent_random", "minimal_movement")
COUNTS = (12, 5)
SCHEDULES = 5
Entry = tuple[str | bytes | None, bytes | None]
Placed = tuple[bytes | None, list[int]]


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of rejected records are no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def encoded(value: str | bytes | None) -> str:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return "-" if data is None else b64encode(data).decode() or "~"


def keys() -> list[bytes | None]:
    """20 000: none, empty, binary and Unicode ones."""
    rng = random.Random(55)
    binary = [rng.randbytes(rng.randrange(1, 40)) for _ in range(10_000)]
    texts = ["".join(chr(rng.choice((65, 228, 0x4E2D, 0x1F600)) + rng.randrange(26)) for _ in range(8)) for _ in binary]
    return [None, b"", *binary[1:], *(text.encode() for text in texts[1:])]


OPEN = (1, 2, 5, 8, 11)
"""Writable partitions, with gaps between them."""


@pytest.fixture(scope="module")
def in_java() -> list[Placed]:
    """Each key, and where Java puts it: by each hash among each count, then by the plug-in with each hash in OPEN."""
    all_keys = keys()
    found = answers([encoded(key) for key in all_keys], "keys", encoded(shrunk_to_open().to_json()), *map(str, COUNTS))
    return [(key, [int(each) for each in line.split()]) for key, line in zip(all_keys, found, strict=True)]


def shrunk_to_open() -> TopicRecord:
    record = topic_record(topic_id=LIVE_ID, writable=0)
    return replace(record, modes=tuple(RW if p in OPEN else RO for p in range(12)), retired={})


def test_keys_go_where_the_partitioners_of_this_package_put_them(in_java: list[Placed]) -> None:
    """Also by the plug-in, in a topic whose writable partitions have gaps between them."""
    partitioners = [named(name).for_topic("orders") for name in HASHES]
    differing = []
    for key, found in in_java:
        expected = [
            each.partition(key, count) if each.requires_consistency(key) else -1
            for each in partitioners
            for count in COUNTS
        ]
        expected += [OPEN[by_five] if by_five >= 0 else -1 for by_five in expected[1::2]]
        if found != expected:
            differing.append((key, found, expected))
    assert differing == [], differing[:5]


@pytest.mark.parametrize("has_extension", [True, False])
@pytest.mark.parametrize("name", HASHES)
def test_keys_go_where_a_producer_of_this_package_sends_them(
    in_java: list[Placed], name: str, has_extension: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    class Recording(StockProducer):
        def produce(self, topic: str, value: Any = None, key: Any = None, partition: int = -1, *rest: Any) -> None:
            sent.append(partition)

    acquired = Acquired()
    acquired.views.put(shrunk_to_open().view())
    monkeypatch.setattr(registry, "acquire", acquired)
    monkeypatch.setattr("confluent_kafka.Producer", Recording)
    if not has_extension:
        monkeypatch.setattr(router, "RoutedProduce", None)
    producer = Producer({**CONF, "partitioner": name})
    for key, _ in in_java:
        producer.produce("orders", None, key)
    finish(producer)
    column = HASHES.index(name) - len(HASHES)
    differing = [
        (key, partition, found)
        for (key, found), partition in zip(in_java, sent, strict=True)
        if partition not in (OPEN if found[column] < 0 else (found[column],))
    ]
    assert differing == [], differing[:5]


class PythonReader:
    """The views in force after each step of a log, as the Java program prints them."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.store = ViewStore(lambda fresh, timeout_s: None, 300_000)
        self.source = LogSource({}, ClientConfig(), self.store)
        self.offset = 0

    def step(self, entry: Entry | str) -> str:
        if entry == "new":
            self.restart()
        elif entry == "begin":
            self.source.begin()
            self.offset = 0
        elif entry == "end":
            self.source.reached_end(self.offset)
        else:
            key, value = entry
            data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
            self.source.records([LogRecord(self.offset, data, value)])
            self.offset += 1
        return " ".join(self.text(view) for _, view in sorted(self.store.views().items(), key=by_utf16))

    def text(self, view: TopicView) -> str:
        writable = "all" if view.all_writable else str(list(view.writable)).replace(" ", "")
        now = view.replaced_by if view.is_replaced else None
        names = ("-", "-") if now is None else (now.topic, now.topic_id)
        written = written_topic(view.topic, self.store.view).topic
        version = ".".join(map(str, view.version))
        return "|".join(
            (quoted(view.topic), quoted(str(view.topic_id)), version, writable, *map(quoted, names), quoted(written))
        )


def by_utf16(item: tuple[str, TopicView]) -> bytes:
    """The order of Java's strings."""
    return item[0].encode("utf-16-be", "surrogatepass")


def quoted(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if 32 < code < 127 and chr(code) not in "|\\" else f"\\u{code:04x}" for code in codes)


def differing(steps: list[Entry | str]) -> list[tuple[Entry | str, str, str]]:
    """The steps after which the two readers have other views."""
    lines = [step if isinstance(step, str) else f"{encoded(step[0])} {encoded(step[1])}" for step in steps]
    python = PythonReader()
    by_python = [python.step(step) for step in steps]
    by_java = answers(lines, "views")
    assert any(by_python), "some views are in force"
    return [found for found in zip(steps, by_java, by_python, strict=True) if found[1] != found[2]]


def phases_of(log: Iterable[Entry]) -> set[str]:
    """The phases that the records of a log show, each with the kind of the change."""
    replay = Replay()
    met = set()
    for key, value in log:
        replay.apply(key, value)
        for record in replay.records.values():
            kind = "replacement" if record.has_replacement else "resize"
            met.add("undone" if record.replacing.undone_ms is not None else f"{kind} {topic_phase(record)}")
    return met


def test_every_phase_of_shrinks_growths_and_chains_of_replacements_gives_the_same_views() -> None:
    """Logs of the simulator, and one of what its schedules rarely meet: each read to the middle, then followed; read
    again where its end is lost."""
    logs: list[list[Entry]] = [[(each.topic_id, each.to_json()) for each in RARE]]
    starts = (FIRST_SEED, REPLACE_FROM, DELETE_FROM, CHAIN_FROM, NAMES_FROM)
    for seed in (first + number for first in starts for number in range(SCHEDULES)):
        with seams():
            logs.append(list(run(seed, Report()).log.entries))
    assert set().union(*map(phases_of, logs)) == MET
    steps: list[Entry | str] = []
    for log in logs:
        middle = len(log) // 2
        steps += ["new", "begin", *log[:middle], "end", *log[middle:]]
        steps += ["begin", *log[:middle], "end", *log[middle:], "begin", *log, "end"]
    found = differing(steps)
    assert found == [], found[:5]


SHRUNK = topic_record(deletion=DeleteTopicPartitions(4, 0, False, 1_000, 12), waived={"audit": "OPS-1"})
FULL = replace(
    SHRUNK,
    modes=(RW,) * 4 + (RO,) * 6 + (NONE, RO),
    retired={p: replace(SHRUNK.retired[p], stragglers=p, straggler=Straggler(p)) for p in range(4, 11)},
    opening={11: OpeningPartition(7)},
    opening_since_ms=1,
    opening_assignments=((1, 2), (3,)),
    required_groups=("billing",),
    replacement=Replacement(
        "orders-v2",
        4,
        1_000,
        configs={"retention.ms": "1"},
        new_topic_id="id-of-v2",
        announced_ms=1,
        switched_ms=2,
        own_configs={"max.message.bytes": None},
    ),
)
UNDONE = replace(FULL.replacing, undone_ms=3)
RARE = (
    replace(SHRUNK, modes=(RW,) * 11 + (RO,), retired={}, opening={11: OpeningPartition(7)}),
    replace(FULL, epoch=2),
    replace(FULL, epoch=3, replacement=UNDONE),
    replace(FULL, epoch=4, replacement=replace(UNDONE, switched_ms=None)),
)
MET = {f"replacement {phase}" for phase in PHASES if phase != "opening"} | {
    "undone",
    *(f"resize {phase}" for phase in PHASES if phase not in ("create", "announce")),
}
CLAIM = ClaimRecord(1, "host:1", "c", 1_000, "host", "SASL_SSL", 4)
VALUES = [
    *(None, True, False, 0, 1, -1, 7, 1.0, 1e400, 2**70, "", "x", "1", "\ud800", [], [[]], [1], ["x"], [[0, 3]]),
    *(
        [[0, 11, 0]],
        [[0, 3, 0], [4, 11, -1]],
        [[0, 3, 0], [5, 11, 1]],
        [[0, 11, 2]],
        [[0, 99_999, 0]],
        [[0, 100_000, 0]],
    ),
    *({}, {"partitions": []}, {"partitions": [[11, 11]]}, {"partitions": [[4, 4]], "offset": [1, 2]}, {"offset": 1}),
    *({"x": None}, {"x": ["y"]}, {"x": 1}, {"partitions": [[0, 0]]}, {"partitions": [[4, 4], [4, 5]]}),
]
TEXTS = [
    *(b"", b" ", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"{}", b"{} {}", b"{},", b'{"a":1,}', b"{,}"),
    *(b"{'a':1}", b'{"a"}', b'{"a":01}', b'{"a":-}', b'{"a":1.}', b'{"a":.5}', b'{"a":1e}', b'{"a":NaN}', b'{"a":tru}'),
    *(b'{"a":-Infinity}', b'{"a":"\x01"}', b'{"a":"\\x"}', b'{"a":"\\u12"}', b'{"a":"', b'{"a":"\\', b'{"a":[1,]}'),
    *(b"\xef\xbb\xbf{}", b'{"a":' + b"[" * 100_000, b'{"a":"\xed\xa0\x80"}', b"[" * 100_000, b'{"a":+1}', b'{"a":1}\0'),
]


def variants(record: JsonRecord) -> Iterator[dict[str, Any]]:
    """What may be wrong with ``record``: each field, at each level, with each of the values, or without it."""
    known = json.loads(record.to_json())

    def changed(found: Any) -> Iterator[dict[str, Any]]:
        for name in list(found):
            kept = found.pop(name)
            yield known
            for value in VALUES:
                found[name] = value
                yield known
            found[name] = kept
            if isinstance(kept, dict):
                yield from changed(kept)

    return changed(known)


def test_malformed_and_newer_records_give_the_same_views() -> None:
    whole = FULL.to_json()
    fields = json.loads(whole)
    steps: list[Entry | str] = ["new", "begin", "end"]
    undone = ({**fields, "replacement": {**fields["replacement"], "undone_ms": value}} for value in VALUES)
    for epoch, each in enumerate(chain(undone, variants(FULL)), 2):
        risen = {**each, "epoch": epoch} if each.get("epoch") == fields["epoch"] else each  # one that is read shows
        steps.append((FULL.topic_id, json.dumps(risen).encode()))
    for each in variants(CLAIM):
        steps += ["new", "begin", "end", (CLAIM_KEY, json.dumps(each).encode()), (FULL.topic_id, whole)]
    texts = [
        *TEXTS,
        *(whole[:length] for length in range(0, len(whole), 37)),
        for_newer_readers(FULL),
        json.dumps({**fields, "later": [{"x": 1}], "version": 9}).encode(),
        json.dumps({**fields, "later": "x" * MAX_READ_BYTES}).encode(),
        json.dumps(
            {**fields, "topic": "\u00e9\U0001f600 \\|", "later": '"\\/\b\f\n\r\t\u2028'}, ensure_ascii=False
        ).encode(),
        json.dumps({**fields, "min_reader": True}).encode(),
        json.dumps(fields, indent=2).encode() + b"\r\n\t ",
        whole[:-1] + b',"later":' + b"[" * 50 + b"]" * 50 + b"}",
        whole[:-1] + b',"topic":"twice"}',
        whole[:-1] + b',"later":[1.5e3,-0,-0.0E-7,true,false,null,""]}',
    ]
    for text in texts:
        steps += [
            "new",
            "begin",
            (FULL.topic_id, SHRUNK.to_json()),
            "end",
            (FULL.topic_id, text),
            (b"\xff", text),
            (None, text),
        ]
    for key in (f"{MOVED_PREFIX}x", GROUP_RULES_KEY, OBSERVED_BROKERS_KEY):
        steps += [
            "new",
            "begin",
            "end",
            (FULL.topic_id, whole),
            (key, json.dumps({**fields, "topic_id": key}).encode()),
        ]
    for key in ("k" * MAX_KEY_BYTES, "k" * (MAX_KEY_BYTES + 1)):
        steps += ["new", "begin", "end", (key, json.dumps({**fields, "topic_id": key}).encode())]
    steps += ["new", "begin", (FULL.topic_id, whole), "end", "begin", "end", (FULL.topic_id, None), ("x", None)]
    found = differing(steps)
    assert found == [], found[:5]


DECISIONS = {
    "shrunk": f"orders {murmur2(b'key-3', 4)}",
    "metadata without ids": f"orders {murmur2(b'key-3', 4)}",
    "created again": f"orders {murmur2(b'key-3', 12)}",
    "replaced, partitioner alone": "InvalidTopicException",
    "replaced, then created again": "InvalidTopicException",  # Python writes to it, until the name is an alias
    "replaced": "orders-v2",
    "renamed behind the interceptor": "InvalidTopicException",
    "before the switch": "orders",
    "another producer of this thread after the switch": "InvalidTopicException",
    "switched between interceptor and partitioner": f"orders {murmur2(b'key-3', 4)}",
    "after the switch": "orders-v2",
    "name kept, to 5": f"orders {murmur2(b'key-3', 5)}",
    "alias ended, to 5": f"orders {murmur2(b'key-3', 5)}",
    "new topic shrunk, to 5": f"orders {murmur2(b'key-3', 2)}",
    "name kept, to 12": f"orders {murmur2(b'key-3', 12)}",
    "alias ended, to 12": f"orders {murmur2(b'key-3', 12)}",
    "new topic shrunk, to 12": f"orders {murmur2(b'key-3', 2)}",
    "metadata of a past id": f"orders {murmur2(b'key-3', 2)}",
    "metadata of a past id, log read again": f"orders {murmur2(b'key-3', 2)}",
    "next id in another reading": f"orders {murmur2(b'key-3', 4)}",
    "metadata of a past id, all open": f"orders {murmur2(b'key-3', 5)}",
    "partitions by a past id are computed once": "true",
    "two ids in the first reading": f"orders {murmur2(b'key-3', 4)}",
    "metadata of a removed id": f"orders {murmur2(b'key-3', 2)}",
    "recorded once more": f"orders {murmur2(b'key-3', 4)}",
    "block": "TimeoutException",
    "error": "ApiException",
    "writable": f"orders {murmur2(b'key-3', 12)}",
    "no view, left to the partitioner": "orders",
    "no view, refused by the partitioner": "TimeoutException",
    "no view, named partition": "Error",
    "no view, another partitioner": "Error",
    "no view, interrupted": "TimeoutException",
    "view after an interrupted wait": f"orders {murmur2(b'key-3', 4)}",
    "unknown setting": "ConfigException",
    "tails of 24 producers": "1",
    "tail after the last close": "false false",
    "class loader of the tail": "true",
    "thread-local of the tail": "null",
    "tail after an unexpected error": "true java.lang.IllegalStateException: bad",
    "others in the consumer": "false",
    "security in the consumer": "true",
    "batches whose first record is placed twice": "50",
    "batches that begin after a record with a partition": "true",
    "keyless records of 100 bytes": "147",
    "keyless records of 1000 bytes": "16",
    "keyless records of 8000 bytes": "2",
    "keyless records of 20000 bytes": "1",
}
LIVE_ID, INTERIM_ID, NEXT_ID = "bGl2ZS10b3BpYy1pZC0wMQ", "aW50ZXJpbS10b3BpYy0wMQ", "bmV4dC10b3BpYy1pZC0wMg"


def alias(old: TopicRecord, new_topic: str, new_id: str, count: int) -> TopicRecord:
    """The record of a deleted old topic."""
    times = {"announced_ms": 1, "switched_ms": 2, "gone_ms": 3}
    return replace(old, replacement=Replacement(new_topic, count, 1_000, new_topic_id=new_id, **times))


def records_of_decisions() -> dict[str, TopicRecord]:
    before = replace(SHRUNK, topic_id=LIVE_ID)
    interim = topic_record("orders.modeaware-1", topic_id=INTERIM_ID)
    return {
        "before": before,
        "after": replace(FULL, topic_id=LIVE_ID, epoch=before.epoch + 1),
        "to interim": alias(before, interim.topic, INTERIM_ID, 5),
        "to 5": alias(interim, "orders", NEXT_ID, 5),
        "to 12": alias(interim, "orders", NEXT_ID, 12),
        "next": topic_record(writable=2, topic_id=NEXT_ID),
        "next open": topic_record(writable=5, count=5, topic_id=NEXT_ID),
    }


@pytest.fixture(scope="module")
def decided() -> tuple[dict[str, str], str]:
    """The decisions of ``Decisions``, and all that it printed."""
    records = records_of_decisions().items()
    done = run_java("Decisions", LIVE_ID, *(f"{name}={b64encode(each.to_json()).decode()}" for name, each in records))
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {line[0]: line[1] for line in lines}, done.stdout + done.stderr


def test_every_case_of_the_plug_ins_is_decided(decided: tuple[dict[str, str], str]) -> None:
    assert decided[0].keys() == DECISIONS.keys()


@pytest.mark.parametrize("case", DECISIONS)
def test_a_record_never_goes_to_a_replaced_or_unknown_place(decided: tuple[dict[str, str], str], case: str) -> None:
    assert decided[0][case] == DECISIONS[case]


FOLLOWED = {
    "absent": 0,
    "created": 9,
    "appended to": 8,
    "failing": 8,
    "readable again": 7,
    "gone": 7,
    "there again": 6,
    "out of range": 5,
    "shorter": 4,
}
"""What happens to a mode log -> how many partitions are writable then. The records have 9, 8, ... writable ones."""
TROUBLES = [
    "org.apache.kafka.common.KafkaException: no broker; the last views stay in force (1 topics)",
    "readable again",
    "org.apache.kafka.common.KafkaException: no leader; the last views stay in force (1 topics)",
    "readable again",
    "truncated or created again; reading it from its beginning",
    "truncated or created again; reading it from its beginning",
]


def test_tail_follows_a_log_that_fails_or_was_created_again() -> None:
    records = (topic_record(epoch=epoch, writable=10 - epoch) for epoch in range(1, 7))
    done = run_java("Following", *(b64encode(each.to_json()).decode() for each in records))
    seen = dict(line.split("\t") for line in done.stdout.splitlines())
    assert seen.pop("late") == "false", "records are in force before anything else is requested"
    assert seen == {k: str(n) for k, n in FOLLOWED.items()}
    said = [line.split("mode log modes: ")[1] for line in done.stderr.splitlines() if "mode log modes: " in line]
    assert said == TROUBLES


@pytest.mark.parametrize("size", [100, 1_000, 8_000])
def test_what_sticks_to_a_partition_fits_one_batch(decided: tuple[dict[str, str], str], size: int) -> None:
    """One record too many would be a batch by itself: twice as many requests."""
    batch = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 16_384)
    room = 0
    while batch.append(room, 5, None, bytes(size), []) is not None:
        room += 1
    assert room - 1 <= int(decided[0][f"keyless records of {size} bytes"]) <= room


def test_no_secret_of_the_producer_is_logged(decided: tuple[dict[str, str], str]) -> None:
    assert "sasl.jaas.config = [hidden]" in decided[1], "Kafka logs the settings of the tail's consumer"
    assert "hunter2" not in decided[1]


def test_key_of_a_skipped_record_is_logged_short_and_without_line_breaks(decided: tuple[dict[str, str], str]) -> None:
    [line] = [line for line in decided[1].splitlines() if "skipped a record" in line]
    assert f'"{"k" * 78}??": no key, or one of more than 1000 bytes' in line


def test_equal_sources_are_an_equal_jar(tmp_path: Path) -> None:
    again = tmp_path / "again.jar"
    done = build_jar(again, MODEAWARE_KAFKA_JARS=str(kafka_jars()))
    assert (done.returncode, done.stdout) == (0, f"{again}\n"), done.stderr
    assert again.read_bytes() == plug_ins_jar().read_bytes()
    assert {"modeaware/ModePartitioner.class", "modeaware/ModeInterceptor.class"} <= set(ZipFile(again).namelist())


@pytest.mark.parametrize(
    ("variables", "why"),
    [({"PATH": "", "JAVA_HOME": ""}, "no javac"), ({"MODEAWARE_KAFKA_JARS": "nowhere"}, "no jars of kafka-clients")],
)
def test_a_build_without_its_tools_leaves_no_earlier_jar(tmp_path: Path, variables: dict[str, str], why: str) -> None:
    jar = tmp_path / "modeaware.jar"
    jar.write_bytes(b"of an earlier build")
    done = build_jar(jar, **variables)
    assert done.returncode == 1
    assert why in done.stderr
    assert not jar.exists()
