"""The workflows and templates under ``.github``: by actionlint, and against the schemas of check-jsonschema."""

from __future__ import annotations

import os
import shutil

from release.outcome import ROOT, NotRun, run, tool

ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
TOOLS = ROOT / "build" / "tools"
SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
}


def lint() -> str:
    """Run actionlint, of PATH or made by Go; with shellcheck for the scripts where that is here."""
    found = shutil.which("actionlint", path=f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        if shutil.which("go") is None:
            raise NotRun("no actionlint, and no go to make it with; the check `schemas` stands in")
        run(["go", "install", ACTIONLINT], environment={"GOBIN": str(TOOLS), "GOFLAGS": "-buildvcs=false"})
        found = str(TOOLS / "actionlint")
    run([found, "-color=false"])
    return f"actionlint {run([found, '--version']).split()[0]}"


def schemas() -> str:
    """Validate each kind of file."""
    files = {schema: sorted(ROOT.glob(pattern)) for schema, pattern in SCHEMAS.items()}
    listed = run([tool("check-jsonschema"), "--help"])
    usable = {schema: paths for schema, paths in files.items() if schema in listed}
    for schema, paths in usable.items():
        run([tool("check-jsonschema"), "--builtin-schema", schema, *paths])
    without = [path.name for schema, paths in files.items() if schema not in usable for path in paths]
    told = f"{sum(map(len, usable.values()))} files"
    return f"{told}; no schema here for {', '.join(without)}" if without else told
