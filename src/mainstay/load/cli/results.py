"""Finds a finished run by a file that it wrote, or by its job in a store."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import msgspec

from ...cli import ClusterWhere, Connected, Where, connected, full_id, using
from ...errors import InvalidInput, JobNotFound, StoreError
from ...task import Sealer
from ..handler import as_job_stands, summary_of
from ..local_run import FOLDER, STORE
from ..report.compare import Run, as_run
from ..report.recorded import read_result
from ..stream import StreamOutput

_ID = re.compile(r"[0-9a-fA-F]{8}[0-9a-fA-F-]*|[0-9a-fA-F-]*[0-9a-fA-F]{8}")

#: the store of runs without --store
_OWN = Where(store=STORE, typed=frozenset({"store"}))


def result_of(given: str, where: Where) -> Run:
    """The run that the user names."""
    if Path(given).exists():
        return as_run(read_result(given))
    if not _ID.fullmatch(given):
        raise InvalidInput(
            "result",
            f"{given!r} is neither a file nor the id of a job; give a recorded stream, a JSON summary or an id",
        )
    if not where.typed and Path(FOLDER).is_dir():
        # runs without --store are in this folder, whatever MAINSTAY_STORE is
        with contextlib.suppress(JobNotFound, StoreError):
            return using(connected(_OWN), lambda to: _of_job(to, given))
    return using(connected(_store_of(where, given)), lambda to: _of_job(to, given))


async def _of_job(to: Connected, given: str) -> Run:
    job = await to.control.jobs.get(await full_id(to.control.store, given))
    summary = summary_of(job, Sealer(None) if to.app is None else to.app.client.sealer)
    if summary is None:
        raise InvalidInput("result", f"job {job.id} ({job.name}) is {job.status} and has no numbers yet")
    # the stream has more than fits into a job; it exists if the run was on this machine
    stream = Path(summary.stream) if summary.stream else None
    if stream is None or not stream.is_file():
        return as_run(summary)
    run = read_result(stream)
    broken = any(one.error for one in summary.outputs if one.name == StreamOutput.name)
    if summary.verdict == "running" and run.summary.verdict == "lost" and not broken:
        # the process that ran it is gone; the store will know when a worker sweeps
        return run
    recorded = as_job_stands(job, run.summary)
    if recorded is None or (job.result is not None and recorded.verdict in ("running", "lost")):
        # the recording is incomplete, and the job knows how the run ended
        return as_run(summary)
    return msgspec.structs.replace(run, summary=recorded)


def _store_of(where: Where, given: str) -> Where:
    """The given store, or that of runs without --store."""
    if where.store or where.app or (isinstance(where, ClusterWhere) and where.cluster):
        return where
    if not Path(FOLDER).is_dir():
        raise JobNotFound(f"{given} (and this folder has no runs in {FOLDER}; name a store with --store)")
    return _OWN
