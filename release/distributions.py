"""The sdist and the wheels: built twice with the same bytes, and each installed alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from release.outcome import ROOT, Failed, NotRun, run, tool

DIST = ROOT / "dist"


def reproducible() -> str:
    """Build sdist and wheel of the last commit in two folders, compare the bytes, and leave them in ``dist``."""
    with committed("a") as first, committed("another-folder") as second:
        for source in (first, second):
            run([sys.executable, "-m", "build", "--outdir", source / "dist", source])
        one, other = digests(first / "dist"), digests(second / "dist")
        if one != other:
            raise Failed(f"two builds differ: {sorted(set(one.items()) ^ set(other.items()))}")
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(first / "dist", DIST)
    return f"{', '.join(sorted(one))}: two builds, the same bytes"


def metadata() -> str:
    """Check what an index would show, and that the wheel has every file of the packages and the jar."""
    built = distributions("*")
    run([tool("twine"), "check", "--strict", *built])
    wheel = own_wheel()
    tracked = set(run(["git", "ls-files", "modeaware", "partitioners", "pyspark_modeaware.py"]).split())
    missing = (tracked | {"modeaware/modeaware.jar"}) - set(zipfile.ZipFile(wheel).namelist())
    if missing:
        raise Failed(f"{wheel.name} lacks {sorted(missing)}")
    return f"twine check of {len(built)} files; {len(tracked)} files of the packages are in the wheel"


def installs() -> str:
    """Build a wheel of the sdist with each supported Python that is here, and install it alone."""
    (sdist,) = distributions("*.tar.gz")
    told, absent = [], []
    for name in supported_pythons():
        if not works(name):
            absent.append(name)
            continue
        with tempfile.TemporaryDirectory() as folder:
            run([name, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, sdist])
            (wheel,) = Path(folder).glob("*.whl")
            shutil.copy(wheel, DIST)
            told.append(installed_alone(name, wheel, Path(folder)))
    if not told:
        raise NotRun(f"none of {', '.join(absent)}")
    return "; ".join([*told, *(f"not run: no {name}" for name in absent)])


def cibuildwheel() -> str:
    """Have cibuildwheel read its configuration. Building with it needs containers."""
    identifiers = run([tool("cibuildwheel"), "--platform", "linux", "--archs", "x86_64", "--print-build-identifiers"])
    wanted = {name.removeprefix("python").replace(".", "") for name in supported_pythons()}
    if {line.partition("-")[0].removeprefix("cp") for line in identifiers.split()} != wanted:
        raise Failed(f"it would build {identifiers.split()}, for the Pythons {sorted(wanted)}")
    return f"it would build {', '.join(identifiers.split())}"


@contextmanager
def committed(name: str) -> Iterator[Path]:
    """The files of the last commit, in a folder of that name."""
    with tempfile.TemporaryDirectory() as above:
        folder = Path(above, name)
        folder.mkdir()
        archive = Path(above, "tree.tar")
        run(["git", "archive", "--output", archive, "HEAD"])
        shutil.unpack_archive(archive, folder, filter="data")
        yield folder


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def distributions(pattern: str) -> list[Path]:
    found = sorted(DIST.glob(pattern))
    if not found:
        raise NotRun(f"dist has no {pattern}: the build failed")
    return found


def supported_pythons() -> list[str]:
    """Return ``python3.11`` and so on, of the classifiers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [each.rpartition(" ")[2] for each in project["classifiers"] if " Python :: 3." in each]
    return [f"python{version}" for version in versions]


def works(python: str) -> bool:
    """Return whether there is such a program; a stub of a version manager is none."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def own_wheel() -> Path:
    """Return the wheel for the Python of this process."""
    (wheel,) = distributions(f"*-cp{sys.version_info[0]}{sys.version_info[1]}-*.whl")
    return wheel


def installed_alone(python: str, wheel: Path, folder: Path) -> str:
    """Install a wheel into an empty environment, run ``installed.py`` there, and return the line that it prints."""
    inside = empty_environment(python, folder, str(wheel))
    return run([inside / "python", "-I", ROOT / "release" / "installed.py"], cwd=folder).strip()


def empty_environment(python: str, folder: Path, requirement: str) -> Path:
    """Make an environment that has this requirement alone, and return the folder of its programs."""
    home = folder / "env"
    run([python, "-m", "venv", home])
    inside = home / ("Scripts" if os.name == "nt" else "bin")
    run([inside / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement])
    return inside
