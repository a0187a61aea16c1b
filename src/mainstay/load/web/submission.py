"""The API of load tests on the nodes of a cluster: a planned run becomes a job. Its code was published before.

The test itself is never loaded here: a run comes as data, and everything in it is checked by the path of its field.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...bundles import BundleClient, BundleManifest
from ...clock import seconds
from ...errors import BundleCorrupt, BundleMissing, BusError, InvalidInput
from ...stores import Durability
from ...web import ClusterSource, Problem
from ...web.api import (
    ApiOperation,
    ApiRequest,
    ApiResponse,
    Duration,
    Limit,
    NoParameters,
    Priority,
    SubmitResponse,
    Tag,
    Text,
    json_response,
    key_header,
    refusal,
)
from ..extra import extra_needed
from ..kind import KIND
from ..placement import CoreDemand

_NO_CLUSTER = "this server has no cluster; start it with: mainstay serve --cluster URL"
_REFUSALS = (404, 409, 503)
#: options of the job
_OPTIONS = (
    "key_ttl",
    "priority",
    "delay",
    "run_at",
    "timeout",
    "concurrency_key",
    "tags",
    "metadata",
    "keep",
    "durability",
)


class RunSubmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load test to run on nodes. An option that is left out, or null, has the value that follows from the plan, or
    that of the server's settings."""

    run: dict[str, Any]
    """the planned run, as `Client` and `mainstay load run` make it: the options of the test, the plan that follows from
    them, the cores that it needs (`demand`), what to do when a node is lost (`on_loss`), and the digest of the bundle
    with its code (`code`)"""
    wait: Duration | None = None
    """how long to wait for free cores; left out: until it is cancelled"""
    key: Text | None = None
    """a run that is submitted twice with the same key is stored once; also as the header Idempotency-Key"""
    key_ttl: Duration | None = None
    priority: Priority | None = None
    delay: Duration | None = None
    run_at: Annotated[datetime, Meta(tz=True)] | None = None
    timeout: Limit | None = None
    concurrency_key: Text | None = None
    tags: Annotated[list[Tag], Meta(max_length=50)] | None = None
    metadata: dict[Tag, Annotated[str, Meta(max_length=1000)]] | None = None
    keep: Limit | None = None
    durability: Durability | None = None

    def job_options(self, key: str | None) -> dict[str, Any]:
        """The options of the job that its sender has given."""
        if key is not None and self.key not in (None, key):
            raise InvalidInput("key", "differs from the header Idempotency-Key; send one of them")
        given = {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}
        chosen = key or self.key
        return given if chosen is None else {**given, "key": chosen}


class PlacementQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that is not submitted yet, as far as its client knows."""

    demand: CoreDemand
    name: Text | None = None
    """of the test"""
    key: Text | None = None
    """if a run of the test was submitted with this key, nothing is wrong: it is stored"""


class PlacementAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the nodes of the cluster could hold a run."""

    problem: str
    """why they never could, as they are now; empty: they could, if they were free"""


async def check_placement(ask: ApiRequest[NoParameters, PlacementQuestion]) -> Response:
    _bundles(ask.site.cluster)
    with extra_needed("a load test on nodes"):
        from ..fleet.submission import core_problem  # noqa: PLC0415 - an extra that most servers do without
        from ..fleet.submission_steps import AskCoreProblem  # noqa: PLC0415 - as above

    question = AskCoreProblem(ask.body.demand, ask.body.name or "", ask.body.key)
    return json_response(PlacementAnswer(problem=await core_problem(ask.served.store, question)))


async def submit_run(ask: ApiRequest[NoParameters, RunSubmission]) -> Response:
    body = ask.body
    # its options may contain secrets, such as the password of a proxy
    ask.audit_entry.takes()
    bundles = _bundles(ask.site.cluster)
    with extra_needed("a load test on nodes"):
        from ..fleet.checked_run import check_in_bundle, checked_run  # noqa: PLC0415 - as above
        from ..fleet.submission import core_problem, is_submitted, run_job  # noqa: PLC0415 - as above
        from ..fleet.submission_steps import AskCoreProblem, FleetRequest  # noqa: PLC0415 - as above
        from ..handler import limits_on_nodes  # noqa: PLC0415 - as above
    options, store = body.job_options(key_header(ask)), ask.served.store
    try:
        run = checked_run(body.run, refusal)
        # a repeated request gets its run also if its nodes, or the bundle, have gone since
        if not await is_submitted(store, run.spec.order.name, options.get("key")):
            if run.code:
                check_in_bundle(run, await _manifest(bundles, run.code))
            if problem := await core_problem(store, AskCoreProblem(run.demand)):
                raise InvalidInput("demand", problem)
    except InvalidInput as error:
        raise InvalidInput(f"run.{error.field}", error.rule) from None
    name = run.spec.order.name
    ask.audit_entry.result |= {"name": name, "code": run.code}
    wait_s = None if body.wait is None else seconds(body.wait, field="wait")
    plan = ask.control.jobs.plan(**limits_on_nodes(run.spec.plan) | options, kind=KIND.name)
    made = await ask.control.jobs.submit_request(run_job(FleetRequest(run, wait_s), name, plan))
    ask.audit_entry.result["id"] = made.id
    answer = SubmitResponse(id=made.id, created=made.created, durability=made.durability)
    location = f"{ask.request.scope.get('root_path', '')}/jobs/{made.id}"
    return json_response(msgspec.to_builtins(answer), 201 if made.created else 200, Location=location)


def _bundles(source: ClusterSource | None) -> BundleClient:
    """The bundles of the cluster of this server; raises a `Problem` if it has none."""
    bundles = None if source is None else source.bundles
    if bundles is None:
        raise Problem(404, "no_cluster", _NO_CLUSTER)
    return bundles


async def _manifest(bundles: BundleClient, digest: str) -> BundleManifest:
    """The list of the files of a bundle that is published and intact."""
    try:
        await bundles.find(digest)
        return await bundles.manifest(digest)
    except (BundleMissing, BundleCorrupt) as error:
        raise InvalidInput("code", str(error)) from None
    except BusError as error:
        raise Problem(503, "no_manager", f"no manager answers: {error}", headers={"Retry-After": "2"}) from None


OPERATIONS = (
    ApiOperation(
        method="POST",
        path="/loads/placement",
        handler=check_placement,
        scope="code",
        tag="load tests",
        summary="Ask whether the nodes of the cluster could hold a run",
        body=PlacementQuestion,
        packs=True,
        answers={200: ApiResponse(description="They could, or why not.", type=PlacementAnswer)},
        refusals=_REFUSALS,
        in_store=False,
        audits=False,
    ),
    ApiOperation(
        method="POST",
        path="/loads",
        handler=submit_run,
        scope="code",
        tag="load tests",
        summary="Submit a load test to the nodes of the cluster",
        about="Its bundle is published before. With a key, a repeated request stores the run once.",
        body=RunSubmission,
        packs=True,
        answers={
            201: ApiResponse(
                description="The run was submitted.", type=SubmitResponse, headers={"Location": "URL of the job"}
            ),
            200: ApiResponse(
                description="The run existed before.", type=SubmitResponse, headers={"Location": "URL of the job"}
            ),
        },
        refusals=_REFUSALS,
        in_store=False,
        idempotency_key=True,
    ),
)
