"""Fixtures of the tests with a real Kafka: clients, controllers and the command line on the clusters of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from modeaware.controller.daemon import Controller
from modeaware.local import Kafka
from modeaware.views import registry
from tests.support.command_line import Site
from tests.support.controlled import Controlled, produce
from tests.support.fake_views import FakeViews
from tests.support.group import Reading
from tests.support.groups import RunningGroup
from tests.support.guarded import MODE_LOG, OTHER, OWNER, WIDE, Guarded
from tests.support.plain import produce_keyed
from tests.support.reassigning import Moving
from tests.support.recreating import Recreating
from tests.support.rights import Acls
from tests.support.secured import SecuredKafka
from tests.support.succession import Following

Lagging = Callable[[str], tuple[str, set[bytes]]]


@pytest.fixture
def fake_views(monkeypatch: pytest.MonkeyPatch) -> FakeViews:
    """The views of every client of ours that the test makes."""
    made = FakeViews()
    monkeypatch.setattr(registry, "acquire", lambda conf, config: made)
    return made


@pytest.fixture
def reading(
    kafka: Kafka, fake_views: FakeViews, make_topic: Callable[[int], str], make_group: Callable[[], str]
) -> Iterator[Reading]:
    with closing(Reading(kafka, fake_views, make_topic, make_group())) as made:
        yield made


@pytest.fixture
def send(reading: Reading) -> Callable[..., None]:
    """Writes records to one partition: ``send(topic, partition, count)``."""
    return reading.send


@pytest.fixture
def setting(request: pytest.FixtureRequest) -> Iterator[Controlled]:
    """A mode log of the test's own, on ``kafka3`` where the test asks for that, else on the shared cluster; its
    controllers are stopped with the test."""
    with Controlled(request.getfixturevalue("kafka3" if "kafka3" in request.fixturenames else "kafka")) as made:
        yield made


@pytest.fixture
def lagging(setting: Controlled, make_group: Callable[[], str]) -> Lagging:
    """Fills a topic: a group that has read a part of it, and what the group has not read."""

    def fill(topic: str) -> tuple[str, set[bytes]]:
        name = make_group()
        first = produce(setting, topic, 70)
        with RunningGroup(setting.servers, topic, name) as group:
            group.wait_for(first)
        return name, produce(setting, topic, 70, "unread")

    return fill


@pytest.fixture
def moving(request: pytest.FixtureRequest) -> Iterator[Moving]:
    """On ``kafka40`` where the test asks for that, else on ``kafka3``, which the test names, too."""
    with closing(Moving(request.getfixturevalue("kafka40" if "kafka40" in request.fixturenames else "kafka3"))) as made:
        yield made


@pytest.fixture(scope="module")
def served(kafka: Kafka) -> Iterator[Controlled]:
    """A mode log on the shared cluster and its active controller, for the tests of one module: do not stop it."""
    with Controlled(kafka) as made:
        made.start()
        yield made


@pytest.fixture
def following(served: Controlled, make_topic: Callable[[int], str], make_group: Callable[[], str]) -> Following:
    """A topic that is to be replaced, and a group's name."""
    return Following(served, make_topic, make_group())


@pytest.fixture
def recreating(kafka: Kafka, make_topic: Callable[[int], str]) -> Iterator[Recreating]:
    """A shrunk topic that the test deletes and creates again; no controller removes its old record."""
    made = Recreating(kafka, make_topic)
    yield made
    made.log.close()


@pytest.fixture
def site(request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Site:
    """The command line: on the mode log of ``controller`` where the test asks for that, else on one of its own."""
    served: Controlled | None = request.getfixturevalue("served") if "controller" in request.fixturenames else None
    return Site(kafka, tmp_path, capsys, served.log if served is not None else None)


@pytest.fixture
def filled(site: Site, make_topic: Callable[[int], str]) -> str:
    """A topic of 6 partitions with records in each."""
    topic = make_topic(6)
    produce_keyed(site.servers, topic, ((b"k%d" % i, b"v") for i in range(200)))
    return topic


@pytest.fixture
def controller(served: Controlled) -> Controller:
    """The active controller of :func:`served`, which the command line finds."""
    return served.started[0]


@pytest.fixture(scope="module")
def guarded(secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The users, topics and controllers of the secured broker; rights that were granted go with the module."""
    made = Guarded(secured, tmp_path_factory.mktemp("guarded"))
    yield made
    Acls(secured.bootstrap_servers, secured.conf()).clear()


@pytest.fixture
def acls(secured: SecuredKafka) -> Iterator[Acls]:
    """Grants rights on the secured broker; all of them go with the test."""
    made = Acls(secured.bootstrap_servers, secured.conf())
    yield made
    made.clear()


@pytest.fixture(scope="module")
def active(guarded: Guarded) -> Iterator[Controller]:
    """The active controller of that broker, with an endpoint.

    The users but NOBODY may read its mode log, and see what a command looks at before it asks.
    """
    controller = guarded.controller()
    try:
        controller.start(wait_active_s=30)
        for user in (OWNER, OTHER):
            guarded.grant(user, MODE_LOG, AclOperation.READ)
            for kind, name in WIDE:
                guarded.grant(user, name, AclOperation.DESCRIBE, kind=kind)
        yield controller
    finally:
        controller.stop()
