"""`mainstay load run`, with real generators against a real target."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest

from mainstay.errors import JobNotFound
from mainstay.load.cli.execution import TOGETHER_S, Interrupts
from mainstay.load.stats.model import Header, Summary, Trust
from tests.cli.conftest import Shell
from tests.cli.terminal import Terminal

MODULE = (sys.executable, "-m", "mainstay")

TEST = """
from mainstay.load import URL, Check, HTTPResponse, Workflow, step


class Visit(Workflow):
    vus = 4
    duration = "1s"
    thresholds = ["error rate < 1%"]

    @step()
    async def browse(self, url: URL = "/") -> HTTPResponse:
        return await self.client.http.get(url)

    @step("browse")
    async def fine(self, browse: HTTPResponse) -> Check:
        return Check(browse.status == 200, "the answer is fine")
"""


UNTIL = """
import asyncio
import os


async def until(file: str) -> None:
    while not os.path.exists(file):
        await asyncio.sleep(0.01)
"""

#: a line of progress: the users are there, however late the machine lets them begin
ALL_USERS = re.compile(r"^ +\d+s  running  4 users  ", re.MULTILINE)


class Place:
    """A folder with a load test in it, and a target."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "visit.py").write_text(TEST, encoding="utf-8")
        self.environ = {key: value for key, value in os.environ.items() if not key.startswith("MAINSTAY_")}
        self.words = ("load", "run", "visit.py", "--base-url", url, "--processes", "1")

    def start(self, *words: str, **how: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*MODULE, *self.words, *words], cwd=self.folder, env=self.environ, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how,
        )  # fmt: skip

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def hold_until(self, file: Path) -> None:
        """Have each user stop after its first request until this file is present."""
        text = TEST.replace("        return Check(", f"        await until({str(file)!r})\n        return Check(")
        (self.folder / "visit.py").write_text(UNTIL + text, encoding="utf-8")

    def counts(self) -> Any:
        with urllib.request.urlopen(f"{self.url}/stats") as answer:
            return json.load(answer)

    def forget(self) -> None:
        urllib.request.urlopen(f"{self.url}/stats/reset").close()


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    process = subprocess.Popen([*MODULE, "load", "target", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["url"]
    process.terminate()
    process.communicate()


@pytest.fixture
def place(tmp_path: Path, served: str) -> Place:
    place = Place(tmp_path, served)
    place.forget()
    return place


def read_until(stream: IO[str] | None, shown: re.Pattern[str] | str) -> str:
    """What the command prints on stdout or stderr, up to the line that this is in."""
    assert stream is not None
    text = ""
    while not re.search(shown, text):
        line = stream.readline()
        assert line, f"{shown!r} never came, but\n{text}"
        text += line
    return text


def read_to_end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What is left on stdout and stderr. `communicate` leaves out lines that came with one that was read before."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        return process.stdout.read(), process.stderr.read()


@pytest.mark.slow
def test_a_run_is_told_in_lines_reported_and_written_and_its_counts_are_those_of_the_target(
    place: Place, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ("--html", "run.html", "--json", "run.json", "--junit", "run.xml", "--ndjson", "run.ndjson")
    go = place.folder / "go"
    place.hold_until(go)
    words = ("--duration", "5m", "--iterations", "40", *files, "--hdr", "run.hlog", "--otlp", "run.otlp")
    process = place.start(*words)
    begins = read_until(process.stdout, ALL_USERS)
    go.touch()
    rest, noise = read_to_end(process)
    out = begins + rest

    assert process.returncode == 0, noise
    assert "visit begins, 5m, 1 process; Visit: " in out
    assert "visit passed" in out
    assert "written: ndjson run.ndjson" in out
    assert "\x1b" not in out
    told = json.loads((place.folder / "run.json").read_text(encoding="utf-8"))
    assert told["requests"] == place.counts()["paths"]["/"]["completed"] > 0
    assert "<title>visit" in (place.folder / "run.html").read_text(encoding="utf-8")
    assert ET.parse(place.folder / "run.xml").getroot().tag == "testsuites"
    assert json.loads((place.folder / "run.ndjson").read_text(encoding="utf-8").splitlines()[0])["type"] == "run"
    assert "\nTag=Visit.browse,0.000," in (place.folder / "run.hlog").read_text(encoding="utf-8")
    (metrics,) = json.loads((place.folder / "run.otlp").read_bytes())["resourceMetrics"][0]["scopeMetrics"]
    measured = [int(one["count"]) for one in metrics["metrics"][0]["exponentialHistogram"]["dataPoints"]]
    assert sum(measured) == told["requests"]
    # by the job, which is in a store of this folder unless one is named
    monkeypatch.chdir(place.folder)
    again = shell.run("load", "report", told["header"]["run"][-12:], "--json", "-", MAINSTAY_STORE="")
    assert json.loads(again.stdout)["requests"] == told["requests"]
    again = shell.run("load", "report", "run.ndjson", "--hdr", "again.hlog", "--otlp", "again.otlp", MAINSTAY_STORE="")
    assert "again.hlog is written" in again.stdout
    assert json.loads((place.folder / "again.otlp").read_bytes())["resourceMetrics"]
    same = shell.run("load", "compare", "run.json", "run.ndjson", MAINSTAY_STORE="")
    trusted = told["trust"]["ok"]
    assert (same.exit_code, "not comparable" in same.stdout) == (0 if trusted else 97, not trusted)


@pytest.mark.slow
def test_a_threshold_that_fails_ends_with_99_and_json_on_stdout_is_all_there_is(place: Place) -> None:
    done = place.run("--threshold", "p50 < 1us", "--iterations", "20", "--json", "-")

    told = json.loads(done.stdout)
    assert (done.returncode, told["verdict"], told["requests"]) == (99, "failed", 20)
    assert (told["header"]["name"], [each["passed"] for each in told["thresholds"]]) == ("visit", [True, False])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("html", "<!doctype html>"),
        ("csv", "workflow,step,requests"),
        ("junit", "<?xml"),
        ("ndjson", '{"type":"run"'),
    ],
)
def test_any_report_goes_to_stdout_and_is_all_there_is(place: Place, kind: str, begins: str) -> None:
    done = place.run("--iterations", "4", f"--{kind}", "-", "--json", "run.json")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(begins)
    assert "visit begins" not in done.stdout
    assert sorted(path.name for path in place.folder.glob("*") if path.is_file()) == ["run.json", "visit.py"]


@pytest.mark.slow
@pytest.mark.parametrize("ui", ["ci", "none"])
def test_what_steps_print_is_shown_on_stderr(place: Place, ui: str) -> None:
    file = place.folder / "visit.py"
    file.write_text(TEST.replace("        return await", "        print('user', self.vu.id)\n        return await"))

    done = place.run("--iterations", "4", "--ui", ui)

    assert sorted(done.stderr.splitlines()) == [f"[0] user {number}" for number in range(4)]
    assert "user 0" not in done.stdout


@pytest.mark.slow
def test_ctrl_c_ends_a_run_with_its_report_and_loses_no_request(place: Place) -> None:
    process = place.start("--duration", "10m")
    read_until(process.stdout, ALL_USERS)

    process.send_signal(signal.SIGINT)
    out, _ = read_to_end(process)

    assert process.returncode == 130
    assert "ending: waiting for iterations in flight" in out
    counts = place.counts()["paths"]["/"]
    assert f"requests  {counts['completed']:,} in" in out
    assert counts["begun"] == counts["completed"]


SLOW_TO_LEAVE = """
    @teardown
    async def clean(self):
        print("cleaning")
        await asyncio.sleep({takes_s})
        print("cleaned")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("presses", "takes_s"), [(2, 0), (3, 1_200)])
def test_a_second_ctrl_c_gives_up_at_once_and_a_third_the_teardown_with_a_report(
    place: Place, presses: int, takes_s: int
) -> None:
    text = TEST.replace('"/"', '"/?delay=20m"').replace("Workflow, step", "Workflow, step, teardown")
    text = f"import asyncio\n{text}{SLOW_TO_LEAVE.format(takes_s=takes_s)}"
    (place.folder / "visit.py").write_text(text, encoding="utf-8")
    process = place.start("--duration", "10m", "--drain", "10m", "--timeout", "20m", "--json", "run.json")
    read_until(process.stdout, ALL_USERS)

    process.send_signal(signal.SIGINT)
    read_until(process.stdout, "ending")
    noise = ""
    for shown in ("giving up", "leaving")[: presses - 1]:
        time.sleep(TOGETHER_S)  # a signal that comes earlier counts as the same one
        process.send_signal(signal.SIGINT)
        read_until(process.stdout, shown)
        noise = noise or read_until(process.stderr, "cleaning")
    out, more = read_to_end(process)

    assert process.returncode == 130
    told = json.loads((place.folder / "run.json").read_text(encoding="utf-8"))
    assert (told["ended"], told["sent_calls"], told["answered_calls"], told["aborted"]) == ("interrupted", 4, 0, 4)
    assert "aborted   4 calls in progress" in out
    assert "written: json run.json" in out
    assert (noise + more).splitlines() == ["[0] cleaning", "[0] cleaned"][: 4 - presses]
    assert ("Visit teardown: was not run to its end: the run was given up" in out) == (presses == 3)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_command_and_to_its_group_ends_a_run_once_and_in_good_order(
    place: Place, shell: Shell, number: signal.Signals
) -> None:
    """As `timeout` does."""
    process = place.start("--duration", "10m", "--store", shell.url, start_new_session=True)
    read_until(process.stdout, ALL_USERS)

    process.send_signal(number)
    os.killpg(process.pid, number)
    out, noise = read_to_end(process)

    assert (process.returncode, noise) == (130, "")
    assert "giving up" not in out
    assert f"requests  {place.counts()['paths']['/']['completed']:,} in" in out
    assert [job["status"] for job in shell.json("jobs", "list")["jobs"]] == ["cancelled"]


@pytest.mark.parametrize(
    ("at_s", "given_up", "left"),
    [
        ((0.0, 0.0), False, False),
        ((0.0, 0.49), False, False),
        ((0.0, 0.5), True, False),
        ((0.0, 0.5, 0.99), True, False),
        ((0.0, 0.5, 1.0), True, True),
    ],
)
async def test_a_signal_that_comes_with_another_is_none_of_its_own(
    at_s: tuple[float, ...], given_up: bool, left: bool
) -> None:
    now_s = 0.0
    interrupts = Interrupts(lambda: now_s)

    async def run() -> None:
        nonlocal now_s
        with interrupts.caught([]):
            for now_s in at_s:  # noqa: B007 - the clock
                interrupts.press()
            await asyncio.sleep(0)

    task = asyncio.ensure_future(run())
    await asyncio.wait([task])

    assert (interrupts.stop.is_set(), interrupts.give_up.is_set(), task.cancelled()) == (True, given_up, left)


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_run(place: Place) -> None:
    process = place.start("--duration", "10m")
    assert process.stdout is not None
    assert "visit begins" in process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, noise = process.communicate()

    assert (process.returncode, noise) == (141, "")


@pytest.mark.slow
def test_a_terminal_is_drawn_on_and_given_back_before_the_report(place: Place) -> None:
    here = place.folder / "visit.py"
    here.write_text(TEST.replace("        return await", "        print('user', self.vu.id)\n        return await"))
    words = ("load", "run", str(here), "--base-url", place.url, "--processes", "1", "--store", "memory:")
    with Terminal(*words, "--iterations", "4", "--pacing", "1s", "--vus", "2", MAINSTAY_STORE="") as terminal:
        terminal.wait_for("Ctrl-C ends it with a report")
        # what steps print waits until the screen is given back
        terminal.wait_for("[0] user 1")
        terminal.wait_for("visit passed")

        assert terminal.end() == 0


def _hang_up_ends() -> None:
    """Also when the tests themselves were started by nohup, which their children would keep to."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("ui", ["full", "ci"])
def test_a_terminal_that_is_closed_ends_the_run_quietly_with_its_files(place: Place, ui: str) -> None:
    near, far = pty.openpty()
    words = [*MODULE, *place.words, "--duration", "10m", "--ui", ui, "--json", "run.json"]
    environ = {**place.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(
        words,
        cwd=place.folder,
        env=environ,
        stdin=far,
        stdout=far,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hang_up_ends,  # noqa: PLW1509  # one system call
    ) as process:
        os.close(far)
        shown = b""
        while b"running" not in shown:
            shown += os.read(near, 65536)
        os.close(near)
        process.send_signal(signal.SIGHUP)
        noise = process.stderr.read() if process.stderr else ""

    assert (process.returncode, noise) == (130, "")
    told = json.loads((place.folder / "run.json").read_text(encoding="utf-8"))
    assert (told["ended"], [one for one in told["outputs"] if one["error"]]) == ("interrupted", [])


@pytest.mark.slow
def test_a_run_keeps_to_its_own_store_whatever_the_environment_says_of_the_store_of_jobs(
    place: Place, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.environ["MAINSTAY_STORE"] = shell.url

    done = place.run("--iterations", "4", "--json", "-")

    run = json.loads(done.stdout)["header"]["run"]
    with pytest.raises(JobNotFound):
        shell.get(run)
    monkeypatch.chdir(place.folder)
    again = shell.run("load", "report", run[-12:], "--json", "-")
    assert json.loads(again.stdout)["header"]["run"] == run
    absent = shell.run("load", "report", "0123456789ab")
    assert (absent.exit_code, "no job" in absent.stderr or "0123456789ab" in absent.stderr) == (2, True)


@pytest.mark.slow
def test_what_is_detached_waits_for_a_worker(place: Place, shell: Shell) -> None:
    done = place.run("--detach", "--store", shell.url, "--vus", "7")

    job = shell.get(done.stdout.strip())
    assert (done.returncode, job.kind, job.name, job.status) == (0, "load", "visit", "pending")
    assert place.counts()["begun"] == 0


def test_what_is_detached_waits_in_the_queue_that_is_named(shell: Shell, file: str) -> None:
    done = shell.run("load", "run", file, "--detach", "--store", shell.url, "--queue", "load")

    assert done.exit_code == 0, done.output
    job = shell.get(done.stdout.strip().splitlines()[0])
    assert (job.kind, job.queue) == ("load", "load")
    assert "listens on the queue load" in done.stderr.replace("\n", " ")
    assert "queue='load'" in done.stderr.replace("\n", " ")


def test_a_value_of_the_class_that_a_rate_leaves_without_effect_is_told_of(shell: Shell, file: str) -> None:
    Path(file).write_text(TEST.replace("vus = 4", "think = '1s'"), encoding="utf-8")

    done = shell.run("load", "run", file, "--detach", "--store", shell.url, "--rate", "5/s")

    rule = "with a rate, iterations start when they are due"
    assert f"warning: Visit.think has no effect: {rule}" in done.stderr.replace("\n", " ")


def test_what_is_said_about_arrivals_goes_with_the_job(shell: Shell, file: str) -> None:
    words = ("--rate", "50/s", "--arrivals", "poisson", "--max-in-flight", "20", "--no-catch-up", "--seed", "7")

    done = shell.run("load", "run", file, "--detach", "--store", shell.url, *words)

    assert done.exit_code == 0, done.output
    payload = shell.get(done.stdout.strip().splitlines()[0]).payload
    assert payload is not None
    options = msgspec.msgpack.decode(payload)
    told = {name: options[name] for name in ("rate", "arrivals", "max_in_flight", "catch_up", "seed")}
    assert told == {"rate": "50/s", "arrivals": "poisson", "max_in_flight": 20, "catch_up": False, "seed": 7}


# what cannot be started ---------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visit.py").write_text(TEST, encoding="utf-8")
    return "visit.py"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--duration", "10x"), "duration"),
        (("--rate", "fast"), "rate: 'fast' is not a rate"),
        (("--stages", "30s:10,50"), "stages"),
        (("--think", "3s-1s"), "think"),
        (("--max-in-flight", "5"), "max_in_flight: needs a rate"),
        (("--no-catch-up",), "catch_up: needs a rate"),
        (("--rate", "5/s", "--arrivals", "often"), "write constant or poisson"),
        (("--threshold", "p95 of brwse < 1s"), "browse"),
        (("--threshold", "p95 << 1s"), "^"),
        (("--threshold", "response p95 < 1s"), "response time needs a rate"),
        (("Vist",), "did you mean 'Visit'?"),
        (("--ui", "fancy"), "ui: unknown display 'fancy'; use full, ci, none"),
        (("--ui", "full"), "ui: full needs a terminal"),
        (("--set", "user"), "set: 'user' is not of the form name=value"),
        (("--tag", "=x"), "tag: '=x' is not of the form name=value"),
        (("--html", "no/such/folder/run.html"), "html: the folder 'no/such/folder' does not exist"),
        (("--html", "-", "--csv", "-"), "csv: --html also goes to stdout; name a file for one of them"),
        (("--hdr", "-"), "hdr: name a file for histograms; `mainstay load report` prints them to stdout"),
        (("--json", "run.x", "--junit", "./run.x"), "is the file of --json as well; name another one"),
        (("--csv", "run.csv", "--html", "run-points.csv"), "is the file of --"),
        (("--json", "run.x", "--ndjson", "run.x"), "is the file of --json as well"),
        (("--detach",), "store: is required with --detach"),
        (("--queue", "load"), "queue: is for --detach"),
        (("--rate", "5/s", "--vus", "3"), "vus: users and a rate are both given"),
        (("--stages", "1s:5", "--vus", "3"), "vus: users and stages are both given"),
        (("--stages", "1s:5/s", "--think", "1s"), "Visit.think: needs a number of users"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_refused_before_anything_starts(
    shell: Shell, file: str, words: tuple[str, ...], says: str
) -> None:
    done = shell.run("load", "run", file, "--base-url", "http://127.0.0.1:1", *words, columns=None, MAINSTAY_STORE="")

    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert done.stdout == ""


def test_a_value_that_is_nearly_an_option_is_told_of_and_not_refused(shell: Shell, file: str) -> None:
    own = "    article = 'pen'\n    date = '1 May'\n    _vus = 1\n    def stages_(self): ...\n"
    text = TEST.replace("    vus = 4\n", f"    vuss = 4\n    duraton = '1s'\n    tag = {{}}\n    Users = 3\n{own}")
    Path(file).write_text(text, encoding="utf-8")
    done = shell.run("load", "run", file, "--detach")

    assert done.exit_code == 0
    assert [line for line in done.stderr.splitlines() if "warning" in line] == [
        "warning: Visit.vuss is not an option of a workflow and changes nothing; did you mean vus?",
        "warning: Visit.duraton is not an option of a workflow and changes nothing; did you mean duration?",
        "warning: Visit.tag is not an option of a workflow and changes nothing; did you mean tags?",
        "warning: Visit.Users is not an option of a workflow and changes nothing; did you mean vus?",
    ]


def test_whoever_reads_json_gets_errors_as_json(shell: Shell, file: str) -> None:
    done = shell.run("load", "run", file, "--duration", "10x", "--json", "-", MAINSTAY_STORE="")

    assert (done.exit_code, done.stderr) == (2, "")
    assert json.loads(done.stdout)["error"]["code"] == "invalid_input"


def test_a_folder_that_cannot_be_written_to_is_refused_with_what_to_name_instead(shell: Shell, file: str) -> None:
    Path(".mainstay").write_text("no folder")

    done = shell.run("load", "run", file, "--base-url", "http://127.0.0.1:1", columns=None, MAINSTAY_STORE="")

    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: store: without a store, runs are kept in .mainstay in this folder")
    assert "--store" in line


@pytest.mark.slow
def test_with_a_store_that_is_named_the_working_folder_need_not_be_writable(
    place: Place, shell: Shell, tmp_path: Path
) -> None:
    (place.folder / ".mainstay").write_text("no folder")
    place.environ["MAINSTAY_STATE"] = str(tmp_path / "state")

    done = place.run("--iterations", "4", "--store", shell.url)

    assert done.returncode == 0, done.stderr
    assert f"recorded: {tmp_path / 'state' / 'load'}" in done.stdout


@pytest.mark.parametrize(("value", "at"), [("10x", "x"), ("1m3", "")])
def test_a_bad_duration_is_pointed_at(shell: Shell, file: str, value: str, at: str) -> None:
    done = shell.run("load", "run", file, "--duration", value, columns=None, MAINSTAY_STORE="")

    _, text, mark = done.stderr.splitlines()
    assert text.strip() == value
    assert mark.index("^") == (text.index(at) if at else len(text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "defines no workflow"),
        ("import no_such_module", "no_such_module"),
        ("def (", "visit.py"),
        (TEST.replace('@step("browse")', '@step("brows")'), "brows"),
        (TEST.replace("-> HTTPResponse", "-> NoSuchType"), "NoSuchType"),
    ],
    ids=["nothing", "import", "syntax", "unknown step", "annotation"],
)
def test_a_file_that_is_no_load_test_is_refused_with_the_reason(shell: Shell, file: str, text: str, says: str) -> None:
    Path(file).write_text(text, encoding="utf-8")

    done = shell.run("load", "run", file, columns=None, MAINSTAY_STORE="")

    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_there_is_named(shell: Shell, tmp_path: Path) -> None:
    done = shell.run("load", "run", str(tmp_path / "nothing.py"), columns=None)

    assert done.exit_code == 2
    assert "nothing.py" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "says"),
    [("http://no-such-host.invalid", "no-such-host.invalid"), ("http://127.0.0.1:1", "127.0.0.1:1 refused")],
    ids=["unresolvable", "refused"],
)
def test_a_target_that_cannot_be_reached_is_told_before_the_load(place: Place, url: str, says: str) -> None:
    place.words = (*place.words, "--base-url", url)

    done = place.run()

    assert done.returncode == 2, done.stdout
    assert says in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("option", ["ca", "cert", "key"])
def test_a_file_for_tls_that_is_not_there_is_refused_without_tls_too(place: Place, option: str) -> None:
    done = place.run(f"--{option}", "nofile.pem")

    assert done.returncode == 2, done.stdout
    assert f"{option}: " in done.stderr
    assert place.counts()["begun"] == 0


@pytest.mark.slow
def test_a_step_that_does_not_say_that_it_returns_a_response_fails_the_run(place: Place) -> None:
    text = TEST.replace('"/") -> HTTPResponse', '"/")')
    (place.folder / "visit.py").write_text(text, encoding="utf-8")

    done = place.run("--iterations", "4", "--json", "-")

    assert done.returncode == 1, done.stdout
    said = json.loads(done.stdout)["examples"]["InvalidInput"]
    assert (
        said == "InvalidInput: browse: returned a HTTPResponse, which counts if the step is annotated: -> HTTPResponse"
    )


# how it ends --------------------------------------------------------------------------------------------


def ended(**how: Any) -> Summary:
    header = Header(run="1", name="visit", started_ms=0, version="0", processes=1, duration_s=1.0)
    return Summary(header=header, elapsed_s=1.0, requests=1, failed=0, rate=1.0, iterations=1, users=1, **how)


@pytest.mark.parametrize(
    ("how", "strict", "code"),
    [
        ({}, True, 0),
        ({"verdict": "failed"}, False, 99),
        ({"verdict": "failed", "trust": Trust(ok=False)}, True, 99),
        ({"trust": Trust(ok=False)}, True, 98),
        ({"trust": Trust(ok=False)}, False, 0),
        ({"ended": "stopped by a threshold", "verdict": "failed"}, False, 99),
        ({"ended": "stopped by a threshold"}, False, 0),
        ({"ended": "failed: a generator was lost"}, False, 1),
        ({"ended": "cancelled: by ann", "verdict": "failed"}, False, 1),
        ({"ended": "interrupted"}, False, 130),
    ],
)
def test_the_exit_code_says_how_a_run_came_out(how: dict[str, Any], strict: bool, code: int) -> None:
    from mainstay.load.cli.execution import code_of

    assert code_of(ended(**how), strict=strict) == code
