"""The dashboard pages of load tests: all runs, one run during and after it, and two runs side by side."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from ...control.explain import as_heard
from ...errors import InvalidInput
from ...lifecycle import table_of
from ...model import Job, check_id
from ...stores import size_left_out
from ...web import in_thread
from ...web.api import etag_of, shown_job, size_of
from ...web.dashboard import PageView, allowed_actions, cursor_of, filter_of, forced_states, jobs_of_kind
from ...worker import state_folder
from ..extra import extra_needed
from ..local_run import FOLDER
from .api import NO_CODEC
from .slices import load_places
from .texts import SummaryTexts, texts_of

if TYPE_CHECKING:
    from ..report.compare import Run
    from ..stats.model import StepSummary, Summary, TagSummary

#: the list does not read larger summaries
_SUMMARY_BYTES = 1024 * 1024


async def loads(view: PageView) -> Response:
    given = view.given()
    cursor = cursor_of(given)
    name = filter_of(given).name
    some = await jobs_of_kind(view.served.store, "load", cursor=cursor, name=name, value_bytes=_SUMMARY_BYTES)
    runs = await in_thread(
        lambda: [(job, summary, _list_texts(summary)) for job in some.jobs for summary in [_summary(job)]],
        sum(map(size_of, some.jobs)),
    )
    return view.page("load/loads.html", title="Load tests", some=some, runs=runs, name=name, first=cursor is None)


async def load(view: PageView) -> Response:
    job = await view.served.control.jobs.get(check_id(view.path("id")))
    texts = await texts_of(view.served.store, job, view.masker)
    summary = await in_thread(lambda: _shown_summary(job, texts), size_of(job))
    content = await in_thread(lambda: _content(summary), size_of(job))
    # a node that no manager hears has no free cores
    heard = as_heard(view.served.store, await view.site.cluster_facts(view.served))
    places = await load_places(heard, job, summary)
    state = table_of(job.parent).get(job.status)
    return view.page(
        "load/load.html",
        title=job.name,
        job=await shown_job(view.served.store, job, view.masker),
        etag=etag_of(job),
        can=allowed_actions(job, state),
        settled=state is not None and state.settled,
        force_to=forced_states(job),
        places=places,
        **content,
    )


async def compare_loads(view: PageView) -> Response:
    with extra_needed("a comparison of load tests"):
        from ..report.compare import compare  # noqa: PLC0415 - an extra that most servers do without
        from ..report.compare_page import comparison_fragment  # noqa: PLC0415 - the same

    given = view.given()
    ids = [*given.get("a", [])[:1], *given.get("b", [])[:1], *given.get("run", [])]
    if len(ids) != 2:
        raise InvalidInput("run", f"two runs can be compared, not {len(ids)}; choose two in the list")
    jobs = await view.served.control.jobs.get_many([check_id(each) for each in ids])
    # the earlier run is A
    jobs.sort(key=lambda job: job.created_ms)
    # a recording can be long, and must not block other requests
    texts = [await texts_of(view.served.store, job, view.masker) for job in jobs]
    first, second = [await asyncio.to_thread(_run, job, text) for job, text in zip(jobs, texts, strict=True)]
    comparison = await asyncio.to_thread(compare, first, second)
    report = await asyncio.to_thread(comparison_fragment, comparison, first, second)
    return view.page("load/compare.html", title="Two runs side by side", jobs=jobs, report=report)


def _list_texts(summary: Summary | None) -> dict[str, str]:
    """The numbers of a run in the list, written as on its own page."""
    if summary is None:
        return {}
    from ..report.text import latency_text  # noqa: PLC0415 - an extra that most servers do without
    from ..report.words import rate_text  # noqa: PLC0415 - the same

    return {"rate": rate_text(summary.rate), "p95": latency_text(summary.response or summary.service, "p95")}


def _run(job: Job, texts: SummaryTexts) -> Run:
    run = _recorded(job)
    return msgspec.structs.replace(run, summary=texts.shown(run.summary))


def _recorded(job: Job) -> Run:
    from ..report.compare import as_run  # noqa: PLC0415 - an extra that most servers do without
    from ..report.recorded import read_result  # noqa: PLC0415 - the same

    summary = _summary(job)
    if summary is None:
        raise InvalidInput("run", f"job {job.id} ({job.name}) is {job.status}, and has no numbers yet")
    # the stream has more than fits into a job; it exists if the run was on this machine
    stream = _recording(job, summary)
    run = as_run(summary)
    if stream is None:
        return run
    recorded = read_result(stream)
    if recorded.summary.verdict in ("running", "lost"):
        # the recording has no end; the job knows the state of the run
        return run
    return recorded


def _recording(job: Job, summary: Summary) -> Path | None:
    """The recorded stream of a run. The path in the job's result is followed only to a file of this job in one of the
    server's own folders of recordings: a result is data, and must not name any other file for the server to open."""
    if not summary.stream:
        return None
    path = Path(summary.stream)
    folders = (state_folder("load"), Path(FOLDER, "load").resolve())
    is_own = path.name.startswith((f"{job.id}-", f"{job.id}.")) and path.parent.resolve() in folders
    return path if is_own and not path.is_symlink() and path.is_file() else None


