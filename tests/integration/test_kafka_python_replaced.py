"""Groups of modeaware.kafka_python.KafkaConsumer follow a topic that is replaced, by the real controller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import murmur2
from kafka.errors import CommitFailedError, RebalanceInProgressError

from modeaware.errors import ErrorCode
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from modeaware.lifecycle.commands import ReplaceTopicCommand
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.kafka_python_group import FAST
from tests.support.waiting import eventually
from tests.workload.kafka_python import KafkaPythonReader, KafkaPythonWriter
from tests.workload.load import Load


class Committing(KafkaConsumer):
    """Commits what the application has handled whenever that asks for more."""

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        with suppress(CommitFailedError, RebalanceInProgressError):
            self.commit()
        return super().poll(*args, **kwargs)


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.filterwarnings("ignore::modeaware.errors.ResizeWarning")
def test_group_of_two_reads_the_new_topic_after_the_topic(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], auto_commit: bool
) -> None:
    topic, group, load = make_topic(12), make_group(), Load()
    new_topic = f"{topic}-v2"
    conf: dict[str, Any] = {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log}

    def consumer() -> Any:
        settings = {**conf, **FAST, "group_id": group, "enable_auto_commit": auto_commit}
        return (KafkaConsumer if auto_commit else Committing)(**settings)

    for _ in range(2):
        load.writer(lambda: KafkaProducer(**conf, linger_ms=1), topic, KafkaPythonWriter)
    for work_s in (0.0, 0.002):
        load.reader(consumer, [topic], kind=KafkaPythonReader, work_s=work_s)
    with load.running():
        load.more()
        assert served.ask(ReplaceTopicCommand(topic, new_topic, 4)).code is ErrorCode.NONE
        served.wait_done(topic, 90)
        load.more()
        eventually(lambda: {name for reader in load.readers for name, _ in reader.held} == {new_topic}, 60)
        stats = [reader.stats["gates"] for reader in load.readers]
    chain = {topic: 12, new_topic: 4}
    load.check(servers=served.servers, chain=chain, place=murmur2, seals=served.seals(topic))
    assert all(gate["state"] == "open" for gates in stats for gate in gates)
    for each in (*load.writers, *load.readers):
        print(f"longest time without a record of {each}: {each.pace.longest_s * 1000:.0f} ms")
