"""Submission of one job, of many jobs, and of groups."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...control import JobRequest, check_text, encoded, read_deadline, unique_of, with_task_defaults
from ...errors import Conflict, InvalidInput, KeyConflict
from ...model import Job
from ...stores import Durability, InsertResult
from ..audit import AuditEntry
from ..problems import Problem, problem_of
from .fields import Duration, JobId, Limit, Name, Priority, Queue, Tag, Text
from .job_responses import SubmitGroupResponse, SubmitManyResponse, SubmitResponse
from .operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .views import etag_of

#: the most characters of a key
_LONGEST_KEY = 255
_INDEXED = re.compile(r"requests\[(\d+)\]")
_OF_GROUP = re.compile(r"members\[\d+\]|then\b")


class JobSubmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to submit. An option that is left out, or null, has the value of its task, if a worker has offered the task
    to this store; otherwise that of the server's settings."""

    name: Name
    """name of its task"""
    payload: Any = None
    """its arguments, an object by name; left out, or null: none"""
    queue: Queue | None = None
    priority: Priority | None = None
    delay: Duration | None = None
    run_at: Annotated[datetime, Meta(tz=True)] | None = None
    retries: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    backoff: Literal["exponential", "linear", "fixed"] | None = None
    backoff_base: Duration | None = None
    backoff_cap: Duration | None = None
    jitter: bool | None = None
    crash_budget: Annotated[int, Meta(ge=1, le=1000)] | None = None
    timeout: Limit | None = None
    queue_deadline: Annotated[str, Meta(min_length=1, max_length=50)] | None = None
    """a duration, or a time with its zone"""
    stall_timeout: Limit | None = None
    on_stall: Literal["retry", "hold"] | None = None
    grace: Duration | None = None
    key: Text | None = None
    """a job that is submitted twice with the same key is stored once; also as the header Idempotency-Key"""
    key_ttl: Duration | None = None
    unique: bool | Text | None = None
    """at most one unsettled job with this key; true: with these arguments"""
    on_clash: Literal["return", "refuse", "replace"] | None = None
    """what to do if such a job exists. `replace` cancels that job: it needs the scope `operate`, unless the caller has
    submitted that job"""
    concurrency_key: Text | None = None
    tags: Annotated[list[Tag], Meta(max_length=50)] | None = None
    metadata: dict[Tag, Annotated[str, Meta(max_length=1000)]] | None = None
    keep: Limit | None = None
    after: Annotated[list[JobId], Meta(max_length=10_000)] | None = None
    after_when: Literal["succeeded", "settled"] | None = None
    after_failed: Literal["skip", "fail"] | None = None
    durability: Durability | None = None

    def filled(self, defaults: Mapping[str, Any]) -> JobSubmission:
        """The submission, completed with the options of its task."""
        usable = {name: value for name, value in defaults.items() if name in _TAKEN}
        own = {name: getattr(self, name) for name in (*usable, "unique", "stall_timeout")}
        payload = {} if self.payload is None else self.payload
        return msgspec.structs.replace(self, payload=payload, **with_task_defaults(own, usable))

    def request(self, key: str | None = None) -> JobRequest:
        """The request for control."""
        options = {
            name: value
            for name in self.__struct_fields__
            if name not in ("name", "payload") and (value := getattr(self, name)) is not None
        }
        if self.unique is False:
            del options["unique"]
        if self.queue_deadline is not None:
            options["queue_deadline"] = read_deadline(self.queue_deadline)
        if key is not None:
            if self.key not in (None, key):
                raise InvalidInput("key", "differs from the header Idempotency-Key; send one of them")
            options["key"] = key
        return JobRequest(self.name, self.payload, options)


class JobSubmissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to submit; all or none are stored."""

    jobs: list[JobSubmission]


class GroupSubmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to submit, and one that runs when all of them are done; all or none are stored."""

    members: list[JobSubmission]
    then: JobSubmission
    """it waits for the members; `awaited` lists their ids"""
    when: Literal["succeeded", "settled"] = "succeeded"
    """what the members must be before it runs"""
    failed: Literal["skip", "fail"] = "skip"
    """what happens to it if a member does not succeed"""


#: options that a job takes from its task
_TAKEN = frozenset(JobSubmission.__struct_fields__) - {"name", "payload", "key"}


