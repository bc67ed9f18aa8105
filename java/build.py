"""``python java/build.py [JAR]``: compile the producer plug-ins for the JVM, by default into the jar of the package.

Needs a JDK (11 or newer) and the jars of kafka-clients and slf4j-api. They are in the folder that
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
SOURCES = ROOT / "java" / "modeaware"
JAR = ROOT / "modeaware" / "modeaware.jar"
FOLDER_VARIABLE = "MODEAWARE_KAFKA_JARS"
RELEASE = "11"
_STAMP = (1980, 1, 1, 0, 0, 0)
"""Of each file in the jar, so that equal sources are equal bytes."""


def find_compiler() -> list[str] | None:
    """Return the command of a Java compiler, from JAVA_HOME or else PATH. A ``java`` may have it without ``javac``."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home, "bin")) if home else None
    if javac := shutil.which("javac", path=path):
        return [javac]
    if java := shutil.which("java", path=path):
        command = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        if subprocess.run([*command, "-version"], capture_output=True).returncode == 0:
            return command
    return None


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


def compile_classes(compiler: list[str], class_path: str, sources: Iterable[Path], classes: Path) -> None:
    """Compile ``sources`` into the folder ``classes``; raises ``subprocess.CalledProcessError`` with the output."""
    options = ["-Xlint:all,-path", "-proc:none", "--release", RELEASE, "-encoding", "UTF-8", "-cp", class_path]
    command = [*compiler, *options, "-d", str(classes), *map(str, sources)]
    subprocess.run(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, check=True)


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


def build(jar: Path) -> str | None:
    """Make the jar; return why there is none."""
    jar.unlink(missing_ok=True)  # an earlier build's is not that of these sources
    compiler, jars = find_compiler(), find_jars()
    if compiler is None:
        return "no javac: install a JDK of version 11 or newer, or set JAVA_HOME"
    if jars is None:
        return f"no jars of kafka-clients and slf4j-api: set {FOLDER_VARIABLE} to the folder libs of a Kafka"
    with tempfile.TemporaryDirectory() as classes:
        try:
            compile_classes(compiler, f"{jars}/*", sorted(SOURCES.glob("*.java")), Path(classes))
            shutil.copy(SOURCES / "records.json", Path(classes, SOURCES.name))
        except (subprocess.CalledProcessError, OSError) as error:
            output = error.stdout.decode(errors="replace") if isinstance(error, subprocess.CalledProcessError) else ""
            return f"javac failed: {error}\n{output}".strip()
        write_jar(Path(classes), jar)
    return None


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else JAR
    missing = build(target)
    print(f"java/build.py: {missing}" if missing else target, file=sys.stderr if missing else sys.stdout)
    sys.exit(1 if missing else 0)
