"""The mode log under a controller: brokers may have another topic of its name, or one that is not fit any more."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.controller import log as log_module
from modeaware.controller.inbox import NOT_BEGUN
from modeaware.controller.log import ControllerLog
from modeaware.errors import ClusterError, ErrorCode
from modeaware.modelog.replay import Replay
from modeaware.modelog.topic import LogTopic

FIT = LogTopic("modes", "first", (1,), {"cleanup.policy": "compact"})
RECORDS = [("key", b"{}")]


class Site:
    """A controller's log, the topic as brokers describe it, and what was appended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topic = FIT
        self.failures: list[ClusterError] = []
        self.timeouts_s: list[float] = []
        self.appended: list[Any] = []
        self.renewed = 0
        writer = SimpleNamespace(
            open=lambda: None, close=lambda: None, append=lambda *each: self.appended.append(each), is_open=True
        )
        monkeypatch.setattr(log_module, "ModeLogWriter", lambda *_: writer)
        monkeypatch.setattr(log_module, "read_mode_log", lambda *_, **__: Replay())
        monkeypatch.setattr(log_module, "ensure_mode_log", lambda *_: self.topic.topic_id)
        monkeypatch.setattr(log_module, "describe_mode_log", self.describe)
        cluster: Any = SimpleNamespace(admin=None, renew_admin=self.renew)
        election: Any = SimpleNamespace(group_metadata=b"membership")
        self.log = ControllerLog(cluster, {}, "modes", election)
        self.log.open()

    def describe(self, _admin: object, _topic: str, timeout_s: float) -> LogTopic:
        self.timeouts_s.append(timeout_s)
        if self.failures:
            raise self.failures.pop(0)
        return self.topic

    def renew(self) -> None:
        self.renewed += 1


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


def test_nothing_is_appended_to_another_topic_of_the_name(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.log.append(RECORDS)
    site.topic = LogTopic("modes", "second", (1,), FIT.configs)
    with pytest.raises(ClusterError, match="deleted and created again: nothing was appended"):
        site.log.append(RECORDS)
    assert (len(site.appended), site.log.is_open) == (1, False)
    with caplog.at_level(logging.ERROR):
        site.log.open()
    assert "its records are lost, restore them (docs/runbook.md)" in caplog.text
    site.log.append(RECORDS)
    assert len(site.appended) == 2


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        (LogTopic("modes", "first", (1,), {"cleanup.policy": "delete"}), "cleanup.policy=delete"),
        (LogTopic("modes", "first", (1, 1, 1), FIT.configs), "3 partitions"),
    ],
)
def test_a_log_that_is_not_fit_any_more_is_appended_to_and_says_so(site: Site, topic: LogTopic, why: str) -> None:
    site.topic = topic
    site.log.append(RECORDS)
    assert len(site.appended) == 1
    assert why in str(site.log.unfit)
    site.topic = FIT
    site.log.append(RECORDS)
    assert site.log.unfit is None


TIMED_OUT = ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)


def test_without_an_answer_the_topic_is_described_once_more_on_another_connection(site: Site) -> None:
    site.failures = [TIMED_OUT]
    site.log.append(RECORDS)
    assert (len(site.appended), site.renewed) == (1, 1)
    first_s, second_s = site.timeouts_s
    assert 0 < second_s <= first_s


@pytest.mark.parametrize("failures", [[TIMED_OUT] * 2, [ClusterError("not allowed")]], ids=["silent", "refused"])
def test_a_log_that_cannot_be_described_is_not_appended_to_and_that_is_no_doubt(
    site: Site, failures: list[ClusterError]
) -> None:
    site.failures = failures
    with pytest.raises(ClusterError, match="nothing was appended") as caught:
        site.log.append(RECORDS)
    assert (site.appended, site.failures, caught.value.code) == ([], [], NOT_BEGUN)
