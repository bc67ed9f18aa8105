"""What Spark's Python workers do between tasks, and what of it is left out."""

from __future__ import annotations

import re
import sys
import zipimport
from pathlib import Path

_SPARKS = re.compile(r".*\.jar|pyspark\.zip|py4j-.*-src\.zip")


def forget_archive_finders() -> None:
    """Make the beginning of this worker's next task cheap.

    Spark puts itself and every jar of ``spark.jars.packages`` on the path of its Python workers, and calls
    ``importlib.invalidate_caches()`` before each task, which reads the directory of each of those archives again
    (CPython gh-103200): 0.2 s with the Kafka connector and what it needs. A finder that is forgotten is made again from
    what is known of its archive, once something is imported that is not there yet. Archives of the application's are
    left alone: they may change between tasks. Cheap, and may be called at any time; thread-safe.
    """
    cache = sys.path_importer_cache
    for path, finder in list(cache.items()):
        if isinstance(finder, zipimport.zipimporter) and _SPARKS.fullmatch(Path(finder.archive).name):
            cache.pop(path, None)
