"""``python -m benchmarks.consumer_state``: how much state a consumer has, as a table. Needs no broker.

What counts:

* **An object** that can be reached from the consumer through attributes, containers, closures, default arguments, bound
  methods, partials and weak references. ``poll`` does its work through exactly these, so any of them is something that
  it may read or change.
* Of our own classes (:data:`OURS`). What all clients of a process share (:data:`SHARED`: the views, and what tests put
  in their place), the standard library's objects and librdkafka's are not followed.
* That is *stateful*: an attribute of it is assigned, deleted, or changed in place (:data:`CHANGING`) after its
  construction. This is read from the sources of all classes that were reached. What a method changes of ``self``
  counts for the objects of its class; what code changes of another object counts, by its name, for all that have an
  attribute of that name. Frozen dataclasses, named tuples, enums and exceptions are values.
* **An attribute** is an entry of the object's ``__dict__``, or a slot of our classes that is set. All of a stateful
  object's count, also those that never change.

The consumer that is counted reads one topic that is being replaced, so it has one gate.
"""

from __future__ import annotations

import ast
import sys
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any
from unittest import mock

import modeaware
from modeaware.confluent.retarget import Forward
from modeaware.testing.modes import FakeViews, modes_of
from modeaware.topic_view import ReplacedBy, TopicView
from modeaware.views import registry

OURS = "modeaware"
SHARED = ("modeaware.views", "modeaware.testing")
CHANGING = frozenset(
    {"add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "insert", "intersection_update",
     "pop", "popitem", "popleft", "remove", "setdefault", "symmetric_difference_update", "update"}
)  # fmt: skip
"""Methods that change a container in place."""
CONSTRUCTORS = ("__init__", "__post_init__", "__new__")
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "group", "log_level": 0}


@dataclass(frozen=True)
class Row:
    """The objects of one class.

    Attributes:
        name: the class, with its module.
        objects: how many of them there are.
        attributes: of all of them together.
        state: those that change after the constructor, by their names.
    """

    name: str
    objects: int
    attributes: int
    state: tuple[str, ...]


def count(root: object, ours: str = OURS, shared: Collection[str] = SHARED) -> list[Row]:
    """Return the stateful objects that can be reached from ``root``, by class, those with most attributes first.

    Args:
        ours: the package whose classes count.
        shared: packages within it that are not followed.
    """
    objects = [each for each in _reachable(root, ours, shared) if _is_of(type(each), ours, shared)]
    changes = _changes({cls.__module__ for each in objects for cls in _classes(type(each), ours)})
    found: dict[type, list[list[str]]] = {}
    for each in objects:
        if not _is_value(each):
            found.setdefault(type(each), []).append([name for name, _ in _attributes(each, ours)])
    rows = []
    for cls, attributes in found.items():
        names = {name for each in attributes for name in each}
        changed = {attr for owner, attr in changes if owner in ("", *map(_full_name, cls.__mro__))} & names
        if changed:
            rows.append(Row(_full_name(cls), len(attributes), sum(map(len, attributes)), tuple(sorted(changed))))
    return sorted(rows, key=lambda row: (-row.attributes, row.name))


def table(rows: Iterable[Row]) -> str:
    """Return the rows and their sums, one a line."""
    rows = list(rows)
    width = max(len(row.name) for row in rows)
    lines = [f"{'class':{width}}  objects  attributes  that change"]
    lines += [f"{row.name:{width}}  {row.objects:7}  {row.attributes:10}  {len(row.state)}" for row in rows]
    sums = sum(row.objects for row in rows), sum(row.attributes for row in rows)
    return "\n".join([*lines, f"{'all':{width}}  {sums[0]:7}  {sums[1]:10}"])


def _is_of(cls: type, ours: str, shared: Collection[str]) -> bool:
    module = f"{cls.__module__}."
    return module.startswith(f"{ours}.") and not any(module.startswith(f"{each}.") for each in shared)


def _classes(cls: type, ours: str) -> list[type]:
    return [each for each in cls.__mro__ if _is_of(each, ours, ())]


