"""`jobs cancel`, `retry`, `force` and `delete`: by id and by filter."""

from __future__ import annotations

import getpass
import json
import socket

import pytest

from mainstay.control import Control, Failure, Operations, Outcome, bulk
from mainstay.stores import JobStore, Page, Query
from tests.cli.conftest import Shell
from tests.cli.terminal import Terminal

NOWHERE = "01990000-0000-7000-8000-000000000000"


def fail(shell: Shell, queue: str, n: int = 1, message: str = "no such column") -> list[str]:
    """Jobs that end in quarantine."""

    async def work(control: Control) -> list[str]:
        for _ in range(n):
            await control.jobs.submit("sums.add", queue=queue, retries=0)
        session = await control.claims.open_session(worker="w-1")
        jobs = await control.claims.claim([queue], session.id, n)
        await control.attempts.fail([Failure(job, ValueError(message)) for job in jobs])
        await control.claims.close_session(session.id)
        return [job.id for job in jobs]

    return shell.does(work)


def run(shell: Shell, queue: str) -> list[str]:
    """Take what waits in a queue, and keep it."""

    async def work(control: Control) -> list[str]:
        session = await control.claims.open_session(worker="w-2")
        return [job.id for job in await control.claims.claim([queue], session.id, 100)]

    return shell.does(work)


# -- by id -----------------------------------------------------------------------------------------


def test_one_job_is_cancelled_and_the_trail_says_who_and_why(shell: Shell) -> None:
    (job_id,) = shell.submit()

    done = shell.run("jobs", "cancel", job_id, "--reason", "sent by mistake")

    assert (done.exit_code, done.stdout) == (0, f"{job_id} cancelled\n")
    event = shell.json("jobs", "events", job_id)["events"][-1]
    assert (event["to"], event["reason"]) == ("cancelled", "sent by mistake")
    assert event["actor"] == f"{getpass.getuser()}@{socket.gethostname()}"


def test_an_actor_can_be_named(shell: Shell) -> None:
    (job_id,) = shell.submit()

    shell.run("jobs", "cancel", job_id, "--actor", "deploy-bot")

    assert shell.json("jobs", "events", job_id)["events"][-1]["actor"] == "deploy-bot"


def test_what_runs_is_asked_to_stop(shell: Shell) -> None:
    (job_id,) = shell.submit(queue="mail")
    run(shell, "mail")

    assert shell.run("jobs", "cancel", job_id).stdout == f"{job_id} cancelling when its worker has stopped\n"
    assert shell.run("jobs", "cancel", job_id).stdout == f"{job_id} cancelling already\n"


def test_several_jobs_are_each_answered_for(shell: Shell) -> None:
    waiting = shell.submit(n=2)
    (spent,) = fail(shell, "sums")

    done = shell.run("jobs", "retry", *waiting, spent)

    assert done.exit_code == 0
    assert sorted(done.stdout.splitlines()) == sorted(
        [
            f"{waiting[0]} pending already",
            f"{waiting[1]} pending already",
            f"{spent} pending",
            "2 already so, 1 sent back",
        ]
    )


def test_a_refused_job_is_told_with_the_rule_and_the_others_go_on(shell: Shell) -> None:
    first, second = shell.submit(n=2)
    shell.run("jobs", "cancel", first)

    done = shell.run("jobs", "retry", first, second)

    assert done.exit_code == 1
    assert f"job {first} cannot go from cancelled to pending" in done.stdout
    assert done.stdout.count(first) == 1
    assert "1 refused" in done.stdout


def test_json_answers_for_each_job(shell: Shell) -> None:
    first, second = shell.submit(n=2)
    shell.run("jobs", "cancel", first)

    data = shell.json("jobs", "retry", first, second, code=1)

    assert data["action"] == "retry"
    assert data["dry_run"] is False
    assert data["counts"] == {"invalid": 1, "already_applied": 1}
    assert [(job["id"], job["outcome"], job["status"]) for job in data["jobs"]] == [
        (first, "invalid", "cancelled"),
        (second, "already_applied", "pending"),
    ]
    assert "cannot go from cancelled to pending" in data["jobs"][0]["error"]


