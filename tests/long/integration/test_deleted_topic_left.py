"""What a consumer keeps of a topic that was replaced and deleted: nothing that grows."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.support.succession import Following
from tests.workload.load import Load


def test_librdkafka_queues_nothing_for_the_partitions_of_a_deleted_topic(following: Following) -> None:
    """Once its metadata of the topic is too old it asks for it every second, and each answer that the topic does not
    exist would leave an error for every partition that the consumer was asked about while others read it."""
    served, old, new = following.served, following.topic, following.new_topic
    load = Load()
    seen: dict[str, dict[str, Any]] = {}

    def conf(name: str) -> dict[str, Any]:
        fresh = following.conf(topic_metadata_refresh_interval_ms=500, metadata_max_age_ms=2_000)
        own = {"statistics.interval.ms": 500, "stats_cb": lambda text: seen.update({name: json.loads(text)})}
        return {**fresh, **own}

    def kept() -> dict[str, dict[str, Any]]:
        return {name: seen[name]["topics"].get(old, {"partitions": {}})["partitions"] for name in "ab"}

    following.writer(load)
    for name in "ab":
        following.readers(load, conf(name), 0)
    with load.running():
        load.await_given(old, 300)
        following.replace(4, delay_ms=0)
        served.wait_done(old)
        load.await_given(new, 1_000)
        time.sleep(5)  # librdkafka forgets what it knows of the topic, and asks for it again and again
        before = kept()
        time.sleep(5)  # and each answer would leave an error
        left = kept()
    load.check()
    desired = {name: [p for p, each in of.items() if each["desired"]] for name, of in left.items()}
    assert desired == {"a": [], "b": []}
    queued = {(name, p): each["fetchq_cnt"] for name, of in left.items() for p, each in of.items()}
    assert not {
        (name, p): n for (name, p), n in queued.items() if n > before[name].get(p, {"fetchq_cnt": 0})["fetchq_cnt"]
    }
