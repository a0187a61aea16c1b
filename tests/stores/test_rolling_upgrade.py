"""Two releases on one store: after a migration, programs of the version before start and work beside new ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import mainstay
from mainstay.errors import SchemaTooNew
from mainstay.stores import open_store
from mainstay.stores.compatibility import compatible_from, read_migrations
from mainstay.stores.postgres.schema.definition import MIGRATIONS as POSTGRES_MIGRATIONS
from mainstay.stores.sqlite import schema
from tests import places
from tests.conformance.adapters import ADAPTERS, Adapter
from tests.stores.sqlite.process import Child

PROGRAM = Path(__file__).with_name("release_program.py")
VERSION = schema.VERSION

#: what the next release adds: to the tables that every call reads and writes, and an index that it gives up
_NEXT = {
    "sqlite/schema.py": """
_NEXT = '''
ALTER TABLE jobs ADD COLUMN shade TEXT NOT NULL DEFAULT 'grey';
ALTER TABLE events ADD COLUMN shade TEXT;
ALTER TABLE sessions ADD COLUMN shade TEXT NOT NULL DEFAULT '';
CREATE TABLE shades (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_shade ON jobs (shade, id);
DROP INDEX jobs_oldest;
'''
MIGRATIONS = (*MIGRATIONS, _NEXT)
VERSION = len(MIGRATIONS)
""",
    "postgres/schema/definition.py": """
_NEXT = '''
ALTER TABLE mainstay.jobs ADD COLUMN shade text COLLATE "C" NOT NULL DEFAULT 'grey';
ALTER TABLE mainstay.events ADD COLUMN shade text COLLATE "C";
ALTER TABLE mainstay.sessions ADD COLUMN shade text COLLATE "C" NOT NULL DEFAULT '';
CREATE TABLE mainstay.shades (
    name text COLLATE "C" NOT NULL,
    CONSTRAINT shades_name PRIMARY KEY (name)
);
CREATE INDEX jobs_shade ON mainstay.jobs (shade, id);
DROP INDEX mainstay.jobs_oldest;
'''
MIGRATIONS = (*MIGRATIONS, _NEXT)
VERSION = len(MIGRATIONS)
_functions_before = functions


def functions() -> str:
    shade = "CREATE OR REPLACE FUNCTION mainstay.shade() RETURNS text LANGUAGE sql AS $$ SELECT 'grey' $$;"
    return _functions_before() + shade
""",
    "postgres/schema/versions.py": """
RELEASE += 1
""",
    "redis/namespace.py": """
VERSION += 1
""",
    "registry/files.py": """
SCHEMA = (SCHEMA[0], SCHEMA[1] + 1)
""",
}

Start = Callable[[str, str], Child]


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that is one migration ahead."""
    folder = tmp_path_factory.mktemp("next")
    ours = Path(mainstay.__file__).parent
    shutil.copytree(ours, folder / "mainstay", ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in _NEXT.items():
        with (folder / "mainstay" / "stores" / file).open("a") as source:
            source.write(text)
    return folder


@pytest.fixture
def start(next_release: Path) -> Iterator[Start]:
    children: list[Child] = []

    def run(release: str, url: str) -> Child:
        package = next_release if release == "next" else Path(mainstay.__file__).parents[1]
        children.append(Child(PROGRAM, url, f"{release}{len(children)}", package=package))
        return children[-1]

    yield run
    for child in children:
        child.end()


PERSISTENT = [each for each in ADAPTERS if each.persistent and each.modules is None]


@pytest.mark.parametrize("adapter", PERSISTENT, ids=lambda each: each.name)
async def test_programs_of_the_version_before_start_submit_and_work_after_a_migration(
    adapter: Adapter, tmp_path: Path, start: Start
) -> None:
    # a place that is not used again: nothing brings it back to this version
    url = places.place(adapter.server, tmp_path) if adapter.server else await adapter.ready(tmp_path)
    try:
        running = start("this", url)  # it goes on through the migration
        assert running.line() == f"opened {VERSION}"
        before = running.ask("submit")

        newer = start("next", url)
        assert newer.line() == f"opened {VERSION + 1}"
        restarted = start("this", url)
        assert restarted.line() == f"opened {VERSION}"

        submitted = [before, *(child.ask("submit") for child in (newer, running, restarted))]
        assert len(set(submitted)) == 4
        done = [child.ask("work") for child in (restarted, newer, running, newer)]
        assert sorted(done) == [
            "of.next1 applied",
            "of.this0 applied",
            "of.this0 applied",
            "of.this2 applied",
        ]
        for child in (restarted, newer, running):
            assert child.ask("check") == "4 jobs, found []"
        assert restarted.ask("repair") == "4 jobs, found []"
        assert newer.ask("check") == "4 jobs, found []", "an older program repairs nothing of a newer one"
    finally:
        adapter.clear(tmp_path)


async def test_a_migration_that_shuts_out_this_version_is_said_and_honoured(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await (await open_store(f"sqlite:///{path}")).close()
    db = apsw.Connection(str(path))
    db.execute(f"UPDATE facts SET value = '{VERSION + 1}' WHERE name = 'compatible_from'")
    db.pragma("user_version", VERSION + 2)
    db.close()

    with pytest.raises(SchemaTooNew, match=f"version {VERSION + 2}, which programs from version {VERSION + 1} on can"):
        await open_store(f"sqlite:///{path}")


@pytest.mark.parametrize("names", [(), ("001_jobs.sql", "003_more.sql"), ("001_jobs.sql", "001_jobs.orig.sql")])
def test_an_installation_without_all_migrations_does_not_pass_for_an_older_version(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1")

    with pytest.raises(ImportError, match="install Mainstay again"):
        read_migrations(tmp_path)


def test_a_migration_may_not_shut_out_the_version_before_it() -> None:
    with pytest.raises(AssertionError, match="migration 3 shuts out programs of version 2"):
        compatible_from(("CREATE TABLE a (x)", "", "-- compatible from 3\nDROP TABLE a"))


@pytest.mark.parametrize("migrations", [schema.MIGRATIONS, POSTGRES_MIGRATIONS], ids=["sqlite", "postgres"])
def test_every_migration_since_the_rule_adds_or_is_marked(migrations: tuple[str, ...]) -> None:
    """A reminder for whoever writes one: what it removes or renames must be marked with `-- compatible from N`."""
    for version, script in enumerate(migrations, start=1):
        if version <= 6 or "-- compatible from " in script:
            continue
        words = " ".join(line for line in script.splitlines() if not line.startswith("--")).upper()
        for taken in ("DROP TABLE", "DROP COLUMN", "RENAME", "DROP FUNCTION", "ALTER COLUMN"):
            assert taken not in words, f"migration {version} has {taken}"
        for added in words.split("ADD COLUMN")[1:]:
            column = added.split(";")[0]
            assert "NOT NULL" not in column or "DEFAULT" in column, f"migration {version}: {column}"
