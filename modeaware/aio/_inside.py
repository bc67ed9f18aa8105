"""Another client inside confluent_kafka's asyncio classes than the one their constructors name."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


def with_names(init: Callable[..., Any], **others: Any) -> Callable[..., Any]:
    """``init`` (a constructor of ``confluent_kafka.aio``) with ``others`` for the globals of those names.

    Those constructors make their client by ``confluent_kafka.Producer(conf)``, which nothing lets one replace: made
    first and thrown away, it would have connected already. So the same code runs with another ``confluent_kafka``.
    """
    assert isinstance(init, FunctionType)
    if not others.keys() <= set(init.__code__.co_names) or init.__closure__:
        raise TypeError(f"{init.__qualname__} makes its client in another way than confluent-kafka 2.16's does")
    made = FunctionType(init.__code__, {**init.__globals__, **others}, init.__name__, init.__defaults__)
    made.__kwdefaults__ = init.__kwdefaults__
    return made
