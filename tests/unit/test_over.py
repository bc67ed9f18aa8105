"""Ours over what a tracer has put in the place of a stock class; a name that carries both names of a topic."""

from __future__ import annotations

from modeaware.clients.named import PairedName
from modeaware.clients.over import over


class Stock:
    pass


class Ours(Stock):
    """Ours."""


class Traced(Stock):
    pass


def test_ours_stands_over_the_tracers_class_and_is_the_same_class_each_time() -> None:
    made = over(Ours, Traced)
    assert made.__mro__[:4] == (made, Ours, Traced, Stock)
    assert (made.__qualname__, made.__doc__) == ("Ours", "Ours.")
    assert over(Ours, Traced) is made, "what install() puts up, and what a producer becomes"


def test_the_narrower_of_two_is_taken_where_one_is_a_subclass_of_the_other() -> None:
    assert over(Ours, Stock) is Ours
    made = over(Ours, Traced)
    assert over(Ours, made) is made


def test_a_paired_name_is_its_text_and_carries_both_names() -> None:
    for shown in ("orders", "orders-v2"):
        name = PairedName.of(shown, "orders", "orders-v2")
        assert (name, name.logical, name.physical) == (shown, "orders", "orders-v2")
