"""A topic of 12 partitions gets 4 while producers write to it, by a shrink or a replacement; and what is stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Set as AbstractSet
from typing import Literal

from confluent_kafka import Message, murmur2

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import TopicRecord
from tests.support.controlled import Controlled
from tests.support.plain import drain_topic, ends

BEFORE, AFTER = 12, 4
DEADLINE_S = 120
Change = Literal["shrink", "replacement"]


def change_count(served: Controlled, topic: str, change: Change) -> str:
    """Return the topic that is written to from then on; all partitions that take no more writes have seals."""
    if change == "shrink":
        served.shrink(topic, AFTER, None)
        target = topic
    else:
        target = f"{topic}-v2"
        assert served.ask(ReplaceTopicCommand(topic, target, AFTER)).code is ErrorCode.NONE
        served.wait_for(topic, lambda record: topic_phase(record) in ("drain", "reclaim", "done"), DEADLINE_S)
    served.wait_for(topic, _is_sealed, DEADLINE_S)
    return target


def _is_sealed(record: TopicRecord) -> bool:
    return all(each.seal_offset is not None for each in record.retired.values()) and len(record.retired) > 0


def check_stored(served: Controlled, topic: str, target: str, acknowledged: AbstractSet[str], key_count: int) -> None:
    """Nothing is behind a seal, lost, doubled, misplaced or out of order. A value is ``producer:number``, and the
    numbers of a key ascend."""
    seals = served.seals(topic)[topic]
    assert {p: end for p, end in ends(served.servers, topic).items() if p in seals} == seals, "nothing after a seal"
    stored = [message for name in dict.fromkeys((topic, target)) for message in drain_topic(served.servers, name)]
    times = Counter((message.value() or b"").decode() for message in stored)
    assert acknowledged - times.keys() == set(), "lost"
    assert {value for value, count in times.items() if count > 1} == set(), "doubled"
    _check_places(stored, topic, target, key_count)


def _check_places(stored: list[Message], topic: str, target: str, key_count: int) -> None:
    """Each key was written to its old place, then to its new one, in order; a record without one to any."""
    by_key: dict[bytes, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for message in stored:
        if (key := message.key()) is not None:
            place = (message.topic() or "", message.partition() or 0)
            by_key[key][place].append(int((message.value() or b"").decode().split(":")[1]))
    assert len(by_key) == key_count
    for key, places in by_key.items():
        old, new = (topic, murmur2(key, BEFORE)), (target, murmur2(key, AFTER))
        assert places.keys() == {old, new}, f"misplaced: {key!r}"
        numbers = [number for place in dict.fromkeys((old, new)) for number in places[place]]
        assert numbers == sorted(numbers), f"out of order: {key!r}"