def _is_value(each: object) -> bool:
    parameters = getattr(type(each), "__dataclass_params__", None)
    return isinstance(each, tuple | Enum | BaseException) or (parameters is not None and parameters.frozen)


def _attributes(each: object, ours: str) -> Iterator[tuple[str, Any]]:
    yield from getattr(each, "__dict__", {}).items()
    for cls in _classes(type(each), ours):
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(each, name):
                yield name, getattr(each, name)


def _reachable(root: object, ours: str, shared: Collection[str]) -> Iterator[Any]:
    """Yield each object once, ``root`` first."""
    seen: dict[int, object] = {}
    waiting = deque([root])
    while waiting:
        each = waiting.popleft()
        if id(each) not in seen:
            seen[id(each)] = each  # held: an object that is made on the way must not give its id to another
            yield each
            waiting.extend(_referred(each, ours, shared))


def _referred(each: Any, ours: str, shared: Collection[str]) -> list[Any]:
    match each:
        case type():
            return []
        case dict():
            return [*each.keys(), *each.values()]
        case list() | tuple() | set() | frozenset() | deque():
            return list(each)
        case FunctionType():
            cells = [cell.cell_contents for cell in each.__closure__ or () if _is_filled(cell)]
            return [*cells, *(each.__defaults__ or ()), *(each.__kwdefaults__ or {}).values()]
        case MethodType():
            return [each.__self__, each.__func__]
        case weakref.ref():
            return [each()]
        case partial():
            return [each.func, each.args, each.keywords]
        case _ if Forward is not partial and isinstance(each, Forward):
            return [each.func]
        case _ if _is_of(type(each), ours, shared):
            return [value for _, value in _attributes(each, ours)]
        case _:
            return []


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _changes(modules: Iterable[str]) -> set[tuple[str, str]]:
    """Return what code of these modules changes after construction: the class, "" for any, and the attribute."""
    found: set[tuple[str, str]] = set()
    for module in modules:
        file = getattr(sys.modules[module], "__file__", None) or ""
        if file.endswith(".py"):  # the extension's objects have no attributes
            found |= set(_changed_by(ast.parse(Path(file).read_text()), module))
    return found


def _changed_by(node: ast.AST, place: str, constructing: bool = False) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef):
        constructing = node.name in CONSTRUCTORS
    elif isinstance(node, ast.ClassDef):
        place = f"{place}.{node.name}"
    for target in _targets(node):
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Attribute):
            own = isinstance(target.value, ast.Name) and target.value.id == "self"
            if not (own and constructing):
                yield place if own else "", target.attr
    for child in ast.iter_child_nodes(node):
        yield from _changed_by(child, place, constructing)


def _targets(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns, deletes or changes in place."""
    match node:
        case ast.Assign(targets=found) | ast.Delete(targets=found):
            return [each for target in found for each in _parts(target)]
        case ast.AugAssign(target=target) | ast.For(target=target):
            return _parts(target)
        case ast.AnnAssign(target=target, value=value):
            return [] if value is None else _parts(target)
        case ast.withitem(optional_vars=ast.expr() as target):
            return _parts(target)
        case ast.Call(func=ast.Attribute(value=changed, attr=attr)) if attr in CHANGING:
            return [changed]
        case _:
            return []


def _parts(target: ast.expr) -> list[ast.expr]:
    match target:
        case ast.Tuple(elts=found) | ast.List(elts=found):
            return [part for each in found for part in _parts(each)]
        case ast.Starred(value=value):
            return _parts(value)
        case _:
            return [target]


def main() -> None:
    new_topic = ReplacedBy("new", "id-of-new", 4, switched=True)
    views = FakeViews(views=[TopicView("old", "id-of-old", (1, 1), modes_of(12, 0), replaced_by=new_topic)])
    with mock.patch.object(registry, "acquire", return_value=views):
        consumer = modeaware.Consumer(dict(NOWHERE))
    with closing(consumer):
        consumer.subscribe(["old"], on_assign=print, on_revoke=print)
        consumer.poll(0)
        print(table(count(consumer)))


if __name__ == "__main__":
    main()
