"""``python java/build.py``: compile the producer plug-ins for the JVM into the jar that the package contains.

Needs a ``javac`` (11 or newer) and the jars of kafka-clients and slf4j-api. They are in the folder that
``MODEAWARE_KAFKA_JARS`` names (the ``libs`` of a Kafka, for example), else in the cache of ``modeaware.local``. Nothing
is downloaded. Exit status 1, with the reason on standard error, where something is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
JAR = ROOT / "modeaware" / "modeaware.jar"
FOLDER_VARIABLE = "MODEAWARE_KAFKA_JARS"
RELEASE = "11"
_STAMP = (1980, 1, 1, 0, 0, 0)
"""Of each file in the jar, so that equal sources are equal bytes."""


def find_javac() -> str | None:
    """Return the path of a ``javac``: from JAVA_HOME, or from PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("javac", path=str(Path(home, "bin"))) if home else shutil.which("javac")


def find_jars() -> Path | None:
    """Return a folder that has both jars."""
    given = os.environ.get(FOLDER_VARIABLE)
    folders = [Path(given)] if given else sorted(_cache_folder().glob("kafka-[0-9]*"), reverse=True)
    return next((folder for folder in folders if _has(folder, "kafka-clients") and _has(folder, "slf4j-api")), None)


def _cache_folder() -> Path:
    # As modeaware.local.jars has it, which cannot be imported here: a build has none of its dependencies.
    if named := os.environ.get("MODEAWARE_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "modeaware")


def _has(folder: Path, name: str) -> bool:
    return any(folder.glob(f"{name}-[0-9]*.jar"))


def compile_classes(javac: str, class_path: str, sources: Iterable[Path], classes: Path) -> None:
    """Compile ``sources`` into the folder ``classes``; raises ``subprocess.CalledProcessError`` with the output."""
    command = [javac, "-Xlint:all", "-Werror", "--release", RELEASE, "-encoding", "UTF-8", "-cp", class_path]
    subprocess.run(
        [*command, "-d", str(classes), *map(str, sources)], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, check=True
    )


def write_jar(classes: Path, jar: Path) -> None:
    """Write the jar of all files in ``classes``. It appears by a rename."""
    files = sorted(path for path in classes.rglob("*") if path.is_file())
    with tempfile.NamedTemporaryFile(dir=jar.parent, prefix=jar.name, delete=False) as scratch:
        with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _STAMP), "Manifest-Version: 1.0\r\n\r\n")
            for path in files:
                archive.writestr(zipfile.ZipInfo(path.relative_to(classes).as_posix(), _STAMP), path.read_bytes())
        Path(scratch.name).chmod(0o644)
        Path(scratch.name).replace(jar)


def build() -> str | None:
    """Make the jar; return why there is none."""
    JAR.unlink(missing_ok=True)  # an earlier build's is not that of these sources
    javac, jars = find_javac(), find_jars()
    if javac is None:
        return "no javac: install a JDK of version 11 or newer, or set JAVA_HOME"
    if jars is None:
        return f"no jars of kafka-clients and slf4j-api: set {FOLDER_VARIABLE} to the folder libs of a Kafka"
    with tempfile.TemporaryDirectory() as classes:
        try:
            compile_classes(javac, f"{jars}/*", sorted((ROOT / "java" / "modeaware").glob("*.java")), Path(classes))
        except (subprocess.CalledProcessError, OSError) as error:
            output = error.stdout.decode(errors="replace") if isinstance(error, subprocess.CalledProcessError) else ""
            return f"javac failed: {error}\n{output}".strip()
        write_jar(Path(classes), JAR)
    return None


if __name__ == "__main__":
    missing = build()
    print(f"java/build.py: {missing}" if missing else JAR, file=sys.stderr if missing else sys.stdout)
    sys.exit(1 if missing else 0)