def _summary(job: Job) -> Summary | None:
    with extra_needed("the numbers of a load test"):
        from ..handler import summary_of  # noqa: PLC0415 - an extra that most servers do without
    if size_left_out(job.result if job.result is not None else job.checkpoint) is not None:
        return None
    try:
        return summary_of(job, NO_CODEC)
    except (msgspec.MsgspecError, InvalidInput):
        # written by another version, or encoded by a codec: the rest of the page is still useful
        return None


def _shown_summary(job: Job, texts: SummaryTexts) -> Summary | None:
    summary = _summary(job)
    return None if summary is None else texts.shown(summary)


def _content(summary: Summary | None) -> dict[str, Any]:
    """The parts of the report that the page of a run shows, during the run as well."""
    if summary is None:
        return {"verdict": None}
    from ..report import page  # noqa: PLC0415 - an extra that most servers do without
    from ..report.advice import verdict_words  # noqa: PLC0415 - the same
    from ..report.limits import limits_of  # noqa: PLC0415 - the same
    from ..report.text import several_workflows, step_name, tag_name, threshold_text  # noqa: PLC0415 - the same

    several = several_workflows(summary)
    return {
        "verdict": verdict_words(summary),
        "facts": page.facts(summary),
        "charts": page.charts_html(summary),
        "thresholds": [
            {
                "passed": one.passed,
                "pending": one.pending,
                "text": one.text,
                "shown": threshold_text(one.shown, one.at_s, one.stopped),
                "part": _part(one.value, limit.value) if limit is not None else None,
            }
            for one, limit in zip(summary.thresholds, limits_of(summary), strict=True)
        ],
        "steps": [_row(one, step_name(one, several=several)) for one in summary.steps],
        "tags": [_row(one, tag_name(one)) for one in summary.by_tag],
        "errors": sorted(summary.errors.items(), key=lambda one: -one[1])[:20],
    }


def _row(one: StepSummary | TagSummary, name: str) -> dict[str, Any]:
    """The numbers of a step or a tag; below them, the times of some of its requests."""
    from ..report.page import other_times  # noqa: PLC0415 - an extra that most servers do without
    from ..report.text import latency_text  # noqa: PLC0415 - the same
    from ..report.words import rate_text, share_text  # noqa: PLC0415 - the same

    return {
        "name": name,
        "requests": one.requests,
        "failed": share_text(one.failed, one.requests),
        "rate": rate_text(one.rate),
        "times": [
            {"name": which, **{field: latency_text(latency, field) for field in ("p50", "p95", "p99", "max")}}
            for which, latency in [("", one.service), *other_times(one)]
        ],
    }


def _part(value: float | None, limit: float) -> float | None:
    """The place of a value between zero and twice its limit, from 0 to 1."""
    return None if value is None or limit <= 0 else min(1.0, value / (2 * limit))


PAGES = {"/loads": loads, "/loads/compare": compare_loads, "/loads/{id}": load}
