"""``modeaware plan --all`` on topics whose rates are known, and ``modeaware apply`` of what it writes."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer

from modeaware.plan.file import read_files
from modeaware.plan.rates import DAY_MS, HOUR_MS
from tests.conftest import MakeTopic
from tests.support.command_line import Site, Told
from tests.support.kafka_tools import run_tool
from tests.support.waiting import eventually

PARTITIONS = 8
HOURS = 7 * 24
MEMBERS = 3
BURST = 2_000
VALUE = b"v" * 500


def write(servers: str, topic: str, hours_ago: list[float], burst_ago: float | None = None) -> None:
    """Write a record of each of these hours to each partition, and :data:`BURST` more at ``burst_ago``: the oldest
    first, each time in batches of its own."""
    now_ms = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "enable.idempotence": True})
    times = [(ago, 1) for ago in hours_ago] + ([] if burst_ago is None else [(burst_ago, BURST)])
    for ago, records in sorted(times, reverse=True):
        for nth in range(records):
            stamp_ms = int(now_ms - ago * HOUR_MS + nth * 1_000_000 // records)
            for p in range(PARTITIONS):
                producer.produce(topic, VALUE, partition=p, timestamp=stamp_ms)
        assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def hourly() -> list[float]:
    """The hours of the window, and of a day before: the middle of each."""
    return [hour + 0.5 for hour in range(HOURS + 24)]


@pytest.fixture
def fleet(
    site: Site, make_topic: MakeTopic, make_group: Callable[[], str], hourly: list[float]
) -> Iterator[dict[str, str]]:
    """What a topic is like -> its name."""
    kept = {"retention_ms": -1}
    topics = {name: make_topic(PARTITIONS, **kept) for name in ("steady", "burst", "live", "idle", "unused")}
    topics["compact"] = make_topic(PARTITIONS, cleanup_policy="compact")
    for name in ("steady", "live", "compact"):
        write(site.servers, topics[name], hourly)
    write(site.servers, topics["burst"], hourly, 49.9)
    site.commit(topics["idle"], make_group(), {0: 0})
    settings = {"bootstrap.servers": site.servers, "group.id": make_group(), "session.timeout.ms": 45_000}
    members = [Consumer(settings) for _ in range(MEMBERS)]
    try:
        for member in members:
            member.subscribe([topics["live"]])

        def all_hold_some() -> bool:
            for member in members:
                member.poll(0.1)
            held = [len(member.assignment()) for member in members]
            return all(held) and sum(held) == PARTITIONS

        eventually(all_hold_some, 60)
        yield topics
    finally:
        for member in members:
            member.close()


def plan_of(site: Site, fleet: dict[str, str], *options: str) -> Told:
    """What the command says once no group of the other tests on this Kafka is in a rebalance: it may use any topic."""

    def told() -> Told:
        answer = site.run("plan", *chosen(fleet), *options)
        assert answer.status == 0, answer.err
        assert "is in a rebalance" not in " ".join(answer.out.split())
        return answer

    return eventually(told, 60)


def planned(site: Site, fleet: dict[str, str], *options: str) -> dict[str, Any]:
    """The plan as JSON, with its rows by what the topics are like."""
    told = plan_of(site, fleet, "--json", *options)
    plan: dict[str, Any] = json.loads(told.out)
    rows = {row["topic"]: row for row in plan["topics"]}
    return {**plan, "rows": {name: rows[topic] for name, topic in fleet.items()}}


def chosen(fleet: dict[str, str]) -> list[str]:
    return [option for topic in fleet.values() for option in ("--topics", topic)]


def test_advice_rates_and_totals(site: Site, fleet: dict[str, str]) -> None:
    plan = planned(site, fleet)
    rows = plan["rows"]
    assert {name: (row["do"], row["to"]) for name, row in rows.items()} == {
        "steady": ("replace", 2),
        "burst": ("replace", 2),
        "live": ("replace", MEMBERS),
        "idle": ("replace", 2),
        "compact": ("leave", PARTITIONS),
        "unused": ("delete?", 0),
    }
    for name in ("steady", "live"):
        rates = rows[name]["rates"]
        assert rates["records_per_s"] == pytest.approx(PARTITIONS / 3_600, rel=0.01)
        assert rates["peak_records_per_s"] == pytest.approx(PARTITIONS / 3_600, rel=0.01)
        assert not rates["is_bound"]
        assert len(VALUE) < rates["bytes_per_s"] / rates["records_per_s"] < len(VALUE) + 100, "and headers of batches"
    burst = rows["burst"]["rates"]
    assert burst["peak_records_per_s"] == pytest.approx(PARTITIONS * (BURST + 1) / 3_600, rel=0.01)
    assert burst["peak_bytes_per_s"] == pytest.approx(burst["peak_records_per_s"] * len(VALUE), rel=0.05)
    assert rows["compact"]["blocks"] == ["compacted"]
    assert rows["live"]["members"] == MEMBERS
    assert len(rows["idle"]["groups"]) == 1
    assert (plan["partitions"], plan["replicas"]) == (6 * PARTITIONS, 6 * PARTITIONS)
    assert plan["frees"] == 3 * (PARTITIONS - 2) + PARTITIONS - MEMBERS
    assert plan["deletable"] == PARTITIONS
    (broker,) = plan["brokers"]
    assert (broker["before"], broker["after"]) == (6 * PARTITIONS, 6 * PARTITIONS - plan["frees"])
    assert plan["unseen"] == []


class Shape(NamedTuple):
    """A topic: the records of each partition in the window and before it, and the bytes of a value by partition."""

    records: int
    earlier: int
    sizes: tuple[int, ...]


SHAPES = (
    Shape(300, 0, (100,)),
    Shape(2_000, 500, (1_000,)),
    Shape(700, 0, (20, 20)),
    Shape(700, 100, (5_000,) * 2),
    Shape(1_000, 0, (300,) * 3),
    Shape(500, 500, (300,) * 4),
    Shape(1_200, 0, (50,) * 6),
    Shape(168, 24, (500,) * 6),
    Shape(400, 0, (2_000,) * 8),
    Shape(1_500, 0, (100, 100, 100, 2_000)),
)


def write_shape(servers: str, topic: str, shape: Shape) -> None:
    """Write records evenly over the window, and over the day before it, the oldest first."""
    now_ms = time.time_ns() // 1_000_000
    early = [HOURS + 24 * (1 - (nth + 0.5) / shape.earlier) for nth in range(shape.earlier)]
    late = [HOURS * (1 - (nth + 0.5) / shape.records) for nth in range(shape.records)]
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "enable.idempotence": True})
    for ago in early + late:
        for partition, size in enumerate(shape.sizes):
            producer.produce(topic, bytes(size), partition=partition, timestamp=int(now_ms - ago * HOUR_MS))
    assert producer.flush(60) == 0


def log_bytes(servers: str, topics: Iterable[str]) -> Counter[str]:
    """The size of each topic's logs, by DescribeLogDirs."""
    shown = run_tool(f"kafka-log-dirs.sh --bootstrap-server {servers} --describe --topic-list {','.join(topics)}")
    described = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    found: Counter[str] = Counter()
    for partition in (p for broker in described["brokers"] for log in broker["logDirs"] for p in log["partitions"]):
        found[partition["partition"].rpartition("-")[0]] += partition["size"]
    return found


