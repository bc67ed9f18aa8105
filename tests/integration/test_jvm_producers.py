"""Java producers with the plug-ins beside an aware Python one, through a shrink and a replacement on a real Kafka."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Message, murmur2

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import TopicRecord
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.jvm import java_command
from tests.support.plain import drain_topic, ends
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually

KINDS = ("keyed", "keyless", "transactional")
PYTHON = "python"
BEFORE, AFTER = 12, 4
MORE = 100
DEADLINE_S = 120


class Writers:
    """Three producers in Java, and one in this process; all write until :meth:`finish`."""

    def __init__(self, served: Controlled, topic: str, folder: Path) -> None:
        self._topic, self._stop = topic, folder / "stop"
        log = f"modeaware.mode.log.topic={served.log}"
        self._java = {
            kind: LoggedProcess(
                java_command("Writing", kind, topic, str(self._stop), f"bootstrap.servers={served.servers}", log),
                folder / f"{kind}.log",
            )
            for kind in KINDS
        }
        conf = {**served.conf, "modeaware.mode.log.topic": served.log, "partitioner": "murmur2_random", "linger.ms": 1}
        self._python = modeaware.Producer({**conf, "enable.idempotence": True})
        self._sent = 0
        self._stored: list[str] = []
        self.failed: list[str] = []

    def acknowledged(self, kind: str) -> list[str]:
        lines = self._java[kind].said.splitlines()
        return [line.split()[0] for line in lines if line.startswith(f"{kind}:")]

    def write_more(self) -> None:
        """Wait until each has written some more records."""
        wanted = {kind: len(self.acknowledged(kind)) + MORE for kind in KINDS}

        def written() -> bool:
            for _ in range(10):
                key, value = f"{PYTHON}-{self._sent % 40}", f"{PYTHON}:{self._sent}"
                self._python.produce(self._topic, value, key, on_delivery=self._delivered)
                self._sent += 1
            self._python.poll(0.05)
            assert not self._failures()
            return all(len(self.acknowledged(kind)) >= count for kind, count in wanted.items())

        eventually(written, DEADLINE_S)

    def finish(self) -> set[str]:
        """End all; return what was acknowledged to them."""
        self._stop.touch()
        for process in self._java.values():
            process.wait_until_it_says("closed", DEADLINE_S)
        assert self._python.flush(30) == 0
        assert not self._failures()
        return {*self._stored, *(value for kind in KINDS for value in self.acknowledged(kind))}

    def close(self) -> None:
        self._python.close()
        for process in self._java.values():
            process.kill()

    def _failures(self) -> list[str]:
        said = [line for each in self._java.values() for line in each.said.splitlines()]
        return self.failed + [line for line in said if line.startswith(("failed", "Exception"))]

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self._stored.append((message.value() or b"").decode())


def sealed(record: TopicRecord) -> bool:
    return all(each.seal_offset is not None for each in record.retired.values()) and len(record.retired) > 0


@pytest.mark.parametrize("change", ["shrink", "replacement"])
@pytest.mark.filterwarnings("ignore::modeaware.errors.ResizeWarning")
def test_a_live_change_loses_doubles_and_misplaces_nothing(
    served: Controlled, make_topic: MakeTopic, tmp_path: Path, change: str
) -> None:
    topic = make_topic(BEFORE)
    target = topic if change == "shrink" else f"{topic}-v2"
    writers = Writers(served, topic, tmp_path)
    try:
        writers.write_more()
        if change == "shrink":
            served.shrink(topic, AFTER, None)
        else:
            assert served.ask(ReplaceTopicCommand(topic, target, AFTER)).code is ErrorCode.NONE
            served.wait_for(topic, lambda record: topic_phase(record) in ("drain", "reclaim", "done"), DEADLINE_S)
        served.wait_for(topic, sealed, DEADLINE_S)
        writers.write_more()
        acknowledged = writers.finish()
    finally:
        writers.close()
    seals = served.seals(topic)[topic]
    assert {p: end for p, end in ends(served.servers, topic).items() if p in seals} == seals, "nothing after a seal"
    stored = [message for name in dict.fromkeys((topic, target)) for message in drain_topic(served.servers, name)]
    times = Counter((message.value() or b"").decode() for message in stored)
    assert acknowledged - times.keys() == set(), "lost"
    assert {value for value, count in times.items() if count > 1} == set(), "doubled"
    check_places(stored, topic, target)


def check_places(stored: list[Message], topic: str, target: str) -> None:
    """Each key was written to its old place, then to its new one, in order; a record without one to any."""
    by_key: dict[bytes, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for message in stored:
        if (key := message.key()) is not None:
            place = (message.topic() or "", message.partition() or 0)
            by_key[key][place].append(int((message.value() or b"").decode().split(":")[1]))
    assert len(by_key) == 3 * 40
    for key, places in by_key.items():
        old, new = (topic, murmur2(key, BEFORE)), (target, murmur2(key, AFTER))
        assert places.keys() == {old, new}, f"misplaced: {key!r}"
        numbers = [number for place in dict.fromkeys((old, new)) for number in places[place]]
        assert numbers == sorted(numbers), f"out of order: {key!r}"
