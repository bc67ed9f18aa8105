"""What reading with Spark decides without Spark: options, and the positions of a query."""

from __future__ import annotations

import json

import pytest

from modeaware.errors import ConfigError
from modeaware.spark.read.options import assign_option, caller_options, only_partitions
from modeaware.spark.read.positions import positions_of

KAFKA = "KafkaV2[Subscribe[flights]]"


def test_options_become_texts() -> None:
    assert caller_options({"includeHeaders": True, "minPartitions": 4, "endingOffsets": None}) == {
        "includeHeaders": "true",
        "minPartitions": "4",
    }
    assert json.loads(assign_option("flights", {4, 0, 11})) == {"flights": [0, 4, 11]}


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
    cut = only_partitions(given, "flights", {0, 1})
    assert json.loads(cut.pop("startingOffsets")) == {"flights": {"0": 5, "1": -2}}
    assert json.loads(cut.pop("endingoffsetsbytimestamp")) == {"flights": {"0": 1_000}}
    assert cut == {"endingOffsets": "latest", "includeHeaders": "true"}


@pytest.mark.parametrize("value", ['{"flights": 3}', '{"others": {"0": 1}}', "{rubbish", '{"flights": {"one": 1}}'])
def test_offsets_that_are_none_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        only_partitions({"startingOffsets": value}, "flights", {0})


def test_positions_are_the_end_offsets_of_kafka_sources() -> None:
    offsets = json.dumps({"flights": {"0": 5, "11": 0}, "weather": {"0": 2}})
    ours = json.dumps({"modeaware:offsets": 1, "planes": {"3": 8}})
    rate, files = ("RateStreamV2[...]", "3"), ("FileStreamSource[x]", '{"flights": {"0": 9}}')
    python = ("PythonMicroBatchStream", ours)
    assert positions_of([(KAFKA, offsets), rate, files, python, (KAFKA, None), (KAFKA, "rubbish")]) == {
        "flights": {0: 5, 11: 0},
        "weather": {0: 2},
        "planes": {3: 8},
    }