async def submit_job(ask: ApiRequest[NoParameters, JobSubmission]) -> Response:
    [body] = await _filled(ask, [ask.body])
    request = body.request(key_header(ask))
    replacement = Replacement(ask)
    try:
        made = await ask.control.jobs.submit_request(request, may_replace=replacement.check)
    except Problem as problem:
        replacement.refused(problem)
        raise
    replacement.done(made.id)
    location = f"{ask.request.scope.get('root_path', '')}/jobs/{made.id}"
    if "store" in ask.request.query_params:
        location += f"?store={quote(ask.served.name)}"
    headers = {"Location": location}
    if made.created and not ask.body.after:
        # a new row has version 1, even if a worker has claimed it by now
        headers["ETag"] = '"1"'
    elif (existing := (await ask.served.store.get([made.id]))[0]) is not None:
        headers["ETag"] = etag_of(existing)
    return json_response(msgspec.to_builtins(_response(made)), 201 if made.created else 200, **headers)


def _response(result: InsertResult) -> SubmitResponse:
    return SubmitResponse(id=result.id, created=result.created, durability=result.durability)


async def submit_jobs(ask: ApiRequest[NoParameters, JobSubmissions]) -> Response:
    jobs = await _filled(ask, ask.body.jobs)
    most = _check_number(ask, "jobs", jobs)
    key = key_header(ask, room=len(f"#{most}"))
    tasks = hashlib.sha256(msgspec.msgpack.encode([job.name for job in jobs])).digest()
    requests = []
    for index, job in enumerate(jobs):
        try:
            if key is None or job.key is not None:
                requests.append(job.request())
            else:
                # each job has its own key: when the list is sent again, all of them exist
                requests.append(_keyed(job, f"{key}#{index}", within=tasks))
        except InvalidInput as error:
            raise _in_bulk(error, index) from None
    try:
        made = await ask.control.jobs.submit_many(requests)
    except (InvalidInput, Conflict) as error:
        named = _INDEXED.match(str(error))
        which = int(named[1]) if named else 0 if len(jobs) == 1 else None
        problem = _in_bulk(error, which)
        if isinstance(error, KeyConflict) and key is not None and which is not None and jobs[which].key is None:
            problem.detail = (
                f"jobs[{which}]: the Idempotency-Key {key!r} was used for another list of jobs: with more or fewer "
                "jobs, other tasks or other payloads; send the same list, or use another key"
            )
        raise problem from None
    answer = SubmitManyResponse(jobs=[_response(one) for one in made], created=sum(one.created for one in made))
    return json_response(msgspec.to_builtins(answer), 201 if any(one.created for one in made) else 200)


async def submit_group(ask: ApiRequest[NoParameters, GroupSubmission]) -> Response:
    body = ask.body
    _check_number(ask, "members", body.members)
    # when the group is sent again, the job that waits exists, and with it all others
    key = key_header(ask)
    last, *others = await _filled(ask, [body.then, *body.members])
    then = _named(lambda: last.request(key), "then")
    members = [_named(job.request, f"members[{index}]") for index, job in enumerate(others)]
    try:
        made = await ask.control.jobs.submit_group(members, then, when=body.when, failed=body.failed)
    except Conflict as error:
        problem = problem_of(error)
        if whose := _OF_GROUP.match(str(error)):
            problem.field = whose[0]
        raise problem from None
    answer = SubmitGroupResponse(then=_response(made.then), members=[_response(one) for one in made.members])
    return json_response(msgspec.to_builtins(answer), 201 if made.then.created else 200)


class Replacement:
    """A submit that replaces another job: the permission for that, and its line in the audit log."""

    def __init__(self, ask: ApiRequest[Any, Any]) -> None:
        self._ask = ask
        self._entry = AuditEntry("replace_job", ask.request)
        self._entry.store = ask.served.name
        self._holder: Job | None = None

    async def check(self, holder: Job) -> None:
        """Raise `Problem` unless the caller may cancel the job: with the scope `operate`, or because it submitted the
        job."""
        self._holder = holder
        caller = self._ask.caller
        if caller.may("operate"):
            return
        first = await self._ask.served.store.events(holder.id, limit=1)
        if first and first[0].seq == 1 and first[0].actor == caller.actor:
            return
        raise Problem(
            403,
            "scope_needed",
            f"job {holder.id} holds this unique key, and {caller.name} did not submit it: replacing it needs the scope "
            "'operate'; or submit with on_clash=return or refuse",
            needed="operate",
        )

    def done(self, made: str) -> None:
        """Log the job that was replaced, if any."""
        if self._holder is not None and self._holder.id != made:
            self._entry.result |= {"id": self._holder.id, "by": made}
            self._entry.done()

    def refused(self, problem: Problem) -> None:
        if self._holder is not None:
            self._entry.result |= {"id": self._holder.id}
            self._entry.refused(problem)


