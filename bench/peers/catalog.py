"""Every system that is measured: how its workers are started, what it needs, how many jobs it gets.

The settings are each system's own defaults, or where those are known to be slow or unsafe, what its documentation
advises. Words in braces are filled in: `{bin}` the environment's programs, `{n}` how many processes, `{k}` which one.
"""

from __future__ import annotations

import msgspec


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the report."""

    name: str
    title: str
    app: str
    package: str
    setting: str
    requirements: str | None = None
    """Its environment; None is ours."""
    server: str | None = None
    """The kind of server that is started for it; None if it needs none."""
    worker: tuple[str, ...]
    worker_each: bool = False
    """Whether the command is started once per process, rather than told how many to have."""
    jobs: int = 0
    """How many jobs a rate is measured with; 0 for a variant that is only killed."""
    variant_of: str = ""
    """The system that this is, but for a setting."""
    env: dict[str, str] = {}
    crowd_env: dict[str, str] = {}
    """What is added when there are several worker processes."""
    restart_env: dict[str, str] = {}
    """What is added for the worker that follows a killed one."""

    def commands(self, bin_folder: str, n: int) -> list[list[str]]:
        """What to start for n worker processes."""
        copies = range(n if self.worker_each else 1)
        return [[part.format(bin=bin_folder, n=n, k=k) for part in self.worker] for k in copies]


_APPS = "bench.peers"

_CELERY = System(
    name="celery",
    title="Celery",
    app=f"{_APPS}.celery_app",
    package="celery",
    setting="prefork, one child a worker, early ack (default), no result backend",
    requirements="celery",
    server="redis",
    worker=(
        *("{bin}/python", "-m", "celery", "-A", f"{_APPS}.celery_app", "worker", "-l", "WARNING"),
        *("-P", "prefork", "-c", "1", "-n", "bench{k}@localhost"),
    ),
    worker_each=True,
    jobs=3000,
)
_TASKIQ = System(
    name="taskiq-list",
    title="taskiq, list",
    app=f"{_APPS}.taskiq_app",
    package="taskiq",
    setting="ListQueueBroker, uvloop, no results",
    requirements="taskiq",
    server="redis",
    worker=("{bin}/taskiq", "worker", f"{_APPS}.taskiq_app:broker", "--log-level", "WARNING", "--workers", "{n}"),
    env={"BENCH_VARIANT": "list"},
    jobs=6000,
)
_SAQ = System(
    name="saq",
    title="SAQ",
    app=f"{_APPS}.saq_app",
    package="saq",
    setting="10 at a time (default), results kept",
    requirements="saq",
    server="redis",
    worker=("{bin}/saq", f"{_APPS}.saq_app.settings"),
    worker_each=True,
    jobs=4000,
)
_PROCRASTINATE = System(
    name="procrastinate",
    title="Procrastinate",
    app=f"{_APPS}.procrastinate_app",
    package="procrastinate",
    setting="10 at a time",
    requirements="procrastinate",
    server="postgresql",
    worker=("{bin}/procrastinate", f"--app={_APPS}.procrastinate_app.app", "worker", "--concurrency", "10"),
    worker_each=True,
    jobs=1200,
)
_DBOS = System(
    name="dbos",
    title="DBOS",
    app=f"{_APPS}.dbos_app",
    package="dbos",
    setting="queue polled each second (default); two processes: each 0.05 s, 50 at a time, or the second gets nothing",
    requirements="dbos",
    server="postgresql",
    worker=("{bin}/python", "-m", f"{_APPS}.dbos_app", "{k}"),
    worker_each=True,
    crowd_env={"BENCH_POLL_S": "0.05", "BENCH_CLAIM": "50"},
    jobs=1500,
)
_SAQ_POSTGRES = msgspec.structs.replace(
    _SAQ, name="saq-postgres", title="SAQ, PostgreSQL", server="postgresql", jobs=1500
)
_PGQUEUER = System(
    name="pgqueuer",
    title="PgQueuer",
    app=f"{_APPS}.pgqueuer_app",
    package="pgqueuer",
    setting="asyncpg, batches of 10 (default), as many at a time as come; autovacuum as it advises",
    requirements="pgqueuer",
    server="postgresql",
    worker=("{bin}/pgq", "run", f"{_APPS}.pgqueuer_app:main", "--batch-size", "10"),
    worker_each=True,
    jobs=10_000,
)
_AWA = System(
    name="awa",
    title="awa",
    app=f"{_APPS}.awa_app",
    package="awa-pg",
    setting="a Rust core, 50 at a time (its core's default)",
    requirements="awa",
    server="postgresql",
    worker=("{bin}/python", "-m", f"{_APPS}.awa_app"),
    worker_each=True,
    jobs=6000,
)

PEERS = (
    _CELERY,
    System(
        name="dramatiq",
        title="Dramatiq",
        app=f"{_APPS}.dramatiq_app",
        package="dramatiq",
        setting="8 threads (default), no results",
        requirements="dramatiq",
        server="redis",
        worker=("{bin}/python", "-m", "dramatiq", f"{_APPS}.dramatiq_app", "--processes", "{n}", "--threads", "8"),
        jobs=6000,
    ),
    System(
        name="huey",
        title="Huey",
        app=f"{_APPS}.huey_app",
        package="huey",
        setting="one thread a consumer (default)",
        requirements="huey",
        server="redis",
        worker=("{bin}/huey_consumer", f"{_APPS}.huey_app.huey", "-q", "-w", "1", "-k", "thread"),
        worker_each=True,
        jobs=6000,
    ),
    _TASKIQ,
    msgspec.structs.replace(
        _TASKIQ,
        name="taskiq-stream",
        title="taskiq, stream",
        setting="RedisStreamBroker, uvloop, no results",
        env={"BENCH_VARIANT": "stream"},
    ),
    _SAQ,
    _PROCRASTINATE,
    _DBOS,
    _SAQ_POSTGRES,
    _PGQUEUER,
    msgspec.structs.replace(
        _PGQUEUER,
        name="pgqueuer-wide",
        title="PgQueuer, batches of 500",
        setting="larger batches, as it advises for short jobs; 500 was its fastest here",
        worker=(*_PGQUEUER.worker[:-1], "500"),
        jobs=20_000,
        variant_of="pgqueuer",
    ),
    _AWA,
    msgspec.structs.replace(
        _AWA,
        name="awa-wide",
        title="awa, 500 at a time",
        setting="500 at a time was its fastest here",
        env={"BENCH_CLAIM": "500"},
        jobs=12_000,
        variant_of="awa",
    ),
    msgspec.structs.replace(
        _CELERY,
        name="celery-late",
        title="Celery, late ack",
        setting="task_acks_late, task_reject_on_worker_lost",
        env={"BENCH_VARIANT": "late"},
        jobs=0,
        variant_of="celery",
    ),
    msgspec.structs.replace(
        _SAQ,
        name="saq-retries",
        title="SAQ, retries=3",
        setting="retries=3",
        env={"BENCH_VARIANT": "retries"},
        jobs=0,
        variant_of="saq",
    ),
    msgspec.structs.replace(
        _SAQ_POSTGRES,
        name="saq-postgres-retries",
        title="SAQ, PostgreSQL, retries=3",
        setting="retries=3",
        env={"BENCH_VARIANT": "retries"},
        jobs=0,
        variant_of="saq-postgres",
    ),
    msgspec.structs.replace(
        _PROCRASTINATE,
        name="procrastinate-recipe",
        title="Procrastinate, recipe",
        setting="with the documented periodic retry of stalled jobs",
        env={"BENCH_VARIANT": "recipe"},
        jobs=0,
        variant_of="procrastinate",
    ),
    msgspec.structs.replace(
        _DBOS,
        name="dbos-other",
        title="DBOS, other executor",
        setting="restarted under another executor id, as on another machine",
        restart_env={"BENCH_EXECUTOR": "another"},
        jobs=0,
        variant_of="dbos",
    ),
)


def _mainstay(store: str, title: str, setting: str, server: str | None = None) -> System:
    return System(
        name=f"mainstay-{store}",
        title=f"Mainstay, {title}",
        app=f"{_APPS}.mainstay_app",
        package="mainstay",
        setting=f"{setting}, audit on, 10 at a time (all defaults)",
        server=server,
        worker=("{bin}/mainstay", "worker", f"{_APPS}.mainstay_app:app", "--processes", "{n}", "--concurrency", "10"),
        jobs=30_000,
    )


OURS = (
    _mainstay("redis", "Redis", "the server's durability", "redis"),
    _mainstay("postgresql", "PostgreSQL", "submits and results synced, claims not", "postgresql"),
    _mainstay("sqlite", "SQLite", "every commit synced"),
)
"""Ourselves, on each store."""
