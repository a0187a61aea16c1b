"""Schedules over HTTP. The program that declares them is somewhere else."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mainstay.control import decoded
from mainstay.control.schedules import register, schedule
from mainstay.model import Schedule
from tests.web.conftest import Server


@pytest.fixture
async def planned(stored: Server) -> Server:
    """Two schedules; one lets only one job of it be unsettled."""
    await register(
        stored.control,
        [
            schedule("nightly/sums", "0 3 * * *", "report.sums", {"day": "today"}, tz="Europe/Berlin", overlap="skip"),
            schedule("ping", "*/5 * * * *", "net.ping"),
        ],
    )
    return stored


async def test_schedules_are_listed_with_their_next_ticks(planned: Server) -> None:
    found = (await planned.client.get("/api/v1/schedules")).json()["schedules"]
    assert [each["name"] for each in found] == ["nightly/sums", "ping"]
    assert (found[0]["when"], found[0]["tz"], found[0]["task"]) == ("0 3 * * *", "Europe/Berlin", "report.sums")
    ticks = found[1]["next_ticks_ms"]
    assert [later - sooner for sooner, later in pairwise(ticks)] == [300_000, 300_000]
    one = (await planned.client.get("/api/v1/schedules/nightly%2Fsums")).json()
    assert one == found[0]


async def test_a_paused_schedule_has_no_next_tick_until_it_is_resumed(planned: Server) -> None:
    paused = (await planned.client.post("/api/v1/schedules/ping/pause")).json()
    assert (paused["paused"], paused["next_ticks_ms"]) == (True, [])
    resumed = (await planned.client.post("/api/v1/schedules/ping/resume")).json()
    assert resumed["paused"] is False
    assert len(resumed["next_ticks_ms"]) == 3


async def test_a_schedule_is_run_now_from_what_is_stored_of_it(planned: Server) -> None:
    run = "/api/v1/schedules/nightly/sums/run"
    first = await planned.client.post(run)
    assert (first.status_code, first.json()["created"]) == (201, True)
    job = await planned.control.jobs.get(first.json()["id"])
    assert (job.name, decoded(job.payload), job.options.tags) == (
        "report.sums",
        {"day": "today"},
        ("schedule:nightly/sums",),
    )
    assert (await planned.control.jobs.events(job.id))[0].actor == "web:local"
    again = await planned.client.post(run)
    assert (again.status_code, again.json()["created"], again.json()["id"]) == (200, False, job.id)


async def test_a_schedule_that_cannot_be_read_is_listed_and_not_run(stored: Server) -> None:
    await stored.stores.first.store.put_schedule(Schedule(name="old", spec=b"\xc1"))
    (found,) = (await stored.client.get("/api/v1/schedules")).json()["schedules"]
    assert "cannot be read" in found["problem"]
    answer = await stored.client.post("/api/v1/schedules/old/run")
    assert (answer.status_code, answer.json()["type"]) == (409, "schedule_unreadable")


async def test_a_schedule_is_forgotten_and_its_jobs_stay(planned: Server) -> None:
    job_id = (await planned.client.post("/api/v1/schedules/ping/run")).json()["id"]
    assert (await planned.client.delete("/api/v1/schedules/ping")).json() == {"name": "ping", "dropped": True}
    assert (await planned.client.get("/api/v1/schedules/ping")).status_code == 404
    assert (await planned.control.jobs.get(job_id)).status == "pending"


@pytest.mark.parametrize("change", ["pause", "resume", "run"])
async def test_a_misspelt_schedule_is_not_found_with_what_may_be_meant(planned: Server, change: str) -> None:
    answer = await planned.client.post(f"/api/v1/schedules/pign/{change}")
    assert (answer.status_code, answer.json()["type"]) == (404, "schedule_not_found")
    assert "did you mean 'ping'?" in answer.json()["detail"]
