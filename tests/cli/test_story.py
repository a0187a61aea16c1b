"""`jobs events` and `jobs explain`."""

from __future__ import annotations

import re

import pytest

from mainstay.cli.story import ClusterWhere
from mainstay.control import Completion, Control, Failure
from tests.cli.conftest import Shell


@pytest.fixture
def job_id(shell: Shell) -> str:
    """One that failed, was given back, and is in quarantine now."""

    async def work(control: Control) -> str:
        made = await control.jobs.submit("sums.add", queue="sums", retries=0)
        session = await control.claims.open_session(worker="w-1")
        (job,) = await control.claims.claim(["sums"], session.id, 1)
        await control.attempts.release([job], reason="drained")
        (job,) = await control.claims.claim(["sums"], session.id, 1)
        await control.attempts.fail([Failure(job, ValueError("no such column \x1b[2J"))])
        return made.id

    return shell.does(work)


def test_events_are_listed_with_who_and_why(shell: Shell, job_id: str) -> None:
    shown = [line.split() for line in shell.run("jobs", "events", job_id).stdout.splitlines()]

    assert shown[0][0] == "1"
    assert shown[2][2:] == ["running", "→", "pending", "w-1", "drained"]
    assert [line[0] for line in shown] == ["1", "2", "3", "4", "5", "6"]


def test_events_after_a_number_and_no_more_than_asked_for(shell: Shell, job_id: str) -> None:
    data = shell.json("jobs", "events", job_id, "--after", "2", "--limit", "2")

    assert [event["seq"] for event in data["events"]] == [3, 4]
    assert (data["id"], data["after"]) == (job_id, 4)
    assert data["events"][0]["reason"] == "drained"
    assert "more: add --after 4" in shell.run("jobs", "events", job_id, "--after", "2", "--limit", "2").stdout
    assert shell.json("jobs", "events", job_id, "--after", "2")["after"] is None


def test_after_the_last_event_there_is_none(shell: Shell, job_id: str) -> None:
    assert shell.run("jobs", "events", job_id, "--after", "99").stdout == "no events after 99\n"


def test_explain_prints_the_sentences_and_what_to_do(shell: Shell, job_id: str) -> None:
    shown = shell.run("jobs", "explain", job_id).stdout

    words = " ".join(shown.split())
    assert words.startswith(f"sums.add quarantined {job_id} now It has been quarantined since ")
    assert "held it for" in words
    assert "gave it back: drained; no failure was counted." in words
    assert f"\n    mainstay jobs retry {job_id}\n" in shown


def test_explain_as_json_says_the_same(shell: Shell, job_id: str) -> None:
    data = shell.json("jobs", "explain", job_id)
    shown = " ".join(shell.run("jobs", "explain", job_id, columns=None).stdout.split())

    assert (data["id"], data["status"]) == (job_id, "quarantined")
    assert [section["title"] for section in data["sections"]] == ["now", "history", "next"]
    for section in data["sections"]:
        for sentence in section["sentences"][1:]:
            assert sentence.replace("\x1b", "\\x1b") in shown
    assert [advice["command"] for advice in data["advice"]] == [
        f"mainstay jobs show {job_id}",
        f"mainstay jobs retry {job_id}",
        f"mainstay jobs cancel {job_id}",
    ]


def test_a_command_to_try_names_the_store_that_was_typed(shell: Shell, job_id: str) -> None:
    done = shell.run("jobs", "explain", job_id, "--store", shell.url, MAINSTAY_STORE="")

    assert f"mainstay jobs retry {job_id} --store {shell.url}\n" in done.stdout


def test_a_worker_to_start_is_that_of_the_app_where_one_is_named(shell: Shell) -> None:
    (job_id,) = shell.submit(queue="mail")

    by_store = shell.json("jobs", "explain", job_id, "--store", shell.url)["advice"]
    by_app = shell.json("jobs", "explain", job_id, "--store", shell.url, "--app", "shop:app")["advice"]

    assert by_store[0]["command"] == "mainstay worker MODULE:APP --queues mail"
    assert by_app[0]["command"] == "mainstay worker shop:app --queues mail"


