"""`mainstay serve` as a process: how it starts, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import httpx
import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.cli.serve import stores
from mainstay.errors import InvalidInput
from mainstay.load.target.certificate import self_signed
from mainstay.web.security.limits import ConnectionLimits
from mainstay.web.security.tokens import Tokens


class Shell:
    """Servers started as a shell starts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "serve.log"
        self._started: list[subprocess.Popen[str]] = []

    def serve(self, *words: str) -> tuple[subprocess.Popen[str], Any]:
        """Once it is ready: the process, and what it says about itself."""
        with self.log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "mainstay", "serve", "--port", "0", "--json", *words],
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                env={**os.environ, "MAINSTAY_STORE": f"sqlite:///{self.folder / 'jobs.db'}"},
            )
        self._started.append(process)
        line = cast("IO[str]", process.stdout).readline()
        assert line, self.log.read_text()
        return process, json.loads(line)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            cast("IO[str]", process.stdout).close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_who_did_what_is_logged_however_little_else_is(shell: Shell) -> None:
    process, said = shell.serve("--log-level", "error")
    assert httpx.post(f"{said['url']}/api/v1/queues/mail/pause").status_code == 200
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    (line,) = shell.log.read_text().splitlines()
    assert "actor=web:local" in line
    assert "/queues/mail/pause" in line


def refused(*words: str, **environ: str) -> Result:
    done = CliRunner().invoke(app, ["serve", *words], env={"COLUMNS": "100", **environ}, catch_exceptions=False)
    assert done.exit_code == 2, done.output
    return done


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_answers_and_stops_in_good_order(shell: Shell, number: signal.Signals) -> None:
    process, told = shell.serve()

    assert told["stores"] == {"default": f"sqlite:///{shell.folder / 'jobs.db'}"}
    assert httpx.get(f"{told['url']}/api/v1/jobs").json()["jobs"] == []
    assert httpx.get(f"{told['url']}/login?token=hidden").status_code == 303
    process.send_signal(number)

    assert process.wait(60) == 0
    log = shell.log.read_text()
    assert "GET /api/v1/jobs status=200" in log
    assert "hidden" not in log
    assert "Traceback" not in log
    with pytest.raises(httpx.ConnectError):
        httpx.get(told["url"])


@pytest.mark.slow
def test_live_streams_do_not_hold_up_its_end(shell: Shell) -> None:
    process, told = shell.serve()
    with httpx.Client(base_url=told["url"]) as client, client.stream("GET", "/api/v1/stream") as stream:
        chunks = stream.iter_raw()
        assert b"retry:" in next(chunks)
        process.send_signal(signal.SIGTERM)
        told_s = time.monotonic()
        for _ in chunks:
            pass

    assert process.wait(60) == 0
    assert time.monotonic() - told_s < ConnectionLimits().grace_s, "what does not end by itself is given that long"
    assert "Traceback" not in shell.log.read_text()


@pytest.mark.slow
def test_with_tls_and_tokens_it_lets_in_whoever_has_one(shell: Shell) -> None:
    cert = asyncio.run(self_signed(shell.folder, "127.0.0.1"))
    tokens = Tokens(shell.folder / "tokens.json")
    secret = tokens.add("ann", ["read"])
    _, told = shell.serve("--host", "0.0.0.0", "--tls-cert", str(cert), "--tokens", str(tokens.path))

    with httpx.Client(base_url=told["url"], verify=ssl.create_default_context(cafile=str(cert))) as client:
        assert client.get("/api/v1/jobs").status_code == 401
        assert client.get("/api/v1/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
        assert client.get("/api/v1/jobs", headers={"Authorization": "Bearer mst_x"}).status_code == 401
        signed_in = client.post("/login", data={"token": secret})
        assert (signed_in.status_code, client.get("/api/v1/jobs").status_code) == (303, 200)
        tokens.revoke("ann")
        assert client.get("/api/v1/jobs").status_code == 401
    assert secret[4:] not in shell.log.read_text()


@pytest.mark.slow
def test_a_server_that_only_shows_changes_nothing(shell: Shell) -> None:
    _, told = shell.serve("--read-only")

    done = httpx.post(f"{told['url']}/api/v1/jobs", json={"name": "mail.send"})

    assert (done.status_code, done.json()["type"]) == (403, "read_only")


def test_beyond_this_machine_it_says_what_it_needs() -> None:
    assert "--tls-cert FILE" in refused("--store", "memory:", "--host", "0.0.0.0").stderr
    assert "mainstay tokens add" in refused("--store", "memory:", "--host", "0.0.0.0", "--insecure").stderr


def test_a_file_of_tokens_that_others_can_read_is_refused(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.add("ann", ["read"])
    tokens.path.chmod(0o644)

    done = refused("--store", "memory:", "--tokens", str(tokens.path))

    assert f"chmod 600 {tokens.path}" in done.stderr.replace("\n", " ")


def test_a_port_that_is_taken_is_named_also_for_programs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plain = refused("--store", "memory:", "--port", str(port))
        told = refused("--store", "memory:", "--port", str(port), "--json")

    assert f"{port} is in use on 127.0.0.1" in plain.stderr
    assert json.loads(told.stdout)["error"]["code"] == "invalid_input"


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")

    assert "cannot be used" in refused("--store", "memory:", "--port", "0", "--tls-cert", str(bad)).stderr


def test_a_store_that_does_not_open_is_said_without_its_password() -> None:
    done = refused("--port", "0", "--store", "postgresql://ann:hush@127.0.0.1:1/jobs?timeout=100ms")

    assert "hush" not in done.output


def test_which_store_is_asked_for() -> None:
    assert "which store?" in refused(MAINSTAY_STORE="", MAINSTAY_APP="").stderr


def test_two_stores_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two stores are called 'default'"):
        stores(["memory:", "sqlite:///jobs.db"], "")
    with pytest.raises(InvalidInput, match="two stores are called 'a'"):
        stores(["a=memory:", "a=sqlite:///jobs.db"], "")


def test_what_is_typed_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_STORE", "sqlite:///my jobs.db")

    assert stores([], "") == {"default": "sqlite:///my jobs.db"}
    assert stores(["memory:"], "") == {"default": "memory:"}


def test_a_missing_extra_is_named() -> None:
    program = (
        "import sys\n"
        "sys.modules['uvicorn'] = None\n"
        "from mainstay.cli import main\n"
        "sys.argv = ['mainstay', 'serve', '--store', 'memory:']\n"
        "main()\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "pip install 'mainstay[web]'" in done.stderr


def test_the_help_and_other_commands_import_nothing_of_it() -> None:
    program = (
        "import sys\n"
        "import mainstay\n"
        "from mainstay.cli.root import app\n"
        "print(*{'starlette', 'uvicorn', 'jinja2', 'httpx', 'httptools'} & set(sys.modules))\n"
    )

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"
