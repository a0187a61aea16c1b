"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHOP = """
from mainstay import App

app = App("sqlite:///never-opened.db")

@app.task(name="mail.welcome", retries=2)
async def welcome(to: str) -> str:
    return f"hello {to}"

@app.task(name="mail.count")
def count(words: list[str]) -> int:
    return len(words)
"""
CONFIGURED = "[pytest]\nmainstay_app = shop:app\npythonpath = .\n"


def run(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on these files, with the plugin as its installation loads it."""
    for name, text in files.items():
        suffix = ".ini" if name == "pytest" else ".py"
        (folder / f"{name}{suffix}").write_text(text)
    loaded = [] if _is_installed() else ["-p", "mainstay.testing.plugin"]
    # what others bring for pytest takes most of its start
    loaded += ["-p", "no:schemathesis", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=30", *loaded]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def _is_installed() -> bool:
    """An editable installation that is older than the entry point does not have it."""
    from importlib.metadata import entry_points

    return bool(tuple(entry_points(group="pytest11", name="mainstay")))


@pytest.mark.slow
def test_one_fixture_serves_plain_and_async_tests_of_either_runner(tmp_path: Path) -> None:
    tests = """
import pytest
from shop import count, welcome

def test_plain(mainstay_harness):
    job = welcome.options(delay="1h").submit_sync("bob")
    mainstay_harness.assert_submitted(welcome, to="bob")
    assert mainstay_harness.drain_sync().counts == {"succeeded": 1}
    assert job.result_sync() == "hello bob"

def test_every_test_has_a_store_of_its_own(mainstay_harness):
    assert mainstay_harness.submitted() == []

@pytest.mark.asyncio
async def test_asyncio(mainstay_harness):
    assert await mainstay_harness.run(count.job(["a", "b"])) == 2

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio(mainstay_harness, anyio_backend):
    assert await mainstay_harness.run(welcome.job("eve")) == "hello eve"
"""
    try:
        import anyio  # noqa: F401
    except ImportError:
        tests = tests.partition("@pytest.mark.anyio")[0]
    done = run(tmp_path, shop=SHOP, pytest=CONFIGURED, test_shop=tests)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


@pytest.mark.slow
def test_a_fixture_of_the_users_own_names_another_app(tmp_path: Path) -> None:
    conftest = """
import pytest
from mainstay import App

@pytest.fixture
def mainstay_app():
    app = App("memory:")
    @app.task(name="mine")
    def mine() -> str:
        return "mine"
    return app
"""
    tests = """
def test_it(mainstay_harness):
    mine = mainstay_harness.app.tasks["mine"]
    assert mainstay_harness.run_sync(mine.job()) == "mine"
"""
    done = run(tmp_path, conftest=conftest, test_mine=tests)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("configured", "complaint"),
    [
        ("", "put `mainstay_app = module:app` into the configuration"),
        ("[pytest]\nmainstay_app = shop:ap\npythonpath = .\n", "did you mean shop:app?"),
        ("[pytest]\nmainstay_app = shop\npythonpath = .\n", "which object is the app; did you mean shop:app?"),
    ],
)
def test_a_missing_or_wrong_app_is_told_with_what_to_do(tmp_path: Path, configured: str, complaint: str) -> None:
    tests = "def test_it(mainstay_harness): ..."

    done = run(tmp_path, shop=SHOP, pytest=configured, test_it=tests)

    assert done.returncode == 1
    assert complaint in done.stdout


def test_loading_the_plugin_loads_nothing_else_of_ours() -> None:
    program = (
        "import sys, pytest; import mainstay.testing.plugin; "
        "print(*sorted(name for name in sys.modules if name.startswith(('mainstay', 'msgspec', 'apsw', 'rich'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    # lazy_exports is what keeps the others from being loaded
    assert done.stdout.split() == ["mainstay", "mainstay.lazy_exports", "mainstay.testing", "mainstay.testing.plugin"]
