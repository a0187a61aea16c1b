"""`mainstay submit`, on a database and with an app."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstay.cli.options import local_actor
from mainstay.control import Completion, Control, Failure, decoded
from mainstay.errors import StoreLocked
from mainstay.model import Job
from mainstay.stores import Query, open_store
from mainstay.task.cli import submission
from mainstay.task.cli.arguments import TypedArguments
from tests.cli.conftest import Shell

APP = """
from datetime import date
from decimal import Decimal

from mainstay import App

app = App({url!r})


@app.before_submit
def trace(draft):
    draft.add_metadata(trace="t-1")


@app.task(name="mail.send", queue="mail", tags=["mail"])
def send(to: str, copies: int = 1, price: Decimal | None = None, day: date | None = None, rows: list[int] = []) -> int:
    return copies


@app.task(name="free")
def free(**rest: float) -> None: ...
"""


LOADS = """
from mainstay import App
from mainstay.load import CustomResult, Workflow, step

app = App({url!r})


@app.before_submit
def trace(draft):
    draft.add_metadata(trace="t-1")


class Visit(Workflow):
    @step()
    async def act(self) -> CustomResult: ...


app.load(Visit, name="visit", queue="load")
"""


@pytest.fixture
def loads(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """The database, and an app with a load test that uses it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "submit_loads.py").write_text(LOADS.format(url=shell.url))
    yield shell
    sys.modules.pop("submit_loads", None)


