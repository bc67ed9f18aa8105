"""A scan of a fleet: which requests it sends, what it makes of the answers, and of those that do not come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from modeaware.cluster.metadata import EARLIEST_LOCAL, MAX_TIMESTAMP
from modeaware.errors import ClusterError, ErrorCode
from modeaware.plan import scan as scanning
from modeaware.plan.fleet import Fleet, Sizing, TopicAdvice, make_fleet_plan
from modeaware.plan.rates import DAY_MS, HOUR_MS, PeakBatches
from modeaware.plan.scan import scan
from tests.support.encoded_fleet import Answers, prepare, written
from tests.support.fake_brokers import FakeGroup
from tests.support.fleet_brokers import FakeTopic, FleetBrokers, FleetSession
from tests.support.simulated import SimClock

NOW_MS = 1_800_000_000_000
START_MS = NOW_MS - 7 * DAY_MS
SMALL = Sizing(records_per_s=0.01)
"""A partition carries 18 records of an hour twice over."""


def every(hours: float, count: int = 4, since_ms: int = START_MS) -> list[list[int]]:
    """A record in each partition every so many hours."""
    return [list(range(since_ms, NOW_MS, int(hours * HOUR_MS)))] * count


def scanned(
    brokers: FleetBrokers,
    chosen: Callable[[str], bool] = lambda name: True,
    sizing: Sizing = SMALL,
    *,
    sample: bool = False,
) -> Fleet:
    return scan(FleetSession(brokers, SimClock(NOW_MS)), chosen, 7, sizing, sample=sample)


def rows(found: Fleet, sizing: Sizing = SMALL) -> dict[str, TopicAdvice]:
    return {row.topic: row for row in make_fleet_plan(found, sizing).topics}


def test_offsets_become_rates() -> None:
    brokers = FleetBrokers({"hourly": FakeTopic(every(1), start=50), "unused": FakeTopic([[], [], [], []])})
    found = scanned(brokers)
    hourly, unused = (topic.logs for topic in found.topics)
    assert list(hourly.ends) == [50 + 168] * 4
    assert hourly.reached == [4 * (50 + 24 * day) for day in range(8)]
    assert list(hourly.first_ms) == [START_MS] * 4
    assert hourly.newest_ms == NOW_MS - HOUR_MS
    assert (list(unused.ends), unused.newest_ms) == ([0] * 4, -1)
    row = rows(found)["hourly"]
    assert row.rates.records_per_s == pytest.approx(4 / 3_600)
    assert row.rates.bytes_per_s == pytest.approx(400 / 3_600)
    assert (row.do, row.to, row.frees) == ("replace", 2, 4)
    assert rows(found)["unused"].do == "delete?"
    assert found.unseen == ()


def test_hours_are_of_each_topics_own_busiest_days() -> None:
    bursts = {"early": 1, "late": 5}
    topics = {}
    for name, day in bursts.items():
        burst = START_MS + day * DAY_MS + 7 * HOUR_MS
        topics[name] = FakeTopic([sorted([*every(1)[0], *range(burst, burst + 30_000, 1_000)])] * 4)
    found = scanned(FleetBrokers(topics))
    for topic in found.topics:
        assert set(topic.logs.hours) == {bursts[topic.facts.topic], 0}
        row = rows(found)[topic.facts.topic]
        assert not row.rates.is_bound
        assert row.rates.peak_records_per_s == pytest.approx(4 * 31 / 3_600)


def test_hours_are_read_where_the_bound_decides_or_much_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "HOURS_OF", 1)
    topics = {name: FakeTopic(every(24, 9)) for name in ("a", "b", "c")} | {"full": FakeTopic(every(0.25, 8))}
    found = {topic.facts.topic: topic for topic in scanned(FleetBrokers(topics)).topics}
    assert [name for name, topic in found.items() if topic.logs.hours] == ["a", "full"]


def test_requests_have_each_partition_once_and_no_more_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "PARTITIONS_A_REQUEST", 7)
    brokers = FleetBrokers({f"t{n:02}": FakeTopic(every(6)) for n in range(20)})
    found = scanned(brokers)
    assert len(rows(found)) == 20
    assert max(count for _, _, count in brokers.points) <= 7
    in_one_point = [count for node, time_ms, count in brokers.points if time_ms == MAX_TIMESTAMP and node == 1]
    assert sum(in_one_point) == 40


def test_the_number_of_requests_does_not_grow_with_the_topics() -> None:
    def requests(topics: int) -> Counter[str]:
        brokers = FleetBrokers({f"t{n}": FakeTopic(every(24)) for n in range(topics)})
        scanned(brokers)
        return Counter(name for _, name in brokers.asked)

    few, many = requests(5), requests(400)
    assert few == many
    assert many.total() <= 150
    assert many["OffsetsForTimes"] == 2 * (2 + 8 + 1 + 2 * 23), "ends and starts, points, the last; hours"


def test_a_leader_that_has_moved_is_found() -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1)), "b": FakeTopic(every(1))})
    brokers.moved = {("a", 0): 2, ("a", 1): 1}
    found = {topic.facts.topic: topic for topic in scanned(brokers).topics}
    assert found["a"].logs.unread == ()
    assert found["a"].logs.reached == found["b"].logs.reached
    retried = [name for _, name in brokers.asked].count("Metadata")
    assert retried < 10, "leaders are looked up once, not at each point"


def test_a_broker_that_does_not_answer_is_left_out_and_reported() -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1)), "one": FakeTopic(every(1, 1))})

    def fall_silent(node: int, request: object) -> None:
        if node == 2 and type(request).__name__ == "OffsetsForTimes":
            brokers.silent.add(2)

    brokers.before = fall_silent
    found = scanned(brokers)
    assert "Partitions whose leader does not answer: 2, of 1 topics." in found.unseen
    row = rows(found)["a"]
    assert (row.do, row.reason) == ("leave", "no leader answers for partitions 1,3")
    assert rows(found)["one"].reason == "it needs 1 of its 1 partitions"
    assert sum(node == 2 and name == "OffsetsForTimes" for node, name in brokers.asked) <= 4, "it is not asked again"


def test_brokers_without_the_greatest_timestamp_are_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1))})

    refusal = ClusterError("version 7 is missing", code=ErrorCode.UNSUPPORTED_VERSION)
    monkeypatch.setattr(brokers, "on_offsets_for_times", lambda node, request: refusal)
    with pytest.raises(ClusterError, match="version 7"):
        scanned(brokers)


def test_what_the_user_may_not_see_is_reported() -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1))})
    brokers.hidden_topics = ["secret"]
    assert "Topics on the brokers that this user may not DESCRIBE: 1." in scanned(brokers).unseen
    brokers.sizes_shown = brokers.configs_shown = False
    brokers.operations = set()
    found = scanned(brokers)
    assert [text.split(":")[0] for text in found.unseen] == [
        "Sizes on broker 1",
        "Sizes on broker 2",
        "The configs of 1 topics",
        "All groups",
    ]
    row = rows(found)["a"]
    assert row.reason == "the size of its records is unknown"
    assert {note.code for note in row.notes} >= {"size-unknown", "configs-unknown", "groups-unknown"}


def test_groups_configs_and_names_are_those_of_the_brokers() -> None:
    configs = {"cleanup.policy": "compact", "compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
    brokers = FleetBrokers(
        {"a": FakeTopic(every(1), configs=configs), "b": FakeTopic(every(1)), "a-v2": FakeTopic([[]])}
    )
    brokers.add(FakeGroup("g")).committed = {"b": {0: (5, 0)}}
    found = scanned(brokers, lambda name: name != "a-v2")
    a, b = found.topics
    assert (a.facts.topic, b.facts.topic) == ("a", "b")
    assert a.facts.compacted
    assert (a.configs.compression, a.configs.timestamp_type) == ("zstd", "LogAppendTime")
    assert list(b.facts.groups) == ["g"]
    assert found.names == {"a", "b", "a-v2"}
    assert found.can_replace
    brokers.kraft = False
    assert not scanned(brokers).can_replace


TIERED = {"remote.storage.enable": "true"}


def test_bytes_of_a_tiered_log_are_divided_by_the_offsets_of_its_local_part() -> None:
    plain, tiered = FakeTopic(every(1), start=50), FakeTopic(every(1), start=50, configs=TIERED, remote=160)
    brokers = FleetBrokers({"plain": plain, "tiered": tiered})
    found = rows(scanned(brokers, sizing=Sizing(bytes_per_s=0.08)), Sizing(bytes_per_s=0.08))
    for row in found.values():
        assert row.rates.bytes_per_s == pytest.approx(400 / 3_600)
        assert row.rates.peak_bytes_per_s == pytest.approx(400 / 3_600)
        assert row.needs == 3
    assert [{note.code for note in row.notes} for row in found.values()] == [{"window-cut"}, {"window-cut", "tiered"}]
    assert [count for _, time_ms, count in brokers.points if time_ms == EARLIEST_LOCAL] == [2, 2], "of one topic"


@pytest.mark.parametrize("brokers_tier", [True, False], ids=["nothing is local", "the start is not returned"])
def test_the_size_of_a_tiered_log_is_unknown_without_the_start_of_a_local_part(brokers_tier: bool) -> None:
    brokers = FleetBrokers({"tiered": FakeTopic(every(1), configs=TIERED, remote=168 if brokers_tier else 100)})
    brokers.tiers = brokers_tier
    row = rows(scanned(brokers))["tiered"]
    assert (row.do, row.reason) == ("leave", "the size of its records is unknown")
    assert "bytes/s are unknown: the local part of a tiered log has no known size" in [note.text for note in row.notes]


def test_a_topic_may_be_tiered_if_its_configs_are_unknown() -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1), remote=160)})
    brokers.configs_shown = False
    row = rows(scanned(brokers))["a"]
    assert row.rates.bytes_per_s == pytest.approx(400 / 3_600)
    assert "tiered" in {note.code for note in row.notes}
    old = FleetBrokers({"a": FakeTopic(every(1))})
    old.configs_shown = old.tiers = False
    assert rows(scanned(old))["a"].rates.bytes_per_s == pytest.approx(400 / 3_600), "such brokers tier no logs"


def test_retention_during_a_scan_makes_records_no_smaller() -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1))})
    topic = brokers.fleet["a"]

    def delete(_node: int, request: object) -> None:
        """Brokers delete most of the log once its start and end were read, or its size."""
        asked = [name for _, name in brokers.asked]
        if type(request).__name__ != "OffsetsForTimes" and asked.count("OffsetsForTimes") >= 4:
            topic.start, topic.logs = 160, every(1, since_ms=START_MS + 160 * HOUR_MS)

    brokers.before = delete
    size = rows(scanned(brokers))["a"].scanned.logs.record_bytes
    assert size is not None
    assert size >= topic.size


def test_batches_of_the_busiest_hour_are_read_on_request() -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1), batches=[(1, 90, 4)]), "b": FakeTopic(every(1))})
    brokers.refused = {"b"}
    assert not scanned(brokers).topics[0].logs.batches
    assert "Fetch" not in {name for _, name in brokers.asked}
    found = scanned(brokers, sample=True)
    a, b = found.topics
    assert a.logs.batches == dict.fromkeys((0, 1), PeakBatches(1, 1, 90, compressed=True))
    assert a.logs.peak_offsets == dict.fromkeys(range(4), 1)
    assert b.logs.batches == {}
    assert found.unseen == ("Batches of 1 topics: none was read (READ on the topic is needed).",)
    assert rows(found)["a"].rates.peak_bytes_per_s == pytest.approx(4 * 90 / 3_600)


def test_batches_after_the_busiest_hour_are_not_counted() -> None:
    """An hour with two records of 90 B, then records of 1 000 B."""
    burst = sorted([*every(1)[0], START_MS + 30 * HOUR_MS + 1])
    brokers = FleetBrokers({"a": FakeTopic([burst] * 4, batches=[(2, 180, 0), (1, 1_000, 0)])})
    peak = rows(scanned(brokers, sample=True))["a"].rates
    assert peak.peak_records_per_s == pytest.approx(4 * 2 / 3_600)
    assert peak.peak_bytes_per_s == pytest.approx(4 * 180 / 3_600)


def test_a_sample_of_some_partitions_does_not_hide_that_records_of_others_are_larger() -> None:
    """A mebibyte has 100 times more small records than large ones."""
    logs = every(0.1, 8)
    brokers = FleetBrokers({"a": FakeTopic(logs, size=10_000, sizes={0: 100})})
    estimate, sampled = (rows(scanned(brokers, sample=sample))["a"] for sample in (False, True))
    assert estimate.rates.peak_bytes_per_s == pytest.approx(10 * 70_100 / 3_600)
    assert sampled.rates.peak_bytes_per_s == pytest.approx(10 * 70_100 / 3_600)
    assert {note.code for note in estimate.notes} == {"uneven"}
    assert {note.code for note in sampled.notes} == {"uneven", "corrected"}


def test_the_partitions_with_the_most_bytes_in_the_busiest_hour_are_sampled() -> None:
    burst = START_MS + 30 * HOUR_MS
    logs = every(1, 8)
    logs[5] = sorted([*logs[5], *range(burst, burst + 30_000, 1_000)])
    brokers = FleetBrokers({"a": FakeTopic(logs, sizes={2: 1_000, 5: 200})})
    assert set(scanned(brokers, sample=True).topics[0].logs.batches) == {2, 5}


def test_topics_without_known_sizes_are_not_sampled() -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1))})
    brokers.sizes_shown = False
    found = scanned(brokers, sample=True)
    assert "Fetch" not in {name for _, name in brokers.asked}
    assert not any(text.startswith("Batches") for text in found.unseen)
    assert rows(found)["a"].reason == "the size of its records is unknown"


def test_responses_as_brokers_encode_them_are_read(tmp_path: Path) -> None:
    """What the benchmark does with 10 000 topics."""
    prepare(tmp_path, topics=200, partitions=20, brokers=3)
    answers = Answers(tmp_path, topics=200, partitions=20, brokers=3, groups=10, now_ms=NOW_MS)
    found = scan(FleetSession(answers, SimClock(NOW_MS)), lambda name: True, 7, Sizing())
    by_name = rows(found, Sizing())
    assert found.unseen == ()
    assert len(by_name) == 200
    for n in (41, 55, 60):
        rate = by_name[f"topic-{n}"].rates
        assert rate.written == 20 * written(n)
        assert rate.records_per_s == pytest.approx(20 * written(n) / (7 * DAY_MS / 1000), rel=0.01)
        assert rate.bytes_per_s == pytest.approx(100 * rate.records_per_s)
        by_hour = 7 if n % 10 == 0 else 7 * 24
        assert rate.peak_records_per_s == pytest.approx(20 * written(n) / by_hour / 3_600, rel=0.05)
        assert not rate.is_bound
    assert by_name["topic-0"].replicas == 60
    assert by_name["topic-0"].groups == ("g0",)
    assert len(answers.asked) <= 250


def test_names_are_kept_where_the_brokers_are_known_to_create_no_topics() -> None:
    brokers = FleetBrokers({"a": FakeTopic(every(1))})
    assert scanned(brokers).why_all_renamed is None
    brokers.creating = {2}
    why = scanned(brokers).why_all_renamed
    assert why is not None
    assert why.startswith("broker 2 creates topics automatically (auto.create.topics.enable)")
    brokers.configs_shown = False
    assert "it is unknown whether" in (scanned(brokers).why_all_renamed or "")
    brokers.kraft = False
    assert scanned(brokers).why_all_renamed is None, "nothing is replaced without a fence"
