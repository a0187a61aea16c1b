"""A kind of job of another distribution: it is found through its entry point, and used everywhere our own kinds are."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay import App, kinds
from mainstay.cli import root
from mainstay.control import Control, Duty
from mainstay.control.explain import explained
from mainstay.errors import InvalidInput
from mainstay.kinds import Kind, is_kind, kind_named, register_kind
from mainstay.model import Leadership
from mainstay.testing import Harness, MemoryStore
from mainstay.web.api import routes
from mainstay.web.dashboard import assets, page
from tests.web.conftest import serving

DISTRIBUTION = Path(__file__).parent / "distribution"
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def forget() -> None:
    """Have the installed kinds looked up again."""
    for cached in (kinds._others, kinds._loaded, routes.operations, page.navigation, page._environment, assets.assets):
        cached.cache_clear()


@pytest.fixture
def survey(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The distribution is installed."""
    monkeypatch.syspath_prepend(str(DISTRIBUTION))
    forget()
    yield
    monkeypatch.undo()
    forget()


def command(*words: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(DISTRIBUTION), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-m", "mainstay", *words], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_our_own_kinds_are_entry_points_as_well() -> None:
    declared = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["entry-points"][kinds.GROUP]

    assert declared == kinds._OURS
    assert [kind.name for kind in kinds.kinds()][: len(declared)] == list(declared)


def test_every_part_of_our_own_kinds_can_be_imported() -> None:
    for name in kinds.own_kind_names():
        kind = kind_named(name)
        assert kind is not None
        for field in (
            "declarations",
            "advice",
            "submission",
            "operations",
            "masked_value",
            "pages",
            "panels",
            "actions",
        ):
            if target := getattr(kind, field):
                assert kinds.part(target) is not None


def test_the_lines_of_the_help_are_those_of_the_commands() -> None:
    for name, declared in root.commands().items():
        found = root._imported(declared)
        text = found.short_help or found.help or ""
        assert " ".join(text.split("\n\n")[0].split()) == declared.help, name


@pytest.mark.usefixtures("survey")
async def test_a_worker_runs_its_jobs() -> None:
    app = App("memory:")
    app.part("survey").declare("tea", "yes")
    assert app.queues == ["surveys"]
    assert app.offer() == {"survey:tea": {}}

    async with Harness(app) as harness:
        job_id = await app.part("survey").submit("tea", "Tea?")
        await harness.drain()
        assert await app.handle(job_id).result() == "Tea? yes"


@pytest.mark.usefixtures("survey")
async def test_what_is_placed_is_offered_by_nodes_only() -> None:
    async def place(_: Leadership) -> None: ...

    app = App("memory:")
    app.task(name="mail")(lambda: None)
    part = app.part("survey")
    part.declare("tea", "yes")
    part.placed_handlers = {"coffee": part.handlers["tea"]}
    part.placement_duties = lambda _, session: [Duty(f"place for {session}", 1.0, place)]

    assert list(app.offer()) == ["mail", "survey:tea"]
    assert app.placed_offer() == {"survey:coffee": {}}
    assert app.work("survey", "coffee") is part.placed_handlers["coffee"]
    assert "place for n.1" in [duty.name for duty in app.placement_duties(Control(MemoryStore()), "n.1")]


@pytest.mark.usefixtures("survey")
async def test_its_advice_is_given_for_a_job_that_failed() -> None:
    store = MemoryStore()
    control = Control(store)
    job_id = (await control.jobs.submit("tea", {"question": ""}, kind="survey")).id
    await control.operations.force(job_id, "failed", actor="ann", reason="a test")

    told = await explained(store, job_id)

    assert "mainstay survey ask tea" in [advice.command for advice in told.advice]


def test_its_command_is_in_the_help_and_can_be_run(tmp_path: Path) -> None:
    assert "Submit a survey." in command("--help")
    store = f"sqlite:///{tmp_path}/jobs.db"
    job_id = command("survey", "ask", "tea", "Tea?", "--store", store).strip()
    assert "survey" in command("jobs", "show", job_id, "--store", store)


@pytest.mark.usefixtures("survey")
async def test_the_server_has_its_route_its_page_and_its_panel() -> None:
    async with serving() as server:
        job_id = (await server.control.jobs.submit("tea", {"question": "Tea or coffee?"}, kind="survey")).id

        answer = await server.client.get(f"/api/v1/jobs/{job_id}/answer")
        listed = await server.client.get("/surveys")
        job = await server.client.get(f"/jobs/{job_id}")
        described = await server.client.get("/api/v1/openapi.json")

    assert (answer.status_code, answer.json()) == (200, {"answer": None})
    assert job_id in listed.text
    assert 'href="/surveys"' in job.text
    assert "Tea or coffee?" in job.text
    assert "/jobs/{id}/answer" in described.json()["paths"]


async def test_without_it_the_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'survey' is not one of task, batch, load, node"):
        await Control(MemoryStore()).jobs.submit("tea", kind="survey")
    with pytest.raises(InvalidInput, match="unknown kind 'survey'"):
        App("memory:").part("survey")


def test_a_kind_that_cannot_be_loaded_is_logged_and_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mainstay.kinds]\nbroken = nowhere_at_all:KIND\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    try:
        with caplog.at_level(logging.WARNING):
            assert "broken" not in [kind.name for kind in kinds.kinds()]
        assert "'broken' (nowhere_at_all:KIND) cannot be loaded" in caplog.text
    finally:
        monkeypatch.undo()
        forget()


def test_a_program_can_register_a_kind_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_registered", {})
    register_kind(Kind(name="poll"))

    assert is_kind("poll")
    assert "poll" in kinds.kind_names()
    with pytest.raises(InvalidInput, match="a kind 'task' exists already"):
        register_kind(Kind(name="task"))
