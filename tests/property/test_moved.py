"""The rule by which groups have an open gate, over all that members of a group may do meanwhile."""

from __future__ import annotations

import random
from itertools import combinations_with_replacement

import pytest

from tests.support.gate_model import AWARE, KINDS, Group

WALKS = 60
MEMBERS = [kinds for kinds in combinations_with_replacement(KINDS, 2) if AWARE.intersection(kinds)]


@pytest.mark.parametrize("classic", [True, False], ids=["classic", "KIP-848"])
@pytest.mark.parametrize("kinds", MEMBERS, ids="+".join)
def test_every_key_keeps_its_order_and_no_group_waits_for_ever(kinds: tuple[str, str], classic: bool) -> None:
    for number in range(WALKS):
        chance = random.Random(f"{kinds} {classic} {number}")
        acts = frozenset({"crash", "empty", "join"}) if number % 2 else frozenset()
        members = (*kinds, chance.choice(kinds)) if number % 3 == 0 else kinds
        group = Group(members, classic=classic, acts=acts)
        group.walk(chance, chance.randrange(80))
        group.acts &= {"join"}
        group.walk(chance, 3_000, until_moved=True)
        assert group.moved is not None, "\n  ".join(["never open:", *group.told])
        group.walk(chance, 40)


def test_a_commit_after_the_listing_of_groups_proves_nothing() -> None:
    group = Group(("AA", "AM"), classic=False, acts=frozenset({"crash", "empty", "join"}))

    def take(*names: str) -> None:
        for name in names:
            dict(group.steps())[name]()

    take("seal", "crash AA0", "crash AM1", "look _list", "join AA0", "join AM1", "poll AM1")
    take("give 1 to AM1", "poll AM1", "application commits 1 of AM1")
    take("give 0 to AA0", "timer commits 0 of AA0", "look _read_offsets")
    assert group.moved is None, "AA0 works on its record"
    take("poll AA0", "look _list", "look _read_offsets")
    assert group.moved is not None