@pytest.mark.parametrize("command", ["cancel", "retry", "delete"])
def test_an_id_that_leads_nowhere_is_an_error_before_anything_is_done(shell: Shell, command: str) -> None:
    (job_id,) = shell.submit()

    done = shell.run("jobs", command, job_id, NOWHERE)

    assert done.exit_code == 2
    assert f"there is no job {NOWHERE}" in done.stderr
    assert shell.get(job_id).version == 1


def test_the_end_of_an_id_will_do(shell: Shell) -> None:
    (job_id,) = shell.submit()

    assert shell.run("jobs", "cancel", job_id[-12:]).exit_code == 0
    assert shell.get(job_id).status == "cancelled"


def test_a_job_is_deleted_and_its_tombstone_stays(shell: Shell) -> None:
    (job_id,) = shell.submit()

    done = shell.run("jobs", "delete", job_id, "--reason", "personal data")

    assert (done.exit_code, done.stdout) == (0, f"{job_id} deleted\n")
    assert shell.statuses([job_id]) == ["gone"]
    assert shell.json("jobs", "events", job_id)["events"][-1]["reason"] == "personal data"


def test_a_job_that_is_worked_on_is_not_deleted(shell: Shell) -> None:
    (job_id,) = shell.submit(queue="mail")
    run(shell, "mail")

    done = shell.run("jobs", "delete", job_id)

    assert done.exit_code == 1
    assert "it is being worked on; cancel it first" in done.stdout
    assert shell.json("jobs", "delete", job_id, code=1)["counts"] == {"held": 1}


def test_a_job_is_forced_and_the_trail_says_so(shell: Shell) -> None:
    (job_id,) = shell.submit(queue="mail")
    run(shell, "mail")

    done = shell.run("jobs", "force", job_id, "--to", "failed", "--reason", "its host burned down")

    assert (done.exit_code, done.stdout) == (0, f"{job_id} failed\n")
    event = shell.json("jobs", "events", job_id)["events"][-1]
    assert (event["flag"], event["reason"]) == ("forced", "its host burned down")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--to", "failed"), "reason: a forced move needs a reason"),
        (("--to", "faild", "--reason", "x"), "did you mean 'failed'?"),
        (("--reason", "x"), "--to"),
    ],
)
def test_force_wants_to_know_where_to_and_why(shell: Shell, words: tuple[str, ...], complaint: str) -> None:
    (job_id,) = shell.submit()

    done = shell.run("jobs", "force", job_id, *words)

    assert done.exit_code == 2
    assert complaint in done.stderr
    assert shell.get(job_id).version == 1


def test_force_leaves_what_is_final_alone(shell: Shell) -> None:
    first, second = shell.submit(n=2)
    shell.run("jobs", "cancel", first)

    done = shell.json("jobs", "force", first, second, "--to", "failed", "--reason", "x", code=1)

    assert [job["outcome"] for job in done["jobs"]] == ["invalid", "applied"]
    assert "final states never change" in done["jobs"][0]["error"]


# -- by filter -------------------------------------------------------------------------------------


def test_by_filter_nothing_is_done_without_a_yes(shell: Shell) -> None:
    ids = shell.submit(n=3, queue="mail")

    done = shell.run("jobs", "cancel", "--queue", "mail")

    assert done.exit_code == 2
    assert done.stdout.startswith("cancel 3 jobs: 3 pending\n")
    assert all(job_id in done.stdout for job_id in ids)
    assert done.stderr.startswith("error: this would ")
    assert "there is no terminal to ask on; add --yes, or look with --dry-run" in done.stderr
    assert shell.statuses(ids) == ["pending"] * 3


def test_by_filter_with_a_yes_it_is_done_and_counted(shell: Shell) -> None:
    ids = shell.submit(n=12, queue="mail")
    others = shell.submit(n=2, queue="other")

    done = shell.run("jobs", "cancel", "--queue", "mail", "--yes")

    assert done.exit_code == 0
    assert "... and 2 more\n" in done.stdout
    assert done.stdout.endswith("12 cancelled\n")
    assert shell.statuses(ids + others) == ["cancelled"] * 12 + ["pending"] * 2


