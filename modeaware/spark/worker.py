"""What the Python processes of a Spark job keep between tasks, so that the next task starts fast. Imports no Spark."""

from __future__ import annotations

import os
import re
import sys
import zipimport
from collections.abc import Hashable
from pathlib import Path
from typing import Generic, TypeVar

from modeaware.callouts import InnerLock

_SPARKS = re.compile(r".*\.jar|pyspark\.zip|py4j-.*-src\.zip")
_T = TypeVar("_T")


class ProcessCache(Generic[_T]):
    """Objects that a process keeps in ``held``, by key. Hold ``lock`` to use them.

    A forked child begins without objects, and does not touch its parent's: it must not destroy objects of librdkafka.
    """

    def __init__(self) -> None:
        self.lock = InnerLock()
        self.held: dict[Hashable, _T] = {}
        self._of_parents: list[dict[Hashable, _T]] = []
        os.register_at_fork(after_in_child=self.forget_parent)

    def forget_parent(self) -> None:
        self._of_parents.append(self.held)
        self.lock, self.held = InnerLock(), {}


def forget_archive_finders() -> None:
    """Make the start of this worker's next task cheap. Thread-safe, and cheap itself.

    Spark puts itself and every jar of ``spark.jars.packages`` on the path of its Python workers, and calls
    ``importlib.invalidate_caches()`` before each task. That call makes the import finder of each archive read the
    archive's directory again (CPython gh-103200): 0.2 s with the Kafka connector and its dependencies. So drop the
    finders of these jars: at the next import of a new module, Python makes them again from cached facts. Archives of
    the application keep their finders, because these archives may change between tasks.
    """
    cache = sys.path_importer_cache
    for path, finder in list(cache.items()):
        if isinstance(finder, zipimport.zipimporter) and _SPARKS.fullmatch(Path(finder.archive).name):
            cache.pop(path, None)
