"""The dashboard pages of batches: the list, and a batch with its map, its defects and advice."""

from __future__ import annotations

import time

from starlette.responses import Response

from ...lifecycle import table_of
from ...model import check_id
from ...web.api import etag_of, shown_job
from ...web.dashboard import PageView, allowed_actions, cursor_of, filter_of, forced_states, jobs_of_kind
from ..advice import batch_advice
from ..report.html import map_html
from ..spec import KIND
from .masks import shown_report
from .services import service_at

#: shortest time between two updates of a running batch, and its multiple of the time that an update takes
_POLL_S, _SHARE = 3, 20


async def batches(view: PageView) -> Response:
    query = view.given()
    cursor = cursor_of(query)
    name = filter_of(query).name
    page = await jobs_of_kind(view.served.store, KIND, cursor=cursor, name=name)
    counts = {job.id: await view.served.control.jobs.unit_counts(job.id) for job in page.jobs}
    return view.page("batch/batches.html", title="Batches", some=page, counts=counts, name=name, first=cursor is None)


async def batch(view: PageView) -> Response:
    job_id = check_id(view.path("id"))
    began_s = time.monotonic()
    status = await service_at(view.served).status(job_id)
    job = await shown_job(view.served.store, status.job, view.masker)
    report = await shown_report(service_at(view.served), job_id, view.masker)
    return view.page(
        "batch/batch.html",
        title=job.name,
        job=job,
        etag=etag_of(job),
        batch=status,
        report=report,
        can=allowed_actions(job, table_of(None).get(job.status)),
        advice=batch_advice(job_id, job.status, lacking=report.outputs.lacking),
        map=map_html(report),
        force_to=forced_states(job),
        # the longer an update takes, the rarer it is
        poll_s="" if report.settled else max(_POLL_S, round((time.monotonic() - began_s) * _SHARE)),
        counts=await view.served.control.jobs.unit_counts(job_id),
    )


PAGES = {"/batches": batches, "/batches/{id}": batch}

__all__ = ["PAGES", "batch", "batches"]
