"""What is told of a resize when threads meet. (What a producer makes of resizes is in test_producer_resize.py.)"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from modeaware.errors import KeyHeld
from modeaware.resize import Guarding, lighter
from modeaware.routing import Route, route_for
from modeaware.topic_view import TopicView
from modeaware.views.resizes import Resizes
from partitioners import named
from tests.support.fake_views import modes_of


@dataclass
class Queue:
    """What a producer has queued, by the test's word; it keeps what it is asked for."""

    left: set[int]
    asked: list[int] = field(default_factory=list)
    started: int = 0

    def start(self, _topic: str) -> Queue:
        self.started += 1
        return self

    @property
    def over(self) -> bool:
        return not self.left

    def drained(self, partition: int) -> bool:
        self.asked.append(partition)
        return partition not in self.left


@pytest.mark.filterwarnings("default::modeaware.errors.ResizeWarning")
def test_moved_keys_wait_for_the_producers_own_records_and_no_others_are_asked_for() -> None:
    partitioner = named("murmur2_random")
    picks = partitioner.for_topic("orders")
    queue = Queue(left={3})
    seen: list[str] = []
    resizes = Resizes("hold", partitioner, None, seen.append, backlog=queue.start)
    routes: list[Route | None] = []

    def adjust(epoch: int, count: int, previous: int | None = None, handed_over: range = range(0)) -> Route:
        modes = modes_of(12, count)
        view = TopicView("orders", "id", (1, epoch), modes, previous_count=previous, handed_over=frozenset(handed_over))
        routes.append(resizes.adjusted(view, route_for(view, partitioner), first=False))
        return routes[-1] or pytest.fail("no route")

    keys = [b"key-%d" % number for number in range(200)]
    where = {key: (picks.partition(key, 12), picks.partition(key, 5)) for key in keys}
    adjust_all = resizes.adjusted(TopicView("orders", "id", (1, 1), modes_of(12, 12)), None, first=True)
    assert adjust_all is None
    assert queue.started == 0
    route = adjust(2, 5, previous=12)
    assert queue.started == 1
    with pytest.raises(KeyHeld, match="not every group"):
        route.pick(next(key for key in keys if where[key] == (3, 1)))
    assert queue.asked == [], "the handover is waited for first"
    route = adjust(3, 5, previous=12, handed_over=range(11))
    route = adjust(4, 5)
    assert queue.started == 1, "of the same switch"
    for key, (old, new) in where.items():
        before = len(queue.asked)
        if old == 3 != new:
            with pytest.raises(KeyHeld, match="of this producer for partition 3"):
                route.pick(key)
        else:
            assert route.pick(key) == new
        assert queue.asked[before:] == ([] if old == new else [old])
    assert isinstance(lighter(route.partitioner), Guarding)
    queue.left.clear()
    seen.clear()
    route.pick(next(key for key in keys if where[key] == (3, 1)))
    assert seen == ["orders"]
    assert type(lighter(route.partitioner)) is type(picks)
    assert adjust(5, 5).open, "later views bring no guard back"
