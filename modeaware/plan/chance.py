"""How sure a share found in a sample is. Pure."""

from __future__ import annotations

import math

_Z_95 = 1.96


def log10_odds_of_chance(matched: float, of: int, chance: float) -> float:
    """log10 of the greatest probability that ``matched`` or more of ``of`` trials succeed, each with ``chance``.

    Chernoff's bound by the relative entropy, which holds for trials that may succeed in part, too (Hoeffding 1963,
    theorem 1): never too small, and exact where all match. 0.0 where the share is not above chance.
    """
    if of == 0 or matched <= chance * of:
        return 0.0
    if chance <= 0:
        return -math.inf
    share = min(1.0, matched / of)
    entropy = share * math.log(share / chance)
    if share < 1:
        entropy += (1 - share) * math.log((1 - share) / (1 - chance))
    return -of * entropy / math.log(10)


def margin(share: float, of: float) -> float:
    """Half the width of the 95 % interval (Wilson) of a share found in ``of`` independent cases; 1.0 for none."""
    if of <= 0:
        return 1.0
    share = min(1.0, max(0.0, share))
    spread = share * (1 - share) / of + (_Z_95 / (2 * of)) ** 2
    return min(1.0, _Z_95 * math.sqrt(spread) / (1 + _Z_95**2 / of))


def effective_cases(weights: list[float]) -> float:
    """How many independent cases weighted ones are worth (Kish): equal weights count one each, one that outweighs all
    the others counts alone."""
    squares = sum(weight * weight for weight in weights)
    return sum(weights) ** 2 / squares if squares > 0 else 0.0
