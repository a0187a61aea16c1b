"""What a new field of a record costs: its line in `model/records.py`. Every store keeps it, beside older programs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstay
from mainstay.model import QueueSettings, Schedule, Session
from mainstay.stores.records import MORE, QUEUES, SCHEDULES, SESSIONS, RecordTable
from tests import places
from tests.conformance.adapters import ADAPTERS, Adapter
from tests.stores.sqlite.process import Child

PROGRAM = Path(__file__).with_name("record_program.py")
PACKAGE = Path(mainstay.__file__).parent
PERSISTENT = [each for each in ADAPTERS if each.persistent and each.modules is None]

#: the only file that is changed
_RECORDS = "model/records.py"
_NEW = {
    '    draining_by: str = ""\n': '    zone: str = ""\n    racks: Mapping[str, list[int]] = {}\n',
    '    set_by: str = ""\n': '    team: str = ""\n',
}


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which a session and a queue have new fields."""
    folder = tmp_path_factory.mktemp("newer")
    shutil.copytree(PACKAGE, folder / "mainstay", ignore=shutil.ignore_patterns("__pycache__"))
    records = folder / "mainstay" / _RECORDS
    text = records.read_text()
    for line, added in _NEW.items():
        assert text.count(line) == 1
        text = text.replace(line, added + line)
    records.write_text(text)
    return folder


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.end()


@pytest.mark.parametrize("adapter", PERSISTENT, ids=lambda each: each.name)
async def test_a_new_field_is_one_line_of_the_model_and_every_store_keeps_it(
    adapter: Adapter, tmp_path: Path, newer: Path, children: list[Child]
) -> None:
    url = places.place(adapter.server, tmp_path) if adapter.server else await adapter.ready(tmp_path)
    try:
        children += [Child(PROGRAM, url, "a", package=newer), Child(PROGRAM, url, "b")]
        new, old = children
        assert new.line() == "opened"
        assert old.line() == "opened"
        assert (new.ask("queue"), old.ask("queue")) == ("set", "set")

        seen = "[('a', 'w', 'north', {'a': [1, 2]}), ('b', 'w', '', {})] [('of-a', True, 'mail'), ('of-b', True, '')]"
        assert new.ask("list") == seen
        unknown = "'unknown'"
        assert old.ask("list") == (
            f"[('a', 'w', {unknown}, {unknown}), ('b', 'w', {unknown}, {unknown})] "
            f"[('of-a', True, {unknown}), ('of-b', True, {unknown})]"
        )

        assert old.ask("drain a") == "[True]"
        assert new.ask("beat") == "[(True, 'b')]"
        assert new.ask("list") == seen, "a program that does not know the field leaves it as it is"
    finally:
        adapter.clear(tmp_path)


@pytest.mark.parametrize(
    ("table", "kind"),
    [(SESSIONS, Session), (QUEUES, QueueSettings), (SCHEDULES, Schedule)],
    ids=["sessions", "queues", "schedules"],
)
def test_columns_are_fields_of_the_record(table: RecordTable[Session], kind: type[Session]) -> None:
    assert set(table.columns) - {MORE} <= set(kind.__struct_fields__)


def test_few_files_of_the_stores_name_a_field_that_they_change_themselves() -> None:
    """The codec, the scripts of two servers that write it, and one that reads it; beside the migrations, which never
    change."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "stores").rglob("*")
        if path.suffix in (".py", ".sql", ".lua")
        and path.parent.name != "migrations"
        and re.search(r"\bdraining_ms\b", path.read_text())
    }
    assert len(found) <= 4, found
