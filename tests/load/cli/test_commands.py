"""`mainstay load new`, `target` and `ping`, against a real target."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mainstay.load.cli.target_view import CountsLine
from mainstay.load.target import TargetOptions, TargetServer
from tests.cli.conftest import Shell
from tests.cli.terminal import Terminal

MODULE = (sys.executable, "-m", "mainstay")


class Served:
    """A target in a thread of its own."""

    def __init__(self, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(options),))
        self._thread.start()
        self._ready.wait()

    async def _serve(self, options: dict[str, Any]) -> None:
        async with TargetServer(TargetOptions(**options)) as self.target:
            self._ready.set()
            await self._stop.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def target() -> Iterator[TargetServer]:
    served = Served(tcp_port=0, udp_port=0)
    yield served.target
    served.close()


@pytest.fixture(scope="module")
def secure() -> Iterator[TargetServer]:
    served = Served(tls=True)
    yield served.target
    served.close()


# new ----------------------------------------------------------------------------------------------------


def test_a_template_is_written_with_the_commands_to_try(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"

    done = shell.run("load", "new", str(file), columns=None)

    assert done.exit_code == 0
    assert [line.strip() for line in done.stdout.splitlines()[1:]] == [
        "mainstay load target",
        f"mainstay load run {file}",
    ]
    text = file.read_text(encoding="utf-8")
    assert f"mainstay load run {file}" in text
    compile(text, str(file), "exec")


def test_a_file_that_is_there_is_left_alone_without_force(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("mine", encoding="utf-8")

    refused = shell.run("load", "new", str(file))
    kept = file.read_text(encoding="utf-8")
    forced = shell.json("load", "new", str(file), "--force")

    assert (refused.exit_code, kept) == (2, "mine")
    assert "--force" in refused.stderr
    assert forced["file"] == str(file)
    assert "class Visit(Workflow)" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [".", "..", "/", "", "folder", "folder.py"])
def test_a_folder_is_refused_as_a_load_test(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.py").mkdir()

    for words in ((name,), (name, "--force")):
        done = shell.run("load", "new", *words)

        assert done.exit_code == 2
        assert done.stderr == f"error: file: {Path(name)} is a folder; name a file in it: {Path(name, 'shop.py')}\n"


@pytest.mark.parametrize("name", ["shop.txt", "shop", "no/such/folder/shop.py"])
def test_a_file_that_cannot_be_a_load_test_is_refused(shell: Shell, tmp_path: Path, name: str) -> None:
    done = shell.run("load", "new", str(tmp_path / name))

    assert done.exit_code == 2
    assert not (tmp_path / name).exists()


def test_the_template_is_no_code_that_could_be_imported() -> None:
    import mainstay.load.cli

    folder = Path(mainstay.load.cli.__file__).parent
    assert (folder / "template.txt").is_file()
    assert not any("class Visit" in path.read_text(encoding="utf-8") for path in folder.glob("*.py"))


# target -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_target_says_where_it_is_and_in_the_end_what_it_counted() -> None:
    words = ("load", "target", "--port", "0", "--errors", "100%", "--json")
    process = subprocess.Popen([*MODULE, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        place = json.loads(process.stdout.readline())
        asked = subprocess.run([*MODULE, "load", "ping", place["url"]], capture_output=True, check=False)
        process.send_signal(signal.SIGINT)
        counts = json.loads(process.stdout.readline())
        process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    assert (asked.returncode, process.returncode) == (1, 0)
    assert (counts["begun"], counts["completed"], counts["statuses"]) == (1, 1, {"503": 1})


@pytest.mark.slow
def test_on_a_terminal_a_line_follows_its_counts_and_ctrl_c_shows_them() -> None:
    with Terminal("load", "target", "--port", "0") as terminal:
        terminal.wait_for("the target is at http://127.0.0.1:")
        terminal.wait_for("0 responses, 0/s, 0 open")
        terminal.process.send_signal(signal.SIGINT)

        assert terminal.end() == 0
        assert "0 requests over 0 connections: 0 answered, 0 abandoned" in terminal.shown


def test_a_target_in_the_background_draws_no_line_over_the_prompt(target: TargetServer) -> None:
    console, ours = Console(file=io.StringIO(), width=80), [True, False]
    line = CountsLine(console, ours=lambda: ours.pop(0))
    assert isinstance(console.file, io.StringIO)

    line.show(target.counts())
    drawn = console.file.getvalue()
    line.show(target.counts())
    assert "under way" in drawn
    assert console.file.getvalue() == drawn

    never = CountsLine(console, ours=lambda: False)
    never.show(target.counts())
    never.clear()
    assert console.file.getvalue() == drawn


@pytest.mark.slow
def test_a_target_that_is_started_with_an_ampersand_leaves_the_prompt_alone() -> None:
    """As a shell does it: the target is in a process group of its own, and the terminal has that of the shell."""
    ours, theirs = pty.openpty()
    shell = (
        "import os, subprocess, sys, fcntl, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "target = subprocess.Popen([sys.executable, '-m', 'mainstay', *sys.argv[1:]], process_group=0)\n"
        "input()\ntarget.terminate(); target.wait(); print('all of it')\n"
    )
    words = [sys.executable, "-c", shell, "load", "target", "--port", "0"]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = ""
        while "/stats)" not in shown:
            shown += os.read(ours, 4096).decode()
        url = shown.partition("the target is at ")[2].split()[0]
        # a second has passed for the target when its line would have been drawn: wait for that by its own clock
        urllib.request.urlopen(f"{url}/?delay=2500ms").close()
        os.write(ours, b"\n")
        while "all of it" not in shown:
            shown += os.read(ours, 4096).decode()
        process.wait()
    os.close(ours)

    assert "1 request over 1 connection" in shown
    assert "under way" not in shown


def test_a_port_in_use_is_named(shell: Shell, target: TargetServer) -> None:
    done = shell.run("load", "target", "--port", str(target.port))

    assert done.exit_code == 2
    assert f"port: {target.port} is in use" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--latency", "bimdal 1ms 2ms 1%", "latency"),
        ("--errors", "two", "errors: 'two' is not a share"),
        ("--size", "1XB", "size: '1XB' is not a size"),
        ("--cert", "/nope", "cert: the certificate /nope cannot be used"),
        ("--key", "/nope", "key: the key /nope needs its certificate"),
    ],
)
def test_bad_input_of_a_target_is_refused_by_the_name_of_the_option(
    shell: Shell, option: str, value: str, says: str
) -> None:
    done = shell.run("load", "target", "--port", "0", option, value)

    assert done.exit_code == 2
    assert says in done.stderr


# ping ---------------------------------------------------------------------------------------------------


def test_a_ping_shows_where_the_time_went(shell: Shell, target: TargetServer) -> None:
    done = shell.run("load", "ping", f"{target.url}/?delay=30ms")

    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0] == f"GET {target.url}/"  # without its query, where secrets may be
    assert lines[1].startswith("HTTP/1.1 200 OK; ")
    phases = [line.split()[0] for line in lines[2:]]
    assert [name for name in phases if name != "dns"] == ["connect", "send", "wait", "receive"]
    told = shell.json("load", "ping", f"{target.url}/?delay=200ms")
    spent = told["phases_s"]
    # a process that has to wait for a core after its write counts some of the delay as sending
    assert spent["send"] + spent["wait"] >= 0.2
    assert spent["wait"] >= 0.1
    assert sum(spent.values()) == pytest.approx(told["elapsed_s"])


def test_a_ping_sends_what_it_is_told_and_shows_headers_and_body_if_asked(shell: Shell, target: TargetServer) -> None:
    words = ("load", "ping", f"{target.url}/echo", "-d", "hello", "-H", "X-Shop: north")

    told = json.loads(shell.json(*words, "--body")["body"])
    shown = shell.run(*words, "-v", "--body", columns=None)

    assert (told["method"], told["body"]) == ("POST", "hello")
    assert "north" in str(told["headers"])
    assert "content-type: application/json" in shown.stdout.lower()
    assert '"hello"' in shown.stdout


@pytest.mark.parametrize("option", ["ca", "cert", "key"])
def test_a_ping_refuses_a_file_for_tls_that_is_not_there(shell: Shell, target: TargetServer, option: str) -> None:
    done = shell.run("load", "ping", target.url, f"--{option}", "nofile.pem", columns=None)

    assert done.exit_code == 2
    assert f"{option}: " in done.stderr


def test_a_ping_that_gets_an_error_ends_with_one_and_one_without_an_answer_with_two(
    shell: Shell, target: TargetServer
) -> None:
    assert shell.run("load", "ping", f"{target.url}/?status=404").exit_code == 1
    assert shell.run("load", "ping", f"{target.url}/?status=302").exit_code == 0
    closed = shell.run("load", "ping", f"{target.url}/close")
    refused = shell.run("load", "ping", "http://127.0.0.1:1/")
    unknown = shell.run("load", "ping", "http://no-such-host.invalid/", "--json")

    assert [each.exit_code for each in (closed, refused, unknown)] == [2, 2, 2]
    assert "127.0.0.1:1 refused the connection" in refused.stderr
    assert json.loads(unknown.stdout)["error"]["code"] == "call_failed"


def test_a_certificate_is_verified_unless_told_otherwise(shell: Shell, secure: TargetServer) -> None:
    bad = shell.run("load", "ping", secure.url)
    fine = shell.json("load", "ping", secure.url, "--insecure")
    trusted = shell.run("load", "ping", secure.url, "--ca", secure.certificate)

    assert bad.exit_code == 2
    assert "certificate" in bad.stderr
    assert fine["phases_s"]["tls"] > 0
    assert trusted.exit_code == 0


def test_one_call_of_every_protocol(shell: Shell, target: TargetServer) -> None:
    for url in (target.websocket_url, target.tcp_url, target.udp_url):
        told = shell.json("load", "ping", url, "--data", "hello", "--body")
        assert (told["ok"], told["body"]) == (True, "hello")
    assert shell.json("load", "ping", target.url, "--http2")["said"].startswith("HTTP/2 200")
    assert shell.json("load", "ping", target.tcp_url)["said"] == "connected"
    assert shell.json("load", "ping", target.websocket_url)["said"] == "connected"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("htp://127.0.0.1/",), "htp"),
        (("http://127.0.0.1:1/", "--timeout", "3x"), "timeout: is not a duration"),
        (("http://127.0.0.1:1/", "-H", "nonsense"), "header: 'nonsense' is not a header"),
        (("udp://127.0.0.1:1",), "data: a datagram needs content"),
        (("tcp://127.0.0.1:1", "--http2"), "is not for HTTP"),
        (("http://127.0.0.1:1/", "-d", "@no-such-file"), "no-such-file cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_of_a_ping_says_what_is_wrong(shell: Shell, words: tuple[str, ...], says: str) -> None:
    done = shell.run("load", "ping", *words)

    assert done.exit_code == 2
    assert says in done.stderr


def test_a_bad_duration_is_pointed_at(shell: Shell) -> None:
    done = shell.run("load", "ping", "http://127.0.0.1:1/", "--timeout", "3x", columns=None)

    _, text, mark = done.stderr.splitlines()
    assert text.index("x") == mark.index("^")


# without the extra --------------------------------------------------------------------------------------

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "httptools", "uvloop", "h2", "websockets"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from mainstay.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [("run", "x.py"), ("ping", "http://127.0.0.1:1/"), ("target",), ("report", "x.json")])
def test_without_the_extra_its_name_is_told(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "load", *words],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ,
    )  # fmt: skip

    assert done.returncode == 2, done.stderr
    assert "pip install 'mainstay[load]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_help_imports_nothing_of_the_extra() -> None:
    program = """
import sys
from mainstay.cli import main

try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
    for words in (["--help"], ["load", "--help"], ["load", "run", "--help"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
        loaded = {name.partition(".")[0] for name in done.stderr.split()}
        assert not loaded & {"numpy", "httptools", "uvloop", "h2", "websockets"}