def test_a_dry_run_shows_and_does_nothing(shell: Shell) -> None:
    ids = shell.submit(n=3, queue="mail")

    by_filter = shell.run("jobs", "delete", "--status", "pending", "--dry-run")
    by_id = shell.run("jobs", "delete", ids[0], "--dry-run")

    assert by_filter.stdout.startswith("delete 3 jobs: 3 pending\n")
    assert by_id.stdout.startswith("delete 1 job: 1 pending\n")
    assert by_id.stdout.endswith("nothing was done (--dry-run)\n")
    data = shell.json("jobs", "delete", "--status", "pending", "--dry-run")
    assert (data["dry_run"], data["total"], data["counts"]) == (True, 3, {"pending": 3})
    assert [(job["id"], job["status"]) for job in data["jobs"]] == [(job_id, "pending") for job_id in ids]
    assert shell.statuses(ids) == ["pending"] * 3


@pytest.mark.parametrize(
    ("command", "left"),
    [("cancel", ["quarantined", "cancelled"]), ("retry", ["pending", "pending"]), ("delete", ["gone", "pending"])],
)
def test_a_filter_without_a_state_means_the_states_the_command_is_for(
    shell: Shell, command: str, left: list[str]
) -> None:
    (spent,) = fail(shell, "mail")
    (waiting,) = shell.submit(queue="mail")

    assert shell.run("jobs", command, "--queue", "mail", "--yes").exit_code == 0
    assert shell.statuses([spent, waiting]) == left


def test_force_by_filter_must_name_the_state(shell: Shell) -> None:
    (job_id,) = shell.submit(queue="mail")

    refused = shell.run("jobs", "force", "--queue", "mail", "--to", "failed", "--reason", "x", "--yes")
    done = shell.run("jobs", "force", "--status", "pending", "--to", "failed", "--reason", "x", "--yes")

    assert refused.exit_code == 2
    assert "give the states: --status running" in refused.stderr
    assert done.exit_code == 0
    assert shell.statuses([job_id]) == ["failed"]


@pytest.mark.parametrize(
    ("words", "hit"),
    [
        (("--text", "refused"), [1, 2]),
        (("--text", "refused", "--queue", "b"), [2]),
        (("--name", "sums.add"), [0, 1, 2]),
        (("--task", "mail.send"), []),
        (("--older-than", "1h"), []),
        (("--newer-than", "1h"), [0, 1, 2]),
    ],
)
def test_filters_narrow_what_is_done(shell: Shell, words: tuple[str, ...], hit: list[int]) -> None:
    ids = [
        *fail(shell, "a"),
        *fail(shell, "a", message="connection refused"),
        *fail(shell, "b", message="connection refused"),
    ]

    assert shell.run("jobs", "retry", *words, "--yes").exit_code == 0
    assert shell.statuses(ids) == ["pending" if n in hit else "quarantined" for n in range(3)]


def test_nothing_that_matches_is_nothing_to_ask_about(shell: Shell) -> None:
    done = shell.run("jobs", "cancel", "--queue", "nowhere")

    assert (done.exit_code, done.stdout) == (0, "no jobs match\n")


def test_a_limit_takes_the_oldest(shell: Shell) -> None:
    ids = shell.submit(n=5, queue="mail")

    done = shell.run("jobs", "cancel", "--queue", "mail", "--limit", "2", "--yes")

    assert done.stdout.startswith("cancel the 2 oldest of 5 jobs: 5 pending\n")
    assert shell.statuses(ids) == ["cancelled"] * 2 + ["pending"] * 3


def test_more_than_a_page_is_done_page_by_page(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 3)
    ids = shell.submit(n=10, queue="mail", tags=["old"])

    data = shell.json("jobs", "cancel", "--tag", "old", "--yes")

    assert data["counts"] == {"applied": 10}
    assert [job["id"] for job in data["jobs"]] == ids


def test_rows_that_stay_as_they_are_do_not_keep_it_going(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    ids = shell.submit(n=7, queue="mail")
    run(shell, "mail")

    done = shell.json("jobs", "delete", "--status", "running", "--yes", code=1)

    assert done["counts"] == {"held": 7}
    assert shell.statuses(ids) == ["running"] * 7


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "which? give ids, or a filter: --status scheduled,pending"),
        ((NOWHERE, "--queue", "mail"), "give ids or filters, not both"),
        (("--status", "pendign"), "did you mean 'pending'?"),
        (("--older-than", "5"), "older-than: '5' is not a duration"),
        (("--older-than", "2h", "--newer-than", "1h"), "no job can be older than 2h and newer than 1h"),
        (("--group", "the big one"), "group: 'the big one' is not a job id"),
    ],
)
def test_what_cannot_be_meant_is_refused(shell: Shell, words: tuple[str, ...], complaint: str) -> None:
    done = shell.run("jobs", "cancel", *words, "--yes")

    assert done.exit_code == 2
    assert complaint in done.stderr
    assert complaint in shell.json("jobs", "cancel", *words, "--yes", code=2)["error"]["message"]


