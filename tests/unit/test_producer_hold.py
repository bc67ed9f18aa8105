"""Keys that a producer holds back while the records before them may not have been read. No broker is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, murmur2

from modeaware.confluent._backlog import Backlogs  # private: see make()
from modeaware.errors import KeyHeld, ResizeWarning
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import Acquired, Reports
from tests.support.resizing import KEPT_12_TO_5, KEYS, MOVED_12_TO_5, Make, Makes

pytestmark = pytest.mark.filterwarnings("default::modeaware.errors.ResizeWarning")


@pytest.fixture
def make(views: FakeViews, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """See :class:`Makes`. What they have queued themselves is another matter (test_backlog), and without a broker the
    errors of the connection would count as such."""
    monkeypatch.setattr(Backlogs, "_queued", lambda self: 0)
    made = Makes()
    yield made
    made.close()


class TestHold:
    def test_keys_that_move_are_held_until_their_old_partition_is_handed_over(
        self, make: Make, views: FakeViews, reports: Reports
    ) -> None:
        producer = make("hold", **reports.conf)
        views.set("orders", modes_of(12, 5), previous_count=12)
        for key in KEPT_12_TO_5:
            producer.produce("orders", b"v", key)
        for key in MOVED_12_TO_5:
            with pytest.raises(KeyHeld, match=rf"read partition {murmur2(key, 12)}: ") as caught:
                producer.produce("orders", b"v", key)
            assert isinstance(caught.value, BufferError)
        producer.produce("orders", b"v")
        assert reports.queued(producer) == len(KEPT_12_TO_5) + 1
        views.set("orders", modes_of(12, 5), previous_count=12, handed_over=[0, 1, 2, 3, 4, 5])
        for key in MOVED_12_TO_5:
            if murmur2(key, 12) <= 5:
                producer.produce("orders", b"v", key)
            else:
                with pytest.raises(KeyHeld):
                    producer.produce("orders", b"v", key)
        views.set("orders", modes_of(12, 5))  # all are
        for key in KEYS:
            producer.produce("orders", b"v", key)

    def test_a_producer_that_starts_in_mid_shrink_holds_too(self, acquired: Acquired, make: Make) -> None:
        acquired.views.set("orders", modes_of(12, 5), previous_count=12)
        with pytest.raises(KeyHeld):
            make("hold").produce("orders", b"v", MOVED_12_TO_5[0])

    def test_a_shrink_before_the_last_is_handed_over_holds_by_both_counts(self, make: Make, views: FakeViews) -> None:
        producer = make("hold")
        in_7_then_3 = next(key for key in KEYS if (murmur2(key, 12), murmur2(key, 8), murmur2(key, 4)) == (7, 3, 3))
        in_9_then_5 = next(key for key in KEYS if (murmur2(key, 12), murmur2(key, 8)) == (9, 5))
        never_moved = next(key for key in KEYS if murmur2(key, 12) == murmur2(key, 8) == murmur2(key, 4))
        views.set("orders", modes_of(12, 8), previous_count=12, handed_over=[8, 9, 10, 11])
        with pytest.raises(KeyHeld, match="read partition 7: "):
            producer.produce("orders", b"v", in_7_then_3)
        producer.produce("orders", b"v", in_9_then_5)
        views.set("orders", modes_of(12, 4), previous_count=8)
        views.set("orders", modes_of(12, 4), previous_count=8, handed_over=[3])
        with pytest.raises(KeyHeld, match="read partition 7: "):
            producer.produce("orders", b"v", in_7_then_3)
        with pytest.raises(KeyHeld, match="read partition 5: "):
            producer.produce("orders", b"v", in_9_then_5)
        producer.produce("orders", b"v", never_moved)
        views.set("orders", modes_of(12, 4), previous_count=8, handed_over=[5, 7])
        for key in (in_7_then_3, in_9_then_5):
            producer.produce("orders", b"v", key)

    def test_a_topic_made_anew_holds_by_its_own_count_alone(self, make: Make, views: FakeViews) -> None:
        producer = make("hold")
        views.set("orders", modes_of(12, 5), previous_count=12, topic_id="one")
        views.set("orders", modes_of(8, 4), previous_count=8, topic_id="two")
        for key in KEYS:
            if murmur2(key, 8) == murmur2(key, 4):
                producer.produce("orders", b"v", key)
            else:
                with pytest.raises(KeyHeld):
                    producer.produce("orders", b"v", key)

    def test_in_a_batch_only_the_held_ones_stay_out(self, make: Make, views: FakeViews) -> None:
        producer = make("hold")
        views.set("orders", modes_of(12, 5), previous_count=12)
        batch: list[dict[str, Any]] = [{"key": key, "value": b"v"} for key in KEYS]
        assert producer.produce_batch("orders", batch) == len(KEPT_12_TO_5)
        held = [message for message in batch if "_error" in message]
        assert [message["key"] for message in held] == MOVED_12_TO_5
        assert held[0]["_error"].code() == KafkaError._QUEUE_FULL

    def test_the_warning_comes_as_well(self, make: Make, views: FakeViews) -> None:
        producer = make("hold")
        views.set("orders", modes_of(12, 5), previous_count=12)
        with pytest.warns(ResizeWarning):
            producer.produce("orders", b"v", KEPT_12_TO_5[0])
        with pytest.raises(KeyHeld):
            producer.produce("orders", b"v", MOVED_12_TO_5[0])
