from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec
import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.clock import SystemClock
from mainstay.control import Completion, Control, Failure, JobRequest, error_info
from mainstay.stores import open_store
from mainstay.testing import VirtualClock

runner = CliRunner()


class Made:
    """A database with a few jobs whose fates are known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.ids: dict[str, str] = {}

    async def make(self) -> None:
        store = await open_store(self.url)
        control = Control(store, rng=random.Random(1), actor="ann")
        session = await control.claims.open_session(worker="worker-1")
        ghost = await control.claims.open_session(worker="worker-2")

        self.ids["done"] = (
            await control.jobs.submit("mail.send", {"to": "secret@example.org"}, queue="mail", tags=["news"], key="k1")
        ).id
        [job] = await control.claims.claim(["mail"], session.id, 1)
        await control.attempts.complete([Completion(job, result="sent")])

        self.ids["failed"] = (await control.jobs.submit("sums.add", {"n": 1}, queue="sums", retries=0)).id
        [job] = await control.claims.claim(["sums"], session.id, 1)
        await control.attempts.fail([Failure(job, error_info(ValueError("no such column")))])

        self.ids["haunted"] = (await control.jobs.submit("report.render", None, queue="reports")).id
        [old] = await control.claims.claim(["reports"], ghost.id, 1)
        await control.attempts.release([old], reason="moved")
        [new] = await control.claims.claim(["reports"], session.id, 1)
        await control.attempts.complete([Completion(new)])
        await control.attempts.complete([Completion(old)])

        self.ids["waiting"] = (await control.jobs.submit("mail.send", None, queue="mail", delay="1h")).id
        await store.close()

    def sql(self, statement: str, values: Sequence[str] = ()) -> None:
        db = apsw.Connection(str(self.path))
        db.execute(statement, values)
        db.close()

    def run(self, *words: str, columns: int = 100) -> Result:
        environ = {"COLUMNS": str(columns), "MAINSTAY_STORE": self.url}
        return runner.invoke(app, ["jobs", *words], catch_exceptions=False, env=environ)

    def listed(self, *words: str) -> list[str]:
        """Names of the jobs that are listed, in this order."""
        done = self.run("list", "--json", *words)
        assert done.exit_code == 0, done.output
        names = {job_id: name for name, job_id in self.ids.items()}
        return [names[job["id"]] for job in json.loads(done.stdout)["jobs"]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    made = Made(tmp_path / "jobs.db")
    asyncio.run(made.make())
    return made


def test_list_shows_a_job_with_a_damaged_status_and_says_so(made: Made) -> None:
    made.sql("UPDATE jobs SET status = 'pend1ng' WHERE id = ?", [made.ids["failed"]])

    for words in (["list"], ["list", "--queue", "sums"]):
        done = made.run(*words, columns=200)
        assert made.ids["failed"] in done.stdout
        assert "pend1ng (unknown: see mainstay check)" in done.stdout


def test_list_shows_the_newest_first(made: Made) -> None:
    done = made.run("list")

    assert done.exit_code == 0
    ids = re.findall(r"[0-9a-f-]{36}", done.stdout)
    assert ids == [made.ids[name] for name in ("waiting", "haunted", "failed", "done")]
    assert "sums.add" in done.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--oldest-first",), ["done", "failed", "haunted", "waiting"]),
        (("--status", "succeeded"), ["haunted", "done"]),
        (("--status", "scheduled", "--status", "quarantined"), ["waiting", "failed"]),
        (("--status", "scheduled,quarantined"), ["waiting", "failed"]),
        (("--status", "scheduled, failed", "--status", "quarantined"), ["waiting", "failed"]),
        (("--queue", "mail"), ["waiting", "done"]),
        (("--queue", "mail", "--status", "succeeded"), ["done"]),
        (("--name", "sums.add"), ["failed"]),
        (("--task", "sums.add"), ["failed"]),
        (("--newer-than", "1h"), ["waiting", "haunted", "failed", "done"]),
        (("--older-than", "1h"), []),
        (("--newer-than", "1h", "--older-than", "1ms", "--tag", "news"), ["done"]),
        (("--tag", "news"), ["done"]),
        (("--text", "NO SUCH column"), ["failed"]),
        (("--status", "running"), []),
    ],
)
def test_filters_narrow_the_list_together(made: Made, words: tuple[str, ...], found: list[str]) -> None:
    assert made.listed(*words) == found


def test_age_counts_from_the_submit(made: Made) -> None:
    asyncio.run(_submit_long_ago(made))

    assert made.listed("--older-than", "1h") == ["old"]
    assert "old" not in made.listed("--newer-than", "1h")
    assert made.listed("--older-than", "1h", "--newer-than", "3h") == ["old"]
    assert made.listed("--older-than", "3h") == []


def test_members_of_a_group_are_listed_by_its_callback(made: Made) -> None:
    asyncio.run(_submit_group(made))

    assert made.listed("--group", made.ids["callback"]) == ["second", "first"]
    assert made.listed("--group", made.ids["callback"][-12:], "--status", "running") == []


def test_units_are_listed_by_their_parent_only(made: Made) -> None:
    asyncio.run(_submit_units(made))

    assert "left" not in made.listed()
    assert made.listed("--parent", made.ids["whole"]) == ["right", "left"]
    assert made.listed("--parent", made.ids["done"]) == []


@pytest.mark.parametrize("words", [("--parent", "the big one"), ("--cursor", "the next one"), ("--limit", "0")])
def test_an_option_that_means_nothing_is_refused_naming_it(made: Made, words: tuple[str, ...]) -> None:
    done = made.run("list", *words)

    assert done.exit_code == 2
    assert words[0].removeprefix("--") in done.stderr


def test_pages_follow_each_other_by_cursor_until_there_is_none(made: Made) -> None:
    first = json.loads(made.run("list", "--json", "--limit", "3").stdout)
    second = json.loads(made.run("list", "--json", "--limit", "3", "--cursor", first["cursor"]).stdout)

    assert [job["id"] for job in first["jobs"] + second["jobs"]] == [*reversed(made.ids.values())]
    assert second["cursor"] is None


def test_below_a_full_page_stands_how_to_go_on(made: Made) -> None:
    shown = made.run("list", "--limit", "2").stdout

    assert f"--cursor {made.ids['haunted']}" in shown
    assert "--cursor" not in made.run("list").stdout


def test_a_misspelt_status_is_refused_with_the_one_that_was_meant(made: Made) -> None:
    done = made.run("list", "--status", "quarantine")

    assert done.exit_code == 2
    assert "did you mean 'quarantined'?" in done.stderr


def test_a_status_of_a_newer_version_is_listed_and_can_be_asked_for(made: Made) -> None:
    made.sql("UPDATE jobs SET status = 'hibernating' WHERE id = ?", (made.ids["failed"],))
    made.sql("UPDATE tallies SET status = 'hibernating' WHERE queue = 'sums' AND n = 1")

    assert "hibernating" in made.run("list").stdout
    assert made.listed("--status", "hibernating") == ["failed"]
    assert "written by a newer version" in made.run("show", made.ids["failed"]).stdout


def test_nothing_found_is_no_error(made: Made) -> None:
    done = made.run("list", "--queue", "nowhere")

    assert (done.exit_code, done.stdout) == (0, "no jobs match\n")


@pytest.mark.parametrize("columns", [50, 80, 130])
def test_the_tables_fit_the_terminal(made: Made, columns: int) -> None:
    for words in (("list",), ("show", made.ids["haunted"])):
        shown = made.run(*words, columns=columns).stdout
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


@pytest.mark.parametrize(("columns", "shown"), [(80, False), (85, True), (100, True), (140, True)])
def test_why_is_shown_where_there_is_room_for_it(made: Made, columns: int, shown: bool) -> None:
    lines = made.run("list", columns=columns).stdout.splitlines()

    assert ("why" in lines[0].split()) is shown
    assert any("gave up" in line for line in lines) is shown


@pytest.mark.parametrize("columns", [56, 60, 80, 85, 100, 140])
def test_an_id_stays_on_one_line_to_be_copied(made: Made, columns: int) -> None:
    shown = made.run("list", columns=columns).stdout

    assert re.findall(r"^[0-9a-f-]{36} ", shown, flags=re.MULTILINE) == [f"{i} " for i in reversed(made.ids.values())]


def test_in_a_pipe_lines_are_as_long_as_what_is_in_them(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    why = "the very long story of a queue that nobody had looked at for " + "many, " * 40 + "many weeks"
    made.sql("UPDATE jobs SET reason = ? WHERE id = ?", (why, made.ids["failed"]))
    environ = {"MAINSTAY_STORE": made.url}

    for words in (["list"], ["show", made.ids["failed"]]):
        lines = runner.invoke(app, ["jobs", *words], catch_exceptions=False, env=environ).stdout.splitlines()
        assert any(why in line for line in lines)
        assert [line for line in lines if line != line.rstrip()] == []
        assert max(map(len, lines)) < 500


def test_show_tells_where_a_job_stands_and_its_whole_story(made: Made) -> None:
    shown = " ".join(made.run("show", made.ids["failed"]).stdout.split())

    assert shown.startswith(f"sums.add quarantined id {made.ids['failed']} why gave up after 1 failed attempt")
    assert "error ValueError: no such column queue sums" in shown
    assert "claims 1, starts 1, failures 1, crashes 0" in shown
    assert "running → failed worker-1 ValueError: no such column" in shown
    assert "failed → quarantined worker-1 gave up" in shown


def test_show_tells_of_a_ghost_that_was_refused(made: Made) -> None:
    shown = " ".join(made.run("show", made.ids["haunted"]).stdout.split())

    assert "succeeded worker-2 refused: its claim (token 1) had been lost" in shown


def test_payload_and_result_are_shown_only_when_asked_for(made: Made) -> None:
    job_id = made.ids["done"]
    shown = made.run("show", job_id).output + made.run("show", job_id, "--json").output + made.run("list").output
    assert "secret@example.org" not in shown

    assert 'payload: {"to":"secret@example.org"}' in made.run("show", job_id, "--payload").stdout
    data = json.loads(made.run("show", job_id, "--payload", "--json").stdout)
    assert (data["job"]["payload"], data["job"]["result"]) == ({"to": "secret@example.org"}, "sent")


def test_a_payload_that_cannot_be_decoded_is_shown_as_it_is(made: Made) -> None:
    made.sql("UPDATE jobs SET payload = x'c1' WHERE id = ?", (made.ids["done"],))

    assert 'payload: {"undecodable":"c1"}' in made.run("show", made.ids["done"], "--payload").stdout


def test_show_as_json_holds_the_row_the_events_and_the_refusals(made: Made) -> None:
    data = json.loads(made.run("show", made.ids["haunted"], "--json").stdout)

    assert data["job"]["status"] == "succeeded"
    assert data["job"]["options"]["retry"]["retries"] == 3
    assert [event["to"] for event in data["events"]] == ["pending", "running", "pending", "running", "succeeded"]
    assert data["job"]["head"] == data["events"][-1]["digest"]
    assert [(refusal["token"], refusal["wanted"]) for refusal in data["refusals"]] == [(1, "succeeded")]


def test_the_beginning_of_an_id_will_do_if_it_is_the_only_one(made: Made) -> None:
    made.sql("UPDATE jobs SET id = '018bcfe5-6800-7000-8000-000000000001' WHERE id = ?", (made.ids["waiting"],))
    made.sql(
        "UPDATE events SET job_id = '018bcfe5-6800-7000-8000-000000000001' WHERE job_id = ?", (made.ids["waiting"],)
    )

    assert made.run("show", "018BCFE5-68").stdout.startswith("mail.send scheduled")


def test_a_beginning_that_several_jobs_share_is_refused_naming_them(made: Made) -> None:
    asyncio.run(_submit_more(made))

    done = made.run("show", made.ids["one"][:30])

    assert done.exit_code == 2
    assert f"several jobs begin with '{made.ids['one'][:30]}'" in done.stderr
    assert made.ids["two"] in done.stderr
    assert made.run("show", made.ids["one"]).exit_code == 0


def test_the_end_of_an_id_will_do_if_it_is_the_only_one(made: Made) -> None:
    asyncio.run(_submit_more(made))

    assert f"id         {made.ids['two']}\n" in made.run("show", made.ids["two"][-12:]).stdout
    assert made.run("show", made.ids["two"][-7:]).exit_code == 2


def test_an_end_that_several_jobs_share_is_refused_naming_them(made: Made) -> None:
    for name, job_id in (
        ("done", "018bcfe5-6800-7000-8000-00000000abcd"),
        ("failed", "018bcfe6-6800-7000-8000-00000000abcd"),
    ):
        made.sql("UPDATE jobs SET id = ? WHERE id = ?", (job_id, made.ids[name]))

    done = made.run("show", "00000000abcd")

    assert done.exit_code == 2
    assert "several jobs end with '00000000abcd'" in done.stderr


def test_an_error_with_a_code_of_its_own_shows_it(made: Made) -> None:
    asyncio.run(_fail_with_a_code(made))

    assert "error      LookupError: no such card (card_unknown)" in made.run("show", made.ids["coded"]).stdout


def test_a_session_that_is_forgotten_is_still_shown_by_its_workers_name(made: Made) -> None:
    made.sql("UPDATE events SET actor = 'w.9.0123456789abcdef0123456789abcdef' WHERE job_id = ?", (made.ids["done"],))

    shown = " ".join(made.run("show", made.ids["done"]).stdout.split())

    assert "pending → running w.9 " in shown


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("0199", "'0199' is too short; an id may be shortened to its beginning or its end, of 8 characters or more"),
        ("01990000-0000", "there is no job 01990000-0000..."),
        ("01990000-0000-7000-8000-000000000000", "there is no job 01990000-0000-7000-8000-000000000000"),
        ("nope", "'nope' is not a job id; an id may be shortened to its beginning or its end, of 8 characters or more"),
        ("x" * 36, "is not a job id (a UUIDv7"),
    ],
)
def test_an_id_that_leads_nowhere_is_an_error(made: Made, given: str, complaint: str) -> None:
    done = made.run("show", given)

    assert done.exit_code == 2
    assert complaint in done.stderr


def test_a_deleted_job_still_has_its_tombstone(made: Made) -> None:
    asyncio.run(_delete(made, made.ids["done"]))

    shown = " ".join(made.run("show", made.ids["done"]).stdout.split())

    assert shown.startswith("deleted; its tombstone is left")
    assert "[tombstone] bob by request" in shown


def test_stored_text_cannot_play_with_the_terminal(made: Made) -> None:
    made.sql("UPDATE jobs SET reason = 'fine' || char(27) || '[2J' WHERE id = ?", (made.ids["failed"],))

    shown = made.run("list", columns=140).stdout + made.run("show", made.ids["failed"]).stdout

    assert "\x1b" not in shown
    assert "fine\\x1b[2J" in shown


@pytest.mark.parametrize("words", [("list",), ("show", "01990000-0000-7000-8000-000000000000")])
def test_a_missing_file_is_an_error_and_not_a_new_database(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = runner.invoke(app, ["jobs", *words, "--store", f"sqlite:///{tmp_path}/nowhere.db"])

    assert done.exit_code == 2
    assert "there is no database" in done.stderr
    assert list(tmp_path.iterdir()) == []


async def _submit_more(made: Made) -> None:
    store = await open_store(made.url)
    one, two = await Control(store, rng=random.Random(5)).jobs.submit_many([JobRequest("a"), JobRequest("a")])
    made.ids |= {"one": one.id, "two": two.id}
    await store.close()


async def _submit_units(made: Made) -> None:
    store = await open_store(made.url)
    control = Control(store, rng=random.Random(6))
    made.ids["whole"] = whole = (await control.jobs.submit("batch.run", kind="batch")).id
    for unit in ("left", "right"):
        made.ids[unit] = (await control.jobs.submit("batch.part", parent=whole, unit=unit)).id
    await store.close()


async def _submit_long_ago(made: Made) -> None:
    clock = VirtualClock(SystemClock().now_ms() - 2 * 3_600_000)
    store = await open_store(made.url, clock=clock)
    made.ids["old"] = (await Control(store, rng=random.Random(8)).jobs.submit("mail.send")).id
    await store.close()


async def _submit_group(made: Made) -> None:
    store = await open_store(made.url)
    group = await Control(store, rng=random.Random(9)).jobs.submit_group(
        [JobRequest("part"), JobRequest("part")], JobRequest("whole")
    )
    made.ids |= {"first": group.members[0].id, "second": group.members[1].id, "callback": group.then.id}
    await store.close()


async def _fail_with_a_code(made: Made) -> None:
    store = await open_store(made.url)
    control = Control(store, rng=random.Random(7))
    session = await control.claims.open_session(worker="worker-3")
    made.ids["coded"] = (await control.jobs.submit("card.charge", queue="cards", retries=0)).id
    [job] = await control.claims.claim(["cards"], session.id, 1)
    error = msgspec.structs.replace(error_info(LookupError("no such card")), code="card_unknown")
    await control.attempts.fail([Failure(job, error)])
    await store.close()


async def _delete(made: Made, job_id: str) -> None:
    store = await open_store(made.url)
    await Control(store).operations.delete(job_id, actor="bob", reason="by request")
    await store.close()