def test_with_json_a_yes_is_wanted_too(shell: Shell) -> None:
    shell.submit(n=2, queue="mail")

    assert "this would cancel 2 jobs" in shell.json("jobs", "cancel", "--queue", "mail", code=2)["error"]["message"]


def test_many_refused_jobs_are_named_and_then_counted(shell: Shell) -> None:
    shell.submit(n=9, queue="mail")
    run(shell, "mail")

    done = shell.run("jobs", "delete", "--status", "running", "--yes")

    assert done.exit_code == 1
    assert done.stdout.count("it is being worked on") == 5
    assert "... and 4 more; --json shows all\n" in done.stdout
    assert done.stdout.endswith("9 being worked on\n")


def test_an_error_in_the_middle_ends_the_json_in_good_form(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from mainstay.errors import StoreFull

    ids = shell.submit(n=4, queue="mail")
    monkeypatch.setattr(bulk, "PAGE", 2)
    cancel_many = Operations.cancel_many

    async def until_full(self: Operations, chosen: list[str], **who: str) -> list[Outcome]:
        if ids[2] in chosen:
            raise StoreFull("no space left")
        return await cancel_many(self, chosen, **who)

    monkeypatch.setattr(Operations, "cancel_many", until_full)

    done = shell.run("jobs", "cancel", "--queue", "mail", "--yes", "--json")

    data = json.loads(done.stdout)
    assert done.exit_code == 2
    assert data["counts"] == {"applied": 2}
    assert data["error"] == {"code": "store_full", "message": "no space left"}


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["person", "program"])
def test_when_it_is_stopped_in_the_middle_it_says_what_was_done(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    ids = shell.submit(n=4, queue="mail")
    monkeypatch.setattr(bulk, "PAGE", 2)
    cancel_many = Operations.cancel_many

    async def until_stopped(self: Operations, chosen: list[str], **who: str) -> list[Outcome]:
        if ids[2] in chosen:
            raise KeyboardInterrupt
        return await cancel_many(self, chosen, **who)

    monkeypatch.setattr(Operations, "cancel_many", until_stopped)

    done = shell.run("jobs", "cancel", *ids, *words)

    assert done.exit_code == 130
    assert shell.statuses(ids) == ["cancelled"] * 2 + ["pending"] * 2
    if words:
        assert json.loads(done.stdout)["counts"] == {"applied": 2}
    else:
        assert done.stdout.endswith("2 cancelled\n")


async def test_a_cursor_that_goes_back_ends_the_walk() -> None:
    class Forgetful:
        async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
            return Page([], "b" if cursor is None else "a")

    store: JobStore = Forgetful()  # type: ignore[assignment]
    with pytest.raises(Exception, match="the store's cursor went back from b to a"):
        async for _ in bulk.walk(store, Query(oldest_first=True)):
            pass


@pytest.mark.parametrize("columns", [50, 80])
def test_the_preview_fits_the_terminal(shell: Shell, columns: int) -> None:
    shell.submit(n=3, queue="mail")

    shown = shell.run("jobs", "cancel", "--queue", "mail", "--dry-run", columns=columns).stdout

    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


# -- asked at a terminal ---------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "code", "status"), [("y\n", 0, "cancelled"), ("n\n", 2, "pending")])
def test_at_a_terminal_the_person_is_asked(shell: Shell, answer: str, code: int, status: str) -> None:
    ids = shell.submit(n=3, queue="mail")

    with Terminal("jobs", "cancel", "--queue", "mail", MAINSTAY_STORE=shell.url) as terminal:
        terminal.wait_for("cancel 3 jobs? [y/N]")
        terminal.answer(answer)
        assert terminal.end() == code

    assert ("3 cancelled" in terminal.shown) is (code == 0)
    assert ("not confirmed; nothing was done" in terminal.shown) is (code != 0)
    assert shell.statuses(ids) == [status] * 3
