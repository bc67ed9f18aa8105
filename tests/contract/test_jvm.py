"""The producer plug-ins for the JVM against this package: where keys go, and what readers make of one mode log."""

from __future__ import annotations

import json
import logging
import random
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from modeaware.chain import written_topic
from modeaware.config import ClientConfig
from modeaware.modelog.json_form import MAX_READ_BYTES, JsonRecord
from modeaware.modelog.reader import LogRecord
from modeaware.modelog.records import (
    CLAIM_KEY,
    ClaimRecord,
    DeleteTopicPartitions,
    OpeningPartition,
    Replacement,
    Straggler,
)
from modeaware.topic_view import TopicView
from modeaware.views.log import LogSource
from modeaware.views.store import ViewStore
from partitioners import named
from tests.simulation.controller import seams
from tests.simulation.guards import FIRST_SEED
from tests.simulation.report import CHAIN_FROM, DELETE_FROM, REPLACE_FROM, Report, run
from tests.support.jvm import answers
from tests.support.modelog import NONE, RO, RW, for_newer_readers, topic_record

HASHES = ("murmur2_random", "consistent_random", "minimal_movement")
COUNTS = (12, 5)
SCHEDULES = 5
Entry = tuple[str | bytes | None, bytes | None]


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


def test_keys_go_where_the_partitioners_of_this_package_put_them() -> None:
    all_keys = keys()
    found = answers([encoded(key) for key in all_keys], "keys", *map(str, COUNTS))
    partitioners = [named(name).for_topic("orders") for name in HASHES]
    differing = []
    for key, line in zip(all_keys, found, strict=True):
        expected = [
            each.partition(key, count) if each.requires_consistency(key) else -1
            for each in partitioners
            for count in COUNTS
        ]
        if line.split() != [str(index) for index in expected]:
            differing.append((key, line, expected))
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
        now = view.successor
        writable = "all" if view.all_writable else str(list(view.writable)).replace(" ", "")
        flags = (False,) * 3 if now is None else (now.switched, now.let_go or now.gone, now.gone)
        names = (now.topic, now.topic_id) if now is not None else ("-", "-")
        written = written_topic(view.topic, self.store.view).topic
        version = ".".join(map(str, view.version))
        return "|".join(
            (
                *(quoted(view.topic), quoted(str(view.topic_id)), version, writable),
                *(*map(quoted, names), *(str(flag).lower() for flag in flags), quoted(written)),
            )
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


def test_every_phase_of_shrinks_growths_and_chains_of_replacements_gives_the_same_views() -> None:
    """Logs of the simulator: each read to the middle, then followed; read again where its end is lost."""
    steps: list[Entry | str] = []
    for seed in (
        first + number for first in (FIRST_SEED, REPLACE_FROM, DELETE_FROM, CHAIN_FROM) for number in range(SCHEDULES)
    ):
        with seams():
            log: list[Entry] = list(run(seed, Report()).log.entries)
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
        successor_id="id-of-v2",
        announced_ms=1,
        switched_ms=2,
        own_configs={"max.message.bytes": None},
    ),
)
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
    for epoch, each in enumerate(variants(FULL), 2):
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
    steps += ["new", "begin", (FULL.topic_id, whole), "end", "begin", "end", (FULL.topic_id, None), ("x", None)]
    found = differing(steps)
    assert found == [], found[:5]
