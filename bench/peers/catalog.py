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
    setting="Redis, 10 at a time (default), results kept",
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
    msgspec.structs.replace(
        _CELERY,
        name="celery-late",
        title="Celery, late ack",
        setting="task_acks_late, task_reject_on_worker_lost",
        env={"BENCH_VARIANT": "late"},
        jobs=0,
    ),
    msgspec.structs.replace(
        _SAQ, name="saq-retries", title="SAQ, retries=3", setting="retries=3", env={"BENCH_VARIANT": "retries"}, jobs=0
    ),
    msgspec.structs.replace(
        _PROCRASTINATE,
        name="procrastinate-recipe",
        title="Procrastinate, recipe",
        setting="with the documented periodic retry of stalled jobs",
        env={"BENCH_VARIANT": "recipe"},
        jobs=0,
    ),
    msgspec.structs.replace(
        _DBOS,
        name="dbos-other",
        title="DBOS, other executor",
        setting="restarted under another executor id, as on another machine",
        restart_env={"BENCH_EXECUTOR": "another"},
        jobs=0,
    ),
)


def mainstay(store: str) -> System:
    """Ourselves. `store` is `sqlite`, the kind of a server that the bench starts, or a URL."""
    kind = store.partition(":")[0]
    return System(
        name="mainstay",
        title="Mainstay",
        app=f"{_APPS}.mainstay_app",
        package="mainstay",
        setting=f"{kind} store, durable, audit on, 10 at a time (all defaults)",
        server=store if store in {"redis", "postgresql"} else None,
        worker=("{bin}/mainstay", "worker", f"{_APPS}.mainstay_app:app", "--processes", "{n}", "--concurrency", "10"),
        jobs=30_000,
    )
