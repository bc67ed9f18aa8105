"""Groups of modeaware.kafka_python.KafkaConsumer follow a topic that is replaced, by the real controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
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
from tests.support.kafka_python_load import KafkaPythonMember, KafkaPythonWriter
from tests.support.replaced_load import Delivered, Member, Writer, judge
from tests.support.waiting import eventually


def all_is_read(writers: Iterable[Writer], delivered: Delivered) -> bool:
    acknowledged = {record for writer in writers for record in writer.acknowledged}
    return not acknowledged - delivered.distinct()


class Committing(KafkaConsumer):
    """Commits what the application has handled whenever that asks for more."""

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        with suppress(CommitFailedError, RebalanceInProgressError):
            self.commit()
        return super().poll(*args, **kwargs)


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.filterwarnings("ignore::modeaware.errors.ResizeWarning")
def test_group_of_two_reads_the_successor_after_the_topic(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], auto_commit: bool
) -> None:
    topic, group, delivered = make_topic(12), make_group(), Delivered()
    successor = f"{topic}-v2"
    conf: dict[str, Any] = {"bootstrap_servers": served.servers, "modeaware_mode_log_topic": served.log}

    def consumer() -> Any:
        settings = {**conf, **FAST, "group_id": group, "enable_auto_commit": auto_commit}
        return (KafkaConsumer if auto_commit else Committing)(**settings)

    writers = [KafkaPythonWriter(lambda: KafkaProducer(**conf, linger_ms=1), topic, name) for name in "ab"]
    members = [KafkaPythonMember(consumer, [topic], delivered, work_s) for work_s in (0.0, 0.002)]
    with ExitStack() as reading:
        for member in members:
            reading.enter_context(member)
        with ExitStack() as writing:
            for writer in writers:
                writing.enter_context(writer)
            everyone: list[Writer | Member] = [*writers, *members]
            eventually(lambda: all(each.fine() for each in everyone) and len(delivered.distinct()) > 300, 60)
            assert served.ask(ReplaceTopicCommand(topic, successor, 4)).code is ErrorCode.NONE
            served.wait_done(topic)
            before = len(delivered.distinct())
            eventually(lambda: all(each.fine() for each in everyone) and len(delivered.distinct()) > before + 300, 60)
        eventually(lambda: all_is_read(writers, delivered), 60)
        eventually(lambda: {topic for member in members for topic in member.held} == {successor}, 60)
        stats = [member.stats["gates"] for member in members]
    verdict = judge(served.servers, {topic: 12, successor: 4}, writers, {"group": delivered}, murmur2)
    assert verdict.is_well, verdict
    assert not [refused for writer in writers for refused in writer.refused]
    assert all(gate["state"] == "open" for gates in stats for gate in gates)
    for writer in writers:
        print(f"longest time without an acknowledgement: {writer.gaps.longest_s() * 1000:.0f} ms")
    for member in members:
        print(f"longest time without a record: {member.gaps.longest_s():.2f} s")
