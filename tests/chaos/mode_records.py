"""Follows the mode log with a plain consumer: each record of the topic, seals and all, as its JSON says."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.chaos.chronicle import Chronicle
from tests.chaos.record import version_number
from tests.chaos.setting import MODE_LOG, Setting

CONSUME_S = 0.2
BATCH = 100
POLL_S = 0.05
READ_WRITE = 0


class Sealed(NamedTuple):
    """Partition -> its seal, and the offset below which its records go: the seal, or a commit below it."""

    seals: Mapping[int, int]
    reclaims: Mapping[int, int]


class ModeRecords:
    """Notes the topic's records, in a thread of its own from :meth:`start` to :meth:`stop`."""

    def __init__(self, setting: Setting, chronicle: Chronicle) -> None:
        self._setting = setting
        self._chronicle = chronicle
        self._sealed: dict[int, Sealed] = {}  # by version
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-mode-records", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def sealed(self, version: tuple[int, int], timeout_s: float) -> Sealed | None:
        """The seals of all partitions that are not writable under this view; None: not found in time, or not sealed."""
        deadline_s, wanted = time.monotonic() + timeout_s, version_number(version)
        while wanted not in self._sealed and time.monotonic() < deadline_s:
            time.sleep(POLL_S)  # another thread reads it
        return self._sealed.get(wanted)

    def _run(self) -> None:
        consumer = Consumer(
            {
                **self._setting.conf,
                "group.id": f"mode-records-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.assign([TopicPartition(MODE_LOG, 0, OFFSET_BEGINNING)])
            told = ""
            while not self._stopping.is_set():
                for message in consumer.consume(BATCH, CONSUME_S):
                    error = message.error()
                    if error is None:
                        self._take(message)
                    elif str(error) != told:  # a broker is down; what matters is found missing later on
                        told = str(error)
                        self._chronicle.note("mode-log-error", error=told)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        value = message.value()
        fields: dict[str, Any] = json.loads(value) if value else {}
        if fields.get("topic") != self._setting.topic:
            return  # a claim, a rule, another topic
        version = version_number((fields["controller_epoch"], fields["epoch"]))
        retired = {int(partition): each for partition, each in fields["retired"].items()}
        seals = {p: each["seal_offset"] for p, each in retired.items() if "seal_offset" in each}
        reclaims = {p: min([seal, *retired[p].get("drained", {}).values()]) for p, seal in seals.items()}
        writable = [p for first, last, mode in fields["modes"] if mode == READ_WRITE for p in range(first, last + 1)]
        if len(seals) == len(retired) == fields["modes"][-1][1] + 1 - len(writable):
            self._sealed[version] = Sealed(seals, reclaims)
        self._chronicle.note(
            "mode-record",
            version=version,
            writable=writable,
            seals=seals,
            stragglers={p: each["stragglers"] for p, each in retired.items() if "stragglers" in each},
            truncations={p: 1 for p, each in retired.items() if "truncated_to" in each},
        )
