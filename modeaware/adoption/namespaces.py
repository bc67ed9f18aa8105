"""Putting a class in the place of another in all modules that hold it, and back."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

_NOT_TO_TOUCH = ("modeaware", "partitioners")  # what they hold, they hold on purpose
_LIBRARIES = ("aiokafka", "confluent_kafka", "kafka")


class _Front(property):
    """What importers see of a name that its own module sees unchanged."""


def modules_holding(wanted: Mapping[type, object]) -> list[tuple[ModuleType, str, type]]:
    """All modules of the process, the attribute, and which of ``wanted`` it is.

    In the libraries themselves only public names count: what they call ``_Impl`` is their own business.
    """
    found = []
    by_id = {id(stock): stock for stock in wanted}
    for module_name, module in list(sys.modules.items()):
        top = module_name.partition(".")[0]
        if top in _NOT_TO_TOUCH or not isinstance(module, ModuleType):
            continue
        for name, value in list(_namespace(module).items()):
            stock = by_id.get(id(value))  # by identity: the value may be a proxy, or have an __eq__ of its own
            if stock is None or (top in _LIBRARIES and name.startswith("_")):
                continue
            if not isinstance(vars(type(module)).get(name), _Front):  # else it was replaced before
                found.append((module, name, stock))
    return found


def put(module: ModuleType, name: str, stock: type, ours: type) -> Callable[[], None]:
    """Let ``module.name`` be ``ours`` instead of ``stock``; returns what undoes it.

    Undoing does nothing where somebody has put another value there since.
    """
    if stock.__module__ == module.__name__:
        return _put_in_front(module, name, stock, ours)
    namespace = _namespace(module)
    namespace[name] = ours

    def undo() -> None:
        if namespace.get(name) is ours:
            namespace[name] = stock

    return undo


def _put_in_front(module: ModuleType, name: str, stock: type, ours: type) -> Callable[[], None]:
    """The same for the module that defines ``stock``: importers get ours, its own code still sees ``stock``.

    ``super(AdminClient, self)`` in a method of ``stock`` looks the name up in that module: with ours there, which is a
    subclass, it would find the same method again, for ever.
    """
    before = type(module)
    shown: list[Any] = [ours]

    def show(_: ModuleType) -> Any:
        return shown[0]

    def take(_: ModuleType, value: Any) -> None:
        # mock.patch saves what the namespace holds, the stock class, and puts it back when it ends.
        shown[0] = ours if value is stock else value

    front = types.new_class(before.__name__, (before,), exec_body=lambda body: body.update({name: _Front(show, take)}))
    module.__class__ = front

    def undo() -> None:
        value = shown[0]
        front_now = type(module)
        if front_now is front:
            module.__class__ = before
        else:  # another name of this module, or somebody else, came later
            delattr(front, name)
        if value is not ours:
            _namespace(module)[name] = value

    return undo


def _namespace(module: ModuleType) -> dict[str, Any]:
    namespace: dict[str, Any] = object.__getattribute__(module, "__dict__")  # a lazy module must not load now
    return namespace
