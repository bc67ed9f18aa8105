"""Every way of confluent_kafka's clients into a topic that was shrunk, deleted and created again (I8).

No controller runs to remove the old record. The short tier has one case of each client.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from modeaware.views import registry
from tests.support.fetching import Fetching
from tests.support.recreating import COUNT, WRITABLE, Recreating
from tests.support.waiting import eventually

PROTOCOLS = ["range", "cooperative-sticky", "consumer"]
"""Under these the consumer's group is classic eager, classic incremental, and KIP-848's."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_latest_group_reads_every_record_written_after_it_joined(
    recreating: Recreating, make_group: Callable[[], str], protocol: str
) -> None:
    recreating.recreate()
    fetching = Fetching()
    with recreating.group(make_group(), protocol, "latest", members=2, **fetching.conf) as group:
        # A rebalance after this would be a start at the end anew.
        group.await_held(recreating.topic, range(COUNT), [6, 6])
        fetching.await_fetched(recreating.topic, range(COUNT), members=2)
        group.check(recreating.send())


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_running_group_reads_every_record_of_the_recreated_topic(
    recreating: Recreating, make_group: Callable[[], str], protocol: str, reset: str
) -> None:
    fetching = Fetching()
    with recreating.group(make_group(), protocol, reset, **fetching.conf) as group:
        group.await_held(recreating.topic, range(WRITABLE))
        fetching.await_fetched(recreating.topic, range(COUNT))
        recreating.recreate()
        group.check(recreating.send())
        group.await_held(recreating.topic, range(COUNT))


def test_topic_that_is_gone_keeps_its_view_and_is_not_created_by_the_comparison(recreating: Recreating) -> None:
    views = registry.acquire({"bootstrap.servers": recreating.servers}, recreating.log.config)
    assert views.wait_ready(30)
    views.verify([recreating.topic], 10.0)
    assert views.stats()["unverified_topics"] == []
    held = views.view(recreating.topic)
    assert held.topic_id == recreating.old_id
    recreating.log.admin.delete_topics([recreating.topic])[recreating.topic].result(30)
    eventually(lambda: recreating.topic not in recreating.log.admin.list_topics(timeout=30).topics)
    views.verify([recreating.topic], 10.0, 0.0)
    assert views.view(recreating.topic) == held
    assert views.stats()["unverified_topics"] == [recreating.topic]
    assert recreating.topic not in recreating.log.admin.list_topics(timeout=30).topics
    views.close()
