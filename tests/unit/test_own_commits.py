"""Commits of the package through an application's consumer, and whose ``on_commit`` is given their results."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from modeaware.clients.actions import Commit, CommitStored, Committed
from modeaware.confluent.own_commits import OwnCommits
from modeaware.notes import READ
from tests.support.stories import Steps, Story

NOTE = Commit({("a", 0): Committed(5, READ), ("a", 1): Committed(7, READ)})
NOTED = [TopicPartition("a", 1, 7, READ), TopicPartition("a", 0, 5, READ)]
STORED = [TopicPartition("a", 0, 5), TopicPartition("a", 1, OFFSET_INVALID)]
NOTHING = [TopicPartition("a", 0, OFFSET_INVALID), TopicPartition("a", 1, OFFSET_INVALID)]
ONE = [TopicPartition("a", 0, 3)]
EMPTY = KafkaError(KafkaError._NO_OFFSET)
MOVED = KafkaError(KafkaError.ILLEGAL_GENERATION)


class Consumer:
    """Both partitions of topic a are assigned to it; its commits have no result but by :meth:`result`."""

    def __init__(self, *, calls_back: bool = True) -> None:
        self.sent: list[list[TopicPartition] | None] = []
        self.seen: list[str] = []
        conf = {"on_commit": lambda error, parts: self.seen.append("application")} if calls_back else {}
        self.commits = OwnCommits(conf)
        self.commits.answered = lambda action, error, parts: self.seen.append(type(action).__name__)
        self.commits.reported = lambda error, parts: self.seen.append("reported" if error is None else "failed")
        self.on_commit = self.commits.listening({"group.id": "g"})["on_commit"]

    def assignment(self) -> list[TopicPartition]:
        return NOTHING

    def commit(self, offsets: list[TopicPartition] | None = None, *, asynchronous: bool) -> None:
        assert asynchronous, "a commit that is waited for may block the polling thread"
        self.sent.append(offsets)

    def send(self, action: Commit | CommitStored) -> None:
        self.commits.send(self, action)

    def result(self, parts: list[TopicPartition], error: KafkaError | None = None) -> None:
        self.on_commit(error, parts)

    def listen(self, wanted: bool) -> None:
        self.commits.listen(wanted)

    def sees(self, *expected: str, pending: bool = False) -> None:
        seen, self.seen = self.seen, []
        assert (seen, self.commits.pending) == (list(expected), pending)


do = Steps()
STORIES = {
    "before the package has committed anything the application is given all": Story(
        (do.result(ONE), do.sees("application")), (do.result(NOTHING, EMPTY), do.sees("application"))
    ),
    "result of a note is not given to the application": Story(
        (do.send(NOTE), do.sees(pending=True), do.result(NOTED), do.sees("Commit")),
        (do.result(ONE), do.sees("reported", "application")),
    ),
    "results of others are taken while they are wanted": Story(
        (do.listen(True), do.result(ONE), do.sees("reported", "application")),
        (do.listen(False), do.result(ONE), do.sees("application")),
        (do.send(NOTE), do.listen(False), do.result(NOTED), do.sees("Commit")),
        (do.listen(False), do.result(ONE), do.sees("application")),
    ),
    "results of others come in between": Story(
        (do.send(NOTE), do.result(ONE), do.sees("reported", "application", pending=True)),
        (do.result(NOTED, MOVED), do.sees("Commit")),
        (do.result(NOTED, MOVED), do.sees("failed", "application")),
    ),
    "result of what is stored": Story((do.send(CommitStored()), do.result(STORED), do.sees("CommitStored"))),
    "what is stored without an assignment": Story(
        (do.send(CommitStored()), do.result([], MOVED), do.sees("CommitStored"))
    ),
    "commit of one partition is not taken for one of what is stored": Story(
        (do.send(CommitStored()), do.result(ONE), do.sees("reported", "application", pending=True))
    ),
    "nothing stored is never the application's, also where an automatic commit was taken for its result": Story(
        (do.send(CommitStored()), do.result(STORED), do.sees("CommitStored")),
        (do.result(NOTHING, EMPTY), do.sees()),
        (do.result(NOTHING, EMPTY), do.sees("failed", "application")),  # of a commit of its own
    ),
    "application without a callback": Story(
        (do.result(ONE), do.sees(), do.send(NOTE), do.result(NOTED), do.sees("Commit")),
        (do.result(ONE), do.sees("reported")),
        calls_back=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_results_of_commits(story: Story) -> None:
    story.run(Consumer)


def test_commits_are_sent_as_they_are_to_be_recognised() -> None:
    consumer = Consumer()
    consumer.send(NOTE)
    consumer.send(CommitStored())
    [offsets, stored] = consumer.sent
    assert offsets is not None
    assert [(p.partition, p.offset, p.metadata) for p in offsets] == [(0, 5, READ), (1, 7, READ)]
    assert stored is None


def test_commit_that_was_not_sent_has_no_result() -> None:
    class Closed(Consumer):
        def commit(self, offsets: Any = None, *, asynchronous: bool) -> None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_GROUP))

    closed = Closed()
    with pytest.raises(KafkaException):
        closed.send(NOTE)
    closed.sees()


def test_callback_that_is_none_is_left_to_librdkafka() -> None:
    assert OwnCommits({"on_commit": 1}).listening({"on_commit": 1}) == {"on_commit": 1}
