"""Commands stay fast with millions of rows: every statement they run on the big tables goes through an index.

The statements are not written down here a second time: they are overheard from the store at work.
"""

from __future__ import annotations

import re
from typing import Any

import apsw
import pytest

from mainstay.stores.sqlite import SqliteStore
from tests.cli.conftest import Shell


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    heard: list[tuple[str, Any]] = []
    connect = SqliteStore._connect

    def connect_and_listen(self: SqliteStore) -> apsw.Connection:
        db = connect(self)

        def note(cursor: apsw.Cursor, sql: str, values: Any) -> bool:
            heard.append((sql, values))
            return True

        db.exec_trace = note
        return db

    monkeypatch.setattr(SqliteStore, "_connect", connect_and_listen)
    return heard


def plans(shell: Shell, heard: list[tuple[str, Any]]) -> dict[str, list[str]]:
    db = apsw.Connection(str(shell.path))
    found = {
        sql: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        for sql, values in heard
        if re.search(r"\b(jobs|events)\b", sql) and re.match(r"\s*(SELECT|UPDATE|DELETE)", sql)
    }
    db.close()
    return found


def assert_cheap(found: dict[str, list[str]]) -> None:
    assert found
    for sql, plan in found.items():
        # what one session holds is little, and may be sorted
        held = any("jobs_held (session=?)" in step for step in plan)
        for step in plan:
            assert not re.fullmatch(r"SCAN (jobs|events)", step), f"reads every row: {sql}\n{plan}"
            assert held or "TEMP B-TREE" not in step, f"sorts: {sql}\n{plan}"


#: jobs of a queue
_LISTED = r"jobs_listed \(queue=\? AND status=\? AND name=\?"


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (("jobs", "list", "--older-than", "1ms"), r"jobs_status \(status=\? AND id<\?\)"),
        (("jobs", "list", "--newer-than", "1h"), r"jobs_status \(status=\? AND id>\?\)"),
        (
            ("jobs", "list", "--newer-than", "1h", "--older-than", "1ms", "--status", "pending", "--oldest-first"),
            r"jobs_status \(status=\? AND id>\? AND id<\?\)",
        ),
        (("jobs", "list", "--queue", "mail", "--older-than", "1ms"), _LISTED + r" AND id<\?\)"),
        (("jobs", "list", "--tag", "old", "--newer-than", "1h"), r"tags .*\(tag=\? AND job_id>\?\)"),
        (("jobs", "list", "--group", "018bcfe5-6800-7000-8000-000000000001"), r"jobs_group \(group=\?\)"),
        (
            ("jobs", "cancel", "--queue", "mail", "--older-than", "1ms", "--dry-run"),
            _LISTED + r" AND id<\?\)",
        ),
        (("jobs", "retry", "--status", "failed", "--yes"), r"jobs_status \(status=\? AND id<\?\)"),
        (("queues", "list"), r"jobs_oldest \(queue=\?\)"),
        (("queues", "purge", "mail", "--yes"), _LISTED + r" AND id<\?\)"),
        (("workers", "list"), r"jobs_held \(session=\?\)"),
        (("jobs", "watch", "--queue", "mail", "--for", "1ms"), _LISTED + r"\)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_no_command_reads_every_row(
    shell: Shell, heard: list[tuple[str, Any]], words: tuple[str, ...], step: str
) -> None:
    shell.submit(n=3, queue="mail", tags=["old"])
    shell.does(lambda control: control.claims.open_session(worker="w-1"))
    heard.clear()

    assert shell.run(*words).exit_code == 0

    found = plans(shell, heard)
    steps = [each for plan in found.values() for each in plan]
    assert any(re.search(step, each) for each in steps), steps
    assert_cheap(found)


def test_explain_reads_only_what_it_tells_of(shell: Shell, heard: list[tuple[str, Any]]) -> None:
    (job_id, *_) = shell.submit(n=3, queue="mail", concurrency_key="k")
    shell.does(lambda control: control.claims.open_session(worker="w-1"))
    heard.clear()

    assert shell.run("jobs", "explain", job_id).exit_code == 0

    assert_cheap(plans(shell, heard))
