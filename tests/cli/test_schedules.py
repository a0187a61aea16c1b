"""`mainstay schedules`, on a database and with an app."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstay.cli.options import local_actor
from mainstay.control import Control
from mainstay.control.schedules import register, schedule
from mainstay.stores import Query
from tests.cli.conftest import Shell

APP = """
from datetime import timedelta

from mainstay import App

app = App({url!r})


@app.before_submit
def trace(draft):
    draft.add_metadata(trace="t-1")


@app.task(name="report.sums")
def sums(day: str) -> None: ...


class Later:
    def next(self, after):
        return after.replace(microsecond=0) + timedelta(hours=1)


app.schedule("0 3 * * *", tz="Europe/Berlin", name="sums", overlap="skip")(sums.job("monday"))
app.schedule(Later(), name="later")(sums.job("tuesday"))
"""


@pytest.fixture
def shop(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A database with two schedules, and beside it an app that declares one of them, and one more."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "schedules_shop.py").write_text(APP.format(url=shell.url))
    plan(
        shell,
        schedule("sums", "0 3 * * *", "report.sums", {"day": "monday"}, tz="Europe/Berlin", overlap="skip"),
        schedule("calls", "15m", "calls.make", catch_up="all"),
    )
    yield shell
    sys.modules.pop("schedules_shop", None)


def plan(shell: Shell, *specs: Any) -> None:
    async def work(control: Control) -> None:
        await register(control, specs)

    shell.does(work)


def with_app(shell: Shell, *words: str) -> Any:
    done = shell.run("schedules", *words, "--app", "schedules_shop:app", "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_list_says_when_each_ticks_in_its_zone_and_in_how_long(shop: Shell) -> None:
    done = shop.run("schedules", "list", columns=160)

    assert done.exit_code == 0
    calls, sums = done.stdout.splitlines()[2:]
    assert re.match(
        r"calls +every 15m +\d{4}-\d\d-\d\d \d\d:\d\d UTC \(in \d+m?\d*s?\) +calls\.make +allow +all", calls
    )
    assert re.match(
        r"sums +0 3 \* \* \* Europe/Berlin +\d{4}-\d\d-\d\d 03:00 CES?T \(in .+\) +report\.sums +skip +once", sums
    )


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_the_list_fits_the_terminal(shop: Shell, columns: int) -> None:
    shown = shop.run("schedules", "list", columns=columns).stdout

    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


def test_no_schedules_is_no_error(shell: Shell) -> None:
    done = shell.run("schedules", "list")

    assert (done.exit_code, done.stdout) == (0, "no schedules\n")


def test_programs_get_times_as_milliseconds(shop: Shell) -> None:
    calls, sums = shop.json("schedules", "list")["schedules"]

    assert (sums["name"], sums["when"], sums["tz"], sums["overlap"]) == ("sums", "0 3 * * *", "Europe/Berlin", "skip")
    first, second, third = calls["next_ticks_ms"]
    assert second - first == third - second == 900_000
    assert (calls["last_tick_ms"], calls["last_job"], calls["paused"], calls["registered"]) == (None, None, False, True)


def test_one_is_shown_with_its_next_ticks_and_its_last_job(shop: Shell) -> None:
    job_id = shop.run("schedules", "run", "sums").stdout.strip()

    shown = shop.run("schedules", "show", "sums").stdout

    assert len(re.findall(r"03:00 CES?T \(in ", shown)) == 3
    assert f"{job_id} pending" in shown
    assert "mainstay jobs list --tag schedule:sums" in shown
    assert shop.json("schedules", "show", "sums")["last_job"] == {"id": job_id, "status": "pending"}


def test_run_makes_a_job_by_whoever_sits_there_and_prints_its_id(shop: Shell) -> None:
    done = shop.run("schedules", "run", "calls")

    assert done.exit_code == 0
    job_id = done.stdout.strip()
    job = shop.get(job_id)
    assert (job.name, job.options.tags) == ("calls.make", ("schedule:calls",))
    (event,) = shop.does(lambda control: control.jobs.events(job_id))
    assert event.actor == local_actor()
    by_ann = shop.json("schedules", "run", "calls", "--actor", "ann")
    assert by_ann["created"]
    (event,) = shop.does(lambda control: control.jobs.events(by_ann["id"]))
    assert event.actor == "ann"


def test_run_says_when_an_earlier_job_is_in_the_way(shop: Shell) -> None:
    first = shop.json("schedules", "run", "sums")
    again = shop.run("schedules", "run", "sums")

    assert again.stdout.strip() == first["id"]
    assert "submits no second job while this one is not settled" in again.stderr
    assert shop.json("schedules", "run", "sums") == {**first, "created": False}


def test_run_with_the_app_asks_its_hooks(shop: Shell) -> None:
    plain, hooked = shop.json("schedules", "run", "calls"), with_app(shop, "run", "sums")

    assert "trace" not in shop.get(plain["id"]).options.metadata
    assert shop.get(hooked["id"]).options.metadata["trace"] == "t-1"


def test_what_the_app_declares_and_nobody_registered_is_shown_as_that(shop: Shell) -> None:
    calls, later, sums = with_app(shop, "list")["schedules"]

    assert (calls["registered"], later["registered"], sums["registered"]) == (True, False, True)
    assert len(later["next_ticks_ms"]) == 3
    shown = shop.run("schedules", "list", "--app", "schedules_shop:app").stdout
    assert re.search(r"later +custom \(Later\) +not registered yet", shown)
    assert "later: declared by the app; a worker registers it when it starts" in shown
    assert "later" not in shop.run("schedules", "list").stdout


@pytest.mark.parametrize("verb", ["run", "pause", "resume", "drop"])
def test_what_is_not_registered_cannot_be_moved_yet(shop: Shell, verb: str) -> None:
    done = shop.run("schedules", verb, "later", "--app", "schedules_shop:app")

    assert done.exit_code == 2
    assert "'later' is declared but not registered yet" in done.stderr


def test_a_paused_schedule_has_no_next_tick_until_it_is_resumed(shop: Shell) -> None:
    paused = shop.run("schedules", "pause", "calls", "sums", "--actor", "ann")

    assert paused.stdout == "schedule calls is paused\nschedule sums is paused\n"
    assert re.search(r"^\d{4}-.+Z paused schedule=calls actor=ann$", paused.stderr, flags=re.MULTILINE)
    assert [view["next_ticks_ms"] for view in shop.json("schedules", "list")["schedules"]] == [[], []]
    assert re.search(r"calls +every 15m +paused", shop.run("schedules", "list").stdout)
    resumed = shop.run("schedules", "resume", "calls")
    assert resumed.stdout.startswith("schedule calls ticks next at 2")
    assert f"resumed schedule=calls actor={local_actor()}" in resumed.stderr
    assert [view["paused"] for view in shop.json("schedules", "list")["schedules"]] == [False, True]


def test_what_is_as_it_should_be_is_left_alone_and_that_is_said(shop: Shell) -> None:
    resumed = shop.run("schedules", "resume", "calls")
    shop.run("schedules", "pause", "calls")
    paused = shop.run("schedules", "pause", "calls", "sums")

    assert (resumed.exit_code, resumed.stderr) == (0, "schedule calls was not paused\n")
    assert resumed.stdout.startswith("schedule calls ticks next at 2")
    first, second = paused.stderr.splitlines()
    assert first == "schedule calls was paused already"
    assert " paused schedule=sums " in second
    assert paused.stdout == "schedule calls is paused\nschedule sums is paused\n"


def test_a_dropped_schedule_is_gone_and_its_jobs_stay(shop: Shell) -> None:
    shop.run("schedules", "run", "calls")

    done = shop.run("schedules", "drop", "calls")

    assert (done.exit_code, done.stdout) == (0, "schedule calls is dropped; its jobs stay\n")
    assert [view["name"] for view in shop.json("schedules", "list")["schedules"]] == ["sums"]
    assert len(shop.does(lambda control: control.store.find(Query(tag="schedule:calls"))).jobs) == 1


@pytest.mark.parametrize("verb", ["show", "run", "pause", "resume", "drop"])
def test_a_name_that_is_misspelt_is_refused_with_what_was_meant(shop: Shell, verb: str) -> None:
    done = shop.run("schedules", verb, "smus")

    assert done.exit_code == 2
    assert "there is no schedule 'smus'; did you mean 'sums'?" in done.stderr


def test_one_misspelt_name_among_several_and_nothing_is_done(shop: Shell) -> None:
    assert shop.run("schedules", "pause", "calls", "smus").exit_code == 2

    assert not any(view["paused"] for view in shop.json("schedules", "list")["schedules"])


def test_a_schedule_that_cannot_be_read_says_so_below_the_others(shop: Shell) -> None:
    shop.sql("UPDATE schedules SET spec = ? WHERE name = 'calls'", (b"\xc1",))

    done = shop.run("schedules", "list")

    assert done.exit_code == 0
    assert "calls: spec: the stored schedule cannot be read" in done.stdout
    assert "03:00" in done.stdout


def test_ticks_that_an_unsettled_job_held_back_are_told(shop: Shell) -> None:
    plan(shop, schedule("often", "1s", "tick", overlap="skip"))
    made = shop.json("schedules", "run", "often")
    shop.sql("UPDATE schedules SET last_tick_ms = last_tick_ms + 600000 WHERE name = 'often'")

    assert f"made no job, job {made['id']} is still pending (overlap skip)" in " ".join(
        shop.run("schedules", "list", columns=200).stdout.split()
    )
