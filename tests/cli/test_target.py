"""Which store is meant, and what is said when an app cannot be found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay.cli.target import Where, load_app
from mainstay.errors import InvalidInput
from mainstay.model import Settings
from tests.cli.conftest import Shell

APP = """
from mainstay.model import Settings

class Made:
    def __init__(self, url):
        self.store_url = url
        self.settings = Settings.of(lease="20s")

app = Made("sqlite:///from-app.db")
number = 7

class Holder:
    app = Made("sqlite:///held.db")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder a command is run in; what it imports is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "target_shop").mkdir()
    (tmp_path / "target_shop" / "__init__.py").write_text("")
    (tmp_path / "target_shop" / "tasks.py").write_text(APP)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("target_", "broken"))]:
        del sys.modules[name]


def test_an_app_is_found_in_the_folder_the_command_is_run_in(folder: Path) -> None:
    assert load_app("target_shop.tasks:app").store_url == "sqlite:///from-app.db"
    assert load_app("target_shop.tasks:Holder.app").store_url == "sqlite:///held.db"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("target_shop.tasks", "does not say which object is the app; did you mean target_shop.tasks:app?"),
        ("target_shop.tasks:", "did you mean target_shop.tasks:app?"),
        (":app", "write it as module:app, like shop.tasks:app"),
        ("target_shop/tasks.py:app", "is a file; write its module: target_shop.tasks:app"),
        ("./target_shop/tasks.py", "is a file; write its module: target_shop.tasks:app"),
        ("target_shop.task:app", "there is no module 'target_shop.task'; did you mean target_shop.tasks?"),
        ("target_shopp.tasks:app", "there is no module 'target_shopp'; did you mean target_shop?"),
        ("quite_elsewhere:app", "there is no module 'quite_elsewhere'; run this from the folder it is in (now: "),
        ("target_shop.tasks:aap", "has no 'aap'; did you mean target_shop.tasks:app?"),
        ("target_shop.tasks:celery", "has no 'celery'; did you mean target_shop.tasks:app?"),
        ("target_shop:app", "has no 'app'; make one there: app = App("),
        ("target_shop.tasks:number", "target_shop.tasks:number is of type int, not an app; make one: app = App("),
        ("target_shop.tasks:Made", "target_shop.tasks:Made is the class Made, not an app"),
    ],
)
def test_what_leads_to_no_app_is_refused_with_what_may_have_been_meant(
    folder: Path, given: str, complaint: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_app(given)

    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import not_there_at_all", "module broken imports 'not_there_at_all', which is not installed here"),
        ("x = 1\n1 / 0", "importing broken failed: ZeroDivisionError: division by zero"),
        ("x = 1\ndef f(:", "importing broken failed: SyntaxError"),
        ("import sys\nsys.exit(3)", "importing broken failed: SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_line(folder: Path, text: str, complaint: str) -> None:
    (folder / "broken.py").write_text(text)

    with pytest.raises(InvalidInput) as refused:
        load_app("broken:app")

    assert complaint in str(refused.value)
    assert f"{folder / 'broken.py'}, line {1 + text.count(chr(10))})" in str(refused.value)


@pytest.mark.parametrize(
    ("where", "url"),
    [
        (Where(store="memory:", app="nowhere:app", typed=frozenset({"store", "app"})), "memory:"),
        (Where(store="memory:", app="nowhere:app", typed=frozenset({"store"})), "memory:"),
        (Where(store="memory:", app="target_shop.tasks:app", typed=frozenset({"app"})), "sqlite:///from-app.db"),
        (Where(store="memory:", app="nowhere:app"), "memory:"),
        (Where(app="target_shop.tasks:app"), "sqlite:///from-app.db"),
    ],
)
def test_what_was_typed_goes_before_the_environment_and_a_store_before_an_app(
    folder: Path, where: Where, url: str
) -> None:
    assert where.target().url == url


def test_the_settings_come_from_the_app(folder: Path) -> None:
    assert Where(app="target_shop.tasks:app").target().settings == Settings.of(lease="20s")
    assert Where(store="memory:").target().settings is None


def test_every_command_takes_an_app(shell: Shell, folder: Path) -> None:
    (folder / "target_mine.py").write_text(APP.replace("sqlite:///from-app.db", shell.url))
    shell.submit("mail.send", queue="mail")

    for words in (("stats",), ("jobs", "list"), ("check",)):
        by_option = shell.run(*words, "--app", "target_mine:app", MAINSTAY_STORE="sqlite:///nowhere.db")
        assert by_option.exit_code == 0, by_option.output
        by_variable = shell.run(*words, MAINSTAY_STORE="", MAINSTAY_APP="target_mine:app")
        assert by_variable.exit_code == 0, by_variable.output


def test_a_real_app_will_do(shell: Shell, folder: Path) -> None:
    (folder / "target_real.py").write_text(f"from mainstay import App\napp = App({shell.url!r}, lease='20s')\n")

    target = Where(app="target_real:app").target()

    assert (target.url, target.settings) == (shell.url, Settings.of(lease="20s"))
    assert shell.run("queues", "pause", "mail", "--app", "target_real:app", MAINSTAY_STORE="").exit_code == 0


def test_an_app_that_is_not_there_is_one_red_line(shell: Shell, folder: Path) -> None:
    done = shell.run("stats", "--app", "target_shop.tasks:aap")

    assert done.exit_code == 2
    assert done.stderr.startswith("error: app: module target_shop.tasks (")


def test_with_nothing_given_it_says_what_to_give(shell: Shell) -> None:
    done = shell.run("stats", MAINSTAY_STORE="")

    assert done.exit_code == 2
    assert "which store? pass --store sqlite:///jobs.db or --app module:app" in done.stderr


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            Where(store="sqlite:///my jobs.db", typed=frozenset({"store"})),
            "mainstay check --store 'sqlite:///my jobs.db'",
        ),
        (Where(app="a:b", typed=frozenset({"app"})), "mainstay check --app a:b"),
        (Where(store="memory:", app="a:b"), "mainstay check"),
    ],
)
def test_a_command_to_try_next_says_again_what_was_typed(where: Where, said: str) -> None:
    assert where.again("mainstay check") == said
