"""What reading with Spark decides without Spark and without Kafka: options, what is read, and positions."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.modes import PartitionMode
from modeaware.spark import datasource
from modeaware.spark.datasource import StreamReader, fetch, parse_options
from modeaware.spark.errors import RecordsLost
from modeaware.spark.offsets import EARLIEST, LATEST, OffsetRange, ranges_between, readable_to, resolve
from modeaware.spark.progress import positions_of
from modeaware.spark.snapshot import TopicDescription
from modeaware.spark.source import caller_options, only_partitions
from modeaware.topic_view import TopicView

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


def test_options_are_ours_and_the_rest_is_a_configuration() -> None:
    options = parse_options(
        {
            **SERVERS,
            "topic": "flights",
            "startingoffsets": '{"flights": {"0": 23, "1": -2}}',
            "endingoffsets": "latest",
            "failondataloss": "False",
            "checkpointlocation": "there",
            "modeaware.on.unknown": "writable",
            "linger.ms": "5",
        }
    )
    assert options.topic == "flights"
    assert options.starting == {0: 23, 1: EARLIEST}
    assert options.ending == LATEST
    assert not options.fail_on_data_loss
    assert options.conf == {**SERVERS, "modeaware.on.unknown": "writable", "linger.ms": "5"}
    defaults = parse_options({**SERVERS, "topic": "flights"})
    assert (defaults.starting, defaults.ending, defaults.fail_on_data_loss) == (None, None, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t"}, "bootstrap.servers is missing"),
        ({**SERVERS, "topic": "t", "failondataloss": "no"}, "failOnDataLoss"),
        ({**SERVERS, "topic": "t", "startingoffsets": "first"}, "startingOffsets"),
        ({**SERVERS, "topic": "t", "startingoffsets": '{"other": {"0": 1}}'}, "startingOffsets"),
        ({**SERVERS, "topic": "t", "kafka.bootstrap.servers": "x"}, "without the prefix kafka"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(options)


def test_offsets_are_resolved_for_each_partition() -> None:
    starts, ends = {0: 5, 1: 0}, {0: 9, 1: 4}
    assert resolve("x", EARLIEST, "t", starts, ends) == starts
    assert resolve("x", LATEST, "t", starts, ends) == ends
    assert resolve("x", {0: LATEST, 1: 3, 7: 2}, "t", starts, ends) == {0: 9, 1: 3}
    with pytest.raises(ConfigError, match=r"lacks partitions \[1\] of t"):
        resolve("endingOffsets", {0: 3}, "t", starts, ends)


def view(*modes: PartitionMode, seals: dict[int, int]) -> TopicView:
    return TopicView("t", "id", (1, 1), modes, seals)


def test_a_stream_may_read_to_the_ends_and_to_the_seals_of_partitions_in_mode_none() -> None:
    ends = {0: 50, 1: 60, 2: 70, 3: 80}
    assert readable_to(TopicView.unlisted("t"), ends, {}) == ends
    assert readable_to(view(RW, RO, NONE, seals={1: 55, 2: 65}), ends, {}) == {0: 50, 1: 60, 2: 65, 3: 80}
    assert readable_to(view(NONE, RW, NONE, RW, seals={0: 55}), ends, {}) == ends, "truncated; and without a seal"


def test_a_batch_reads_what_lies_between_and_new_partitions_from_their_first_record() -> None:
    assert ranges_between("t", {0: 5, 1: 7}, {0: 9, 1: 7, 2: 3, 3: 0}, strict=True) == [
        OffsetRange("t", 0, 5, 9),
        OffsetRange("t", 2, 0, 3),
    ]


@pytest.mark.parametrize(("end", "message"), [({0: 4}, "ends at offset 4"), ({1: 9}, "no longer exists")])
def test_an_offset_that_went_back_fails_the_query_unless_it_may_lose_records(end: dict[int, int], message: str) -> None:
    with pytest.raises(RecordsLost, match=f"t-0 {message}") as caught:
        ranges_between("t", {0: 5}, end, strict=True)
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    assert all(each.partition == 1 for each in ranges_between("t", {0: 5}, end, strict=False))


def offsets(topic_id: str | None, **by_partition: int) -> dict[str, object]:
    of = {} if topic_id is None else {"modeaware:topic_ids": {"t": topic_id}}
    return {"modeaware:offsets": 1, **of, "t": {number.strip("p"): offset for number, offset in by_partition.items()}}


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasource, "topic_chain", lambda conf, topic, stale: (TopicView.unlisted(topic),))


@pytest.mark.usefixtures("unlisted")
def test_offsets_of_another_topic_id_fail_the_query_unless_it_may_lose_records() -> None:
    start, end = offsets("old", p0=20), offsets("new", p0=30, p1=4)
    with pytest.raises(RecordsLost, match="its id is new, and the query has read old"):
        StreamReader(parse_options({**SERVERS, "topic": "t"})).partitions(start, end)
    lossy = StreamReader(parse_options({**SERVERS, "topic": "t", "failondataloss": "false"}))
    assert lossy.partitions(start, end) == [OffsetRange("t", 0, 0, 30), OffsetRange("t", 1, 0, 4)]


@pytest.mark.usefixtures("unlisted")
@pytest.mark.parametrize("ids", [("id", "id"), (None, "id"), ("id", None)])
def test_offsets_of_one_topic_id_or_of_an_unknown_one_go_on(ids: tuple[str | None, str | None]) -> None:
    reader = StreamReader(parse_options({**SERVERS, "topic": "t"}))
    assert reader.partitions(offsets(ids[0], p0=20), offsets(ids[1], p0=30)) == [OffsetRange("t", 0, 20, 30)]


def test_how_far_a_stream_might_read_is_forgotten_with_the_topic_id(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = ["old", "new", None]

    def views(conf: object, topic: str, stale: bool) -> tuple[TopicView]:
        return (TopicView("t", "id", (1, 1), (NONE,), {0: 5}) if len(ids) < 2 else TopicView.unlisted("t"),)

    monkeypatch.setattr(datasource, "topic_chain", views)
    reader = StreamReader(parse_options({**SERVERS, "topic": "t"}))
    client: Any = SimpleNamespace(describe=lambda: TopicDescription([0], ids.pop(0)), ends=lambda _: {0: 90})
    reader._clients = {"t": client}
    assert reader.latestOffset() == offsets("old", p0=90)
    assert reader.latestOffset() == offsets("new", p0=5), "not held at what was read of the old topic"
    assert reader.latestOffset() == offsets("new", p0=5), "no answer changes nothing"


KAFKA = "KafkaV2[Subscribe[flights]]"


@pytest.mark.parametrize("name", ["assign", "subscribe", "subscribePattern", "SUBSCRIBE"])
def test_the_topic_is_no_option(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        caller_options({name: "flights"})


def test_offsets_by_partition_are_cut_down_to_those_that_are_read() -> None:
    given = {
        "startingOffsets": json.dumps({"flights": {"0": 5, "1": -2, "2": 7}}),
        "endingoffsetsbytimestamp": json.dumps({"flights": {"0": 1_000, "2": 2_000}}),
        "endingOffsets": "latest",
        "includeHeaders": "true",
    }
    cut = only_partitions(given, "flights", {"flights": {0, 1}})
    assert json.loads(cut.pop("startingOffsets")) == {"flights": {"0": 5, "1": -2}}
    assert json.loads(cut.pop("endingoffsetsbytimestamp")) == {"flights": {"0": 1_000}}
    assert cut == {"endingOffsets": "latest", "includeHeaders": "true"}


@pytest.mark.parametrize("value", ['{"flights": 3}', '{"others": {"0": 1}}', "{rubbish", '{"flights": {"one": 1}}'])
def test_offsets_that_are_none_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        only_partitions({"startingOffsets": value}, "flights", {"flights": {0}})


def test_all_is_read_of_a_new_topic_without_offsets_of_its_own() -> None:
    given = {
        "startingOffsets": json.dumps({"flights": {"0": 5, "1": 7}}),
        "endingOffsets": json.dumps({"flights": {"0": 9}, "flights-v2": {"1": 3, "4": 4}}),
        "startingOffsetsByTimestamp": json.dumps({"flights": {"0": 1_000}}),
    }
    cut = only_partitions(given, "flights", {"flights": [0], "flights-v2": [0, 1]})
    assert json.loads(cut["startingOffsets"]) == {"flights": {"0": 5}, "flights-v2": {"0": -2, "1": -2}}
    assert json.loads(cut["endingOffsets"]) == {"flights": {"0": 9}, "flights-v2": {"1": 3}}
    assert json.loads(cut["startingOffsetsByTimestamp"]) == {"flights": {"0": 1_000}, "flights-v2": {"0": 0, "1": 0}}
    assert only_partitions({"startingOffsets": '{"flights": {"0": 5}}'}, "flights", {"flights-v2": [0]}) == {
        "startingOffsets": '{"flights-v2": {"0": -2}}'
    }, "the topic itself is gone"


def test_positions_are_the_end_offsets_of_kafka_sources() -> None:
    offsets = {"flights": {"0": 5, "11": 0}, "weather": {"0": 2}}
    ours = {"modeaware:offsets": 1, "planes": {"3": 8}}
    rate, files = ("RateStreamV2[...]", 3), ("FileStreamSource[x]", {"flights": {"0": 9}})
    python = ("PythonMicroBatchStream", ours)
    assert positions_of([(KAFKA, offsets), rate, files, python, (KAFKA, None), (KAFKA, "rubbish")]) == {
        "flights": {0: 5, 11: 0},
        "weather": {0: 2},
        "planes": {3: 8},
    }


GONE = ClusterError("?", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
SILENT = ClusterError("?", code=ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize(
    ("live_ids", "strict", "read", "failure"),
    [
        (["id", "id"], True, 2, None),
        (["id-2"], True, 0, RecordsLost),  # before anything is handed on
        (["id", "id-2"], True, 1, RecordsLost),
        ([], False, 2, None),  # losses are accepted
        ([None, None], True, 2, None),
        (["id", GONE], True, 2, None),  # deleted since its last record
        (["id", SILENT], True, 1, ClusterError),
    ],
)
def test_records_of_another_topic_of_the_same_name_are_not_read_for_the_range(
    monkeypatch: pytest.MonkeyPatch, live_ids: list[Any], strict: bool, read: int, failure: type[Exception] | None
) -> None:
    """Each call of ``consume`` returns one of the two records; ``live_ids``: what each description returns."""

    def record(offset: int) -> Any:
        facts = {"error": None, "offset": offset, "partition": 0, "topic": "t", "key": None, "value": b"v"}
        facts |= {"headers": None, "timestamp": (1, 5)}
        return SimpleNamespace(**{name: lambda value=value: value for name, value in facts.items()})

    def describe() -> TopicDescription:
        live_id = live_ids.pop(0)
        if isinstance(live_id, ClusterError):
            raise live_id
        return TopicDescription([0], live_id)

    log, batches = [record(8), record(9)], list[Any]()
    stock = SimpleNamespace(assign=lambda _: None, consume=lambda *_, **__: [log.pop(0)], close=lambda: None)
    monkeypatch.setattr(datasource, "Consumer", lambda conf: stock)
    monkeypatch.setattr(datasource, "TopicClient", lambda conf, topic: SimpleNamespace(describe=describe))
    with pytest.raises(failure) if failure is not None else nullcontext():
        for batch in fetch(SERVERS, OffsetRange("t", 0, 8, 10, "id"), strict=strict):
            batches.append(batch)
    assert (sum(batch.num_rows for batch in batches), live_ids) == (read, [])