@pytest.fixture
def shop(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """The database, and in the folder of the commands an app that uses it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "submit_shop.py").write_text(APP.format(url=shell.url))
    yield shell
    sys.modules.pop("submit_shop", None)


WITH_APP = ("--app", "submit_shop:app")


def submitted(shell: Shell, *words: str, typed: str | None = None) -> Job:
    done = shell.run("submit", *words, typed=typed)
    assert done.exit_code == 0, done.output
    return shell.get(done.stdout.strip())


def refused(shell: Shell, *words: str, typed: str | None = None) -> str:
    """What is said of a submit that stores nothing."""
    done = shell.run("submit", *words, typed=typed)
    assert (done.exit_code, done.stdout) == (2, "")
    assert everything(shell) == []
    return done.stderr


def everything(shell: Shell) -> list[Job]:
    return list(shell.does(lambda control: control.store.find(Query(oldest_first=True), limit=1000)).jobs)


def arguments(job: Job) -> Any:
    return decoded(job.payload)


# one job ----------------------------------------------------------------------------------------------


def test_with_an_app_the_job_has_the_options_of_its_task_and_was_seen_by_its_hooks(shop: Shell) -> None:
    done = shop.run("submit", "mail.send", "to=a@b.c", *WITH_APP)

    job = shop.get(done.stdout.strip())
    assert (job.name, job.queue, arguments(job)) == ("mail.send", "mail", {"to": "a@b.c"})
    assert (job.options.tags, job.options.metadata) == (("mail",), {"trace": "t-1"})
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "options", "queue"),
    [
        ((), {}, "load"),
        (("vus=5", "duration=2m"), {"vus": 5, "duration": "2m"}, "load"),
        (("--args", '{"rate": "9/s", "seed": 3}', "--queue", "slow"), {"rate": "9/s", "seed": 3}, "slow"),
        (("params.user=42", "params.day=may"), {"params": {"user": "42", "day": "may"}}, "load"),
        (("workflows=Visit", "thresholds=p95 < 1s"), {"workflows": ["Visit"], "thresholds": ["p95 < 1s"]}, "load"),
    ],
)
def test_a_load_test_of_an_app_is_submitted_by_its_name(
    loads: Shell, words: tuple[str, ...], options: dict[str, Any], queue: str
) -> None:
    done = loads.run("submit", "visit", *words, "--app", "submit_loads:app")

    assert done.exit_code == 0, done.output
    job = loads.get(done.stdout.strip())
    assert (job.kind, job.name, job.queue, job.options.retry.retries) == ("load", "visit", queue, 0)
    assert decoded(job.payload) == options
    assert job.options.metadata == {"trace": "t-1"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("visit", "vuss=5"), "visit has no argument 'vuss'; did you mean 'vus'?"),
        (("visit", "vus=many"), "visit.vus: "),
        (("visit", "vus=5", "rate=9/s"), "vus: users and a rate are both given"),
        (("visit", "duration=10x"), "10x"),
        (("vist",), "did you mean 'visit'?"),
    ],
)
def test_a_run_of_a_load_test_that_cannot_be_is_refused(loads: Shell, words: tuple[str, ...], says: str) -> None:
    done = loads.run("submit", *words, "--app", "submit_loads:app", columns=None)

    assert done.exit_code == 2, done.output
    assert says in done.stderr


def test_the_audit_trail_says_who_sat_there(shop: Shell) -> None:
    for words in (WITH_APP, ()):
        job = submitted(shop, "mail.send", "to=ann", *words)
        (event,) = shop.does(lambda control, job=job: control.jobs.events(job.id))
        assert event.actor == local_actor()


@pytest.mark.parametrize(
    ("word", "stored"),
    [
        ("to=42", {"to": "42"}),
        ("to=null", {"to": "null"}),
        ('to="quoted"', {"to": "quoted"}),
        ("to=a=b", {"to": "a=b"}),
        ("to=", {"to": ""}),
        ("copies=3", {"to": "x", "copies": 3}),
        ("price=1.10", {"to": "x", "price": "1.10"}),
        ("price=null", {"to": "x", "price": None}),
        ("day=2030-01-31", {"to": "x", "day": "2030-01-31"}),
        ("rows=[1, 2]", {"to": "x", "rows": [1, 2]}),
    ],
)
def test_a_typed_value_becomes_what_the_task_declares(shop: Shell, word: str, stored: Any) -> None:
    words = (word,) if word.startswith("to=") else ("to=x", word)

    assert arguments(submitted(shop, "mail.send", *words, *WITH_APP)) == stored


def test_any_name_goes_where_the_task_takes_any(shop: Shell) -> None:
    assert arguments(submitted(shop, "free", "x=1", "y=2.5", *WITH_APP)) == {"rest": {"x": 1.0, "y": 2.5}}
    assert "free.x: expected float, got str" in shop.run("submit", "free", "x=one", *WITH_APP).stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("copies=many", "to=x"), "mail.send.copies: expected int, got str"),
        (("copies=1.5", "to=x"), "mail.send.copies: expected int, got float"),
        (("rows=[1, true]", "to=x"), "mail.send.rows[1]: expected int, got bool"),
        (("--args", '{"to": 7}'), "mail.send.to: expected str, got int"),
        (("copies=1",), "mail.send: missing a required argument: 'to'; it takes (to, copies=..."),
        (("too=x",), "error: mail.send has no argument 'too'; did you mean 'to'?"),
        (("--args", '{"copeis": 1}'), "error: mail.send has no argument 'copeis'; did you mean 'copies'?"),
        (("to=x", "cc=y"), "mail.send has no argument 'cc'; it takes to, copies, price, day, rows"),
        (("to=x", "--timeout", "5"), "timeout: '5' is not a duration"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_field(
    shop: Shell, words: tuple[str, ...], complaint: str
) -> None:
    assert complaint in refused(shop, "mail.send", *words, *WITH_APP)


@pytest.mark.parametrize(("name", "meant"), [("mail.sedn", "mail.send"), ("send", "mail.send")])
def test_a_task_that_is_misspelt_is_refused_with_what_was_meant(shop: Shell, name: str, meant: str) -> None:
    said = refused(shop, name, "to=x", *WITH_APP)

    assert f"there is no task {name!r} in this program; did you mean {meant!r}?" in said


def test_without_an_app_whatever_is_given_is_stored_and_it_is_said(shop: Shell) -> None:
    done = shop.run("submit", "mail.sedn", "n=3", "to=ann", "flag=true", "rows=[1, 2]")

    job = shop.get(done.stdout.strip())
    assert arguments(job) == {"n": 3, "to": "ann", "flag": True, "rows": [1, 2]}
    assert (job.name, job.queue) == ("mail.sedn", "default")
    assert "nothing was validated" in done.stderr
    assert arguments(submitted(shop, "nothing")) == {}


def test_an_app_checks_also_what_goes_to_another_store(shop: Shell, tmp_path: Path) -> None:
    other = Shell(tmp_path / "other.db")
    other.submit(n=0)

    job = submitted(other, "mail.send", "to=42", "--store", other.url, *WITH_APP)

    assert (arguments(job), job.queue) == ({"to": "42"}, "mail")
    assert everything(shop) == []


def test_the_store_of_an_app_is_made_if_it_is_not_there_and_no_other(shop: Shell, tmp_path: Path) -> None:
    fresh = Shell(tmp_path / "fresh.db")
    (tmp_path / "submit_shop.py").write_text(APP.format(url=fresh.url))

    assert "there is no database" in shop.run("submit", "mail.send", "to=x", "--store", fresh.url).stderr
    assert not fresh.path.exists()
    assert submitted(fresh, "mail.send", "to=x", *WITH_APP).queue == "mail"


def test_a_job_that_would_be_gone_at_once_is_refused(shop: Shell) -> None:
    assert "memory: ends with this command" in refused(shop, "mail.send", "--store", "memory:")


# where arguments come from ----------------------------------------------------------------------------


def test_arguments_come_as_json_from_the_line_a_file_or_stdin(shop: Shell, tmp_path: Path) -> None:
    text = '{"to": "ann", "price": 1.10}'
    (tmp_path / "args.json").write_text(text)

    for words, typed in (
        (("--args", text), None),
        (("--args-file", str(tmp_path / "args.json")), None),
        (("--args-file", "-"), text),
        (("-",), text),
    ):
        job = submitted(shop, "mail.send", *words, *WITH_APP, typed=typed)
        assert arguments(job) == {"to": "ann", "price": "1.10"}


def test_what_is_typed_as_a_word_goes_before_the_json(shop: Shell) -> None:
    job = submitted(shop, "mail.send", "to=ben", "--args", '{"to": "ann", "copies": 2}', *WITH_APP)

    assert arguments(job) == {"to": "ben", "copies": 2}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("to",), "'to' is not of the form key=value"),
        (("=x",), "'=x' is not of the form key=value"),
        (("to=a", "to=b"), "arguments.to: is given twice"),
        (("--args", "{"), "args: is not JSON"),
        (("--args", "[1]"), "args: must be a JSON object of arguments by name"),
        (("--args-file", "nowhere.json"), "args-file: 'nowhere.json' cannot be read: No such file"),
        (("--args", "{}", "--args-file", "x"), "give one of args and args-file, not both"),
        (("--run-at", "soon"), "run_at: 'soon' is not a time"),
        (("--run-at", "2030-01-31T08:00"), "has no time zone; write 2030-01-31T08:00Z"),
        (("--queue-deadline", "soon"), "queue_deadline: 'soon' is not a duration"),
        (("--metadata", "x"), "metadata: 'x' is not of the form key=value"),
        (("--unique", "--unique-key", "k"), "give --unique (by the arguments) or --unique-key, not both"),
        (("--on-clash", "return"), "on_clash: needs `unique`"),
        (("--on-clash", "shout", "--unique"), "on_clash: 'shout' is not one of return, refuse, replace"),
        (("--delay", "5m", "--run-at", "2030-01-31T08:00Z"), "give either delay or run_at, not both"),
        (("--for", "5"), "for: '5' is not a duration"),
    ],
)
def test_what_cannot_be_meant_is_refused(shop: Shell, words: tuple[str, ...], complaint: str) -> None:
    assert complaint in refused(shop, "mail.send", *words)


# options ----------------------------------------------------------------------------------------------


def test_every_option_of_a_submit_has_a_flag(shop: Shell) -> None:
    words = (
        *("--queue", "q", "--priority", "-5", "--run-at", "2090-01-31T08:00+01:00", "--retries", "7"),
        *("--timeout", "off", "--queue-deadline", "2h", "--stall-timeout", "9s", "--key", "k-1"),
        *("--unique-key", "u-1", "--on-clash", "refuse", "--concurrency-key", "c-1", "--tag", "a", "--tag", "b"),
        *("--metadata", "x=1", "--metadata", "y=a=b", "--keep", "3d"),
    )
    job = submitted(shop, "mail.send", "to=x", *words, *WITH_APP)

    options = job.options
    assert (job.status, job.due_ms) == ("scheduled", 3_789_529_200_000)
    assert (job.queue, job.priority, job.key, job.unique_key) == ("q", -5, "k-1", "mail.send/u-1")
    assert (job.concurrency_key, options.retry.retries, options.run_timeout_s) == ("c-1", 7, None)
    assert (options.stall_timeout_s, options.keep_s, options.tags) == (9, 259_200, ("mail", "a", "b"))
    assert options.start_by_ms == job.due_ms + 7_200_000
    assert options.metadata == {"trace": "t-1", "x": "1", "y": "a=b"}


def test_a_durability_that_the_store_cannot_give_is_refused(shop: Shell) -> None:
    assert "has no replicas; it can give local" in refused(shop, "x", "--durability", "replicated")
    assert "'remote' is not one of local, replicated, applied" in refused(shop, "x", "--durability", "remote")
    assert submitted(shop, "x", "--durability", "local").status == "pending"


def test_a_queue_deadline_may_be_a_point_in_time(shop: Shell) -> None:
    assert submitted(shop, "x", "--queue-deadline", "2090-01-31T08:00Z").options.start_by_ms == 3_789_532_800_000


def test_a_delayed_job_is_scheduled(shop: Shell) -> None:
    assert submitted(shop, "x", "--delay", "5m").status == "scheduled"


def test_a_job_waits_for_others_by_a_part_of_their_ids(shop: Shell) -> None:
    first, second = shop.submit(n=2)

    job = submitted(shop, "x", "--after", first, "--after", second[-12:], "--after-failed", "fail")
    assert (job.status, job.reason, job.options.after_failed) == ("scheduled", "waits for 2 jobs", "fail")
    settled = submitted(shop, "x", "--after", first, "--after-when", "settled")
    assert settled.options.after_when == "settled"


@pytest.mark.parametrize("words", [("--key", "k-1"), ("--unique",), ("--unique-key", "u")])
@pytest.mark.parametrize("app", [(), WITH_APP])
def test_a_job_that_was_there_before_is_given_and_it_is_said(
    shop: Shell, words: tuple[str, ...], app: tuple[str, ...]
) -> None:
    first = submitted(shop, "mail.send", "to=x", *words, *app)
    again = shop.run("submit", "mail.send", "to=x", *words, *app)

    assert again.stdout.strip() == first.id
    assert "was submitted before" in again.stderr
    data = shop.json("submit", "mail.send", "to=x", *words, *app)
    assert data == {"id": first.id, "created": False, "validated": bool(app)}


def test_a_clash_can_be_refused(shop: Shell) -> None:
    submitted(shop, "x", "--unique")

    done = shop.run("submit", "x", "--unique", "--on-clash", "refuse")

    assert (done.exit_code, done.stdout) == (2, "")
    assert "x/" in done.stderr


def test_with_json_an_error_is_json(shop: Shell) -> None:
    data = shop.json("submit", "mail.sedn", *WITH_APP, code=2)

    assert data["error"]["code"] == "unknown_task"


# waiting ----------------------------------------------------------------------------------------------


class Worker:
    """Ends the next job that comes, from a thread, as a worker beside the command would."""

    def __init__(self, shell: Shell, error: Exception | None = None) -> None:
        self._shell = shell
        self._error = error
        self._ready = threading.Event()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join(60)

    async def _run(self) -> None:
        store = await open_store(self._shell.url)
        control = Control(store)
        session = await control.claims.open_session(worker="w-1")
        async with store.wake(["queue:default", "queue:mail"]) as wake:
            self._ready.set()
            while not (jobs := await control.claims.claim(["default", "mail"], session.id, 1)):
                await wake.wait(60)
        if self._error is None:
            await control.attempts.complete([Completion(job, result=7) for job in jobs])
        else:
            await control.attempts.fail([Failure(job, self._error) for job in jobs])
        await asyncio.to_thread(self._leave.wait, 60)  # alive for as long as the command looks
        await control.claims.close_session(session.id)
        await store.close()


@pytest.mark.parametrize("app", [(), WITH_APP])
def test_wait_prints_the_result_and_says_the_id_beside_it(shop: Shell, app: tuple[str, ...]) -> None:
    with Worker(shop):
        done = shop.run("submit", "mail.send", "to=x", "--wait", *app)

    assert (done.exit_code, done.stdout) == (0, "7\n")
    assert everything(shop)[0].id in done.stderr
    assert "no worker is alive" not in done.stderr


def test_wait_ends_with_one_when_the_job_does_not_succeed(shop: Shell) -> None:
    with Worker(shop, ValueError("no such address")):
        done = shop.run("submit", "mail.send", "to=x", "--retries", "0", "--wait", *WITH_APP)

    (job,) = everything(shop)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"job {job.id} ended quarantined" in done.stderr
    assert "ValueError: no such address" in done.stderr
    assert f"mainstay jobs explain {job.id} --app submit_shop:app" in done.stderr


def test_wait_with_json_says_all_at_once(shop: Shell) -> None:
    with Worker(shop):
        data = shop.json("submit", "x", "--wait")
    assert (data["status"], data["result"], data["created"], data["failure"]) == ("succeeded", 7, True, None)

    with Worker(shop, ValueError("no")):
        data = shop.json("submit", "x", "--retries", "0", "--wait", code=1)
    assert (data["status"], data["result"], data["failure"]["type"]) == ("quarantined", None, "ValueError")


def test_a_wait_that_is_over_first_leaves_the_job_and_ends_with_two(shop: Shell) -> None:
    done = shop.run("submit", "x", "--for", "10ms")

    (job,) = everything(shop)
    assert done.exit_code == 2
    assert "no worker is alive now; the job waits for one" in done.stderr
    assert f"job {job.id} is still pending after 0.01s; it continues" in done.stderr
    data = shop.json("submit", "x", "--wait", "--for", "10ms", code=2)
    assert shop.get(data["id"]).status == "pending"
    assert data["error"]["code"] == "wait_timeout"


# many -------------------------------------------------------------------------------------------------


def rows(n: int) -> str:
    return "".join(json.dumps({"to": f"user-{i}"}) + "\n" for i in range(1, n + 1))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "CHUNK", 3)


@pytest.mark.parametrize("app", [(), WITH_APP])
def test_each_line_is_a_job(shop: Shell, tmp_path: Path, small_chunks: None, app: tuple[str, ...]) -> None:
    (tmp_path / "rows.jsonl").write_text("\n" + rows(7))

    done = shop.run("submit", "mail.send", "copies=2", "--jsonl", "rows.jsonl", "--tag", "june", *app)

    assert (done.exit_code, done.stdout) == (0, "7 jobs submitted\n")
    assert [arguments(job) for job in everything(shop)] == [{"to": f"user-{i}", "copies": 2} for i in range(1, 8)]
    assert {job.options.tags[-1] for job in everything(shop)} == {"june"}


def test_lines_come_from_stdin_too(shop: Shell) -> None:
    done = shop.run("submit", "mail.send", "--jsonl", "-", *WITH_APP, "--json", typed=rows(2))

    data = json.loads(done.stdout)
    assert (data["stored"], data["created"], data["next_line"], data["validated"]) == (2, 2, 3, True)
    assert [job["id"] for job in data["jobs"]] == [job.id for job in everything(shop)]


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ('{"to": 5}', "line 5: mail.send.to: expected str, got int"),
        ("{to}", "line 5: the arguments: is not JSON"),
        ("7", "line 5: the arguments: must be a JSON object"),
        (json.dumps({"to": "x" * 1_100_000}), "line 5: payload: "),
    ],
)
def test_a_bad_line_stops_at_its_chunk_and_says_how_to_go_on(
    shop: Shell, tmp_path: Path, small_chunks: None, bad: str, complaint: str
) -> None:
    good = rows(7).splitlines()
    (tmp_path / "rows.jsonl").write_text("\n".join([*good[:4], bad, *good[5:]]))

    done = shop.run("submit", "mail.send", "--jsonl", "rows.jsonl", *WITH_APP)

    assert (done.exit_code, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "3 jobs are stored, from the lines before line 4; continue with --from-line 4" in done.stderr
    assert len(everything(shop)) == 3

    (tmp_path / "rows.jsonl").write_text("\n".join(good))
    rest = shop.run("submit", "mail.send", "--jsonl", "rows.jsonl", "--from-line", "4", *WITH_APP)
    assert rest.stdout == "4 jobs submitted\n"
    assert [arguments(job)["to"] for job in everything(shop)] == [f"user-{i}" for i in range(1, 8)]


def test_programs_are_told_how_far_it_got(shop: Shell, small_chunks: None) -> None:
    done = shop.run("submit", "mail.send", "--jsonl", "-", "--json", *WITH_APP, typed=rows(4) + "nonsense\n")

    data = json.loads(done.stdout)
    assert done.exit_code == 2
    assert (data["stored"], data["next_line"], data["error"]["code"]) == (3, 4, "invalid_input")


def test_with_a_key_the_same_file_can_be_submitted_again(shop: Shell, small_chunks: None) -> None:
    words = ("submit", "mail.send", "--jsonl", "-", "--key", "june", *WITH_APP)
    shop.run(*words, typed=rows(4))

    again = shop.run(*words, typed=rows(6))

    assert again.stdout == "6 jobs submitted (4 submitted before)\n"
    assert [job.key for job in everything(shop)] == [f"june:{i}" for i in range(1, 7)]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--wait",), "wait: waits for one job, but --jsonl submits many"),
        (("--args", '{"a": 1}'), "jsonl: each line has its own arguments"),
        (("--unique", "--on-clash", "replace"), "'replace' works for one job at a time"),
    ],
)
def test_what_is_for_one_job_is_refused_for_many(shop: Shell, words: tuple[str, ...], complaint: str) -> None:
    assert complaint in refused(shop, "x", "--jsonl", "-", *words, typed=rows(1))


def test_a_file_that_is_not_there_is_told(shop: Shell) -> None:
    assert "jsonl: 'nowhere.jsonl' cannot be read: No such file" in refused(shop, "x", "--jsonl", "nowhere.jsonl")


async def test_a_chunk_under_way_when_somebody_stops_it_is_counted(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(shop.url)
    under_way, stored = asyncio.Event(), submission.Stored()

    control = Control(store)
    submit_many = control.jobs.submit_many

    async def announced(requests: Any) -> Any:
        under_way.set()
        return await submit_many(requests)

    monkeypatch.setattr(control.jobs, "submit_many", announced)
    maker = submission.Unchecked(control, "x", {})
    lines = submission.lines_of([b"{}\n", b"{}\n"], start=1, on_read=lambda n: None)
    running = asyncio.ensure_future(submission.submit_lines(control, maker, lines, TypedArguments(), stored, key=None))
    await under_way.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (len(stored.jobs), stored.next_line) == (2, 3)
    assert len((await control.store.find(Query())).jobs) == 2
    await store.close()


def test_ctrl_c_says_what_is_stored_and_how_to_go_on(shop: Shell) -> None:
    words = [sys.executable, "-m", "mainstay", "submit", "x", "--jsonl", "-", "--store", shop.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as command:
        assert command.stdin is not None
        command.stdin.write("{}\n" * 1500)
        command.stdin.flush()
        while len(everything(shop)) < submission.CHUNK:
            assert command.poll() is None
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=60)

    n = shop.json("stats")["queues"]["default"]["counts"]["pending"]
    assert command.returncode == 130
    assert f"stopped: {n:,} jobs are stored, from the lines before line {n + 1}" in said
    assert f"--from-line {n + 1}" in said


async def test_a_store_that_fails_in_between_says_how_far_it_got(
    shop: Shell, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(shop.url)
    stored = submission.Stored()

    control = Control(store)
    submit_many = control.jobs.submit_many

    async def locked_after_one(requests: Any) -> Any:
        if stored.jobs:
            raise StoreLocked("another process keeps it locked")
        return await submit_many(requests)

    monkeypatch.setattr(control.jobs, "submit_many", locked_after_one)
    maker = submission.Unchecked(control, "x", {})
    lines = submission.lines_of([b"{}\n"] * 7, start=1, on_read=lambda n: None)

    with pytest.raises(StoreLocked, match="(?s)another process keeps it locked.+continue with --from-line 4"):
        await submission.submit_lines(control, maker, lines, TypedArguments(), stored, key=None)
    await store.close()
