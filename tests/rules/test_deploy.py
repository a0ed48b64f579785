"""The manifests in deploy/: valid, and true of the program they start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from hotbed.cli import app
from hotbed.ivy.settings import IvySettings
from hotbed.serve.plan import make_plan
from hotbed.serve.settings import ServeSettings
from hotbed.tulip.metrics import Metrics
from hotbed.tulip.settings import TulipSettings

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
NAMES = ("deployment", "service", "pdb", "hpa")
MARGIN_S = 5.0  # of hotbed.serve.run, past which a stage is killed


def load(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = load("deployment")["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    assert isinstance(only, dict)
    return only


def started(container: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The settings that the container's command line gives."""
    program, *command = [*container["command"], *container["args"]]
    assert program == "hotbed"
    _, bound, _ = app.parse_args(command)  # ends the test for an option that is not there
    found = {type(value): value for value in (*bound.args, *bound.kwargs.values())}
    return found[ServeSettings], found[TulipSettings], found[IvySettings]


@pytest.mark.parametrize("version", ["1.33", "1.37"])
@pytest.mark.parametrize("name", NAMES)
def test_the_schema_of_kubernetes_holds(name: str, version: str) -> None:
    kubernetes_validate.validate(load(name), version, strict=True)


def test_a_wrong_field_would_be_found() -> None:
    wrong = load("pdb")
    wrong["spec"]["maxUnavailabel"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_every_manifest_is_listed_and_there() -> None:
    listed = load("kustomization")["resources"]
    there = {p.name for p in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == there == {f"{name}.yaml" for name in NAMES}


def test_selectors_find_the_pods() -> None:
    labels = load("deployment")["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        load("deployment")["spec"]["selector"]["matchLabels"],
        load("service")["spec"]["selector"],
        load("pdb")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    target = load("hpa")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (
        "Deployment",
        load("deployment")["metadata"]["name"],
    )
    assert "replicas" not in load("deployment")["spec"], "the autoscaler owns the number"


def test_ports_and_the_options_agree(container: dict[str, Any]) -> None:
    serve, tulip, _ = started(container)
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert ports["http"] == serve.port
    assert ports["ivy-metrics"] == serve.worker_ports
    assert ports["tulip-metrics"] == serve.replica_metrics_ports
    assert serve.host == tulip.metrics_host == "0.0.0.0"
    assert serve.workers == serve.replicas == 1, "one port each is declared"
    (port,) = load("service")["spec"]["ports"]
    assert port["targetPort"] in ports
    annotations = load("deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["tulip-metrics"])


def test_the_settings_make_a_service(container: dict[str, Any], tmp_path: Path) -> None:
    serve, tulip, ivy = started(container)
    plan = make_plan(
        serve, tulip, ivy, directory=tmp_path, host="0.0.0.0", port=serve.port, num_cores=2,
        environment={},
    )  # fmt: skip
    assert "--metrics-host=0.0.0.0" in " ".join(plan.replicas[0].command).replace("host ", "host=")


def test_probes_ask_for_what_the_gateway_answers(container: dict[str, Any]) -> None:
    source = (FOLDER.parents[1] / "src/hotbed/ivy/app.py").read_text(encoding="utf-8")
    for probe, path in {"startup": "/health", "liveness": "/health", "readiness": "/ready"}.items():
        asked = container[f"{probe}Probe"]["httpGet"]
        assert asked == {"path": path, "port": "http"}
        assert f'"{path}"' in source


def test_a_drain_fits_into_the_grace_period(pod: dict[str, Any], container: dict[str, Any]) -> None:
    serve, _, ivy = started(container)
    stage_s = ivy.drain_delay_s + serve.drain_timeout_s + MARGIN_S
    assert 2 * stage_s <= pod["terminationGracePeriodSeconds"], "Ivy, then Tulip"


def test_the_metric_that_scales_exists() -> None:
    (metric,) = load("hpa")["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    families = {family.name for family in Metrics().registry.collect()}
    assert name in families
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"hotbed_\w+", readme)) == {name}


def test_metrics_named_in_the_table_of_faults_exist() -> None:
    page = (FOLDER.parents[1] / "docs" / "faults.md").read_text(encoding="utf-8")
    known = {family.name for family in Metrics().registry.collect()}
    source = (FOLDER.parents[1] / "src/hotbed/ivy/metrics.py").read_text(encoding="utf-8")
    known |= set(re.findall(r'"(hotbed_ivy_\w+)"', source))
    named = {name.removesuffix("_total") for name in re.findall(r"hotbed_(?:ivy|tulip)_\w+", page)}
    assert len(named) >= 3
    assert named <= known


def test_tests_named_in_the_table_of_faults_exist() -> None:
    root = FOLDER.parents[1]
    table = [
        line.strip("|").split("|")
        for line in (root / "docs" / "faults.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| fault")
    ]
    faults = [row for row in table if len(row) == 5]
    assert len(faults) > 10
    for row in faults:
        named = re.findall(r"`(\w+(?:/\w+)?)`", row[-1])
        assert named, f"no test shows it: {row[0]}"
        for name in named:
            folder, _, test = name.rpartition("/")
            where = root / (f"tests/{folder}" if test.startswith("test_") else folder)
            assert list(where.rglob(f"{test}.py")), f"{name}, of {row[0]}"
