"""Groups with state, by the names of their changelog topics."""

from __future__ import annotations

import pytest

from modeaware.cluster.groups import changelogs, owner, stateful_groups


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog", {"app"}),
        ("app-x-counts-changelog", {"app", "app-x"}),
        ("changelog__app--orders--counts", {"app"}),
        ("changelog__app--x--orders--counts", {"app", "app--x"}),
        ("app-changelog", set()),
        ("app-counts-repartition", set()),
        ("changelog__other--orders--counts", set()),
        ("-changelog", set()),
        ("application-counts-changelog", set()),
    ],
)
def test_changelogs_tell_who_has_state(topic: str, expected: set[str]) -> None:
    assert stateful_groups(changelogs([topic]), {"app", "app-x", "app--x", "ap"}, ()) == expected


def test_a_known_streams_group_explains_its_changelogs() -> None:
    """Or the reader ``orders`` beside the application ``orders-enricher`` would count as one, too."""
    names = {"orders", "orders-enricher"}
    assert stateful_groups(["orders-enricher-store-changelog"], names, {"orders-enricher"}) == {"orders-enricher"}


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("app-by-key-repartition", "app"),
        ("app-store-changelog", "app"),
        ("repartition__quix--in--key", "quix"),
        ("plain-x-changelog", None),
    ],
)
def test_whose_internal_topic(topic: str, expected: str | None) -> None:
    assert owner(topic, {"app": True, "plain": False, "quix": None}) == expected
