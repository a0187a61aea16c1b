"""The list of jobs: search and filters in the URL, pages by keyset, and bulk operations with a preview."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.responses import RedirectResponse, Response

from ...control import Action, bulk, cancelling, retrying
from ...errors import InvalidInput
from ...lifecycle import JOB
from ..api.job_pages import shown_page
from ..api.jobs import JobFilter
from ..api.request_reader import refusal
from ..api.text_mask import shown_jobs
from .page import PageView

PAGE = 50
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
#: filter -> its label on pages
_LABELS = {
    "status": "Status",
    "kind": "Kind",
    "queue": "Queue",
    "name": "Task",
    "tag": "Tag",
    "text": "Search",
    "key": "Key",
    "newer_than": "Within",
    "older_than": "Older than",
    "parent": "Units of",
    "session": "Held by",
    "group": "Of group",
    "created_from_ms": "Submitted from",
    "created_before_ms": "Submitted before",
}
_ACTIONS = {"retry": retrying, "cancel": cancelling}


async def jobs(view: PageView) -> Response:
    given = view.given()
    text = "".join(given.get("text", [])[:1])
    if ID.fullmatch(text) and (await view.served.store.get([text.lower()]))[0] is not None:
        return RedirectResponse(view.url(f"/jobs/{text.lower()}"), 303)
    cursor = cursor_of(given)
    oldest_first = given.pop("order", [""])[0] == "oldest"
    wanted = filter_of(given)
    query = msgspec.structs.replace(await wanted.query(view.served.store), oldest_first=oldest_first)
    page = await shown_page(view.served.store, query, cursor, PAGE, view.masker)
    return view.page(
        "jobs.html",
        title="Jobs",
        jobs=page.jobs,
        next=page.cursor,
        finished=page.finished,
        first=cursor is None,
        order="oldest" if oldest_first else "",
        given=_given_fields(wanted),
        states=list(JOB.states),
        counts=_counts(view, wanted),
    )


async def bulk_preview(view: PageView) -> Response:
    """The preview of a bulk operation: the number of jobs, and the first of them. Nothing is done before it is
    confirmed."""
    await view.site.guard.admit(view.request, "operate")
    given = view.given()
    name = given.pop("action", [""])[0]
    make = _ACTIONS.get(name)
    if make is None:
        raise InvalidInput("action", f"{name!r} is not an action; use {' or '.join(_ACTIONS)}")
    ids = given.pop("id", [])
    matching = given.pop("all", []) == ["matching"]
    given.pop("order", None)
    if not ids and not matching:
        raise InvalidInput("id", "no job is selected; select jobs in the list, or choose all that match")
    back = filter_of(given)
    action: Action = make(actor=view.caller.actor)
    store, most = view.served.store, view.site.options.bulk_limit
    body: dict[str, Any]
    if not matching:
        found = await bulk.named(store, ids[:most])
        fields: dict[str, Any] = {}
        body = {"action": name, "ids": list(found.ids)}
    else:
        wanted = back
        fields = _given_fields(wanted)
        statuses = [each for each in wanted.status or action.states if each in action.states]
        if not statuses:
            raise InvalidInput("status", f"{name} does not apply to {', '.join(wanted.status or ())}")
        narrowed = msgspec.structs.replace(wanted, status=statuses)
        found = await bulk.matching(store, await narrowed.query(store), limit=most)
        body = {"action": name, "filter": {**fields, "status": statuses}, "limit": max(1, found.total)}
        if found.query is not None:
            # jobs that are submitted after this preview are not included
            body["filter"]["created_before_ms"] = found.query.created_before_ms
        if 0 < found.total <= len(found.first):
            # the preview shows all of them, so these ids are used, without jobs that match later
            body = {"action": name, "ids": [job.id for job in found.first]}
    first = await shown_jobs(store, found.first, view.masker)
    return view.page(
        "bulk.html",
        title=f"{name.capitalize()} jobs",
        action=action,
        found=msgspec.structs.replace(found, first=first),
        body=body,
        given=fields,
        back=_given_fields(back),
        matching=matching,
        labels=_LABELS,
        more=found.limit is not None and sum(found.counts.values()) >= found.limit,
    )


def filter_of(given: dict[str, Any]) -> JobFilter:
    """The filter of a URL; raises `InvalidInput` with the field."""
    plain = {name: values if name == "status" else values[-1] for name, values in given.items()}
    try:
        return msgspec.convert(plain, JobFilter, strict=False)
    except msgspec.ValidationError as error:
        raise refusal(str(error), JobFilter) from None


def _counts(view: PageView, wanted: JobFilter) -> dict[str, int]:
    """Jobs by state, for the chips of the states: of the whole store or of one queue, since these are known. With other
    filters they would have to be counted, and are left out."""
    narrows = _given_fields(wanted).keys() - {"status"}
    if not narrows:
        return view.snapshot.counts
    if narrows != {"queue"}:
        return {}
    return next((queue.counts for queue in view.snapshot.queues if queue.name == wanted.queue), {})


def _given_fields(wanted: JobFilter) -> dict[str, Any]:
    """The fields that are given."""
    return {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None}


def cursor_of(given: dict[str, Any]) -> str | None:
    """The cursor of a URL, removed from its fields."""
    cursor: str | None = given.pop("cursor", [None])[-1]
    if cursor is not None and not ID.fullmatch(cursor):
        raise InvalidInput("cursor", "is not a cursor; start with the first page")
    return cursor


__all__ = ["bulk_preview", "cursor_of", "filter_of", "jobs"]
