"""The drain certificate on a real Kafka, checked again with Kafka's own tools."""

from __future__ import annotations

import json
from typing import Any

from tests.support.command_line import WAIT, Site
from tests.support.kafka_tools import run_tool
from tests.support.plain import ends


def certificate(site: Site, topic: str, *options: str) -> dict[str, Any]:
    told = site.run("certificate", topic, *options)
    assert told.status == 0, told.err
    document: dict[str, Any] = json.loads(told.out)
    return document


def offset_of(output: str, topic: str, partition: int) -> int:
    """The current offset in what ``kafka-consumer-groups.sh --describe --offsets`` prints."""
    rows = [line.split() for line in output.splitlines() if f" {topic} " in line]
    heading = next(line.split() for line in output.splitlines() if line.startswith("GROUP"))
    (row,) = (row for row in rows if row[heading.index("PARTITION")] == str(partition))
    return int(row[heading.index("CURRENT-OFFSET")])


def test_a_shrink_is_certified_and_kafkas_tools_agree(site: Site, filled: str) -> None:
    site.commit(filled, group := f"audit {filled}", ends(site.servers, filled))
    assert site.run("shrink", filled, "--partitions", "4", *WAIT).status == 0
    document = certificate(site, filled)
    assert [partition["verdict"] for partition in document["partitions"]] == ["reclaimed"] * 2
    assert document["deletion"]["policy"] == "drained"
    assert (document["required_groups"], document["waived"]) == ([group], {})
    partition = document["partitions"][1]
    seal = ends(site.servers, filled)[5]
    assert (partition["seal_offset"], partition["proof"]) == (seal, {"groups": 1, "lowest_offset": seal})
    assert document["drained_groups"] == [group]
    assert partition["log_start"] == partition["log_end"] == seal

    latest, earliest, proof, rest = (one | {"told": run_tool(one["command"])} for one in partition["check_with"])
    assert latest["told"].splitlines()[0] == latest["expect"] == f"{filled}:5:{seal}"
    assert earliest["told"].splitlines()[0] == earliest["expect"] == f"{filled}:5:{seal}"
    assert offset_of(proof["told"].replace(group, "g"), filled, 5) == seal
    assert proof["expect"] == f"an offset of {seal} or more for partition 5 of {filled}"
    assert rest["expect"] in rest["told"]

    assert certificate(site, filled, "--partition", "5")["partitions"] == [partition]
