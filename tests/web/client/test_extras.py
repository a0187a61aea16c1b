"""What is an extra may be missing, and is asked for only by whoever uses it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def python(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def without(*names: str) -> str:
    return f"import sys\nfor name in {names!r}: sys.modules[name] = None\n"


def test_a_client_needs_none_of_what_a_server_needs() -> None:
    told = python(
        without("starlette", "uvicorn", "jinja2", "httptools", "numpy", "prometheus_client")
        + "import mainstay\nprint(mainstay.Client('http://127.0.0.1:1'), mainstay.AsyncClient.__name__)"
    )
    assert told == "<Client of http://127.0.0.1:1> AsyncClient"


@pytest.mark.parametrize(
    ("missing", "asked", "extra"),
    [("httpx", "mainstay.Client", "client"), ("starlette", "mainstay.task.endpoints.AsyncEndpoint", "web")],
)
def test_what_is_missing_is_named_with_the_extra_that_brings_it(missing: str, asked: str, extra: str) -> None:
    module, _, name = asked.rpartition(".")
    told = python(
        without(missing)
        + "from mainstay.errors import MissingExtra\n"
        + f"try:\n    from {module} import {name}\nexcept MissingExtra as error:\n    print(error)"
    )
    assert f"{name} needs {missing}" in told
    assert f"pip install 'mainstay[{extra}]'" in told


def test_a_plain_import_brings_no_extra() -> None:
    told = python("import sys\nfrom mainstay import *\nprint(*{'httpx', 'starlette'} & set(sys.modules))")

    assert not told
