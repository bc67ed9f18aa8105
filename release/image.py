"""The image's steps, run without a container engine: each stage in a root of its own, the last one read-only.

The base of a stage is a Debian by debootstrap with its own Python, which is where `python:3.11-slim` comes from; the
image itself is built by the release workflow. It needs root, for chroot and mounts.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from release.outcome import ROOT, Failed, NotRun, run

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
BASE = re.compile(r"python:3\.11-slim")
SUITE = "bookworm"
"""The Debian whose Python is 3.11."""
_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf")


def steps() -> str:
    """Run the steps, and then the image's command as its user on a read-only root."""
    if os.geteuid() != 0:
        raise NotRun("not root")
    if shutil.which("debootstrap") is None:
        raise NotRun("no debootstrap, and no container engine is asked for")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        base = Path(folder, "base")
        run(["debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", SUITE, base])
        (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        image = Image(base, Path(folder))
        for instruction, rest in instructions(DOCKERFILE.read_text(encoding="utf-8")):
            image.apply(instruction, rest)
        version = image.start(["--version"])
        image.start([*image.command[:1], "--help"])
        written = image.start_failing(["-c", "open('/opt/modeaware/x', 'w')"])
    return f"{version.strip()} runs as {image.user} on a read-only root ({written})"


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile with what follows each."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


class Image:
    """The stages as far as they are made; of the last one its settings."""

    def __init__(self, base: Path, folder: Path) -> None:
        self._base, self._folder = base, folder
        self._roots: dict[str, Path] = {}
        self._root = base
        self._workdir = "/"
        self._environment: dict[str, str] = {}
        self.user = "0:0"
        self.command: list[str] = []
        self._entry: list[str] = []

    def apply(self, instruction: str, rest: str) -> None:
        """Carry out one instruction. Raises Failed for one that is not known here."""
        match instruction:
            case "FROM":
                name, _, stage = rest.partition(" AS ")
                if not BASE.fullmatch(name):
                    raise Failed(f"the steps run on {BASE.pattern} alone, not on {name}")
                self._root = self._folder / f"stage-{len(self._roots)}"
                self._roots[stage or "last"] = self._root
                self._workdir, self._environment, self.user = "/", {"PATH": "/usr/local/bin:/usr/bin:/bin"}, "0:0"
                run(["cp", "--archive", "--reflink=auto", self._base, self._root])
            case "WORKDIR":
                self._workdir = rest
                self._inside(rest).mkdir(parents=True, exist_ok=True)
            case "ENV":
                pairs = dict(word.split("=", 1) for word in shlex.split(rest))
                self._environment |= {
                    key: value.replace("$PATH", self._environment["PATH"]) for key, value in pairs.items()
                }
            case "COPY":
                self._copy(rest.split())
            case "RUN":
                for path in filter(os.path.exists, (*_NETWORK, os.environ.get("PIP_CERT", ""))):
                    self._inside(path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, self._inside(path))
                self._chroot(["/bin/sh", "-c", f"cd {self._workdir} && {rest}"], self._environment | pip_settings())
            case "USER":
                self.user = rest
            case "ENTRYPOINT":
                self._entry = json.loads(rest)
            case "CMD":
                self.command = json.loads(rest)
            case "LABEL" | "EXPOSE" | "HEALTHCHECK":
                pass
            case _:
                raise Failed(f"no such step here: {instruction}")

    def start(self, arguments: list[str]) -> str:
        """Run the entry point with these arguments, as the image's user on a read-only root."""
        return self._chroot([*self._entry, *arguments], self._environment, read_only=True)

    def start_failing(self, arguments: list[str]) -> str:
        """Run Python in the same way, which has to fail, and return the last line that it prints."""
        try:
            self._chroot(["python", *arguments], self._environment, read_only=True)
        except Failed as error:
            return str(error).splitlines()[-1]
        raise Failed("the root is not read-only")

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            source = self._roots[words[0].removeprefix("--from=")] / words[1].lstrip("/")
            shutil.copytree(source, self._inside(words[2]), symlinks=True)
        else:
            for pattern in kept_by_dockerignore():
                source, target = ROOT / pattern, self._inside(f"{self._workdir}/{pattern}")
                if source.is_dir():
                    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
                else:
                    shutil.copy(source, target)

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _chroot(self, command: list[str], environment: dict[str, str], *, read_only: bool = False) -> str:
        root = str(self._root)
        prepare = f"mount --bind {root} {root} && mount -o remount,ro,bind {root} && " if read_only else ""
        words = ["chroot", f"--userspec={self.user}", root, "/usr/bin/env", "-i"]
        words += [*(f"{name}={value}" for name, value in environment.items()), *command]
        return run(["unshare", "--mount", "sh", "-c", f"{prepare}exec {shlex.join(words)}"])


def kept_by_dockerignore() -> list[str]:
    lines = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


def pip_settings() -> dict[str, str]:
    """How this machine reaches the packages."""
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name.lower()}
