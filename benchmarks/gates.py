"""The gates of replaced topics, with many groups and with many topics: how long a group that has read an old topic
waits for the controller's decision, what the decisions cost on the mode log and in the controller; what the controller
spends on topics that groups have not read to their ends, and on many replacements at once; and what one consumer of
many topics that are replaced at once sees."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

import modeaware
from benchmarks.harness import Result
from benchmarks.requests import DEADLINE_S, controlled, created
from benchmarks.scale import MINUTE_S, await_done, commit_start, cpu_s
from benchmarks.setting import Setting
from modeaware.lifecycle.moved import ends_of
from modeaware.modelog.moved import MovedRecord, moved_key, topic_id_of
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from modeaware.notes import READ
from tests.support.plain import drain_topic, ends
from tests.support.waiting import eventually

PARTITIONS, KEPT = 4, 2
SEAL_QUIET_MS = 1_000
CASES = ((1, 1_000, 1), (800, 40, 20))
"""Topics, groups, topics that each group reads."""
QUICK_CASES = ((1, 50, 1), (20, 4, 5))
ARRIVALS_S = 100.0
"""The groups come to the end of their old topics one after another within this time."""
LOG_BYTES, CORES, WAIT_S = 2_000_000, 0.1, 12.0

DRAINING_CASES = ((10, 40), (40, 40), (40, 2_000))
"""Topics that one group each has not read to the end; groups that have nothing to do with them."""
PASSES_S = 10.0
AT_ONCE = (50, 200)
"""Replacements at once."""

TOPICS, RECORDS_PER_S, BATCH, TIMEOUT_S = 100, 2_000, 500, 0.2
STEADY_S, AFTER_S = 15.0, 10.0
BEYOND_S, GAP_S = 0.1, 4.0


def measure(setting: Setting) -> Iterator[Result]:
    """With a seal that is quiet for 1 s."""
    for case in QUICK_CASES if setting.quick else CASES:
        yield from _many_groups(setting, *case)
    for case in DRAINING_CASES[:1] if setting.quick else DRAINING_CASES:
        yield _draining(setting, *case)
    for topics in AT_ONCE[:1] if setting.quick else AT_ONCE:
        yield _at_once(setting, topics)
    yield from _many_topics(setting, 10 if setting.quick else TOPICS)


def _many_groups(setting: Setting, topics: int, groups: int, reads: int) -> Iterator[Result]:
    """The groups have no members here: they commit as mode-aware members do, with the note that all is handled."""
    with controlled(setting, modeaware_seal_quiet_ms=SEAL_QUIET_MS) as (admin, log, process):
        names = created(setting, admin, topics, PARTITIONS)
        of_group = {f"{log.topic}-{n}": [names[(n * reads + i) % topics] for i in range(reads)] for n in range(groups)}
        for group, read in of_group.items():
            commit_start(admin, group, read, range(PARTITIONS))
        with modeaware.Producer({"bootstrap.servers": setting.bootstrap_servers}) as producer:
            for name in names:
                for number in range(PARTITIONS):
                    producer.produce(name, b"unread", partition=number)
            producer.flush(30)
        final = {name: ends(setting.bootstrap_servers, name) for name in names}
        _replace(setting, admin, names)
        records = _sealed(setting, log.topic, names)
        first = ends(setting.bootstrap_servers, log.topic)[0]
        spent_s, start_s = cpu_s(process.pid), time.monotonic()
        committed_ms: dict[tuple[str, str], float] = {}
        for number, (group, read) in enumerate(of_group.items()):
            time.sleep(max(0.0, start_s + number * ARRIVALS_S / groups - time.monotonic()))  # its turn
            handled = [TopicPartition(name, p, end, metadata=READ) for name in read for p, end in final[name].items()]
            commits = ConsumerGroupTopicPartitions(group, handled)
            admin.alter_consumer_group_offsets([commits])[group].result(30)
            committed_ms |= {(records[name].topic_id, group): time.time() * 1000 for name in read}
        opened_ms = _opened(setting, log.topic, committed_ms)
        spent_s, took_s = cpu_s(process.pid) - spent_s, time.monotonic() - start_s
        written = sum(
            len(m.value() or b"")
            for m in drain_topic(setting.bootstrap_servers, log.topic)
            if (m.offset() or 0) >= first
        )
        waits_s = sorted((opened_ms[of] - at) / 1000 for of, at in committed_ms.items())
        setting.delete(*names, *(f"{name}-v2" for name in names))
    name = f"{topics} replaced topics, {groups} groups of {reads} each"
    details = {"median_s": round(waits_s[len(waits_s) // 2], 2)}
    yield Result(f"{name}: longest wait at a gate", waits_s[-1], "s", below=WAIT_S, details=details)
    yield Result(f"{name}: on the mode log, a topic", written / topics, "bytes", below=LOG_BYTES)
    yield Result(f"{name}: controller's CPU", spent_s / took_s, "cores", below=CORES)


def _draining(setting: Setting, topics: int, unrelated: int) -> Result:
    with controlled(setting, modeaware_seal_quiet_ms=SEAL_QUIET_MS) as (admin, log, process):
        names = created(setting, admin, topics, PARTITIONS)
        other = created(setting, admin, 1, 1)
        for number, name in enumerate(names):
            commit_start(admin, f"{log.topic}-{number}", [name], range(PARTITIONS))
        for number in range(unrelated):
            commit_start(admin, f"{log.topic}-u{number}", other, range(1))
        with modeaware.Producer({"bootstrap.servers": setting.bootstrap_servers}) as producer:
            for name in names:
                producer.produce(name, b"unread", partition=0)
            producer.flush(30)
        _replace(setting, admin, names)
        _sealed(setting, log.topic, names)
        time.sleep(PASSES_S)  # the passes that follow the seals
        before_s = cpu_s(process.pid)
        time.sleep(MINUTE_S)  # measured time
        cores = (cpu_s(process.pid) - before_s) / MINUTE_S
        setting.delete(*names, *(f"{name}-v2" for name in names))
    details = {"ms_a_topic_and_minute": round(cores * MINUTE_S * 1000 / topics, 1)}
    name = f"{topics} draining replacements, {unrelated} other groups: controller's CPU"
    return Result(name, cores, "cores", below=CORES, details=details)


def _at_once(setting: Setting, topics: int) -> Result:
    """From the request until all old topics are released; no group reads them."""
    with controlled(setting, modeaware_seal_quiet_ms=SEAL_QUIET_MS) as (admin, log, process):
        names = created(setting, admin, topics, PARTITIONS)
        before_s, start_s = cpu_s(process.pid), time.monotonic()
        _replace(setting, admin, names)
        await_done(setting, log.topic, names, start_s + DEADLINE_S)
        spent_s, took_s = cpu_s(process.pid) - before_s, time.monotonic() - start_s
        setting.delete(*names, *(f"{name}-v2" for name in names))
    details = {"took_s": round(took_s, 1)}
    return Result(
        f"{topics} replacements at once: controller's CPU", spent_s / topics * 1000, "ms a topic", details=details
    )


def _replace(setting: Setting, admin: modeaware.AdminClient, names: Sequence[str]) -> None:
    setting.topics += [f"{name}-v2" for name in names]
    wanted = {name: modeaware.TopicReplacement(f"{name}-v2", num_partitions=KEPT) for name in names}
    for future in admin.replace_topics(wanted, request_timeout=DEADLINE_S).values():
        future.result()


def _sealed(setting: Setting, log: str, names: Sequence[str]) -> Mapping[str, TopicRecord]:
    """The records of the old topics, once the end of each partition is known."""

    def records() -> Mapping[str, TopicRecord]:
        replay = read_mode_log({"bootstrap.servers": setting.bootstrap_servers}, log, 30)
        known = {name: record for name in names if (record := replay.record(name)) is not None}
        is_sealed = len(known) == len(names) and all(ends_of(record) is not None for record in known.values())
        return known if is_sealed else {}

    return eventually(records, DEADLINE_S, interval_s=0.5)


def _opened(setting: Setting, log: str, wanted: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Topic id and group -> the time of the first record that opens the group's gate, once all are open."""
    asked = {moved_key(topic_id) for topic_id, _ in wanted}

    def opened() -> dict[tuple[str, str], float]:
        first_ms: dict[tuple[str, str], float] = {}
        for message in drain_topic(setting.bootstrap_servers, log):
            key, value = (message.key() or b"").decode(), message.value()
            if key in asked and value:
                record, topic_id = MovedRecord.from_json(value), topic_id_of(key) or ""
                for group in record.groups:
                    first_ms.setdefault((topic_id, group), message.timestamp()[1])
        return first_ms if first_ms.keys() >= wanted.keys() else {}

    return eventually(opened, 4 * WAIT_S, interval_s=1.0)