def test_commands_to_try_exist(shell: Shell, job_id: str) -> None:
    for advice in shell.json("jobs", "explain", job_id)["advice"]:
        words = advice["command"].split()[1:]
        assert shell.run(*words[:2], "--help").exit_code == 0


def test_stored_text_cannot_play_with_the_terminal(shell: Shell, job_id: str) -> None:
    assert "\x1b" not in shell.run("jobs", "explain", job_id).stdout + shell.run("jobs", "events", job_id).stdout


@pytest.mark.parametrize("columns", [40, 80])
def test_sentences_fit_the_terminal_and_commands_stay_whole(shell: Shell, job_id: str, columns: int) -> None:
    for words in (("explain",), ("events",)):
        lines = shell.run("jobs", *words, job_id, columns=columns).stdout.splitlines()
        long = [line for line in lines if len(line.rstrip()) > columns and not line.startswith("    mainstay")]
        assert long == []
        assert not [line for line in lines if re.search(r"\bjobs$", line)]


def test_explain_follows_a_job_through_its_life(shell: Shell) -> None:
    async def submit(control: Control) -> str:
        return (await control.jobs.submit("mail.send", queue="mail", delay="1h")).id

    job_id = shell.does(submit)
    assert "It waits until it is due" in shell.run("jobs", "explain", job_id).stdout

    shell.does(lambda control: control.operations.retry(job_id, actor="bob"))
    shell.does(lambda control: control.operations.pause("mail", reason="storm"))
    paused = " ".join(shell.run("jobs", "explain", job_id).stdout.split())
    assert re.search(r"Queue mail has been paused by ann since [^.]*: storm\.", paused)

    async def finish(control: Control) -> None:
        await control.operations.resume("mail")
        session = await control.claims.open_session(worker="w-2")
        await control.attempts.complete(
            [Completion(job) for job in await control.claims.claim(["mail"], session.id, 1)]
        )

    shell.does(finish)
    shown = " ".join(shell.run("jobs", "explain", job_id).stdout.split())
    assert "Claim 1: w-2 took it" in shown
    assert "Nothing: it never changes again." in shown


@pytest.mark.parametrize("command", ["events", "explain"])
def test_a_job_that_is_not_there_is_an_error(shell: Shell, command: str) -> None:
    done = shell.run("jobs", command, "01990000-0000-7000-8000-000000000000")

    assert done.exit_code == 2
    assert "there is no job 01990000" in done.stderr
    assert shell.json("jobs", command, "01990000-0000-7000-8000-000000000000", code=2)["error"]["code"] == (
        "job_not_found"
    )


def test_of_a_deleted_job_the_tombstone_is_left(shell: Shell, job_id: str) -> None:
    shell.does(lambda control: control.operations.delete(job_id, actor="bob", reason="by request"))

    assert "[tombstone]" in shell.run("jobs", "events", job_id).stdout
    assert shell.run("jobs", "explain", job_id).stdout.startswith("sums.add deleted\n")


def test_explain_names_a_cluster_that_cannot_be_found(shell: Shell, job_id: str) -> None:
    done = shell.run("jobs", "explain", job_id, "--cluster", "nowhere")
    assert done.exit_code == 2
    assert "nowhere is neither the URL of a cluster nor the folder of a running one" in done.stderr


def test_the_cluster_names_the_store_unless_another_one_is_typed() -> None:
    url = "nats://operator:4nKx7PzQ2vLw9RtY@127.0.0.1:4222/shop"
    through = "remote+nats://operator:4nKx7PzQ2vLw9RtY@127.0.0.1:4222/?cluster=shop&environment=default&role=operator&name=local"
    assert ClusterWhere(cluster=url).target().url == through
    typed = ClusterWhere(cluster=url, store="sqlite:///a.db", typed=frozenset({"cluster"}))
    assert typed.target().url == through
    assert typed.again("mainstay jobs watch x") == "mainstay jobs watch x --store URL"
    assert typed.again("mainstay cluster nodes") == "mainstay cluster nodes"
    both = ClusterWhere(cluster=url, store="sqlite:///a.db", typed=frozenset({"cluster", "store"}))
    assert both.target().url == "sqlite:///a.db"
    # of two variables of the environment the store is the one that every command knows
    assert ClusterWhere(cluster=url, store="sqlite:///a.db").target().url == "sqlite:///a.db"
