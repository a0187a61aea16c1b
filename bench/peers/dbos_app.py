"""DBOS on PostgreSQL: a queue of workflows, polled every second by default.

Run as a program it is the worker whose number is its argument, or with `schema`, one that only makes the tables.
`BENCH_EXECUTOR` names the executor id if it is not to follow the number. `BENCH_POLL_S` and `BENCH_CLAIM` set the
polling interval and how many workflows one process may hold, without which the first of two takes the whole backlog.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient

from . import slots

URL = os.environ["BENCH_URL"]
CHUNK = 500
OPTIONS = {"queue_name": "bench", "workflow_name": "noop", "app_version": "1"}


@DBOS.workflow(name="noop")
def noop(i: int) -> None:
    slots.mark(i)


@DBOS.workflow(name="sleeper")
def sleeper(tag: str, seconds: float) -> None:
    slots.sleep(tag, seconds)


def launch(executor: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": URL,
            "application_version": "1",
            "executor_id": executor,
            "run_admin_server": False,
            "log_level": "WARNING",
        }
    )
    DBOS.launch()
    limit = {"worker_concurrency": int(os.environ["BENCH_CLAIM"])} if "BENCH_CLAIM" in os.environ else {}
    poll_s = float(os.environ.get("BENCH_POLL_S", "1.0"))
    DBOS.register_queue("bench", polling_interval_sec=poll_s, on_conflict="always_update", **limit)


_client: DBOSClient | None = None


def client() -> DBOSClient:
    global _client  # noqa: PLW0603  # the schema must be there first, so not at import
    if _client is None:
        _client = DBOSClient(system_database_url=URL, application_name="bench")
    return _client


def reset() -> None:
    with psycopg.connect(URL, autocommit=True) as db:
        if db.execute("SELECT to_regclass('dbos.workflow_status')").fetchone() == (None,):
            # in a process of its own: it refuses to be launched beside a running event loop
            subprocess.run([sys.executable, "-m", "bench.peers.dbos_app", "schema"], check=True)
        db.execute("TRUNCATE dbos.workflow_status CASCADE")
        db.execute("VACUUM ANALYZE dbos.workflow_status")
        db.execute("CHECKPOINT")


def submit_one(i: int) -> None:
    client().enqueue(OPTIONS, i)


def submit_many(n: int) -> None:
    """There is no bulk call, but the caller may put many enqueues into one transaction."""
    engine = sqlalchemy.create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))
    for first in range(0, n, CHUNK):
        with engine.begin() as db:
            for i in range(first, min(n, first + CHUNK)):
                client().enqueue_in_transaction(db, OPTIONS, i)


def submit_sleeper(tag: str, seconds: float) -> None:
    client().enqueue({**OPTIONS, "workflow_name": "sleeper"}, tag, seconds)


def settled() -> int:
    with psycopg.connect(URL) as db:
        row = db.execute("SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'").fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    launch(os.environ.get("BENCH_EXECUTOR", f"worker-{sys.argv[1]}"))
    if sys.argv[1] != "schema":
        threading.Event().wait()
    DBOS.destroy()