def test_rates_are_those_of_the_logs(site: Site, make_topic: MakeTopic) -> None:
    topics = {str(number): make_topic(len(shape.sizes), retention_ms=-1) for number, shape in enumerate(SHAPES)}
    for topic, shape in zip(topics.values(), SHAPES, strict=True):
        write_shape(site.servers, topic, shape)
    rows, sizes = planned(site, topics)["rows"], log_bytes(site.servers, topics.values())
    window_s = HOURS * HOUR_MS / 1_000
    for number, (records, earlier, values) in enumerate(SHAPES):
        topic, rates = topics[str(number)], rows[str(number)]["rates"]
        in_window = sizes[topic] * records / (records + earlier)
        assert rates["records_per_s"] * window_s == pytest.approx(len(values) * records, rel=0.01)
        assert rates["bytes_per_s"] * window_s == pytest.approx(in_window, rel=0.02)
        assert sizes[topic] > (records + earlier) * sum(values)
    assert ["uneven" in {note["code"] for note in row["notes"]} for row in rows.values()] == [False] * 9 + [True]


def test_both_floors_decide(site: Site, fleet: dict[str, str]) -> None:
    """A peak of 4.4 records/s, 2.3 kB/s."""
    row = planned(site, fleet, "--partition-bytes-per-second", "1000")["rows"]["burst"]
    assert (row["do"], row["to"]) == ("replace", 5)
    assert "MB/s in its busiest hour" in row["reason"]
    assert planned(site, fleet, "--partition-bytes-per-second", "500")["rows"]["burst"]["do"] == "leave"


