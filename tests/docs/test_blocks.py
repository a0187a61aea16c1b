"""Every code block of the README and the pages runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import places
from tests.docs.blocks import ROOT, BadBlock, Page

PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
#: they start workers
SLOW = {
    "README.md",
    "docs/batch.md",
    "docs/dashboard.md",
    "docs/http.md",
    "docs/load.md",
    "docs/node-jobs.md",
    "docs/postgres.md",
    "docs/runners.md",
    "docs/workers.md",
}
#: stands on a page for a database of its own on the run's server
DATABASE = "app@localhost/shop"
#: stands on a page for a namespace of its own on the run's server
NAMESPACE = "redis://localhost"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PAGES])
def test_every_block_of_the_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text(encoding="utf-8")
    if NAMESPACE in text:
        text = text.replace(NAMESPACE, places.place("redis", tmp_path))

    with own_database() if DATABASE in text else nullcontext("") as url:
        ran = Page(text.replace(f"//{DATABASE}", f"//{url.partition('//')[2]}"), database=url).run()

    assert ran == sum(line.lstrip().startswith("```") for line in text.splitlines()) / 2


@contextmanager
def own_database() -> Iterator[str]:
    """The URL of a database that is new, and gone afterwards."""
    server, name = urlsplit(places.server_url("postgresql")), f"page_{os.getpid()}"
    with psycopg.connect(server.geturl(), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
        try:
            yield server._replace(path=f"/{name}").geturl()
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


def page(*parts: str) -> Page:
    return Page("\n".join(parts))


def python(code: str) -> str:
    return f"```python\n{code}\n```"


def test_blocks_share_names_and_may_await() -> None:
    imports = python("import asyncio\nx = 20")
    awaits = python("await asyncio.sleep(0)\nprint(x + 1)")

    assert page("# Title", imports, awaits, "```text\n21\n```").run() == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```\nx = 1\n```", "nobody knows how to run a block of 'no language'"),
        ("```sql\nSELECT 1\n```", "nobody knows how to run a block of 'sql'"),
        ("```yaml\nx: 1\n```", "nobody knows how to run a block of 'yaml'"),
        ("```text\nhello\n```", "stands for the output of a python block"),
        (python("print(1)") + "\n```text\n2\n```", "expected\n2\n\nbut it printed\n1"),
        ("```python\nx = 1", "the block is never closed"),
        ("```console\nmainstay machine\n```", "commands start with"),
        ("```console\n$ mainstay machine --table none\n```", "failed"),
        ("```console\n$ mainstay machine --table none  # exits with 3\n```", "failed, with 2"),
        ("```console\n$ mainstay machine  # exits with 3\n```", "failed, with 0"),
        ("```console\n$ mainstay --version\nmainstay 99\n```", "expected\nmainstay 99"),
        ("```console\n$ make coffee\n```", "nobody knows how to check `make coffee`"),
        ("```console\n$ make\n```", "nobody knows how to check `make`"),
        ("```console\n$ rm -rf /\n```", "nobody knows how to check"),
        ("```bash\n$ pip install 'mainstay[teapot]'\n```", "nobody knows how to check"),
        ("```bash\n$ pip install mainstay\n```", "nobody knows how to check"),
        ("```console\n$ kill -9 $!\n```", "nobody knows how to check"),
        ("```console\n$ export PATH=/tmp\n```", "nobody knows how to check"),
        ("```console\n$ . venv/bin/activate\n```", "nobody knows how to check"),
        ("```console\n$ python -m asynchio\n```", "nobody knows how to check"),
        ("```mermaid\nstateDiagram-v2\n    a --> b\n```", "not one our tables draw"),
        ('```mermaid\nflowchart TD\n    a["teapots: pour"] --> b\n```', "packages that do not exist: ['teapots']"),
    ],
)
def test_a_block_that_is_wrong_or_cannot_be_run_fails(text: str, complaint: str) -> None:
    with pytest.raises(BadBlock) as failed:
        page(text).run()

    assert complaint in str(failed.value)


def test_an_error_in_a_python_block_fails_the_page() -> None:
    with pytest.raises(ZeroDivisionError):
        page(python("1 / 0")).run()


@pytest.mark.parametrize(
    "command",
    [
        "make demo",
        "make test",
        ". .venv/bin/activate",
        "python -m asyncio",
        "git clone URL",
        "pip install -e .",
        "pip install 'mainstay[postgres,redis]'",
    ],
)
def test_commands_that_are_not_run_are_checked_for_what_they_name(command: str) -> None:
    assert page(f"```console\n$ {command}\n```").run() == 1


def test_a_file_of_the_page_can_be_imported_and_is_forgotten_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for answer in (1, 2):
        text = f"```text\n{answer}\n```"
        assert page(python(f"# bakery.py\nx = {answer}"), python("import bakery\nprint(bakery.x)"), text).run() == 3


def test_a_command_may_end_with_another_code_if_the_page_says_so() -> None:
    assert page("```console\n$ mainstay machine --table none  # exits with 2\n```").run() == 1


def test_a_variable_holds_for_later_commands() -> None:
    page("```console\n$ export MAINSTAY_STORE=memory:\n$ mainstay check\nclean; 0 rows ...\n```").run()


def test_a_command_in_the_background_runs_until_it_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    watch = "mainstay jobs watch --store sqlite:///jobs.db &"
    made = python("from mainstay.stores import open_store\nawait (await open_store('sqlite:///jobs.db')).close()")

    page(made, f"```console\n$ {watch}\n$ kill -9 $!\n$ {watch}\n$ kill $!\n```").run()
    with pytest.raises(BadBlock, match="still running"):
        page(f"```console\n$ {watch}\n```").run()


def test_an_id_that_was_printed_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    submit = """
from mainstay import App
from mainstay.control import Control
app = App("sqlite:///jobs.db")
print((await (await app.open()).jobs.submit("mail.send")).id)
await app.close()
"""

    page(python(submit), "```console\n$ mainstay jobs show JOB --store sqlite:///jobs.db\n```").run()
