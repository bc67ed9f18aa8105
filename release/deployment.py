"""What runs a controller: manifests, compose file, unit. Each is checked by what reads it, where that is here."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from release.outcome import ROOT, Failed, NotRun, run, tool

DEPLOY = ROOT / "deploy"
MANIFESTS = DEPLOY / "kubernetes"
UNIT = DEPLOY / "modeaware-controller.service"
MOST_EXPOSED = 2.0
"""Of systemd-analyze's scale from 0 to 10; 2 is called OK."""


def kubernetes() -> str:
    """Validate the manifests against Kubernetes' schemas, and build the kustomization where kubectl or so is here."""
    try:
        validator = importlib.import_module("kubernetes_validate")
    except ModuleNotFoundError as error:
        raise NotRun("no kubernetes-validate") from error
    version, beyond, count = validator.latest_version(), [], 0
    for path in sorted(MANIFESTS.glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            try:
                validator.validate(manifest, version, strict=True)
                count += 1
            except validator.SchemaNotFoundError:
                beyond.append(str(manifest["kind"]))
            except validator.ValidationError as error:
                raise Failed(f"{path.name}: {error}") from error
    built = next(([name, *words] for name, *words in BUILDERS if shutil.which(name)), None)
    if built is not None:
        run([*built, MANIFESTS])
    kustomized = "no kustomize to build it with" if built is None else f"{built[0]} builds it"
    return f"{count} manifests of Kubernetes {version}; no schema for {', '.join(beyond)}; {kustomized}"


BUILDERS = (("kustomize", "build"), ("kubectl", "kustomize"))


def compose() -> str:
    """Validate the compose file against its schema, and by docker's client where that has compose."""
    path = DEPLOY / "compose.yaml"
    run([tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path])
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        return "valid by its schema; no docker compose to read it"
    run([docker, "compose", "--file", path, "config", "--quiet"])
    return "valid by its schema and by docker compose"


def systemd() -> str:
    """Have systemd read the unit, and judge how exposed the service is. The program is one that is here."""
    analyze = tool("systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder, UNIT.name)
        text = UNIT.read_text(encoding="utf-8")
        program = shutil.which("true") or sys.executable
        unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={program}", text, flags=re.MULTILINE), encoding="utf-8")
        complaints = run([analyze, "verify", "--man=no", unit]).strip()
        if complaints:
            raise Failed(complaints)
        judged = run([analyze, "security", "--offline=true", f"--threshold={round(MOST_EXPOSED * 10)}", unit])
    (level,) = re.findall(r"Overall exposure level for .*: ([\d.]+)", judged)
    return f"no complaint; exposure {level} of 10"
