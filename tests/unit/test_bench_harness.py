"""What the benchmarks make of their rounds."""

from __future__ import annotations

import pytest

from benchmarks.harness import Result, Timing, compare, interleave, percentile


def seconds(*walls: float) -> list[Timing]:
    return [Timing(wall, wall / 2) for wall in walls]


def test_each_round_is_compared_with_the_plain_one_beside_it() -> None:
    times = {"plain": seconds(1, 10, 1), "empty subclass": seconds(1, 10, 2), "modeaware": seconds(2, 10, 1)}
    result = compare("produce", times, 100, at_least=0.95)
    assert result.figure == 1  # of 0.5, 1 and 1
    assert result.ok
    assert result.details["empty_subclass"] == 1
    assert result.details["records_per_s"] == {"plain": 100, "empty subclass": 50, "modeaware": 50}


def test_contenders_take_turns_and_warm_up_first() -> None:
    order: list[str] = []

    def contender(name: str) -> Timing:
        order.append(name)
        return Timing(1, 1)

    times = interleave({name: lambda n=name: contender(n) for name in "ab"}, 3)
    assert "".join(order) == "ab" + "abbaab"
    assert [len(rounds) for rounds in times.values()] == [3, 3]


@pytest.mark.parametrize(("percent", "value"), [(99, 198), (50, 100), (100, 200), (0.1, 1)])
def test_percentiles(percent: float, value: float) -> None:
    assert percentile([float(number) for number in range(200, 0, -1)], percent) == value


@pytest.mark.parametrize(
    ("result", "limit", "ok"),
    [
        (Result("r", 0.95, "x", at_least=0.95), ">= 0.95", True),
        (Result("r", 0.94, "x", at_least=0.95), ">= 0.95", False),
        (Result("r", 100, "ms", below=100), "< 100", False),
        (Result("r", 99, "ms", below=100), "< 100", True),
        (Result("r", 5, "ms"), "", None),
    ],
)
def test_limits(result: Result, limit: str, ok: bool | None) -> None:
    assert (result.limit, result.ok) == (limit, ok)
