"""The Dockerfile copies what the package needs, and starts what the program takes."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from hotbed.cli import app
from hotbed.serve.settings import ServeSettings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "docker"


def instructions() -> list[tuple[str, str]]:
    """(name, arguments) of each, continued lines joined."""
    lines = (FOLDER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", text)
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line]  # type: ignore[misc]


def of(name: str) -> list[str]:
    return [arguments for found, arguments in instructions() if found == name]


def copied() -> list[str]:
    """From the repository."""
    return [
        source
        for arguments in of("COPY")
        if not arguments.startswith("--from=")
        for source in arguments.split()[:-1]
    ]


def test_every_line_is_an_instruction() -> None:
    known = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN"}
    assert {name for name, _ in instructions()} <= known | {"USER", "WORKDIR"}
    assert instructions()[0][0] == "ARG"
    assert len(of("FROM")) == 2


def test_what_is_copied_is_there_and_reaches_the_build() -> None:
    ignore = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignore if line.startswith("!")}
    assert copied()
    for source in copied():
        assert (ROOT / source).exists(), source
    assert set(copied()) == kept
    assert "*" in ignore, "nothing else, such as .git and .venv"


def test_what_the_package_and_the_installs_need_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        project["tool"]["hatch"]["version"]["path"],
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
    }
    files = re.findall(r"(?:-c|-r) (\S+\.txt)", " ".join(of("RUN")))
    assert len(files) == 2
    for name in needed | set(files):
        assert any(fnmatch.fnmatch(name, s) or name.startswith(f"{s}/") for s in copied()), name
    extras = next(a for a in of("ARG") if a.startswith("EXTRAS=")).partition("=")[2]
    text = " ".join([extras, (FOLDER / "README.md").read_text(encoding="utf-8")])
    for named in (extras, *re.findall(r"EXTRAS=([\w,-]+)", text)):
        assert set(named.split(",")) <= set(project["project"]["optional-dependencies"]), named


def test_the_command_is_one_that_the_program_takes() -> None:
    (entry,), (command,) = of("ENTRYPOINT"), of("CMD")
    assert json.loads(entry) == ["hotbed"]
    _, bound, _ = app.parse_args(json.loads(command))
    serve = next(v for v in (*bound.args, *bound.kwargs.values()) if isinstance(v, ServeSettings))
    assert serve.host == "0.0.0.0"
    (exposed,) = of("EXPOSE")
    assert int(exposed) == serve.port
    (health,) = of("HEALTHCHECK")
    assert f"http://127.0.0.1:{serve.port}/ready" in health


@pytest.mark.parametrize("line", re.findall(
    r"hotbed:0\.1\.0 (serve .*)", (FOLDER / "README.md").read_text(encoding="utf-8")
))  # fmt: skip
def test_the_pages_commands_are_ones_that_the_program_takes(line: str) -> None:
    app.parse_args(line.split())


def test_user_and_image_are_those_of_the_manifests() -> None:
    text = (ROOT / "deploy" / "kubernetes" / "deployment.yaml").read_text(encoding="utf-8")
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    (user,) = of("USER")
    assert int(user) == pod["securityContext"]["runAsUser"]
    assert f"--uid {user} " in " ".join(of("RUN"))
    tag = pod["containers"][0]["image"]
    assert f"-t {tag} ." in (FOLDER / "README.md").read_text(encoding="utf-8")
