"""Doing something as soon as a module has been imported, whenever that may be."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def after_import(name: str, then: Callable[[], object]) -> Callable[[], object]:
    """Call ``then`` once, right after the module ``name``, which is not imported yet, has been: in the thread that does
    it. What ``then`` raises, the import raises. Of several for one module the last one counts.

    Returns:
        What takes it back.
    """
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder.go


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the other finders do, and has word of it when it has been executed."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in list(sys.meta_path):
            find = None if isinstance(finder, _Finder) else getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def arrived(self) -> None:
        if self.go():
            self._then()

    def go(self) -> bool:
        """Whether it was there till now."""
        if self not in sys.meta_path:
            return False
        sys.meta_path.remove(self)
        return True


class _Loader(importlib.abc.Loader):
    """Another loader, which is in its place again once it has done its work."""

    def __init__(self, inner: Any, finder: _Finder) -> None:
        self._inner = inner
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._inner.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        self._finder.arrived()

    def __getattr__(self, name: str) -> Any:  # what asks for a spec without importing may want its source, say
        return getattr(self._inner, name)
