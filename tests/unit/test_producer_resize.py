"""What a producer does when the writable count changes under its keys: warn, refuse. No broker is needed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, murmur2

from modeaware.confluent.errors import MovedKeyRefused
from modeaware.confluent.producer import Producer
from modeaware.errors import ConfigError, ModeAwareError, ResizeWarning
from modeaware.modes import PartitionMode
from modeaware.resize import Resize
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import (
    CONF,
    KEPT_12_TO_5,
    KEYS,
    MOVED_12_TO_5,
    Acquired,
    Make,
    Makes,
    Reports,
    is_librdkafkas_own,
)

pytestmark = pytest.mark.filterwarnings("default::modeaware.errors.ResizeWarning")


@pytest.fixture
def make(views: FakeViews) -> Iterator[Make]:
    """See :class:`Makes`."""
    made = Makes()
    yield made
    made.close()


def silent(recwarn: pytest.WarningsRecorder) -> bool:
    return not any(issubclass(warning.category, ResizeWarning) for warning in recwarn)


def send_thrice(producer: Producer) -> None:
    for _ in range(3):
        producer.produce("orders", b"v", b"k")


class TestWarn:
    def test_the_first_record_with_a_key_after_a_shrink_warns_once(
        self, make: Make, views: FakeViews, caplog: pytest.LogCaptureFixture
    ) -> None:
        told: list[Resize] = []
        producer = make(**{"modeaware.resize_cb": told.append})
        producer.produce("orders", b"v", b"k")
        views.set("orders", modes_of(12, 5), previous_count=12)
        with caplog.at_level(logging.WARNING), pytest.warns(ResizeWarning) as warned:
            send_thrice(producer)
        (resize,) = told
        assert (resize.topic, resize.epoch, resize.old_count, resize.new_count) == ("orders", 1, 12, 5)
        assert not resize.divides
        assert resize.moved_share == pytest.approx(1 - 5 / 60)
        text = str(warned[0].message)
        assert len(warned) == 1
        assert text == resize.describe()
        assert text.startswith(
            "WARNING: If partitions are decreased for a topic that has a key, the partition logic or ordering of the "
            "messages will be affected. orders (epoch 1) went from 12 to 5 writable partitions: 92% of the keys move, "
            "5 does not divide 12"
        )
        assert text in caplog.text
        assert producer.modeaware_stats()["resizes"] == 1

    def test_each_epoch_that_changes_the_count_warns(self, make: Make, views: FakeViews) -> None:
        told: list[Resize] = []
        producer = make(**{"modeaware.resize_cb": told.append})
        views.set("orders", modes_of(12, 6), previous_count=12)
        with pytest.warns(ResizeWarning):
            producer.produce("orders", b"v", b"k")
        views.set("orders", modes_of(12, 6, PartitionMode.NONE), previous_count=12)  # drained: no other count
        producer.produce("orders", b"v", b"k")
        views.set("orders", modes_of(12, 3), previous_count=6)
        with pytest.warns(ResizeWarning):
            producer.produce("orders", b"v", b"k")
        with pytest.warns(ResizeWarning, match="increased"):  # all are writable again: nobody looks at keys then
            views.set("orders", modes_of(12, 12))
        assert [(r.old_count, r.new_count, r.divides) for r in told] == [(12, 6, True), (6, 3, True), (3, 12, True)]

    def test_without_keys_nothing_is_said(self, make: Make, views: FakeViews, recwarn: pytest.WarningsRecorder) -> None:
        producer = make()
        views.set("orders", modes_of(12, 5), previous_count=12)
        producer.produce("orders", b"v")
        producer.produce("orders", b"v", b"k", 3)  # a partition was named: the key decides nothing
        views.set("orders", modes_of(12, 12))
        assert silent(recwarn)
        assert producer.modeaware_stats()["resizes"] == 0

    def test_a_growth_warns_when_all_is_writable_where_keys_were_seen_before(
        self, make: Make, views: FakeViews, recwarn: pytest.WarningsRecorder
    ) -> None:
        with_keys, without = make(), make()
        for producer, key in ((with_keys, b"k"), (without, None)):
            views.set("orders", modes_of(16, 12))  # new ones are opening
            producer.produce("orders", b"v", key)
        assert silent(recwarn)
        with pytest.warns(ResizeWarning, match="increased .* from 12 to 16") as warned:
            views.set("orders", modes_of(16, 16))
        assert len(warned) == 1
        assert (with_keys.modeaware_stats()["resizes"], without.modeaware_stats()["resizes"]) == (1, 0)
        assert is_librdkafkas_own(with_keys.produce)

    def test_a_warning_that_is_an_error_reaches_the_sender_once(self, make: Make, views: FakeViews) -> None:
        producer = make()
        views.set("orders", modes_of(12, 5), previous_count=12)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResizeWarning)
            with pytest.raises(ResizeWarning):
                producer.produce("orders", b"v", b"k")
            producer.produce("orders", b"v", b"k")


def test_ignore_says_nothing(make: Make, views: FakeViews, recwarn: pytest.WarningsRecorder) -> None:
    producer = make("ignore")
    views.set("orders", modes_of(12, 5), previous_count=12)
    producer.produce("orders", b"v", b"k")
    assert silent(recwarn)
    assert producer.modeaware_stats()["resizes"] == 0


class TestError:
    def test_keys_that_have_moved_are_refused_and_others_are_not(
        self, make: Make, views: FakeViews, reports: Reports
    ) -> None:
        producer = make("error", **reports.conf)
        views.set("orders", modes_of(12, 5), previous_count=12)
        for key in KEPT_12_TO_5:
            producer.produce("orders", b"v", key)
        for key in MOVED_12_TO_5:
            with pytest.raises(MovedKeyRefused, match=rf"orders: the key moved .* to {murmur2(key, 5)} ") as caught:
                producer.produce("orders", b"v", key)
            assert isinstance(caught.value, KafkaException)
            assert isinstance(caught.value, ModeAwareError)
            assert caught.value.args[0].code() == KafkaError._CONFLICT
        producer.produce("orders", b"v")
        assert reports.queued(producer) == len(KEPT_12_TO_5) + 1

    def test_it_is_measured_by_what_the_producer_knew_first(self, make: Make, views: FakeViews) -> None:
        producer = make("error")
        views.set("orders", modes_of(12, 5), previous_count=12)
        views.set("orders", modes_of(12, 3), previous_count=5)
        with pytest.raises(MovedKeyRefused, match="from partition 11 "):
            producer.produce("orders", b"v", next(key for key in KEYS if murmur2(key, 12) == 11))
        views.set("orders", modes_of(12, 12))  # undone
        for key in KEYS:
            producer.produce("orders", b"v", key)
        assert is_librdkafkas_own(producer.produce)

    def test_a_growth_too(self, make: Make, views: FakeViews) -> None:
        producer = make("error")
        views.set("orders", modes_of(12, 12))
        views.set("orders", modes_of(24, 24))
        moved = next(key for key in KEYS if murmur2(key, 24) >= 12)
        with pytest.raises(MovedKeyRefused):
            producer.produce("orders", b"v", moved)


@pytest.mark.parametrize(("setting", "value"), [("modeaware.on.resize", "shout"), ("modeaware.resize_cb", "print")])
def test_bad_settings(acquired: Acquired, setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        Producer({**CONF, setting: value})
    assert acquired.asked == []