async def _filled(ask: ApiRequest[Any, Any], jobs: Sequence[JobSubmission]) -> list[JobSubmission]:
    known = await ask.served.defaults.of({job.name for job in jobs})
    return [job.filled(known.get(job.name, {})) for job in jobs]


def _check_number(ask: ApiRequest[Any, Any], field: str, jobs: Sequence[JobSubmission]) -> int:
    most = ask.site.options.bulk_limit
    if len(jobs) > most:
        raise InvalidInput(field, f"{len(jobs):,} jobs are more than the limit of {most:,} for one request")
    return most


def _named(request: Callable[[], JobRequest], where: str) -> JobRequest:
    try:
        return request()
    except InvalidInput as error:
        raise InvalidInput(f"{where}.{error.field}", error.rule) from None


def _keyed(job: JobSubmission, key: str, *, within: bytes) -> JobRequest:
    """A job whose key belongs to a whole list: the same key in another list is refused."""
    payload = encoded(job.payload, field="payload", limit=sys.maxsize)
    if job.unique is True:
        # uniqueness depends on the payload alone, in any list
        job = msgspec.structs.replace(job, unique=unique_of(job.name, payload))
    return msgspec.structs.replace(job.request(key), payload=msgspec.Raw(payload), content=within + payload)


def key_header(ask: ApiRequest[Any, Any], *, room: int = 0) -> str | None:
    """The idempotency key in the header, with room for `room` more characters."""
    given = ask.request.headers.getlist("idempotency-key")
    if len(given) > 1:
        raise InvalidInput("Idempotency-Key", "is given twice; give it once")
    return check_text(given[0], field="Idempotency-Key", limit=_LONGEST_KEY - room) if given else None


def _in_bulk(error: InvalidInput | Conflict, index: int | None) -> Problem:
    """The problem with the index of its job."""
    problem = problem_of(error)
    if index is None:
        return problem
    field = _INDEXED.sub("", error.field).lstrip(".") if isinstance(error, InvalidInput) else ""
    problem.field = f"jobs[{index}].{field}".rstrip(".")
    problem.detail = _INDEXED.sub("jobs[\\1]", problem.detail)
    problem.more["index"] = index
    return problem


_LOCATED = {"Location": "URL of the job", "ETag": "version of the job"}

OPERATIONS = (
    ApiOperation(
        method="POST",
        path="/jobs",
        handler=submit_job,
        scope="submit",
        tag="jobs",
        summary="Submit one job",
        about="With a key, a repeated request stores the job once. The response is sent when the job is stored. "
        "A body as application/msgpack keeps types that JSON lacks.",
        body=JobSubmission,
        packs=True,
        answers={
            201: ApiResponse(description="The job was submitted.", type=SubmitResponse, headers=_LOCATED),
            200: ApiResponse(description="The job existed before.", type=SubmitResponse, headers=_LOCATED),
        },
        refusals=(409, 413),
        idempotency_key=True,
    ),
    ApiOperation(
        method="POST",
        path="/jobs/bulk",
        handler=submit_jobs,
        scope="submit",
        tag="jobs",
        summary="Submit many jobs, all or none",
        about="With an Idempotency-Key, a repeated list is stored once; a list with more or fewer jobs, other tasks or "
        "other payloads is refused (409), and nothing is stored. "
        "A body as application/msgpack keeps types that JSON lacks.",
        body=JobSubmissions,
        packs=True,
        answers={
            201: ApiResponse(description="The jobs were submitted.", type=SubmitManyResponse),
            200: ApiResponse(description="All jobs existed before, or the list was empty.", type=SubmitManyResponse),
        },
        refusals=(409, 413),
        idempotency_key=True,
    ),
    ApiOperation(
        method="POST",
        path="/groups",
        handler=submit_group,
        scope="submit",
        tag="jobs",
        summary="Submit many jobs, and one that runs when all of them are done; all or none",
        about="With an Idempotency-Key, or a key of `then`, a repeated request stores the group once, and the members "
        "are those that `then` waits or waited for. A body as application/msgpack keeps types that JSON lacks.",
        body=GroupSubmission,
        packs=True,
        answers={
            201: ApiResponse(description="The group was submitted.", type=SubmitGroupResponse),
            200: ApiResponse(
                description="The job that waits existed before; nothing was stored.", type=SubmitGroupResponse
            ),
        },
        refusals=(409, 413),
        idempotency_key=True,
    ),
)