def test_batches_of_the_busiest_hour_correct_compressed_peaks(
    site: Site, make_topic: MakeTopic, hourly: list[float]
) -> None:
    topic, peak = (make_topic(PARTITIONS, retention_ms=-1, compression_type="gzip") for _ in range(2))
    write(site.servers, topic, hourly, 49.9)
    write(site.servers, peak, [], 49.9)
    mean = planned(site, {"": peak})["rows"][""]["rates"]
    without, corrected = (planned(site, {"": topic}, *more)["rows"][""] for more in ((), ("--sample",)))
    assert "compressed" in {note["code"] for note in without["notes"]}
    assert "corrected" in {note["code"] for note in corrected["notes"]}
    peaks = corrected["rates"]
    bytes_of_a_record = peaks["peak_bytes_per_s"] / peaks["peak_records_per_s"]
    assert bytes_of_a_record == pytest.approx(mean["bytes_per_s"] / mean["records_per_s"], rel=0.15)
    assert without["rates"]["peak_bytes_per_s"] > 1.5 * peaks["peak_bytes_per_s"]


@pytest.mark.usefixtures("controller")
def test_the_table_the_page_and_a_file_that_apply_takes(site: Site, fleet: dict[str, str], tmp_path: Path) -> None:
    page, file = tmp_path / "fleet.html", tmp_path / "topics.yaml"
    told = plan_of(site, fleet, "--html", str(page), "--write", str(file))
    assert "Replacing 4 topics frees 23 of 48 partition replicas (47.9 %)" in " ".join(told.out.split())
    assert re.search(rf"^ +{fleet['live']} +8 +3 +replace +5 ", told.out, re.MULTILINE)
    assert page.read_text().count("<details>") == 6
    assert f"modeaware replace {fleet['steady']} --keep-name --partitions 2" in page.read_text()
    written = {topic.name: (topic.partitions, topic.keep_name) for topic in read_files([file])}
    counts = {"steady": 2, "burst": 2, "idle": 2, "live": MEMBERS}
    assert written == {fleet[name]: (count, True) for name, count in counts.items()}, "no broker creates topics here"
    dry = site.run("apply", str(file), "--dry-run")
    assert dry.status == 0, dry.err
    for name in ("steady", "burst", "idle", "live"):
        assert fleet[name] in dry.out


def test_all_leaves_internal_topics(site: Site, fleet: dict[str, str]) -> None:
    told = site.run("plan", "--all", "--window", "1d", "--json")
    assert told.status == 0, told.err
    plan = json.loads(told.out)
    rows = {row["topic"]: row for row in plan["topics"]}
    assert rows.keys() >= {*fleet.values(), "__consumer_offsets"}
    offsets = rows["__consumer_offsets"]
    assert (offsets["do"], "internal" in offsets["blocks"]) == ("leave", True)
    assert plan["window_ms"] == DAY_MS
    told = site.run("plan", "--all", "--exclude", "*", "--json")
    assert json.loads(told.out)["topics"] == []
