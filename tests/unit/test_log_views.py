"""How the tail's news become views, without a broker: the tail is not started, the test speaks in its place."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.modelog.moved import MovedRecord, moved_key
from modeaware.modelog.reader import LogRecord
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.topic_view import Moved, TopicView
from modeaware.views.log import LogSource
from modeaware.views.store import ViewStore
from tests.support.modelog import topic_record


class Log:
    """A mode log in memory, told to a LogSource as its tail would tell it."""

    def __init__(self) -> None:
        self.store = ViewStore(lambda _fresh, timeout_s: self.views.fetch(timeout_s), 60_000)
        self.views = LogSource({"bootstrap.servers": "127.0.0.1:1"}, ClientConfig(), self.store)
        self.heard: list[dict[str, TopicView]] = []
        self._records: list[LogRecord] = []
        self.store.subscribe(self.listen)

    def listen(self, changed: Mapping[str, TopicView]) -> None:
        self.heard.append(dict(changed))

    def read(self, *records: TopicRecord | tuple[str | None, bytes | None]) -> None:
        """Another log with these records is read from its beginning."""
        self._records = []
        self.views.begin()
        self.tell(*records)
        self.views.reached_end(len(self._records))

    def tell(self, *records: TopicRecord | tuple[str | None, bytes | None]) -> None:
        """These records are appended."""
        start = len(self._records)
        for record in records:
            key, value = (record.topic_id, record.to_json()) if isinstance(record, TopicRecord) else record
            raw = None if key is None else key.encode()
            self._records.append(LogRecord(len(self._records), raw, value))
        self.views.records(self._records[start:])

    def epoch(self, topic: str = "orders") -> int:
        return self.store.view(topic).epoch


def record_of(topic_id: str, epoch: int) -> TopicRecord:
    return topic_record(epoch=epoch, topic_id=topic_id)


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_log_that_appears_late_is_adopted(log: Log) -> None:
    log.views.begin()
    log.views.absent()
    log.tell(topic_record(epoch=1))
    log.views.reached_end(1)
    assert [dict(call) for call in log.heard] == [{}, {"orders": topic_record(epoch=1).view()}]


def test_a_log_that_is_gone_is_an_error_and_its_views_stay(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.read(topic_record(epoch=1))
    log.views.begin()
    with caplog.at_level(logging.INFO):
        log.views.absent()
        log.views.absent()
        assert log.epoch() == 1
        assert log.store.stats()["stale"] is True
        assert "is gone" in str(log.store.error())
        log.read(topic_record(epoch=2))
    assert log.epoch() == 2
    assert log.store.error() is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_a_log_that_lost_its_last_records_reverts_no_view(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.read(topic_record(epoch=5, writable=4))
    with caplog.at_level(logging.WARNING):
        log.read(topic_record(epoch=3, writable=12))
        log.tell(topic_record(epoch=4, writable=12))
    assert log.epoch() == 5
    assert [call["orders"].epoch for call in log.heard] == [5]
    assert sum("already has the newer version" in message for message in caplog.messages) == 1
    log.tell(topic_record(epoch=6))
    assert log.epoch() == 6


def moved_record(epoch: int, *groups: str, topic_id: str = "old", controller_epoch: int = 1) -> tuple[str, bytes]:
    record = MovedRecord(topic_id, groups, controller_epoch=controller_epoch, epoch=epoch)
    return moved_key(topic_id), record.to_json()


def replaced_record(topic_id: str, epoch: int) -> TopicRecord:
    now = Replacement("orders-v2", 4, 1_000, new_topic_id="id-2", announced_ms=1, switched_ms=2)
    return replace(record_of(topic_id, epoch), replacement=now)


def test_a_view_changes_when_a_group_has_an_open_gate(log: Log) -> None:
    log.read(replaced_record("old", 5))
    log.heard.clear()
    log.tell(moved_record(0, "billing"))
    log.tell(moved_record(1, "billing", "audit"))
    found = [view.replaced_by.moved for call in log.heard for view in call.values() if view.replaced_by is not None]
    assert found == [Moved(groups=frozenset(each)) for each in ({"billing"}, {"billing", "audit"})]
    assert [log.epoch(), log.views.stats()["rejected_records"]] == [5, 0]


def test_the_groups_with_an_open_gate_are_of_one_topic_id(log: Log) -> None:
    log.read(moved_record(0, "billing"), replaced_record("old", 5))  # compaction keeps the last of each key
    log.tell(replaced_record("new", 1))
    new = log.store.view("orders").replaced_by
    assert new is not None
    assert new.moved == Moved()
    assert [view.topic_id for view in log.views.views_of("orders")] == ["old", "new"]
    log.tell(replaced_record("new", 2), moved_record(0, "audit", topic_id="new"))
    log.tell((moved_key("old"), None))
    new = log.store.view("orders").replaced_by
    assert new is not None
    assert new.moved == Moved(groups=frozenset({"audit"}))


def test_a_log_that_lost_its_tail_shuts_no_gate(log: Log) -> None:
    log.read(replaced_record("old", 5), moved_record(3, "billing", "audit"))
    log.read(replaced_record("old", 6), moved_record(2, "billing"))
    held = log.store.view("orders")
    assert held.replaced_by is not None
    assert (held.epoch, sorted(held.replaced_by.moved.groups)) == (6, ["audit", "billing"])


@pytest.mark.parametrize("is_reread", [False, True], ids=["the tail", "a fresh reading"])
def test_an_old_topic_whose_view_was_set_aside_becomes_an_alias_when_it_is_gone(log: Log, is_reread: bool) -> None:
    """A topic was created under its name before the log said so: the name points to the new topic all the same."""
    switched = replaced_record("old", 5)
    log.read(switched)
    assert log.store.choose("orders", "new", log.views.views_of("orders"))
    log.tell(replaced_record("old", 6))
    assert log.store.held("orders") is None, "the record does not say that the topic is gone"
    gone = replace(switched, epoch=7, replacement=replace(switched.replacing, released_ms=3, gone_ms=3))
    (log.read if is_reread else log.tell)(gone)
    held = log.store.held("orders")
    assert held is not None
    assert held.is_alias
    assert not log.store.choose("orders", "new", log.views.views_of("orders"))


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([record_of("old", 6), ("old", None), record_of("old", 5)], [("old", 6), (None, -1), ("old", 5)]),
        ([("old", None), record_of("new", 1), ("new", None), record_of("old", 5)], [("new", 1), ("old", 5)]),
    ],
    ids=["a tombstone, then a copy of the view", "the topic made anew and gone, then a copy of the view"],
)
def test_no_state_of_a_topic_goes_by_without_a_trace(
    log: Log, records: list[TopicRecord | tuple[str, None]], told: list[tuple[str | None, int]]
) -> None:
    """However many records come at once: another client may have read them one by one, and joined in between."""
    log.read(record_of("old", 5))
    log.heard.clear()
    log.tell(*records)
    views = [call["orders"] for call in log.heard]
    assert [(view.topic_id, view.epoch) for view in views] == told


def test_a_listener_that_fails_harms_nobody(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_changed: Mapping[str, TopicView]) -> None:
        raise ZeroDivisionError

    log.store.unsubscribe(log.listen)
    log.store.subscribe(broken)
    log.store.subscribe(log.listen)
    log.read(topic_record(epoch=1))
    log.store.subscribe(broken)
    assert [call["orders"].epoch for call in log.heard] == [1]
    assert sum("a listener of partition modes failed" in message for message in caplog.messages) == 2


def test_a_refresh_before_the_first_view_says_why_there_is_none(log: Log) -> None:
    log.views.failed(ModeSourceError("no broker"))
    with pytest.raises(ModeSourceError, match="not read to its end in time: no broker"):
        log.store.refresh(0.01)
    assert log.views.check_due()


def test_a_tombstone_written_while_it_was_out_of_reach_takes_the_view_away(log: Log) -> None:
    log.read(topic_record("a"), topic_record("b"))
    log.read(topic_record("b"), ("id-of-a", None))
    assert log.heard[-1] == {"a": TopicView.unlisted("a")}
    assert set(log.store.views()) == {"b"}
