"""Batches over HTTP: the study itself is in another program."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainstay import App, Outputs
from mainstay.testing import Harness
from tests.web.conftest import Server, serving


class Lab:
    """A batch that has succeeded, a server that looks at it, and a worker that can be told to go on."""

    def __init__(self, server: Server, box: Harness, root: Path, job_id: str) -> None:
        self.server = server
        self.box = box
        self.root = root
        self.path = f"/api/v1/jobs/{job_id}"
        self.id = job_id

    @property
    def files(self) -> list[Path]:
        return sorted(self.root.glob("v1/study/**/result.txt"))

    async def get(self, part: str, **query: object) -> dict[str, Any]:
        answer = await self.server.client.get(f"{self.path}/{part}", params={k: str(v) for k, v in query.items()})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    root = tmp_path / "outputs"
    app = App("memory:", outputs=f"file://{root}?sync=off")

    @app.batch(name="study", outputs={"result": "result.txt"}, version="1")
    def study(params: dict[str, float], seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    async with Harness(app) as box:
        run = await app.submit_batch(study, params=[{"beta": 0.1}, {"beta": 0.2}], seeds=3)
        await box.drain()
        async with serving(store=box.store) as server:
            yield Lab(server, box, root, run.id)


async def test_how_a_batch_stands_is_told(lab: Lab) -> None:
    seen = await lab.get("batch")
    assert (seen["status"], seen["settled"], seen["sets"]) == ("succeeded", True, 2)
    assert seen["units"]["total"] == seen["units"]["done"] == 6
    assert seen["outputs"] == {"expected": 6, "there": 6}
    report = await lab.get("report")
    assert [(one["params"], one["intact"], one["units"]) for one in report["outcomes"]] == [
        ({"beta": 0.1}, 3, 3),
        ({"beta": 0.2}, 3, 3),
    ]


async def test_outputs_are_listed_with_what_is_there_of_them(lab: Lab) -> None:
    lab.files[0].unlink()
    lab.files[1].write_text("burned")
    first = await lab.get("outputs", limit=4)
    rest = await lab.get("outputs", start=first["next"])
    assert rest["next"] is None
    listed = [*first["outputs"], *rest["outputs"]]
    assert sorted(each["state"] for each in listed) == ["corrupt", "missing", *["present"] * 4]
    bad = await lab.get("outputs", state="missing,corrupt")
    assert sorted(each["state"] for each in bad["outputs"]) == ["corrupt", "missing"]


async def test_a_map_has_a_cell_for_each_set(lab: Lab) -> None:
    found = await lab.get("map")
    assert found["x"]["labels"] == ["0.1", "0.2"]
    assert found["facets"][0]["rows"] == [[{"intact": 3, "units": 3, "sets": 1}, {"intact": 3, "units": 3, "sets": 1}]]


async def test_a_damaged_batch_is_looked_at_and_made_whole_again(lab: Lab) -> None:
    send = lab.server.client.post
    lab.files[0].unlink()
    looked = (await send(f"{lab.path}/validate", json={"force": True})).json()
    assert (looked["missing"], looked["by"]) == (1, "web:local")
    preview = (await send(f"{lab.path}/resume", json={"dry_run": True})).json()
    assert (preview["dry_run"], preview["units"], len(preview["sample"])) == (True, 1, 1)
    # it had succeeded, which is final: a job of its own repairs the damage
    made = (await send(f"{lab.path}/resume", json={"reason": "the disk is new"})).json()
    assert (made["how"], made["units"]) == ("linked", 1)
    submitted = (await lab.server.control.jobs.events(made["id"]))[0]
    assert submitted.actor == "web:local"
    await lab.box.drain()
    assert len(lab.files) == 6


async def test_a_change_that_is_meant_for_another_version_is_refused(lab: Lab) -> None:
    for change in ("validate", "resume"):
        answer = await lab.server.client.post(f"{lab.path}/{change}", headers={"If-Match": '"1"'})
        assert (answer.status_code, answer.json()["type"]) == (412, "version_changed")


async def test_another_job_is_no_batch(lab: Lab) -> None:
    other = await lab.server.control.jobs.submit("a")
    for part in ("batch", "report", "map", "outputs"):
        answer = await lab.server.client.get(f"/api/v1/jobs/{other.id}/{part}")
        assert (answer.status_code, answer.json()["field"]) == (422, "job")
        assert "is not a batch" in answer.json()["detail"]
