"""The manifests, units and command lines of the page about clusters, and the command lines about nodes of that about
load tests: they parse, and name what exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
import typer.main
import yaml

from mainstay.cli import app
from mainstay.cluster.cluster_settings import variables
from tests.docs.blocks import ROOT

TEXT = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")


LOAD_TEXT = (ROOT / "docs" / "load.md").read_text(encoding="utf-8").partition("## On many machines")[2]


def indented(text: str) -> Iterator[list[str]]:
    """The blocks of lines that are indented by four spaces."""
    block: list[str] = []
    for line in text.splitlines():
        if line.startswith("    ") or (block and not line.strip()):
            block.append(line[4:])
        elif block:
            yield block
            block = []


BLOCKS = ["\n".join(block).strip() for block in indented(TEXT)]
MANIFESTS: list[dict[str, Any]] = [
    each for block in BLOCKS if "apiVersion:" in block for each in yaml.safe_load_all(block)
]


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for manifest in MANIFESTS:
        pod = manifest["spec"].get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            yield manifest, container


def command_lines() -> Iterator[str]:
    for block in [*BLOCKS, *("\n".join(lines) for lines in indented(LOAD_TEXT))]:
        if "apiVersion:" in block:
            continue
        for line in block.splitlines():
            words = line.removeprefix("ExecStart=/opt/shop/.venv/bin/")
            if words.startswith("mainstay "):
                yield words
    for _, container in containers():
        yield shlex.join(container["command"])


@pytest.mark.parametrize("line", list(command_lines()))
def test_a_command_line_of_the_page_can_be_parsed(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command, info_name="mainstay")
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, name
        command, context = found, click.Context(found, info_name=name, parent=context)
    # what comes from the environment on that machine
    given = {"MAINSTAY_CLUSTER_URL": "tls://bus:4222", "MAINSTAY_STORE": "postgresql://db/shop"}
    with pytest.MonkeyPatch.context() as patched:
        for variable, value in given.items():
            patched.setenv(variable, value)
        command.make_context(command.name, words, parent=context.parent)


def test_the_pods_of_a_manifest_belong_together() -> None:
    assert [manifest["kind"] for manifest in MANIFESTS] == ["Service", "StatefulSet", "StatefulSet", "StatefulSet"]
    service = MANIFESTS[0]
    assert service["spec"]["clusterIP"] == "None"
    for manifest, container in containers():
        spec = manifest["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        mounted = [mount["name"] for mount in container["volumeMounts"]]
        assert mounted == [volume["name"] for volume in spec["template"]["spec"]["volumes"]]
        if labels == service["spec"]["selector"]:
            assert spec["serviceName"] == service["metadata"]["name"]


def test_the_variables_of_the_page_exist() -> None:
    named = set(re.findall(r"MAINSTAY_CLUSTER_[A-Z_]+[A-Z]", TEXT))
    assert named <= set(variables())
    settings = next(line for line in TEXT.splitlines() if "_JOIN_FIRST_WAIT" in line)
    short = {f"MAINSTAY_CLUSTER{each}" for each in re.findall(r"`(_[A-Z_]+)`", settings)}
    assert short <= set(variables())
