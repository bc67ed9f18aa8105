"""What the repository ships beside its packages agrees with the code: settings, deployments, the dashboard."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import modeaware
from modeaware import cli
from modeaware.adoption.installing import NOT_TEXT
from modeaware.config import (
    CLIENT_SETTINGS,
    CONTROLLER_CONFIGS,
    ClientConfig,
    ControllerConfig,
    parse_controller_config,
    read_properties,
    split_client_config,
)
from release.settings_file import SETTINGS_FILE, settings_file
from tests.support.promql import all_exported, problems
from tests.support.source_tree import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"

# The settings file


def test_the_settings_file_is_what_the_code_makes() -> None:
    assert SETTINGS_FILE.read_text(encoding="utf-8") == settings_file(), "python -m release.settings_file"


def test_the_settings_file_has_every_setting_with_its_default(tmp_path: Path) -> None:
    text = re.sub(r"^#(?=[a-z._]+=.)", "", SETTINGS_FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    path = tmp_path / "all.properties"
    path.write_text(text, encoding="utf-8")
    settings = read_properties(path)
    names = set(CLIENT_SETTINGS) | set(CONTROLLER_CONFIGS)
    assert names - set(settings) == NOT_TEXT | {"modeaware.under.replicated.creation"}, "those without a text"
    controller = {name: settings[name] for name in CONTROLLER_CONFIGS if name in settings}
    assert parse_controller_config(controller) == ControllerConfig()
    clients = {name: settings[name] for name in CLIENT_SETTINGS if name in settings}
    assert split_client_config(clients) == (ClientConfig(), {})


# What pip installs


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_the_extra_spark_brings_a_tested_version_alone() -> None:
    page = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^(\| PySpark \|.*\n(?:\| \|.*\n)*)", page, re.MULTILINE)
    rows = [row for row in table.splitlines() if "| tested" in row]
    tested = {version for row in rows for version in re.findall(r"\d+\.\d+\.\d+", row.partition("| tested")[0])}
    allowed = next(
        requirement.specifier
        for requirement in map(Requirement, project()["optional-dependencies"]["spark"])
        if requirement.name == "pyspark"
    )
    assert tested
    assert all(allowed.contains(version) for version in tested)
    minors = {version.rpartition(".")[0] for version in tested}
    others = [f"{major}.{minor}.0" for major in (3, 4, 5) for minor in range(9) if f"{major}.{minor}" not in minors]
    assert [version for version in others if allowed.contains(version)] == []


def test_the_workflows_test_every_python_of_the_classifiers() -> None:
    named = {each.rpartition(" ")[2] for each in project()["classifiers"] if " Python :: 3." in each}
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    assert set(workflow["jobs"]["python"]["strategy"]["matrix"]["python"]) == named


def test_the_workflows_call_targets_that_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        commands += [f"make {target}" for job in jobs.values() for target in matrix_of(job).get("target", ())]
        named = {word for line in commands if line.startswith("make ") for word in line.split()[1:]}
        assert {word for word in named if re.fullmatch(r"[a-z-]+", word)} <= targets, path
        assert not [line for line in commands if "pytest" in line or "tests." in line], "the Makefile knows how to test"


def matrix_of(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job.get("strategy", {}).get("matrix", {})
    return found


# The dashboard


DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
OF_PROMETHEUS = frozenset({"job", "instance"})


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """The panel's title, and a query of it with values in the place of Grafana's variables."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


@pytest.mark.parametrize(("title", "query"), list(dashboard_queries()))
def test_a_query_of_the_dashboard_names_exported_metrics(title: str, query: str) -> None:
    assert problems(query, OF_PROMETHEUS) == [], title


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for _, query in dashboard_queries() for name in re.findall(r"\bmodeaware_\w+", query)}
    assert shown == set(all_exported())


def test_the_dashboards_variables_are_metrics_and_are_used() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    asked = " ".join(each["definition"] for each in variables.values() if each["type"] == "query")
    assert set(re.findall(r"\bmodeaware_\w+", asked)) <= set(all_exported())
    used = set(re.findall(r"\$\{?(\w+)", " ".join(target["expr"] for panel in panels() for target in panel["targets"])))
    assert used - {"__rate_interval"} == variables.keys() - {"datasource"}


def panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def test_the_panels_lie_side_by_side_and_each_has_a_description() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert [panel["title"] for panel in panels() if not panel["description"]] == []
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


# Where the controller runs


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((KUBERNETES / name).read_text(encoding="utf-8"))
    return found


def test_the_stateful_set_is_two_controllers_that_may_write_nothing() -> None:
    controllers = manifest("stateful-set.yaml")["spec"]
    pod = controllers["template"]["spec"]
    (container,) = pod["containers"]
    assert controllers["replicas"] == 2
    assert controllers["serviceName"] == manifest("service.yaml")["metadata"]["name"]
    assert not any("listen" in argument for argument in container["args"]), "it starts by TLS, too"
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (container["livenessProbe"]["httpGet"]["path"], container["readinessProbe"]["httpGet"]["path"]) == (
        "/health",
        "/ready",
    )
    assert container["volumeMounts"][0]["readOnly"], "secrets are files"
    assert manifest("disruption-budget.yaml")["spec"]["maxUnavailable"] == 1


def test_the_manifests_select_the_controllers_pods_and_their_ports() -> None:
    template = manifest("stateful-set.yaml")["spec"]["template"]
    labels = template["metadata"]["labels"]
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert manifest("service.yaml")["spec"]["selector"] == labels
    assert {port["targetPort"] for port in manifest("service.yaml")["spec"]["ports"]} <= ports
    for name in ("stateful-set.yaml", "disruption-budget.yaml", "service-monitor.yaml"):
        assert manifest(name)["spec"]["selector"]["matchLabels"] == labels, name
    assert manifest("network-policy.yaml")["spec"]["podSelector"]["matchLabels"] == labels
    assert manifest("service-monitor.yaml")["spec"]["endpoints"][0]["port"] in ports
    listed = set(manifest("kustomization.yaml")["resources"])
    assert listed | {"kustomization.yaml", "service-monitor.yaml"} == {path.name for path in KUBERNETES.iterdir()}
    assert manifest("kustomization.yaml")["images"][0]["newTag"] == modeaware.__version__


def test_the_compose_file_names_one_image_and_two_controllers() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    controllers = {name: service for name, service in services.items() if name.startswith("controller")}
    assert len(controllers) == 2
    for name, service in controllers.items():
        assert f"--advertised-listener={name}:9095" in service["command"]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """The arguments of the controller in each way to run it."""
    yield "stateful set", manifest("stateful-set.yaml")["spec"]["template"]["spec"]["containers"][0]["args"]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    yield "compose", services["controller-2"]["command"]
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign] # names of systemd have capitals
    unit.read(DEPLOY / "modeaware-controller.service", encoding="utf-8")
    yield "systemd", unit["Service"]["ExecStart"].split()[1:]
    (line,) = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    yield "image", json.loads(line)


@pytest.mark.parametrize(("where", "arguments"), list(command_lines()))
def test_the_controllers_command_line_is_one(where: str, arguments: list[str]) -> None:
    command, *options = arguments
    assert command == "controller", where
    args = cli._parse([command, *options])  # private: what the command would do is not wanted
    assert args.http.endswith(":9404"), where


def test_the_image_runs_as_an_ordinary_user_and_checks_its_health() -> None:
    steps = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", steps, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\n    CMD .*/health", steps, re.MULTILINE)
    shipped = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert shipped[0] == "*"
    assert [line for line in shipped if line.startswith("!") and not (ROOT / line[1:]).exists()] == []
