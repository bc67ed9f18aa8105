"""Groups follow a topic that is replaced, on a real Kafka with the real controller: in key order, losing nothing."""

from __future__ import annotations

import pytest

from tests.support.succession import Following, Given, Reader, Readers, Writer


@pytest.mark.parametrize("strategy", [None, "consumer"])
def test_group_of_three_reads_the_successor_after_the_topic(following: Following, strategy: str | None) -> None:
    journal: list[Given] = []
    conf = following.conf(strategy)
    members = [Reader(name, [following.topic], conf, journal, batch=50 * (name == "b")) for name in "abc"]
    with Writer(following.producer, following.name) as writer, Readers(members, journal) as readers:
        readers.await_held(following.topic, 12)
        readers.await_given(following.topic, 300)
        following.replace()
        readers.await_given(following.successor, 300)
        following.served.wait_done(following.topic)
        readers.await_held(following.successor, 4)
        readers.await_held(following.topic, 0)
        writer.stop()
        readers.check(writer.sent)
    print(f"{strategy}: an ordered group paused for {readers.pause_s(following.topic, following.successor):.2f} s")


def test_slow_member_is_waited_for_until_it_has_handled_its_last_record(following: Following) -> None:
    journal: list[Given] = []
    conf = following.conf(auto_commit_interval_ms=50)
    members = [Reader(name, [following.topic], conf, journal, work_s=0.01 * (name == "a")) for name in "abc"]
    with Writer(following.producer, following.name) as writer, Readers(members, journal) as readers:
        readers.await_held(following.topic, 12)
        readers.await_given(following.topic, 300)
        following.replace()
        readers.await_given(following.successor, 1)
        members[0].faster()
        readers.await_given(following.successor, 300)
        following.served.wait_done(following.topic)
        writer.stop()
        readers.check(writer.sent)
    last = max(given.at_s for given in journal if given.topic == following.topic)
    assert all(given.at_s >= last + 0.01 for given in journal if given.topic == following.successor)


def test_application_that_commits_by_itself_opens_the_gate_by_its_commits(following: Following) -> None:
    journal: list[Given] = []
    conf = following.conf("cooperative-sticky", enable_auto_commit=False, auto_offset_reset="latest")
    members = [Reader(name, [following.topic], conf, journal, every=20) for name in "ab"]
    with Readers(members, journal) as readers:
        readers.await_held(following.topic, 12)
        with Writer(following.producer, following.name) as writer:
            readers.await_given(following.topic, 300)
            following.replace()
            readers.await_given(following.successor, 1)
            following.served.wait_done(following.topic)
            writer.stop()
            readers.check(writer.sent)