class Reader:
    """One consumer of many topics.

    Attributes:
        beyond_s: the longest time that ``consume`` took beyond its timeout.
        gap_s: the longest time between two records of one topic.
        followed: the new topics of which it has read a record.
    """

    def __init__(self, consumer: modeaware.Consumer) -> None:
        self._consumer = consumer
        self.followed: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """Measure anew."""
        self.beyond_s, self.gap_s = 0.0, 0.0
        self._last_s: dict[str, float] = {}

    def read(self, old: Mapping[str, str], seconds: float) -> None:
        """Read on for so many seconds. ``old``: new topic -> its old topic: the two count as one."""
        until_s = time.monotonic() + seconds
        while (called_s := time.monotonic()) < until_s:
            messages = self._consumer.consume(BATCH, TIMEOUT_S)
            now_s = time.monotonic()
            self.beyond_s = max(self.beyond_s, now_s - called_s - TIMEOUT_S)
            for name in {message.topic() or "" for message in messages}:
                self.gap_s = max(self.gap_s, now_s - self._last_s.get(old.get(name, name), now_s))
                self._last_s[old.get(name, name)] = now_s
                self.followed |= {name} & old.keys()


def _many_topics(setting: Setting, topics: int) -> Iterator[Result]:
    with controlled(setting, modeaware_seal_quiet_ms=SEAL_QUIET_MS) as (admin, log, _):
        names = created(setting, admin, topics, PARTITIONS)
        old = {f"{name}-v2": name for name in names}
        conf = {"bootstrap.servers": setting.bootstrap_servers, "modeaware.mode.log.topic": log.topic}
        over = threading.Event()
        group = {"group.id": f"gates-{uuid.uuid4().hex[:8]}", "auto.offset.reset": "earliest"}
        with modeaware.Consumer({**conf, **group}) as consumer:
            consumer.subscribe(names)
            writing = threading.Thread(target=_write, args=(conf, names, over), daemon=True)
            writing.start()
            reader = Reader(consumer)
            reader.read(old, STEADY_S)
            reader.begin()
            reader.read(old, STEADY_S)
            steady = {"steady_beyond_s": round(reader.beyond_s, 3), "steady_gap_s": round(reader.gap_s, 2)}
            replacing = threading.Thread(target=_replace, args=(setting, admin, names))
            replacing.start()
            until_s = time.monotonic() + DEADLINE_S
            while len(reader.followed) < len(names) and time.monotonic() < until_s:
                reader.read(old, 1.0)
            reader.read(old, AFTER_S)  # a gap shows only at its end
            replacing.join()
            over.set()
            writing.join()
    if len(reader.followed) < len(names):
        raise RuntimeError(f"{len(reader.followed)} of {len(names)} new topics had records")
    name = f"{topics} topics replaced at once, one consumer"
    yield Result(f"{name}: consume beyond its timeout, longest", reader.beyond_s, "s", below=BEYOND_S, details=steady)
    yield Result(f"{name}: a topic without records, longest", reader.gap_s, "s", below=GAP_S, details=steady)


def _write(conf: Mapping[str, str], names: Sequence[str], over: threading.Event) -> None:
    with modeaware.Producer({**conf, "linger.ms": 5, "modeaware.on.resize": "ignore"}) as producer:
        start_s, number = time.monotonic(), 0
        while not over.is_set():
            producer.produce(names[number % len(names)], str(number), key=str(number // len(names)))
            producer.poll(0)
            number += 1
            time.sleep(max(0.0, start_s + number / RECORDS_PER_S - time.monotonic()))  # the pace
